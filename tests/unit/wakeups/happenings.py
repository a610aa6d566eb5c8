"""Things that happen to a cluster while a pod waits: what the laws of wake-ups share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import event as noted, strategies as st

from scheduler.api.decode import Delta
from scheduler.config.args import KubestowArgs
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import WAITS, gone, node_gone, pod, profile

PARITY: Final = profile(Kubestow=KubestowArgs(parity=True))
UID: Final = f"uid-{WAITS}"


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
        sched.parts.event_handlers.apply(kind, [Delta(old, new)])


def refusing(error: Exception) -> Callable[..., None]:
    """For a writer: the answer to every write."""

    def refuses(*_: object) -> None:
        raise error

    return refuses


def some(values: list[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def once(name: str, **spec: Any) -> Callable[[SchedulerHarness], None]:
    """Show a pod unless it is there: its claims never change."""

    def happens(sched: SchedulerHarness) -> None:
        if name not in sched.seen:
            pod(name, **spec)(sched)

    return happens


def leaves(name: str) -> Thing:
    """A pod or a node is deleted, if it is there."""

    def happens(sched: SchedulerHarness) -> None:
        if name in sched.seen:
            gone(name)(sched)
        elif name in sched.nodes:
            node_gone(name)(sched)

    return Thing(f"leaves({name})", happens)


def passes(seconds: float) -> Thing:
    """Time does."""
    return Thing(f"passes({seconds})", lambda sched: sched.clock.move(seconds))


def place(sched: SchedulerHarness) -> str:
    """Of the pod that waits."""
    return sched.places().get(WAITS, "placed")


async def waits(sched: SchedulerHarness) -> bool:
    """Return whether the pod waits after all attempts that events caused. The result of a task shows one turn later."""
    for _ in range(3):
        await sched.settle()
    for _ in range(3):
        if place(sched) in {"backoff", "error backoff", "active"}:
            await sched.later(11.0)
    return place(sched) in {"unschedulable", "gated"}


async def is_left_waiting(sched: SchedulerHarness, there: list[Thing], spec: dict[str, Any], then: list[Thing]) -> bool:
    """Whether it waits at the end; if not it found a place, or is tried again by itself."""
    sched.parts.queue._flush._limit_s = 1e9  # nothing is woken by time alone
    for thing in there:
        thing.happens(sched)
        await sched.settle()
    pod(WAITS, uid=UID, **spec)(sched)
    is_left = await waits(sched)
    for thing in then:
        if is_left:
            thing.happens(sched)
            is_left = await waits(sched)
    noted("waits" if is_left else "does not wait")
    return is_left


def refusers(sched: SchedulerHarness) -> tuple[str, ...]:
    """Return the plugins that refused the pod."""
    (entry,) = [entry for entry in sched.parts.queue.entries() if entry.key == f"default/{WAITS}"]
    noted(f"refused by {entry.plugins}")
    return entry.plugins


async def forced(sched: SchedulerHarness) -> None:
    """Try the pod whether or not an event woke it."""
    info = sched.parts.shared.pending.get(f"default/{WAITS}")
    assert info is not None
    sched.parts.queue.activate([info])
    await sched.settle()


async def ended(sched: SchedulerHarness) -> None:
    """No binding outlives its example."""
    for task in list(sched.parts.binder._tasks):
        task.cancel()
    await sched.turns()
