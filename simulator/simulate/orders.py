"""Run a simulation in virtual time, in the order of ties that a seed gives, and sum up several orders.

Nodes with equal scores are equally good for one pod, but the choice may decide whether a later pod still fits. The
scheduler draws between them. Here each draw follows from a seed, so that equal inputs have equal answers.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta

from scheduler.core.clock import Clock
from simulator.eventloop import SimulatedClock, VirtualLoop
from simulator.simulate.detail import Count, Part
from simulator.simulate.input.manifests import Found
from simulator.simulate.outcome import Outcome

T = TypeVar("T")

DEFAULT_SEED: Final = 0
_BEGAN: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
"""The time at the start if the input has no time."""


def run(simulation: Callable[[Clock], Awaitable[T]], objects: Iterable[Found]) -> T:
    """Run the simulation of the objects in virtual time, which begins at their newest time, and return its result."""
    loop = VirtualLoop()
    clock = SimulatedClock(loop, wall_at_start=newest_time(objects).timestamp())

    async def running() -> T:
        return await simulation(clock)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(running())


def newest_time(objects: Iterable[Found]) -> dt.datetime:
    """Return when the objects were read from their cluster, as far as they show it.

    That is the newest time of a creation, of a heartbeat, or of a change of a condition.
    """
    return max((moment for each in objects for moment in _times(each.former)), default=_BEGAN)


def _times(manifest: dict[str, Any]) -> Iterator[dt.datetime]:
    texts = [(manifest.get("metadata") or {}).get("creationTimestamp")]
    status = manifest.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    for each in conditions if isinstance(conditions, list) else ():
        if isinstance(each, dict):
            texts += each.get("lastHeartbeatTime"), each.get("lastTransitionTime")
    for text in texts:
        try:
            moment = dt.datetime.fromisoformat(str(text))
        except ValueError:
            continue
        if moment.tzinfo is not None:
            yield moment


class OrderAnswer(Part, frozen=True):
    """The outcome of one seed."""

    seed: int
    ok: Annotated[bool, Meta(description="Whether `problems` is empty.")]
    pods: Annotated[Count, Meta(description="Pods that were to be scheduled.")]
    placed: Count
    problems: Annotated[list[str], Meta(description="What is not as expected, one sentence each.")]


@dataclass(frozen=True, slots=True)
class Orders:
    """The outcomes of several seeds."""

    orders: Sequence[OrderAnswer]

    @property
    def fits(self) -> int:
        """Return the number of orders in which everything was as expected."""
        return sum(each.ok for each in self.orders)

    @property
    def is_empty(self) -> bool:
        """Return whether no pod was to be scheduled."""
        return not any(each.pods for each in self.orders)


def order(seed: int, outcome: Outcome) -> OrderAnswer:
    """Return what counts of an outcome."""
    problems = outcome.problems
    return OrderAnswer(seed, not problems, len(outcome.placements), outcome.placed, problems)
