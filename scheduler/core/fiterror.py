"""Why no node took the pod: the verdicts of one attempt, and upstream's sentence about them (docs/spec/core.md §3.9)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.verdicts import Code, Groups, Rejection

NO_NODES: Final = "no nodes available to schedule pods"


@dataclass(slots=True)
class Diagnosis:
    """What refused which nodes. `node_count` is N in `0/N nodes are available`."""

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
