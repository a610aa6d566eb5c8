"""The verbs: what a write does to the stored objects, from admission to the deletion that a finalizer held up.

Plain function calls: a write is done when they return. HTTP (`server.py`) and in-process callers share them.
"""

from __future__ import annotations

import copy
import datetime as dt
import random
import uuid
from typing import Any, Final, Self

from scheduler.core.clock import Clock
from scheduler.core.names import NAME, NAME_RULE
from scheduler.testing.apiserver import faces, opaque, patches, pods, volumes
from scheduler.testing.apiserver.budgets import with_selector_replaced
from scheduler.testing.apiserver.callers import Caller
from scheduler.testing.apiserver.defaults import SYSTEM_PRIORITIES, Defaults, with_condition_times
from scheduler.testing.apiserver.devices import Devices
from scheduler.testing.apiserver.ownership import with_owners
from scheduler.testing.apiserver.resources import Resource, Served
from scheduler.testing.apiserver.status import (
    Refused,
    Unreadable,
    already_exists,
    bad_request,
    delete_precondition,
    forbidden,
    invalid,
    not_found,
    precondition_failed,
    success,
    version_required,
)
from scheduler.testing.apiserver.storage import Entry, Storage
from scheduler.testing.apiserver.updates import check_metadata, check_version, is_finished, updated
from scheduler.testing.apiserver.volumechanges import with_transition_time

Object = dict[str, Any]
_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


