"""Reduce API objects to what scheduling reads, so that a recording has no secrets.

The fields that stay are those of the structs that the scheduler decodes, and a few that the simulated controllers read.
Everything else is dropped: environment variables, commands, managed fields, other annotations. A field that a later
version of Kubernetes adds is dropped as well.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from scheduler.api.apps_and_policy import PodDisruptionBudget, SetSelector
from scheduler.api.storage_v1 import CSINode, CSINodeDriver, CSINodeSpec, StorageClass
from scheduler.kube.resources import TAINT_RULE, WATCHED_NOW, KindSpec
from simulator.simulate.input.dump import KUBECTL, OURS

Reduce: TypeAlias = Callable[[Any], Any]
"""Returns a copy without unread fields, or `_DROPPED`."""

_DROPPED: Final = object()
_SCHEDULED: Final = "PodScheduled"


class _StorageClass(StorageClass, frozen=True):
    reclaim_policy: str | None = None


class _Driver(CSINodeDriver, frozen=True):
    topology_keys: tuple[str, ...] = ()


class _CSINodeSpec(CSINodeSpec, frozen=True):
    drivers: tuple[_Driver, ...] = ()


class _CSINode(CSINode, frozen=True):
    spec: _CSINodeSpec = _CSINodeSpec()


class _BudgetSpec(SetSelector, frozen=True):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class _Budget(PodDisruptionBudget, frozen=True):
    spec: _BudgetSpec = _BudgetSpec()


_MORE: Final[Mapping[str, type[Any]]] = {
    "StorageClass": _StorageClass,
    "CSINode": _CSINode,
    "PodDisruptionBudget": _Budget,
}
"""Kinds of which the controllers of a replay read more than the scheduler."""

RECORDED: Final[Mapping[str, KindSpec]] = {spec.name: spec for spec in (*WATCHED_NOW, TAINT_RULE)}
"""The kinds of a recording: those that the scheduler watches. Secrets and ConfigMaps are none of them."""


def reduced(kind: str, obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the object with the fields that are read. Raises KeyError for a kind that is not recorded."""
    found: Any = _of_type(type_of(kind))(dict(obj))
    return {} if found is _DROPPED else found


def type_of(kind: str) -> Any:
    """Return the type with the fields of a recorded kind."""
    return _MORE.get(kind, RECORDED[kind].typ)


@cache
def _of_type(wanted: Any) -> Reduce:
    if typing.get_origin(wanted) is Annotated:
        return _of_type(typing.get_args(wanted)[0])
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in {types.UnionType, typing.Union}:
        named = [each for each in arguments if each is not types.NoneType]
        return _of_type(named[0]) if len(named) == 1 else _scalar
    if origin is tuple:
        return _list(_of_type(arguments[0]))
    if origin is dict:
        return _map(_of_type(arguments[1]))
    if wanted is msgspec.Raw:
        return _without_parameters
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        return _struct(wanted)
    return _anything if wanted is Any else _scalar


def _struct(wanted: type[msgspec.Struct]) -> Reduce:
    fields: dict[str, Reduce] = {}

    def reduce(value: Any) -> Any:
        if not fields:  # not before the first use: a struct may contain itself
            fields.update({each.encode_name: _of_field(each) for each in msgspec.structs.fields(wanted)})
        if not isinstance(value, dict):
            return _DROPPED
        found = {name: fields[name](each) for name, each in value.items() if name in fields}
        kept = {name: each for name, each in found.items() if each is not _DROPPED}
        if "message" in kept and kept.get("type") != _SCHEDULED:
            del kept["message"]  # it may quote the log of a container
        return kept

    return reduce


def _of_field(field: msgspec.structs.FieldInfo) -> Reduce:
    reduce = _of_type(field.type)
    is_map = typing.get_origin(field.type) is dict
    return _annotations if field.encode_name == "annotations" and is_map else reduce


def _annotations(value: Any) -> Any:
    """Keep the annotations of Kubernetes and Kubestow. Those of kubectl repeat the whole object."""
    if not isinstance(value, dict):
        return _DROPPED
    kept = {
        key: text
        for key, text in value.items()
        if isinstance(text, str) and OURS.fullmatch(key) and not key.startswith(KUBECTL)
    }
    return kept or _DROPPED


def _list(reduce: Reduce) -> Reduce:
    def reduce_all(value: Any) -> Any:
        if not isinstance(value, list):
            return _DROPPED
        return [found for each in value if (found := reduce(each)) is not _DROPPED]

    return reduce_all


def _map(reduce: Reduce) -> Reduce:
    def reduce_all(value: Any) -> Any:
        if not isinstance(value, dict):
            return _DROPPED
        found = {key: reduce(each) for key, each in value.items()}
        return {key: each for key, each in found.items() if each is not _DROPPED}

    return reduce_all


def _scalar(value: Any) -> Any:
    """Keep texts, numbers, truth values and null. A quantity is one of these, too."""
    return value if isinstance(value, (str, int, float, bool, types.NoneType)) else _DROPPED


def _anything(value: Any) -> Any:
    """Keep a value of any form, such as the template of an ephemeral volume, without annotations."""
    if isinstance(value, dict):
        return {key: _anything(each) for key, each in value.items() if key != "annotations"}
    return [_anything(each) for each in value] if isinstance(value, list) else value


def _without_parameters(_: Any) -> Any:
    """Replace the parameters of a driver, which may have secrets."""
    return {}
