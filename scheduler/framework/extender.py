"""Extenders as decisions see them: the interface of one, and its answers about one pod.

An attempt is plain calls and cannot wait. If it needs an answer, it raises `Unanswered`. The scheduling loop awaits the
answer while other pods are tried, and then starts the attempt again from its beginning with the same `Consultation`
(docs/adr/0014). All results but the answers are therefore computed on the newest state.

Rules: docs/spec/core.md §3.3, §3.6, §3.10.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn, Protocol

import numpy as np
import structlog

from scheduler.api.podinfo import PodInfo
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.errors import shortened
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.interface import MAX_NODE_SCORE, CycleState, Scored, Scores, StateKey
from scheduler.framework.status import Code, Groups, Rejection

_log = structlog.get_logger(__name__)

EXTENDER_NAME: Final = "Extender"
"""The plugin name under which pods wait that an extender rejected. All events wake them."""
MAX_EXTENDER_PRIORITY: Final = 10
_SCALE: Final = MAX_NODE_SCORE // MAX_EXTENDER_PRIORITY
_MOST: Final = 2**62
"""A larger sum of scores would overflow a column."""
_MOST_REASONS: Final = 500
"""A condition must not grow beyond what the API server accepts."""


class ExtenderError(Exception):
    """A call of an extender failed. `is_answer`: the extender itself reported the error, and did nothing."""

    def __init__(self, message: str, *, is_answer: bool = False) -> None:
        super().__init__(message)
        self.message = shortened(message)
        self.is_answer = is_answer


@dataclass(frozen=True, slots=True)
class FilterResult:
    """The answer to a filter call. A node that neither passes nor failed was left out."""

    passed: frozenset[str]
    failed: Mapping[str, str]
    failed_and_unresolvable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods that must leave a node, and how many of them a disruption budget protects."""

    pods: tuple[PodInfo, ...]
    violations: int


@dataclass(frozen=True, slots=True)
class MetaVictims:
    """Victims by uid, as an extender answers them."""

    uids: tuple[str, ...]
    violations: int


