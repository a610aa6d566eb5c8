"""The score of prioritized lists: docs/spec/dra.md §3.6, rows 309, 310."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler.core.cooperative import answered, finish
from scheduler.plugins.dra.scoring import has_alternatives
from simulator.builders.claims import ClaimBuilder, RequestOptions, a_claim, a_result, an_option
from simulator.builders.core import Builder
from simulator.builders.devices import a_device, a_slice
from tests.unit.plugins.dra.served import Served, using

NONE = 'device.driver == "none"'
N1, N2 = a_slice("n1", "a", a_device("d0"), a_device("d1")), a_slice("n2", "b", a_device("d0"), a_device("d1"))


def choosing(name: str, *classes: str) -> ClaimBuilder:
    """Return a claim with one request for the first available of these classes."""
    return listing(a_claim(name), "r", *classes)


def listing(claim: ClaimBuilder, request: str, *classes: str) -> ClaimBuilder:
    no_device: RequestOptions = {"cel": NONE}
    options = [
        an_option(f"s{at}", each or "A", **(RequestOptions() if each else no_device)) for at, each in enumerate(classes)
    ]
    return claim.first_available(request, *options)


def raw(world: Served, *claims: str) -> dict[str, int]:
    """Return the raw score of each node that takes the pod."""
    info = using(*claims)
    state, groups = world.filter(info)
    assert isinstance(groups, dict), groups
    left = world.cluster.nodes.present
    for out in groups.values():
        left &= ~out
    scores = finish(answered(world.plugin.score(state, info, left)))
    return {world.cluster.nodes.name(slot): int(scores[slot]) for slot in range(2) if left >> slot & 1}


LATE = ("", "", "", "", "", "", "", "A")
HELD = choosing("h", "A", "B").allocated(a_result("r/s1", "b/n1/d9"))


@pytest.mark.parametrize(("things", "claims", "expected"), [
    pytest.param([choosing("c", "A", "B")], ("c",), {"n1": 8, "n2": 7},
        id="309 n1 has the first class and n2 the second"),
    pytest.param([choosing("c", "A", "B"), choosing("d", *LATE)], ("c", "d"), {"n1": 9},
        id="309 one of two claims gets its last class"),
    pytest.param([HELD, choosing("c", "A", "B")], ("h", "c"), {"n1": 15, "n2": 14},
        id="309 one of two claims is allocated"),
])  # fmt: skip
def test_raw_scores(things: list[Builder[Any]], claims: tuple[str, ...], expected: dict[str, int]) -> None:
    """The score is 8 minus the index of the alternative on the node, summed over all lists."""
    assert expected == raw(Served(N1, N2, *things, bare=True), *claims)


@pytest.mark.parametrize(("scores", "expected"), [
    pytest.param([8, 7], [100, 87], id="310 8/7"),
    pytest.param([15, 13], [100, 86], id="310 15/13"),
    pytest.param([16, 15, 14], [100, 93, 87], id="310 16/15/14"),
    pytest.param([0, 0], [0, 0], id="310 zero stays zero"),
])  # fmt: skip
def test_normalised_scores(scores: list[int], expected: list[int]) -> None:
    """A score becomes its percentage of the best score, rounded down."""
    world = Served()
    state, _ = world.pre_filter(using())

    found = world.plugin.normalize_score(state, using(), np.array(scores), np.arange(len(scores)))

    assert expected == found.tolist()


def test_only_candidates_count_for_the_best_score() -> None:
    """310: slots outside the candidates may hold any value."""
    world = Served()
    state, _ = world.pre_filter(using())

    found = world.plugin.normalize_score(state, using(), np.array([4, 99, 8]), np.array([0, 2]))

    assert [50, 100] == found[[0, 2]].tolist()


@pytest.mark.parametrize(("claim", "expected"), [
    pytest.param(choosing("c", "A", "B"), False, id="a claim with a list is scored"),
    pytest.param(a_claim("c").request("r", "A"), True, id="a claim without a list skips Score, and Verify may wait"),
])  # fmt: skip
def test_when_score_is_skipped(claim: ClaimBuilder, *, expected: bool) -> None:
    """D3: a plugin that reads the results of Verify requires Verify first."""
    world = Served(claim)

    state, _ = world.pre_filter(using("c"))

    assert expected == ("DynamicResources" in state.skip_score)
    assert expected != has_alternatives([claim.typed()])
