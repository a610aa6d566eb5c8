"""The inbox: changes in order, none lost, one broken one costs only itself."""

from __future__ import annotations

import asyncio

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
    """A wake-up between two waits is not lost, and ends one wait only."""
    inbox = Inbox()
    inbox.wake()
    await asyncio.wait_for(inbox.wait(), 30)
    waiting = asyncio.ensure_future(inbox.wait())
    await asyncio.sleep(0)
    assert not waiting.done()

    inbox.put(lambda: None)

    await asyncio.wait_for(waiting, 30)


def test_whoever_must_know_everything_catches_up_but_not_in_the_middle_of_an_attempt() -> None:
    """An attempt that gives the event loop a turn sees no change before its end (architecture D1)."""
    inbox, seen = Inbox(), []
    inbox.put(lambda: seen.append("news"))

    with inbox.closed():
        inbox.catch_up()
        assert (seen, len(inbox)) == ([], 1)
    inbox.catch_up()

    assert (seen, len(inbox)) == (["news"], 0)
