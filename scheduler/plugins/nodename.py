"""NodeName: a pod that names its node goes there or nowhere (docs/spec/core.md §5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import NODE_ADD
from scheduler.core.nodeset import NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, EventHint
from scheduler.framework.status import Code, Groups, Rejection


class NodeName:
    """Filter. Pods in the queue never name a node; pods in a simulation may.

    Upstream: pkg/scheduler/framework/plugins/nodename/node_name.go NodeName
    """

    name: Final = "NodeName"
    depends_on_pods: Final = False
    _rejection: Final = Rejection(name, Code.UNRESOLVABLE, ("node(s) didn't match the requested node name",))

    def __init__(self, args: object, handle: Handle) -> None:
        self._nodes = handle.cluster.nodes

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Reject all nodes except the named one."""
        if not pod.node_name:
            return {}
        refused = nodes & ~self._nodes.by_name((pod.node_name,))
        return {self._rejection: refused} if refused else {}

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the event of a new node."""
        return (EventHint(NODE_ADD),)
