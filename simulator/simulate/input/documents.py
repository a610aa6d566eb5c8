"""YAML or JSON text to plain values, as `sigs.k8s.io/yaml` reads them, with the duplicate keys.

YAML is built from the parser's events, without the nodes and regular expressions of PyYAML's loaders, which takes a
quarter of the time. Plain words are booleans and numbers as in Go's reader, and timestamps are strings.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import yaml
from yaml import events

MAX_DEPTH: Final = 100
_MAX_ALIASED: Final = 1_000_000
"""Values that the aliases of one text may represent."""
_TICK: Final = 4096
_CACHED: Final = 100_000
_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = "<<"
_NO_KEY: Final = object()
_MERGED: Final = object()
"""The merge key, which is no field."""
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_INTEGER: Final = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|([1-9][0-9]*|0))")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WHOLE: Final = 1e21
"""Smaller floats without a fraction become integers when Go writes them as JSON."""

Tick: TypeAlias = Callable[[float], None]


class SyntaxMistake(Exception):
    """The text is no valid YAML. `document` is its number if only its content is refused."""

    def __init__(self, message: str, *, line: int | None = None, document: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.document = document


@dataclass(slots=True)
class Documents:
    """The documents. `duplicates` has the duplicate keys of an object with their lines, by the object's id."""

    values: list[Any] = field(default_factory=list)
    duplicates: dict[int, list[tuple[str, int | None]]] = field(default_factory=dict)
    is_yaml: bool = False
    _holders: list[Any] = field(default_factory=list)
    """Keeps the objects with duplicates alive, so that no other object gets the id."""

    def note(self, holder: dict[str, Any], key: str, line: int | None) -> None:
        """Record a key that the object has already."""
        self._holders.append(holder)
        self.duplicates.setdefault(id(holder), []).append((key, line))

    def repeated(self, value: Any) -> list[tuple[str, int | None]]:
        """Return the paths of duplicate fields in a value, in order. Costs nothing if the text has none."""
        return self._repeated(value, "") if self.duplicates else []

    def _repeated(self, value: Any, path: str) -> list[tuple[str, int | None]]:
        if isinstance(value, list):
            return [each for at, item in enumerate(value) for each in self._repeated(item, f"{path}[{at}]")]
        if not isinstance(value, dict):
            return []
        below = f"{path}." if path else ""
        found = [(f"{below}{key}", line) for key, line in self.duplicates.get(id(value), ())]
        for key, item in value.items():
            found += self._repeated(item, f"{below}{key}")
        return found


def documents(text: str, tick: Tick = lambda _: None) -> Documents:
    """Read JSON values or YAML documents. `tick` receives the part that is done, 0 to 1. Raises SyntaxMistake."""
    if text.lstrip().startswith("{"):
        try:
            return _json(text)
        except ValueError:
            pass  # YAML in flow style; the YAML parser finds what is wrong
        except RecursionError:
            raise SyntaxMistake("is nested too deeply", document=1) from None
    return _Reader(text, tick).read()


def _json(text: str) -> Documents:
    found = Documents()

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            keys = [key for key, _ in pairs]
            for key in (key for key in value if keys.count(key) > 1):
                found.note(value, key, None)
        return value

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    decoder = json.JSONDecoder(object_pairs_hook=build, parse_constant=refuse)
    rest = text.rstrip()
    at = len(rest) - len(rest.lstrip())
    while at < len(rest):
        value, at = decoder.raw_decode(rest, at)
        found.values.append(value)
        while at < len(rest) and rest[at].isspace():
            at += 1
    return found


