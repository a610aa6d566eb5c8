"""Who must leave one node for the pod, and what a node costs (docs/spec/core.md §3.10, dry run and step 4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.core.disruption import started_at
from scheduler.core.podinfo import PodInfo
from scheduler.core.verdicts import Code, Rejection

PLUGIN: Final = "DefaultPreemption"
NO_VICTIMS: Final = Rejection(PLUGIN, Code.UNRESOLVABLE, ("No preemption victims found for incoming pod",))
_ABOVE_ALL_NEGATIVE: Final = 2**31
"""Added to every priority, so that many of the lowest cost more than few of them."""

Cost: TypeAlias = tuple[float, ...]
"""Smaller is better; compared item by item, which is upstream's row of successive minima."""


@dataclass(frozen=True, slots=True)
class Rule:
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


def by_importance(pods: Iterable[PodInfo], rule: Rule) -> list[PodInfo]:
    """The most important first; other schedulers' before ours if the rule prefers ours as victims."""
    if not rule.prefers_own:
        return sorted(pods, key=lambda pod: (*importance(pod), pod.key))
    return sorted(pods, key=lambda pod: (rule.is_own(pod), *importance(pod), pod.key))


def cost(victims: list[PodInfo], violations: int, rule: Rule) -> Cost:
    """What evicting these costs; `victims` are not empty."""
    highest = max(victim.priority for victim in victims)
    total = sum(victim.priority + _ABOVE_ALL_NEGATIVE for victim in victims)
    earliest = min(started_at(victim.pod.status.start_time) for victim in victims if victim.priority == highest)
    others = sum(not rule.is_own(victim) for victim in victims) if rule.prefers_own else 0
    return (others, violations, highest, total, len(victims), -earliest)


def needless(node_name: str) -> Rejection:
    """The pod would fit without any eviction: the filters contradict each other."""
    return Rejection(PLUGIN, Code.ERROR, (f'expected at least one victim pod on node "{node_name}"',))
