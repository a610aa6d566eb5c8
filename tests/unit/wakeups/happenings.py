"""Things that happen to a cluster while a pod waits: what the laws of wake-ups share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from scheduler.api.decode import Delta
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import WAITS


@dataclass(frozen=True)
class Thing:
    """Something that happens. `text` is what a failure shows."""

    text: str
    happens: Callable[[SchedulerHarness], None]
    about: str = ""
    """The object that comes, changes or goes."""

    def __repr__(self) -> str:
        return self.text


def known(sched: SchedulerHarness) -> dict[tuple[str, str], Any]:
    """What the watch has shown, by kind and name."""
    found: dict[tuple[str, str], Any] = sched.__dict__.setdefault("stored", {})
    return found


def deliver(sched: SchedulerHarness, kind: str, name: str, new: Any) -> None:
    """It is now like this; None: it is gone."""
    old = known(sched).pop((kind, name), None)
    if new is not None:
        known(sched)[kind, name] = new
    if old is not None or new is not None:
        sched.parts.intake.apply(kind, [Delta(old, new)])


def refusing(error: Exception) -> Callable[..., None]:
    """For a writer: the answer to every write."""

    def refuses(*_: object) -> None:
        raise error

    return refuses


def some(values: list[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def place(sched: SchedulerHarness) -> str:
    """Of the pod that waits."""
    return sched.places().get(WAITS, "placed")


async def ended(sched: SchedulerHarness) -> None:
    """No binding outlives its example."""
    for task in list(sched.parts.binder._tasks):
        task.cancel()
    await sched.turns()
