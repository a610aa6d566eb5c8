"""Read YAML or JSON into plain values with line numbers, write YAML, and convert durations.

Refused: duplicate keys, more than one document, aliases that contain themselves, tags. The YAML 1.1 booleans yes, no,
on, off, y and n are refused unless quoted, because many readers take them for strings. A number is what JSON calls a
number; `010`, `1_000` and `1:30` are strings. Durations are `metav1.Duration`, Go's text form of time.Duration, exact
to the nanosecond up to 100 days. Knows nothing of the schema.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from scheduler.config.errors import ConfigError, ConfigErrors, below

_UNIT_NS: Final = {
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ns": 1,
}
_TERM: Final = re.compile(r"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(h|ms|m|s|us|µs|μs|ns)")
_WHOLE: Final = re.compile(r"[-+]?(?:0|(?:[0-9.]+(?:h|ms|m|s|us|µs|μs|ns))+)")
_MAX_NS: Final = 2**63 - 1


def parse_duration_s(text: str) -> float:
    """Return the seconds of `"1m30s"`: 90.0. Raises ValueError with an example of a duration."""
    if not _WHOLE.fullmatch(text):
        raise ValueError('must be a duration such as "15s" or "1m30s"')
    body = text.lstrip("+-")
    if body == "0":
        return 0.0
    total_ns, at = 0, 0
    while at < len(body):
        term = _TERM.match(body, at)
        if term is None:
            raise ValueError('must be a duration such as "15s" or "1m30s"')
        whole, fraction, unit = term.groups()
        total_ns += int(whole or "0") * _UNIT_NS[unit]
        if fraction:
            total_ns += int(fraction) * _UNIT_NS[unit] // 10 ** len(fraction)
        at = term.end()
    if total_ns > _MAX_NS:
        raise ValueError("is too long for a duration (more than 292 years)")
    return (-total_ns if text.startswith("-") else total_ns) / 1_000_000_000


def format_duration(seconds: float) -> str:
    """Return `"1m30s"` for 90.0, in Go's format."""
    total_ns = round(seconds * 1_000_000_000)
    sign, rest_ns = ("-", -total_ns) if total_ns < 0 else ("", total_ns)
    if rest_ns == 0:
        return "0s"
    if rest_ns < _UNIT_NS["s"]:
        unit = next(u for u in ("ms", "µs", "ns") if rest_ns >= _UNIT_NS[u])
        return f"{sign}{_decimal(rest_ns, _UNIT_NS[unit])}{unit}"
    hours, rest_ns = divmod(rest_ns, _UNIT_NS["h"])
    minutes, rest_ns = divmod(rest_ns, _UNIT_NS["m"])
    text = f"{_decimal(rest_ns, _UNIT_NS['s'])}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else sign + text


def _decimal(amount_ns: int, unit_ns: int) -> str:
    whole, rest = divmod(amount_ns, unit_ns)
    digits = len(str(unit_ns)) - 1
    fraction = f"{rest:0{digits}d}".rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)


DUPLICATE: Final = "duplicate key"
_MAX_NODES: Final = 100_000
_TAG: Final = "tag:yaml.org,2002:"
_WORD: Final = "tag:kubestow.dev,word"


@dataclass(frozen=True, slots=True)
class Document:
    """Plain values of a document. `lines` maps the path of each field and list item to its line, counted from 1.

    `mistakes` has a path and a message for each duplicate key and each refused value; a refused value is read as
    None.
    """

    value: Any
    lines: dict[str, int]
    mistakes: tuple[tuple[str, str], ...] = ()


