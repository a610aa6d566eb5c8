"""The controllers of volumes: the simulator's next to the in-process server, kube-controller-manager next to the real one.

Each test states the final objects; where the two differ, the simulator's controllers are wrong.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import pytest

from scheduler.api.storage_v1 import BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE, STORAGE_PROVISIONERS
from simulator.apiserver import ApiServer
from simulator.builders.core import Builder, pod
from simulator.controllers import EphemeralVolumeController, PersistentVolumeController
from simulator.controllers.protection import ProtectionController
from tests.contract.conftest import PATIENCE_S, Api, Object, _compact_ours, _with_namespace, without
from tests.e2e.controlplane.gate import binaries_or_skip
from tests.e2e.controlplane.harness import ControlPlane, started
from tests.e2e.storage import CONTROLLERS
from tests.support.volumebuilders import a_claim, a_class, a_pv

MARKS = {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}


@pytest.fixture(scope="module")
def managed() -> Iterator[ControlPlane]:
    """Start a control plane for this module: its controllers act on all objects."""
    binaries_or_skip("etcd", "kube-apiserver", "kube-controller-manager")
    with started(ControlPlane(), lambda plane: plane.start_controllers(CONTROLLERS)) as plane:
        yield plane


@pytest.fixture(params=["actors", pytest.param("kube-controller-manager", marks=pytest.mark.e2e)])
def plane(request: pytest.FixtureRequest) -> ControlPlane | None:
    if request.param == "actors":
        return None
    found: ControlPlane = request.getfixturevalue("managed")
    return found


@pytest.fixture
async def api(plane: ControlPlane | None) -> AsyncIterator[Api]:
    async with contextlib.AsyncExitStack() as running:
        if plane is None:
            server = await running.enter_async_context(ApiServer())
            for actor in (PersistentVolumeController, EphemeralVolumeController, ProtectionController):
                await running.enter_async_context(actor(server))
            http = await running.enter_async_context(aiohttp.ClientSession(server.url))
            yield await _with_namespace(Api(http, is_real=False, compact=_compact_ours(server)))
        else:
            http = await running.enter_async_context(plane.client())
            yield await _with_namespace(Api(http, is_real=True))


class Volumes:
    """The volumes, classes and claims of one test. Names of cluster-scoped objects have the test's suffix."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.claims = api.at("v1", "persistentvolumeclaims")

    def own(self, name: str) -> str:
        return f"{name}-{self.api.ns}"

    def volume(self, name: str) -> str:
        return f"/api/v1/persistentvolumes/{self.own(name)}"

    async def make(self, path: str, built: Builder[Any]) -> Object:
        manifest = built.obj()
        manifest["metadata"].pop("namespace", None)
        answer = await self.api("POST", path, manifest)
        assert answer.status == 201, answer.body
        made: Object = answer.body
        return made

    async def a_class(self, name: str, provisioner: str = "kubernetes.io/no-provisioner", *, waits: bool) -> str:
        built = a_class(self.own(name), provisioner)
        await self.make("/apis/storage.k8s.io/v1/storageclasses", built if waits else built.immediate())
        return self.own(name)

    async def get(self, path: str) -> Object | None:
        answer = await self.api("GET", path)
        return answer.body if answer.status == 200 else None

    async def until(self, path: str, holds: Callable[[Object], bool]) -> Object:
        async with asyncio.timeout(PATIENCE_S):
            while (found := await self.get(path)) is None or not holds(found):
                await asyncio.sleep(0.02)
        return found

    async def gone(self, path: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self.get(path) is not None:
                await asyncio.sleep(0.02)


def phase(wanted: str) -> Callable[[Object], bool]:
    return lambda obj: bool(obj["status"].get("phase") == wanted)


def annotations(obj: Object) -> dict[str, str]:
    found: dict[str, str] = obj["metadata"].get("annotations", {})
    return found


@pytest.fixture
def volumes(api: Api) -> Volumes:
    return Volumes(api)


async def _bound(volumes: Volumes, class_name: str) -> tuple[Object, Object]:
    """Return a volume `a` and a claim `c` of an Immediate class after they are bound to each other."""
    await volumes.make("/api/v1/persistentvolumes", a_pv(volumes.own("a"), "3Gi", class_name))
    await volumes.until(volumes.volume("a"), phase("Available"))
    await volumes.make(volumes.claims, a_claim("c", "2Gi", class_name))
    claim = await volumes.until(f"{volumes.claims}/c", phase("Bound"))
    return await volumes.until(volumes.volume("a"), phase("Bound")), claim


async def test_an_immediate_claim_gets_the_smallest(volumes: Volumes) -> None:
    class_name = await volumes.a_class("i", waits=False)
    await volumes.make("/api/v1/persistentvolumes", a_pv(volumes.own("large"), "9Gi", class_name))
    await volumes.until(volumes.volume("large"), phase("Available"))
    volume, claim = await _bound(volumes, class_name)
    assert (claim["spec"]["volumeName"], annotations(claim)) == (volumes.own("a"), MARKS)
    status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "3Gi"}}
    assert without(claim["status"], "conditions") == status  # 1.37 adds the condition `Unused`
    reference = volume["spec"]["claimRef"]
    assert annotations(volume) == {BOUND_BY_CONTROLLER: "yes"}
    assert {key: reference[key] for key in reference if key != "resourceVersion"} == {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": volumes.api.ns,
        "name": "c",
        "uid": claim["metadata"]["uid"],
    }
    assert (await volumes.until(volumes.volume("large"), phase("Available")))["spec"].get("claimRef") is None


