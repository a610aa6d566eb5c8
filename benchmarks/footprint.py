"""Memory and start of a scheduler in a big cluster: 5000 nodes with 30 images each, 50 000 running pods of 5 KB.

    python -m benchmarks.footprint --nodes 5000 --pods 50000

A real etcd and kube-apiserver; filling them takes minutes. Each competitor is started on the empty cluster and on the
full one. It prints the seconds from exec until /readyz answers 200, the CPU until then, and the resident memory: its
peak, and once the process is idle. Raw results go to benchmarks/results/ as JSON lines.
"""

import argparse
import asyncio
import compileall
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aiohttp import ClientSession
from rich.console import Console
from rich.table import Table

from benchmarks import lifelike, load
from benchmarks.competitors import COMPETITORS, Competitor, Limits
from benchmarks.meter import tree
from benchmarks.processes import REPOSITORY, started
from benchmarks.run import RESULTS, keep, settled
from benchmarks.workload import node_name
from tests.e2e.controlplane.harness import ControlPlane

NODES_PATH = "/api/v1/nodes"


@dataclass(frozen=True, slots=True)
class Size:
    """What is in the cluster; bytes as the server sends one of them."""

    nodes: int = 0
    pods: int = 0
    node_bytes: int = 0
    pod_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Footprint:
    """One start of one competitor."""

    competitor: str
    size: Size
    round: int
    ready_s: float
    """From exec."""
    ready_cpu_s: float
    peak_bytes: int
    idle_bytes: int
    """Resident once it had nothing more to do."""
    foreign_cores: float


async def fill(http: ClientSession, nodes: int, pods: int) -> Size:
    """Create everything, pods in turn on the nodes and running."""
    namespaces = [lifelike.namespace_body(index) for index in range(lifelike.NAMESPACES)]
    await load.spread(partial(load.post, http, "/api/v1/namespaces", body) for body in namespaces)
    await load.spread(partial(load.post, http, NODES_PATH, lifelike.node_body(index)) for index in range(nodes))
    await load.spread(partial(_run_pod, http, index, node_name(index % nodes)) for index in range(pods))
    a_pod = f"{lifelike.pod_path(0)}/{lifelike.pod_name(0)}"
    return Size(nodes, pods, await _length(http, f"{NODES_PATH}/{node_name(0)}"), await _length(http, a_pod))


async def _run_pod(http: ClientSession, index: int, node: str) -> None:
    await load.post(http, lifelike.pod_path(index), lifelike.pod_body(index, node))
    path = f"{lifelike.pod_path(index)}/{lifelike.pod_name(index)}/status"
    await load.patch(http, path, lifelike.pod_status(index))


async def _length(http: ClientSession, path: str) -> int:
    async with http.get(path) as answer:
        answer.raise_for_status()
        return len(await answer.read())


async def measure(plane: ControlPlane, competitor: Competitor, size: Size, number: int) -> Footprint:
    """Start it, wait until it is ready and then idle, and end it."""
    async with started(plane, competitor, Limits()) as scheduler:
        ready_s = await scheduler.ready()
        meter = scheduler.meter
        meter.sample()
        begin, end = scheduler.began, scheduler.began + ready_s
        cpu_s = meter.cpu_s("scheduler", begin, end)
        foreign = meter.cpu_s("machine", begin, end) - meter.cpu_s("benchmark", begin, end)
        await settled(meter)
        meter.sample()
        return Footprint(
            competitor=competitor.name,
            size=size,
            round=number,
            ready_s=ready_s,
            ready_cpu_s=cpu_s,
            peak_bytes=meter.peak_bytes["scheduler"],
            idle_bytes=_resident_bytes(scheduler.server.pid),
            foreign_cores=foreign / ready_s,
        )


def _resident_bytes(pid: int) -> int:
    return sum(_resident_kib(member) for member in tree(pid)) * 1024


def _resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0)


async def measure_all(arguments: argparse.Namespace, out: Path) -> list[Footprint]:
    """Every competitor, first without objects; each result is written as soon as it is there."""
    results = []

    async def measure_at(plane: ControlPlane, size: Size) -> None:
        for number in range(arguments.rounds):
            for name in arguments.only.split(","):
                results.append(await measure(plane, COMPETITORS[name], size, number))
                keep(out, results[-1])

    compileall.compile_dir(REPOSITORY / "scheduler", quiet=1)  # as in the image
    async with ControlPlane(high_load=True) as plane, plane.client() as http:
        await measure_at(plane, Size())
        if not arguments.nodes:
            return results
        began = time.monotonic()
        size = await fill(http, arguments.nodes, arguments.pods)
        print(f"filled in {time.monotonic() - began:.0f} s: {size}", file=sys.stderr, flush=True)
        await measure_at(plane, size)
    return results


def show(results: Sequence[Footprint]) -> None:
    """Every start in a row: what varies between rounds is worth seeing."""
    table = Table(title="big cluster")
    for column in ("scheduler", "nodes", "pods", "ready s", "CPU s", "peak MiB", "idle MiB", "foreign cores"):
        table.add_column(column, justify="left" if column == "scheduler" else "right")
    for r in results:
        memory = (f"{r.peak_bytes / 2**20:.0f}", f"{r.idle_bytes / 2**20:.0f}")
        times = (f"{r.ready_s:.1f}", f"{r.ready_cpu_s:.1f}")
        table.add_row(r.competitor, str(r.size.nodes), str(r.size.pods), *times, *memory, f"{r.foreign_cores:.1f}")
    console = Console()
    console.width = max(console.width, 100)  # into a file: no narrower than the table
    console.print(table)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.footprint", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000, help="0: only the empty cluster")
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3, help="starts of each competitor")
    parser.add_argument("--only", default="kube,ours", help="comma-separated competitors")
    parser.add_argument("--out", type=Path, help="JSON lines are appended here instead")
    arguments = parser.parse_args(argv)
    RESULTS.mkdir(exist_ok=True)
    out = arguments.out or RESULTS / f"{time.strftime('%Y%m%dT%H%M%S')}-footprint.jsonl"
    show(asyncio.run(measure_all(arguments, out)))
    print(f"raw results: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
