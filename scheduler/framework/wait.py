"""Waits for a condition of an object, and for responses to writes; used for volumes, devices and claims."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeAlias, TypeVar

from scheduler.core.clock import Clock, done_within

Subscribe: TypeAlias = Callable[[Callable[[], None]], Callable[[], None]]
"""Takes a callback for each event; returns the function that ends the subscription."""


async def wait_until(  # noqa: PLR0913 (the inputs of a wait)
    is_done: Callable[[], bool],
    clock: Clock,
    deadline: float,
    *,
    subscribe: Subscribe | None = None,
    poll_s: Callable[[float], float] | None = None,
    on_poll: Callable[[float], None] | None = None,
    starts_with_poll: bool = False,
) -> bool:
    """Return True once `is_done` returns True, False at the deadline (by `clock.now()`).

    `is_done` is called at once (unless `starts_with_poll`), after each event, after each poll and at the deadline; an
    exception from it ends the wait. `poll_s` gets the seconds since the wait began and returns the seconds until the
    next poll. `on_poll` gets the same seconds at each poll, before `is_done` is called. Cancellation ends the
    subscription.
    """
    event = asyncio.Event()
    unsubscribe = subscribe(event.set) if subscribe is not None else None
    began = clock.now()
    try:
        if not starts_with_poll and is_done():
            return True
        next_poll = began + poll_s(0.0) if poll_s is not None else deadline
        while (now := clock.now()) < deadline:
            await done_within(clock, event.wait(), max(0.0, min(next_poll, deadline) - now))
            event.clear()
            now = clock.now()
            if poll_s is not None and now >= next_poll:
                next_poll = now + poll_s(now - began)
                if on_poll is not None:
                    on_poll(now - began)
            if is_done():
                return True
        return False
    finally:
        if unsubscribe is not None:
            unsubscribe()


T = TypeVar("T")


async def settle(write: Coroutine[Any, Any, T]) -> T:
    """Return the write's result, even if the caller is cancelled; the cancellation is raised again at the next await.

    Raise what the write raises. Each call costs a task, so use it for writes, not for reads.
    """
    sent = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(sent)
    except asyncio.CancelledError:
        if sent.cancelled():
            raise
        await asyncio.wait([sent])
        task = asyncio.current_task()
        if task is not None:
            task.cancel()
        return sent.result()


async def ended_within(tasks: Collection[asyncio.Task[Any]], limit_s: float, clock: Clock) -> None:
    """Return when all tasks have ended or the time is up, whichever comes first. No task is cancelled."""
    if tasks:
        await done_within(clock, asyncio.wait(list(tasks)), limit_s)
