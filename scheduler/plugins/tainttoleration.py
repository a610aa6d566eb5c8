"""TaintToleration: hard taints reject nodes, soft taints lower the score (docs/spec/core.md §5.3, §A.6).

Nodes are checked per list of taints, not one by one. Results are cached per list of tolerations.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.api.core_v1 import Node, Toleration
from scheduler.api.node_affinity import HARD_EFFECTS, tolerated, untolerated
from scheduler.api.podinfo import PodInfo
from scheduler.cache.nodes.node_groups import refusing
from scheduler.core import nodeset
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, EventHint, Hint, Scores, Topics
from scheduler.framework.memo import ByObjects, by_tolerations, queue_itself
from scheduler.framework.scoring import default_normalize
from scheduler.framework.status import SKIP, Code, Groups, Rejection, Skip

_SOFT: Final = "PreferNoSchedule"
_OPEN: Final = "no hard taint is left"


class TaintToleration:
    """Filter, PreScore, Score.

    Upstream: pkg/scheduler/framework/plugins/tainttoleration/taint_toleration.go TaintToleration
    """

    name: Final = "TaintToleration"
    depends_on_pods: Final = False
    _rejection: Final = Rejection(name, Code.UNRESOLVABLE, ("node(s) had untolerated taint(s)",))

    def __init__(self, args: object, handle: Handle) -> None:
        self._nodes = handle.cluster.nodes
        self._rejected: ByObjects[NodeSet] = ByObjects(self._nodes)
        self._soft_counts: ByObjects[tuple[NodeSet, Scores]] = ByObjects(self._nodes, size=64)

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Reject nodes with a NoSchedule or NoExecute taint that is not tolerated."""
        if not self._nodes.taints:
            return {}
        tolerations = pod.pod.spec.tolerations
        refused = nodes & self._rejected.get(tolerations, lambda: refusing(self._nodes, tolerations))
        return {self._rejection: refused} if refused else {}

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None:
        """Skip if no candidate has a soft taint that the pod does not tolerate.

        Upstream scores such candidates with 100 each; an equal score for all nodes changes no ranking.
        """
        return None if self._nodes.taints and self._soft(pod)[0] & nodes else SKIP

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Scores:
        """Return the number of soft taints that are not tolerated."""
        return self._soft(pod)[1]

    def normalize_score(self, state: CycleState, pod: PodInfo, scores: Scores, slots: npt.NDArray[np.intp]) -> Scores:
        """Give the best score to the smallest number."""
        return default_normalize(scores, slots, reverse=True)

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the events of a node whose taints now admit the pod, and of a pod with a new toleration."""
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT)
        return (
            EventHint(node, _after_node, by_tolerations, Topics(_waits_for, _opened)),
            EventHint(ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION), queue_itself),
        )

    def _soft(self, pod: PodInfo) -> tuple[NodeSet, Scores]:
        tolerations = pod.pod.spec.tolerations
        return self._soft_counts.get(tolerations, lambda: self._counting(tolerations))

    def _counting(self, tolerations: tuple[Toleration, ...]) -> tuple[NodeSet, Scores]:
        capacity = self._nodes.capacity
        column: Scores = np.zeros(capacity, dtype=np.int64)
        some = EMPTY
        for taints, nodes in self._nodes.taints.items():
            # A toleration with another effect does not match a soft taint, so tolerations need no filter by effect.
            count = sum(taint.effect == _SOFT and not tolerated(tolerations, taint) for taint in taints)
            if count:
                some |= nodes
                column[nodeset.slots(nodes, capacity)] = count
        return some, column


def _after_node(pod: PodInfo, old: Node | None, new: Node | None) -> Hint:
    tolerations = pod.pod.spec.tolerations
    was_out = old is None or untolerated(tolerations, old.spec.taints) is not None
    is_in = new is not None and untolerated(tolerations, new.spec.taints) is None
    return Hint.QUEUE if was_out and is_in else Hint.SKIP


def _waits_for(pod: PodInfo) -> Iterator[Hashable]:
    """Yield the topic of nodes without hard taints, and one per toleration for a node's first hard taint."""
    yield _OPEN
    yield from (("tolerates", toleration.key) for toleration in pod.pod.spec.tolerations)


def _opened(old: Node | None, new: Node | None) -> tuple[Hashable, ...]:
    """Return the topics of a node's remaining hard taints if a hard taint was removed; () otherwise."""
    before = old.spec.taints if old is not None else ()
    after = new.spec.taints if new is not None else ()
    is_news = old is None or any(taint.effect in HARD_EFFECTS and taint not in after for taint in before)
    if not is_news:
        return ()
    remaining = next((taint for taint in after if taint.effect in HARD_EFFECTS), None)
    return (_OPEN,) if remaining is None else (("tolerates", remaining.key), ("tolerates", ""))
