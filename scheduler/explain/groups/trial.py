"""What an attempt of a group would do now: the attempt's own search, on the live cache and taken back.

The whole plan is in force while the work runs, and is gone wherever it pauses: with it the nominations of the pods are back, and no
plan is being made. Nothing is written and no waiting pod is woken. The trial answers more than an attempt: how many nodes can take
one pod of each kind, how many pods fit at best, and why the first of the rest fits nowhere next to them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

import msgspec

from scheduler.api.core_v1 import Node, controller_of
from scheduler.api.podinfo import CPU, PodInfo
from scheduler.api.resource_v1 import claim_keys
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes.node_groups import matching_selector
from scheduler.cache.storage.reachability import VolumeReachability
from scheduler.core import nodeset
from scheduler.core.cooperative import TookTooLong, Work, paced
from scheduler.core.errors import VolumeError
from scheduler.core.nodeset import NodeSet
from scheduler.core.terminal import counted
from scheduler.cycle import Scheduled
from scheduler.explain.answer import Explanation, FixAnswer
from scheduler.explain.changes import node_copy
from scheduler.explain.claim_changes import TEMPLATE, of_claims
from scheduler.explain.edits import Overlay
from scheduler.explain.explainer import Explainer
from scheduler.explain.fixes import Steps
from scheduler.explain.groups.answer import MemberKind, MemberPin, NodesToAdd
from scheduler.framework.interface import AttemptMode
from scheduler.framework.preemption_state import Preempting
from scheduler.groups.cycle import GroupCycle
from scheduler.groups.domains import Domain, DomainError
from scheduler.groups.outcome import GroupOutcome, GroupPreemption
from scheduler.groups.search import GroupSearch, by_kind
from scheduler.plan import NotApplicable, Plan, Undo
from scheduler.queue import QueuedPodInfo

_KINDS_MAX: Final = 16
_PINS_MAX: Final = 16
_EXAMPLES: Final = 3
_NODES_MAX: Final = 32


@dataclass(eq=False)
class GroupTrial:
    """One trial of pods that have to be placed together. After `run` the fields say what was found; it may be a part."""

    explainer: Explainer
    preempting: Preempting
    members: Sequence[QueuedPodInfo]
    least: int
    domains: Sequence[Domain] | None
    plan: Plan
    found: GroupOutcome | None = field(default=None, init=False)
    """The result of an attempt; None if it took too long."""
    preemption: GroupPreemption | None = field(default=None, init=False)
    _nominated: Mapping[str, str] = field(default_factory=dict, init=False)
    fitting: int | None = field(default=None, init=False)
    """The number of pods in the best plan."""
    domain: Domain | None = field(default=None, init=False)
    """The domain of that plan."""
    nodes: dict[str, str] = field(default_factory=dict, init=False)
    """The pods that an attempt places, and their nodes."""
    unfit: list[PodInfo] = field(default_factory=list, init=False)
    """The pods that find no node next to those of the best plan."""
    explanation: Explanation | None = field(default=None, init=False)
    """Why the first of them finds none there."""
    kinds: list[MemberKind] = field(default_factory=list, init=False)
    pins: list[MemberPin] = field(default_factory=list, init=False)
    nodes_to_add: NodesToAdd | None = field(default=None, init=False)
    error: str = field(default="", init=False)
    is_complete: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        explainer = self.explainer
        self._cluster = explainer.cluster
        self._cycle = explainer.cycle()
        self._group_cycle = GroupCycle(
            self._cycle, self._cluster, explainer.nominator, explainer.clock, explainer.metrics, self.preempting
        )

    @property
    def limit_s(self) -> float:
        """The time for `work`: that of a search for fixes."""
        return max(self.explainer.budget_s, self.explainer.trial_s)

    def run(self) -> Steps[None]:
        """Run the trial in an empty plan, and take it back. Raises Changed."""
        yield from self._driven(self.work())

    def add_nodes(self, domains: Callable[[], Sequence[Domain] | None]) -> Steps[None]:
        """Find out with how many more nodes the refused group would be placed. `domains` returns those of then. Raises Changed."""
        yield from self._driven(self._with_nodes(domains))

    def _driven(self, work: Work[None]) -> Steps[None]:
        self.begin()
        trial = paced(work, self.explainer.clock, self.plan.suspended, limit_s=self.limit_s)
        try:
            for _ in trial:
                yield False
        except TookTooLong:
            self.is_complete = False
        finally:
            trial.close()
            self.plan.end()
        yield True

    def begin(self) -> None:
        """Take the nominations of the pods out of force in the plan: a placed pod would count twice."""
        self._nominated = self._group_cycle.nominated(self.members)
        self.preemption = self._group_cycle.ongoing(self.members, self._nominated)
        self.plan.add(self._without_nominations)

    def _without_nominations(self) -> Undo:
        block = contextlib.ExitStack()
        block.enter_context(self.explainer.nominator.without(queued.info for queued in self.members))
        return block.close

    # -- the work ----------------------------------------------------------------------------------------------------

    def work(self) -> Work[None]:
        """Search in the plan. If enough pods fit they stay in it, otherwise it is as before."""
        yield from self._count_nodes()
        cycle, asked, base = self._group_cycle, (self.plan, self.members, self.least, self.domains), len(self.plan)
        try:
            found = self.found = yield from cycle.search(*asked, nominated=self._nominated)
        except DomainError as error:
            self.error = str(error)
            return
        self.error = found.error
        if found.is_placed:
            self._note_placed(found)
        elif not found.error:
            yield from self._fill()
            self.plan.drop(base)
            if self.preemption is None:
                self.preemption = yield from cycle.preemption(*asked)

    def _note_placed(self, found: GroupOutcome) -> None:
        for queued in self.members:
            outcome = found.outcomes.get(queued.uid)
            if isinstance(outcome, Scheduled):
                self.nodes[queued.info.key] = outcome.assumed.node_name
            elif outcome is not None:
                self.unfit.append(queued.info)
        self.fitting = len(self.nodes)
        slot = self._cluster.nodes.present_slot(next(iter(self.nodes.values())))
        within = (each for each in self.domains or () if slot is not None and each.nodes >> slot & 1)
        self.domain = next(within, None)

    def _fill(self) -> Work[None]:
        """Find the best plan, also if it is not enough, and why the first pod that is left finds no node next to it."""
        best: tuple[int, Domain | None] = (-1, None)
        for domain in self.domains if self.domains is not None else (None,):
            search = self._search(domain)
            count = yield from search.fill()
            self.plan.drop(search.base)
            if count > best[0]:
                best = count, domain
                self.fitting, self.domain = best
        search = self._search(best[1])
        self.fitting = yield from search.fill()
        self.unfit = [each.info for each in self.members if not isinstance(search.outcomes.get(each.uid), Scheduled)]
        if self.unfit:
            within = best[1].nodes if best[1] is not None else None
            found = yield from self.explainer.rejected(self.unfit[0], within)
            self.explanation = msgspec.structs.replace(found, cause=f"next to the other pods {found.cause}")

    # -- fixes of one pod --------------------------------------------------------------------------------------------

    def starts_after(
        self, fix: FixAnswer, info: PodInfo, domains: Callable[[Sequence[QueuedPodInfo]], Sequence[Domain] | None]
    ) -> Steps[bool | None]:
        """Return whether an attempt places the group after this fix of one pod; None if that cannot be tried.

        A change of a pod or of a claim is one of its template, so it is made to all pods and claims of that template. `domains`
        returns those of the changed pods.
        """
        search = self.explainer.search(info, self.explainer.profiles[self.members[0].profile])
        search.trial_s = self.limit_s
        templates = [edit for edit in fix.edits if edit.kind == TEMPLATE]
        edits = [edit for edit in fix.edits if edit.kind != TEMPLATE]
        claims = {queued.uid: list(of_claims(queued.info.pod, templates)) for queued in self.members}
        of_others = [edit for edit in edits if (edit.verb, edit.kind) != ("patch", "Pod")]
        alike = _of_one_template(info, self.members, self._cluster)

        def attempt(_: PodInfo) -> Work[bool]:
            overlay, members = search.overlay, []
            overlay.hold(self._without_nominations)
            for queued in self.members:
                own = [*(edits if queued.uid in alike else of_others), *claims[queued.uid]]
                members.append(dataclasses.replace(queued, info=overlay.pod(queued.info.pod, own)))
                yield
            found = yield from self._group_cycle.search(overlay.plan, members, self.least, domains(members))
            return found.is_placed

        try:
            return (yield from search.tried([*edits, *chain.from_iterable(claims.values())], attempt))
        except DomainError:
            return False

    # -- more nodes --------------------------------------------------------------------------------------------------

    def _with_nodes(self, domains: Callable[[], Sequence[Domain] | None]) -> Work[None]:
        """Try as many nodes as pods are left over, because each takes at least one, and then fewer, by halves."""
        assert self.fitting is not None
        most = self.least - self.fitting
        model = yield from self._model()
        if model is None or not 0 < most <= _NODES_MAX or not (yield from self._starts_with(model, most, domains)):
            return
        low, high = 1, most
        self.nodes_to_add = NodesToAdd(like=model.metadata.name, nodes=high)
        while low < high:
            middle = (low + high) // 2
            if (yield from self._starts_with(model, middle, domains)):
                high = middle
                self.nodes_to_add = NodesToAdd(like=model.metadata.name, nodes=high)
            else:
                low = middle + 1

    def _model(self) -> Work[Node | None]:
        """Return the largest node that could take the first pod that is left over; None if there is none. O(nodes)."""
        nodes = self._cluster.nodes
        slots = nodeset.members((yield from self._cycle.feasible(self.unfit[0], self._search(self.domain).by_scores)))
        cpu = nodes.allocatable[nodes.resources()[CPU]]
        return nodes.node(max(slots, key=lambda slot: int(cpu[slot]))) if slots else None

    def _starts_with(self, model: Node, count: int, domains: Callable[[], Sequence[Domain] | None]) -> Work[bool]:
        base, overlay = len(self.plan), Overlay(self._cluster, self.explainer.derive)
        try:
            for number in range(1, count + 1):
                for edit in (edit for change in node_copy(self._cluster, model, number) for edit in change.edits):
                    self.plan.add(partial(overlay.applied_edit, edit))
                yield
            found = yield from self._group_cycle.search(self.plan, self.members, self.least, domains())
        except (NotApplicable, DomainError):
            return False
        finally:
            self.plan.drop(base)
        return found.is_placed

    def _search(self, domain: Domain | None) -> GroupSearch:
        within = domain.nodes if domain is not None else None
        return GroupSearch(self._cycle, self._cluster, self.plan, self.members, self.least, within)

    def summary(self, topology_key: str) -> str:
        """Return how many pods are placed, or how many fit and how many have to."""
        if self.found is None or self.fitting is None:
            return "its search takes too long for an explanation"
        count = len(self.members)
        where = f" in {topology_key} {self.domain.value}" if self.domain is not None else ""
        if self.nodes:
            return f"an attempt now places {len(self.nodes)} of {counted(count, 'pod')}{where}"
        best = f"{where}, the best of {counted(len(self.domains), 'domain')}" if self.domains is not None else ""
        text = f"{self.fitting} of {counted(count, 'pod')} fit together{best}, and {self.least} have to"
        return f"{text}; an attempt does not find that order" if self.fitting >= self.least else text

    # -- which nodes each pod can use --------------------------------------------------------------------------------

    def _count_nodes(self) -> Work[None]:
        """Count the nodes for one pod of each kind, and for the volumes and devices that pods have already."""
        for like in list(by_kind(self.members, self._cluster).values())[:_KINDS_MAX]:
            nodes = yield from self._cycle.feasible(like[0].info, AttemptMode(preempts=False, shares=True))
            self.kinds.append(MemberKind(pod=like[0].info.key, pods=len(like), nodes=nodes.bit_count()))
            yield
        for queued in self.members:
            for claim, nodes in self._tied(queued.info):
                named = [self._cluster.nodes.name(slot) for slot in nodeset.members(nodes)[:_EXAMPLES]]
                pin = MemberPin(pod=queued.info.key, claim=claim, nodes=nodes.bit_count(), examples=tuple(named))
                self.pins.append(pin)
                if len(self.pins) == _PINS_MAX:
                    return
            yield

    def _tied(self, info: PodInfo) -> Iterator[tuple[str, NodeSet]]:
        """Yield the claims whose volume or devices are usable on some of the nodes only, and these nodes."""
        cluster, present = self._cluster, self._cluster.nodes.present
        for use in info.claims:
            claim = cluster.volumes.claims.get(use.key)
            volume = cluster.volumes.volumes.get(claim.spec.volume_name) if claim is not None else None
            if volume is not None:
                with contextlib.suppress(VolumeError):
                    nodes = VolumeReachability(cluster.nodes, cluster.volumes).nodes_of(volume, present)
                    if nodes != present:
                        yield f"PersistentVolumeClaim {use.key}", nodes
        for key in claim_keys(info.pod):
            device_claim = cluster.devices.claims.get(key)
            allocation = device_claim.status.allocation if device_claim is not None else None
            if allocation is not None and allocation.node_selector is not None:
                yield f"ResourceClaim {key}", matching_selector(cluster.nodes, allocation.node_selector)


def _of_one_template(info: PodInfo, members: Sequence[QueuedPodInfo], cluster: Cluster) -> set[str]:
    """Return the uids of the pods that have the template of this pod: those of its controller, and those of its kind."""
    owner = controller_of(info.pod)
    kind = next(kind for kind in by_kind(members, cluster).values() if any(each.uid == info.uid for each in kind))
    alike = {each.uid for each in kind}
    if owner is not None:
        alike |= {
            each.uid for each in members if (its := controller_of(each.info.pod)) is not None and its.uid == owner.uid
        }
    return alike
