"""Decides whether open requests can be satisfied, by matching or an integer program (docs/spec/dra.md §10.4).

Sets of devices are masks: bit *i* is device *i*. Matching gives each request its number of devices, each device
once. The program is a relaxation: it has no solution only if no allocation exists.
"""

from __future__ import annotations

import enum
import heapq
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from itertools import islice
from operator import or_
from typing import Any, Final, NamedTuple, TypeAlias

from scheduler.core.caching import Computed
from scheduler.plugins.dra.structured.constraints import AllocationConstraint, SeenValues, Values
from scheduler.plugins.dra.structured.node_devices import Mask, NodeDevices
from scheduler.plugins.dra.structured.requests import ClaimsToAllocate, RequestData

CounterAmounts: TypeAlias = Mapping[tuple[str, str], int]
"""(counter set, counter) → amount."""
Taking: TypeAlias = Mapping[int, Mapping[str, int]]
"""Number of a shared device → capacity → amount that the search has taken."""


Solution: TypeAlias = dict[tuple[int, int], Mask]
"""(claim, request) → the devices that it gets in a solution of the integer program."""


class Position(NamedTuple):
    """The next device to choose: claim, request, alternative, number of devices before it, and start in the order."""

    claim: int = 0
    request: int = 0
    alternative: int = -1
    taken: int = 0
    start: int = 0


class SearchState(NamedTuple):
    """What a search has taken so far."""

    used: Mask
    """Devices that no other request can have."""
    own: Mask
    """The devices of `used` that the current claim has; a request of this claim with admin access cannot have these."""
    seen_values: tuple[SeenValues, ...]
    """For each constraint of the current claim, the values that it has seen."""
    taking: Taking
    free_counters: Mapping[int, CounterAmounts]
    """Pool → what is left of its counters."""


class Need(NamedTuple):
    """`needed` devices from `free` are missing for a request."""

    claim: int
    request: int
    alternatives: tuple[RequestData, ...]
    """The request, or the alternatives of it that are still possible."""
    free: Mask
    needed: int

    @property
    def is_admin(self) -> bool:
        """Whether the need may have devices that other requests have."""
        return any(request_data.is_admin for request_data in self.alternatives)

    def concerns(self, constraint: AllocationConstraint) -> bool:
        """Return whether the constraint holds for every alternative."""
        return all(request_data.is_under(constraint) for request_data in self.alternatives)


def bits(mask: Mask) -> Iterator[int]:
    """Yield the numbers in a mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def can_match(needs: Sequence[tuple[Mask, int]]) -> bool:
    """Return whether no set of devices is smaller than the counts of the needs that choose from it or a part of it."""
    # This is Hall's condition for sets that contain each other, as the devices of "any GPU" contain those of "a large
    # GPU". Sets that overlap otherwise are left to the solver.
    return all(
        sum([count for part, count in needs if part & mask == part]) <= mask.bit_count()
        for mask in {mask for mask, _ in needs}
    )


SOLVER_LIMIT_S: Final = 5.0
"""The solver stops after this time. Programs that take longer are as hard as bin packing without free space."""
_LARGEST: Final = 10**9
"""Larger coefficients do not fit the tolerances of a solver that computes with floating-point numbers."""
_TOLERANCE: Final = 1e-6
_PARTS: Final = 2, 3, 4
_FINE: Final = 16
"""Smaller limits, as those of the counters of a GPU, leave few fractions that a cut can exclude."""
_COMPARED_MAX: Final = 512
"""The devices of a larger pool are not compared with each other: that would take more than some 50 ms."""
_COLUMNS_MAX: Final = 50_000
_TERMS_MAX: Final = 500_000
"""Larger programs would take seconds to build."""


_OPTIONS: Final[Mapping[str, object]] = {
    "output_flag": False,
    "threads": 1,
    # in programs this small each of these takes longer than it saves
    "mip_heuristic_run_feasibility_jump": False,
    "mip_heuristic_run_rins": False,
    "mip_pool_soft_limit": 1,
}


class SolverAnswer(enum.Enum):
    """The outcomes other than a solution."""

    INFEASIBLE = enum.auto()
    UNKNOWN = enum.auto()
    """The program is too large, or its amounts are too large for the solver's arithmetic."""
    TIMED_OUT = enum.auto()


