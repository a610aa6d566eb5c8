"""Implementations of the ports of `framework/handle.py` for unit tests of decisions and of plugins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from scheduler.api.core_v1 import ExtendedResourceClaimStatus, Pod, PodCondition
from scheduler.api.decode import Broken
from scheduler.api.meta import AnnotatedMetadata, Metadata, OwnerReference
from scheduler.api.pod_group import AnyPodGroup, PodGroup
from scheduler.api.resource_v1 import (
    EXTENDED_RESOURCE_CLAIM,
    FINALIZER,
    AllocationResult,
    ClaimMetadata,
    ConsumerReference,
    ResourceClaim,
)
from scheduler.api.storage_v1 import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    ObjectRef,
    PersistentVolume,
    PersistentVolumeClaim,
)
from scheduler.core.errors import ApiError, Conflict, Invalid


@dataclass(frozen=True, slots=True)
class Noted:
    pod: str
    type_: str
    reason: str
    action: str
    note: str
    related: str = ""


@dataclass
class ListRecorder:
    events: list[Noted] = field(default_factory=list)

    def event(
        self,
        about: Pod | PersistentVolumeClaim | AnyPodGroup,
        *,
        controller: str,
        type_: str,
        reason: str,
        action: str,
        note: str,
        related: Pod | None = None,
    ) -> None:
        self.events.append(Noted(about.key, type_, reason, action, note, related.key if related is not None else ""))


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
class ScriptedWriter:
    """Records each write, which succeeds. `on_bind` may raise, wait, or change `server` first, as with a lost answer.

    A claim for devices that was not put here is taken as it is given. Like a real server the writer refuses a write for an
    old version, and for an earlier claim of the same name.
    """

    resource_claims: ClaimHistory = field(default_factory=ClaimHistory)
    """What `read_resource_claim` answers, by namespace/name; a write shows here, with a newer resourceVersion."""
    claim_writes: list[tuple[str, str]] = field(default_factory=list)
    """`protect`, `allocate`, `reserve`, `unreserve`, `deallocate`, `create` or `delete`, and the claim, for each
    call, also those that were refused."""
    on_claim: Callable[[str, ResourceClaim], None] | None = None
    """Called with such a pair before the write is carried out. May raise, or change `resource_claims`."""
    on_claim_written: Callable[[str, ResourceClaim], None] | None = None
    """Called with the pair as it is written. May show it to a watch, or raise as a lost answer would."""
    claim_hold: asyncio.Event | None = None
    """When set, a write of a claim waits for it before it is carried out."""
    extended_statuses: list[tuple[str, ExtendedResourceClaimStatus]] = field(default_factory=list)
    """Pod and status."""
    newest: int = 0

    binds: list[tuple[str, str]] = field(default_factory=list)
    conditions: list[tuple[str, PodCondition]] = field(default_factory=list)
    nominations: list[tuple[str, str]] = field(default_factory=list)
    group_conditions: list[tuple[str, PodCondition]] = field(default_factory=list)
    group_errors: list[ApiError] = field(default_factory=list)
    """The next patches of a group fail with these."""
    server: dict[str, Pod | Broken] = field(default_factory=dict)
    """What `read_pod` answers, by namespace/name."""
    on_bind: Callable[[Pod, str], None] | None = None
    on_read: Callable[[], None] | None = None
    deletions: list[str] = field(default_factory=list)
    on_delete: Callable[[Pod], None] | None = None
    """May raise, or show the deletion."""
    hold: asyncio.Event | None = None
    """When set, a bind waits for it before it answers."""

    turn_hold: asyncio.Event | None = None
    """When set, a turn waits for it."""

    volumes: dict[str, PersistentVolume | Broken] = field(default_factory=dict)
    """What `read_volume` answers, by name; a write shows here, with a newer resourceVersion (they are numbers here)."""
    claims: dict[str, PersistentVolumeClaim | Broken] = field(default_factory=dict)
    """What `read_claim` answers, by namespace/name; a write shows here."""
    owners: dict[str, str] = field(default_factory=dict)
    """What `claim_written_by` answers, by namespace/name."""
    events: dict[str, str] = field(default_factory=dict)
    """What `last_event` answers, by namespace/name."""
    asked_events: list[tuple[str, str, frozenset[str]]] = field(default_factory=list)
    """Claim, provisioner, `besides`."""
    on_last_event: Callable[[], None] | None = None
    """May raise."""
    event_hold: asyncio.Event | None = None
    """When set, `last_event` waits for it before it answers."""
    prebinds: list[tuple[str, str, bool]] = field(default_factory=list)
    """Volume, claim, `marks` of each call, also those that `on_prebind` refused."""
    selections: list[tuple[str, str | None]] = field(default_factory=list)
    """Claim and node, None for a clearing."""
    on_prebind: Callable[[PersistentVolume, PersistentVolumeClaim], None] | None = None
    on_select: Callable[[PersistentVolumeClaim, str | None], None] | None = None
    """Both may raise, or change `volumes` and `claims` first, as a lost answer would."""

    @property
    def device_claims(self) -> ScriptedWriter:
        """Return the same object: it has the writes of claims, too."""
        return self

    async def turn(self) -> None:
        if self.turn_hold is not None:
            await self.turn_hold.wait()

    async def bind(self, pod: Pod, node_name: str) -> None:
        if self.hold is not None:
            await self.hold.wait()
        self.binds.append((pod.key, node_name))
        if self.on_bind is not None:
            self.on_bind(pod, node_name)

    async def patch_pod_status(
        self, pod: Pod, *, condition: PodCondition | None, nominated_node_name: str | None
    ) -> None:
        if condition is not None:
            self.conditions.append((pod.key, condition))
        if nominated_node_name is not None:
            self.nominations.append((pod.key, nominated_node_name))

    async def patch_pod_group_status(self, group: PodGroup, condition: PodCondition) -> None:
        if self.group_errors:
            raise self.group_errors.pop(0)
        self.group_conditions.append((group.key, condition))

    async def delete_pod(self, pod: Pod) -> None:
        self.deletions.append(pod.key)
        if self.on_delete is not None:
            self.on_delete(pod)

    async def read_pod(self, namespace: str, name: str) -> Pod | Broken | None:
        if self.on_read is not None:
            self.on_read()
        return self.server.get(f"{namespace}/{name}")

    async def read_resource_claim(self, namespace: str, name: str) -> ResourceClaim | Broken | None:
        if self.on_read is not None:
            self.on_read()
        return self.resource_claims.get(f"{namespace}/{name}")

    async def read_resource_claim_at(self, namespace: str, name: str, version: int) -> ResourceClaim | Broken | None:
        if self.on_read is not None:
            self.on_read()
        return self.resource_claims.at(f"{namespace}/{name}", version)

    # -- claims for devices ----------------------------------------------------------------------------------------------

    async def protect_claim(self, claim: ResourceClaim) -> ResourceClaim | Broken:
        finalizers = (*claim.metadata.finalizers, FINALIZER)
        return await self._write("protect", claim, metadata={"finalizers": tuple(dict.fromkeys(finalizers))})

    async def allocate_claim(
        self, claim: ResourceClaim, allocation: AllocationResult, user: ConsumerReference
    ) -> ResourceClaim | Broken:
        return await self._write("allocate", claim, status={"allocation": allocation, "reserved_for": (user,)})

    async def reserve_claim(self, claim: ResourceClaim, user: ConsumerReference) -> ResourceClaim | Broken:
        rest = tuple(other for other in claim.status.reserved_for if other.uid != user.uid)
        return await self._write("reserve", claim, status={"reserved_for": (*rest, user)})

    async def unreserve_claim(self, claim: ResourceClaim, pod_uid: str) -> ResourceClaim | Broken:
        await self._record("unreserve", claim)
        known = self._known(claim)
        users = tuple(user for user in known.status.reserved_for if user.uid != pod_uid)
        if users == known.status.reserved_for:
            return known
        return self._written("unreserve", known, status={"reserved_for": users})

    async def deallocate_claim(self, claim: ResourceClaim) -> ResourceClaim | Broken:
        gone: dict[str, Any] = {"allocation": None, "reserved_for": (), "devices": ()}
        return await self._write("deallocate", claim, status=gone)

    async def create_claim(self, claim: ResourceClaim, pod: Pod, name: str) -> ResourceClaim | Broken:
        await self._record("create", claim)
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
        await self._record("delete", claim)
        known = self.resource_claims.get(claim.key)
        if known is not None and known.metadata.uid == claim.uid:
            del self.resource_claims[claim.key]
        if self.on_claim_written is not None:
            self.on_claim_written("delete", claim)

    async def set_extended_resource_status(self, pod: Pod, status: ExtendedResourceClaimStatus) -> None:
        self.extended_statuses.append((pod.key, status))

    def next_version(self, metadata: Metadata) -> str:
        """Newer than any before, and than the object's (they are numbers here)."""
        self.newest = max(self.newest, int(metadata.resource_version or "0")) + 1
        return str(self.newest)

    # -- volumes -------------------------------------------------------------------------------------------------------

    async def prebind_volume(
        self, volume: PersistentVolume, claim: PersistentVolumeClaim, *, marks: bool
    ) -> PersistentVolume | Broken:
        self.prebinds.append((volume.key, claim.key, marks))
        if self.on_prebind is not None:
            self.on_prebind(volume, claim)
        metadata = self._next(volume.metadata, {BOUND_BY_CONTROLLER: "yes"} if marks else {})
        ref = ObjectRef(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)
        written = replace(volume, metadata=metadata, spec=replace(volume.spec, claim_ref=ref))
        self.volumes[volume.key] = written
        return written

    async def select_node(self, claim: PersistentVolumeClaim, node_name: str | None) -> PersistentVolumeClaim | Broken:
        return self._selected(claim, node_name)

    async def read_volume(self, name: str) -> PersistentVolume | Broken | None:
        if self.on_read is not None:
            self.on_read()
        return self.volumes.get(name)

    async def read_claim(self, namespace: str, name: str) -> PersistentVolumeClaim | Broken | None:
        if self.on_read is not None:
            self.on_read()
        return self.claims.get(f"{namespace}/{name}")

    async def claim_written_by(self, namespace: str, name: str) -> str | None:
        if self.on_read is not None:
            self.on_read()
        return self.owners.get(f"{namespace}/{name}")

    async def last_event(
        self, claim: PersistentVolumeClaim, *, provisioner: str, besides: Collection[str]
    ) -> str | None:
        self.asked_events.append((claim.key, provisioner, frozenset(besides)))
        if self.event_hold is not None:
            await self.event_hold.wait()
        if self.on_last_event is not None:
            self.on_last_event()
        return self.events.get(claim.key)

    def _selected(self, claim: PersistentVolumeClaim, node_name: str | None) -> PersistentVolumeClaim:
        self.selections.append((claim.key, node_name))
        if self.on_select is not None:
            self.on_select(claim, node_name)
        metadata = self._next(claim.metadata, {SELECTED_NODE: node_name})
        written = replace(claim, metadata=metadata)
        self.claims[claim.key] = written
        if node_name is None:
            self.owners.pop(claim.key, None)
        else:
            self.owners[claim.key] = "kubestow"
        return written

    def _next(self, metadata: AnnotatedMetadata, annotations: Mapping[str, str | None]) -> AnnotatedMetadata:
        """With a newer version and these annotations; None removes one."""
        merged = {key: value for key, value in {**metadata.annotations, **annotations}.items() if value is not None}
        return replace(metadata, resource_version=self.next_version(metadata), annotations=merged)

    async def _record(self, what: str, claim: ResourceClaim) -> None:
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
        await self._record(what, claim)
        known = self._known(claim)
        if known.metadata.resource_version != claim.metadata.resource_version:
            raise Conflict(f"{claim.key} has been modified")
        had, gets = known.status.allocation, (status or {}).get("allocation")
        if (had is None and what == "reserve") or (had is not None and gets not in (None, had)):
            raise Invalid(f"{claim.key} has no devices, or different ones")
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
