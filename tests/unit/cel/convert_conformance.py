"""cel-spec's conformance cases, made our own data: `python -m tests.unit.cel.convert_conformance DIRECTORY`.

The directory is `tests/simple/testdata` of the Go module cel.dev/expr@v0.25.1 (`go mod download -json`). Run it when
that version changes, and commit what it writes next to this file. Left out: files about protocol buffers, enums,
containers and libraries that Kubernetes does not have, and single cases that need one of these.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

SOURCE = "https://github.com/google/cel-spec v0.25.1, Go module cel.dev/expr@v0.25.1, tests/simple/testdata"
LICENCE = "Apache-2.0, Copyright the CEL authors; converted and shortened"
FILES = (
    *("basic", "bindings_ext", "comparisons", "conversions", "fp_math", "integer_math", "lists", "logic"),
    *("macros", "macros2", "optionals", "parse", "plumbing", "string", "string_ext", "timestamps"),
)
_HERE = Path(__file__).parent / "conformance"
_FOREIGN = re.compile(r"TestAllTypes|GlobalEnum|google\.protobuf|cel\.expr|proto[23]\b|\{single_|enum")
_SCALARS = {
    "null_value": "null",
    "bool_value": "bool",
    "int64_value": "int",
    "uint64_value": "uint",
    "double_value": "double",
    "string_value": "string",
    "bytes_value": "bytes",
    "type_value": "type",
}


class Foreign(Exception):
    """Needs protocol buffers."""


def main() -> None:
    source = Path(sys.argv[1])
    for name in FILES:
        cases = list(_cases(read((source / f"{name}.textproto").read_text())))
        head = f'{{"source": {json.dumps(SOURCE)},\n "licence": {json.dumps(LICENCE)},\n "cases": [\n'
        lines = ",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in cases)
        (_HERE / f"{name}.json").write_text(f"{head}{lines}\n]}}\n")
        sys.stdout.write(f"{name}: {len(cases)}\n")


def _cases(file: Message) -> Iterator[dict[str, Any]]:
    """A name that was there before gets a number."""
    seen: Counter[str] = Counter()
    for section in file["section"]:
        for test in section.get("test", ()):
            name = f"{_text(section['name'])}/{_text(test['name'])}"
            if (case := _case(name, test)) is None:
                continue
            seen[name] += 1
            if seen[name] > 1:
                case["name"] = f"{name} #{seen[name]}"
            yield case


def _case(name: str, test: Message) -> dict[str, Any] | None:
    """None if it is not for us."""
    expression = _text(test["expr"])
    if "container" in test or _FOREIGN.search(expression):
        return None
    case: dict[str, Any] = {"name": name, "expr": expression}
    try:
        if "type_env" in test:
            case["env"] = {_text(each["name"]): _declared(each) for each in test["type_env"]}
        if "bindings" in test:
            case["bindings"] = {_text(each["key"]): _value(each["value"][0]["value"][0]) for each in test["bindings"]}
        if "eval_error" in test:
            case["error"] = _text(test["eval_error"][0]["errors"][0]["message"])
        else:
            case["value"] = _value(test["value"][0]) if "value" in test else ["bool", True]
    except Foreign:
        return None
    if "disable_check" in test:
        case["unchecked"] = True
    return case


def _text(values: list[Any]) -> str:
    (value,) = values
    return str(value, "utf-8")


def _declared(declaration: Message) -> Any:
    if "ident" not in declaration:
        raise Foreign
    return _type(declaration["ident"][0]["type"][0])


def _type(message: Message) -> Any:
    """A name, or a list of a name and parameters."""
    ((kind, (value,)),) = message.items()
    match kind:
        case "primitive" | "well_known":
            return {"INT64": "int", "UINT64": "uint"}.get(value, value.lower())
        case "map_type":
            return ["map", _type(value["key_type"][0]), _type(value["value_type"][0])]
        case "list_type":
            return ["list", _type(value["elem_type"][0])]
        case "dyn" | "null":
            return {"dyn": "dyn", "null": "null_type"}[kind]
        case _:
            raise Foreign


def _value(message: Message) -> list[Any]:
    """`[kind, what JSON can hold of it]`."""
    ((kind, (value,)),) = message.items()
    match kind:
        case "null_value":
            return ["null"]
        case "bool_value":
            return ["bool", value == "true"]
        case "int64_value" | "uint64_value":
            return [_SCALARS[kind], int(value, 0)]
        case "double_value":
            return ["double", value.lower()]
        case "string_value" | "type_value":
            return [_SCALARS[kind], value.decode()]
        case "bytes_value":
            return ["bytes", value.hex()]
        case "list_value":
            return ["list", [_value(each) for each in value.get("values", ())]]
        case "map_value":
            return ["map", [[_value(each["key"][0]), _value(each["value"][0])] for each in value.get("entries", ())]]
        case "object_value":
            return _object(value)
        case _:
            raise Foreign


def _object(message: Message) -> list[Any]:
    ((name, (value,)),) = message.items()
    kind = {"Timestamp": "timestamp", "Duration": "duration"}.get(name.strip("[]").rpartition(".")[2])
    if kind is None:
        raise Foreign
    seconds, nanos = (int(value.get(each, ["0"])[0]) for each in ("seconds", "nanos"))
    return [kind, seconds * 1_000_000_000 + nanos]


if __name__ == "__main__":
    main()


Message: TypeAlias = dict[str, list[Any]]
"""By field, every value in order: another message, bytes for what was quoted, text for the rest."""

_TOKEN = re.compile(
    r"""\s+|\#[^\n]*|("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(\[[\w./]+\]|[\w.+-]+)|([{}:,;\[\]])""", re.DOTALL
)
_ESCAPE = re.compile(
    rb"\\(?:([xX])([0-9a-fA-F]{1,2})|([uU])([0-9a-fA-F]{8}|[0-9a-fA-F]{4})|([0-7]{1,3})|(.))", re.DOTALL
)
_SIMPLE = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def read(text: str) -> Message:
    tokens = list(_tokens(text))
    tokens.append("}")
    message, end = _message(tokens, 0)
    if end != len(tokens):
        raise ValueError(f"token {end} of {len(tokens)} closes what was not open")
    return message


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"not text format: {text[at : at + 40]!r}")
        if match.lastindex is not None and match.group() not in ",;":
            yield match.group()
        at = match.end()


