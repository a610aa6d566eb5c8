"""Copies of small clusters on an API server with a daemon, explanations of their pods, and fixes that are applied to them.

An object is created again if it is not exactly as it was made. So each copy is a fresh one, and the next copy of the same
cluster is cheap.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import BIND_COMPLETED
from scheduler.core.cooperative import finish
from scheduler.daemon.app import Daemon
from scheduler.explain.answer import Explanation
from scheduler.explain.edits import Edit, merged, patched
from scheduler.explain.fixes import Search
from tests.e2e.cluster import each
from tests.explained.draft import DAEMON_SET, REPLICA_SET, Json, Planted, owner_of
from tests.explained.edited import edited, refusals, set_again
from tests.explained.volumes import provision
from tests.integration.daemon_laws import audited
from tests.parity.api import ScenarioApi
from tests.parity.scenario import named

Key = tuple[str, str, str]
_KINDS: Final = (
    *("StorageClass", "CSIDriver", "DeviceClass", "Node", "CSINode", "CSIStorageCapacity"),
    *("PersistentVolume", "PersistentVolumeClaim", "ResourceSlice", "Pod", "ResourceClaim"),
)
"""In the order of creation: reservations of claims name uids of pods."""
_VERSIONS: Final = {
    "Node": "v1",
    "CSINode": "storage.k8s.io/v1",
    "PersistentVolumeClaim": "v1",
    "ResourceClaim": "resource.k8s.io/v1",
    "ResourceSlice": "resource.k8s.io/v1",
}
_PATIENCE_S: Final = 60.0
WORKS: Final = frozenset({"bound", "waits"})
"""The pod is bound, or has a node and waits there for its volumes, which no controller makes."""


@dataclass(frozen=True)
class _Held:
    manifest: Json
    uid: str
    version: str


@dataclass(eq=False)
class Bench:
    """An API server with one planted cluster at a time, and a daemon."""

    api: ScenarioApi
    daemon: Daemon
    scheduler_name: str
    has_volume_controller: bool = False
    """The PV controller runs, so each pod is bound in the end. Volumes are then provisioned for the pod's claims alone."""
    _held: dict[Key, _Held] = field(default_factory=dict)
    _present: set[str] = field(default_factory=lambda: set(_KINDS))
    """Kinds of which objects may exist: only these are listed."""

    def __post_init__(self) -> None:
        explainer = self.daemon.scheduler.explainer
        explainer.budget_s = explainer.trial_s = _PATIENCE_S  # the machine may be busy

    # -- the cluster -------------------------------------------------------------------------------------------------

    async def put(self, objects: Sequence[Json], pod: Json) -> str:
        """Make a fresh copy of the cluster with the pod; return what became of the pod: "pending" or one of `WORKS`."""
        self._present |= {each["kind"] for each in objects} | {"Pod"}
        await self._reset({_key(each): each for each in objects})
        await self._seen()
        self._forget()
        created = await self.api.create(named(pod, self.scheduler_name))
        return await self._outcome(created)

    def _forget(self) -> None:
        """Let no claim of an earlier copy take storage: a deleted claim does until its volume is in a published capacity."""
        reservations = self.daemon.scheduler.cluster.volumes.reservations
        for entry in list(reservations):
            reservations.again(entry.claim.metadata.uid, entry.claim.key)

    async def _reset(self, wanted: dict[Key, Json]) -> None:
        await self._remove(wanted)
        for kind in _KINDS:
            missing = [(key, item) for key, item in wanted.items() if key[0] == kind and key not in self._held]
            await each(missing, self._make)
        if self.has_volume_controller:
            await self._bind_claims([key for key, item in wanted.items() if _is_bound(item)])

    async def _bind_claims(self, keys: Sequence[Key]) -> None:
        """Wait until the PV controller has bound these claims."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            there = {_key(item): item for item in await self._items(["PersistentVolumeClaim", "PersistentVolume"])}
            if all(there[key].get("status", {}).get("phase") == "Bound" for key in keys):
                break
            assert time.monotonic() < deadline, keys
            await asyncio.sleep(0.01)
        for key, item in there.items():
            self._held[key] = replace(self._held[key], version=item["metadata"]["resourceVersion"])

    async def _remove(self, wanted: dict[Key, Json]) -> None:
        """Delete each object that is not wanted, or not as it was made."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            there = {_key(item): item for item in await self._items(self._present)}
            self._held = {key: held for key, held in self._held.items() if self._is_as_made(key, held, there, wanted)}
            if not (left := [item for key, item in there.items() if key not in self._held]):
                break
            assert time.monotonic() < deadline, [_key(item) for item in left]
            await each(left, self._delete)
        self._present = {kind for kind, _, _ in wanted} | {"Pod"}

    def _is_as_made(self, key: Key, held: _Held, there: dict[Key, Json], wanted: dict[Key, Json]) -> bool:
        if key not in there or key not in wanted:
            return False
        metadata = there[key]["metadata"]
        is_same = (metadata["uid"], metadata["resourceVersion"]) == (held.uid, held.version)
        return is_same and held.manifest == self._with_uids(wanted[key])

    async def _items(self, kinds: Collection[str]) -> list[Json]:
        listed = await asyncio.gather(*(self.api.items(kind) for kind in kinds))
        return [item | {"kind": kind} for kind, items in zip(kinds, listed, strict=True) for item in items]

    async def _delete(self, item: Json) -> None:
        kind, namespace, name = _key(item)
        if item["metadata"].get("finalizers"):
            await self.api.patch(kind, name, namespace, {"metadata": {"finalizers": None}})
        await self.api.delete(kind, name, namespace)

    async def _make(self, entry: tuple[Key, Json]) -> None:
        key, wanted = entry
        manifest = self._with_uids(wanted)
        given = _unbound(manifest) if self.has_volume_controller and _is_bound(manifest) else manifest
        made = await self.api.create(given)
        if (status := given.get("status")) and key[0] != "Node":
            made = await self.api.patch(*(key[0], key[2], key[1]), {"status": status})
        self._held[key] = _Held(manifest, made["metadata"]["uid"], made["metadata"]["resourceVersion"])

    def _with_uids(self, manifest: Json) -> Json:
        """Return the manifest with the uids of the pods that have reserved it."""
        consumers = manifest.get("status", {}).get("reservedFor")
        if not consumers:
            return manifest
        namespace, found = manifest["metadata"].get("namespace", ""), []
        for consumer in consumers:
            held = self._held.get(("Pod", namespace, consumer["name"]))
            found.append(consumer | ({"uid": held.uid} if held is not None else {}))
        return manifest | {"status": manifest["status"] | {"reservedFor": found}}

    # -- the daemon --------------------------------------------------------------------------------------------------

    async def _seen(self) -> None:
        """Wait until the daemon's cache holds what the server holds."""
        deadline = time.monotonic() + _PATIENCE_S
        while not (self.daemon.idle() and await self._is_like_the_server()):
            assert time.monotonic() < deadline, "the daemon does not see the cluster"
            await asyncio.sleep(0.002)

    async def _is_like_the_server(self) -> bool:
        wanted: dict[str, dict[str, str]] = {kind: {} for kind in self._present}
        for item in await self._items(self._present):
            wanted[item["kind"]][item["metadata"]["uid"]] = item["metadata"]["resourceVersion"]
        informers = self.daemon.informers.reflectors
        return all(
            {seen.metadata.uid: seen.metadata.resource_version for seen in informers[kind].store} == wanted[kind]
            for kind in wanted
            if kind in informers
        )

    async def _outcome(self, created: Json) -> str:
        uid, claims = created["metadata"]["uid"], _claims(created)
        binder, deadline = self.daemon.scheduler.binder, time.monotonic() + _PATIENCE_S
        while True:
            await asyncio.sleep(0.002)
            pod = next((each for each in await self.api.items("Pod") if each["metadata"]["uid"] == uid), None)
            assert pod is not None
            if pod["spec"].get("nodeName"):
                return "bound"
            said = pod["status"].get("conditions") or [{}]
            is_waiting = binder.has(uid) or "binding volumes" in said[-1].get("message", "")
            if is_waiting and self.has_volume_controller:
                self._present.add("PersistentVolume")
                await provision(self.api, claims)
            elif is_waiting and (not binder.has(uid) or binder.preempt(uid, "test")):
                return "waits"
            elif said[-1].get("reason") and self._waits_in_queue(created):
                return "pending"
            assert time.monotonic() < deadline, f"no verdict: {said}"

    def _waits_in_queue(self, pod: Json) -> bool:
        """Return whether the daemon has seen the pod, has tried it unless it is gated, and does not bind it."""
        scheduler = self.daemon.scheduler
        is_known = scheduler.explainer.pending.get(_path(pod)) is not None
        return is_known and self.daemon.idle() and not scheduler.binder.has(pod["metadata"]["uid"])

    def explain(self, pod: Json) -> Explanation:
        """Return the explanation of the pod. The cache is then as before, in each of its indexes."""
        found = finish(self.daemon.scheduler.explainer.explain(_path(pod)))
        assert found is not None
        assert audited(self.daemon) == []
        return found

    def search(self, pod: Json) -> Search:
        """Return trials with the pod as the daemon knows it."""
        explainer = self.daemon.scheduler.explainer
        info = explainer.pending.get(_path(pod))
        assert isinstance(info, PodInfo)
        return explainer.search(info, explainer.profiles[self.scheduler_name])

    # -- fixes -------------------------------------------------------------------------------------------------------

    async def apply(self, planted: Planted, edits: Iterable[Edit]) -> str:
        """Apply a fix to the copy that was `put`, with the pod created again; return what becomes of the pod."""
        pod = planted.pod
        metadata = pod["metadata"]
        await self.api.delete("Pod", metadata["name"], metadata["namespace"])
        changes = merged(edits)
        self._present |= {edit.kind for edit in changes}
        pod = edited(pod, changes)
        if found := refusals(pod):
            return f"refused: {found}"
        if found := set_again(planted, changes):
            return f"a component sets again: {found}"
        for edit in changes:
            if (edit.kind, edit.verb) != ("Pod", "patch"):
                await self._apply(planted, edit)
        await self._seen()
        gone = {edit.name for edit in changes if (edit.kind, edit.verb) == ("Pod", "delete")}
        for each_ in planted.objects:
            if each_["kind"] == "Pod" and each_["metadata"]["name"] in gone and owner_of(each_) == REPLICA_SET:
                await self._comes_back(each_)
        created = await self.api.create(named(pod, self.scheduler_name))
        return await self._outcome(created)

    async def _comes_back(self, pod: Json) -> None:
        """Create a deleted pod again as its controller does, and wait until it has a node or fits on none."""
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        created = await self.api.create(named(pod | {"spec": spec}, self.scheduler_name))
        uid, deadline = created["metadata"]["uid"], time.monotonic() + _PATIENCE_S
        while True:
            await asyncio.sleep(0.002)
            found = next(each for each in await self.api.items("Pod") if each["metadata"]["uid"] == uid)
            is_refused = found["status"].get("conditions") and self._waits_in_queue(created)
            if found["spec"].get("nodeName") or is_refused:
                await self._seen()
                return
            assert time.monotonic() < deadline, "a pod of a controller is neither placed nor refused"

    async def _apply(self, planted: Planted, edit: Edit) -> None:
        match edit.verb, edit.kind:
            case "delete", "Pod":
                await self.api.delete("Pod", edit.name, edit.namespace)
                await self._release_devices(planted, edit.name)
            case "create", _:
                await self.api.create(_manifest(edit, edit.manifest))
                for pod in planted.objects:
                    if (
                        edit.like
                        and pod["kind"] == "Pod"
                        and pod["spec"].get("nodeName") == edit.like
                        and owner_of(pod) == DAEMON_SET
                    ):
                        there = {"metadata": pod["metadata"] | {"name": f"{pod['metadata']['name']}-copy"}}
                        await self.api.create(pod | there | {"spec": pod["spec"] | {"nodeName": edit.name}})
            case "patch", "Node":
                await self.api.json_patch("Node", edit.name, "", edit.patch)
            case "patch", "PersistentVolumeClaim" | "ResourceClaim":
                key = (edit.kind, edit.namespace, edit.name)
                before = next(each for each in planted.objects if _key(each) == key)
                await self._delete(next(each for each in await self._items([edit.kind]) if _key(each) == key))
                await self.api.create(_manifest(edit, patched({"spec": before["spec"]}, edit.patch)))
            case verb, kind:
                raise AssertionError(f"{verb} {kind} is not a change of a fix")

    async def _release_devices(self, planted: Planted, name: str) -> None:
        """Deallocate the claims that only this pod had reserved, as the resource claim controller does."""
        for item in planted.objects:
            consumers = [consumer["name"] for consumer in item.get("status", {}).get("reservedFor", ())]
            if item["kind"] == "ResourceClaim" and consumers == [name]:
                _, namespace, claim = _key(item)
                released = {"status": {"allocation": None, "reservedFor": None}}
                await self.api.patch("ResourceClaim", claim, namespace, released)


