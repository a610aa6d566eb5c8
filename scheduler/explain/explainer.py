"""Explain one pod from the live cache: its state, what every plugin says on every node, and the nearest fixes.

An explanation is work in small steps (`fixes.Steps`); its driver lets other pods be tried between two steps. It
writes nothing, reserves nothing and wakes no pod.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import operator
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Broken, PartlyReadPod
from scheduler.api.meta import Identity
from scheduler.api.pod_group import GroupKey
from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.config.types import TRIAL_S
from scheduler.context import UnboundPods
from scheduler.core import nodeset
from scheduler.core.clock import Clock
from scheduler.core.cooperative import TookTooLong, Work
from scheduler.core.nodeset import NodeSet
from scheduler.core.terminal import counted
from scheduler.cycle import Cycle, Scheduled
from scheduler.explain.answer import (
    EXIT_CODES,
    Bound,
    ChangeAnswer,
    Explanation,
    FixAnswer,
    Move,
    Reason,
    RejectedNodes,
    ResourceShortage,
    State,
    Verdict,
)
from scheduler.explain.changes import ADD_NODE, Actor, Change, Site, free_on, quantity
from scheduler.explain.claim_changes import template_body
from scheduler.explain.codes import CLAIM_UNUSABLE, NOT_BOUND, code_of
from scheduler.explain.controllers import obstacles, untolerated
from scheduler.explain.edits import Edit, Overlay, Step, complete, merged, plain, pointer, strict
from scheduler.explain.fixes import BUDGET_S, Fix, Place, Search, Steps
from scheduler.explain.verdicts import UNFINISHED, Verdicts, reasons, verdicts
from scheduler.failure import POD_SCHEDULED
from scheduler.framework.interface import CycleState, ExplainPlugin, ReasonCodePlugin
from scheduler.framework.nominator import Nominator
from scheduler.framework.profile import GANGS, Profile
from scheduler.framework.runtime import FrameworkRunner
from scheduler.framework.status import AttemptError, Code, Rejection
from scheduler.metrics.metrics import Metrics
from scheduler.plan import Placement

_EXAMPLES: Final = 3
_GROUPS_MAX: Final = 32
_TERMINATING_MAX: Final = 200
_NODES_LOOKED_AT: Final = 128


@dataclass(eq=False)
class Explainer:
    """Explains pods of the profiles in force."""

    cluster: Cluster
    pending: UnboundPods
    nominator: Nominator
    profiles: Mapping[str, Profile]
    clock: Clock
    derive: Callable[[Pod], PodInfo]
    held_back: Callable[[PodInfo], NodeSet]
    budget_s: float = BUDGET_S
    """The time after which a search for fixes ends."""
    trial_s: float = TRIAL_S
    """The time after which a trial is given up. Longer where no other pods wait."""
    metrics: Metrics = field(default_factory=lambda: Metrics(process=False), init=False)
    """What trials count is not the scheduler's work, and is shown nowhere."""

    def explain(self, key: str) -> Steps[Explanation | None]:
        """Explain the pod `namespace/name`; None if it is neither in the queue nor on a node."""
        info = self.pending.get(key)
        if info is not None:
            return (yield from self._pending(info))
        for info in self.cluster.pods():
            if info.key == key:
                return (yield from self._on_node(info))
        return None

    # -- pods without a node -----------------------------------------------------------------------------------------

    def _pending(self, info: PodInfo) -> Steps[Explanation]:
        pod = info.pod
        if pod.metadata.deletion_timestamp is not None:
            return _answer(info, "deleting", "doesNotFit", "Deleting", "it is being deleted", "nobody")
        if isinstance(pod, PartlyReadPod):
            return _answer(info, "pending", "unreadable", "Unreadable", pod.why, "user")
        held = self.cluster.get(info.uid)
        if held is not None:
            text = f"node {held.node_name} is chosen, and the binding is under way"
            return _answer(info, "binding", "fits", "Binding", text, "wait", node=held.node_name)
        profile = self.profiles[pod.spec.scheduler_name]
        gates = [rejection for each in profile.pre_enqueue if (rejection := each.pre_enqueue(info)) is not None]
        if gates:
            return (yield from self._gated(info, profile, gates))
        found = yield from self._tried(info, profile)
        group = self.cluster.pod_groups.of(pod) if profile.starts_groups else None
        return self._in_group(found, info, group) if group is not None else found

    def _in_group(self, found: Explanation, info: PodInfo, group: GroupKey) -> Explanation:
        """Return the answer for a pod that may not start before its group does."""
        groups = self.cluster.pod_groups
        wanted, condition = groups.get(group), info.pod.condition(POD_SCHEDULED)
        if (
            wanted is None
            or not wanted.is_gang
            or groups.running_count(group) >= wanted.least
            or found.verdict != "fits"
        ):
            return found
        text = f"{found.cause}; its group {group.key} starts with {counted(wanted.least, 'pod')}"
        if condition is not None and condition.status == "False":
            text = f"{text}, and was refused: {condition.message}"
        return _answer(info, "pending", "doesNotFit", "GroupUnschedulable", text, "user", node_count=found.node_count)

    def _gated(self, info: PodInfo, profile: Profile, gates: list[Rejection]) -> Steps[Explanation]:
        """Explain a pod that is not tried yet: what keeps it back, and whether it would fit without."""
        names = [gate.name for gate in info.pod.spec.scheduling_gates]
        text = (
            "; ".join(rejection.message for rejection in gates if rejection.message)
            or "a plugin keeps it out of the queue"
        )
        if not names:
            return self._without_claims(info, gates, text)
        is_foreign = any("/" in name for name in names)  # the controller of that domain removes it
        changes = tuple(
            Change(
                "RemoveSchedulingGate",
                Actor.USER,
                1,
                f"remove the scheduling gate {name}",
                (_pod_patch(info, Step("remove", pointer("spec", "schedulingGates", at))),),
            )
            for at, name in enumerate(names)
        )
        search = self.search(info, profile)
        node = yield from search.placed(Fix(changes).edits)
        if node:
            after = f"{text}; without them it would go to node {node}"
            if is_foreign:
                return _answer(info, "gated", "fitsAfter", "Gated", after, "wait", node=node)
            fix = self._fix_answer(info, Fix(changes, node))
            return _answer(info, "gated", "fitsAfter", "Gated", after, "user", node=node, fixes=(fix,))
        found = yield from self._tried(info, profile, () if is_foreign else changes)
        cause = f"{text}; without them: {found.cause}"
        move: Move = "wait" if is_foreign else "user"
        return msgspec.structs.replace(found, state="gated", code="Gated", cause=cause, move=move)

    def _without_claims(self, info: PodInfo, gates: list[Rejection], text: str) -> Explanation:
        """Explain a pod that is not tried because of its device claims, or because its victims are leaving."""
        if gates[0].plugin == GANGS:
            group = self.cluster.pod_groups.of(info.pod)
            wanted = self.cluster.pod_groups.get(group) if group is not None else None
            if group is not None and wanted is not None:
                text = f"{text}; {existing(len(self.cluster.pod_groups.members(group)), wanted.least)}"
            return _answer(info, "gated", "fitsAfter", code_of(gates[0]), text, "user")
        if gates[0].cause:
            return _answer(info, "gated", "fitsAfter", code_of(gates[0]), text, "wait")
        namespace, claims = info.pod.metadata.namespace, self.cluster.devices.claims
        named = dict.fromkeys(each.resource_claim_name for each in info.pod.spec.resource_claims)
        missing = [f"{namespace}/{name}" for name in named if name and claims.get(f"{namespace}/{name}") is None]
        if missing:
            text = f"{text}; create ResourceClaim {', '.join(missing)}"
            return _answer(info, "gated", "doesNotFit", "DeviceClaimMissing", text, "user")
        made = {each.name for each in info.pod.status.resource_claim_statuses}
        templates = dict.fromkeys(
            each.resource_claim_template_name for each in info.pod.spec.resource_claims if each.name not in made
        )
        if any(templates):
            used = ", ".join(f"{namespace}/{name}" for name in templates if name)
            text = f"{text}; the resource claim controller makes it from ResourceClaimTemplate {used}, which must exist"
        return _answer(info, "gated", "fitsAfter", "DeviceClaimMissing", text, "wait")

    def _tried(self, info: PodInfo, profile: Profile, first: tuple[Change, ...] = ()) -> Steps[Explanation]:
        """Explain a pod by an attempt. `first` are changes that each fix needs as well, whatever else it changes."""
        search = self.search(info, profile)
        count = len(self.cluster.nodes)
        if not count:
            return _answer(info, "pending", "doesNotFit", "NoNodes", "the cluster has no nodes", "administrator")
        node = yield from search.placed(())
        if node:
            text = f"it fits: an attempt now chooses node {node}"
            return _answer(info, "pending", "fits", "Fits", text, "wait", node=node)
        found = yield from search.judged((), lambda: self.cluster.nodes.present)
        if found is None and search.has_taken_too_long:
            found = yield from search.judged((), lambda: self.cluster.nodes.present, exact=False)
            if found is None:
                text = "its search takes too long for an explanation; its condition has the result of the last attempt"
                return _answer(info, "pending", "doesNotFit", "Error", text, "wait", is_search_complete=False)
            found.leave(self.cluster.nodes.present & ~found.refused())
        if found is None:
            return _answer(info, "pending", "unreadable", "Unreadable", "the pod cannot be read", "user")
        groups = self._groups(info, found)
        code, cause = _cause(groups, found, count)
        nominated = info.pod.status.nominated_node_name or self.nominator.node_of(info.uid) or ""
        waits = yield from self._after_terminations(search)
        more: dict[str, Any] = {"groups": groups, "node_count": count, "facts": _facts(info, profile)}
        if waits and nominated:
            text = f"pods are leaving node {nominated} for it; it fits once they have gone"
            return _answer(info, "nominated", "fitsAfter", "Preempting", text, "wait", node=nominated, **more)
        if waits:
            text = f"{cause}; it fits on node {waits} once terminating pods have gone"
            return _answer(info, "pending", "fitsAfter", "Terminating", text, "wait", node=waits, **more)
        fixes = yield from search.fixes(found)
        moves = {change.actor for fix in fixes[:1] for change in fix.changes}
        move: Move = "user" if moves == {Actor.USER} else "administrator"
        if groups and not fixes and all(any(each.code == NOT_BOUND for each in group.reasons) for group in groups):
            move = "wait"
        return _answer(
            info,
            "pending",
            "doesNotFit",
            code,
            cause,
            move,
            fixes=tuple(self._fix_answer(info, Fix((*first, *fix.changes), fix.node)) for fix in fixes),
            is_search_complete=not (search.is_out_of_budget or search.has_taken_too_long),
            **more,
        )

    def rejected(self, info: PodInfo, within: NodeSet | None = None) -> Work[Explanation]:
        """Explain why a pod fits on no node, of these or of all, without fixes. The pod need not exist."""
        profile, nodes = self.profiles[info.pod.spec.scheduler_name], self.cluster.nodes.present
        nodes = nodes if within is None else nodes & within
        count = nodes.bit_count()
        if not count:
            return _answer(info, "pending", "doesNotFit", "NoNodes", "the cluster has no nodes", "administrator")
        found = yield from verdicts(self._runner(profile), info, nodes)
        groups = self._groups(info, found)
        code, cause = _cause(groups, found, count)
        facts = _facts(info, profile)
        return _answer(
            info,
            "pending",
            "doesNotFit",
            code,
            cause,
            "administrator",
            groups=groups,
            node_count=count,
            facts=facts,
        )

    def _after_terminations(self, search: Search) -> Steps[str]:
        """Return the node that is chosen once all terminating pods have gone; "" if none is, or none terminates."""
        leaving = [each for each in self.cluster.pods() if each.pod.metadata.deletion_timestamp is not None]
        yield True
        if not leaving or len(leaving) > _TERMINATING_MAX:
            return ""
        edits = [Edit("delete", "Pod", each.pod.metadata.name, each.pod.metadata.namespace) for each in leaving]
        return (yield from search.placed(edits))

    # -- pods with a node --------------------------------------------------------------------------------------------

    def _on_node(self, info: PodInfo) -> Steps[Explanation]:
        name = info.node_name
        if self.cluster.is_assumed(info.uid):
            text = f"node {name} is chosen, and the binding is under way"
            return _answer(info, "binding", "fits", "Binding", text, "wait", node=name)
        if self.cluster.nodes.present_slot(name) is None:
            text = f"node {name} does not exist; the pod does not run"
            return _answer(info, "bound", "doesNotFit", "NodeMissing", text, "user", node=name)
        profile = self.profiles.get(info.pod.spec.scheduler_name)
        text = f"it is on node {name}"
        if profile is None:
            text += f", placed by {info.pod.spec.scheduler_name}"
            return _answer(info, "bound", "fits", "Bound", text, "nobody", node=name)
        bound = yield from self._compared(info, profile)
        return _answer(info, "bound", "fits", "Bound", text, "nobody", node=name, bound=bound)

    def _compared(self, info: PodInfo, profile: Profile) -> Steps[Bound]:
        """Compare the pod's node with the second best one, as if the pod were not there."""
        overlay, runner = Overlay(self.cluster, self.derive), self._runner(profile)
        away = [Edit("delete", "Pod", info.pod.metadata.name, info.pod.metadata.namespace)]
        search = Search(self.cluster, runner, info.pod, overlay, self._place(profile), self.clock, trial_s=self.trial_s)
        spec = msgspec.structs.replace(info.pod.spec, node_name="")
        unbound = self.derive(msgspec.structs.replace(info.pod, spec=spec))
        found = Bound(node=info.node_name)
        with contextlib.suppress(TookTooLong), overlay.applied(away):
            found = yield from search.within(self._scores(runner, unbound, info.node_name))
        yield True
        return found

    def _scores(self, runner: FrameworkRunner, info: PodInfo, node: str) -> Work[Bound]:
        state, slot = CycleState(), self.cluster.nodes.present_slot(node)
        try:
            pre = runner.pre_filter(state, info)
            if pre.rejection is not None or slot is None:
                return Bound(node=node, fits_now=False)
            feasible, _ = yield from runner.filter(state, info, pre.nodes, exact=False)
            if not feasible >> slot & 1:
                return Bound(node=node, fits_now=False)
            runner.pre_score(state, info, feasible)
            scored = yield from runner.score(state, info, feasible)
        except AttemptError:
            return Bound(node=node, fits_now=False)
        own = int(scored.total[slot])
        others = [int(other) for other in scored.slots if other != slot]
        if not others:
            return Bound(node=node, score=own)
        second = max(others, key=lambda slot: int(scored.total[slot]))
        return Bound(
            node=node, score=own, runner_up=self.cluster.nodes.name(second), margin=own - int(scored.total[second])
        )

    # -- trials ------------------------------------------------------------------------------------------------------

    def search(self, info: PodInfo, profile: Profile) -> Search:
        overlay = Overlay(self.cluster, self.derive)
        runner, place = self._runner(profile), self._place(profile)
        return Search(self.cluster, runner, info.pod, overlay, place, self.clock, self.budget_s, self.trial_s)

    def _runner(self, profile: Profile) -> FrameworkRunner:
        """Return a runner without PostFilter: trials neither preempt nor count as attempts to preempt."""
        return self._runner_of(dataclasses.replace(profile, post_filter=()))

    def _runner_of(self, profile: Profile) -> FrameworkRunner:
        return FrameworkRunner(profile, self.cluster, self.nominator, clock=self.clock, metrics=self.metrics)

    def _place(self, profile: Profile) -> Place:
        """Return the ordinary attempt of a profile; what it assumes and reserves stays until the placement is undone."""
        cycle = self._cycle([self._runner(profile)])

        def place(info: PodInfo) -> Work[Placement | None]:
            outcome = yield from cycle.attempt(info, 1)
            return Placement(self.cluster, outcome) if isinstance(outcome, Scheduled) else None

        return place

    def cycle(self) -> Cycle:
        """Return the attempts of all profiles, with preemption. They count nothing in the scheduler's metrics."""
        return self._cycle(map(self._runner_of, self.profiles.values()))

    def _cycle(self, runners: Iterable[FrameworkRunner]) -> Cycle:
        by_profile = {each.profile.name: each for each in runners}
        return Cycle(by_profile, self.cluster, self.clock, random.Random(0), self.metrics, self.held_back)

    # -- parts of the answer -----------------------------------------------------------------------------------------

    def _fix_answer(self, info: PodInfo, fix: Fix) -> FixAnswer:
        return FixAnswer(
            verified=fix.is_verified,
            node=fix.node,
            changes=tuple(
                ChangeAnswer(
                    code=each.code,
                    actor=each.actor.value,
                    text=each.text,
                    edits=tuple(map(complete, each.edits)),
                    is_description=each.code == ADD_NODE,
                )
                for each in fix.changes
            ),
            edits=tuple(self._strict(info, edit) for edit in merged(fix.edits)),
        )

    def _strict(self, info: PodInfo, edit: Edit) -> Edit:
        """Return the edit as a JSON patch that fits the object in the cache."""
        obj: object = None
        claims = self.cluster.devices.claims.get_api
        match edit.kind:
            case _ if edit.verb != "patch":
                return complete(edit)
            case "Pod":
                obj = info.pod
            case "Node":
                slot = self.cluster.nodes.present_slot(edit.name)
                obj = self.cluster.nodes.node(slot) if slot is not None else None
            case "PersistentVolumeClaim":
                obj = self.cluster.volumes.claims.get_api(edit.key)
            case "ResourceClaim":
                obj = claims(edit.key)
            case "ResourceClaimTemplate":
                obj = template_body(info.pod, edit.name, claims)
        return edit if obj is None else msgspec.structs.replace(edit, patch=strict(plain(obj), edit.patch))

    def _groups(self, info: PodInfo, found: Verdicts) -> tuple[RejectedNodes, ...]:
        parts = found.partition(self.cluster.nodes.present)
        ranked = sorted(parts.items(), key=lambda part: (-part[1].bit_count(), part[0]))
        return tuple(self._group(info, found, plugins, nodes) for plugins, nodes in ranked[:_GROUPS_MAX] if plugins)

    def _group(self, info: PodInfo, found: Verdicts, plugins: tuple[str, ...], nodes: NodeSet) -> RejectedNodes:
        """Return one group. A problem of the pod's claims is shown once, though several plugins reject the pod for it."""
        shown: list[Reason] = []
        for rejection, count in reasons(found, plugins, nodes):
            code = self._code(info, rejection, found.groups[rejection.plugin][rejection] & nodes)
            is_of_all = rejection.plugin in found.early or code == CLAIM_UNUSABLE
            if is_of_all and any(code == each.code for each in shown):
                continue
            details = self._taints(info, nodes) if rejection.plugin == "TaintToleration" else ()
            shown.append(
                Reason(code=code, plugin=rejection.plugin, text=rejection.message, nodes=count, details=details)
            )
        return RejectedNodes(
            nodes=nodes.bit_count(),
            examples=tuple(self.cluster.nodes.name(slot) for slot in _first(nodes)),
            reasons=tuple(shown),
            shortages=tuple(self._shortages(info, nodes)) if "NodeResourcesFit" in plugins else (),
            notes=tuple(self._notes(info, nodes)),
        )

    def _taints(self, info: PodInfo, nodes: NodeSet) -> tuple[str, ...]:
        """Return the most frequent taints that keep the pod away, on some of the nodes."""
        looked_at = (self.cluster.nodes.node(slot) for slot in itertools.islice(nodeset.each(nodes), _NODES_LOOKED_AT))
        found = Counter(
            taint.text for node in looked_at if node is not None for _, taint in untolerated(info.pod, node)
        )
        return tuple(text for text, _ in found.most_common(_EXAMPLES))

    def _notes(self, info: PodInfo, nodes: NodeSet) -> Iterator[str]:
        """Yield why changes do not help at the nodes that are named: they start, leave or are broken."""
        for slot in _first(nodes):
            node = self.cluster.nodes.node(slot)
            yield from obstacles(info.pod, node) if node is not None else ()

    def _code(self, info: PodInfo, rejection: Rejection, nodes: NodeSet) -> str:
        """Return the code of a rejection on the first of the nodes."""
        for plugin in self.profiles[info.pod.spec.scheduler_name].pre_filter:
            if plugin.name == rejection.plugin and isinstance(plugin, ReasonCodePlugin):
                return plugin.reason_code(rejection, info, next(iter(_first(nodes)))) or code_of(rejection)
        return code_of(rejection)

    def _shortages(self, info: PodInfo, nodes: NodeSet) -> Iterator[ResourceShortage]:
        """Yield for each resource that no node of the group has enough of, the node with most of it."""
        columns = self.cluster.nodes
        slots = nodeset.slots(nodes, columns.capacity)
        for name, amount in {**info.requests, "pods": 1}.items():
            if not amount:
                continue
            best = int(slots[int(np.argmax(free_on(columns, name, slots)))])
            have = Site(self.cluster, info, best).free(name)
            if have < amount:
                yield ResourceShortage(
                    resource=name,
                    need=quantity(name, amount),
                    have=quantity(name, max(have, 0)),
                    short=quantity(name, amount - max(have, 0)),
                    node=columns.name(best),
                )


