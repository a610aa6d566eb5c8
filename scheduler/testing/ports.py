"""Stand-ins for the ports of `framework/ports.py`: a writer that remembers and answers as scripted, a recorder that keeps.

For unit tests of decisions and of plugins; the whole daemon is tested against the in-process API server instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from scheduler.core.decode import Broken
from scheduler.core.meta import AnnotatedMetadata
from scheduler.core.pod import Pod, PodCondition
from scheduler.core.resourceclaims import ResourceClaim
from scheduler.core.volumes import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    ObjectRef,
    PersistentVolume,
    PersistentVolumeClaim,
)
from scheduler.testing.claimports import ScriptedClaims


@dataclass(frozen=True, slots=True)
class Noted:
    """An event as a plugin or the cycle recorded it."""

    pod: str
    type_: str
    reason: str
    action: str
    note: str
    related: str = ""


@dataclass
class ListRecorder:
    """Keeps every event in order."""

    events: list[Noted] = field(default_factory=list)

    def event(  # noqa: PLR0913 (an event has that many parts)
        self,
        about: Pod | PersistentVolumeClaim,
        *,
        controller: str,
        type_: str,
        reason: str,
        action: str,
        note: str,
        related: Pod | None = None,
    ) -> None:
        """As the `Recorder` port."""
        self.events.append(Noted(about.key, type_, reason, action, note, related.key if related is not None else ""))


@dataclass
class ScriptedWriter(ScriptedClaims):
    """Succeeds unless told otherwise. `on_bind` may raise, wait, or change `server` first, as a lost answer would."""

    binds: list[tuple[str, str]] = field(default_factory=list)
    conditions: list[tuple[str, PodCondition]] = field(default_factory=list)
    nominations: list[tuple[str, str]] = field(default_factory=list)
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
    """Volume, claim, `marks`: each that was asked for, also those that `on_prebind` refused."""
    selections: list[tuple[str, str | None]] = field(default_factory=list)
    """Claim and node, None for a clearing."""
    on_prebind: Callable[[PersistentVolume, PersistentVolumeClaim], None] | None = None
    on_select: Callable[[PersistentVolumeClaim, str | None], None] | None = None
    """Both may raise, or change `volumes` and `claims` first, as a lost answer would."""

    async def turn(self) -> None:
        """As the `Writer` port."""
        if self.turn_hold is not None:
            await self.turn_hold.wait()

    async def bind(self, pod: Pod, node_name: str) -> None:
        """As the `Writer` port."""
        if self.hold is not None:
            await self.hold.wait()
        self.binds.append((pod.key, node_name))
        if self.on_bind is not None:
            self.on_bind(pod, node_name)

    async def patch_pod_status(
        self, pod: Pod, *, condition: PodCondition | None, nominated_node_name: str | None
    ) -> None:
        """As the `Writer` port."""
        if condition is not None:
            self.conditions.append((pod.key, condition))
        if nominated_node_name is not None:
            self.nominations.append((pod.key, nominated_node_name))

    async def delete_pod(self, pod: Pod) -> None:
        """As the `Writer` port."""
        self.deletions.append(pod.key)
        if self.on_delete is not None:
            self.on_delete(pod)

    async def read_pod(self, namespace: str, name: str) -> Pod | Broken | None:
        """As the `Writer` port."""
        if self.on_read is not None:
            self.on_read()
        return self.server.get(f"{namespace}/{name}")

    async def read_resource_claim(self, namespace: str, name: str) -> ResourceClaim | Broken | None:
        """As the `Writer` port."""
        if self.on_read is not None:
            self.on_read()
        return self.resource_claims.get(f"{namespace}/{name}")

    async def read_resource_claim_at(self, namespace: str, name: str, version: int) -> ResourceClaim | Broken | None:
        """As the `Writer` port."""
        if self.on_read is not None:
            self.on_read()
        return self.resource_claims.at(f"{namespace}/{name}", version)

    # -- volumes -------------------------------------------------------------------------------------------------------

    async def prebind_volume(
        self, volume: PersistentVolume, claim: PersistentVolumeClaim, *, marks: bool
    ) -> PersistentVolume | Broken:
        """As the `Writer` port."""
        self.prebinds.append((volume.key, claim.key, marks))
        if self.on_prebind is not None:
            self.on_prebind(volume, claim)
        metadata = self._next(volume.metadata, {BOUND_BY_CONTROLLER: "yes"} if marks else {})
        ref = ObjectRef(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)
        written = replace(volume, metadata=metadata, spec=replace(volume.spec, claim_ref=ref))
        self.volumes[volume.key] = written
        return written

    async def select_node(self, claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim | Broken:
        """As the `Writer` port."""
        return self._selected(claim, node_name)

    async def clear_selected_node(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim | Broken:
        """As the `Writer` port."""
        return self._selected(claim, None)

    async def read_volume(self, name: str) -> PersistentVolume | Broken | None:
        """As the `Writer` port."""
        if self.on_read is not None:
            self.on_read()
        return self.volumes.get(name)

    async def read_claim(self, namespace: str, name: str) -> PersistentVolumeClaim | Broken | None:
        """As the `Writer` port."""
        if self.on_read is not None:
            self.on_read()
        return self.claims.get(f"{namespace}/{name}")

    async def claim_written_by(self, namespace: str, name: str) -> str | None:
        """As the `Writer` port."""
        if self.on_read is not None:
            self.on_read()
        return self.owners.get(f"{namespace}/{name}")

    async def last_event(
        self, claim: PersistentVolumeClaim, *, provisioner: str, besides: Collection[str]
    ) -> str | None:
        """As the `Writer` port."""
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
