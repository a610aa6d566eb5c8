"""The few requests that a scenario needs, to a real API server or to the one in this process."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec
from aiohttp import ClientSession, ClientTimeout

from scheduler.explain.edits import Step, patched
from simulator.apiserver import ApiServer, Refused
from simulator.apiserver.patches import merge
from tests.e2e.cluster import collection, each
from tests.parity.admission import admitted, labelled, priority_classes
from tests.parity.recordings import FIRST
from tests.parity.scenario import Scenario, named
from tests.parity.suite import NAMESPACES
from tests.parity.words import Json

T = TypeVar("T")

WORKLOADS: Final = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
VOLUMES: Final = ("PersistentVolumeClaim", "PersistentVolume")
"""What a trial changes."""
_SETTINGS: Final = ("StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity", "VolumeAttachment")
DEVICES: Final = ("ResourceClaim", "ResourceSlice", "DeviceClass", "DeviceTaintRule")
"""Wiped separately: few scenarios have any."""
_WIPED: Final = ("Pod", "Node", "PodDisruptionBudget", *WORKLOADS, *VOLUMES, *_SETTINGS)
KINDS: Final = (
    *("Node", "Namespace", "Pod", *WORKLOADS, "PodDisruptionBudget", "PriorityClass"),
    *("PersistentVolume", "PersistentVolumeClaim", *_SETTINGS, *DEVICES),
)
_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.01
_OWN_SERVICE: Final = "kubernetes"
"""A real API server makes it, without a selector, and again if it is deleted."""


class ScenarioApi(Protocol):
    """Every write must succeed; a deletion of what is gone has."""

    async def create(self, manifest: Json) -> Json:
        """As it is stored."""

    async def first(self, pod: Json, tell: Callable[[Json], T | None]) -> T:
        """What `tell` first has to say of a pod's versions, from this one on, none left out."""

    async def items(self, kind: str) -> list[Json]:
        """Of all namespaces."""

    async def patch(self, kind: str, name: str, namespace: str, patch: Json) -> Json:
        """Merge what may be changed: the status if the patch has one, else the rest. As it is stored."""

    async def json_patch(self, kind: str, name: str, namespace: str, steps: Sequence[Step]) -> None:
        """Apply a JSON patch (RFC 6902)."""

    async def delete(self, kind: str, name: str, namespace: str, *, gracefully: bool = False) -> None:
        """At once, or as a user would: a pod on a node then waits for its kubelet, which there is not."""


class InProcess:
    """Plain function calls; adds the one piece of admission that this server lacks."""

    def __init__(self, server: ApiServer, version: str = FIRST) -> None:
        self.server = server
        self._version = version

    async def create(self, manifest: Json) -> Json:
        is_pod = manifest["kind"] == "Pod"
        return self.server.create(manifest["kind"], admitted(manifest, self._version) if is_pod else manifest)

    async def first(self, pod: Json, tell: Callable[[Json], T | None]) -> T:
        versions = asyncio.Queue[Json]()
        versions.put_nowait(pod)

        def seen(_: str, __: object, version: Json) -> None:
            if version["metadata"].get("uid") == pod["metadata"]["uid"]:
                versions.put_nowait(version)

        stop = self.server.subscribe(seen)
        try:
            while (told := tell(await versions.get())) is None:
                pass
            return told
        finally:
            stop()

    async def items(self, kind: str) -> list[Json]:
        return self.server.objects(kind)

    async def patch(self, kind: str, name: str, namespace: str, patch: Json) -> Json:
        merged = merge(self.server.get(kind, name, namespace), patch)
        return self.server.update(kind, merged, subresource="status" if "status" in patch else "")

    async def json_patch(self, kind: str, name: str, namespace: str, steps: Sequence[Step]) -> None:
        self.server.update(kind, patched(self.server.get(kind, name, namespace), steps))

    async def delete(self, kind: str, name: str, namespace: str, *, gracefully: bool = False) -> None:
        with contextlib.suppress(Refused):
            self.server.delete(kind, name, namespace, grace_s=None if gracefully else 0)


