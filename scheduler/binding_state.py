"""The state of bindings: one pod on its way to its node, how a binding ends, and bindings with an unknown outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from scheduler.api.podinfo import PodInfo
from scheduler.core.clock import Clock
from scheduler.core.decision_record import DecisionRecord
from scheduler.framework.interface import CycleState
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import FrameworkRunner
from scheduler.framework.status import Rejection, Wait
from scheduler.queue import QueuedPodInfo

_log = structlog.get_logger(__name__)

_LOG_EVERY_S: Final = 60.0
_LONGEST_ERROR: Final = 1024


@dataclass(frozen=True, slots=True)
class PodWatch:
    """What a binding needs from the watch of pods."""

    version: Callable[[], str] = str
    """Returns its version, for the records."""
    disconnected_s: Callable[[], float] = float
    """Returns how long it has had no stream; 0 while it has one, even a silent one."""


@dataclass(slots=True, eq=False)
class Binding:
    """One pod between Reserve and its node."""

    queued: QueuedPodInfo
    assumed: PodInfo
    state: CycleState
    runner: FrameworkRunner
    """The runner whose plugins hold the reservations.

    The binding ends with it, even if another one is in force later.
    """
    waits: Mapping[str, Wait]
    record: DecisionRecord
    popped_at: float
    decision_version: int
    is_preparing: bool = False
    """Whether PreBind is running: a preemptor may still cancel it."""
    is_prepared: bool = False
    """Whether everything before Bind is done."""
    is_sending: bool = False
    """Whether the Binding is in flight: cancelling waits for its answer."""
    is_cancelled: bool = False
    kept_on: str = ""
    """From Bind on the node: a failed write keeps the capacity that victims left there."""
    preempted_by: str = ""
    """The plugin that cancelled it for a pod of higher priority."""

    @property
    def profile(self) -> Profile:
        """Return the profile with which the pod was placed."""
        return self.runner.profile


class BindingRejected(Exception):
    """A rejection by a plugin. `is_late`: by PreBind or Bind, after which no event can wake the pod."""

    def __init__(self, rejection: Rejection, *, is_late: bool = False) -> None:
        super().__init__(rejection.message)
        self.rejection = rejection
        self.is_late = is_late


class Dropped(Exception):
    """The pod is deleted, or another component bound it: release its reservations without an event."""


class UnknownOutcomes:
    """Bindings whose answer was lost and whose pod could not be read yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, tuple[float, Binding]] = {}
        """By uid, oldest first."""
        self._logged_at = 0.0

    def add(self, binding: Binding, error: str) -> None:
        """Record a failed read. Logs the oldest binding once a minute, beginning one minute after its first failure."""
        now = self._clock.now()
        self._since.setdefault(binding.assumed.uid, (now, binding))
        since, oldest = next(iter(self._since.values()))
        if now - max(since, self._logged_at) >= _LOG_EVERY_S:
            self._logged_at = now
            _log.warning(
                "outcome of bindings unknown",
                count=len(self._since),
                pod=oldest.assumed.key,
                node=oldest.assumed.node_name,
                seconds=round(now - since),
                error=error[:_LONGEST_ERROR],
            )

    def discard(self, uid: str) -> None:
        """Remove a binding whose outcome is known, or that has ended."""
        self._since.pop(uid, None)

    def text(self) -> str:
        """Return text for /readyz?verbose, which is public and so names no pod; "" if there is none."""
        if not self._since:
            return ""
        since, _ = next(iter(self._since.values()))
        return (
            f"the outcome of bindings is unknown; number: {len(self._since)}, "
            f"longest: {self._clock.now() - since:.0f} s; the log names the oldest"
        )
