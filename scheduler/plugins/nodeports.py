"""NodePorts: a host port can be taken once per node (docs/spec/core.md §5.10, §A.4)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

from scheduler.api.podinfo import ANY_IP, HostPort, PodInfo
from scheduler.core.cluster_events import NODE_ADD, Action, ClusterEvent, Resource
from scheduler.core.nodeset import NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, EventHint, Hint, Tally, Topics
from scheduler.framework.memo import by_host_ports
from scheduler.framework.status import SKIP, Code, Groups, Rejection, Skip


class NodePorts:
    """PreFilter, Filter.

    Upstream: pkg/scheduler/framework/plugins/nodeports/node_ports.go NodePorts
    """

    name: Final = "NodePorts"
    _rejection: Final = Rejection(
        name, Code.UNSCHEDULABLE, ("node(s) didn't have free ports for the requested pod ports",)
    )

    def __init__(self, args: object, handle: Handle) -> None:
        self._nodes = handle.cluster.nodes
        self._ports = self._nodes.ports

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None:
        """Skip pods without host ports."""
        return None if pod.host_ports else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Reject nodes where any requested port is in use."""
        refused = nodes & self._ports.conflicts(pod.host_ports)
        return {self._rejection: refused} if refused else {}

    def tally(self, state: CycleState, pod: PodInfo, slot: int) -> Tally:
        """Count the pods on this node with conflicting host ports."""
        return _Held(self._nodes.pods(slot).values(), pod.host_ports, self._rejection)

    def tally_shape(self, pod: PodInfo) -> Hashable:
        return pod.host_ports

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the events of a new node, and of a deleted pod that used, or was to use, a requested port."""
        pod_gone = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
        topics = Topics(_wanted, _given_back)
        return (EventHint(pod_gone, _after_pod_gone, by_host_ports, topics), EventHint(NODE_ADD))


class _Held:
    """The number of conflicts between a node's pods and the requested ports."""

    __slots__ = ("_conflicts", "_rejection", "_wanted")

    def __init__(self, pods: Iterable[PodInfo], wanted: tuple[HostPort, ...], rejection: Rejection) -> None:
        self._wanted = wanted
        self._rejection = rejection
        self._conflicts = 0
        for pod in pods:
            self.add(pod)

    def add(self, other: PodInfo) -> None:
        if other.host_ports:
            self._conflicts += _conflicts(self._wanted, other.host_ports)

    def remove(self, other: PodInfo) -> None:
        if other.host_ports:
            self._conflicts -= _conflicts(self._wanted, other.host_ports)

    def verdict(self) -> Rejection | None:
        """Return a rejection while any pod uses a requested port."""
        return self._rejection if self._conflicts else None


def _conflicts(wanted: tuple[HostPort, ...], held: tuple[HostPort, ...]) -> int:
    """Return the number of pairs that cannot be on one node."""
    pairs = (
        (one, other) for one in wanted for other in held if (one.protocol, one.port) == (other.protocol, other.port)
    )
    return sum(one.ip == other.ip or ANY_IP in {one.ip, other.ip} for one, other in pairs)


def _after_pod_gone(pod: PodInfo, old: PodInfo | None, _new: PodInfo | None) -> Hint:
    if old is None or not (old.node_name or old.pod.status.nominated_node_name):
        return Hint.SKIP
    return Hint.QUEUE if _conflicts(pod.host_ports, old.host_ports) else Hint.SKIP


def _wanted(pod: PodInfo) -> Iterator[Hashable]:
    return ((port.protocol, port.port) for port in pod.host_ports)


def _given_back(old: PodInfo | None, _new: PodInfo | None) -> Iterator[Hashable]:
    return _wanted(old) if old is not None else iter(())