class Remote:
    """Over HTTP. Sees to it that the server makes of new pods what `admitted` makes of them: the replay relies on it."""

    def __init__(self, http: ClientSession) -> None:
        self._http = http

    async def create(self, manifest: Json) -> Json:
        path = collection(manifest["kind"], manifest["metadata"].get("namespace"))
        deadline = time.monotonic() + _PATIENCE_S
        while (created := await self._created(path, manifest)) is None:
            assert time.monotonic() < deadline, f"{manifest['metadata']['name']}: its class is not seen"
            await asyncio.sleep(_PAUSE_S)
        return created

    async def _created(self, path: str, manifest: Json) -> Json | None:
        """None as long as admission has not seen the pod's PriorityClass."""
        # In the form in which the server itself writes it: else a patch would seem to change what may not be changed.
        text = json.dumps(manifest, separators=(",", ":"), sort_keys=True)
        async with self._http.post(path, data=text, headers={"Content-Type": "application/json"}) as answer:
            if answer.status == 403 and "no PriorityClass with name" in await answer.text():
                return None
            assert answer.status == 201, f"{manifest['metadata']['name']}: {await answer.text()}"
            created: Json = await answer.json()
            if manifest["kind"] == "Pod":
                _check_admission(manifest, created)
            return created

    async def first(self, pod: Json, tell: Callable[[Json], T | None]) -> T:
        metadata = pod["metadata"]
        told = tell(pod)
        if told is not None:
            return told
        query = {
            "watch": "1",
            "fieldSelector": f"metadata.name={metadata['name']}",
            "resourceVersion": metadata["resourceVersion"],
        }
        path = collection("Pod", metadata["namespace"])
        async with self._http.get(path, params=query, timeout=ClientTimeout(total=_PATIENCE_S)) as answer:
            assert answer.status == 200, await answer.text()
            async for line in answer.content:
                told = tell(json.loads(line)["object"])
                if told is not None:
                    return told
        raise AssertionError(f"{metadata['name']}: the watch has ended")

    async def items(self, kind: str) -> list[Json]:
        listed = await self._read(collection(kind, "{}").replace("namespaces/{}/", ""))
        return list(listed["items"] or ())

    async def patch(self, kind: str, name: str, namespace: str, patch: Json) -> Json:
        path = f"{collection(kind, namespace)}/{name}{'/status' if 'status' in patch else ''}"
        merge = {"Content-Type": "application/merge-patch+json"}
        async with self._http.patch(path, json=patch, headers=merge) as answer:
            assert answer.status == 200, f"{name}: {await answer.text()}"
            patched: Json = await answer.json()
            return patched

    async def json_patch(self, kind: str, name: str, namespace: str, steps: Sequence[Step]) -> None:
        content = {"Content-Type": "application/json-patch+json"}
        text = msgspec.json.encode(steps)
        async with self._http.patch(f"{collection(kind, namespace)}/{name}", data=text, headers=content) as answer:
            assert answer.status == 200, f"{name}: {text.decode()}: {await answer.text()}"

    async def _read(self, path: str) -> Json:
        async with self._http.get(path) as answer:
            assert answer.status == 200, await answer.text()
            body: Json = await answer.json()
            return body

    async def delete(self, kind: str, name: str, namespace: str, *, gracefully: bool = False) -> None:
        # Else a ReplicationController waits for the collector of its orphans, which there is not.
        query = {"propagationPolicy": "Background"} | ({} if gracefully else {"gracePeriodSeconds": "0"})
        async with self._http.delete(f"{collection(kind, namespace)}/{name}", params=query) as answer:
            assert answer.status in {200, 202, 404}, await answer.text()


def _check_admission(manifest: Json, created: Json) -> None:
    wanted = admitted(manifest)["spec"]
    for field in ("affinity", "topologySpreadConstraints", "priority", "preemptionPolicy"):
        assert _without_empty_lists(created["spec"].get(field)) == _without_empty_lists(wanted.get(field)), (
            f"{manifest['metadata']['name']}: {created['spec'].get(field)}"
        )


def _without_empty_lists(value: Any) -> Any:
    """Return what a server returns of a value: it leaves out lists without items."""
    if not isinstance(value, dict):
        return value
    return {key: _without_empty_lists(item) for key, item in value.items() if item != []}


async def make_lasting(api: ScenarioApi) -> None:
    """What no scenario takes away: namespaces and priority classes. Once per server."""
    for name, labels in NAMESPACES.items():
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    for priority_class in priority_classes():
        await api.create(priority_class)


async def put(api: ScenarioApi, scenario: Scenario) -> None:
    """The cluster of a scenario, without its pods and budgets."""
    await each((*scenario.nodes, *scenario.workloads), lambda item: create_whole(api, item))


async def put_settings(api: ScenarioApi, scenario: Scenario) -> None:
    """Classes, drivers, what they report of nodes and of their capacity, and attachments; of devices all but claims."""
    await each((*scenario.storage.settings, *scenario.devices.settings), lambda item: create_whole(api, item))


async def put_budgets(api: ScenarioApi, scenario: Scenario) -> None:
    await each(scenario.budgets, lambda budget: create_whole(api, budget))


async def put_pods(api: ScenarioApi, scenario: Scenario, *, waiting_for: str) -> None:
    """The bound pods, and those that wait for the scheduler of this name; no tried pod."""
    bound = (labelled(named(pod, "nobody"), scenario.nodes) for pod in scenario.pods)
    waiting = (named(pod, waiting_for) for pod in scenario.waiting)
    await each((*bound, *waiting), lambda pod: create_whole(api, pod))
    leaving = [pod["metadata"] for pod in scenario.pods if pod["metadata"]["name"] in scenario.leaving]
    for metadata in leaving:
        await api.delete("Pod", metadata["name"], metadata["namespace"], gracefully=True)


async def create_whole(api: ScenarioApi, manifest: Json) -> None:
    """With the status it has, also of a kind whose status a server does not take from its creator."""
    await created_whole(api, manifest)


async def created_whole(api: ScenarioApi, manifest: Json) -> Json:
    """The same; as it was before it got its status."""
    created = await api.create(manifest)
    if (status := manifest.get("status")) and manifest["kind"] != "Node":
        metadata = manifest["metadata"]
        await api.patch(manifest["kind"], metadata["name"], metadata.get("namespace", ""), {"status": status})
    return created


async def wipe(api: ScenarioApi, kinds: Iterable[str] = _WIPED) -> None:
    """Nothing of these kinds: by default, of all but what lasts."""
    for kind in kinds:
        while left := [item for item in await api.items(kind) if item["metadata"]["name"] != _OWN_SERVICE]:
            await each(left, lambda item, kind=kind: _remove(api, kind, item["metadata"]))  # type: ignore[misc]
            await asyncio.sleep(0)


async def _remove(api: ScenarioApi, kind: str, metadata: Json) -> None:
    """Finalizers are for controllers that there are not."""
    place = (metadata["name"], metadata.get("namespace", "default"))
    if metadata.get("finalizers"):
        await api.patch(kind, *place, {"metadata": {"finalizers": None}})
    if "deletionTimestamp" not in metadata or not metadata.get("finalizers"):
        await api.delete(kind, *place)
