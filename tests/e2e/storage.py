"""Sandbox for tests with volumes, on a control plane with controllers and both schedulers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from scheduler.api.storage_v1 import BIND_COMPLETED, SELECTED_NODE, STORAGE_PROVISIONERS, WAIT_FOR_FIRST_CONSUMER
from simulator.builders.core import Builder
from tests.e2e.cluster import Json, collection
from tests.e2e.provisioner import Provisioner
from tests.e2e.sandbox import Sandbox
from tests.support.volumebuilders import a_claim

CONTROLLERS: Final = (
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "ephemeral-volume-controller",
)
GI: Final = 1024**3
DRIVER: Final = "driver.example.com"
NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
NO_SPACE: Final = "node(s) did not have enough free storage"
_probes = itertools.count()


class StorageSandbox(Sandbox):
    SHARED = Sandbox.SHARED | {"PersistentVolume", "StorageClass", "CSINode", "CSIDriver", "VolumeAttachment"}
    NAMING = Sandbox.NAMING | {
        *("storageClassName", "volumeName", "provisioner", "driver", "attacher", "persistentVolumeName"),
        SELECTED_NODE,
    }

    async def make(self, *things: Builder[Any] | Json) -> None:
        """Create them so that every controller knows the earlier ones. A claim whose class is not known to the PV controller
        does not wait for its pod. A volume that is not known is bound only at the next resync."""
        manifests = [self.own_manifest(thing if isinstance(thing, dict) else thing.obj()) for thing in things]
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
        """Wait until the PV controller lets claims of the class wait."""
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

    def own_manifest(self, manifest: Json) -> Json:
        """Driver names are the sandbox's, except those that Kubernetes knows by name."""
        made = super().own_manifest(manifest)
        if manifest["kind"] == "StorageClass" and manifest["provisioner"].startswith("kubernetes.io/"):
            made["provisioner"] = manifest["provisioner"]
        if manifest["kind"] == "CSINode":
            for driver in made["spec"]["drivers"]:
                driver["name"] = self.own(driver["name"])
        return made

    def pod(
        self, name: str, *claims: str, on: str = "", spec: Mapping[str, object] | None = None, **requests: str
    ) -> Json:
        """A pod with these claims, for the sandbox's scheduler; `on` pins it to a node by its label."""
        volumes = [{"name": f"v-{claim}", "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        return self.bare_pod(name, {"volumes": volumes} | dict(spec or {}), on=on, **requests)

    def provisioner(self, **behaviour: Any) -> Provisioner:
        """For `DRIVER` in this sandbox; `capacities` by the node names that the test uses."""
        if behaviour.get("capacities") is not None:
            behaviour["capacities"] = {self.own(name): size for name, size in behaviour["capacities"].items()}
        return Provisioner(self.http, self.name, self.own(DRIVER), **behaviour)

    def is_mine(self, item: Json) -> bool:
        """Provisioned volumes have other names."""
        return super().is_mine(item) or bool((item.get("spec", {}).get("claimRef") or {}).get("namespace") == self.name)

    async def claim(self, name: str) -> Json:
        found = await self.get("PersistentVolumeClaim", name)
        assert found is not None, f"no claim {name}"
        return found

    async def volume(self, name: str) -> Json:
        found = await self.get("PersistentVolume", name)
        assert found is not None, f"no volume {name}"
        return found

    async def phase(self, kind: str, name: str, phase: str) -> Json:
        """Wait for this phase of the claim or volume."""

        async def read() -> Json | None:
            found = await self.get(kind, name)
            return found if found is not None and found["status"].get("phase") == phase else None

        found: Json = await self.until(read, f"{kind} {name} {phase}")
        return found

    async def selected(self, claim: str, node_name: str) -> Json:
        """Wait until this node is selected for the claim; "" for none."""
        wanted = self.own(node_name) if node_name else ""

        async def read() -> Json | None:
            found = await self.claim(claim)
            return found if selected_node(found) == wanted else None

        found: Json = await self.until(read, f"claim {claim} with the selected node {wanted!r}")
        return found

    async def handed_over(self, claim: str, node_name: str) -> None:
        """Wait until this node is selected and the provisioner has the claim: it is not written any more."""

        async def read() -> bool:
            given = annotations_of(await self.claim(claim))
            return given.get(SELECTED_NODE) == self.own(node_name) and STORAGE_PROVISIONERS[0] in given

        await self.until(read, f"claim {claim} in the hands of the provisioner")


def annotations_of(obj: Json) -> dict[str, str]:
    return dict(obj["metadata"].get("annotations") or {})


def selected_node(claim: Json) -> str:
    return annotations_of(claim).get(SELECTED_NODE, "")


def is_bound(claim: Json) -> bool:
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in annotations_of(claim)
