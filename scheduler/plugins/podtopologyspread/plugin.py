"""PodTopologySpread at its extension points (docs/spec/core.md §5.8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.config.args import PodTopologySpreadArgs
from scheduler.core.nodeset import NodeSet, Slots
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, EventHint, Scores, StateKey
from scheduler.framework.status import SKIP, Groups, Skip
from scheduler.plugins.podtopologyspread.constraints import EligibleNodesCache, SpreadRulesCache
from scheduler.plugins.podtopologyspread.filtering import PLUGIN, HardConstraints
from scheduler.plugins.podtopologyspread.hints import PodTopologySpreadHints
from scheduler.plugins.podtopologyspread.scoring import CandidateDomains, SoftConstraints

_FRAME: Final[StateKey[CandidateDomains]] = StateKey("podtopologyspread.frame")
_SELECTING_KINDS: Final = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")


class PodTopologySpread:
    """PreFilter, Filter, PreScore, Score. Needs no AddPod and RemovePod: Filter reads the current counts.

    Upstream: pkg/scheduler/framework/plugins/podtopologyspread/plugin.go PodTopologySpread
    """

    name: Final = PLUGIN

    def __init__(self, args: PodTopologySpreadArgs | None, handle: Handle) -> None:
        nodes = handle.cluster.nodes
        eligibility = EligibleNodesCache(nodes)
        self._rules = SpreadRulesCache(args if args is not None else PodTopologySpreadArgs(), handle.cluster.workloads)
        self._hard = HardConstraints(nodes, eligibility)
        self._soft = SoftConstraints(nodes, eligibility)
        self.reads: tuple[str, ...] = _SELECTING_KINDS if self._rules.has_defaults else ()
        """Default constraints count the pods that these kinds select."""

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None:
        """Skip without hard constraints."""
        return None if self._rules.has_hard(pod) else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Reject nodes without a topology key, and nodes where the pod would exceed the allowed skew."""
        return self._hard.refused(pod, self._rules.of(pod).hard, nodes)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None:
        """Skip without soft constraints."""
        soft = self._rules.of(pod).soft
        if not soft.each:
            return SKIP
        state.set(_FRAME, self._soft.frame(soft, nodes))
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Scores:
        """Return the weighted number of matching pods in the node's domains, for the candidates of PreScore."""
        return self._soft.raw(pod, state.get(_FRAME))

    def normalize_score(self, state: CycleState, pod: PodInfo, scores: Scores, slots: Slots) -> Scores:
        """Give the best score to the smallest number, and 0 to nodes that lack a required key."""
        return self._soft.normalized(state.get(_FRAME), scores, slots)

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the events that change the counts or domains of the hard constraints; see `hints`."""
        return PodTopologySpreadHints(self._rules).events()
