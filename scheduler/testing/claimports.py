"""The half of the scripted writer that is about claims for devices: a server of them that fits into a dict.

As a real one it refuses what was decided on from an old version, and what is another claim by now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from scheduler.core.decode import Broken
from scheduler.core.errors import Conflict, Invalid
from scheduler.core.meta import Metadata, OwnerReference
from scheduler.core.pod import ExtendedResourceClaimStatus, Pod
from scheduler.core.resourceclaims import (
    EXTENDED_RESOURCE_CLAIM,
    FINALIZER,
    AllocationResult,
    ClaimMetadata,
    ConsumerReference,
    ResourceClaim,
)


class ClaimHistory(dict[str, "ResourceClaim | Broken"]):
    """Claims by namespace/name, and what they were before."""

    def __init__(self) -> None:
        super().__init__()
        self._past: dict[str, list[tuple[int, ResourceClaim | Broken | None]]] = {}
        self._newest = 0

    def __setitem__(self, key: str, claim: ResourceClaim | Broken) -> None:
        super().__setitem__(key, claim)
        if isinstance(claim, ResourceClaim):
            self._newest = max(self._newest, claim.version)
        self._past.setdefault(key, []).append((self._newest, claim))

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._newest += 1
        self._past.setdefault(key, []).append((self._newest, None))

    def events(self) -> list[tuple[int, str, ResourceClaim | Broken | None]]:
        """Everything that was written, in order, each with its version and what it was written to."""
        return sorted(
            ((then, key, claim) for key, past in self._past.items() for then, claim in past), key=itemgetter(0)
        )

    def at(self, key: str, version: int) -> ResourceClaim | Broken | None:
        """As it was at this version; None if it was not there."""
        return next((claim for then, claim in reversed(self._past.get(key, [])) if then <= version), None)


@dataclass
class ScriptedClaims:
    """Succeeds unless told otherwise. A claim that was not put here is taken to be as it is given."""

    resource_claims: ClaimHistory = field(default_factory=ClaimHistory)
    """What `read_resource_claim` answers, by namespace/name; a write shows here, with a newer resourceVersion."""
    claim_writes: list[tuple[str, str]] = field(default_factory=list)
    """`protect`, `allocate`, `reserve`, `unreserve`, `deallocate`, `create` or `delete`, and the claim: each that was
    asked for, also those that were refused."""
    on_claim: Callable[[str, ResourceClaim], None] | None = None
    """Called with such a pair before the write is carried out. May raise, or change `resource_claims`."""
    on_claim_written: Callable[[str, ResourceClaim], None] | None = None
    """Called with the pair as it is written. May show it to a watch, or raise as a lost answer would."""
    claim_hold: asyncio.Event | None = None
    """When set, a write of a claim waits for it before it is carried out."""
    extended_statuses: list[tuple[str, ExtendedResourceClaimStatus]] = field(default_factory=list)
    """Pod and what was said in its status."""
    newest: int = 0

    async def protect_claim(self, claim: ResourceClaim) -> ResourceClaim | Broken:
        """As the `Writer` port."""
        finalizers = (*claim.metadata.finalizers, FINALIZER)
        return await self._write("protect", claim, metadata={"finalizers": tuple(dict.fromkeys(finalizers))})

    async def allocate_claim(
        self, claim: ResourceClaim, allocation: AllocationResult, user: ConsumerReference
    ) -> ResourceClaim | Broken:
        """As the `Writer` port."""
        return await self._write("allocate", claim, status={"allocation": allocation, "reserved_for": (user,)})

    async def reserve_claim(self, claim: ResourceClaim, user: ConsumerReference) -> ResourceClaim | Broken:
        """As the `Writer` port."""
        others = tuple(other for other in claim.status.reserved_for if other.uid != user.uid)
        return await self._write("reserve", claim, status={"reserved_for": (*others, user)})

    async def unreserve_claim(self, claim: ResourceClaim, pod_uid: str) -> ResourceClaim | Broken:
        """As the `Writer` port."""
        await self._asked("unreserve", claim)
        known = self._known(claim)
        users = tuple(user for user in known.status.reserved_for if user.uid != pod_uid)
        if users == known.status.reserved_for:
            return known
        return self._written("unreserve", known, status={"reserved_for": users})

    async def deallocate_claim(self, claim: ResourceClaim) -> ResourceClaim | Broken:
        """As the `Writer` port."""
        gone: dict[str, Any] = {"allocation": None, "reserved_for": (), "devices": ()}
        return await self._write("deallocate", claim, status=gone)

    async def create_claim(self, claim: ResourceClaim, pod: Pod, name: str) -> ResourceClaim | Broken:
        """As the `Writer` port."""
        await self._asked("create", claim)
        version = self.next_version(Metadata())
        metadata = ClaimMetadata(
            name=name,
            namespace=pod.metadata.namespace,
            uid=f"uid-{version}",
            annotations={EXTENDED_RESOURCE_CLAIM: "true"},
            owner_references=(OwnerReference("v1", "Pod", pod.metadata.name, pod.metadata.uid, controller=True),),
            finalizers=(FINALIZER,),
        )
        if metadata.key in self.resource_claims:
            raise Conflict(f'resourceclaims "{name}" already exists', status=409, reason="AlreadyExists")
        return self._written("create", ResourceClaim(metadata, claim.spec))

    async def delete_claim(self, claim: ResourceClaim) -> None:
        """As the `Writer` port."""
        await self._asked("delete", claim)
        known = self.resource_claims.get(claim.key)
        if known is not None and known.metadata.uid == claim.uid:
            del self.resource_claims[claim.key]
        if self.on_claim_written is not None:
            self.on_claim_written("delete", claim)

    async def set_extended_resource_status(self, pod: Pod, status: ExtendedResourceClaimStatus) -> None:
        """As the `Writer` port."""
        self.extended_statuses.append((pod.key, status))

    def next_version(self, metadata: Metadata) -> str:
        """Newer than any before, and than the object's (they are numbers here)."""
        self.newest = max(self.newest, int(metadata.resource_version or "0")) + 1
        return str(self.newest)

    # -- inside ------------------------------------------------------------------------------------------------------

    async def _asked(self, what: str, claim: ResourceClaim) -> None:
        self.claim_writes.append((what, claim.key))
        if self.claim_hold is not None:
            await self.claim_hold.wait()
        if self.on_claim is not None:
            self.on_claim(what, claim)

    async def _write(
        self,
        what: str,
        claim: ResourceClaim,
        *,
        metadata: dict[str, Any] | None = None,
        status: dict[str, Any] | None = None,
    ) -> ResourceClaim:
        await self._asked(what, claim)
        known = self._known(claim)
        if known.metadata.resource_version != claim.metadata.resource_version:
            raise Conflict(f"{claim.key} has been modified")
        had, gets = known.status.allocation, (status or {}).get("allocation")
        if (had is None and what == "reserve") or (had is not None and gets not in (None, had)):
            raise Invalid(f"{claim.key} has no devices, or others")
        return self._written(what, claim, metadata=metadata, status=status)

    def _known(self, claim: ResourceClaim) -> ResourceClaim:
        """As the server has it; one that only its reader cannot read is as given. Raises Conflict for a namesake."""
        known = self.resource_claims.get(claim.key)
        if known is None or isinstance(known, Broken):
            return claim
        if known.uid != claim.uid:
            raise Conflict(f"{claim.key} is another claim by now")
        return known

    def _written(
        self,
        what: str,
        claim: ResourceClaim,
        *,
        metadata: dict[str, Any] | None = None,
        status: dict[str, Any] | None = None,
    ) -> ResourceClaim:
        written = replace(
            claim,
            metadata=replace(claim.metadata, resource_version=self.next_version(claim.metadata), **(metadata or {})),
            status=replace(claim.status, **(status or {})),
        )
        self.resource_claims[written.key] = written
        if self.on_claim_written is not None:
            self.on_claim_written(what, written)
        return written
