"""What the server refuses, as a real one words it: every refusal is a `Status` object with code, reason and details."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from simulator.apiserver.resources import ApiResource
from simulator.apiserver.validation import Problem, Rule, wrong


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
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        status["details"] = details
    if code:
        status["code"] = code
    return status


def _details(resource: ApiResource, name: str, kind: str = "") -> dict[str, Any]:
    group = {"group": resource.group} if resource.group else {}
    return {"name": name, **group, "kind": kind or resource.name}


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
    message = (
        f'Operation cannot be fulfilled on {resource.qualified_kind} "{name}": the {field} in the precondition ({wanted}) '
        f"does not match the {field} in record ({actual}). The object might have been {what}"
    )
    return Refused(409, "Conflict", message, details=_details(resource, name, resource.kind))


def bad_request(message: str) -> Refused:
    """400."""
    return Refused(400, "BadRequest", message)


def forbidden(resource: ApiResource, name: str, why: str) -> Refused:
    """403 of an admission plugin."""
    message = f'{resource.qualified} "{name}" is forbidden: {why}'
    return Refused(403, "Forbidden", message, details=_details(resource, name))


def invalid(resource: ApiResource, name: str, *problems: Problem) -> Refused:
    """422 with all problems. A repeated problem counts twice and is listed once."""
    details = _details(resource, name, resource.kind) | {"causes": _causes(problems)}
    message = f'{resource.qualified_kind} "{name}" is invalid: {listed(problems)}'
    return Refused(422, "Invalid", message, details=details)


def invalid_binding(problems: Sequence[Problem]) -> Refused:
    """422 for a Binding, without a name."""
    details = {"kind": "Binding", "causes": _causes(problems)}
    return Refused(422, "Invalid", f'Binding "" is invalid: {listed(problems)}', details=details)


def listed(problems: Sequence[Problem]) -> str:
    """Return fields and texts of problems, each once."""
    lines = list(dict.fromkeys(f"{problem.field}: {problem.why}" for problem in problems))
    return lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"


def _causes(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    return [{"reason": each.cause, "message": each.why, "field": each.field} for each in problems]


def version_required(resource: ApiResource, name: str) -> Refused:
    """422 for a PUT that does not say what it is meant to replace. It names the resource, not the kind."""
    refusal = invalid(resource, name, wrong(0, "must be specified for an update", at="metadata.resourceVersion"))
    message = refusal.message.replace(resource.qualified_kind, resource.qualified, 1)
    return Refused(422, "Invalid", message, details=(refusal.details or {}) | {"kind": resource.name})


def expired(message: str) -> Refused:
    """Return 410: the requested history is gone."""
    return Refused(410, "Expired", message)


IS_FIXED: Final = "field is immutable"


def refuse(resource: ApiResource, name: str, problems: Sequence[Problem]) -> None:
    """Raise 422 if there are problems."""
    if problems:
        raise invalid(resource, name, *problems)


@contextmanager
def readable(resource: ApiResource) -> Iterator[None]:
    """Raise 400 for an amount that is none."""
    try:
        yield
    except ValueError as error:
        raise Unreadable(resource, str(error)) from error


def check(resource: ApiResource, obj: dict[str, Any], rule: Rule, context: Any = None) -> None:
    """Raise 422 with all problems of an object, or 400 if an amount in it is none."""
    with readable(resource):
        problems = rule(obj, context)
    refuse(resource, obj["metadata"]["name"], problems)
