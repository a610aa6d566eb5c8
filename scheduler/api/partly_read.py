"""Read what can be read of a bound pod, and keep the bytes of driver parameters.

Read what can be read of a bound pod.

A bound pod takes part of its node, whatever is wrong with it, and any tenant can bind a pod. A detail that cannot be
read therefore costs only that detail: a label, toleration, volume, port, affinity term or constraint is left out whole.
An amount of a resource that cannot be read (`UNREADABLE`) counts as more than any node has: the node is full of that resource, and
pods that do not request it are unaffected. A pod that is read in part is never evicted.

Parameters of drivers in claims and device classes: JSON of which the bytes are kept, whatever else is decoded leniently.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

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
)
from scheduler.api.meta import Frozen, Metadata
from scheduler.api.quantity import UNREADABLE, Quantity
from scheduler.core import api_json as apijson

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
"""Of other structs no field is left out: half a selector or term selects more than the whole one."""
_MOST_PARTS: Final = 1_000
"""Longer lists and maps are left out whole: one object must not hold the event loop."""
_MOST_REQUESTS: Final = 2_000
"""Of a pod, all containers together."""
_NATIVE: Final = frozenset(("cpu", "memory", "ephemeral-storage"))
_MOST_NAMED: Final = 10
_LONGEST_WHY: Final = 200


class PartlyReadPod(Pod, frozen=True):
    """A bound pod without the fields named in `unread`, each with the reason."""

    unread: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """The fields that were left out, and why, in at most some 2000 characters."""
        named = "; ".join(self.unread[:_MOST_NAMED])
        more = len(self.unread) - _MOST_NAMED
        return f"{named}; and {more} more" if more > 0 else named


def partly_read(raw: Any, hook: Hook) -> PartlyReadPod | None:
    """Return the pod with what can be read of the decoded JSON `raw`; None if it is not bound or has no identity."""
    if not isinstance(raw, dict):
        return None
    metadata, spec = raw.get("metadata"), raw.get("spec")
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        return None
    if not all(_is_name(name) for name in (metadata.get("name"), metadata.get("uid"), spec.get("nodeName"))):
        return None
    reader = _Reader(hook)
    read = {name: reader.struct(raw.get(name) or {}, typ, f"$.{name}") for name, typ in _PARTS.items()}
    read["spec"] = msgspec.structs.replace(read["spec"], priority=HIGHEST_PRIORITY)
    return PartlyReadPod(**read, unread=tuple(reader.unread))


def within_limits(pod: Pod) -> Pod:
    """Return the pod; a bound one with more than 2,000 requests of resources with those of `_NATIVE` ones alone.

    Raises ValueError for a pending one. Costs O(containers).
    """
    spec, status = pod.spec, pod.status
    statuses = (*status.container_statuses, *status.init_container_statuses)
    maps = [each.resources.requests for each in (*spec.containers, *spec.init_containers)]
    maps += [each.resources.requests for each in statuses if each.resources is not None]
    maps += [each.allocated_resources or {} for each in statuses]
    if sum(map(len, maps)) + len(spec.resources.requests) + len(spec.overhead) <= _MOST_REQUESTS:
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
    unread = (*pod.unread, why) if isinstance(pod, PartlyReadPod) else (why,)
    return PartlyReadPod(pod.metadata, kept, _without_statuses(status), unread=unread)


def _with_native(container: Container) -> Container:
    return msgspec.structs.replace(container, resources=_native(container.resources))


def _native(resources: ResourceRequirements) -> ResourceRequirements:
    return ResourceRequirements({name: amount for name, amount in resources.requests.items() if name in _NATIVE})


def _without_statuses(status: PodStatus) -> PodStatus:
    return msgspec.structs.replace(status, container_statuses=(), init_container_statuses=())


_PARTS: Final[dict[str, Any]] = {"metadata": Metadata, "spec": PodSpec, "status": PodStatus}


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


class _Reader:
    """`read` returns `_LEFT_OUT` for what is left out."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self.unread: list[str] = []

    def struct(self, raw: Any, wanted: Any, path: str) -> Any:
        """Return the struct with those fields that can be read."""
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
        """Return the value, or those of its parts that can be read."""
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
        self.unread.append(f"{why[:_LONGEST_WHY]} in `{path[:_LONGEST_WHY]}`")


@cache
def _fields(struct: Any) -> tuple[FieldInfo, ...]:
    return msgspec.structs.fields(struct)


def _without_none(wanted: Any) -> Any:
    if typing.get_origin(wanted) in (types.UnionType, typing.Union):
        named = [each for each in typing.get_args(wanted) if each is not types.NoneType]
        return named[0] if len(named) == 1 else wanted
    return wanted


_CONFIGS: Final = (("spec", "config"), ("spec", "devices", "config"), ("status", "allocation", "devices", "config"))
"""Where a device class or a claim has `opaque` configurations."""


class _Opaque(Frozen, frozen=True):
    parameters: msgspec.Raw = msgspec.Raw(b"null")


class _Config(Frozen, frozen=True):
    opaque: _Opaque | None = None


_raw_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_configs: Final = msgspec.json.Decoder(tuple[_Config | None, ...])


def with_raw_parameters(plain: Any, raw: bytes | msgspec.Raw) -> Any:
    """Change `plain`, which was decoded from `raw`, so that its parameters are the bytes of `raw`. Return it."""
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
    """Return `manifest` with the parameters encoded. The manifest itself stays as it is."""
    for path in _CONFIGS:
        if any(not isinstance(config["parameters"], msgspec.Raw) for _, config in _opaque(manifest, path)):
            manifest = _replaced(manifest, path)
    return manifest


def _opaque(plain: Any, path: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each `opaque` that has parameters, and its index."""
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
    return [_encoded(config) for config in manifest]


def _encoded(config: Any) -> Any:
    opaque = config.get("opaque") if isinstance(config, dict) else None
    if not isinstance(opaque, dict) or opaque.get("parameters") is None:
        return config
    parameters = opaque["parameters"]
    if isinstance(parameters, msgspec.Raw):
        return config
    return config | {"opaque": opaque | {"parameters": msgspec.Raw(msgspec.json.encode(parameters))}}
