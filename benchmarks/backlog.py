"""What a backlog of pods that fit on no node costs those that fit: the rate with it and the rate without it.

Twenty thousand pods with their conditions and events make the API server itself slower; so in a third measurement as many
were tried by another scheduler, which was stopped then: the server bears them, the measured scheduler does not.

    python -m benchmarks.backlog --nodes 1000 --waiting 20000 --pods 2000

Each measurement has a fresh etcd and kube-apiserver. The scheduler starts, tries the waiting pods and comes to rest; it
is then frozen (SIGSTOP) while the pods that fit are created, so that it has them all at once and sets
the pace itself. The measurements take turns. Raw results go to benchmarks/results/ as JSON lines.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec
from aiohttp import ClientSession

from benchmarks import load
from benchmarks.between_pods import AFFINITY, constraints
from benchmarks.competitors import COMPETITORS, Competitor, Limits, ours
from benchmarks.processes import Started, observed, started
from benchmarks.run import RESULTS, Result, at_rest, keep, settled, summed_up, while_frozen
from benchmarks.summary import rows, show
from benchmarks.workload import NAMESPACE, WARM_UP, Workload
from tests.e2e.controlplane.harness import ControlPlane

SHAPES = 200
NO_SCHEDULER = "none"


def waiting_body(name: str, index: int, scheduler_name: str) -> bytes:
    """A pod that fits on no node, one of 200 shapes: too large, or with a node, pod or topology that does not exist."""
    shape = index % SHAPES
    missing = f"missing-{shape}"
    spec: dict[str, object] = {}
    cpu = "100m"
    match shape % 4:
        case 0:
            cpu = f"{1000 + shape}"
        case 1:
            spec = {"nodeSelector": {"bench/none": missing}}
        case 2:
            spec = constraints(AFFINITY, missing, None)
        case _:
            rule = {"maxSkew": 1, "topologyKey": "bench/none", "whenUnsatisfiable": "DoNotSchedule"}
            spec = {"topologySpreadConstraints": [rule | {"labelSelector": {"matchLabels": {"app": f"waits-{shape}"}}}]}
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": cpu}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": f"waits-{shape}"}},
        "spec": spec | {"schedulerName": scheduler_name, "containers": [container]},
    }
    return msgspec.json.encode(pod)


async def measure(competitor: Competitor, workload: Workload, waiting: int, *, whose: str) -> Result:
    """The workload's pods on a separate plane, all at once, while this number of pods waits for `whose` scheduler."""
    prefix = f"{competitor.name}-"
    names = [f"{prefix}{index:06d}" for index in range(workload.pods + WARM_UP)]
    async with ControlPlane(high_load=True) as plane, plane.client() as http:
        await load.create_nodes(http, workload)
        bodies = [waiting_body(f"waits-{index:06d}", index, whose) for index in range(waiting)]
        if whose == NO_SCHEDULER:
            async with started(plane, ours(NO_SCHEDULER), Limits()) as scheduler:
                await tried(scheduler, http, bodies)
        async with observed(plane) as bindings, started(plane, competitor, Limits()) as scheduler:
            await tried(scheduler, http, bodies if whose != NO_SCHEDULER else [])
            fitting = [workload.pod_body(name, index, competitor.scheduler_name) for index, name in enumerate(names)]
            await while_frozen(scheduler, http, fitting)
            await bindings.until(len(names), scheduler.server)
            await settled(scheduler.meter)
            result = summed_up(label(competitor.name, waiting, whose), scheduler, bindings.at)
        result.scheduled_events = await load.count_events(http, "Scheduled", prefix)
    result.workload, result.limits = asdict(workload) | {"waiting": waiting}, asdict(Limits())
    return result


async def tried(scheduler: Started, http: ClientSession, bodies: Sequence[bytes]) -> None:
    """Created while the scheduler runs; returns when it has come to rest."""
    await scheduler.ready()
    await load.create_pods(http, bodies)
    await at_rest(scheduler.meter)


def label(name: str, waiting: int, whose: str) -> str:
    if not waiting:
        return f"{name} alone"
    return f"{name}, {waiting} of no scheduler" if whose == NO_SCHEDULER else f"{name}, {waiting} waiting"


async def measure_all(arguments: argparse.Namespace, out: Path) -> list[Result]:
    """Rounds of without and with, in turn first; each result is written as soon as it is there."""
    workload = Workload("basic", arguments.nodes, arguments.pods, arguments.shapes)
    results = []
    for number in range(arguments.rounds):
        for name in arguments.only.split(","):
            own = COMPETITORS[name].scheduler_name
            turns = [(0, own), (arguments.waiting, NO_SCHEDULER), (arguments.waiting, own)]
            for waiting, whose in turns if number % 2 == 0 else reversed(turns):
                result = await measure(COMPETITORS[name], workload, waiting, whose=whose)
                result.round = number
                keep(out, result)
                print(f"round {number} {result.line()}", file=sys.stderr, flush=True)
                results.append(result)
    return results


def compared(results: Sequence[Result], names: Sequence[str], waiting: int) -> list[str]:
    """With the backlog to without it, by competitor."""
    by_name = rows(results)
    lines = []
    for name in names:
        beside = by_name[label(name, waiting, name)]
        for whose, amount, said in ((NO_SCHEDULER, waiting, "with as many that another tried"), (name, 0, "without")):
            other = by_name[label(name, amount, whose)]
            rate, cpu = beside.pods_per_s / other.pods_per_s, beside.cpu_ms_per_pod / other.cpu_ms_per_pod
            lines.append(f"{name} with the backlog/{said}: {rate:.2f} pods/s, {cpu:.2f} CPU per pod")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Exit 1 if a pod that fits was not bound."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backlog", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--waiting", type=int, default=20_000, help=f"pods that fit nowhere, in {SHAPES} shapes")
    parser.add_argument("--pods", type=int, default=2000, help="counted ones that fit; 50 more come first to warm up")
    parser.add_argument("--shapes", type=int, default=1, help="different requests, labels and selectors among those")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="ours", help="comma-separated competitors: kube, ours")
    parser.add_argument("--out", type=Path, help="JSON lines are appended here instead")
    arguments = parser.parse_args(argv)
    RESULTS.mkdir(exist_ok=True)
    out = arguments.out or RESULTS / f"{time.strftime('%Y%m%dT%H%M%S')}-backlog.jsonl"
    results = asyncio.run(measure_all(arguments, out))
    show(results, f"{arguments.pods} pods in {arguments.shapes} shapes, median of {arguments.rounds}")
    for line in compared(results, arguments.only.split(","), arguments.waiting):
        print(line)
    print(f"raw results: {out}")
    return 0 if all(result.bound >= arguments.pods for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
