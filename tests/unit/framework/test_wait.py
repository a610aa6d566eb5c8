"""A wait looks at once, at each event, at each poll and at its deadline, and leaves no subscription behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from scheduler.framework.wait import wait_until
from tests.support.clock import VirtualClock


class Waited:
    """One wait of 10 s; `looks` has the times at which the condition was evaluated."""

    def __init__(self, **options: Any) -> None:
        self.clock = VirtualClock()
        self.looks: list[float] = []
        self.polls: list[float] = []
        self.subscribers: list[Callable[[], None]] = []
        self.done_at = float("inf")
        if options.pop("polls", False):
            options |= {"poll_s": lambda waited_s: 1.0 if waited_s < 3 else 4.0, "on_poll": self.polls.append}
        self.task = asyncio.ensure_future(
            wait_until(self._is_done, self.clock, 10.0, subscribe=self._subscribe, **options)
        )

    def _is_done(self) -> bool:
        self.looks.append(self.clock.now())
        return self.clock.now() >= self.done_at

    def _subscribe(self, call: Callable[[], None]) -> Callable[[], None]:
        self.subscribers.append(call)
        return lambda: self.subscribers.remove(call)


async def test_done_at_once() -> None:
    waited = Waited()
    waited.done_at = 0.0
    assert await waited.task
    assert ([0.0], []) == (waited.looks, waited.subscribers)


async def test_an_event_ends_it() -> None:
    waited = Waited()
    await waited.clock.advance(2.0)
    waited.subscribers[0]()
    await waited.clock.advance(1.0)
    waited.done_at = 3.0
    waited.subscribers[0]()
    await waited.clock.advance(0.5)

    assert waited.task.result()
    assert ([0.0, 2.0, 3.0], []) == (waited.looks, waited.subscribers)


@pytest.mark.parametrize("starts_with_poll", [False, True])
async def test_polls_until_the_deadline(*, starts_with_poll: bool) -> None:
    waited = Waited(polls=True, starts_with_poll=starts_with_poll)
    await waited.clock.advance(1.5)
    waited.subscribers[0]()
    await waited.clock.advance(20.0)

    assert not waited.task.result()
    assert [1.0, 2.0, 3.0, 7.0] == waited.polls
    assert waited.looks == [*([] if starts_with_poll else [0.0]), 1.0, 1.5, 2.0, 3.0, 7.0, 10.0]
    assert [] == waited.subscribers


async def test_cancelled() -> None:
    waited = Waited(polls=True)
    await waited.clock.advance(1.5)
    waited.task.cancel()
    await waited.clock.settle()

    assert (waited.task.cancelled(), waited.subscribers) == (True, [])
