"""Would these pods fit, and where would the pods of drained nodes go? Answered by ordinary attempts on the live cache.

All changes and all placements of one question are in force in the cache while the scheduling loop works on it, for a
stretch of some milliseconds. They are taken back wherever the work yields (`fixes.Steps`), so only the question sees
them. An attempt that takes more than a stretch is given up.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Final, TypeVar

import msgspec

from scheduler.api.core_v1 import Pod, controller_of
from scheduler.api.decode import PartlyReadPod
from scheduler.api.pod_group import API_GROUPS, GroupKey, group_of
from scheduler.api.podinfo import PodInfo
from scheduler.core.cooperative import PACE_S, TookTooLong, Work, paced
from scheduler.core.terminal import counted
from scheduler.cycle import Scheduled, Unschedulable
from scheduler.explain.answer import (
    EXIT_CODES,
    DisplacedPod,
    Explanation,
    PlacedPod,
    Verdict,
    WhatIfAnswer,
    WhatIfGroup,
    WhatIfVerdict,
)
from scheduler.explain.changes import node_copy
from scheduler.explain.controllers import stays, successor
from scheduler.explain.edits import Edit, Manifest, Overlay, Step
from scheduler.explain.explainer import Explainer
from scheduler.explain.fixes import Steps
from scheduler.explain.groups.explainer import GroupExplainer
from scheduler.explain.groups.trial import GroupTrial
from scheduler.explain.manifests import REPLICAS_MAX, Manifests, PodTemplate, WrongRequest
from scheduler.explain.questions import ClusterChanged
from scheduler.plan import Changed, Departure, NotApplicable, Placement, Plan, Undo

T = TypeVar("T")

NODES_MAX: Final = 100
"""Drained, cordoned or added nodes, each for itself."""
_OVERHEAD_MAX_S: Final = 0.25
_SLOW_RESTS_MAX: Final = 3
"""A question ends when it takes this long, several times in turn, to take back all its changes and to repeat them."""
_STRETCH_S: Final = 0.03
_WORK_RATIO: Final = 4
_BUDGET_S: Final = 10.0
"""The time that one question may keep other pods waiting, with all that is taken back and repeated."""
_TRIES_MAX: Final = 3
"""A pod is given up after this many attempts that did not end within the stretch."""
_RESTARTS_MAX: Final = 3
_PREEMPTIONS_MAX: Final = 3
"""Attempts of one pod that evict further pods."""
_GROUP_TRIALS: Final = 2
"""A group is tried again after its victims have left."""
_REPORTED_MAX: Final = 1000
_FEW: Final = 1000

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


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A pod to place. Of one `group` no further pod is tried after one that does not fit."""

    group: object
    key: str
    priority: int
    planned: Callable[[], tuple[tuple[Edit, ...], Callable[[], PodInfo]]]
    """Return edits, and a function that returns the pod under these edits, which raises NotApplicable."""
    source: str = ""
    """The node that a displaced pod leaves."""
    whole: GroupKey | None = None
    """The group of pods that it names."""


@dataclass(eq=False)
class WhatIf:
    """Answers questions with the profiles in force."""

    explainer: Explainer
    groups: GroupExplainer

    def answer(self, request: WhatIfRequest) -> Steps[WhatIfAnswer]:
        """Answer the question. Raises WrongRequest and ClusterChanged."""
        for _ in range(_RESTARTS_MAX):
            run = _Run(self.explainer, self.groups, request)
            try:
                return (yield from run.steps())
            except RecursionError:
                raise WrongRequest("a manifest is nested too deeply") from None
            except Changed:
                run.changes.end()
                yield True
            finally:
                run.changes.end()
        raise ClusterChanged("the cluster changed while the question was answered; try again")


