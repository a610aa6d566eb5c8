"""Which nodes have devices for a demand, known for whole kinds of nodes and kept from pod to pod (architecture D2–D4).

A demand's board remembers the last answer and looks only at nodes that changed since. A kind of nodes is searched once
per demand; what takes long is put off: nodes not looked at yet are let through, and Verify looks at the chosen one.

What must be known, however long it takes, can be asked for bit by bit (`settling`, `settling_all`, `settling_allocation`):
then the plain question has its answer at hand.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler.cache.devicenodes import DeviceNodes, NodeKind
from scheduler.cache.deviceuse import DeviceUse, Use
from scheduler.core import nodeset
from scheduler.core.clock import Clock
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.resourceclaims import AllocationResult
from scheduler.core.turns import Work, finish
from scheduler.plugins.dra.checking import TimedOut
from scheduler.plugins.dra.demand import Demand
from scheduler.plugins.dra.result import results
from scheduler.plugins.dra.searches import NO_DEVICES, Limits, Orders, Searches, Verdict
from scheduler.plugins.dra.seats import Rules

_NO_LIMITS: Final = Limits()
_BUDGET_S: Final = 0.0003
_AHEAD_S: Final = 0.005
"""What takes longer is put off until Verify, if the node is chosen: some searches take seconds."""
_FEW: Final = 16
_KINDS_MAX: Final = 512
_BOARDS_MAX: Final = 1024


@dataclass(slots=True)
class Board:
    """One demand. The sets are disjoint, and what is in none of them was not looked at."""

    position: int
    shared_stamp: int
    fit: NodeSet = EMPTY
    refused: dict[str, NodeSet] = field(default_factory=dict)
    failed: dict[str, NodeSet] = field(default_factory=dict)
    put_off: NodeSet = EMPTY
    """Looked at for so long that they are left to Verify."""
    kinds_left: bool = True

    @property
    def erring(self) -> NodeSet:
        """Nodes whose search ends the attempt."""
        out = EMPTY
        for some in self.failed.values():
            out |= some
        return out

    @property
    def seen(self) -> NodeSet:
        """Nodes whose answer is known."""
        seen = self.fit
        for some in (*self.refused.values(), *self.failed.values()):
            seen |= some
        return seen


class Boards:
    """Those of one profile. Single owner: the scheduling loop."""

    def __init__(  # noqa: PLR0913 (what a search needs)
        self,
        on_nodes: DeviceNodes,
        use: DeviceUse,
        clock: Clock,
        rules: Rules,
        *,
        limits: Limits = _NO_LIMITS,
        orders: Orders | None = None,
        searched: Callable[[int], None] | None = None,
    ) -> None:
        """`orders` gives the order of candidates, None upstream's; `searched` hears the steps of each search."""
        self._on_nodes = on_nodes
        self._clock = clock
        self._limits = limits
        self._searches = Searches(on_nodes, use, clock, rules, limits=limits, orders=orders, searched=searched)
        self._boards: dict[Demand, Board] = {}

    def look(self, demand: Demand, nodes: NodeSet, *, everything: bool = False) -> Board:
        """The board as of now. `everything`: look at all of these nodes, however long it takes."""
        board = self._board(demand)
        if everything:
            finish(self._looking_at_all(demand, board, nodes, rests=False))
        elif board.kinds_left:
            self._look_at_kinds(demand, board, nodes)
        return board

    def settling_all(self, demand: Demand, nodes: NodeSet) -> Work[None]:
        """`look` at everything, bit by bit."""
        return self._looking_at_all(demand, self._board(demand), nodes, rests=True)

    def first_error(self, demand: Demand, nodes: NodeSet) -> tuple[int, str] | None:
        """The first of these nodes, by slot, whose search ends the attempt, with the error; `settling_errors` makes it quick.

        A search that takes too long is left to Verify.
        """
        return finish(self._finding_error(demand, self._board(demand), nodes, rests=False))

    def settling_errors(self, demand: Demand, nodes: NodeSet) -> Work[None]:
        """`first_error`, bit by bit."""
        yield from self._finding_error(demand, self._board(demand), nodes, rests=True)

    def _board(self, demand: Demand) -> Board:
        on_nodes = self._on_nodes
        on_nodes.catch_up()
        board = self._boards.pop(demand, None)
        changed = on_nodes.changed_since(board.position) if board is not None else None
        if board is None or changed is None or board.shared_stamp != on_nodes.shared_stamp:
            board = Board(on_nodes.position, on_nodes.shared_stamp)
        else:
            board.position = on_nodes.position
            self._look_again(demand, board, set(changed))
        self._boards[demand] = board
        if len(self._boards) > _BOARDS_MAX:
            del self._boards[next(iter(self._boards))]
        return board

    def verdict(self, demand: Demand, slot: int) -> Verdict:
        """The exact answer for one node. Raises TimedOut."""
        kind = self._on_nodes.kind(slot)
        if kind is None:
            return NO_DEVICES
        verdict = self._searches.verdict(demand, kind, slot)
        board = self._boards.get(demand)
        if board is not None and board.put_off & kind.nodes:
            self._note(board, verdict, board.put_off & kind.nodes)
        return verdict

    def settling(self, demand: Demand, slot: int) -> Work[None] | None:
        """So that `verdict` is quick, or raises TimedOut at once; None if it is."""
        kind = self._on_nodes.kind(slot)
        return self._searches.settling(demand, kind, slot) if kind is not None else None

    def verdict_if(self, demand: Demand, slot: int, use: Use) -> Verdict:
        """The same if devices were in that use. Known for nodes that are like that, if no shared pool is seen there."""
        self._on_nodes.catch_up()
        kind = self._on_nodes.kind_if(slot, use)
        return self._searches.here(demand, kind, slot, use) if kind is not None else NO_DEVICES

    def fit(self, demand: Demand) -> NodeSet:
        """The nodes that are known to have the devices."""
        board = self._boards.get(demand)
        return board.fit if board is not None else EMPTY

    def fullest(self, nodes: NodeSet) -> NodeSet:
        """Those of the nodes on which the fewest devices are free. O(kinds of nodes), and all of them if these are many."""
        best, out = -1, nodes
        for seen, kind in enumerate(self._on_nodes.kinds()):
            if seen > _KINDS_MAX:
                return nodes
            here = kind.nodes & nodes
            if here:
                free = kind.free
                if best < 0 or free < best:
                    best, out = free, here
                elif free == best:
                    out |= here
        return out

    def allocate(
        self,
        demand: Demand,
        slot: int,
        *,
        node_name: str,
        names: Sequence[str],
        chance: random.Random,
        use: Use | None = None,
    ) -> tuple[AllocationResult, ...] | Verdict:
        """What the claims get on this node, or why they get nothing. Raises AllocationError, TimedOut.

        `use`: as `verdict_if`.
        """
        verdict = self.verdict(demand, slot) if use is None else self.verdict_if(demand, slot, use)
        kind = self._on_nodes.kind(slot)
        if use is None and kind is not None and kind.sight.views and not verdict.refusal:
            verdict = self._searches.here(demand, kind, slot)
        if verdict.refusal or kind is None:
            return verdict
        seats = self._searches.seats(slot, use)
        return results(demand, verdict.picked, seats, node_name=node_name, names=names, chance=chance)

    def settling_allocation(self, demand: Demand, slot: int, use: Use | None = None) -> Work[None] | None:
        """So that `allocate` is quick, or raises TimedOut at once; None if it is. The verdict is settled already."""
        kind = self._on_nodes.kind(slot) if use is None else self._on_nodes.kind_if(slot, use)
        return self._searches.settling_here(demand, kind, slot, use) if kind is not None else None

    # -- inside --------------------------------------------------------------------------------------------------------

    def _look_again(self, demand: Demand, board: Board, slots: set[int]) -> None:
        """At nodes that changed; a few at once, many as if they were new."""
        self._forget(board, nodeset.of(slots))
        if len(slots) > _FEW:
            board.kinds_left = True
            return
        until = self._clock.now() + _AHEAD_S
        for slot in slots:
            if self._clock.now() > until:
                board.kinds_left = True
                break
            kind = self._on_nodes.kind(slot)
            if kind is not None:
                self._look_ahead(demand, board, kind, nodes=1 << slot)

    def _look_ahead(self, demand: Demand, board: Board, kind: NodeKind, *, nodes: NodeSet) -> None:
        """At nodes of one kind, if that can be done in time."""
        try:
            verdict = self._searches.verdict(demand, kind, nodes.bit_length() - 1, limit_s=_AHEAD_S)
        except TimedOut:
            board.put_off |= nodes
        else:
            self._note(board, verdict, nodes)

    def _look_at_kinds(self, demand: Demand, board: Board, nodes: NodeSet) -> None:
        """Costs what is new and can be afforded, never a look at all kinds: there may be as many as nodes."""
        until = self._clock.now() + _BUDGET_S
        seen = board.seen | board.put_off
        left = nodes & self._on_nodes.placed & ~seen
        while left:
            kind = self._on_nodes.kind((left & -left).bit_length() - 1)
            assert kind is not None
            new = kind.nodes & ~seen
            self._look_ahead(demand, board, kind, nodes=new)
            left &= ~new
            seen |= new
            if self._clock.now() > until:
                break
        board.kinds_left = bool(self._on_nodes.placed & ~seen)

    def _looking_at_all(self, demand: Demand, board: Board, nodes: NodeSet, *, rests: bool) -> Work[None]:
        """At each kind of these nodes of which nothing is known. What takes too long is put off all the same."""
        seen = board.seen
        left = nodes & self._on_nodes.placed & ~seen
        while left:
            slot = (left & -left).bit_length() - 1
            kind = self._on_nodes.kind(slot)
            assert kind is not None
            new = kind.nodes & ~seen
            yield from self._looking_at(demand, board, kind, nodes=new, rests=rests)
            left &= ~new
            seen |= new
            yield
        board.kinds_left = bool(self._on_nodes.placed & ~(board.seen | board.put_off))

    def _looking_at(self, demand: Demand, board: Board, kind: NodeKind, *, nodes: NodeSet, rests: bool) -> Work[None]:
        """At nodes of one kind, as long as a search may take."""
        slot = (nodes & -nodes).bit_length() - 1
        work = self._searches.settling(demand, kind, slot) if rests else None
        if work is not None:
            yield from work
        try:
            self._note(board, self._searches.verdict(demand, kind, slot), nodes)
        except TimedOut:
            board.put_off |= nodes

    def _finding_error(
        self, demand: Demand, board: Board, nodes: NodeSet, *, rests: bool
    ) -> Work[tuple[int, str] | None]:
        """In the order of the slots, so that it is the same one whatever was looked at before."""
        left = nodes & self._on_nodes.placed
        while left := left & ~(board.seen & ~board.erring):
            first = left & -left
            text = next((text for text, some in board.failed.items() if some & first), "")
            if text:
                return first.bit_length() - 1, text
            kind = self._on_nodes.kind(first.bit_length() - 1)
            assert kind is not None
            new = kind.nodes & ~board.seen
            yield from self._looking_at(demand, board, kind, nodes=new, rests=rests)
            left &= ~(new & board.put_off)
            yield
        return None

    def _note(self, board: Board, verdict: Verdict, nodes: NodeSet) -> None:
        board.put_off &= ~nodes
        if not verdict.refusal:
            board.fit |= nodes
        else:
            into = board.failed if verdict.failed else board.refused
            into[verdict.refusal] = into.get(verdict.refusal, EMPTY) | nodes

    def _forget(self, board: Board, nodes: NodeSet) -> None:
        board.fit &= ~nodes
        board.put_off &= ~nodes
        for groups in (board.refused, board.failed):
            for text, some in groups.items():
                groups[text] = some & ~nodes
