"""The dry run: which pods would have to leave each node, remembered until the node changes (docs/spec/core.md §3.10).

Who must leave one node for the pod, and what a node costs (docs/spec/core.md §3.10, dry run and step 4).

The dry run: what would have to leave each node, remembered for as long as the node stays as it is.

A burst of pods of one shape asks about the same nodes again and again; only those that changed are asked anew. What is
remembered hangs on the node alone. Where a filter looks beyond it (spread, pod affinity), only refusals by the filters
before that one are remembered: if those refuse the node without all its victims, no other filter is asked.

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
"""Added to every priority, so that many of the lowest cost more than few of them."""

Cost: TypeAlias = tuple[float, ...]
"""Smaller is better; compared item by item, which is upstream's row of successive minima."""


@dataclass(frozen=True, slots=True)
class VictimRule:
    """Whose pods may be victims (docs/spec/core.md §2.6): everybody's as upstream, or our own only, or ours first."""

    own: frozenset[str] = frozenset()
    """schedulerNames that are ours."""
    spares_others: bool = False
    prefers_own: bool = False

    def allows(self, victim: PodInfo, preemptor: PodInfo) -> bool:
        """Only lower priorities, and only those that the rule exposes."""
        if victim.priority >= preemptor.priority:
            return False
        return not self.spares_others or self.is_own(victim)

    def is_own(self, pod: PodInfo) -> bool:
        """Whether the pod asked for a scheduler name of ours."""
        return pod.pod.spec.scheduler_name in self.own


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that would do, by slot. `victims` are uids, the most important first."""

    slot: int
    victims: tuple[str, ...]
    violations: int
    """How many of them a disruption budget protects."""
    cost: Cost


def importance(pod: PodInfo) -> tuple[float, ...]:
    """Sorts the most important first: higher priority, then the older one. The name settles what upstream leaves open."""
    return (-pod.priority, started_at(pod.pod.status.start_time))


def by_importance(pods: Iterable[PodInfo], rule: VictimRule) -> list[PodInfo]:
    """The most important first; other schedulers' before ours if the rule prefers ours as victims."""
    if not rule.prefers_own:
        return sorted(pods, key=lambda pod: (*importance(pod), pod.key))
    return sorted(pods, key=lambda pod: (rule.is_own(pod), *importance(pod), pod.key))


def cost(victims: list[PodInfo], violations: int, rule: VictimRule) -> Cost:
    """What evicting these costs; `victims` are not empty."""
    highest = max(victim.priority for victim in victims)
    total = sum(victim.priority + _ABOVE_ALL_NEGATIVE for victim in victims)
    earliest = min(started_at(victim.pod.status.start_time) for victim in victims if victim.priority == highest)
    others = sum(not rule.is_own(victim) for victim in victims) if rule.prefers_own else 0
    return (others, violations, highest, total, len(victims), -earliest)


def needless(node_name: str) -> Rejection:
    """The pod would fit without any eviction: the filters contradict each other."""
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
    """Node by node. Changes nothing.

    Upstream: pkg/scheduler/framework/preemption/preemption.go DryRunPreemption
    """

    def __init__(self, cluster: Cluster, rule: VictimRule) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._rule = rule
        self._known: BoundedCache[Hashable, dict[int, _Kept]] = BoundedCache(_SHAPES)
        self._objects = -1

    def of(self, what_if: DryRun, pod: PodInfo) -> dict[int, _Kept] | None:
        """What is remembered for pods of this shape, to be handed to `on`; None if nothing can be."""
        if not what_if.is_counted and not what_if.shape:
            return None
        if self._objects != self._nodes.object_generation:  # labels may matter to how some filter counts
            self._objects = self._nodes.object_generation
            self._known.clear()
        return self._known.get_or_make((pod.priority, what_if.is_counted, what_if.shape), dict)

    def on(self, what_if: DryRun, pod: PodInfo, slot: int, known: dict[int, _Kept] | None) -> Work[Answer]:
        """Who must leave this node, or why that does not help. O(pods on the node)."""
        if known is None or not what_if.alike >> slot & 1 or what_if.hopeless(slot):
            return (yield from self._run(what_if, pod, slot))
        stamp, budgets, nominations = (
            self._nodes.stamps[slot],
            self._cluster.disruptions.generation,
            what_if.version(slot),
        )
        kept = known.get(slot)
        if kept is None or (kept.stamp, kept.budgets, kept.nominations) != (stamp, budgets, nominations):
            vain = None if what_if.is_counted else self._in_vain(what_if, pod, slot)
            answer = vain if vain is not None else (yield from self._run(what_if, pod, slot))
            if vain is None and not what_if.is_counted:
                return answer
            kept = known[slot] = _Kept(stamp, budgets, nominations, answer)
        return kept.answer

    def _in_vain(self, what_if: DryRun, pod: PodInfo, slot: int) -> Rejection | None:
        """Why no eviction on this node helps, as far as the filters know that need only the node itself."""
        potential = [other for other in self._nodes.pods(slot).values() if self._rule.allows(other, pod)]
        if not potential:
            return NO_VICTIMS
        try:
            scene = what_if.leading(slot)
            if scene is None:
                return None
            for other in potential:
                scene.remove(other)
            return scene.verdict()
        except AttemptError:  # the whole run meets it as well, and tells it as this node's
            return None

    def _run(self, what_if: DryRun, pod: PodInfo, slot: int) -> Work[Answer]:
        potential = [other for other in self._nodes.pods(slot).values() if self._rule.allows(other, pod)]
        if not potential:
            return NO_VICTIMS
        potential = by_importance(potential, self._rule)
        violating = self._cluster.disruptions.violating(potential)
        in_turn = sorted(potential, key=lambda other: other.uid not in violating) if violating else potential
        try:
            with what_if.on(slot) as scene:
                evicted = yield from _evicted(scene, in_turn)
        except AttemptError as error:  # of a plugin that follows pods as they leave and come back: this node's alone
            return Rejection(PLUGIN, Code.ERROR, (error.message,))
        if isinstance(evicted, Rejection):
            return evicted
        if not evicted:
            return needless(self._nodes.name(slot))
        if violating:
            evicted = by_importance(evicted, self._rule)
        violations = sum(other.uid in violating for other in evicted)
        return Candidate(slot, tuple(other.uid for other in evicted), violations, cost(evicted, violations, self._rule))


def _evicted(scene: NodeSimulation, potential: list[PodInfo]) -> Work[list[PodInfo] | Rejection]:
    """All of them leave; each in turn comes back if the pod fits beside it. Those that did not, or why all is in vain."""
    for other in potential:
        scene.remove(other)
    no = scene.verdict() if (judging := scene.judging()) is None else (yield from judging)
    if no is not None:
        return no
    evicted = []
    for other in potential:
        scene.add(other)
        no = scene.verdict() if (judging := scene.judging()) is None else (yield from judging)
        if no is not None:
            scene.remove(other)
            evicted.append(other)
    return evicted
