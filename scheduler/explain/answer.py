"""The answer to "why is this pod pending": as data for JSON, and as text. The codes are in `codes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from scheduler.api.quantity import Quantity, text
from scheduler.core.terminal import counted, printable
from scheduler.explain.edits import Edit

Verdict: TypeAlias = Literal["fits", "fitsAfter", "doesNotFit", "unreadable"]
State: TypeAlias = Literal["pending", "gated", "nominated", "binding", "bound", "finished", "foreign", "deleting"]
Move: TypeAlias = Literal["user", "administrator", "wait", "nobody"]
WhatIfVerdict: TypeAlias = Literal[Verdict, "nothingToPlace"]
EXIT_CODES: Final[dict[WhatIfVerdict, int]] = {
    "fits": 0,
    "fitsAfter": 1,
    "doesNotFit": 2,
    "unreadable": 3,
    "nothingToPlace": 5,  # not 0: a gate that has checked nothing must not pass
}


class AnswerPart(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A part of the answer."""


class ResourceShortage(AnswerPart, frozen=True):
    """A resource of which the best node of a group has too little, as quantities."""

    resource: str
    need: str
    have: str
    short: str
    node: str


class Reason(AnswerPart, frozen=True):
    """Why a plugin rejects nodes. `text` is the plugin's own; `details` are the taints that it means."""

    code: str
    plugin: str
    text: str
    nodes: int
    details: tuple[str, ...] = ()

    @property
    def full_text(self) -> str:
        """The text with its details."""
        return f"{self.text} ({', '.join(self.details)})" if self.details else self.text


class RejectedNodes(AnswerPart, frozen=True):
    """Nodes that the same plugins reject. `examples` are a few of their names."""

    nodes: int
    examples: tuple[str, ...]
    reasons: tuple[Reason, ...]
    shortages: tuple[ResourceShortage, ...] = ()
    notes: tuple[str, ...] = ()
    """What is wrong with these nodes, by taints that the kubelet or the cloud provider sets."""


class ChangeAnswer(AnswerPart, frozen=True):
    """One thing to do; `edits` are JSON patches, new objects and deletions, for this change alone.

    `is_description`: the edits are objects that the kubelet and drivers of a new node create, and are not to be applied.
    """

    code: str
    actor: str
    text: str
    edits: tuple[Edit, ...]
    is_description: bool = False


class FixAnswer(AnswerPart, frozen=True):
    """Changes after which the pod fits. `verified`: an ordinary attempt with these changes in the cache chose `node`."""

    verified: bool
    node: str
    changes: tuple[ChangeAnswer, ...]
    edits: tuple[Edit, ...] = ()
    """All changes together, one edit per object, as JSON patches that RFC 6902 allows."""
    starts_group: bool | None = None
    """Whether an attempt then places the whole group of the pod; null if that was not tried."""

    @property
    def proof(self) -> str:
        """What an attempt with these changes does."""
        if not self.verified:
            return "not verified: search budget"
        if self.starts_group:
            return "verified: an attempt then places the group"
        if self.starts_group is None:
            return f"verified: an attempt then chooses {self.node}"
        return f"for this pod alone: an attempt then chooses {self.node}, and its group is not placed yet"


class Bound(AnswerPart, frozen=True):
    """Why a pod is on its node: the scores of that node and of the second best one now, without this pod."""

    node: str
    score: int | None = None
    runner_up: str = ""
    margin: int | None = None
    fits_now: bool = True


class Explanation(AnswerPart, frozen=True):
    """What `kubestow explain -o json` prints."""

    pod: str
    uid: str
    scheduler: str
    state: State
    verdict: Verdict
    exit_code: int
    code: str
    cause: str
    move: Move
    node_count: int = 0
    node: str = ""
    """Where the pod is, is nominated, or would go."""
    groups: tuple[RejectedNodes, ...] = ()
    fixes: tuple[FixAnswer, ...] = ()
    is_search_complete: bool = True
    """False if the search for fixes ran out of its budget."""
    bound: Bound | None = None
    facts: dict[str, Any] = {}
    """Numbers of plugins, such as the devices that each request can have."""
    remark: str = ""
    """Why kube-scheduler may decide otherwise in this cluster: the API server has another version."""


