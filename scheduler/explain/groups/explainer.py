"""Explain a group of pods from the live cache: its state, what an attempt would do now, and which pod keeps it from its start.

The verdict is that of a trial (`trial.py`). A pod that only its group keeps pending is explained here, too: with the pod of its
group that finds no node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from scheduler.api.decode import PartlyReadPod
from scheduler.api.pod_group import API_GROUPS, KINDS, GroupKey
from scheduler.api.podinfo import PodInfo
from scheduler.core.cooperative import Work
from scheduler.core.terminal import counted
from scheduler.explain.answer import EXIT_CODES, Explanation, Move, PlacedPod, Verdict
from scheduler.explain.explainer import Explainer, existing
from scheduler.explain.fixes import Steps
from scheduler.explain.groups.answer import STATES, GroupExplanation
from scheduler.explain.groups.trial import GroupTrial
from scheduler.explain.questions import ClusterChanged
from scheduler.framework.preemption_state import Preempting
from scheduler.framework.profile import Profile
from scheduler.framework.status import Rejection
from scheduler.groups.domains import DomainError
from scheduler.groups.verdicts import NO_DOMAIN, GroupVerdicts
from scheduler.plan import Changed, Plan
from scheduler.plugins.defaultpreemption import PLUGIN as PREEMPTION
from scheduler.queue import QueuedPodInfo
from scheduler.queueing.types import IN_BACKOFF, Place

_NOT_HELPFUL: Final = "too few pods fit without all pods of lower priority, too"
_LISTED_MAX: Final = 1000
_TRIES: Final = 3


@dataclass(slots=True)
class _Members:
    """The pods of a group by what they wait for."""

    states: Counter[str] = field(default_factory=Counter)
    tried: list[QueuedPodInfo] = field(default_factory=list)
    held: list[tuple[PodInfo, Rejection]] = field(default_factory=list)
    """Pods that PreEnqueue keeps out of the queue, each with the first reason."""


@dataclass(eq=False)
class GroupExplainer:
    """Explains groups, and pods that belong to one."""

    explainer: Explainer
    verdicts: GroupVerdicts
    preempting: Preempting
    record: Callable[[str], QueuedPodInfo | None]
    """Returns of a uid the record in the queue."""

    def pod(self, key: str) -> Steps[Explanation | None]:
        """Explain the pod `namespace/name`; None if it is neither in the queue nor on a node. Raises ClusterChanged.

        Of a pod that has to start with its group, each fix says whether the whole group is placed with it.
        """
        found = yield from self.explainer.explain(key)
        info = self.explainer.pending.get(key)
        group = self.explainer.cluster.pod_groups.of(info.pod) if info is not None else None
        if found is None or group is None or not (found.code == "GroupUnschedulable" or found.fixes):
            return found
        whole = yield from self._explained(group, key)
        if found.code != "GroupUnschedulable":
            own = whole.explanation if whole.needed and whole.explanation is not None else found
            return msgspec.structs.replace(found, fixes=own.fixes) if own.pod == found.pod else found
        if whole.explanation is not None and whole.verdict != "fits":
            cause = f"{found.cause}; {whole.cause}; {whole.explanation.pod}: {whole.explanation.cause}"
            return msgspec.structs.replace(found, cause=cause, move=whole.move)
        return msgspec.structs.replace(found, cause=f"{found.cause}; {whole.cause}", move=whole.move)

    def group(self, key: str, api_group: str = "") -> Steps[GroupExplanation | None]:
        """Explain the group `namespace/name` of this API group, else the first in the order of the kinds.

        None if neither an object nor a pod has the name. Raises ClusterChanged.
        """
        groups = self.explainer.cluster.pod_groups
        named = (GroupKey(kind, key) for kind in KINDS)
        there = [each for each in named if groups.get(each) is not None or groups.members(each)]
        chosen = next((each for each in there if api_group in {"", API_GROUPS[each.kind]}), None)
        if chosen is None:
            return None
        found = yield from self._explained(chosen)
        also = tuple(API_GROUPS[each.kind] for each in there if each != chosen)
        return msgspec.structs.replace(found, also=also)

    def _explained(self, group: GroupKey, first: str = "") -> Steps[GroupExplanation]:
        """Explain the group, and of its pods that find no node the one with this key if it is among them."""
        for _ in range(_TRIES):
            try:
                return (yield from self._explained_now(group, first))
            except Changed:
                yield True
        raise ClusterChanged("the cluster changed while the question was answered; try again")

    def _explained_now(self, group: GroupKey, first: str) -> Steps[GroupExplanation]:
        """Explain the group. Raises Changed."""
        members = yield from self._members(group)
        wanted = self.explainer.cluster.pod_groups.get(group)
        about: dict[str, Any] = {
            "group": group.key,
            "api_group": API_GROUPS[group.kind],
            "minimum": self._least(group) if wanted is not None and wanted.is_gang else None,
            "has_started": self.explainer.cluster.pod_groups.running_count(group) > 0,
            "members": {state: members.states[state] for state in STATES if members.states[state]},
        }
        waiting = [*(queued.info for queued in members.tried), *(info for info, _ in members.held)]
        if waiting and not (profile := self._profile(waiting[0])).starts_groups:
            return (yield from self._of_pods(waiting, f"the profile {profile.name} places pods one by one", about))
        if (found := self._not_tried(group, members, about)) is not None:
            return found
        least = self.verdicts.next_attempt(group).least
        if not least:
            text = "it has started" if about["has_started"] else "enough pods are placed"
            text = text if about["minimum"] is not None else "its pods start one by one"
            return (yield from self._of_pods(waiting, f"{text}; {counted(len(waiting), 'pod')} without a node", about))
        about |= {"needed": least, "tried": len(members.tried)}
        if len(members.tried) < least:
            return (yield from self._of_pods([info for info, _ in members.held], _too_few(members, least), about))
        return (yield from self._tried(group, members.tried, least, about, first))

    # -- groups that are not tried -----------------------------------------------------------------------------------

    def _not_tried(self, group: GroupKey, members: _Members, about: dict[str, Any]) -> GroupExplanation | None:
        """Return the answer for a group that lacks something, or that lacks nothing; None if it can be tried."""
        groups, states = self.explainer.cluster.pod_groups, members.states
        if groups.get(group) is None:
            text = "the object does not exist, or cannot be read"
            if not groups.is_served(group.kind):
                return _answer("fits", "Fits", f"{text}; its pods are placed one by one", "nobody", about)
            return _answer("fitsAfter", "GroupIncomplete", text, "user", about)
        if not groups.is_complete(group):
            text = existing(states.total(), self._least(group))
            return _answer("fitsAfter", "GroupIncomplete", text, "user", about)
        gate = next((each for _, each in members.held if each.plugin == PREEMPTION), None)
        if gate is not None:
            text = "pods are being evicted for it"
            return _answer("fitsAfter", "Preempting", text, "wait", about, preemption=gate.message)
        if not (members.tried or members.held):
            if states["binding"]:
                text = f"nodes are chosen, and {counted(states['binding'], 'binding')} under way"
                return _answer("fits", "Binding", text, "wait", about)
            return _answer("fits", "Bound", f"{counted(states['running'], 'pod')} on nodes", "nobody", about)
        if members.tried and (refusal := self.verdicts.refusal(group, members.tried)) is not None:
            return _answer("doesNotFit", "GroupRefused", refusal.refusal, "user", about)
        return None

    def _of_pods(self, infos: Sequence[PodInfo], text: str, about: dict[str, Any]) -> Steps[GroupExplanation]:
        """Explain the first of the pods, which wait one by one, or are held back."""
        found = yield from self.explainer.explain(infos[0].key)
        if found is None:
            raise ClusterChanged(f"pod {infos[0].key} has gone; try again")
        blocking = tuple(info.key for info in infos)[:_LISTED_MAX]
        more: dict[str, Any] = {"blocking": blocking, "explanation": found}
        return _answer(found.verdict, found.code, text, found.move, about, **more)

    # -- a trial -----------------------------------------------------------------------------------------------------

    def _tried(
        self, group: GroupKey, members: list[QueuedPodInfo], least: int, about: dict[str, Any], first: str
    ) -> Steps[GroupExplanation]:
        try:
            domains = self.verdicts.domains(group, members, least)
        except DomainError as error:
            return _answer("doesNotFit", "GroupUnschedulable", str(error), "administrator", about)
        if domains == []:
            return _answer("doesNotFit", "GroupUnschedulable", NO_DOMAIN, "administrator", about)
        plan = Plan(self.explainer.cluster)
        trial = GroupTrial(self.explainer, self.preempting, members, least, domains, plan)
        yield from trial.run()
        return (yield from self._judged(group, trial, about, first))

    def _judged(self, group: GroupKey, trial: GroupTrial, about: dict[str, Any], first: str) -> Steps[GroupExplanation]:
        wanted, domains = self.explainer.cluster.pod_groups.get(group), trial.domains
        about |= {
            "fitting": trial.fitting,
            "topology_key": wanted.topology_key if wanted is not None else "",
            "domain": trial.domain.value if trial.domain is not None else "",
            "domains": len(domains) if domains is not None else 0,
            "kinds": tuple(trial.kinds),
            "pins": tuple(trial.pins),
            "is_search_complete": trial.is_complete,
        }
        blocking = tuple(info.key for info in trial.unfit)[:_LISTED_MAX]
        if trial.nodes:
            placements = tuple(PlacedPod(pod=pod, node=node) for pod, node in trial.nodes.items())[:_LISTED_MAX]
            text = trial.summary(about["topology_key"])
            return _answer("fits", "Fits", f"it fits: {text}", "wait", about, placements=placements, blocking=blocking)
        if trial.error:
            return _answer("doesNotFit", "Error", f"an attempt ends in an error: {trial.error}", "wait", about)
        found = trial.preemption
        about |= {"preemption": (found.text or _NOT_HELPFUL) if found is not None else "", "blocking": blocking}
        text = trial.summary(about["topology_key"])
        if found is not None and found.nodes:
            victims = tuple(victim.key for victim in found.victims)[:_LISTED_MAX]
            text = f"{text}; {'other pods have to leave first' if victims else 'pods are leaving for it'}"
            return _answer("fitsAfter", "Preempting", text, "wait", about, victims=victims)
        explanation = trial.explanation
        if trial.unfit:
            unfit = next((each for each in trial.unfit if each.key == first), trial.unfit[0])
            alone = yield from self.explainer.explain(unfit.key)
            if alone is not None and alone.code not in {"Fits", "GroupUnschedulable"}:
                explanation = yield from self._with_fixes_tried(group, trial, unfit, alone)
        if explanation is trial.explanation and trial.fitting is not None and trial.unfit:
            yield from trial.add_nodes(lambda: self.verdicts.domains(group, trial.members, trial.least))
            about |= {"nodes_to_add": trial.nodes_to_add, "is_search_complete": trial.is_complete}
        move: Move = explanation.move if explanation is not None else "administrator"
        return _answer("doesNotFit", "GroupUnschedulable", text, move, about, explanation=explanation)

    def _with_fixes_tried(
        self, group: GroupKey, trial: GroupTrial, unfit: PodInfo, found: Explanation
    ) -> Steps[Explanation]:
        """Say of each fix of a pod that is left over whether the group is placed with it."""
        fixes = []
        for fix in found.fixes:
            starts = None
            if fix.verified:
                starts = yield from trial.starts_after(
                    fix, unfit, lambda members: self.verdicts.domains(group, members, trial.least)
                )
            fixes.append(msgspec.structs.replace(fix, starts_group=starts))
        return msgspec.structs.replace(found, fixes=tuple(fixes))

    # -- pods of a question ------------------------------------------------------------------------------------------

    def trial_with(self, group: GroupKey, added: Sequence[PodInfo], plan: Plan) -> Work[GroupTrial | str]:
        """Return the trial of a group with pods that the plan has made members; or why they are not tried.

        "" if they are placed one by one: the group has started, or has no minimum.
        """
        groups, members = self.explainer.cluster.pod_groups, _Members()
        wanted = groups.get(group)
        if wanted is None:
            return f"the {self._name(group)} does not exist"
        if not groups.is_complete(group):
            return f"{self._name(group)}: {existing(len(groups.members(group)), self._least(group))}"
        keys = {info.key for info in added}
        for key in list(groups.members(group)):
            info = self.explainer.pending.get(key) if key not in keys else None
            if info is not None and self.explainer.cluster.get(info.uid) is None:
                self._add(members, info)
            yield
        now = self.explainer.clock.now()
        tried = [*sorted(members.tried, key=lambda each: each.order), *(QueuedPodInfo(info, now) for info in added)]
        if (refusal := self.verdicts.refusal(group, tried)) is not None:
            return refusal.refusal
        least = self.verdicts.next_attempt(group).least
        if not least:
            return ""
        if len(tried) < least:
            return f"{self._name(group)}: {_too_few(members, least)}"
        try:
            domains = self.verdicts.domains(group, tried, least)
        except DomainError as error:
            return f"{self._name(group)}: {error}"
        if domains == []:
            return f"{self._name(group)}: {NO_DOMAIN}"
        return GroupTrial(self.explainer, self.preempting, tried, least, domains, plan)

    def _name(self, group: GroupKey) -> str:
        return f"PodGroup {group.key} of {API_GROUPS[group.kind]}"

    # -- the pods ----------------------------------------------------------------------------------------------------

    def _profile(self, info: PodInfo) -> Profile:
        return self.explainer.profiles[info.pod.spec.scheduler_name]

    def _least(self, group: GroupKey) -> int:
        return self.explainer.cluster.pod_groups.least(group)

    def _members(self, group: GroupKey) -> Steps[_Members]:
        """Sort the pods by what they wait for. Pods that an attempt tries come in its order."""
        found, explainer = _Members(), self.explainer
        for at, (key, pod) in enumerate(list(explainer.cluster.pod_groups.members(group).items())):
            if at % 100 == 99:
                yield False
            info = explainer.pending.get(key)
            if pod.spec.node_name:
                found.states["running"] += 1
            elif explainer.cluster.get(pod.metadata.uid) is not None:
                found.states["binding"] += 1
            elif info is None or isinstance(info.pod, PartlyReadPod):
                found.states["unreadable"] += 1
            else:
                self._add(found, info)
        found.tried.sort(key=lambda each: each.order)
        return found

    def _add(self, found: _Members, info: PodInfo) -> None:
        profile, queued = self._profile(info), self.record(info.uid)
        gates = (rejection for each in profile.pre_enqueue if (rejection := each.pre_enqueue(info)) is not None)
        if (gate := next(gates, None)) is not None:
            found.states["gated"] += 1
            found.held.append((info, gate))
            return
        if queued is None:
            queued = QueuedPodInfo(info, self.explainer.clock.now())
        is_waiting = queued.place is Place.WAITING
        found.states["waiting" if is_waiting else "backOff" if queued.place in IN_BACKOFF else "ready"] += 1
        found.tried.append(QueuedPodInfo(info, queued.queued_at, queued.attempts, order=queued.order))


def _too_few(members: _Members, least: int) -> str:
    return f"{counted(len(members.held), 'pod')} held back, and {least} have to be placed together"


def _answer(
    verdict: Verdict, code: str, cause: str, move: Move, about: dict[str, Any], **more: Any
) -> GroupExplanation:
    return GroupExplanation(
        verdict=verdict, exit_code=EXIT_CODES[verdict], code=code, cause=cause, move=move, **about, **more
    )
