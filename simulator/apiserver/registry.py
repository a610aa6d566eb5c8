"""The verbs: what a write does to the stored objects, from admission to the deletion that a finalizer held up.

Plain function calls: a write is done when they return. HTTP (`server.py`) and in-process callers share them.
"""

from __future__ import annotations

import copy
import datetime as dt
import random
import uuid
from typing import Any, Final, Self

from scheduler.api.meta import NAME, NAME_RULE
from scheduler.core.clock import Clock
from scheduler.manifests.defaults import SYSTEM_PRIORITIES, with_pod_defaults
from simulator.apiserver import patches
from simulator.apiserver.kinds import opaque, pods, versions as faces, volumes
from simulator.apiserver.kinds.defaults import (
    BUDGET,
    Defaults,
    with_condition_times,
    with_selector_replaced,
)
from simulator.apiserver.kinds.devices import Devices
from simulator.apiserver.kinds.volumes import with_changes, with_transition_time
from simulator.apiserver.requests import Caller, with_owners
from simulator.apiserver.resources import DEVICES, ApiResource, Served
from simulator.apiserver.status import (
    IS_FIXED,
    MODIFIED,
    Refused,
    Unreadable,
    already_exists,
    bad_request,
    check,
    conflict,
    delete_precondition,
    forbidden,
    invalid,
    not_found,
    precondition_failed,
    refuse,
    success,
    version_required,
)
from simulator.apiserver.storage import Entry, Storage
from simulator.apiserver.validation import Problems, Table, gate, missing, must, name_of, not_allowed, optional, wrong

Object = dict[str, Any]

_SYSTEM: Final = ("name", "namespace", "creationTimestamp", "generation", "uid")
_DELETION: Final = ("deletionTimestamp", "deletionGracePeriodSeconds")
_BOOKS: Final = ("managedFields",)
_STATUS_KEEPS_METADATA: Final = frozenset(
    {"resourceclaims", "devicetaintrules", "namespaces", "volumeattachments", "schedulerprofiles", "whatifs"}
)
"""Kinds whose /status takes nothing of the metadata."""
_POD_FIXED: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_CHECKS_ONCE: Final = 37
"""From this minor version on each mistake in metadata is named once."""
_HIDES_UID: Final = 38
"""From this minor version on another uid is not shown."""
_NO_NEW_FINALIZERS: Final = "no new finalizers can be added if the object is being deleted"
_COUNTED_LATE: Final = frozenset({"csidrivers"})
"""Kinds that have a generation only once their spec has changed."""


