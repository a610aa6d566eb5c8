"""Nodes that another scheduler may fill before Kubestow's Binding is seen (docs/spec/core.md §2.6, docs/adr/0017).

Example: another scheduler binds pods of 1 CPU. Nodes a, b and c have 2.5, 2 and 1 CPU left, and pod p requests 1 CPU.
The best node by score is a, the emptiest one. It is the best node of the other scheduler as well: after p, only one pod of
theirs fits on a. So a is contested, and p goes to c, the fullest node that fits, which the other scheduler takes last.
With 3 CPU left, a has capacity for p and for two pods of theirs, and p goes to a.

If the other scheduler packs, it takes c first. Then the emptiest node is the one that it takes last, and no node is left
to it. Which of both it does is seen from its bindings: whether its nodes were fuller than the mean of the nodes on which the pod fits.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.api.podinfo import PodInfo, Requests
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.nodeset import Slots

LARGEST_S: Final = 60.0
_PODS_OF_THEIRS: Final = 2
"""A node with capacity for this number of pods of the largest size is not contested."""
_PACK: Final = 0.85
"""The share of bindings to fuller nodes from which on the other schedulers pack: on a nearly full cluster, one half is common."""
_COMPARE_S: Final = 0.01
"""The least time between two comparisons with other nodes, which take 0.1 ms with 5000 nodes."""
_WEIGHT: Final = 0.1
"""The weight of one binding in the share. 19 bindings to fuller nodes in turn show that they pack."""


class ForeignBindings:
    """The bindings of other schedulers: the largest requests of the last minute, and whether their nodes were full ones."""

    def __init__(self) -> None:
        self._on_fuller = 0.0
        """The share of bindings to the fuller ones of the nodes that fit; later bindings have more weight."""
        self._bound_at = self._since = self._compared_at = -math.inf
        self._largest: Requests = {}
        """Of the bindings since `_since`."""
        self._before: Requests = {}
        """Of those in the minute before."""

    @property
    def pack(self) -> bool:
        """Whether the other schedulers choose the fullest nodes. It takes some bindings to find out."""
        return self._on_fuller > _PACK

    def bound(self, info: PodInfo, now: float, nodes: Nodes) -> None:
        """Record a binding by another scheduler; `nodes` do not have the pod yet. O(nodes × requests)."""
        if now - self._compared_at >= _COMPARE_S:
            self._compared_at = now
            is_fuller = _is_fuller(nodes, info)
            if is_fuller is not None:
                self._on_fuller += _WEIGHT * (is_fuller - self._on_fuller)
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
    used = _used(nodes, slots, pod)
    best: Slots = slots[used == used.max()]
    return best


def _used(nodes: Nodes, slots: Slots, pod: PodInfo) -> npt.NDArray[np.float64]:
    """Return the requested parts of pods and of the pod's resources, summed."""
    used: npt.NDArray[np.float64] = nodes.pod_count[slots] / np.maximum(nodes.allowed_pods[slots], 1)
    for row, _ in _rows(nodes, pod):
        used = used + nodes.requested[row, slots] / np.maximum(nodes.allocatable[row, slots], 1)
    return used


def _rows(nodes: Nodes, pod: PodInfo) -> list[tuple[int, int]]:
    """Return row and requested amount of each resource of the pod that some node offers."""
    rows = nodes.resources()
    return [(rows[resource], amount) for resource, amount in pod.requests.items() if resource in rows]


def _is_fuller(nodes: Nodes, pod: PodInfo) -> bool | None:
    """Return whether the pod's node is fuller than the mean of the nodes with capacity for the pod; None if all are equal."""
    chosen = nodes.present_slot(pod.node_name)
    if chosen is None:
        return None
    slots = nodeset.slots(nodes.present, nodes.capacity)
    fits = nodes.pod_count[slots] < nodes.allowed_pods[slots]
    for row, amount in _rows(nodes, pod):
        fits &= nodes.allocatable[row, slots] - nodes.requested[row, slots] >= amount
    used = _used(nodes, slots, pod)
    fitting = used[fits]
    if not len(fitting) or fitting.min() == fitting.max():
        return None
    return bool(used[slots == chosen][0] > fitting.mean())
