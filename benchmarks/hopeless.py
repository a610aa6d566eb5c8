"""What pods that can never fit cost the rest: the rate with five of them a second and the rate without.

Each has the highest priority and wants more than any node could give even if all lower pods left it; a scheduler has to
try every node to know that. They keep coming for as long as the pods that fit are being bound.

    python -m benchmarks.hopeless --nodes 1000 --pods 2000 --only kube,ours

With `--spread` the hopeless ones are 50 replicas with a hard spread constraint, for which nothing is remembered of a node;
that is measured in one process, without a server, and with `--no-share` by priority alone:

    python -m benchmarks.hopeless --spread --nodes 2000 --pods 20000

Each measurement has a fresh etcd and kube-apiserver. The pods that fit are created while the scheduler is frozen (SIGSTOP),
so that it sets the pace. The measurements take turns. Raw results go to benchmarks/results/ as JSON lines.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

import msgspec
from aiohttp import ClientSession

from benchmarks import hopeless_spread, load
from benchmarks.competitors import COMPETITORS, Competitor, Limits
from benchmarks.preempting import priority_classes
from benchmarks.processes import observed, started
from benchmarks.run import RESULTS, Result, keep, settled, summed_up, while_frozen
from benchmarks.summary import rows, show
from benchmarks.workload import NAMESPACE, WARM_UP, Workload, node_name
from tests.e2e.controlplane.harness import ControlPlane

_GUARD_SHARE = 0.3
_HOPELESS_SHARE = 0.8


def standing_bodies(workload: Workload) -> list[bytes]:
    """On each node a pod that no pod may evict, and one that any pod of high priority may."""
    milli_cpu = workload.node_milli_cpu
    return [
        _body(f"{kind}-{index:06d}", {"nodeName": node_name(index), "priorityClassName": priority}, cpu)
        for index in range(workload.nodes)
        for kind, priority, cpu in (("guard", "high", int(milli_cpu * _GUARD_SHARE)), ("low", "low", 100))
    ]


def hopeless_body(index: int, workload: Workload, scheduler_name: str) -> bytes:
    """Smaller than a node, larger than what a node's guard leaves."""
    spec = {"schedulerName": scheduler_name, "priorityClassName": "high"}
    return _body(f"hopeless-{index:06d}", spec, int(workload.node_milli_cpu * _HOPELESS_SHARE))


def _body(name: str, spec: Mapping[str, object], milli_cpu: int) -> bytes:
    container = {"name": "main", "image": "i:1", "resources": {"requests": {"cpu": f"{milli_cpu}m"}}}
    metadata = {"name": name, "namespace": NAMESPACE}
    return msgspec.json.encode(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "containers": [container]}}
    )


async def measure(competitor: Competitor, workload: Workload, per_s: float) -> Result:
    """The workload's pods on a separate plane, with this number of hopeless ones a second."""
    names = [f"{competitor.name}-{index:06d}" for index in range(workload.pods + WARM_UP)]
    bodies = [workload.pod_body(name, index, competitor.scheduler_name) for index, name in enumerate(names)]
    async with ControlPlane(high_load=True) as plane, plane.client() as http:
        await load.spread(
            partial(load.post, http, "/apis/scheduling.k8s.io/v1/priorityclasses", body) for body in priority_classes()
        )
        await load.create_nodes(http, workload)
        await load.create_pods(http, standing_bodies(workload))
        async with observed(plane) as bindings, started(plane, competitor, Limits()) as scheduler:
            if per_s:  # the first one costs most, and comes before
                await scheduler.ready()
                await load.create_pods(http, [hopeless_body(0, workload, competitor.scheduler_name)])
            begin = await while_frozen(scheduler, http, bodies)
            coming = asyncio.create_task(_keep_coming(http, competitor, workload, per_s))
            await bindings.until(len(names), scheduler.server)
            coming.cancel()
            with suppress(asyncio.CancelledError):
                await coming
            await settled(scheduler.meter)
            result = summed_up(label(competitor.name, per_s), scheduler, bindings.at, begin=begin)
    result.workload, result.limits = asdict(workload) | {"hopeless_per_s": per_s}, asdict(Limits())
    return result


async def _keep_coming(http: ClientSession, competitor: Competitor, workload: Workload, per_s: float) -> None:
    index = 0
    while per_s:
        index += 1
        await load.create_pods(http, [hopeless_body(index, workload, competitor.scheduler_name)])
        await asyncio.sleep(1 / per_s)


def label(name: str, per_s: float) -> str:
    return f"{name}, {per_s:g} hopeless/s" if per_s else f"{name} alone"


async def measure_all(arguments: argparse.Namespace, out: Path) -> list[Result]:
    """Rounds of without and with, in turn first; each result is written as soon as it is there."""
    workload = Workload("basic", arguments.nodes, arguments.pods)
    results = []
    for number in range(arguments.rounds):
        for name in arguments.only.split(","):
            turns = (0.0, arguments.per_s)
            for per_s in turns if number % 2 == 0 else reversed(turns):
                result = await measure(COMPETITORS[name], workload, per_s)
                result.round = number
                keep(out, result)
                print(f"round {number} {result.line()}", file=sys.stderr, flush=True)
                results.append(result)
    return results


def main(argv: Sequence[str] | None = None) -> int:
    """Exit 1 if a pod that fits was not bound, or with `--spread` if the rate fell by more than a fifth."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hopeless", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=2000, help="pods that fit; 50 more of them count as well")
    parser.add_argument("--per-s", type=float, default=5.0, help="pods a second that never fit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="kube,ours", help="comma-separated competitors: kube, ours")
    parser.add_argument("--out", type=Path, help="JSON lines are appended here instead")
    parser.add_argument("--spread", action="store_true", help="replicas with a hard spread constraint, in one process")
    parser.add_argument("--replicas", type=int, default=50, help="their number, with --spread")
    parser.add_argument("--no-share", action="store_true", help="without the limited share of time, with --spread")
    arguments = parser.parse_args(argv)
    if arguments.spread:
        return _spread(arguments)
    RESULTS.mkdir(exist_ok=True)
    out = arguments.out or RESULTS / f"{time.strftime('%Y%m%dT%H%M%S')}-hopeless.jsonl"
    results = asyncio.run(measure_all(arguments, out))
    show(results, f"{arguments.pods} pods on {arguments.nodes} nodes, median of {arguments.rounds}")
    by_name = rows(results)
    for name in arguments.only.split(","):
        beside, alone = by_name[label(name, arguments.per_s)], by_name[label(name, 0.0)]
        rate, cpu = beside.pods_per_s / alone.pods_per_s, beside.cpu_ms_per_pod / alone.cpu_ms_per_pod
        print(
            f"{name} with {arguments.per_s:g} hopeless pods a second/without: {rate:.2f} pods/s, {cpu:.2f} CPU per pod"
        )
    print(f"raw results: {out}")
    return 0 if all(result.bound >= arguments.pods for result in results) else 1


def _spread(arguments: argparse.Namespace) -> int:
    scene = hopeless_spread.Scene(arguments.nodes, arguments.pods, arguments.replicas)
    ratio = hopeless_spread.compare(scene, arguments.rounds, fair_share="none" if arguments.no_share else "on")
    print(f"with {arguments.replicas} replicas/without, median of {arguments.rounds}: {ratio:.2f} pods/s")
    return 0 if ratio >= hopeless_spread.WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
