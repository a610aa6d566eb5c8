"""A write that was sent is awaited to its answer (architecture D10)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

from scheduler.core.clock import Clock, done_within

T = TypeVar("T")


async def settle(write: Coroutine[Any, Any, T]) -> T:
    """The write's answer, even if we are cancelled meanwhile; the cancellation is delivered again at the next await.

    Raises what the write raises. Costs a task, so it is for writes, not for reads.
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
    """Return when all of them have ended or the time is up, whichever comes first. Cancels nobody."""
    if tasks:
        await done_within(clock, asyncio.wait(list(tasks)), limit_s)
