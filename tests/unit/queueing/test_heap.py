"""The heap with lazy deletion against a sorted list."""

from __future__ import annotations

import itertools

from hypothesis import given, strategies as st

from scheduler.queueing.active_queue import ActiveQueue
from scheduler.queueing.types import QueuedPodInfo
from tests.unit.queueing.harness import pod

PODS = [pod(f"p{n}") for n in range(300)]


@given(st.lists(st.one_of(st.integers(0, 9), st.none(), st.tuples(st.integers(0, 299))), max_size=300))
def test_as_a_sorted_list(steps: list[int | tuple[int] | None]) -> None:
    """Pushes (a number), pops (None) and removals (a tuple) give the results of a stable sorted list."""
    heap = ActiveQueue(itertools.count())
    model: list[tuple[int, int, QueuedPodInfo]] = []
    for n, step in enumerate(steps):
        if isinstance(step, int):
            queued = QueuedPodInfo(PODS[n], 0.0)
            heap.push((step,), queued)
            model.append((step, n, queued))
        elif model:
            victim = min(model, key=lambda row: row[:2]) if step is None else model[step[0] % len(model)]
            if step is None:
                assert heap.first() is victim[2]
            heap.discard(victim[2])
            model.remove(victim)
        assert len(model) == len(heap)
    for _, _, queued in sorted(model, key=lambda row: row[:2]):
        assert heap.first() is queued
        heap.discard(queued)

    assert heap.first() is None


def test_a_discarded_entry_stays_discarded_when_the_pod_is_in_another_heap() -> None:
    tickets = itertools.count()
    one, other = ActiveQueue(tickets), ActiveQueue(tickets)
    queued = QueuedPodInfo(PODS[0], 0.0)
    one.push((1,), queued)
    one.discard(queued)
    other.push((1,), queued)

    assert one.first() is None
    assert other.first() is queued


def test_discarded_entries_do_not_accumulate() -> None:
    heap = ActiveQueue(itertools.count())
    first, queued = QueuedPodInfo(PODS[0], 0.0), QueuedPodInfo(PODS[1], 0.0)
    heap.push((0,), first)
    for n in range(10_000):
        heap.push((1 + n,), queued)
        heap.discard(queued)

    assert len(heap._entries) < 200
