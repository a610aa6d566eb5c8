"""Retries after growing pauses or after those that a busy server requests, and waits with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from scheduler.core.clock import SystemClock, done_within
from scheduler.core.errors import ApiError, TooManyRequests, Unavailable
from scheduler.core.retry import BusyRetry, Retry
from scheduler.framework.wait import wait_until
from tests.support.clock import VirtualClock


class Napping(SystemClock):
    """Adds up the pauses."""

    slept_s = 0.0

    def now(self) -> float:
        return self.slept_s

    async def sleep(self, delay_s: float) -> None:
        self.slept_s += delay_s


async def attempts(*waits_s: float | None, tries: int) -> tuple[int, float, bool]:
    """Return the number of requests, the time at the end, and whether one succeeded; the server is busy first."""
    clock, sent = Napping(), 0
    busy = BusyRetry(clock, tries=tries)
    try:
        for wait_s in waits_s:
            sent += 1
            await busy.wait(TooManyRequests("busy", retry_after_s=wait_s))
    except TooManyRequests:
        return sent, clock.slept_s, False
    return sent + 1, clock.slept_s, True


@pytest.mark.parametrize(
    ("waits_s", "tries", "expected"),
    [
        pytest.param((), 1, (1, 0, True), id="not busy"),
        pytest.param((1.0,), 1, (1, 0, False), id="only one try"),
        pytest.param((1.0, 2.0), 3, (3, 3, True), id="the server's own pauses"),
        pytest.param((1.0, 2.0, 4.0), 3, (3, 3, False), id="no pause after the last try"),
        pytest.param((1.0, None), 3, (2, 1, False), id="no time named"),
    ],
)
async def test_busy(waits_s: tuple[float | None, ...], tries: int, expected: tuple[int, float, bool]) -> None:
    assert expected == await attempts(*waits_s, tries=tries)


DOWN = Unavailable("down")


async def paused(retry: Retry, errors: list[ApiError]) -> None:
    for error in errors:
        await retry.pause(error)


@pytest.mark.parametrize(("policy", "errors", "slept_s", "longest"), [
    pytest.param({"tries": 3}, [DOWN] * 9, 3.0, 0, id="pauses double, and there is none after the last try"),
    pytest.param({"tries": 4, "factor": 5.0}, [DOWN] * 9, 31.0, 0, id="pauses grow by the factor"),
    pytest.param({"tries": 5, "longest_s": 2.0}, [DOWN] * 9, 7.0, 3, id="no pause is longer than the longest"),
    pytest.param({"deadline": 7.5}, [DOWN] * 9, 7.0, 0, id="no pause ends after the deadline"),
    pytest.param({"tries": 2}, [TooManyRequests("busy", retry_after_s=9.0)] * 2, 9.0, 0,
        id="a server requests a longer pause"),
    pytest.param({"tries": 2}, [TooManyRequests("busy", retry_after_s=0.1)] * 2, 1.0, 0,
        id="a server requests a shorter pause"),
])  # fmt: skip
async def test_pauses(policy: dict[str, Any], errors: list[ApiError], slept_s: float, longest: int) -> None:
    clock, calls = Napping(), []
    retry = Retry(clock, first_s=1.0, on_longest=lambda: calls.append(clock.now()), **policy)
    with pytest.raises(ApiError):
        await paused(retry, errors)

    assert (slept_s, longest) == (clock.slept_s, len(calls))


async def test_one_pause_of_another_length() -> None:
    clock = Napping()
    retry = Retry(clock, first_s=1.0)
    await retry.pause(DOWN, pause_s=0.25)
    await retry.pause(DOWN)

    assert clock.slept_s == 2.25


@pytest.mark.parametrize(
    ("takes_s", "is_done"),
    [pytest.param(3.0, True, id="it is done before"), pytest.param(9.0, False, id="it takes longer")],
)
async def test_whichever_comes_first(takes_s: float, is_done: bool) -> None:
    clock = VirtualClock()
    work = asyncio.ensure_future(clock.sleep(takes_s))
    waiting = asyncio.ensure_future(done_within(clock, work, 5.0))
    await clock.advance(5.0)

    assert await waiting is is_done
    await asyncio.gather(work, return_exceptions=True)
    assert work.cancelled() is not is_done


async def test_a_failure_counts_as_done() -> None:
    async def fail() -> None:
        raise ValueError("no")

    work = asyncio.ensure_future(fail())
    assert await done_within(VirtualClock(), work, 5.0)
    assert isinstance(work.exception(), ValueError)


async def test_cancelled_it_takes_the_work_with_it() -> None:
    clock = VirtualClock()
    work = asyncio.ensure_future(clock.sleep(9.0))
    waiting = asyncio.ensure_future(done_within(clock, work, 5.0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, work, return_exceptions=True)

    assert (waiting.cancelled(), work.cancelled()) == (True, True)


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
