"""Read the pods of a contested node just before a Binding (docs/spec/core.md §2.6, docs/adr/0017).

Example: node n1 has 1 CPU left. Kubestow assumes pod p (1 CPU) there, and p fits in the cache. Another scheduler binds
q (1 CPU) to n1. The watch shows q some milliseconds later. Before p is bound, a consistent list says that q is on n1.
The cache does not have q, so the second check counts q as well, and refuses p.

A node is contested if another scheduler has bound a pod in the last minute, to any node. And the largest of its recent
pods does not fit twice on this node. So no request is sent where no other scheduler binds, and none for a
node with more free capacity. A failed read changes nothing: the pod is bound by the cache alone, and reads pause.

One event, such as the end of a pod on a full cluster, makes both schedulers decide on the same node at the same time. So
a read waits first for as long as a Binding takes: the other Binding, if there is one, is in the list then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Final, NamedTuple

import structlog

from scheduler.api.core_v1 import Pod
from scheduler.api.podinfo import PodInfo
from scheduler.context import Shared
from scheduler.core.errors import ApiError, TooManyRequests

_log = structlog.get_logger(__name__)

READ_WITHIN_S: Final = 5.0
"""A Binding waits no longer for a read."""
LONGEST_SETTLE_S: Final = 0.5
"""A Binding waits no longer before a read."""
_JOINED_S: Final = 0.05
"""A read that was sent earlier is too old for another Binding."""
READS_PER_S: Final = 200
"""More Bindings to contested nodes are sent without a read."""
SHOWN_WITHIN_S: Final = 2.0
"""A refused pod waits no longer for the watch: a pod that was deleted at once may never be shown."""
_GLANCE_S: Final = 0.02
FIRST_PAUSE_S: Final = 1.0
"""After a failed read, so that a slow API server gets fewer of them; doubled by each further failure."""
LONGEST_PAUSE_S: Final = 30.0
_PODS_OF_THEIRS: Final = 2
"""A node with capacity for this number of pods of the largest size is not contested."""


class _Read(NamedTuple):
    sent_at: float
    found: asyncio.Future[Sequence[PodInfo]]


@dataclass(eq=False, repr=False)
class ContestedNodes:
    """Find pods that the watch has not shown. Bindings to one node at the same time share one read."""

    shared: InitVar[Shared]
    derive: Callable[[Pod], PodInfo]
    """Is `podinfo.pod_info` with this daemon's switches."""
    _reads: dict[str, _Read] = field(default_factory=dict, init=False)
    """Node name → the running read that was sent last."""
    _binding_s: float = field(default=0.0, init=False)
    _refused: dict[str, PodInfo] = field(default_factory=dict, init=False)
    """By uid."""
    _pause_s: float = field(default=0.0, init=False)
    _paused_until: float = field(default=0.0, init=False)
    _second: float = field(default=0.0, init=False)
    _read_in_second: int = field(default=0, init=False)

    def __post_init__(self, shared: Shared) -> None:
        self._cluster = shared.cluster
        self._writer = shared.writer
        self._inbox = shared.inbox
        self._clock = shared.clock
        self._metrics = shared.metrics

    @property
    def may_be(self) -> bool:
        """Return whether another scheduler has bound a pod lately, so that a node can be contested."""
        return self._cluster.foreign_bindings.largest(self._clock.now()) is not None

    async def unseen(self, info: PodInfo) -> Sequence[PodInfo]:
        """Return the pods on the node of an assumed pod that the API server has and the cache does not.

        It is empty for a node that is not contested, and after a failed read. Sends two requests at most, each of which
        ends within `READ_WITHIN_S`. May be cancelled.
        """
        if self._clock.now() < self._paused_until or not self.is_contested(info):
            return ()
        if self._binding_s:
            await self._clock.sleep(min(self._binding_s, LONGEST_SETTLE_S))
        running = self._reads.get(info.node_name)
        if running is not None and self._clock.now() - running.sent_at < _JOINED_S:
            return await asyncio.shield(running.found)
        return await self._read(info.node_name) if self._may_read() else ()

    def bound(self, seconds: float) -> None:
        """Record how long the API server took for a Binding. The longest time of the last ten or so counts."""
        self._binding_s = max(seconds, 0.9 * self._binding_s)

    async def shown(self, pods: Sequence[PodInfo], refused: PodInfo) -> None:
        """Wait until the watch has shown these pods, at most `SHOWN_WITHIN_S`: the next attempt should count them.

        The refused pod stays assumed for this time. It is in `refused_on`, so that it refuses no other Binding.
        """
        until = self._clock.now() + SHOWN_WITHIN_S
        self._refused[refused.uid] = refused
        try:
            while any(self._is_unknown(info.uid) for info in pods) and self._clock.now() < until:
                await self._clock.sleep(_GLANCE_S)
                self._inbox.catch_up()
        finally:
            del self._refused[refused.uid]

    def refused_on(self, node_name: str) -> list[PodInfo]:
        """Return the assumed pods on this node that were refused and wait for the watch."""
        return [info for info in self._refused.values() if info.node_name == node_name]

    def is_contested(self, info: PodInfo) -> bool:
        """Return whether another scheduler may fill the node before the Binding of this assumed pod. O(requests)."""
        largest = self._cluster.foreign_bindings.largest(self._clock.now())
        slot = None if largest is None else self._cluster.nodes.present_slot(info.node_name)
        if largest is None or slot is None:
            return False
        node = self._cluster.nodes.view(slot)
        if info.host_ports or node.allowed_pods - node.pod_count < _PODS_OF_THEIRS:
            return True
        return any(
            node.allocatable(resource) - node.requested(resource) < _PODS_OF_THEIRS * largest.get(resource, 0)
            for resource in info.requests
        )

    def _may_read(self) -> bool:
        now = self._clock.now()
        if now - self._second >= 1.0:
            self._second, self._read_in_second = now, 0
        self._read_in_second += 1
        return now >= self._paused_until and self._read_in_second <= READS_PER_S

    async def _read(self, node_name: str) -> Sequence[PodInfo]:
        """Read for this Binding and for those that join. They get no pods if this one is cancelled."""
        reading = _Read(self._clock.now(), asyncio.get_running_loop().create_future())
        self._reads[node_name] = reading
        found: Sequence[PodInfo] = ()
        try:
            found = await self._unseen_on(node_name)
        except ApiError as error:
            self._pause(node_name, error)
        finally:
            if self._reads.get(node_name) is reading:
                del self._reads[node_name]
            reading.found.set_result(found)
        return found

    async def _unseen_on(self, node_name: str) -> Sequence[PodInfo]:
        """List the metadata of the node's pods, and whole pods only if the cache lacks one."""
        uids = await self._writer.pod_uids_on(node_name, within_s=READ_WITHIN_S)
        self._pause_s = 0.0
        self._inbox.catch_up()
        if not any(self._is_unknown(uid) for uid in uids):
            self._metrics.node_read("current")
            return ()
        pods = await self._writer.pods_on(node_name, within_s=READ_WITHIN_S)
        self._inbox.catch_up()
        self._metrics.node_read("unseen")
        return [
            self.derive(pod)
            for pod in pods
            if isinstance(pod, Pod) and not pod.is_terminal and self._is_unknown(pod.metadata.uid)
        ]

    def _is_unknown(self, uid: str) -> bool:
        return self._cluster.get(uid) is None and not self._cluster.is_broken(uid)

    def _pause(self, node_name: str, error: ApiError) -> None:
        asked_s = error.retry_after_s if isinstance(error, TooManyRequests) else None
        now = self._clock.now()
        if now >= self._paused_until:  # reads that ran at the same time count once
            self._pause_s = min(max(FIRST_PAUSE_S, 2 * self._pause_s), LONGEST_PAUSE_S)
            self._paused_until = now + max(self._pause_s, asked_s or 0.0)
        self._metrics.node_read("failed")
        _log.warning("pods of a contested node could not be read", node=node_name, error=error.message)
