"""Would these pods fit, and where would the pods of drained nodes go? Answered by ordinary attempts on the live cache.

All changes and all placements of one question are in force in the cache while the scheduling loop works on it, and are
taken back before other pods are tried (`fixes.Steps`: True). While they are in force, only bindings under way use the
cache next to the question (`fixes.Steps`: False). For these the pods of the question are like other assumed pods.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final, TypeVar

import msgspec

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import PartlyReadPod
from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import AssumptionError
from scheduler.cache.workloads import controller_of
from scheduler.core.cooperative import PACE_S, Work
from scheduler.cycle import Cycle, Scheduled, Unschedulable
from scheduler.explain.answer import (
    EXIT_CODES,
    DisplacedPod,
    Explanation,
    PlacedPod,
    Verdict,
    WhatIfAnswer,
)
from scheduler.explain.changes import node_copy
from scheduler.explain.controllers import stays, successor
from scheduler.explain.edits import Edit, Manifest, NotApplicable, Overlay, Step, Undo
from scheduler.explain.explainer import Explainer
from scheduler.explain.fixes import Hold, Steps
from scheduler.explain.manifests import REPLICAS_MAX, Manifests, PodPlan, WrongRequest
from scheduler.explain.questions import Refused

T = TypeVar("T")

NODES_MAX: Final = 100
"""Drained, cordoned or added nodes, each for itself."""
_STRETCH_MIN_S: Final = 0.05
_STRETCH_MAX_S: Final = 0.5
"""After a stretch all changes are taken back, other pods may be tried, and all changes are repeated.

A stretch lasts as long as that took the last time, within these limits.
"""
_BUDGET_S: Final = 10.0
"""The time that one question may keep other pods waiting, with all that is taken back and repeated."""
_RESTARTS_MAX: Final = 3
_PREEMPTIONS_MAX: Final = 3
"""Attempts of one pod that evict further pods."""
_REPORTED_MAX: Final = 1000

_Names = Annotated[tuple[str, ...], msgspec.Meta(max_length=NODES_MAX)]


class WhatIfRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A question. `manifests` are pods or workloads, and what these need; `replicas` replaces the number of each."""

    manifests: Annotated[tuple[dict[str, Any], ...], msgspec.Meta(max_length=1000)] = ()
    replicas: Annotated[int, msgspec.Meta(ge=0, le=REPLICAS_MAX)] | None = None
    drain: _Names = ()
    cordon: _Names = ()
    add_nodes_like: dict[str, Annotated[int, msgspec.Meta(ge=1, le=NODES_MAX)]] = {}
    without: Annotated[tuple[str, ...], msgspec.Meta(max_length=1000)] = ()


