"""Change single fields of claims in protobuf, for claims whose patches the server refuses.

The server applies a patch to a claim's JSON, which has no spaces and escapes `<`. Parameters with another spelling,
such as that of Python's JSON encoder, change thereby, and they are immutable. In protobuf they are bytes, read and
written unchanged. A message is a list of fields here, so that all other bytes stay. Kubernetes wraps an object into
four bytes and a message with its type. Field numbers are those of k8s.io/api/resource, equal in v1 and v1beta2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from scheduler.api.resource_v1 import FINALIZER, ConsumerReference

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\0"
_TYPE, _OBJECT = 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES: Final = {_FIXED64: 8, _FIXED32: 4}
_VARINT_BYTES_MAX: Final = 10


class Field(NamedTuple):
    """One field. `value` is the content of a string or message, and empty for numbers; `raw` is the whole field."""

    number: int
    value: bytes
    raw: bytes


def opened(envelope: bytes) -> bytes:
    """Return the object in the envelope. Raises ValueError."""
    if not envelope.startswith(_MAGIC):
        raise ValueError("no object in Kubernetes' protobuf")
    return first(envelope[len(_MAGIC) :], _OBJECT)


def enclosed(envelope: bytes, obj: bytes) -> bytes:
    """Return the envelope with another object in it. Raises ValueError."""
    opened(envelope)
    return _MAGIC + with_message(envelope[len(_MAGIC) :], _OBJECT, lambda _: obj)


def envelope_of(api_version: str, kind: str, obj: bytes) -> bytes:
    of_type = message(1, api_version.encode()) + message(2, kind.encode())
    return _MAGIC + message(_TYPE, of_type) + message(_OBJECT, obj)


def fields(content: bytes) -> Iterator[Field]:
    """Yield the fields of a message in order. Raises ValueError for invalid bytes."""
    at = 0
    while at < len(content):
        start = at
        tag, at = _varint(content, at)
        number, wire = tag >> 3, tag & 7
        size = _FIXED_BYTES.get(wire, 0)
        if wire == _BYTES:
            size, at = _varint(content, at)
        elif wire == _VARINT:
            _, at = _varint(content, at)
        elif wire not in _FIXED_BYTES:
            raise ValueError(f"unknown wire type {wire}")
        if not number or at + size > len(content):
            raise ValueError("the message is cut off")
        yield Field(number, content[at : at + size] if wire == _BYTES else b"", content[start : at + size])
        at += size


def first(content: bytes, number: int) -> bytes:
    """Return the string or message with this number; empty without one."""
    return next((each.value for each in fields(content) if each.number == number), b"")


def every(content: bytes, number: int) -> list[bytes]:
    """Return all strings or messages with this number."""
    return [each.value for each in fields(content) if each.number == number]


def message(number: int, value: bytes) -> bytes:
    """Return the field of a string or message."""
    return _as_varint(number << 3 | _BYTES) + _as_varint(len(value)) + value


def with_message(content: bytes, number: int, change: Callable[[bytes], bytes]) -> bytes:
    """Return the content with the message of this number changed; it is added if there is none."""
    parts, is_there = [], False
    for each in fields(content):
        is_this = each.number == number and not is_there
        parts.append(message(number, change(each.value)) if is_this else each.raw)
        is_there |= is_this
    return b"".join(parts) if is_there else b"".join([*parts, message(number, change(b""))])


def with_every(content: bytes, number: int, values: Iterable[bytes]) -> bytes:
    """Return the content with these strings or messages in place of all with this number."""
    kept = b"".join(each.raw for each in fields(content) if each.number != number)
    return kept + b"".join(message(number, value) for value in values)


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return the number and the index after it."""
    value = 0
    for shift, byte in enumerate(content[at : at + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    raise ValueError("the message is cut off")


def _as_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


_METADATA, _STATUS = 1, 3
_UID, _RESOURCE_VERSION, _FINALIZERS = 5, 6, 14
_RESERVED_FOR: Final = 2
_API_GROUP, _RESOURCE, _NAME, _USER_UID = 1, 3, 4, 5
Change: TypeAlias = Callable[[bytes], bytes]
"""A function from a claim in its envelope to the changed claim. Raises ValueError for unreadable bytes."""


def seen(envelope: bytes) -> tuple[str, str]:
    """Return uid and resourceVersion, the fields of the precondition. Raises ValueError."""
    metadata = first(opened(envelope), _METADATA)
    return first(metadata, _UID).decode(), first(metadata, _RESOURCE_VERSION).decode()


def protecting(envelope: bytes) -> bytes:
    """Add the finalizer."""
    return _finalizers(envelope, lambda before: list(dict.fromkeys((*before, FINALIZER.encode()))))


def unprotecting(envelope: bytes) -> bytes:
    """Remove the finalizer."""
    return _finalizers(envelope, lambda before: [each for each in before if each != FINALIZER.encode()])


def reserving(user: ConsumerReference) -> Change:
    """Add the user."""
    parts = ((_API_GROUP, user.api_group), (_RESOURCE, user.resource), (_NAME, user.name), (_USER_UID, user.uid))
    entry = b"".join(message(number, text.encode()) for number, text in parts if text)
    return lambda envelope: _users(envelope, lambda before: [*_without(before, user.uid), entry])


def releasing(pod_uid: str) -> Change:
    """Remove the user."""
    return lambda envelope: _users(envelope, lambda before: _without(before, pod_uid))


def _without(users: list[bytes], uid: str) -> list[bytes]:
    return [user for user in users if first(user, _USER_UID) != uid.encode()]


def _finalizers(envelope: bytes, change: Callable[[list[bytes]], list[bytes]]) -> bytes:
    return _changed(envelope, _METADATA, _FINALIZERS, change)


def _users(envelope: bytes, change: Callable[[list[bytes]], list[bytes]]) -> bytes:
    return _changed(envelope, _STATUS, _RESERVED_FOR, change)


def _changed(envelope: bytes, part: int, number: int, change: Callable[[list[bytes]], list[bytes]]) -> bytes:
    def changed(content: bytes) -> bytes:
        return with_every(content, number, change(every(content, number)))

    return enclosed(envelope, with_message(opened(envelope), part, changed))
