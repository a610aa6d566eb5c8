"""How long one hostile object holds the event loop: each list and map that is read, with as many elements as fit, bare and full.

`python -m benchmarks.hostile_objects [KIND …]` prints for each kind the slowest fields, in ms of processor time: decoding,
applying, and the attempts and other work that follow. Elements are valid and all different, 1.4 MB at most.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import sys
import time
from typing import Any, NamedTuple

import structlog

from scheduler.api.decode import Delta
from scheduler.daemon.app import GC_THRESHOLD
from scheduler.kube.resources import KINDS, POD, KindSpec
from scheduler.kube.store import Store
from tests.hostile import fields
from tests.unit.harness import SchedulerHarness

SHOWN = 5
PODS = (
    {"schedulerName": "kubestow", "nodeName": "", "nominatedNodeName": ""},
    {"schedulerName": "other", "nodeName": "n1", "nominatedNodeName": ""},
)


class Took(NamedTuple):
    """Milliseconds of processor time."""

    decoding: float
    applying: float
    after: float
    path: str

    @property
    def longest(self) -> float:
        """The longest time without a turn for other tasks."""
        return max(self[:3])


async def measured(spec: KindSpec, fixed: dict[str, str]) -> list[Took]:
    """One object after the other, in a cluster of two nodes."""
    sched, decoder, took = SchedulerHarness(), spec.decoder(), []
    store: Store[Any] = Store()
    for name in ("n1", "n2"):
        sched.node(name)
    await sched.settle()
    attacked = (
        (each, full)
        for each in fields(spec, name="h", **fixed)
        if each.item
        for full in (False, True)
        if not full or each.full_item != each.item
    )
    for version, (field, full) in enumerate(attacked, start=2):
        raw = field.with_value(field.many(full=full)).replace(
            b'"resourceVersion":"1"', b'"resourceVersion":"%d"' % version
        )
        deltas: list[Delta[Any]] = []
        gc.collect()  # of the objects before
        times = [time.process_time()]
        read = decoder.decode(raw)
        times.append(time.process_time())
        store.set(read, deltas)
        sched.parts.event_handlers.apply(spec.name, deltas)
        times.append(time.process_time())
        await sched.settle()
        times.append(time.process_time())
        spans = [1000 * (after - before) for before, after in itertools.pairwise(times)]
        took.append(Took(spans[0], spans[1], spans[2], f"{field.path}{' full' * full}"))
    return took


async def main() -> None:
    """Print a table."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    gc.set_threshold(*GC_THRESHOLD)
    gc.collect()
    gc.freeze()
    wanted = sys.argv[1:] or [spec.name for spec in KINDS.values() if spec.typ is not None]
    print(f"{'kind':22}{'decode':>8}{'apply':>8}{'after':>8}  field")
    for name in wanted:
        spec = KINDS[name]
        rounds = [await measured(spec, fixed) for fixed in (PODS if spec is POD else ({},))]
        slowest = sorted((each for round_ in rounds for each in round_), key=lambda took: -took.longest)
        for took in slowest[:SHOWN]:
            print(f"{name:22}{took.decoding:8.0f}{took.applying:8.0f}{took.after:8.0f}  {took.path}")


if __name__ == "__main__":
    asyncio.run(main())
