"""Strict reading of one mapping: each field is read once, with its type; other fields are unknown.

Names that only a configuration has to judge; the rules for all others are in `core.names`.

Strict reading of one mapping: each field is asked for once, with its type; what nobody asked for is unknown.

What a decoder would refuse (a type, a number too large) is told in our words, what kube-scheduler validates in its own.
A wrong value is noted in the findings and the default stands in, so that one pass finds every mistake.
null means absent, as upstream.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from scheduler.api.meta import label_key, subdomain
from scheduler.config.document import parse_duration_s
from scheduler.config.errors import Findings, below


def csi_driver(name: str) -> list[str]:
    """What a CSI driver may be called: a subdomain of at most 63 characters, upper case allowed."""
    return ["must be no more than 63 characters"] if len(name) > 63 else subdomain(name.lower())


def resource_group(group: str) -> list[str]:
    """The part of extended resources' names before the `/`."""
    slash = ["resource group name can't contain '/'"] if "/" in group else []
    return slash + label_key(group)


def extended_resource(name: str) -> list[str]:
    """A label key with a domain outside kubernetes.io, short enough to be written as a quota (`requests.<name>`)."""
    if found := label_key(name):
        return found
    is_native = "/" not in name or "kubernetes.io/" in name
    if is_native or name.startswith("requests.") or label_key(f"requests.{name}"):
        return ["is an invalid extended resource name"]
    return []


D = TypeVar("D")
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
NO_PERCENTAGE: Final = "not in valid range [0-100]"


class Fields:
    """A mapping at `path`. Leaving the `with` block reports the fields that were not read."""

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
        """The path of a field."""
        return below(self.path, name)

    def error(self, name: str, message: str) -> None:
        """A mistake in a field of this mapping, or deeper: `resources[1].name`."""
        self.findings.error(f"{self.path}.{name}" if self.path else name, message)

    def invalid(self, name: str, value: Any, why: str) -> None:
        """A value that is refused, as Kubernetes says it."""
        self.error(name, f"Invalid value: {quoted(value)}: {why}")

    def judge(self, name: str, value: str, complaints: Callable[[str], list[str]]) -> None:
        """Refuse the value for each of what is wrong with it."""
        for why in complaints(value):
            self.invalid(name, value, why)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null. Does not count as reading it."""
        return name in self._value

    def raw(self, name: str) -> Any:
        """The plain value, None when absent."""
        self._asked.append(name)
        return self._value.get(name)

    def no_effect(self, name: str) -> None:
        """Note a field that is accepted but changes nothing."""
        if self.has(name):
            self.findings.ignored.append(self.at(name))

    def text(self, name: str, default: str = "") -> str:
        """A string; no number or boolean is taken for one."""
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, str):
            return value
        self.error(name, f"must be a string, got {shown(value)}")
        return default

    def required(self, name: str, complaints: Callable[[str], list[str]] | None = None, *, why: str = "") -> str:
        """A string that must be there and not be empty; `complaints` says what is wrong with it."""
        if self._value.get(name, "") == "":
            self.error(name, f"Required value: {why}" if why else "Required value")
        value = self.text(name)
        if value and complaints:
            self.judge(name, value, complaints)
        return value

    def choice(self, name: str, default: str, allowed: Sequence[str]) -> str:
        """One of the allowed words; "" counts as absent when there is a default."""
        value = self.text(name, default) or default
        if value in allowed:
            return value
        if isinstance(self._value.get(name, ""), str):
            words = ", ".join(quoted(word) for word in allowed)
            self.error(name, f"Unsupported value: {quoted(value)}: supported values: {words}")
        return default

    def boolean(self, name: str, default: D) -> bool | D:
        """A boolean: true or false and nothing else."""
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        self.error(name, f"must be true or false, got {shown(value)}")
        return default

    def integer(self, name: str, default: D, *, low: int | None = None, high: int = INT32_MAX) -> int | D:
        """A whole number within bounds, both included; without `low` as far below 0 as Go's integers go."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            self.error(name, f"must be an integer, got {shown(value)}")
            return default
        least = -high - 1 if low is None else low
        if not least <= value <= high:
            self.error(name, f"must be {_bounds(least, high, value)}, got {value}")
            return default
        return value

    def within(self, name: str, default: D, bounds: tuple[int, int], why: str) -> int | D:
        """An int32; outside of the bounds, both included, it is refused in Kubernetes' words."""
        value = self.integer(name, default)
        if isinstance(value, int) and not bounds[0] <= value <= bounds[1]:
            self.invalid(name, value, why)
            return default
        return value

    def number(self, name: str, default: float) -> float:
        """A whole or fractional number."""
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e38:
            return float(value)
        self.error(name, f"must be a number, got {shown(value)}")
        return default

    def seconds(self, name: str, default: float) -> float:
        """A metav1.Duration, in seconds."""
        text = self.text(name)
        if not self.has(name) or not isinstance(self._value[name], str):
            return default
        try:
            return parse_duration_s(text)
        except ValueError as wrong:
            self.error(name, f"{wrong}, got {shown(text)}")
            return default

    def data(self, name: str) -> bytes:
        """Base64 text, decoded. The value is not repeated in the error: it may be a key."""
        try:
            return base64.b64decode(self.text(name), validate=True)
        except (binascii.Error, ValueError):
            self.error(name, "must be base64")
            return b""

    def texts(self, name: str, complaints: Callable[[str], list[str]] | None = None) -> tuple[str, ...]:
        """A list of strings; `complaints` judges each."""
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
        """The mapping in a field, an empty one when absent."""
        return Fields(self.raw(name), self.at(name), self.findings)

    def children(self, name: str) -> list[Fields]:
        """The mappings in a list."""
        found = []
        for at, item in enumerate(self._list(name)):
            path = below(self.at(name), at)
            if item is None:
                self.findings.error(path, "must be a mapping, got null")
            found.append(Fields(item, path, self.findings))
        return found

    def _list(self, name: str) -> list[Any]:
        value = self.raw(name)
        if value is None:
            return []
        if isinstance(value, list):
            return value
        self.error(name, f"must be a list, got {shown(value)}")
        return []


def quoted(value: Any) -> str:
    """A value as Kubernetes repeats it: as JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def shown(value: Any) -> str:
    """A value as an error message repeats it: short, and as the file would write it."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def suggestion(name: str, known: Sequence[str]) -> str:
    """`, did you mean "…"?` if something similar is known, else nothing."""
    close = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1, cutoff=0.75)
    meant = next((k for k in known if close and k.lower() == close[0]), "")
    return f', did you mean "{meant}"?' if meant and meant != name else ""


def _bounds(low: int, high: int, value: int) -> str:
    if high not in {INT32_MAX, INT64_MAX}:
        return f"between {low} and {high}"
    if value > high:
        return f"<= {high}"
    return "> 0" if low == 1 else f">= {low}"
