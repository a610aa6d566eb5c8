"""Runs a profile's plugins at the extension points of one attempt, and combines their results as upstream does.

The table of combinations is in docs/spec/core.md §3.2, filtering with nominated pods in §3.5, scoring in §3.6. Errors
of a plugin are raised as `AttemptError`, which ends only this attempt. Long computations are generators, which yield
where the event loop may run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import numpy.typing as npt

from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.core import nodeset
from scheduler.core.caching import Computed
from scheduler.core.clock import Clock
from scheduler.core.cooperative import Work, answered
from scheduler.core.errors import UnforeseenErrors
from scheduler.core.nodeset import EMPTY, NodeSet, Slots
from scheduler.framework.dry_run import NominatedPods, Simulation
from scheduler.framework.interface import MAX_NODE_SCORE, CycleState, PrepareReservePlugin, Scored, Scores
from scheduler.framework.nominator import Nominator
from scheduler.framework.profile import BoundFilter, BoundScore, Profile
from scheduler.framework.status import AttemptError, Code, Groups, Narrow, Rejection, Skip
from scheduler.metrics.metrics import CallCount, Metrics


class PreFiltered(msgspec.Struct):
    """The result of PreFilter. `rejection` ends the search; `absent` is the rejection of nodes that it excluded."""

    nodes: NodeSet
    rejection: Rejection | None = None
    absent: Rejection | None = None
    restricting: tuple[str, ...] = ()
    """Plugins that narrowed the nodes: they count as having rejected the pod."""


class FrameworkRunner:
    """The plugins of one profile on one cluster.

    Upstream: pkg/scheduler/framework/runtime/framework.go RunPreFilterPlugins, RunFilterPlugins, RunScorePlugins
    """

    def __init__(
        self,
        profile: Profile,
        cluster: Cluster,
        nominations: Nominator,
        *,
        clock: Clock,
        metrics: Metrics,
        errors: UnforeseenErrors | None = None,
    ) -> None:
        self._errors = errors or UnforeseenErrors()
        self.profile = profile
        self._clock = clock
        self._metrics = metrics
        self.cluster = cluster
        self._nodes = cluster.nodes
        self.ahead = NominatedPods(profile, cluster, nominations, clock=clock, check_node=self.check_node)
        self._pre_filter_calls = self._calls("PreFilter")
        self._filter_calls = self._calls("Filter")
        self._pre_score_calls = self._calls("PreScore")
        self._score_calls = self._calls("Score")
        self._preparing = [plugin for plugin in profile.reserve if isinstance(plugin, PrepareReservePlugin)]
        self._last_nodes: NodeSet = EMPTY
        self._last_slots: Slots = nodeset.slots(EMPTY, 1)
        self.exact = profile.ours.parity
        """Whether every node is verified before scoring (parity)."""

    # -- PreFilter ---------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo) -> PreFiltered:
        """Run all PreFilter plugins in order; node restrictions are intersected."""
        everything = self._nodes.present
        names: frozenset[str] | None = None
        restricting: list[str] = []
        remembered: Rejection | None = None
        for plugin in self.profile.pre_filter:
            self._pre_filter_calls[plugin.name].calls += 1
            began = self._clock.now() if state.is_sampled else 0.0
            answer = plugin.pre_filter(state, pod, everything)
            if state.is_sampled:
                self._time(plugin.name, "PreFilter", began, _code(answer))
            match answer:
                case None:
                    continue
                case Skip():
                    state.skip_filter.add(plugin.name)
                case Rejection(code=Code.UNRESOLVABLE | Code.PENDING):
                    return PreFiltered(EMPTY, answer)
                case Rejection(code=Code.UNSCHEDULABLE):
                    remembered = answer
                case Rejection():
                    raise AttemptError(
                        f'running PreFilter plugin "{plugin.name}": {answer.message}', plugin=plugin.name
                    )
                case Narrow(node_names=allowed):
                    names = allowed if names is None else names & allowed
                    restricting.append(plugin.name)
                    if not names:
                        return PreFiltered(EMPTY, _nowhere(restricting), restricting=tuple(restricting))
        if remembered is not None:
            return PreFiltered(EMPTY, remembered)
        if names is None:
            return PreFiltered(everything)
        return PreFiltered(
            self._nodes.by_name(names), absent=narrowed_away(restricting), restricting=tuple(restricting)
        )

    # -- Filter ------------------------------------------------------------------------------------------------------

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet, *, exact: bool) -> Work[tuple[NodeSet, Groups]]:
        """Return the nodes that pass, and the rejections. With `exact`, Verify runs right after its plugin's Filter.

        Nodes with nominated pods of equal or higher priority must pass with and without those pods (§3.5).
        """
        groups: Groups = {}
        refused = yield from self.ahead.refusing(
            state, pod, nodes, groups, one_pass=lambda trial, some: self.passing(trial, pod, some, groups, exact=exact)
        )
        nodes = yield from self.passing(state, pod, nodes & ~refused, groups, exact=exact)
        return nodes, groups

    def verify(self, state: CycleState, pod: PodInfo, slot: int) -> Work[Rejection | None]:
        """Return the exact result of every deferred plugin for one node."""
        deferred = [bound for bound in self.profile.filter if bound.verify is not None]
        deferred = [each for each in deferred if each.name not in state.skip_filter and not each.is_exact(state, pod)]
        return (yield from self._verified(deferred, state, pod, slot)) if deferred else None

    def _verified(
        self, deferred: Iterable[BoundFilter], state: CycleState, pod: PodInfo, slot: int
    ) -> Work[Rejection | None]:
        for bound in deferred:
            assert bound.verify is not None
            answer = bound.verify(state, pod, slot)
            rejection = answer if answer is None or isinstance(answer, Rejection) else (yield from answer)
            if rejection is not None:
                return _checked(rejection, bound)
        return None

    def check_node(self, pod: PodInfo, slot: int, state: CycleState) -> Work[Rejection | None]:
        """Run Filter and Verify for one node with the current cache."""
        passed, groups = yield from self.filter(state, pod, 1 << slot, exact=True)
        return None if passed else next(iter(groups))

    def what_if(self, state: CycleState, pod: PodInfo) -> Simulation:
        """Return the dry run of a pod whose PreFilter has run."""
        return Simulation(self.ahead, state, pod)

    def prepare_reserve(self, state: CycleState, pod: PodInfo, slot: int) -> Work[None]:
        """Let plugins compute what they will reserve on the node."""
        for plugin in self._preparing:
            yield from plugin.prepare_reserve(state, pod, slot)

    def passing(self, state: CycleState, pod: PodInfo, nodes: NodeSet, groups: Groups, *, exact: bool) -> Work[NodeSet]:
        """Run the filters in order with the cache as it is, nominated pods apart; return the nodes that pass."""
        deferred: list[BoundFilter] = []
        for bound in self.profile.filter:
            if not nodes:
                break
            if bound.name in state.skip_filter:
                continue
            self._filter_calls[bound.name].calls += 1
            began = self._clock.now() if state.is_sampled else 0.0
            answer = bound.filter(state, pod, nodes)
            refused = answer if type(answer) is dict else (yield from answered(answer))
            if state.is_sampled:
                self._time(bound.name, "Filter", began, _code_of(refused))
            if refused and (first := _first_error(refused)):
                refused, nodes = yield from self._past_errors(
                    bound, deferred, state, pod, refused=refused, first=first, nodes=nodes, groups=groups
                )
            for rejection, slots in refused.items():
                if slots:
                    groups[rejection] = groups.get(rejection, EMPTY) | slots
                    nodes &= ~slots
            if bound.verify is None or bound.is_exact(state, pod):
                continue
            if not exact:
                deferred.append(bound)
                continue
            found = yield from self._verified_each(bound, state, pod, nodes)
            for rejection, slots in found.items():
                groups[rejection] = groups.get(rejection, EMPTY) | slots
                nodes &= ~slots
        return nodes

    def _past_errors(  # noqa: PLR0913 (an attempt and its intermediate results)
        self,
        bound: BoundFilter,
        deferred: Sequence[BoundFilter],
        state: CycleState,
        pod: PodInfo,
        *,
        refused: Groups,
        first: NodeSet,
        nodes: NodeSet,
        groups: Groups,
    ) -> Work[tuple[Groups, NodeSet]]:
        """Return the filter's rejections and the remaining nodes.

        Raise AttemptError if the filter fails on a candidate (§3.3 step 6). `first` is the first node on which it
        failed. A node that Verify of an earlier plugin rejects is not a candidate, because upstream does not run the
        filter there.
        """
        while first:
            rejection = yield from self._verified(deferred, state, pod, first.bit_length() - 1)
            if rejection is None:
                for failure, slots in refused.items():
                    if slots & first:
                        _checked(failure, bound)
                return refused, nodes
            groups[rejection] = groups.get(rejection, EMPTY) | first
            nodes &= ~first
            if not nodes:
                return {}, nodes
            self._filter_calls[bound.name].calls += 1
            began = self._clock.now() if state.is_sampled else 0.0
            refused = yield from answered(bound.filter(state, pod, nodes))
            if state.is_sampled:
                self._time(bound.name, "Filter", began, _code_of(refused))
            first = _first_error(refused)
        return refused, nodes

    def _verified_each(self, bound: BoundFilter, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Work[Groups]:
        refused: Groups = {}
        for slot in nodeset.each(nodes):
            rejection = yield from self._verified((bound,), state, pod, slot)
            if rejection is not None:
                refused[rejection] = refused.get(rejection, EMPTY) | 1 << slot
            yield
        return refused

    def with_evictable_nodes(self, state: CycleState, pod: PodInfo, refused: Groups) -> Work[Groups]:
        """Return the rejections for preemption: nodes where an eviction would change a result become resolvable."""
        by_plugin = {
            bound.name: bound.preemptible_nodes for bound in self.profile.filter if bound.preemptible_nodes is not None
        }
        evictable: Groups = {}
        for refusal, nodes in refused.items():
            preemptible_nodes = by_plugin.get(refusal.plugin) if refusal.code is Code.UNRESOLVABLE else None
            helped = (
                (yield from preemptible_nodes(state, pod, refusal, nodes)) & nodes
                if preemptible_nodes is not None
                else EMPTY
            )
            for rejection, part in ((refusal, nodes & ~helped), (replace(refusal, code=Code.UNSCHEDULABLE), helped)):
                if part:
                    evictable[rejection] = evictable.get(rejection, EMPTY) | part
            yield  # a plugin may give each node a different reason
        return evictable

    # -- Reserve -----------------------------------------------------------------------------------------------------

    def unreserve(self, state: CycleState, pod: PodInfo) -> None:
        """Run every unreserve in reverse, also if reserve was not called. A failure is logged and stops no other."""
        for plugin in reversed(self.profile.reserve):
            try:
                plugin.unreserve(state, pod, pod.node_name)
            except Exception as error:  # noqa: BLE001 (the rest must be undone, or the reservation would stay permanently)
                about = {"plugin": plugin.name, "pod": pod.key, "node": pod.node_name}
                self._errors.record("binding", error, "unreserve failed", **about)

    # -- Score -------------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> None:
        """Run PreScore once, with the feasible nodes."""
        for plugin in self.profile.pre_score:
            self._pre_score_calls[plugin.name].calls += 1
            began = self._clock.now() if state.is_sampled else 0.0
            skipped = plugin.pre_score(state, pod, nodes)
            if state.is_sampled:
                self._time(plugin.name, "PreScore", began, Code.SUCCESS if skipped is None else Code.SKIP)
            if skipped is not None:
                state.skip_score.add(plugin.name)

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Work[Scored]:
        """Run Score and NormalizeScore with weights. Repeat it after a node left the set: normalization may change."""
        slots = self._slots(nodes)
        total: Scores | None = None
        parts: dict[str, Scores] = {}
        for bound in self.profile.score:
            if bound.name in state.skip_score:
                continue
            self._score_calls[bound.name].calls += 1
            began = self._clock.now() if state.is_sampled else 0.0
            answer = bound.score(state, pod, nodes)
            column = answer if isinstance(answer, np.ndarray) else (yield from answer)
            if state.is_sampled:
                self._time(bound.name, "Score", began, Code.SUCCESS)
            if bound.normalize is not None:
                column = bound.normalize(state, pod, column, slots)
            if bound.is_checked:
                _in_range(bound, column, slots)
            part = column if bound.weight == 1 else column * bound.weight
            total = part if total is None else total + part
            parts[bound.name] = part
        if total is None:
            total = np.zeros(self._nodes.capacity, dtype=np.int64)
        return Scored(total, slots, parts)

    def _slots(self, nodes: NodeSet) -> Slots:
        """Return the set as an array; it is cached, because consecutive attempts usually have the same feasible nodes."""
        if nodes != self._last_nodes:
            self._last_nodes, self._last_slots = nodes, nodeset.slots(nodes, self._nodes.capacity)
        return self._last_slots

    def _calls(self, point: str) -> Computed[str, CallCount]:
        """Return plugin → its count for plugin_evaluation_total."""
        return Computed(lambda plugin: self._metrics.evaluations(plugin, point, self.profile.name))

    def _time(self, plugin: str, point: str, began: float, code: Code) -> None:
        """Record plugin_execution_duration_seconds; only for sampled attempts."""
        self._metrics.plugin(plugin, point, code.value, self._clock.now() - began)


def _code(answer: Narrow | Rejection | Skip | None) -> Code:
    if isinstance(answer, Rejection):
        return answer.code
    return Code.SKIP if isinstance(answer, Skip) else Code.SUCCESS


def _code_of(refused: Groups) -> Code:
    return next((rejection.code for rejection in refused), Code.SUCCESS)


def _checked(rejection: Rejection, bound: BoundFilter) -> Rejection:
    if not rejection.code.is_rejection:
        raise AttemptError(f'running "{bound.name}" filter plugin: {rejection.message}', plugin=bound.name)
    return rejection


def _first_error(refused: Groups) -> NodeSet:
    """Return the first node, by slot, on which a filter failed. Its error is raised, whatever node is evaluated first."""
    failed = EMPTY
    for rejection, slots in refused.items():
        if not rejection.code.is_rejection:
            failed |= slots
    return failed & -failed


def _in_range(bound: BoundScore, column: Scores, slots: npt.NDArray[np.intp]) -> None:
    if column.min() >= 0 and column.max() <= MAX_NODE_SCORE:
        return
    wrong = column[slots]
    wrong = wrong[(wrong < 0) | (wrong > MAX_NODE_SCORE)]
    if wrong.size:
        raise AttemptError(
            f'applying score defaultWeights on Score plugins: plugin "{bound.name}" returns an invalid score {wrong[0]}, '
            f"it should in the range of [0, {MAX_NODE_SCORE}] after normalizing",
            plugin=bound.name,
        )


def narrowed_away(plugins: Iterable[str]) -> Rejection:
    """Return the rejection of nodes that PreFilter excluded (docs/spec/core.md §3.3 step 4)."""
    return Rejection("", Code.UNRESOLVABLE, (f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(plugins))}]",))


def _nowhere(restricting: list[str]) -> Rejection:
    if len(restricting) == 1:
        text = f"node(s) didn't satisfy plugin {restricting[0]}"
    else:
        text = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(restricting))}] simultaneously"
    return Rejection(restricting[-1], Code.UNRESOLVABLE, (text,))
