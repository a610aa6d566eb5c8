"""One attempt: PreFilter → Filter → Score → Verify → Reserve → Permit.

A decision reads the cache and returns a value; nothing here waits or writes to the cluster. `attempt` is a generator,
so that a long attempt can let the event loop run (docs/architecture.md, "Design principles"). Between `yield`s no
change of cache or queue is applied, because changes wait in the inbox, and the use of devices stays the same
(`AllocationState.still`).

Rules: docs/spec/core.md §3.1–§3.6. Deliberate differences: all nodes are checked unless percentageOfNodesToScore is
set, and an Error on a node that is never verified is only raised if Filter finds it (ADR 0003).
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from scheduler.api.podinfo import PodInfo, placed
from scheduler.cache.cluster import AssumptionError, Cluster
from scheduler.cache.nodes import contested
from scheduler.core import nodeset
from scheduler.core.caching import LogOnce
from scheduler.core.clock import Clock
from scheduler.core.cooperative import Work, paced
from scheduler.core.decision_record import DecisionRecord, GroupRecord, NodeScore
from scheduler.core.nodeset import NodeSet
from scheduler.framework.extender import CONSULTATION, EXTENDER_NAME, Consultation, Unanswered, consultation_of
from scheduler.framework.interface import ALONE, AttemptMode, CycleState, Scored
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import FrameworkRunner, PreFiltered, narrowed_away
from scheduler.framework.status import (
    NO_NODES,
    AttemptError,
    Code,
    Diagnosis,
    Groups,
    Nominate,
    Rejection,
    Wait,
    one_node,
)
from scheduler.metrics.metrics import Metrics

_log = structlog.get_logger(__name__)
_NO_STATE: Final = "not found"

SAMPLED: Final = 0.1
"""Share of attempts whose plugins are timed one by one, as upstream."""
_RECORDED_EXAMPLES: Final = 5
_FAILURES_LOGGED: Final = 1000
_RESOURCES: Final = ("NodeResourcesFit", "NodeResourcesBalancedAllocation")
_VERIFICATIONS: Final = 4
"""Nodes that Verify refuses before Filter runs again."""


class Scheduled(msgspec.Struct):
    """A node was chosen; the pod is assumed there and everything is reserved. `waits` hold it until allowed."""

    state: CycleState
    runner: FrameworkRunner
    assumed: PodInfo
    waits: dict[str, Wait]
    record: DecisionRecord


@dataclass(slots=True)
class Unschedulable:
    """No node fits; nothing is reserved. `nominate`: "" clears a nomination, None keeps it.

    `victims` are to be evicted from the nominated node.
    """

    diagnosis: Diagnosis
    message: str
    nominate: str | None
    record: DecisionRecord
    victims: tuple[PodInfo, ...] = ()
    post_filter_s: float = 0.0
    """Seconds of PostFilter."""


@dataclass(slots=True)
class SchedulingFailed:
    """The attempt failed with an error; nothing is reserved."""

    message: str
    record: DecisionRecord


Outcome: TypeAlias = Scheduled | Unschedulable | SchedulingFailed


@dataclass(eq=False, repr=False)
class Cycle:
    """Decide for one pod at a time. Owned by the scheduling loop.

    Upstream: pkg/scheduler/schedule_one.go schedulingCycle, schedulePod, findNodesThatFitPod, assumeAndReserve
    """

    runners: Mapping[str, FrameworkRunner]
    cluster: Cluster
    clock: Clock
    rng: random.Random
    metrics: Metrics
    held_back: Callable[[PodInfo], NodeSet] = lambda _: nodeset.EMPTY
    records_runner_up: bool = False
    """Whether the record has the scores of the second-best node, too. They cost a maximum over all candidates."""
    _next_start: int = field(default=0, init=False)
    _logged_failures: LogOnce = field(default_factory=lambda: LogOnce(_FAILURES_LOGGED), init=False)
    """Failures of PostFilter that were logged: pods that PreFilter refuses meet the same one at each attempt."""

    def attempt(
        self, pod: PodInfo, attempts: int, consultation: Consultation | None = None, *, mode: AttemptMode = ALONE
    ) -> Work[Outcome]:
        """Try to place the pod. Yields only if more than 3 ms have passed since the last yield.

        Raises Unanswered if an answer of the extenders in `consultation` is missing.
        """
        return paced(self._scheduling_cycle(pod, attempts, consultation, mode), self.clock)

    def feasible(self, pod: PodInfo, mode: AttemptMode = ALONE) -> Work[NodeSet]:
        """Return the nodes that pass PreFilter and Filter. Verify may refuse some of them."""
        runner, state, within = self.runners[pod.pod.spec.scheduler_name], CycleState(mode=mode), mode.within
        pre = runner.pre_filter(state, pod)
        if pre.rejection is not None:
            return nodeset.EMPTY
        nodes = pre.nodes if within is None else pre.nodes & within
        return (yield from runner.filter(state, pod, nodes, exact=False))[0]

    def _scheduling_cycle(
        self, pod: PodInfo, attempts: int, consultation: Consultation | None, mode: AttemptMode
    ) -> Work[Outcome]:
        """Try to place the pod. Yields wherever the event loop may run. Until a node is reserved, nothing changes."""
        runner = self.runners[pod.pod.spec.scheduler_name]
        # An attempt that waited for extenders starts again from the top with their answers. It began with the first one.
        started = self.clock.now() if consultation is None else consultation.began
        record = DecisionRecord(
            pod=pod.key, uid=pod.uid, profile=runner.profile.name, attempt=attempts, started_wall=self.clock.wall()
        )
        state = CycleState(is_sampled=self.rng.random() < SAMPLED, mode=mode)
        is_answered = True
        if consultation is not None:
            if consultation.error:
                return self._failed(record, consultation.error)
            state.set(CONSULTATION, consultation)
        try:
            try:
                # A device that becomes free halfway would be free on some nodes and in use on the rest.
                with self.cluster.devices.use.still():
                    found = yield from self._schedule_pod(runner, state, pod, record)
                    if not isinstance(found, Unschedulable):
                        yield from runner.prepare_reserve(state, pod, found)
            except Unanswered:
                is_answered = False
                raise
            finally:
                if is_answered:  # otherwise this attempt is counted when it starts again
                    self.metrics.algorithm(self.clock.now() - started)
            if isinstance(found, Unschedulable):
                return found
            return self._assume_and_reserve(runner, state, placed(pod, self.cluster.nodes.name(found)), record)
        except (AttemptError, AssumptionError) as error:
            return self._failed(record, str(error))
        finally:
            record.cycle_s = self.clock.now() - started

    # -- finding a node ----------------------------------------------------------------------------------------------

    def _schedule_pod(
        self, runner: FrameworkRunner, state: CycleState, pod: PodInfo, record: DecisionRecord
    ) -> Work[int | Unschedulable]:
        nodes, within = self.cluster.nodes, state.mode.within
        record.node_count = len(nodes) if within is None else (nodes.present & within).bit_count()
        if not record.node_count:
            return _unfit(Diagnosis(0), NO_NODES, record, nominate="")
        began = self.clock.now()
        pre = runner.pre_filter(state, pod)
        self._time_point("PreFilter", pre.rejection, runner, began)
        if pre.rejection is not None:
            # No node was looked at. Preemption may still help: it sees the rejection as that of every node.
            diagnosis = self._pre_filter_diagnosis(pre, record.node_count)
            return (yield from self._run_post_filter(runner, state, pod, diagnosis, record))
        pre.nodes &= ~state.mode.besides
        if within is not None:
            pre.nodes &= within
        # A nominated node was emptied for this pod. It is tried alone and without scores.
        slot, on_nominated = yield from self._nominated(runner, state, pod)
        if slot is not None:
            return slot
        began = self.clock.now()
        status = Code.ERROR
        consultation = consultation_of(state)
        try:
            # Some plugins may pass a node that only Verify can judge, one node at a time. Without `exact` Verify runs
            # for the chosen node alone. An extender must not see nodes that Verify would refuse.
            is_exact = runner.exact or consultation is not None
            feasible, groups = yield from runner.filter(state, pod, pre.nodes, exact=is_exact)
            status = Code.SUCCESS  # as upstream, also if no node passes
        finally:
            self.metrics.point("Filter", status.value, runner.profile.name, self.clock.now() - began)
        sample = self._sampled(runner.profile, pod, pre.nodes, feasible, consultation)
        slot = yield from self._select_node(runner, state, pod, sample, record)
        if slot is None and feasible and consultation is None:
            # Verify refused every node of the sample: compute the reasons in plugin order, as upstream would. A node
            # outside of the sample may still fit.
            feasible, groups = yield from runner.filter(state, pod, pre.nodes, exact=True)
            slot = yield from self._select_node(runner, state, pod, feasible, record)
        if slot is not None:
            return slot
        if consultation is not None and feasible:
            # No node is left that all extenders accept. Nodes that they left out without a reason count as not checked.
            pre.nodes &= ~consultation.add_rejections(nodes, feasible, groups)
            for refused in groups.values():
                pre.nodes |= refused
        diagnosis = self._filter_diagnosis(pre, groups, record.node_count, on_nominated=on_nominated)
        if consultation is not None and feasible:
            diagnosis.unschedulable_plugins.add(EXTENDER_NAME)
        return (yield from self._run_post_filter(runner, state, pod, diagnosis, record))

    def _sampled(
        self,
        profile: Profile,
        pod: PodInfo,
        candidates: NodeSet,
        feasible: NodeSet,
        consultation: Consultation | None,
    ) -> NodeSet:
        """Return the nodes to choose from: a sample of the feasible nodes, as far as the extenders accept them."""

        def sample(nodes: NodeSet) -> NodeSet:
            return self._sample(profile, candidates, self._preferred(profile, pod, nodes))

        if consultation is None:
            return sample(feasible)
        return self._preferred(profile, pod, consultation.accepted(self.cluster.nodes, feasible, sample))

    def _nominated(self, runner: FrameworkRunner, state: CycleState, pod: PodInfo) -> Work[tuple[int | None, Groups]]:
        """Try the nominated node alone, without scoring (§3.3 step 3). Otherwise return the plugins that refused it."""
        name = runner.ahead.nominated_to(pod)
        slot = self.cluster.nodes.present_slot(name) if name else None
        if slot is None or not state.mode.allows(slot):
            return None, {}
        passed, groups = yield from runner.filter(state, pod, 1 << slot, exact=True)
        if not passed:
            return None, groups
        consultation = consultation_of(state)
        return (slot, {}) if consultation is None or consultation.accepts_nominated(name) else (None, {})

    def _select_node(
        self, runner: FrameworkRunner, state: CycleState, pod: PodInfo, feasible: NodeSet, record: DecisionRecord
    ) -> Work[int | None]:
        """Verify in descending order of scores until a node passes."""
        record.feasible_count = feasible.bit_count()
        if not feasible:
            return None
        scored: Scored | None = None
        refused = 0
        while feasible:
            if feasible & (feasible - 1) == 0 and scored is None:
                slot = feasible.bit_length() - 1  # one node: nothing to compare (§3.6)
            else:
                if scored is None:
                    began = self.clock.now()
                    runner.pre_score(state, pod, feasible)
                    self._time_point("PreScore", None, runner, began)
                began = self.clock.now()
                scored = yield from runner.score(state, pod, feasible)
                self._time_point("Score", None, runner, began)
                if (consultation := consultation_of(state)) is not None:
                    scored = consultation.scored(self.cluster.nodes, scored)
                slot = self._choose(runner, state, pod, scored)
            if runner.exact or (yield from runner.verify(state, pod, slot)) is None:
                if scored is not None:
                    record.scores = self._score_rows(scored, slot, feasible)
                return slot
            feasible &= ~(1 << slot)
            refused += 1
            if refused % _VERIFICATIONS == 0:
                # What was learnt about these nodes holds for equal nodes.
                feasible, _ = yield from runner.filter(state, pod, feasible, exact=False)
            yield
        return None

    def _preferred(self, profile: Profile, pod: PodInfo, feasible: NodeSet) -> NodeSet:
        """Return the preferred nodes: a node whose kubelet just rejected such a pod only if no other one fits (§2.6)."""
        return feasible if profile.ours.parity else feasible & ~self.held_back(pod) or feasible

    def _choose(self, runner: FrameworkRunner, state: CycleState, pod: PodInfo, scored: Scored) -> int:
        """Choose uniformly among the best nodes (§3.6 step 8), unless a plugin has a preference.

        If another scheduler may fill the best node, take the fullest of the nodes that are as good apart from resources.
        """
        slots = scored.slots
        is_prefix = len(slots) == slots[-1] + 1  # all slots from 0 on: a view instead of a copy
        totals = scored.total[: len(slots)] if is_prefix else scored.total[slots]
        ties = slots[totals == totals.max()]
        if state.mode.packs:
            ties = contested.fullest(self.cluster.nodes, slots, pod)
        elif runner.profile.ours.busy_nodes == "avoid" and self._is_contested(pod, int(ties[0])):
            others = totals - sum(scored.parts[name][slots] for name in _RESOURCES if name in scored.parts)
            ties = contested.fullest(self.cluster.nodes, slots[others == others.max()], pod)
        if len(ties) > 1 and runner.profile.prefer and not runner.profile.ours.parity:
            ties = self._preferred_of(runner, state, pod, ties)
        return int(ties[0] if len(ties) == 1 else ties[int(self.rng.random() * len(ties))])

    def _is_contested(self, pod: PodInfo, slot: int) -> bool:
        others = self.cluster.foreign_bindings
        largest = None if others.pack else others.largest(self.clock.now())
        return largest is not None and contested.is_contested(self.cluster.nodes, slot, pod, largest)

    def _preferred_of(
        self, runner: FrameworkRunner, state: CycleState, pod: PodInfo, ties: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.intp]:
        asked = [plugin for plugin in runner.profile.prefer if plugin.name not in state.skip_filter]
        if not asked:
            return ties
        mask = np.zeros(self.cluster.nodes.capacity, dtype=np.bool_)
        mask[ties] = True
        nodes = nodeset.from_mask(mask)
        for plugin in asked:
            nodes = plugin.prefer(state, pod, nodes) or nodes
        return nodeset.slots(nodes, self.cluster.nodes.capacity)

    def _sample(self, profile: Profile, candidates: NodeSet, feasible: NodeSet) -> NodeSet:
        """Return the first feasible nodes, round robin, with an explicit percentageOfNodesToScore (§3.3 step 5)."""
        percentage = profile.percentage_of_nodes_to_score
        everything = candidates.bit_count()
        if not percentage or percentage >= 100 or everything < 100:
            return feasible
        wanted = max(everything * percentage // 100, 100)
        if feasible.bit_count() <= wanted:
            return feasible
        slots = nodeset.slots(feasible, self.cluster.nodes.capacity)
        start = int(np.searchsorted(slots, self._next_start))
        chosen = np.concatenate((slots[start:], slots[:start]))[:wanted]
        self._next_start = int(chosen[-1]) + 1
        mask = np.zeros(self.cluster.nodes.capacity, dtype=np.bool_)
        mask[chosen] = True
        return nodeset.from_mask(mask)

    # -- no node -----------------------------------------------------------------------------------------------------

    def _pre_filter_diagnosis(self, pre: PreFiltered, node_count: int) -> Diagnosis:
        assert pre.rejection is not None
        diagnosis = Diagnosis(
            node_count, absent=pre.rejection, absent_count=node_count, pre_filter_message=pre.rejection.message
        )
        diagnosis.refuse(pre.rejection)
        diagnosis.unschedulable_plugins.update(pre.restricting)
        return diagnosis

    def _filter_diagnosis(
        self, pre: PreFiltered, groups: Groups, node_count: int, *, on_nominated: Groups
    ) -> Diagnosis:
        """Return the diagnosis.

        `on_nominated` has the reasons of the nominated node; it counts if PreFilter excluded that node.

        Upstream keeps one list of both kinds of plugins, and names all of them for the other nodes.
        """
        judged, absent = pre.nodes, pre.absent
        if absent is not None and on_nominated:
            # Upstream appends the plugins that refused the nominated node to those that narrowed the nodes.
            absent = narrowed_away(
                {*pre.restricting, *(rejection.plugin for rejection in on_nominated if rejection.plugin)}
            )
        for rejection, nodes in on_nominated.items():
            if nodes & ~pre.nodes:
                groups[rejection] = groups.get(rejection, nodeset.EMPTY) | nodes
                judged |= nodes
        diagnosis = Diagnosis(node_count, groups, absent, node_count - judged.bit_count())
        for rejection in groups:
            diagnosis.refuse(rejection)
        diagnosis.unschedulable_plugins.update(pre.restricting)
        return diagnosis

    def _run_post_filter(
        self, runner: FrameworkRunner, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, record: DecisionRecord
    ) -> Work[Unschedulable]:
        """Run PostFilter plugins in order until one finds a node, or says that there is none (§3.2, §3.9)."""
        if not state.mode.preempts:
            record.groups = self._group_rows(self._with_absent(diagnosis))
            return _unfit(diagnosis, diagnosis.message(), record, nominate=None)
        # Without a PostFilter plugin a nomination is cleared: nothing will free resources for the pod any more.
        unfit = Unschedulable(diagnosis, "", None if runner.profile.post_filter else "", record)
        messages: list[str] = []
        began = self.clock.now()
        code = Code.SUCCESS
        refused, what_if = self._with_absent(diagnosis), runner.what_if(state, pod)
        if runner.profile.post_filter:
            refused = yield from runner.with_evictable_nodes(state, pod, refused)
        for plugin in runner.profile.post_filter:
            answer = plugin.post_filter(state, pod, refused, what_if)
            if isinstance(answer, Generator):
                answer = yield from answer
            rejection = answer if isinstance(answer, Rejection) else answer.rejection
            if isinstance(answer, Nominate):
                unfit.nominate, unfit.victims = answer.node_name, answer.victims
                record.nominated, record.preemption = answer.node_name, self._group_rows(answer.tried)
                if rejection is None:
                    code, messages = Code.SUCCESS, [answer.message] if answer.message else []
                    break
            assert rejection is not None
            code = rejection.code
            if code is not Code.UNSCHEDULABLE:
                # After an unresolvable answer or an error only that answer counts, and an error is not the pod's
                # fault (§3.9).
                messages = [rejection.message] if rejection.reasons else []
                if not isinstance(answer, Nominate):
                    unfit.nominate, unfit.victims = None, ()
                if not code.is_rejection and self._logged_failures.is_new((plugin.name, rejection.message)):
                    # A plugin finds no state if PreFilter ended before it, as for a pod without its claim: that is no defect.
                    log = _log.info if rejection.message == _NO_STATE else _log.error
                    log("PostFilter failed", plugin=plugin.name, pod=pod.key, error=rejection.message, told="once")
                break
            if rejection.reasons:
                messages.append(rejection.message)
        if runner.profile.post_filter:
            unfit.post_filter_s = self.clock.now() - began
            self.metrics.point("PostFilter", code.value, runner.profile.name, unfit.post_filter_s)
        diagnosis.post_filter_message = ", ".join(messages)
        record.groups = self._group_rows(refused)
        record.victims = tuple(victim.key for victim in unfit.victims)
        unfit.message = diagnosis.message()
        record.result, record.message = "unschedulable", unfit.message
        return unfit

    def _with_absent(self, diagnosis: Diagnosis) -> Groups:
        """Return the verdict of every node, including nodes that no filter checked."""
        if diagnosis.absent is None:
            return diagnosis.groups
        seen = nodeset.EMPTY
        for nodes in diagnosis.groups.values():
            seen |= nodes
        return {**diagnosis.groups, diagnosis.absent: self.cluster.nodes.present & ~seen}

    # -- holding what was found --------------------------------------------------------------------------------------

    def _assume_and_reserve(
        self, runner: FrameworkRunner, state: CycleState, assumed: PodInfo, record: DecisionRecord
    ) -> Outcome:
        """Assume, reserve and permit. After any failure nothing stays reserved."""
        node_name = assumed.node_name
        self.cluster.assume(assumed)
        waits: dict[str, Wait] = {}
        # Each step adds its undo, and success drops them all. Unreserve runs before Forget, as upstream: plugins may
        # still look the pod up.
        with contextlib.ExitStack() as undo:
            undo.callback(self.cluster.forget, assumed)
            undo.callback(runner.unreserve, state, assumed)
            rejection = self._reserve(runner, state, assumed)
            if rejection is None:
                rejection = self._permit(runner, state, assumed, waits)
            if rejection is None:
                undo.pop_all()
                record.node, record.result = node_name, "binding"
                return Scheduled(state, runner, assumed, waits, record)
        diagnosis = one_node(rejection)
        record.groups = (GroupRecord(rejection.plugin, rejection.code.value, rejection.reasons, 1, (node_name,)),)
        return _unfit(diagnosis, diagnosis.message(), record, nominate="")

    def _reserve(self, runner: FrameworkRunner, state: CycleState, assumed: PodInfo) -> Rejection | None:
        began = self.clock.now()
        for plugin in runner.profile.reserve:
            rejection = plugin.reserve(state, assumed, assumed.node_name)
            if rejection is not None:
                self._time_point("Reserve", rejection, runner, began)
                return _about_the_pod("Reserve", plugin.name, rejection)
        if runner.profile.reserve:
            self._time_point("Reserve", None, runner, began)
        return None

    def _permit(
        self, runner: FrameworkRunner, state: CycleState, assumed: PodInfo, waits: dict[str, Wait]
    ) -> Rejection | None:
        began = self.clock.now()
        for plugin in runner.profile.permit:
            answer = plugin.permit(state, assumed, assumed.node_name)
            if isinstance(answer, Wait):
                waits[plugin.name] = answer
            elif answer is not None:
                self._time_point("Permit", answer, runner, began)
                return _about_the_pod("Permit", plugin.name, answer)
        if runner.profile.permit:
            self._time_point("Permit", None, runner, began)
        return None

    # -- records -----------------------------------------------------------------------------------------------------

    def _failed(self, record: DecisionRecord, message: str) -> SchedulingFailed:
        record.result, record.message = "error", message
        return SchedulingFailed(message, record)

    def _time_point(self, point: str, rejection: Rejection | None, runner: FrameworkRunner, began: float) -> None:
        status = Code.SUCCESS if rejection is None else rejection.code
        self.metrics.point(point, status.value, runner.profile.name, self.clock.now() - began)

    def _score_rows(self, scored: Scored, chosen: int, feasible: NodeSet) -> tuple[NodeScore, ...]:
        """Return the scores of the chosen node, and those of the best other node that passes, where they are recorded."""
        others = nodeset.slots(feasible & ~(1 << chosen), self.cluster.nodes.capacity) if self.records_runner_up else ()
        rows = (self._score_row(scored, chosen),)
        if not len(others):
            return rows
        return (*rows, self._score_row(scored, int(others[np.argmax(scored.total[others])])))

    def _score_row(self, scored: Scored, chosen: int) -> NodeScore:
        name = self.cluster.nodes.name(chosen)
        parts = {plugin: int(column[chosen]) for plugin, column in scored.parts.items()}
        return NodeScore(name, int(scored.total[chosen]), parts)

    def _group_rows(self, refused: Groups) -> tuple[GroupRecord, ...]:
        rows = []
        for rejection, nodes in refused.items():
            examples = []
            for slot in nodeset.each(nodes):
                examples.append(self.cluster.nodes.name(slot))
                if len(examples) == _RECORDED_EXAMPLES:
                    break
            rows.append(
                GroupRecord(
                    rejection.plugin, rejection.code.value, rejection.reasons, nodes.bit_count(), tuple(examples)
                )
            )
        return tuple(rows)


def _about_the_pod(point: str, plugin: str, rejection: Rejection) -> Rejection:
    """Return the rejection; an error of the plugin ends the attempt instead."""
    if not rejection.code.is_rejection:
        raise AttemptError(f'running {point} plugin "{plugin}": {rejection.message}', plugin=plugin)
    return rejection


def _unfit(diagnosis: Diagnosis, message: str, record: DecisionRecord, *, nominate: str | None) -> Unschedulable:
    record.result, record.message = "unschedulable", message
    return Unschedulable(diagnosis, message, nominate, record)
