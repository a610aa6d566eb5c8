"""Things that happen to a cluster while a pod waits: what the laws of wake-ups share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from scheduler.api.decode import Delta
from tests.unit.brain import Brain
from tests.unit.hints.hint_rows import WAITS


@dataclass(frozen=True)
class Thing:
    """Something that happens. `text` is what a failure shows."""

    text: str
    happens: Callable[[Brain], None]
    about: str = ""
    """The object that comes, changes or goes."""

    def __repr__(self) -> str:
        return self.text


def known(brain: Brain) -> dict[tuple[str, str], Any]:
    """What the watch has shown, by kind and name."""
    found: dict[tuple[str, str], Any] = brain.__dict__.setdefault("stored", {})
    return found


def deliver(brain: Brain, kind: str, name: str, new: Any) -> None:
    """It is now like this; None: it is gone."""
    old = known(brain).pop((kind, name), None)
    if new is not None:
        known(brain)[kind, name] = new
    if old is not None or new is not None:
        brain.parts.intake.apply(kind, [Delta(old, new)])


def refusing(error: Exception) -> Callable[..., None]:
    """For a writer: the answer to every write."""

    def refuses(*_: object) -> None:
        raise error

    return refuses


def some(values: list[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def place(brain: Brain) -> str:
    """Of the pod that waits."""
    return brain.places().get(WAITS, "placed")


async def ended(brain: Brain) -> None:
    """No binding outlives its example."""
    for task in list(brain.parts.binder._tasks):
        task.cancel()
    await brain.turns()