class PlacedPod(AnswerPart, frozen=True):
    """A pod of the question, and the node that it would get."""

    pod: str
    node: str


class DisplacedPod(AnswerPart, frozen=True):
    """A pod that would have to leave its node. `to` is its next node; "" if it has none, and then `cause` says why."""

    pod: str
    source: str = msgspec.field(name="from")
    to: str = ""
    cause: str = ""
    preempted_by: str = ""
    """The key of the pod that takes its capacity."""


class WhatIfGroup(AnswerPart, frozen=True):
    """A group of the question. All of its pods are counted, also those that exist; fewer than `minimum` are not placed."""

    group: str
    api_group: str
    verdict: Verdict
    cause: str
    minimum: int
    pods: int
    placed: int


class WhatIfAnswer(AnswerPart, frozen=True):
    """What `kubestow what-if -o json` prints."""

    verdict: WhatIfVerdict
    exit_code: int
    cause: str
    replicas: int
    placed: int
    placements: tuple[PlacedPod, ...] = ()
    displaced: tuple[DisplacedPod, ...] = ()
    groups: tuple[WhatIfGroup, ...] = ()
    explanation: Explanation | None = None
    """Of the first pod that does not fit."""
    is_complete: bool = True
    """False if the time was over before all pods were tried."""


NEXT_STEPS: Final[dict[Move, str]] = {
    "user": "change the pod or its claims",
    "administrator": "an administrator changes nodes, volumes, devices or other pods",
    "wait": "wait",
}
_GROUPS_SHOWN: Final = 8
_PODS_SHOWN: Final = 50
_NANO: Final = 10**9
_POOLS: Final = ("pools that are being updated", "invalid pools")
"""Reasons of DynamicResources that count pools."""


def as_text(answer: Explanation) -> str:
    """Return the answer for a terminal."""
    return printable("\n".join(lines(answer)) + "\n")


def what_if_as_text(answer: WhatIfAnswer) -> str:
    """Return the answer for a terminal."""
    return printable("\n".join(_what_if_lines(answer)) + "\n")


def _what_if_lines(answer: WhatIfAnswer) -> Iterator[str]:
    yield answer.cause
    for group in answer.groups:
        yield f"{group.group} (PodGroup of {group.api_group}): {group.cause}"
    rows = [f"  {each.pod} → {each.node}" for each in answer.placements]
    yield from some(rows)
    if answer.displaced:
        yield ""
        yield "pods that leave their node:"
        rows = [
            f"  {each.pod}: {each.source} → {each.to}" if each.to else f"  {each.pod}: {each.source}, {each.cause}"
            for each in answer.displaced
        ]
        yield from some(rows)
    if answer.explanation is not None:
        yield ""
        yield from lines(answer.explanation, searched=False)


def some(rows: list[str]) -> Iterator[str]:
    """Yield the first rows, one for each pod, and the number of the rest."""
    yield from rows[:_PODS_SHOWN]
    if len(rows) > _PODS_SHOWN:
        yield f"  … and {counted(len(rows) - _PODS_SHOWN, 'more pod')}"


