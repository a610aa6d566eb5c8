"""Read one mapping strictly: each field is read once, with its type; all other fields are unknown.

A wrong type or range is reported in our words, a failed validation in kube-scheduler's. A wrong value is recorded and
replaced by its default, so that one pass finds every mistake. null means absent, as upstream. The names that only a
configuration uses are validated here; `core.names` has the rules for all other names.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from scheduler.api.meta import label_key, subdomain
from scheduler.config.document import format_duration, parse_duration_s
from scheduler.config.errors import Findings, below
from scheduler.config.schema import INT32_MAX, INT64_MAX, FieldOptions, spelled


def csi_driver(name: str) -> list[str]:
    """Return the mistakes of a CSI driver's name: a subdomain of at most 63 characters, upper case allowed."""
    return ["must be no more than 63 characters"] if len(name) > 63 else subdomain(name.lower())


def resource_group(group: str) -> list[str]:
    """Return the mistakes in the part of an extended resource's name before the `/`."""
    slash = ["resource group name can't contain '/'"] if "/" in group else []
    return slash + label_key(group)


def extended_resource(name: str) -> list[str]:
    """Return the mistakes of an extended resource's name.

    It is a label key with a domain outside kubernetes.io, short enough for a quota (`requests.<name>`).
    """
    if found := label_key(name):
        return found
    is_native = "/" not in name or "kubernetes.io/" in name
    if is_native or name.startswith("requests.") or label_key(f"requests.{name}"):
        return ["is an invalid extended resource name"]
    return []


D = TypeVar("D")
T = TypeVar("T")
RULES: Final[Mapping[str, Callable[[str], list[str]]]] = {
    "extended resource": extended_resource,
    "label key": label_key,
    "resource group": resource_group,
}
"""The rules of names that `schema.option` can mention."""


class Fields:
    """A mapping at `path`. The end of the `with` block reports the fields that were not read."""

    def __init__(self, value: Any, path: str, findings: Findings) -> None:
        self.path = path
        self.findings = findings
        self._asked: list[str] = []
        self._value: dict[str, Any] = {}
        if isinstance(value, dict):
            self._value = {name: item for name, item in value.items() if item is not None}
        elif value is not None:
            findings.error(path, f"must be a mapping, got {shown(value)}")
        self._names = list(value) if isinstance(value, dict) else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        if kind is not None:
            return
        for name in self._names:
            if name not in self._asked:
                self.findings.error(below(self.path, name), f"unknown field{suggestion(name, self._asked)}")

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return below(self.path, name)

    def error(self, name: str, message: str) -> None:
        """Record a mistake in a field of this mapping, or below: `resources[1].name`."""
        self.findings.error(f"{self.path}.{name}" if self.path else name, message)

    def invalid(self, name: str, value: Any, why: str) -> None:
        """Record a refused value in Kubernetes' words."""
        self.error(name, f"Invalid value: {quoted(value)}: {why}")

    def judge(self, name: str, value: str, complaints: Callable[[str], list[str]]) -> None:
        """Record each mistake that `complaints` finds in the value."""
        for why in complaints(value):
            self.invalid(name, value, why)

    def has(self, name: str) -> bool:
        """Return whether the field is present and not null. This does not count as reading it."""
        return name in self._value

    def raw(self, name: str) -> Any:
        """Return the plain value, None if absent."""
        self._asked.append(name)
        return self._value.get(name)

    def no_effect(self, name: str) -> None:
        """Record a field that is accepted without effect."""
        if self.has(name):
            self.findings.ignored.append(self.at(name))

    def text(self, name: str, default: str = "") -> str:
        """Return a string. Numbers and booleans are mistakes."""
        return self._typed(name, default, str, "a string")

    def required(self, name: str, complaints: Callable[[str], list[str]] | None = None, *, why: str = "") -> str:
        """Return a string that must be present and not empty. `complaints` returns its mistakes."""
        if self._value.get(name, "") == "":
            self.error(name, f"Required value: {why}" if why else "Required value")
        value = self.text(name)
        if value and complaints:
            self.judge(name, value, complaints)
        return value

    def choice(self, name: str, default: str, allowed: Sequence[str]) -> str:
        """Return one of the allowed words. With a default, "" counts as absent."""
        value = self.text(name, default) or default
        if value in allowed:
            return value
        if isinstance(self._value.get(name, ""), str):
            words = ", ".join(quoted(word) for word in allowed)
            self.error(name, f"Unsupported value: {quoted(value)}: supported values: {words}")
        return default

    def boolean(self, name: str, default: D) -> bool | D:
        """Return a boolean: true or false and nothing else."""
        return self._typed(name, default, bool, "true or false")

    def integer(self, name: str, default: D, *, low: int | None = None, high: int = INT32_MAX) -> int | D:
        """Return a whole number within inclusive bounds. Without `low`, the bound is Go's smallest integer."""
        value = self._typed(name, None, int, "an integer")
        if value is None:
            return default
        least = -high - 1 if low is None else low
        if not least <= value <= high:
            self.error(name, f"must be {_bounds(least, high, value)}, got {value}")
            return default
        return value

    def within(self, name: str, default: D, bounds: tuple[int, int], why: str) -> int | D:
        """Return an int32. A value outside the inclusive bounds is refused in Kubernetes' words."""
        value = self.integer(name, default)
        if isinstance(value, int) and not bounds[0] <= value <= bounds[1]:
            self.invalid(name, value, why)
            return default
        return value

    def number(self, name: str, default: float) -> float:
        """Return a whole or fractional number."""
        value = self._typed(name, default, (int, float), "a number")
        if abs(value) < 1e38:
            return float(value)
        self.error(name, f"must be a number, got {shown(value)}")
        return default

    def seconds(self, name: str, default: float) -> float:
        """Return a metav1.Duration in seconds."""
        text = self.text(name)
        if not self.has(name) or not isinstance(self._value[name], str):
            return default
        try:
            return parse_duration_s(text)
        except ValueError as wrong:
            self.error(name, f"{wrong}, got {shown(text)}")
            return default

    def data(self, name: str) -> bytes:
        """Return decoded base64 text. The error does not repeat the value, which may be a key."""
        try:
            return base64.b64decode(self.text(name), validate=True)
        except (binascii.Error, ValueError):
            self.error(name, "must be base64")
            return b""

    def texts(self, name: str, complaints: Callable[[str], list[str]] | None = None) -> tuple[str, ...]:
        """Return a list of strings. `complaints` returns the mistakes of each."""
        kept = []
        for at, item in enumerate(self._list(name)):
            if not isinstance(item, str):
                self.error(f"{name}[{at}]", f"must be a string, got {shown(item)}")
                continue
            kept.append(item)
            if complaints:
                self.judge(f"{name}[{at}]", item, complaints)
        return tuple(kept)

    def child(self, name: str) -> Fields:
        """Return the mapping in a field; an empty one if absent."""
        return Fields(self.raw(name), self.at(name), self.findings)

    def children(self, name: str) -> list[Fields]:
        """Return the mappings in a list."""
        found = []
        for at, item in enumerate(self._list(name)):
            path = below(self.at(name), at)
            if item is None:
                self.findings.error(path, "must be a mapping, got null")
            found.append(Fields(item, path, self.findings))
        return found

    def _list(self, name: str) -> list[Any]:
        return self._typed(name, [], list, "a list")

    def _typed(self, name: str, default: D, kind: type[T] | tuple[type[T], ...], words: str) -> T | D:
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        self.error(name, f"must be {words}, got {shown(value)}")
        return default


