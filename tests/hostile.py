"""Objects that a tenant may have written: every field that is read, with values that no client of good will sends.

The fields come from the typed structs themselves, so a field that is read from now on is attacked from now on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from scheduler.kube.resources import KindSpec

DEEP: Final = 9_990
"""Levels; the API server stores up to 10,000."""
WIDE: Final = 100_000
LONG: Final = 1_400_000
"""Bytes; etcd takes up to 1.5 MiB in one request."""

DEEP_OBJECT: Final = b'{"a":' * DEEP + b"{}" + b"}" * DEEP
DEEP_LIST: Final = b"[" * DEEP + b"]" * DEEP

SMALL: Final[dict[str, bytes]] = {
    "null": b"null",
    "true": b"true",
    "minus one": b"-1",
    "a large number": b"9223372036854775807",
    "a number beyond 64 bits": b"9" * 400,
    "a number with a huge exponent": b"1e400",
    "an empty text": b'""',
    "an unknown word": b'"NoSuchValue"',
    "NUL": b'"a\\u0000b"',
    "a lone surrogate": b'"\\ud800"',
    "an emoji": '"\N{GRINNING FACE}"'.encode(),
    "a quantity with a huge exponent": b'"1e99999"',
    "a quantity with a hugely negative exponent": b'"-1e-99999"',
    "a quantity with many digits": b'"' + b"9" * 5000 + b'.5Ei"',
    "a negative quantity": b'"-5Gi"',
    "an empty list": b"[]",
    "a list of nulls": b"[null,null]",
    "a list of empty objects": b"[{},{}]",
    "an empty object": b"{}",
    "an object with an empty key": b'{"":""}',
    "an object with odd keys": b'{"\\u0000":"","\\ud800":"\\ud800","a/b/c":"d"}',
    "duplicate keys": b'{"a":"1","a":"2"}',
    "a list in a list": b"[[[]]]",
}
"""By what they are."""
LARGE: Final[dict[str, bytes]] = {
    "deep objects": DEEP_OBJECT,
    "deep lists": DEEP_LIST,
    "a long text": b'"' + b"x" * LONG + b'"',
    "a long text of quotes": b'"' + b'\\"' * (LONG // 2) + b'"',
    "many digits": b'"' + b"9" * LONG + b'"',
    "many numbers": b"[" + b",".join([b"1"] * WIDE) + b"]",
    "many empty objects": b"[" + b",".join([b"{}"] * WIDE) + b"]",
    "many keys": b"{" + b",".join(b'"k%d":"v"' % n for n in range(WIDE)) + b"}",
}


_WORDS: Final = {
    "operator": b"In",
    "effect": b"NoSchedule",
    "whenunsatisfiable": b"DoNotSchedule",
    "creationtimestamp": b"2026-01-01T00:00:00Z",
    "timeadded": b"2026-01-01T00:00:00Z",
    "allocationtimestamp": b"2026-01-01T00:00:00Z",
}
"""Texts of fields that do not take any text."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field that is read: where it is, and the object around it without its value."""

    path: str
    before: bytes
    after: bytes
    item: bytes = b""
    """A valid element, where the field is a list or a map."""
    full_item: bytes = b""
    """The same with an element in each list and map inside it."""
    is_map: bool = False

    def many(self, *, full: bool = False) -> bytes:
        """The field's value with as many valid elements as the server stores, all different; empty for other fields."""
        item = self.full_item if full else self.item
        if not item:
            return b""
        size = len(item) + (12 if self.is_map else 8) + 5 * item.count(b'"x"')
        elements = (item.replace(b'"x"', b'"x%d"' % n) for n in range(min(WIDE, LONG // size)))
        if self.is_map:
            return b"{" + b",".join(b'"k%d":%b' % pair for pair in enumerate(elements)) + b"}"
        return b"[" + b",".join(elements) + b"]"

    def inside(self, before: bytes, after: bytes) -> Field:
        """The same field with more around it."""
        return replace(self, before=before + self.before, after=self.after + after)

    def with_value(self, value: bytes) -> bytes:
        """The whole object as JSON."""
        return self.before + value + self.after


def fields(spec: KindSpec, *, name: str, namespace: str = "default", **fixed: str) -> Iterator[Field]:
    """Every field of the kind that is read, in an object that is filled in everywhere else.

    `fixed` are the texts of fields by name, wherever they stand (`nodeName="n1"`); these and the object's identity are
    not attacked.
    """
    identity = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    identity["namespace"] = namespace if spec.namespaced else ""
    root = msgspec.inspect.type_info(spec.typ)
    assert isinstance(root, msgspec.inspect.StructType)
    yield from _of_struct(root, "", _Sample(identity, fixed))


def plain(spec: KindSpec, *, name: str, namespace: str = "default", **fixed: str) -> bytes:
    """The object with nothing hostile in it."""
    first = next(fields(spec, name=name, namespace=namespace, **fixed))
    return first.with_value(b"{}")


_SAMPLES: Final[dict[type, bytes]] = {
    msgspec.inspect.AnyType: b"null",
    msgspec.inspect.BoolType: b"false",
    msgspec.inspect.CustomType: b'"1"',  # a quantity
    msgspec.inspect.DictType: b"{}",
    msgspec.inspect.FloatType: b"1",
    msgspec.inspect.IntType: b"1",
    msgspec.inspect.StructType: b"{}",
}


class _Sample:
    """Fills fields that are not attacked."""

    def __init__(self, identity: dict[str, str], fixed: dict[str, str]) -> None:
        self._identity = identity
        self._fixed = fixed

    def fixed(self, path: str) -> str | None:
        """The text that this field must have, if any."""
        parent, _, last = path.rpartition(".")
        if parent == ".metadata" and last in self._identity:
            return self._identity[last]
        if parent == ".metadata" and last in {"deletionTimestamp", "creationTimestamp"}:
            return ""
        return self._fixed.get(last)

    def of(self, typ: msgspec.inspect.Type, path: str, depth: int = 0, *, full: bool = False) -> bytes:
        """Some value of the type; with an element in each list and map if `full`."""
        found = _parts(typ)
        if (text := self.fixed(path)) is not None:
            return msgspec.json.encode(text or None) if path.endswith("Timestamp") else msgspec.json.encode(text)
        match found:
            case msgspec.inspect.StructType() if depth < 8:
                members = (
                    b'"%b":%b'
                    % (
                        each.encode_name.encode(),
                        self.of(each.type, f"{path}.{each.encode_name}", depth + 1, full=full),
                    )
                    for each in found.fields
                )
                return b"{" + b",".join(members) + b"}"
            case (
                msgspec.inspect.ListType(item_type=item)
                | msgspec.inspect.VarTupleType(item_type=item)
                | msgspec.inspect.SetType(item_type=item)
                | msgspec.inspect.FrozenSetType(item_type=item)
            ) if full and depth < 8:
                return b"[" + self.of(item, f"{path}[]", depth + 1, full=True) + b"]"
            case msgspec.inspect.DictType(value_type=value) if full and depth < 8:
                return b'{"x":' + self.of(value, f"{path}{{}}", depth + 1, full=True) + b"}"
            case msgspec.inspect.StrType():
                return b'"%b"' % _WORDS.get(path.rpartition(".")[2].lower(), b"x")
            case msgspec.inspect.EnumType(cls=cls):
                return msgspec.json.encode(next(iter(cls)))
        return _SAMPLES.get(type(found), b"[]")


def _parts(typ: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """The type itself, or the one it may be apart from None."""
    if isinstance(typ, msgspec.inspect.Metadata):
        return _parts(typ.type)
    if isinstance(typ, msgspec.inspect.UnionType):
        return next(_parts(each) for each in typ.types if not isinstance(each, msgspec.inspect.NoneType))
    return typ


def _of_struct(struct: msgspec.inspect.StructType, path: str, sample: _Sample, depth: int = 0) -> Iterator[Field]:
    for at, member in enumerate(struct.fields):
        here = f"{path}.{member.encode_name}"
        others = [
            b'"%b":%b' % (each.encode_name.encode(), sample.of(each.type, f"{path}.{each.encode_name}"))
            for number, each in enumerate(struct.fields)
            if number != at
        ]
        before = b"{" + b"".join(each + b"," for each in others) + b'"%b":' % member.encode_name.encode()
        for inner in _of_type(member.type, here, sample, depth + 1):
            yield inner.inside(before, b"}")


def _field(typ: msgspec.inspect.Type, path: str, sample: _Sample) -> Field:
    match _parts(typ):
        case (
            msgspec.inspect.ListType(item_type=item)
            | msgspec.inspect.VarTupleType(item_type=item)
            | msgspec.inspect.SetType(item_type=item)
            | msgspec.inspect.FrozenSetType(item_type=item)
        ):
            below = f"{path}[]"
            return Field(path, b"", b"", sample.of(item, below), sample.of(item, below, full=True))
        case msgspec.inspect.DictType(value_type=value):
            below = f"{path}{{}}"
            return Field(path, b"", b"", sample.of(value, below), sample.of(value, below, full=True), is_map=True)
    return Field(path, b"", b"")


def _of_type(typ: msgspec.inspect.Type, path: str, sample: _Sample, depth: int) -> Iterator[Field]:
    if sample.fixed(path) is not None:
        return
    if path != ".metadata":  # no server stores an object without it
        yield _field(typ, path, sample)
    if depth > 12:
        return
    match _parts(typ):
        case msgspec.inspect.StructType() as struct:
            yield from _of_struct(struct, path, sample, depth)
        case (
            msgspec.inspect.ListType(item_type=item)
            | msgspec.inspect.VarTupleType(item_type=item)
            | msgspec.inspect.SetType(item_type=item)
            | msgspec.inspect.FrozenSetType(item_type=item)
        ):
            for inner in _of_type(item, f"{path}[]", sample, depth + 1):
                yield inner.inside(b"[", b"]")
        case msgspec.inspect.DictType(value_type=value):
            for inner in _of_type(value, f"{path}{{}}", sample, depth + 1):
                yield inner.inside(b'{"cpu":', b"}")
