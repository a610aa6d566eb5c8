"""The dry run: the pods that must leave each node, and the cost of a node (docs/spec/core.md §3.10).

Results are cached until the node changes: pods of one shape try the same nodes repeatedly, and only changed nodes
are evaluated again. A cached result depends on the node alone. Where a filter reads other nodes (spread, pod
affinity), only rejections by earlier filters are cached: if they reject the node without all its victims, later
filters are not called.

Upstream: pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go SelectVictimsOnNode
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.api.apps_and_policy import started_at
from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.core.caching import BoundedCache
from scheduler.core.cooperative import Work
from scheduler.framework.interface import DryRun, NodeSimulation
from scheduler.framework.status import AttemptError, Code, Rejection

PLUGIN: Final = "DefaultPreemption"
NO_VICTIMS: Final = Rejection(PLUGIN, Code.UNRESOLVABLE, ("No preemption victims found for incoming pod",))
_ABOVE_ALL_NEGATIVE: Final = 2**31
"""Added to every priority, so that many pods of the lowest priority cost more than few."""

Cost: TypeAlias = tuple[float, ...]
"""Smaller is better. Compared item by item, which equals upstream's sequence of minima."""


@dataclass(frozen=True, slots=True)
class VictimRule:
    """The pods that may be victims (docs/spec/core.md §2.6): all as in upstream, only our own, or our own first."""

    own: frozenset[str] = frozenset()
    """The schedulerNames of this scheduler."""
    spares_others: bool = False
    prefers_own: bool = False

    def allows(self, victim: PodInfo, preemptor: PodInfo) -> bool:
        """Return whether the pod may be a victim: it has lower priority, and the rule permits it."""
        if victim.priority >= preemptor.priority:
            return False
        return not self.spares_others or self.is_own(victim)

    def is_own(self, pod: PodInfo) -> bool:
        """Return whether the pod names a profile of this scheduler."""
        return pod.pod.spec.scheduler_name in self.own


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node where preemption helps. `victims` are uids, the most important first."""

    slot: int
    victims: tuple[str, ...]
    violations: int
    """The number of victims that a disruption budget protects."""
    cost: Cost


def importance(pod: PodInfo) -> tuple[float, ...]:
    """Return a key that sorts the most important pod first: higher priority, then earlier start."""
    return (-pod.priority, started_at(pod.pod.status.start_time))


def by_importance(pods: Iterable[PodInfo], rule: VictimRule) -> list[PodInfo]:
    """Sort the most important first; if the rule prefers our own victims, pods of other schedulers come before ours.

    The name breaks ties, which upstream leaves open.
    """
    if not rule.prefers_own:
        return sorted(pods, key=lambda pod: (*importance(pod), pod.key))
    return sorted(pods, key=lambda pod: (rule.is_own(pod), *importance(pod), pod.key))


def cost(victims: list[PodInfo], violations: int, rule: VictimRule) -> Cost:
    """Return the cost of evicting these victims, at least one."""
    highest = max(victim.priority for victim in victims)
    total = sum(victim.priority + _ABOVE_ALL_NEGATIVE for victim in victims)
    earliest = min(started_at(victim.pod.status.start_time) for victim in victims if victim.priority == highest)
    others = sum(not rule.is_own(victim) for victim in victims) if rule.prefers_own else 0
    return (others, violations, highest, total, len(victims), -earliest)


def needless(node_name: str) -> Rejection:
    """Return the error for a pod that fits without any eviction, because the filters contradict each other."""
    return Rejection(PLUGIN, Code.ERROR, (f'expected at least one victim pod on node "{node_name}"',))


_SHAPES: Final = 64

Answer: TypeAlias = Candidate | Rejection


@dataclass(frozen=True, slots=True)
class _Kept:
    stamp: int
    budgets: int
    nominations: int
    answer: Answer


class Evaluator:
    """Evaluates nodes one by one. Changes nothing.

    Upstream: pkg/scheduler/framework/preemption/preemption.go DryRunPreemption
    """

    def __init__(self, cluster: Cluster, rule: VictimRule) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._rule = rule
        self._known: BoundedCache[Hashable, dict[int, _Kept]] = BoundedCache(_SHAPES)
        self._objects = -1

    def of(self, what_if: DryRun, pod: PodInfo) -> dict[int, _Kept] | None:
        """Return the cache for pods of this shape, to be passed to `on`; None if nothing can be cached."""
        if not what_if.is_counted and not what_if.shape:
            return None
        if self._objects != self._nodes.object_generation:  # some filters count by labels
            self._objects = self._nodes.object_generation
            self._known.clear()
        return self._known.get_or_make((pod.priority, what_if.is_counted, what_if.shape), dict)

    def on(self, what_if: DryRun, pod: PodInfo, slot: int, known: dict[int, _Kept] | None) -> Work[Answer]:
        """Return the victims on this node, or why preemption does not help. O(pods on the node)."""
        if known is None or not what_if.alike >> slot & 1 or what_if.hopeless(slot):
            return (yield from self._run(what_if, pod, slot))
        stamp, budgets, nominations = (
            self._nodes.stamps[slot],
            self._cluster.disruptions.generation,
            what_if.version(slot),
        )
        kept = known.get(slot)
        if kept is None or (kept.stamp, kept.budgets, kept.nominations) != (stamp, budgets, nominations):
            rejection = None if what_if.is_counted else self._rejection_without_victims(what_if, pod, slot)
            answer = rejection if rejection is not None else (yield from self._run(what_if, pod, slot))
            if rejection is None and not what_if.is_counted:
                return answer
            kept = known[slot] = _Kept(stamp, budgets, nominations, answer)
        return kept.answer

    def _rejection_without_victims(self, what_if: DryRun, pod: PodInfo, slot: int) -> Rejection | None:
        """Return why no eviction on this node helps, by the filters that read only the node itself."""
        potential = [other for other in self._nodes.pods(slot).values() if self._rule.allows(other, pod)]
        if not potential:
            return NO_VICTIMS
        try:
            simulation = what_if.leading(slot)
            if simulation is None:
                return None
            for other in potential:
                simulation.remove(other)
            return simulation.verdict()
        except AttemptError:  # the full run raises it again, as this node's error
            return None

    def _run(self, what_if: DryRun, pod: PodInfo, slot: int) -> Work[Answer]:
        potential = [other for other in self._nodes.pods(slot).values() if self._rule.allows(other, pod)]
        if not potential:
            return NO_VICTIMS
        potential = by_importance(potential, self._rule)
        violating = self._cluster.disruptions.violating(potential)
        in_turn = sorted(potential, key=lambda other: other.uid not in violating) if violating else potential
        try:
            with what_if.on(slot) as simulation:
                evicted = yield from _evicted(simulation, in_turn)
        except AttemptError as error:  # raised by a plugin that simulates pods: it concerns only this node
            return Rejection(PLUGIN, Code.ERROR, (error.message,))
        if isinstance(evicted, Rejection):
            return evicted
        if not evicted:
            return needless(self._nodes.name(slot))
        if violating:
            evicted = by_importance(evicted, self._rule)
        violations = sum(other.uid in violating for other in evicted)
        return Candidate(slot, tuple(other.uid for other in evicted), violations, cost(evicted, violations, self._rule))


def _evicted(simulation: NodeSimulation, potential: list[PodInfo]) -> Work[list[PodInfo] | Rejection]:
    """Remove all pods, and add each again if the preemptor still fits; return the victims, or a rejection."""
    for other in potential:
        simulation.remove(other)
    no = simulation.verdict() if (judging := simulation.judging()) is None else (yield from judging)
    if no is not None:
        return no
    evicted = []
    for other in potential:
        simulation.add(other)
        no = simulation.verdict() if (judging := simulation.judging()) is None else (yield from judging)
        if no is not None:
            simulation.remove(other)
            evicted.append(other)
    return evicted
