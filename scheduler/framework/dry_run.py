"""Filtering as if pods had left a node, or nominated pods were on it (docs/spec/core.md §3.5, §3.10).

A worked example: pod p requests 2 CPU, and node n1 has 4 CPU, of which low-1 and low-2 use 2 each.

    1. with what_if.on(slot of n1) as node        the node as it is, with the pods that are nominated to it
    2. node.verdict()                             Insufficient cpu
    3. node.remove(low-1), node.remove(low-2)     verdict() is None: p fits without both
    4. node.add(low-2)                            verdict() is None: low-2 may stay
    5. node.add(low-1)                            Insufficient cpu: low-1 is the victim
    6. the block ends                             the cache has both pods, as before

There are two methods with the same result. In the first one, the cache is not changed, and a check costs about a
microsecond per filter. It needs filters that either do not read pods or can count those of one node (`TallyPlugin`).
Otherwise the pods leave the cache's columns and indexes in a trial, the filters run as usual, and the end of the
trial restores everything.

A burst of preemptors can be nominated to hundreds of nodes while the next pods are tried. If a node's result depends
on that node alone, it is cached for pods of one shape. It is valid until the node's columns or its nominations
change.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster, Trial
from scheduler.core import nodeset
from scheduler.core.caching import BoundedCache
from scheduler.core.clock import Clock
from scheduler.core.cooperative import Work, answered, finish, paced
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.interface import CycleState, NodeSimulation, Tally
from scheduler.framework.nominator import Nominator
from scheduler.framework.profile import BoundFilter, Profile
from scheduler.framework.status import AttemptError, Code, Groups, Rejection

_FEW: Final = 4
_SHAPES: Final = 64
_CHANGES_MAX: Final = 1024
"""More changes than this are not applied one by one."""


@dataclass(slots=True, eq=False)
class _ShapeVerdicts:
    """The effect of nominated pods on nodes, for pods of one shape that are not nominated to these nodes themselves."""

    at: tuple[int, int, int] = (-1, -1, -1)
    """The positions in the logs of columns and nominations, and the generation of node objects."""
    groups: Groups = field(default_factory=dict)
    refused: NodeSet = EMPTY
    tried: NodeSet = EMPTY
    """Nodes that must be tried in the cache."""

    def drop(self, slot: int) -> None:
        """Drop the result of this node."""
        if (self.refused | self.tried) >> slot & 1:
            self.refused &= ~(1 << slot)
            self.tried &= ~(1 << slot)
            self.groups = {
                rejection: remaining for rejection, held in self.groups.items() if (remaining := held & ~(1 << slot))
            }

    def put(self, slot: int, rejection: Rejection | None) -> None:
        """Store the result with nominated pods: a rejection, or None."""
        if rejection is not None:
            self.groups[rejection] = self.groups.get(rejection, EMPTY) | 1 << slot
            self.refused |= 1 << slot


CheckNode: TypeAlias = Callable[[PodInfo, int, CycleState], Work[Rejection | None]]
"""Runs Filter and Verify for one node (slot) with the current cache."""


class NominatedPods:
    """The nominated pods that have precedence over a pod: nominated to the node, of equal or higher priority.

    Upstream: pkg/scheduler/framework/runtime/framework.go RunFilterPluginsWithNominatedPods, addGENominatedPods
    """

    def __init__(
        self, profile: Profile, cluster: Cluster, nominations: Nominator, *, clock: Clock, check_node: CheckNode
    ) -> None:
        self.profile = profile
        self.cluster = cluster
        self.check_node = check_node
        self.clock = clock
        self._nodes = cluster.nodes
        self._nominations = nominations
        self._verdicts: BoundedCache[Hashable, _ShapeVerdicts] = BoundedCache(_SHAPES)

    def of(self, pod: PodInfo, slot: int) -> list[PodInfo]:
        """Return the pods that have precedence over this pod on this node."""
        return [other for other in self._of_shape(pod, slot) if other.uid != pod.uid]

    def nominated_to(self, pod: PodInfo) -> str:
        """Return the node that the pod is nominated to, by its status or by a nomination not yet written, or ""."""
        return pod.pod.status.nominated_node_name or self._nominations.node_of(pod.uid) or ""

    def version(self, slot: int) -> int:
        """Return a number that changes whenever a nomination to this node begins or ends."""
        return self._nominations.version(self._nodes.name(slot))

    def refusing(
        self,
        state: CycleState,
        pod: PodInfo,
        nodes: NodeSet,
        groups: Groups,
        *,
        one_pass: Callable[[CycleState, NodeSet], Work[NodeSet]],
    ) -> Work[NodeSet]:
        """Return the nodes that fail once nominated pods of equal or higher priority are added.

        Add the rejections to `groups`. `one_pass` runs the filters as usual. The work yields after each node that was
        tried in the cache, and where `one_pass` does. If a node's own pods determine its result, the cost is O(nodes
        and nominations that changed since the last call for this shape).
        """
        if not self._nominations.nodes():
            return EMPTY
        what_if = Simulation(self, state, pod)
        refused = one_by_one = EMPTY
        # Few nodes, as in Verify, are not worth the upkeep of a cache. If a filter needs the cache's columns, the
        # result of a node depends on other nodes too, so it cannot be kept per node.
        if nodes.bit_count() <= _FEW or not what_if.is_counted:
            one_by_one = nodeset.of(self._slots(nodes))
            what_if.about(one_by_one)
        else:
            verdicts = self._up_to_date(what_if, pod)
            # The cached verdicts leave out the filters that do not read pods. A node that one of them rejects must be
            # checked in full, because the first rejection in the order of the filters is the one that is reported.
            held = nodes & (verdicts.refused | verdicts.tried)
            what_if.about(held)
            one_by_one = held & (verdicts.tried | what_if.hopeless_nodes | self.own(pod))
            refused = held & ~one_by_one
            for rejection, slots in verdicts.groups.items():
                if slots & refused:
                    groups[rejection] = groups.get(rejection, EMPTY) | slots & refused
        for slot in nodeset.each(one_by_one):
            ahead = self.of(pod, slot)
            counted = what_if.counted(slot, ahead) if ahead else None
            if counted is not None and (verdict := counted.verdict()) is not None:
                groups[verdict] = groups.get(verdict, EMPTY) | 1 << slot
                refused |= 1 << slot
            elif ahead and counted is None:
                if not (yield from self._tried(state, pod, slot, one_pass)):
                    refused |= 1 << slot
                yield
        return refused

    def _of_shape(self, pod: PodInfo, slot: int) -> list[PodInfo]:
        return [
            other
            for other in self._nominations.for_node(self._nodes.name(slot))
            if other.priority >= pod.priority and self.cluster.get(other.uid) is None
        ]

    def own(self, pod: PodInfo) -> NodeSet:
        """Return the node that the pod itself is nominated to, if any.

        Other pods have precedence there than for other pods of the same shape.
        """
        slot = self._nodes.slot(self._nominations.node_of(pod.uid) or "")
        return EMPTY if slot is None else 1 << slot

    def _slots(self, nodes: NodeSet) -> Iterator[int]:
        """Return the nodes that have nominations, by the shorter of two ways."""
        if nodes.bit_count() <= _FEW:
            yield from (slot for slot in nodeset.each(nodes) if self._nominations.for_node(self._nodes.name(slot)))
            return
        for name in self._nominations.nodes():
            slot = self._nodes.slot(name)
            if slot is not None and nodes >> slot & 1:
                yield slot

    def _up_to_date(self, what_if: Simulation, pod: PodInfo) -> _ShapeVerdicts:
        shape = (pod.priority, what_if.shape)
        verdicts = self._verdicts.get_or_make(shape, _ShapeVerdicts)
        columns, nominations, objects = verdicts.at
        now = (self._nodes.position, self._nominations.position, self._nodes.object_generation)
        if verdicts.at == now:
            return verdicts
        # A change of node objects, such as labels, can change the verdict of any node for any pod. Then all nodes
        # with nominations are evaluated again.
        slots = self._changed(columns, nominations) if objects == now[2] else None
        if slots is None:
            verdicts = self._verdicts.put(shape, _ShapeVerdicts())
            slots = set(self._slots(self._nodes.present))
        verdicts.at = now
        for slot in slots:
            verdicts.drop(slot)
            ahead = self._of_shape(pod, slot)
            counted = what_if.counted(slot, ahead, is_flat=False) if ahead else None
            if counted is not None:
                verdicts.put(slot, counted.verdict())
            elif ahead:
                verdicts.tried |= 1 << slot
        return verdicts

    def _changed(self, columns: int, nominations: int) -> set[int] | None:
        """Return the slots to evaluate again; None if evaluating all is less work."""
        touched, names = self._nodes.changed_since(columns), self._nominations.changed_since(nominations)
        if touched is None or names is None or len(touched) + len(names) > _CHANGES_MAX:
            return None
        found = {slot for name in set(names) if (slot := self._nodes.slot(name)) is not None}
        found.update(slot for slot in set(touched) if self._nominations.for_node(self._nodes.name(slot)))
        return found

    def _tried(
        self, state: CycleState, pod: PodInfo, slot: int, one_pass: Callable[[CycleState, NodeSet], Work[NodeSet]]
    ) -> Work[bool]:
        """Return whether the pod fits in the cache together with the pods that have precedence."""
        name, ahead = self._nodes.name(slot), self.of(pod, slot)
        # The nominated pods join the cache for the length of this block. `suspended` takes them out again while the
        # event loop runs, so no other reader sees them.
        with self.cluster.trial(add=[(other, name) for other in ahead]) as trial:
            with_them = state.clone()
            for plugin in self.profile.extensions(state):
                for other in ahead:
                    plugin.add_pod(with_them, pod, other, slot)
            return bool((yield from paced(one_pass(with_them, 1 << slot), self.clock, trial.suspended)))


class Simulation:
    """Implements `interface.DryRun`."""

    def __init__(self, ahead: NominatedPods, state: CycleState, pod: PodInfo) -> None:
        self._ahead = ahead
        self._state = state
        self._pod = pod
        self._filters = [bound for bound in ahead.profile.filter if bound.name not in state.skip_filter]
        leading = itertools.takewhile(lambda bound: self._counts(bound, ()), self._filters)
        self._counted_until = sum(1 for _ in leading)  # filters before the first one that needs the cache
        self.is_counted = self._counted_until == len(self._filters)
        self._flat: list[tuple[int, Groups]] | None = None
        self._nodes: NodeSet = 0
        self._hopeless: NodeSet | None = None
        self.alike = ~ahead.own(pod)

    @property
    def nominated_to(self) -> str:
        return self._ahead.nominated_to(self._pod)

    @property
    def shape(self) -> tuple[Hashable, ...]:
        return tuple(
            (bound.name, bound.tally.tally_shape(self._pod))
            for bound in self._filters[: self._counted_until]
            if bound.tally is not None
        )

    def about(self, nodes: NodeSet) -> None:
        self._nodes = nodes
        self._flat = self._hopeless = None

    @property
    def hopeless_nodes(self) -> NodeSet:
        if self._hopeless is None:
            hopeless: NodeSet = 0
            for _, groups in self._flat_groups(self._nodes):
                for slots in groups.values():
                    hopeless |= slots
            self._hopeless = hopeless
        return self._hopeless

    def hopeless(self, slot: int) -> bool:
        if not self._nodes >> slot & 1:
            self._flat_groups(1 << slot)
        return bool(self.hopeless_nodes >> slot & 1)

    def version(self, slot: int) -> int:
        return self._ahead.version(slot)

    def ahead(self, slot: int) -> list[PodInfo]:
        """Return the pods nominated to the node that have precedence over this pod."""
        return self._ahead.of(self._pod, slot)

    @contextlib.contextmanager
    def on(self, slot: int) -> Iterator[NodeSimulation]:
        counted = self.counted(slot, self.ahead(slot))
        if counted is not None:
            yield counted
            return
        with self._ahead.cluster.trial() as trial:
            yield _Tried(self._ahead, trial, self._state.clone(), self._pod, slot)

    def _counts(self, bound: BoundFilter, newcomers: Sequence[PodInfo]) -> bool:
        return bound.tally is not None or (
            bound.is_exact(self._state, self._pod) and bound.is_flat(self._state, self._pod, newcomers)
        )

    def counted(self, slot: int, ahead: Sequence[PodInfo], *, is_flat: bool = True) -> NodeSimulation | None:
        """Return the node with these additional pods; None if that requires a change of the cache.

        Without `is_flat`, filters that do not read pods are left out: see `hopeless_nodes`.
        """
        # Two different conditions: the filters must be countable for this pod, and they must stay so with the
        # additional pods. A pod with anti-affinity, for instance, turns a flat filter into one that reads pods.
        if not self.is_counted or (ahead and not all(self._counts(bound, ahead) for bound in self._filters)):
            return None
        return self._counting(slot, ahead, is_flat=is_flat)

    def leading(self, slot: int) -> NodeSimulation | None:
        return None if self.ahead(slot) else self._counting(slot, (), is_flat=True)

    def _counting(self, slot: int, ahead: Sequence[PodInfo], *, is_flat: bool) -> NodeSimulation | None:
        tallies = [
            (at, bound.tally.tally(self._state, self._pod, slot))
            for at, bound in enumerate(self._filters[: self._counted_until])
            if bound.tally is not None
        ]
        for other in ahead:
            for _, tally in tallies:
                tally.add(other)
        # Filters that do not read pods have one verdict for this node, whatever is added or removed. Only the first
        # of them counts, together with its position among the tallies.
        refusal: tuple[int, Rejection] | None = None
        for at, groups in self._flat_groups(1 << slot) if is_flat else ():
            for rejection, slots in groups.items():
                if slots >> slot & 1 and refusal is None:
                    refusal = (at, rejection)
        if refusal is not None and not refusal[1].code.is_rejection:
            return None  # a filter failed, and the runner handles errors
        return _Counted(tallies, refusal)

    def _flat_groups(self, nodes: NodeSet) -> list[tuple[int, Groups]]:
        """Return the rejections of these and other nodes by the leading filters that do not read pods."""
        # The filters answer for many nodes as fast as for one. So all nodes that are wanted so far are filtered
        # together, and a search over thousands of nodes calls each filter once.
        if self._flat is None or nodes & ~self._nodes:
            self._nodes |= nodes
            self._hopeless = None
            answers = (
                (at, finish(answered(bound.filter(self._state, self._pod, self._nodes))))
                for at, bound in enumerate(self._filters[: self._counted_until])
                if bound.tally is None
            )
            self._flat = [(at, groups) for at, groups in answers if groups]
        return self._flat


@dataclass(slots=True, eq=False)
class _Counted:
    tallies: list[tuple[int, Tally]]
    refusal: tuple[int, Rejection] | None

    def add(self, other: PodInfo) -> None:
        for _, tally in self.tallies:
            tally.add(other)

    def remove(self, other: PodInfo) -> None:
        for _, tally in self.tallies:
            tally.remove(other)

    def verdict(self) -> Rejection | None:
        # The first filter in order that rejects is reported, as if all had run. A tally after the flat refusal is not
        # evaluated.
        for at, tally in self.tallies:
            if self.refusal is not None and self.refusal[0] < at:
                return self.refusal[1]
            rejection = tally.verdict()
            if rejection is not None:
                return rejection
        return self.refusal[1] if self.refusal is not None else None

    def judging(self) -> None:
        return None


@dataclass(slots=True, eq=False)
class _Tried:
    ahead: NominatedPods
    trial: Trial
    state: CycleState
    pod: PodInfo
    slot: int

    def add(self, other: PodInfo) -> None:
        self.trial.add(other, self.ahead.cluster.nodes.name(self.slot))
        for plugin in self.ahead.profile.extensions(self.state):
            plugin.add_pod(self.state, self.pod, other, self.slot)

    def remove(self, other: PodInfo) -> None:
        self.trial.remove(other)
        for plugin in self.ahead.profile.extensions(self.state):
            plugin.remove_pod(self.state, self.pod, other, self.slot)

    def verdict(self) -> Rejection | None:
        return finish(self.judging())

    def judging(self) -> Work[Rejection | None]:
        checking = self.ahead.check_node(self.pod, self.slot, self.state)
        try:
            return (yield from paced(checking, self.ahead.clock, self.trial.suspended))
        except AttemptError as error:
            return Rejection(error.plugin, Code.ERROR, (error.message,))
