"""Which nodes have devices for a demand, searched once per kind of node (docs/adr/0010).

Runs searches and keeps their results with the kind of nodes that they are about; limits the time of each search.

Which nodes have devices for a demand, known for whole kinds of nodes and kept from pod to pod (docs/adr/0010).

A demand's board remembers the last answer and looks only at nodes that changed since. A kind of nodes is searched once
per demand. What takes long is put off: nodes not looked at yet are let through, and Verify looks at the chosen one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias, TypeVar

from scheduler.api.resource_v1 import AllocationResult
from scheduler.cache.devices.allocation_state import AllocationState, DeviceUse
from scheduler.cache.devices.node_kinds import DeviceNodes, NodeKind
from scheduler.core import nodeset
from scheduler.core.caching import BoundedCache
from scheduler.core.clock import Clock
from scheduler.core.cooperative import Work, finish, metered
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.plugins.dra.allocation_result import results
from scheduler.plugins.dra.allocator import AllocationError, Allocator, FailedOnNode, Order, Picked
from scheduler.plugins.dra.error_nodes import TimedOut
from scheduler.plugins.dra.node_devices import AllocatorFeatures, CandidateDevices, NodeDevices
from scheduler.plugins.dra.requests import ClaimsToAllocate

CANNOT_ALLOCATE: Final = "cannot allocate all claims"
LATE_S: Final = 60.0
"""So long what took too long is not begun again: it would take as long again, and so one pod would keep all others waiting."""
LATEST_S: Final = 3600.0
"""Each time it takes too long again the rest is twice as long, up to this, so that at last many such nodes have been looked at."""
_MEMO_MAX: Final = 4096
_HERE_MAX: Final = 64

T = TypeVar("T")
Orders: TypeAlias = Callable[[ClaimsToAllocate, NodeDevices], Order]


class SearchLimits(NamedTuple):
    """How long the search of one node may take, in seconds of its own; 0 is for ever."""

    resting_s: float = 0.0
    """While it gives turns to others: upstream's filterTimeout."""
    holding_s: float = 0.0
    """While nobody else has a turn."""


LONGEST_ATTEMPT_S: Final = 30.0
"""An attempt may search for this time, over all nodes; also one node's search, with filterTimeout 0."""
LONGEST_HOLD_S: Final = 2.0
"""A search that cannot yield may block the event loop, and the renewal of the lease, for this time."""


def limits_of(filter_timeout_s: float, *, parity: bool) -> SearchLimits:
    """Return the limits for a filterTimeout, 0 for none. With parity it is used as it is, also where a search cannot yield."""
    if parity:
        return SearchLimits(filter_timeout_s, filter_timeout_s)
    resting_s = min(filter_timeout_s or LONGEST_ATTEMPT_S, LONGEST_ATTEMPT_S)
    return SearchLimits(resting_s, min(resting_s, LONGEST_HOLD_S))


class SearchVerdict(NamedTuple):
    """What a search found out about a kind of nodes. `refusal` is "" if the claims fit.

    `failed` says that the refusal is no ordinary one, but ends the attempt. Claims have placeholders for names in it.
    """

    refusal: str
    failed: bool
    stamp: int
    picked: tuple[Picked, ...] = ()


NO_DEVICES: Final = SearchVerdict(CANNOT_ALLOCATE, failed=False, stamp=0)
"""Of a node that has none at all."""


class _Late(NamedTuple):
    """A search that was given up, and for how long nobody begins it again."""

    limit_s: float
    rest_s: float
    again_at: float
    stamp: int


Problem: TypeAlias = tuple[object, bytes, tuple[int, ...]]
"""Whose search it is, the form of a demand, and the devices that each of its asks may have."""
Told: TypeAlias = tuple[SearchVerdict, tuple[int, ...]]


