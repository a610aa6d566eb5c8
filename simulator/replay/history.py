"""The first reading of a recording: when each pod arrived, started and ended, and the state at the beginning.

Of what the recorded scheduler did, only times are kept. A replay needs to know in advance how long a pod runs once it has
a node, and that is known at its end only. So the file is read twice: here, and event by event while it is replayed.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, Final

from scheduler.api.resource_v1 import EXTENDED_RESOURCE_CLAIM
from simulator.replay.recording import ObjectEvent, RecordingHeader, RecordingReader
from simulator.simulate.input.sources import InputError
from simulator.workloads.pods import controller_of

Object = dict[str, Any]

PODS_MAX: Final = 5_000_000
"""Pods of a recording: each takes about 400 bytes for the whole replay."""
PRESENT_MAX: Final = 500_000
"""Objects that exist at the beginning."""


@dataclass(slots=True)
class PodHistory:
    """One pod of the recording. Times are seconds since the start."""

    scheduler_name: str
    arrived_s: float
    bound_s: float | None = None
    ended_s: float | None = None
    failed_s: float | None = None
    """When it failed or its deletion began, so that its controller replaces it; None if it did not, or succeeded before."""
    node: str = ""
    controller: str = ""
    """The uid of its controller; "" without one."""
    was_bound: bool = False
    """Whether the pod had a node when the recording began."""
    claim_statuses: list[Object] = field(default_factory=list)
    """`status.resourceClaimStatuses`: the names of claims that were made for it."""
    claims: list[bytes] = field(default_factory=list)
    """The claims that were made for it."""

    @property
    def run_s(self) -> float | None:
        """Return how long the pod ran on its node; None if it never had a node, or had one until the end."""
        if self.bound_s is None or self.ended_s is None:
            return None
        return self.ended_s - self.bound_s


@dataclass(slots=True)
class History:
    """What is known of a recording before its replay."""

    header: RecordingHeader
    duration_s: float
    events: int
    is_cut_short: bool
    present: dict[tuple[str, str, str], ObjectEvent]
    """The first state, by kind, namespace and name."""
    pods: dict[str, PodHistory]
    """By uid."""
    kinds: frozenset[str]
    """Kinds of which the recording has objects."""
    arrivals: dict[str, list[float]]
    """The uid of a controller → when its pods arrived, ascending."""

    def replaced_s(self, uid: str) -> float | None:
        """Return when the next pod of the same controller arrived after this one had failed; None if none did."""
        pod = self.pods[uid]
        if pod.failed_s is None:
            return None
        arrivals = self.arrivals.get(pod.controller, ())
        at = bisect_left(arrivals, pod.failed_s)
        return arrivals[at] if at < len(arrivals) else None

    def is_free(self, uid: str, scheduler_names: Container[str]) -> bool:
        """Return whether the replay finds a node for the pod: it names one of the schedulers and had no node at first."""
        pod = self.pods.get(uid)
        return pod is not None and not pod.was_bound and pod.scheduler_name in scheduler_names

    def by_scheduler(self) -> Counter[str]:
        """Return the number of pods without a node at the beginning, by scheduler name."""
        return Counter(pod.scheduler_name for pod in self.pods.values() if not pod.was_bound)


def read_history(path: str) -> History:
    """Read a whole recording once. O(events) time; memory for the first state, and 400 bytes for each pod.

    Raises InputError for a file that is no recording, or whose events contradict each other.
    """
    reader = RecordingReader(path)
    present: dict[tuple[str, str, str], ObjectEvent] = {}
    pods: dict[str, PodHistory] = {}
    early: dict[str, list[bytes]] = {}  # a claim may come before its pod: they are watched by different streams
    kinds, count, is_first = set[str](), 0, True
    for event in reader.events():
        if event is None:
            is_first = False
            continue
        count += 1
        kinds.add(event.kind)
        if is_first:
            _apply(present, event)
            if len(present) > PRESENT_MAX:
                raise InputError(f"{path}: {event}: the first state has more than {PRESENT_MAX} objects")
        if event.kind == "Pod":
            _pod(pods, event, early, is_first=is_first)
            if len(pods) > PODS_MAX:
                raise InputError(f"{path}: {event}: the recording has more than {PODS_MAX} pods")
        elif event.kind == "ResourceClaim" and event.type == "ADDED":
            _claim(pods, event, early)
    arrivals: dict[str, list[float]] = {}
    for pod in pods.values():
        if pod.controller:
            arrivals.setdefault(pod.controller, []).append(pod.arrived_s)
    return History(
        reader.header, reader.duration_s, count, reader.is_cut_short, present, pods, frozenset(kinds), arrivals
    )


def _apply(present: dict[tuple[str, str, str], ObjectEvent], event: ObjectEvent) -> None:
    if event.type == "DELETED":
        present.pop(event.key, None)
    else:
        present[event.key] = event


def _pod(pods: dict[str, PodHistory], event: ObjectEvent, early: dict[str, list[bytes]], *, is_first: bool) -> None:
    pod = pods.get(event.uid)
    if event.type == "DELETED":
        if pod is not None and pod.ended_s is None:
            pod.ended_s = event.at_s
            pod.failed_s = event.at_s if pod.failed_s is None else pod.failed_s
        return
    obj = event.value()
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if pod is None:
        pod = pods[event.uid] = PodHistory(spec.get("schedulerName") or "default-scheduler", event.at_s)
        pod.claims += early.pop(event.uid, ())
        if (controller := controller_of(obj)) is not None:
            pod.controller = sys.intern(controller["uid"])
    if spec.get("nodeName") and pod.bound_s is None:
        pod.bound_s, pod.was_bound, pod.node = event.at_s, is_first, sys.intern(spec["nodeName"])
    phase, is_deleting = status.get("phase"), obj["metadata"].get("deletionTimestamp") is not None
    if pod.ended_s is None and pod.failed_s is None and (phase == "Failed" or (is_deleting and phase != "Succeeded")):
        pod.failed_s = event.at_s
    if phase in {"Succeeded", "Failed"} and pod.ended_s is None:
        pod.ended_s = event.at_s
    if statuses := status.get("resourceClaimStatuses"):
        pod.claim_statuses = statuses


def _claim(pods: dict[str, PodHistory], event: ObjectEvent, early: dict[str, list[bytes]]) -> None:
    obj = event.value()
    if is_made_by_scheduler(obj):
        return
    for uid in pod_owners(obj):
        (pods[uid].claims if uid in pods else early.setdefault(uid, [])).append(event.raw)


def pod_owners(obj: Object) -> list[str]:
    """Return the uids of the pods that own the object."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return [str(each.get("uid")) for each in owners if each.get("kind") == "Pod"]


def is_made_by_scheduler(claim: Object) -> bool:
    """Return whether a scheduler made the claim, for extended resources of a pod."""
    return EXTENDED_RESOURCE_CLAIM in (claim["metadata"].get("annotations") or {})
