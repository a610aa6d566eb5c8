"""Worst cases of an exhaustive search, and searches that no single bound prunes: the result is correct after little work.

The tests count work, never time: devices that were tried, and programs that were solved. They state the results, because an
exhaustive search would take too long; longer searches have shown whether a solution exists.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from scheduler.api import resource_v1 as api
from scheduler.api.meta import Metadata
from scheduler.api.quantity import parse
from scheduler.core.feature_gates import DEVICE_GATES_ON
from scheduler.plugins.dra.structured.allocator import Allocator, Picked
from tests.unit.plugins.dra.allocator_setup import AllocatorSetup
from tests.unit.plugins.dra.literal_allocator import LiteralAllocator, Pick, TooSlow, broken_rules
from tests.unit.plugins.dra.literal_devices import LiteralDevices, candidates
from tests.unit.plugins.dra.random_devices import NODES, AllocatorCase

STEPS = 600
"""A step costs some microseconds, so this limit is a few milliseconds."""
PARTS = {"1g": (1, range(7)), "2g": (2, range(0, 6, 2)), "3g": (4, (0, 4)), "4g": (4, (0,)), "7g": (8, (0,))}
"""Partitions of a GPU with seven slices and eight parts of memory: parts of memory that each takes, and where it may start."""


def _device(name: str, **more: Any) -> api.Device:
    attributes = {key: api.DeviceAttribute(int_=value) for key, value in more.pop("says", {}).items()}
    return api.Device(name=name, attributes=attributes, **more)


def _plain(count: int, **says: Callable[[int], int]) -> list[api.Device]:
    """Return devices whose attributes are computed from their numbers."""
    return [_device(f"d{at:03}", says={key: value(at) for key, value in says.items()}) for at in range(count)]


def _ids(count: int) -> list[api.Device]:
    """Return devices that each have a different value of `id`."""
    return _plain(count, id=lambda at: at)


def _partitions(gpus: int) -> list[api.Device]:
    """Return all partitions of `gpus` GPUs, which consume counters of compute and memory slices."""
    out = []
    for gpu in range(gpus):
        for name, (memory, starts) in PARTS.items():
            for start in starts:
                takes = {"slices": api.Counter(parse(name[0]))}
                takes |= {f"memory{at}": api.Counter(parse("1")) for at in range(start, start + memory)}
                out.append(
                    _device(
                        f"gpu{gpu}-{name}-{start}",
                        says={"size": int(name[0])},
                        consumes_counters=(api.DeviceCounterConsumption(f"gpu{gpu}", takes),),
                    )
                )
    return out


def _gpu_counters(gpus: int) -> tuple[api.CounterSet, ...]:
    counters = {"slices": api.Counter(parse("7"))} | {f"memory{at}": api.Counter(parse("1")) for at in range(8)}
    return tuple(api.CounterSet(f"gpu{gpu}", counters) for gpu in range(gpus))


def _parts(count: int, capacity: str) -> list[api.Device]:
    return [
        api.Device(
            name=f"d{at}", allow_multiple_allocations=True, capacity={"mem": api.DeviceCapacity(parse(capacity))}
        )
        for at in range(count)
    ]


def _request(name: str = "", count: int = 1, where: str = "any", *, everything: bool = False, mem: str = "") -> Any:
    selectors = () if where == "any" else (api.DeviceSelector(api.CelSelector(where)),)
    capacity = api.CapacityRequirements({"mem": parse(mem)}) if mem else None
    mode = "All" if everything else "ExactCount"
    return api.ExactDeviceRequest(name, "any", selectors, mode, 0 if everything else count, capacity=capacity)


def _claim(*requested: Any, match: Sequence[str] = (), distinct: Sequence[str] = ()) -> api.ResourceClaim:
    """Return a claim; a list in `requested` becomes a request with alternatives."""
    requests = tuple(
        api.DeviceRequest(f"r{at}", first_available=tuple(each))
        if isinstance(each, list)
        else api.DeviceRequest(f"r{at}", each)
        for at, each in enumerate(requested)
    )
    constraints = tuple(api.DeviceConstraint(match_attribute=f"a/{each}") for each in match)
    constraints += tuple(api.DeviceConstraint(distinct_attribute=f"a/{each}") for each in distinct)
    spec = api.ResourceClaimSpec(api.DeviceClaim(requests, constraints))
    return api.ResourceClaim(api.ClaimMetadata(name="c", namespace="default", uid="c"), spec)


def _holds(expression: str, _driver: str, device: api.Device) -> bool | str:
    """`ATTRIBUTE OPERATOR NUMBER`; without the attribute it is false."""
    name, operator, number = expression.split()
    value = device.attributes.get(name, api.DeviceAttribute()).int_
    if value is None:
        return False
    if operator == "%":
        return value % int(number) == 0
    return {"==": value == int(number), "<": value < int(number), ">": value > int(number)}[operator]


def _case(
    devices: Sequence[api.Device],
    *claims: api.ResourceClaim,
    used: Iterable[str] = (),
    counters: Sequence[api.CounterSet] = (),
    per_slice: int = 64,
) -> AllocatorCase:
    parts = [tuple(devices[at : at + per_slice]) for at in range(0, len(devices), per_slice)]
    specs: list[dict[str, Any]] = [{"devices": part} for part in parts]
    specs += [{"shared_counters": tuple(counters[at : at + 8])} for at in range(0, len(counters), 8)]
    pool = api.ResourcePool("n1", 1, len(specs))
    slices = [
        api.ResourceSlice(
            Metadata(name=f"s{at:02}"), api.ResourceSliceSpec(driver="a", pool=pool, node_name="n1", **spec)
        )
        for at, spec in enumerate(specs)
    ]
    classes = {"any": api.DeviceClass(Metadata(name="any"), api.DeviceClassSpec())}
    world = LiteralDevices(NODES, slices, classes, DEVICE_GATES_ON, _holds)
    world.exclusive = {api.DeviceId("a", "n1", name) for name in used}
    return AllocatorCase(world, list(claims))


def _on_eight_gpus(*claims: api.ResourceClaim) -> AllocatorCase:
    return _case(_partitions(8), *claims, counters=_gpu_counters(8))


def _names(count: int) -> list[str]:
    return [f"d{at:03}" for at in range(count)]


_SIZES = [f"size == {size}" for size in (1, 2, 3, 4, 7)]

IMPOSSIBLE = [
    pytest.param(lambda: _case(_plain(64), _claim(_request(count=32)), used=_names(33)), id="32 of 31 free, all equal"),
    pytest.param(lambda: _case(_ids(64), _claim(_request(count=32)), used=_names(33)),
        id="32 of 31 free, each with a different value"),
    pytest.param(lambda: _case(_ids(31), _claim(*[_request() for _ in range(32)])), id="32 requests for 31 devices"),
    pytest.param(lambda: _case(_ids(31), *[_claim(*[_request(count=8)] * 2) for _ in range(2)]),
        id="four requests of two claims for 32 of 31 devices"),
    pytest.param(lambda: _case(_ids(128), _claim(_request(count=2), match=["id"])),
        id="two of equal value, all values differ"),
    pytest.param(lambda: _case(_ids(128), _claim(*[_request()] * 8, match=["id"])),
        id="eight requests of equal value, all values differ"),
    pytest.param(lambda: _case(_plain(126, group=lambda at: at // 7, id=lambda at: at),
        _claim(*[_request()] * 8, match=["group"])), id="eight requests of equal value, seven have each"),
    pytest.param(lambda: _case(_plain(126, group=lambda at: at // 7, id=lambda at: at),
        _claim(*[_request(where=f"id > {at}") for at in range(8)], match=["group"])),
        id="eight unlike requests of equal value, seven have each"),
    pytest.param(lambda: _case(_plain(64, group=lambda at: at // 8, other=lambda at: at % 8),
        _claim(*[_request()] * 4, match=["group", "other"])), id="equal in two attributes that no two devices share"),
    pytest.param(lambda: _case(_plain(128, group=lambda at: at % 7), _claim(_request(count=8), distinct=["group"])),
        id="eight different values, there are seven"),
    pytest.param(lambda: _case(_plain(128, group=lambda at: at % 7), _claim(*[_request()] * 8, distinct=["group"])),
        id="eight requests of different values, there are seven"),
    pytest.param(lambda: _case(_plain(64, group=lambda at: at % 16, id=lambda at: at),
        _claim(*[_request(where="group < 7")] * 4, *[_request(where="group < 6")] * 4, distinct=["group"])),
        id="eight requests of different values, seven are allowed"),
    pytest.param(lambda: _case(_ids(40),
        _claim(_request(count=10, where="id < 20"), _request(count=10, where="id > 10"), _request(count=12, where="id < 30")),
        _claim(_request(count=10, where="id > 5"))), id="four sets that overlap, each large enough"),
    pytest.param(lambda: _case(_ids(60), *[_claim(*[_request(where=f"id % {each}") for each in (7, 11,
        13)]) for _ in range(6)]), id="eighteen requests for every 7th, 11th and 13th of 60"),
    *[pytest.param(lambda size=size, most=most: _case(_partitions(8),
        _claim(_request(count=most + 1, where=f"size == {size}")), counters=_gpu_counters(8)),
        id=f"{most + 1} partitions of size {size}, {most} fit on eight GPUs") for size, most in ((2, 24), (3, 16), (4,
        8), (7, 8))],
    pytest.param(lambda: _on_eight_gpus(*[_claim(*[_request(where="size == 3")] * 8) for _ in range(2)],
        _claim(_request(where="size == 2"))), id="sixteen partitions that take all memory, and one more"),
    pytest.param(lambda: _on_eight_gpus(_claim(*[_request(where="size == 4")] * 8, *[_request(where="size == 3")] * 9)), id="eight large partitions, and nine small ones where eight fit"),
    pytest.param(lambda: _on_eight_gpus(_claim(*[_request(where=_SIZES[at % 4]) for at in range(28)])), id="partitions of all sizes, more than there is"),
    pytest.param(lambda: _case(_parts(8, "10"), _claim(*[_request(mem="3")] * 25)),
        id="25 requests for 3 of 8 devices with 10"),
    pytest.param(lambda: _case(_parts(8, "10"), *[_claim(*[_request(mem="3")] * 5) for _ in range(5)]),
        id="five claims with five requests for 3 of 8 devices with 10"),
    pytest.param(lambda: _case(_parts(8, "10"), _claim(*[_request(mem="6")] * 8, *[_request(mem="4")] * 8, _request(mem="1"))),
        id="what fills 8 shared devices to the brim, and one more"),
    pytest.param(lambda: _case(_parts(4, "10"), _claim(*[_request(mem="7")] * 4, *[_request(mem="3")] * 3,
        *[_request(mem="2")] * 2)), id="parts whose sum would fit, but not as they are cut"),
    pytest.param(lambda: _case(_ids(63),
        _claim(*[[_request(f"s{s}", 8, where=f"id > {s - 1}") for s in range(4)] for _ in range(4)]),
        _claim(*[[_request(f"s{s}", 8, where=f"id > {s - 1}") for s in range(4)] for _ in range(4)])),
        id="eight lists of four alternatives for 64 of 63 devices"),
    pytest.param(lambda: _case(_ids(7),
        _claim(*[[_request(f"s{s}", where=f"id < {s + 1}") for s in range(8)] for _ in range(8)])),
        id="eight lists of eight alternatives for seven devices"),
    pytest.param(lambda: _case(_plain(32, id=lambda at: at, group=lambda at: at // 4),
        _claim(*[[_request(f"s{s}", 2 + s % 2, where=f"id > {s}") for s in range(8)] for _ in range(8)], match=["group"])),
        id="eight lists of eight alternatives of equal value, four have each"),
    pytest.param(lambda: _case(_ids(31), _claim(_request(count=3), _request(everything=True, where="id < 29"))),
        id="all of 29 after three of 31"),
    pytest.param(lambda: _case(_ids(24), _claim(*[_request(where="id > 3")] * 5, _request(everything=True, where="id > 7"))),
        id="five of twenty, then all but three of them"),
    pytest.param(lambda: _case(_plain(24, id=lambda at: at, group=lambda at: at // 12), _claim(_request(count=4),
        _request(everything=True, where="id < 6"), match=["none"])), id="all with a constraint that nothing satisfies"),
]  # fmt: skip
POSSIBLE = [
    pytest.param(lambda: _case(_ids(32), _claim(_request(count=4), _request(everything=True, where="id < 28"))), 32,
        id="all of 28 after four of 32"),
    pytest.param(lambda: _case(_plain(128), _claim(_request(count=32))), 32, id="32 of 128 equal devices"),
    pytest.param(lambda: _case(_ids(128), _claim(*[_request(where=f"id > {100 - at}") for at in range(32)])), 32,
        id="32 unlike requests for 128 devices"),
    pytest.param(lambda: _case(_plain(128, id=lambda at: at // 31), _claim(*[_request()] * 31, match=["id"])), 31,
        id="31 requests of equal value"),
    pytest.param(lambda: _case(_ids(32), _claim(*[_request(where=f"id < {at + 1}") for at in range(31, -1, -1)])), 32,
        id="32 requests, each for fewer devices than the one before"),
    pytest.param(lambda: _on_eight_gpus(_claim(*[_request(where="size == 3")] * 8, *[_request(where="size == 4")] * 8)), 16, id="small partitions first, where large ones still fit"),
    pytest.param(lambda: _case(_parts(8, "10"), _claim(*[_request(mem="4")] * 8, *[_request(mem="6")] * 8)), 16,
        id="small parts first, where large ones still fit"),
    pytest.param(lambda: _case(_ids(62), _claim(*[[_request("big", 8), _request("small", 7)] for _ in range(4)]),
        _claim(*[[_request("big", 8), _request("small", 7)] for _ in range(4)])), 62,
        id="eight lists, the last two must do with less"),
]  # fmt: skip


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_an_impossible_case_fails_after_few_steps(case: Callable[[], AllocatorCase]) -> None:
    search = AllocatorSetup(case()).search("n1")

    assert search.run() is None
    assert search.steps <= STEPS


@pytest.mark.parametrize(("case", "count"), POSSIBLE)
@pytest.mark.parametrize("packed", [False, True], ids=["first fit", "packing"])
def test_a_possible_case_succeeds_after_few_steps(
    case: Callable[[], AllocatorCase], count: int, *, packed: bool
) -> None:
    search = AllocatorSetup(case()).search("n1", packed=packed)
    found = search.run()

    assert found is not None
    assert len(found) == count
    assert search.steps <= STEPS


# -- searches that no single bound prunes --------------------------------------------------------------------------------

COUNTERS = "abcdef"


def partitions(rng: random.Random, count: int, counters: str, *, least: int = 50, most: int = 150) -> list[api.Device]:
    """Return devices that consume one to three of the counters, with an unrelated size from 0 to 2."""
    out = []
    for at in range(count):
        drawn = rng.sample(counters, rng.randint(1, min(3, len(counters))))
        takes = {name: api.Counter(parse(str(rng.randint(least, most)))) for name in drawn}
        attributes = {"u": api.DeviceAttribute(int_=at), "size": api.DeviceAttribute(int_=at % 3)}
        consumes = (api.DeviceCounterConsumption("c", takes),)
        out.append(api.Device(name=f"d{at:03}", attributes=attributes, consumes_counters=consumes))
    return out


def counter_set(counters: str, amount: int) -> tuple[api.CounterSet, ...]:
    return (api.CounterSet("c", {name: api.Counter(parse(str(amount))) for name in counters}),)


def _in_groups(rng: random.Random, groups: int) -> list[api.Device]:
    """Return sixty partitions; each belongs to one of `groups` groups."""
    return [
        api.Device(
            name=each.name,
            attributes={"group": api.DeviceAttribute(int_=at % groups)},
            consumes_counters=each.consumes_counters,
        )
        for at, each in enumerate(partitions(rng, 60, COUNTERS))
    ]


def unlike_groups(seed: int, amount: int, wanted: int) -> AllocatorCase:
    devices = _in_groups(random.Random(seed), 12)
    return _case(devices, _claim(_request(count=wanted), distinct=["group"]), counters=counter_set(COUNTERS, amount))


def many_of_many(seed: int, amount: int) -> AllocatorCase:
    """Return a claim for twenty of 120 partitions."""
    devices = partitions(random.Random(seed), 120, COUNTERS)
    return _case(devices, _claim(_request(count=20)), counters=counter_set(COUNTERS, amount))


def all_sizes(seed: int, share: float) -> AllocatorCase:
    """Return requests for GPU partitions of all sizes; together they take `share` of the slices of eight GPUs."""
    rng, slices = random.Random(seed), 0
    asks: list[api.ExactDeviceRequest] = []
    while slices < 56 * share and len(asks) < 32:
        size = rng.choice((1, 1, 2, 2, 3, 3, 4, 7))
        asks.append(_request(where=f"size == {size}"))
        slices += size
    rng.shuffle(asks)
    return _case(_partitions(8), _claim(*asks), counters=_gpu_counters(8))


def full_devices(seed: int, count: int, *, more: int = 0) -> AllocatorCase:
    """Return three parts per shared device that fill it exactly; `more` is added to the largest part."""
    rng, parts = random.Random(seed), []
    for _ in range(count):
        first, second = rng.randint(20, 45), rng.randint(20, 45)
        parts += [first, second, 100 - first - second]
    parts.sort(reverse=bool(seed % 2))
    parts[0 if seed % 2 else -1] += more
    return _case(_parts(count, "100"), _claim(*[_request(mem=str(each)) for each in parts]))


def _cut(rng: random.Random, count: int) -> list[int]:
    """Split 100 into `count` parts of similar size."""
    parts = [rng.randint(60 // count, 135 // count) for _ in range(count - 1)]
    rest = 100 - sum(parts)
    return [*parts, rest] if 30 // count <= rest <= 270 // count else _cut(rng, count)


def _taking(**amounts: int) -> api.ExactDeviceRequest:
    asked = api.CapacityRequirements({name: parse(str(each)) for name, each in amounts.items()})
    return api.ExactDeviceRequest("", "any", (), "ExactCount", 1, capacity=asked)


def _shared(at: int, *names: str, draws: tuple[api.DeviceCounterConsumption, ...] = ()) -> api.Device:
    capacity = {name: api.DeviceCapacity(parse("100")) for name in names}
    return api.Device(name=f"d{at:02}", allow_multiple_allocations=True, capacity=capacity, consumes_counters=draws)


def two_capacities(seed: int, count: int, each: int, *, moved: int = 0) -> AllocatorCase:
    """Return `each` parts per shared device that fill both capacities; then `moved` units move between two parts."""
    rng = random.Random(seed)
    wanted = [list(part) for _ in range(count) for part in zip(_cut(rng, each), _cut(rng, each), strict=True)]
    for _ in range(moved):
        (one, other), at = rng.sample(wanted, 2), rng.randrange(2)
        one[at], other[at] = one[at] + 1, other[at] - 1
    rng.shuffle(wanted)
    devices = [_shared(at, "mem", "cores") for at in range(count)]
    return _case(devices, _claim(*[_taking(mem=mem, cores=cores) for mem, cores in wanted]))


def drawing_devices(seed: int, amount: int) -> AllocatorCase:
    """Return twelve parts for sixteen shared devices that consume counters."""
    rng = random.Random(seed)
    draws = partitions(rng, 16, COUNTERS[:4])
    devices = [_shared(at, "mem", draws=each.consumes_counters) for at, each in enumerate(draws)]
    claim = _claim(*[_taking(mem=rng.randint(20, 45)) for _ in range(12)])
    return _case(devices, claim, counters=counter_set(COUNTERS[:4], amount))


def admin_between(seed: int, amount: int) -> AllocatorCase:
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
]  # fmt: skip


def _broken(case: AllocatorCase, search: Allocator, found: Sequence[Picked]) -> list[str]:
    literal = LiteralAllocator(case.world, "n1", case.claims, steps_max=0)
    with contextlib.suppress(TooSlow):
        literal.run()  # resolves the requests, and tries no device
    there = {each.id: each for pool in literal.pools for each in candidates(pool)}
    devices = [there[search._node_devices.devices[each.number].id] for each in found]
    asked = [search._demand.claims[p.claim].requests[p.request].alternatives[p.alternative] for p in found]
    return broken_rules(
        literal,
        [
            Pick(
                each.claim,
                each.request,
                -1,
                request_data.full_name,
                device,
                request_data.spec,
                None
                if each.amounts is None
                else {api.full_name(device.id.driver, name): amount for name, amount in each.amounts.items()},
            )
            for each, device, request_data in zip(found, devices, asked, strict=True)
        ],
    )


@pytest.mark.parametrize(("make", "fits", "most"), ROWS)
@pytest.mark.parametrize("packed", [False, True], ids=["first fit", "packing"])
def test_the_answer_comes_after_little_work(
    make: Callable[[], AllocatorCase], most: int, *, fits: bool, packed: bool
) -> None:
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
