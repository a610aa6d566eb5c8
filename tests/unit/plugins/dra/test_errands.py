"""Background writes are retried until the server answers. A caller can wait for the writes of a claim."""

from __future__ import annotations

import asyncio

import pytest
import structlog.testing

from scheduler.core.errors import (
    Ambiguous,
    Conflict,
    Forbidden,
    NotFound,
    TooManyRequests,
    Unavailable,
    UnforeseenErrors,
)
from scheduler.framework.wait import BackgroundWrites
from tests.support.clock import VirtualClock

ABOUT = "default/c"


class World:
    """Runs background writes; records the times of the tries and the claims that were given up."""

    def __init__(self) -> None:
        self.clock, self.given_up = VirtualClock(), list[str]()
        self.background = BackgroundWrites(
            self.clock, given_up=self.given_up.append, errors=UnforeseenErrors(self.clock)
        )

    def run(self, *errors: Exception, what: str = "release", about: str = ABOUT, uid: str = "") -> list[float]:
        """Begin a write that fails like this, one after the other, and then succeeds. Return when it is tried."""
        left, tries = list(errors), list[float]()

        async def write() -> None:
            tries.append(round(self.clock.now(), 3))
            if left:
                raise left.pop(0)

        self.background.run(write, what, about=about, uid=uid)
        return tries

    def waits(self, *about: str) -> asyncio.Future[None]:
        """Return a future that ends with the running writes of these claims."""
        return asyncio.ensure_future(self.background.done(key for key in about))


@pytest.mark.parametrize(("errors", "expected", "is_given_up"), [
    pytest.param([], [0.0], False, id="it succeeds"),
    pytest.param([Unavailable("500")], [0.0, 0.5], False, id="a broken server is tried again"),
    pytest.param([Ambiguous("lost"), Ambiguous("lost")], [0.0, 0.5, 1.5], False,
        id="so is a lost answer, more and more slowly"),
    pytest.param([TooManyRequests("busy", retry_after_s=7.0)], [0.0, 7.0], False, id="a busy server says when"),
    pytest.param([Conflict("changed")], [0.0], True, id="another writer was faster: left to the next attempt"),
    pytest.param([Forbidden("may not")], [0.0], True, id="forbidden"),
    pytest.param([NotFound("gone")], [0.0], False, id="nothing to give back any more"),
    pytest.param([Unavailable("500")] * 20, [0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 61.5, 91.5, 121.5], True,
        id="given up after two minutes"),
    pytest.param([KeyError("oops")], [0.0, 0.5], False, id="a mistake of ours may pass"),
    pytest.param([KeyError("oops")] * 20, [0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 61.5, 91.5, 121.5], True,
        id="a mistake that stays is given up after two minutes"),
])  # fmt: skip
async def test_how_often_it_is_tried(errors: list[Exception], expected: list[float], *, is_given_up: bool) -> None:
    """The write ends after these tries. If it failed, the claim is reported as given up."""
    world = World()

    tries = world.run(*errors)
    await world.clock.advance(300.0)

    assert (expected, 0, [ABOUT] if is_given_up else []) == (tries, len(world.background), world.given_up)


async def test_a_mistake_is_logged_once_with_the_claim_and_delays_no_other_write() -> None:
    """A different mistake is logged, too. Writes of another claim continue."""
    world = World()
    with structlog.testing.capture_logs() as log:
        tries = world.run(KeyError("oops"), KeyError("oops"), TypeError("and this"), KeyError("oops"))
        second_tries = world.run(Unavailable("500"), what="free", about="default/d")
        await world.clock.advance(300.0)

    assert ([0.0, 0.5, 1.5, 3.5, 7.5], [0.0, 0.5], []) == (tries, second_tries, world.given_up)
    errors = [line for line in log if line["log_level"] == "error"]
    logged = [(line["what"], line["claim"], line["error"]) for line in errors]
    assert [("release", ABOUT, "KeyError('oops')"), ("release", ABOUT, "TypeError('and this')")] == logged
    assert all(line["exc_info"] for line in errors)


async def test_the_callback_for_a_given_up_write_may_fail_too() -> None:
    """The failure is logged, and the write ends."""
    world = World()

    def fail(_: str) -> None:
        raise KeyError("oops")

    world.background = BackgroundWrites(world.clock, given_up=fail, errors=UnforeseenErrors(world.clock))
    with structlog.testing.capture_logs() as log:
        tries = world.run(Forbidden("may not"))
        await world.clock.advance(300.0)

    assert ([0.0], 0) == (tries, len(world.background))
    assert [("error", ABOUT)] == [(line["log_level"], line["claim"]) for line in log if line["log_level"] == "error"]
    again = world.run()
    await world.clock.settle()
    assert [300.0] == again


async def test_the_same_is_not_done_twice_at_once() -> None:
    """After the first write ended, the same write runs again."""
    world = World()
    first, second = world.run(Unavailable("500")), world.run()
    await world.clock.advance(1.0)
    third = world.run()
    await world.clock.advance(1.0)

    assert ([0.0, 0.5], [], [1.0]) == (first, second, third)


async def test_a_caller_that_needs_a_claim_waits_for_its_running_writes() -> None:
    """It waits for no other write. Cancelling the wait cancels no write."""
    world = World()
    tries = world.run(Unavailable("500"))
    waits, stopped, other = world.waits(ABOUT), world.waits(ABOUT), world.waits("default/d")
    await world.clock.settle()
    stopped.cancel()
    await world.clock.settle()

    assert (False, True, True) == (waits.done(), stopped.cancelled(), other.done())
    await world.clock.advance(0.5)
    assert (True, [0.0, 0.5]) == (waits.done(), tries)


async def test_a_write_that_begins_during_a_wait_is_waited_for_too() -> None:
    """The wait ends when no write of the claim is running."""
    world = World()
    world.run(Unavailable("500"))
    waits = world.waits(ABOUT)
    await world.clock.settle()
    world.run(Unavailable("500"), Unavailable("500"), what="free")

    await world.clock.advance(0.5)
    assert not waits.done()
    await world.clock.advance(1.0)
    assert waits.done()


async def test_drain_waits_for_all_writes() -> None:
    """It includes writes that begin during the wait. Without running writes it returns at once."""
    world = World()
    await world.background.drain()
    world.run(Unavailable("500"))
    stops = asyncio.ensure_future(world.background.drain())
    await world.clock.settle()
    world.run(Unavailable("500"), Unavailable("500"), what="free", about="default/d")

    await world.clock.advance(0.5)
    assert (len(world.background), stops.done()) == (1, False)
    await world.clock.advance(1.0)
    assert (len(world.background), stops.done()) == (0, True)


async def test_a_claim_that_was_created_again_under_its_name_gets_a_separate_write() -> None:
    """The first write still waits for a busy server when the second claim is to be deallocated."""
    world = World()
    tries = world.run(Unavailable("503"), NotFound("gone"), uid="1")
    await world.clock.advance(0.1)
    again = world.run(uid="2")
    await world.clock.advance(5.0)

    assert ([0.0, 0.5], [0.1], 0) == (tries, again, len(world.background))
