"""What a scrape of /metrics costs the event loop, in a cluster of many nodes, volumes and devices.

    python -m benchmarks.scrape --nodes 5000

The daemon and the in-process API server share one loop, as in `simulate`; Prometheus is a separate process that scrapes
without a pause. Everything that a metric measures has happened before, so that all series exist. It prints how late timers of one millisecond are, with and without scrapes, idle and while pods are bound; what is read
on the loop; what is rendered in its thread; and the number of series.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import structlog
import uvloop
from rich.console import Console
from rich.table import Table

from simulator.builders.core import Builder, node, pod
from simulator.builders.devices import a_device, a_slice
from tests.deploy.monitored import CSI, DRA, RACK, Monitored, monitored
from tests.support.volumebuilders import a_capacity, a_class, a_csi_driver, a_csi_node

_TIMER_S = 0.001
_ROUNDS = 5
_HOST = "example.com/host"
_LOCAL = "local.example.com"
_SCRAPER = """
import sys, time, urllib.request
while True:
    began = time.monotonic()
    urllib.request.urlopen(sys.argv[1]).read()
    print(time.monotonic() - began, flush=True)
    time.sleep(float(sys.argv[2]))
"""


def objects(nodes: int) -> Iterator[Builder[Any]]:
    """Per node: itself, its CSI drivers, capacity, and eight devices."""
    yield a_csi_driver(_LOCAL).tracks_capacity()
    yield a_class("roomy", _LOCAL)
    for index in range(nodes):
        name = f"node-{index:05d}"
        yield node(name).cpu("16").labels({_HOST: name, RACK: f"r{index % 3}"})
        yield a_csi_node(name).driver(CSI, 30, topology_keys=(RACK,)).driver(_LOCAL, topology_keys=(_HOST,))
        yield a_capacity(name, "roomy", "100Gi").where(_HOST, name)
        yield a_slice(name, DRA, *(a_device(f"d{i}").attr("model", "a") for i in range(8)))


class Lags:
    """How late a timer was, again and again; and how long other threads of this process computed in that time.

    The former depends on what else the machine does. The latter is what a scrape can do to the loop, and does not.
    """

    def __init__(self) -> None:
        self.late_s: list[float] = []
        self.others_s: list[float] = []

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            began, ours = time.perf_counter(), time.process_time() - time.thread_time()
            await asyncio.sleep(_TIMER_S)
            self.late_s.append(time.perf_counter() - began - _TIMER_S)
            self.others_s.append(time.process_time() - time.thread_time() - ours)


@asynccontextmanager
async def scraped(port: int, every_s: float) -> AsyncIterator[list[float]]:
    """Scrape for as long as the block lasts; answers the seconds that each took."""
    url = f"http://127.0.0.1:{port}/metrics"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _SCRAPER, url, str(every_s)), stdout=asyncio.subprocess.PIPE
    )
    took: list[float] = []

    async def read() -> None:
        assert process.stdout is not None
        took.extend([float(line) async for line in process.stdout])

    reading = asyncio.create_task(read())
    try:
        yield took
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


async def lags(world: Monitored, seconds: float, *, bind: int, scrape: bool) -> tuple[Lags, list[float]]:
    """The lags, and how long each scrape took, idle or while this number of pods a second is bound."""
    meter = Lags()
    running = asyncio.create_task(meter.run())
    took: list[float] = []
    try:
        if scrape:
            async with scraped(world.port, 0.05) as took:
                await _pass(world, seconds, bind)
        else:
            await _pass(world, seconds, bind)
    finally:
        running.cancel()
    return meter, took


_made = 0


async def _pass(world: Monitored, seconds: float, bind: int) -> None:
    global _made  # noqa: PLW0603 (names that were not used before)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(bind // 20):
            _made += 1
            world.rig.server.apply(pod(f"more-{_made}").cpu("1m").scheduler("kubestow").obj())
        await asyncio.sleep(0.05)


def _high(seconds: list[float]) -> tuple[str, str]:
    """The 99th percentile and the maximum."""
    ordered = sorted(seconds)
    return f"{1000 * ordered[len(ordered) * 99 // 100]:.1f} ms", f"{1000 * ordered[-1]:.1f} ms"


def milliseconds(work: Callable[[], object], times: int = 50) -> float:
    """The median."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return 1000 * sorted(took)[times // 2]


async def measure(nodes: int, seconds: float) -> None:
    """Print the table."""
    console = Console()
    async with monitored(objects(nodes)) as world:
        for _ in range(_ROUNDS):
            await world.round()
        metrics = world.rig.daemon.metrics
        table = Table("", "timers", "late, p99", "longest", "other threads, p99", "longest", "scrapes", "each")
        for bind in (0, 100):
            for scrape in (False, True):
                meter, took = await lags(world, seconds, bind=bind, scrape=scrape)
                name = f"{'binding' if bind else 'idle'}{', scraped' if scrape else ''}"
                figures = [*_high(meter.late_s), *_high(meter.others_s)]
                mean = f"{1000 * sum(took) / len(took):.0f} ms" if took else ""
                table.add_row(name, f"{len(meter.late_s)}", *figures, f"{len(took)}", mean)
        console.print(table)
        read, rendered = milliseconds(metrics.sample), milliseconds(metrics.render)
        series = sum(not line.startswith(b"#") for line in metrics.render().splitlines())
        console.print(
            f"{nodes} nodes: {read:.2f} ms to read on the loop, {rendered - read:.0f} ms to render, {series} series"
        )


def main() -> None:
    """As a script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=10, help="of each of the four passes")
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    run = uvloop.run if arguments.loop == "uvloop" else asyncio.run
    run(measure(arguments.nodes, arguments.seconds))


if __name__ == "__main__":
    main()
