"""The API schema of kube-apiserver v1.36 and v1.37: the fields of the built-in kinds and their types.

`python -m tests.tools.api_schema` generates `schema.json.gz` from the servers' OpenAPI. It has every group version
and field that one of the servers can serve. A check returns the mistakes of one value; a value without mistakes costs no path.

As in Go, null is an absent field, and an absent object that is no pointer is an empty one. Types and unknown fields
are checked everywhere. Required fields and enum values are not checked in `status`: the server drops it from new
objects.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from scheduler.api import quantity
from scheduler.config.fields import shown, suggestion

Object: TypeAlias = Mapping[str, Any]
FILE: Final = Path(__file__).with_name("schema.json.gz")
Type: TypeAlias = str | dict[str, Any]
"""A plain type, or one of `{"enum": […]}`, `{"list": Type}`, `{"map": Type}`, `{"type": name}`."""


class Mistake(NamedTuple):
    """`is_type`: the value cannot be decoded, so rules that read it do not apply."""

    path: str
    text: str
    is_type: bool = False
    is_unknown: bool = False

    def __str__(self) -> str:
        path = self.path.removeprefix(".")
        return f'unknown field "{path}"{self.text}' if self.is_unknown else f"{path}: {self.text}"

    def below(self, place: str) -> Mistake:
        """Return the same mistake with a path from the parent object or list."""
        return self._replace(path=f"{place}{self.path}")


Check: TypeAlias = Callable[[Any], Sequence[Mistake]]
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_REQUIRED: Final = "Required value"


class Kind(NamedTuple):
    """A kind of one group version."""

    check: Check
    is_namespaced: bool


def invalid(path: str, value: object, why: str) -> Mistake:
    return Mistake(path, f"Invalid value: {shown(value)}: {why}")


def objects(holder: Object, field: str) -> list[Object]:
    """Return the objects of a list; null means an empty one."""
    return [each or {} for each in holder.get(field) or ()]


def nested(holder: Object, *fields: str) -> Object:
    """Return the object below these fields, an empty one if absent."""
    for field in fields:
        holder = holder.get(field) or {}
    return holder


def find(version: str, kind: str) -> Kind | None:
    """Return the kind; None if the server does not have it in this group version."""
    found = read()["kinds"].get(version, {}).get(kind)
    return None if found is None else Kind(_object(found[0], is_status=False), found[1])


def versions() -> list[str]:
    """Return the group versions of Kubernetes itself."""
    return list(read()["kinds"])


@cache
def cluster_scoped() -> frozenset[str]:
    """Return the kinds without a namespace."""
    kinds = (of_version.items() for of_version in read()["kinds"].values())
    return frozenset(kind for items in kinds for kind, (_, is_namespaced) in items if not is_namespaced)


@cache
def groups() -> frozenset[str]:
    """Return the API groups of Kubernetes itself, with "" for the core group."""
    return frozenset(version.rpartition("/")[0] for version in read()["kinds"])


@cache
def read() -> dict[str, Any]:
    """Return the shipped schema: `kinds` by group version, and `types` by name."""
    document: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    return document


def _of(kind: Type, *, is_status: bool) -> Check:
    if isinstance(kind, str):
        return _PLAIN.get(kind, _string)
    ((form, inner),) = kind.items()
    match form:
        case "enum":
            return _string if is_status else _enum(inner)
        case "list":
            return _list(_of(inner, is_status=is_status), has_objects=isinstance(inner, dict) and "type" in inner)
        case "map":
            return _map(_of(inner, is_status=is_status))
        case _:
            return _object(inner, is_status=is_status)


@cache
def _object(name: str, *, is_status: bool) -> Check:
    """Return the check of an object. Fields are looked up at the first check, because types contain themselves."""
    definition = read()["types"][name]
    fields: dict[str, Check] = {}
    required: Sequence[str] = () if is_status else definition["required"]
    nested: Sequence[str] = () if is_status else definition["nested"]

    def check(value: Any) -> Sequence[Mistake]:
        if not isinstance(value, dict):
            return _wrong("an object", value)
        if not fields:
            fields.update(_fields(definition["fields"], is_status=is_status))
        found: list[Mistake] = []
        for field, part in value.items():
            known = fields.get(field)
            if known is None:
                found.append(Mistake(f".{field}", suggestion(field, list(fields)), is_unknown=True))
            elif part is not None and (mistakes := known(part)):
                found += [each.below(f".{field}") for each in mistakes]
        # An empty string or list is the zero value, which Go cannot distinguish from an absent field.
        found += [Mistake(f".{each}", _REQUIRED) for each in required if value.get(each) in (None, "", [])]
        for field in nested:
            if value.get(field) is None:
                found += [each.below(f".{field}") for each in fields[field]({})]
        return found

    return check


def _fields(types: Mapping[str, Type], *, is_status: bool) -> dict[str, Check]:
    return {field: _of(kind, is_status=is_status or field == "status") for field, kind in types.items()}


def _list(inner: Check, *, has_objects: bool) -> Check:
    def check(value: Any) -> Sequence[Mistake]:
        if not isinstance(value, list):
            return _wrong("a list", value)
        found: list[Mistake] = []
        for at, item in enumerate(value):
            if (item is not None or has_objects) and (mistakes := inner({} if item is None else item)):
                found += [each.below(f"[{at}]") for each in mistakes]
        return found

    return check


def _map(inner: Check) -> Check:
    def check(value: Any) -> Sequence[Mistake]:
        if not isinstance(value, dict):
            return _wrong("an object", value)
        found: list[Mistake] = []
        for key, item in value.items():
            if item is not None and (mistakes := inner(item)):
                found += [each.below(f"[{key}]") for each in mistakes]
        return found

    return check


def _enum(values: Sequence[str]) -> Check:
    known = frozenset(values)

    def check(value: Any) -> Sequence[Mistake]:
        if not isinstance(value, str):
            return _wrong("a string", value)
        if value in known or not value:
            return ()
        return (_unsupported(value, values),)

    return check


def _unsupported(value: str, values: Sequence[str]) -> Mistake:
    """Return the mistake of a value that is none of these.

    Upstream: staging/src/k8s.io/apimachinery/pkg/util/validation/field/errors.go NotSupported
    """
    supported = ", ".join(f'"{each}"' for each in values)
    return Mistake("", f"Unsupported value: {shown(value)}: supported values: {supported}")


def _wrong(expected: str, value: Any) -> tuple[Mistake]:
    return (Mistake("", f"must be {expected}, got {shown(value)}", is_type=True),)


def _string(value: Any) -> Sequence[Mistake]:
    if isinstance(value, str):
        return ()
    (wrong,) = _wrong("a string", value)
    if isinstance(value, bool):
        return (wrong._replace(text=f"{wrong.text}; in YAML, words such as y, n, on and off need quotes"),)
    return (wrong._replace(text=f"{wrong.text}; a number needs quotes") if isinstance(value, (int, float)) else wrong,)


def _boolean(value: Any) -> Sequence[Mistake]:
    return () if isinstance(value, bool) else _wrong("true or false", value)


def _integer(bits: int) -> Check:
    most = 2 ** (bits - 1)

    def check(value: Any) -> Sequence[Mistake]:
        if type(value) is int and -most <= value < most:
            return ()
        return _wrong(f"an integer of {bits} bits" if type(value) is int else "an integer", value)

    return check


def _number(value: Any) -> Sequence[Mistake]:
    return () if isinstance(value, (int, float)) and not isinstance(value, bool) else _wrong("a number", value)


def _quantity(value: Any) -> Sequence[Mistake]:
    try:
        quantity.parse(value.strip() if isinstance(value, str) else value)
    except (ValueError, TypeError):
        return _wrong("a quantity such as 500m or 2Gi", value)
    return ()


def _int_or_string(value: Any) -> Sequence[Mistake]:
    return () if isinstance(value, str) or not _INT32(value) else _wrong("an integer or a string", value)


def _time(value: Any) -> Sequence[Mistake]:
    if isinstance(value, str) and _TIME.fullmatch(value):
        try:
            dt.datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            return ()
    return _wrong("a time such as 2026-01-01T00:00:00Z", value)


def _bytes(value: Any) -> Sequence[Mistake]:
    try:
        base64.b64decode("".join(value.splitlines()), validate=True)
    except (AttributeError, binascii.Error, ValueError):
        return _wrong("a base64 string", value)
    return ()


def _free_object(value: Any) -> Sequence[Mistake]:
    return () if isinstance(value, dict) else _wrong("an object", value)


_INT32: Final = _integer(32)
_PLAIN: Final[Mapping[str, Check]] = {
    "any": lambda _: (),
    "boolean": _boolean,
    "byte": _bytes,
    "date-time": _time,
    "double": _number,
    "int-or-string": _int_or_string,
    "int32": _INT32,
    "int64": _integer(64),
    "number": _number,
    "object": _free_object,
    "quantity": _quantity,
}
"""Other formats, such as those of addresses, are strings."""
