"""A pod on its way to its node, and the ways in which that ends early."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from scheduler.core.clock import Clock
from scheduler.core.podinfo import PodInfo
from scheduler.core.records import DecisionRecord
from scheduler.core.verdicts import Rejection, Wait
from scheduler.framework.profile import Profile
from scheduler.framework.runner import Runner
from scheduler.framework.state import CycleState
from scheduler.queue import QueuedPod

_log = structlog.get_logger(__name__)

_SAY_EVERY_S: Final = 60.0
_LONGEST_ERROR: Final = 1024


@dataclass(frozen=True, slots=True)
class PodWatch:
    """What a binding needs to know of the watch of pods."""

    version: Callable[[], str] = str
    """How far it is, for the records."""
    disconnected_s: Callable[[], float] = float
    """For how long it has had no stream; 0 while it has one, however quiet."""


@dataclass(slots=True, eq=False)
class Binding:
    """One pod on its way to its node."""

    queued: QueuedPod
    assumed: PodInfo
    state: CycleState
    runner: Runner
    """Whose plugins hold what is reserved: with them it ends, whatever is in force by then."""
    waits: Mapping[str, Wait]
    record: DecisionRecord
    popped_at: float
    outlook: int
    is_preparing: bool = False
    """PreBind is under way: a preemptor may still cancel it."""
    is_prepared: bool = False
    """All that has to be done before Bind is done."""
    is_sending: bool = False
    """The Binding is on the wire: cancelling waits for its answer."""
    is_cancelled: bool = False
    kept_on: str = ""
    """From Bind on the node: a failed write does not cost the pod the room that was made for it there."""
    preempted_by: str = ""
    """The plugin that cancelled it for a pod of higher priority."""

    @property
    def profile(self) -> Profile:
        """As it was when the pod was placed."""
        return self.runner.profile


class Refused(Exception):
    """A rejection on the way; carries who said no. `is_late`: from PreBind or Bind, where no event is waited for any more."""

    def __init__(self, rejection: Rejection, *, is_late: bool = False) -> None:
        super().__init__(rejection.message)
        self.rejection = rejection
        self.is_late = is_late


class Dropped(Exception):
    """The pod is gone, or somebody else bound it: release what was held, say nothing."""


class UnknownOutcomes:
    """Bindings that were sent, whose answer was lost, and that could not be read yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, tuple[float, Binding]] = {}
        """By uid, oldest first."""
        self._error = ""
        self._said_at = 0.0

    def add(self, binding: Binding, error: str) -> None:
        """Note that a read failed. Logs the oldest binding once a minute, beginning one minute after its first failure."""
        now = self._clock.now()
        self._since.setdefault(binding.assumed.uid, (now, binding))
        self._error = error[:_LONGEST_ERROR]
        since, oldest = next(iter(self._since.values()))
        if now - max(since, self._said_at) >= _SAY_EVERY_S:
            self._said_at = now
            _log.warning(
                "outcome of bindings unknown",
                count=len(self._since),
                pod=oldest.assumed.key,
                node=oldest.assumed.node_name,
                seconds=round(now - since),
                error=self._error,
            )

    def discard(self, uid: str) -> None:
        """The outcome is known, or the binding has ended."""
        self._since.pop(uid, None)

    def text(self) -> str:
        """For /readyz?verbose; "" without any."""
        if not self._since:
            return ""
        since, oldest = next(iter(self._since.values()))
        where = f"{oldest.assumed.key} to {oldest.assumed.node_name}"
        return (
            f"the outcome of {len(self._since)} bindings is unknown, "
            f"the oldest is {where}, for {self._clock.now() - since:.0f} s: {self._error}"
        )
