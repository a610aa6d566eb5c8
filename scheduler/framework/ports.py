"""What decisions may ask of the world, as Protocols; `app` plugs in the real things (architecture, law 1)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Protocol

from scheduler.cache.cluster import Cluster
from scheduler.config.args import KubestowArgs
from scheduler.core.clock import Clock
from scheduler.core.decode import Broken
from scheduler.core.errors import Unavailable
from scheduler.core.pod import Pod, PodCondition
from scheduler.framework.preempting import Preempting


class Writer(Protocol):
    """The cluster's write side. Every call raises the types of `scheduler.core.errors`."""

    async def turn(self) -> None:
        """Wait until one more binding or deletion may be sent (clientConnection.qps). Nothing is written: may be cancelled."""

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Bind with the pod's uid as precondition, after a `turn` of its own.

        `Ambiguous` means: read the pod before deciding anything. `TooManyRequests` is not waited out here, because what
        was decided grows old: take another turn and look again.
        """

    async def patch_pod_status(
        self, pod: Pod, *, condition: PodCondition | None, nominated_node_name: str | None
    ) -> None:
        """Set one condition and/or the nomination ("" clears, None leaves alone)."""

    async def delete_pod(self, pod: Pod) -> None:
        """Delete gracefully, this very pod and no namesake (`Conflict`), after a `turn` of its own.

        As `bind` it is never repeated: take another turn and look whether the pod still has to go. `NotFound` when it is
        gone, as it may be after `Ambiguous` too.
        """

    async def read_pod(self, namespace: str, name: str) -> Pod | Broken | None:
        """The newest state; None when the pod is gone."""


class Recorder(Protocol):
    """Events for users. Never blocks, never raises, may drop."""

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
        """`controller` is the profile's schedulerName; `note` is cut to 1024 bytes."""


@dataclass(frozen=True, slots=True)
class Handle:
    """Given to every plugin's constructor beside its arguments."""

    cluster: Cluster
    writer: Writer
    recorder: Recorder
    clock: Clock
    scheduler_name: str = ""
    scheduler_names: frozenset[str] = frozenset()
    """Of all profiles of this process."""
    ours: KubestowArgs = field(default_factory=KubestowArgs)
    """What the profile does otherwise than upstream."""
    preempting: Preempting = field(default_factory=Preempting)
    chance: random.Random = field(default_factory=random.Random)


class Unplugged:
    """Both ports where there is no cluster: plugins are made to be looked at, and nothing may be written."""

    async def turn(self) -> None:
        """At once."""

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Raises Unavailable."""
        raise Unavailable(f"no cluster to bind {pod.key} in")

    async def patch_pod_status(
        self, pod: Pod, *, condition: PodCondition | None, nominated_node_name: str | None
    ) -> None:
        """Raises Unavailable."""
        raise Unavailable(f"no cluster to patch {pod.key} in")

    async def delete_pod(self, pod: Pod) -> None:
        """Raises Unavailable."""
        raise Unavailable(f"no cluster to delete {pod.key} from")

    async def read_pod(self, namespace: str, name: str) -> Pod | Broken | None:
        """Raises Unavailable."""
        raise Unavailable(f"no cluster to read {namespace}/{name} from")

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
        """Nobody listens."""