def decoded(body: bytes) -> WhatIfRequest:
    """Decode a request. Raises WrongRequest, which names the field."""
    try:
        return msgspec.json.decode(body, type=WhatIfRequest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WrongRequest(str(error)) from None


class ClusterChanged(Refused):
    """The cluster changed again and again while the question was answered; try again."""


class _Changed(Exception):
    """A change or a placement cannot be repeated, because the cluster has changed."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A pod to place. Of one `group` no further pod is tried after one that does not fit."""

    group: object
    key: str
    priority: int
    edits: tuple[Edit, ...]
    pod: Callable[[], PodInfo]
    """Return the pod under its edits. Raises NotApplicable."""
    source: str = ""
    """The node that a displaced pod leaves."""


class _Changes:
    """Changes of the cache in order; all can be taken back and repeated, in small steps."""

    def __init__(self) -> None:
        self._apply: list[Callable[[], Undo]] = []
        self._undo: list[Undo] = []

    def add(self, apply: Callable[[], Undo]) -> None:
        """Apply a change. `apply` returns its undo, and may raise NotApplicable."""
        self._undo.append(apply())
        self._apply.append(apply)

    def drop(self, count: int) -> None:
        """Take back the changes after the first `count`, for good."""
        while len(self._undo) > count:
            self._undo.pop()()
        del self._apply[count:]

    def __len__(self) -> int:
        return len(self._apply)

    def dropped(self) -> Iterator[None]:
        """Take back all changes for good; yields between them."""
        for count in reversed(range(len(self))):
            self.drop(count)
            yield

    def suspended(self) -> Iterator[None]:
        """Take back all changes; yields between them."""
        while self._undo:
            self._undo.pop()()
            yield

    def resumed(self) -> Iterator[None]:
        """Repeat all changes; yields between them. Raises _Changed."""
        for apply in self._apply[len(self._undo) :]:
            try:
                self._undo.append(apply())
            except (NotApplicable, AssumptionError) as error:
                raise _Changed(str(error)) from error
            yield


@dataclass(eq=False)
class WhatIf:
    """Answers questions with the profiles in force."""

    explainer: Explainer

    def answer(self, request: WhatIfRequest) -> Steps[WhatIfAnswer]:
        """Answer the question. Raises WrongRequest and ClusterChanged."""
        for _ in range(_RESTARTS_MAX):
            run = _Run(self.explainer, request)
            try:
                return (yield from run.steps())
            except _Changed:
                yield True
            finally:
                run.changes.drop(0)
        raise ClusterChanged("the cluster changed while the question was answered; try again")


@dataclass(eq=False)
class _Run:
    """One try to answer a question."""

    explainer: Explainer
    request: WhatIfRequest
    changes: _Changes = field(default_factory=_Changes, init=False)
    _placed: dict[str, str] = field(default_factory=dict, init=False)
    _displaced: dict[str, DisplacedPod] = field(default_factory=dict, init=False)
    _preempted: list[DisplacedPod] = field(default_factory=list, init=False)
    _refused: dict[object, str] = field(default_factory=dict, init=False)
    """Group of pods → why one of them does not fit."""
    _explanation: Explanation | None = field(default=None, init=False)
    _spent_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        explainer = self.explainer
        self._clock, self._cluster = explainer.clock, explainer.cluster
        self._overlay = Overlay(explainer.cluster, explainer.derive)
        self._turn = self._clock.now()
        self._cycles: dict[str, Cycle] = {}

    def steps(self) -> Steps[WhatIfAnswer]:
        if sum(self.request.add_nodes_like.values()) > NODES_MAX:
            raise WrongRequest(f"addNodesLike: at most {NODES_MAX} nodes in all")
        began = self._clock.now()
        pods = Manifests(self.request.manifests, self._default_class())
        replicas = pods.count(self.request.replicas)
        wanted = []
        for plan in pods.plans(self.request.replicas):
            wanted.append(self._planned(plan))
            yield from self._paced()
        yield from self._prepared(pods)
        candidates = deque(sorted((*self._leaving, *wanted), key=lambda each: -each.priority))
        ends = self._clock.now() + _STRETCH_MIN_S
        while candidates and not self._is_over:
            candidate = candidates.popleft()
            if candidate.group not in self._refused:
                yield from self._place(candidate)
            else:
                self._note_refused(candidate)
            yield from self._paced()
            now = self._clock.now()
            if candidates and now > ends:
                yield from self._through(self.changes.suspended())
                paused = self._clock.now()
                self._spent_s += paused - began
                yield True
                self._turn = began = self._clock.now()
                yield from self._through(self.changes.resumed())
                resumed = self._clock.now()
                overhead_s = paused - now + resumed - began
                ends = resumed + min(max(overhead_s, _STRETCH_MIN_S), _STRETCH_MAX_S)
        for each in candidates:
            self._note_refused(each, "the time for this question was over")
        yield from self._through(self.changes.dropped())
        return self._answer(replicas, is_complete=not candidates)

    @property
    def _is_over(self) -> bool:
        return self._spent_s > _BUDGET_S

    # -- changes of the cluster --------------------------------------------------------------------------------------

    def _prepared(self, pods: Manifests) -> Steps[None]:
        """Apply all changes of the question, and collect the pods that have to leave their nodes."""
        self._leaving: list[_Candidate] = []
        request = self.request
        for name, count in request.add_nodes_like.items():
            node = self._cluster.nodes.node(self._slot(name, "addNodesLike"))
            for number in range(1, count + 1):
                assert node is not None
                for change in node_copy(self._cluster, node, number):
                    for edit in change.edits:
                        self._edit(edit, "addNodesLike")
                yield from self._paced()
        for name in dict.fromkeys((*request.cordon, *request.drain)):
            self._slot(name, "drain" if name in request.drain else "cordon")
            step = Step("add", "/spec/unschedulable", True)
            self._edit(Edit("patch", "Node", name, patch=(step,)), "cordon")
        yield from self._without(request.without)
        for name in dict.fromkeys(request.drain):
            for info in list(self._cluster.nodes.pods(self._slot(name, "drain")).values()):
                self._drain(info, name)
                yield from self._paced()
        for edit in pods.shared:
            if not self._overlay.exists(edit):
                self._edit(edit, f"{edit.kind} {edit.key}")
                yield from self._paced()

    def _without(self, keys: Iterable[str]) -> Steps[None]:
        wanted = dict.fromkeys(keys)
        if not wanted:
            return
        found: dict[str, PodInfo] = {}
        for at, info in enumerate(list(self._cluster.pods())):
            if info.key in wanted:
                found[info.key] = info
            if at % _FEW == 0:
                yield from self._paced()
        for key in wanted:
            if key not in found:
                raise WrongRequest(f"without: pod {key} is on no node")
            self.changes.add(partial(self._overlay.without_pod, found[key]))

    def _drain(self, info: PodInfo, node: str) -> None:
        """Let a pod leave a drained node; its controller creates another one, unless it stays or has none."""
        if stays(info.pod) or self._cluster.is_assumed(info.uid):
            return
        try:
            self.changes.add(partial(self._overlay.without_pod, info))
        except NotApplicable:
            return  # `without` has removed it
        if controller_of(info.pod) is None:
            self._displace(info.key, node, cause="no controller creates it again")
            return
        if isinstance(info.pod, PartlyReadPod):
            self._displace(info.key, node, cause=info.pod.why)
            return
        edits = tuple(self._overlay.claims_created_again(info))
        self._leaving.append(
            _Candidate(info.uid, info.key, info.priority, edits, partial(self._successor, info.pod, edits), node)
        )

    def _successor(self, pod: Pod, edits: tuple[Edit, ...]) -> PodInfo:
        """Return the pod that its controller creates after it has left its node."""
        return self._overlay.pod(successor(pod, self._profile_of(pod.spec.scheduler_name)), edits)

    def _slot(self, name: str, where: str) -> int:
        slot = self._cluster.nodes.present_slot(name)
        if slot is None:
            raise WrongRequest(f"{where}: node {name} does not exist")
        return slot

    def _edit(self, edit: Edit, where: str) -> None:
        try:
            self.changes.add(partial(self._overlay.applied_edit, edit))
        except NotApplicable as error:
            raise WrongRequest(f"{where}: {error}") from error

    def _default_class(self) -> str:
        """Return the storage class of claims that name none.

        Upstream: pkg/volume/util/storageclass.go GetDefaultClass
        """
        classes = [known.obj for known in self._cluster.volumes.classes.values() if known.obj.is_default]
        newest = sorted(classes, key=lambda each: each.metadata.name)
        newest.sort(key=lambda each: each.metadata.creation_timestamp or "", reverse=True)
        return newest[0].metadata.name if newest else ""

    # -- placing -----------------------------------------------------------------------------------------------------

    def _planned(self, plan: PodPlan) -> _Candidate:
        priority = plan.manifest["spec"].get("priority") or 0
        return _Candidate(("manifest", plan.group), plan.key, priority, plan.edits, partial(self._created, plan))

    def _created(self, plan: PodPlan) -> PodInfo:
        spec = plan.manifest["spec"]
        named = self._profile_of(spec.get("schedulerName") or "")
        pod: Manifest = {**plan.manifest, "spec": {**spec, "schedulerName": named}}
        info: PodInfo = self.explainer.derive(self._overlay.decoded("Pod", pod))
        return info

    def _profile_of(self, scheduler_name: str) -> str:
        """Return the profile of this name; the first one for pods of other schedulers."""
        profiles = self.explainer.profiles
        return scheduler_name if scheduler_name in profiles else next(iter(profiles))

    def _place(self, candidate: _Candidate) -> Steps[None]:
        """Place one pod, with preemption if it needs and may; note where, or why it does not fit."""
        before = with_claims = len(self.changes)
        try:
            for edit in candidate.edits:
                if edit.verb == "create" and self._overlay.exists(edit):
                    continue  # the pod uses the existing claim
                self.changes.add(partial(self._overlay.applied_edit, edit))
            with_claims = len(self.changes)
            info = candidate.pod()
        except NotApplicable as error:
            self.changes.drop(before)
            if not candidate.source:
                raise WrongRequest(f"{candidate.key}: {error}") from error
            self._displace(candidate.key, candidate.source, cause=str(error))
            return
        victims: list[PodInfo] = []
        for _ in range(_PREEMPTIONS_MAX):
            outcome = yield from self._through(self._cycle(info).attempt(info, 1))
            if isinstance(outcome, Scheduled):
                self.changes.add(Hold(self._cluster, outcome))
                self._note_placed(candidate, outcome.assumed.node_name, victims)
                return
            if not (isinstance(outcome, Unschedulable) and outcome.nominate and outcome.victims):
                break
            for victim in outcome.victims:
                self.changes.add(partial(self._overlay.without_pod, victim))
                victims.append(victim)
        self.changes.drop(with_claims)  # as it was before the preemption
        explanation = yield from self._through(self.explainer.rejected(info))
        self.changes.drop(before)
        self._refused[candidate.group] = explanation.cause
        if self._explanation is None:
            self._explanation = explanation
        self._note_refused(candidate)

    def _cycle(self, info: PodInfo) -> Cycle:
        name = info.pod.spec.scheduler_name
        if name not in self._cycles:
            self._cycles[name] = self.explainer.cycle(self.explainer.profiles[name])
        return self._cycles[name]

    def _note_placed(self, candidate: _Candidate, node: str, victims: list[PodInfo]) -> None:
        for victim in victims:
            by = candidate.key
            gone = DisplacedPod(pod=victim.key, source=victim.node_name, cause=f"preempted by {by}", preempted_by=by)
            self._preempted.append(gone)
        if candidate.source:
            self._displace(candidate.key, candidate.source, to=node)
        else:
            self._placed[candidate.key] = node

    def _note_refused(self, candidate: _Candidate, why: str = "") -> None:
        if candidate.source:
            self._displace(candidate.key, candidate.source, cause=why or self._refused[candidate.group])

    def _displace(self, key: str, source: str, *, to: str = "", cause: str = "") -> None:
        self._displaced[key] = DisplacedPod(pod=key, source=source, to=to, cause=cause)

    # -- turns -------------------------------------------------------------------------------------------------------

    def _paced(self) -> Steps[None]:
        """Yield if the event loop has waited for 3 ms."""
        if self._clock.now() - self._turn > PACE_S:
            yield False
            self._turn = self._clock.now()

    def _through(self, work: Iterator[None] | Work[T]) -> Steps[Any]:
        """Run the work to its end, and let the event loop run in between; return the work's result."""
        while True:
            try:
                next(work)
            except StopIteration as done:
                return done.value
            yield from self._paced()

    # -- answer ------------------------------------------------------------------------------------------------------

    def _answer(self, replicas: int, *, is_complete: bool) -> WhatIfAnswer:
        moved = sum(1 for each in self._displaced.values() if each.to)
        verdict: Verdict = "fits"
        if len(self._placed) < replicas or moved < len(self._displaced) or not is_complete:
            verdict = "doesNotFit"
        elif self._preempted:
            verdict = "fitsAfter"
        parts = []
        if replicas:
            parts.append(f"{len(self._placed)} of {replicas} pods fit")
        if self._displaced:
            parts.append(f"{moved} of {len(self._displaced)} pods of drained nodes fit elsewhere")
        if self._preempted:
            parts.append(f"{len(self._preempted)} pods are preempted")
        return WhatIfAnswer(
            verdict=verdict,
            exit_code=EXIT_CODES[verdict],
            cause="; ".join(parts) or "no pod has to be placed",
            replicas=replicas,
            placed=len(self._placed),
            placements=tuple(PlacedPod(pod=pod, node=node) for pod, node in self._placed.items())[:_REPORTED_MAX],
            displaced=(*self._displaced.values(), *self._preempted)[:_REPORTED_MAX],
            explanation=self._explanation,
            is_complete=is_complete,
        )


_FEW: Final = 1000
