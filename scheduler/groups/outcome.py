"""The result of one attempt of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field

from scheduler.api.podinfo import PodInfo
from scheduler.cycle import Outcome, Scheduled, SchedulingFailed


@dataclass(frozen=True, slots=True)
class GroupPreemption:
    """What a refused group does about it. `nodes` are by uid, of the pods that fit once the victims have left."""

    text: str
    """What is said about it; "" if the group does not even fit without any of the pods that it may preempt."""
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """The last attempt of each pod in that case, by uid, if there was one."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    victims: Sequence[PodInfo] = ()
    plugins: AbstractSet[str] = frozenset()
    """The plugins whose events end the waiting, in addition to those that rejected the pods."""
    preemptor: str = ""
    """The uid of the pod in whose name all victims are evicted; "" if none is evicted now."""


@dataclass(slots=True)
class GroupOutcome:
    """The result. `outcomes` has the last attempt of each pod by uid; a pod that was not tried is absent.

    `is_placed`: the `Scheduled` ones are assumed and reserved. Otherwise nothing is.
    """

    is_placed: bool
    outcomes: Mapping[str, Outcome]
    least: int
    """The pods that the group lacked at the beginning."""
    refusal: str = ""
    """Why no pod was tried; "" if one was."""
    refusal_reason: str = ""
    """The reason that the condition of the group has then."""
    domain_count: int = 0
    """The number of domains that were tried in vain; the outcomes are those of the first one."""
    rejecters: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    """By uid, the plugins that rejected the pod in any of these domains."""
    is_certain: bool = True
    """Whether no order of the pods could have been better; otherwise the search has ended at a limit or by chance."""
    preemption: GroupPreemption | None = None
    """What follows from the refusal; None without a refusal, or if the profile preempts no pods."""

    @property
    def placed_count(self) -> int:
        """The number of pods that found a node, also if they could not keep it."""
        return sum(isinstance(outcome, Scheduled) for outcome in self.outcomes.values())

    @property
    def result(self) -> str:
        """The result as metrics name it."""
        if self.is_placed:
            return "scheduled"
        if self.error:
            return "error"
        return "waiting_on_preemption" if self.preemption is not None and self.preemption.nodes else "unschedulable"

    @property
    def error(self) -> str:
        """The error that ended the search; "" if there was none."""
        failed = (outcome for outcome in self.outcomes.values() if isinstance(outcome, SchedulingFailed))
        return next((outcome.message for outcome in failed), "")
