"""Decode bytes to frozen objects, one object at a time.

A broken object becomes a `Broken` that names the object and the field; it never affects other objects (ADR 0005). A
bound pod uses its node in any case, and any tenant can bind a pod, so all readable fields of such a pod are read.
Parameters of drivers are kept as their original bytes.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator, Sized
from copy import deepcopy
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from msgspec.structs import FieldInfo

from scheduler.api.core_v1 import (
    Affinity,
    Container,
    ContainerStatus,
    NodeAffinity,
    Pod,
    PodAffinity,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    share,
)
from scheduler.api.meta import Frozen, Identity, Metadata, PodMetadata
from scheduler.api.quantity import UNREADABLE, Quantity, parse
from scheduler.api.resource_v1 import AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult
from scheduler.api.storage_v1 import claim_uses
from scheduler.core import api_json as apijson
from scheduler.core.errors import shortened

Hook = Callable[[type, Any], Any]

HIGHEST_PRIORITY: Final = 2**31 - 1
_LEFT_OUT: Final = object()
_READ_BY_FIELD: Final = frozenset(
    (
        Metadata,
        PodSpec,
        PodStatus,
        Affinity,
        NodeAffinity,
        PodAffinity,
        Container,
        ResourceRequirements,
        ContainerStatus,
    )
)
"""Fields of other structs are never ignored: half a selector or term selects more than the whole one."""
_MOST_PARTS: Final = 1_000
"""Longer lists and maps are ignored completely, so that one object cannot block the event loop."""
_MOST_REQUESTS: Final = 2_000
"""Resource requests of a pod, all containers together."""
_MOST_TERMS: Final = 64
"""Pod (anti-)affinity terms and spread constraints of a pod: each may be compared with the labels of every pod."""
_MOST_NAMESPACES: Final = 10_000
"""Namespaces of all these terms: each takes ten times its stored bytes."""
_MOST_CLAIMS: Final = 128
"""Claims for devices of a pending pod: the first step of a search handles all of them at once."""
_MOST_VOLUMES: Final = 1_000
"""Volumes of a pending pod, of any kind."""
_MOST_CLAIM_VOLUMES: Final = 256
"""Volumes of a pending pod that use a claim. No cloud attaches as many disks to one node; 128 is a usual maximum."""
_MOST_TOLERATIONS: Final = 1_000
"""Tolerations of a pending pod: 20,000 take 0.6 s."""
_NATIVE: Final = frozenset(("cpu", "memory", "ephemeral-storage"))
_MOST_NAMED: Final = 10
_LONGEST_WHY_OF_FIELD: Final = 200


class PartlyReadPod(Pod, frozen=True):
    """A bound pod without the fields named in `unread`, each with the reason."""

    unread: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """Return the ignored fields with their reasons, in at most about 2000 characters."""
        named = "; ".join(self.unread[:_MOST_NAMED])
        more = len(self.unread) - _MOST_NAMED
        return f"{named}; and {more} more" if more > 0 else named


def partly_read(raw: Any, hook: Hook) -> PartlyReadPod | None:
    """Return the readable part of the decoded pod `raw`; None if it is not bound or has no identity."""
    if not isinstance(raw, dict):
        return None
    metadata, spec = raw.get("metadata"), raw.get("spec")
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        return None
    if not all(
        isinstance(name, str) and name for name in (metadata.get("name"), metadata.get("uid"), spec.get("nodeName"))
    ):
        return None
    reader = _Reader(hook)
    read = {name: reader.struct(raw.get(name) or {}, typ, f"$.{name}") for name, typ in _PARTS.items()}
    read["spec"] = msgspec.structs.replace(read["spec"], priority=HIGHEST_PRIORITY)
    return PartlyReadPod(**read, unread=tuple(reader.unread))


def within_limits(pod: Pod, size_bytes: int) -> Pod:
    """Return the pod. A bound one loses what exceeds a limit over several fields, and is a PartlyReadPod then.

    With more than 2,000 requests and limits of resources it keeps those of `_NATIVE`. With more than 64 terms and
    spread constraints it keeps none of them. Raises ValueError for a pending pod. `size_bytes` is that of its JSON; the
    requests of small pods are not counted. A bound pod keeps all volumes, claims for devices and tolerations.
    """
    if not pod.spec.node_name:
        _check_length("spec.resourceClaims", pod.spec.resource_claims, _MOST_CLAIMS)
        _check_length("spec.tolerations", pod.spec.tolerations, _MOST_TOLERATIONS)
        _check_length("metadata.labels", pod.metadata.labels, _MOST_PARTS, "object")
        _check_length("spec.volumes", pod.spec.volumes, _MOST_VOLUMES)
        if len(pod.spec.volumes) > _MOST_CLAIM_VOLUMES and len(claim_uses(pod)) > _MOST_CLAIM_VOLUMES:
            raise ValueError(f"Expected at most {_MOST_CLAIM_VOLUMES} volumes with a claim in `$.spec.volumes`")
    return _with_few_terms(_with_few_requests(pod) if size_bytes > _LARGE_BYTES else pod)


def _check_length(field: str, items: Sized, most: int, kind: str = "array") -> None:
    if len(items) > most:
        raise ValueError(f"Expected `{kind}` of length <= {most} - at `$.{field}`")


def _with_few_terms(pod: Pod) -> Pod:
    spec, affinity = pod.spec, pod.spec.affinity
    if affinity is None and not spec.topology_spread_constraints:
        return pod
    sides = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ()
    terms = [
        term
        for side in sides
        if side is not None
        for term in (*side.required, *(each.pod_affinity_term for each in side.preferred))
    ]
    if len(terms) + len(spec.topology_spread_constraints) > _MOST_TERMS:
        why = f"Expected at most {_MOST_TERMS} terms of pod affinity and spread constraints in `$.spec`"
    elif sum(len(term.namespaces) for term in terms) > _MOST_NAMESPACES:
        why = f"Expected at most {_MOST_NAMESPACES} namespaces of pod affinity terms in `$.spec.affinity`"
    else:
        return pod
    if not spec.node_name:
        raise ValueError(why)
    if affinity is not None:
        affinity = msgspec.structs.replace(affinity, pod_affinity=None, pod_anti_affinity=None)
    spec = msgspec.structs.replace(spec, affinity=affinity, topology_spread_constraints=(), priority=HIGHEST_PRIORITY)
    return _partly(pod, why, spec=spec)


def _with_few_requests(pod: Pod) -> Pod:
    spec, status = pod.spec, pod.status
    statuses = (*status.container_statuses, *status.init_container_statuses)
    parts = [each.resources for each in (*spec.containers, *spec.init_containers)]
    parts += [each.resources for each in statuses if each.resources is not None]
    maps = [each.allocated_resources or {} for each in statuses]
    maps += [amounts for each in (*parts, spec.resources) for amounts in (each.requests, each.limits)]
    if sum(map(len, maps)) + len(spec.overhead) <= _MOST_REQUESTS:
        return pod
    why = f"Expected at most {_MOST_REQUESTS} requests of resources in `$.spec`"
    if not spec.node_name:
        raise ValueError(why)
    kept = msgspec.structs.replace(
        spec,
        containers=tuple(map(_with_native, spec.containers)),
        init_containers=tuple(map(_with_native, spec.init_containers)),
        resources=_native(spec.resources),
        overhead=_native(ResourceRequirements(spec.overhead)).requests,
        priority=HIGHEST_PRIORITY,
    )
    status = msgspec.structs.replace(status, container_statuses=(), init_container_statuses=())
    return _partly(pod, why, spec=kept, status=status)


def _partly(pod: Pod, why: str, *, spec: PodSpec, status: PodStatus | None = None) -> PartlyReadPod:
    unread = (*pod.unread, why) if isinstance(pod, PartlyReadPod) else (why,)
    return PartlyReadPod(pod.metadata, spec, pod.status if status is None else status, unread=unread)


def _with_native(container: Container) -> Container:
    return msgspec.structs.replace(container, resources=_native(container.resources))


def _native(resources: ResourceRequirements) -> ResourceRequirements:
    requests, limits = (
        {n: q for n, q in each.items() if n in _NATIVE} for each in (resources.requests, resources.limits)
    )
    return ResourceRequirements(requests, limits)


_PARTS: Final[dict[str, Any]] = {"metadata": PodMetadata, "spec": PodSpec, "status": PodStatus}


class _Reader:
    """Read values leniently. `read` returns `_LEFT_OUT` for an unreadable value."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self.unread: list[str] = []

    def struct(self, raw: Any, wanted: Any, path: str) -> Any:
        """Return the struct with its readable fields."""
        if not isinstance(raw, dict):
            self._leave_out(path, "Expected `object`")
            return wanted()
        read = {}
        for field in _fields(wanted):
            if raw.get(field.encode_name) is not None:
                value = self.read(raw[field.encode_name], field.type, f"{path}.{field.encode_name}")
                if value is not _LEFT_OUT:
                    read[field.name] = value
        return wanted(**read)

    def read(self, raw: Any, wanted: Any, path: str) -> Any:
        """Return the value, or its readable parts."""
        try:
            return msgspec.convert(raw, wanted, dec_hook=self._hook)
        except (ValueError, RecursionError) as error:
            why = str(error)
        kind = _without_none(wanted)
        if kind is Quantity:
            self._leave_out(path, why)
            return UNREADABLE
        if kind in _READ_BY_FIELD and isinstance(raw, dict):
            return self.struct(raw, kind, path)
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is tuple and isinstance(raw, list) and len(raw) <= _MOST_PARTS:
            return tuple(self._each(((each, f"{path}[{at}]") for at, each in enumerate(raw)), arguments[0]))
        if origin is dict and isinstance(raw, dict) and len(raw) <= _MOST_PARTS:
            found = {key: self.read(each, arguments[1], f"{path}[{key}]") for key, each in raw.items()}
            return {key: each for key, each in found.items() if each is not _LEFT_OUT}
        self._leave_out(path, why)
        return _LEFT_OUT

    def _each(self, parts: Iterator[tuple[Any, str]], wanted: Any) -> Iterator[Any]:
        for raw, path in parts:
            value = self.read(raw, wanted, path)
            if value is not _LEFT_OUT:
                yield value

    def _leave_out(self, path: str, why: str) -> None:
        self.unread.append(f"{why[:_LONGEST_WHY_OF_FIELD]} in `{path[:_LONGEST_WHY_OF_FIELD]}`")


