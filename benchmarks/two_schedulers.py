"""Nodes that two schedulers fill beyond what they have, with and without `busyNodes: avoid`: conflicts per 1000 bindings.

    python -m benchmarks.two_schedulers
    python -m benchmarks.two_schedulers --real --kube 1.37

With `--real` they are the daemon and a real kube-scheduler on a real control plane (benchmarks/beside_kube.py).

Without it, in one process and on virtual time: the same seeds give the same history on every machine. The deciding half
of the daemon and a second scheduler of a few lines share a cluster. The second one takes the least allocated node that
fits. Each binding of ours to a contested node is preceded by a read, which takes 2 to 10 ms. The cluster carries out each Binding, as a server does, whatever the node has left. Both see changes late by as much as a seed says.
The cluster is filled first; then one pod ends for each new one, so that it stays as full. A conflict is a Binding after
which the requests on its node exceed what the node has; the pod then leaves, as the kubelet would have it.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import itertools
import logging
import os
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal, TypeAlias

import msgspec
import structlog
from rich.console import Console
from rich.table import Table

from benchmarks.in_process import Echo, Silent
from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import Delta, ObjectDecoder
from scheduler.api.podinfo import pod_info
from scheduler.config.args import KubestowArgs
from scheduler.config.types import Configuration, RunOptions
from scheduler.metrics.metrics import Metrics
from scheduler.scheduler import Scheduler
from tests.support.clock import VirtualClock

NODE_MILLI_CPU = 8000
MIXED = (250, 500, 500, 1000, 2000)
EQUAL = (500,)
BIND_S = (0.005, 0.03)
WATCH_S = (0.01, 0.15)
_versions = itertools.count(1)


BusyNodes: TypeAlias = Literal["avoid", "none"]
_BUSY_NODES: Final[tuple[BusyNodes, ...]] = ("none", "avoid")


@dataclass(frozen=True, slots=True)
class Run:
    """One history."""

    full: float
    busy_nodes: BusyNodes
    seed: int
    nodes: int = 300
    bindings: int = 2000
    pods_per_s: float = 30.0
    """For each of the two schedulers."""
    sizes: tuple[int, ...] = MIXED
    """Of the pods, in milli-CPU."""
    packs: bool = False
    """Whether the second scheduler prefers the fullest node, and not the emptiest one."""


@dataclass(slots=True)
class Counts:
    """Bindings, and those of them after which the node had too much."""

    ours: int = 0
    theirs: int = 0
    our_conflicts: int = 0
    their_conflicts: int = 0

    def add(self, other: Counts) -> None:
        self.ours += other.ours
        self.theirs += other.theirs
        self.our_conflicts += other.our_conflicts
        self.their_conflicts += other.their_conflicts


class _Later:
    """Calls in the order of their times."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def put(self, delay_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (self._clock.now() + delay_s, next(self._order), call))

    def due(self) -> None:
        while self._calls and self._calls[0][0] <= self._clock.now():
            heapq.heappop(self._calls)[2]()


@dataclass(slots=True)
class _View:
    """What the second scheduler believes to be free: what it has seen, less what it has decided."""

    free: list[int]
    placed: dict[str, int] = field(default_factory=dict)
    """Pod name → node."""