def _message(tokens: list[str], at: int) -> tuple[Message, int]:
    found: Message = {}
    while tokens[at] != "}":
        name = tokens[at]
        at += 1 + (tokens[at + 1] == ":")
        if tokens[at] == "[":
            at += 1
            while tokens[at] != "]":
                value, at = _scalar(tokens, at)
                found.setdefault(name, []).append(value)
            at += 1
        else:
            value, at = _scalar(tokens, at)
            found.setdefault(name, []).append(value)
    return found, at + 1


def _scalar(tokens: list[str], at: int) -> tuple[Message | bytes | str, int]:
    if tokens[at] == "{":
        return _message(tokens, at + 1)
    if tokens[at][0] not in "\"'":
        return tokens[at], at + 1
    pieces = []
    while tokens[at][0] in "\"'":
        pieces.append(_ESCAPE.sub(_unescaped, tokens[at][1:-1].encode()))
        at += 1
    return b"".join(pieces), at


def _unescaped(match: re.Match[bytes]) -> bytes:
    _, hexadecimal, _, code, octal, simple = match.groups()
    if code is not None:
        return chr(int(code, 16)).encode()
    if hexadecimal is not None:
        return bytes((int(hexadecimal, 16),))
    if octal is not None:
        return bytes((int(octal, 8),))
    assert simple is not None
    return _SIMPLE.get(simple, simple)
