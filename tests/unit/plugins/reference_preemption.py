"""Preemption taken literally: copies of the cluster, every pod added and taken away by hand, nothing remembered.

Written from docs/spec/core.md §3.5 and §3.10. The filters are the real ones, on a new cluster for every question; all
else here is its own.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scheduler.api.apps_and_policy import PodDisruptionBudget
from scheduler.api.core_v1 import Node
from scheduler.api.podinfo import PodInfo, placed
from scheduler.cache.cluster import Cluster
from scheduler.config.args import KubestowArgs
from scheduler.core.cooperative import answered, finish
from scheduler.core.feature_gates import EMPTY_BUDGETS, TIES_BY_UID
from scheduler.framework.interface import CycleState
from scheduler.framework.status import SKIP, Rejection
from scheduler.plugins import BUILT_IN
from tests.unit.objects import handle
from tests.unit.plugins.preempting import NO_VICTIMS, Refusal

FILTERS: Final = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "NodeDeclaredFeatures",
)
"""Of the default profile, in its order; a test compares."""
_WITH_STATE: Final = frozenset({"VolumeRestrictions", "DynamicResources"})
_NOW: Final = "9999-01-01T00:00:00Z"


@dataclass(frozen=True)
class Victims:
    """Return the victims of one node, the most important first."""

    pods: tuple[PodInfo, ...]
    violations: int


@dataclass(frozen=True)
class LiteralPreemption:
    """The whole world as lists."""

    nodes: Sequence[Node]
    pods: Sequence[PodInfo]
    budgets: Sequence[PodDisruptionBudget]
    nominated: Mapping[str, Sequence[PodInfo]]
    ours: KubestowArgs
    gates: frozenset[str] = frozenset()

    # -- one node ------------------------------------------------------------------------------------------------------

    def on(self, incoming: PodInfo, name: str) -> Victims | Refusal:
        """The dry run."""
        there = [pod for pod in self.pods if pod.node_name == name and pod.priority < incoming.priority]
        if not there:
            return NO_VICTIMS
        left = [pod for pod in self.pods if pod not in there]
        no = self.fits(incoming, name, left)
        if no is not None:
            return no.code, no.reasons
        there.sort(key=functools.cmp_to_key(self._compare))
        protected = self._protected(there)
        victims, violations = [], 0
        for pod in (*protected, *(pod for pod in there if pod not in protected)):
            left.append(pod)
            if self.fits(incoming, name, left) is not None:
                left.remove(pod)
                victims.append(pod)
                violations += pod in protected
        assert victims, "the preemptor fitted from the beginning"
        victims.sort(key=functools.cmp_to_key(self._compare))
        return Victims(tuple(victims), violations)

    def fits(self, incoming: PodInfo, name: str, pods: Sequence[PodInfo]) -> Rejection | None:
        """Both passes: with the nominated pods that go before this one, then without."""
        bound = {pod.uid for pod in self.pods}
        ahead = [
            placed(other, name)
            for other in self.nominated.get(name, ())
            if other.priority >= incoming.priority and other.uid not in {incoming.uid, *bound}
        ]
        if ahead:
            no = self._filtered(incoming, name, [*pods, *ahead])
            if no is not None:
                return no
        return self._filtered(incoming, name, pods)

    def _filtered(self, incoming: PodInfo, name: str, pods: Iterable[PodInfo]) -> Rejection | None:
        skipping = self._skipping(incoming)
        fresh = self._cluster(pods)
        slot = fresh.nodes.slot(name)
        assert slot is not None
        for plugin, made in self._plugins(fresh):
            if plugin not in skipping:
                state = CycleState()
                if plugin in _WITH_STATE:
                    made.pre_filter(state, incoming, fresh.nodes.present)
                for no in finish(answered(made.filter(state, incoming, 1 << slot))):
                    assert isinstance(no, Rejection)
                    return no
                exactly = getattr(made, "verify", None) if plugin in _WITH_STATE else None
                no = finish(answered(exactly(state, incoming, slot))) if exactly is not None else None
                if no is not None:
                    assert isinstance(no, Rejection)
                    return no
        return None

    def _skipping(self, incoming: PodInfo) -> set[str]:
        """PreFilter runs once, with all bound pods and without nominated ones."""
        fresh, found = self._cluster(self.pods), set()
        for plugin, made in self._plugins(fresh):
            before = getattr(made, "pre_filter", None)
            if before is not None and before(CycleState(), incoming, fresh.nodes.present) is SKIP:
                found.add(plugin)
        return found

    def _cluster(self, pods: Iterable[PodInfo]) -> Cluster:
        fresh = Cluster()
        for node in self.nodes:
            fresh.set_node(node)
        for pod in pods:
            fresh.add_pod(pod)
        return fresh

    def _plugins(self, fresh: Cluster) -> Iterator[tuple[str, Any]]:
        """The filters by name; few of them need what their PreFilter left in the state of the attempt."""
        given = dataclasses.replace(handle(fresh, feature_gates=self.gates), ours=self.ours)
        return ((name, BUILT_IN[name](None, given)) for name in FILTERS)

    def _protected(self, pods: Iterable[PodInfo]) -> list[PodInfo]:
        allowed = {budget.key: budget.status.disruptions_allowed for budget in self.budgets}
        found = []
        for pod in pods:
            is_over = False
            for budget in self.budgets:
                if self._counts(budget, pod):
                    allowed[budget.key] -= 1
                    is_over |= allowed[budget.key] < 0
            if is_over:
                found.append(pod)
        return found

    def _compare(self, one: PodInfo, other: PodInfo) -> int:
        """Negative if the first is more important. Where upstream leaves the order open, the key decides."""
        if one.priority != other.priority:
            return other.priority - one.priority
        by_uid = TIES_BY_UID in self.gates
        first = _started(one), one.uid if by_uid else one.key
        second = _started(other), other.uid if by_uid else other.key
        return -1 if first < second else int(first > second)

    def _counts(self, budget: PodDisruptionBudget, pod: PodInfo) -> bool:
        metadata, selector = pod.pod.metadata, budget.spec.selector
        if budget.metadata.namespace != metadata.namespace or selector is None:
            return False
        is_old = EMPTY_BUDGETS not in self.gates
        if is_old and not (metadata.labels and (selector.match_labels or selector.match_expressions)):
            return False
        return selector.matches(metadata.labels) and metadata.name not in budget.status.disrupted_pods

    # -- the choice ----------------------------------------------------------------------------------------------------

    @staticmethod
    def best(found: Mapping[str, Victims]) -> set[str]:
        """Return the nodes that are equal to the best by all criteria."""
        left = set(found)
        for worth in CRITERIA:
            least = min(worth(found[name]) for name in left)
            left = {name for name in left if worth(found[name]) == least}
        return left


def _latest_start(victims: Victims) -> float:
    top = max(pod.priority for pod in victims.pods)
    earliest = min(_started(pod) for pod in victims.pods if pod.priority == top)
    return -float("".join(letter for letter in earliest if letter.isdigit()))


CRITERIA: Final[tuple[Callable[[Victims], float], ...]] = (
    lambda victims: victims.violations,
    lambda victims: victims.pods[0].priority,
    lambda victims: sum(pod.priority + 2**31 for pod in victims.pods),
    lambda victims: len(victims.pods),
    _latest_start,
)
"""Each is to be as small as possible."""


def _started(pod: PodInfo) -> str:
    """Compare as text, because all times have one format. A pod that has not started starts now."""
    return pod.pod.status.start_time or _NOW
