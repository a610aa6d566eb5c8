"""Events that can help a pod that did not fit (docs/spec/core.md §5.5, Events).

Upstream does not exclude ignored resources when a node is added or grows, and leaves pods waiting that would fit. Here
such events retry the pod.
A larger amount of an ignored resource alone retries no pod.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from scheduler.api.core_v1 import Node
from scheduler.api.podinfo import CPU, MEMORY, PodInfo, Requests, allocatable
from scheduler.api.quantity import NATIVE
from scheduler.api.resource_v1 import IMPLICIT_EXTENDED_RESOURCE, DeviceClass
from scheduler.cache.devices.manager import ServedResources
from scheduler.core.cluster_events import UPDATE, Action, ClusterEvent, Resource
from scheduler.framework.interface import EventHint, Hint, Topics
from scheduler.framework.memo import all_alike, by_requests, queue_itself
from scheduler.plugins.noderesourcesfit.shortage import Ignored, checked

_POD_GONE: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
_NEIGHBOUR_SHRANK: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
_POD_ITSELF_SHRANK: Final = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN)
_NODE: Final = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)
_CLASS: Final = ClusterEvent(Resource.DEVICE_CLASS, Action.ADD | UPDATE)
_PODS: Final = "pods"
_CAME: Final = "a node came"
_BYTES_PER_MILLI_CPU: Final = 4 * 1024**2
"""A common ratio on nodes; it decides which of the two a pod requests more of."""

Size: TypeAlias = tuple[str, int]
"""A resource and the bit length of an amount: a node with a shorter one is too small for the pod."""


class NodeResourcesFitHints:
    """The hints of one profile.

    Upstream: pkg/scheduler/framework/plugins/noderesources/fit.go EventsToRegister
    """

    def __init__(self, ignored: Ignored, served: ServedResources) -> None:
        self._ignored = ignored
        self._served = served
        self._seen: tuple[tuple[Node, Requests], ...] = ()

    def events(self) -> Sequence[EventHint]:
        """Return the events that free or add resources, or that lower the pod's requests.

        A device class may also begin to serve a resource that no node has.
        """
        classes = (EventHint(_CLASS, _after_class, by_requests),) if self._served.is_on else ()
        return (
            EventHint(_POD_GONE, _after_pod_gone, all_alike),
            EventHint(_NEIGHBOUR_SHRANK, _after_neighbour_shrank, by_requests, Topics(_wanted, _given_back)),
            EventHint(_POD_ITSELF_SHRANK, queue_itself),
            EventHint(_NODE, self._after_node, by_requests, Topics(self._waits_for, self._offers)),
            *classes,
        )

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


def _after_pod_gone(_pod: PodInfo, old: PodInfo | None, _new: PodInfo | None) -> Hint:
    had_node = old is not None and (old.node_name or old.pod.status.nominated_node_name)
    return Hint.QUEUE if had_node else Hint.SKIP


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


def _after_neighbour_shrank(pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> Hint:
    if old is None or new is None or not new.node_name:
        return Hint.SKIP
    freed = any(
        amount > 0 and old.requests.get(name, 0) > new.requests.get(name, 0) for name, amount in pod.requests.items()
    )
    return Hint.QUEUE if freed else Hint.SKIP


def _wanted(pod: PodInfo) -> Iterator[Hashable]:
    """Return the resources that the pod requests some of."""
    return (name for name, amount in pod.requests.items() if amount > 0)


def _given_back(old: PodInfo | None, new: PodInfo | None) -> Iterator[Hashable]:
    return _larger(old.requests, new.requests) if old is not None and new is not None else iter(())


def _larger(one: Requests, other: Requests) -> Iterator[str]:
    return (name for name in dict.fromkeys((*one, *other)) if one.get(name, 0) > other.get(name, 0))


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
