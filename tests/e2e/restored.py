"""Objects of a file on a real control plane: written as a restored backup is, waited for, and removed again."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from aiohttp import ClientSession

from tests.e2e.cluster import EVENTS, Cluster, collection, each, until
from tests.e2e.controlplane.harness import ControlPlane

Object = dict[str, Any]
CONTROLLERS: Final = (
    *(f"{kind}-controller" for kind in ("deployment", "replicaset", "statefulset", "daemonset", "job", "cronjob")),
    "persistentvolume-binder-controller",
    "ephemeral-volume-controller",
    "resourceclaim-controller",
)
WORKLOADS: Final = ("CronJob", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")
_CLASSES: Final = ("PriorityClass", "StorageClass", "CSIDriver", "DeviceClass", "RuntimeClass")
_VOLUMES: Final = ("PersistentVolume", "PersistentVolumeClaim")
_WIPED: Final = (
    *(*WORKLOADS, "Pod", "ControllerRevision", "ResourceClaim", "ResourceClaimTemplate", "PersistentVolumeClaim"),
    *("PersistentVolume", "PodDisruptionBudget", "CSIStorageCapacity", "VolumeAttachment", "CSINode", "ResourceSlice"),
    *("Node", "StorageClass", "CSIDriver", "DeviceClass", "PriorityClass"),
)
_NOT_WRITTEN: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "finalizers")
"""Fields of metadata that a server sets, and finalizers: the controllers that remove them do not run."""
_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_QUIET_S: Final = 1.2
"""The job controller collects changes of pods for one second."""
_PATIENCE_S: Final = 120.0
_DEPTH: Final = r"^workqueue_(?:depth|unfinished_work_seconds)\{[^}]*\} (\S+)$"
SCHEDULER: Final = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
"""Configuration of kube-scheduler."""
_loads = itertools.count()


def is_owned(obj: Object, kinds: Iterable[str]) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner["kind"] in kinds for owner in owners)


class Restored:
    """Writes objects, waits until controllers and kube-scheduler have handled them, and removes them.

    Custom resources are left out: the server does not know their kinds."""

    def __init__(self, plane: ControlPlane, http: ClientSession) -> None:
        self._plane = plane
        self._http = http
        self.cluster = Cluster(http)
        self._paths: dict[tuple[str, str], tuple[str, bool]] = {}
        """apiVersion and kind → the path before the resource, with the resource behind a space; whether it is namespaced."""
        self._uids: dict[tuple[str, str, str], str] = {}
        self._loads = next(_loads)

    async def open(self) -> None:
        groups = (await self.cluster.get("/apis"))["groups"]
        prefixes = ["/api/v1", *(f"/apis/{one['groupVersion']}" for group in groups for one in group["versions"])]
        for prefix in prefixes:
            listed = await self.cluster.get(prefix)
            for one in listed["resources"]:
                if "/" not in one["name"]:
                    place = f"{prefix} {one['name']}", bool(one["namespaced"])
                    self._paths[listed["groupVersion"], one["kind"]] = place

    def serves(self, obj: Object) -> bool:
        return (obj["apiVersion"], obj["kind"]) in self._paths

    # -- writing -------------------------------------------------------------------------------------------------------

    async def load(self, objects: Sequence[Object]) -> None:
        """Write the objects that the server serves. Bound pods come first."""
        served = [copy.deepcopy(one) for one in objects if self.serves(one)]
        there = {one["metadata"]["name"] for one in await self.all_of("Namespace")}
        names = {one["metadata"]["namespace"] for one in served if "namespace" in one["metadata"]} - there
        await self._write_all([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names])
        await self._write_all([one for one in served if one["kind"] in _CLASSES])
        await self._write_all([one for one in served if one["kind"] not in {*_CLASSES, *_VOLUMES, *WORKLOADS, "Pod"}])
        for storage_class in (one for one in served if one["kind"] == "StorageClass"):
            await self._class_is_known(storage_class)
        for kind in _VOLUMES:
            await self._write_all([one for one in served if one["kind"] == kind])
            await self._volumes_are_known(
                {one["metadata"]["name"] for one in served if one["kind"] == "PersistentVolume"}
            )
        await self._load_workloads(served)

    async def _load_workloads(self, served: Sequence[Object]) -> None:
        """Controllers stop where a workload must not be seen without its pods or its status."""
        pods = [one for one in served if one["kind"] == "Pod"]
        jobs = [one for one in served if one["kind"] == "Job"]
        owned = [pod for pod in pods if is_owned(pod, WORKLOADS)]
        is_bound = {id(pod): bool(pod["spec"].get("nodeName")) for pod in pods}
        stops = bool(owned) or any(job.get("status") for job in jobs)
        if stops:
            await self._plane.stop_server("kube-controller-manager")
        await self._write_all([pod for pod in pods if pod not in owned and is_bound[id(pod)]])
        for kind in WORKLOADS:
            await self._write_all([one for one in served if one["kind"] == kind])
        await self._write_all([pod for pod in owned if is_bound[id(pod)]])
        for obj in [*jobs, *(pod for pod in pods if is_bound[id(pod)])]:
            await self._write_status(obj)
        if stops:  # controllers delete pods that are not ready first
            await self._bound_pods_have_started()
        for claim in (one for one in served if one["kind"] == "ResourceClaim"):
            await self._write_status(claim)
        await self._write_all([pod for pod in pods if not is_bound[id(pod)]])
        if stops:
            await self._plane.start_controllers(CONTROLLERS)

    async def _bound_pods_have_started(self) -> None:
        async def have_started() -> bool:
            pods = await self.all_of("Pod")
            return all(pod["status"]["phase"] != "Pending" for pod in pods if pod["spec"].get("nodeName"))

        await until(have_started, "bound pods that have started")

    async def _write_all(self, objects: Iterable[Object]) -> None:
        await each(objects, self._write)

    async def _write(self, obj: Object) -> None:
        metadata = {name: value for name, value in obj["metadata"].items() if name not in _NOT_WRITTEN}
        namespace = metadata.get("namespace", "")
        if owners := metadata.get("ownerReferences"):
            keys = [(owner["kind"], namespace, owner["name"]) for owner in owners]
            metadata["ownerReferences"] = [
                owner | {"uid": self._uids.get(key, owner["uid"])} for owner, key in zip(owners, keys, strict=True)
            ]
        made = {**obj, "metadata": metadata}
        if obj["kind"] == "PersistentVolume" and "claimRef" in obj["spec"]:
            claim = {name: value for name, value in obj["spec"]["claimRef"].items() if name not in _NOT_WRITTEN}
            made["spec"] = {**obj["spec"], "claimRef": claim}
        if obj["kind"] == "PersistentVolumeClaim":
            marks = metadata.get("annotations") or {}
            metadata["annotations"] = {name: value for name, value in marks.items() if name != _COMPLETED}
        # As kubectl writes it. A patch takes the spaces out of a driver's parameters, which changes the spec: a claim would refuse
        # each patch, also the one that takes its finalizers.
        text, headers = json.dumps(made, separators=(",", ":")), {"Content-Type": "application/json"}
        async with self._http.post(self._collection(obj), data=text, headers=headers) as answer:
            body = await answer.json()
            assert answer.status == 201, f"{obj['kind']} {metadata['name']}: {body}"
        self._uids[obj["kind"], namespace, metadata["name"]] = body["metadata"]["uid"]

    async def _write_status(self, obj: Object) -> None:
        status, namespace = obj.get("status") or {}, obj["metadata"]["namespace"]
        if obj["kind"] == "Pod" and status.get("phase") not in {"Succeeded", "Failed"}:
            return
        if users := status.get("reservedFor"):
            status["reservedFor"] = [user | {"uid": self._uids["Pod", namespace, user["name"]]} for user in users]
        if status:
            path = f"{self._collection(obj)}/{obj['metadata']['name']}/status"
            await self.cluster.merge(path, {"status": status})

    def _collection(self, obj: Object) -> str:
        place, is_namespaced = self._paths[obj["apiVersion"], obj["kind"]]
        prefix, _, resource = place.partition(" ")
        return (
            f"{prefix}/namespaces/{obj['metadata']['namespace']}/{resource}"
            if is_namespaced
            else f"{prefix}/{resource}"
        )

    async def _class_is_known(self, storage_class: Object) -> None:
        """The PV controller lets claims of a class wait only once it has seen the class. No probe is provisioned."""
        if storage_class.get("volumeBindingMode") != "WaitForFirstConsumer":
            return
        name = storage_class["metadata"]["name"]
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": name,
            "resources": {"requests": {"storage": "1Pi"}},
        }
        attempts = itertools.count()

        async def waits() -> bool:
            probe = f"probe-{self._loads}-{name}-{next(attempts)}"
            claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": probe}, "spec": spec}
            await self.cluster.create(claim)

            async def said() -> list[Object]:
                return list((await self.cluster.get(EVENTS, fieldSelector=f"regarding.name={probe}"))["items"])

            found = await until(said, f"an event on {probe}")
            await self._remove(f"{collection('PersistentVolumeClaim')}/{probe}", ["kubernetes.io/pvc-protection"])
            return bool(found[0]["reason"] == "WaitForFirstConsumer")

        await until(waits, f"the PV controller knows the class {name}")

    async def _volumes_are_known(self, names: set[str]) -> None:
        async def read() -> bool:
            listed = (await self.cluster.get("/api/v1/persistentvolumes"))["items"]
            return names <= {one["metadata"]["name"] for one in listed if one["status"].get("phase") != "Pending"}

        await until(read, "volumes that the PV controller knows")

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def all_of(self, kind: str) -> list[Object]:
        place = next(place for (_, known), (place, _) in self._paths.items() if known == kind and "alpha" not in place)
        return list((await self.cluster.get(place.replace(" ", "/")))["items"])

    async def at_rest(self) -> list[Object]:
        """Return the pods, once nothing changes, each pod has an answer, and no queue has an item."""
        deadline, seen, since = time.monotonic() + _PATIENCE_S, "", time.monotonic()
        # A pod that kube-scheduler tries right now is in no metric for a moment, so the queues must stay empty as well.
        while time.monotonic() < deadline:
            pods = await self.all_of("Pod")
            lists = (
                pods,
                *[await self.all_of(kind) for kind in ("PersistentVolumeClaim", "ResourceClaim", *WORKLOADS)],
            )
            now = json.dumps(
                sorted((one["metadata"]["uid"], one["metadata"]["resourceVersion"]) for all_ in lists for one in all_)
            )
            if now != seen or not all(has_answer(each) for each in pods) or await self._queued():
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > _QUIET_S:
                return pods
            await asyncio.sleep(0.1)
        raise AssertionError(f"the real cluster did not come to rest: {seen}")

    async def tried_again(self) -> list[Object]:
        """Return the pods at rest after a new kube-scheduler has tried all that are pending.

        The message of a pending pod is that of its last attempt: other pods may have been placed since then.
        """
        await self._plane.start_scheduler(SCHEDULER)
        return await self.at_rest()

    async def _queued(self) -> float:
        """How many pods kube-scheduler tries, binds or will try again soon, and how many objects the controllers handle."""
        pending = r'^(?:scheduler_pending_pods\{queue="(?:active|backoff)"\}|scheduler_(?:goroutines|inflight_events)\{[^}]*\}) (\S+)$'
        return await self._sum("kube-scheduler", pending) + await self._sum("kube-controller-manager", _DEPTH)

    async def _sum(self, server: str, pattern: str) -> float:
        url = f"https://127.0.0.1:{self._plane.ports[server]}/metrics"
        async with self._http.get(url, ssl=False) as answer:
            assert answer.status == 200, await answer.text()
            values = re.findall(pattern, await answer.text(), re.MULTILINE)
        assert values, f"{server} has no metric {pattern}"
        return sum(map(float, values))

    # -- removing ------------------------------------------------------------------------------------------------------

    async def wipe(self) -> None:
        """Remove all objects that scheduling reads, workloads first.

        Controllers that have not seen yet that a workload is gone replace its pods: two rounds in a row find nothing.
        """
        deadline, empty_rounds = time.monotonic() + _PATIENCE_S, 0
        while empty_rounds < 2:
            assert time.monotonic() < deadline, "the cluster does not become empty"
            is_empty = not await self._sum("kube-controller-manager", _DEPTH)
            for kind in _WIPED:
                while found := [
                    one for one in await self.all_of(kind) if not one["metadata"]["name"].startswith("system-")
                ]:
                    is_empty = False
                    await each(found, self._removal(kind))
            empty_rounds = empty_rounds + 1 if is_empty else 0

    def _removal(self, kind: str) -> Callable[[Object], Awaitable[None]]:
        version = next(version for version, known in self._paths if known == kind and "alpha" not in version)

        async def remove(obj: Object) -> None:
            path = f"{self._collection({'apiVersion': version, 'kind': kind, **obj})}/{obj['metadata']['name']}"
            await self._remove(path, obj["metadata"].get("finalizers") or [])

        return remove

    async def _remove(self, path: str, finalizers: list[str]) -> None:
        async with self._http.delete(path, params={"gracePeriodSeconds": "0"}) as answer:
            assert answer.status in {200, 202, 404}, await answer.text()
        if finalizers:
            headers = {"Content-Type": "application/merge-patch+json"}
            patch = {"metadata": {"finalizers": None}}
            async with self._http.patch(path, json=patch, headers=headers) as answer:
                assert answer.status in {200, 404, 409}, await answer.text()


def has_answer(pod: Object) -> bool:
    """Whether the pod has a node or a reason why not."""
    return bool(pod["spec"].get("nodeName") or pod["status"].get("conditions"))
