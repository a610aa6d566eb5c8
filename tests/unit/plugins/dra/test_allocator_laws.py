"""Whatever the search leaves out, it finds what trying everything in order finds; packing finds something as good."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, assume, given, settings, strategies as st

from scheduler.cache.deviceclasses import DeviceClasses
from scheduler.cache.devicekinds import DeviceKind
from scheduler.cache.devicenodes import DeviceNodes
from scheduler.cache.deviceuse import DeviceUse
from scheduler.cache.nodes import Nodes
from scheduler.core.devicegates import CONSUMABLE, PARTITIONABLE
from scheduler.core.meta import Metadata
from scheduler.core.node import Node
from scheduler.core.quantity import from_nano
from scheduler.core.resourceclaims import AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult
from scheduler.plugins.dra.demand import Demand, Demands
from scheduler.plugins.dra.packing import packing
from scheduler.plugins.dra.search import AllocationError, FailedOnNode, Picked, Search
from scheduler.plugins.dra.seats import Rules, Seats
from scheduler.plugins.dra.selecting import SelectorSets
from tests.unit.plugins.dra.literal_allocator import (
    Candidate,
    Literal,
    Pick,
    Refused,
    TooSlow,
    World,
    broken_rules,
    candidates,
)
from tests.unit.plugins.dra.random_devices import NODES, Case, Maker
from tests.unit.plugins.dra.rooms import Room

STEPS_MAX = 30_000

cases = st.builds(lambda seed: Maker(random.Random(seed)).case(), st.integers(0, 2**64))
laws = settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def _expected(case: Case, node: str) -> tuple[Literal, Any]:
    """What the literal allocator finds: results, None, or a text; TooSlow is nothing to compare with."""
    try:
        literal = Literal(case.world, node, case.claims, steps_max=STEPS_MAX)
        picks = literal.run()
    except TooSlow:
        assume(False)  # noqa: FBT003
        raise
    except Refused as refused:
        return literal, f"{'on node' if refused.on_node else 'failed'}: {refused}"
    return literal, picks if picks is None else [_shown(pick) for pick in picks]


def _found(room: Room, node: str, *, packed: bool = False) -> Any:
    search = room.search(node, packed=packed)
    try:
        picked = search.run()
    except FailedOnNode as error:
        return f"on node: {error}"
    except AllocationError as error:
        return f"failed: {error}"
    return picked if picked is None else [_told(search, each) for each in picked]


def _shown(pick: Pick) -> tuple[object, ...]:
    return pick.claim, pick.request, pick.name, pick.candidate.id, pick.consumed


def _told(search: Search, picked: Picked) -> tuple[object, ...]:
    device = search._seats.devices[picked.number].id
    return picked.claim, picked.request, picked.ask.full_name, device, picked.amounts


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


@laws
@given(cases)
def test_first_fit_finds_what_trying_everything_in_order_finds(case: Case) -> None:
    room = Room(case)
    for node in NODES:
        _, expected = _expected(case, node)

        assert _found(room, node) == expected


@laws
@given(cases)
def test_packing_finds_something_exactly_where_first_fit_does_and_breaks_no_rule(case: Case) -> None:
    room = Room(case)
    for node in NODES:
        literal, expected = _expected(case, node)
        found = _found(room, node, packed=True)

        if not isinstance(expected, list):
            assert found == expected
            continue
        assert isinstance(found, list)
        assert broken_rules(literal, _as_picks(literal, case, found)) == []


def test_the_literal_allocator_breaks_no_rule_and_meets_every_one() -> None:
    """Guards the laws: a rule that no case reaches would hold of anything."""
    met: Counter[str] = Counter()
    for seed in range(2000):
        case = Maker(random.Random(seed)).case()
        literal = None
        try:
            literal = Literal(case.world, "n1", case.claims, steps_max=STEPS_MAX)
            picks = literal.run()
        except TooSlow:
            met["too slow"] += 1
            continue
        except Refused as refused:
            met[str(refused)] += 1
            continue
        if picks is None:
            met["nil"] += 1
            continue
        met["found"] += 1
        assert broken_rules(literal, picks) == []
    print(met.most_common(60))
