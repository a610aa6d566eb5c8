"""JSON Schema (draft 2020-12) as far as the schemas of this project use it; another keyword is an error of the schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

Schema = Mapping[str, Any]
_NESTED: Final = frozenset({"$ref", "anyOf", "required", "items", "properties", "additionalProperties"})
_TEXTS: Final = frozenset({"$schema", "$defs", "title", "description", "default"})
_DEFINITIONS: Final = "#/$defs/"


def _has_type(value: Any, name: str) -> bool:
    is_boolean = isinstance(value, bool)
    match name:
        case "integer":
            return isinstance(value, int) and not is_boolean
        case "number":
            return isinstance(value, (int, float)) and not is_boolean
        case "null":
            return value is None
    kinds: dict[str, type] = {"boolean": bool, "string": str, "array": list, "object": dict}
    return isinstance(value, kinds[name])


_CHECKS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "type": _has_type,
    "enum": lambda value, wanted: value in wanted,
    "minimum": lambda value, wanted: not _has_type(value, "number") or value >= wanted,
    "minLength": lambda value, wanted: not isinstance(value, str) or len(value) >= wanted,
    "pattern": lambda value, wanted: not isinstance(value, str) or re.search(wanted, value) is not None,
}


def mistakes(value: Any, schema: Schema, root: Schema | None = None, path: str = "$") -> Iterator[str]:
    """Yield each place where the value differs from the schema, with the keyword that it violates."""
    root = schema if root is None else root
    for keyword, wanted in schema.items():
        if keyword in _CHECKS:
            if not _CHECKS[keyword](value, wanted):
                yield f"{path}: {value!r}: {keyword} {wanted}"
        elif keyword not in _NESTED | _TEXTS:
            raise NotImplementedError(f"{path}: keyword {keyword}")
    if "$ref" in schema:
        yield from mistakes(value, root["$defs"][schema["$ref"].removeprefix(_DEFINITIONS)], root, path)
    choices = schema.get("anyOf")
    if choices and all(any(mistakes(value, each, root, path)) for each in choices):
        yield f"{path}: {value!r}: anyOf"
    if isinstance(value, list) and "items" in schema:
        for at, each in enumerate(value):
            yield from mistakes(each, schema["items"], root, f"{path}[{at}]")
    if isinstance(value, dict):
        yield from (f"{path}: {name} is missing" for name in schema.get("required", ()) if name not in value)
        yield from _of_fields(value, schema, root, path)


def _of_fields(value: dict[str, Any], schema: Schema, root: Schema, path: str) -> Iterator[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, each in value.items():
        if name in known:
            yield from mistakes(each, known[name], root, f"{path}.{name}")
        elif others is False:
            yield f"{path}.{name}: is not in the schema"
        elif isinstance(others, dict):
            yield from mistakes(each, others, root, f"{path}.{name}")
