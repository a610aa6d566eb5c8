"""kube-scheduler and Kubestow allocate the same devices at the same time (docs/spec/dra.md §10.5).

No API server refuses a device that is in two claims, and kube-scheduler does not check. Kubestow checks once its watch has
passed its own write: if it came second, it gives the device back before its pod is bound. So if a device is in two claims
in the end, Kubestow was first, and none of its pods is bound with a device that another claim had first."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from simulator.builders.claims import a_claim_template
from simulator.builders.core import Builder
from simulator.builders.devices import a_device
from tests.e2e.cluster import Json, collection, pod_events
from tests.e2e.controlplane.harness import SCHEDULER_NAME, ControlPlane, daemon, scheduler_config
from tests.e2e.controlplane.process import ServerProcess, free_port
from tests.e2e.devices import DeviceSandbox, gpus, on, results_of
from tests.e2e.sandbox import THEIRS, SharedPlane

ROUNDS: Final = int(os.environ.get("KUBESTOW_ROUNDS", "3"))
NODES: Final = 10
DEVICES: Final = 200
PODS: Final = 180
"""Of a round, of all schedulers together: they want almost all devices."""
SECOND: Final = "kubestow-2"
"""Another Kubestow."""
PATIENCE_S: Final = 120.0
COLLISIONS: Final = "kubestow_device_collisions_total"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(220 + 20 * ROUNDS)]


@dataclass(frozen=True)
class Holding:
    """A device in a claim, from the write that put it there (`since`) until the one that took it away (0: never)."""

    claim: str
    owner: str
    since: int
    until: int = 0

    def overlaps(self, other: Holding) -> bool:
        return not (self.until and self.until <= other.since) and not (other.until and other.until <= self.since)


class Ledger:
    """The holders of each device and the bindings of pods, by resource versions: those of one store are in order."""

    def __init__(self) -> None:
        self.holdings: dict[str, list[Holding]] = defaultdict(list)
        self.bound: dict[str, int] = {}
        """Uid of a pod → version in which it has a node."""
        self.schedulers: dict[str, str] = {}
        self.version = 0
        self.following: Sequence[asyncio.Task[None]] = ()
        self._held: dict[str, tuple[str, ...]] = {}

    def see_pod(self, type_: str, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        self.schedulers[uid] = pod["spec"]["schedulerName"]
        if pod["spec"].get("nodeName") and type_ != "DELETED":
            self.bound.setdefault(uid, int(pod["metadata"]["resourceVersion"]))

    def see_claim(self, type_: str, claim: Json) -> None:
        uid, version = claim["metadata"]["uid"], int(claim["metadata"]["resourceVersion"])
        self.version = max(self.version, version)
        results = results_of(claim) if type_ != "DELETED" else []
        now = tuple(f"{each['pool']}/{each['device']}" for each in results)
        before = self._held.get(uid, ())
        if now == before:
            return
        for device in before:
            self.holdings[device] = [
                Holding(each.claim, each.owner, each.since, version) if each.claim == uid and not each.until else each
                for each in self.holdings[device]
            ]
        (owner,) = (each["uid"] for each in claim["metadata"]["ownerReferences"])
        for device in now:
            self.holdings[device].append(Holding(uid, owner, version))
        self._held[uid] = now

    def conflicts(self) -> Iterator[tuple[str, Holding, Holding]]:
        """Device, first holder, and the claim that got it too."""
        for device, holdings in self.holdings.items():
            in_order = sorted(holdings, key=lambda each: each.since)
            for at, second in enumerate(in_order):
                for first in in_order[:at]:
                    if first.claim != second.claim and first.overlaps(second):
                        yield device, first, second

    def is_ours(self, holding: Holding) -> bool:
        return self.schedulers[holding.owner] != THEIRS

    def given_up_in_vain(self) -> list[Holding]:
        """Devices that a Kubestow gave back before the pod was bound, although no other claim had them before."""
        return [
            each
            for holdings in self.holdings.values()
            for each in holdings
            if each.until and self.is_ours(each) and each.until < self.bound.get(each.owner, each.until + 1)
            if not any(other.since < each.since and other.overlaps(each) for other in holdings if other is not each)
        ]

    def with_open_eyes(self) -> list[str]:
        """Our pods that were bound while their claim had a device that another had first."""
        return [
            f"{device}: {second} after {first}, bound at {self.bound[second.owner]}"
            for device, first, second in self.conflicts()
            if self.is_ours(second)
            and second.owner in self.bound
            and second.since < self.bound[second.owner]
            and (not second.until or self.bound[second.owner] < second.until)
            and not (first.until and first.until < self.bound[second.owner])
        ]


async def follow(http: aiohttp.ClientSession, reservations: Ledger, kind: str, namespace: str, version: str) -> None:
    """Read until cancelled."""
    see = reservations.see_pod if kind == "Pod" else reservations.see_claim
    async for event in pod_events(http, version, collection(kind, namespace)):
        see(event["type"], event["object"])


@contextlib.asynccontextmanager
async def ledger_of(sandbox: DeviceSandbox) -> AsyncIterator[Ledger]:
    """The ledger of this sandbox, from now on."""
    reservations = Ledger()
    following = [
        asyncio.create_task(follow(sandbox.http, reservations, kind, sandbox.name, await version_of(sandbox, kind)))
        for kind in ("Pod", "ResourceClaim")
    ]
    reservations.following = following
    try:
        yield reservations
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)


async def version_of(sandbox: DeviceSandbox, kind: str) -> str:
    return str((await sandbox.cluster.get(collection(kind, sandbox.name)))["metadata"]["resourceVersion"])


def slices(*, is_shared: bool) -> list[Builder[object]]:
    """All devices, on their nodes or for all nodes; in the latter case both schedulers take them in the same order."""
    if not is_shared:
        per_node = DEVICES // NODES
        return [on(f"n{n}", *(a_device(f"d{i:03}") for i in range(per_node))) for n in range(NODES)]
    half = DEVICES // 2
    return [
        on("net", *(a_device(f"d{first + i:03}") for i in range(half))).named(f"net-{first}").of(2).everywhere()
        for first in (0, half)
    ]


@pytest.mark.parametrize("is_shared", [False, True], ids=["devices of nodes", "devices that are for all nodes"])
async def test_two_schedulers_give_away_the_same_devices(control_plane_binaries: Path, is_shared: bool) -> None:
    await take_turns(is_shared=is_shared, daemons=(SCHEDULER_NAME,))


async def test_two_kubestows_and_kube_scheduler_give_away_the_same_devices(control_plane_binaries: Path) -> None:
    await take_turns(is_shared=True, daemons=(SCHEDULER_NAME, SECOND))


async def take_turns(*, is_shared: bool, daemons: Sequence[str]) -> None:
    """kube-scheduler and these, each with its pods, in rounds."""
    ports = {name: free_port() for name in daemons}
    async with ControlPlane(high_load=True) as plane, plane.client() as http, aiohttp.ClientSession() as endpoints:
        await plane.start_controllers(["resourceclaim-controller"])
        await plane.start_scheduler(scheduler_config(THEIRS))
        with contextlib.ExitStack() as stack:
            servers = {
                name: stack.enter_context(daemon(plane, name, name=name, flags=[f"--plain-port={port}"]))
                for name, port in ports.items()
            }
            sandbox = DeviceSandbox(SharedPlane(plane, servers[SCHEDULER_NAME]), http, "shared")
            await sandbox.open()
            nodes = [sandbox.node(f"n{n}", cpu="64") for n in range(NODES)]
            await sandbox.make(*nodes, gpus(), *slices(is_shared=is_shared), a_claim_template("t").request("r", "gpu"))
            for name in daemons:  # so that no round is over before all are there
                sandbox.scheduler = name
                await sandbox.make(sandbox.pod(f"first-{name}"))
                await sandbox.bound(f"first-{name}")
            async with ledger_of(sandbox) as reservations:
                for number in range(ROUNDS):
                    await one_round(sandbox, reservations, number, (*daemons, THEIRS))
            given_back = sum([await collisions(endpoints, ports[name], servers[name]) for name in daemons])

    conflicts = list(reservations.conflicts())
    second = [each for _, _, each in conflicts if reservations.is_ours(each)]
    pods = PODS * ROUNDS
    between_ours = [each for _, first, each in conflicts if reservations.is_ours(each) and reservations.is_ours(first)]
    print(  # noqa: T201 (the result of the race)
        f"{pods} pods; {len(conflicts)} clashes ({100 * len(conflicts) / pods:.2f} %), {len(between_ours)} of them between "
        f"two of ours, ours second in {len(second)}; we gave up {given_back} times"
    )
    assert reservations.with_open_eyes() == []
    assert reservations.given_up_in_vain() == []
    assert given_back >= len({(each.claim, each.since) for each in second})


async def one_round(sandbox: DeviceSandbox, reservations: Ledger, number: int, schedulers: Sequence[str]) -> None:
    """All pods are bound and deleted; when all devices are free the next round may begin."""
    each = PODS // len(schedulers)
    pods = [a_pod(sandbox, scheduler, f"{number}-{i}") for i in range(each) for scheduler in schedulers]
    names = [pod["metadata"]["name"] for pod in pods]
    await sandbox.make(*pods)
    await sandbox.bound(*names, within_s=PATIENCE_S)
    claims = await sandbox.all("ResourceClaim")
    mine = {uid for uid, scheduler in reservations.schedulers.items() if scheduler != THEIRS}
    await judged(sandbox, reservations, claims, mine)
    await sandbox.gone(*names)

    async def all_are_free() -> bool:
        return not any(results_of(claim) for claim in await sandbox.all("ResourceClaim"))

    await sandbox.until(all_are_free, "devices that are all free", within_s=PATIENCE_S)


def a_pod(sandbox: DeviceSandbox, scheduler: str, name: str) -> Json:
    """For this scheduler, with a separate claim."""
    sandbox.scheduler = scheduler
    return sandbox.pod(f"{scheduler}-{name}", templates=["t"])


async def judged(sandbox: DeviceSandbox, reservations: Ledger, claims: list[Json], mine: set[str]) -> None:
    """In the stored state: if a device is in two claims, Kubestow was first."""
    newest = max(int(claim["metadata"]["resourceVersion"]) for claim in claims)

    async def has_been_seen() -> bool:
        assert not any(task.done() for task in reservations.following), [
            task for task in reservations.following if task.done()
        ]
        return reservations.version >= newest

    await sandbox.until(has_been_seen, "a ledger that has all of it")
    for holdings in reservations.holdings.values():
        now = sorted((each for each in holdings if not each.until), key=lambda each: each.since)
        assert not [each for each in now[1:] if each.owner in mine], now


async def collisions(endpoints: aiohttp.ClientSession, port: int, server: ServerProcess) -> int:
    server.check()
    async with endpoints.get(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(COLLISIONS))
