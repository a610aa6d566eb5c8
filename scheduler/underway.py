"""A pod on its way to its node, and the ways in which that ends early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.core.podinfo import PodInfo
from scheduler.core.records import DecisionRecord
from scheduler.core.verdicts import Rejection, Wait
from scheduler.framework.profile import Profile
from scheduler.framework.runner import Runner
from scheduler.framework.state import CycleState
from scheduler.queue import QueuedPod


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