def outside(pod: Pod | Broken) -> Explanation:
    """Explain a pod that this scheduler neither queues nor counts: of another scheduler, finished, or unreadable."""
    if isinstance(pod, Broken):
        return _answer_about(pod.metadata, "", "pending", "unreadable", "Unreadable", pod.why, "user")
    name = pod.spec.scheduler_name
    if pod.is_terminal:
        return _answer_about(pod.metadata, name, "finished", "fits", "Finished", "it has ended", "nobody")
    text = f"it waits for the scheduler {name}"
    return _answer_about(pod.metadata, name, "foreign", "doesNotFit", "Foreign", text, "wait")


def _answer(  # noqa: PLR0917 (as below)
    info: PodInfo, state: State, verdict: Verdict, code: str, cause: str, move: Move, **more: Any
) -> Explanation:
    return _answer_about(info.pod.metadata, info.pod.spec.scheduler_name, state, verdict, code, cause, move, **more)


def _answer_about(  # noqa: PLR0913, PLR0917 (the fields of every answer)
    about: Identity,
    scheduler: str,
    state: State,
    verdict: Verdict,
    code: str,
    cause: str,
    move: Move,
    **more: Any,
) -> Explanation:
    return Explanation(
        pod=about.key,
        uid=about.uid,
        scheduler=scheduler,
        state=state,
        verdict=verdict,
        exit_code=EXIT_CODES[verdict],
        code=code,
        cause=cause,
        move=move,
        **more,
    )


