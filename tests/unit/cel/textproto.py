"""Just enough of protocol buffers' text format to read cel-spec's test files; no schema is known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

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
    """The message that the text is."""
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
                value, at = _value(tokens, at)
                found.setdefault(name, []).append(value)
            at += 1
        else:
            value, at = _value(tokens, at)
            found.setdefault(name, []).append(value)
    return found, at + 1


def _value(tokens: list[str], at: int) -> tuple[Message | bytes | str, int]:
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