def lines(answer: Explanation, *, searched: bool = True) -> Iterator[str]:
    """Yield the lines; `searched` is False if no fixes were searched for."""
    yield f"{answer.pod}: {answer.cause}"
    yield from (f"note: {answer.remark}",) if answer.remark else ()
    if answer.move != "nobody":
        yield f"next step: {NEXT_STEPS[answer.move]}"
    if answer.bound is not None and answer.bound.score is not None:
        second = f", second best {answer.bound.runner_up} by {answer.bound.margin}" if answer.bound.runner_up else ""
        yield f"score {answer.bound.score}{second}"
    for group in answer.groups[:_GROUPS_SHOWN]:
        yield ""
        named = ", ".join(group.examples) + (", …" if group.nodes > len(group.examples) else "")
        yield f"{group.nodes} of {counted(answer.node_count, 'node')} ({named}):"
        for reason in group.reasons:
            yield f"  {reason.code}: {reason.full_text}"
        for each in group.shortages:
            yield f"    {each.resource}: needs {each.need}, {each.node} has {each.have}, short by {each.short}"
        for note in group.notes:
            yield f"    {note}"
    if len(answer.groups) > _GROUPS_SHOWN:
        yield f"… and {counted(len(answer.groups) - _GROUPS_SHOWN, 'more group')} of nodes"
    if facts := [*_volume_lines(answer.facts), *_device_lines(answer.facts)]:
        yield from ("", *facts)
    for number, fix in enumerate(answer.fixes, 1):
        yield ""
        yield f"fix {number} ({fix.proof}):"
        for change in fix.changes:
            yield f"  {change.text}"
    if (
        not answer.fixes
        and answer.verdict == "doesNotFit"
        and searched
        and (answer.groups or answer.state == "pending")
    ):
        yield ""
        yield "no fix was found" + ("" if answer.is_search_complete else " within the search budget")


# -- numbers of plugins --------------------------------------------------------------------------------------------------


def _volume_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    found = facts.get("VolumeBinding", {})
    if found.get("problem"):
        yield f"volumes: {found['problem']}"
    for claim in found.get("claims", ()):
        counts = [f"{count} {what}" for what, count in claim["volumes"].items()]
        if claim["capacityObjects"]:
            counts.append(f"the largest of {claim['capacityObjects']} capacities is {_size(claim['largestBytes'])}")
        of_class = f"class {claim['storageClass']}" if claim["storageClass"] else "no class"
        wanted = f"{_size(claim['bytes'])} of {of_class}"
        yield f"volumes for claim {claim['claim']} ({wanted}): {', '.join(counts) or 'none exist'}"


def _size(count: int) -> str:
    return text(Quantity(count * _NANO))


def _device_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    found = facts.get("DynamicResources", {})
    if found.get("problem"):
        yield f"devices: {found['problem']}"
    for row in found.get("requests", ()):
        pools = sum(row["out"].get(each, 0) for each in _POOLS)
        others = ((why, count) for why, count in row["out"].items() if why != "in use" and why not in _POOLS)
        excluded = "".join(f", {count} excluded by {why}" for why, count in others)
        in_use = row["out"].get("in use", 0)
        counts = f"{row['devices'] - pools} in the cluster, {in_use} in use{excluded}, {row['free']} free"
        wanted = f"{row['wanted']} of class {row['class']} on one node"
        yield f"devices for request {row['request']} of claim {row['claim']} ({wanted}): {counts}, at most {row['mostOnOneNode']} on one node"
        yield from (f"  taint that is not tolerated: {taint}" for taint in row.get("taints", ()))
        if row.get("sharedOnOneNode"):
            yield "  a request takes each shared device at most once; several requests of one device can share it"
        for name, nearest in row.get("unknownCapacities", {}).items():
            hint = f"; the nearest name is {nearest}" if nearest else ""
            yield f"  no device of the class has a capacity {name}{hint}"
    for row in found.get("constraints", ()):
        satisfy = "satisfies" if row["mostOnOneNode"] == 1 else "satisfy"
        counts = f"{row['mostOnOneNode']} of {counted(row['wanted'], 'device')} on one node {satisfy} it"
        yield f"constraint {row['constraint']} of claim {row['claim']}: at most {counts}"
    for pool in found.get("unusablePools", ()):
        slices = f"{pool['slices']} of {pool['slicesWanted']} ResourceSlices are published"
        problem = f" ({pool['problem']})" if pool.get("problem") else ""
        yield f"pool {pool['pool']} of driver {pool['driver']} is {pool['state']}: {slices}{problem}"
    for name, why in found.get("unreadableSlices", {}).items():
        yield f"ResourceSlice {name} cannot be read: {why}"
    if found.get("brokenSelector"):
        yield found["brokenSelector"]
