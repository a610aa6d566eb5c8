"""Which nodes hold pods of which priority."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from scheduler.cache.nodes.nodes import Priorities
from scheduler.core import nodeset
from tests.unit.objects import cluster, info, node


@pytest.mark.parametrize(
    ("below", "slots"),
    [
        pytest.param(-7, 0b000, id="nobody"),
        pytest.param(-5, 0b001, id="below zero"),
        pytest.param(0, 0b001, id="its own priority does not count"),
        pytest.param(1, 0b011, id="zero"),
        pytest.param(11, 0b111, id="everybody"),
    ],
)
def test_below(below: int, slots: int) -> None:
    """Nodes with at least one pod of a strictly lower priority."""
    seen = Priorities()
    for slot, priority in ((0, -6), (0, 10), (1, 0), (1, 0), (2, 10)):
        seen.add(slot, priority)

    assert slots == seen.below(below)


pods = st.tuples(st.integers(0, 200), st.sampled_from((-(2**31), -1, 0, 0, 5, 2**31 - 1)))


@given(history=st.lists(st.tuples(st.booleans(), pods)))
def test_what_it_holds_is_what_came_and_did_not_go(history: list[tuple[bool, tuple[int, int]]]) -> None:
    """After any history, and nothing is left behind by those who went."""
    seen, there = Priorities(), Counter[tuple[int, int]]()
    for comes, (slot, priority) in history:
        if comes:
            seen.add(slot, priority)
            there[slot, priority] += 1
        elif there[slot, priority]:
            seen.remove(slot, priority)
            there[slot, priority] -= 1
    held = +there

    for below in (-(2**31), 0, 1, 5, 2**31):
        assert seen.below(below) == nodeset.of(slot for slot, priority in held if priority < below)
    assert {(slot, value): n for value, counts in seen.snapshot().items() for slot, n in counts.items()} == held


def test_a_pod_that_was_not_there_cannot_go() -> None:
    """KeyError: the index and the nodes would no longer agree."""
    seen = Priorities()
    seen.add(0, 5)
    with pytest.raises(KeyError):
        seen.remove(1, 5)
    with pytest.raises(KeyError):
        seen.remove(0, 6)

    assert seen.below(6) == 1


def test_the_cache_keeps_it() -> None:
    """Pods that come, change their priority, and go; one without a priority has 0."""
    seen = cluster(node("n1"), info("a", on="n1"), info("b", on="n1", priority=5))
    looks = [seen.nodes.priorities.below(1), seen.nodes.priorities.below(0)]
    seen.update_pod(info("a", on="n1", priority=-1))
    looks.append(seen.nodes.priorities.below(0))
    seen.remove_pod("a")
    looks += [seen.nodes.priorities.below(5), seen.nodes.priorities.below(6)]

    here = seen.nodes.by_name(("n1",))
    assert looks == [here, 0, here, 0, here]
