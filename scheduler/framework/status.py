"""Answers of extension points, and the diagnosis of an attempt.

What an extension point can answer.

An ordinary no is a value, not an exception: small, hashable, nothing mutable, so that the equal refusals of
five thousand nodes are one object and counting them is counting bits (ADR 0002, docs/spec/core.md §3.2).

Why no node took the pod: the verdicts of one attempt, and upstream's sentence about them (docs/spec/core.md §3.9).
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from scheduler.api.podinfo import PodInfo
from scheduler.core.nodeset import NodeSet


class Code(enum.Enum):
    """Upstream's status codes; `value` is the text upstream prints in metrics labels.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/interface.go Code
    """

    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    """Rejected; evicting pods from this node could help."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Rejected; evicting pods from this node cannot help."""
    PENDING = "Pending"
    """Rejected, waiting for something outside; a hint skips the back-off."""
    WAIT = "Wait"
    SKIP = "Skip"

    @property
    def is_rejection(self) -> bool:
        """An answer about the pod, as opposed to a failure of ours."""
        return self in _REJECTIONS


_REJECTIONS: Final = frozenset({Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING})


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a plugin said no (or, with `Code.ERROR`, failed). Equal refusals of many nodes are one object.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/interface.go Status
    """

    plugin: str
    code: Code
    reasons: tuple[str, ...]
    is_shortage: bool = field(default=False, compare=False)
    """The node lacks something that pods may hold: the plugin can tell whether it would suffice if pods left (`preemptible_nodes`)."""

    @property
    def message(self) -> str:
        """The reasons as upstream prints them."""
        return ", ".join(self.reasons)


Groups: TypeAlias = dict[Rejection, NodeSet]
"""What a filter returns: who is out, and why. Sets must be disjoint; nodes in none passed."""


class Skip(enum.Enum):
    """PreFilter, PreScore, Bind, PreBindPreFlight: this plugin has nothing to do for this pod."""

    SKIP = "Skip"


SKIP: Final = Skip.SKIP


@dataclass(frozen=True, slots=True)
class Narrow:
    """PreFilter: only these nodes can hold the pod (names; unknown names are fine)."""

    node_names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Wait:
    """Permit: hold the pod until allowed, rejected, or `timeout_s` has passed (at most 15 min)."""

    timeout_s: float


@dataclass(frozen=True, slots=True)
class Nominate:
    """PostFilter: what becomes of the pod's nomination; "" clears it.

    Without a `rejection` a way out was found: the pod may fit there once `victims` are gone, who are evicted in the
    background. With one the pod still fits nowhere.
    """

    node_name: str
    message: str = ""
    victims: tuple[PodInfo, ...] = ()
    rejection: Rejection | None = None
    tried: Groups = field(default_factory=dict, compare=False)
    """Why other nodes would not do, as far as they were looked at: for the record only."""


class AttemptError(Exception):
    """An extension point failed for this pod: the attempt ends with SchedulerError and error back-off."""

    def __init__(self, message: str, *, plugin: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.plugin = plugin


NO_NODES: Final = "no nodes available to schedule pods"


@dataclass(slots=True)
class Diagnosis:
    """What refused which nodes. `node_count` is N in `0/N nodes are available`.

    Upstream: pkg/scheduler/framework/types.go Diagnosis, FitError
    """

    node_count: int
    groups: Groups = field(default_factory=dict)
    absent: Rejection | None = None
    """The verdict on nodes that no filter looked at."""
    absent_count: int = 0
    pre_filter_message: str = ""
    post_filter_message: str = ""
    unschedulable_plugins: set[str] = field(default_factory=set)
    pending_plugins: set[str] = field(default_factory=set)

    def refuse(self, rejection: Rejection) -> None:
        """Remember who said no: this decides which events wake the pod."""
        if rejection.plugin:
            (self.pending_plugins if rejection.code is Code.PENDING else self.unschedulable_plugins).add(
                rejection.plugin
            )

    def message(self) -> str:
        """The condition's text: reasons counted one by one, sorted as text; PreFilter's message replaces them."""
        head = f"0/{self.node_count} nodes are available:"
        if self.pre_filter_message:
            head += f" {self.pre_filter_message}."
        else:
            counts = self.reason_counts()
            if counts:
                head += " " + ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items())) + "."
        return f"{head} {self.post_filter_message}" if self.post_filter_message else head

    def reason_counts(self) -> Counter[str]:
        """How many nodes gave each reason; a node with two reasons counts in both."""
        counts: Counter[str] = Counter()
        for rejection, nodes in self.groups.items():
            for reason in rejection.reasons:
                counts[reason] += nodes.bit_count()
        if self.absent is not None and self.absent_count:
            for reason in self.absent.reasons:
                counts[reason] += self.absent_count
        return counts


def one_node(rejection: Rejection) -> Diagnosis:
    """Reserve or Permit said no on the chosen node: the text reads "0/1 nodes are available: 1 <reason>."."""
    diagnosis = Diagnosis(node_count=1, groups={rejection: 1})
    diagnosis.refuse(rejection)
    return diagnosis
