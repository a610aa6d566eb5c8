"""Types of the queue: the record of a pod, the view of a profile, the metrics interface, and pod changes.

Rules: docs/spec/core.md §1.2. This module knows no order, no timing and no queueing of events.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import Action, ClusterEvent, Resource
from scheduler.framework.interface import EventHint, PreEnqueuePlugin

SortKey: TypeAlias = tuple[float, ...]


class Place(enum.Enum):
    """The state of a pod; a pod is in exactly one. `value` is the text in /debug/queue."""

    NOWHERE = "nowhere"
    ACTIVE = "active"
    BACKOFF = "backoff"
    ERROR_BACKOFF = "error backoff"
    """After an error of the scheduler or the API server. It is never popped early, because the wait protects the API
    server."""
    WAITING = "unschedulable"
    """Rejected; the pod waits for an event."""
    GATED = "gated"
    """A PreEnqueue plugin rejects it."""
    IN_FLIGHT = "in flight"


IN_POOL = frozenset({Place.WAITING, Place.GATED})
IN_BACKOFF = frozenset({Place.BACKOFF, Place.ERROR_BACKOFF})


@dataclass(frozen=True, slots=True)
class QueueProfile:
    """The parts of a profile that the queue needs."""

    pre_enqueue: tuple[PreEnqueuePlugin, ...]
    sort_key: Callable[[PodInfo, float], SortKey]
    """`(pod, queued_at)` → sort key. The smallest is tried first; keys of all profiles must be comparable."""
    hints: Mapping[str, tuple[EventHint, ...]]
    """Plugin name → events that can help a pod it rejected. A rejecter that is missing here is woken by all events."""


@dataclass(slots=True, eq=False)
class QueuedPodInfo:
    """The record of one pod, from its first event until it is bound or deleted. Only the queue changes it.

    After a failed attempt, the caller sets `info`, `unschedulable_plugins` and `pending_plugins` before `requeue`.
    Times are readings of `Clock.now()`.

    Upstream: pkg/scheduler/framework/types.go QueuedPodInfo
    """

    info: PodInfo
    queued_at: float
    """When it was put into the queue, or returned after the last attempt."""
    attempts: int = 0
    tried_at: float = 0.0
    """When its last attempt began."""
    initial_attempt_at: float | None = None
    """When it could be tried for the first time; gated time before that does not count."""
    unschedulable_plugins: set[str] = field(default_factory=set)
    pending_plugins: set[str] = field(default_factory=set)
    unschedulable_count: int = 0
    """The number of attempts that ended in a rejection."""
    consecutive_errors: int = 0
    was_flushed: bool = False
    """Whether it returned because it had waited too long, not because of an event: a hint may be missing."""
    flushed_at: float | None = None
    gating_plugin: str = ""
    backoff_until: int | None = None
    """The second *in* which back-off ends; the pod is ready in the next one. None until it is computed."""
    place: Place = Place.NOWHERE
    order: SortKey = ()
    is_passed_over: bool = False
    """Ready, but in the heap of costly pods, which pods of other kinds precede (`FairShare`)."""
    ticket: int = -1
    """The ticket of this pod's valid heap entry; entries with another ticket are dead."""

    @property
    def uid(self) -> str:
        return self.info.pod.metadata.uid

    @property
    def profile(self) -> str:
        """The scheduler name in the pod's spec."""
        return self.info.pod.spec.scheduler_name

    @property
    def rejecters(self) -> set[str]:
        """All plugins that rejected the pod or are pending; empty after an error."""
        return self.unschedulable_plugins | self.pending_plugins


class QueueEntry(msgspec.Struct, frozen=True):
    """One row of /debug/queue."""

    key: str
    place: str
    attempts: int
    plugins: tuple[str, ...]
    deadline: float | None
    """When the pod moves without an event, as `Clock.now()`; None if it does not."""
    nominated_to: str = ""
    """The node on which the pod's requests are counted."""
    nominated_by: str = ""
    """`status`, `preemption`, or `derived` from the pod's claims."""
    retry_s: float | None = None
    """The time until `deadline`."""
    created: str = ""
    """The pod's creationTimestamp."""
    order: SortKey = ()
    """Of the pods in one place with equal deadlines the smallest is tried first."""


def pod_changes(old: PodInfo, new: PodInfo) -> list[ClusterEvent]:
    """Return one event per changed property, or one generic update; for the waiting pod itself until it has a node.

    Unlike upstream, the begin of the termination of a bound pod is also an update of its labels. Selectors of spread
    constraints do not select a terminating pod.

    Upstream: pkg/scheduler/framework/events.go PodSchedulingPropertiesChange
    """
    resource = Resource.ASSIGNED_POD if new.node_name else Resource.TARGET_POD
    actions = [action for differs, action in _CHECKS if differs(old, new)] or [Action.UPDATE_OTHER]
    before, now = old.pod.metadata.deletion_timestamp, new.pod.metadata.deletion_timestamp
    if new.node_name and before is None and now is not None and Action.UPDATE_POD_LABEL not in actions:
        actions.append(Action.UPDATE_POD_LABEL)
    return [ClusterEvent(resource, action) for action in actions]


def _requests_shrank(old: PodInfo, new: PodInfo) -> bool:
    nothing = -1  # a missing request is less than a request of zero
    return any(new.requests.get(name, nothing) < amount for name, amount in old.requests.items())


def _claims_differ(old: PodInfo, new: PodInfo) -> bool:
    """Return whether the claims differ. A different order counts as a difference (docs/spec/dra.md §7.1).

    Sorting is not worth its cost, because the claims hardly ever change.
    """
    before, now = old.pod.status, new.pod.status
    return (
        before.resource_claim_statuses != now.resource_claim_statuses
        or before.extended_resource_claim_status != now.extended_resource_claim_status
    )


_CHECKS: Final[tuple[tuple[Callable[[PodInfo, PodInfo], bool], Action], ...]] = (
    (lambda old, new: old.pod.metadata.labels != new.pod.metadata.labels, Action.UPDATE_POD_LABEL),
    (_requests_shrank, Action.UPDATE_POD_SCALE_DOWN),
    (lambda old, new: _requests_shrank(new, old), Action.UPDATE_POD_SCALE_UP),
    (
        lambda old, new: bool(old.pod.spec.scheduling_gates) and not new.pod.spec.scheduling_gates,
        Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
    ),
    (lambda old, new: len(old.pod.spec.tolerations) != len(new.pod.spec.tolerations), Action.UPDATE_POD_TOLERATION),
    (_claims_differ, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM),
)
