"""The state of bindings: one pod on its way to its node, how a binding ends, and bindings with an unknown outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from scheduler.api.pod_group import GroupKey
from scheduler.api.podinfo import PodInfo
from scheduler.core.clock import Clock
from scheduler.core.decision_record import DecisionRecord
from scheduler.core.errors import ApiError, shortened
from scheduler.framework.interface import CycleState
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import FrameworkRunner
from scheduler.framework.status import AttemptError, Rejection, Wait
from scheduler.queue import QueuedPodInfo

_log = structlog.get_logger(__name__)

_LOG_EVERY_S: Final = 60.0
_LONGEST_ERROR: Final = 1024
_PASS_AT_ONCE: Final = 500


class PodWatch(msgspec.Struct, frozen=True):
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
    barrier: GroupBarrier | None = None
    """What the pod waits for between PreBind and Bind; None for a pod that is bound alone."""
    aborted: str = ""
    """Why the bindings of its group were given up."""

    @property
    def profile(self) -> Profile:
        """Return the profile with which the pod was placed."""
        return self.runner.profile


class GroupBarrier:
    """Between PreBind and Bind of the pods of one group: no Binding is sent before enough pods are prepared for theirs.

    A worked example, with a group that lacks two pods, and three bindings:

        1. a is prepared        it waits: 1 of 2
        2. b fails in PreBind   two are left, a and c: go on
        3. c is prepared        2 of 2: the barrier opens, and a and c are bound

    Had c failed, too, a could not wait for anything any more: the group is given up, and each pod undoes its own binding.
    A binding that begins later takes part while the barrier is closed, and passes when it is open.

    Before that, the bindings wait for each other once more, halfway: what can be taken back without a trace is prepared by enough of
    them before any of them begins with the rest. So no volume is provisioned for a group whose devices cannot be allocated.
    """

    def __init__(self, group: GroupKey, least: int) -> None:
        """Create a barrier that opens when this number of bindings are prepared."""
        self.group = group
        self.failure = ""
        """Why the group was given up; "" unless it was."""
        self.is_open = False
        self._least = least
        self._is_halfway_open = False
        self._halfway: dict[str, asyncio.Future[None]] = {}
        self._bindings: dict[str, Binding] = {}
        self._prepared: dict[str, asyncio.Future[None]] = {}

    @property
    def has_enough(self) -> bool:
        """Whether enough bindings are prepared."""
        return len(self._prepared) >= self._least

    def expect(self, more: int) -> None:
        """Open only when this number of further bindings are prepared, too."""
        self._least = len(self._bindings) + more

    def join(self, binding: Binding) -> None:
        """Take part: the group may count on this binding."""
        self._bindings[binding.assumed.uid] = binding

    def waiting(self) -> list[Binding]:
        """Return the bindings that are prepared."""
        return [self._bindings[uid] for uid in self._prepared]

    def arrive_halfway(self, binding: Binding) -> asyncio.Future[None]:
        """Record that a binding has prepared what can be taken back; return what it waits for."""
        passed = self._halfway[binding.assumed.uid] = asyncio.get_running_loop().create_future()
        self._is_halfway_open = self._is_halfway_open or self.is_open or len(self._halfway) >= self._least
        if self._is_halfway_open:
            waiting = list(self._halfway.values())
            self._halfway.clear()
            self._let_pass(waiting)
        return passed

    def arrive(self, binding: Binding) -> asyncio.Future[None]:
        """Record that a binding is prepared; return what it waits for."""
        opened = self._prepared[binding.assumed.uid] = asyncio.get_running_loop().create_future()
        if self.is_open:
            opened.set_result(None)
        return opened

    def open(self) -> None:
        """Let all bindings pass, those that come later as well; some hundred in each turn of the event loop."""
        self.is_open = True
        self._let_pass(list(self._prepared.values()))

    def _let_pass(self, waiting: Sequence[asyncio.Future[None]]) -> None:
        for opened in waiting[:_PASS_AT_ONCE]:
            if not opened.done():
                opened.set_result(None)
        if len(waiting) > _PASS_AT_ONCE:
            asyncio.get_running_loop().call_soon(self._let_pass, waiting[_PASS_AT_ONCE:])

    def raise_failure(self) -> None:
        """Raise AttemptError if the group was given up."""
        if self.failure:
            raise AttemptError(self.failure)

    def leave(self, binding: Binding, why: str) -> bool:
        """Record that a binding has failed or succeeded; return whether the rest is too few, so that the group is given up.

        `failure` is then the failure of this pod.
        """
        if self._bindings.pop(binding.assumed.uid, None) is None:
            return False
        self._prepared.pop(binding.assumed.uid, None)
        self._halfway.pop(binding.assumed.uid, None)
        if self.is_open or self.failure or len(self._bindings) >= self._least:
            return False
        self.failure = f"pod group: {binding.assumed.key}: {why}"
        return True


class BindingRejected(Exception):
    """A rejection by a plugin. `is_late`: by PreBind or Bind, after which no event can wake the pod."""

    def __init__(self, rejection: Rejection, *, is_late: bool = False) -> None:
        super().__init__(rejection.message)
        self.rejection = rejection
        self.is_late = is_late


class Dropped(Exception):
    """The pod is deleted, or another component bound it: release its reservations without an event."""


GONE: Final = "the pod is gone or was bound by another component"


def why_ended(binding: Binding, error: BaseException) -> str:
    """Return the text of a binding's end for its pod, and for the rest of its group."""
    match error:
        case BindingRejected():
            return error.rejection.message
        case Dropped():
            return GONE
        case asyncio.CancelledError():
            return f"preempted by {binding.preempted_by}" if binding.preempted_by else "the scheduler is stopping"
        case AttemptError() | ApiError():
            return error.message
        case _:
            return shortened(repr(error))


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
