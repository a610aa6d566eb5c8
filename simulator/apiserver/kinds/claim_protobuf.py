"""Claims in Kubernetes' protobuf, for GET and PUT.

The field numbers of a real server are used for what clients change: uid, resourceVersion and finalizers, and the users. All
else is JSON under a number of our own, with parameters as they are stored, and clients pass it on unread.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from scheduler.kube.writes.claim_protobuf import envelope_of, every, first, message, opened
from simulator.apiserver.kinds import opaque
from simulator.apiserver.resources import ApiResource
from simulator.apiserver.status import bad_request

Object = dict[str, Any]
_METADATA, _SPEC, _STATUS = 1, 2, 3
_REST: Final = 1000
_TEXTS: Final = {"name": 1, "namespace": 3, "uid": 5, "resourceVersion": 6}
_FINALIZERS: Final = 14
_RESERVED_FOR: Final = 2
_USER: Final = {"apiGroup": 1, "resource": 3, "name": 4, "uid": 5}


def has_protobuf(resource: ApiResource) -> bool:
    """Return whether objects of this kind are served in protobuf here. A real server has it for all built-in kinds."""
    return resource.name == "resourceclaims"


def encoded(resource: ApiResource, obj: Object) -> bytes:
    """Return the stored object in an envelope."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    parts = _texts(metadata, _TEXTS) + _all(_FINALIZERS, (each.encode() for each in metadata.get("finalizers") or ()))
    parts += _rest(metadata, {*_TEXTS, "finalizers"})
    users = _all(_RESERVED_FOR, (_texts(user, _USER) for user in status.get("reservedFor") or ()))
    claim = message(_METADATA, parts) + message(_SPEC, _rest(obj["spec"], set()))
    claim += message(_STATUS, users + _rest(status, {"reservedFor"}))
    return envelope_of(resource.group_version, resource.kind, claim)


def decoded(body: bytes) -> Object:
    """Return the object in the envelope. Raises `Refused` (400)."""
    try:
        claim = opened(body)
        metadata, spec, status = (first(claim, number) for number in (_METADATA, _SPEC, _STATUS))
        finalizers = [each.decode() for each in every(metadata, _FINALIZERS)]
        users = [_read(each, _USER) for each in every(status, _RESERVED_FOR)]
        return {
            "metadata": _unread(metadata) | _read(metadata, _TEXTS) | {"finalizers": finalizers},
            "spec": _unread(spec),
            "status": _unread(status) | {"reservedFor": users},
        }
    except (ValueError, msgspec.DecodeError) as error:
        raise bad_request(f"unable to decode: {error}") from None


def _texts(obj: Object, numbers: dict[str, int]) -> bytes:
    return b"".join(message(number, obj[name].encode()) for name, number in numbers.items() if obj.get(name))


def _all(number: int, values: Any) -> bytes:
    return b"".join(message(number, value) for value in values)


def _rest(obj: Object, told: set[str]) -> bytes:
    return message(_REST, msgspec.json.encode({name: value for name, value in obj.items() if name not in told}))


def _read(content: bytes, numbers: dict[str, int]) -> Object:
    found = {name: first(content, number).decode() for name, number in numbers.items()}
    return {name: text for name, text in found.items() if text}


def _unread(content: bytes) -> Object:
    rest: Object = opaque.decoded(first(content, _REST))
    return rest