class NodeSearches:
    """Those of one profile."""

    def __init__(  # noqa: PLR0913 (what a search needs)
        self,
        on_nodes: DeviceNodes,
        use: AllocationState,
        clock: Clock,
        rules: AllocatorFeatures,
        *,
        limits: SearchLimits,
        orders: Orders | None,
        searched: Callable[[int], None] | None,
    ) -> None:
        self._on_nodes = on_nodes
        self._use = use
        self._clock = clock
        self._rules = rules
        self._limits = limits
        self._orders = orders
        self._searched = searched
        self._here: BoundedCache[tuple[ClaimsToAllocate, int], tuple[NodeKind, Hashable, SearchVerdict]] = BoundedCache(
            _HERE_MAX
        )

    def node_devices(self, slot: int, use: DeviceUse | None = None) -> NodeDevices:
        """A node's devices, in the use that they are in or in another."""
        return NodeDevices(slot, self._on_nodes.pools(slot), self._use if use is None else use, rules=self._rules)

    def known(self, demand: ClaimsToAllocate, kind: NodeKind) -> SearchVerdict | None:
        """What was found out on such nodes for this demand, or for one that may have the very same devices."""
        known: SearchVerdict | None = kind.memo.get(demand)
        if known is not None:
            return known if known.stamp == kind.visible_pools.stamp else None
        problem = self._problem(demand, kind)
        found: Told | None = kind.memo.get(problem) if problem is not None else None
        if found is None:
            return None
        known = retold(found, demand)
        self._remember(kind, demand, known)
        return known

    def verdict(
        self,
        demand: ClaimsToAllocate,
        kind: NodeKind,
        slot: int,
        *,
        use: DeviceUse | None = None,
        limit_s: float | None = None,
    ) -> Work[SearchVerdict]:
        """For nodes of this kind, this one among them; whatever the shared pools they see. Raises TimedOut.

        `limit_s` is `limits.resting_s` unless it is given.
        """
        known = self.known(demand, kind)
        if known is not None:
            return known
        return (yield from self._within(self._searching(demand, kind, slot, use), demand, kind, limit_s))

    def here(
        self,
        demand: ClaimsToAllocate,
        kind: NodeKind,
        slot: int,
        use: DeviceUse | None = None,
        *,
        limit_s: float | None = None,
    ) -> Work[SearchVerdict]:
        """For this node, which may see shared pools: those may have other numbers on other nodes. Raises TimedOut."""
        if not kind.visible_pools.views:
            return (yield from self.verdict(demand, kind, slot, use=use, limit_s=limit_s))
        work = self._searching_here(demand, kind, slot, use)
        return (yield from self._within(work, self._asked(demand, slot, use), kind, limit_s))

    def _asked(self, demand: ClaimsToAllocate, slot: int, use: DeviceUse | None) -> Hashable:
        """What is not begun again for a while if it takes too long; of shared pools the kind does not tell in which use."""
        return demand if use is None else (demand, slot, self.node_devices(slot, use).in_use)

    def _within(self, work: Work[T], asked: Hashable, kind: NodeKind, limit_s: float | None) -> Work[T]:
        """Raises TimedOut when the work has taken that long, rests not counted, and at once if it is known to take longer."""
        limit_s = self._limits.resting_s if limit_s is None else limit_s
        late = self._late(kind, asked)
        if late is not None and self._clock.now() < late.again_at and 0 < limit_s <= late.limit_s:
            raise TimedOut
        left_s = limit_s or math.inf

        def spend(seconds: float) -> None:
            nonlocal left_s
            left_s -= seconds
            if left_s < 0:
                raise TimedOut

        try:
            return (yield from metered(work, self._clock, spend))
        except TimedOut:
            self._give_up(kind, asked, limit_s)
            raise

    def _late(self, kind: NodeKind, asked: Hashable) -> _Late | None:
        late: _Late | None = kind.memo.get((TimedOut, asked))
        return late if late is not None and late.stamp == kind.visible_pools.stamp else None

    def _give_up(self, kind: NodeKind, asked: Hashable, limit_s: float) -> None:
        """What has had more time before is known better already."""
        late, rest_s = self._late(kind, asked), LATE_S
        if late is not None and late.limit_s >= limit_s:
            if late.limit_s > limit_s:
                return
            rest_s = min(2 * late.rest_s, LATEST_S)
        again_at = self._clock.now() + rest_s
        self._remember(kind, (TimedOut, asked), _Late(limit_s, rest_s, again_at, kind.visible_pools.stamp))

    # -- searching -----------------------------------------------------------------------------------------------------

    def _searching(
        self, demand: ClaimsToAllocate, kind: NodeKind, slot: int, use: DeviceUse | None = None
    ) -> Work[SearchVerdict]:
        if kind.visible_pools.views:
            verdict = yield from self._searching_here(demand, kind, slot, use)
            self._remember(kind, demand, verdict)
            return verdict
        problem = self._problem(demand, kind)
        if problem is None:
            yield from self._selecting(demand, kind, slot)
            if (known := self.known(demand, kind)) is not None:
                return known
            problem = self._problem(demand, kind)
        verdict = yield from self._judging(demand, self.node_devices(slot, use), kind.visible_pools.stamp)
        self._remember(kind, demand, verdict)
        if problem is not None:
            self._remember(kind, problem, told(verdict, demand))
        return verdict

    def _searching_here(
        self, demand: ClaimsToAllocate, kind: NodeKind, slot: int, use: DeviceUse | None = None
    ) -> Work[SearchVerdict]:
        """The last answer holds as long as all that a search reads of this node is in the same use."""
        node_devices = self.node_devices(slot, use)
        last = self._here.get((demand, slot))
        if last is not None and last[0] is kind and last[1] == node_devices.in_use:
            verdict = last[2]._replace(stamp=kind.visible_pools.stamp)
        else:
            verdict = yield from self._judging(demand, node_devices, kind.visible_pools.stamp)
        self._here.put((demand, slot), (kind, node_devices.in_use, verdict))
        return verdict

    def _judging(self, demand: ClaimsToAllocate, node_devices: NodeDevices, stamp: int) -> Work[SearchVerdict]:
        order = self._orders(demand, node_devices) if self._orders is not None else None
        search = Allocator(demand, node_devices, placeholders(demand), order=order)
        try:
            picked = yield from search.running()
        except FailedOnNode as error:
            return SearchVerdict(str(error), failed=False, stamp=stamp)
        except AllocationError as error:
            return SearchVerdict(str(error), failed=True, stamp=stamp)
        finally:
            if self._searched is not None:
                self._searched(search.steps)
        if picked is None:
            return SearchVerdict(CANNOT_ALLOCATE, failed=False, stamp=stamp)
        return SearchVerdict("", failed=False, stamp=stamp, picked=tuple(picked))

    def _remember(self, kind: NodeKind, asked: Hashable, answer: SearchVerdict | Told | _Late) -> None:
        if len(kind.memo) >= _MEMO_MAX:
            kind.memo.clear()
        kind.memo[asked] = answer

    def _problem(self, demand: ClaimsToAllocate, kind: NodeKind) -> Problem | None:
        """What a search on such nodes rests on; None where it cannot be said so briefly, or is not known yet."""
        if not demand.form or kind.visible_pools.views:
            return None
        memo = kind.key[0].memo
        masks = []
        for _, _, ask in demand.asks:
            candidates: CandidateDevices | None = memo.get(ask.selectors)
            if candidates is None or candidates.faults:
                return None
            masks.append(candidates.mask)
        return self, demand.form, tuple(masks)

    def _selecting(self, demand: ClaimsToAllocate, kind: NodeKind, slot: int) -> Work[None]:
        """What each ask may have on such nodes."""
        if not demand.form:
            return
        memo = kind.key[0].memo
        node_devices: NodeDevices | None = None
        for _, _, ask in demand.asks:
            if ask.selectors is None or memo.get(ask.selectors) is not None:
                continue
            node_devices = node_devices or self.node_devices(slot)
            yield from ask.selectors.evaluating(each.kind for each in node_devices.devices)
            if len(memo) > _MEMO_MAX:
                memo.clear()
            memo[ask.selectors] = node_devices.selectable(ask)