class _Loader(yaml.SafeLoader):
    """Read YAML 1.2's core types, and recognize the ambiguous words of 1.1."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}


for _tag, _form, _first in (
    (_TAG + "null", r"(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    (_TAG + "bool", r"(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    (_TAG + "int", r"[-+]?(?:0|[1-9][0-9]{0,40})$", list("-+0123456789")),
    (_TAG + "float", r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$", list("-+.0123456789")),
    (_TAG + "merge", r"<<$", ["<"]),
    (_WORD, r"(?:y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF)$", list("yYnNoO")),
):
    _Loader.add_implicit_resolver(_tag, re.compile(_form), _first)


def read_document(text: str) -> Document:
    """Read a document; an empty text is None. Raises ConfigErrors for a syntax error."""
    try:
        nodes = [node for node in yaml.compose_all(_untabbed(text), Loader=_Loader) if not _is_empty(node)]
    except yaml.MarkedYAMLError as broken:
        raise ConfigErrors([_syntax_error(broken)]) from broken
    except yaml.YAMLError as broken:
        raise ConfigErrors([ConfigError("", f"is not YAML: {' '.join(str(broken).split())}")]) from broken
    except RecursionError:
        raise ConfigErrors([ConfigError("", "is nested too deeply")]) from None
    if len(nodes) > 1:
        line = nodes[1].start_mark.line + 1
        raise ConfigErrors([ConfigError("", f"a second document starts in line {line}; one is expected", line=line)])
    walk = _Walk()
    value = walk.value(nodes[0], "") if nodes else None
    return Document(value, walk.lines, tuple(walk.mistakes))


class _Dumper(yaml.SafeDumper):
    """Quote strings that a reader could take for another type."""


for _first_character, _resolvers in _Loader.yaml_implicit_resolvers.items():
    for _tag, _pattern in _resolvers:
        _Dumper.add_implicit_resolver(_tag, _pattern, [_first_character])


def write_document(value: Any) -> str:
    """Return YAML that `read_document` and YAML 1.1 readers read alike. The keys keep their order."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def _untabbed(text: str) -> str:
    """Replace tabs of indentation, which JSON allows and YAML does not. A tab inside a JSON string is always escaped."""
    if "\t" not in text or not text.lstrip().startswith("{"):
        return text
    try:
        json.loads(text)
    except ValueError:
        return text
    return text.replace("\t", " ")


def _is_empty(node: yaml.Node) -> bool:
    """Return whether the node is the empty text after a `---` at the end of a file."""
    return isinstance(node, yaml.ScalarNode) and node.tag == _TAG + "null" and not node.value


def _syntax_error(broken: yaml.MarkedYAMLError) -> ConfigError:
    mark = broken.problem_mark or broken.context_mark
    what = ", ".join(part for part in (broken.context, broken.problem) if part)
    if mark is None:
        return ConfigError("", f"is not YAML: {what}")
    return ConfigError(f"line {mark.line + 1}, column {mark.column + 1}", f"is not YAML: {what}", line=mark.line + 1)


class _Walk:
    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self.mistakes: list[tuple[str, str]] = []
        self._open: set[int] = set()
        self._seen = 0

    def value(self, node: yaml.Node, path: str) -> Any:
        """Return the node as a plain value; None for a mistake, which is recorded."""
        self._seen += 1
        if self._seen > _MAX_NODES:
            raise ConfigErrors([ConfigError("", f"has more than {_MAX_NODES} values")])
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open:
            self.mistakes.append((path, "is an alias of something that contains it"))
            return None
        self._open.add(id(node))
        try:
            return self._collection(node, path)
        finally:
            self._open.discard(id(node))

    def _collection(self, node: yaml.Node, path: str) -> Any:
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(item, below(path, at)) for at, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        self.mistakes.append((path, f"has the YAML tag {node.tag}, which means nothing here"))
        return None

    def _scalar(self, node: yaml.ScalarNode, path: str) -> Any:
        match node.tag.removeprefix(_TAG):
            case "str" | "merge":
                return node.value
            case "null":
                return None
            case "bool":
                return node.value.lower() == "true"
            case "int" | "float" as tag:
                try:
                    number = int(node.value) if tag == "int" else float(node.value)
                except ValueError:
                    number = math.nan
                if not math.isnan(number):
                    return number
                self.mistakes.append((path, f"has the YAML tag {tag}, and is no such number"))
            case "tag:kubestow.dev,word":
                self.mistakes.append(
                    (path, f"the bare word {node.value} is a boolean to some: write true or false, or quote it")
                )
            case tag:
                self.mistakes.append((path, f"has the YAML tag {tag}, which means nothing here"))
        return None

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, child in node.value:
            if key.tag == _TAG + "merge":
                for name, value in self._merged(child, path):
                    merged.setdefault(name, value)
                continue
            if not isinstance(key, yaml.ScalarNode):
                self.mistakes.append((path, "a key must be a word"))
                continue
            at = below(path, key.value)
            if key.value in own:
                self.mistakes.append((at, f"{DUPLICATE} in line {key.start_mark.line + 1}"))
                continue
            self.lines.setdefault(at, key.start_mark.line + 1)
            own[key.value] = self.value(child, at)
        return {**merged, **own}

    def _merged(self, node: yaml.Node, path: str) -> Iterator[tuple[str, Any]]:
        """Yield the merged keys of `<<: *defaults` or `<<: [*a, *b]`.

        Earlier mappings win, and the mapping's own keys win over all.
        """
        for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            value = self.value(source, path)
            if isinstance(value, dict):
                yield from value.items()
            else:
                self.mistakes.append((path, "<< must be followed by mappings"))