@dataclass(eq=False)
class _Run:
    """One try to answer a question."""

    explainer: Explainer
    groups: GroupExplainer
    request: WhatIfRequest
    changes: Plan = field(init=False)
    _placed: dict[str, str] = field(default_factory=dict, init=False)
    _displaced: dict[str, DisplacedPod] = field(default_factory=dict, init=False)
    _preempted: list[DisplacedPod] = field(default_factory=list, init=False)
    _refused: dict[object, str] = field(default_factory=dict, init=False)
    """Group of pods → why one of them does not fit."""
    _group_answers: list[WhatIfGroup] = field(default_factory=list, init=False)
    _additional: int = field(default=0, init=False)
    """Pods without a node whose groups start without them."""
    _leaving: list[_Candidate] = field(default_factory=list, init=False)
    _explanation: Explanation | None = field(default=None, init=False)
    _spent_s: float = field(default=0.0, init=False)
    _overhead_s: float = field(default=0.0, init=False)
    """How long it took the last time to take back all changes and to repeat them."""
    _slow_rests: int = field(default=0, init=False)
    _gave_up: bool = field(default=False, init=False)
    """Whether the search for a pod took too long."""
    _unexplained: str = field(default="", init=False)
    """Why the first pod of the manifests does not fit, for an answer without an explanation."""

    def __post_init__(self) -> None:
        explainer = self.explainer
        self._clock, self._cluster = explainer.clock, explainer.cluster
        self._overlay = Overlay(explainer.cluster, explainer.derive)
        self.changes = Plan(explainer.cluster)
        self.changes.begin()
        self._began = self._turn = self._clock.now()
        self._cycle = explainer.cycle()

    def steps(self) -> Steps[WhatIfAnswer]:
        if sum(self.request.add_nodes_like.values()) > NODES_MAX:
            raise WrongRequest(f"addNodesLike: at most {NODES_MAX} nodes in all")
        pods = Manifests(self.request.manifests, self._default_class())
        replicas = pods.count(self.request.replicas)
        wanted = [each for template in pods.templates(self.request.replicas) for each in self._planned(template)]
        yield from self._prepared(pods, replicas)
        candidates = deque(sorted((*self._leaving, *wanted), key=lambda each: -each.priority))
        yield from self._rest()
        while candidates and not self._is_over:
            candidate = candidates.popleft()
            if candidate.group in self._refused:
                self._note_refused(candidate)
            elif (group := self._whole(candidate)) is not None:
                mates = [each for each in candidates if each.whole == group]
                candidates = deque(each for each in candidates if each.whole != group)
                if not (yield from self._place_group(group, [candidate, *mates])):
                    candidates.extendleft(replace(each, whole=None) for each in (*reversed(mates), candidate))
            elif not (yield from self._tried(candidate)):
                candidates.appendleft(candidate)
                break
            if candidates and self._clock.now() - self._turn > min(self._work_s, self.explainer.trial_s):
                yield from self._rest()
        for each in candidates:
            self._note_refused(each, "the time for this question was over")
        self.changes.end()
        return self._answer(replicas, is_complete=not (candidates or self._gave_up))

    @property
    def _is_over(self) -> bool:
        spent_s = self._spent_s + self._clock.now() - self._began
        return spent_s > _BUDGET_S or self._slow_rests >= _SLOW_RESTS_MAX

    @property
    def _work_s(self) -> float:
        """The time to work before all changes are taken back.

        A fifth of a stretch is for the changes, while a stretch is short. If the changes alone take more than
        `_STRETCH_S`, they get two thirds.
        """
        overhead_s = self._overhead_s
        return max(PACE_S, overhead_s / 2, min(_WORK_RATIO * overhead_s, _STRETCH_S - overhead_s))

    def _rest(self) -> Steps[None]:
        """End the stretch: let other pods be tried on the cache as it is, and begin the next stretch. Raises Changed."""
        paused_at = self._clock.now()
        self.changes.suspend()
        paused = self._clock.now()
        self._spent_s += paused - self._began
        yield True
        self._began = self._clock.now()
        self.changes.resume()
        self._turn = self._clock.now()
        self._overhead_s = paused - paused_at + self._turn - self._began
        self._slow_rests = self._slow_rests + 1 if self._overhead_s > _OVERHEAD_MAX_S else 0

    def _tried(self, candidate: _Candidate) -> Steps[bool]:
        """Place one pod or refuse it; return False if the time for the question is over.

        An attempt that does not end within the stretch is made again in the next one.
        """
        before = len(self.changes)
        for _ in range(_TRIES_MAX):
            try:
                yield from self._place(candidate)
            except TookTooLong:
                self.changes.drop(before)
                yield from self._rest()
                if self._is_over:
                    return False
            else:
                return True
        self._gave_up = True
        self._refuse(candidate, "the search for a node takes too long for a question")
        return True

    def _refuse(self, candidate: _Candidate, why: str) -> None:
        self._refused[candidate.group] = why
        if not candidate.source:
            self._unexplained = self._unexplained or why
        self._note_refused(candidate)

    # -- changes of the cluster --------------------------------------------------------------------------------------

    def _prepared(self, pods: Manifests, replicas: int) -> Steps[None]:
        """Apply all changes of the question, and collect the pods that have to leave their nodes."""
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
            self._edit(Edit("patch", "Node", name, patch=(Step("add", "/spec/unschedulable", True),)), "cordon")
        yield from self._without(request.without)
        for name in dict.fromkeys(request.drain):
            for info in list(self._cluster.nodes.pods(self._slot(name, "drain")).values()):
                self._drain(info, name)
                yield from self._paced()
                if len(self._leaving) + len(self._displaced) + replicas > REPLICAS_MAX:
                    what = "pods leave the drained nodes or are new; drain fewer nodes"
                    raise WrongRequest(f"drain: at node {name} more than {REPLICAS_MAX} {what}")
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
            self.changes.add(Departure(self._cluster, found[key]))

    def _drain(self, info: PodInfo, node: str) -> None:
        """Let a pod leave a drained node; its controller creates another one, unless it stays or has none."""
        if stays(info.pod) or self._cluster.is_assumed(info.uid):
            return
        try:
            self.changes.add(Departure(self._cluster, info))
        except NotApplicable:
            return  # `without` has removed it
        if controller_of(info.pod) is None:
            self._displace(info.key, node, cause="no controller creates it again")
            return
        if isinstance(info.pod, PartlyReadPod):
            self._displace(info.key, node, cause=info.pod.why)
            return
        edits, pod = tuple(self._overlay.claims_created_again(info)), info.pod

        def created_again() -> PodInfo:
            return self._overlay.pod(successor(pod, self._profile_of(pod.spec.scheduler_name)), edits)

        self._leaving.append(_Candidate(info.uid, info.key, info.priority, lambda: (edits, created_again), node))

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
        classes = [each.obj for each in self._cluster.volumes.classes.values() if each.obj.is_default]
        classes.sort(key=lambda each: each.metadata.name)
        newest = max(classes, key=lambda each: each.metadata.creation_timestamp or "", default=None)
        return newest.metadata.name if newest is not None else ""

    # -- placing -----------------------------------------------------------------------------------------------------

    def _planned(self, template: PodTemplate) -> Iterator[_Candidate]:
        """Yield the pods of a manifest. Pods without claims that are created with them share one decoded manifest."""
        model: list[PodInfo] = []

        def plan(name: str) -> tuple[tuple[Edit, ...], Callable[[], PodInfo]]:
            made = template.plan(name)
            return made.edits, partial(self._created, made.manifest, model if not made.edits else [])

        whole = self._named_group(template)
        for name in template.names:
            key = f"{template.namespace}/{name}"
            yield _Candidate(template.where, key, template.priority, partial(plan, name), whole=whole)

    def _created(self, manifest: Manifest, model: list[PodInfo]) -> PodInfo:
        metadata, spec = manifest["metadata"], manifest["spec"]
        if model:
            own = msgspec.structs.replace(model[0].pod.metadata, name=metadata["name"], uid=metadata["uid"])
            return msgspec.structs.replace(model[0], pod=msgspec.structs.replace(model[0].pod, metadata=own))
        named = self._profile_of(spec.get("schedulerName") or "")
        pod: Manifest = {**manifest, "spec": {**spec, "schedulerName": named}}
        info: PodInfo = self.explainer.derive(self._overlay.decoded("Pod", pod))
        model.append(info)
        return info

    def _profile_of(self, scheduler_name: str) -> str:
        """Return the profile of this name; the first one for pods of other schedulers."""
        profiles = self.explainer.profiles
        return scheduler_name if scheduler_name in profiles else next(iter(profiles))

    def _place(self, candidate: _Candidate) -> Steps[None]:
        """Place one pod, with preemption if it needs and may; note where, or why it does not fit."""
        before = len(self.changes)
        try:
            info = self._made(candidate)
        except NotApplicable as error:
            self.changes.drop(before)
            if not candidate.source:
                raise WrongRequest(f"{candidate.key}: {error}") from error
            self._displace(candidate.key, candidate.source, cause=str(error))
            return
        with_claims = len(self.changes)
        victims, why = list[PodInfo](), ""
        for _ in range(_PREEMPTIONS_MAX):
            outcome = yield from self._trial(self._cycle.attempt(info, 1))
            if isinstance(outcome, Scheduled):
                self.changes.add(Placement(self._cluster, outcome))
                node = outcome.assumed.node_name
                for victim in victims:
                    self._note_preempted(victim, candidate.key)
                if candidate.source:
                    self._displace(candidate.key, candidate.source, to=node)
                else:
                    self._placed[candidate.key] = node
                return
            why = outcome.message
            if not (isinstance(outcome, Unschedulable) and outcome.nominate and outcome.victims):
                break
            for victim in outcome.victims:
                self.changes.add(Departure(self._cluster, victim))
                victims.append(victim)
        self.changes.drop(with_claims)  # as it was before the preemption
        with contextlib.suppress(TookTooLong):  # then what the attempt says has to suffice
            explanation = yield from self._trial(self.explainer.rejected(info))
            why, self._explanation = explanation.cause, self._explanation or explanation
        self.changes.drop(before)
        self._refuse(candidate, why)

    def _made(self, candidate: _Candidate) -> PodInfo:
        """Create the claims of a pod, and return it. Raises NotApplicable."""
        edits, pod = candidate.planned()
        for edit in edits:
            if edit.verb == "create" and self._overlay.exists(edit):
                continue  # the pod uses the existing claim
            self.changes.add(partial(self._overlay.applied_edit, edit))
        return pod()

    # -- groups ------------------------------------------------------------------------------------------------------

    def _named_group(self, template: PodTemplate) -> GroupKey | None:
        """Return the group that the pods of the manifest name, if their profile places pods of groups together."""
        metadata, spec = template.pod["metadata"], template.pod["spec"]
        profile = self.explainer.profiles[self._profile_of(spec.get("schedulerName") or "")]
        if not profile.starts_groups:
            return None
        about = {"name": template.where, "namespace": template.namespace}
        about |= {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
        named = {"schedulingGroup": spec["schedulingGroup"]} if spec.get("schedulingGroup") else {}
        try:
            return group_of(self._overlay.decoded("Pod", {"metadata": about, "spec": named}))
        except NotApplicable as error:
            raise WrongRequest(str(error)) from error

    def _whole(self, candidate: _Candidate) -> GroupKey | None:
        """Return the group with which the pod is placed; None if it is placed alone."""
        groups, group = self._cluster.pod_groups, candidate.whole
        return group if group is not None and (groups.get(group) is not None or groups.is_served(group.kind)) else None

    def _place_group(self, group: GroupKey, candidates: Sequence[_Candidate]) -> Steps[bool]:
        """Place the pods of a group with those of it that wait already, or none of them, with preemption if need be.

        Return False, and do nothing, if its pods are placed one by one.
        """
        before, victims = len(self.changes), list[PodInfo]()
        infos = yield from self._joined(candidates)
        with_pods = len(self.changes)
        for _ in range(_GROUP_TRIALS):
            trial = yield from self._trial(self.groups.trial_with(group, infos, self.changes), limit_s=math.inf)
            if isinstance(trial, str):
                break
            trial.begin()
            try:
                yield from self._trial(trial.work(), limit_s=trial.limit_s)
            except TookTooLong:
                self._gave_up = True
            if trial.nodes:
                self._note_group(group, candidates, trial, victims)
                return True
            if trial.preemption is None or not trial.preemption.victims:
                break
            victims = list(trial.preemption.victims)
            self.changes.drop(with_pods)
            for victim in victims:
                self.changes.add(Departure(self._cluster, victim))
        if trial:
            self._note_group(group, candidates, trial, ())
        self.changes.drop(before)
        return bool(trial)

    def _joined(self, candidates: Iterable[_Candidate]) -> Steps[list[PodInfo]]:
        """Create the pods and their claims, and make the pods members of their group."""
        infos = []
        for candidate in candidates:
            try:
                info = self._made(candidate)
            except NotApplicable as error:
                raise WrongRequest(f"{candidate.key}: {error}") from error
            self.changes.add(partial(self._member, info.pod))
            infos.append(info)
            yield from self._paced()
        return infos

    def _member(self, pod: Pod) -> Undo:
        groups, group = self._cluster.pod_groups, group_of(pod)
        before = groups.members(group).get(pod.key) if group is not None else None
        groups.pod_changed(before, pod)
        return partial(groups.pod_changed, pod, before)

    def _note_group(
        self, group: GroupKey, candidates: Sequence[_Candidate], trial: GroupTrial | str, victims: Iterable[PodInfo]
    ) -> None:
        groups, nodes = self._cluster.pod_groups, dict[str, str]()
        if isinstance(trial, GroupTrial):
            wanted = groups.get(group)
            nodes, why = trial.nodes, trial.summary(wanted.topology_key if wanted is not None else "")
        else:
            why = trial
        verdict: Verdict = ("fitsAfter" if victims else "fits") if nodes else "doesNotFit"
        self._group_answers.append(
            WhatIfGroup(
                group=group.key,
                api_group=API_GROUPS[group.kind],
                verdict=verdict,
                cause=why,
                minimum=groups.least(group),
                pods=len(groups.members(group)),
                placed=len(nodes),
            )
        )
        if not nodes:
            if isinstance(trial, GroupTrial) and self._explanation is None:
                self._explanation = trial.explanation
            self._refuse(candidates[0], why)
            return
        for victim in victims:
            self._note_preempted(victim, group.key)
        placed = {each.key: nodes[each.key] for each in candidates if each.key in nodes}
        self._placed |= placed
        self._additional += len(candidates) - len(placed)

    def _note_preempted(self, victim: PodInfo, by: str) -> None:
        gone = DisplacedPod(pod=victim.key, source=victim.node_name, cause=f"preempted by {by}", preempted_by=by)
        self._preempted.append(gone)

    def _note_refused(self, candidate: _Candidate, why: str = "") -> None:
        if candidate.source:
            self._displace(candidate.key, candidate.source, cause=why or self._refused[candidate.group])

    def _displace(self, key: str, source: str, *, to: str = "", cause: str = "") -> None:
        self._displaced[key] = DisplacedPod(pod=key, source=source, to=to, cause=cause)

    # -- turns -------------------------------------------------------------------------------------------------------

    def _paced(self) -> Steps[None]:
        """Let the event loop run if it has waited for 3 ms, or `_work_s` if many changes have to be taken back."""
        now = self._clock.now()
        if now - self._turn > self._work_s:
            with self.changes.suspended():
                paused = self._clock.now()
                yield False
                resumed = self._clock.now()
            self._turn = self._clock.now()
            self._began += resumed - paused
            self._overhead_s = paused - now + self._turn - resumed

    def _trial(self, work: Work[T], *, limit_s: float | None = None) -> Steps[T]:
        """Run the work to its end, and let the event loop run in between; return the result. Raises TookTooLong.

        Without a limit it has the rest of the stretch.
        """
        limit_s = self.explainer.trial_s - (self._clock.now() - self._turn) if limit_s is None else limit_s
        trial = paced(work, self._clock, self.changes.suspended, limit_s=limit_s, aside_s=self._overhead_s)
        try:
            while True:
                try:
                    next(trial)
                except StopIteration as done:
                    found: T = done.value
                    return found
                paused = self._clock.now()
                yield False
                waited = self._clock.now() - paused
                self._began += waited
                self._turn += waited
        finally:
            trial.close()

    # -- answer ------------------------------------------------------------------------------------------------------

    def _answer(self, replicas: int, *, is_complete: bool) -> WhatIfAnswer:
        moved = sum(1 for each in self._displaced.values() if each.to)
        verdict: WhatIfVerdict = "fits"
        if not replicas and not self.request.drain:
            verdict = "nothingToPlace"
        elif len(self._placed) + self._additional < replicas or moved < len(self._displaced) or not is_complete:
            verdict = "doesNotFit"
        elif self._preempted:
            verdict = "fitsAfter"
        parts = []
        if replicas:
            parts.append(f"{len(self._placed)} of {counted(replicas, 'pod')} {'fits' if replicas == 1 else 'fit'}")
        if self._displaced:
            leaving = len(self._displaced)
            parts.append(
                f"{moved} of {counted(leaving, 'pod')} of drained nodes {'fits' if leaving == 1 else 'fit'} elsewhere"
            )
        if self._preempted:
            preempted = len(self._preempted)
            parts.append(f"{counted(preempted, 'pod')} {'is' if preempted == 1 else 'are'} preempted")
        if self._unexplained and self._explanation is None:
            parts.append(self._unexplained)
        return WhatIfAnswer(
            verdict=verdict,
            exit_code=EXIT_CODES[verdict],
            cause="; ".join(parts)
            or ("no pod has to be placed" if self.request.drain else "nothing to place: the manifests have no pod"),
            replicas=replicas,
            placed=len(self._placed),
            placements=tuple(PlacedPod(pod=pod, node=node) for pod, node in self._placed.items())[:_REPORTED_MAX],
            displaced=(*self._displaced.values(), *self._preempted)[:_REPORTED_MAX],
            groups=tuple(self._group_answers),
            explanation=self._explanation,
            is_complete=is_complete,
        )
