"""The nearest fixes: few changes after which a pod fits, each tried with the scheduler's own code before it is shown.

For a group of nodes that the same plugins reject, the changes of all these plugins are applied together on the most
promising nodes. If the pod then fits, changes that are not needed are dropped, the dearest first, and amounts are lowered
to the least that suffices. What is left is verified by an ordinary attempt on the whole cluster. Everything happens on an
overlay of the cache, which is undone wherever the search pauses.

The search pauses at two kinds of points. `True` is yielded between two trials: the cluster may change there, and other pods
may be tried. `False` is yielded within a trial: nothing may change until it goes on. At both kinds the cache is as it is
without the question, because bindings and pages read it there. A trial takes at most `trial_s`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import PartlyReadPod
from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import AssumptionError, Cluster
from scheduler.config.types import TRIAL_S
from scheduler.core import nodeset
from scheduler.core.clock import Clock
from scheduler.core.cooperative import TookTooLong, Work, paced
from scheduler.core.nodeset import NodeSet
from scheduler.explain import changes, claim_changes
from scheduler.explain.changes import Actor, Change, Option, Site
from scheduler.explain.controllers import comes_back, successor
from scheduler.explain.edits import Edit, Overlay
from scheduler.explain.verdicts import NOMINATED, Verdicts, verdicts
from scheduler.framework.runtime import FrameworkRunner
from scheduler.plan import NotApplicable, Placement

T = TypeVar("T")
Steps: TypeAlias = Generator[bool, None, T]
"""Work that yields True between trials and False within one; see the module."""

FIXES_MAX: Final = 3
_GROUPS_MAX: Final = 6
_SITES_MAX: Final = 4
_ROUNDS_MAX: Final = 12
_TIGHTEN_MAX: Final = 80
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
    "VolumeZone": claim_changes.volumes,
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
_OF_LABELS: Final = frozenset({"TaintToleration", "NodeAffinity"})
_OF_PODS: Final = frozenset(
    {"NodeResourcesFit", "NodePorts", "InterPodAffinity", "VolumeRestrictions", "NodeVolumeLimits", "DynamicResources"}
)
"""Plugins that may accept a node without some of its pods."""
_DELETIONS_LOOKED_AT: Final = 16
_OF_CLAIMS: Final = frozenset({"VolumeBinding", "DynamicResources"})
"""Plugins for which another claim may help on nodes that no other sign shows."""
_CLAIMS: Final = frozenset({"PersistentVolumeClaim", "ResourceClaim", claim_changes.TEMPLATE})
_PROBES_MAX: Final = 6


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


Place: TypeAlias = Callable[[PodInfo], Work[Placement | None]]
"""Makes an ordinary attempt, and returns the placement, which is in force; None if no node fits."""


@dataclass(eq=False)
class Search:
    """The search for one pod. `spent_s` is the time that it took without pauses."""

    cluster: Cluster
    runner: FrameworkRunner
    pod: Pod
    overlay: Overlay
    place: Place
    clock: Clock
    budget_s: float = BUDGET_S
    trial_s: float = TRIAL_S
    spent_s: float = field(default=0.0, init=False)
    has_taken_too_long: bool = field(default=False, init=False)
    """Whether a trial was given up."""

    @property
    def is_out_of_budget(self) -> bool:
        return self.spent_s > self.budget_s

    # -- trials ------------------------------------------------------------------------------------------------------

    def judged(
        self, edits: Sequence[Edit], nodes: Callable[[], NodeSet], *, exact: bool = True
    ) -> Steps[Verdicts | None]:
        """Return what all plugins say with these edits; None if they cannot be applied, or if it takes too long.

        `nodes` is called under the edits.
        """
        return (yield from self.tried(edits, lambda info: verdicts(self.runner, info, nodes(), exact=exact)))

    def fits(self, edits: Sequence[Edit], name: str) -> Steps[bool]:
        """Return whether the pod fits on this node with these edits."""
        found = yield from self.judged(edits, lambda: self._node(name))
        return found is not None and not found.refused() and bool(self._is_there(name, edits))

    def placed(self, edits: Sequence[Edit]) -> Steps[str]:
        """Return the node that an ordinary attempt chooses with these edits; "" if none."""
        return (yield from self.tried(edits, self._attempt)) or ""

    def _attempt(self, info: PodInfo) -> Work[str]:
        """Make an attempt that leaves nothing reserved, and return the chosen node, or ""."""
        found = yield from self.place(info)
        if found is None:
            return ""
        found.undo()
        return found.node

    def tried(self, edits: Sequence[Edit], trial: Callable[[PodInfo], Work[T]]) -> Steps[T | None]:
        """Return the result of a trial of the edited pod under the edits.

        Returns None if they cannot be applied, or if the trial takes too long. Pods that controllers create again after
        these deletions are placed first.
        """
        edits, found = list(claim_changes.of_claims(self.pod, edits)), None
        with contextlib.suppress(NotApplicable, AssumptionError):
            info = self.overlay.pod(self.pod, edits)
            back = [self._coming_back(each) for each in self.overlay.leaving(edits) if comes_back(each.pod)]
            with self.overlay.applied([*edits, *(edit for _, claims in back for edit in claims)]):
                try:
                    found = yield from self.within(self._after([pod() for pod, _ in back], trial(info)))
                except TookTooLong:
                    self.has_taken_too_long = True
        yield True
        return found

    def _coming_back(self, info: PodInfo) -> tuple[Callable[[], PodInfo], list[Edit]]:
        """Return the pod that a controller creates again, and its claims. It is placed like the pod of this search."""
        if isinstance(info.pod, PartlyReadPod):
            raise NotApplicable(f"pod {info.key} cannot be read")
        claims = list(self.overlay.claims_created_again(info))
        again = successor(info.pod, self.pod.spec.scheduler_name)
        return partial(self.overlay.pod, again, claims), claims

    def _after(self, successors: Sequence[PodInfo], trial: Work[T]) -> Work[T]:
        """Run a trial after these pods are placed, as far as they fit."""
        for each in successors:
            placement = yield from self.place(each)
            if placement is not None:
                self.overlay.hold(placement)
        return (yield from trial)

    def within(self, work: Work[T]) -> Steps[T]:
        """Run a trial; where it pauses, the edits are undone. Raises TookTooLong."""
        trial, began = paced(work, self.clock, self.overlay.suspended, limit_s=self.trial_s), self.clock.now()
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
        parts = found.partition(self._lasting())
        ranked = sorted(parts.items(), key=lambda part: (_weight(part[0]), -part[1].bit_count()))
        for plugins, nodes in ranked[:_GROUPS_MAX]:
            if _weight(plugins) >= _FIXED_WEIGHT or self.is_out_of_budget:
                break
            for name in (yield from self._promising(info, plugins, nodes)):
                for actor in Actor:
                    fix = yield from self._repaired(info, name, plugins, actor)
                    if fix is not None:
                        candidates.append(fix)
                if set(plugins) <= _CROWDED and not self.is_out_of_budget:
                    fix = yield from self._with_new_node(name)
                    if fix is not None:
                        candidates.append(fix)
        return (yield from self._verified(candidates))

    def _lasting(self) -> NodeSet:
        """Return the nodes that are not being deleted. O(nodes)."""
        nodes, lasting = self.cluster.nodes, self.cluster.nodes.present
        for slot in nodeset.each(nodes.present):
            node = nodes.node(slot)
            if node is None or node.metadata.deletion_timestamp is not None:
                lasting &= ~(1 << slot)
        return lasting

    def _promising(self, info: PodInfo, plugins: tuple[str, ...], nodes: NodeSet) -> Steps[list[str]]:
        """Return a few nodes of a group: where least is missing, fewest resources or labels are, and where other claims fit."""
        slots = nodeset.slots(nodes, self.cluster.nodes.capacity)
        shares, resources = self._shortage(info, slots)
        chosen = [int(slots[int(np.argmin(shares))])]
        if "NodeResourcesFit" in plugins:
            chosen.append(int(slots[int(np.lexsort((shares, resources))[0])]))
        if not _OF_LABELS.isdisjoint(plugins):
            chosen.append(min((int(each) for each in slots[:_LOOKED_AT]), key=lambda slot: self._obstacles(info, slot)))
        chosen += self._with_deletions(info, plugins, slots)
        names = [self.cluster.nodes.name(slot) for slot in dict.fromkeys([*chosen, int(slots[0])])][:_SITES_MAX]
        for plugin in _OF_CLAIMS.intersection(plugins):
            found = yield from self._with_other_claims(info, plugin, nodes, names[0])
            names = list(dict.fromkeys([*found, *names]))
        return names

    def _with_deletions(self, info: PodInfo, plugins: Iterable[str], slots: nodeset.Slots) -> list[int]:
        """Return for each plugin a node where deletions may help, if possible of pods that no controller creates again."""
        found = []
        for plugin in _OF_PODS.intersection(plugins):
            ranked = []
            for slot in (int(each) for each in slots[:_DELETIONS_LOOKED_AT]):
                options = (_edits([option]) for option in OPTIONS[plugin](Site(self.cluster, info, slot)))
                deletions = (edits for edits in options if edits and all(edit.verb == "delete" for edit in edits))
                back = [sum(comes_back(each.pod) for each in self.overlay.leaving(edits)) for edits in deletions]
                if back:
                    ranked.append((min(back), slot))
            found += [slot for _, slot in sorted(ranked)[:1]]
        return found

    def _with_other_claims(self, info: PodInfo, plugin: str, nodes: NodeSet, name: str) -> Steps[list[str]]:
        """Return for each change of the pod's claims one node of the group that the plugin then accepts.

        A change of a claim is the same for all nodes, so one trial shows all nodes where it helps.
        """
        slot, found = self.cluster.nodes.present_slot(name), list[str]()
        if slot is None:
            return found
        options = list(OPTIONS[plugin](Site(self.cluster, info, slot)))
        for option in [each for each in options if all(_is_of_claim(change) for change in each)][:_PROBES_MAX]:
            if option and not self.is_out_of_budget:
                verdict = yield from self.judged(_edits([option]), lambda: nodes & self.cluster.nodes.present)
                accepted = (
                    nodes & self.cluster.nodes.present & ~verdict.refused_by(plugin) if verdict is not None else 0
                )
                if accepted:
                    found.append(self.cluster.nodes.name(self._least_short(info, accepted)))
        return list(dict.fromkeys(found))[:_SITES_MAX]

    def _least_short(self, info: PodInfo, nodes: NodeSet) -> int:
        slots = nodeset.slots(nodes, self.cluster.nodes.capacity)
        return int(slots[int(np.argmin(self._shortage(info, slots)[0]))])

    def _obstacles(self, info: PodInfo, slot: int) -> int:
        """Return the number of taints that the pod does not tolerate and of labels that the node lacks."""
        site = Site(self.cluster, info, slot)
        return changes.untolerated_taints(site) + changes.lacking_labels(site)

    def _shortage(self, info: PodInfo, slots: nodeset.Slots) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return for each slot the sum of what is missing, as shares of what is requested, and in how many resources."""
        nodes, total, count = self.cluster.nodes, np.zeros(len(slots)), np.zeros(len(slots), np.int64)
        for name, amount in {**info.requests, "pods": 1}.items():
            if amount:
                missing = np.clip((amount - changes.free_on(nodes, name, slots)) / amount, 0.0, None)
                total += np.minimum(missing, 1.0) if name == "pods" else missing
                count += missing > 0
        return total, count

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
                needed = [each for option in chosen.values() for each in option]
                return (yield from self._least(needed, lambda edits: self.fits(edits, name)))
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

    def _least(self, needed: list[Change], suffices: Callable[[Sequence[Edit]], Steps[bool]]) -> Steps[Fix]:
        """Drop changes that are not needed, the dearest first, and lower amounts."""
        unique = [each for at, each in enumerate(needed) if all(each.edits != other.edits for other in needed[:at])]
        for each in sorted(unique, key=lambda change: -change.cost):
            less = [other for other in unique if other is not each]
            if less and not self.is_out_of_budget and (yield from suffices(_edits([less]))):
                unique = less
        for at, each in enumerate(unique):
            if each.weaker is not None:
                unique[at] = yield from self._weakest(unique, at, suffices)
        return Fix(tuple(unique))

    def _weakest(
        self, needed: list[Change], at: int, suffices: Callable[[Sequence[Edit]], Steps[bool]]
    ) -> Steps[Change]:
        """Return the change with the smallest amount that suffices next to the other changes.

        Most amounts are the least already, so one unit less is tried first. Then the amount is doubled from the smallest one
        until it suffices, and what is between is halved.
        """
        best = needed[at]
        assert best.weaker is not None
        weaker, (least, high) = best.weaker, best.bounds

        def with_amount(amount: int) -> Steps[Change | None]:
            tried = replace(weaker(amount), bounds=(least, amount))
            does = yield from suffices(_edits([[*needed[:at], tried, *needed[at + 1 :]]]))
            return tried if does else None

        if least >= high or (less := (yield from with_amount(high - 1))) is None:
            return best
        best, low, high, step = less, least, high - 1, 1
        is_doubling = True
        for _ in range(_TIGHTEN_MAX):
            if low >= high or self.is_out_of_budget:
                break
            middle = min(low + step - 1, high - 1) if is_doubling else (low + high) // 2
            found = yield from with_amount(middle)
            if found is not None:
                best, high, is_doubling = found, middle, False
            else:
                low, step = middle + 1, step * 2
        return best

    def _verified(self, candidates: list[Fix]) -> Steps[list[Fix]]:
        verified: list[Fix] = []
        for fix in sorted(candidates, key=_rank):
            if len(verified) == FIXES_MAX:
                break
            if _is_like(fix, verified):
                continue
            if self.is_out_of_budget:
                verified.append(fix)
                continue
            node = yield from self.placed(fix.edits)
            if node:
                least = yield from self._least_anywhere(fix, node)
                if not _is_like(least, verified):
                    verified.append(least)
        return verified

    def _least_anywhere(self, fix: Fix, node: str) -> Steps[Fix]:
        """Return the part of a fix that is needed if any node may take the pod; `node` is the one that takes it with all."""
        last = node

        def suffices(edits: Sequence[Edit]) -> Steps[bool]:
            nonlocal last
            found = yield from self.placed(edits)
            last = found or last
            return bool(found)

        least = yield from self._least(list(fix.changes), suffices)
        return Fix(least.changes, last)


