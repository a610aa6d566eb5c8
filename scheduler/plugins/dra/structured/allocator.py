"""Depth-first search for devices of one node for all claims of a pod (docs/spec/dra.md §4.5–§4.7, §10.4).

A worked example, which a test runs. The counter is the pool's, and the claim requests two devices:

    in: counter memory 10; big draws 7, mid draws 5, small draws 4; 2 devices
    take big: memory 3
    refuse mid
    refuse small
    give back big: memory 10
    take mid: memory 5
    take small: memory 1
    out: mid, small

Upstream tries the same devices in the same order. Counting cannot see this dead end, because each device fits alone;
four dead ends of this kind, and the solver looks at the whole node.

The search returns the first solution in its order; with the order of `deviceScoring: pack` it may take any
solution of the integer program instead. It does not try states that cannot lead to a solution: too few devices are left,
too few share a value, an interchangeable device has failed, or the program has no solution. States before
an error are never skipped, because whether the search reaches the error decides whether the pod fails. Only an
error that lies very deep is given up, to bound the time.

Upstream: staging/src/k8s.io/dynamic-resource-allocation/structured/internal/stable/allocator_stable.go allocateOne
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from scheduler.api.resource_v1 import RESULTS_MAX
from scheduler.core.caching import Computed
from scheduler.core.cooperative import Work, finish
from scheduler.plugins.dra.structured.bounds import Bounds
from scheduler.plugins.dra.structured.constraints import NOTHING_SEEN, SeenValues
from scheduler.plugins.dra.structured.error_nodes import (
    NO_RISK,
    AllocationError,
    FailedOnNode,
    TimedOut,
    check,
    fault_error,
    risk_of,
)
from scheduler.plugins.dra.structured.feasibility import (
    Position,
    SearchState,
    Solution,
    SolverAnswer,
    bits,
)
from scheduler.plugins.dra.structured.node_devices import Mask, NodeDevices
from scheduler.plugins.dra.structured.requests import ClaimsToAllocate, RequestData

__all__ = ["CAREFUL_STEPS", "AllocationError", "Allocator", "FailedOnNode", "Order", "Picked"]

_CHOICES, _STEPS = 2, 32
"""A search yields after this number of choices or steps, which take a millisecond at most."""
CAREFUL_STEPS: Final = 500
"""The number of steps during which no state that may contain an error is skipped."""
_HARD: Final = 4
"""The number of dead ends after which the search uses the integer program."""


class Picked(NamedTuple):
    """One device for one request. `amounts` are the capacities taken of a shared device, else None."""

    claim: int
    request: int
    alternative: int
    number: int
    amounts: Mapping[str, int] | None


class _Outcome(enum.Enum):
    DONE = enum.auto()
    FAIL = enum.auto()
    TOO_MANY = enum.auto()
    """More results than a claim may have; an alternative with fewer devices may fit."""


class _Undo(NamedTuple):
    picked: Picked
    seen_values: tuple[SeenValues, ...]
    drawn_in: int


@dataclass(slots=True)
class _Choice:
    position: Position
    order: Sequence[int]
    """Device numbers, or indexes of alternatives."""
    request_data: RequestData | None
    must: bool = False
    at: int = 0
    undo: _Undo | None = None
    all_too_many: bool = True
    tried: set[object] = field(default_factory=set)
    viable: int = -1
    """The devices that the bounds leave."""
    solution: Solution | None = None
    """Devices that satisfy all open requests according to the integer program."""


Order: TypeAlias = Callable[[int, RequestData], Sequence[int]]
"""(claim, request) → the devices that it may have, in the order in which they are tried."""


class Allocator:
    """The search on one node; used once. `steps` is the number of devices that were tried.

    Upstream: staging/src/k8s.io/dynamic-resource-allocation/structured/allocator.go Allocator
    """

    def __init__(
        self, demand: ClaimsToAllocate, node_devices: NodeDevices, names: Sequence[str], *, order: Order | None = None
    ) -> None:
        """Take the claims, the node's devices and the claims' names for messages."""
        self.steps = 0
        self._demand = demand
        self._node_devices = node_devices
        self._names = names
        self._order = order
        self._lists: dict[int, list[int]] = {}
        self._orders = Computed(self._order_of)
        self._suffixes = Computed(self._suffixes_of)
        self._allocating = [0] * len(demand.claims)
        self._placed = 0
        self._taking: dict[int, dict[str, int]] = {}
        self._free_counters = Computed(self._free_counters_in)
        self._overdrawn = set[int]()
        """Pools of which devices in use draw more than a counter has; the search itself never does this."""
        self._seen_values: list[tuple[SeenValues, ...]] = [
            (NOTHING_SEEN,) * len(claim.constraints) for claim in demand.claims
        ]
        self._picked: list[Picked] = []
        self._counts = [0] * len(demand.claims)
        self._stack: list[_Choice] = []
        self._failed_claim = 0
        self._dead_ends = 0
        self._bounds = Bounds(demand, node_devices, self._lists)
        self._risk = NO_RISK
        self._may_reorder = True
        self._is_hard = False
        self._is_solvable = True
        self._solved = 0
        self._takes_any = order is not None
        self._is_narrowed = False

    def run(self) -> list[Picked] | None:
        """Return the devices in order of claims and requests; None if the claims do not fit.

        Raises AllocationError, FailedOnNode, TimedOut.
        """
        return finish(self.running())

    def running(self) -> Work[list[Picked] | None]:
        """Search in steps, because a search can take long; the caller decides when it yields and when it ends."""
        # Selectors come first, because a CEL expression may run for 50 ms and yields between kinds of devices. After
        # this loop each lookup of a selector's result is a read of a dict, so the search itself never evaluates CEL.
        kinds = list(dict.fromkeys(each.kind for each in self._node_devices.devices))
        for selectors in dict.fromkeys(request_data.selectors for _, _, request_data in self._demand.request_data):
            if selectors is not None:
                yield from selectors.evaluating(kinds)
        # Upstream validates all requests of all claims before it tries the first device. So an invalid second claim
        # is an error although the first claim does not fit.
        self._lists.update(check(self._demand, self._node_devices, self._names))
        self._risk = risk_of(self._demand, self._node_devices, self._lists)
        # The order of `deviceScoring: pack` would change which device fails first, and so whether the pod gets an
        # error at all. Upstream's order stays as soon as a selector may fail.
        self._may_reorder = self._risk == NO_RISK and not self._bounds.has_odd_values
        # The stack is empty after a failure, so a second search starts from a clean state.
        found = yield from self._search()
        if not found and self._is_narrowed:  # the exact rules refuse the solutions that were taken: search all of them
            self._takes_any = False
            found = yield from self._search()
        if found:
            return self._picked
        # Upstream passes over the devices of invalid pools and reports this text only if nothing else was found. It
        # rejects this node alone.
        if self._node_devices.has_invalid:
            raise FailedOnNode("invalid resource pools were encountered")
        return None

    # -- the search ----------------------------------------------------------------------------------------------------

    def _search(self) -> Work[bool]:
        position: Position | None = Position()
        choices, yielded_at = 0, self.steps
        while position is not None:
            choices += 1
            # A choice costs 10 to 100 µs, and a step some microseconds. To yield at each of them would double the
            # cost of short searches; a program of the solver takes milliseconds in any case.
            if self._is_hard or choices % _CHOICES == 0 or self.steps - yielded_at >= _STEPS:
                yielded_at = self.steps
                yield
            # Up to here no state was skipped that may contain an error. An error behind more steps than this is given
            # up: upstream would find it, but after minutes, and its time-out ends the attempt before.
            if self.steps >= CAREFUL_STEPS:
                self._risk = NO_RISK
            may_solve = self._is_solvable and not self._is_hard and self._dead_ends >= _HARD
            # Dead ends show that counting does not decide this node. The search starts again, because the first
            # device may already be the wrong one: then the program says so at the root, before any backtracking.
            if may_solve and self._bounds.is_solvable:
                self._undo_all()
                self._is_hard, position = True, Position()
            step = self._next(position)
            # `viable` is positive only for choices that may be skipped. A device of a request for all devices has no
            # alternative, and a state before a possible error must be visited.
            if self._is_hard and isinstance(step, _Choice) and step.viable > 0:
                step = yield from self._solved_choice(step)
            if step is _Outcome.DONE:
                return True
            if isinstance(step, _Choice):
                self._stack.append(step)
                position = self._try(step)
                if position is None:
                    position = self._back_from(step)
            else:
                position = self._back(step)
        return False

    def _solved_choice(self, choice: _Choice) -> Work[_Choice | _Outcome]:
        """Return FAIL if the choice's state has no solution; with `_takes_any` leave the choice the devices of one.

        Raises TimedOut.
        """
        # Most choices follow the solution of the choice before them. They inherit it without a program, so an easy
        # node costs one program in total.
        choice.solution = self._rest_of_solution()
        if choice.solution is None:
            self._solved += 1
            found = yield from self._bounds.solving(self._state(choice.position.claim))
            if found is SolverAnswer.TIMED_OUT:
                raise TimedOut
            if found is SolverAnswer.INFEASIBLE:
                return _Outcome.FAIL
            # The program is too large, or its amounts do not fit the solver's arithmetic. The search goes on as
            # without a solver, until its time limit.
            if found is SolverAnswer.UNKNOWN:
                self._is_hard, self._is_solvable = False, False
                return choice
            choice.solution = found
        # Any solution will do for `pack`, so only its devices are tried. The program is a relaxation: where
        # alternatives differ in amounts the exact rules may refuse the solution. `running` searches without this
        # restriction then.
        if self._takes_any:
            choice.viable &= choice.solution.get((choice.position.claim, choice.position.request), 0)
            self._is_narrowed = True
        return choice

    def _rest_of_solution(self) -> Solution | None:
        """Return the rest of the last solution, if it has the device that was taken last."""
        before = self._stack[-1] if self._stack else None
        if before is None or before.solution is None or before.undo is None:
            return None
        claim, request, _, number, _ = before.undo.picked
        return self._bounds.without(before.solution, (claim, request), number)

    def _state(self, c: int) -> SearchState:
        used, own = self._placed | self._node_devices.used, self._allocating[c]
        return SearchState(used, own, self._seen_values[c], self._taking, self._free_counters)

    def _undo_all(self) -> None:
        for choice in reversed(self._stack):
            if choice.undo is not None:
                self._give_back(choice.undo)
        self._stack.clear()

    def _next(self, position: Position) -> _Choice | _Outcome:
        c, r, alternative, taken, start = position
        claims = self._demand.claims
        while c < len(claims):
            # The claim in which a search fails decides how far `_back` may carry the outcome "too many".
            self._failed_claim = c
            requests = claims[c].requests
            if r == len(requests):
                c, r, alternative, taken, start = c + 1, 0, -1, 0, 0
                continue
            request = requests[r]
            # The alternatives of a prioritized list are one more level of the search. An earlier alternative wins
            # even if it takes worse devices, because the user has ranked them.
            if request.is_list and alternative < 0:
                return _Choice(Position(c, r), range(len(request.alternatives)), None)
            request_data = request.alternatives[max(alternative, 0)]
            everything = self._lists.get(id(request_data)) if request_data.is_all else None
            # Upstream refuses mode All without any device: a pod that requests all devices of a node that has none
            # would otherwise run without a device.
            if request_data.is_all and not everything:
                return _Outcome.FAIL
            # The devices of mode All were listed before the search, whether they are in use or not. One that is in
            # use makes the request fail; it is not left out.
            needed = len(everything) if everything is not None else request_data.spec.count
            if taken == needed:
                r, alternative, taken, start = r + 1, -1, 0, 0
                continue
            # A claim has at most 32 results. Upstream leaves all choices of this claim at once, except that another
            # alternative may need fewer devices.
            if self._counts[c] + needed - taken > RESULTS_MAX:
                return _Outcome.TOO_MANY
            position = Position(c, r, alternative, taken, start)
            if everything is not None:
                return _Choice(position, (everything[taken],), request_data, must=True)
            return self._choice(position, request_data)
        return _Outcome.DONE

    def _choice(self, position: Position, request_data: RequestData) -> _Choice | _Outcome:
        c, start = position.claim, position.start
        order = self._orders[c, request_data]
        # -1 has all bits set: a state that must be visited has no restriction.
        is_free, viable = (c, position.request) > self._risk, -1
        if is_free:
            viable = self._bounds.viable(position, self._suffixes[c, request_data][start], self._state(c))
            if not viable:
                return _Outcome.FAIL
        return _Choice(position, order, request_data, at=start, viable=viable)

    def _order_of(self, request: tuple[int, RequestData]) -> Sequence[int]:
        c, request_data = request
        if self._order is not None and self._may_reorder:
            return self._order(c, request_data)
        return list(bits(self._node_devices.selectable(request_data).mask))

    def _suffixes_of(self, request: tuple[int, RequestData]) -> Sequence[Mask]:
        """Return for each index of a request's order the devices from there on."""
        suffixes = [0]
        for number in reversed(self._orders[request]):
            suffixes.append(suffixes[-1] | 1 << number)
        return suffixes[::-1]

    def _try(self, choice: _Choice) -> Position | None:
        """Take the choice's next device or alternative that fits; return the next position, or None if none is left."""
        c, r, alternative, taken, _ = choice.position
        # This choice picks an alternative of a list, not a device. Its position has no devices yet.
        if choice.request_data is None:
            if choice.at >= len(choice.order):
                return None
            choice.at += 1
            return Position(c, r, choice.at - 1)
        while choice.at < len(choice.order):
            number = choice.order[choice.at]
            choice.at += 1
            if not choice.viable >> number & 1 or not self._is_free(choice.request_data, c, number):
                continue
            undo = self._take(choice, choice.request_data, number)
            if undo is not None:
                choice.undo = undo
                # The devices of one request are a combination: the next device comes behind this one in the order.
                # Permutations would find nothing more and take factorial time.
                start = 0 if choice.must else choice.at
                return Position(c, r, alternative, taken + 1, start)
        return None

    def _back_from(self, choice: _Choice) -> Position | None:
        """Drop a choice of which no device fits, and go back."""
        self._stack.pop()
        self._failed_claim = choice.position.claim
        self._dead_ends += 1
        return self._back(_Outcome.FAIL)

    def _back(self, failure: _Outcome) -> Position | None:
        """Undo choices until another one is possible; return None at the end."""
        while self._stack:
            choice = self._stack[-1]
            # "Too many" concerns one claim. For the claim before it, it is an ordinary failure, and other devices are
            # tried.
            if choice.position.claim < self._failed_claim:
                failure = _Outcome.FAIL
            self._failed_claim = choice.position.claim
            if choice.undo is not None:
                self._give_back(choice.undo)
                choice.undo = None
            # If every alternative needs too many devices, so does the request. Otherwise one of them has failed for
            # want of devices, and devices taken earlier may be the reason.
            if choice.request_data is None:
                choice.all_too_many = choice.all_too_many and failure is _Outcome.TOO_MANY
                if (position := self._try(choice)) is not None:
                    return position
                failure = _Outcome.TOO_MANY if choice.all_too_many else _Outcome.FAIL
            elif failure is not _Outcome.TOO_MANY and not choice.must and (position := self._try(choice)) is not None:
                return position
            self._dead_ends += 1
            self._stack.pop()
        return None

    # -- one device ----------------------------------------------------------------------------------------------------

    def _take(self, choice: _Choice, request_data: RequestData, number: int) -> _Undo | None:
        """Apply all checks of §4.6 and §4.7 to one free device; book it only if all pass."""
        self.steps += 1
        node_devices, c = self._node_devices, choice.position.claim
        shared = bool(node_devices.shared >> number & 1)
        # The search has reached a device on which the selector fails. Upstream evaluates lazily, so only a device
        # that is reached is an error.
        if number in node_devices.faults(request_data):
            raise fault_error(node_devices, number, self._names[c], request_data)
        taking = self._taking.get(number, {})
        # Of two devices that differ only in their names, the second fails as the first one did. The key has what the
        # search itself has changed about the device.
        if not choice.must and (c, choice.position.request) > self._risk:
            parts = tuple(sorted(taking.items())) if number in self._taking else None
            twin = (self._bounds.twin[number], self._placed >> number & 1, parts)
            if twin in choice.tried:
                return None
            choice.tried.add(twin)
        # The order of the checks is upstream's: capacity, partitions, counters, taints, constraints. It matters for
        # mode All, where the first check that fails decides between an error and a failure.
        if node_devices.rules.consumable and not choice.must and not node_devices.fits(request_data, number, taking):
            return None
        if not node_devices.may_draw(number):
            return None
        # A shared device draws on its counters once, with its first share. A second share of it, in this search or of
        # another claim, costs no counter.
        draws = not (shared and (number in self._taking or node_devices.has_shares(number)))
        if draws and not self._check_available_counters(number):
            return None
        if not node_devices.is_tolerated(request_data, number):
            return None
        seen_values = self._constrained(choice, number)
        if seen_values is None or (
            node_devices.rules.consumable and choice.must and not node_devices.fits(request_data, number, taking)
        ):
            return None
        return self._book(choice, number, seen_values, shared=shared, draws=draws)

    def _is_free(self, request_data: RequestData, c: int, number: int) -> bool:
        # An administrator may look at a device that another claim uses. One claim does not get the same device twice,
        # though.
        if request_data.is_admin:
            return not self._allocating[c] >> number & 1
        if not (self._placed | self._node_devices.used) >> number & 1:
            return True
        # Upstream evaluates the selectors and capacities of a device before it finds old shares of it.
        is_tried = (self._node_devices.old_shares & ~self._placed) >> number & 1
        return bool(is_tried) and number in self._node_devices.faults(request_data)

    def _check_available_counters(self, number: int) -> bool:
        """Return whether no counter of the pool would be negative with this device (§4.8)."""
        device = self._node_devices.devices[number].device
        if not device.consumes_counters:
            return True
        pool, wanted = self._node_devices.pool_of[number], self._node_devices.kind(number).draws
        free_counters = self._free_counters[pool]
        # A driver may shrink a counter below what is in use. Upstream then compares all counters of the pool, also
        # those that the device does not draw on, so such a pool gives away nothing.
        if pool in self._overdrawn:
            return all(amount >= wanted.get(counter, 0) for counter, amount in free_counters.items())
        return all(free_counters[counter] >= amount for counter, amount in wanted.items() if counter in free_counters)

    def _free_counters_in(self, pool: int) -> dict[tuple[str, str], int]:
        free_counters = self._node_devices.free_counters(pool)
        if min(free_counters.values(), default=0) < 0:
            self._overdrawn.add(pool)
        return free_counters

    def _constrained(self, choice: _Choice, number: int) -> tuple[SeenValues, ...] | None:
        c = choice.position.claim
        claim, request_data, node_devices = self._demand.claims[c], choice.request_data, self._node_devices
        assert request_data is not None
        seen_values = self._seen_values[c]
        for at, constraint in enumerate(claim.constraints):
            if not request_data.is_under(constraint):
                continue
            if node_devices.unsupported[constraint.attribute] >> number & 1:
                raise AllocationError(
                    f"claim {self._names[c]}, request {request_data.own_name}: device {node_devices.name(number)}: "
                    f"unsupported attribute value for {constraint.attribute}"
                )
            values = constraint.add(seen_values[at], node_devices.kind(number))
            if values is None:
                # A device of mode All that violates a constraint cannot be replaced by another one. Upstream reports
                # this as an error, not as a node that does not fit.
                if choice.must:
                    raise AllocationError(
                        f"claim {self._names[c]}, request {request_data.own_name}: cannot add device "
                        f"{node_devices.name(number)} because a claim constraint would not be satisfied"
                    )
                return None
            # The values are tuples and never change in place. Undoing a step is one assignment, and a state can be
            # kept in a choice.
            seen_values = (*seen_values[:at], values, *seen_values[at + 1 :])
        return seen_values

    def _book(
        self, choice: _Choice, number: int, seen_values: tuple[SeenValues, ...], *, shared: bool, draws: bool
    ) -> _Undo:
        c, r = choice.position.claim, choice.position.request
        request_data = choice.request_data
        assert request_data is not None
        amounts = None
        # Shared devices stay free for the next request: only the amounts are booked. Their bit is never set in
        # `_placed`.
        if shared:
            amounts = self._node_devices.amounts(request_data, number) or {}
            taking = self._taking.setdefault(number, {})
            for name, amount in amounts.items():
                taking[name] = taking.get(name, 0) + amount
        else:
            self._allocating[c] |= 1 << number
            self._placed |= 1 << number
        drawn_in = self._node_devices.pool_of[number] if draws else -1
        # Counters are integers in nano units: quantities are converted once per pool, not at each step.
        if drawn_in >= 0:
            self._draw(number, drawn_in, -1)
        picked = Picked(c, r, max(choice.position.alternative, 0), number, amounts)
        undo = _Undo(picked, self._seen_values[c], drawn_in)
        self._seen_values[c] = seen_values
        self._picked.append(picked)
        self._counts[c] += 1
        return undo

    def _give_back(self, undo: _Undo) -> None:
        c, _, _, number, amounts = self._picked.pop()
        self._counts[c] -= 1
        self._seen_values[c] = undo.seen_values
        if undo.drawn_in >= 0:
            self._draw(number, undo.drawn_in, 1)
        if amounts is None:
            self._allocating[c] &= ~(1 << number)
            # With admin access two claims may have one device, so its bit cannot simply be cleared.
            self._placed = 0
            for mask in self._allocating:
                self._placed |= mask
            return
        # The device has no share of this search any more. Its entry goes, because `number in self._taking` decides
        # whether the next share draws on counters.
        if not any(each.number == number and each.amounts is not None for each in self._picked):
            del self._taking[number]
            return
        taking = self._taking[number]
        for name, amount in amounts.items():
            taking[name] -= amount

    def _draw(self, number: int, pool: int, sign: int) -> None:
        for counter, amount in self._node_devices.kind(number).draws.items():
            self._free_counters[pool][counter] += sign * amount