@lru_cache(maxsize=1024)
def _fields(struct: Any) -> tuple[FieldInfo, ...]:
    return msgspec.structs.fields(struct)


def _without_none(wanted: Any) -> Any:
    if typing.get_origin(wanted) in (types.UnionType, typing.Union):
        named = [each for each in typing.get_args(wanted) if each is not types.NoneType]
        return named[0] if len(named) == 1 else wanted
    return wanted


_CONFIGS: Final = (("spec", "config"), ("spec", "devices", "config"), ("status", "allocation", "devices", "config"))
"""Paths of `opaque` configurations in a device class or a claim."""


class _Opaque(Frozen, frozen=True):
    parameters: msgspec.Raw = msgspec.Raw(b"null")


class _Config(Frozen, frozen=True):
    opaque: _Opaque | None = None


_raw_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_configs: Final = msgspec.json.Decoder(tuple[_Config | None, ...])


def with_raw_parameters(plain: Any, raw: bytes | msgspec.Raw) -> Any:
    """Replace the parameters in `plain`, which was decoded from `raw`, by their bytes in `raw`. Return `plain`."""
    for path in _CONFIGS:
        opaque = list(_opaque(plain, path))
        if not opaque:
            continue
        try:
            found = apijson.decode(_configs, _at(raw, path))
        except (KeyError, msgspec.DecodeError, ValueError):
            continue
        for at, config in opaque:
            entry = found[at]
            if entry is not None and entry.opaque is not None:
                config["parameters"] = entry.opaque.parameters
    return plain


