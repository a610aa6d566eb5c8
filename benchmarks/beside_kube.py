"""kube-scheduler and Kubestow fill the same nodes at the same time, on a real control plane.

The pods of both are created in turn, in mixed sizes, until together they request `full` of all nodes. One watch shows the
writes in the server's order. So the second writer of an over-commitment is known: the scheduler whose Binding made the sum
exceed the node. The kubelet of that node then refuses the pod, which is written as Failed, and frees its request.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import ClientError, ClientSession
from rich.console import Console
from rich.table import Table

from benchmarks import meter
from benchmarks.observer import session
from benchmarks.run import RESULTS
from benchmarks.watching import changes
from tests.e2e.cluster import PODS, Cluster, node, pod
from tests.e2e.controlplane.build import MINOR, RELEASES
from tests.e2e.controlplane.harness import ControlPlane, daemon, scheduler_config
from tests.e2e.controlplane.process import ServerProcess, free_port

KUBE: Final = "kube-scheduler"
OURS: Final = "kubestow"
ROOM: Final = 4000
"""Milli-CPU of a node."""
SIZES: Final = (200, 500, 800, 300, 1000)
IDLE_S: Final = 10.0
"""A run ends when no pod was bound for this long, because the rest fits on no node."""
READY_S: Final = 120.0
_REFUSED: Final = {"status": {"phase": "Failed", "reason": "OutOfcpu"}}
YIELDED: Final = "kubestow_binding_conflicts_total"


@dataclass(slots=True)
class Side:
    """The Bindings of one scheduler."""

    bindings: int = 0
    exceeded: set[str] = field(default_factory=set)
    """Nodes on which it was the second writer of an over-commitment."""
    refused: int = 0
    first_at: float = 0.0
    last_at: float = 0.0
    cpu_s: float = 0.0

    @property
    def pods_per_s(self) -> float:
        """Between its first and its last Binding."""
        took_s = self.last_at - self.first_at
        return (self.bindings - 1) / took_s if took_s > 0 else 0.0


class Kubelets:
    """The kubelets of all nodes. They follow one watch, and refuse pods for which the cpu does not suffice."""

    def __init__(self, cluster: Cluster) -> None:
        self.sides = {KUBE: Side(), OURS: Side()}
        self.last_binding_at = time.monotonic()
        self._cluster = cluster
        self._held: dict[str, dict[str, int]] = {}
        self._bound: set[str] = set()
        self._version = ""
        self._refusing: set[asyncio.Task[None]] = set()

    @property
    def done(self) -> int:
        """Pods that were bound."""
        return len(self._bound)

    async def follow(self, kubeconfig: Path, version: str) -> None:
        """Read until cancelled."""
        self._version = version
        async with session(kubeconfig) as http:
            async for lines in changes(http, PODS, lambda: self._version):
                now = time.monotonic()
                for line in lines:
                    self._see(msgspec.json.decode(line)["object"], now)

    def _see(self, seen: Mapping[str, Any], now: float) -> None:
        metadata, spec = seen["metadata"], seen["spec"]
        self._version, name = metadata["resourceVersion"], metadata.get("name", "")
        node_name, phase = spec.get("nodeName", ""), seen["status"].get("phase")
        held = self._held.setdefault(node_name, {})
        if phase == "Failed":
            held.pop(name, None)
        elif node_name and name not in self._bound:
            self._bound.add(name)
            side = self.sides[spec["schedulerName"]]
            side.bindings += 1
            side.first_at = side.first_at or now
            side.last_at = self.last_binding_at = now
            held[name] = int(metadata["labels"]["milli-cpu"])
            if sum(held.values()) > ROOM:
                side.refused += 1
                side.exceeded.add(node_name)
                self._refuse(name)

    async def settled(self) -> None:
        """Wait until each refusal is written. A write that the overloaded server lost is left out."""
        await asyncio.gather(*self._refusing, return_exceptions=True)

    def _refuse(self, name: str) -> None:
        task = asyncio.ensure_future(self._cluster.merge(f"{PODS}/{name}/status", _REFUSED))
        self._refusing.add(task)
        task.add_done_callback(self._refusing.discard)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run."""

    seed: int
    busy_nodes: str
    sides: Mapping[str, Side]
    pods: int
    counted: Mapping[str, Mapping[str, int]]
    """Kubestow's counters."""
    foreign_cores: float
    """Cores that other processes of the machine used."""

    def line(self) -> str:
        """One line for people."""
        sides = "; ".join(f"{name} second on {len(side.exceeded)} nodes" for name, side in self.sides.items())
        return f"seed {self.seed} {self.busy_nodes}: {sides}; {dict(self.counted)}"


def _pods(seed: int, nodes: int, full: float) -> Iterator[dict[str, Any]]:
    """Pods of both schedulers in turn, in the order of their creation."""
    rng, left, number = random.Random(seed), int(full * ROOM * nodes), 0
    while True:
        size = rng.choice(SIZES)
        for name in (KUBE, OURS):
            left -= size
            if left < 0:
                return
            made = pod(f"{name}-{number}", name, cpu=f"{size}m")
            made["metadata"]["labels"] = {"milli-cpu": str(size)}
            yield made
        number += 1


