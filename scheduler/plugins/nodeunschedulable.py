"""NodeUnschedulable: cordoned nodes accept only pods that tolerate the cordon (docs/spec/core.md §5.1, §5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.api.core_v1 import Node
from scheduler.api.node_affinity import UNSCHEDULABLE_TAINT, tolerated
from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.core.nodeset import NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, EventHint, Hint
from scheduler.framework.memo import all_alike
from scheduler.framework.status import Code, Groups, Rejection


class NodeUnschedulable:
    """Filter.

    Upstream: pkg/scheduler/framework/plugins/nodeunschedulable/node_unschedulable.go NodeUnschedulable
    """

    name: Final = "NodeUnschedulable"
    depends_on_pods: Final = False
    _rejection: Final = Rejection(name, Code.UNRESOLVABLE, ("node(s) were unschedulable",))

    def __init__(self, args: object, handle: Handle) -> None:
        self._nodes = handle.cluster.nodes

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Reject cordoned nodes unless the pod tolerates `node.kubernetes.io/unschedulable:NoSchedule`."""
        refused = nodes & self._nodes.unschedulable
        if not refused or tolerated(pod.pod.spec.tolerations, UNSCHEDULABLE_TAINT):
            return {}
        return {self._rejection: refused}

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the events of a new or uncordoned node, and of a pod that now tolerates the cordon."""
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT)
        toleration = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION)
        return (EventHint(node, _after_node, all_alike), EventHint(toleration, _after_toleration))


def _after_node(_pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
    opened = new is not None and not new.spec.unschedulable and (old is None or old.spec.unschedulable)
    return Hint.QUEUE if opened else Hint.SKIP


def _after_toleration(pod: PodInfo, _old: PodInfo | None, new: PodInfo | None) -> Hint:
    if new is None or new.uid != pod.uid:
        return Hint.SKIP
    return Hint.QUEUE if tolerated(new.pod.spec.tolerations, UNSCHEDULABLE_TAINT) else Hint.SKIP
