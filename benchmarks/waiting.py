"""What groups that cannot start cost while nothing happens: the cores that each scheduler uses in a minute.

    python -m benchmarks.waiting --nodes 1000 --groups 100

The pods of a group are equal, and each needs one of the nodes of its group alone. There is one node less than pods, so that
all but one would fit. Each scheduler has a fresh control plane. Raw results go to benchmarks/results/ as JSON lines.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
from aiohttp import ClientSession, TCPConnector

from benchmarks import gangs, load
from benchmarks.competitors import WITH_GROUPS, Competitor, Limits
from benchmarks.gangload import GROUPS
from benchmarks.processes import Started, started
from benchmarks.run import RESULTS, keep, settled
from benchmarks.workload import NAMESPACE, Workload, node_name
from tests.e2e.controlplane.build import MINOR, VERSION
from tests.e2e.controlplane.harness import ControlPlane

SIZE = 8
_ATTEMPTS = "scheduler_podgroup_schedule_attempts_total"
_IDLE_S = 20.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a scheduler used, in cores where nothing else is said."""

    competitor: str
    nodes: int
    groups: int
    idle: float
    """Before there are groups."""
    first_cpu_s: float
    """From the first group until the measurement begins, in CPU seconds."""
    cores: float
    apiserver_cores: float
    foreign_cores: float
    seconds: float
    attempts: int = 0
    """Of groups, in this time."""
    bound: int = 0
    kubernetes: str = VERSION

    def line(self) -> str:
        """For people, in one line."""
        return (
            f"{self.competitor}: {self.groups} groups of {SIZE} wait on {self.nodes} nodes: {self.cores:.3f} cores, "
            f"API server {self.apiserver_cores:.3f} cores, {self.attempts} attempts in {self.seconds:.0f} s; "
            f"{self.idle:.3f} cores before there were groups, "
            f"{self.first_cpu_s:.1f} s of CPU at first; other processes used {self.foreign_cores:.1f} cores"
            + (f", {self.bound} PODS BOUND" if self.bound else "")
        )


def _pod_bodies(groups: int, nodes: int, scheduler_name: str) -> Iterator[bytes]:
    for group in range(groups):
        hosts = [node_name((group * (SIZE - 1) + at) % nodes) for at in range(SIZE - 1)]
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": hosts}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        container = {"name": "main", "image": "i:1", "resources": {"requests": {"cpu": "3"}}}
        spec = {
            "schedulerName": scheduler_name,
            "schedulingGroup": {"podGroupName": _group_name(group)},
            "affinity": {"nodeAffinity": required},
            "containers": [container],
        }
        for at in range(SIZE):
            metadata = {"name": f"{_group_name(group)}-{at}", "namespace": NAMESPACE}
            yield msgspec.json.encode({"metadata": metadata, "spec": spec})


def _group_name(group: int) -> str:
    return f"waiting-{group:04d}"


async def measure(competitor: Competitor, arguments: argparse.Namespace) -> Waiting:
    """One scheduler on a new control plane."""
    workload = Workload("basic", arguments.nodes, 0)
    plane = ControlPlane(high_load=True, apiserver_flags=gangs.SERVER_FLAGS)
    async with plane, plane.client() as http:
        await load.create_nodes(http, workload)
        async with started(plane, competitor, Limits()) as scheduler:
            await scheduler.ready()
            await settled(scheduler.meter)
            idle_from = time.monotonic()
            await asyncio.sleep(_IDLE_S)
            created = time.monotonic()
            bodies = (gangs.group_body(_group_name(group), SIZE) for group in range(arguments.groups))
            await load.spread(partial(load.post, http, GROUPS, body) for body in bodies)
            pods = list(_pod_bodies(arguments.groups, arguments.nodes, competitor.scheduler_name))
            await load.create_pods(http, pods)
            await asyncio.sleep(arguments.after_s)
            attempts = await _attempts(plane, scheduler)
            begin = time.monotonic()
            await asyncio.sleep(arguments.seconds)
            attempts = await _attempts(plane, scheduler) - attempts
            bound = sum(bool(each["spec"].get("nodeName")) for each in await load.items(http, load.PODS))
            moments = (idle_from, created, begin)
            return replace(_cost(competitor.name, scheduler, arguments, moments), attempts=attempts, bound=bound)


async def _attempts(plane: ControlPlane, scheduler: Started) -> int:
    """How often a group was tried so far, by the scheduler's metrics."""
    url = scheduler.ready_url.replace("readyz", "metrics")
    headers = {"Authorization": f"Bearer {plane.token}"}
    async with ClientSession(headers=headers, connector=TCPConnector(ssl=False)) as http, http.get(url) as answer:
        answer.raise_for_status()
        lines = (await answer.text()).splitlines()
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(f"{_ATTEMPTS}{{"))


def _cost(name: str, scheduler: Started, arguments: argparse.Namespace, moments: tuple[float, float, float]) -> Waiting:
    idle_from, created, begin = moments
    meter, end = scheduler.meter, begin + arguments.seconds
    foreign_s = meter.cpu_s("machine", begin, end) - meter.cpu_s("benchmark", begin, end)
    return Waiting(
        competitor=name,
        nodes=arguments.nodes,
        groups=arguments.groups,
        idle=meter.cpu_s("scheduler", idle_from, created) / (created - idle_from),
        first_cpu_s=meter.cpu_s("scheduler", created, begin),
        cores=meter.cpu_s("scheduler", begin, end) / arguments.seconds,
        apiserver_cores=meter.cpu_s("apiserver", begin, end) / arguments.seconds,
        foreign_cores=foreign_s / arguments.seconds,
        seconds=arguments.seconds,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Exit 1 if a pod of a group that cannot start was bound."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.waiting", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--after-s", type=float, default=20.0, help="from the last pod until the measurement begins")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the measurement")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="kube,ours", help="comma-separated competitors: kube, ours")
    parser.add_argument("--out", type=Path, help="JSON lines are appended here instead")
    arguments = parser.parse_args(argv)
    if MINOR not in gangs.RELEASES:
        parser.error(f"groups of pods need KUBERNETES={' or '.join(gangs.RELEASES)}")
    RESULTS.mkdir(exist_ok=True)
    out = arguments.out or RESULTS / f"{time.strftime('%Y%m%dT%H%M%S')}-waiting.jsonl"
    bound = 0
    for name in arguments.only.split(",") * arguments.rounds:
        result = asyncio.run(measure(WITH_GROUPS[name], arguments))
        keep(out, result)
        print(result.line(), flush=True)
        bound += result.bound
    print(f"raw results: {out}")
    return 1 if bound else 0


if __name__ == "__main__":
    sys.exit(main())
