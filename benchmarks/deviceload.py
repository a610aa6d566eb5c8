"""Fills the cluster with the devices and claims of a workload, runs the controller of claims, and looks at the end.

Classes, slices and templates stay; each competitor has new claims and a new kube-controller-manager. Claims are made, and
removed, while it does not run, but for those that it makes itself from templates.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from aiohttp import ClientSession

from benchmarks import load
from benchmarks.devicecheck import DeviceCheck
from benchmarks.deviceobjects import Devices
from benchmarks.devices import KINDS
from benchmarks.meter import Usage
from benchmarks.storageload import CONTROLLERS, Companions, quiet
from benchmarks.workload import NAMESPACE, Workload
from tests.e2e.controlplane.harness import ControlPlane

_CLAIM_CONTROLLER = "resourceclaim-controller"
_GROUP = "/apis/resource.k8s.io/v1"
_CLAIMS = f"{_GROUP}/namespaces/{NAMESPACE}/resourceclaims"


# -- fill and empty ----------------------------------------------------------------------------------------------------


async def create_classes(http: ClientSession, workload: Workload) -> None:
    """What stays: classes, slices, templates."""
    if workload.name not in KINDS:
        return
    devices = Devices(workload)
    for body in devices.classes():
        await load.post(http, f"{_GROUP}/deviceclasses", body)
    templates = f"{_GROUP}/namespaces/{NAMESPACE}/resourceclaimtemplates"
    await load.spread(partial(load.post, http, templates, body) for body in devices.templates())
    await load.spread(partial(load.post, http, f"{_GROUP}/resourceslices", body) for body in devices.slices())


async def _clear(http: ClientSession) -> None:
    while names := await load.names(http, _CLAIMS):
        await load.spread(partial(load.remove, http, f"{_CLAIMS}/{name}") for name in names)


# -- a run -------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def prepared(
    plane: ControlPlane, http: ClientSession, workload: Workload, *, names: Sequence[str], beside: Companions
) -> AsyncIterator[None]:
    """Claims for the pods of these names, and their controller. Nothing for a workload without devices."""
    if workload.name not in KINDS:
        yield
        return
    devices = Devices(workload)
    await _clear(http)
    if not devices.kind.is_template:
        bodies = (devices.claim(name, index) for index, name in devices.owners(names))
        await load.spread(partial(load.post, http, _CLAIMS, body) for body in bodies)
    await plane.start_controllers([_CLAIM_CONTROLLER])
    try:
        await quiet(plane)
        await _must_be_fresh(http, 0 if devices.kind.is_template else len(list(devices.owners(names))))
        beside.sources["controllers"] = lambda: Usage(plane.cpu_s(CONTROLLERS), plane.rss_bytes(CONTROLLERS))
        yield
    finally:
        await plane.stop_server(CONTROLLERS)


async def _must_be_fresh(http: ClientSession, wanted: int) -> None:
    """Every competitor starts from the same: this number of claims, all new."""
    claims = await load.items(http, _CLAIMS)
    if len(claims) != wanted:
        raise RuntimeError(f"{len(claims)} claims instead of {wanted}")
    for claim in claims:
        if claim.get("status") or "finalizers" in claim["metadata"]:
            raise RuntimeError(f"{claim['metadata']['name']} is not as it was made: {claim}")


# -- what came of it ---------------------------------------------------------------------------------------------------


async def broken_rules(
    http: ClientSession, workload: Workload, *, names: Sequence[str], node_of: Mapping[str, str]
) -> list[str]:
    """What is wrong with the devices of the pods that were bound, `node_of` by pod name: one line each."""
    if workload.name not in KINDS:
        return []
    return DeviceCheck(workload, await load.items(http, _CLAIMS)).broken_rules(names, node_of)
