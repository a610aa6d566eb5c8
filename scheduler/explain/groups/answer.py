"""The answer to "why does this group not start": as data for JSON, and as text. `docs/explain-group.schema.json` is made of it."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.core.terminal import counted, printable
from scheduler.explain.answer import NEXT_STEPS, AnswerPart, Explanation, Move, PlacedPod, Verdict, lines, some


class MemberKind(AnswerPart, frozen=True):
    """Pods of the group that the same nodes can take, as long as no other pod of the group is placed. `pod` is one of them."""

    pod: str
    pods: int
    nodes: int


class MemberPin(AnswerPart, frozen=True):
    """A volume or an allocation of devices that ties a pod to some nodes; `examples` are a few of their names."""

    pod: str
    claim: str
    """Kind and `namespace/name`."""
    nodes: int
    examples: tuple[str, ...]


class NodesToAdd(AnswerPart, frozen=True):
    """Empty nodes like one that exists, the fewest with which an attempt places the group."""

    like: str
    nodes: int


class GroupExplanation(AnswerPart, frozen=True):
    """What `kubestow explain group -o json` prints."""

    group: str
    """`namespace/name`."""
    api_group: str
    verdict: Verdict
    exit_code: int
    code: str
    cause: str
    move: Move
    minimum: int | None = None
    """The number of pods with which the group starts; null if the object does not exist, or if its pods start one by one."""
    has_started: bool = False
    members: dict[str, int] = {}
    """State → pods: running, binding, ready, backOff, waiting, gated, unreadable."""
    other_schedulers: dict[str, int] = {}
    """Scheduler name → pods without a node that name the group. They are no members."""
    needed: int = 0
    """The number of pods that have to be placed together now."""
    fitting: int | None = None
    """The number of pods that the best plan has which was found; null if none was looked for."""
    tried: int = 0
    """The number of pods that an attempt tries to place."""
    topology_key: str = ""
    domain: str = ""
    """The domain of that plan."""
    domains: int = 0
    """The number of domains that the group may use."""
    placements: tuple[PlacedPod, ...] = ()
    """The plan of an attempt that succeeds."""
    kinds: tuple[MemberKind, ...] = ()
    pins: tuple[MemberPin, ...] = ()
    blocking: tuple[str, ...] = ()
    """Pods that find no node next to the other pods of the best plan, or that are held back."""
    explanation: Explanation | None = None
    """Of the first of them: on its own, or next to them if it fits on its own."""
    nodes_to_add: NodesToAdd | None = None
    preemption: str = ""
    victims: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Other API groups with a group of this name."""
    is_search_complete: bool = True
    """False if the search took too long."""
    remark: str = ""


_STATES = {
    "running": "on nodes",
    "binding": "on their way to a node",
    "ready": "about to be tried",
    "backOff": "backing off",
    "waiting": "waiting for a change that can help",
    "gated": "gated",
    "unreadable": "unreadable",
}
STATES = tuple(_STATES)


def group_as_text(answer: GroupExplanation) -> str:
    """Return the answer for a terminal."""
    return printable("\n".join(_group_lines(answer)) + "\n")


def _group_lines(answer: GroupExplanation) -> Iterator[str]:
    yield f"{answer.group} (PodGroup of {answer.api_group}): {answer.cause}"
    yield from (f"note: {answer.remark}",) if answer.remark else ()
    for each in answer.also:
        yield f"note: there is also a group of this name of {each}: --api-group {each}"
    if answer.move != "nobody":
        step = "change the pods or their group" if answer.move == "user" else NEXT_STEPS[answer.move]
        yield f"next step: {step}"
    counts = [f"{answer.members[state]} {text}" for state, text in _STATES.items() if answer.members.get(state)]
    start = f"it starts with {answer.minimum}" if answer.minimum is not None else "its pods start one by one"
    yield f"pods: {', '.join(counts) or 'none'}; {start}"
    for name, count in answer.other_schedulers.items():
        yield f"note: {counted(count, 'pod')} of it {'names' if count == 1 else 'name'} the scheduler {name}"
    if answer.preemption:
        yield f"preemption: {answer.preemption}"
        yield from some([f"  {each}" for each in answer.victims])
    yield from _plan_lines(answer)
    if answer.explanation is not None:
        yield ""
        yield from lines(answer.explanation, searched=bool(answer.explanation.fixes))
    if answer.nodes_to_add is not None:
        yield from ("", "fix (verified: an attempt then places the group):")
        yield f"  add {counted(answer.nodes_to_add.nodes, 'node')} like {answer.nodes_to_add.like}"
    if not answer.is_search_complete:
        yield ""
        yield "the search took too long for an explanation, and is not complete"


def _plan_lines(answer: GroupExplanation) -> Iterator[str]:
    yield from some([f"  {each.pod} → {each.node}" for each in answer.placements])
    for kind in answer.kinds:
        others = f" and {counted(kind.pods - 1, 'pod')} like it" if kind.pods > 1 else ""
        yield f"{kind.pod}{others}: {counted(kind.nodes, 'node')} can take one of it"
    for pin in answer.pins:
        named = ", ".join(pin.examples) + (", …" if pin.nodes > len(pin.examples) else "")
        yield f"{pin.pod} is tied to {counted(pin.nodes, 'node')}{f' ({named})' if named else ''} by {pin.claim}"
    if answer.blocking:
        yield "without a node: " + ", ".join(answer.blocking[:8]) + (", …" if len(answer.blocking) > 8 else "")
