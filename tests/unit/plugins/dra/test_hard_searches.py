"""Some searches are hard because no single bound prunes them: the answer comes after little work nevertheless.

The tests count work instead of time: devices that were tried, and programs that were solved. Longer searches have shown
whether a solution exists. The literal allocator checks that a solution breaks no rule.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence

import pytest

from scheduler.api import resource_v1 as api
from scheduler.api.quantity import parse
from scheduler.core.feature_gates import LIST_TYPES
from scheduler.plugins.dra.structured.allocator import Allocator, Picked
from tests.unit.plugins.dra.allocator_setup import AllocatorSetup
from tests.unit.plugins.dra.literal_allocator import Literal, Pick, TooSlow, broken_rules
from tests.unit.plugins.dra.literal_devices import candidates
from tests.unit.plugins.dra.random_devices import Case
from tests.unit.plugins.dra.test_feasibility import COUNTERS, counter_set, partitions
from tests.unit.plugins.dra.test_worst_cases import _case, _claim, _gpu_counters, _partitions, _parts, _request


def _in_groups(chance: random.Random, groups: int) -> list[api.Device]:
    """Return sixty partitions; each belongs to one of `groups` groups."""
    return [
        api.Device(
            name=each.name,
            attributes={"group": api.DeviceAttribute(int_=at % groups)},
            consumes_counters=each.consumes_counters,
        )
        for at, each in enumerate(partitions(chance, 60, COUNTERS))
    ]


def unlike_groups(seed: int, amount: int, wanted: int) -> Case:
    devices = _in_groups(random.Random(seed), 12)
    return _case(devices, _claim(_request(count=wanted), distinct=["group"]), counters=counter_set(COUNTERS, amount))


def many_of_many(seed: int, amount: int) -> Case:
    """Return a claim for twenty of 120 partitions."""
    devices = partitions(random.Random(seed), 120, COUNTERS)
    return _case(devices, _claim(_request(count=20)), counters=counter_set(COUNTERS, amount))


def all_sizes(seed: int, share: float) -> Case:
    """Return requests for GPU partitions of all sizes; together they take `share` of the slices of eight GPUs."""
    chance, slices = random.Random(seed), 0
    asks: list[api.ExactDeviceRequest] = []
    while slices < 56 * share and len(asks) < 32:
        size = chance.choice((1, 1, 2, 2, 3, 3, 4, 7))
        asks.append(_request(where=f"size == {size}"))
        slices += size
    chance.shuffle(asks)
    return _case(_partitions(8), _claim(*asks), counters=_gpu_counters(8))


def full_devices(seed: int, count: int, *, more: int = 0) -> Case:
    """Return three parts per shared device that fill it exactly; `more` is added to the largest part."""
    chance, parts = random.Random(seed), []
    for _ in range(count):
        first, second = chance.randint(20, 45), chance.randint(20, 45)
        parts += [first, second, 100 - first - second]
    parts.sort(reverse=bool(seed % 2))
    parts[0 if seed % 2 else -1] += more
    return _case(_parts(count, "100"), _claim(*[_request(mem=str(each)) for each in parts]))


def disjoint_lists(seed: int, count: int) -> Case:
    """Return a claim for six devices without a common value; each device has three of eighteen values."""
    chance = random.Random(seed)
    devices = [
        api.Device(name=f"d{at:02}", attributes={"net": api.DeviceAttribute(ints=tuple(chance.sample(range(18), 3)))})
        for at in range(count)
    ]
    case = _case(devices, _claim(_request(count=6), distinct=["net"]))
    case.world.gates |= {LIST_TYPES}
    return case


def _cut(chance: random.Random, count: int) -> list[int]:
    """Split 100 into `count` parts of similar size."""
    parts = [chance.randint(60 // count, 135 // count) for _ in range(count - 1)]
    rest = 100 - sum(parts)
    return [*parts, rest] if 30 // count <= rest <= 270 // count else _cut(chance, count)


def _taking(**amounts: int) -> api.ExactDeviceRequest:
    asked = api.CapacityRequirements({name: parse(str(each)) for name, each in amounts.items()})
    return api.ExactDeviceRequest("", "any", (), "ExactCount", 1, capacity=asked)


def _shared(at: int, *names: str, draws: tuple[api.DeviceCounterConsumption, ...] = ()) -> api.Device:
    capacity = {name: api.DeviceCapacity(parse("100")) for name in names}
    return api.Device(name=f"d{at:02}", allow_multiple_allocations=True, capacity=capacity, consumes_counters=draws)


def two_capacities(seed: int, count: int, each: int, *, moved: int = 0) -> Case:
    """Return `each` parts per shared device that fill both capacities; then `moved` units move between two parts."""
    chance = random.Random(seed)
    wanted = [list(part) for _ in range(count) for part in zip(_cut(chance, each), _cut(chance, each), strict=True)]
    for _ in range(moved):
        (one, other), at = chance.sample(wanted, 2), chance.randrange(2)
        one[at], other[at] = one[at] + 1, other[at] - 1
    chance.shuffle(wanted)
    devices = [_shared(at, "mem", "cores") for at in range(count)]
    return _case(devices, _claim(*[_taking(mem=mem, cores=cores) for mem, cores in wanted]))


def drawing_devices(seed: int, amount: int) -> Case:
    """Return twelve parts for sixteen shared devices that consume counters."""
    chance = random.Random(seed)
    draws = partitions(chance, 16, COUNTERS[:4])
    devices = [_shared(at, "mem", draws=each.consumes_counters) for at, each in enumerate(draws)]
    claim = _claim(*[_taking(mem=chance.randint(20, 45)) for _ in range(12)])
    return _case(devices, claim, counters=counter_set(COUNTERS[:4], amount))


def admin_between(seed: int, amount: int) -> Case:
    """Return three claims: for five partitions, for three with admin access, and for four."""
    devices = partitions(random.Random(seed), 60, COUNTERS)
    admin = api.ExactDeviceRequest("", "any", (), "ExactCount", 3, admin_access=True)
    claims = [_claim(_request(count=5)), _claim(admin), _claim(_request(count=4))]
    return _case(devices, *claims, counters=counter_set(COUNTERS, amount))


PROGRAMS_MAX = 60


@pytest.fixture(autouse=True)
def patient_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the time limit of the solver: a busy machine must not end a program, because the test counts work."""
    monkeypatch.setattr("scheduler.plugins.dra.structured.feasibility.SOLVER_LIMIT_S", 600.0)


