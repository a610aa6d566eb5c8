"""Leases as they are read and written (coordination.k8s.io/v1).

Times stay the texts they are: they are written for people and never compared, because clocks differ.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec

from scheduler.core import apijson
from scheduler.core.errors import Ambiguous, Unavailable
from scheduler.core.meta import AnnotatedMetadata, Frozen

LABEL: Final = "kubestow.dev/scheduler-lease"
"""Marks the Lease under which a Kubestow leads."""
NAMES: Final = "kubestow.dev/scheduler-names"
"""The annotation that says which scheduler names it serves, with commas between them."""


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

    metadata: AnnotatedMetadata = AnnotatedMetadata()
    spec: LeaseSpec | None = None

    @property
    def record(self) -> LeaseSpec:
        """The spec; an empty one if somebody created the lease without."""
        return self.spec or _NOBODY


_NOBODY: Final = LeaseSpec()
_LEASE: Final = msgspec.json.Decoder(Lease)
_encode: Final = msgspec.json.Encoder().encode


def new_lease(namespace: str, name: str, spec: LeaseSpec, serves: Collection[str] = ()) -> bytes:
    """The body that creates it, marked with the scheduler names that its holder serves."""
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return _encode({**head, "metadata": {"name": name, "namespace": namespace} | _marks(serves), "spec": spec})


def lease_change(seen: Lease, spec: LeaseSpec, serves: Collection[str] = ()) -> bytes:
    """The merge patch from `seen` to this record and these marks."""
    metadata = {"uid": seen.metadata.uid, "resourceVersion": seen.metadata.resource_version}
    return _encode({"metadata": metadata | _marks(serves), "spec": spec})


def names_in(lease: Lease) -> set[str]:
    """The scheduler names that its holder serves, by its annotation."""
    return set(filter(None, lease.metadata.annotations.get(NAMES, "").split(",")))


def one_of_many(raw: bytes | msgspec.Raw) -> Lease | None:
    """A Lease of a list; None for one that cannot be read."""
    try:
        return apijson.decode(_LEASE, raw)
    except (msgspec.DecodeError, ValueError):
        return None


def _marks(serves: Collection[str]) -> dict[str, Any]:
    return {"labels": {LABEL: "true"}, "annotations": {NAMES: ",".join(sorted(serves))}} if serves else {}


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