def _first(nodes: NodeSet) -> Iterator[int]:
    for count, slot in enumerate(nodeset.each(nodes)):
        if count == _EXAMPLES:
            return
        yield slot


def existing(count: int, wanted: int) -> str:
    """Return how many of the pods exist with which a group can start."""
    return f"{count} of {counted(wanted, 'pod')} {'exists' if wanted == 1 else 'exist'}"


def _cause(groups: tuple[RejectedNodes, ...], found: Verdicts, count: int) -> tuple[str, str]:
    """Return the code of the largest group, and one sentence over all groups; or the error that ends an attempt."""
    if error := next(_errors(found), None):
        remaining = count - found.refused().bit_count()
        others = f"; without it no plugin rejects {remaining} of {counted(count, 'node')}" if remaining else ""
        return "Error", f"an attempt ends in an error of {error.plugin}: {error.message}{others}"
    if not groups:
        return "Error", "no node fits, and no plugin says why"
    texts: dict[str, int] = {}
    for group in groups:
        joined = " and ".join(dict.fromkeys(reason.full_text for reason in group.reasons))
        texts[joined] = texts.get(joined, 0) + group.nodes
    ranked = sorted(texts.items(), key=lambda each: -each[1])
    parts = [f"{nodes} {text}" for text, nodes in ranked[:4]]
    if len(ranked) > 4:
        parts.append(f"{sum(nodes for _, nodes in ranked[4:])} for other reasons")
    return groups[0].reasons[0].code, f"none of {counted(count, 'node')} fits: {'; '.join(parts)}"


def _errors(found: Verdicts) -> Iterator[Rejection]:
    """Yield the errors that an attempt meets: of PreFilter, or on nodes that no other plugin rejects.

    A search that was given up is no error of an attempt, which searches for longer.
    """
    for plugin, held in found.groups.items():
        if plugin == UNFINISHED:
            continue
        others = functools.reduce(operator.or_, (found.refused_by(each) for each in found.groups if each != plugin), 0)
        for rejection, nodes in held.items():
            if rejection.code is Code.ERROR and (plugin in found.early or nodes & ~others):
                yield rejection


def _facts(info: PodInfo, profile: Profile) -> dict[str, object]:
    asked = (plugin for plugin in profile.pre_filter if isinstance(plugin, ExplainPlugin))
    return {plugin.name: found for plugin in asked if (found := plugin.explain(info))}


def _pod_patch(info: PodInfo, step: Step) -> Edit:
    metadata = info.pod.metadata
    return Edit("patch", "Pod", metadata.name, metadata.namespace, patch=(step,))
