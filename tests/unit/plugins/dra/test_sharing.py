"""Parts of shared devices: what is refused fits nowhere, whichever way it is looked at (docs/spec/dra.md §4.9, §10.4)."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings, strategies as st

from scheduler.core.turns import finish
from scheduler.plugins.dra.fillings import Fillings, Part, Room, TooMany
from scheduler.plugins.dra.outset import Asked, Outset
from scheduler.plugins.dra.packed import Packed, packed_for
from scheduler.plugins.dra.parcels import Parcels
from tests.examples import examples

Amounts = tuple[int, ...]
ENOUGH = 100_000


class Tight:
    """A few rooms, and parts that fill them to the brim, or nearly: two capacities, two sorts of rooms."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.lefts = [tuple(chance.randint(0, 9) for _ in "ab") for _ in range(chance.randint(1, 4))]
        self.sorts = [chance.randrange(2) for _ in self.lefts]
        self.packed = packed_for([64] * 2)  # nothing is cut down that is in here
        self.parts: list[tuple[tuple[Amounts | None, Amounts | None], int, int]] = []
        for _ in range(chance.randint(1, 3)):
            one, other = (
                None if chance.random() < 0.1 else (chance.randint(0, 5), chance.randint(0, 5)) for _ in range(2)
            )
            takes = (one, one if chance.random() < 0.7 else other)
            self.parts.append((takes, chance.randint(1, 3), chance.randint(1, 3)))

    @property
    def rooms(self) -> list[Room]:
        return [Room(self.packed.pack(left), sort) for left, sort in zip(self.lefts, self.sorts, strict=True)]

    def packed_parts(self) -> list[Part]:
        return [
            Part(tuple(-1 if each is None else self.packed.pack(each) for each in takes), count, most)
            for takes, count, most in self.parts
        ]

    def placings(self) -> list[list[tuple[int, ...]]]:
        """All ways: per part how many of it are in each room."""
        ways = [
            [way for way in itertools.product(range(most + 1), repeat=len(self.lefts)) if sum(way) == count]
            for _, count, most in self.parts
        ]
        places = range(len(self.lefts))
        return [
            list(choice)
            for choice in itertools.product(*ways)
            if all(self._holds(at, [way[at] for way in choice]) for at in places)
        ]

    def _holds(self, at: int, counts: Sequence[int]) -> bool:
        taken = [0, 0]
        for (takes, _, _), count in zip(self.parts, counts, strict=True):
            amounts = takes[self.sorts[at]]
            if count and amounts is None:
                return False
            taken = [a + b * count for a, b in zip(taken, amounts or (0, 0), strict=True)]
        return all(a <= b for a, b in zip(taken, self.lefts[at], strict=True))


@settings(max_examples=examples(200))
@given(st.integers(0, 2**64))
def test_fillings_can_be_chosen_exactly_if_the_parts_fit(seed: int) -> None:
    tight = Tight(seed)
    fillings = Fillings(tight.packed, tight.packed_parts(), tight.rooms, effort=ENOUGH)
    left = fillings.counts.pack([count for _, count, _ in tight.parts])
    found = finish(fillings.may_do(left, Counter((room, 0) for room in tight.rooms)))

    # what takes less elsewhere is counted with that: then it may only be refused where nothing fits
    is_alike = all(takes[0] == takes[1] for takes, _, _ in tight.parts)
    assert found == bool(tight.placings()) if is_alike else found or not tight.placings()


@settings(max_examples=examples(200))
@given(st.integers(0, 2**64))
def test_parts_that_are_placed_fit(seed: int) -> None:
    """Largest first it is not always found; one by one it is, but for how many there may be in one room."""
    tight = Tight(seed)
    parcels = Parcels(tight.packed, tight.packed_parts(), tight.rooms)
    fits = bool(tight.placings())

    assert fits or not parcels.fit_largest_first()
    try:
        placed = finish(parcels.may_be_placed())
    except TooMany:  # which says nothing
        return
    assert placed or not fits
    if all(most >= count for _, count, most in tight.parts):
        assert placed == fits


@settings(max_examples=examples(200))
@given(st.integers(0, 2**64))
def test_no_later_moment_of_a_way_that_leads_somewhere_is_refused(seed: int) -> None:
    """Of each way to place all parts some are placed already, on devices that have been begun or not."""
    tight, chance = Tight(seed), random.Random(seed)
    placings = tight.placings()
    rows = [tuple(part.takes[room.sort] for room in tight.rooms) for part in tight.packed_parts()]
    asked = [Asked((at,), rows[at], 1) for at, (_, count, _) in enumerate(tight.parts) for _ in range(count)]
    outset = Outset(tight.packed, asked, [room.left for room in tight.rooms], None)
    for placing in placings[:20]:
        held: dict[int, list[int]] = {}
        wanted: Counter[int] = Counter()
        for at, way in enumerate(placing):
            number = outset.number_of[at]
            for room, count in enumerate(way):
                there = chance.randint(0, count)
                held.setdefault(room, []).extend([number] * there)
                wanted[number] += count - there

        assert finish(outset.may_do(wanted, held, (True,) * len(tight.lefts), 0))


def test_more_fillings_than_can_be_looked_at_are_nobodys_answer() -> None:
    packed = packed_for([400])
    parts = [Part((packed.pack([at]),), 1, 1) for at in range(1, 28)]
    rooms = [Room(packed.pack([100]), 0)] * 4
    fillings = Fillings(packed, parts, rooms, effort=1000)

    with pytest.raises(TooMany):
        finish(fillings.may_do(fillings.counts.pack([1] * 27), {(rooms[0], 0): 4}))


@pytest.mark.parametrize(
    ("more", "less", "covers"),
    [((3, 0), (3, 0), True), ((3, 0), (2, 1), False), ((0, 7), (0, 0), True), ((7, 7), (7, 7), True)],
)
def test_packed_amounts_are_compared_one_by_one(more: Amounts, less: Amounts, *, covers: bool) -> None:
    packed: Packed = packed_for([7, 7])

    assert packed.covers(packed.pack(more), packed.pack(less)) == covers
    assert packed.fields(packed.pack(more)) == list(more)
