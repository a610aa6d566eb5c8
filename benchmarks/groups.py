"""Which share of random groups is placed: in the order in which the pods came, with the hardest first, and by the whole search.

The clusters are small and tight, and an integer program says of each that all pods fit (tests/unit/groups/worlds.py). Kubernetes'
own algorithm for groups is one pass in the order of the pods: the first row is that algorithm with Kubestow's scores.

    python -m benchmarks.groups --seeds 500
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from scheduler.core.cooperative import Work
from scheduler.groups.search import GroupSearch, by_kind, in_turn
from tests.unit.groups.worlds import drawn, ended, has_started

Run = Callable[[GroupSearch], Work[bool]]


def _in_given_order(search: GroupSearch) -> Work[bool]:
    return (yield from search.place(search.members, search.by_scores))


def _hardest_first(search: GroupSearch) -> Work[bool]:
    kinds = by_kind(search.members, search.cluster)
    order = yield from search.hardest_first(kinds)
    return (yield from search.place(in_turn(order, kinds), search.by_scores))


ALGORITHMS: Final[Mapping[str, Run]] = {
    "one pass, in the order of the pods": _in_given_order,
    "one pass, the hardest first": _hardest_first,
    "the whole search": GroupSearch.search,
}


async def _placed(seed: int) -> tuple[bool, float]:
    """Return whether the group was placed, and the seconds that the attempt took."""
    world = drawn(seed)
    sched = world.built()
    world.add_group(sched)
    sched.parts.inbox.apply()
    began = time.perf_counter()
    await sched.parts.loop.step()
    took_s = time.perf_counter() - began
    await ended(sched)
    return has_started(sched), took_s


async def _main(seeds: int) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    worlds = [seed for seed in range(seeds) if drawn(seed).is_placeable()]
    run = GroupSearch.search
    print(f"{len(worlds)} of {seeds} groups can be placed")
    for name, algorithm in ALGORITHMS.items():
        GroupSearch.search = algorithm  # type: ignore[method-assign, assignment]
        results = [await _placed(seed) for seed in worlds]
        placed = sum(is_placed for is_placed, _ in results)
        median_ms = 1000 * statistics.median(took_s for _, took_s in results)
        print(f"{name:36} {placed:4} placed, {placed / len(worlds):6.1%}; median {median_ms:.1f} ms")
    GroupSearch.search = run  # type: ignore[method-assign]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=500, help="random clusters (default: 500)")
    asyncio.run(_main(parser.parse_args().seeds))
