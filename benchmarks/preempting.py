"""The preemption workload: nodes full of pods of low priority, and pods of high priority that need three of their places.

As upstream's own benchmark: four pods of 900m on a node of 4 CPU, 3 CPU for each that comes. Grace is zero, since no
kubelet would end it.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

PREEMPTION = "preemption"
LOW_PER_NODE = 4
_LOW = {"cpu": "900m", "memory": "500Mi"}
HIGH = {"cpu": "3", "memory": "500Mi"}
_CLASSES = {"low": 1, "high": 1000}


def priority_classes() -> list[bytes]:
    """To be created before the pods."""
    return [
        msgspec.json.encode(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
        )
        for name, value in _CLASSES.items()
    ]


def low_spec(node: str, container: dict[str, object]) -> dict[str, object]:
    """A pod that holds a place from the start; `container` lacks its requests."""
    filled = container | {"resources": {"requests": _LOW}}
    return {
        "nodeName": node,
        "priorityClassName": "low",
        "terminationGracePeriodSeconds": 0,
        "containers": [filled],
    }


def broken_rules(nodes: Iterable[str]) -> int:
    """Nodes that got two of the large pods."""
    return sum(count > 1 for count in Counter(nodes).values())
