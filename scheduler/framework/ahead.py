"""Filtering where others are nominated: the pod must fit with them there, and without (docs/spec/core.md §3.5).

A burst of preemptors is nominated to hundreds of nodes while the next pods are tried. What a node says is remembered for
pods of one shape until its columns or its nominations change, where it hangs on that node alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.podinfo import PodInfo
from scheduler.core.verdicts import Groups, Rejection
from scheduler.framework.state import CycleState
from scheduler.framework.whatif import WhatIf

if TYPE_CHECKING:
    from scheduler.framework.runner import Runner

_FEW: Final = 4
_SHAPES: Final = 64
_Verdicts = dict[int, tuple[int, int, Rejection | None]]
"""Slot → its stamp, the version of its nominations, and what they make of it."""


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


class Ahead:
    """The pods that a pod must yield to: nominated to the node, of equal or higher priority."""

    def __init__(self, runner: Runner, nominations: Nominations) -> None:
        self._runner = runner
        self._cluster = runner.cluster
        self._nodes = runner.cluster.nodes
        self._nominations = nominations
        self._known: OrderedDict[Hashable, _Verdicts] = OrderedDict()

    def of(self, pod: PodInfo, slot: int) -> list[PodInfo]:
        """Who is ahead of this pod on this node."""
        return [
            other
            for other in self._nominations.for_node(self._nodes.name(slot))
            if other.priority >= pod.priority and other.uid != pod.uid and self._cluster.get(other.uid) is None
        ]

    def refuse(
        self,
        state: CycleState,
        pod: PodInfo,
        nodes: NodeSet,
        groups: Groups,
        *,
        one_pass: Callable[[CycleState, NodeSet], NodeSet],
    ) -> NodeSet:
        """The nodes where those ahead leave no place; who says so is added to `groups`. `one_pass` filters as usual."""
        slots = list(self._slots(nodes))
        if not slots:
            return EMPTY
        refused = EMPTY
        what_if = WhatIf(self._runner, state, pod)
        what_if.about(nodeset.of(slots))
        known = self._verdicts(what_if, pod)
        for slot in slots:
            is_known = known is not None and not what_if.hopeless(slot)
            no = self._remembered(known if is_known else None, what_if, pod, slot)
            if isinstance(no, Rejection):
                groups[no] = groups.get(no, EMPTY) | 1 << slot
                refused |= 1 << slot
            elif no:
                refused |= 0 if self._tried(state, pod, slot, one_pass) else 1 << slot
        return refused

    def _slots(self, nodes: NodeSet) -> Iterator[int]:
        """Those of the nodes that somebody is nominated to; the shorter way round."""
        if nodes.bit_count() <= _FEW:
            yield from (slot for slot in nodeset.each(nodes) if self._nominations.for_node(self._nodes.name(slot)))
            return
        for name in self._nominations.nodes():
            slot = self._nodes.slot(name)
            if slot is not None and nodes >> slot & 1:
                yield slot

    def _verdicts(self, what_if: WhatIf, pod: PodInfo) -> _Verdicts | None:
        """What is remembered for pods like this one; None if nothing can be."""
        if not what_if.is_counted:
            return None
        shape = (pod.priority, what_if.shape)
        known = self._known.get(shape)
        if known is None:
            known = self._known[shape] = {}
            if len(self._known) > _SHAPES:
                self._known.popitem(last=False)
        self._known.move_to_end(shape)
        return known

    def _remembered(self, known: _Verdicts | None, what_if: WhatIf, pod: PodInfo, slot: int) -> Rejection | bool:
        """What those ahead make of the node: a refusal, False for nothing, True if it must be tried in the cache."""
        name = self._nodes.name(slot)
        stamp, version = self._nodes.stamps[slot], self._nominations.version(name)
        if self._nominations.node_of(pod.uid) == name:
            known = None  # who is ahead of it is not who is ahead of its like
        kept = known.get(slot) if known is not None else None
        if kept is not None and kept[0] == stamp and kept[1] == version:
            return kept[2] or False
        ahead = self.of(pod, slot)
        counted = what_if.counted(slot, ahead) if ahead else None
        if ahead and counted is None:
            return True
        no = counted.verdict() if counted is not None else None
        if known is not None:
            known[slot] = (stamp, version, no)
        return no or False

    def _tried(
        self, state: CycleState, pod: PodInfo, slot: int, one_pass: Callable[[CycleState, NodeSet], NodeSet]
    ) -> bool:
        """Whether the pod fits with those ahead in the cache."""
        name, ahead = self._nodes.name(slot), self.of(pod, slot)
        with self._cluster.trial(add=[(other, name) for other in ahead]):
            trial = state.clone()
            for plugin in self._runner.extensions(state):
                for other in ahead:
                    plugin.add_pod(trial, pod, other, slot)
            return bool(one_pass(trial, 1 << slot))
