"""The nearest fixes: few changes after which a pod fits, each tried with the scheduler's own code before it is shown.

For a group of nodes that the same plugins reject, the changes of all these plugins are applied together on the most
promising nodes. If the pod then fits, changes that are not needed are dropped, the dearest first, and amounts are lowered
to the least that suffices. What is left is verified by an ordinary attempt on the whole cluster. Everything happens on an
overlay of the cache, which is undone wherever the search pauses.

The search pauses at two kinds of points. `True` is yielded between two trials: the cluster may change there, and other pods
may be tried. `False` is yielded within a trial: nothing may change until it goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from scheduler.api.core_v1 import Pod
from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.core import nodeset
from scheduler.core.clock import Clock
from scheduler.core.cooperative import Work, paced
from scheduler.core.nodeset import NodeSet
from scheduler.explain import changes, claim_changes
from scheduler.explain.changes import Actor, Change, Option, Site
from scheduler.explain.edits import Edit, NotApplicable, Overlay
from scheduler.explain.verdicts import NOMINATED, Verdicts, verdicts
from scheduler.framework.runtime import Runner

T = TypeVar("T")
Steps: TypeAlias = Generator[bool, None, T]
"""Work that yields True between trials and False within one; see the module."""

FIXES_MAX: Final = 3
_GROUPS_MAX: Final = 6
_SITES_MAX: Final = 3
_ROUNDS_MAX: Final = 12
_TIGHTEN_MAX: Final = 40
BUDGET_S: Final = 1.0
"""The search ends after this much time without pauses; what it has not tried is not shown as verified."""

OPTIONS: Final[Mapping[str, Callable[[Site], Iterator[Option]]]] = {
    "NodeResourcesFit": changes.resources,
    NOMINATED: changes.resources,
    "TaintToleration": changes.taints,
    "NodeUnschedulable": changes.cordon,
    "NodeAffinity": changes.node_affinity,
    "InterPodAffinity": changes.pod_affinity,
    "PodTopologySpread": changes.spread,
    "NodePorts": changes.ports,
    "VolumeBinding": claim_changes.volumes,
    "VolumeRestrictions": lambda site: _either(claim_changes.volumes(site), claim_changes.holders_of_volumes(site)),
    "NodeVolumeLimits": claim_changes.attached,
    "DynamicResources": claim_changes.devices,
}
"""Plugin → its options. For other plugins nothing can be changed."""
_WEIGHTS: Final[Mapping[str, int]] = {
    "NodeUnschedulable": 1,
    "NodeResourcesFit": 2,
    NOMINATED: 2,
    "TaintToleration": 2,
    "PodTopologySpread": 2,
    "NodePorts": 3,
    "NodeAffinity": 3,
}
_OTHER_WEIGHT: Final = 4
_FIXED_WEIGHT: Final = 50
_CROWDED: Final = frozenset(
    {
        "NodeResourcesFit",
        "NodePorts",
        "NodeVolumeLimits",
        "InterPodAffinity",
        "PodTopologySpread",
        NOMINATED,
        "DynamicResources",
    }
)
"""Plugins that may accept an empty node that is otherwise like one that they reject."""


def _either(*options: Iterator[Option]) -> Iterator[Option]:
    for each in options:
        yield from each


@dataclass(frozen=True, slots=True)
class Fix:
    """Changes after which the pod fits. `node` is where an ordinary attempt placed it; "" if none was made."""

    changes: tuple[Change, ...]
    node: str = ""

    @property
    def is_verified(self) -> bool:
        return bool(self.node)

    @property
    def cost(self) -> int:
        return sum(each.cost for each in self.changes)

    @property
    def kind(self) -> tuple[str, ...]:
        """Equal for fixes that do the same in other places."""
        return tuple(sorted({each.code for each in self.changes}))

    @property
    def edits(self) -> tuple[Edit, ...]:
        return tuple(edit for each in self.changes for edit in each.edits)

    @property
    def texts(self) -> frozenset[str]:
        return frozenset(each.text for each in self.changes)


Attempt: TypeAlias = Callable[[PodInfo], Work[str]]
"""Makes an ordinary attempt that leaves nothing reserved, and returns the chosen node, or ""."""


@dataclass(eq=False)
class Search:
    """The search for one pod. `spent_s` is the time that it took without pauses."""

    cluster: Cluster
    runner: Runner
    pod: Pod
    overlay: Overlay
    attempt: Attempt
    clock: Clock
    budget_s: float = BUDGET_S
    spent_s: float = field(default=0.0, init=False)

    @property
    def is_out_of_budget(self) -> bool:
        return self.spent_s > self.budget_s

    # -- trials ------------------------------------------------------------------------------------------------------

    def judged(self, edits: Sequence[Edit], nodes: Callable[[], NodeSet]) -> Steps[Verdicts | None]:
        """Return what all plugins say with these edits; None if they cannot be applied. `nodes` is called under them."""
        return (yield from self._tried(edits, lambda info: verdicts(self.runner, info, nodes())))

    def fits(self, edits: Sequence[Edit], name: str) -> Steps[bool]:
        """Return whether the pod fits on this node with these edits."""
        found = yield from self.judged(edits, lambda: self._node(name))
        return found is not None and not found.refused() and bool(self._is_there(name, edits))

    def placed(self, edits: Sequence[Edit]) -> Steps[str]:
        """Return the node that an ordinary attempt chooses with these edits; "" if none."""
        return (yield from self._tried(edits, self.attempt)) or ""

    def _tried(self, edits: Sequence[Edit], trial: Callable[[PodInfo], Work[T]]) -> Steps[T | None]:
        """Return the result of a trial of the edited pod under the edits; None if they cannot be applied."""
        found: T | None = None
        with contextlib.suppress(NotApplicable):
            info = self.overlay.pod(self.pod, edits)
            with self.overlay.applied(edits):
                found = yield from self.within(trial(info))
        yield True
        return found

    def within(self, work: Work[T]) -> Steps[T]:
        """Run a trial; where it pauses, the edits are undone."""
        trial, began = paced(work, self.clock, self.overlay.suspended), self.clock.now()
        try:
            while True:
                try:
                    next(trial)
                except StopIteration as done:
                    found: T = done.value
                    return found
                self.spent_s += self.clock.now() - began
                yield False
                began = self.clock.now()
        finally:
            self.spent_s += self.clock.now() - began
            trial.close()

    def _node(self, name: str) -> NodeSet:
        slot = self.cluster.nodes.present_slot(name)
        return 0 if slot is None else 1 << slot

    def _is_there(self, name: str, edits: Sequence[Edit]) -> bool:
        return bool(self._node(name)) or any(e.verb == "create" and e.kind == "Node" and e.name == name for e in edits)

    # -- fixes -------------------------------------------------------------------------------------------------------

    def fixes(self, found: Verdicts) -> Steps[list[Fix]]:
        """Return at most three verified fixes of different kinds, the cheapest first.

        If the budget ends first, the cheapest ones that were not verified follow.
        """
        info, candidates = self.overlay.pod(self.pod, ()), list[Fix]()
        parts = found.partition(self.cluster.nodes.present)
        ranked = sorted(parts.items(), key=lambda part: (_weight(part[0]), -part[1].bit_count()))
        for plugins, nodes in ranked[:_GROUPS_MAX]:
            if _weight(plugins) >= _FIXED_WEIGHT or self.is_out_of_budget:
                break
            for name in self._promising(info, plugins, nodes):
                for actor in Actor:
                    fix = yield from self._repaired(info, name, plugins, actor)
                    if fix is not None:
                        candidates.append(fix)
                if set(plugins) <= _CROWDED and not self.is_out_of_budget:
                    fix = yield from self._with_new_node(name)
                    if fix is not None:
                        candidates.append(fix)
        return (yield from self._verified(candidates))

    def _promising(self, info: PodInfo, plugins: Iterable[str], nodes: NodeSet) -> list[str]:
        """Return a few nodes of a group: with the smallest shortage, and with the fewest taints."""
        slots = nodeset.slots(nodes, self.cluster.nodes.capacity)
        chosen = [int(slots[0])]
        if "TaintToleration" in plugins:
            chosen.insert(0, min((int(each) for each in slots[:_LOOKED_AT]), key=self._taint_count))
        chosen.insert(0, int(slots[int(np.argmin(self._shortage(info, slots)))]))
        return [self.cluster.nodes.name(slot) for slot in dict.fromkeys(chosen)][:_SITES_MAX]

    def _taint_count(self, slot: int) -> int:
        node = self.cluster.nodes.node(slot)
        return len(node.spec.taints) if node is not None else 0

    def _shortage(self, info: PodInfo, slots: nodeset.Slots) -> npt.NDArray[np.float64]:
        """Return for each slot the sum of what is missing, as shares of what is requested."""
        nodes, total = self.cluster.nodes, np.zeros(len(slots))
        for name, amount in info.requests.items():
            if amount:
                total += np.clip((amount - changes.free_on(nodes, name, slots)) / amount, 0.0, None)
        return total + (changes.free_on(nodes, "pods", slots) <= 0)

    def _repaired(self, info: PodInfo, name: str, plugins: tuple[str, ...], actor: Actor) -> Steps[Fix | None]:
        """Return changes on this node after which the pod fits there, of this actor where possible."""
        options: dict[str, Iterator[Option]] = {}
        chosen: dict[str, Option] = {}
        failing: Iterable[str] = plugins
        for _ in range(_ROUNDS_MAX):
            slot = self.cluster.nodes.present_slot(name)
            if slot is None or self.is_out_of_budget:
                return None
            ahead = tuple(self.runner.ahead.of(info, slot))
            site = Site(self.cluster, info, slot, ahead)
            for plugin in failing:
                if plugin not in OPTIONS:
                    return None
                if plugin not in options:
                    options[plugin] = iter(_preferred(OPTIONS[plugin](site), actor))
                option = next(options[plugin], None)
                if option is None:
                    return None
                chosen[plugin] = option
            verdict = yield from self.judged(_edits(chosen.values()), lambda: self._node(name))
            if verdict is None:
                return None
            failing = tuple(verdict.groups)
            if not failing:
                return (yield from self._least([each for option in chosen.values() for each in option], name))
        return None

    def _with_new_node(self, name: str) -> Steps[Fix | None]:
        slot = self.cluster.nodes.present_slot(name)
        node = self.cluster.nodes.node(slot) if slot is not None else None
        if node is None:
            return None
        option = changes.node_copy(self.cluster, node)
        copy = option[0].edits[0].name
        fits = yield from self.fits(option[0].edits, copy)
        return Fix(tuple(option)) if fits else None

    def _least(self, needed: list[Change], name: str) -> Steps[Fix]:
        """Drop changes that are not needed, and lower amounts."""
        unique = list({each.text: each for each in needed}.values())
        for each in sorted(unique, key=lambda change: -change.cost):
            less = [other for other in unique if other is not each]
            if less and (yield from self.fits(_edits([less]), name)):
                unique = less
        for at, each in enumerate(unique):
            if each.weaker is not None:
                unique[at] = yield from self._weakest(unique, at, name)
        return Fix(tuple(unique))

    def _weakest(self, needed: list[Change], at: int, name: str) -> Steps[Change]:
        """Return the change with the smallest amount that suffices next to the other changes."""
        change = needed[at]
        assert change.weaker is not None
        low, high = change.bounds
        best, step, tries = change, 1, 0
        while low < high and tries < _TIGHTEN_MAX:
            tries += 1
            middle = min(low + step - 1, high) if best is change else (low + high) // 2
            tried = change.weaker(middle)
            if (yield from self.fits(_edits([[*needed[:at], tried, *needed[at + 1 :]]]), name)):
                best, high = tried, middle
            else:
                low, step = middle + 1, step * 2
        if low == high and best is change:
            best = change.weaker(low)
        return best

    def _verified(self, candidates: list[Fix]) -> Steps[list[Fix]]:
        out: list[Fix] = []
        for fix in sorted(candidates, key=_rank):
            if len(out) == FIXES_MAX:
                break
            if any(fix.kind == other.kind or other.texts <= fix.texts for other in out):
                continue
            if self.is_out_of_budget:
                out.append(fix)
                continue
            node = yield from self.placed(fix.edits)
            if node:
                out.append(Fix(fix.changes, node))
        return out


_LOOKED_AT: Final = 256


def _rank(fix: Fix) -> tuple[int, bool, list[str]]:
    """Cheap fixes come first; of equally cheap ones those that the user can carry out alone."""
    return fix.cost, any(each.actor is not Actor.USER for each in fix.changes), sorted(fix.texts)


def _edits(options: Iterable[Iterable[Change]]) -> tuple[Edit, ...]:
    return tuple(edit for option in options for each in option for edit in each.edits)


def _preferred(options: Iterator[Option], actor: Actor) -> list[Option]:
    """Return the options, those first that this actor can carry out alone."""
    return sorted(
        (option for option in options if option), key=lambda option: any(c.actor is not actor for c in option)
    )


def _weight(plugins: Iterable[str]) -> int:
    return sum(_WEIGHTS.get(plugin, _OTHER_WEIGHT) if plugin in OPTIONS else _FIXED_WEIGHT for plugin in plugins)
