"""Decode bytes to frozen objects, one object at a time.

Bytes → frozen objects, one object at a time.

A broken object becomes a `Broken` that names the object and the field; it never stops the others (ADR 0005).
A bound pod is read as far as possible (`partlyread`).
Null where Go would write an empty list or map is accepted: `"taints": null` means none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from scheduler.api.core_v1 import Pod, share
from scheduler.api.meta import Frozen, Metadata
from scheduler.api.partly_read import as_raw, partly_read, with_raw_parameters, within_limits
from scheduler.api.quantity import Quantity, parse
from scheduler.api.resource_v1 import AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult
from scheduler.core import api_json as apijson
from scheduler.core.errors import shortened

T = TypeVar("T")


class Broken(Frozen, frozen=True):
    """An object of a watched kind that could not be read. Stands where the object would stand.

    `node_name` is where a pod is bound of which not even the name, uid and node can be read as texts: it is not counted.
    """

    kind: str
    metadata: Metadata
    why: str
    node_name: str = ""
    scheduler_name: str = ""
    allocation: AllocationResult | None = None
    """The devices that a claim could be seen to have; without results if it is allocated no more, None if that cannot be told."""

    def __post_init__(self) -> None:
        """The text may quote the object, which may be large."""
        msgspec.structs.force_setattr(self, "why", shortened(self.why))

    @property
    def key(self) -> str:
        """As the object's own key."""
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


