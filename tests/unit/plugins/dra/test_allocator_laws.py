"""The search finds the same as the literal allocator, packing fits where first fit does, and the integer program fails only where nothing fits."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, example, given, settings, strategies as st

from scheduler.api import resource_v1 as api
from scheduler.api.quantity import parse
from scheduler.core.caching import Computed
from scheduler.core.cooperative import finish
from scheduler.plugins.dra.structured import allocator as searching, feasibility
from scheduler.plugins.dra.structured.allocator import CAREFUL_STEPS, AllocationError, Allocator, FailedOnNode, Picked
from scheduler.plugins.dra.structured.bounds import Bounds
from scheduler.plugins.dra.structured.constraints import NOTHING_SEEN
from scheduler.plugins.dra.structured.feasibility import Position, SearchState, SolverAnswer
from tests.examples import SLOW_SHARE, examples
from tests.unit.plugins.dra.allocator_setup import AllocatorSetup, cases, newer_cases, newest_cases
from tests.unit.plugins.dra.literal_allocator import LiteralAllocator, LiteralError, Pick, TooSlow, broken_rules
from tests.unit.plugins.dra.literal_devices import Candidate, candidates, left_of
from tests.unit.plugins.dra.random_devices import NODES, AllocatorCase, Maker, newer_case, newest_case
from tests.unit.plugins.dra.test_worst_cases import COUNTERS, STEPS, _case, _claim, _request, counter_set, partitions

STEPS_MAX = 30_000

ALONE = Maker(random.Random(2667661509)).case()
"""The second claim alone meets an error. With the first claim, the search ends before that error."""
NOTHING_DRAWN = Maker(random.Random(1436), is_rich=True).case()
"""A device names a counter and draws nothing from it."""
_CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much]
laws = settings(max_examples=examples(400), suppress_health_check=_CHECKS)
slow_laws = settings(max_examples=examples(400, share=SLOW_SHARE), suppress_health_check=_CHECKS)
laws_of_both = settings(laws, max_examples=examples(800))
slow_laws_of_both = settings(slow_laws, max_examples=examples(800, share=SLOW_SHARE))
"""Two thirds of the cases have what kube-scheduler 1.37 adds, and half of these what 1.38 changes."""


def _expected(case: AllocatorCase, node: str) -> tuple[LiteralAllocator, Any]:
    """Return results, None or an error text of the literal allocator; a case that is TooSlow is discarded."""
    try:
        literal = LiteralAllocator(case.world, node, case.claims, steps_max=STEPS_MAX)
        picks = literal.run()
    except TooSlow:
        assume(False)
        raise
    except LiteralError as refused:
        return literal, f"{'on node' if refused.on_node else 'failed'}: {refused}"
    return literal, picks if picks is None else [_shown(pick) for pick in picks]


def _found(setup: AllocatorSetup, node: str, expected: Any, *, packed: bool = False) -> Any:
    """Return the outcome of the search, which may miss an error only after CAREFUL_STEPS steps."""
    search = setup.search(node, packed=packed)
    try:
        picked = search.run()
    except FailedOnNode as error:
        return f"on node: {error}"
    except AllocationError as error:
        return f"failed: {error}"
    if search.steps >= CAREFUL_STEPS and isinstance(expected, str):
        return expected
    return picked if picked is None else [_comparable(search, each) for each in picked]


def _shown(pick: Pick) -> tuple[object, ...]:
    return pick.claim, pick.request, pick.name, pick.candidate.id, pick.consumed


def _comparable(search: Allocator, picked: Picked) -> tuple[object, ...]:
    device = search._node_devices.devices[picked.number].id
    asked = search._demand.claims[picked.claim].requests[picked.request].alternatives[picked.alternative]
    amounts = picked.amounts
    named = None if amounts is None else {api.full_name(device.driver, name): each for name, each in amounts.items()}
    return picked.claim, picked.request, asked.full_name, device, named


def _as_picks(literal: LiteralAllocator, case: AllocatorCase, told: Sequence[Any]) -> list[Pick]:
    there: dict[object, Candidate] = {each.id: each for pool in literal.pools for each in candidates(pool)}
    picks = []
    for c, r, name, device, amounts in told:
        request = case.claims[c].spec.devices.requests[r]
        alternative = -1
        spec = request.exactly
        if "/" in name:
            alternative = [f"{request.name}/{each.name}" for each in request.first_available].index(name)
            spec = request.first_available[alternative]
        assert spec is not None
        picks.append(Pick(c, r, alternative, name, there[device], spec, amounts))
    return picks


@laws_of_both
@given(cases | newer_cases | newest_cases)
@example(ALONE)
def test_first_fit_finds_what_trying_everything_in_order_finds(case: AllocatorCase) -> None:
    """11, 39, 45, 50, 55, 86, 87, 122, 125, 210: the cases draw these rows of docs/spec/dra.md, and many more."""
    setup = AllocatorSetup(case)
    for node in NODES:
        _, expected = _expected(case, node)

        assert _found(setup, node, expected) == expected


@slow_laws_of_both
@given(cases | newer_cases | newest_cases)
@example(ALONE)
def test_packing_finds_something_exactly_where_first_fit_does_and_breaks_no_rule(case: AllocatorCase) -> None:
    setup = AllocatorSetup(case)
    for node in NODES:
        literal, expected = _expected(case, node)
        found = _found(setup, node, expected, packed=True)

        if not isinstance(expected, list):
            assert found == expected
            continue
        assert isinstance(found, list)
        assert broken_rules(literal, _as_picks(literal, case, found)) == []


@slow_laws
@given(cases)
@example(NOTHING_DRAWN)
def test_looking_closely_from_the_start_on_finds_the_same(case: AllocatorCase) -> None:
    """Small cases are rarely hard, so the test treats every search as hard from its start."""
    setup = AllocatorSetup(case)
    for node in NODES:
        _, expected = _expected(case, node)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(searching, "_HARD", 0)

            assert _found(setup, node, expected) == expected


@laws
@given(cases)
def test_a_search_that_failed_has_given_everything_back(case: AllocatorCase) -> None:
    setup = AllocatorSetup(case)
    for node in NODES:
        search, new = setup.search(node), setup.search(node)
        try:
            found = search.run()
        except (AllocationError, FailedOnNode):
            continue
        if found is None:
            assert _state(search) == _state(new)
            assert search._free_counters == {
                pool: setup.node_devices(node).free_counters(pool) for pool in search._free_counters
            }
        else:
            for undo in reversed([each.undo for each in search._stack if each.undo is not None]):
                search._give_back(undo)
            assert _state(search) == _state(new)


def _state(search: Allocator) -> tuple[object, ...]:
    return (search._allocating, search._placed, search._taking, search._seen_values, search._picked, search._counts)


def test_the_literal_allocator_breaks_no_rule_and_meets_every_one() -> None:
    """The test guards the laws: a rule that no case reaches would always hold."""
    met: Counter[str] = Counter()
    for seed in range(3000):
        case = Maker(random.Random(seed), is_rich=seed % 2 == 1).case()
        try:
            literal = LiteralAllocator(case.world, "n1", case.claims, steps_max=STEPS_MAX)
            picks = literal.run()
        except (TooSlow, LiteralError) as ended:
            met.update([_ERRORS.search(str(ended) or "too slow").group()])  # type: ignore[union-attr]
            continue
        if picks is None:
            met.update(["nothing after more than 20 steps" if literal.steps > 20 else "nothing"])
            continue
        assert broken_rules(literal, picks) == []
        met.update(_features(case, literal, picks))

    assert {name: count for name, count in met.items() if count < 5 and name != "too slow"} == {}
    assert set(met) >= _EVERYTHING
    assert met["too slow"] < 150


_ERRORS = re.compile(
    "too slow|invalid resource pools|CEL runtime error|being updated|currently invalid|exceeds the claim limit|not found"
    "|cannot add device|empty constraint|expression empty|missing device class|has subrequests|has capacity requests"
    "|admin access is requested"
)
_EVERYTHING = frozenset(_ERRORS.pattern.split("|")) - {"too slow"} | {
    "nothing", "nothing after more than 20 steps", "all of them", "as an admin", "second alternative", "a part",
    "a part of one in parts", "counters", "counters in use", "taint tolerated", "matched", "distinct", "three claims",
    "in another pool", "of a device that says where", "binding conditions", "lists", "went back",
}  # fmt: skip


def _features(case: AllocatorCase, literal: LiteralAllocator, picks: Sequence[Pick]) -> set[str]:
    """Return the features that the result depends on."""
    world = case.world
    constraints = [each for claim in case.claims for each in claim.spec.devices.constraints]
    devices = [pick.candidate for pick in picks]
    pools_used = {each.pool.driver + each.pool.name for each in devices}
    drawn = [each for each in devices if each.device.consumes_counters]
    told = {
        "all of them": any(pick.spec.allocation_mode == "All" for pick in picks),
        "as an admin": any(pick.spec.admin_access for pick in picks),
        "second alternative": any(pick.alternative > 0 for pick in picks),
        "a part": any(pick.consumed for pick in picks),
        "a part of one in parts": any(pick.consumed and pick.candidate.id in world.shares for pick in picks),
        "counters": bool(drawn),
        "counters in use": any(left_of(world, each.pool) != each.pool.counters for each in drawn),
        "taint tolerated": any(taint.effect != "None" for each in devices for taint in each.device.taints),
        "matched": len(picks) > 1 and any(each.match_attribute for each in constraints),
        "distinct": len(picks) > 1 and any(each.distinct_attribute for each in constraints),
        "three claims": len(case.claims) == 3,
        "in another pool": len(pools_used) > 1,
        "of a device that says where": any(each.slice.spec.per_device_node_selection for each in devices),
        "binding conditions": any(each.device.binding_conditions for each in devices),
        "lists": bool(constraints) and any(one.ints for each in devices for one in each.device.attributes.values()),
        "went back": literal.steps
        > len(picks) + 3 * sum(len(claim.spec.devices.requests) + 2 for claim in case.claims),
    }
    return {name for name, holds in told.items() if holds}


def test_the_newer_cases_meet_each_rule_of_kube_scheduler_1_37() -> None:
    met: Counter[str] = Counter()
    for seed in range(1200):
        case = newer_case(seed, is_rich=seed % 2 == 1)
        try:
            picks = LiteralAllocator(case.world, "n1", case.claims, steps_max=STEPS_MAX).run() or []
        except (TooSlow, LiteralError) as ended:
            met.update(each for each in ("already accounted", "on device", "milli value") if each in str(ended))
            continue
        parts = [amount for pick in picks for amount in (pick.consumed or {}).values()]
        met["fraction"] += any(amount % 10**9 for amount in parts)
        away = [each.spec for each in case.world.slices if each.spec.shared_counters and each.spec.node_name == "n2"]
        used = {(pick.candidate.pool.driver, pick.candidate.pool.name) for pick in picks}
        met["counters of another node"] += any((spec.driver, spec.pool.name) in used for spec in away)

    assert len(met) == 5
    assert {rule: count for rule, count in met.items() if count < 5} == {}


def test_the_newest_cases_meet_each_rule_of_kube_scheduler_1_38() -> None:
    met: Counter[str] = Counter()
    texts = ("currently invalid", "being updated", "requested both as", "negative: request", "unsupported attribute")
    for seed in range(4000):
        case = newest_case(seed, is_rich=seed % 2 == 1)
        try:
            picks = LiteralAllocator(case.world, "n1", case.claims, steps_max=STEPS_MAX).run() or []
        except (TooSlow, LiteralError) as ended:
            met.update(each for each in texts if each in str(ended))
            continue
        requested = [(pick, pick.spec.capacity.requests) for pick in picks if pick.spec.capacity is not None]
        met["the other name"] += any(names.keys() - pick.candidate.device.capacity for pick, names in requested)
        held = [pick for pick in picks if pick.candidate.id in case.world.shares and pick.consumed]
        met["a share by its other name"] += any(
            case.world.shares[pick.candidate.id][0].keys() - pick.candidate.device.capacity for pick in held
        )
        versions = [a.version for pick in picks for a in pick.candidate.device.attributes.values() if a.version]
        constraints = [each for claim in case.claims for each in claim.spec.devices.constraints]
        met["build metadata"] += bool(constraints) and any("+" in version for version in versions)

    assert len(met) == len(texts) + 3
    assert {rule: count for rule, count in met.items() if count < 5} == {}


def a_case(seed: int, amount: int, *, wanted: int = 10) -> AllocatorCase:
    devices = partitions(random.Random(seed), 60, COUNTERS)
    return _case(devices, _claim(_request(count=wanted)), counters=counter_set(COUNTERS, amount))


@st.composite
def small_cases(draw: st.DrawFn) -> AllocatorCase:
    """Generate cases that are so small that every allocation can be tried."""
    rng = random.Random(draw(st.integers(0, 2**64)))
    counters = COUNTERS[: rng.randint(1, 3)]
    coarse = rng.random() < 0.5
    devices = partitions(rng, rng.randint(4, 9), counters, least=1 if coarse else 50, most=4 if coarse else 150)
    wheres = ["any", "any", "size == 0", "size < 2", "u > 2"]
    asks = [_request(count=rng.randint(1, 3), where=rng.choice(wheres)) for _ in range(rng.randint(1, 3))]
    used = [each.name for each in devices if rng.random() < 0.15]
    amount = rng.randint(2, 12) if coarse else rng.randint(100, 500)
    split = rng.randint(1, len(asks))
    claims = [_claim(*some) for some in (asks[:split], asks[split:]) if some]
    return _case(devices, *claims, used=used, counters=counter_set(counters, amount))


@st.composite
def cases_with_admins(draw: st.DrawFn) -> AllocatorCase:
    """Generate small cases with shared devices, requests for capacity, and requests with admin access."""
    rng = random.Random(draw(st.integers(0, 2**64)))
    counters, devices = COUNTERS[: rng.randint(1, 2)], []
    names = ("mem", "cores")[: rng.randint(1, 2)]
    for each in partitions(rng, rng.randint(3, 7), counters, least=1, most=4):
        capacity = {name: api.DeviceCapacity(parse(str(rng.randint(2, 9)))) for name in names}
        is_shared, draws = rng.random() < 0.6, rng.random() < 0.7
        more: dict[str, Any] = {"allow_multiple_allocations": True, "capacity": capacity} if is_shared else {}
        consumes = each.consumes_counters if draws or not is_shared else ()
        devices.append(api.Device(name=each.name, attributes=each.attributes, consumes_counters=consumes, **more))
    asks = [_anything(rng, names) for _ in range(rng.randint(1, 4))]
    cut, most = rng.randint(0, len(asks)), rng.randint(1, len(asks))
    claims = [_claim(*some) for some in (asks[:cut], asks[cut:most], asks[max(cut, most) :]) if some]
    return _case(devices, *claims, counters=counter_set(counters, rng.randint(3, 14)))


def _anything(rng: random.Random, names: Sequence[str]) -> api.ExactDeviceRequest:
    exactly: api.ExactDeviceRequest = _request(
        count=rng.choice((1, 1, 2, 3)), where=rng.choice(("any", "any", "size < 2"))
    )
    amounts = {name: parse(str(rng.randint(1, 5))) for name in names}
    kind = rng.choice(("part", "part", "admin", "plain"))
    return msgspec.structs.replace(
        exactly,
        admin_access=True if kind == "admin" else None,
        capacity=api.CapacityRequirements(amounts) if kind == "part" else None,
    )


@st.composite
def cases_of_groups(draw: st.DrawFn) -> AllocatorCase:
    """Generate partitions of few groups, and requests for devices of one group or of different ones."""
    rng = random.Random(draw(st.integers(0, 2**64)))
    devices = [
        msgspec.structs.replace(each, attributes={"group": api.DeviceAttribute(int_=rng.randint(0, 2))})
        for each in partitions(rng, rng.randint(3, 7), COUNTERS[: rng.randint(1, 2)], least=1, most=3)
    ]
    constraint = rng.choice(("match", "distinct"))
    requests = [_request(count=rng.choice((1, 2, 2))) for _ in range(rng.randint(1, 2))]
    return _case(
        devices, _claim(*requests, **{constraint: ["group"]}), counters=counter_set(COUNTERS[:2], rng.randint(2, 6))
    )


@st.composite
def cases_of_parts(draw: st.DrawFn) -> AllocatorCase:
    """Generate requests for parts of shared devices, most of which are interchangeable."""
    rng = random.Random(draw(st.integers(0, 2**64)))
    names = ("mem", "cores")[: rng.randint(1, 2)]
    kinds = [{name: api.DeviceCapacity(parse(str(rng.randint(4, 9)))) for name in names} for _ in range(2)]
    draws = (api.DeviceCounterConsumption("c", {"a": api.Counter(parse("1"))}),) if rng.random() < 0.5 else ()
    devices = [
        api.Device(
            name=f"d{at}",
            allow_multiple_allocations=True,
            capacity=kinds[rng.random() < 0.3],
            consumes_counters=draws,
        )
        for at in range(rng.randint(2, 4))
    ]
    asks = [
        msgspec.structs.replace(
            _request(count=rng.choice((1, 1, 1, 2))),
            capacity=api.CapacityRequirements({name: parse(str(rng.randint(1, 6))) for name in names}),
        )
        for _ in range(rng.randint(2, 5))
    ]
    cut = rng.randint(0, len(asks))
    claims = [_claim(*some) for some in (asks[:cut], asks[cut:]) if some]
    return _case(devices, *claims, counters=counter_set("a", rng.randint(1, 4)))


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
UNLIKE_GROUPS = _case(
    [
        api.Device(
            name=name,
            attributes={"group": api.DeviceAttribute(int_=group)},
            consumes_counters=(api.DeviceCounterConsumption("c", {counter: api.Counter(parse(amount))}),),
        )
        for name, group, counter, amount in (("d0", 1, "a", "2"), ("d1", 1, "b", "1"), ("d2", 2, "a", "2"))
    ],
    _claim(_request(count=2), distinct=["group"]),
    counters=counter_set("ab", 3),
)
"""d0 draws no more than d2, but is no replacement for it."""


@settings(max_examples=examples(300, share=SLOW_SHARE))
@given(
    small_cases() | cases_with_admins() | cases_of_parts() | cases_of_groups(),
    st.booleans(),
)
@example(ADMIN_WITH_ALL_OF_ANOTHER, False)
def test_looking_closely_at_counters_changes_nothing_but_the_steps(case: AllocatorCase, packed: bool) -> None:
    """The first fit is still the allocation that a full search in order finds, also where it takes several programs."""
    try:
        picks = LiteralAllocator(case.world, "n1", case.claims, steps_max=STEPS_MAX).run()
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


def _root(case: AllocatorCase) -> object:
    """Solve the state before any device is picked; None if counting and matching already reject it."""
    setup = AllocatorSetup(case)
    node_devices = setup.node_devices("n1")
    bounds = Bounds(setup.demand, node_devices, {})
    known = (NOTHING_SEEN,) * len(setup.demand.claims[0].constraints)
    now = SearchState(node_devices.used, 0, known, {}, Computed(node_devices.free_counters))
    rest = (1 << len(node_devices.devices)) - 1
    return finish(bounds.solving(now)) if bounds.viable(Position(), rest, now) else None


@settings(max_examples=examples(300, share=SLOW_SHARE))
@given(small_cases() | cases_of_parts() | cases_of_groups(), st.sampled_from((1, 512)))
@example(UNLIKE_GROUPS, 512)
def test_the_program_has_a_solution_exactly_where_an_allocation_exists(case: AllocatorCase, compared: int) -> None:
    """Also in a pool of too many devices to compare each with each."""
    try:
        picks = LiteralAllocator(case.world, "n1", case.claims, steps_max=STEPS_MAX).run()
    except TooSlow:
        assume(False)
        raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feasibility, "_COMPARED_MAX", compared)
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


@pytest.mark.parametrize("amount", [200, 220, 260])
@pytest.mark.parametrize("seed", range(2))
def test_the_first_fit_of_many_partitions_is_the_one_that_a_solved_prefix_leads_to(seed: int, amount: int) -> None:
    """Before each device of the allocation, no earlier one leads to a solution; a program without an order decides that."""
    devices = partitions(random.Random(seed), 60, COUNTERS)
    found = AllocatorSetup(a_case(seed, amount)).search("n1").run()
    assert found is not None
    picked = {each.number for each in found}
    left, wanted = dict.fromkeys(COUNTERS, amount), 10
    for number in range(max(picked)):
        draws = _draws_of(devices[number])
        rest = {name: left[name] - draws.get(name, 0) for name in COUNTERS}
        leads_on = min(rest.values()) >= 0 and _fits(devices[number + 1 :], rest, wanted - 1)
        assert leads_on == (number in picked)
        if leads_on:
            left, wanted = rest, wanted - 1


def _draws_of(device: api.Device) -> dict[str, int]:
    return {name: each.value.nano // 10**9 for name, each in device.consumes_counters[0].counters.items()}


def _fits(devices: Sequence[api.Device], left: Mapping[str, int], wanted: int) -> bool:
    counters = (api.CounterSet("c", {name: api.Counter(parse(str(amount))) for name, amount in left.items()}),)
    found = _root(_case(devices, _claim(_request(count=wanted)), counters=counters))
    return found is not None and not isinstance(found, SolverAnswer)


@pytest.mark.parametrize("packed", [False, True], ids=["first fit", "packing"])
@pytest.mark.parametrize("amount", [200, 220, 260])
@pytest.mark.parametrize("seed", range(4))
def test_ten_of_sixty_partitions_that_hardly_fit(seed: int, amount: int, *, packed: bool) -> None:
    """The search finds the devices, and they stay within the counters."""
    search = AllocatorSetup(a_case(seed, amount)).search("n1", packed=packed)
    found = search.run()

    assert found is not None
    assert len({each.number for each in found}) == 10
    assert all(left >= 0 for left in search._free_counters[0].values())
    assert search.steps <= STEPS


@pytest.mark.parametrize(("unit", "expected"), [
    pytest.param("1", SolverAnswer.INFEASIBLE, id="amounts that can be scaled"),
    pytest.param("1000000000000000000", SolverAnswer.UNKNOWN, id="amounts that floating-point numbers cannot distinguish"),
])  # fmt: skip
def test_the_program_is_not_solved_where_its_amounts_are_too_large(unit: str, expected: SolverAnswer) -> None:
    amounts = [{"a": int(unit) + at, "b": int(unit) + 2 - at} for at in range(3)]
    devices = [
        api.Device(
            name=f"d{at}",
            consumes_counters=(
                api.DeviceCounterConsumption("c", {name: api.Counter(parse(f"{each}")) for name, each in some.items()}),
            ),
        )
        for at, some in enumerate(amounts)
    ]

    assert _root(_case(devices, _claim(_request(count=2)), counters=counter_set("ab", 2 * int(unit) + 1))) is expected


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


def test_the_worked_example_of_the_allocator_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module's docstring has the objects, each state that the search passes, and the result."""
    example = re.search(r"    in: .*?    out: [^\n]*", searching.__doc__ or "", re.DOTALL)
    assert example is not None
    start, *_ = lines = [line.strip() for line in example[0].splitlines()]
    room = re.search(r"counter (\w+) (\d+)", start)
    assert room is not None
    counter, amount = room.groups()
    devices = [
        api.Device(
            name=name, consumes_counters=(api.DeviceCounterConsumption("c", {counter: api.Counter(parse(draws))}),)
        )
        for name, draws in re.findall(r"(\w+) draws (\d+)", start)
    ]
    counters = (api.CounterSet("c", {counter: api.Counter(parse(amount))}),)
    case = _case(devices, _claim(_request(count=int(start.split()[-2]))), counters=counters)
    search, passed = AllocatorSetup(case).search("n1"), [start]
    names = [each.id.device for each in search._node_devices.devices]
    take, give_back = search._take, search._give_back

    def left() -> str:
        return f"{counter} {search._free_counters[0]['c', counter] // 10**9}"

    def recorded_take(choice: Any, request_data: Any, number: int) -> Any:
        undo = take(choice, request_data, number)
        passed.append(f"refuse {names[number]}" if undo is None else f"take {names[number]}: {left()}")
        return undo

    def recorded_give_back(undo: Any) -> None:
        give_back(undo)
        passed.append(f"give back {names[undo.picked.number]}: {left()}")

    monkeypatch.setattr(search, "_take", recorded_take)
    monkeypatch.setattr(search, "_give_back", recorded_give_back)
    found = search.run()

    assert found is not None
    assert [*passed, f"out: {', '.join(names[each.number] for each in found)}"] == lines
