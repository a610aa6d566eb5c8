"""The PriorityClasses of every cluster: a pod gets its priority from one of them."""

import functools
from typing import Any, Final

from simulator.apiserver.kinds.defaults import SYSTEM_PRIORITIES

PRIORITIES: Final = (-100, -10, 1, 2, 3, 4, 5, 6, 10, 50, 100, 500, 1000)
"""Of which there are classes, of pods that preempt and of pods that never do. 0 is a pod's without a class."""

_PREEMPTS: Final = "PreemptLowerPriority"


def class_name(priority: int, *, never: bool) -> str:
    """Of the PriorityClass with this value, whose pods preempt or never do. 0 has none whose pods preempt."""
    if priority not in (0, *PRIORITIES):
        raise ValueError(f"no class of priority {priority}: see PRIORITIES")
    return f"{'minus-' if priority < 0 else 'p'}{abs(priority)}{'-never' if never else ''}"


def priority_classes() -> list[dict[str, Any]]:
    """All that pods of the short form name, but those that every API server makes."""
    wanted = [(0, True), *((priority, never) for priority in PRIORITIES for never in (False, True))]
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": class_name(priority, never=never)},
            "value": priority,
            **({"preemptionPolicy": "Never"} if never else {}),
        }
        for priority, never in wanted
    ]


@functools.cache
def of_class(name: str) -> tuple[int, str]:
    """What admission makes of a pod's priorityClassName: its priority and preemptionPolicy."""
    if name in SYSTEM_PRIORITIES:
        return SYSTEM_PRIORITIES[name], _PREEMPTS
    found = {one["metadata"]["name"]: one for one in priority_classes()} | {"": {"value": 0}}
    return found[name]["value"], found[name].get("preemptionPolicy", _PREEMPTS)
