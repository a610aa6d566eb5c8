"""What became of a pod, and whether two schedulers agree about it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.parity.scenario import Json

GATED: Final = "SchedulingGated"
# What PostFilter adds: DynamicResources' word, then preemption's; or only the former's, if PreFilter ended before it.
_POST_FILTER: Final = re.compile(r"( (no new|still not)[^,]*,)? preemption: .*$|(?<=\.) not found$", re.DOTALL)

Scores = Mapping[str, Mapping[str, int]]
"""Plugin → node → weighted score."""


@dataclass(frozen=True)
class Verdict:
    """A node, or the reason and message of the PodScheduled condition. `scores` if more than one node was feasible."""

    node: str = ""
    scores: Scores = field(default_factory=dict)
    reason: str = ""
    message: str = ""

    def totals(self) -> dict[str, int]:
        """Feasible node → sum over the plugins; the chosen node alone if none was scored."""
        totals: dict[str, int] = {self.node: 0} if self.node and not self.scores else {}
        for row in self.scores.values():
            for node, score in row.items():
                totals[node] = totals.get(node, 0) + score
        return totals

    def best(self) -> set[str]:
        """The nodes that may be chosen."""
        totals = self.totals()
        return {node for node, total in totals.items() if total == max(totals.values())}

    def to_json(self) -> Json:
        """What is recorded; empty fields are left out."""
        fields = {"node": self.node, "scores": self.scores, "reason": self.reason, "message": self.message}
        return {key: value for key, value in fields.items() if value}


def verdict(recorded: Json) -> Verdict:
    """Undoes `to_json`."""
    return Verdict(**recorded)


def without_post_filter(message: str) -> str:
    """kube-scheduler's message without what its PostFilter plugins add (docs/spec/core.md §3.9)."""
    return _POST_FILTER.sub("", message)


def differences(theirs: Verdict, ours: Verdict) -> list[str]:
    """In words; empty if they agree. `theirs` is kube-scheduler's, with all that PostFilter says."""
    if bool(theirs.node) != bool(ours.node):
        return [f"kube-scheduler: {_told(theirs)}", f"ours: {_told(ours)}"]
    if not theirs.node:
        wanted = (theirs.reason, without_post_filter(theirs.message))
        return [] if wanted == (ours.reason, ours.message) else [f"wanted: {wanted}", f"ours:   {_told(ours)}"]
    found = []
    if theirs.node not in ours.best():
        found.append(f"{theirs.node} is not among our best, {sorted(ours.best())} of {ours.totals()}")
    if theirs.totals().keys() != ours.totals().keys():
        found.append(f"feasible: {sorted(theirs.totals())} for kube-scheduler, {sorted(ours.totals())} for us")
    wanted_scores, our_scores = _telling(theirs.scores), _telling(ours.scores)
    found += [
        f"{plugin} scores {dict(wanted_scores.get(plugin, {}))} for kube-scheduler, {dict(our_scores.get(plugin, {}))} for us"
        for plugin in sorted(wanted_scores.keys() | our_scores.keys())
        if wanted_scores.get(plugin) != our_scores.get(plugin)
    ]
    return found


def _telling(scores: Scores) -> Scores:
    """A plugin that gives every node the same is as good as one that skipped."""
    return {plugin: row for plugin, row in scores.items() if len(set(row.values())) > 1}


def _told(verdict: Verdict) -> tuple[str, ...]:
    return (verdict.node,) if verdict.node else (verdict.reason, verdict.message)
