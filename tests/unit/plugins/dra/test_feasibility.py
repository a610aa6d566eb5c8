"""The integer program has no solution only where no allocation exists, and hard cases end after few steps."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, settings, strategies as st

from scheduler.api import resource_v1 as api
from scheduler.api.quantity import parse
from scheduler.core.cooperative import finish
from scheduler.plugins.dra.structured import allocator as searching, feasibility
from scheduler.plugins.dra.structured.bounds import Bounds
from scheduler.plugins.dra.structured.constraints import NOTHING_SEEN
from scheduler.plugins.dra.structured.feasibility import Position, SearchState, SolverAnswer
from tests.examples import SLOW_SHARE, examples
from tests.unit.plugins.dra.allocator_setup import AllocatorSetup
from tests.unit.plugins.dra.literal_allocator import Literal, TooSlow
from tests.unit.plugins.dra.random_devices import Case
from tests.unit.plugins.dra.test_worst_cases import COUNTERS, STEPS, _case, _claim, _request, counter_set, partitions

STEPS_MAX = 30_000


def a_case(seed: int, amount: int, *, wanted: int = 10) -> Case:
    devices = partitions(random.Random(seed), 60, COUNTERS)
    return _case(devices, _claim(_request(count=wanted)), counters=counter_set(COUNTERS, amount))


@st.composite
def small_cases(draw: st.DrawFn) -> Case:
    """Generate cases that are so small that every allocation can be tried."""
    chance = random.Random(draw(st.integers(0, 2**64)))
    counters = COUNTERS[: chance.randint(1, 3)]
    coarse = chance.random() < 0.5
    devices = partitions(chance, chance.randint(4, 9), counters, least=1 if coarse else 50, most=4 if coarse else 150)
    wheres = ["any", "any", "size == 0", "size < 2", "u > 2"]
    asks = [_request(count=chance.randint(1, 3), where=chance.choice(wheres)) for _ in range(chance.randint(1, 3))]
    used = [each.name for each in devices if chance.random() < 0.15]
    amount = chance.randint(2, 12) if coarse else chance.randint(100, 500)
    split = chance.randint(1, len(asks))
    claims = [_claim(*some) for some in (asks[:split], asks[split:]) if some]
    return _case(devices, *claims, used=used, counters=counter_set(counters, amount))


@st.composite
def cases_with_admins(draw: st.DrawFn) -> Case:
    """Generate small cases with shared devices, requests for capacity, and requests with admin access."""
    chance = random.Random(draw(st.integers(0, 2**64)))
    counters, devices = COUNTERS[: chance.randint(1, 2)], []
    names = ("mem", "cores")[: chance.randint(1, 2)]
    for each in partitions(chance, chance.randint(3, 7), counters, least=1, most=4):
        capacity = {name: api.DeviceCapacity(parse(str(chance.randint(2, 9)))) for name in names}
        is_shared, draws = chance.random() < 0.6, chance.random() < 0.7
        more: dict[str, Any] = {"allow_multiple_allocations": True, "capacity": capacity} if is_shared else {}
        consumes = each.consumes_counters if draws or not is_shared else ()
        devices.append(api.Device(name=each.name, attributes=each.attributes, consumes_counters=consumes, **more))
    asks = [_anything(chance, names) for _ in range(chance.randint(1, 4))]
    cut, most = chance.randint(0, len(asks)), chance.randint(1, len(asks))
    claims = [_claim(*some) for some in (asks[:cut], asks[cut:most], asks[max(cut, most) :]) if some]
    return _case(devices, *claims, counters=counter_set(counters, chance.randint(3, 14)))


def _anything(chance: random.Random, names: Sequence[str]) -> api.ExactDeviceRequest:
    exactly: api.ExactDeviceRequest = _request(
        count=chance.choice((1, 1, 2, 3)), where=chance.choice(("any", "any", "size < 2"))
    )
    amounts = {name: parse(str(chance.randint(1, 5))) for name in names}
    kind = chance.choice(("part", "part", "admin", "plain"))
    return msgspec.structs.replace(
        exactly,
        admin_access=True if kind == "admin" else None,
        capacity=api.CapacityRequirements(amounts) if kind == "part" else None,
    )


ADMIN_WITH_ALL_OF_ANOTHER = _case(
    [
        api.Device(name=name, consumes_counters=(api.DeviceCounterConsumption("c", {"a": api.Counter(parse(amount))}),))
        for name, amount in (("d0", "60"), ("d1", "47"), ("d2", "53"))
    ],
    _claim(_request(count=2)),
    _claim(msgspec.structs.replace(_request(count=2), admin_access=True)),
    counters=counter_set("a", 261),
)
"""Both devices are picked twice, so they consume more than all devices consume once."""


@settings(max_examples=examples(300, share=SLOW_SHARE))
@given(small_cases() | cases_with_admins(), st.booleans())
@example(ADMIN_WITH_ALL_OF_ANOTHER, False)
def test_looking_closely_at_counters_changes_nothing_but_the_steps(case: Case, packed: bool) -> None:
    """The first fit is still the allocation that a full search in order finds."""
    try:
        picks = Literal(case.world, "n1", case.claims, steps_max=STEPS_MAX).run()
    except TooSlow:
        assume(False)
        raise
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "_HARD", 0)
        search = AllocatorSetup(case).search("n1", packed=packed)
        found = search.run()

    if packed or picks is None or found is None:
        assert (found is None) == (picks is None)
    else:
        devices = [search._node_devices.devices[each.number].id for each in found]
        assert devices == [pick.candidate.id for pick in picks]


def _root(case: Case) -> object:
    """Solve the state before any device is picked; None if counting and matching already reject it."""
    setup = AllocatorSetup(case)
    node_devices = setup.node_devices("n1")
    bounds = Bounds(setup.demand, node_devices, {})
    known = (NOTHING_SEEN,) * len(setup.demand.claims[0].constraints)
    now = SearchState(node_devices.used, 0, known, {}, node_devices.left_in)
    rest = (1 << len(node_devices.devices)) - 1
    return finish(bounds.solving(now)) if bounds.viable(Position(), rest, now) else None


@settings(max_examples=examples(300, share=SLOW_SHARE))
@given(small_cases())
def test_the_program_has_a_solution_exactly_where_an_allocation_exists(case: Case) -> None:
    try:
        picks = Literal(case.world, "n1", case.claims, steps_max=STEPS_MAX).run()
    except TooSlow:
        assume(False)
        raise

    root = _root(case)
    assert (root is None or root is SolverAnswer.INFEASIBLE) == (picks is None)


@pytest.mark.parametrize("packed", [False, True], ids=["first fit", "packing"])
@pytest.mark.parametrize("amount", [100, 120, 140, 150])
@pytest.mark.parametrize("seed", range(4))
def test_ten_of_sixty_partitions_that_do_not_fit(seed: int, amount: int, *, packed: bool) -> None:
    """A full search takes millions of steps. No two devices, or hardly any, fit into one counter."""
    search = AllocatorSetup(a_case(seed, amount)).search("n1", packed=packed)

    assert search.run() is None
    assert search.steps <= STEPS


@pytest.mark.parametrize("packed", [False, True], ids=["first fit", "packing"])
@pytest.mark.parametrize("amount", [200, 220, 260])
@pytest.mark.parametrize("seed", range(4))
def test_ten_of_sixty_partitions_that_hardly_fit(seed: int, amount: int, *, packed: bool) -> None:
    """The search finds the devices, and they stay within the counters."""
    search = AllocatorSetup(a_case(seed, amount)).search("n1", packed=packed)
    found = search.run()

    assert found is not None
    assert len({each.number for each in found}) == 10
    assert all(left >= 0 for left in search._left[0].values())
    assert search.steps <= STEPS


@pytest.mark.parametrize(("unit", "expected"), [
    pytest.param("1", SolverAnswer.INFEASIBLE, id="amounts that can be scaled"),
    pytest.param("1000000000000000000", SolverAnswer.UNKNOWN, id="amounts that floating-point numbers cannot distinguish"),
])  # fmt: skip
def test_the_program_is_not_solved_where_its_amounts_are_too_large(unit: str, expected: SolverAnswer) -> None:
    devices = [
        api.Device(
            name=f"d{at}",
            consumes_counters=(
                api.DeviceCounterConsumption("c", {"a": api.Counter(parse(f"{unit}"))}),
                api.DeviceCounterConsumption("c", {"a": api.Counter(parse(f"{at + 1}"))}),
            ),
        )
        for at in range(3)
    ]

    assert _root(_case(devices, _claim(_request(count=2)), counters=counter_set("a", int(unit)))) is expected


@pytest.mark.parametrize("limit", ["_COLUMNS_MAX", "_TERMS_MAX"])
def test_a_program_that_would_be_too_large_is_not_built(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node may see any number of pools, so the size of the program needs a limit."""
    devices = partitions(random.Random(1), 120, COUNTERS)
    case = _case(
        devices, _claim(*(_request(where=f"u > {at}") for at in range(2))), counters=counter_set(COUNTERS, 200)
    )
    assert not isinstance(_root(case), SolverAnswer)
    monkeypatch.setattr(feasibility, limit, 200)

    assert _root(case) is SolverAnswer.UNKNOWN


def test_a_search_goes_on_without_the_solver_where_it_cannot_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search calls the solver once, and only tries devices after that."""
    devices = partitions(random.Random(1), 12, COUNTERS)
    case = _case(devices, _claim(_request(count=3)), counters=counter_set(COUNTERS, 100))
    with_solver = AllocatorSetup(case).search("n1")
    found = with_solver.run()
    monkeypatch.setattr(feasibility, "_TERMS_MAX", 0)
    without = AllocatorSetup(case).search("n1")

    assert (without.run() is None) == (found is None)
    assert (with_solver._solved > 0, without._solved) == (True, 1)
