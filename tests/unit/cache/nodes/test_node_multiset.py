"""A multiset per node agrees with a Counter, and its node sets with both."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from scheduler.cache.nodes.node_multiset import NodeMultiset
from scheduler.core import nodeset

steps = st.lists(
    st.tuples(st.sampled_from(["add", "add", "remove", "read"]), st.integers(0, 40), st.sampled_from("ab")),
    max_size=200,
)


@given(steps)
def test_it_agrees_with_a_counter(history: list[tuple[str, int, str]]) -> None:
    seen, there = NodeMultiset[str](), Counter[tuple[int, str]]()
    for what, slot, thing in history:
        before = there[slot, thing]
        if what == "add":
            assert seen.add(slot, thing) is (before == 0)
            there[slot, thing] += 1
        elif what == "read":
            assert seen.nodes(thing) == nodeset.of(at for at, held in +there if held == thing)
        elif before:
            assert seen.remove(slot, thing) is (before == 1)
            there[slot, thing] -= 1
        assert seen.count(slot, thing) == there[slot, thing]
    held = +there

    assert {(at, thing): n for thing, slots in seen.snapshot().items() for at, n in slots.items()} == held
    assert set(seen) == {thing for _, thing in held}
    for thing in "ab":
        assert dict(seen.slots(thing)) == {at: n for (at, each), n in held.items() if each == thing}
        assert seen.nodes(thing) == nodeset.of(seen.slots(thing))


@pytest.mark.parametrize(("slot", "thing"), [(0, "b"), (1, "a")])
def test_what_is_not_there_cannot_go(slot: int, thing: str) -> None:
    seen: NodeMultiset[Any] = NodeMultiset()
    seen.add(0, "a")
    with pytest.raises(KeyError):
        seen.remove(slot, thing)

    assert seen.snapshot() == {"a": {0: 1}}