def as_raw(manifest: Any) -> Any:
    """Return a copy of `manifest` with encoded parameters."""
    for path in _CONFIGS:
        if any(not isinstance(config["parameters"], msgspec.Raw) for _, config in _opaque(manifest, path)):
            manifest = _replaced(manifest, path)
    return manifest


def _opaque(plain: Any, path: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each `opaque` with parameters, and its index."""
    for step in path:
        plain = plain.get(step) if isinstance(plain, dict) else None
    for at, config in enumerate(plain if isinstance(plain, (list, tuple)) else ()):
        opaque = config.get("opaque") if isinstance(config, dict) else None
        if isinstance(opaque, dict) and opaque.get("parameters") is not None:
            yield at, opaque


def _at(raw: bytes | msgspec.Raw, path: tuple[str, ...]) -> bytes | msgspec.Raw:
    for step in path:
        raw = apijson.decode(_raw_fields, raw)[step]
    return raw


def _replaced(manifest: Any, path: tuple[str, ...]) -> Any:
    if path:
        return {**manifest, path[0]: _replaced(manifest[path[0]], path[1:])}
    configs = list(manifest)
    for at, opaque in _opaque(manifest, ()):
        if not isinstance(opaque["parameters"], msgspec.Raw):
            encoded = opaque | {"parameters": msgspec.Raw(msgspec.json.encode(opaque["parameters"]))}
            configs[at] = configs[at] | {"opaque": encoded}
    return configs


T = TypeVar("T")


class Broken(Frozen, frozen=True):
    """An object of a watched kind that cannot be read, in its place.

    `node_name` is the node of a bound pod whose name, uid and node are not even texts; it is not counted.
    """

    kind: str
    metadata: Metadata
    why: str
    node_name: str = ""
    scheduler_name: str = ""
    allocation: AllocationResult | None = None
    """The devices that a claim still shows: without results if it is not allocated, None if unknown."""

    def __post_init__(self) -> None:
        """Shorten the text, which may quote a large object."""
        msgspec.structs.force_setattr(self, "why", shortened(self.why))

    @property
    def key(self) -> str:
        return self.metadata.key


class _Where(Frozen, frozen=True):
    node_name: Any = ""
    scheduler_name: Any = ""


class _Outline(Frozen, frozen=True):
    metadata: Metadata = Metadata()
    spec: _Where | None = None


class _Bare(Frozen, frozen=True):
    name: Any = ""
    namespace: Any = ""
    uid: Any = ""
    resource_version: Any = ""


class _Rest(Frozen, frozen=True):
    metadata: _Bare | None = None
    spec: Any = None


class _Named(Frozen, frozen=True):
    metadata: Identity = Identity()


def _hook(wanted: type, raw: Any) -> Any:
    if wanted is Quantity:
        return parse(raw)
    raise TypeError(f"cannot decode {wanted!r}")


_LARGE_BYTES: Final = 20_000
"""Smaller pods cannot have too many requests of resources."""
_STRIPPED_BYTES_MAX: Final = 256_000
"""In larger objects a null in a wrong place makes the object unreadable, because a search for nulls costs more than
decoding.
"""
_SHARED_BYTES_MAX: Final = 100_000
"""Parts of larger pods are not shared: a shared part stays in memory when its pods are gone."""
_READ_LEVELS: Final = 200
_LONGEST_WHY: Final = 1_000


class ObjectDecoder(Generic[T]):
    """Decode one kind. `decode` costs about 10–15 µs for a pod of 5 KB."""

    def __init__(self, kind: str, typ: type[T]) -> None:
        self.kind = kind
        self._decoder = msgspec.json.Decoder(typ, dec_hook=_hook)
        self._lenient = msgspec.json.Decoder()
        self._outline = msgspec.json.Decoder(_Outline)
        self._rest = msgspec.json.Decoder(_Rest)
        self._named_only = msgspec.json.Decoder(_Named)
        self._typ = typ
        self._is_pod = typ is Pod

    def decode(self, raw: bytes | msgspec.Raw) -> T | Broken:
        """Return the object, or a `Broken` with its name and the field.

        The field is a path: `$.spec.containers[0].resources.requests[...]`.
        """
        try:
            return self._decode(raw)
        except Exception as error:  # noqa: BLE001 (whatever one object does to the decoder, it costs only that object)
            return self.outline(raw, repr(error))

    def _decode(self, raw: bytes | msgspec.Raw) -> T | Broken:
        try:
            obj: Any = apijson.decode(self._decoder, raw)
        except (msgspec.DecodeError, ValueError) as first:
            obj = self._without_nulls(raw, first)
        if self._is_pod and not isinstance(obj, Broken):
            try:
                obj = within_limits(obj, len(raw))
            except ValueError as error:
                return self.outline(raw, str(error))
            if len(raw) <= _SHARED_BYTES_MAX:
                share(obj)
        return cast("T | Broken", obj)

    def _without_nulls(self, raw: bytes | msgspec.Raw, first: Exception) -> Any:
        try:
            plain = self._plain(raw)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return self.outline(raw, str(first))
        try:
            return msgspec.convert(plain, self._typ, dec_hook=_hook)
        except (msgspec.DecodeError, ValueError, RecursionError):
            partly = partly_read(plain, _hook) if self._is_pod else None
            return self.outline(raw, str(first)) if partly is None else partly

    def _plain(self, raw: bytes | msgspec.Raw) -> Any:
        """Decode to plain values.

        Deep nesting occurs only in fields that are skipped; it may exceed Python's recursion limit.
        """
        try:
            plain = with_raw_parameters(apijson.decode(self._lenient, raw), raw)
            return plain if len(raw) > _STRIPPED_BYTES_MAX else _strip_nulls(plain)
        except RecursionError:
            plain = self._lenient.decode(apijson.cut_below(bytes(raw), _READ_LEVELS))
            return _strip_nulls(with_raw_parameters(plain, raw))

    def outline(self, raw: bytes | msgspec.Raw, why: str) -> Broken:
        """Return the readable identity of an unreadable object: name, uid and node."""
        why = why[:_LONGEST_WHY]
        try:
            seen = apijson.decode(self._outline, raw)
            where = seen.spec or _Where()
            return Broken(
                kind=self.kind,
                metadata=seen.metadata,
                why=why,
                node_name=_text(where.node_name),
                scheduler_name=_text(where.scheduler_name),
                allocation=self._allocation(raw),
            )
        except (msgspec.DecodeError, ValueError):
            return self._barely(raw, why)

    def _barely(self, raw: bytes | msgspec.Raw, why: str) -> Broken:
        try:
            rest = apijson.decode(self._rest, raw)
        except (msgspec.DecodeError, ValueError):
            return self._named(raw, why)
        spec = rest.spec if isinstance(rest.spec, dict) else {}
        bare = msgspec.structs.asdict(rest.metadata or _Bare())
        identity: dict[str, Any] = {field: _text(value) for field, value in bare.items()}
        return Broken(
            kind=self.kind,
            metadata=Metadata(**identity),
            why=why,
            node_name=_text(spec.get("nodeName")),
            scheduler_name=_text(spec.get("schedulerName")),
            allocation=self._allocation(raw),
        )

    def _named(self, raw: bytes | msgspec.Raw, why: str) -> Broken:
        """Return only the identity, as texts."""
        try:
            metadata = apijson.decode(self._named_only, raw).metadata
        except (msgspec.DecodeError, ValueError):
            metadata = Identity()
        return Broken(kind=self.kind, metadata=Metadata(**msgspec.structs.asdict(metadata)), why=why)

    def _allocation(self, raw: bytes | msgspec.Raw) -> AllocationResult | None:
        """Return the allocation, which has the same place in all versions of the API."""
        if self.kind != "ResourceClaim":
            return None
        try:
            found: Any = apijson.decode(self._lenient, raw)
        except (msgspec.DecodeError, ValueError):  # a number beyond floats, in a part that is otherwise skipped
            return None
        status = found.get("status")
        if status is None or (isinstance(status, dict) and status.get("allocation") is None):
            return AllocationResult()
        for step in ("status", "allocation", "devices", "results"):
            found = found.get(step) if isinstance(found, dict) else None
        devices = [_device(each) for each in found if isinstance(each, dict)] if isinstance(found, list) else []
        kept = tuple(device for device in devices if device is not None)
        return AllocationResult(DeviceAllocationResult(kept)) if kept else None


def _device(result: dict[str, Any]) -> DeviceRequestAllocationResult | None:
    """Return the device; if the share is unreadable, the whole device counts as used."""
    try:
        return msgspec.convert(_strip_nulls(result), DeviceRequestAllocationResult, dec_hook=_hook)
    except (msgspec.ValidationError, ValueError):
        driver, pool, device = (_text(result.get(name)) for name in ("driver", "pool", "device"))
        if not (driver and pool and device):
            return None
        is_admin = result.get("adminAccess") is True
        return DeviceRequestAllocationResult(driver=driver, pool=pool, device=device, admin_access=is_admin)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _strip_nulls(value: Any) -> Any:
    """Remove null members from `value` in place. The caller must own it."""
    containers = [value]
    while containers:
        each = containers.pop()
        if isinstance(each, dict):
            for name in [name for name, member in each.items() if member is None]:
                del each[name]
            containers += [member for member in each.values() if type(member) in _CONTAINERS]
        elif isinstance(each, list):
            containers += [member for member in each if type(member) in _CONTAINERS]
    return value


_CONTAINERS: Final = frozenset((dict, list))


def from_manifest(typ: type[T], manifest: Any) -> T:
    """Convert a plain dict to a frozen object.

    Raises msgspec.ValidationError with the field. For builders and tests.
    """
    try:
        return msgspec.convert(as_raw(manifest), typ, dec_hook=_hook)
    except (msgspec.ValidationError, ValueError):
        return msgspec.convert(_strip_nulls(as_raw(deepcopy(manifest))), typ, dec_hook=_hook)


class Delta(msgspec.Struct, Generic[T], frozen=True):
    """One change of one object: added if `old` is None, deleted if `new` is None, otherwise updated.

    An unreadable object appears as `Broken`. A name that returns with another uid arrives as a deletion and an
    addition.
    """

    old: T | Broken | None
    new: T | Broken | None
