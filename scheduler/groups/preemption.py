"""Which pods leave so that a group fits: no pod is evicted unless the whole group fits afterwards (docs/spec/groups.md §6).

The pods of the group are placed as in an attempt. For one that fits nowhere the PostFilter plugins say which pods would have to
leave. These leave in the plan, the pod is placed, and the next one sees both. A worked example: nodes a and b have 4 cpu each,
and pods of low priority with 3 cpu. The group has two pods of 2 cpu.

    1. first pod     fits nowhere; on a the low pod would have to leave. It leaves in the plan, the first pod takes 2 of 4 cpu
    2. second pod    fits on a, next to the first one. So b keeps its pod

That is one order of the pods, with one choice for each. If it fails, all pods that may be evicted leave in the plan, as in kube-scheduler, and
the whole search of an attempt runs.

Some victims may be needless, because of a later choice or because all have left. So each of them is put back
once, the most important one first, and stays if each pod of the group still fits on its node.

A group that gets more pods than its minimum evicts none for the additional ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.core import nodeset
from scheduler.core.cooperative import Work
from scheduler.cycle import Outcome, Scheduled, Unschedulable
from scheduler.framework.interface import AttemptMode, GroupPreemptionPlugin
from scheduler.groups.outcome import GroupPreemption
from scheduler.groups.search import GroupSearch
from scheduler.plan import Departure, Placement
from scheduler.queue import QueuedPodInfo

_TIMES: Final = 4
"""The rounds of victims for one pod: after the first ones have left, a filter that no dry run sees may still refuse it."""
_MOST_LEAVING: Final = 2_000
_MOST_CHECKS: Final = 20_000
"""Victims × pods of the group: above this number the choices one by one are not looked at again, and nothing else is tried."""
FOUND: Final = "found a placement for podgroup, preempting {} victims"
ONGOING: Final = "ongoing preemption on nominated nodes"
NEVER: Final = "not eligible due to preemptionPolicy=Never."
NO_VICTIMS: Final = "No preemption victims found for incoming preemptor"


@dataclass(eq=False, repr=False)
class VictimSearch:
    """The search for victims of one group. `search` has placed nothing, and keeps it so.

    Upstream: pkg/scheduler/framework/preemption/podgrouppreemption.go PodGroupEvaluator
    """

    search: GroupSearch
    order: Sequence[QueuedPodInfo]
    """Pods in the order of their turns; the minimum is counted in it."""
    rule: GroupPreemptionPlugin
    _tentative: AttemptMode = field(init=False)
    _victims: dict[str, PodInfo] = field(default_factory=dict, init=False)
    """By uid."""
    _nodes: dict[str, str] = field(default_factory=dict, init=False)
    _outcomes: Mapping[str, Outcome] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._tentative = replace(self.search.by_scores, preempts=True, is_tentative=True)

    def run(self) -> Work[GroupPreemption]:
        """Return the victims with which enough pods fit, or none. Nothing is left in the cache."""
        try:
            if not (yield from self._one_by_one()) and not (yield from self._without_all()):
                return GroupPreemption("", self._outcomes)
            victims = yield from self._needed()
            yield from self.search.plan.dropping(self.search.base)
        finally:
            self.search.plan.drop(self.search.base)
        if not victims:
            return GroupPreemption("")
        names = {pod.node_name for pod in victims}
        preemptor = min(self._nodes, key=lambda uid: self._nodes[uid] not in names)
        text = FOUND.format(len(victims))
        return GroupPreemption(text, nodes=dict(self._nodes), victims=victims, preemptor=preemptor)

    def _one_by_one(self) -> Work[bool]:
        """Let each pod choose its victims; return whether enough pods are placed."""
        least = self.search.least
        for at, queued in enumerate(self.order):
            if len(self._nodes) == least or len(self._nodes) + len(self.order) - at < least:
                break
            yield from self._place(queued)
            yield
        return len(self._nodes) == least and bool(self._victims)

    def _place(self, queued: QueuedPodInfo) -> Work[None]:
        """Place the pod, after the end of its victims if need be; otherwise the plan is as before."""
        plan, cluster = self.search.plan, self.search.cluster
        before, victims = len(plan), dict[str, PodInfo]()
        for _ in range(_TIMES):
            outcome: Outcome = yield from self.search.cycle.attempt(queued.info, queued.attempts, mode=self._tentative)
            if isinstance(outcome, Scheduled):
                plan.add(Placement(cluster, outcome))
                self._nodes[queued.uid] = outcome.assumed.node_name
                self._victims |= victims
                return
            if not (isinstance(outcome, Unschedulable) and outcome.nominate and outcome.victims):
                break
            for victim in outcome.victims:
                plan.add(Departure(cluster, victim))
                victims[victim.uid] = victim
        yield from plan.dropping(before)

    def _without_all(self) -> Work[bool]:
        """Search as if all pods had left that may be evicted; return whether enough pods are placed. O(pods on nodes)."""
        search, cluster = self.search, self.search.cluster
        yield from search.plan.dropping(search.base)
        self._nodes, preemptor = {}, self.order[0].info
        within = cluster.nodes.priorities.below(preemptor.priority)
        if search.within is not None:
            within &= search.within
        on_nodes = (pod for slot in nodeset.each(within) for pod in list(cluster.nodes.pods(slot).values()))
        self._victims = self._whole_units(pod for pod in on_nodes if self.rule.may_evict(pod, preemptor))
        if len(self._victims) > _MOST_LEAVING:
            return False
        for victim in self._victims.values():
            search.plan.add(Departure(cluster, victim))
            yield
        found = yield from replace(search, members=self.order).run()
        if not found.is_placed:
            self._outcomes = found.outcomes
            return False
        outcomes = found.outcomes.items()
        self._nodes = {uid: outcome.assumed.node_name for uid, outcome in outcomes if isinstance(outcome, Scheduled)}
        # Most of those that have left are on other nodes: they are put back together.
        taken = set(self._nodes.values())
        victims = self._whole_units(pod for pod in self._victims.values() if pod.node_name in taken)
        if len(victims) * len(self._nodes) > _MOST_CHECKS:
            return False
        if (yield from self._fit_without(victims.values())):
            self._victims = victims
        # Otherwise every one of them has to be looked at: no pod may leave only because there were too many to check.
        return len(self._victims) * len(self._nodes) <= _MOST_CHECKS

    def _whole_units(self, pods: Iterable[PodInfo]) -> dict[str, PodInfo]:
        """Return by uid the pods, and those that leave together with one of them."""
        return {pod.uid: pod for each in pods for pod in self.rule.unit_of(each)}

    def _needed(self) -> Work[tuple[PodInfo, ...]]:
        """Return the victims without those that the group does not need."""
        victims = dict(self._victims)
        if len(victims) * len(self._nodes) <= _MOST_CHECKS:
            for victim in (yield from self.rule.in_turn_to_stay(victims.values())):
                unit = {pod.uid: pod for pod in self.rule.unit_of(victim) if pod.uid in victims}
                rest = {uid: pod for uid, pod in victims.items() if uid not in unit}
                if unit and (yield from self._fit_without(rest.values())):
                    victims = rest
        return tuple(victims.values())

    def _fit_without(self, victims: Iterable[PodInfo]) -> Work[bool]:
        """Return whether the pods fit on their nodes if only these victims leave."""
        plan, cycle, cluster = self.search.plan, self.search.cycle, self.search.cluster
        yield from plan.dropping(self.search.base)
        for victim in victims:
            plan.add(Departure(cluster, victim))
        for queued in self.order:
            if queued.uid not in self._nodes:
                continue
            on_node = replace(self.search.by_scores, within=cluster.nodes.by_name((self._nodes[queued.uid],)))
            outcome = yield from cycle.attempt(queued.info, queued.attempts, mode=on_node)
            if not isinstance(outcome, Scheduled):
                return False
            plan.add(Placement(cluster, outcome))
            yield
        return True