class _World:
    def __init__(self, run: Run) -> None:
        self.run, self.rng, self.clock = run, random.Random(run.seed), VirtualClock()
        self.later, self.counts = _Later(self.clock), Counts()
        self.free = [NODE_MILLI_CPU] * run.nodes
        self._shown_at = [0.0, 0.0]
        """When the last change reaches our watch, and the other."""
        self.bound: dict[str, tuple[Pod, int, int]] = {}
        """Pod name → pod, node and size, as the server has it."""
        self.view = _View([NODE_MILLI_CPU] * run.nodes)
        self._decode = ObjectDecoder("Pod", Pod).decode
        config = Configuration()
        own = config.profiles[0]
        args = {**own.args, "Kubestow": KubestowArgs(busy_nodes=run.busy_nodes)}
        options = RunOptions(config=replace(config, profiles=(replace(own, args=args),)))
        self.scheduler = Scheduler(
            options, writer=_Writer.of(self), recorder=Silent(), clock=self.clock, metrics=Metrics(process=False)
        )
        self.scheduler.rng.seed(run.seed)
        node = ObjectDecoder("Node", Node).decode
        self.scheduler.event_handlers.apply("Node", [Delta(None, node(_node(index))) for index in range(run.nodes)])

    def pod(self, name: str, milli_cpu: int, scheduler: str) -> Pod:
        containers = [{"name": "main", "resources": {"requests": {"cpu": f"{milli_cpu}m", "memory": "64Mi"}}}]
        version = str(next(_versions))
        metadata = {"name": name, "namespace": "bench", "uid": f"{name}-{version}", "resourceVersion": version}
        body = {"metadata": metadata, "spec": {"containers": containers, "schedulerName": scheduler}}
        pod = self._decode(msgspec.json.encode(body))
        assert isinstance(pod, Pod)
        return pod

    # -- the server ------------------------------------------------------------------------------------------------------

    def commit(self, pod: Pod, node: int, *, is_ours: bool) -> None:
        """A Binding is carried out, and shown to both when their watches get there."""
        name = pod.metadata.name
        milli_cpu = _size(pod)
        metadata = msgspec.structs.replace(pod.metadata, resource_version=str(next(_versions)))
        spec = msgspec.structs.replace(pod.spec, node_name=f"node-{node}")
        there = msgspec.structs.replace(pod, metadata=metadata, spec=spec)
        self.bound[name] = (there, node, milli_cpu)
        self.free[node] -= milli_cpu
        is_conflict = self.free[node] < 0
        if is_ours:
            self.counts.ours += 1
            self.counts.our_conflicts += is_conflict
        else:
            self.counts.theirs += 1
            self.counts.their_conflicts += is_conflict
        self.show(Delta(pod, there), node, milli_cpu)
        if is_conflict:
            self.end(name)

    def end(self, name: str) -> None:
        """The pod is gone from its node."""
        there, node, milli_cpu = self.bound.pop(name)
        self.free[node] += milli_cpu
        self.show(Delta(there, None), node, -milli_cpu)

    def show(self, delta: Delta[Pod], node: int, milli_cpu: int) -> None:
        """One watch is as late as the other, each by chance; a watch never shows things out of order."""
        calls = (
            partial(self.scheduler.inbox.put, partial(self.scheduler.event_handlers.apply, "Pod", [delta])),
            partial(self._seen, delta, node, milli_cpu),
        )
        for at, call in enumerate(calls):
            self._shown_at[at] = max(self._shown_at[at], self.clock.now() + self.rng.uniform(*WATCH_S))
            self.later.put(self._shown_at[at] - self.clock.now(), call)

    def _seen(self, delta: Delta[Pod], node: int, milli_cpu: int) -> None:
        shown = delta.new or delta.old
        assert isinstance(shown, Pod)
        if milli_cpu < 0 or self.view.placed.pop(shown.metadata.name, None) is None:
            self.view.free[node] -= milli_cpu

    # -- the second scheduler --------------------------------------------------------------------------------------------

    def decide(self, pod: Pod) -> None:
        """The node with most left among those that fit; if it packs, that with least left."""
        milli_cpu, free = _size(pod), self.view.free
        fitting = [left for left in free if left >= milli_cpu]
        if not fitting:
            return
        wanted = min(fitting) if self.run.packs else max(fitting)
        node = self.rng.choice([index for index, left in enumerate(free) if left == wanted])
        free[node] -= milli_cpu
        self.view.placed[pod.metadata.name] = node
        self.later.put(self.rng.uniform(*BIND_S), partial(self.commit, pod, node, is_ours=False))


class _Writer(Echo):
    _world: _World

    @classmethod
    def of(cls, world: _World) -> _Writer:
        """A base class takes no arguments in Python 3.11."""
        writer = cls()
        writer._world = world
        return writer

    async def bind(self, pod: Pod, node_name: str) -> None:
        """As the `Writer` port."""
        world = self._world
        await world.clock.sleep(world.rng.uniform(*BIND_S))
        world.commit(pod, int(node_name.partition("-")[2]), is_ours=True)


