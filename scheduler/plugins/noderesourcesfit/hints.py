"""The events that may let a pod fit the free resources (docs/spec/core.md §1.10).

Upstream does not exclude ignored resources when a node is added or grows, and leaves pods waiting that would fit. Here
such events retry the pod. A larger amount of an ignored resource alone retries no pod.

Upstream retries a pod whenever any pod leaves any node. Here it is retried only if it could now have the resources of
that node. On a large cluster that is full of small pods, a pod that needs most of a node is tried some thousand times
less often:

    n1  4 CPUs, 3 in use    a pod that requests 2 waits
    a pod of 500m ends      1.5 are free: the pod goes on waiting
    another of 500m ends    2 are free: the pod is tried

Pods of lower priority count as gone, because the pod may evict them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from scheduler.api.core_v1 import Node
from scheduler.api.pod_group import group_of
from scheduler.api.podinfo import CPU, MEMORY, PodInfo, Requests, allocatable
from scheduler.api.quantity import NATIVE
from scheduler.api.resource_v1 import IMPLICIT_EXTENDED_RESOURCE, DeviceClass
from scheduler.cache.devices.manager import ServedResources
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core.cluster_events import UPDATE, Action, ClusterEvent, Resource
from scheduler.framework.interface import EventHint, Hint, Topics
from scheduler.framework.memo import by_requests, queue_itself
from scheduler.plugins.noderesourcesfit.shortage import Ignored, RemainingResources, checked, number

_PODS: Final = "pods"
_CAME: Final = "a node came"
_BYTES_PER_MILLI_CPU: Final = 4 * 1024**2
"""A common ratio on nodes; it decides which of the two a pod requests more of."""

_DIGITS: Final = 5

Size: TypeAlias = tuple[str, int]
"""A resource and the bit length of an amount: a node with a shorter one is too small for the pod."""


class NodeResourcesFitHints:
    """The hints of one profile.

    Upstream: pkg/scheduler/framework/plugins/noderesources/fit.go EventsToRegister
    """

    def __init__(self, nodes: Nodes, ignored: Ignored, served: ServedResources) -> None:
        self._nodes = nodes
        self._ignored = ignored
        self._served = served
        self._seen: tuple[tuple[Node, Requests], ...] = ()

    def events(self) -> Sequence[EventHint]:
        """Return the events that free or add resources, or that lower the pod's requests.

        A device class may also begin to serve a resource that no node has. A pod whose nominated node became too
        small can preempt elsewhere; kube-scheduler wakes it from version 1.38 on.
        """
        shrank = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)
        events = (
            EventHint(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), self._after_pod_gone, self._by_demand),
            EventHint(shrank, self._after_neighbour_shrank, self._by_demand, Topics(_wanted, _given_back)),
            EventHint(ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN), queue_itself),
            EventHint(node, self._after_node, by_requests, Topics(self._waits_for, self._offers)),
            EventHint(
                ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE),
                self._after_nominated_node_shrank,
                _by_requests_and_nomination,
                Topics(_nominated, self._shrank),
            ),
        )
        if not self._served.is_on:
            return events
        return (*events, EventHint(ClusterEvent(Resource.DEVICE_CLASS, Action.ADD | UPDATE), _after_class, by_requests))

    def _after_pod_gone(self, pod: PodInfo, old: PodInfo | None, _new: PodInfo | None) -> Hint:
        """Return QUEUE if the pod may have the node that the other pod left, or was nominated to."""
        node_name = (old.node_name or old.pod.status.nominated_node_name) if old is not None else ""
        return Hint.QUEUE if node_name and self._may_have(node_name, pod) else Hint.SKIP

    def _after_neighbour_shrank(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> Hint:
        if old is None or new is None or not new.node_name:
            return Hint.SKIP
        freed = any(
            amount > 0 and old.requests.get(name, 0) > new.requests.get(name, 0)
            for name, amount in pod.requests.items()
        )
        return Hint.QUEUE if freed and self._may_have(new.node_name, pod) else Hint.SKIP

    def _may_have(self, node_name: str, pod: PodInfo) -> bool:
        """Return whether the pod fits the node without the pods that it may evict. O(pods on the node).

        The node is seen as it is now, also when the event is older: later events call the hint again. Requests
        are rounded down, as in `_by_demand`.
        """
        slot = self._nodes.present_slot(node_name)
        if slot is None:
            return False  # a node that comes is another event
        served = self._served.among(pod.requests)
        wanted = tuple((name, _rounded(amount)) for name, amount in checked(pod.requests, self._ignored))
        if number(self._nodes, wanted, slot, served) == 0:
            return True
        remaining = RemainingResources(self._nodes, wanted, slot, served)
        for other in self._evictable(pod, slot):
            remaining.remove(other)
        return remaining.verdict() is None

    def _evictable(self, pod: PodInfo, slot: int) -> Iterable[PodInfo]:
        """Return the pods on the node that the pod may evict; of a pod of a group all, because the group decides."""
        others = self._nodes.pods(slot).values()
        if group_of(pod.pod) is not None:
            return others
        if pod.pod.spec.preemption_policy == "Never":
            return ()
        return (other for other in others if other.priority < pod.priority)

    @staticmethod
    def _by_demand(pod: PodInfo) -> Hashable:
        """Return all of the pod that `_may_have` reads."""
        requests = tuple(sorted((name, _rounded(amount)) for name, amount in pod.requests.items()))
        return requests, pod.priority, pod.pod.spec.preemption_policy, group_of(pod.pod) is not None

    def _after_node(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        if new is None:
            return Hint.SKIP
        wanted, served = checked(pod.requests, self._ignored), self._served.among(pod.requests)
        now = self._amounts(new)
        by_devices = [name for name in served if not now.get(name, 0)]
        wanted = tuple(each for each in wanted if each[0] not in by_devices)
        if now.get(_PODS, 0) < 1 or any(amount > now.get(name, 0) for name, amount in wanted):
            return Hint.SKIP
        if old is None or by_devices:
            return Hint.QUEUE
        before = self._amounts(old)
        grew = any(now.get(name, 0) > before.get(name, 0) for name in (_PODS, *(name for name, _ in wanted)))
        return Hint.QUEUE if grew else Hint.SKIP

    def _after_nominated_node_shrank(self, pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
        if old is None or new is None or pod.pod.status.nominated_node_name != new.metadata.name:
            return Hint.SKIP
        now, before = self._amounts(new), self._amounts(old)
        served = self._served.among(pod.requests)
        is_too_small = any(
            now.get(name, 0) < amount <= before.get(name, 0)
            for name, amount in (*checked(pod.requests, self._ignored), (_PODS, 1))
            if name not in served or now.get(name, 0)
        )
        return Hint.QUEUE if is_too_small else Hint.SKIP

    def _shrank(self, old: Node | None, new: Node | None) -> Iterator[Hashable]:
        """Yield the node's name if it has less of a resource."""
        if old is not None and new is not None and any(_larger(self._amounts(old), self._amounts(new))):
            yield new.metadata.name

    def _waits_for(self, pod: PodInfo) -> Iterator[Hashable] | None:
        """Yield topics of nodes that are new or grew, and are large enough in the resource the pod requests most of.

        Returns None for pods with resources that devices may serve: any change of a node may help them.
        """
        if self._served.among(pod.requests):
            return None
        wanted = checked(pod.requests, self._ignored)
        size = _size(wanted)
        return ((name, size) for name in (_CAME, _PODS, *(name for name, _ in wanted)))

    def _offers(self, old: Node | None, new: Node | None) -> Iterator[Hashable]:
        """Yield the resources that grew, for each size that the node can hold."""
        if new is None:
            return iter(())
        now = self._amounts(new)
        grown = (_CAME,) if old is None else tuple(_larger(now, self._amounts(old)))
        return ((name, size) for name in grown for size in _sizes(now))

    def _amounts(self, node: Node) -> Requests:
        """Return a node's allocatable amounts, parsed once per event for all shapes of waiting pods."""
        for seen, amounts in self._seen:
            if seen is node:
                return amounts
        amounts = allocatable(node.status.allocatable)
        self._seen = ((node, amounts), *self._seen[:1])
        return amounts


