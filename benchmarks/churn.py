"""A day of pods that come, are bound and leave, in virtual time, to see whether anything grows.

    python -m benchmarks.churn [--nodes 1000] [--events 10000000]

Each pod has a name, a uid and an owner that no other pod has, and one of 200 shapes. Nine of ten are bound, run and leave: four events of
the watch. The tenth fits nowhere, and leaves after its attempt. Pods come in bursts of a hundred, and a bound pod stays for ten
bursts. Each tenth of the day is a row: resident memory, processor time per event, and what is left in cache and queue.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import time
from collections import deque
from functools import partial

import msgspec
import structlog

from benchmarks.in_process import InProcess, resident_mib
from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Delta, ObjectDecoder
from scheduler.core.clock import SystemClock
from scheduler.daemon.app import GC_THRESHOLD

DAY_S = 86_400
BURST = 100
STAYS = 10
"""Bursts that a bound pod stays for."""
_ROWS = 10


class DayClock(SystemClock):
    """A clock that the benchmark moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        """Return the virtual time."""
        return self.now_s

    def wall(self) -> float:
        """Return the virtual time as a date."""
        return 1.8e9 + self.now_s


class Day:
    """The pods of a day."""

    def __init__(self, nodes: int) -> None:
        self.clock = DayClock()
        self.decider = InProcess(nodes, 200, clock=self.clock)
        self.rng = random.Random(1)
        self.events = 0
        self._decode = ObjectDecoder("Pod", Pod).decode
        self._bodies = [msgspec.json.decode(self.decider.raw_pod("p", index)) for index in range(200)]
        self._bound: deque[list[Pod]] = deque()
        self._count = 0

    async def burst(self) -> None:
        """Let a hundred pods come, be tried and be confirmed, and those of ten bursts ago leave."""
        new = [self._new() for _ in range(BURST)]
        await self._show([Delta(None, pod) for pod in new])
        writer, scheduler = self.decider.writer, self.decider.scheduler
        bound: list[Pod] = []
        for _ in range(4 * BURST):
            if not await self._step() and not writer.seen:
                break
            seen, writer.seen = writer.seen, []
            if seen:
                await self._show(seen)
                bound += [delta.new for delta in seen if isinstance(delta.new, Pod)]
        names = {pod.metadata.name for pod in bound}
        refused = [pod for pod in new if pod.metadata.name not in names]
        await self._show([Delta(pod, None) for pod in refused])
        running = [_running(pod) for pod in bound]
        await self._show([Delta(old, pod) for old, pod in zip(bound, running)])
        self._bound.append(running)
        if len(self._bound) > STAYS:
            await self._show([Delta(pod, None) for pod in self._bound.popleft()])
        scheduler.inbox.apply()

    async def end(self) -> None:
        """Let all pods leave."""
        while self._bound:
            await self._show([Delta(pod, None) for pod in self._bound.popleft()])
        self.decider.scheduler.inbox.apply()

    def sizes(self) -> str:
        """Return what is left, in words."""
        scheduler = self.decider.scheduler
        return f"{scheduler.cluster.sizes()}, {sum(scheduler.queue.counts().values())} in the queue"

    async def _step(self) -> bool:
        scheduler = self.decider.scheduler
        is_waiting = bool(scheduler.queue.counts()["active"])
        if is_waiting:
            await scheduler.loop.step()
        await asyncio.sleep(0)
        return is_waiting

    def _new(self) -> Pod:
        self._count += 1
        body = self._bodies[self._count % 200]
        name = f"job-{self._count}-{self.rng.getrandbits(32):08x}"
        body["metadata"] |= {"name": name, "uid": name, "resourceVersion": str(self._count)}
        body["metadata"]["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}
        ]
        body["spec"]["nodeSelector"] = {"nowhere": name} if self._count % 10 == 0 else {}
        pod = self._decode(msgspec.json.encode(body))
        assert isinstance(pod, Pod), pod
        return pod

    async def _show(self, deltas: list[Delta[Pod]]) -> None:
        self.events += len(deltas)
        self.clock.now_s += len(deltas) * DAY_S / 1e7
        self.decider.scheduler.inbox.put(partial(self.decider.scheduler.event_handlers.apply, "Pod", deltas))
        self.decider.scheduler.inbox.apply()


def _running(pod: Pod) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, resource_version=f"{pod.metadata.resource_version}2")
    return msgspec.structs.replace(pod, metadata=metadata, status=msgspec.structs.replace(pod.status, phase="Running"))


async def run(nodes: int, events: int) -> None:
    """Print a row for each tenth of the events."""
    day = Day(nodes)
    for row in range(_ROWS + 1):
        began, before = time.process_time(), day.events
        while day.events < events * row / _ROWS:
            await day.burst()
        gc.collect()
        cpu_us = (time.process_time() - began) / max(1, day.events - before) * 1e6
        print(
            f"{day.events:>12,} events  {resident_mib():7.1f} MiB  {cpu_us:6.1f} µs per event  {day.sizes()}",
            flush=True,
        )
    await day.end()
    print(f"all pods have left: {resident_mib():.1f} MiB  {day.sizes()}")


def main() -> int:
    """Run the day."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--events", type=int, default=10_000_000)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    gc.set_threshold(*GC_THRESHOLD)
    asyncio.run(run(options.nodes, options.events))
    return 0


if __name__ == "__main__":
    sys.exit(main())
