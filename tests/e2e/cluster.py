"""Objects on a real API server, many at a time: what end-to-end tests write, wipe, wait for and watch."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from aiohttp import ClientSession, ClientTimeout

from tests.e2e.controlplane.process import ServerProcess

NODES = "/api/v1/nodes"
_CLUSTER_SCOPED = {
    "Namespace": "/api/v1/namespaces",
    "Node": NODES,
    "PersistentVolume": "/api/v1/persistentvolumes",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "VolumeAttachment": "/apis/storage.k8s.io/v1/volumeattachments",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "DeviceTaintRule": "/apis/resource.k8s.io/v1beta2/devicetaintrules",
}
_NAMESPACED = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "ReplicationController": "/api/v1/namespaces/{}/replicationcontrollers",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "ControllerRevision": "/apis/apps/v1/namespaces/{}/controllerrevisions",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "CSIStorageCapacity": "/apis/storage.k8s.io/v1/namespaces/{}/csistoragecapacities",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates",
    "Event": "/apis/events.k8s.io/v1/namespaces/{}/events",
}
PODS = "/api/v1/namespaces/default/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
PATIENCE_S = 60.0  # for what takes a fraction of a second on an idle machine
_WORKERS = 30

Json = dict[str, Any]
T = TypeVar("T")


def node(
    name: str, *, labels: Mapping[str, str] | None = None, spec: Mapping[str, object] | None = None, **allocatable: str
) -> Json:
    """A ready node, by default of 4 CPU, 8 GiB and 110 pods."""
    room = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "10Gi"} | allocatable
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": dict(spec or {}),
        "status": {"allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(name: str, scheduler_name: str, spec: Mapping[str, object] | None = None, **requests: str) -> Json:
    """A pod of one container with these requests; `spec` is laid over."""
    resources = {"requests": requests, "limits": requests}  # extended resources must have limits
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": scheduler_name, "containers": [container], **(spec or {})},
    }


def collection(kind: str, namespace: str = "default") -> str:
    return _CLUSTER_SCOPED.get(kind) or _NAMESPACED[kind].format(namespace)


class Cluster:
    """Reads and writes through one session; pods and events are those of one namespace. Every write must succeed."""

    def __init__(self, http: ClientSession, namespace: str = "default") -> None:
        self._http = http
        self.namespace = namespace
        self.pods = collection("Pod", namespace)

    async def create(self, *objects: Json) -> None:
        """Thirty requests at a time."""
        await each(objects, self._create)

    async def _create(self, item: Json) -> None:
        await self._write("POST", collection(item["kind"], self.namespace), item)

    async def merge(self, path: str, patch: Json) -> None:
        await self._write("PATCH", path, patch)

    async def put(self, path: str, body: Json) -> None:
        await self._write("PUT", path, body)

    async def get(self, path: str, **query: str) -> Json:
        async with self._http.get(path, params=query) as answer:
            assert answer.status == 200, await answer.text()
            body: Json = await answer.json()
            return body

    async def delete(self, path: str) -> None:
        """Without a grace period; an object that is gone is no error."""
        async with self._http.delete(path, params={"gracePeriodSeconds": "0"}) as answer:
            assert answer.status in {200, 202, 404}, await answer.text()

    async def wipe(self) -> None:
        """Delete all pods and nodes."""
        for kind in (self.pods, NODES):
            while names := [item["metadata"]["name"] for item in (await self.get(kind))["items"]]:
                await each(names, lambda name, kind=kind: self.delete(f"{kind}/{name}"))  # type: ignore[misc]

    async def node_of(self, name: str) -> str:
        """The node of the pod; "" while it has none."""
        return str((await self.get(f"{self.pods}/{name}"))["spec"].get("nodeName", ""))

    async def condition(self, name: str) -> Json | None:
        conditions = (await self.get(f"{self.pods}/{name}"))["status"].get("conditions") or []
        return next((c for c in conditions if c["type"] == "PodScheduled"), None)

    async def events(self, name: str) -> list[Json]:
        """The events that regard this pod, not an earlier one of its name."""
        uid = (await self.get(f"{self.pods}/{name}"))["metadata"]["uid"]
        listed = await self.get(collection("Event", self.namespace), fieldSelector=f"regarding.name={name}")
        return [event for event in listed["items"] or [] if event["regarding"].get("uid") == uid]

    async def _write(self, method: str, path: str, body: Json) -> None:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        async with self._http.request(method, path, json=body, headers={"Content-Type": kind}) as answer:
            assert answer.status in {200, 201}, f"{method} {path}: {await answer.text()}"


async def ensure(http: ClientSession, path: str, item: Json) -> None:
    """Replace the object of this name in the collection, or create it."""
    async with http.put(f"{path}/{item['metadata']['name']}", json=item) as answer:
        assert answer.status in {200, 201, 404}, await answer.text()
        is_there = answer.status != 404
    if not is_there:
        async with http.post(path, json=item) as answer:
            assert answer.status == 201, await answer.text()


async def allow(http: ClientSession, name: str, rules: Iterable[Json], *subjects: Json) -> None:
    """Give exactly these rights to the subjects, in all namespaces. The role and its binding have this name."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    await ensure(http, f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)})
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": list(subjects)}
    await ensure(http, f"{RBAC}/clusterrolebindings", binding)


