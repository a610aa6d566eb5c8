"""How long groups of hostile objects hold the event loop, and how much memory they take.

`python -m benchmarks.hostile_relations [--sizes 50,100,200] [WORD …]` prints a row for each relation of `tests.hostile_relations` with
one of the words in its name, and for each size. Each row runs in a separate process:

* apply: the objects before the change, in ms of processor time;
* longest, total: the change and the attempts that follow; the longest time without a turn for other tasks;
* stored: the bytes of all objects as JSON; memory: what they add to the resident memory, and how many times the stored bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import multiprocessing
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import structlog

from scheduler.daemon.app import GC_THRESHOLD
from tests.hostile_relations import CHANGED, RELATIONS, RelatedObjects, Relation, stored
from tests.unit.harness import StepClock


class ProcessClock(StepClock):
    """Measures processor time, so that the limits of a stretch apply as in a daemon."""

    def now(self) -> float:
        return time.process_time()


Stored: TypeAlias = list[tuple[str, bytes]]
SIZES: Final = (50, 100, 200, 400)
_PAGE: Final = 4096
_LONGEST_S: Final = 300


class Took(NamedTuple):
    """Milliseconds of processor time, and bytes."""

    applied: float
    longest: float
    total: float
    stored: int
    memory: int


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


async def measured(there: Stored, change: Stored) -> Took:
    """Show the group to a scheduler whose clock is the processor time, so that attempts let other tasks run."""
    before, group = resident_bytes(), RelatedObjects(ProcessClock(), steps=1000)
    setattr(group.sched.clock, "now", lambda: 1000 + time.process_time())  # noqa: B010 (the clock of a test stands still)
    began = time.process_time()
    group.show(there)
    await group.settle()
    applied = time.process_time() - began
    longest, last = 0.0, time.process_time()

    async def ticking() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0)
            now = time.process_time()
            longest, last = max(longest, now - last), now

    ticker = asyncio.create_task(ticking())
    await asyncio.sleep(0)
    began = time.process_time()
    group.show(change)
    await group.settle()
    total = time.process_time() - began
    ticker.cancel()
    return Took(1000 * applied, 1000 * longest, 1000 * total, group.bytes, resident_bytes() - before)


def _row(few: tuple[Stored, Stored], all_: tuple[Stored, Stored], result: Connection[Took, None]) -> None:
    """Measure objects that another process has made, so that no memory of this process was used to make them."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable()
    gc.set_threshold(*GC_THRESHOLD)

    async def both() -> Took:
        await measured(*few)  # what is loaded and computed once per process
        return await measured(*all_)

    loop = asyncio.new_event_loop()
    result.send(loop.run_until_complete(both()))


def _objects(relation: Relation, size: int) -> tuple[Stored, Stored]:
    return stored(relation.there(size)), stored(relation.change(size), version=CHANGED)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile_relations")
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    print(f"{'relation':44}{'size':>6}{'apply':>8}{'longest':>9}{'total':>9}{'stored':>10}{'memory':>11}{'times':>7}")
    for relation in RELATIONS:
        if given.words and not any(word in relation.name for word in given.words):
            continue
        for size in map(int, given.sizes.split(",")):
            receiver, sender = context.Pipe(duplex=False)
            child = context.Process(target=_row, args=(_objects(relation, 2), _objects(relation, size), sender))
            child.start()
            sender.close()  # so that a child that fails ends the wait
            try:
                took = receiver.recv() if receiver.poll(_LONGEST_S) else None
            except EOFError:
                took = None
            if took is None:
                print(f"{relation.name:44}{size:6}  no result", flush=True)
            else:
                print(
                    f"{relation.name:44}{size:6}{took.applied:8.0f}{took.longest:9.1f}{took.total:9.1f}"
                    f"{took.stored:10}{took.memory:11}{took.memory / took.stored:7.1f}",
                    flush=True,
                )
            child.kill()
            child.join()


if __name__ == "__main__":
    main()
