"""Fills the cluster with what a workload's claims need, starts the controllers, and checks the end.

Each competitor has new volumes, claims and capacities, a new kube-controller-manager and a new provisioner, and all of
it is looked at before the competitor is started. Volumes and claims are made, and removed, while no controller runs:
so they are gone at once, whatever their reclaim policy and finalizers say.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from aiohttp import ClientSession

from benchmarks import load
from benchmarks.meter import Usage, usage
from benchmarks.processes import REPOSITORY
from benchmarks.provisioner import CAPACITIES, CLAIMS, VOLUMES
from benchmarks.storage import HOSTNAME, Storage, csi_volume_body
from benchmarks.volumes import BURST, KINDS, claim_names
from benchmarks.workload import Workload
from scheduler.api.quantity import parse
from scheduler.api.storage_v1 import BIND_COMPLETED, SELECTED_NODE
from tests.e2e.controlplane.harness import STORAGE_AND_DEVICES, ControlPlane

CONTROLLERS = "kube-controller-manager"
_GROUP = "/apis/storage.k8s.io/v1"
_BURST_TAKES_S = 1.0
_QUIET_BELOW_CORES = 0.1
_QUIET_WITHIN_S = 120.0
_Object = Mapping[str, Any]


class StoragePlane(ControlPlane):
    """A control plane whose controllers have a high client limit."""

    async def start_controllers(self, names: Sequence[str] = STORAGE_AND_DEVICES, *more: str) -> None:
        """As every ControlPlane, with the limits of the schedulers that are measured."""
        limits = ("--kube-api-qps=5000", "--kube-api-burst=10000")
        which = (f"--kubeconfig={self.kubeconfig}", f"--controllers={','.join(names)}", "--leader-elect=false")
        await self._start_client(CONTROLLERS, (*which, *limits, *more))


@dataclass(slots=True)
class Companions:
    """The other processes of a run."""

    sources: dict[str, Callable[[], Usage]] = field(default_factory=dict)
    """For the meter."""
    failures: int = 0
    """How often the provisioner found no capacity on the selected node."""


# -- fill and empty ----------------------------------------------------------------------------------------------------


async def create_classes(http: ClientSession, workload: Workload) -> None:
    """What stays: class, driver, CSINodes."""
    if workload.name not in KINDS:
        return
    storage = Storage(workload)
    await load.post(http, f"{_GROUP}/storageclasses", storage.storage_class())
    for body in storage.drivers():
        await load.post(http, f"{_GROUP}/csidrivers", body)
    await load.spread(partial(load.post, http, f"{_GROUP}/csinodes", body) for body in storage.csi_nodes())


async def clear(http: ClientSession, workload: Workload) -> None:
    """Remove volumes, claims and capacities; to be called without pods and controllers."""
    if workload.name not in KINDS:
        return
    for path in (CLAIMS, VOLUMES, CAPACITIES):
        while names := await load.names(http, path):
            await load.spread(partial(load.remove, http, f"{path}/{name}") for name in names)


async def _fill(http: ClientSession, storage: Storage, names: Sequence[str]) -> None:
    await load.spread(partial(load.post, http, CAPACITIES, body) for body in storage.capacities())
    await load.spread(partial(_create_local, http, name, body) for name, body in storage.local_volumes())
    claims = (claim for index, name in enumerate(names) for claim in storage.claims(name, index))
    if storage.has_bound_claims:
        await load.spread(partial(_create_bound, http, name, body) for name, body in claims)
    else:
        await load.spread(partial(load.post, http, CLAIMS, body) for _, body in claims)


async def _create_local(http: ClientSession, name: str, body: bytes) -> None:
    await load.post(http, VOLUMES, body)
    await load.patch(http, f"{VOLUMES}/{name}/status", b'{"status": {"phase": "Available"}}')


async def _create_bound(http: ClientSession, name: str, body: bytes) -> None:
    """The claim, its volume, and of both that they are bound: what the PV controller would write in time."""
    claim = msgspec.json.decode(await load.post(http, CLAIMS, body))
    size, volume_name = claim["spec"]["resources"]["requests"]["storage"], claim["spec"]["volumeName"]
    volume = csi_volume_body(volume_name, size, claim_name=name, claim_uid=claim["metadata"]["uid"])
    await load.post(http, VOLUMES, volume)
    await load.patch(http, f"{VOLUMES}/{volume_name}/status", b'{"status": {"phase": "Bound"}}')
    status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}}
    await load.patch(http, f"{CLAIMS}/{name}/status", msgspec.json.encode({"status": status}))


# -- a run -------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def prepared(
    plane: ControlPlane, http: ClientSession, workload: Workload, names: Sequence[str]
) -> AsyncIterator[Companions]:
    """Claims for the pods of these names, and the processes that bind and provision. Nothing for a workload without claims."""
    beside = Companions()
    if workload.name not in KINDS:
        yield beside
        return
    storage = Storage(workload)
    await clear(http, workload)
    await _fill(http, storage, names)
    await plane.start_controllers()
    try:
        await quiet(plane)
        await _must_be_fresh(http, storage)
        beside.sources["controllers"] = lambda: Usage(plane.cpu_s(CONTROLLERS), plane.rss_bytes(CONTROLLERS))
        if storage.kind.is_provisioned:
            async with _provisioned(plane, workload, beside):
                yield beside
        else:
            yield beside
    finally:
        await plane.stop_server(CONTROLLERS)


@asynccontextmanager
async def _provisioned(plane: ControlPlane, workload: Workload, beside: Companions) -> AsyncIterator[None]:
    takes_s = _BURST_TAKES_S if workload.name == BURST else 0.0
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.provisioner", str(plane.kubeconfig), "--workload", workload.name),
        *("--nodes", str(workload.nodes), "--pods", str(workload.pods), "--takes-s", str(takes_s)),
        stdout=asyncio.subprocess.PIPE,
        cwd=REPOSITORY,
    )
    assert process.stdout is not None
    out = process.stdout

    async def count() -> None:
        async for _ in out:
            beside.failures += 1
        raise RuntimeError("the provisioner ended")

    try:
        if await out.readline() != b"ready\n":
            raise RuntimeError("the provisioner did not start")
        beside.sources["provisioner"] = lambda: usage(process.pid)
        async with asyncio.TaskGroup() as group:
            counting = group.create_task(count())
            yield
            counting.cancel()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def quiet(plane: ControlPlane) -> None:
    """Until the controllers have looked at everything."""
    deadline = time.monotonic() + _QUIET_WITHIN_S
    while time.monotonic() < deadline:
        before = plane.cpu_s(CONTROLLERS)
        await asyncio.sleep(1.0)
        if plane.cpu_s(CONTROLLERS) - before < _QUIET_BELOW_CORES:
            return
    raise TimeoutError(f"the controllers are not quiet after {_QUIET_WITHIN_S:.0f} s")


async def _must_be_fresh(http: ClientSession, storage: Storage) -> None:
    """Every competitor starts from the same: these volumes, claims and capacities, all new."""
    volumes, claims, capacities = [await load.items(http, path) for path in (VOLUMES, CLAIMS, CAPACITIES)]
    workload, kind = storage.workload, storage.kind
    of_claims = workload.all_pods * kind.claims_per_pod
    of_volumes = of_claims if storage.has_bound_claims else workload.nodes * kind.local_per_node
    of_capacities = workload.nodes if kind.is_provisioned else 0
    found, wanted = (len(volumes), len(claims), len(capacities)), (of_volumes, of_claims, of_capacities)
    if found != wanted:
        raise RuntimeError(f"{found} volumes, claims and capacities instead of {wanted}")
    phases = ("Bound", "Bound") if storage.has_bound_claims else ("Available", "Pending")
    for kept, phase in ((volumes, phases[0]), (claims, phases[1])):
        for each in kept:
            if each["status"]["phase"] != phase or SELECTED_NODE in each["metadata"].get("annotations", {}):
                raise RuntimeError(f"{each['metadata']['name']} is not as it was made: {each}")


# -- what came of it ---------------------------------------------------------------------------------------------------


async def broken_rules(http: ClientSession, workload: Workload, node_of: Mapping[str, str]) -> list[str]:
    """What is wrong with the volumes of the pods that were bound, `node_of` by pod name: one line each."""
    if workload.name not in KINDS:
        return []
    volumes = {each["metadata"]["name"]: each for each in await load.items(http, VOLUMES)}
    claims = {each["metadata"]["name"]: each for each in await load.items(http, CLAIMS)}
    wrong, attached = [], Counter[str]()
    for pod, node in node_of.items():
        for name in claim_names(workload.name, pod):
            volume = volumes.get(claims[name]["spec"].get("volumeName", ""))
            if problem := _problem(claims[name], volume, node):
                wrong.append(f"pod {pod} on {node}, claim {name}: {problem}")
            attached[node] += 1
    limit = KINDS[workload.name].attach_limit
    if limit is not None:
        wrong += [f"{node} has {count} volumes of {limit}" for node, count in attached.items() if count > limit]
    return wrong + _used_twice(claims.values())


def _problem(claim: _Object, volume: _Object | None, node: str) -> str:
    is_bound = claim["status"].get("phase") == "Bound" and BIND_COMPLETED in claim["metadata"].get("annotations", {})
    if not is_bound or volume is None:
        return "is not bound"
    if volume["spec"].get("claimRef", {}).get("uid") != claim["metadata"]["uid"]:
        return f"{volume['metadata']['name']} is of another claim"
    size, asked = volume["spec"]["capacity"]["storage"], claim["spec"]["resources"]["requests"]["storage"]
    if parse(size).nano < parse(asked).nano:
        return f"{volume['metadata']['name']} has {size} of {asked}"
    nodes = _nodes_of(volume)
    return f"{volume['metadata']['name']} is only on {nodes}" if nodes is not None and node not in nodes else ""


def _nodes_of(volume: _Object) -> Sequence[str] | None:
    """Where the volume may be used; None for everywhere. The affinities are those of `storage.on_node`."""
    if "nodeAffinity" not in volume["spec"]:
        return None
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    assert expression["key"] == HOSTNAME
    values: Sequence[str] = expression["values"]
    return values


def _used_twice(claims: Iterable[_Object]) -> list[str]:
    users = Counter(claim["spec"]["volumeName"] for claim in claims if claim["spec"].get("volumeName"))
    return [f"{name} has {count} claims" for name, count in users.items() if count > 1]
