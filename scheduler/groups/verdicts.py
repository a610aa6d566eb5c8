"""What the attempt of a group means for each of its pods: the checks before it, and the verdicts after it.

The texts are kube-scheduler's (docs/spec/groups.md §5). In a refused group, a pod that fits nowhere has its own verdict, and waits
for the events of the plugins that rejected it. A pod that found a node, or that was not tried, has the verdict of the group. It waits
for changes of the group alone: a mate that is woken brings the whole group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from scheduler.api.core_v1 import Pod
from scheduler.api.pod_group import CoschedulingPodGroup, GroupKey, PodGroup, VolcanoPodGroup
from scheduler.api.podinfo import CPU, PodInfo, allocatable
from scheduler.cache.cluster import Cluster
from scheduler.core import nodeset
from scheduler.core.clock import Clock
from scheduler.core.decision_record import DecisionRecord
from scheduler.core.feature_gates import GROUP_TEXTS
from scheduler.cycle import Outcome, Scheduled, SchedulingFailed, Unschedulable
from scheduler.framework.profile import GANGS
from scheduler.framework.status import Code, Diagnosis, Rejection
from scheduler.groups.cycle import FIT
from scheduler.groups.domains import Domain, domains, preferred
from scheduler.groups.outcome import GroupOutcome, GroupPreemption
from scheduler.groups.preemption import NO_VICTIMS
from scheduler.groups.status import SCHEDULED, SCHEDULER_ERROR, UNSCHEDULABLE
from scheduler.queue import QueuedPodInfo

_REPEATED_MAX: Final = 2
"""A search that proved nothing is repeated this number of times without an event."""
_GROUP_REFUSED: Final = "pod group is unschedulable"
_CLAIMS_RELEASED: Final = ", deallocation and deletion of ResourceClaims completed"
_DEFAULT_POLICY: Final = "PreemptLowerPriority"
_MATE_FAILED: Final = "failed to schedule other pod from a pod group: {}"
NO_DOMAIN: Final = "no feasible placements found"
GROUP_ERROR: Final = "PodGroupError"
"""The reason that 1.38 has for a group whose pods break a rule."""


class NextAttempt(NamedTuple):
    """How the next pods of a group are tried."""

    least: int
    """The number of pods that have to be placed together; 0 if they are placed one by one."""
    is_start: bool
    """Whether the group starts with them, so that they are bound together."""


@dataclass(eq=False, repr=False)
class GroupVerdicts:
    """The rules of groups for the scheduling loop."""

    cluster: Cluster
    clock: Clock
    gates: frozenset[str]
    has_extender: Callable[[PodInfo], bool]
    """Returns whether an extender is interested in the pod."""
    is_given_up: Callable[[str], bool]
    """Returns of a uid whether the binding of this pod is being cancelled."""

    def next_attempt(self, group: GroupKey) -> NextAttempt:
        """Return how many of the next pods are placed together.

        Pods with a node count for the minimum, and those on their way to one. O(members).
        """
        lacking = self._lacking(group)
        is_start = lacking > 0
        return NextAttempt(max(1, lacking) if is_start or self.is_confined(group) else 0, is_start)

    def _lacking(self, group: GroupKey) -> int:
        groups = self.cluster.pod_groups
        wanted = groups.get(group)
        least = groups.least(group)
        if wanted is None or not wanted.is_gang or groups.running_count(group) >= least:
            return 0
        return least - self._placed_count(group)

    def is_confined(self, group: GroupKey) -> bool:
        """Return whether a topology constraint says on which nodes the pods may be, also after the start."""
        wanted = self.cluster.pod_groups.get(group)
        return wanted is not None and bool(wanted.topology_key)

    def domains(self, group: GroupKey, members: Sequence[QueuedPodInfo], least: int) -> list[Domain] | None:
        """Return the domains in which the group may be placed; None if it has no constraint. Raises DomainError."""
        infos = [queued.info for queued in members]
        return domains(self.cluster, group, infos, least, quoted=GROUP_TEXTS in self.gates)

    def preferred(
        self, group: GroupKey, members: Sequence[QueuedPodInfo], allowed: Sequence[Domain] | None
    ) -> list[list[Domain]]:
        """Return the domains in which all pods of the group should be, if they fit into one of them."""
        return preferred(self.cluster, group, [queued.info for queued in members], allowed)

    def without_domain(self, members: Sequence[QueuedPodInfo]) -> GroupOutcome:
        """Return the outcome of a group whose label no node has."""
        found = self._all(members, NO_DOMAIN, self._refused)
        has_lower = bool(self.cluster.nodes.priorities.below(members[0].info.priority))
        return replace(found, preemption=GroupPreemption(NO_DOMAIN if has_lower else NO_VICTIMS))

    def refusal(self, group: GroupKey, members: Sequence[QueuedPodInfo]) -> GroupOutcome | None:
        """Return the outcome of a group that cannot be tried; None if it can (docs/spec/groups.md §5, §10)."""
        wanted = self.cluster.pod_groups.get(group)
        if wanted is None:
            return None
        if wanted.unsupported:
            text = f'pod group "{group.name}" uses {wanted.unsupported}, which Kubestow does not support: remove it, or give these pods to another scheduler'
            return self._all(members, text, self._refused)
        if any(self.has_extender(queued.info) for queued in members):
            text = f'pod group "{group.name}": groups with pods that an extender handles are not supported'
            return self._all(members, text, self._refused)
        priority = wanted.spec.priority or 0 if isinstance(wanted, PodGroup) else members[0].info.priority
        text = self._disagreement(members[0].info.pod, group, priority)
        if text:
            reason = GROUP_ERROR if GROUP_TEXTS in self.gates else SCHEDULER_ERROR
            return self._all(members, text, self._failed, reason=reason)
        text = self._shortage(wanted) if not isinstance(wanted, PodGroup) else ""
        return self._all(members, text, self._short) if text else None

    def failed(self, members: Sequence[QueuedPodInfo], text: str, *, group: GroupKey | None = None) -> GroupOutcome:
        """Return the outcome of a group whose attempt failed with this error; with `group`, its pods may say less."""
        message = self._parent_error(group, text) if group is not None else text
        found = self._all(members, message, self._failed, reason=SCHEDULER_ERROR)
        return replace(found, refusal=text)

    def verdicts(
        self, group: GroupKey, members: Sequence[QueuedPodInfo], found: GroupOutcome
    ) -> Iterator[tuple[QueuedPodInfo, Outcome]]:
        """Yield the outcome of each pod."""
        is_counted = not found.is_placed or len(found.outcomes) < len(members)
        error, text = found.error, self._counts(group, members, found, found.outcomes) if is_counted else ""
        tail = "" if found.is_placed or found.refusal else self._tail(group, members, found)
        is_confined, preemption = self.is_confined(group), found.preemption
        is_waiting = preemption is not None and bool(preemption.nodes)
        again = self._tried_again(members, found) if found.result == "unschedulable" else None
        for queued in sorted(members, key=lambda each: preemption is None or each.uid != preemption.preemptor):
            outcome = found.outcomes.get(queued.uid)
            if error and not isinstance(outcome, SchedulingFailed):
                outcome = self._failed(queued, self._parent_error(group, _MATE_FAILED.format(error)))
            elif isinstance(outcome, Scheduled) and not found.is_placed:
                own = text + tail if is_waiting else f"{_GROUP_REFUSED}, {text}{tail}"
                outcome = self._refused(queued, self._parent_text(group, own), outcome.record)
            elif isinstance(outcome, Unschedulable) and not found.is_placed:
                outcome.nominate = ""  # a refused group holds no capacity
            elif outcome is None:
                outcome = self._refused(queued, text if found.is_placed else self._parent_text(group, text))
            if preemption is not None and isinstance(outcome, Unschedulable):
                outcome.nominate = preemption.nodes.get(queued.uid, "")
                outcome.diagnosis.unschedulable_plugins |= preemption.plugins
            is_left_over = found.is_placed and not isinstance(outcome, Scheduled) and self._is_untried(queued, found)
            if isinstance(outcome, Unschedulable) and (queued is again or is_left_over):
                outcome.diagnosis.unschedulable_plugins.clear()
            elif isinstance(outcome, Unschedulable) and is_confined:
                # No plugin saw the nodes outside of the domain. The events of GangScheduling say when they count.
                outcome.diagnosis.unschedulable_plugins |= {GANGS, *found.rejecters.get(queued.uid, ())}
            yield queued, outcome

    def _tried_again(self, members: Sequence[QueuedPodInfo], found: GroupOutcome) -> QueuedPodInfo | None:
        """Return the pod that brings the group back after a back-off, and not only after an event; None if that is vain.

        Ties of nodes are broken by chance, so a search that has proved nothing may end otherwise next time.
        """
        again = max(members, key=lambda queued: queued.consecutive_errors)
        return again if not found.is_certain and again.consecutive_errors < _REPEATED_MAX else None

    def _is_untried(self, queued: QueuedPodInfo, found: GroupOutcome) -> bool:
        """Return whether a pod that its started group has left over is tried alone next, without an event.

        The attempt of the group has not tried it, or has chosen no victims for it, which the pod may have when it is alone.
        """
        may_preempt = queued.info.pod.spec.preemption_policy != "Never"
        has_lower = bool(self.cluster.nodes.priorities.below(queued.info.priority))
        return queued.uid not in found.outcomes or (may_preempt and has_lower)

    def summary(self, group: GroupKey, members: Sequence[QueuedPodInfo], found: GroupOutcome) -> tuple[str, str]:
        """Return reason and message of the attempt, for the group's object.

        The message is kube-scheduler's, and then the verdict of a pod that fits nowhere, which kube-scheduler does not name.
        """
        if found.is_placed:
            return SCHEDULED, f"{found.placed_count} of {len(members)} pods placed"
        if found.refusal:
            return found.refusal_reason, found.refusal + self._tail(group, members, found)
        if found.error:
            return SCHEDULER_ERROR, _MATE_FAILED.format(found.error)
        text = self._counts(group, members, found, found.outcomes) + self._tail(group, members, found)
        unfit = (
            f"; {queued.info.pod.metadata.name}: {outcome.message}"
            for queued in members
            if isinstance(outcome := found.outcomes.get(queued.uid), Unschedulable)
        )
        return UNSCHEDULABLE, text + next(unfit, "")

    def of_basic(self, outcome: Outcome) -> tuple[str, str]:
        """Return reason and message that the attempt of one pod means for its `basic` group, none of whose pods is placed.

        They are kube-scheduler's for a group of one pod, without what it says about preemption: these pods preempt alone.
        """
        match outcome:
            case Scheduled():
                return SCHEDULED, ""
            case SchedulingFailed():
                return SCHEDULER_ERROR, _MATE_FAILED.format(outcome.message)
            case Unschedulable():
                return UNSCHEDULABLE, self._threshold(1, placed=0, failed=1, remaining=0)

    def has_started(self, group: GroupKey) -> bool:
        """Return whether a pod of the group has a node, or is on its way to one. O(members)."""
        groups = self.cluster.pod_groups
        return groups.running_count(group) > 0 or any(
            self._is_on_its_way(pod.metadata.uid) for pod in groups.members(group).values()
        )

    # -- texts -------------------------------------------------------------------------------------------------------

    def _counts(
        self, group: GroupKey, members: Sequence[QueuedPodInfo], found: GroupOutcome, outcomes: Mapping[str, Outcome]
    ) -> str:
        """Return why the group was refused, as kube-scheduler of this version says it: the numbers of its pods."""
        groups, is_new = self.cluster.pod_groups, GROUP_TEXTS in self.gates
        least = groups.least(group) if groups.get(group) is not None else found.least
        placed = sum(isinstance(outcome, Scheduled) for outcome in outcomes.values())
        failed, remaining = len(outcomes) - placed, len(members) - len(outcomes)
        placed += self._placed_count(group)
        head, tried = "", found.domain_count
        if tried:
            head = f"0/{tried} placements are available, first placement status: "
            head = head if is_new else f"{_GROUP_REFUSED}, {head}"
        return head + self._threshold(least, placed, failed, remaining)

    def _threshold(self, least: int, placed: int, failed: int, remaining: int) -> str:
        if GROUP_TEXTS in self.gates:
            counts = f"{placed} scheduled, {failed} unschedulable, {remaining} not-evaluated"
            return f"scheduling policy's minimum threshold ({least}) cannot be satisfied: {counts}"
        return f"minCount ({least}) cannot be satisfied: {placed} scheduled, {remaining} remaining"

    def _tail(self, group: GroupKey, members: Sequence[QueuedPodInfo], found: GroupOutcome) -> str:
        """Return what kube-scheduler adds about preemption; "" if the profile has none."""
        preemption = found.preemption
        if preemption is None:
            return ""
        text = preemption.text or self._counts(group, members, found, preemption.outcomes)
        # Before preemption comes the release of claims. Its text stays unless the preemption succeeds, and up to 1.37
        # unless no pod has a lower priority.
        is_reported = not (preemption.nodes or found.domain_count or self.is_confined(group))
        is_reported &= text != NO_VICTIMS or GROUP_TEXTS in self.gates
        return f"{_CLAIMS_RELEASED if is_reported else ''}, pod group preemption: {text}"

    def _parent_text(self, group: GroupKey, text: str) -> str:
        return f'parent pod group "{group.name}" is unschedulable' if GROUP_TEXTS in self.gates else text

    def _parent_error(self, group: GroupKey, error: str) -> str:
        return f'parent pod group "{group.name}" encountered an error' if GROUP_TEXTS in self.gates else error

    def _disagreement(self, first: Pod, group: GroupKey, priority: int) -> str:
        """Return in which of the values that all pods of a group share two of them differ; "" if they agree."""
        is_new = GROUP_TEXTS in self.gates
        head = f"all pods in a {'pod group hierarchy' if is_new else 'single pod group'} should have the same"
        policy = first.spec.preemption_policy or _DEFAULT_POLICY
        for pod in self.cluster.pod_groups.members(group).values():
            own_policy = pod.spec.preemption_policy or _DEFAULT_POLICY
            name = f' ("{pod.metadata.name}")' if is_new else ""
            if pod.spec.scheduler_name != first.spec.scheduler_name:
                theirs = f'"{first.spec.scheduler_name}"' + (f' ("{first.metadata.name}")' if is_new else "")
                return f'{head} .spec.schedulerName set, got: "{pod.spec.scheduler_name}"{name} and {theirs}'
            if pod.priority != priority:
                whose = "root pod group's" if is_new else "pod group's"
                theirs = f"{priority}" + (f' ("podgroup/{group.key}")' if is_new else "")
                return f"{head} priority as the {whose} priority, got {pod.priority}{name} and {theirs}"
            if own_policy != policy:
                return f"{head} preemption policy, got {own_policy}{name} and {policy}"
        return ""

    def _shortage(self, wanted: CoschedulingPodGroup | VolcanoPodGroup) -> str:
        """Return which of the resources in minResources all nodes together lack; "" if none.

        What the pods of the group request that have a node counts as there. O(resources × nodes).
        """
        nodes, rows = self.cluster.nodes, self.cluster.nodes.resources()
        usable = nodeset.slots(nodes.present & ~nodes.unschedulable, nodes.capacity)
        for resource, needed in allocatable(wanted.spec.min_resources).items():
            free = 0
            if resource in rows:
                row = rows[resource]
                free = int(np.maximum(nodes.allocatable[row, usable] - nodes.requested[row, usable], 0).sum())
            held = (
                self.cluster.get(pod.metadata.uid) for pod in self.cluster.pod_groups.members(wanted.group).values()
            )
            used = sum(info.requests.get(resource, 0) for info in held if info is not None)
            if needed > free + used:
                unit = "m" if resource == CPU else ""
                return (
                    f'pod group "{wanted.metadata.name}": minResources cannot be satisfied: '
                    f"{needed - used}{unit} {resource} needed, {free}{unit} free on all nodes together"
                )
        return ""

    def _placed_count(self, group: GroupKey) -> int:
        members = self.cluster.pod_groups.members(group).values()
        return sum(bool(pod.spec.node_name) or self._is_on_its_way(pod.metadata.uid) for pod in members)

    def _is_on_its_way(self, uid: str) -> bool:
        return self.cluster.is_assumed(uid) and not self.is_given_up(uid)

    # -- outcomes ----------------------------------------------------------------------------------------------------

    def _all(
        self,
        members: Sequence[QueuedPodInfo],
        text: str,
        outcome: Callable[[QueuedPodInfo, str], Outcome],
        *,
        reason: str = UNSCHEDULABLE,
    ) -> GroupOutcome:
        return GroupOutcome(False, {queued.uid: outcome(queued, text) for queued in members}, 0, text, reason)

    def _refused(self, queued: QueuedPodInfo, text: str, record: DecisionRecord | None = None) -> Unschedulable:
        rejection = Rejection(GANGS, Code.UNSCHEDULABLE, (text,))
        diagnosis = Diagnosis(0)
        diagnosis.refuse(rejection)
        record = record or self._record(queued)
        record.node, record.result, record.message = "", "unschedulable", text
        return Unschedulable(diagnosis, text, "", record)

    def _short(self, queued: QueuedPodInfo, text: str) -> Outcome:
        """Refuse a pod until the group changes, or a node has more free resources."""
        outcome = self._refused(queued, text)
        outcome.diagnosis.unschedulable_plugins.add(FIT)
        return outcome

    def _failed(self, queued: QueuedPodInfo, text: str) -> Outcome:
        record = self._record(queued)
        record.result, record.message = "error", text
        return SchedulingFailed(text, record)

    def _record(self, queued: QueuedPodInfo) -> DecisionRecord:
        info = queued.info
        return DecisionRecord(info.key, info.uid, queued.profile, queued.attempts, self.clock.wall())