def updated(resource: ApiResource, old: Object, new: Object, *, subresource: str) -> Object:
    """Return what is stored when `new` is sent over `old`; equal to `old` when nothing changes. Raises 422."""
    result = new | {"metadata": _metadata(resource, old, new, subresource=subresource)}
    if resource.has_status:
        kept = "spec" if subresource else "status"
        result.pop(kept, None)
        if kept in old:
            result[kept] = old[kept]
    if subresource and resource.name == "pods":
        result["status"] = _without_empty(result.get("status") or {})
        check(resource, result, _POD_STATUS, old)
    with_condition_times(resource, result)
    if resource.name == "poddisruptionbudgets":
        result["spec"] = result.get("spec") or {}
        check(resource, result, BUDGET)
    if not subresource:
        if resource.name == "pods" and isinstance(result.get("spec"), dict):
            result["spec"] = with_pod_defaults(result["spec"])
            refuse(resource, old["metadata"]["name"], _changed_pod(result["spec"], old["spec"]))
        result = with_changes(resource, old, result)
    if (resource.has_generation or resource.name in _COUNTED_LATE) and _spec(result) != _spec(old):
        result["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    ordered = {key: result[key] for key in old if key in result}
    return ordered | result


def is_finished(obj: Object) -> bool:
    """Return whether this update removes the object: terminating, grace period over, no finalizer left."""
    metadata = obj["metadata"]
    is_graceful = bool(metadata.get("deletionGracePeriodSeconds"))
    return bool(metadata.get("deletionTimestamp")) and not metadata.get("finalizers") and not is_graceful


def _spec(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in {"metadata", "status", "kind", "apiVersion"}}


def check_version(resource: ApiResource, old: Object, new: Object) -> None:
    """Raise 409 if the write was meant for another state of the object."""
    version = new["metadata"].get("resourceVersion")
    if version and version != old["metadata"]["resourceVersion"]:
        raise conflict(resource, old["metadata"]["name"], MODIFIED)


def check_metadata(resource: ApiResource, old: Object, new: Object, *, subresource: str, minor: int) -> None:
    """Raise 422 for another object's uid, and for new finalizers of an object that is being deleted."""
    before, after = old["metadata"], new["metadata"]
    found: Problems = []
    is_kept = subresource and resource.name in _STATUS_KEEPS_METADATA
    added = sorted(set(after.get("finalizers") or []) - set(before.get("finalizers") or []))
    if added and before.get("deletionTimestamp") and not is_kept:
        listed = ", ".join(f'"{finalizer}"' for finalizer in added)
        why = f"{_NO_NEW_FINALIZERS}, found new finalizers []string{{{listed}}}"
        found.append(not_allowed(why, at="metadata.finalizers"))
    if after.get("uid") and after["uid"] != before["uid"]:
        found.append(wrong(after["uid"] if minor < _HIDES_UID else None, IS_FIXED, at="metadata.uid"))
    is_checked_twice = (resource.name == "pods" or resource.group == DEVICES) and minor < _CHECKS_ONCE
    refuse(resource, before["name"], found * (2 if is_checked_twice else 1))


def _metadata(resource: ApiResource, old: Object, new: Object, *, subresource: str) -> Object:
    before, after = old["metadata"], new["metadata"]
    if subresource and resource.name in _STATUS_KEEPS_METADATA:
        # A real server forgets to keep the prefix of the name, which a status can therefore change and remove.
        prefix = after.get("generateName") if resource.name == "resourceclaims" else before.get("generateName")
        kept = {key: value for key, value in before.items() if key != "generateName"}
        return kept | ({"generateName": prefix} if prefix else {})
    fixed = (*_SYSTEM, *_DELETION, *_BOOKS, "resourceVersion")
    result = {key: before[key] for key in fixed if key in before}
    result |= {key: value for key, value in after.items() if key not in fixed and value not in ({}, [], None)}
    if subresource and resource.name == "pods":
        result.pop("ownerReferences", None)
        if "ownerReferences" in before:
            result["ownerReferences"] = before["ownerReferences"]
    return {key: result[key] for key in before if key in result} | result


def _without_empty(value: Any) -> Any:
    """Go leaves out empty strings, and lists and maps that became empty."""
    if isinstance(value, dict):
        return {key: _without_empty(item) for key, item in value.items() if item not in ("", [])}
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    return value


def _nomination(new: Any, old: Object) -> Problems:
    nominated = (new.get("status") or {}).get("nominatedNodeName", "")
    if not nominated or not old["spec"].get("nodeName") or nominated == old["status"].get("nominatedNodeName", ""):
        return []
    return [not_allowed("may not be set on pods that are already bound to a node", at="status.nominatedNodeName")]


_POD_STATUS: Final = Table(("", gate(_nomination), lambda new, old: pods.STATUS(new, old["spec"])))


def _changed_pod(new: Object, old: Object) -> Problems:
    gates = set(map(name_of, old.get("schedulingGates") or ()))
    found = [
        not_allowed(
            f"only deletion is allowed, but found new scheduling gate '{name}'",
            at=f"spec.schedulingGates[{at}].name",
        )
        for at, name in enumerate(map(name_of, new.get("schedulingGates") or ()))
        if name not in gates
    ]
    found += [each.below("spec") for each in pods.pod_spec(new)]
    tolerated = [_untimed(toleration) for toleration in new.get("tolerations") or []]
    kept = all(_untimed(toleration) in tolerated for toleration in old.get("tolerations") or [])
    if not kept or _frozen(old, gated=bool(gates)) != _frozen(new, gated=bool(gates)):
        found.append(not_allowed(_POD_FIXED, at="spec"))
    return found


def _untimed(toleration: Object) -> Object:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


_MUTABLE: Final = frozenset(
    {"schedulingGates", "tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds"}
)
_MUTABLE_WHILE_GATED: Final = _MUTABLE | {"nodeSelector", "affinity"}


def _frozen(spec: Object, *, gated: bool) -> Object:
    """Return the part of a pod's spec that may not change. What a gated pod may narrow is not checked for narrowing."""
    mutable = _MUTABLE_WHILE_GATED if gated else _MUTABLE
    rest = {key: value for key, value in spec.items() if key not in mutable and value not in (None, [], {})}
    for name in ("containers", "initContainers"):
        if name in rest:
            rest[name] = [{k: v for k, v in c.items() if k != "image"} for c in rest[name]]
    return rest


_NAMES: Final = Table(
    ("metadata.generateName", optional, must(lambda prefix: NAME.fullmatch(prefix.removesuffix("-")), NAME_RULE)),
    ("metadata.name", must(NAME.fullmatch, NAME_RULE)),
)
_ANY_NAME: Final = Table(
    ("metadata.name", must(lambda name: "/" not in name, "may not contain '/'")),
    ("metadata.name", must(lambda name: "%" not in name, "may not contain '%'")),
    ("metadata.name", must(".".__ne__, "may not be '.'")),
    ("metadata.name", must("..".__ne__, "may not be '..'")),
)
"""The rules for a part of a path. Validation has no rule for the names of budgets, so that they may have spaces."""
_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


_WITH_OWN_STATUS: Final = frozenset({"namespaces", "nodes"})
"""Kinds whose status is not written through /status when they are loaded."""


def _of_server(metadata: Object) -> Object:
    return {field: metadata[field] for field in ("uid", "creationTimestamp") if metadata.get(field)}


def _is_in_every_cluster(resource: ApiResource, key: str) -> bool:
    return resource.name == "namespaces" and key in _NAMESPACES


_NAMES_VERSIONS: Final = 38
"""From this minor version on a Binding is answered with the version of its pod, and a deletion with its own."""


class Registry:
    """Writes to one storage. Objects handed in are taken over; objects handed out must not be changed."""

    def __init__(self, storage: Storage, served: Served, clock: Clock, rng: random.Random) -> None:
        self._storage = storage
        self._served = served
        self._clock = clock
        self._random = rng
        self._started = self.now_text()
        self.caller = Caller()
        self._devices = Devices(storage, served)
        more = volumes.rules(storage, served) | self._devices.rules()
        self._defaults = Defaults(storage, served.named("priorityclasses"), more)
        for name in _NAMESPACES:
            self.create(served.named("namespaces"), "", {"metadata": {"name": name}})
        for name, value in SYSTEM_PRIORITIES.items():
            self.create(served.named("priorityclasses"), "", {"metadata": {"name": name}, "value": value})

    def by(self, caller: Caller) -> Self:
        other = copy.copy(self)
        other.caller = caller
        return other

    def now_text(self, later_s: float = 0) -> str:
        """Return the time as the API writes it."""
        moment = dt.datetime.fromtimestamp(self._clock.wall() + later_s, dt.UTC)
        return moment.strftime(_TIME)

    def entry(self, resource: ApiResource, namespace: str, name: str) -> Entry:
        """Raise 404 if the object does not exist."""
        entry = self._storage.bucket(resource).entries.get(resource.key(namespace, name))
        if entry is None:
            raise not_found(resource, name)
        return entry

    # -- create -------------------------------------------------------------------------------------------------------

    def create(self, resource: ApiResource, namespace: str, obj: Object, *, is_loaded: bool = False) -> Entry:
        """POST. Raises 400, 403, 404 (namespace), 409, 422. See `load` for `is_loaded`."""
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
        now = self._started if is_loaded else self.now_text()
        obj["metadata"] = self._new_metadata(metadata, now) | (_of_server(metadata) if is_loaded else {})
        self._defaults.apply(resource, obj, now)
        if is_loaded and metadata.get("generation"):
            obj["metadata"]["generation"] = metadata["generation"]
        taken = self._storage.bucket(resource).entries.get(key)
        if taken is not None and not (is_loaded and _is_in_every_cluster(resource, key)):
            is_going = bool(taken.obj["metadata"].get("deletionTimestamp"))
            raise already_exists(resource, metadata["name"], is_going=is_going)
        with_condition_times(resource, obj)
        with_owners(resource, None, obj, manager=self.caller.manager)
        return self._storage.put(resource, key, obj)

    def load(self, resource: ApiResource, namespace: str, obj: Object) -> Entry:
        """Create an object of another cluster with its uid, creation time, generation and status.

        Defaults are added as to a new object. An object without a time is as old as the server, and a namespace that
        every cluster has is replaced. Raises as `create`.
        """
        status = obj.get("status")
        entry = self.create(resource, namespace, obj, is_loaded=True)
        if not status or not resource.has_status or resource.name in _WITH_OWN_STATUS:
            return entry
        name = entry.obj["metadata"]["name"]
        if resource.name != "pods":
            return self.patch(resource, namespace, name, {"status": status}, strategic=True, subresource="status")
        # A bound pod may have a nomination, which no client can write any more.
        refuse(resource, name, pods.STATUS({"status": status}, entry.obj["spec"]))
        pod = entry.obj | {"metadata": dict(entry.obj["metadata"]), "status": entry.obj["status"] | status}
        with_condition_times(resource, pod)
        return self._storage.put(resource, entry.key, pod)

    def terminate(self, resource: ApiResource, namespace: str, name: str, deletion: Object) -> Entry:
        """Mark a loaded object as being deleted, with the fields of `deletion` in its metadata. Raises 404."""
        entry = self.entry(resource, namespace, name)
        obj = entry.obj | {"metadata": entry.obj["metadata"] | deletion}
        if resource.name == "namespaces":
            obj["status"] = {"phase": "Terminating"}
        return self._storage.put(resource, entry.key, obj)

    def _received(self, resource: ApiResource, obj: Object) -> Object:
        """Return the object in its stored form; it may leave out kind and apiVersion."""
        kind = obj.get("kind") or resource.kind
        if kind != resource.kind:
            version = obj.get("apiVersion") or resource.group_version
            raise bad_request(f'{kind} in version "{version}" cannot be handled as a {resource.kind}')
        if not isinstance(obj.get("metadata"), dict):
            obj = obj | {"metadata": {}}
        obj = faces.stored(resource, obj)
        stored = self._served.named(resource.stored_as)
        rest = {key: value for key, value in obj.items() if key not in {"kind", "apiVersion"}}
        return {"kind": stored.kind, "apiVersion": stored.group_version, **rest}

    def _check_namespace(self, resource: ApiResource, namespace: str, name: str) -> None:
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

    def _name(self, resource: ApiResource, metadata: Object) -> None:
        prefix = metadata.get("generateName")
        if not metadata.get("name"):
            if not prefix:
                raise invalid(resource, "", missing("name or generateName is required", at="metadata.name"))
            metadata["name"] = prefix + "".join(self._random.choices(_SUFFIX_LETTERS, k=5))
        check(resource, {"metadata": metadata}, _ANY_NAME if resource.name == "poddisruptionbudgets" else _NAMES)

    def _new_metadata(self, given: Object, now: str) -> Object:
        kept = ("name", "generateName", "namespace")
        system = {"uid": str(uuid.UUID(int=self._random.getrandbits(128), version=4)), "resourceVersion": ""}
        dropped = {*kept, "uid", "generation", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"}
        rest = {key: value for key, value in given.items() if key not in dropped and value not in ({}, [], None)}
        names = {key: given[key] for key in kept if given.get(key)}
        return names | system | rest | {"creationTimestamp": now}

    # -- update -------------------------------------------------------------------------------------------------------

    def replace(
        self, resource: ApiResource, namespace: str, name: str, obj: Object, *, subresource: str = ""
    ) -> tuple[Entry, bool]:
        """Carry out a PUT. The flag is True if it created the object. Raises 400, 404, 409, 422."""
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
        resource: ApiResource,
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
            shown, patch = opaque.before_patch(shown, patch, is_strategic=strategic, minor=self._served.minor)
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

    def bind(self, resource: ApiResource, namespace: str, name: str, binding: Object) -> Object:
        """POST pods/<name>/binding. Raises 400, 404, 409 and, as a real server does, 500."""
        minor = self._served.minor
        pods.check_binding(name, binding, minor)
        entry = self.entry(resource, namespace, name)
        nodes = self._storage.bucket(self._served.named("nodes")).entries
        node = nodes.get(binding["target"]["name"])
        place = node.obj if node is not None else None
        pod = pods.bound(resource, entry.obj, binding, node=place, now=self.now_text(), minor=minor)
        pod["metadata"] = dict(pod["metadata"])
        stored = self._storage.put(resource, entry.key, pod)
        answer = success(201)
        if minor >= _NAMES_VERSIONS:
            answer["metadata"] = {"resourceVersion": stored.obj["metadata"]["resourceVersion"]}
        return answer

    def _store(self, resource: ApiResource, entry: Entry, new: Object, subresource: str) -> Entry:
        check_version(resource, entry.obj, new)
        check_metadata(resource, entry.obj, new, subresource=subresource, minor=self._served.minor)
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
            gone = self._storage.remove(resource, entry.key, last)
            return gone if self._served.minor >= _NAMES_VERSIONS else Entry(entry.key, result, entry.rv)
        return self._storage.put(resource, entry.key, result)

    # -- delete -------------------------------------------------------------------------------------------------------

    def delete(self, resource: ApiResource, namespace: str, name: str, options: Object | None = None) -> Entry | Object:
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
        answer = success(details={"name": name, **group, "kind": resource.name, "uid": metadata["uid"]})
        if self._served.minor >= _NAMES_VERSIONS:
            answer["metadata"] = {"resourceVersion": last.obj["metadata"]["resourceVersion"]}
        return answer

    def _check_preconditions(self, resource: ApiResource, entry: Entry, wanted: Object) -> None:
        for field, is_uid in (("uid", True), ("resourceVersion", False)):
            actual = entry.obj["metadata"][field]
            if wanted.get(field) and wanted[field] != actual:
                name = entry.obj["metadata"]["name"]
                raise delete_precondition(resource, name, uid=is_uid, wanted=wanted[field], actual=actual)

    def _delete_pod(self, resource: ApiResource, entry: Entry, asked_s: int | None) -> Entry:
        """Write the deletion first and remove the pod with a second write, as a real server."""
        grace = pods.grace_s(entry.obj, asked_s)
        metadata = entry.obj["metadata"]
        if metadata.get("deletionTimestamp") and grace == metadata.get("deletionGracePeriodSeconds"):
            return entry
        marked = self._storage.put(resource, entry.key, self._marked(resource, entry.obj, grace))
        if grace or metadata.get("finalizers") or marked.key not in self._storage.bucket(resource).entries:
            return marked
        last = marked.obj | {"metadata": dict(marked.obj["metadata"])}
        return self._storage.remove(resource, entry.key, last)

    def _marked(self, resource: ApiResource, obj: Object, grace: int) -> Object:
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

    def _terminate(self, resource: ApiResource, entry: Entry) -> Entry:
        """Keep a terminating namespace, because this server has no namespace controller."""
        if entry.obj["metadata"].get("deletionTimestamp"):
            return entry
        metadata = entry.obj["metadata"] | {"deletionTimestamp": self.now_text()}
        return self._storage.put(
            resource, entry.key, entry.obj | {"metadata": metadata, "status": {"phase": "Terminating"}}
        )
