"""Texts that a real server uses about names, and small objects that several modules write."""

from typing import Any

import pytest

from tests.contract.conftest import Object

REQUIRED = "Required value"
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
IDENTIFIER = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    "or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
WATCH_LIST = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
FINALIZER = "resource.kubernetes.io/delete-protection"
SINCE = "2026-01-01T00:00:00Z"
Row = tuple[str, str]
"""A field, and what a server says of it."""


def condition(type_: str = "Ready") -> Object:
    return {"type": type_, "status": "True", "reason": "R", "message": "", "lastTransitionTime": SINCE}


def new_event(name: str, at: str, regarding: Object) -> Object:
    """Return a warning as events.k8s.io has it."""
    told = {"action": "Scheduling", "reason": "FailedScheduling", "note": "n", "type": "Warning"}
    by = {"reportingController": "kubestow", "reportingInstance": "x"}
    return {"metadata": {"name": name}, "eventTime": at, "regarding": regarding} | told | by


def wrong(what: str, given: Any, field: str, why: str) -> Any:
    """Return a row of a table: the server refuses `given`, for this one field."""
    return pytest.param(given, [(field, why)], id=what)


def too_many(what: str, given: Any, field: str, count: int, limit: int) -> Any:
    """Return a row of a table: the field has more items than it may have."""
    return wrong(what, given, field, f"Too many: {count}: must have at most {limit} items")


def too_long(what: str, given: Any, field: str, limit: int) -> Any:
    return wrong(what, given, field, f"Too long: may not be more than {limit} bytes")


def within(path: str, *rows: Any) -> list[Any]:
    """Return the rows of a table with this path before each field."""
    return [
        pytest.param(row.values[0], [(path + field, why) for field, why in row.values[1]], id=row.id) for row in rows
    ]


def unsupported(value: str, *known: str) -> str:
    """Return what a server says of a word that is none of those it knows."""
    quoted = ", ".join(f'"{each}"' for each in known)
    return f'Unsupported value: "{value}": supported values: {quoted}'
