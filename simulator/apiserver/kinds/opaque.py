"""Parameters of drivers, and `data` that drivers write about devices: JSON whose bytes the server keeps.

A PUT or POST stores the bytes that were sent. Answers show them without spaces and with `<`, `>`, `&`, U+2028 and U+2029
escaped, and a patch is applied to that form. A merge patch sorts the parameters that it brings and drops their nulls. A
strategic merge patch does the same, and writes the parameters of the whole object in Go's order and with Go's numbers.
Immutable fields are compared byte by byte, so a claim with spaces in its parameters takes no patch at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import msgspec

from simulator.apiserver.resources import DEVICES, ApiResource

_KINDS: Final = frozenset({"resourceclaims", "resourceclaimtemplates", "deviceclasses"})
_NAMED: Final = re.compile(r'"(?:parameters|data)"[ \t\r\n]*:[ \t\r\n]*')
_KEEPS_FIELDS: Final = 38
_SPACES: Final = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+')
_MARK: Final = "\0opaque "
_AS_GO_ESCAPES: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
_LARGE: Final = 1e21
_SMALL: Final = 1e-6


def has_opaque(resource: ApiResource) -> bool:
    """Whether objects of this kind have parameters."""
    return resource.group == DEVICES and resource.name in _KINDS


def decoded(body: bytes) -> Any:
    """Return the JSON with parameters and `data` of devices as `msgspec.Raw`. Raises as `msgspec.json.decode`."""
    if b'"parameters"' not in body and b'"data"' not in body:
        return msgspec.json.decode(body)
    try:
        text, found = body.decode(), list[str]()
        return _restored(msgspec.json.decode(_marked(text, found)), found)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None


def _marked(text: str, found: list[str]) -> bytes:
    """Return the text with marks in place of the values, which go to `found`."""
    whole, at = [], 0
    decoder = json.JSONDecoder(strict=False)
    while (name := _NAMED.search(text, at)) is not None:
        _, end = decoder.raw_decode(text, name.end())
        whole += [text[at : name.end()], json.dumps(f"{_MARK}{len(found)}")]
        found.append(text[name.end() : end])
        at = end
    return "".join([*whole, text[at:]]).encode()


def _restored(value: Any, found: list[str], *, is_opaque: bool = False) -> Any:
    if isinstance(value, dict):
        of_driver = "driver" in value
        return {
            key: _restored(item, found, is_opaque=of_driver and key in {"parameters", "data"})
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_restored(item, found) for item in value]
    if isinstance(value, str) and value.startswith(_MARK):
        text = found[int(value.removeprefix(_MARK))].encode()
        return msgspec.Raw(text) if is_opaque and text.startswith(b"{") else msgspec.json.decode(text)
    return value


def each(value: Any, change: Callable[[bytes], bytes]) -> Any:
    """Return the object or patch, with what is opaque in it changed."""
    if isinstance(value, dict):
        return {key: each(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [each(item, change) for item in value]
    return msgspec.Raw(change(bytes(value))) if isinstance(value, msgspec.Raw) else value


def plain(resource: str, obj: Any) -> Any:
    """Return a stored object of this kind without raw JSON, for callers in this process."""
    if resource not in _KINDS:
        return obj
    body = msgspec.json.encode(obj)
    return msgspec.json.decode(body) if b'"parameters"' in body or b'"data"' in body else obj


def before_patch(obj: Any, patch: Any, *, is_strategic: bool, minor: int) -> tuple[Any, Any]:
    """Return the object and the patch as the patch is applied; a list is a JSON patch.

    From 1.38 on a strategic patch keeps the bytes of each field of the object that it does not name.
    """
    if is_strategic:
        kept = {name: part for name, part in obj.items() if name not in patch} if minor >= _KEEPS_FIELDS else {}
        return each(obj, as_go_writes) | kept, each(patch, lambda raw: as_go_writes(as_merged(raw)))
    return each(obj, as_answered), each(patch, as_answered if isinstance(patch, list) else as_merged)


def as_answered(raw: bytes) -> bytes:
    """Return the bytes as JSON shows them: numbers, escapes and order stay."""
    return _SPACES.sub(r"\1", raw.decode()).translate(_AS_GO_ESCAPES).encode()


def as_merged(raw: bytes) -> bytes:
    """Return the bytes as a merge patch that brings them stores them: numbers and strings stay as they are."""
    return as_answered(_merged(msgspec.Raw(raw)))


def _merged(raw: msgspec.Raw) -> bytes:
    first = bytes(raw).lstrip()[:1]
    if first == b"{":
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        kept = {name: msgspec.Raw(_merged(fields[name])) for name in sorted(fields) if bytes(fields[name]) != b"null"}
        return msgspec.json.encode(kept)
    if first == b"[":
        return msgspec.json.encode(
            [msgspec.Raw(_merged(item)) for item in msgspec.json.decode(raw, type=list[msgspec.Raw])]
        )
    return bytes(raw)


def as_go_writes(raw: bytes) -> bytes:
    """Return the bytes as Go writes a map: sorted, with numbers and strings in the form of Go."""
    return _written(json.loads(raw)).translate(_AS_GO_ESCAPES).encode()


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_written(name)}:{_written(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return _float(float(value))
    return _float(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _float(value: float) -> str:
    """Digits as Python's, which are the fewest too; an exponent only where Go writes one."""
    text = repr(value).removesuffix(".0")
    if not value or _SMALL <= abs(value) < _LARGE:
        return f"{Decimal(text):f}"
    digits, _, exponent = text.partition("e")
    return f"{digits}e{int(exponent):+d}"
