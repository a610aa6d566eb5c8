"""Follows the pods of a simulation as the API server changes them, at constant cost per change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scheduler.core.clock import Clock
from scheduler.core.disruption import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER
from scheduler.testing.simulate.outcome import Timing


class Tracker:
    """Knows which pods still owe an answer, and when the answers came. `heard` is told every write."""

    def __init__(self, pods: Iterable[str], clock: Clock) -> None:
        self._clock = clock
        self._started = clock.now()
        self._bound: set[str] = set()
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._total_s = 0.0
        self.unsettled = set(pods)
        """Pods that are neither bound nor refused nor gated."""
        self._ours = frozenset(self.unsettled)
        self.preempted: dict[str, dict[str, Any]] = {}
        """Pods that a scheduler evicted, by uid, as they were last seen; those that nobody wanted scheduled included."""

    def start(self) -> None:
        """From here on time counts."""
        self._started = self._clock.now()

    @property
    def answered(self) -> int:
        """How many pods have a node or a reason."""
        return len(self._ours) - len(self.unsettled)

    @property
    def placed(self) -> int:
        """How many pods have a node."""
        return len(self._bound)

    def heard(self, type_: str, resource: str, obj: dict[str, Any]) -> None:
        """One object was written."""
        if resource != "pods":
            return
        metadata = obj["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        if "deletionTimestamp" in metadata and is_preempted(obj):
            self.preempted[metadata["uid"]] = obj
        if key not in self._ours:
            return
        if type_ == "DELETED":
            self._bound.discard(key)
            self.unsettled.discard(key)
        elif obj["spec"].get("nodeName"):
            if key not in self._bound:
                self._bound.add(key)
                self._last_s = self._total_s = self._clock.now() - self._started
                if self._first_s is None:
                    self._first_s = self._last_s
            self.unsettled.discard(key)
        elif _is_refused(obj):
            self.unsettled.discard(key)
            self._total_s = self._clock.now() - self._started
        else:
            self.unsettled.add(key)

    def timing(self) -> Timing:
        """Until the last answer."""
        return Timing(self._first_s, self._last_s, self._total_s)


def is_preempted(pod: dict[str, Any]) -> bool:
    """Whether a scheduler has told the pod that it must go."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c.get("type") == DISRUPTION_TARGET and c.get("reason") == PREEMPTION_BY_SCHEDULER for c in conditions)


def _is_refused(pod: dict[str, Any]) -> bool:
    if pod["spec"].get("schedulingGates"):
        return True
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c.get("type") == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)
