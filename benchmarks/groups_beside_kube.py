"""Which share of random groups starts on a real control plane: with kube-scheduler, with one that packs nodes, and with Kubestow.

The clusters are those of `benchmarks.groups`: small and tight, and an integer program says of each that all pods fit. A real
API server and PV controller have them, some at a time, and a provisioner whose storage ends. A group has started when all
its pods are bound `--limit-s` seconds after the last one was created. All clusters can be expressed, so none is left out.

    python -m benchmarks.groups_beside_kube --seeds 500
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import ClientSession

from benchmarks import load
from benchmarks.gangs import GATES, RELEASES, SERVER_FLAGS, group_body
from benchmarks.groupobjects import GROUP, PlacedWorld, shared_objects
from benchmarks.run import RESULTS, keep
from benchmarks.storageload import StoragePlane
from tests.e2e.cluster import NODES, Cluster, collection
from tests.e2e.controlplane.build import MINOR, VERSION
from tests.e2e.controlplane.harness import ControlPlane, daemon, scheduler_config
from tests.e2e.provisioner import Provisioner
from tests.unit.groups.worlds import DRIVER, drawn

KUBE: Final = "kube"
PACKING: Final = "kube-packing"
"""kube-scheduler that prefers full nodes, as a cluster with large groups may be configured."""
OURS: Final = "ours"
_TITLES: Final = {KUBE: f"kube-scheduler {VERSION}", PACKING: "the same, MostAllocated", OURS: "Kubestow"}
_ALL_PODS: Final = "/api/v1/pods"
_OF_A_BATCH: Final = (NODES, *map(collection, ("CSINode", "ResourceSlice")))
_PUBLISHED_EVERY_S: Final = 1.0
_KNOWN_AFTER_S: Final = 1.0  # watches show what was created before the pods
_LOOKED_AT_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """One group at its limit of time."""

    scheduler: str
    seed: int
    members: int
    bound: int
    condition: str
    """PodGroupInitiallyScheduled: True, False, or empty."""
    kubernetes: str = VERSION

    @property
    def what(self) -> str:
        """For the table."""
        if self.bound == self.members:
            return "started"
        return "in part" if self.bound else "not"


@asynccontextmanager
async def _running(plane: ControlPlane, name: str) -> AsyncIterator[None]:
    """The scheduler of this name."""
    with contextlib.ExitStack() as cleanup:
        if name == OURS:
            cleanup.enter_context(daemon(plane, name))
        else:
            await plane.start_scheduler(_kube_config(name), GATES)
        yield


def _kube_config(name: str) -> dict[str, object]:
    strategy = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]}
    fit = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
    plugins = {"pluginConfig": [fit]} if name == PACKING else {}
    return scheduler_config() | {"profiles": [{"schedulerName": name} | plugins]}


class Batch:
    """Some clusters, which one scheduler fills at the same time."""

    def __init__(self, http: ClientSession, scheduler: str, seeds: Sequence[int]) -> None:
        self._http = http
        self._scheduler = scheduler
        self._worlds = {seed: PlacedWorld(drawn(seed), f"world-{seed}") for seed in seeds}

    async def outcomes(self, claims_http: ClientSession, limit_s: float) -> list[Outcome]:
        """Create, wait, count, and remove what the next ones must not see."""
        worlds = self._worlds.values()
        async with AsyncExitStack() as provisioners:
            await load.spread(partial(self._create, world) for world in worlds)
            for world in worlds:
                provisioner = Provisioner(
                    claims_http,
                    world.namespace,
                    DRIVER,
                    capacities=world.capacities(),
                    publishes_every_s=_PUBLISHED_EVERY_S,
                )
                await provisioners.enter_async_context(provisioner)
            await asyncio.sleep(_KNOWN_AFTER_S)
            await load.spread(partial(self._create_group, world) for world in worlds)
            bound = await self._bound(time.monotonic() + limit_s)
            found = [await self._outcome(seed, bound) for seed in self._worlds]
            await self._clear()
        return found

    async def _create(self, world: PlacedWorld) -> None:
        cluster = Cluster(self._http, world.namespace)
        await cluster.create({"kind": "Namespace", "metadata": {"name": world.namespace}})
        await cluster.create(*world.cluster_objects(), *world.claims())

    async def _create_group(self, world: PlacedWorld) -> None:
        await load.post(self._http, _groups(world.namespace), group_body(GROUP, len(world.world.members)))
        cluster = Cluster(self._http, world.namespace)
        for member in world.pods(self._scheduler):
            await cluster.create(member)

    async def _bound(self, deadline: float) -> Counter[str]:
        """Bound pods by namespace, at the deadline or when there are no more."""
        wanted = sum(len(world.world.members) for world in self._worlds.values())
        while True:
            pods = await load.items(self._http, _ALL_PODS)
            bound = Counter(str(each["metadata"]["namespace"]) for each in pods if each["spec"].get("nodeName"))
            if bound.total() == wanted or time.monotonic() > deadline:
                return bound
            await asyncio.sleep(_LOOKED_AT_EVERY_S)

    async def _outcome(self, seed: int, bound: Counter[str]) -> Outcome:
        world = self._worlds[seed]
        (group,) = await load.items(self._http, _groups(world.namespace))
        conditions = {each["type"]: each["status"] for each in group.get("status", {}).get("conditions", ())}
        status = str(conditions.get("PodGroupInitiallyScheduled", ""))
        return Outcome(self._scheduler, seed, len(world.world.members), bound[world.namespace], status)

    async def _clear(self) -> None:
        """Remove pods, nodes and devices. Claims stay, in namespaces that are not used again."""
        pods = (f"/api/v1/namespaces/{world.namespace}/pods" for world in self._worlds.values())
        await load.spread(partial(self._delete, path) for path in (*pods, *_OF_A_BATCH))

    async def _delete(self, path: str) -> None:
        async with self._http.delete(path, params={"gracePeriodSeconds": "0"}) as answer:
            answer.raise_for_status()


def _groups(namespace: str) -> str:
    return f"/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/podgroups"


async def measure(scheduler: str, seeds: Sequence[int], arguments: argparse.Namespace, out: Path) -> list[Outcome]:
    """All clusters on a new control plane; each result is written when its batch ends."""
    found: list[Outcome] = []
    plane = StoragePlane(high_load=True, apiserver_flags=SERVER_FLAGS)
    async with plane, plane.client() as http, plane.client() as claims_http:
        await Cluster(http).create(*shared_objects())
        await plane.start_controllers()
        async with _running(plane, scheduler):
            for at in range(0, len(seeds), arguments.batch):
                batch = Batch(http, scheduler, seeds[at : at + arguments.batch])
                outcomes = await batch.outcomes(claims_http, arguments.limit_s)
                for outcome in outcomes:
                    keep(out, outcome)
                found += outcomes
                print(_line(scheduler, found), file=sys.stderr, flush=True)
    return found


def _line(scheduler: str, found: Sequence[Outcome]) -> str:
    count = Counter(outcome.what for outcome in found)
    shares = ", ".join(
        f"{count[what]:4} {what} ({count[what] / len(found):.1%})" for what in ("started", "in part", "not")
    )
    return f"{_TITLES[scheduler]:24} {shares}, of {len(found)}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each scheduler."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.groups_beside_kube", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500, help="random clusters (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=25, help="clusters at a time (default: %(default)s)")
    parser.add_argument("--limit-s", type=float, default=10.0, help="time for a group to start (default: %(default)s)")
    parser.add_argument("--only", default=",".join(_TITLES), help="comma-separated schedulers (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="JSON lines are appended here instead")
    arguments = parser.parse_args(argv)
    if MINOR not in RELEASES:
        parser.error(f"groups of pods need KUBERNETES={' or '.join(RELEASES)}")
    seeds = [seed for seed in range(arguments.seeds) if drawn(seed).is_placeable()]
    print(f"{len(seeds)} of {arguments.seeds} groups can be placed")
    RESULTS.mkdir(exist_ok=True)
    out = arguments.out or RESULTS / f"{time.strftime('%Y%m%dT%H%M%S')}-groups.jsonl"
    for scheduler in arguments.only.split(","):
        print(_line(scheduler, asyncio.run(measure(scheduler, seeds, arguments, out))), flush=True)
    print(f"raw results: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