class Extender(Protocol):
    """One extender. The calls take at most its `httpTimeout`, and raise ExtenderError.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/extender.go Extender
    """

    name: str
    """Its urlPrefix."""
    weight: int
    is_ignorable: bool
    is_filter: bool
    is_prioritizer: bool
    is_binder: bool
    supports_preemption: bool

    def is_interested(self, pod: PodInfo) -> bool:
        """Return whether the pod requests a resource that the extender manages. Without such resources: always."""

    async def filter(self, pod: PodInfo, nodes: Sequence[str]) -> FilterResult:
        """Return which of these nodes can hold the pod."""

    async def prioritize(self, pod: PodInfo, nodes: Sequence[str]) -> Iterable[tuple[str, int]]:
        """Return scores, usually between 0 and 10."""

    async def process_preemption(self, pod: PodInfo, victims: Mapping[str, Victims]) -> Mapping[str, MetaVictims]:
        """Return the candidates that the extender accepts, with their victims."""

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Bind the pod."""


class Unanswered(Exception):
    """The attempt needs an answer: await `call`, then start the attempt again with the same consultation."""

    def __init__(self, call: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self.call = call


class Consultation:
    """The answers of the extenders that are interested in a pod, from its first start to the end of its attempt."""

    def __init__(self, pod: PodInfo, extenders: Iterable[Extender], began: float) -> None:
        """Create a consultation without answers. `began` is when the attempt began."""
        self.pod = pod
        self.began = began
        self.error = ""
        """The error of an extender that is not ignorable. It ends the attempt."""
        self._extenders = tuple(extenders)
        self._filters = any(extender.is_filter for extender in self._extenders)
        self._scores_nodes = any(extender.is_prioritizer for extender in self._extenders)
        self.supports_preemption = any(extender.supports_preemption for extender in self._extenders)
        self._nominated: dict[str, bool] = {}
        self._sent: set[str] = set()
        self._passed: set[str] = set()
        self._failed: dict[str, Rejection] = {}
        self._scores: dict[str, dict[str, int]] = {}
        self.proposed = False
        """Whether the extenders got the candidates of a preemption."""
        self.victims: Mapping[str, Victims] = {}
        """The candidates that they accept."""
        self.preemption_error = ""

    # -- Filter ------------------------------------------------------------------------------------------------------

    def accepts_nominated(self, name: str) -> bool:
        """Return whether the extenders accept the nominated node. An error of an extender counts as a refusal."""
        if not self._filters:
            return True
        if name not in self._nominated:
            raise Unanswered(partial(self._call_for_nominated, name))
        return self._nominated[name]

    def accepted(self, nodes: Nodes, feasible: NodeSet, sample: Callable[[NodeSet], NodeSet]) -> NodeSet:
        """Return the feasible nodes that the extenders accept.

        Raise Unanswered if none is known and a feasible node was in no question. `sample` chooses the nodes of a
        question.
        """
        is_question = self._filters or (self._scores_nodes and feasible.bit_count() > 1)
        if not self._sent and not is_question:
            return sample(feasible)
        passed = _set_of(nodes, self._passed) & feasible
        if passed:
            return passed
        rest = feasible & ~_set_of(nodes, self._sent)
        if not rest:
            return EMPTY
        names = [nodes.name(slot) for slot in nodeset.slots(sample(rest), nodes.capacity).tolist()]
        raise Unanswered(partial(self._call_for_nodes, names))

    def add_rejections(self, nodes: Nodes, refused: NodeSet, groups: Groups) -> NodeSet:
        """Add the reasons of the extenders to `groups`. As upstream, they replace those of filters.

        `refused` are the feasible nodes that no extender accepted. Return those without a reason.
        """
        left_out = refused
        for name, rejection in self._failed.items():
            slot = nodes.present_slot(name)
            if slot is None:
                continue
            bit = 1 << slot
            left_out &= ~bit
            for other in [other for other, those in groups.items() if those & bit]:
                groups[other] &= ~bit
                if not groups[other]:
                    del groups[other]
            is_one_too_many = rejection not in groups and len(groups) >= _MOST_REASONS
            shown = _rejection(rejection.code, "rejected by an extender") if is_one_too_many else rejection
            groups[shown] = groups.get(shown, EMPTY) | bit
        return left_out

    async def _call_for_nominated(self, name: str) -> None:
        try:
            self._nominated[name] = bool(await self._filter([name]))
        except ExtenderError as error:
            _log.warning("Evaluation failed on nominated node", pod=self.pod.key, node=name, error=error.message)
            self._nominated[name] = False

    async def _call_for_nodes(self, names: list[str]) -> None:
        try:
            passed = await self._filter(names)
        except ExtenderError as error:
            self.error = error.message
            return
        if len(passed) > 1:
            await self._prioritize(passed)
        self._sent.update(names)
        self._passed.update(passed)

    async def _filter(self, names: list[str]) -> list[str]:
        """Call the extenders one after another; each gets the nodes that the one before accepted.

        Upstream: pkg/scheduler/schedule_one.go findNodesThatPassExtenders
        """
        for extender in self._extenders:
            if not names:
                break
            if not extender.is_filter:
                continue
            try:
                answer = await extender.filter(self.pod, names)
            except ExtenderError as error:
                if not extender.is_ignorable:
                    raise
                self._skip(extender, error)
                continue
            unresolvable = answer.failed_and_unresolvable
            for name, why in unresolvable.items():
                self._failed[name] = _rejection(Code.UNRESOLVABLE, why)
            for name in answer.failed.keys() - unresolvable.keys():
                self._failed[name] = _rejection(Code.UNSCHEDULABLE, answer.failed[name])
            names = [name for name in names if name in answer.passed]
        return names

    # -- Score -------------------------------------------------------------------------------------------------------

    def scored(self, nodes: Nodes, scored: Scored) -> Scored:
        """Add the scores of the extenders to those of the plugins."""
        total, parts = scored.total, dict(scored.parts)
        for extender, scores in self._scores.items():
            scores_by_slot = {slot: score for name, score in scores.items() if (slot := nodes.slot(name)) is not None}
            column: Scores = np.zeros(nodes.capacity, dtype=np.int64)
            column[list(scores_by_slot)] = [min(max(score, -_MOST), _MOST) for score in scores_by_slot.values()]
            total = total + column
            parts[extender] = column
        return Scored(total, scored.slots, parts)

    async def _prioritize(self, names: list[str]) -> None:
        """Call all extenders at once. One that fails gives no score.

        Upstream: pkg/scheduler/schedule_one.go prioritizeNodes
        """
        prioritizers = [extender for extender in self._extenders if extender.is_prioritizer]
        answers = await asyncio.gather(
            *(extender.prioritize(self.pod, names) for extender in prioritizers), return_exceptions=True
        )
        for extender, answer in zip(prioritizers, answers):
            if isinstance(answer, ExtenderError):
                _log.info(
                    "Failed to run extender's priority function. No score given by this extender.",
                    extender=extender.name,
                    pod=self.pod.key,
                    error=answer.message,
                )
                continue
            if isinstance(answer, BaseException):
                raise answer
            scores = self._scores.setdefault(extender.name, {})
            for name, score in answer:
                scores[name] = scores.get(name, 0) + score * extender.weight * _SCALE

    # -- preemption --------------------------------------------------------------------------------------------------

    def propose(self, candidates: Mapping[str, Victims], pods: Mapping[str, Mapping[str, PodInfo]]) -> NoReturn:
        """Raise Unanswered with the candidates of a preemption. `pods` has all pods of these nodes by uid."""
        self.proposed = True
        raise Unanswered(partial(self._process_preemption, candidates, pods))

    async def _process_preemption(
        self, candidates: Mapping[str, Victims], pods: Mapping[str, Mapping[str, PodInfo]]
    ) -> None:
        """Call the extenders one after another; each gets the answer of the one before.

        A candidate without victims may stay without for the next extender. At the end it is dropped. An answer without
        victims for another candidate is an error.
        Upstream: pkg/scheduler/framework/preemption/preemption.go callExtenders
        """
        for extender in self._extenders:
            if not candidates:
                break
            if not extender.supports_preemption:
                continue
            try:
                answer = await extender.process_preemption(self.pod, candidates)
                found = {name: _victims(extender, name, meta, pods) for name, meta in answer.items()}
            except ExtenderError as error:
                if not extender.is_ignorable:
                    self.preemption_error = error.message
                    break
                self._skip(extender, error)
                continue
            sent = candidates
            emptied = [name for name, of in found.items() if not of.pods and not (name in sent and not sent[name].pods)]
            if emptied and not extender.is_ignorable:
                self.preemption_error = f'expected at least one victim pod on node "{emptied[0]}"'
                break
            candidates = {name: of for name, of in found.items() if name not in emptied}
        self.victims = {name: of for name, of in candidates.items() if of.pods}

    def _skip(self, extender: Extender, error: ExtenderError) -> None:
        _log.info(
            "Skipping extender as it returned error and has ignorable flag set",
            extender=extender.name,
            pod=self.pod.key,
            error=error.message,
        )


def _set_of(nodes: Nodes, names: Iterable[str]) -> NodeSet:
    """Return the nodes with these names, quickly also for thousands."""
    mask = np.zeros(nodes.capacity, dtype=np.bool_)
    mask[[slot for name in names if (slot := nodes.slot(name)) is not None]] = True
    return nodeset.from_mask(mask) & nodes.present


def _rejection(code: Code, why: str) -> Rejection:
    return Rejection(EXTENDER_NAME, code, (shortened(why),))


def _victims(extender: Extender, name: str, meta: MetaVictims, pods: Mapping[str, Mapping[str, PodInfo]]) -> Victims:
    """Return the victims as pods.

    Upstream: pkg/scheduler/extender.go convertToVictims
    """
    if name not in pods:
        raise ExtenderError(
            f'extender "{extender.name}" claims a candidate node "{name}" which is not found in the input node list'
        )
    for uid in meta.uids:
        if uid not in pods[name]:
            raise ExtenderError(
                f"extender: {extender.name} claims to preempt pod (UID: &{{{uid}}}) on node: {name}, "
                "but the pod is not found on that node"
            )
    return Victims(tuple(pods[name][uid] for uid in dict.fromkeys(meta.uids)), meta.violations)


CONSULTATION: Final = StateKey[Consultation](EXTENDER_NAME)
"""The consultation of this attempt, for its plugins."""


def consultation_of(state: CycleState) -> Consultation | None:
    """Return the consultation of this attempt; None if no extender is interested in the pod."""
    return state.get(CONSULTATION) if state.has(CONSULTATION) else None
