"""One attempt of a group: enough of its pods get a node, or none does (docs/spec/groups.md §4).

The search places the pods (scheduler/groups/search.py), and all placements are kept, or none. A group with a topology constraint is
placed in one domain after the other. The first that takes all pods is chosen, else the one that takes the most. If the group is
refused, the victims are chosen whose end would let it fit (scheduler/groups/preemption.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from scheduler.api.apps_and_policy import is_leaving_for_a_preemptor
from scheduler.cache.cluster import Cluster
from scheduler.core.clock import Clock
from scheduler.core.cooperative import Work, paced
from scheduler.cycle import Cycle, Unschedulable
from scheduler.framework.nominator import Nominator
from scheduler.framework.preemption_state import Preempting
from scheduler.groups.domains import Domain, DomainError
from scheduler.groups.outcome import GroupOutcome, GroupPreemption
from scheduler.groups.preemption import NEVER, NO_VICTIMS, ONGOING, VictimSearch
from scheduler.groups.search import ATTEMPTS_PER_POD, GroupSearch, by_kind, in_turn
from scheduler.metrics.metrics import Metrics
from scheduler.plan import Plan
from scheduler.queue import QueuedPodInfo

_DOMAIN_ATTEMPTS: Final = 10_000
"""No further domain is searched after 4 attempts per pod and these."""
FIT: Final = "NodeResourcesFit"


@dataclass(eq=False, repr=False)
class GroupCycle:
    """Decide for the pods of one group at a time. Owned by the scheduling loop.

    Upstream: pkg/scheduler/schedule_one_podgroup.go podGroupCycle
    """

    cycle: Cycle
    cluster: Cluster
    nominator: Nominator
    clock: Clock
    metrics: Metrics
    preempting: Preempting

    def attempt(
        self,
        members: Sequence[QueuedPodInfo],
        least: int,
        domains: Sequence[Domain] | None = None,
        preferred: Sequence[Sequence[Domain]] = (),
    ) -> Work[GroupOutcome]:
        """Place at least this number of the pods, in one of the domains if there are any.

        If all pods fit into one of the preferred domains, they are placed there; earlier lists of them come first.

        Yields as `Cycle.attempt`; cancelled, it leaves nothing in the cache. While it yields, its placements are in the cache:
        nothing may be decided about another pod.
        """
        return paced(self._attempt(members, least, domains, preferred), self.clock)

    def _attempt(
        self,
        members: Sequence[QueuedPodInfo],
        least: int,
        domains: Sequence[Domain] | None,
        preferred: Sequence[Sequence[Domain]],
    ) -> Work[GroupOutcome]:
        plan, began = Plan(self.cluster), self.clock.now()
        plan.begin()
        try:
            nominated = self.nominated(members)
            ongoing = self.ongoing(members, nominated)
            with self.nominator.without(queued.info for queued in members):
                found = yield from self.search(plan, members, least, domains, preferred, nominated)
                if not (found.is_placed or found.error):
                    found.preemption = ongoing or (yield from self.preemption(plan, members, least, domains))
            if found.is_placed:
                yield from plan.keep()
            return found
        finally:
            plan.end()
            self.metrics.group_algorithm(self.clock.now() - began)

    def search(  # noqa: PLR0917 (the attempt's own arguments)
        self,
        plan: Plan,
        members: Sequence[QueuedPodInfo],
        least: int,
        domains: Sequence[Domain] | None,
        preferred: Sequence[Sequence[Domain]] = (),
        nominated: Mapping[str, str] = MappingProxyType({}),
    ) -> Work[GroupOutcome]:
        """Place the pods in the plan, without preemption. Their nominations must be out of force. Raises DomainError."""
        base = len(plan)
        for level in preferred:
            with contextlib.suppress(DomainError):  # too many domains: the next list has fewer of them
                found = yield from self._in_one_domain(plan, members, len(members), level)
                if found.is_placed:
                    return found
            yield from plan.dropping(base)
        if domains is None:
            search = GroupSearch(self.cycle, self.cluster, plan, members, least, nominated=nominated)
            return (yield from search.run())
        return (yield from self._in_one_domain(plan, members, least, domains, nominated))

    def _in_one_domain(
        self,
        plan: Plan,
        members: Sequence[QueuedPodInfo],
        least: int,
        domains: Sequence[Domain],
        nominated: Mapping[str, str] = MappingProxyType({}),
    ) -> Work[GroupOutcome]:
        """Place the pods in the first domain that takes all of them, else in the one that takes the most.

        Raises DomainError if domains are left when all attempts are used, and none has taken enough.
        """
        filters = self.cycle.runners[members[0].profile].profile.filter
        counts_resources = any(each.name == FIT for each in filters)
        tried = [each for each in domains if not (counts_resources and each.is_hopeless)]
        by_resources = {FIT} if len(tried) < len(domains) else set()
        rejecters = {queued.uid: set(by_resources) for queued in members}
        limit = ATTEMPTS_PER_POD * len(members) + _DOMAIN_ATTEMPTS
        if len(members) * len(tried) > limit:
            self.cycle.rng.shuffle(tried)  # so that each of them has its turn when the attempt is repeated
        tried = tried or list(domains[:1])  # for the verdicts of the pods
        base = len(plan)
        results: list[GroupOutcome] = []
        attempts = 0
        for domain in tried:
            if attempts >= limit:
                break
            search = GroupSearch(self.cycle, self.cluster, plan, members, least, domain.nodes, len(tried), nominated)
            found = yield from search.run()
            if found.error or (found.is_placed and found.placed_count == len(members)):
                return found
            yield from plan.dropping(base)
            results.append(found)
            attempts += search.attempts
            for uid, outcome in found.outcomes.items():
                if isinstance(outcome, Unschedulable):
                    rejecters[uid] |= outcome.diagnosis.unschedulable_plugins
        enough = [at for at, found in enumerate(results) if found.is_placed]
        for at in sorted(enough, key=lambda at: -results[at].placed_count):
            # Ties of nodes are broken by chance, and the search may end otherwise than before.
            found = yield from GroupSearch(
                self.cycle, self.cluster, plan, members, least, tried[at].nodes, len(tried)
            ).run()
            if found.is_placed:
                return found
        yield from plan.dropping(base)
        if len(results) < len(tried):
            text = (
                f"{len(results)} of {len(domains)} topology domains were tried with {attempts} attempts, none fits yet"
            )
            raise DomainError(text)
        is_certain = all(found.is_certain for found in results)
        return replace(
            results[0], is_placed=False, domain_count=len(domains), rejecters=rejecters, is_certain=is_certain
        )

    # -- preemption --------------------------------------------------------------------------------------------------

    def nominated(self, members: Iterable[QueuedPodInfo]) -> dict[str, str]:
        """Return the nodes to which pods of the group are nominated, by uid."""
        return {queued.uid: node for queued in members if (node := self.nominator.node_of(queued.uid))}

    def ongoing(self, members: Sequence[QueuedPodInfo], nominated: Mapping[str, str]) -> GroupPreemption | None:
        """Return that pods of lower priority, or devices of pods that have left, are not gone yet from a nominated node."""
        waiting = self.cycle.runners[members[0].profile].profile.group_wait
        for queued in members:
            slot = self.cluster.nodes.present_slot(nominated.get(queued.uid, ""))
            plugins = {plugin.name for plugin in waiting if slot is not None and plugin.waits_on(queued.info, slot)}
            if plugins:
                return GroupPreemption(ONGOING, nodes=nominated, plugins=plugins)
        for name in set(nominated.values()):
            slot = self.cluster.nodes.present_slot(name)
            for other in self.cluster.nodes.pods(slot).values() if slot is not None else ():
                is_leaving = is_leaving_for_a_preemptor(other.pod) or self.preempting.is_doomed(other.uid)
                if is_leaving and other.priority < members[0].info.priority:
                    return GroupPreemption(ONGOING, nodes=nominated)
        return None

    def preemption(
        self, plan: Plan, members: Sequence[QueuedPodInfo], least: int, domains: Sequence[Domain] | None
    ) -> Work[GroupPreemption | None]:
        """Return which pods have to leave so that the group fits, or why that does not help. None of them may be in the plan."""
        first = members[0]
        rule = self.cycle.runners[first.profile].profile.group_preemption
        if rule is None:
            return None
        if first.info.pod.spec.preemption_policy == "Never":
            return GroupPreemption(NEVER)
        if not self.cluster.nodes.priorities.below(first.info.priority):
            return GroupPreemption(NO_VICTIMS)
        attempts, first_found, kinds = 0, None, by_kind(members, self.cluster)
        for within in (each.nodes for each in domains) if domains is not None else (None,):
            if attempts >= ATTEMPTS_PER_POD * len(members) + _DOMAIN_ATTEMPTS:
                break
            search = GroupSearch(self.cycle, self.cluster, plan, members, least, within)
            order = in_turn((yield from search.hardest_first(kinds)), kinds)
            # If not all pods are needed, those that fit on the most nodes come first.
            order = [*order[-least:], *reversed(order[:-least])]
            found = yield from VictimSearch(search, order, rule).run()
            if found.victims:
                return found
            first_found = first_found or found
            attempts += len(members)
        return first_found or GroupPreemption("")
