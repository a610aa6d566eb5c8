"""Pending pods by cause: pods whose messages differ only in numbers and names are one row of the page."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from scheduler.explain.fixes import Steps
from scheduler.queue import QueueEntry, SchedulingQueue
from scheduler.server.ui.answers import CauseAnswer
from scheduler.server.ui.shortened import shortened

CAUSES_MAX: Final = 40
PLUGINS_MAX: Final = 16
_COUNTED_MAX: Final = 1000
"""Different causes while pods are counted; further ones are summed up."""
_STEP_PODS: Final = 32
_READ_MAX: Final = 1000
_CAUSE_MAX: Final = 200
_EXAMPLES_MAX: Final = 3
_OTHER: Final = "other causes"
_NOWHERE: Final = "nowhere"
_WITHOUT_TEXT: Final = {
    "gated": "held back before the first attempt",
    "in flight": "an attempt is running",
}
_HEAD: Final = re.compile(r"^0/\d+ nodes are available: ?")
_POST_FILTER: Final = re.compile(r" ?(?:no new claims to deallocate, )?preemption: .*$", re.DOTALL)
_REASONS: Final = re.compile(r", (?=\d+ )")
_COUNT: Final = re.compile(r"^\d+ ")
_QUOTED: Final = re.compile(r'"[^"]*"')
_NUMBER: Final = re.compile(r"\d+")


@dataclass(slots=True, eq=False)
class Cause:
    """Pods with one cause, and texts of it as they are shown."""

    id: str
    text: str
    plugins: set[str] = field(default_factory=set)
    states: Counter[str] = field(default_factory=Counter)
    pods: list[QueueEntry] = field(default_factory=list)

    @property
    def answer(self) -> CauseAnswer:
        """The row of the page."""
        return CauseAnswer(
            id=self.id,
            text=self.text,
            plugins=tuple(shortened(name) for name in sorted(self.plugins)[:PLUGINS_MAX]),
            pods=len(self.pods),
            states=dict(self.states),
            examples=tuple(shortened(entry.key) for entry in self.pods[:_EXAMPLES_MAX]),
        )


def causes_of(queue: SchedulingQueue, message: Callable[[str], str]) -> Steps[list[Cause]]:
    """Return the causes of all pods in the queue; `message` returns the scheduler's text about a pod by its key."""
    causes: dict[str, Cause] = {}
    texts: dict[str, str] = {}
    for count, entry in enumerate(queue.entries(), 1):
        if entry.place != _NOWHERE:
            _add(entry, message(entry.key), causes, texts)
        if count % _STEP_PODS == 0:
            yield True
    return list(causes.values())


def _add(entry: QueueEntry, message: str, causes: dict[str, Cause], texts: dict[str, str]) -> None:
    text = texts.get(message)
    if text is None:
        text = texts[message] = cause_of(message)
    if not text:
        text = _without_text(entry)
    cause = causes.get(text)
    if cause is None:
        if len(causes) >= _COUNTED_MAX:
            text = _OTHER
        cause = causes.get(text) or causes.setdefault(text, Cause(_id(text), text))
    cause.states[entry.place] += 1
    cause.pods.append(entry)
    if len(cause.plugins) < PLUGINS_MAX:
        cause.plugins.update(entry.plugins)


def most_frequent(causes: list[Cause]) -> tuple[list[Cause], int]:
    """Return the causes with most pods, and how many causes the last one sums up (0: none)."""
    ranked = sorted(causes, key=lambda each: (-len(each.pods), each.text))
    if len(ranked) <= CAUSES_MAX:
        return ranked, 0
    shown, rest = ranked[: CAUSES_MAX - 1], ranked[CAUSES_MAX - 1 :]
    other = Cause(_id(f"{_OTHER} of the page"), _OTHER)
    for each in rest:
        other.states.update(each.states)
        other.pods += each.pods
        other.plugins |= each.plugins
    return [*shown, other], len(rest)


def cause_of(message: str) -> str:
    """Return what messages of pods with one cause have in common: no counts, no numbers, no quoted names.

    Messages are read up to 1000 characters.
    """
    text = _POST_FILTER.sub("", _HEAD.sub("", message[:_READ_MAX])).strip(" .")
    text = ", ".join(sorted(_COUNT.sub("", reason) for reason in _REASONS.split(text)))  # their order is that of counts
    text = _NUMBER.sub("#", _QUOTED.sub('"…"', text))
    return shortened(text, _CAUSE_MAX)


def _without_text(entry: QueueEntry) -> str:
    """Return the cause of a pod without a message."""
    if entry.plugins:
        verb = "held back" if entry.place == "gated" else "rejected"
        return shortened(f"{verb} by {', '.join(entry.plugins)}", _CAUSE_MAX)
    if entry.place in _WITHOUT_TEXT:
        return _WITHOUT_TEXT[entry.place]
    return "waits for the next attempt" if entry.attempts else "waits for the first attempt"


def _id(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