async def account(http: ClientSession, name: str, rules: Iterable[Json] = (), *subjects: Json) -> str:
    """The token of a service account. These rights are its own and those of the other subjects."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await ensure(http, accounts, {"metadata": {"name": name}})
    await allow(http, name, rules, {"kind": "ServiceAccount", "name": name, "namespace": "default"}, *subjects)
    async with http.post(f"{accounts}/{name}/token", json={"spec": {"expirationSeconds": 3600}}) as answer:
        assert answer.status == 201, await answer.text()
        return str((await answer.json())["status"]["token"])


def a_user(name: str) -> Json:
    """A subject of `allow`."""
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


async def each(items: Iterable[Any], call: Callable[[Any], Awaitable[None]]) -> None:
    """Call with every item, thirty at a time."""
    rest = iter(items)

    async def worker() -> None:
        for item in rest:
            await call(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(_WORKERS):
            group.create_task(worker())


async def until(
    read: Callable[[], Awaitable[T | None]],
    what: str,
    *,
    server: ServerProcess | None = None,
    within_s: float = PATIENCE_S,
) -> T:
    """What `read` answers once it is not None (or empty); fails naming `what`, or at once if the server died."""
    deadline = time.monotonic() + within_s
    while not (value := await read()):
        if server is not None:
            server.check()
        assert time.monotonic() < deadline, f"{what}: not within {within_s:.0f} s\n{server.tail() if server else ''}"
        await asyncio.sleep(0.02)
    return value


# -- versions of pods that a watch shows, in their order: bindings and deletions ---------------------------------------


async def pod_events(http: ClientSession, version: str, path: str = PODS) -> AsyncIterator[Json]:
    """What a watch of pods, or of another collection, shows; a stream may end at any moment and is resumed where it ended."""
    while True:
        query = {"watch": "1", "resourceVersion": version}
        async with http.get(path, params=query, timeout=ClientTimeout(total=None)) as stream:
            stream.raise_for_status()
            rest = b""
            async for chunk in stream.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    assert event["type"] != "ERROR", event
                    version = event["object"]["metadata"]["resourceVersion"]
                    yield event


class History:
    def __init__(self) -> None:
        self.nodes_of: dict[str, list[str]] = defaultdict(list)
        """Every node name that was seen on a pod."""
        self.versions: dict[str, list[Json]] = defaultdict(list)
        """By name, each in full; those of namesakes one after the other."""
        self.deleted: list[Json] = []
        """As they were last."""

    async def follow(self, http: ClientSession, version: str, path: str = PODS) -> None:
        """Read until cancelled."""
        async for event in pod_events(http, version, path):
            pod = event["object"]
            name, node_name = pod["metadata"]["name"], pod["spec"].get("nodeName")
            self.versions[name].append(pod)
            if node_name and self.nodes_of[name][-1:] != [node_name]:
                self.nodes_of[name].append(node_name)
            if event["type"] == "DELETED":
                self.deleted.append(pod)
