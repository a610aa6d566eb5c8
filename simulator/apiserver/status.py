"""What the server refuses, worded as a real one does, and all problems of an object in one refusal.

What the server refuses, as a real one words it: every refusal is a `Status` object with code, reason and details.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from simulator.apiserver.resources import ApiResource


class Refused(Exception):
    """A request the API server says no to; `body()` is the `Status` it answers with."""

    def __init__(
        self, code: int, reason: str, message: str, *, details: dict[str, Any] | None = None, retry_after_s: int = 0
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after_s = retry_after_s
        self.list_metadata: dict[str, Any] = {}

    def body(self) -> dict[str, Any]:
        """Return the `Status`; keys without a value are left out as a real server does."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.list_metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


class Unreadable(Refused):
    """400 for an object with a value that is none of its type."""

    def __init__(self, resource: ApiResource, why: str) -> None:
        kind = resource.kind
        what = f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {why}'
        super().__init__(400, "BadRequest", what)
        self._why = why

    def in_patch(self) -> Refused:
        """422 for the patch that led there. A real server quotes it, or the object."""
        why = f'Invalid value: "": {self._why}'
        causes = [{"reason": "FieldValueInvalid", "message": why, "field": "patch"}]
        return Refused(422, "Invalid", f' "" is invalid: patch: {why}', details={"causes": causes})


def success(code: int = 0, details: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a `Status` of success."""
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        status["details"] = details
    if code:
        status["code"] = code
    return status


def _details(resource: ApiResource, name: str) -> dict[str, Any]:
    group = {"group": resource.group} if resource.group else {}
    return {"name": name} | group | {"kind": resource.name}


def not_found(resource: ApiResource, name: str) -> Refused:
    """404 for an object."""
    return Refused(404, "NotFound", f'{resource.qualified} "{name}" not found', details=_details(resource, name))


def no_such_resource() -> Refused:
    """404 for a kind or path inside a served group."""
    return Refused(404, "NotFound", "the server could not find the requested resource", details={})


def method_not_allowed() -> Refused:
    """405."""
    return Refused(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def already_exists(resource: ApiResource, name: str, *, is_going: bool) -> Refused:
    """409 for a name that is taken, be it by an object on its way out."""
    message = f'{"object is being deleted: " if is_going else ""}{resource.qualified} "{name}" already exists'
    return Refused(409, "AlreadyExists", message, details=_details(resource, name))


def conflict(resource: ApiResource, name: str, why: str, *, subresource: str = "") -> Refused:
    """409 with the sentence every client knows."""
    suffix = f"/{subresource}" if subresource else ""
    details = _details(resource, name)
    details["kind"] += suffix
    message = f'Operation cannot be fulfilled on {resource.qualified}{suffix} "{name}": {why}'
    return Refused(409, "Conflict", message, details=details)


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def precondition_failed(resource: ApiResource, key: str, field: str, wanted: str, actual: str) -> Refused:
    """409 as storage words it for an update or a binding whose `UID` or `ResourceVersion` is not the object's."""
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{resource.name}/{key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: {field} in precondition: {wanted}, {field} in object meta: {actual}"
    )
    return conflict(resource, key.rpartition("/")[2], why)


def delete_precondition(resource: ApiResource, name: str, *, uid: bool, wanted: str, actual: str) -> Refused:
    """409 for a DELETE whose precondition does not hold; names the kind, not the resource."""
    field, what = ("UID", "deleted and then recreated") if uid else ("ResourceVersion", "modified")
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    message = (
        f'Operation cannot be fulfilled on {kind} "{name}": the {field} in the precondition ({wanted}) '
        f"does not match the {field} in record ({actual}). The object might have been {what}"
    )
    group = {"group": resource.group} if resource.group else {}
    return Refused(409, "Conflict", message, details={"name": name} | group | {"kind": resource.kind})


def bad_request(message: str) -> Refused:
    """400."""
    return Refused(400, "BadRequest", message)


def forbidden(resource: ApiResource, name: str, why: str) -> Refused:
    """403 of an admission plugin."""
    message = f'{resource.qualified} "{name}" is forbidden: {why}'
    return Refused(403, "Forbidden", message, details=_details(resource, name))


def invalid(resource: ApiResource, name: str, field: str, why: str, *, cause: str = "FieldValueInvalid") -> Refused:
    """422 with one cause; `why` starts as the server's (`Invalid value: …`, `Forbidden: …`, `Required value`)."""
    group = {"group": resource.group} if resource.group else {}
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = {
        "name": name,
        **group,
        "kind": resource.kind,
        "causes": [{"reason": cause, "message": why, "field": field}],
    }
    return Refused(422, "Invalid", f'{kind} "{name}" is invalid: {field}: {why}', details=details)


def version_required(resource: ApiResource, name: str) -> Refused:
    """422 for a PUT that does not say what it is meant to replace."""
    message = "Invalid value: 0: must be specified for an update"
    field = "metadata.resourceVersion"
    group = {"group": resource.group} if resource.group else {}
    details = {
        "name": name,
        **group,
        "kind": resource.name,
        "causes": [{"reason": "FieldValueInvalid", "message": message, "field": field}],
    }
    return Refused(422, "Invalid", f'{resource.qualified} "{name}" is invalid: {field}: {message}', details=details)


def expired(message: str) -> Refused:
    """Return 410: the requested history is gone."""
    return Refused(410, "Expired", message)


_T = TypeVar("_T")
IS_FIXED: Final = "field is immutable"


class Problem(NamedTuple):
    """One field and what a server says of it."""

    field: str
    cause: str
    why: str


Problems = list[Problem]


def refuse(resource: ApiResource, name: str, problems: Iterable[Problem]) -> None:
    """Raise 422 if there are problems. A repeated problem counts twice and is listed once."""
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
    """Return the complaints of a rule of `names`."""
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
    """Return the problems of every item of a list; only its length if it has more than `most`."""
    items = items or ()
    if most and len(items) > most:
        return [too_many(field, len(items), most)]
    return [problem for at, item in enumerate(items) for problem in check(f"{field}[{at}]", item)]


def twice(field: str, keys: Iterable[Any]) -> Problems:
    """Return the items of a list whose key another one had before."""
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