def read(kind: type[T], fields: Fields, **own: Callable[[], Any]) -> T:
    """Return a dataclass with the values of a mapping, read in the order of its fields by their declarations.

    `own` has the readers of fields that need code; they are called in their place.
    """
    values = {
        each.name: own[each.name]() if each.name in own else declared(fields, each)
        for each in dataclasses.fields(kind)  # type: ignore[arg-type]
    }
    return kind(**values)


def declared(fields: Fields, field: dataclasses.Field[Any]) -> Any:
    """Return the value of one field (`schema`)."""
    form, name = cast(FieldOptions, field.metadata), spelled(field.name)
    default = form.get("absent", field.default)
    rule = RULES[form["valid"]] if "valid" in form else None
    match default:
        case str():
            value: Any = fields.required(name, rule) if form.get("required") else fields.text(name, default)
        case bool():
            value = fields.boolean(name, default)
        case float():
            value = fields.seconds(name, default) if field.name.endswith("_s") else fields.number(name, default)
        case bytes():
            value = fields.data(name)
        case tuple():
            value = fields.texts(name, rule)
        case _ if "bounds" in form:
            value = fields.within(name, default, form["bounds"], form["why"])
        case _:
            value = fields.integer(name, default, high=form.get("high", INT32_MAX))
    if not fields.findings.feature_gates >= form.get("gates", frozenset()):
        if fields.has(name):
            fields.error(name, f"Forbidden: {form['gates_off']}")
    elif "least" in form and value < form["least"]:
        fields.invalid(name, format_duration(value), form["why"])
    return default if form.get("zero_is_default") and not value else value


def quoted(value: Any) -> str:
    """Return a value as JSON, the form in which Kubernetes repeats it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def shown(value: Any) -> str:
    """Return a value for an error message: short, in the form of the file."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def suggestion(name: str, names: Sequence[str]) -> str:
    """Return `, did you mean "…"?` if a similar name is known, otherwise ""."""
    close = difflib.get_close_matches(name.lower(), [k.lower() for k in names], n=1, cutoff=0.75)
    meant = next((k for k in names if close and k.lower() == close[0]), "")
    return f', did you mean "{meant}"?' if meant and meant != name else ""


def _bounds(low: int, high: int, value: int) -> str:
    if high not in {INT32_MAX, INT64_MAX}:
        return f"between {low} and {high}"
    if value > high:
        return f"<= {high}"
    return "> 0" if low == 1 else f">= {low}"