def _key(item: Json) -> Key:
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace", ""), metadata["name"]


def _path(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _is_bound(item: Json) -> bool:
    return item["kind"] == "PersistentVolumeClaim" and BIND_COMPLETED in item["metadata"].get("annotations", {})


def _unbound(claim: Json) -> Json:
    """Return the claim as a user writes it for this volume: the PV controller then binds it."""
    metadata = {key: value for key, value in claim["metadata"].items() if key != "annotations"}
    return {key: value for key, value in claim.items() if key != "status"} | {"metadata": metadata}


def _claims(pod: Json) -> frozenset[str]:
    volumes = pod["spec"].get("volumes", ())
    return frozenset(each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each)


def _manifest(edit: Edit, body: Json) -> Json:
    """Return a manifest that an API server accepts; of a CSINode that which the kubelet of the new node would write."""
    metadata = {key: value for key, value in body.get("metadata", {}).items() if key in {"labels", "annotations"}}
    place = {"name": edit.name} | ({"namespace": edit.namespace} if edit.namespace else {})
    if edit.kind == "CSINode":
        drivers = [each | {"nodeID": edit.name} for each in body["spec"]["drivers"]]
        body = body | {"spec": body["spec"] | {"drivers": drivers}}
    return body | {"apiVersion": _VERSIONS[edit.kind], "kind": edit.kind, "metadata": metadata | place}
