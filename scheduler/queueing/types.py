"""Pods in the queue, and classes of their changes.

What the parts of the queue share: the record of one pod, the view of one profile, the metrics port.

Rules: docs/spec/core.md §1.2. Knows no order, no timing and no events.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.framework.interface import EventHint, PreEnqueuePlugin

SortKey: TypeAlias = tuple[float, ...]


class Place(enum.Enum):
    """Where a pod is; it is in exactly one place. `value` is how /debug/queue prints it."""

    NOWHERE = "nowhere"
    ACTIVE = "active"
    BACKOFF = "backoff"
    ERROR_BACKOFF = "error backoff"
    """After a failure of ours or of the API server: never popped early, the wait protects the API server."""
    WAITING = "unschedulable"
    """Rejected; some event must happen first."""
    GATED = "gated"
    """A PreEnqueue plugin keeps it out."""
    IN_FLIGHT = "in flight"


IN_POOL = frozenset({Place.WAITING, Place.GATED})
IN_BACKOFF = frozenset({Place.BACKOFF, Place.ERROR_BACKOFF})


@dataclass(frozen=True, slots=True)
class QueueProfile:
    """What the queue needs of the plugins of one scheduler name."""

    pre_enqueue: tuple[PreEnqueuePlugin, ...]
    sort_key: Callable[[PodInfo, float], SortKey]
    """`(pod, queued_at)` → smaller is tried first; keys of all profiles must be comparable."""
    hints: Mapping[str, tuple[EventHint, ...]]
    """Plugin name → what can help a pod it rejected. A rejecter that is missing here is woken by everything."""


@dataclass(slots=True, eq=False)
class QueuedPodInfo:
    """The record of one pod, from the first sight until it is bound or gone. Changed by the queue.

    The owner of a failed attempt sets `info`, `unschedulable_plugins` and `pending_plugins` before `requeue`.
    Times are readings of `Clock.now()`.

    Upstream: pkg/scheduler/framework/types.go QueuedPodInfo
    """

    info: PodInfo
    queued_at: float
    """Put into the queue, or returned after the last attempt."""
    attempts: int = 0
    initial_attempt_at: float | None = None
    """First time it could have been tried; time spent gated before does not count."""
    unschedulable_plugins: set[str] = field(default_factory=set)
    pending_plugins: set[str] = field(default_factory=set)
    unschedulable_count: int = 0
    """Attempts that ended in a rejection."""
    consecutive_errors: int = 0
    was_flushed: bool = False
    """Came back because it had waited too long, not because an event promised anything: a hint may be missing."""
    flushed_at: float | None = None
    gating_plugin: str = ""
    backoff_until: int | None = None
    """The second *in* which backing off ends: ready in the next one. None until somebody asks."""
    place: Place = Place.NOWHERE
    order: SortKey = ()
    is_passed_over: bool = False
    """Ready, and in the heap of those that pods of other kinds go before (`fairshare`)."""
    ticket: int = -1
    """Names the live heap entry of this pod; entries with another ticket are dead."""

    @property
    def uid(self) -> str:
        """The API server's id of this very pod."""
        return self.info.pod.metadata.uid

    @property
    def profile(self) -> str:
        """The scheduler name the pod asked for."""
        return self.info.pod.spec.scheduler_name

    @property
    def rejecters(self) -> set[str]:
        """Everybody who said no, now or later; empty after an error."""
        return self.unschedulable_plugins | self.pending_plugins


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A row of /debug/queue."""

    key: str
    place: str
    attempts: int
    plugins: tuple[str, ...]
    deadline: float | None
    """When time alone moves the pod, as `Clock.now()`; None where it does not."""
    nominated_to: str = ""
    """The node whose room counts as the pod's."""
    nominated_by: str = ""
    """`status`, `preemption`, or `derived` from the pod's claims."""


class QueueMetrics(Protocol):
    """What the queue counts (docs/spec/core.md §7.1). Called often: implementations resolve their children once."""

    def incoming(self, queue: str, event: str) -> None:
        """queue_incoming_pods_total; `queue` is active, backoff or unschedulable."""

    def unschedulable(self, plugin: str, profile: str, delta: int) -> None:
        """unschedulable_pods, by +1 or -1."""

    def hint(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        """queueing_hint_execution_duration_seconds; `hint` is Queue, QueueSkip or Error."""

    def point(self, point: str, status: str, profile: str, seconds: float) -> None:
        """framework_extension_point_duration_seconds, of PreEnqueue."""


def pod_changes(old: PodInfo, new: PodInfo) -> list[ClusterEvent]:
    """One event per changed property, or one generic update; about AssignedPod once the pod has a node.

    A bound pod that begins to terminate is also an update of its labels, as upstream does not say: selectors of spread
    constraints select it no longer.

    Upstream: pkg/scheduler/framework/events.go PodSchedulingPropertiesChange
    """
    resource = Resource.ASSIGNED_POD if new.node_name else Resource.UNSCHEDULABLE_POD
    actions = [action for differs, action in _CHECKS if differs(old, new)] or [Action.UPDATE_OTHER]
    if new.node_name and _begins_to_terminate(old, new) and Action.UPDATE_POD_LABEL not in actions:
        actions.append(Action.UPDATE_POD_LABEL)
    return [ClusterEvent(resource, action) for action in actions]


def _labels_differ(old: PodInfo, new: PodInfo) -> bool:
    return old.pod.metadata.labels != new.pod.metadata.labels


def _begins_to_terminate(old: PodInfo, new: PodInfo) -> bool:
    return old.pod.metadata.deletion_timestamp is None and new.pod.metadata.deletion_timestamp is not None


def _requests_shrank(old: PodInfo, new: PodInfo) -> bool:
    nothing = -1  # a request that is gone is less than one of zero
    return any(new.requests.get(name, nothing) < amount for name, amount in old.requests.items())


def _gates_eliminated(old: PodInfo, new: PodInfo) -> bool:
    return bool(old.pod.spec.scheduling_gates) and not new.pod.spec.scheduling_gates


def _tolerations_differ(old: PodInfo, new: PodInfo) -> bool:
    return len(old.pod.spec.tolerations) != len(new.pod.spec.tolerations)


def _claims_differ(old: PodInfo, new: PodInfo) -> bool:
    """In another order they do: it is not worth sorting what hardly ever changes (docs/spec/dra.md §7.1)."""
    before, now = old.pod.status, new.pod.status
    return (
        before.resource_claim_statuses != now.resource_claim_statuses
        or before.extended_resource_claim_status != now.extended_resource_claim_status
    )


_CHECKS: Final[tuple[tuple[Callable[[PodInfo, PodInfo], bool], Action], ...]] = (
    (_labels_differ, Action.UPDATE_POD_LABEL),
    (_requests_shrank, Action.UPDATE_POD_SCALE_DOWN),
    (_gates_eliminated, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),
    (_tolerations_differ, Action.UPDATE_POD_TOLERATION),
    (_claims_differ, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM),
)
