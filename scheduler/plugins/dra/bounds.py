"""What can be said of a search without searching: too few devices, too few values, too little of a counter or capacity.

Every bound is a necessary condition, so what it cuts off holds no solution (docs/spec/dra.md §10.4). And which devices are
alike, so that where one has failed another need not be tried.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from scheduler.cache.devicekinds import DeviceKind
from scheduler.core.turns import Work
from scheduler.plugins.dra.constraints import Constraint, Known, Values
from scheduler.plugins.dra.demand import Ask, Demand, RequestDemand
from scheduler.plugins.dra.fitting import Fitting
from scheduler.plugins.dra.groups import Wanted
from scheduler.plugins.dra.matching import bits, can_match, first_of_match
from scheduler.plugins.dra.scarcity import Left, Scarcity, Taking
from scheduler.plugins.dra.seats import Mask, Seats
from scheduler.plugins.dra.sharing import Sharing

if TYPE_CHECKING:
    from scheduler.plugins.dra.search import Picked, _Position


class Now(NamedTuple):
    """Where a search stands."""

    used: Mask
    """Devices that nobody else can have."""
    own: Mask
    """Those of the claim under way among them, which even an administrator in it cannot have."""
    known: tuple[Known, ...]
    """What the constraints of the claim under way know."""
    taking: Taking
    picked: Sequence[Picked]
    left: Callable[[int], Left]
    """Pool → what is left of its counters."""


class Need(NamedTuple):
    """So many different devices of these must still be found for a request, and for so many requests that ask alike."""

    claim: int
    asks: tuple[Ask, ...]
    """One, or the alternatives that are left."""
    free: Mask
    needed: int
    times: int = 1

    @property
    def total(self) -> int:
        """Different devices, unless several may use one at once."""
        return self.needed * self.times

    @property
    def is_admin(self) -> bool:
        """Devices that others have will do as well."""
        return any(ask.is_admin for ask in self.asks)

    def concerns(self, constraint: Constraint) -> bool:
        """Whether the constraint is there for whichever alternative is chosen."""
        return all(constraint.concerns(ask.request, ask.full_name) for ask in self.asks)


class _Want(NamedTuple):
    ask: Ask
    mask: Mask
    needed: int


class Bounds:
    """For one search. `lists` has the devices of each ask for all there are, by its id."""

    def __init__(self, demand: Demand, seats: Seats, lists: dict[int, list[int]]) -> None:
        self._demand = demand
        self._seats = seats
        self._lists = lists
        self._masks: dict[int, Mask] = {}
        self._buckets: dict[int, dict[Values | None, Mask]] = {}
        self._twins: dict[int, int] = {}
        self._twin_numbers: dict[Hashable, int] = {}
        self._values: dict[tuple[int, DeviceKind], Values | None] = {}
        self._wants: dict[tuple[int, int], tuple[_Want, ...]] = {}
        self._scarcity = Scarcity(seats)
        self._exact: Fitting | None = None
        self._shares: Sharing | None = None
        self._needed: list[Need] | None = None
        self._lefts: dict[int, int] = {}
        self._unlike: dict[int, frozenset[int]] = {}
        self._first_alike: dict[Hashable, int] = {}
        self._alike = {id(ask): self._first_alike.setdefault(_likeness_of(ask), id(ask)) for _, _, ask in demand.asks}
        self._group_of = {
            (c, r): self._group(c, request)
            for c, claim in enumerate(demand.claims)
            for r, request in enumerate(claim.requests)
        }

    def _group(self, c: int, request: RequestDemand) -> Hashable:
        """Equal for requests of a claim that ask alike and are under the same constraints."""
        constraints = self._demand.claims[c].constraints
        return c, tuple(
            (
                self._alike[id(ask)],
                ask.is_all,
                ask.spec.count,
                ask.is_admin,
                tuple(each.concerns(ask.request, ask.full_name) for each in constraints),
            )
            for ask in request.asks
        )

    @property
    def _fitting(self) -> Fitting:
        if self._exact is None:
            self._exact = Fitting(self._seats, self._scarcity.draws, self._lay_unlike())
        return self._exact

    @property
    def _sharing(self) -> Sharing:
        if self._shares is None:
            self._shares = Sharing(self._demand, self._seats, self._wants_of)
        return self._shares

    def _lay_unlike(self) -> Sequence[Mask]:
        """Sets of devices of which a claim may have one, and in `_unlike` the numbers of those that a constraint makes."""
        sets: list[Mask] = []
        for claim in self._demand.claims:
            for constraint in claim.constraints:
                having: dict[tuple[str, object], Mask] = {}
                for values, mask in () if constraint.is_match else self.buckets(constraint).items():
                    for value in values or ():
                        having[value] = having.get(value, 0) | mask
                several = [mask for mask in having.values() if mask & mask - 1]
                self._unlike[id(constraint)] = frozenset(range(len(sets), len(sets) + len(several)))
                sets += several
        return sets

    def mask(self, ask: Ask) -> Mask:
        """Devices that the ask may have while nobody uses them."""
        alike = self._alike[id(ask)]
        known = self._masks.get(alike)
        if known is None:
            known = 0
            for number in bits(self._seats.selectable(ask).mask):
                if self._is_possible(ask, number):
                    known |= 1 << number
            self._masks[alike] = known
        return known

    def _is_possible(self, ask: Ask, number: int) -> bool:
        seats = self._seats
        if not seats.is_tolerated(ask, number) or not seats.may_draw(number):
            return False
        return not seats.rules.consumable or seats.fits(ask, number, {})

    # -- what is alike -------------------------------------------------------------------------------------------------

    def twin(self, number: int) -> int:
        """Equal for devices that are interchangeable in this search while equally much of both is taken."""
        known = self._twins.get(number)
        if known is None:
            numbers = self._twin_numbers
            known = self._twins[number] = numbers.setdefault(self._likeness(number), len(numbers))
        return known

    def _likeness(self, number: int) -> Hashable:
        seats, demand = self._seats, self._demand
        asks = tuple(
            (self.mask(ask) >> number & 1, number in seats.selectable(ask).faults)
            for _, _, ask in demand.asks
            if self._alike[id(ask)] == id(ask)
        )
        kind = seats.kind(number)
        values: tuple[Hashable, ...] = tuple(
            self._values_of(each, kind) for claim in demand.claims for each in claim.constraints
        )
        if frozenset() in values:
            values = (*values, number)  # counts only if it comes first: like no other
        draws: Hashable = None
        if seats.devices[number].device.consumes_counters:
            draws = (seats.pool_of[number], tuple(sorted(self._scarcity.draws(number).items())))
        shared: Hashable = None
        if seats.shared >> number & 1:
            shared = (kind, seats.has_shares(number), tuple(sorted(seats.consumed(number).items())))
        return asks, values, draws, shared, seats.used >> number & 1

    # -- values --------------------------------------------------------------------------------------------------------

    def buckets(self, constraint: Constraint) -> dict[Values | None, Mask]:
        """All devices by their values of the constraint's attribute."""
        known = self._buckets.get(id(constraint))
        if known is None:
            known = self._buckets[id(constraint)] = {}
            for number in range(len(self._seats.devices)):
                values = self._values_of(constraint, self._seats.kind(number))
                known[values] = known.get(values, 0) | 1 << number
        return known

    def _values_of(self, constraint: Constraint, kind: DeviceKind) -> Values | None:
        key = id(constraint), kind
        if key not in self._values:
            self._values[key] = constraint.values(kind)
        return self._values[key]

    @property
    def has_odd_values(self) -> bool:
        """Whether a constraint meets values that it does not understand: those count if they come first (§4.10)."""
        claims = self._demand.claims
        return any(frozenset() in self.buckets(constraint) for claim in claims for constraint in claim.constraints)

    # -- whether it can be done ----------------------------------------------------------------------------------------

    def viable(self, position: _Position, rest: Mask, now: Now, *, roughly: bool = True) -> Mask:
        """Those of `rest` that may be the next device of the request under way, as far as can be said.

        Nothing if there is too little for it, or for all that the claims still ask for. What `may_fit` says better of parts
        of shared devices can be left to it: then not `roughly`.
        """
        agreed = self._needed = self._still_needed(position, rest, now)
        if agreed is None or not self._scarcity.may_suffice(agreed, now.left):
            return 0
        if (roughly or not self._sharing.is_known) and not self._scarcity.parts_suffice(agreed, now.taking):
            return 0
        own, *others = agreed
        whole = [(need.free, need.total) for need in others if self._is_whole(need)]
        if self._is_whole(own):
            return first_of_match((own.free, own.needed), whole)
        return own.free if can_match(whole) else 0

    @property
    def can_fit_exactly(self) -> bool:
        """Whether `may_fit` has anything to say."""
        return self._fitting.is_known or self._sharing.is_known

    def may_fit(self, now: Now) -> Work[bool]:
        """Where `viable` was asked last, of shared counters, shared devices and values that differ alone.

        Nearly as exact as can be: takes a millisecond, or many.
        """
        agreed = self._needed or []
        wanted = [self._wanted(need) for need in agreed if not need.free & self._seats.shared]
        if self._sharing.is_known:
            more = yield from self._sharing.missing(agreed, now.taking, now.picked)
            if more is None:
                return False
            if more.least:
                wanted.append(Wanted(more.mask, more.least))
        return (yield from self._fitting.may_fit(wanted, now.left))

    def _wanted(self, need: Need) -> Wanted:
        constraints = self._demand.claims[need.claim].constraints
        unlike = (self._unlike[id(each)] for each in constraints if need.concerns(each))
        return Wanted(need.free, need.total, frozenset[int]().union(*unlike), need.claim, need.is_admin)

    def _still_needed(self, position: _Position, rest: Mask, now: Now) -> list[Need] | None:
        """What all requests from here on must have, the one under way first; None if that cannot be."""
        needs: list[Need] = []
        allowed = ~now.used | self._seats.shared
        self._lefts = self._sharing.lefts(now.taking) if now.taking else {}
        for c, r, times in self._open(position):
            wants = self._wants_of(c, r)
            if not times:
                one = wants[max(position.alternative, 0)]
                wants = (one._replace(mask=one.mask & rest, needed=one.needed - position.taken),)
            for_admin = ~now.own if c == position.claim else -1
            need = self._need(c, wants, (allowed, for_admin), now.taking)
            if times > 1:
                need = need._replace(times=times)
            if self._is_short(need):
                return None
            if need.needed:
                needs.append(need)
        return self._agreed(needs, position.claim, now.known)

    def _is_whole(self, need: Need) -> bool:
        """Whether it takes devices that nobody else can have then."""
        return not need.is_admin and not need.free & self._seats.shared

    def _is_short(self, need: Need) -> bool:
        return need.free.bit_count() < (need.total if self._is_whole(need) else need.needed)

    def _open(self, position: _Position) -> Iterator[tuple[int, int, int]]:
        """(claim, request, how many such) from here on; first the one under way, as 0."""
        claims = self._demand.claims
        yield position.claim, position.request, 0
        groups: dict[Hashable, tuple[int, int, int]] = {}
        for c in range(position.claim, len(claims)):
            first = position.request + 1 if c == position.claim else 0
            for r in range(first, len(claims[c].requests)):
                group = self._group_of[c, r]
                known = groups.get(group)
                groups[group] = (c, r, 1 if known is None else known[2] + 1)
        yield from groups.values()

    def _wants_of(self, c: int, r: int) -> tuple[_Want, ...]:
        known = self._wants.get((c, r))
        if known is None:
            known = self._wants[c, r] = tuple(
                _Want(ask, self.mask(ask), len(self._lists[id(ask)]) if ask.is_all else ask.spec.count)
                for ask in self._demand.claims[c].requests[r].asks
            )
        return known

    def _need(self, c: int, wants: Sequence[_Want], allowed: tuple[Mask, Mask], taking: Taking) -> Need:
        """What a request cannot do without, whichever alternative is chosen. `allowed` others, and administrators."""
        possible, union, least = [], 0, 1 << 30
        for ask, mask, needed in wants:
            free = mask & allowed[ask.is_admin]
            if taking:
                free = self._sharing.with_room(ask, free, taking, self._lefts)
            if free.bit_count() >= needed and (needed or not ask.is_all):
                possible.append(ask)
                union |= free
                least = min(least, needed)
        return Need(c, tuple(possible), union, least)

    # -- constraints ---------------------------------------------------------------------------------------------------

    def _agreed(self, needs: list[Need], c: int, known: tuple[Known, ...]) -> list[Need] | None:
        """The needs with what constraints leave of their devices; None if it is too little."""
        for number in {need.claim for need in needs}:
            for at, constraint in enumerate(self._demand.claims[number].constraints):
                seen = known[at] if number == c else ()
                scope = [i for i, need in enumerate(needs) if need.claim == number and need.concerns(constraint)]
                if not scope:
                    continue
                judge = self._matching if constraint.is_match else self._distinct
                left = judge(constraint, [needs[i] for i in scope], seen)
                for i in scope:
                    needs[i] = needs[i]._replace(free=needs[i].free & left)
                    if self._is_short(needs[i]):
                        return None
        return needs

    def _matching(self, constraint: Constraint, needs: Sequence[Need], seen: Known) -> Mask:
        """Devices with the value that is there already, or with one that enough devices have."""
        buckets = self.buckets(constraint)
        if seen:
            return sum(mask for values, mask in buckets.items() if values is not None and values & seen[0])
        if any(values is not None and len(values) != 1 for values in buckets):
            return ~buckets.get(None, 0)
        least = max(need.needed for need in needs)
        whole = [need for need in needs if self._is_whole(need)]
        least = max(least, sum(need.total for need in whole))
        return sum(
            mask
            for values, mask in buckets.items()
            if values is not None and mask.bit_count() >= least and self._suffices(mask, needs, whole)
        )

    def _suffices(self, mask: Mask, needs: Sequence[Need], whole: Sequence[Need]) -> bool:
        if any((need.free & mask).bit_count() < need.needed for need in needs):
            return False
        return can_match([(need.free & mask, need.total) for need in whole])

    def _distinct(self, constraint: Constraint, needs: Sequence[Need], seen: Known) -> Mask:
        """Devices whose values are still to be had, if there are enough different ones."""
        left, kinds = 0, []
        for values, mask in self.buckets(constraint).items():
            if values is not None and not any(values & each for each in seen):
                left |= mask
                kinds.append(mask)
        by_value = [(sum(1 << at for at, mask in enumerate(kinds) if mask & need.free), need.total) for need in needs]
        return left if can_match(by_value) else 0


def _likeness_of(ask: Ask) -> Hashable:
    """Equal for asks that may have the same devices."""
    capacity = ask.spec.capacity
    amounts = frozenset(capacity.requests.items()) if capacity is not None else None
    return ask.selectors, ask.spec.tolerations, amounts