@pytest.mark.parametrize("by_user", [True, False], ids=["a user's choice", "a scheduler's choice"])
async def test_a_claim_that_waits_gets_the_volume_that_names_it(volumes: Volumes, by_user: bool) -> None:
    class_name = await volumes.a_class("w", waits=True)
    await volumes.make("/api/v1/persistentvolumes", a_pv(volumes.own("a"), "3Gi", class_name))
    made = await volumes.make(volumes.claims, a_claim("c", "2Gi", class_name))
    await volumes.until(volumes.volume("a"), phase("Available"))
    uid = "" if by_user else made["metadata"]["uid"]
    meant = a_pv("x").claimed_by("c", volumes.api.ns, uid=uid, by_controller=not by_user).obj()
    patch = {"metadata": {"annotations": annotations(meant)}, "spec": {"claimRef": meant["spec"]["claimRef"]}}
    assert (await volumes.api.merge(volumes.volume("a"), patch)).status == 200
    claim = await volumes.until(f"{volumes.claims}/c", phase("Bound"))
    volume = await volumes.until(volumes.volume("a"), phase("Bound"))
    assert (claim["spec"]["volumeName"], annotations(claim)) == (volumes.own("a"), MARKS)
    assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    assert annotations(volume) == ({} if by_user else {BOUND_BY_CONTROLLER: "yes"})


@pytest.mark.parametrize("waits", [True, False], ids=["once a node is chosen", "at once if it does not wait"])
async def test_a_claim_names_its_provisioner(volumes: Volumes, waits: bool) -> None:
    class_name = await volumes.a_class("p", "d.example", waits=waits)
    made = await volumes.make(volumes.claims, a_claim("c", "2Gi", class_name))
    if waits:
        assert annotations(made) == {}
        await volumes.api.merge(f"{volumes.claims}/c", {"metadata": {"annotations": {SELECTED_NODE: "n"}}})
    claim = await volumes.until(f"{volumes.claims}/c", lambda obj: STORAGE_PROVISIONERS[0] in annotations(obj))
    chosen = {SELECTED_NODE: "n"} if waits else {}
    assert annotations(claim) == dict.fromkeys(STORAGE_PROVISIONERS, "d.example") | chosen
    assert claim["status"] == {"phase": "Pending"}


@pytest.mark.parametrize("by_user", [True, False], ids=["a user's volume stays meant", "another's is taken back"])
async def test_a_second_volume_for_a_bound_claim_is_free_again(volumes: Volumes, by_user: bool) -> None:
    class_name = await volumes.a_class("i", waits=False)
    _, claim = await _bound(volumes, class_name)
    second = a_pv(volumes.own("b"), "3Gi", class_name)
    uid = claim["metadata"]["uid"]
    await volumes.make(
        "/api/v1/persistentvolumes", second.claimed_by("c", volumes.api.ns, uid=uid, by_controller=not by_user)
    )
    volume = await volumes.until(volumes.volume("b"), phase("Available"))
    volume = await volumes.until(volumes.volume("b"), lambda obj: "uid" not in obj["spec"].get("claimRef", {}))
    assert ("claimRef" in volume["spec"], annotations(volume)) == (by_user, {})


async def test_a_claim_that_goes_releases_its_volume(volumes: Volumes) -> None:
    class_name = await volumes.a_class("i", waits=False)
    volume, _ = await _bound(volumes, class_name)
    await volumes.api("DELETE", f"{volumes.claims}/c")
    await volumes.gone(f"{volumes.claims}/c")
    released = await volumes.until(volumes.volume("a"), phase("Released"))
    assert released["spec"]["claimRef"] == volume["spec"]["claimRef"]
    await volumes.make(volumes.claims, a_claim("c", "2Gi", class_name))
    await volumes.api("DELETE", volumes.volume("a"))
    await volumes.gone(volumes.volume("a"))
    assert (await volumes.until(f"{volumes.claims}/c", phase("Pending")))["spec"].get("volumeName") is None


async def test_a_volume_that_goes_loses_its_claim(volumes: Volumes) -> None:
    class_name = await volumes.a_class("i", waits=False)
    await _bound(volumes, class_name)
    await volumes.api("DELETE", volumes.volume("a"))
    await volumes.api.merge(volumes.volume("a"), {"metadata": {"finalizers": None}})
    lost = await volumes.until(f"{volumes.claims}/c", phase("Lost"))
    assert without(lost["status"], "conditions") == {"phase": "Lost"}
    assert lost["spec"]["volumeName"] == volumes.own("a")


async def test_a_claim_in_use_stays(volumes: Volumes) -> None:
    class_name = await volumes.a_class("i", waits=False)
    await _bound(volumes, class_name)
    await volumes.make(volumes.api.pods, pod("p").pvc("c").bound_to("n"))
    await volumes.api("DELETE", f"{volumes.claims}/c")
    await volumes.api("DELETE", f"{volumes.api.pods}/p?gracePeriodSeconds=0")
    await volumes.gone(f"{volumes.claims}/c")
    await volumes.until(volumes.volume("a"), phase("Released"))


async def test_an_ephemeral_volume_gets_its_claim(volumes: Volumes) -> None:
    user = await volumes.make(volumes.api.pods, pod("p").ephemeral("v", "2Gi", "some"))
    claim = await volumes.until(f"{volumes.claims}/p-v", lambda _: True)
    (owner,) = claim["metadata"]["ownerReferences"]
    identity = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": user["metadata"]["uid"]}
    assert owner == identity | {"controller": True, "blockOwnerDeletion": True}
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "2Gi"}},
        "storageClassName": "some",
        "volumeMode": "Filesystem",
    }