def _after_class(pod: PodInfo, old: DeviceClass | None, new: DeviceClass | None) -> Hint:
    """Return QUEUE if the class now serves a resource that the pod requests, and did not before."""
    if new is None:
        return Hint.SKIP
    now = _serves(new) - (_serves(old) if old is not None else set())
    return Hint.QUEUE if any(pod.requests.get(name, 0) > 0 for name in now) else Hint.SKIP


def _serves(device_class: DeviceClass) -> set[str]:
    own = device_class.spec.extended_resource_name
    implicit = IMPLICIT_EXTENDED_RESOURCE + device_class.metadata.name
    return {implicit, own} if own else {implicit}


def _by_requests_and_nomination(pod: PodInfo) -> Hashable:
    return by_requests(pod), pod.pod.status.nominated_node_name


def _nominated(pod: PodInfo) -> tuple[Hashable, ...]:
    node_name = pod.pod.status.nominated_node_name
    return (node_name,) if node_name else ()


def _wanted(pod: PodInfo) -> Iterator[Hashable]:
    """Return the resources that the pod requests some of."""
    return (name for name, amount in pod.requests.items() if amount > 0)


def _given_back(old: PodInfo | None, new: PodInfo | None) -> Iterator[Hashable]:
    return _larger(old.requests, new.requests) if old is not None and new is not None else iter(())


def _larger(one: Requests, other: Requests) -> Iterator[str]:
    return (name for name in dict.fromkeys((*one, *other)) if one.get(name, 0) > other.get(name, 0))


def _rounded(amount: int) -> int:
    """Return the amount with its first five binary digits: at most one in sixteen less.

    So thousands of pods that all request another amount are some hundred questions for each pod that ends.
    """
    low = max(0, amount.bit_length() - _DIGITS)
    return amount >> low << low


def _size(wanted: Iterable[tuple[str, int]]) -> Size:
    """Return the size of a rare resource if the pod requests one, else of cpu or memory, else one pod."""
    amounts = dict(wanted)
    rare = next((name for name in amounts if name not in NATIVE), "")
    by_memory = amounts.get(MEMORY, 0) > amounts.get(CPU, 0) * _BYTES_PER_MILLI_CPU
    for name in (rare, MEMORY if by_memory else CPU, *amounts):
        if name in amounts:
            return name, amounts[name].bit_length()
    return _PODS, 1


def _sizes(amounts: Requests) -> Iterator[Size]:
    return ((name, digits) for name, amount in amounts.items() for digits in range(1, amount.bit_length() + 1))
