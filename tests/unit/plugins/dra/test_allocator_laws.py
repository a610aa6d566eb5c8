"""The search finds the same results as the literal allocator; packing fits exactly where first fit does."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings

from scheduler.plugins.dra.structured import allocator as searching
from scheduler.plugins.dra.structured.allocator import CAREFUL_STEPS, AllocationError, Allocator, FailedOnNode, Picked
from tests.examples import SLOW_SHARE, examples
from tests.unit.plugins.dra.allocator_setup import AllocatorSetup, cases, newer_cases
from tests.unit.plugins.dra.literal_allocator import Literal, Pick, Refused, TooSlow, broken_rules
from tests.unit.plugins.dra.literal_devices import Candidate, candidates, left_of
from tests.unit.plugins.dra.random_devices import NODES, Case, Maker, newer_case

STEPS_MAX = 30_000

ALONE = Maker(random.Random(2667661509)).case()
"""The second claim alone meets an error. With the first claim, the search ends before that error."""
_CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much]
laws = settings(max_examples=examples(400), suppress_health_check=_CHECKS)
slow_laws = settings(max_examples=examples(400, share=SLOW_SHARE), suppress_health_check=_CHECKS)
laws_of_both = settings(laws, max_examples=examples(800))
slow_laws_of_both = settings(slow_laws, max_examples=examples(800, share=SLOW_SHARE))
"""Half of the cases have what kube-scheduler 1.37 adds."""


def _expected(case: Case, node: str) -> tuple[Literal, Any]:
    """Return results, None or an error text of the literal allocator; a case that is TooSlow is discarded."""
    try:
        literal = Literal(case.world, node, case.claims, steps_max=STEPS_MAX)
        picks = literal.run()
    except TooSlow:
        assume(False)
        raise
    except Refused as refused:
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
    return picked.claim, picked.request, picked.request_data.full_name, device, picked.amounts


def _as_picks(literal: Literal, case: Case, told: Sequence[Any]) -> list[Pick]:
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
@given(cases | newer_cases)
@example(ALONE)
def test_first_fit_finds_what_trying_everything_in_order_finds(case: Case) -> None:
    """11, 39, 45, 50, 55, 86, 87, 122, 125, 210: the cases draw these rows of docs/spec/dra.md, and many more."""
    setup = AllocatorSetup(case)
    for node in NODES:
        _, expected = _expected(case, node)

        assert _found(setup, node, expected) == expected


@slow_laws_of_both
@given(cases | newer_cases)
@example(ALONE)
def test_packing_finds_something_exactly_where_first_fit_does_and_breaks_no_rule(case: Case) -> None:
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
def test_looking_closely_from_the_start_on_finds_the_same(case: Case) -> None:
    """Small cases are rarely hard, so the test treats every search as hard from its start."""
    setup = AllocatorSetup(case)
    for node in NODES:
        _, expected = _expected(case, node)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(searching, "_HARD", 0)

            assert _found(setup, node, expected) == expected


@laws
@given(cases)
def test_a_search_that_failed_has_given_everything_back(case: Case) -> None:
    setup = AllocatorSetup(case)
    for node in NODES:
        search, new = setup.search(node), setup.search(node)
        try:
            found = search.run()
        except (AllocationError, FailedOnNode):
            continue
        if found is None:
            assert _state(search) == _state(new)
            assert search._left == {pool: setup.node_devices(node).left_in(pool) for pool in search._left}
        else:
            for undo in reversed([each.undo for each in search._stack if each.undo is not None]):
                search._give_back(undo)
            assert _state(search) == _state(new)


def _state(search: Allocator) -> tuple[object, ...]:
    return (search._allocating, search._placed, search._taking, search._known, search._picked, search._counts)


def test_the_literal_allocator_breaks_no_rule_and_meets_every_one() -> None:
    """The test guards the laws: a rule that no case reaches would always hold."""
    met: Counter[str] = Counter()
    for seed in range(3000):
        case = Maker(random.Random(seed), is_rich=seed % 2 == 1).case()
        try:
            literal = Literal(case.world, "n1", case.claims, steps_max=STEPS_MAX)
            picks = literal.run()
        except (TooSlow, Refused) as ended:
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


def _features(case: Case, literal: Literal, picks: Sequence[Pick]) -> set[str]:
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
            picks = Literal(case.world, "n1", case.claims, steps_max=STEPS_MAX).run() or []
        except (TooSlow, Refused) as ended:
            met.update(each for each in ("already accounted", "on device", "milli value") if each in str(ended))
            continue
        parts = [amount for pick in picks for amount in (pick.consumed or {}).values()]
        met["fraction"] += any(amount % 10**9 for amount in parts)
        away = [each.spec for each in case.world.slices if each.spec.shared_counters and each.spec.node_name == "n2"]
        used = {(pick.candidate.pool.driver, pick.candidate.pool.name) for pick in picks}
        met["counters of another node"] += any((spec.driver, spec.pool.name) in used for spec in away)

    assert len(met) == 5
    assert {rule: count for rule, count in met.items() if count < 5} == {}
