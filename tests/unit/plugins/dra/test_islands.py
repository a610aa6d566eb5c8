"""What fits on several boards together is what some choice of their devices gives."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings, strategies as st

from scheduler.core.turns import finish
from scheduler.plugins.dra.islands import Island, TooMany, may_fit
from tests.examples import examples


def an_island(chance: random.Random, sorts: int, counters: int) -> Island:
    most = chance.choice((1, 3, 100))
    left = tuple(chance.randint(0, 2 * most) for _ in range(counters))
    draws = [tuple(chance.randint(0, min(most, each)) for each in left) for _ in range(chance.randint(0, 5))]
    return Island(tuple((chance.randrange(sorts), each) for each in draws), left)


def some_fit(islands: list[Island], wanted: tuple[int, ...]) -> bool:
    """Tried with every choice of devices of every island."""
    choices = [
        {
            tuple(sum(sort == one for sort, _ in some) for one in range(len(wanted)))
            for size in range(len(island.devices) + 1)
            for some in itertools.combinations(island.devices, size)
            if all(sum(amounts[at] for _, amounts in some) <= room for at, room in enumerate(island.left))
        }
        for island in islands
    ]
    return any(
        all(sum(counts) >= count for counts, count in zip(zip(*one, strict=True), wanted, strict=True))
        for one in itertools.product(*choices)
    )


@settings(max_examples=examples(500))
@given(st.integers(0, 2**64))
def test_they_add_up_exactly_if_some_choice_does(seed: int) -> None:
    """Asked several times, for what fits on an island is remembered; islands that are alike are known once."""
    chance = random.Random(seed)
    sorts = chance.randint(1, 3)
    all_islands = [an_island(chance, sorts, chance.randint(0, 3)) for _ in range(2)]
    for _ in range(4):
        islands = [chance.choice(all_islands) for _ in range(chance.randint(1, 3))]
        wanted = tuple(chance.randint(0, 5) for _ in range(sorts))

        assert finish(may_fit(islands, wanted)) == some_fit(islands, wanted)


def test_an_island_with_too_much_on_it_is_left_to_others() -> None:
    island = Island(tuple((0, (at,)) for at in range(100)), (1000,))

    with pytest.raises(TooMany):
        finish(may_fit([island], (30,)))


@pytest.mark.parametrize(
    ("wanted", "fits"), [pytest.param((0,), True, id="nothing"), pytest.param((1,), False, id="one")]
)
def test_without_islands_there_is_nothing(wanted: tuple[int, ...], *, fits: bool) -> None:
    assert finish(may_fit([], wanted)) == fits
