"""The inbox: changes in order, none lost, one broken one costs only itself."""

from __future__ import annotations

import asyncio

from scheduler.core.clock import SystemClock
from scheduler.inbox import Inbox


def test_changes_are_applied_in_order_and_a_broken_one_stops_nothing() -> None:
    """What arrives behind a failing change is still applied."""
    inbox, seen = Inbox(), []

    def broken() -> None:
        raise RuntimeError

    inbox.put(lambda: seen.append(1))
    inbox.put(broken)
    inbox.put(lambda: seen.append(2))

    assert (inbox.apply(), seen, len(inbox)) == (3, [1, 2], 0)


def test_a_change_may_put_another() -> None:
    """A follow-up is applied in the same round."""
    inbox, seen = Inbox(), []
    inbox.put(lambda: inbox.put(lambda: seen.append("later")))

    inbox.apply()

    assert seen == ["later"]


async def test_wait_returns_at_once_for_news_that_came_before() -> None:
    """A wake-up between two waits is not lost."""
    inbox = Inbox()
    inbox.wake()

    await asyncio.wait_for(inbox.wait(SystemClock(), None), 30)


async def test_wait_ends_by_news_or_by_its_limit() -> None:
    """Both ways out leave no task behind."""
    inbox = Inbox()
    await asyncio.wait_for(inbox.wait(SystemClock(), 0.001), 30)
    waiting = asyncio.ensure_future(inbox.wait(SystemClock(), 3600))
    await asyncio.sleep(0)

    inbox.put(lambda: None)

    await asyncio.wait_for(waiting, 30)
    assert len(asyncio.all_tasks()) == 1
