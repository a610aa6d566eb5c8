"""Which nodes have devices for a demand, known for whole kinds of nodes and kept from pod to pod (architecture D2–D4).

A demand's board remembers the last answer and looks only at nodes that changed since. A kind of nodes is searched once
per demand; what takes long is put off: nodes not looked at yet are let through, and Verify looks at the chosen one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from scheduler.cache.devicenodes import DeviceNodes, NodeKind
from scheduler.cache.deviceuse import DeviceUse, Use
from scheduler.core import nodeset
from scheduler.core.clock import Clock
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.resourceclaims import AllocationResult
from scheduler.plugins.dra.demand import Demand
from scheduler.plugins.dra.result import results
from scheduler.plugins.dra.search import AllocationError, FailedOnNode, Order, Picked, Search
from scheduler.plugins.dra.seats import Candidates, Rules, Seats

CANNOT_ALLOCATE: Final = "cannot allocate all claims"
_BUDGET_S: Final = 0.0003
_AHEAD_S: Final = 0.005
"""What takes longer is put off until Verify, if the node is chosen: some searches take seconds."""
_FEW: Final = 16
_KINDS_MAX: Final = 512
_BOARDS_MAX: Final = 1024
_MEMO_MAX: Final = 4096


class TimedOut(Exception):
    """The search of one node took longer than filterTimeout."""


class Verdict(NamedTuple):
    """What a search found out about a kind of nodes. `refusal` is "" if the claims fit.

    `failed` says that the refusal is no ordinary one, but ends the attempt. Claims have placeholders for names in it.
    """

    refusal: str
    failed: bool
    stamp: int
    picked: tuple[Picked, ...] = ()


Problem: TypeAlias = tuple[object, bytes, tuple[int, ...]]
"""Whose search it is, the form of a demand, and the devices that each of its asks may have."""
Told: TypeAlias = tuple[Verdict, tuple[int, ...]]


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


Orders: TypeAlias = Callable[[Demand, Seats], Order]


class Boards:
    """Those of one profile. Single owner: the scheduling loop."""

    def __init__(  # noqa: PLR0913 (what a search needs)
        self,
        on_nodes: DeviceNodes,
        use: DeviceUse,
        clock: Clock,
        rules: Rules,
        *,
        filter_timeout_s: float = 0.0,
        orders: Orders | None = None,
        searched: Callable[[int], None] | None = None,
    ) -> None:
        """`orders` gives the order of candidates, None upstream's; `searched` hears the steps of each search."""
        self._on_nodes = on_nodes
        self._use = use
        self._clock = clock
        self._rules = rules
        self._timeout_s = filter_timeout_s
        self._orders = orders
        self._searched = searched
        self._boards: dict[Demand, Board] = {}

    def look(self, demand: Demand, nodes: NodeSet, *, everything: bool = False) -> Board:
        """The board as of now. `everything`: look at all of these nodes, however long it takes."""
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
        if board.kinds_left or (everything and board.put_off & nodes):
            self._look_at_kinds(demand, board, nodes, everything=everything)
        return board

    def verdict(self, demand: Demand, slot: int) -> Verdict:
        """The exact answer for one node. Raises TimedOut."""
        kind = self._on_nodes.kind(slot)
        if kind is None:
            return Verdict(CANNOT_ALLOCATE, failed=False, stamp=0)
        known = self._known(demand, kind, slot)
        if known is None:
            known = self._search(demand, kind, slot)
        board = self._boards.get(demand)
        if board is not None and board.put_off & kind.nodes:
            self._note(board, known, board.put_off & kind.nodes)
        return known

    def verdict_if(self, demand: Demand, slot: int, use: Use) -> Verdict:
        """The same if devices were in that use. Known for nodes that are like that, if no shared pool is seen there."""
        self._on_nodes.catch_up()
        kind = self._on_nodes.kind_if(slot, use)
        if kind is None:
            return Verdict(CANNOT_ALLOCATE, failed=False, stamp=0)
        if kind.sight.views:
            return self._judged(demand, self._seats(slot, use), kind.sight.stamp)
        known = self._known(demand, kind, slot)
        return known if known is not None else self._search(demand, kind, slot, use)

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
        if verdict.refusal or kind is None:
            return verdict
        seats = self._seats(slot, use)
        picked: Sequence[Picked] | None = verdict.picked
        if kind.sight.views:
            picked = self._run(demand, seats)
        if picked is None:
            return Verdict(CANNOT_ALLOCATE, failed=False, stamp=0)
        return results(demand, picked, seats, node_name=node_name, names=names, chance=chance)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _look_again(self, demand: Demand, board: Board, slots: set[int]) -> None:
        """At nodes that changed; a few at once, many as if they were new."""
        self._forget(board, nodeset.of(slots))
        if len(slots) > _FEW:
            board.kinds_left = True
            return
        for slot in slots:
            kind = self._on_nodes.kind(slot)
            if kind is not None:
                self._look_ahead(demand, board, kind, nodes=1 << slot)

    def _look_ahead(
        self, demand: Demand, board: Board, kind: NodeKind, *, nodes: NodeSet, timeout_s: float = _AHEAD_S
    ) -> None:
        """At nodes of one kind, if that can be done in time."""
        slot = nodes.bit_length() - 1
        try:
            known = self._known(demand, kind, slot)
            if known is None:
                known = self._search(demand, kind, slot, timeout_s=timeout_s)
        except TimedOut:
            board.put_off |= nodes
        else:
            self._note(board, known, nodes)

    def _look_at_kinds(self, demand: Demand, board: Board, nodes: NodeSet, *, everything: bool) -> None:
        """Costs what is new and can be afforded, never a look at all kinds: there may be as many as nodes."""
        until = self._clock.now() + _BUDGET_S
        seen = board.fit
        for some in (*board.refused.values(), *board.failed.values()):
            seen |= some
        if not everything:
            seen |= board.put_off
        timeout_s = self._timeout_s if everything else _AHEAD_S
        left = nodes & self._on_nodes.placed & ~seen
        while left:
            kind = self._on_nodes.kind((left & -left).bit_length() - 1)
            assert kind is not None
            new = kind.nodes & ~seen
            self._look_ahead(demand, board, kind, nodes=new, timeout_s=timeout_s)
            left &= ~new
            seen |= new
            if not everything and self._clock.now() > until:
                break
        board.kinds_left = bool(self._on_nodes.placed & ~seen)

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

    def _seats(self, slot: int, use: Use | None = None) -> Seats:
        return Seats(slot, self._on_nodes.pools(slot), self._use if use is None else use, rules=self._rules)

    def _search(
        self, demand: Demand, kind: NodeKind, slot: int, use: Use | None = None, *, timeout_s: float | None = None
    ) -> Verdict:
        verdict = self._judged(demand, self._seats(slot, use), kind.sight.stamp, timeout_s=timeout_s)
        self._remember(kind, demand, verdict)
        problem = self._problem(demand, kind, slot)
        if problem is not None:
            self._remember(kind, problem, told(verdict, demand))
        return verdict

    def _known(self, demand: Demand, kind: NodeKind, slot: int) -> Verdict | None:
        """What was found out for this demand, or for one that may have the very same devices of such nodes."""
        known: Verdict | None = kind.memo.get(demand)
        if known is not None:
            return known if known.stamp == kind.sight.stamp else None
        problem = self._problem(demand, kind, slot)
        found: Told | None = kind.memo.get(problem) if problem is not None else None
        if found is None:
            return None
        known = retold(found, demand)
        self._remember(kind, demand, known)
        return known

    def _remember(self, kind: NodeKind, asked: Demand | Problem, answer: Verdict | Told) -> None:
        if len(kind.memo) >= _MEMO_MAX:
            kind.memo.clear()
        kind.memo[asked] = answer

    def _problem(self, demand: Demand, kind: NodeKind, slot: int) -> Problem | None:
        """What a search on such nodes rests on; None where it cannot be said so briefly."""
        if not demand.form or kind.sight.views:
            return None
        memo = kind.key[0].memo
        masks = []
        seats: Seats | None = None
        for _, _, ask in demand.asks:
            candidates: Candidates | None = memo.get(ask.selectors)
            if candidates is None:
                seats = seats or self._seats(slot)
                if len(memo) > _MEMO_MAX:
                    memo.clear()
                candidates = memo[ask.selectors] = seats.selectable(ask)
            if candidates.faults:
                return None
            masks.append(candidates.mask)
        return self, demand.form, tuple(masks)

    def _judged(self, demand: Demand, seats: Seats, stamp: int, *, timeout_s: float | None = None) -> Verdict:
        try:
            picked = self._run(demand, seats, timeout_s=timeout_s)
        except FailedOnNode as error:
            return Verdict(str(error), failed=False, stamp=stamp)
        except AllocationError as error:
            return Verdict(str(error), failed=True, stamp=stamp)
        if picked is None:
            return Verdict(CANNOT_ALLOCATE, failed=False, stamp=stamp)
        return Verdict("", failed=False, stamp=stamp, picked=tuple(picked))

    def _run(self, demand: Demand, seats: Seats, *, timeout_s: float | None = None) -> list[Picked] | None:
        """`timeout_s`: 0 is for ever, None as long as filterTimeout says."""
        interrupted = None
        if timeout_s is None:
            timeout_s = self._timeout_s
        if timeout_s:
            until = self._clock.now() + timeout_s

            def interrupted() -> None:
                if self._clock.now() > until:
                    raise TimedOut

        order = self._orders(demand, seats) if self._orders is not None else None
        search = Search(demand, seats, placeholders(demand), order=order, interrupted=interrupted)
        try:
            return search.run()
        finally:
            if self._searched is not None:
                self._searched(search.steps)


def told(verdict: Verdict, demand: Demand) -> Told:
    """A verdict without the demand: picked devices say by number which alternative they are for."""
    return verdict, tuple(demand.claims[p.claim].requests[p.request].asks.index(p.ask) for p in verdict.picked)


def retold(found: Told, demand: Demand) -> Verdict:
    """The same for another demand of equal form."""
    verdict, alternatives = found
    asks = (demand.claims[p.claim].requests[p.request].asks[at] for p, at in zip(verdict.picked, alternatives))
    return verdict._replace(picked=tuple(p._replace(ask=ask) for p, ask in zip(verdict.picked, asks)))


def placeholders(demand: Demand) -> tuple[str, ...]:
    """Stand for the claims' names in what is kept for claims of any name."""
    return tuple(f"\0{c}\0" for c in range(len(demand.claims)))


def named(text: str, names: Sequence[str]) -> str:
    """The text with the names put in."""
    for c, name in enumerate(names):
        text = text.replace(f"\0{c}\0", name)
    return text