ROWS = [
    *[pytest.param(lambda seed=seed: unlike_groups(seed, 200, 10), False, 400,
        id=f"ten of unlike groups, {seed}") for seed in (1, 2, 3)],
    *[pytest.param(lambda seed=seed, amount=amount: many_of_many(seed, amount), True, 4000,
        id=f"twenty of 120, {seed}") for seed, amount in ((0, 300), (1, 300), (2, 340))],
    pytest.param(lambda: all_sizes(0, 1.0), True, 1500, id="sizes that take whole GPUs"),
    pytest.param(lambda: all_sizes(1, 1.0), False, 1000, id="sizes that would take more than whole GPUs"),
    *[pytest.param(lambda seed=seed: full_devices(seed, 5), True, 300,
        id=f"shared devices, filled to the brim, {seed}") for seed in (0, 2, 4)],
    pytest.param(lambda: full_devices(0, 5, more=1), False, 50, id="shared devices, filled to the brim and one more"),
    *[pytest.param(lambda seed=seed: two_capacities(seed, 5, 3, moved=1), False, 200,
        id=f"two capacities, nearly filled, {seed}") for seed in (0, 1)],
    *[pytest.param(lambda seed=seed, fits=fits: drawing_devices(seed, 150), fits, 700,
        id=f"shared devices that draw, {seed}") for seed, fits in ((0, False), (1, False), (4, True), (5, True))],
    *[pytest.param(lambda seed=seed, amount=amount: admin_between(seed, amount), True, 2000,
        id=f"an administrator between, {amount}") for seed, amount in ((2, 200), (2, 220), (3, 240))],
    *[pytest.param(lambda seed=seed: disjoint_lists(seed, 30), False, 150,
        id=f"lists with nothing in common, {seed}") for seed in (0, 1, 2)],
]  # fmt: skip


def _broken(case: Case, search: Allocator, found: Sequence[Picked]) -> list[str]:
    literal = Literal(case.world, "n1", case.claims, steps_max=0)
    with contextlib.suppress(TooSlow):
        literal.run()  # resolves the requests, and tries no device
    there = {each.id: each for pool in literal.pools for each in candidates(pool)}
    devices = [there[search._node_devices.devices[each.number].id] for each in found]
    return broken_rules(
        literal,
        [
            Pick(
                each.claim,
                each.request,
                -1,
                each.request_data.full_name,
                device,
                each.request_data.spec,
                None if each.amounts is None else dict(each.amounts),
            )
            for each, device in zip(found, devices, strict=True)
        ],
    )


@pytest.mark.parametrize(("make", "fits", "most"), ROWS)
@pytest.mark.parametrize("packed", [False, True], ids=["first fit", "packing"])
def test_the_answer_comes_after_little_work(make: Callable[[], Case], most: int, *, fits: bool, packed: bool) -> None:
    case = make()
    search = AllocatorSetup(case).search("n1", packed=packed)
    found = search.run()

    assert (found is not None) == fits
    assert search.steps <= most
    assert search._solved <= PROGRAMS_MAX
    if found is not None:
        asked = [request.exactly for claim in case.claims for request in claim.spec.devices.requests]
        assert len(found) == sum(exactly.count for exactly in asked if exactly is not None)
        assert _broken(case, search, found) == []
