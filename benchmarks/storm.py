"""What node label changes cost: a thousand a second on a thousand nodes, while pods wait that no node fits.

    python -m benchmarks.storm --nodes 1000 --rate 1000 --waiting 3000

The changed label concerns none of the pods: what is measured is how cheaply a scheduler finds that out. It prints the CPU of a
stretch of the storm and of a quiet stretch before it, and the rate that the server really kept. A real
kube-apiserver needs separate cores for a thousand changes a second; `--server loopback` is the in-process one in
another process, whose storm costs a tenth of a core. Raw results go to benchmarks/results/ as JSON lines.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
from aiohttp import ClientSession
from rich.console import Console
from rich.table import Table

from benchmarks import lifelike, load
from benchmarks.backlog import waiting_body
from benchmarks.competitors import COMPETITORS, Competitor, Limits
from benchmarks.loopback import LABEL, LoopbackPlane
from benchmarks.processes import Started, started
from benchmarks.run import RESULTS, at_rest, keep
from benchmarks.workload import NAMESPACE, node_name
from tests.e2e.controlplane.harness import ControlPlane

STARTING_S = 5.0
"""The first seconds of the storm are not counted."""
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Cost:
    """One competitor in one storm."""

    competitor: str
    server: str
    nodes: int
    waiting: int
    wanted_per_s: float
    changes_per_s: float
    """What the server kept, in the counted stretch."""
    quiet_cores: float
    storm_cores: float
    seconds: float
    peak_bytes: int
    foreign_cores: float
    round: int = 0

    @property
    def cores(self) -> float:
        """What the storm adds."""
        return self.storm_cores - self.quiet_cores

    @property
    def cpu_us_per_change(self) -> float:
        return 1e6 * self.cores / self.changes_per_s if self.changes_per_s else 0.0


async def storm(http: ClientSession, nodes: int, per_s: float, seconds: float) -> AsyncIterator[int]:
    """Change a label of each of the nodes in turn; yields, ten times a second, how many changes were made."""
    began = time.monotonic()
    sent = done = 0

    async def work() -> None:
        nonlocal sent, done
        while time.monotonic() < began + seconds:
            number, sent = sent, sent + 1
            await asyncio.sleep(max(0.0, began + number / per_s - time.monotonic()))
            turn, node = divmod(number, nodes)
            body = msgspec.json.encode({"metadata": {"labels": {LABEL: f"{turn}"}}})
            await load.patch(http, f"/api/v1/nodes/{node_name(node)}", body)
            done += 1

    workers = asyncio.gather(*(work() for _ in range(_AT_ONCE)))
    while not workers.done():
        await asyncio.sleep(0.1)
        yield done
    await workers


async def measure(plane: ControlPlane | LoopbackPlane, competitor: Competitor, arguments: argparse.Namespace) -> Cost:
    """Start it, let it come to rest, and count a quiet stretch and a stormy one of the same length."""
    seconds = arguments.seconds
    async with plane.client() as http, started(plane, competitor, Limits()) as scheduler:
        await scheduler.ready()
        name = competitor.scheduler_name
        bodies = [waiting_body(f"{name}-{index:06d}", index, name) for index in range(arguments.waiting)]
        await load.create_pods(http, bodies)
        await at_rest(scheduler.meter)
        await asyncio.sleep(seconds)
        quiet = _cores(scheduler, "scheduler", seconds)
        size = (arguments.nodes, arguments.rate, STARTING_S + seconds)
        changes = plane.storm(*size) if isinstance(plane, LoopbackPlane) else storm(http, *size)
        kept = await _kept_per_s(changes)
        cost = Cost(
            competitor=competitor.name,
            server=arguments.server,
            nodes=arguments.nodes,
            waiting=arguments.waiting,
            wanted_per_s=arguments.rate,
            changes_per_s=kept,
            quiet_cores=quiet,
            storm_cores=_cores(scheduler, "scheduler", seconds),
            seconds=seconds,
            peak_bytes=scheduler.meter.peak_bytes["scheduler"],
            foreign_cores=_cores(scheduler, "machine", seconds) - _cores(scheduler, "benchmark", seconds),
        )
        await load.delete_pods(http)
        return cost


async def _kept_per_s(changes: AsyncIterator[int]) -> float:
    """Run the storm to its end; the rate after its first seconds."""
    began = time.monotonic()
    first: tuple[float, int] | None = None
    last = (began, 0)
    async for done in changes:
        last = (time.monotonic(), done)
        if first is None and last[0] - began > STARTING_S:
            first = last
    assert first is not None
    return (last[1] - first[1]) / (last[0] - first[0])


def _cores(scheduler: Started, name: str, seconds: float) -> float:
    """Used on average in the seconds before now."""
    scheduler.meter.sample()
    now = time.monotonic()
    return scheduler.meter.cpu_s(name, now - seconds, now) / seconds


async def measure_all(arguments: argparse.Namespace, out: Path) -> list[Cost]:
    """Every competitor in turn, on one plane; each result is written as soon as it is there."""
    results = []
    make = LoopbackPlane if arguments.server == "loopback" else partial(ControlPlane, high_load=True)
    async with make() as plane, plane.client() as http:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await load.post(http, "/api/v1/namespaces", msgspec.json.encode(namespace))
        for index in range(arguments.nodes):
            await load.post(http, "/api/v1/nodes", lifelike.node_body(index))
        for number in range(arguments.rounds):
            for name in arguments.only.split(","):
                cost = replace(await measure(plane, COMPETITORS[name], arguments), round=number)
                keep(out, cost)
                results.append(cost)
    return results


def show(results: Sequence[Cost]) -> None:
    """One row for each measurement."""
    table = Table(title="label storm")
    columns = ("scheduler", "waiting pods", "wanted/s", "changes/s", "quiet cores", "storm cores", "µs/change")
    for column in (*columns, "foreign cores"):
        table.add_column(column, justify="left" if column == "scheduler" else "right")
    for r in results:
        table.add_row(
            *(r.competitor, str(r.waiting), f"{r.wanted_per_s:.0f}", f"{r.changes_per_s:.0f}"),
            *(f"{r.quiet_cores:.3f}", f"{r.storm_cores:.3f}", f"{r.cpu_us_per_change:.0f}", f"{r.foreign_cores:.1f}"),
        )
    console = Console()
    console.width = max(console.width, 110)  # into a file: no narrower than the table
    console.print(table)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storm", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=1000, help="label changes per second, over all nodes")
    parser.add_argument("--waiting", type=int, default=3000, help="pods that fit nowhere, in 200 shapes")
    parser.add_argument("--seconds", type=float, default=20, help="length of the counted stretches")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--server", choices=["real", "loopback"], default="real", help="loopback: for ours only")
    parser.add_argument("--only", default="kube,ours", help="comma-separated competitors: kube, ours")
    parser.add_argument("--out", type=Path, help="JSON lines are appended here instead")
    arguments = parser.parse_args(argv)
    if arguments.server == "loopback" and arguments.only != "ours":
        parser.error("--server loopback serves what Kubestow reads: --only ours")
    RESULTS.mkdir(exist_ok=True)
    out = arguments.out or RESULTS / f"{time.strftime('%Y%m%dT%H%M%S')}-storm.jsonl"
    show(asyncio.run(measure_all(arguments, out)))
    print(f"raw results: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
