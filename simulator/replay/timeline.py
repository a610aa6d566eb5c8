"""When each pod arrived, was refused, got a node and ended, and the decisions in their order.

Like `utilization`, it follows the writes of the API server of a replay, or the events of a recording.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from scheduler.api.apps_and_policy import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER
from simulator.replay.utilization import Steps

Object: TypeAlias = dict[str, Any]
Verb: TypeAlias = Literal["bound", "refused", "nominated", "preempted", "rejected"]

VERBS: Final[tuple[Verb, ...]] = ("bound", "refused", "nominated", "preempted", "rejected")
_SCHEDULED: Final = "PodScheduled"
_UNSCHEDULABLE: Final = "Unschedulable"
_OUT_OF: Final = "OutOf"


class Decided(NamedTuple):
    """One decision. `detail` is the node of a bound or nominated pod, and the reason of a refused one."""

    at_s: float
    pod: str
    verb: Verb
    detail: str


@dataclass(slots=True)
class PodTimes:
    """One pod of the schedulers that are replayed. Times are seconds since the start of the recording."""

    pod: str
    arrived_s: float | None
    """When it could be scheduled for the first time; None while it is gated."""
    bound_s: float | None = None
    node: str = ""
    ended_s: float | None = None
    refusals: int = 0
    """Different reasons in a row for which it was not scheduled."""
    message: str = ""
    """The last reason."""
    nominated: str = ""
    is_preempted: bool = False

    @property
    def waited_s(self) -> float | None:
        """Return the time from its arrival to its Binding; None without one."""
        if self.bound_s is None or self.arrived_s is None:
            return None
        return self.bound_s - self.arrived_s

    @property
    def is_waiting(self) -> bool:
        """Return whether it could be scheduled, exists and has no node."""
        return self.arrived_s is not None and self.bound_s is None and self.ended_s is None


@dataclass(slots=True)
class Timeline:
    """Call `observe` for each change, in order, then `finish` once. `is_replayed` says which pods count."""

    duration_s: float
    intervals: int
    is_replayed: Callable[[Object], bool]
    pods: dict[str, PodTimes] = field(default_factory=dict)
    """By uid."""
    decisions: list[Decided] = field(default_factory=list)
    counts: dict[str, list[int]] = field(default_factory=dict)
    """`arrived` and each verb → their number in each interval."""
    waiting: Steps = field(init=False)
    """Pods that could be scheduled and had no node."""

    def __post_init__(self) -> None:
        """Start with empty intervals."""
        self.waiting = Steps(self.duration_s / self.intervals, [0.0] * self.intervals)
        self.counts = {name: [0] * self.intervals for name in ("arrived", *VERBS)}

    def observe(self, at_s: float, type_: str, resource: str, obj: Object) -> None:
        """Record one change. `obj` of a deletion needs its metadata only."""
        if resource != "pods":
            return
        metadata = obj["metadata"]
        times = self.pods.get(metadata["uid"])
        if type_ == "DELETED":
            if times is not None and times.ended_s is None:
                self._ended(at_s, times)
            return
        if times is None:
            if not self.is_replayed(obj):
                return
            times = self.pods[metadata["uid"]] = PodTimes(f"{metadata['namespace']}/{metadata['name']}", None)
        if times.ended_s is None:
            self._pod(at_s, times, obj["spec"], obj.get("status") or {})

    def finish(self) -> None:
        """Let the time pass until the end."""
        self.waiting.advance(self.duration_s)

    def waits_s(self) -> list[float]:
        """Return the waiting times of pods that got a node, the shortest first."""
        return sorted(each.waited_s for each in self.pods.values() if each.waited_s is not None)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _pod(self, at_s: float, times: PodTimes, spec: Object, status: Object) -> None:
        if times.arrived_s is None and not spec.get("schedulingGates"):
            times.arrived_s = at_s
            self._count(at_s, "arrived")
            self.waiting.add(at_s, 1)
        node = spec.get("nodeName") or ""
        if node and times.bound_s is None:
            times.bound_s, times.node = at_s, node
            self.waiting.add(at_s, -1)
            self._decided(at_s, times, "bound", node)
        conditions = {each.get("type"): each for each in status.get("conditions") or ()}
        if not node:
            self._unplaced(at_s, times, status, conditions.get(_SCHEDULED) or {})
        if status.get("phase") in {"Failed", "Succeeded"}:
            if str(status.get("reason") or "").startswith(_OUT_OF):
                self._decided(at_s, times, "rejected", str(status["reason"]))
            self._ended(at_s, times)
        target = conditions.get(DISRUPTION_TARGET) or {}
        if target.get("reason") == PREEMPTION_BY_SCHEDULER and not times.is_preempted:
            times.is_preempted = True
            self._decided(at_s, times, "preempted", times.node)

    def _unplaced(self, at_s: float, times: PodTimes, status: Object, scheduled: Object) -> None:
        message = str(scheduled.get("message") or "")
        if scheduled.get("reason") == _UNSCHEDULABLE and message != times.message:
            times.message = message
            times.refusals += 1
            self._decided(at_s, times, "refused", message)
        nominated = str(status.get("nominatedNodeName") or "")
        if nominated and nominated != times.nominated:
            self._decided(at_s, times, "nominated", nominated)
        times.nominated = nominated

    def _ended(self, at_s: float, times: PodTimes) -> None:
        if times.is_waiting:
            self.waiting.add(at_s, -1)
        times.ended_s = at_s

    def _decided(self, at_s: float, times: PodTimes, verb: Verb, detail: str) -> None:
        self.decisions.append(Decided(at_s, times.pod, verb, detail))
        self._count(at_s, verb)

    def _count(self, at_s: float, name: str) -> None:
        interval = min(int(at_s / self.waiting.width_s), self.intervals - 1)
        self.counts[name][interval] += 1


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile of ascending numbers; 0 without any."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def distribution(ordered: Sequence[float], bounds: Sequence[float]) -> Iterator[tuple[float, int]]:
    """Yield each bound with the count of numbers that are not above it, as a histogram of Prometheus does."""
    at = 0
    for bound in bounds:
        while at < len(ordered) and ordered[at] <= bound:
            at += 1
        yield bound, at