_LOOKED_AT: Final = 128


def _is_of_claim(change: Change) -> bool:
    return all(edit.kind in _CLAIMS for edit in change.edits)


def _rank(fix: Fix) -> tuple[int, int, bool, list[str]]:
    """Cheap fixes come first; of equally cheap ones those with fewer changes, and those that the user can carry out alone."""
    return fix.cost, len(fix.changes), any(each.actor is not Actor.USER for each in fix.changes), sorted(fix.texts)


def _is_like(fix: Fix, others: Iterable[Fix]) -> bool:
    """Return whether another fix does the same in another place, or is a part of this one."""
    return any(fix.kind == other.kind or other.texts <= fix.texts for other in others)


def _edits(options: Iterable[Iterable[Change]]) -> tuple[Edit, ...]:
    return tuple(edit for option in options for each in option for edit in each.edits)


def _preferred(options: Iterator[Option], actor: Actor) -> list[Option]:
    """Return the options, those first that this actor can carry out alone."""
    return sorted(
        (option for option in options if option), key=lambda option: any(c.actor is not actor for c in option)
    )


def _weight(plugins: Iterable[str]) -> int:
    return sum(_WEIGHTS.get(plugin, _OTHER_WEIGHT) if plugin in OPTIONS else _FIXED_WEIGHT for plugin in plugins)