class Registry:
    """Writes to one storage. Objects handed in are taken over; objects handed out must not be changed."""

    def __init__(self, storage: Storage, served: Served, clock: Clock, rng: random.Random) -> None:
        self._storage = storage
        self._served = served
        self._clock = clock
        self._random = rng
        self.caller = Caller()
        self._devices = Devices(storage, served)
        more = volumes.rules(storage, served) | self._devices.rules()
        self._defaults = Defaults(storage, served.named("priorityclasses"), more)
        for name in _NAMESPACES:
            self.create(served.named("namespaces"), "", {"metadata": {"name": name}})
        for name, value in SYSTEM_PRIORITIES.items():
            self.create(served.named("priorityclasses"), "", {"metadata": {"name": name}, "value": value})

    def by(self, caller: Caller) -> Self:
        """The same, for writes of this caller."""
        other = copy.copy(self)
        other.caller = caller
        return other

    def now_text(self, later_s: float = 0) -> str:
        """The time as the API writes it."""
        moment = dt.datetime.fromtimestamp(self._clock.wall() + later_s, dt.UTC)
        return moment.strftime(_TIME)

    def entry(self, resource: Resource, namespace: str, name: str) -> Entry:
        """Raises 404."""
        entry = self._storage.bucket(resource).entries.get(resource.key(namespace, name))
        if entry is None:
            raise not_found(resource, name)
        return entry

    # -- create --------------------------------------------------------------------------------------------------------

    def create(self, resource: Resource, namespace: str, obj: Object) -> Entry:
        """POST. Raises 400, 403, 404 (namespace), 409, 422."""
        obj = self._received(resource, obj)
        metadata = obj["metadata"]
        if resource.namespaced:
            if metadata.setdefault("namespace", namespace) != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            self._check_namespace(resource, namespace, metadata.get("name", ""))
        else:
            metadata.pop("namespace", None)
        if metadata.get("resourceVersion"):
            raise Refused(500, "", "resourceVersion should not be set on objects to be created")
        self._name(resource, metadata)
        key = resource.key(namespace, metadata["name"])
        now = self.now_text()
        obj["metadata"] = self._new_metadata(metadata, now)
        self._defaults.apply(resource, obj, now)
        taken = self._storage.bucket(resource).entries.get(key)
        if taken is not None:
            is_going = bool(taken.obj["metadata"].get("deletionTimestamp"))
            raise already_exists(resource, metadata["name"], is_going=is_going)
        with_condition_times(resource, obj)
        with_owners(resource, None, obj, manager=self.caller.manager)
        return self._storage.put(resource, key, obj)

    def _received(self, resource: Resource, obj: Object) -> Object:
        """The object in its stored form; it may leave out kind and apiVersion."""
        kind = obj.get("kind") or resource.kind
        if kind != resource.kind:
            version = obj.get("apiVersion") or resource.group_version
            raise bad_request(f'{kind} in version "{version}" cannot be handled as a {resource.kind}')
        if not isinstance(obj.get("metadata"), dict):
            obj = obj | {"metadata": {}}
        obj = faces.stored(resource, obj)
        stored = self._served.named(resource.name)
        rest = {key: value for key, value in obj.items() if key not in {"kind", "apiVersion"}}
        return {"kind": stored.kind, "apiVersion": stored.group_version, **rest}

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        spaces = self._served.named("namespaces")
        found = self._storage.bucket(spaces).entries.get(namespace)
        if found is None:
            raise not_found(spaces, namespace)
        if found.obj["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            refusal = forbidden(resource, name, why)
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated"}
            (refusal.details or {})["causes"] = [cause | {"field": "metadata.namespace"}]
            raise refusal

    def _name(self, resource: Resource, metadata: Object) -> None:
        prefix = metadata.get("generateName")
        if not metadata.get("name"):
            if not prefix:
                why = "Required value: name or generateName is required"
                raise invalid(resource, "", "metadata.name", why, cause="FieldValueRequired")
            metadata["name"] = prefix + "".join(self._random.choices(_SUFFIX_LETTERS, k=5))
        if prefix and not NAME.fullmatch(prefix.removesuffix("-")):
            why = f'Invalid value: "{prefix}": {NAME_RULE}'
            raise invalid(resource, metadata["name"], "metadata.generateName", why)
        if not NAME.fullmatch(metadata["name"]):
            why = f'Invalid value: "{metadata["name"]}": {NAME_RULE}'
            raise invalid(resource, metadata["name"], "metadata.name", why)

    def _new_metadata(self, given: Object, now: str) -> Object:
        kept = ("name", "generateName", "namespace")
        system = {"uid": str(uuid.UUID(int=self._random.getrandbits(128), version=4)), "resourceVersion": ""}
        dropped = {*kept, "uid", "generation", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"}
        rest = {key: value for key, value in given.items() if key not in dropped and value not in ({}, [], None)}
        names = {key: given[key] for key in kept if given.get(key)}
        return names | system | rest | {"creationTimestamp": now}

    # -- update --------------------------------------------------------------------------------------------------------

    def replace(
        self, resource: Resource, namespace: str, name: str, obj: Object, *, subresource: str = ""
    ) -> tuple[Entry, bool]:
        """PUT. The flag tells that it created the object. Raises 400, 404, 409, 422."""
        obj = self._received(resource, obj)
        metadata = obj["metadata"]
        if metadata.setdefault("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        key = resource.key(namespace, name)
        entry = self._storage.bucket(resource).entries.get(key)
        if entry is None:
            if resource.put_creates and not subresource and not metadata.get("uid"):
                metadata.pop("resourceVersion", None)
                return self.create(resource, namespace, obj), True
            raise not_found(resource, name)
        uid, actual = metadata.get("uid"), entry.obj["metadata"]["uid"]
        if uid and uid != actual:
            raise precondition_failed(resource, key, "UID", uid, actual)
        if not metadata.get("resourceVersion") and not resource.unconditional_put:
            raise version_required(resource, name)
        return self._store(resource, entry, obj, subresource), False

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Object | list[Any],
        *,
        strategic: bool,
        subresource: str = "",
    ) -> Entry:
        """PATCH; a list is a JSON patch. Raises 400, 404, 409 (resourceVersion), 422 (uid and other fixed fields)."""
        entry = self.entry(resource, namespace, name)
        if strategic and isinstance(patch, dict) and resource.name == "poddisruptionbudgets":
            patch = with_selector_replaced(patch)
        shown = faces.shown(resource, entry.obj)
        if opaque.has_opaque(resource):
            shown, patch = opaque.before_patch(shown, patch, is_strategic=strategic)
        patched = faces.stored(resource, patches.applied(shown, patch, is_strategic=strategic))
        patched |= {key: entry.obj[key] for key in ("kind", "apiVersion")}
        if patched["metadata"].get("name") != name:
            given = patched["metadata"].get("name")
            raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
        if strategic:
            check_version(resource, entry.obj, patched)
        try:
            return self._store(resource, entry, patched, subresource)
        except Unreadable as unreadable:
            raise unreadable.in_patch() from None

    def bind(self, resource: Resource, namespace: str, name: str, binding: Object) -> Object:
        """POST pods/<name>/binding. Raises 400, 404, 409 and, as a real server does, 500."""
        pods.check_binding(name, binding)
        entry = self.entry(resource, namespace, name)
        nodes = self._storage.bucket(self._served.named("nodes")).entries
        node = nodes.get(binding["target"]["name"])
        pod = pods.bound(resource, entry.obj, binding, node=node.obj if node is not None else None, now=self.now_text())
        pod["metadata"] = dict(pod["metadata"])
        self._storage.put(resource, entry.key, pod)
        return success(201)

    def _store(self, resource: Resource, entry: Entry, new: Object, subresource: str) -> Entry:
        check_version(resource, entry.obj, new)
        check_metadata(resource, entry.obj, new, subresource=subresource)
        if not subresource:
            new = self._devices.changed(resource, entry.obj, new, self.now_text())
        result = updated(resource, entry.obj, new, subresource=subresource)
        if subresource:
            result = self._devices.with_status(resource, entry.obj, result, self.caller)
        if resource.name == "persistentvolumes":
            with_transition_time(entry.obj, result, self.now_text())
        if result == entry.obj:
            return entry
        with_owners(resource, entry.obj, result, manager=self.caller.manager, subresource=subresource)
        if is_finished(result):
            last = result | {"metadata": dict(result["metadata"])}
            self._storage.remove(resource, entry.key, last)
            return Entry(entry.key, result, entry.rv)
        return self._storage.put(resource, entry.key, result)

    # -- delete --------------------------------------------------------------------------------------------------------

    def delete(self, resource: Resource, namespace: str, name: str, options: Object | None = None) -> Entry | Object:
        """DELETE with DeleteOptions. The object if it lives on, or was a pod or of devices, else a `Status`. Raises 404, 409."""
        entry = self.entry(resource, namespace, name)
        options = options or {}
        self._check_preconditions(resource, entry, options.get("preconditions") or {})
        metadata = entry.obj["metadata"]
        if resource.name == "pods":
            return self._delete_pod(resource, entry, options.get("gracePeriodSeconds"))
        if resource.name == "namespaces":
            return self._terminate(resource, entry)
        if metadata.get("finalizers"):
            if metadata.get("deletionTimestamp"):
                return entry
            return self._storage.put(resource, entry.key, self._marked(resource, entry.obj, 0))
        last = self._storage.remove(resource, entry.key, entry.obj | {"metadata": dict(metadata)})
        if resource.returns_deleted:
            return last
        group = {"group": resource.group} if resource.group else {}
        return success(details={"name": name, **group, "kind": resource.name, "uid": metadata["uid"]})

    def _check_preconditions(self, resource: Resource, entry: Entry, wanted: Object) -> None:
        for field, is_uid in (("uid", True), ("resourceVersion", False)):
            actual = entry.obj["metadata"][field]
            if wanted.get(field) and wanted[field] != actual:
                name = entry.obj["metadata"]["name"]
                raise delete_precondition(resource, name, uid=is_uid, wanted=wanted[field], actual=actual)

    def _delete_pod(self, resource: Resource, entry: Entry, asked_s: int | None) -> Entry:
        """A real server writes the deletion first and removes the pod with a second write."""
        grace = pods.grace_s(entry.obj, asked_s)
        metadata = entry.obj["metadata"]
        if metadata.get("deletionTimestamp") and grace == metadata.get("deletionGracePeriodSeconds"):
            return entry
        marked = self._storage.put(resource, entry.key, self._marked(resource, entry.obj, grace))
        if grace or metadata.get("finalizers") or marked.key not in self._storage.bucket(resource).entries:
            return marked
        last = marked.obj | {"metadata": dict(marked.obj["metadata"])}
        return self._storage.remove(resource, entry.key, last)

    def _marked(self, resource: Resource, obj: Object, grace: int) -> Object:
        metadata = obj["metadata"]
        if resource.has_generation and not metadata.get("deletionTimestamp"):
            metadata = metadata | {"generation": metadata.get("generation", 0) + 1}
        end = metadata.get("deletionTimestamp")
        if end:  # counted from the first deletion, but never moved into the past
            was = metadata.get("deletionGracePeriodSeconds", 0)
            moved = dt.datetime.strptime(end, _TIME).replace(tzinfo=dt.UTC) + dt.timedelta(seconds=grace - was)
            end = moved.strftime(_TIME)
            if moved.timestamp() < self._clock.wall():
                end, grace = self.now_text(), min(grace, 1)
        deletion = {"deletionTimestamp": end or self.now_text(grace), "deletionGracePeriodSeconds": grace}
        return obj | {"metadata": metadata | deletion}

    def _terminate(self, resource: Resource, entry: Entry) -> Entry:
        """A namespace waits for its controller, which this server does not have."""
        if entry.obj["metadata"].get("deletionTimestamp"):
            return entry
        metadata = entry.obj["metadata"] | {"deletionTimestamp": self.now_text()}
        return self._storage.put(
            resource, entry.key, entry.obj | {"metadata": metadata, "status": {"phase": "Terminating"}}
        )
