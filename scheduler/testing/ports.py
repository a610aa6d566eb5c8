"""Stand-ins for the ports of `framework/ports.py`: a writer that remembers and answers as scripted, a recorder that keeps.

For unit tests of decisions and of plugins; the whole daemon is tested against the in-process API server instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from scheduler.core.decode import Broken
from scheduler.core.pod import Pod, PodCondition


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
        pod: Pod,
        *,
        controller: str,
        type_: str,
        reason: str,
        action: str,
        note: str,
        related: Pod | None = None,
    ) -> None:
        """As the `Recorder` port."""
        self.events.append(Noted(pod.key, type_, reason, action, note, related.key if related is not None else ""))


@dataclass
class ScriptedWriter:
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
