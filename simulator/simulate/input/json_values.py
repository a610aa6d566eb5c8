"""Values as JSON has them, and as a server reads them: those of a program, and those of a file with nulls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from simulator.simulate.input.documents import MAX_DEPTH
from simulator.simulate.input.sources import InputError


def as_json_value(value: object, where: str, deeper: int = MAX_DEPTH) -> Any:
    """Return the value with plain dictionaries and lists. Dates become texts, as YAML parsers make dates of them.

    Raises InputError for a value that JSON does not have. The message names the field.
    """
    if deeper == 0:
        raise InputError(f"{where}: is nested too deeply")
    match value:
        case None | bool() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case str() if value.isascii() or _is_unicode(value):
            return value
        case datetime():
            utc = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return utc.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case Mapping():
            for key in value:
                if not isinstance(key, str) or not _is_unicode(key):
                    raise InputError(f"{where}: the key {key!r} must be a text")
            return {key: as_json_value(part, _below(where, key), deeper - 1) for key, part in value.items()}
        case list() | tuple():
            return [as_json_value(part, f"{where}[{at}]", deeper - 1) for at, part in enumerate(value)]
    raise InputError(f"{where}: JSON has no value for {type(value).__name__} {repr(value)[:60]}")


def without_nulls(value: Any, where: str, deeper: int = MAX_DEPTH) -> Any:
    """Remove nulls, which mean absence to a server. Raises InputError for an alias that contains itself."""
    if deeper == 0:
        raise InputError(f"{where}: is nested too deeply")
    if isinstance(value, dict):
        return {key: without_nulls(part, where, deeper - 1) for key, part in value.items() if part is not None}
    return [without_nulls(part, where, deeper - 1) for part in value] if isinstance(value, list) else value


def _below(where: str, key: str) -> str:
    """Return the place of a field: the first one follows the name of the object."""
    return f"{where}{'.' if ': ' in where else ': '}{key}"


def _is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode the text: half of a surrogate pair cannot be encoded."""
    return not any("\ud800" <= each <= "\udfff" for each in text)
