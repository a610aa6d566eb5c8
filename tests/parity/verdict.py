"""What became of a pod, and whether two schedulers agree about it."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from tests.parity.words import Json

GATED: Final = "SchedulingGated"
HELD: Final = "held back"
"""The reason where no condition has one: a plugin keeps the pod out of the queue, and only the log has it."""

_PREEMPTING: Final = re.compile(
    r" preemption: found a potential placement for pod on node (?P<node>\S+), preempting (?P<victims>\d+) victims\Z"
)

Scores = Mapping[str, Mapping[str, int]]
"""Plugin → node → weighted score."""


@dataclass(frozen=True, order=True)
class Way:
    """What a refused pod is to wait for: the node it is nominated to, and what that costs other pods."""

    nominated: str = ""
    evicted: tuple[str, ...] = ()
    """Names of the pods that were deleted for it."""
    displaced: tuple[str, ...] = ()
    """Names of the pods whose nomination was taken from them."""
    victims: int = 0
    """The number that the condition gives next to the node, from 1.37 on. It counts pods that are leaving, too."""


NOTHING: Final = Way()


@dataclass(frozen=True)
class Verdict:
    """A node, or the reason and message of the PodScheduled condition. `scores` if more than one node was feasible.

    `ways` are all that were seen for a refused pod: chance may choose.
    """

    node: str = ""
    scores: Scores = field(default_factory=dict)
    reason: str = ""
    message: str = ""
    ways: tuple[Way, ...] = (NOTHING,)
    writes: tuple[str, ...] = ()
    """What became of claims, also those of devices, and of PVs. A pod that waits for a controller to change them is not bound: there is none."""

    @property
    def preempts(self) -> bool:
        """Whether a place was or would be made for the pod."""
        return any(way.nominated for way in self.ways)

    def without_displaced(self) -> "Verdict":
        """As far as an attempt shows it: evictions take nominations."""
        return replace(self, ways=tuple(replace(way, displaced=()) for way in self.ways))

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
        fields: Json = {"node": self.node, "scores": self.scores, "reason": self.reason, "message": self.message}
        if self.ways != (NOTHING,):
            fields["ways"] = [{name: part for name, part in asdict(way).items() if part} for way in self.ways]
        fields["writes"] = list(self.writes)
        return {key: value for key, value in fields.items() if value}


def heard(said: Verdict) -> Verdict:
    """Move the sentence about the preemption from the message into the only way, if it names the way's node.

    Chance may choose the node, so the sentence is a part of the way and not of the reasons.
    """
    found = _PREEMPTING.search(said.message)
    if found is None or len(said.ways) != 1 or said.ways[0].nominated != found["node"]:
        return said
    way = replace(said.ways[0], victims=int(found["victims"]))
    return replace(said, message=said.message[: found.start()], ways=(way,))


def verdict(recorded: Json) -> Verdict:
    """Undoes `to_json`."""
    ways = recorded.get("ways", [{}])
    writes = tuple(recorded.get("writes", ()))
    return Verdict(**recorded | {"ways": tuple(_way(fields) for fields in ways), "writes": writes})


def _way(recorded: Json) -> Way:
    evicted, displaced = tuple(recorded.get("evicted", ())), tuple(recorded.get("displaced", ()))
    return Way(recorded.get("nominated", ""), evicted, displaced, recorded.get("victims", 0))


def differences(theirs: Verdict, ours: Verdict) -> list[str]:
    """In words; empty if they agree. `theirs` is kube-scheduler's. Of several ways ours must take one of theirs."""
    if bool(theirs.node) != bool(ours.node):
        return [f"kube-scheduler: {_reported(theirs)}", f"ours: {_reported(ours)}"]
    if not theirs.node:
        found = []
        if _reported(theirs) != _reported(ours):
            found += [f"wanted: {_reported(theirs)}", f"ours:   {_reported(ours)}"]
        if not set(ours.ways) <= set(theirs.ways):
            found += [f"ways: {theirs.ways} for kube-scheduler", f"      {ours.ways} for us"]
        return found + _differing_writes(theirs, ours)
    found = _differing_writes(theirs, ours)
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


def _differing_writes(theirs: Verdict, ours: Verdict) -> list[str]:
    """What is written for one node does not hold for another: a scenario in which something is written has one best node."""
    if theirs.writes == ours.writes:
        return []
    return [f"kube-scheduler writes: {theirs.writes}", f"we write:              {ours.writes}"]


def _telling(scores: Scores) -> Scores:
    """A plugin that gives every node the same is as good as one that skipped."""
    return {plugin: row for plugin, row in scores.items() if len(set(row.values())) > 1}


def _reported(verdict: Verdict) -> tuple[str, ...]:
    return (verdict.node,) if verdict.node else (verdict.reason, verdict.message)
