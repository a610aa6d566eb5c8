"""Claims in protobuf, changed in single fields, for claims that the server takes no patch of.

The server applies a patch to a claim's JSON, which has no spaces and escapes `<`. Parameters that are stored otherwise, as
Python's JSON encoder writes them, change by that and are immutable. In protobuf they are bytes, read and written unchanged.
Field numbers are those of k8s.io/api/resource, the same in v1, v1beta2 and v1beta1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.protobuf import enclosed, every, first, message, opened, with_every, with_message
from scheduler.core.resourceclaims import FINALIZER, ConsumerReference, ResourceClaim

_METADATA, _STATUS = 1, 3
_UID, _RESOURCE_VERSION, _FINALIZERS = 5, 6, 14
_RESERVED_FOR: Final = 2
_API_GROUP, _RESOURCE, _NAME, _USER_UID = 1, 3, 4, 5
Change: TypeAlias = Callable[[bytes], bytes]
"""From a claim in its envelope to the claim as it is to be. Raises ValueError for what cannot be read."""


class Seen(NamedTuple):
    """What a precondition looks at."""

    uid: str
    resource_version: str


def seen(envelope: bytes) -> Seen:
    """Raises ValueError."""
    metadata = first(opened(envelope), _METADATA)
    return Seen(first(metadata, _UID).decode(), first(metadata, _RESOURCE_VERSION).decode())


def needs_exact_writes(claim: ResourceClaim) -> bool:
    """Whether the claim may have parameters, or data of drivers, that a patch would change."""
    allocation = claim.status.allocation
    passed_on = allocation.devices.config if allocation is not None else ()
    opaque = [*(config.opaque for config in claim.spec.devices.config), *(config.opaque for config in passed_on)]
    return bool(claim.status.devices) or any(each is not None for each in opaque)


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
