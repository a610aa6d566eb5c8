"""Results of extension points, and the diagnosis of an attempt.

A rejection is a value, not an exception. It is small, hashable and immutable. So equal rejections of five thousand
nodes are one object, and counting them is counting bits (ADR 0002, docs/spec/core.md §3.2).

The diagnosis holds the rejections of one attempt and makes upstream's message from them (docs/spec/core.md §3.9).
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from scheduler.api.podinfo import PodInfo
from scheduler.core.nodeset import NodeSet


class Code(enum.Enum):
    """Upstream's status codes; `value` is upstream's text in metric labels.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/interface.go Code
    """

    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    """Rejected; evicting pods from this node could help."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Rejected; evicting pods from this node cannot help."""
    PENDING = "Pending"
    """Rejected until something outside the scheduler happens; a hint skips the back-off."""
    WAIT = "Wait"
    SKIP = "Skip"

    @property
    def is_rejection(self) -> bool:
        """Whether it is a result about the pod, and not an error of the scheduler."""
        return self in _REJECTIONS


_REJECTIONS: Final = frozenset({Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING})


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason why a plugin rejected (or, with `Code.ERROR`, failed). Equal rejections of many nodes are one object.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/interface.go Status
    """

    plugin: str
    code: Code
    reasons: tuple[str, ...]
    is_shortage: bool = field(default=False, compare=False)
    """Whether the node lacks something that pods may hold.

    The plugin can find where evictions help (`preemptible_nodes`).
    """
    cause: str = field(default="", compare=False)
    """A stable code of the reason (docs/explain.md); "" if the plugin has only one."""

    @property
    def message(self) -> str:
        """The reasons as upstream prints them."""
        return ", ".join(self.reasons)


Groups: TypeAlias = dict[Rejection, NodeSet]
"""A filter's result: rejection → nodes. The sets must be disjoint; nodes in none of them pass."""


class Skip(enum.Enum):
    """PreFilter, PreScore, Bind, PreBindPreFlight: this plugin has nothing to do for this pod."""

    SKIP = "Skip"


SKIP: Final = Skip.SKIP


@dataclass(frozen=True, slots=True)
class Narrow:
    """PreFilter: only the nodes with these names can hold the pod; unknown names are allowed."""

    node_names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Wait:
    """Permit: hold the pod until it is allowed or rejected, or `timeout_s` has passed (at most 15 min)."""

    timeout_s: float


@dataclass(frozen=True, slots=True)
class Nominate:
    """PostFilter: the pod's new nomination; "" clears it.

    Without a `rejection`, the pod may fit on the node once `victims` are gone, which are evicted in the background.
    With a `rejection`, the pod still fits on no node.
    """

    node_name: str
    message: str = ""
    victims: tuple[PodInfo, ...] = ()
    rejection: Rejection | None = None
    tried: Groups = field(default_factory=dict, compare=False)
    """The reasons of other evaluated nodes, only for the record."""


class AttemptError(Exception):
    """An extension point failed for this pod: the attempt ends with SchedulerError and error back-off."""

    def __init__(self, message: str, *, plugin: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.plugin = plugin


NO_NODES: Final = "no nodes available to schedule pods"


@dataclass(slots=True)
class Diagnosis:
    """The rejections of one attempt. `node_count` is N in `0/N nodes are available`.

    Upstream: pkg/scheduler/framework/types.go Diagnosis, FitError
    """

    node_count: int
    groups: Groups = field(default_factory=dict)
    absent: Rejection | None = None
    """The rejection of nodes on which no filter ran."""
    absent_count: int = 0
    pre_filter_message: str = ""
    post_filter_message: str = ""
    unschedulable_plugins: set[str] = field(default_factory=set)
    pending_plugins: set[str] = field(default_factory=set)

    def refuse(self, rejection: Rejection) -> None:
        """Record the rejecting plugin. It determines which events wake the pod."""
        if rejection.plugin:
            (self.pending_plugins if rejection.code is Code.PENDING else self.unschedulable_plugins).add(
                rejection.plugin
            )

    def message(self) -> str:
        """Return the condition's text: the number of nodes per reason, sorted as text, or PreFilter's message instead."""
        head = f"0/{self.node_count} nodes are available:"
        counts = Counter[str]()  # a node with two reasons counts for both
        for rejection, nodes in self.groups.items():
            for reason in rejection.reasons:
                counts[reason] += nodes.bit_count()
        for reason in self.absent.reasons if self.absent is not None and self.absent_count else ():
            counts[reason] += self.absent_count
        if self.pre_filter_message:
            head += f" {self.pre_filter_message}."
        elif counts:
            head += " " + ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items())) + "."
        return f"{head} {self.post_filter_message}" if self.post_filter_message else head


def one_node(rejection: Rejection) -> Diagnosis:
    """Return the diagnosis of a rejection by Reserve or Permit: "0/1 nodes are available: 1 <reason>."."""
    diagnosis = Diagnosis(node_count=1, groups={rejection: 1})
    diagnosis.refuse(rejection)
    return diagnosis