def told(verdict: SearchVerdict, demand: ClaimsToAllocate) -> Told:
    """A verdict without the demand: picked devices say by number which alternative they are for."""
    return verdict, tuple(demand.claims[p.claim].requests[p.request].asks.index(p.ask) for p in verdict.picked)


def retold(found: Told, demand: ClaimsToAllocate) -> SearchVerdict:
    """The same for another demand of equal form."""
    verdict, alternatives = found
    asks = (demand.claims[p.claim].requests[p.request].asks[at] for p, at in zip(verdict.picked, alternatives))
    return verdict._replace(picked=tuple(p._replace(ask=ask) for p, ask in zip(verdict.picked, asks)))


def placeholders(demand: ClaimsToAllocate) -> tuple[str, ...]:
    """Stand for the claims' names in what is kept for claims of any name."""
    return tuple(f"\0{c}\0" for c in range(len(demand.claims)))


def named(text: str, names: Sequence[str]) -> str:
    """The text with the names put in."""
    for c, name in enumerate(names):
        text = text.replace(f"\0{c}\0", name)
    return text


_NO_LIMITS: Final = SearchLimits()
_BUDGET_S: Final = 0.0003
_AHEAD_S: Final = 0.005
"""What takes longer is put off until Verify, if the node is chosen: some searches take seconds."""
_FEW: Final = 16
_KINDS_MAX: Final = 512
_BOARDS_MAX: Final = 1024


