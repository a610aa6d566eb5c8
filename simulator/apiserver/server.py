"""The in-process API server: plain HTTP on loopback, and the same writes as plain function calls."""

from __future__ import annotations

import asyncio
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import msgspec
from aiohttp import web

from scheduler.core.clock import Clock, SystemClock
from simulator.apiserver.faults import Faults
from simulator.apiserver.http import Behaviour, Handler, Logged
from simulator.apiserver.kinds import opaque
from simulator.apiserver.kinds.device_versions import from_v1beta1
from simulator.apiserver.reads import list_body
from simulator.apiserver.registry import Registry
from simulator.apiserver.resources import DEVICES, LIKE_1_36, ApiResource, Served
from simulator.apiserver.reviews import People
from simulator.apiserver.status import Refused
from simulator.apiserver.storage import Backup, Entry, Storage, Subscriber

Object: TypeAlias = dict[str, Any]
Objects: TypeAlias = list[Object]
_HISTORY: Final = 20_000
"""Writes of each kind over which a watch can resume."""


class ApiServer:
    """A Kubernetes API server good enough for a scheduler, its neighbours and their tests.

    `served` has the groups and versions, best first within a group (`storage.k8s.io/v1/csinodes` serves one kind of them
    alone). Time and chance come from `clock` and `rng`. The objects outlive `stop`, so a restart is `stop` and `start`.
    In-process methods take and give plain manifests; they raise `Refused` as the HTTP side would answer. Manifests of
    devices are given as resource.k8s.io/v1 has them, whatever is served, and taken so unless they say v1beta1.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        served: Iterable[str] = LIKE_1_36,
        watch_list: bool = True,
        bookmark_interval_s: float = 60,
    ) -> None:
        clock = clock or SystemClock()
        rng = rng or random.Random()
        self._served = Served(served)
        self._storage = Storage(history=_HISTORY)
        self._registry = Registry(self._storage, self._served, clock, rng)
        self._behaviour = Behaviour(watch_list, bookmark_interval_s, set(), set())
        self.faults = Faults(rng)
        self._handler = Handler(
            self._storage, self._registry, self._served, clock=clock, faults=self.faults, behaviour=self._behaviour
        )
        self._runner: web.ServerRunner | None = None
        self.url = ""

    def upgrade(self, git_version: str) -> None:
        """Be of this version from now on: validation, the answer to a Binding, and what is no longer served follow it.

        Stored objects stay. Watches of what is gone end.
        """
        self._served.upgrade(git_version)
        self._end_gone()

    # -- running ------------------------------------------------------------------------------------------------------

    async def start(self, port: int = 0) -> str:
        """Listen on 127.0.0.1 and return the URL; port 0 takes a free one."""
        self._socket = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._handler.is_closing = False
        server = web.Server(self._handler, access_log=None, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=1)
        await self._runner.setup()
        await web.SockSite(self._runner, self._socket, backlog=1024).start()
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        return self.url

    async def stop(self) -> None:
        """End all watches and connections. Idempotent."""
        if self._runner is not None:
            # What was accepted a moment ago is not known to the runner yet, and asyncio loses it when the server closes.
            asyncio.get_running_loop().remove_reader(self._socket)
            for _ in range(3):
                await asyncio.sleep(0)
            self._handler.is_closing = True
            self.cut_watches()
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await self.stop()

    # -- objects ------------------------------------------------------------------------------------------------------

    def create(self, kind_or_resource: str, obj: Object) -> Object:
        """POST, into metadata.namespace or `default`; with all its defaults, so a status counts only for nodes."""
        resource = self._served.named(kind_or_resource)
        fresh = _manifest(resource, obj)
        namespace = fresh.get("metadata", {}).get("namespace") or "default" if resource.namespaced else ""
        return _plain(self._registry.create(resource, namespace, fresh))

    def store(self, kind_or_resource: str, raw: bytes, *, name: str, namespace: str = "") -> None:
        """Store bytes as an object, past all checks: JSON that no client of this server could have it emit.

        `"resourceVersion":"1"` in them becomes the version. Name and namespace must be those in the bytes.
        """
        resource = self._served.named(kind_or_resource)
        key = resource.key(namespace, name)
        obj = {"metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"}}
        marked = b'"resourceVersion":"%d"'
        body = lambda version: raw.replace(marked % 1, marked % version, 1)  # noqa: E731
        self._storage.put(resource, key, obj, body=body)

    def apply(self, obj: Object) -> Object:
        """Create a manifest of any kind with its status, creating its namespace where needed: to load a dump."""
        resource = self._served.of_manifest(obj)
        fresh = _copy(obj)
        metadata = fresh["metadata"]
        for field in ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"):
            metadata.pop(field, None)
        if resource.namespaced:
            self.ensure_namespace(metadata.setdefault("namespace", "default"))
        created = self.create(resource.stored_as, fresh)
        if not resource.has_status or not fresh.get("status") or resource.name == "namespaces":
            return created
        patch = {"status": fresh["status"]}
        namespace = metadata.get("namespace", "")
        return self.patch(resource.stored_as, metadata["name"], patch, namespace=namespace, subresource="status")

    def load(self, obj: Object) -> Object:
        """Create a manifest of any kind with its status, uid, creation time and generation: as in its own cluster."""
        resource = self._served.of_manifest(obj)
        fresh = _manifest(resource, obj)
        namespace = fresh["metadata"].get("namespace") or "default" if resource.namespaced else ""
        return _plain(self._registry.load(resource, namespace, fresh))

    def terminate(self, kind_or_resource: str, name: str, namespace: str, deletion: Object) -> None:
        """Mark a loaded object as being deleted, with the fields of `deletion` in its metadata. Raises 404."""
        self._registry.terminate(self._served.named(kind_or_resource), namespace, name, deletion)

    def ensure_namespace(self, name: str) -> None:
        """Create it unless it is there."""
        spaces = self._served.named("namespaces")
        if name not in self._storage.bucket(spaces).entries:
            self._registry.create(spaces, "", {"metadata": {"name": name}})

    def get(self, kind_or_resource: str, name: str, namespace: str = "default") -> Object:
        """Return a copy of one object. Raises 404."""
        resource = self._served.named(kind_or_resource)
        return _plain(self._registry.entry(resource, namespace, name))

    def find(self, kind_or_resource: str, name: str, namespace: str = "") -> Object | None:
        """Return a copy of one object; None if there is none."""
        try:
            return self.get(kind_or_resource, name, namespace)
        except Refused:
            return None

    def list(
        self, kind_or_resource: str, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Objects:
        """Return copies in the order of their keys, by default of all namespaces."""
        resource = self._served.named(kind_or_resource)
        query = {"labelSelector": label_selector, "fieldSelector": field_selector}
        items: Objects = msgspec.json.decode(list_body(self._storage, resource, namespace, query))["items"]
        return items

    def update(self, kind_or_resource: str, obj: Object, *, subresource: str = "") -> Object:
        """PUT: the whole object, or its status."""
        resource = self._served.named(kind_or_resource)
        metadata = obj["metadata"]
        namespace = metadata.get("namespace") or "default"
        entry, _ = self._registry.replace(
            resource, namespace, metadata["name"], _manifest(resource, obj), subresource=subresource
        )
        return _plain(entry)

    def patch(
        self, kind_or_resource: str, name: str, patch: Object, *, namespace: str = "default", subresource: str = ""
    ) -> Object:
        """Strategic merge patch."""
        resource = self._served.named(kind_or_resource)
        fresh = opaque.decoded(msgspec.json.encode(patch))
        return _plain(self._registry.patch(resource, namespace, name, fresh, strategic=True, subresource=subresource))

    def delete(
        self, kind_or_resource: str, name: str, namespace: str = "default", *, grace_s: int | None = None, uid: str = ""
    ) -> None:
        """DELETE, optionally only the object with this uid. Raises 404 and 409."""
        resource = self._served.named(kind_or_resource)
        options: Object = {"preconditions": {"uid": uid}} if uid else {}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        self._registry.delete(resource, namespace, name, options)

    def bind(self, name: str, node: str, namespace: str = "default") -> None:
        """POST pods/<name>/binding, as some other scheduler would."""
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        self._registry.bind(self._served.named("pods"), namespace, name, binding)

    def objects(self, kind_or_resource: str) -> Objects:
        """Return the stored objects by key. Callers must not change them. Only objects with opaque parameters are copies."""
        resource = self._served.named(kind_or_resource)
        return [opaque.plain(resource.name, entry.obj) for entry in self._storage.bucket(resource).ordered()]

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call `callback(event_type, resource, obj)` right after every write, in order. Returns the undo.

        It may write and must not change `obj`; its exceptions reach the writer.
        """
        return self._storage.subscribe(lambda type_, name, obj: callback(type_, name, opaque.plain(name, obj)))

    # -- behaviour ----------------------------------------------------------------------------------------------------

    @property
    def resource_version(self) -> str:
        """The newest there is."""
        return str(self._storage.rv)

    @property
    def log(self) -> Sequence[Logged]:
        """Requests over HTTP in the order they were answered (watches: opened); the last 200 000."""
        return self._handler.log

    def requests(self) -> Counter[str]:
        """How often, by `verb resource[/subresource] status`: `create pods/binding 201`."""
        return Counter(
            f"{r.verb} {r.resource}{'/' + r.subresource if r.subresource else ''} {entry.status}"
            for entry in self._handler.log
            for r in (entry.request,)
        )

    @property
    def watch_list(self) -> bool:
        """Return whether watches may request initial events. False answers 422, as a server without the feature."""
        return self._behaviour.watch_list

    @watch_list.setter
    def watch_list(self, value: bool) -> None:
        self._behaviour.watch_list = value

    @property
    def token(self) -> str:
        """Return the token that requests over HTTP need. Without one ("") every local user may read and write."""
        return self._behaviour.token

    @token.setter
    def token(self, value: str) -> None:
        self._behaviour.token = value

    @property
    def forbidden(self) -> set[tuple[str, str]]:
        """(verb, resource) pairs answered 403 and denied in reviews; a subresource as `pods/binding`. Change at will.

        Rights on `resourceclaims/binding` and `resourceclaims/driver` (`arbitrary-node:patch`) are checked for writes
        of a claim's status.
        """
        return self._behaviour.forbidden

    @property
    def people(self) -> People:
        """Return the tokens of users and the paths that they may see, for reviews. A test may change them."""
        return self._behaviour.people

    def serve(self, served: Iterable[str]) -> None:
        """Serve these groups and versions from now on, as after an upgrade; watches of what is gone end."""
        self._served.change(served)
        self._end_gone()

    def _end_gone(self) -> None:
        for stream in tuple(self._handler.streams):
            kind = stream.resource
            if self._served.at(kind.group, kind.version, kind.name) is None:
                stream.end()

    def compact(self) -> None:
        """Forget all history: older resourceVersions and continue tokens answer 410. Open watches live on."""
        for resource in self._served.stored():
            self._storage.bucket(resource).compact(self._storage.rv)

    def backup(self) -> Backup:
        """Return what `restore` takes."""
        return self._storage.backup()

    def restore(self, backup: Backup) -> None:
        """Go back to a backup of etcd, and give resourceVersions a second time. Only while the server is stopped."""
        assert self._runner is None, "stop the server first"
        self._storage.restore(backup)

    def cut_watches(self, resource: str = "", *, abruptly: bool = False) -> int:
        """End the open watches (of one resource, if named) and return how many. Abruptly: without the final chunk."""
        cut = 0
        for stream, transport in tuple(self._handler.streams.items()):
            if resource in {"", stream.resource.name}:
                cut += 1
                if abruptly and transport is not None:
                    transport.abort()
                stream.end()
        return cut

    def hold_watches(self, resource: str = "") -> None:
        """Watches (of one resource, if named), open or new, bring nothing from now on: their readers live in the past."""
        self._behaviour.held.add(resource)
        for stream in self._handler.streams:
            if resource in {"", stream.resource.name}:
                stream.flowing.clear()

    def release_watches(self) -> None:
        """Bring all that was held back, in order."""
        self._behaviour.held.clear()
        for stream in self._handler.streams:
            stream.flowing.set()


def _manifest(resource: ApiResource, obj: Object) -> Object:
    fresh: Object = opaque.decoded(msgspec.json.encode(obj))
    return from_v1beta1(resource.name, fresh) if fresh.get("apiVersion") == f"{DEVICES}/v1beta1" else fresh


def _copy(obj: Object) -> Object:
    copied: Object = msgspec.json.decode(msgspec.json.encode(obj))
    return copied


def _plain(entry: Entry) -> Object:
    return _copy(entry.obj)
