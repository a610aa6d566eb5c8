"""Leases as they are read and written (coordination.k8s.io/v1).

Times stay the texts they are: they are written for people and never compared, because clocks differ.
"""

from __future__ import annotations

from typing import Final

import msgspec

from scheduler.core import apijson
from scheduler.core.errors import Ambiguous, Unavailable
from scheduler.core.meta import Frozen, Metadata


class LeaseSpec(Frozen, frozen=True):
    """Who holds it, and since when; two equal ones are one renewal. A holder that is empty has given it back."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None

    @property
    def holder(self) -> str:
        """Empty when nobody holds it."""
        return self.holder_identity or ""

    @property
    def transitions(self) -> int:
        """How often it changed hands."""
        return self.lease_transitions or 0


class Lease(Frozen, frozen=True):
    """What leader election reads of one."""

    metadata: Metadata = Metadata()
    spec: LeaseSpec | None = None

    @property
    def record(self) -> LeaseSpec:
        """The spec; an empty one if somebody created the lease without."""
        return self.spec or _NOBODY


_NOBODY: Final = LeaseSpec()
_LEASE: Final = msgspec.json.Decoder(Lease)
_encode: Final = msgspec.json.Encoder().encode


def new_lease(namespace: str, name: str, spec: LeaseSpec) -> bytes:
    """The body that creates it."""
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return _encode({**head, "metadata": {"name": name, "namespace": namespace}, "spec": spec})


def lease_change(seen: Lease, spec: LeaseSpec) -> bytes:
    """The merge patch from `seen` to this record."""
    metadata = {"uid": seen.metadata.uid, "resourceVersion": seen.metadata.resource_version}
    return _encode({"metadata": metadata, "spec": spec})


def read_answer(raw: bytes) -> Lease:
    """What a read was answered; `Unavailable` if that is no Lease, as from a proxy in between."""
    try:
        return _lease(raw)
    except (msgspec.DecodeError, ValueError) as error:
        raise Unavailable(f"the answer is no Lease: {error}") from error


def write_answer(raw: bytes) -> Lease:
    """What a write was answered; `Ambiguous` if that is no Lease: it may have been carried out."""
    try:
        return _lease(raw)
    except (msgspec.DecodeError, ValueError) as error:
        raise Ambiguous(f"the answer is no Lease: {error}") from error


def _lease(raw: bytes) -> Lease:
    lease = apijson.decode(_LEASE, raw)
    if not lease.metadata.resource_version:  # a change from it would have no precondition
        raise ValueError("it has no resourceVersion")
    return lease
