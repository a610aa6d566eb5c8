"""The preemption workloads: nodes full of pods of low priority, and pods of high priority that need their places.

preemption        as upstream's own benchmark: four pods of 900m on a node of 4 CPU, of which three leave for each pod of 3 CPU.
gangs-preemption  ten pods of 350m on each node, which all leave for one pod of 3900m; a hundred of these are a group.

Grace is zero, since no kubelet would end it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec


class Preempting(NamedTuple):
    """The pods on a node, and what a pod of high priority requests."""

    low_per_node: int
    low_cpu: str
    high_cpu: str


PREEMPTION, GANGS_THAT_PREEMPT = "preemption", "gangs-preemption"
PREEMPTIONS: Mapping[str, Preempting] = {
    PREEMPTION: Preempting(4, low_cpu="900m", high_cpu="3"),
    GANGS_THAT_PREEMPT: Preempting(10, low_cpu="350m", high_cpu="3900m"),
}
HIGH_CLASS = "high"
_MEMORY = "500Mi"
_CLASSES = {"low": 1, HIGH_CLASS: 1000}


def requests(workload: str) -> dict[str, str]:
    """Of a pod that comes."""
    return {"cpu": PREEMPTIONS[workload].high_cpu, "memory": _MEMORY}


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


def low_spec(workload: str, node: str, container: dict[str, object]) -> dict[str, object]:
    """A pod that holds a place from the start; `container` lacks its requests."""
    filled = container | {"resources": {"requests": {"cpu": PREEMPTIONS[workload].low_cpu, "memory": _MEMORY}}}
    return {
        "nodeName": node,
        "priorityClassName": "low",
        "terminationGracePeriodSeconds": 0,
        "containers": [filled],
    }


def broken_rules(nodes: Iterable[str]) -> int:
    """Nodes that got two of the large pods."""
    return sum(count > 1 for count in Counter(nodes).values())