async def history(run: Run) -> Counts:
    """Fill the cluster, then replace pods until there were this many bindings."""
    world = _World(run)
    _fill(world)
    await world.clock.advance(2)
    world.later.due()
    loop = asyncio.ensure_future(world.scheduler.loop.run())
    await world.clock.advance(2)
    world.counts = Counts()
    for index in itertools.count():
        if world.counts.ours + world.counts.theirs >= run.bindings:
            break
        for scheduler in ("kubestow", "other"):
            size = world.rng.choice(world.run.sizes)
            pod = world.pod(f"{scheduler}-{index}", size, scheduler)
            if scheduler == "other":
                world.decide(pod)
            else:
                world.scheduler.inbox.put(partial(world.scheduler.event_handlers.apply, "Pod", [Delta(None, pod)]))
        while sum(world.free) < run.nodes * NODE_MILLI_CPU * (1 - run.full):
            world.end(world.rng.choice(list(world.bound)))
        for _ in range(5):
            await world.clock.advance(1 / run.pods_per_s / 5)
            world.later.due()
    world.scheduler.loop.stop()
    await loop
    return world.counts


def _fill(world: _World) -> None:
    """Pods of the second scheduler, one by one on the emptiest node, until the cluster is this full."""
    wanted = world.run.nodes * NODE_MILLI_CPU * (1 - world.run.full)
    for index in itertools.count():
        if sum(world.free) <= wanted:
            return
        pod = world.pod(f"first-{index}", world.rng.choice(world.run.sizes), "other")
        node = world.free.index(max(world.free))
        if _size(pod) <= world.free[node]:
            world.view.placed[pod.metadata.name] = node
            world.view.free[node] -= _size(pod)
            world.commit(pod, node, is_ours=False)


def _size(pod: Pod) -> int:
    return pod_info(pod).requests["cpu"]


def _node(index: int) -> bytes:
    room = {"cpu": f"{NODE_MILLI_CPU}m", "memory": "64Gi", "pods": "110"}
    return msgspec.json.encode({"metadata": {"name": f"node-{index}"}, "status": {"allocatable": room}})


def _real(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Measure with real processes. Modules of the control plane read the version when they are imported."""
    if arguments.kube and os.environ.get("KUBERNETES") != arguments.kube:
        again = [sys.executable, "-m", "benchmarks.two_schedulers", *argv]
        os.execve(sys.executable, again, {**os.environ, "KUBERNETES": arguments.kube})
    from benchmarks import beside_kube

    beside_kube.run(arguments.seeds, nodes=arguments.nodes or 100, full=0.97, pods_per_s=2 * arguments.pods_per_s)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_schedulers", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--nodes", type=int, help="default: 300, with --real 100")
    parser.add_argument("--bindings", type=int, default=2000, help="of both together, for each seed")
    parser.add_argument("--pods-per-s", type=float, default=30.0, help="for each scheduler")
    parser.add_argument("--equal", action="store_true", help="pods of one size, so that many nodes are equally good")
    parser.add_argument("--packs", action="store_true", help="the other scheduler prefers the fullest node")
    parser.add_argument("--real", action="store_true", help="with kube-scheduler, on a real control plane")
    parser.add_argument("--kube", help="version of both with --real, such as 1.37")
    arguments = parser.parse_args(argv)
    if arguments.real:
        return _real(arguments, sys.argv[1:] if argv is None else argv)
    nodes = arguments.nodes or 300
    sizes = EQUAL if arguments.equal else MIXED
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    table = Table(title=f"conflicts per 1000 bindings, {nodes} nodes, {arguments.seeds} seeds")
    for column in ("full", "busyNodes", "ours", "theirs", "together", "bindings"):
        table.add_column(column, justify="right")
    for full, busy_nodes in itertools.product((0.7, 0.97), _BUSY_NODES):
        total = Counts()
        for seed in range(arguments.seeds):
            run = Run(full, busy_nodes, seed, nodes, arguments.bindings, arguments.pods_per_s, sizes, arguments.packs)
            total.add(asyncio.run(history(run)))
        both, conflicts = total.ours + total.theirs, total.our_conflicts + total.their_conflicts
        rates = (
            1000 * total.our_conflicts / max(1, total.ours),
            1000 * total.their_conflicts / max(1, total.theirs),
            1000 * conflicts / max(1, both),
        )
        table.add_row(f"{full:.0%}", busy_nodes, *(f"{rate:.1f}" for rate in rates), f"{both}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