class _Reader:
    """Build values while the parser reads the text. The stack holds open objects and lists."""

    def __init__(self, text: str, tick: Tick) -> None:
        self._loader = (yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader)(text)
        self._length, self._tick = max(len(text), 1), tick
        self._found = Documents(is_yaml=True)
        self._stack: list[tuple[Any, Any, str | None, int]] = []
        self._open: Any = None
        self._key: Any = _NO_KEY
        self._anchor: str | None = None
        """The anchor of the open object or list."""
        self._since = 0
        self._count = self._aliased = self._number = 0
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._merges: dict[int, list[dict[str, Any]]] = {}
        self._plain: dict[str, Any] = dict(_WORDS)
        self._handlers: dict[type, Callable[[Any], None]] = {
            events.MappingStartEvent: self._start_mapping,
            events.SequenceStartEvent: self._start_sequence,
            events.MappingEndEvent: self._end,
            events.SequenceEndEvent: self._end,
            events.AliasEvent: self._alias,
            events.DocumentStartEvent: self._start_document,
        }

    def read(self) -> Documents:
        try:
            self._read()
        except yaml.MarkedYAMLError as error:
            mark: Any = error.problem_mark or error.context_mark
            line = None if mark is None else mark.line + 1
            raise SyntaxMistake(f"is not YAML: {error.problem or error.context}", line=line) from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise SyntaxMistake(f"is not YAML: {' '.join(str(error).split())}") from error
        return self._found

    def _read(self) -> None:
        get: Callable[[], Any] = self._loader.get_event
        plain, handlers = self._plain, self._handlers
        while (event := get()) is not None:
            if type(event) is not events.ScalarEvent:
                if (handler := handlers.get(type(event))) is not None:
                    handler(event)
                continue
            value: Any = event.value
            if event.implicit[0]:
                if value in plain:
                    value = plain[value]
                elif value == _MERGE and type(self._open) is dict and self._key is _NO_KEY:
                    self._key = _MERGED
                    continue
                else:
                    text, value = value, _resolved(value)
                    if len(plain) < _CACHED:
                        plain[text] = value
            elif event.tag is not None:
                value = _tagged(event.tag, value, event)
            if event.anchor is not None:
                self._anchors[event.anchor] = value, 1
            self._add(value, event)

    def _add(self, value: Any, event: Any) -> None:
        """Add a value to the open object or list: as a key, as a value, as an item, or as a document."""
        self._count += 1
        if not self._count % _TICK:
            self._tick(event.start_mark.index / self._length)
        holder = self._open
        if type(holder) is dict:
            key = self._key
            if key is _NO_KEY:
                self._key = value if type(value) is str else _key(value, event)
                if self._key in holder:
                    self._found.note(holder, self._key, event.start_mark.line + 1)
                return
            self._key = _NO_KEY
            if key is _MERGED:
                self._merge(holder, value, event)
            else:
                holder[key] = value
        elif holder is None:
            self._found.values.append(value)
            self._number += value is not None
        else:
            holder.append(value)

    def _merge(self, holder: dict[str, Any], value: Any, event: Any) -> None:
        """Apply `<<: *other` at the end of the object, because its own keys win."""
        others = value if isinstance(value, list) else [value]
        if not all(isinstance(each, dict) for each in others):
            raise _refused("a merge key (<<) needs an object or a list of objects", event)
        self._merges.setdefault(id(holder), []).extend(others)

    def _start_document(self, _event: Any) -> None:
        self._anchors.clear()

    def _start_mapping(self, event: Any) -> None:
        self._start({}, event)

    def _start_sequence(self, event: Any) -> None:
        self._start([], event)

    def _start(self, value: Any, event: Any) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise SyntaxMistake("is nested too deeply", document=self._number + 1)
        self._stack.append((self._open, self._key, self._anchor, self._since))
        self._open, self._key, self._anchor, self._since = value, _NO_KEY, event.anchor, self._count
        if event.anchor is not None:
            self._anchors.pop(event.anchor, None)

    def _end(self, event: Any) -> None:
        value, anchor, size = self._open, self._anchor, self._count - self._since
        for merged in self._merges.pop(id(value), ()):
            for key in merged:
                value.setdefault(key, merged[key])
        self._open, self._key, self._anchor, self._since = self._stack.pop()
        if anchor is not None:
            self._anchors[anchor] = value, size
        self._add(value, event)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise _refused(f"the alias *{event.anchor} has no anchor before it, or stands within it", event)
        value, size = self._anchors[event.anchor]
        self._count += size  # an anchor around this alias counts as much
        self._aliased += size
        if self._aliased > _MAX_ALIASED:
            raise _refused(f"aliases stand for more than {_MAX_ALIASED} values", event)
        self._add(value, event)


def _refused(message: str, event: Any) -> SyntaxMistake:
    return SyntaxMistake(message, line=event.start_mark.line + 1)


def _key(value: Any, event: Any) -> str:
    """Return the key as a string, as JSON has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if not isinstance(value, Hashable) or value is None:
        raise _refused("a key must be a text, a number or a boolean", event)
    return str(value)


def _resolved(text: str) -> Any:
    """Return the value of a plain scalar, as `resolve` of go.yaml.in/yaml/v2."""
    if text[0] not in "+-.0123456789":
        return text
    digits = text.replace("_", "")
    if (match := _INTEGER.fullmatch(digits)) is not None:
        sign, hexadecimal, binary, octal, decimal = match.groups()
        number = (
            int(hexadecimal, 16)
            if hexadecimal
            else int(binary, 2)
            if binary
            else int(octal, 8)
            if octal
            else int(decimal[:400])
        )
        if number < 2**64:
            return -number if sign == "-" else number
    if _FLOAT.fullmatch(digits) is None:
        return text
    value = float(digits)
    return int(value) if value.is_integer() and abs(value) < _WHOLE else value


def _tagged(tag: str, text: str, event: Any) -> Any:
    if not tag.startswith(_TAG):
        return text
    match tag.removeprefix(_TAG):
        case "str" | "timestamp":
            return text
        case "binary":
            try:
                return base64.b64decode("".join(text.split()), validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                raise _refused("!!binary needs base64 of a text", event) from None
        case "int" | "float" | "bool" | "null":
            return _WORDS[text] if text in _WORDS else _resolved(text)
        case _:
            raise _refused(f"the tag {tag} is not known", event)
