"""Which nodes have devices for a demand, known for whole kinds of nodes and kept from pod to pod (docs/adr/0010).

A demand's board remembers the last answer and looks only at nodes that changed since. A kind of nodes is searched once
per demand. What takes long is put off: nodes not looked at yet are let through, and Verify looks at the chosen one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler.cache.devicenodes import DeviceNodes, NodeKind
from scheduler.cache.deviceuse import DeviceUse, Use
from scheduler.core import nodeset
from scheduler.core.bounded_cache import BoundedCache
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
        self.limits: Final = limits
        self._searches = Searches(on_nodes, use, clock, rules, limits=limits, orders=orders, searched=searched)
        self._boards: BoundedCache[Demand, Board] = BoundedCache(_BOARDS_MAX)

    def look(self, demand: Demand, nodes: NodeSet) -> Board:
        """The board as of now, after a look at some nodes of which nothing is known."""
        board = self._board(demand)
        if board.kinds_left:
            self._look_at_kinds(demand, board, nodes)
        return board

    def look_at_all(self, demand: Demand, nodes: NodeSet) -> Work[Board]:
        """The board after a look at each kind of these nodes. What takes too long is put off all the same."""
        board = self._board(demand)
        seen = board.seen
        left = nodes & self._on_nodes.placed & ~seen
        while left:
            kind = self._kind_of_first(left)
            new = kind.nodes & ~seen
            yield from self._look_at(demand, board, kind, nodes=new)
            left &= ~new
            seen |= new
            yield
        board.kinds_left = bool(self._on_nodes.placed & ~(board.seen | board.put_off))
        return board

    def first_error(self, demand: Demand, nodes: NodeSet) -> Work[tuple[int, str] | None]:
        """The first of these nodes, by slot, whose search ends the attempt, with the error.

        A search that takes too long is left to Verify.
        """
        board = self._board(demand)
        left = nodes & self._on_nodes.placed
        while left := left & ~(board.seen & ~board.erring):
            first = left & -left
            text = next((text for text, some in board.failed.items() if some & first), "")
            if text:
                return first.bit_length() - 1, text
            kind = self._kind_of_first(left)
            new = kind.nodes & ~board.seen
            yield from self._look_at(demand, board, kind, nodes=new)
            left &= ~(new & board.put_off)
            yield
        return None

    def _board(self, demand: Demand) -> Board:
        on_nodes = self._on_nodes
        on_nodes.catch_up()
        board = self._boards.get(demand)
        changed = on_nodes.changed_since(board.position) if board is not None else None
        if board is None or changed is None or board.shared_stamp != on_nodes.shared_stamp:
            board = Board(on_nodes.position, on_nodes.shared_stamp)
        else:
            board.position = on_nodes.position
            self._look_again(demand, board, set(changed))
        return self._boards.put(demand, board)

    def verdict(self, demand: Demand, slot: int, *, limit_s: float | None = None) -> Work[Verdict]:
        """The exact answer for one node. Raises TimedOut."""
        kind = self._on_nodes.kind(slot)
        if kind is None:
            return NO_DEVICES
        verdict = yield from self._searches.verdict(demand, kind, slot, limit_s=limit_s)
        board = self._boards.get(demand)
        if board is not None and board.put_off & kind.nodes:
            self._note(board, verdict, board.put_off & kind.nodes)
        return verdict

    def verdict_if(self, demand: Demand, slot: int, use: Use, *, limit_s: float | None = None) -> Work[Verdict]:
        """The same if devices were in that use. Known for nodes that are like that, if no shared pool is seen there."""
        self._on_nodes.catch_up()
        kind = self._on_nodes.kind_if(slot, use)
        if kind is None:
            return NO_DEVICES
        return (yield from self._searches.here(demand, kind, slot, use, limit_s=limit_s))

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

    def picked(
        self, demand: Demand, slot: int, use: Use | None = None, *, limit_s: float | None = None
    ) -> Work[Verdict]:
        """What the claims would get on this node, or why they get nothing. Raises TimedOut. `use`: as `verdict_if`."""
        if use is not None:
            return (yield from self.verdict_if(demand, slot, use, limit_s=limit_s))
        verdict = yield from self.verdict(demand, slot, limit_s=limit_s)
        kind = self._on_nodes.kind(slot)
        if kind is not None and kind.sight.views and not verdict.refusal:
            verdict = yield from self._searches.here(demand, kind, slot, limit_s=limit_s)
        return verdict

    def allocate(  # noqa: PLR0913 (what a search needs)
        self,
        demand: Demand,
        slot: int,
        *,
        node_name: str,
        names: Sequence[str],
        chance: random.Random,
        use: Use | None = None,
        limit_s: float | None = None,
    ) -> tuple[AllocationResult, ...] | Verdict:
        """What the claims get on this node, or why they get nothing. Raises AllocationError, TimedOut.

        Blocks the event loop while it searches, for `limit_s` at most (`limits.holding_s` by default), unless `picked` was asked before. `use`: as
        `verdict_if`.
        """
        verdict = finish(self.picked(demand, slot, use, limit_s=self.limits.holding_s if limit_s is None else limit_s))
        if verdict.refusal or self._on_nodes.kind(slot) is None:
            return verdict
        seats = self._searches.seats(slot, use)
        return results(demand, verdict.picked, seats, node_name=node_name, names=names, chance=chance)

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
            verdict = finish(self._searches.verdict(demand, kind, nodes.bit_length() - 1, limit_s=_AHEAD_S))
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
            kind = self._kind_of_first(left)
            new = kind.nodes & ~seen
            self._look_ahead(demand, board, kind, nodes=new)
            left &= ~new
            seen |= new
            if self._clock.now() > until:
                break
        board.kinds_left = bool(self._on_nodes.placed & ~seen)

    def _kind_of_first(self, nodes: NodeSet) -> NodeKind:
        kind = self._on_nodes.kind((nodes & -nodes).bit_length() - 1)
        assert kind is not None
        return kind

    def _look_at(self, demand: Demand, board: Board, kind: NodeKind, *, nodes: NodeSet) -> Work[None]:
        """At nodes of one kind, as long as a search may take."""
        try:
            verdict = yield from self._searches.verdict(demand, kind, (nodes & -nodes).bit_length() - 1)
        except TimedOut:
            board.put_off |= nodes
        else:
            self._note(board, verdict, nodes)

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
        board.refused = {text: left for text, some in board.refused.items() if (left := some & ~nodes)}
        board.failed = {text: left for text, some in board.failed.items() if (left := some & ~nodes)}
