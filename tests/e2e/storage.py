"""Tests with volumes: a control plane with controllers and both schedulers, and for each test a world of its own on it.

The names that a test writes are short; what is not in a namespace gets the world's name behind its own, so that tests
share one cluster and never meet.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from aiohttp import ClientSession

from scheduler.core.storage import WAIT_FOR_FIRST_CONSUMER
from scheduler.core.volumes import BIND_COMPLETED, SELECTED_NODE, STORAGE_PROVISIONERS
from scheduler.testing.builders import Builder
from scheduler.testing.volumebuilders import HOSTNAME, a_claim
from tests.e2e.cluster import NODES, Cluster, Json, collection, each, node, pod, until
from tests.e2e.controlplane.harness import ControlPlane
from tests.e2e.controlplane.process import Server
from tests.e2e.daemon import SCHEDULER_NAME
from tests.e2e.provisioner import Provisioner

THEIRS: Final = "default-scheduler"
CONTROLLERS: Final = (
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "ephemeral-volume-controller",
)
WORLD: Final = "example.com/world"
GI: Final = 1024**3
DRIVER: Final = "driver.example.com"
_IN_FLIGHT: Final = "kubestow_volume_bytes_in_flight{"
_probes = itertools.count()
_SHARED: Final = {
    "Node",
    "PriorityClass",
    "PersistentVolume",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "VolumeAttachment",
}
_NAMING: Final = {
    *("storageClassName", "volumeName", "provisioner", "driver", "attacher", "nodeName", "persistentVolumeName"),
    *(HOSTNAME, SELECTED_NODE),
}


@dataclass(frozen=True)
class StoragePlane:
    """A control plane with the controllers of volumes, a kube-scheduler, and a daemon of ours."""

    plane: ControlPlane
    server: Server
    """Our daemon."""
    port: int
    """Of its endpoints."""


class World:
    """A namespace, nodes that only its pods go to, and classes, volumes and drivers that only it uses."""

    def __init__(self, storage: StoragePlane, http: ClientSession, name: str) -> None:
        self.plane = storage.plane
        self.http = http
        self.name = name
        self.scheduler = SCHEDULER_NAME
        self.server = storage.server
        """The daemon that is expected to live."""
        self._port = storage.port
        self.cluster = Cluster(http, name)

    # -- what there is -------------------------------------------------------------------------------------------------

    def own(self, name: str) -> str:
        """How a thing is called that is in no namespace."""
        return f"{name}-{self.name}"

    def named(self, obj: Any, key: str = "") -> Any:
        """A manifest with the world's own names."""
        if isinstance(obj, dict):
            return {k: self.named(v, self._place(obj, k)) for k, v in obj.items()}
        if isinstance(obj, list):
            return [self.named(item, key) for item in obj]
        if key == "namespace":
            return self.name
        return self.own(obj) if key in _NAMING and isinstance(obj, str) and obj else obj

    @staticmethod
    def _place(obj: Json, key: str) -> str:
        """What the values under a key are about: those of an expression about what its key says."""
        return str(obj["key"]) if key == "values" and "key" in obj else key

    async def make(self, *things: Builder[Any] | Json) -> None:
        """All of them, so that every controller knows what comes before: a claim whose class the PV controller has not
        seen yet does not wait for its pod, and a volume that it has not seen is bound a resync later.
        """
        manifests = [self._own_manifest(thing if isinstance(thing, dict) else thing.obj()) for thing in things]
        volumes = [manifest for manifest in manifests if manifest["kind"] == "PersistentVolume"]
        last = [manifest for manifest in manifests if manifest["kind"] in {"PersistentVolumeClaim", "Pod"}]
        await self.cluster.create(*(manifest for manifest in manifests if manifest not in volumes + last))
        for manifest in manifests:
            if manifest["kind"] == "StorageClass" and manifest["volumeBindingMode"] == WAIT_FOR_FIRST_CONSUMER:
                await self._class_is_known(manifest["metadata"]["name"])
        await self.cluster.create(*volumes)
        await self.until(lambda: self._are_settled(volumes), "volumes that the PV controller knows")
        await self.cluster.create(*last)

    async def _class_is_known(self, name: str) -> None:
        """To the PV controller: it lets claims of the class wait."""
        said = ""
        while said != "WaitForFirstConsumer":
            probe = f"probe-{next(_probes)}"
            claim = a_claim(probe, "1Pi", name, ns=self.name).obj()
            await self.cluster.create(claim)
            said = await self.until(partial(self._first_event, probe), f"an event on {probe}")
            await self.delete("PersistentVolumeClaim", probe)

    async def _first_event(self, name: str) -> str:
        events = await self.cluster.get(collection("Event", self.name), fieldSelector=f"regarding.name={name}")
        return str(events["items"][0]["reason"]) if events["items"] else ""

    async def _are_settled(self, volumes: list[Json]) -> bool:
        names = {volume["metadata"]["name"] for volume in volumes}
        if not names:
            return True
        listed = (await self.cluster.get(collection("PersistentVolume")))["items"]
        return names <= {item["metadata"]["name"] for item in listed if item["status"].get("phase") != "Pending"}

    def _own_manifest(self, manifest: Json) -> Json:
        made: Json = self.named(manifest)
        if manifest["kind"] in _SHARED:
            made["metadata"]["name"] = self.own(manifest["metadata"]["name"])
        else:
            made["metadata"]["namespace"] = self.name
        if manifest["kind"] == "StorageClass" and manifest["provisioner"].startswith("kubernetes.io/"):
            made["provisioner"] = manifest["provisioner"]
        if manifest["kind"] == "CSINode":
            for driver in made["spec"]["drivers"]:
                driver["name"] = self.own(driver["name"])
        return made

    def node(self, name: str, *, labels: Mapping[str, str] | None = None, **allocatable: str) -> Json:
        """A node for pods of this world."""
        return node(name, labels={WORLD: self.name, **(labels or {})}, spec=None, **allocatable)

    def pod(
        self, name: str, *claims: str, on: str = "", spec: Mapping[str, object] | None = None, **requests: str
    ) -> Json:
        """A pod with these claims, for the world's scheduler; `on` pins it to a node by its label."""
        selector = {WORLD: self.name} | ({HOSTNAME: on} if on else {})
        volumes = [{"name": f"v-{claim}", "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        basic: Json = {"nodeSelector": selector, "volumes": volumes, "terminationGracePeriodSeconds": 0}
        built = pod(name, self.scheduler, basic | dict(spec or {}), **requests)
        built["metadata"]["namespace"] = self.name
        return built

    def provisioner(self, **behaviour: Any) -> Provisioner:
        """For `DRIVER` in this world; `room` by the node names that the test uses."""
        if behaviour.get("room") is not None:
            behaviour["room"] = {self.own(name): size for name, size in behaviour["room"].items()}
        return Provisioner(self.http, self.name, self.own(DRIVER), **behaviour)

    # -- where things are ----------------------------------------------------------------------------------------------

    def path(self, kind: str, name: str) -> str:
        return f"{collection(kind, self.name)}/{self.own(name) if kind in _SHARED else name}"

    async def get(self, kind: str, name: str) -> Json | None:
        """None while there is none."""
        async with self.http.get(self.path(kind, name)) as answer:
            assert answer.status in {200, 404}, await answer.text()
            found: Json = await answer.json()
            return found if answer.status == 200 else None

    async def all(self, kind: str) -> list[Json]:
        """Those of this world, by name."""
        items = (await self.cluster.get(collection(kind, self.name)))["items"]
        items = [item for item in items if kind not in _SHARED or self._is_mine(item)]
        return sorted(items, key=lambda item: str(item["metadata"]["name"]))

    def _is_mine(self, item: Json) -> bool:
        """Provisioned volumes have names of another kind."""
        if item["metadata"]["name"].endswith(f"-{self.name}"):
            return True
        return bool((item.get("spec", {}).get("claimRef") or {}).get("namespace") == self.name)

    async def claim(self, name: str) -> Json:
        found = await self.get("PersistentVolumeClaim", name)
        assert found is not None, f"no claim {name}"
        return found

    async def volume(self, name: str) -> Json:
        found = await self.get("PersistentVolume", name)
        assert found is not None, f"no volume {name}"
        return found

    async def merge(self, kind: str, name: str, patch: Json) -> None:
        await self.cluster.merge(self.path(kind, name), patch)

    async def delete(self, kind: str, name: str) -> None:
        await self.cluster.delete(self.path(kind, name))

    # -- what becomes of it --------------------------------------------------------------------------------------------

    async def until(self, read: Callable[[], Awaitable[Any]], what: str, *, within_s: float = 90) -> Any:
        return await until(read, what, server=self.server, within_s=within_s)

    async def bound(self, *pods: str, within_s: float = 90) -> list[str]:
        """Where they are bound, once they all are; in the test's own names."""
        found: dict[str, str] = {}

        async def read() -> bool:
            for item in await self.all("Pod"):
                if item["spec"].get("nodeName"):
                    found[item["metadata"]["name"]] = item["spec"]["nodeName"]
            return set(pods) <= found.keys()

        try:
            await self.until(read, f"nodes for {pods}", within_s=within_s)
        except AssertionError as failed:
            missing = [f"{name}: {await self.cluster.condition(name)}" for name in pods if name not in found]
            raise AssertionError(f"not bound: {missing}\n{failed}") from failed
        return [found[name].removesuffix(f"-{self.name}") for name in pods]

    async def refused(self, name: str, *words: str, reason: str = "Unschedulable") -> str:
        """The message of the pod's condition, once it has this reason and contains these words. Fails if it is bound."""

        async def read() -> str:
            condition = await self.cluster.condition(name)
            assert condition is None or condition["status"] == "False", f"{name} is bound"
            is_it = condition is not None and condition["reason"] == reason
            is_it = is_it and all(word in condition["message"] for word in words)  # type: ignore[index]
            return str(condition["message"]) if is_it and condition else ""

        return str(await self.until(read, f"{words} ({reason}) in the condition of {name}"))

    async def told(self, kind: str, name: str, reason: str, *words: str) -> str:
        """The note of an event about this object, once there is one with this reason and these words."""

        async def read() -> str:
            query = {"fieldSelector": f"regarding.name={name},regarding.kind={kind},reason={reason}"}
            events = (await self.cluster.get(collection("Event", self.name), **query))["items"]
            notes = [str(event["note"]) for event in events]
            return next((note for note in notes if all(word in note for word in words)), "")

        return str(await self.until(read, f"an event {reason} with {words} on {kind} {name}"))

    async def phase(self, kind: str, name: str, phase: str) -> Json:
        """The claim or volume, once it is in this phase."""

        async def read() -> Json | None:
            found = await self.get(kind, name)
            return found if found is not None and found["status"].get("phase") == phase else None

        found: Json = await self.until(read, f"{kind} {name} {phase}")
        return found

    async def selected(self, claim: str, node_name: str) -> Json:
        """The claim, once this node is selected for it; "" for none."""
        wanted = self.own(node_name) if node_name else ""

        async def read() -> Json | None:
            found = await self.claim(claim)
            return found if selected_node(found) == wanted else None

        found: Json = await self.until(read, f"claim {claim} with the selected node {wanted!r}")
        return found

    async def handed_over(self, claim: str, node_name: str) -> None:
        """Until this node is selected and the PV controller has told the provisioner: nobody writes the claim any more."""

        async def read() -> bool:
            given = annotations_of(await self.claim(claim))
            return given.get(SELECTED_NODE) == self.own(node_name) and STORAGE_PROVISIONERS[0] in given

        await self.until(read, f"claim {claim} in the hands of the provisioner")

    async def in_flight(self, class_name: str, size: int) -> None:
        """Until our daemon counts so many bytes of this class as chosen and not there yet."""

        async def read() -> bool:
            async with self.http.get(f"http://127.0.0.1:{self._port}/metrics") as answer:
                lines = (await answer.text()).splitlines()
            found = [line for line in lines if line.startswith(_IN_FLIGHT) and f'"{self.own(class_name)}"' in line]
            return (float(found[0].rpartition(" ")[2]) if found else 0) == size

        await self.until(read, f"{size} bytes of class {class_name} in flight")

    # -- beginning and end -------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """An empty one."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}}
        await self.cluster.create(namespace)

    async def close(self) -> None:
        """No pods and no nodes of this world; what it has of storage means nothing to others."""
        while pods := await self.all("Pod"):
            await each([item["metadata"]["name"] for item in pods], lambda name: self.delete("Pod", name))
        nodes = await self.cluster.get(NODES, labelSelector=f"{WORLD}={self.name}")
        names = [item["metadata"]["name"] for item in nodes["items"]]
        await each(names, lambda name: self.cluster.delete(f"{NODES}/{name}"))


def annotations_of(obj: Json) -> dict[str, str]:
    return dict(obj["metadata"].get("annotations") or {})


def selected_node(claim: Json) -> str:
    return annotations_of(claim).get(SELECTED_NODE, "")


def is_bound(claim: Json) -> bool:
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in annotations_of(claim)


async def together(scenario: Callable[[World], Coroutine[Any, Any, None]], *worlds: World) -> None:
    """The same in each world, at the same time."""
    async with asyncio.TaskGroup() as group:
        for world in worlds:
            group.create_task(scenario(world))