class _Identity(Frozen, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Named(Frozen, frozen=True):
    metadata: _Identity = _Identity()


def _hook(wanted: type, raw: Any) -> Any:
    if wanted is Quantity:
        return parse(raw)
    raise TypeError(f"cannot decode {wanted!r}")


_SHARE: Final[Mapping[type, Callable[[Any], None]]] = {Pod: share}
_PARTLY: Final[Mapping[type, Callable[[Any, Callable[[type, Any], Any]], Any]]] = {Pod: partly_read}
_WITHIN_LIMITS: Final[Mapping[type, Callable[[Any], Any]]] = {Pod: within_limits}
_LARGE_BYTES: Final = 20_000
"""No smaller object is beyond a limit that concerns several fields together."""
_STRIPPED_BYTES_MAX: Final = 256_000
"""In a larger object a null where none may be counts as unreadable, for to look for nulls costs more than to decode."""
_READ_LEVELS: Final = 200
_LONGEST_WHY: Final = 1_000


class Older(NamedTuple):
    """How an API version has a kind that is read into another form.

    `current` brings it there, or returns a `Broken` for what the newest form cannot express.
    """

    typ: type[Any]
    current: Callable[[Any], Any]


_AS_IT_IS: Final[Mapping[str, Older]] = {}


class ObjectDecoder(Generic[T]):
    """Decodes one kind. `decode` costs some 10–15 µs for a pod of 5 KB. `older` is by API version."""

    def __init__(self, kind: str, typ: type[T], older: Mapping[str, Older] = _AS_IT_IS) -> None:
        self.kind = kind
        self._decoder = msgspec.json.Decoder(typ, dec_hook=_hook)
        self._lenient = msgspec.json.Decoder()
        self._outline = msgspec.json.Decoder(_Outline)
        self._rest = msgspec.json.Decoder(_Rest)
        self._named_only = msgspec.json.Decoder(_Named)
        self._typ = typ
        self._share = _SHARE.get(typ)
        self._partly = _PARTLY.get(typ)
        self._within_limits = _WITHIN_LIMITS.get(typ)
        self._older = {version: (ObjectDecoder(kind, form.typ), form.current) for version, form in older.items()}

    def decode(self, raw: bytes | msgspec.Raw, version: str = "") -> T | Broken:
        """The object, or a `Broken` naming it and the field (`$.spec.containers[0].resources.requests[...]`).

        `version` is the API version that it was read in; "" for the newest.
        """
        try:
            return self._decode(raw, version)
        except Exception as error:  # noqa: BLE001 (whatever one object does to the decoder, it costs only that object)
            return self.outline(raw, repr(error))

    def _decode(self, raw: bytes | msgspec.Raw, version: str) -> T | Broken:
        if version in self._older:
            decoder, current = self._older[version]
            read = decoder.decode(raw)
            converted: T | Broken = read if isinstance(read, Broken) else current(read)
            return converted
        try:
            obj: T | Broken = apijson.decode(self._decoder, raw)
        except (msgspec.DecodeError, ValueError) as first:
            obj = self._without_nulls(raw, first)
        if isinstance(obj, Broken):
            return obj
        if self._within_limits is not None and len(raw) > _LARGE_BYTES:
            try:
                obj = self._within_limits(obj)
            except ValueError as error:
                return self.outline(raw, str(error))
        if self._share is not None:
            self._share(obj)
        return obj

    def _without_nulls(self, raw: bytes | msgspec.Raw, first: Exception) -> T | Broken:
        try:
            plain = self._plain(raw)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return self.outline(raw, str(first))
        try:
            return msgspec.convert(plain, self._typ, dec_hook=_hook)
        except (msgspec.DecodeError, ValueError, RecursionError):
            partly = self._partly(plain, _hook) if self._partly is not None else None
            return self.outline(raw, str(first)) if partly is None else partly

    def _plain(self, raw: bytes | msgspec.Raw) -> Any:
        """Nothing that is read lies as deep as Python's own recursion goes; what is skipped may."""
        try:
            plain = with_raw_parameters(apijson.decode(self._lenient, raw), raw)
            return plain if len(raw) > _STRIPPED_BYTES_MAX else _strip_nulls(plain)
        except RecursionError:
            plain = self._lenient.decode(apijson.cut_below(bytes(raw), _READ_LEVELS))
            return _strip_nulls(with_raw_parameters(plain, raw))

    def outline(self, raw: bytes | msgspec.Raw, why: str) -> Broken:
        """What can still be told of an unreadable object: its name, uid and node where they are readable."""
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
        bare = rest.metadata or _Bare()
        spec = rest.spec if isinstance(rest.spec, dict) else {}
        return Broken(
            kind=self.kind,
            metadata=Metadata(
                name=_text(bare.name),
                namespace=_text(bare.namespace),
                uid=_text(bare.uid),
                resource_version=_text(bare.resource_version),
            ),
            why=why,
            node_name=_text(spec.get("nodeName")),
            scheduler_name=_text(spec.get("schedulerName")),
            allocation=self._allocation(raw),
        )

    def _named(self, raw: bytes | msgspec.Raw, why: str) -> Broken:
        """Only the identity, and that only as texts."""
        try:
            metadata = apijson.decode(self._named_only, raw).metadata
        except (msgspec.DecodeError, ValueError):
            metadata = _Identity()
        return Broken(kind=self.kind, metadata=Metadata(**msgspec.structs.asdict(metadata)), why=why)

    def _allocation(self, raw: bytes | msgspec.Raw) -> AllocationResult | None:
        """All versions of the API have it in the same place."""
        if self.kind != "ResourceClaim":
            return None
        try:
            found: Any = apijson.decode(self._lenient, raw)
        except (msgspec.DecodeError, ValueError):  # a number that no float can hold, in what is skipped otherwise
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
    """Of one that cannot be read the whole device: how much of it is in use is not known."""
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
    """Change `value`, which nobody else has: no member of an object is null any more."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            for name in [name for name, member in each.items() if member is None]:
                del each[name]
            left += [member for member in each.values() if type(member) in _CONTAINERS]
        elif isinstance(each, list):
            left += [member for member in each if type(member) in _CONTAINERS]
    return value


_CONTAINERS: Final = frozenset((dict, list))


def from_manifest(typ: type[T], manifest: Any) -> T:
    """A plain dict → frozen object; raises msgspec.ValidationError naming the field. For builders and tests."""
    try:
        return msgspec.convert(as_raw(manifest), typ, dec_hook=_hook)
    except (msgspec.ValidationError, ValueError):
        return msgspec.convert(_strip_nulls(as_raw(deepcopy(manifest))), typ, dec_hook=_hook)


@dataclass(frozen=True, slots=True)
class Delta(Generic[T]):
    """One change of one object: `old is None` added, `new is None` deleted, both: updated.

    An unreadable object appears as `Broken` in its place. A name that comes back with another uid arrives as
    a deletion followed by an addition.
    """

    old: T | Broken | None
    new: T | Broken | None
