"""What is wrong with an object, field by field: a server names all of it in one refusal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from scheduler.testing.apiserver.resources import Resource
from scheduler.testing.apiserver.status import Refused

_T = TypeVar("_T")
IS_FIXED: Final = "field is immutable"


class Problem(NamedTuple):
    """One field and what a server says of it."""

    field: str
    cause: str
    why: str


Problems = list[Problem]


def refuse(resource: Resource, name: str, problems: Iterable[Problem]) -> None:
    """Raises 422 when there are some. What is found twice counts twice and is said once."""
    found = list(problems)
    if not found:
        return
    said = list(dict.fromkeys(f"{problem.field}: {problem.why}" for problem in found))
    text = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    group = {"group": resource.group} if resource.group else {}
    causes = [{"reason": each.cause, "message": each.why, "field": each.field} for each in found]
    details = {"name": name, **group, "kind": resource.kind, "causes": causes}
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    raise Refused(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details=details)


def required(field: str, why: str = "") -> Problem:
    return Problem(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def wrong(field: str, value: Any, why: str) -> Problem:
    return Problem(field, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {why}")


def wrong_each(field: str, value: str, complaints: Iterable[str]) -> Problems:
    """The complaints of a rule of `names`."""
    return [wrong(field, value, why) for why in complaints]


def not_supported(field: str, value: str, known: Sequence[str]) -> Problem:
    choices = ", ".join(f'"{each}"' for each in known)
    return Problem(field, "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {choices}")


def not_allowed(field: str, why: str) -> Problem:
    return Problem(field, "FieldValueForbidden", f"Forbidden: {why}")


def not_there(field: str, value: str, why: str) -> Problem:
    return Problem(field, "FieldValueNotFound", f"Not found: {_shown(value)}: {why}")


def said_twice(field: str, value: Any) -> Problem:
    return Problem(field, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")


def too_long(field: str, most_bytes: int) -> Problem:
    return Problem(field, "FieldValueTooLong", f"Too long: may not be more than {most_bytes} bytes")


def too_many(field: str, count: int, most: int) -> Problem:
    return Problem(field, "FieldValueTooMany", f"Too many: {count}: must have at most {most} items")


def in_each(field: str, items: Sequence[_T] | None, check: Callable[[str, _T], Problems], *, most: int = 0) -> Problems:
    """The problems of every item of a list; only its length if it has more than `most`."""
    items = items or ()
    if most and len(items) > most:
        return [too_many(field, len(items), most)]
    return [problem for at, item in enumerate(items) for problem in check(f"{field}[{at}]", item)]


def twice(field: str, keys: Iterable[Any]) -> Problems:
    """The items of a list whose key another one had before."""
    seen: set[str] = set()
    found: Problems = []
    for at, key in enumerate(keys):
        text = _shown(key)
        if text in seen:
            found.append(said_twice(f"{field}[{at}]", key))
        seen.add(text)
    return found


def in_set(
    field: str,
    items: Sequence[_T] | None,
    check: Callable[[str, _T], Problems],
    *,
    key: Callable[[_T], Any],
    most: int = 0,
) -> Problems:
    """As `in_each`, of a list that says nothing twice."""
    if most and len(items or ()) > most:
        return in_each(field, items, check, most=most)
    return in_each(field, items, check) + twice(field, (key(item) for item in items or ()))


def _shown(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=msgspec.json.decode)
