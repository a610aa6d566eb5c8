"""The inbox applies changes in order. A change that raises affects only itself."""

from __future__ import annotations

import asyncio

from scheduler.context import Inbox


def test_changes_are_applied_in_order_and_one_that_raises_does_not_stop_the_next() -> None:
    inbox, seen = Inbox(), []

    def broken() -> None:
        raise RuntimeError

    inbox.put(lambda: seen.append(1))
    inbox.put(broken)
    inbox.put(lambda: seen.append(2))

    assert (inbox.apply(), seen, len(inbox)) == (3, [1, 2], 0)


def test_a_change_may_put_another() -> None:
    inbox, seen = Inbox(), []
    inbox.put(lambda: inbox.put(lambda: seen.append("later")))

    inbox.apply()

    assert seen == ["later"]


async def test_wait_returns_at_once_for_an_earlier_wake() -> None:
    inbox = Inbox()
    inbox.wake()
    await asyncio.wait_for(inbox.wait(), 30)
    waiting = asyncio.ensure_future(inbox.wait())
    await asyncio.sleep(0)
    assert not waiting.done()

    inbox.put(lambda: None)

    await asyncio.wait_for(waiting, 30)


def test_catch_up_applies_changes_except_during_an_attempt() -> None:
    """An attempt that yields to the event loop sees no change before its end.

    Rule: docs/architecture.md, "Design principles".
    """
    inbox, seen = Inbox(), []
    inbox.put(lambda: seen.append("news"))

    with inbox.closed():
        inbox.catch_up()
        assert (seen, len(inbox)) == ([], 1)
    inbox.catch_up()

    assert (seen, len(inbox)) == (["news"], 0)


async def test_caught_up_waits_for_the_end_of_the_attempt() -> None:
    inbox, seen = Inbox(), []
    inbox.put(lambda: seen.append("news"))
    waiting = []
    for _ in range(3):
        with inbox.closed():
            waiting.append(asyncio.ensure_future(inbox.caught_up()))
            await asyncio.sleep(0)
    assert (seen, [each.done() for each in waiting]) == ([], [False] * 3)

    inbox.apply()
    await asyncio.wait_for(asyncio.gather(*waiting), 30)
    inbox.put(lambda: seen.append("more"))
    await inbox.caught_up()

    assert (seen, len(inbox)) == (["news", "more"], 0)
