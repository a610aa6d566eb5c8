"""The laws of `test_allocator_laws` for cases with what kube-scheduler 1.37 adds."""

from __future__ import annotations

import functools
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from tests.unit.plugins.dra.allocator_setup import AllocatorSetup
from tests.unit.plugins.dra.literal_allocator import Literal, Refused, TooSlow, broken_rules
from tests.unit.plugins.dra.newer_cases import newer_case
from tests.unit.plugins.dra.random_devices import NODES
from tests.unit.plugins.dra.test_allocator_laws import STEPS_MAX, _as_picks, _expected, _found, laws, slow_laws


@laws
@given(st.integers(0, 2**64), st.booleans())
def test_first_fit_finds_what_trying_everything_in_order_finds(seed: int, is_rich: bool) -> None:
    case = newer_case(seed, is_rich=is_rich)
    setup = AllocatorSetup(case)
    for node in NODES:
        _, expected = _expected(case, node)

        assert _found(setup, node, expected) == expected


@slow_laws
@given(st.integers(0, 2**64), st.booleans())
def test_packing_finds_devices_exactly_where_first_fit_does_and_breaks_no_rule(seed: int, is_rich: bool) -> None:
    case = newer_case(seed, is_rich=is_rich)
    setup = AllocatorSetup(case)
    for node in NODES:
        literal, expected = _expected(case, node)
        found = _found(setup, node, expected, packed=True)

        if not isinstance(expected, list):
            assert found == expected
            continue
        assert isinstance(found, list)
        assert broken_rules(literal, _as_picks(literal, case, found)) == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("already accounted", id="the limit of devices names a request"),
        pytest.param("on device", id="a selector fails on a device"),
        pytest.param("milli value", id="a request is no whole thousandth"),
        pytest.param("fraction", id="a share is a fraction"),
        pytest.param("counters of another node", id="counters are published for another node"),
    ],
)
def test_the_cases_reach_each_rule(text: str) -> None:
    assert _reached()[text] >= 5


@functools.cache
def _reached() -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in range(1200):
        case = newer_case(seed, is_rich=seed % 2 == 1)
        literal = Literal(case.world, "n1", case.claims, steps_max=STEPS_MAX)
        try:
            picks = literal.run() or []
        except TooSlow:
            continue
        except Refused as refused:
            found.update(each for each in ("already accounted", "on device", "milli value") if each in str(refused))
            continue
        parts = [amount for pick in picks for amount in (pick.consumed or {}).values()]
        found["fraction"] += any(amount % 10**9 for amount in parts)
        away = [each.spec for each in case.world.slices if each.spec.shared_counters and each.spec.node_name == "n2"]
        used = {(pick.candidate.pool.driver, pick.candidate.pool.name) for pick in picks}
        found["counters of another node"] += any((spec.driver, spec.pool.name) in used for spec in away)
    return found
