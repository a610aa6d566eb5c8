"""Work that grows with a relation of objects grows at most in proportion, and costs other pods nothing."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.hostile_relations import CHANGED, OTHER, RELATIONS, RelatedObjects, Relation, pod, stored


async def calls_of(work: Callable[[], Awaitable[None]]) -> int:
    """Return the number of Python and C functions that the work calls."""
    count = 0

    def counting(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(counting)
    try:
        await work()
    finally:
        sys.setprofile(before)
    return count


async def work_of(relation: Relation, size: int) -> int:
    """Return the calls of the change with a group of this size. Another tenant's pod is bound afterwards."""
    group = RelatedObjects()
    group.show(stored(relation.there(size)))
    await group.settle()

    async def change() -> None:
        group.show(stored(relation.change(size), version=CHANGED))
        await group.settle()

    count = await calls_of(change)
    group.show(stored([pod(OTHER)], version=2 * CHANGED))
    await group.settle()
    assert group.is_bound(OTHER)
    assert not any(group.sched.parts.errors.counts.values()), group.sched.parts.errors.recent()
    return count


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda each: each.name)
async def test_twice_the_objects_are_about_twice_the_work(relation: Relation) -> None:
    await work_of(relation, 2)  # what is computed once per process
    once, twice = [await work_of(relation, size) for size in (relation.size, 2 * relation.size)]

    assert twice <= relation.twice * once, (once, twice)