async def _metrics(http: ClientSession) -> Mapping[str, Mapping[str, int]]:
    async with http.get("/metrics") as answer:
        lines = (await answer.text()).splitlines()
    counted: dict[str, dict[str, int]] = {}
    for line in lines:
        name, label, value = line.partition("{")[0], line.partition('="')[2].partition('"')[0], line.rpartition(" ")[2]
        if name == YIELDED:
            counted.setdefault(name, {})[label] = int(float(value))
    return counted


async def _ready(http: ClientSession, server: ServerProcess) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        server.check()
        with contextlib.suppress(ClientError):  # not listening yet
            async with http.get("/readyz") as answer:
                if answer.status == 200:
                    return
        await asyncio.sleep(0.1)
    raise TimeoutError(server.tail())


def _foreign_s() -> float:
    """CPU seconds of all processes but ours."""
    return meter.machine().cpu_s - meter.usage(os.getpid()).cpu_s


async def _create(cluster: Cluster, pods: Sequence[dict[str, Any]], pods_per_s: float) -> None:
    """Create at this rate, whether or not earlier requests are answered."""
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for index, each in enumerate(pods):
            await asyncio.sleep(began + index / pods_per_s - time.monotonic())
            group.create_task(cluster.create(each))


def _config(busy_nodes: str) -> dict[str, object]:
    profile = {"schedulerName": OURS, "pluginConfig": [{"name": "Kubestow", "args": {"busyNodes": busy_nodes}}]}
    return scheduler_config() | {"profiles": [profile]}


async def measure(seed: int, busy_nodes: str, *, nodes: int, full: float, pods_per_s: float) -> Outcome:
    """One run on a new control plane."""
    port = free_port()
    pods = list(_pods(seed, nodes, full))
    async with (
        ControlPlane(high_load=True) as plane,
        plane.client() as http,
        ClientSession(f"http://127.0.0.1:{port}") as endpoints,
    ):
        cluster = Cluster(http)
        kubelets = Kubelets(cluster)
        await cluster.create(*(node(f"n-{index}", cpu=f"{ROOM}m", memory="64Gi") for index in range(nodes)))
        await plane.start_scheduler(scheduler_config(KUBE))
        version = (await cluster.get(PODS))["metadata"]["resourceVersion"]
        following = asyncio.create_task(kubelets.follow(plane.kubeconfig, version))
        with daemon(plane, config=_config(busy_nodes), flags=[f"--plain-port={port}"]) as server:
            await _ready(endpoints, server)
            kube_s, our_s = plane.cpu_s("kube-scheduler"), server.cpu_s()
            before = _foreign_s()
            began = time.monotonic()
            await _create(cluster, pods, pods_per_s)
            kubelets.last_binding_at = time.monotonic()
            while kubelets.done < len(pods) and time.monotonic() - kubelets.last_binding_at < IDLE_S:
                await asyncio.sleep(0.2)
                server.check()
                if following.done():
                    following.result()
            kubelets.sides[KUBE].cpu_s = plane.cpu_s("kube-scheduler") - kube_s
            kubelets.sides[OURS].cpu_s = server.cpu_s() - our_s
            cores = (_foreign_s() - before) / (time.monotonic() - began)
            counted = await _metrics(endpoints)
            await kubelets.settled()
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
    return Outcome(seed, busy_nodes, kubelets.sides, len(pods), counted, cores)


def run(seeds: int, *, nodes: int, full: float, pods_per_s: float) -> None:
    """Print the table. Each seed runs without and with what `busyNodes: avoid` does; raw results are kept as JSON lines."""
    table = Table(title=f"{nodes} nodes, filled to {full:.0%}, {pods_per_s:.0f} pods/s, {RELEASES[MINOR]}")
    for column in ("seed", "busyNodes", "scheduler", "bindings", "2nd writer on", "pods/s", "CPU s", "foreign cores"):
        table.add_column(column, justify="right")
    RESULTS.mkdir(exist_ok=True)
    out = RESULTS / f"{time.strftime('%Y%m%dT%H%M%S')}-two-schedulers.jsonl"
    for seed, busy_nodes in itertools.product(range(1, seeds + 1), ("none", "avoid")):
        outcome = asyncio.run(measure(seed, busy_nodes, nodes=nodes, full=full, pods_per_s=pods_per_s))
        with out.open("ab") as lines:
            lines.write(msgspec.json.encode(outcome) + b"\n")
        print(outcome.line(), file=sys.stderr, flush=True)
        for name, side in outcome.sides.items():
            numbers = (str(side.bindings), f"{len(side.exceeded)} nodes", f"{side.pods_per_s:.0f}", f"{side.cpu_s:.1f}")
            table.add_row(str(seed), busy_nodes, name, *numbers, f"{outcome.foreign_cores:.1f}")
    Console().print(table)
    print(f"raw results: {out}")
