"""Nodes that another scheduler may fill before Kubestow's Binding is seen (docs/spec/core.md §2.6, docs/adr/0017).

Example: another scheduler binds pods of 1 CPU. Nodes a, b and c have 2.5, 2 and 1 CPU left, and pod p requests 1 CPU.
The best node by score is a, the emptiest one. It is the best node of the other scheduler as well: after p, only one pod of
theirs fits on a. So a is contested, and p goes to c, the fullest node that fits, which the other scheduler takes last.
With 3 CPU left, a has capacity for p and for two pods of theirs, and p goes to a.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.api.podinfo import PodInfo, Requests
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core.nodeset import Slots

LARGEST_S: Final = 60.0
_PODS_OF_THEIRS: Final = 2
"""A node with capacity for this number of pods of the largest size is not contested."""


class ForeignBindings:
    """The largest requests of pods that other schedulers bound in the last minute."""

    def __init__(self) -> None:
        self._bound_at = self._since = -math.inf
        self._largest: Requests = {}
        """Of the bindings since `_since`."""
        self._before: Requests = {}
        """Of those in the minute before."""

    def bound(self, info: PodInfo, now: float) -> None:
        """Record a binding by another scheduler. O(requests)."""
        if now - self._since >= LARGEST_S:
            self._before = self._largest if now - self._since < 2 * LARGEST_S else {}
            self._largest, self._since = {}, now
        self._bound_at = now
        for resource, amount in info.requests.items():
            self._largest[resource] = max(amount, self._largest.get(resource, 0))

    def largest(self, now: float) -> Requests | None:
        """Return the largest request for each resource; None if no other scheduler bound a pod in the last minute.

        A size counts for one to two minutes.
        """
        if now - self._bound_at > LARGEST_S:
            return None
        before, since = self._before, self._largest
        return {name: max(before.get(name, 0), since.get(name, 0)) for name in before | since}


def is_contested(nodes: Nodes, slot: int, pod: PodInfo, largest: Requests) -> bool:
    """Return whether two pods of the other scheduler do not fit on the node together with this pod. O(requests)."""
    node = nodes.view(slot)
    if node.allowed_pods - node.pod_count - 1 < _PODS_OF_THEIRS:
        return True
    return any(
        node.allocatable(resource) - node.requested(resource) - amount < _PODS_OF_THEIRS * largest.get(resource, 0)
        for resource, amount in pod.requests.items()
    )


def fullest(nodes: Nodes, slots: Slots, pod: PodInfo) -> Slots:
    """Return the nodes of which the pods request the largest part, over the resources of this pod. O(slots × requests)."""
    used: npt.NDArray[np.float64] = nodes.pod_count[slots] / np.maximum(nodes.allowed_pods[slots], 1)
    for resource in pod.requests:
        row = nodes.resources().get(resource)
        if row is not None:
            used = used + nodes.requested[row, slots] / np.maximum(nodes.allocatable[row, slots], 1)
    best: Slots = slots[used == used.max()]
    return best
