"""Stand-ins for kubelets and external provisioners on a real API server, for all namespaces and all drivers at once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from scheduler.api.quantity import parse
from simulator.controllers.volume_requests import keys_of
from tests.e2e.cluster import Cluster, collection

Object = dict[str, Any]
_EVERY_S: Final = 0.1
_ALL_PODS: Final = "/api/v1/pods"
_ALL_CLAIMS: Final = "/api/v1/persistentvolumeclaims"
_ALL_CAPACITIES: Final = "/apis/storage.k8s.io/v1/csistoragecapacities"
_READY: Final = [{"type": name, "status": "True"} for name in ("Initialized", "Ready", "ContainersReady")]
_SELECTED: Final = "volume.kubernetes.io/selected-node"
_PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
_LOCAL: Final = frozenset({"rancher.io/local-path"})
"""Provisioners without a CSI driver: each makes a directory on the selected node, and names the node by its hostname."""


class Kubelets:
    """Make bound pods ready and remove deleted ones, as kwok does; Jobs never complete.

    The pods of one owner have been ready for the seconds of `ages_s`, one after the other.
    """

    def __init__(self, cluster: Cluster, ages_s: Sequence[int] = (0,)) -> None:
        self._cluster = cluster
        self._ages_s = ages_s
        self._count: Counter[str] = Counter()

    async def step(self) -> None:
        """Look at every pod once."""
        for pod in (await self._cluster.get(_ALL_PODS))["items"]:
            await self._handle(pod)

    async def _handle(self, pod: Object) -> None:
        metadata = pod["metadata"]
        path = f"{collection('Pod', metadata['namespace'])}/{metadata['name']}"
        with contextlib.suppress(AssertionError):  # gone or written in between
            if metadata.get("deletionTimestamp"):
                await self._cluster.delete(path)
            elif pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
                owner = next((each["uid"] for each in metadata.get("ownerReferences") or ()), metadata["uid"])
                age_s = self._ages_s[self._count[owner] % len(self._ages_s)]
                self._count[owner] += 1
                now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - age_s))
                conditions = [each | {"lastTransitionTime": now} for each in _READY]
                await self._cluster.merge(f"{path}/status", {"status": {"phase": "Running", "conditions": conditions}})


class Provisioners:
    """One for each driver. A volume can be used where the driver's CSINode says, or on one node for local provisioners.

    Capacities are CSIStorageCapacity objects, which shrink with each volume. If there is not enough, or the node has no
    CSINode, the claim loses its selected node. Where the node lacks the driver or its labels, no volume is requested. This
    is as external-provisioner 6.4 does it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._made: set[str] = set()
        """Claims that have a volume, by uid."""

    async def step(self) -> None:
        """Look at every claim once."""
        for claim in (await self._cluster.get(_ALL_CLAIMS))["items"]:
            asked = (claim["metadata"].get("annotations") or {}).get(_PROVISIONER)
            is_open = not claim["spec"].get("volumeName") and not claim["metadata"].get("deletionTimestamp")
            if asked and is_open and claim["metadata"]["uid"] not in self._made:
                with contextlib.suppress(AssertionError):  # gone or written in between
                    await self._serve(claim, asked)

    async def _serve(self, claim: Object, driver: str) -> None:
        storage_class = await self._cluster.get(f"{collection('StorageClass')}/{claim['spec']['storageClassName']}")
        selected = claim["metadata"]["annotations"].get(_SELECTED, "")
        if not selected and storage_class["volumeBindingMode"] == "WaitForFirstConsumer":
            return
        topology = await self._topology(selected, driver) if selected else {}
        if topology is None:
            if selected not in await self._csi_nodes():
                await self._take_back(claim)
            return
        size = parse(claim["spec"]["resources"]["requests"]["storage"]).value
        room = await self._capacity(storage_class["metadata"]["name"], topology)
        if room is not None and parse(room["capacity"]).value < size:
            await self._take_back(claim)
            return
        await self._create(claim, storage_class, topology)
        if room is not None:
            await self._shrink(room, size)

    async def _topology(self, node: str, driver: str) -> dict[str, str] | None:
        """The labels of the node that say where its volumes can be used; None if no volume is requested for it."""
        labels = (await self._cluster.get(f"{collection('Node')}/{node}"))["metadata"]["labels"]
        if driver in _LOCAL:
            return {"kubernetes.io/hostname": labels["kubernetes.io/hostname"]}
        keys = {name: keys_of(each, driver) for name, each in (await self._csi_nodes()).items()}
        has_topology, own = any(keys.values()), keys.get(node, ())
        is_complete = bool(own) and labels.keys() >= set(own)
        return {key: labels[key] for key in own} if is_complete else (None if has_topology else {})

    async def _csi_nodes(self) -> dict[str, Object]:
        return {each["metadata"]["name"]: each for each in (await self._cluster.get(collection("CSINode")))["items"]}

    async def _capacity(self, class_name: str, topology: dict[str, str]) -> Object | None:
        for each in (await self._cluster.get(_ALL_CAPACITIES))["items"]:
            wanted = (each.get("nodeTopology") or {}).get("matchLabels") or {}
            if each["storageClassName"] == class_name and wanted.items() <= topology.items():
                return dict(each)
        return None

    async def _shrink(self, room: Object, size: int) -> None:
        metadata = room["metadata"]
        fields = [name for name in ("capacity", "maximumVolumeSize") if name in room]
        path = f"{collection('CSIStorageCapacity', metadata['namespace'])}/{metadata['name']}"
        await self._cluster.merge(path, {name: str(parse(room[name]).value - size) for name in fields})

    async def _take_back(self, claim: Object) -> None:
        metadata = claim["metadata"]
        patch = {"resourceVersion": metadata["resourceVersion"], "annotations": {_SELECTED: None}}
        path = f"{collection('PersistentVolumeClaim', metadata['namespace'])}/{metadata['name']}"
        await self._cluster.merge(path, {"metadata": patch})

    async def _create(self, claim: Object, storage_class: Object, topology: dict[str, str]) -> None:
        metadata, spec = claim["metadata"], claim["spec"]
        name, driver = f"pvc-{metadata['uid']}", storage_class["provisioner"]
        made: Object = {
            "capacity": spec["resources"]["requests"],
            "accessModes": spec["accessModes"],
            "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
            | {field: metadata[field] for field in ("namespace", "name", "uid")},
            "storageClassName": storage_class["metadata"]["name"],
            "volumeMode": spec["volumeMode"],
        }
        made |= (
            {"hostPath": {"path": f"/v/{name}"}}
            if driver in _LOCAL
            else {"csi": {"driver": driver, "volumeHandle": name}}
        )
        if topology:
            here = [{"key": key, "operator": "In", "values": [value]} for key, value in topology.items()]
            made["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}}
        marks = {"pv.kubernetes.io/provisioned-by": driver}
        volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "annotations": marks}}
        await self._cluster.create(volume | {"spec": made})
        self._made.add(metadata["uid"])


@contextlib.asynccontextmanager
async def running(*actors: Kubelets | Provisioners) -> AsyncIterator[None]:
    """Each runs in a loop. Raises the first error."""

    async def run(actor: Kubelets | Provisioners) -> None:
        while True:
            await actor.step()
            await asyncio.sleep(_EVERY_S)

    tasks = [asyncio.create_task(run(each)) for each in actors]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