@dataclass(slots=True)
class ClaimsVerdicts:
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


class NodeVerdicts:
    """Those of one profile. Single owner: the scheduling loop."""

    def __init__(  # noqa: PLR0913 (what a search needs)
        self,
        on_nodes: DeviceNodes,
        use: AllocationState,
        clock: Clock,
        rules: AllocatorFeatures,
        *,
        limits: SearchLimits = _NO_LIMITS,
        orders: Orders | None = None,
        searched: Callable[[int], None] | None = None,
    ) -> None:
        """`orders` gives the order of candidates, None upstream's; `searched` hears the steps of each search."""
        self._on_nodes = on_nodes
        self._clock = clock
        self.limits: Final = limits
        self._searches = NodeSearches(on_nodes, use, clock, rules, limits=limits, orders=orders, searched=searched)
        self._boards: BoundedCache[ClaimsToAllocate, ClaimsVerdicts] = BoundedCache(_BOARDS_MAX)

    def look(self, demand: ClaimsToAllocate, nodes: NodeSet) -> ClaimsVerdicts:
        """The board as of now, after a look at some nodes of which nothing is known."""
        board = self._board(demand)
        if board.kinds_left:
            self._look_at_kinds(demand, board, nodes)
        return board

    def look_at_all(self, demand: ClaimsToAllocate, nodes: NodeSet) -> Work[ClaimsVerdicts]:
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

    def first_error(self, demand: ClaimsToAllocate, nodes: NodeSet) -> Work[tuple[int, str] | None]:
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

    def _board(self, demand: ClaimsToAllocate) -> ClaimsVerdicts:
        on_nodes = self._on_nodes
        on_nodes.catch_up()
        board = self._boards.get(demand)
        changed = on_nodes.changed_since(board.position) if board is not None else None
        if board is None or changed is None or board.shared_stamp != on_nodes.shared_stamp:
            board = ClaimsVerdicts(on_nodes.position, on_nodes.shared_stamp)
        else:
            board.position = on_nodes.position
            self._look_again(demand, board, set(changed))
        return self._boards.put(demand, board)

    def verdict(self, demand: ClaimsToAllocate, slot: int, *, limit_s: float | None = None) -> Work[SearchVerdict]:
        """The exact answer for one node. Raises TimedOut."""
        kind = self._on_nodes.kind(slot)
        if kind is None:
            return NO_DEVICES
        verdict = yield from self._searches.verdict(demand, kind, slot, limit_s=limit_s)
        board = self._boards.get(demand)
        if board is not None and board.put_off & kind.nodes:
            self._note(board, verdict, board.put_off & kind.nodes)
        return verdict

    def verdict_if(
        self, demand: ClaimsToAllocate, slot: int, use: DeviceUse, *, limit_s: float | None = None
    ) -> Work[SearchVerdict]:
        """The same if devices were in that use. Known for nodes that are like that, if no shared pool is seen there."""
        self._on_nodes.catch_up()
        kind = self._on_nodes.kind_if(slot, use)
        if kind is None:
            return NO_DEVICES
        return (yield from self._searches.here(demand, kind, slot, use, limit_s=limit_s))

    def fit(self, demand: ClaimsToAllocate) -> NodeSet:
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
        self, demand: ClaimsToAllocate, slot: int, use: DeviceUse | None = None, *, limit_s: float | None = None
    ) -> Work[SearchVerdict]:
        """What the claims would get on this node, or why they get nothing. Raises TimedOut. `use`: as `verdict_if`."""
        if use is not None:
            return (yield from self.verdict_if(demand, slot, use, limit_s=limit_s))
        verdict = yield from self.verdict(demand, slot, limit_s=limit_s)
        kind = self._on_nodes.kind(slot)
        if kind is not None and kind.visible_pools.views and not verdict.refusal:
            verdict = yield from self._searches.here(demand, kind, slot, limit_s=limit_s)
        return verdict

    def allocate(  # noqa: PLR0913 (what a search needs)
        self,
        demand: ClaimsToAllocate,
        slot: int,
        *,
        node_name: str,
        names: Sequence[str],
        chance: random.Random,
        use: DeviceUse | None = None,
        limit_s: float | None = None,
    ) -> tuple[AllocationResult, ...] | SearchVerdict:
        """What the claims get on this node, or why they get nothing. Raises AllocationError, TimedOut.

        Blocks the event loop while it searches, for `limit_s` at most (`limits.holding_s` by default), unless `picked` was asked before. `use`: as
        `verdict_if`.
        """
        verdict = finish(self.picked(demand, slot, use, limit_s=self.limits.holding_s if limit_s is None else limit_s))
        if verdict.refusal or self._on_nodes.kind(slot) is None:
            return verdict
        node_devices = self._searches.node_devices(slot, use)
        return results(demand, verdict.picked, node_devices, node_name=node_name, names=names, chance=chance)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _look_again(self, demand: ClaimsToAllocate, board: ClaimsVerdicts, slots: set[int]) -> None:
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

    def _look_ahead(self, demand: ClaimsToAllocate, board: ClaimsVerdicts, kind: NodeKind, *, nodes: NodeSet) -> None:
        """At nodes of one kind, if that can be done in time."""
        try:
            verdict = finish(self._searches.verdict(demand, kind, nodes.bit_length() - 1, limit_s=_AHEAD_S))
        except TimedOut:
            board.put_off |= nodes
        else:
            self._note(board, verdict, nodes)

    def _look_at_kinds(self, demand: ClaimsToAllocate, board: ClaimsVerdicts, nodes: NodeSet) -> None:
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

    def _look_at(
        self, demand: ClaimsToAllocate, board: ClaimsVerdicts, kind: NodeKind, *, nodes: NodeSet
    ) -> Work[None]:
        """At nodes of one kind, as long as a search may take."""
        try:
            verdict = yield from self._searches.verdict(demand, kind, (nodes & -nodes).bit_length() - 1)
        except TimedOut:
            board.put_off |= nodes
        else:
            self._note(board, verdict, nodes)

    def _note(self, board: ClaimsVerdicts, verdict: SearchVerdict, nodes: NodeSet) -> None:
        board.put_off &= ~nodes
        if not verdict.refusal:
            board.fit |= nodes
        else:
            into = board.failed if verdict.failed else board.refused
            into[verdict.refusal] = into.get(verdict.refusal, EMPTY) | nodes

    def _forget(self, board: ClaimsVerdicts, nodes: NodeSet) -> None:
        board.fit &= ~nodes
        board.put_off &= ~nodes
        board.refused = {text: left for text, some in board.refused.items() if (left := some & ~nodes)}
        board.failed = {text: left for text, some in board.failed.items() if (left := some & ~nodes)}
