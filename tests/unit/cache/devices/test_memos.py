"""What is remembered within a common limit: never wrong, never too much, and what is used stays."""

from __future__ import annotations

import random
from unittest import mock

from hypothesis import given, settings, strategies as st

from scheduler.cache.devices import node_kinds as devicenodes, pools as devicepools
from scheduler.cache.devices.memos import Limit, Memo
from tests.examples import examples
from tests.unit.cache.devices.test_devicenodes_laws import History

SIZE = 5
_steps = st.lists(
    st.tuples(st.sampled_from(("set", "get", "set", "get", "clear")), st.integers(0, 3), st.integers(0, 9)), max_size=80
)


@given(_steps)
def test_what_is_remembered_is_what_was_said_last(steps: list[tuple[str, int, int]]) -> None:
    """Of any number of things; and there is never more than twice the limit."""
    limit = Limit(SIZE)
    memos, said = [Memo(limit) for _ in range(4)], [dict[int, int]() for _ in range(4)]
    for at, (what, which, asked) in enumerate(steps):
        if what == "set":
            memos[which][asked] = said[which][asked] = at
        elif what == "clear":
            memos[which].clear()
            said[which].clear()
        else:
            assert memos[which].get(asked) in {None, said[which].get(asked)}
        assert sum(map(len, memos)) <= len(limit) <= 2 * SIZE


@given(_steps)
def test_what_was_used_of_late_is_still_known(steps: list[tuple[str, int, int]]) -> None:
    """The last answers, as many as the limit says, whoever was asked."""
    limit = Limit(SIZE)
    memos, used = [Memo(limit) for _ in range(4)], list[tuple[int, int]]()
    for what, which, asked in steps:
        if what == "set":
            memos[which][asked] = 1
        if what == "clear" or memos[which].get(asked) is None:
            continue
        used = [each for each in used if each != (which, asked)] + [(which, asked)]
        for one, thing in used[-SIZE:]:
            assert memos[one]._young.get(thing) or memos[one]._old.get(thing)


def test_a_thing_that_is_gone_is_not_kept_for_ever() -> None:
    """What it knew goes with the answers of others."""
    limit = Limit(SIZE)
    gone = Memo(limit)
    gone["asked"] = "answer"
    other = Memo(limit)
    for asked in range(3 * SIZE):
        other[asked] = asked

    assert 0 == len(gone)
    assert not any(memo is gone for memo in (*limit._young, *limit._old))


@settings(max_examples=examples(60))
@given(st.integers(0, 2**64), st.integers(1, 40), st.integers(1, 4))
def test_where_next_to_nothing_is_remembered_boards_say_the_same(seed: int, length: int, size: int) -> None:
    """As searches of the very nodes, after any history."""
    with mock.patch.object(devicenodes, "_ANSWERS_MAX", size), mock.patch.object(devicepools, "_answers", Limit(size)):
        history = History(random.Random(seed))
        for _ in range(length):
            history.step()
        caches = history.caches
        caches.on_nodes.catch_up()

        for demand in caches.demands:
            assert caches.verdicts(demand) == caches.searched(demand)
        assert len(caches.on_nodes._answers) <= 2 * size
