"""Filtering where others are nominated: the pod must fit with them there, and without (docs/spec/core.md §3.5).

A burst of preemptors is nominated to hundreds of nodes while the next pods are tried. What a node says is remembered for
pods of one shape until its columns or its nominations change, where it hangs on that node alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from scheduler.core import nodeset
from scheduler.core.bounded_cache import BoundedCache
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.podinfo import PodInfo
from scheduler.core.turns import Work
from scheduler.core.verdicts import Groups, Rejection
from scheduler.framework.state import CycleState
from scheduler.framework.whatif import WhatIf

if TYPE_CHECKING:
    from scheduler.framework.runner import Runner

_FEW: Final = 4
_SHAPES: Final = 64
_MANY: Final = 1024
"""So many changes are not followed one by one."""


class Nominations(Protocol):
    """Pods that are about to take a place they do not hold yet."""

    def nodes(self) -> tuple[str, ...]:
        """Names of nodes with at least one nominated pod."""

    def for_node(self, name: str) -> tuple[PodInfo, ...]:
        """Pods nominated to this node, foreign ones included."""

    def node_of(self, uid: str) -> str | None:
        """Where this pod is nominated to."""

    def version(self, name: str) -> int:
        """Changes whenever somebody is nominated to this node, or no longer is."""

    @property
    def position(self) -> int:
        """Where the log of changes stands."""

    def changed_since(self, position: int) -> list[str] | None:
        """Nodes whose nominations have changed since then, with repeats; None when that is too long ago to tell."""


class _Known:
    """What nominated pods make of nodes for pods of one shape that are not nominated there themselves."""

    __slots__ = ("at", "groups", "refused", "tried")

    def __init__(self) -> None:
        self.at = (-1, -1, -1)
        """Where the logs of columns and nominations stood, and the generation of node objects."""
        self.groups: Groups = {}
        self.refused: NodeSet = EMPTY
        self.tried: NodeSet = EMPTY
        """Nodes that must be tried in the cache."""

    def drop(self, slot: int) -> None:
        """Nothing is known of this node."""
        if (self.refused | self.tried) >> slot & 1:
            self.refused &= ~(1 << slot)
            self.tried &= ~(1 << slot)
            self.groups = {no: left for no, held in self.groups.items() if (left := held & ~(1 << slot))}

    def put(self, slot: int, no: Rejection | None) -> None:
        """The nominated pods say this of it; None for nothing."""
        if no is not None:
            self.groups[no] = self.groups.get(no, EMPTY) | 1 << slot
            self.refused |= 1 << slot


class Ahead:
    """The pods that a pod must yield to: nominated to the node, of equal or higher priority."""

    def __init__(self, runner: Runner, nominations: Nominations) -> None:
        self._runner = runner
        self._cluster = runner.cluster
        self._nodes = runner.cluster.nodes
        self._nominations = nominations
        self._known: BoundedCache[Hashable, _Known] = BoundedCache(_SHAPES)

    def of(self, pod: PodInfo, slot: int) -> list[PodInfo]:
        """Who is ahead of this pod on this node."""
        return [other for other in self._of_its_like(pod, slot) if other.uid != pod.uid]

    def version(self, slot: int) -> int:
        """Changes whenever somebody is nominated to this node, or no longer is."""
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
        """The nodes where those ahead leave no place; who says so is added to `groups`. `one_pass` filters as usual.

        Rests after each node that had to be tried in the cache, and while `one_pass` does.
        O(nodes and nominations that changed since a pod of this shape came here last), where a node's own pods suffice.
        """
        if not self._nominations.nodes():
            return EMPTY
        what_if = WhatIf(self._runner, state, pod)
        refused = one_by_one = EMPTY
        if nodes.bit_count() <= _FEW or not what_if.is_counted:
            one_by_one = nodeset.of(self._slots(nodes))
            what_if.about(one_by_one)
        else:
            known = self._followed(what_if, pod)
            held = nodes & (known.refused | known.tried)
            what_if.about(held)
            one_by_one = held & (known.tried | what_if.hopeless_nodes | self.own(pod))
            refused = held & ~one_by_one
            for no, slots in known.groups.items():
                if slots & refused:
                    groups[no] = groups.get(no, EMPTY) | slots & refused
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

    def _of_its_like(self, pod: PodInfo, slot: int) -> list[PodInfo]:
        return [
            other
            for other in self._nominations.for_node(self._nodes.name(slot))
            if other.priority >= pod.priority and self._cluster.get(other.uid) is None
        ]

    def own(self, pod: PodInfo) -> NodeSet:
        """Where the pod itself is nominated, if it is: who is ahead of it there is not who is ahead of its like."""
        slot = self._nodes.slot(self._nominations.node_of(pod.uid) or "")
        return EMPTY if slot is None else 1 << slot

    def _slots(self, nodes: NodeSet) -> Iterator[int]:
        """Those of the nodes that somebody is nominated to; the shorter way round."""
        if nodes.bit_count() <= _FEW:
            yield from (slot for slot in nodeset.each(nodes) if self._nominations.for_node(self._nodes.name(slot)))
            return
        for name in self._nominations.nodes():
            slot = self._nodes.slot(name)
            if slot is not None and nodes >> slot & 1:
                yield slot

    def _followed(self, what_if: WhatIf, pod: PodInfo) -> _Known:
        """What is known for pods like this one, brought up to date."""
        shape = (pod.priority, what_if.shape)
        known = self._known.get_or_make(shape, _Known)
        columns, nominations, objects = known.at
        now = (self._nodes.position, self._nominations.position, self._nodes.object_generation)
        if known.at == now:
            return known
        slots = self._changed(columns, nominations) if objects == now[2] else None
        if slots is None:
            known = self._known.put(shape, _Known())
            slots = set(self._slots(self._nodes.present))
        known.at = now
        for slot in slots:
            known.drop(slot)
            self._judge(known, what_if, pod, slot)
        return known

    def _changed(self, columns: int, nominations: int) -> set[int] | None:
        """Slots to be judged again; None if it is less work to judge all."""
        touched, names = self._nodes.changed_since(columns), self._nominations.changed_since(nominations)
        if touched is None or names is None or len(touched) + len(names) > _MANY:
            return None
        found = {slot for name in set(names) if (slot := self._nodes.slot(name)) is not None}
        found.update(slot for slot in set(touched) if self._nominations.for_node(self._nodes.name(slot)))
        return found

    def _judge(self, known: _Known, what_if: WhatIf, pod: PodInfo, slot: int) -> None:
        ahead = self._of_its_like(pod, slot)
        if not ahead:
            return
        counted = what_if.counted(slot, ahead, is_flat=False)
        if counted is None:
            known.tried |= 1 << slot
        else:
            known.put(slot, counted.verdict())

    def _tried(
        self, state: CycleState, pod: PodInfo, slot: int, one_pass: Callable[[CycleState, NodeSet], Work[NodeSet]]
    ) -> Work[bool]:
        """Whether the pod fits with those ahead in the cache."""
        name, ahead = self._nodes.name(slot), self.of(pod, slot)
        with self._cluster.trial(add=[(other, name) for other in ahead]) as trial:
            with_them = state.clone()
            for plugin in self._runner.extensions(state):
                for other in ahead:
                    plugin.add_pod(with_them, pod, other, slot)
            return bool((yield from self._runner.resting(trial, one_pass(with_them, 1 << slot))))
