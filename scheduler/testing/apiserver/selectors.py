"""Label and field selectors as the API server reads them from a query, compiled to predicates over plain objects."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from scheduler.testing.apiserver.resources import CORE_FIELDS, DEVICES, Resource
from scheduler.testing.apiserver.status import bad_request

Predicate = Callable[[dict[str, Any]], bool]
_Labels = dict[str, str]

_TOKEN: Final = re.compile(r"\s*(\(|\)|,|!=|==|=|!|>|<|[^\s(),!=<>]+)")
_FIELD_TERM: Final = re.compile(r"(?:\\.|[^,])+")
_FIELD_OPERATOR: Final = re.compile(r"!=|==|=")
_ESCAPED: Final = re.compile(r"\\.?|[,=]")
_VALUE_OPERATORS: Final = {"=", "==", "!=", ">", "<"}
_REGARDING: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_OLD_EVENT_FIELDS: Final = {
    **{f"involvedObject.{name}": (f"regarding.{name}",) for name in _REGARDING},
    "reason": ("reason",),
    "type": ("type",),
    "reportingComponent": ("reportingController",),
    "source": ("deprecatedSource.component", "reportingController"),
}
"""What can be selected under core/v1, and where it is stored: the first that is not empty counts."""


def compile_selectors(resource: Resource, labels: str, fields: str) -> Predicate | None:
    """None when both are empty. Raises `Refused` (400) in the server's words."""
    tests = [*_label_tests(labels), *_field_tests(resource, fields)]
    if not tests:
        return None
    return lambda obj: all(test(obj) for test in tests)


# -- labels ------------------------------------------------------------------------------------------------------------


def _label_tests(text: str) -> list[Predicate]:
    if not text.strip():
        return []
    requirements = _Parser(text).requirements()
    return [lambda obj: all(r(obj["metadata"].get("labels") or {}) for r in requirements)]


class _Parser:
    """`a=b,c!=d,e in (f,g),h,!i,j>1`."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def requirements(self) -> list[Callable[[_Labels], bool]]:
        found = [self._requirement()]
        while self._peek() == ",":
            self._next()
            found.append(self._requirement())
        if self._peek():
            self._fail(self._peek())
        return found

    def _requirement(self) -> Callable[[_Labels], bool]:
        if self._peek() == "!":
            self._next()
            key = self._next()
            return lambda labels: key not in labels
        key = self._next()
        operator = self._peek()
        if operator in {"", ","}:
            return lambda labels: key in labels
        self._next()
        if operator in {"in", "notin"}:
            values = self._values()
            wanted = operator == "in"
            return lambda labels: (labels.get(key) in values) is wanted if key in labels else not wanted
        if operator not in _VALUE_OPERATORS:
            self._fail(operator)
        return _compare(key, operator, self._next() if self._peek() not in {"", ","} else "")

    def _values(self) -> frozenset[str]:
        if self._next() != "(":
            raise bad_request("unable to parse requirement: expected: '('")
        values = []
        while (item := self._next()) != ")":
            if not item:
                raise bad_request("unable to parse requirement: found '', expected: ',', ')' or identifier")
            if item != ",":
                values.append(item)
        return frozenset(values)

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _fail(self, found: str) -> None:
        expected = "in, notin, =, ==, !=, gt, lt"
        raise bad_request(f"unable to parse requirement: found '{found}', expected: {expected}")


def _compare(key: str, operator: str, value: str) -> Callable[[_Labels], bool]:
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    if operator in {">", "<"}:
        return lambda labels: _is_beyond(labels.get(key, ""), value, greater=operator == ">")
    return lambda labels: labels.get(key) == value


def _is_beyond(label: str, bound: str, *, greater: bool) -> bool:
    try:
        return int(label) > int(bound) if greater else int(label) < int(bound)
    except ValueError:
        return False


# -- fields ------------------------------------------------------------------------------------------------------------


def _field_tests(resource: Resource, text: str) -> list[Predicate]:
    return [_field_test(resource, term, text) for term in _FIELD_TERM.findall(text)]


def _field_test(resource: Resource, term: str, text: str) -> Predicate:
    operator = _FIELD_OPERATOR.search(term)
    if operator is None:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
    path, value = term[: operator.start()], _ESCAPED.sub(_unescaped, term[operator.end() :])
    places = [stored.split(".") for stored in _stored_paths(resource, path)]
    equal = operator[0] != "!="
    return lambda obj: (next(filter(None, (_text_at(obj, keys) for keys in places)), "") == value) is equal


def _unescaped(found: re.Match[str]) -> str:
    """In a value, backslash, comma and equals sign stand behind a backslash, and nothing else does."""
    sign = found[0]
    if not sign.startswith("\\"):
        raise bad_request(f"invalid field selector: unescaped character in value: {ord(sign)}")
    if sign[1:] not in {"\\", ",", "="}:
        raise bad_request(f"invalid field selector: invalid escape sequence: {sign}")
    return sign[1:]


def _stored_paths(resource: Resource, path: str) -> tuple[str, ...]:
    if path in CORE_FIELDS:
        return (path,)
    if resource.is_core_event and path in _OLD_EVENT_FIELDS:
        return _OLD_EVENT_FIELDS[path]
    if path in resource.selectable and not resource.is_core_event:
        return (path,)
    if resource.selectable:
        kind = f" for {resource.group_version}, Kind={resource.kind}" if resource.group == DEVICES else ""
        raise bad_request(f"field label not supported{kind}: {path}")
    known = '"metadata.name", "metadata.namespace"' if resource.namespaced else '"metadata.name"'
    raise bad_request(f'"{path}" is not a known field selector: only {known}')


def _text_at(obj: dict[str, Any], keys: list[str]) -> str:
    value: Any = obj
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    if value is None:
        return "false" if keys[-1] in {"unschedulable", "hostNetwork"} else ""
    return str(value).lower() if isinstance(value, bool) else str(value)