class _TooLarge(Exception):
    """The program would take too long to build, or its amounts do not fit the solver's arithmetic."""


@cache
def _solver_class() -> Callable[[], Any]:
    """Return the class of solvers; import the library (25 ms, 10 MB) only when a search needs it."""
    import highspy

    class Solver(highspy.Highs):
        def enableCallbacks(self) -> None:  # noqa: N802 (the library's name)
            """Do nothing: callbacks print a banner, and take the interpreter lock while HiGHS works."""

    return Solver


@dataclass(slots=True)
class _Program:
    """An integer program in the row-wise form that HiGHS takes."""

    upper: list[int] = field(default_factory=list)
    has_amounts: bool = False
    starts: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    coefficients: list[float] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)

    def variable(self, upper: int) -> int:
        """Add an integer variable from 0 to `upper`; return its column."""
        self.upper.append(upper)
        return len(self.upper) - 1

    def at_most(self, terms: Mapping[int, int], limit: int) -> None:
        """Add `sum of terms <= limit`, scaled by the greatest common divisor of the coefficients."""
        # Drivers publish amounts in bytes. Divided by their common divisor, most of them fit the solver's arithmetic.
        scale = math.gcd(*terms.values())
        if scale > 1:
            limit //= scale  # the left-hand side is a multiple of the divisor
            terms = {x: amount // scale for x, amount in terms.items()}
        # A row that holds for all values of its variables only costs time.
        if sum([amount * self.upper[x] for x, amount in terms.items() if amount > 0]) > limit:
            self._row(terms, -math.inf, limit + _TOLERANCE)

    def at_most_rounded(self, terms: Mapping[int, int], limit: int) -> None:
        """Add `sum of terms <= limit`, and the same divided and rounded down (Chvátal–Gomory cuts).

        Whole numbers that satisfy the first row satisfy the other rows, too; many fractions do not. So the solver sees
        early that two, three or four large amounts exceed the limit.
        """
        self.has_amounts = True
        self.at_most(terms, limit)
        # A counter of eight slices has few fractions that a cut could exclude, and each cut costs a row.
        if limit < _FINE or limit < _FINE * math.gcd(*terms.values()):
            return
        for parts in _PARTS:
            divisor = limit // parts + 1
            self.at_most({x: amount // divisor for x, amount in terms.items() if amount >= divisor}, limit // divisor)

    def exactly(self, terms: Mapping[int, int], total: int) -> None:
        """Add `sum of terms == total`."""
        self._row(terms, total, total)

    def _row(self, terms: Mapping[int, int], lower: float, upper: float) -> None:
        # HiGHS computes with floating-point numbers and tolerances. With larger coefficients its answer "infeasible"
        # could be wrong.
        largest = max(map(abs, terms.values()), default=0)
        if max(largest, abs(upper)) > _LARGEST or len(self.columns) + len(terms) > _TERMS_MAX:
            raise _TooLarge
        self.starts.append(len(self.columns))
        self.columns.extend(terms)
        self.coefficients.extend(terms.values())
        self.row_lower.append(lower)
        self.row_upper.append(upper)

    def solve(self) -> Sequence[float] | SolverAnswer:
        """Return a value for each variable, or why there is none. Releases the interpreter lock while HiGHS works."""
        # Imported here: most schedulers never meet a node that needs the solver.
        import highspy
        import numpy as np

        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.upper), len(self.starts)
        lp.col_cost_ = np.zeros(lp.num_col_)
        lp.col_lower_ = np.zeros(lp.num_col_)
        lp.col_upper_ = np.array(self.upper, float)
        lp.integrality_ = [highspy.HighsVarType.kInteger] * lp.num_col_
        lp.row_lower_, lp.row_upper_ = np.array(self.row_lower), np.array(self.row_upper)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array([*self.starts, len(self.columns)])
        lp.a_matrix_.index_ = np.array(self.columns)
        lp.a_matrix_.value_ = np.array(self.coefficients, float)
        highs = _solver_class()()
        for name, value in _OPTIONS.items():
            highs.setOptionValue(name, value)
        # The solver runs in the worker thread, which serves one job at a time. A program without a limit would keep
        # other pods' selectors from being compiled.
        highs.setOptionValue("time_limit", SOLVER_LIMIT_S)
        highs.setOptionValue("presolve", "off" if self.has_amounts else "choose")  # the cuts do as much in less time
        highs.passModel(lp)
        highs.run()
        status, outcomes = highs.getModelStatus(), highspy.HighsModelStatus
        if status == outcomes.kOptimal:
            return list(highs.getSolution().col_value)
        # Everything else, such as an error of the solver, counts as unknown: it must never reject a pod.
        failures = {outcomes.kInfeasible: SolverAnswer.INFEASIBLE, outcomes.kTimeLimit: SolverAnswer.TIMED_OUT}
        return failures.get(status, SolverAnswer.UNKNOWN)


@dataclass(slots=True, eq=False)
class Feasibility:
    """Builds and solves a program for each state of one search."""

    _demand: ClaimsToAllocate
    _node_devices: NodeDevices
    _buckets: Mapping[AllocationConstraint, Mapping[Values | None, Mask]]
    """Groups the devices by their values of a constraint."""
    _twin: Mapping[int, int]
    """Device → a number, equal for interchangeable devices."""
    _smaller: Computed[int, Mapping[int, Mask]] = field(init=False)
    """Pool → device → the devices that draw no more than it from any counter; of equal ones only the earlier ones."""

    def __post_init__(self) -> None:
        self._smaller = Computed(self._smaller_in)

    def solve(self, needs: Sequence[Need], state: SearchState) -> Solution | SolverAnswer:
        """Return devices for all needs at once. Only reads its arguments, so it may run in a thread."""
        # The size is known before a row is built, and a node may see thousands of devices of a network.
        if sum(need.free.bit_count() for need in needs) > _COLUMNS_MAX:
            return SolverAnswer.UNKNOWN
        try:
            return self._solve(needs, state)
        except _TooLarge:
            return SolverAnswer.UNKNOWN

    def _solve(self, needs: Sequence[Need], state: SearchState) -> Solution | SolverAnswer:
        program = _Program()
        shared = self._node_devices.shared
        # Equal requests would give the program as many equal solutions as there are permutations of them, and a
        # solver visits these one by one before it answers "infeasible".
        groups = self._merged(needs)
        together = [group[0]._replace(needed=sum([need.needed for need in group])) for group in groups]
        masks = self._without_symmetry(together, state)
        masks = [self._without_dominated(need, mask, state) for need, mask in zip(together, masks, strict=True)]
        columns = [
            {d: program.variable(len(group) if shared >> d & 1 else 1) for d in bits(mask)}
            for group, mask in zip(groups, masks, strict=True)
        ]
        for need, own in zip(together, columns, strict=True):
            if not own:
                return SolverAnswer.INFEASIBLE
            # Alternatives that need more devices are allowed to take only the smallest count. This makes the program
            # a relaxation.
            program.exactly(dict.fromkeys(own.values(), 1), need.needed)
        draws = self._share_exclusive_devices(program, together, columns)
        draws |= self._share_capacities(program, together, columns, state)
        self._limit_counters(program, draws, state)
        self._constrain(program, together, columns)
        found = program.solve()
        if isinstance(found, SolverAnswer):
            return found
        solution: Solution = {}
        for group, own in zip(groups, columns, strict=True):
            # The group's devices are dealt to its requests. Each request takes the devices of which most shares are
            # left, so no request gets one device twice.
            remaining = {d: round(found[x]) for d, x in own.items()}
            for need in group:
                dealt = heapq.nlargest(need.needed, remaining, key=remaining.__getitem__)
                solution[need.claim, need.request] = sum(1 << d for d in dealt)
                for d in dealt:
                    remaining[d] -= 1
        return solution

    def _merged(self, needs: Sequence[Need]) -> list[list[Need]]:
        """Group the needs that choose from the same devices under the same constraints, so that they share variables."""
        groups: dict[Hashable, list[Need]] = {}
        # A request with admin access may share devices with other claims, but not with its own. So claims must not be
        # merged.
        with_admin = self._demand.has_admin and len({need.claim for need in needs}) > 1
        for at, need in enumerate(needs):
            scope = tuple(map(need.concerns, self._demand.claims[need.claim].constraints))
            claim = need.claim if any(scope) or with_admin else -1
            key: Hashable = claim, need.free, scope
            if need.free & self._node_devices.shared:
                key = key, need.needed, tuple([(each.amounts_key, each.is_admin) for each in need.alternatives])
            groups.setdefault(at if with_admin and need.is_admin else key, []).append(need)
        return list(groups.values())

    def _without_symmetry(self, needs: Sequence[Need], state: SearchState) -> list[Mask]:
        """Return the devices that each need may have, where of interchangeable shared devices the first ones come first.

        A solution is still one after two such devices are exchanged. So the first request may have only the first of them,
        the second one the first two, and so on.
        """
        masks = [need.free for need in needs]
        shared = reduce(or_, masks, 0) & self._node_devices.shared
        # Shared devices that nothing was taken of yet are bins of equal size. Without an order among them a bin
        # packing of eight bins has 40 320 equal solutions.
        classes: dict[Hashable, list[int]] = {}
        for d in bits(shared):
            if d not in state.taking:
                users = tuple(mask >> d & 1 for mask in masks)
                classes.setdefault((self._twin[d], users), []).append(d)
        for alike in classes.values():
            if len(alike) == 1:
                continue
            using = [at for at, need in enumerate(needs) if need.free >> alike[0] & 1]
            # Large parts first, as in first-fit decreasing: the restriction is strongest for the parts that matter
            # most.
            using.sort(key=lambda at: -sum(self._least(needs[at], alike[0]).values()))
            count = 0
            for at in using:
                count += needs[at].needed
                masks[at] &= ~sum(1 << d for d in alike[count:])
        return masks

    def _without_dominated(self, need: Need, mask: Mask, state: SearchState) -> Mask:
        """Return the devices without those that can be exchanged for a smaller one in every solution that has them.

        The smaller one is free there: the counters do not suffice for both, so they do not for two of the larger one.
        """
        if any(map(need.concerns, self._demand.claims[need.claim].constraints)):
            return mask
        dropped = 0
        for d in bits(mask & ~self._node_devices.shared):
            # A partition of 20 GB is never better than one of 10 GB on the same counters, if the request may have
            # either. Drivers publish partitions at every offset, and most of these are larger than needed.
            smaller = self._smaller[self._node_devices.pool_of[d]].get(d, 0) & mask
            if smaller and self._exceed(d, d, state) and any(self._exceed(d, each, state) for each in bits(smaller)):
                dropped |= 1 << d
        return mask & ~dropped

    def _exceed(self, d: int, smaller: int, state: SearchState) -> bool:
        """Return whether both devices together draw more of a counter than is left."""
        remaining, draws = state.free_counters[self._node_devices.pool_of[d]], self._node_devices.kind(d).draws
        other_draws = self._node_devices.kind(smaller).draws
        return any(
            amount + draws.get(key, 0) > remaining[key] for key, amount in other_draws.items() if key in remaining
        )

    def _smaller_in(self, pool: int) -> Mapping[int, Mask]:
        node_devices, found = self._node_devices, dict[int, Mask]()
        own = [d for d, at in enumerate(node_devices.pool_of) if at == pool and not node_devices.shared >> d & 1]
        # The comparison is quadratic. It costs more than it saves in a pool of this size.
        if len(own) > _COMPARED_MAX:
            return found
        by_first_counter: dict[tuple[str, str], list[tuple[int, CounterAmounts]]] = {}
        for d in own:
            # A smaller device draws on a part of the counters. Its first counter is among them, so an index by first
            # counters finds all such devices.
            for counter in islice(draws := node_devices.kind(d).draws, 1):
                by_first_counter.setdefault(counter, []).append((d, draws))
        for d in own:
            for counter in (draws := node_devices.kind(d).draws):
                for other, other_draws in by_first_counter.get(counter, ()):
                    if _is_within(other_draws, draws) and (other < d or other_draws != draws):
                        found[d] = found.get(d, 0) | 1 << other
        return found

    def _share_exclusive_devices(
        self, program: _Program, needs: Sequence[Need], columns: Sequence[Mapping[int, int]]
    ) -> dict[int, dict[int, int]]:
        """Give a device to one request; requests with admin access share it, but not with their own or later claims.

        Return per device the terms that are 1 when it draws on counters.
        """
        by_device: dict[int, list[tuple[Need, int]]] = {}
        for need, own in zip(needs, columns, strict=True):
            for d, x in own.items():
                if not self._node_devices.shared >> d & 1:
                    by_device.setdefault(d, []).append((need, x))
        for users in by_device.values():
            # The variable's own bound of 1 says the same.
            if len(users) == 1:
                continue
            ordinary = [(need, x) for need, x in users if not need.is_admin]
            admins = [(need, x) for need, x in users if need.is_admin]
            program.at_most({x: 1 for _, x in ordinary}, 1)
            # Claims are allocated in order. An administrator's claim sees the devices of earlier claims as in use and
            # may take them, but its own and later claims cannot have its devices.
            for at, (admin, x) in enumerate(admins):
                program.at_most({x: 1} | {other: 1 for need, other in ordinary if need.claim >= admin.claim}, 1)
                for need, other in admins[:at]:
                    if need.claim == admin.claim:
                        program.at_most({x: 1, other: 1}, 1)
        devices = self._node_devices.devices
        return {
            d: dict.fromkeys((x for _, x in users), 1)
            for d, users in by_device.items()
            if devices[d].device.consumes_counters
        }

    def _share_capacities(
        self, program: _Program, needs: Sequence[Need], columns: Sequence[Mapping[int, int]], state: SearchState
    ) -> dict[int, dict[int, int]]:
        """Limit the capacities of shared devices; return for them what `_share_exclusive_devices` returns."""
        node_devices, draws = self._node_devices, dict[int, dict[int, int]]()
        # Capacities that no request takes any of need no row.
        loads: dict[int, dict[str, dict[int, int]]] = {}
        users: dict[int, list[int]] = {}
        for need, own in zip(needs, columns, strict=True):
            for d, x in own.items():
                if not node_devices.shared >> d & 1:
                    continue
                users.setdefault(d, []).append(x)
                for name, amount in self._least(need, d).items():
                    if amount:
                        loads.setdefault(d, {}).setdefault(name, {})[x] = amount
        for d, xs in users.items():
            device, capacity = node_devices.devices[d].device, node_devices.kind(d).capacity
            # A partition that is shared draws on its counters once, when its first share is given. One more variable
            # says whether it is in use.
            in_use: int | None = None
            if device.consumes_counters and d not in state.taking and not node_devices.has_shares(d):
                in_use = program.variable(1)
                draws[d] = {in_use: 1}
                for x in xs:
                    program.at_most({x: 1, in_use: -program.upper[x]}, 0)
            consumed, taken = node_devices.consumed(d), state.taking.get(d, {})
            for name, terms in loads.get(d, {}).items():
                # A driver may shrink a capacity below what is in use. A negative limit would make the whole program
                # infeasible, although other devices are free.
                remaining = max(capacity[name].value.nano - consumed.get(name, 0) - taken.get(name, 0), 0)
                if in_use is None:
                    program.at_most_rounded(terms, remaining)
                else:
                    program.at_most({**terms, in_use: -remaining}, 0)
        return draws

    def _least(self, need: Need, d: int) -> dict[str, int]:
        """Return the smallest amounts that an alternative of the need takes of a shared device."""
        found = [self._node_devices.amounts(request_data, d) for request_data in need.alternatives]
        amounts = [each for each in found if each is not None]
        return {name: min(each.get(name, 0) for each in amounts) for name in amounts[0]} if amounts else {}

    def _limit_counters(self, program: _Program, draws: Mapping[int, Mapping[int, int]], state: SearchState) -> None:
        by_pool: dict[int, list[int]] = {}
        for d in draws:
            by_pool.setdefault(self._node_devices.pool_of[d], []).append(d)
        for pool, devices in by_pool.items():
            remaining = state.free_counters[pool]
            if min(remaining.values(), default=0) < 0:  # no device of such a pool can draw (§4.8)
                for d in devices:
                    program.at_most(draws[d], 0)
                continue
            rows: dict[tuple[str, str], dict[int, int]] = {}
            for d in devices:
                for key, amount in self._node_devices.kind(d).draws.items():
                    if amount and key in remaining:
                        row = rows.setdefault(key, {})
                        for x, times in draws[d].items():
                            row[x] = amount * times
            for key, row in rows.items():
                program.at_most_rounded(row, remaining[key])

    def _constrain(self, program: _Program, needs: Sequence[Need], columns: Sequence[Mapping[int, int]]) -> None:
        for number in {need.claim for need in needs}:
            for constraint in self._demand.claims[number].constraints:
                scope = [i for i, need in enumerate(needs) if need.claim == number and need.concerns(constraint)]
                judge = self._match if constraint.is_match else self._distinguish
                judge(program, constraint, [columns[i] for i in scope])

    def _match(self, program: _Program, constraint: AllocationConstraint, scope: Sequence[Mapping[int, int]]) -> None:
        """Require that all devices have one value in common."""
        chosen: dict[tuple[str, object], int] = {}
        # One variable per value says that this value is the common one. The sum of these variables is 1.
        for values, mask in self._buckets[constraint].items():
            for own in scope:
                with_value = {own[d]: 1 for d in bits(mask) if d in own}
                if not with_value:
                    continue
                for value in values or ():
                    if value not in chosen:
                        chosen[value] = program.variable(1)
                most = sum(program.upper[x] for x in with_value)
                program.at_most(with_value | {chosen[value]: -most for value in values or ()}, 0)
        if chosen:
            program.exactly(dict.fromkeys(chosen.values(), 1), 1)

    def _distinguish(
        self, program: _Program, constraint: AllocationConstraint, scope: Sequence[Mapping[int, int]]
    ) -> None:
        """Require that no two devices have a value in common."""
        having: dict[tuple[str, object], dict[int, int]] = {}
        for values, mask in self._buckets[constraint].items():
            for value in values or ():
                terms = having.setdefault(value, {})
                terms.update({own[d]: 1 for own in scope for d in bits(mask) if d in own})
        for terms in having.values():
            if terms:
                program.at_most(terms, 1)


def _is_within(draws: CounterAmounts, limits: CounterAmounts) -> bool:
    """Return whether each amount is at most the limit; a counter without a limit has the limit 0."""
    for counter, amount in draws.items():  # noqa: SIM110 (twice as fast as `all`)
        if amount > limits.get(counter, 0):
            return False
    return True
