"""Compare the outcome of a changed cluster with that of the cluster as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from scheduler.core.terminal import counted
from simulator.simulate.detail import Named, Part, PodName
from simulator.simulate.group_rows import GroupRow
from simulator.simulate.input.sources import InputError
from simulator.simulate.outcome import TIME_RAN_OUT, Outcome


class PodDifferenceAnswer(Part, frozen=True):
    """A pod whose node differs."""

    pod: PodName
    before: Annotated[Named | None, Meta(description="Its node without the changes; null for none.")]
    after: Annotated[Named | None, Meta(description="Its node with the changes; null for none.")]
    reason: Annotated[str, Meta(description="Why it has no node after the changes; empty if it has one.")]


@dataclass(frozen=True, slots=True)
class GroupDifference:
    """A group with another number of placed pods. A side is None if the group did not exist."""

    before: GroupRow | None
    after: GroupRow | None

    @property
    def row(self) -> GroupRow:
        """Return the group after the changes, or before if it is gone."""
        row = self.after or self.before
        assert row is not None
        return row


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes, and what they change."""

    changes: Sequence[str]
    before: Outcome
    after: Outcome
    unplaced: Sequence[PodDifferenceAnswer]
    """Pods with a node before and not after."""
    placed: Sequence[PodDifferenceAnswer]
    """Pods with a node after and not before."""
    moved: Sequence[PodDifferenceAnswer]
    """Pods that had a node in the input, and have another one after the changes."""
    groups: Sequence[GroupDifference]


def difference(changes: Sequence[str], before: Outcome, after: Outcome) -> Difference:
    """Compare two outcomes by the names of pods, in linear time. Raises InputError if the time of one ran out."""
    for outcome, which in ((before, "without"), (after, "with")):
        if outcome.is_cut_short:
            raise InputError(f"{which} the changes: {TIME_RAN_OUT}")
    was, now = before.bound, after.bound
    placed_here = {each.pod for each in before.placements}
    return Difference(
        changes,
        before,
        after,
        unplaced=[PodDifferenceAnswer(pod, node, None, why) for pod, node, why in _unplaced(before, after)],
        placed=[PodDifferenceAnswer(pod, None, node, "") for pod, node in now.items() if pod not in was],
        moved=[
            PodDifferenceAnswer(pod, was[pod], node, "")
            for pod, node in now.items()
            if pod in was and was[pod] != node and pod not in placed_here
        ],
        groups=_groups(before, after),
    )


def _unplaced(before: Outcome, after: Outcome) -> Iterator[tuple[str, str, str]]:
    pending = {each.pod: " ".join((each.message or each.reason).split()) for each in after.placements if not each.node}
    victims = {each.pod: f"preempted for {each.preemptor or 'another pod'}" for each in after.victims}
    for pod, node in before.bound.items():
        if pod in after.bound:
            continue
        gone = after.abandoned.get(pod) or victims.get(pod) or "does not exist any more"
        yield pod, node, pending.get(pod, gone)


def _groups(before: Outcome, after: Outcome) -> list[GroupDifference]:
    was, now = ({row.group: row for row in each.groups} for each in (before, after))
    pairs = [GroupDifference(was.get(group), now.get(group)) for group in dict.fromkeys([*was, *now])]
    return [each for each in pairs if _counts(each.before) != _counts(each.after)]


def _counts(row: GroupRow | None) -> tuple[int, bool]:
    return (row.placed, row.is_started) if row is not None else (0, False)


def lines(found: Difference, most: int | None) -> Iterator[str]:
    """Yield the difference as text, with at most this many pods of each kind; None for all."""
    yield f"changes: {', '.join(found.changes)}"
    yield f"before: {_summary(found.before)}"
    yield f"after:  {_summary(found.after)}"
    signs = (("-", found.unplaced), ("+", found.placed), ("~", found.moved))
    for sign, pods in signs:
        for each in pods[:most]:
            change = f"{each.before or 'no node'} → {each.after or 'no node'}"
            yield f"{sign} {each.pod}  {change}{f': {each.reason}' if each.reason else ''}"
        if len(pods[:most]) < len(pods):
            yield f"{sign} … and {len(pods) - len(pods[:most])} more; all of them with -o json"
    for group in found.groups:
        yield f"group {group.row.group.key}  {_state(group.before)} → {_state(group.after)}"
    if not (found.unplaced or found.placed or found.moved or found.groups):
        yield "the same pods are placed, and none of them leaves the node that it had"


def plan_lines(found: Difference, most: int | None) -> Iterator[str]:
    """Yield the difference, and why new pods have no node or do not exist: no other text of the outcome is printed."""
    yield from lines(found, most)
    known = {each.pod for each in found.before.placements}
    pending = [each for each in found.after.placements if not each.node and each.pod not in known]
    for each in pending[:most]:
        yield f"! {each.pod}  no node: {' '.join((each.message or each.reason).split())}"
    if len(pending[:most]) < len(pending):
        yield f"! … and {len(pending) - len(pending[:most])} more; all of them with -o json"
    for row in found.after.workloads:
        if row.reason and row not in found.before.workloads:
            yield f"{row.workload}: {row.summary}"


def _summary(outcome: Outcome) -> str:
    pending = len(outcome.placements) - outcome.placed
    with_node = f"{counted(len(outcome.bound), 'pod')} on {counted(outcome.nodes, 'node')}, {pending} pending"
    return with_node + (f", {len(outcome.victims)} preempted" if outcome.victims else "")


def _state(row: GroupRow | None) -> str:
    if row is None:
        return "no pods"
    return f"{row.placed} of {counted(row.pods, 'pod')} placed{'' if row.is_started else ', not started'}"
