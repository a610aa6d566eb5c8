"""Writes that nobody waits for: tried until they are answered, and known to whoever relies on what they are about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import structlog.testing

from scheduler.core.errors import Ambiguous, Conflict, Forbidden, NotFound, TooManyRequests, Unavailable
from scheduler.framework.background_writes import Errands
from tests.support.clock import VirtualClock

ABOUT = "default/c"


def failing(*errors: Exception, tries: list[float], clock: VirtualClock) -> Callable[[], Awaitable[None]]:
    """Fails like this, one after the other, then succeeds."""
    left = list(errors)

    async def write() -> None:
        tries.append(round(clock.now(), 3))
        if left:
            raise left.pop(0)

    return write


@pytest.mark.parametrize(("errors", "expected", "is_given_up"), [
    pytest.param([], [0.0], False, id="it succeeds"),
    pytest.param([Unavailable("500")], [0.0, 0.5], False, id="a broken server is tried again"),
    pytest.param([Ambiguous("lost"), Ambiguous("lost")], [0.0, 0.5, 1.5], False,
        id="so is a lost answer, more and more slowly"),
    pytest.param([TooManyRequests("busy", retry_after_s=7.0)], [0.0, 7.0], False, id="a busy server says when"),
    pytest.param([Conflict("changed")], [0.0], True, id="somebody was faster: left to the next attempt"),
    pytest.param([Forbidden("may not")], [0.0], True, id="forbidden"),
    pytest.param([NotFound("gone")], [0.0], False, id="nothing to give back any more"),
    pytest.param([Unavailable("500")] * 20, [0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 61.5, 91.5, 121.5], True,
        id="given up after two minutes"),
    pytest.param([KeyError("oops")], [0.0, 0.5], False, id="a mistake of ours may pass"),
    pytest.param([Unavailable("500"), KeyError("oops"), Ambiguous("lost")], [0.0, 0.5, 1.5, 3.5], False,
        id="whatever goes wrong, in turn"),
    pytest.param([KeyError("oops")] * 20, [0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 61.5, 91.5, 121.5], True,
        id="a mistake that stays is given up after two minutes"),
])  # fmt: skip
async def test_how_often_it_is_tried(errors: list[Exception], expected: list[float], *, is_given_up: bool) -> None:
    """Then it is over; if nothing came of it, whoever waits for the claim is asked again."""
    clock, tries, given_up = VirtualClock(), list[float](), list[str]()
    errands = Errands(clock, given_up=given_up.append)

    errands.run(failing(*errors, tries=tries, clock=clock), "release", about=ABOUT)
    await clock.advance(300.0)

    assert (expected, 0, [ABOUT] if is_given_up else []) == (tries, len(errands), given_up)


async def test_a_mistake_is_told_once_with_the_claim_and_costs_nobody_else() -> None:
    """Another one, too; what is done beside it goes on."""
    clock, tries, others, given_up = VirtualClock(), list[float](), list[float](), list[str]()
    errands = Errands(clock, given_up=given_up.append)
    mistakes = [KeyError("oops"), KeyError("oops"), TypeError("and this"), KeyError("oops")]

    with structlog.testing.capture_logs() as log:
        errands.run(failing(*mistakes, tries=tries, clock=clock), "release", about=ABOUT)
        errands.run(failing(Unavailable("500"), tries=others, clock=clock), "free", about="default/d")
        await clock.advance(300.0)

    assert ([0.0, 0.5, 1.5, 3.5, 7.5], [0.0, 0.5], []) == (tries, others, given_up)
    errors = [line for line in log if line["log_level"] == "error"]
    told = [(line["what"], line["claim"], line["error"]) for line in errors]
    assert [("release", ABOUT, "KeyError('oops')"), ("release", ABOUT, "TypeError('and this')")] == told
    assert all(line["exc_info"] for line in errors)


async def test_who_is_told_may_fail_too() -> None:
    """It is logged, and the errand is over."""
    clock, tries = VirtualClock(), list[float]()

    def fail(_: str) -> None:
        raise KeyError("oops")

    errands = Errands(clock, given_up=fail)
    with structlog.testing.capture_logs() as log:
        errands.run(failing(Forbidden("may not"), tries=tries, clock=clock), "release", about=ABOUT)
        await clock.advance(300.0)

    assert ([0.0], 0) == (tries, len(errands))
    assert [("error", ABOUT)] == [(line["log_level"], line["claim"]) for line in log if line["log_level"] == "error"]
    errands.run(failing(tries=tries, clock=clock), "release", about=ABOUT)
    await clock.settle()
    assert 2 == len(tries)


async def test_the_same_is_not_done_twice_at_once() -> None:
    """But again when it is over."""
    clock, tries, given_up = VirtualClock(), list[float](), list[str]()
    errands = Errands(clock, given_up=given_up.append)
    write = failing(Unavailable("500"), tries=tries, clock=clock)

    errands.run(write, "release", about=ABOUT)
    errands.run(write, "release", about=ABOUT)
    await clock.advance(1.0)
    errands.run(write, "release", about=ABOUT)
    await clock.advance(1.0)

    assert [0.0, 0.5, 1.0] == tries


async def test_who_relies_on_a_claim_waits_for_what_is_under_way_about_it() -> None:
    """And for nothing else; being cancelled cancels no errand."""
    clock, tries, given_up = VirtualClock(), list[float](), list[str]()
    errands = Errands(clock, given_up=given_up.append)
    errands.run(failing(Unavailable("500"), tries=tries, clock=clock), "release", about=ABOUT)
    waits = asyncio.ensure_future(errands.done([ABOUT]))
    stopped = asyncio.ensure_future(errands.done([ABOUT]))
    other = asyncio.ensure_future(errands.done(["default/d"]))
    await clock.settle()
    stopped.cancel()
    await clock.settle()

    assert (False, True, True) == (waits.done(), stopped.cancelled(), other.done())
    await clock.advance(0.5)
    assert (True, [0.0, 0.5]) == (waits.done(), tries)


async def test_what_is_begun_while_somebody_waits_is_waited_for_too() -> None:
    """Until nothing is under way any more."""
    clock, tries, given_up = VirtualClock(), list[float](), list[str]()
    errands = Errands(clock, given_up=given_up.append)
    errands.run(failing(Unavailable("500"), tries=tries, clock=clock), "release", about=ABOUT)
    waits = asyncio.ensure_future(errands.done(key for key in (ABOUT,)))
    await clock.settle()
    errands.run(failing(Unavailable("500"), Unavailable("500"), tries=tries, clock=clock), "free", about=ABOUT)

    await clock.advance(0.5)
    assert not waits.done()
    await clock.advance(1.0)
    assert waits.done()


async def test_whoever_stops_waits_for_all_of_them() -> None:
    """Also for those that are begun meanwhile; with nothing under way not at all."""
    clock, tries, given_up = VirtualClock(), list[float](), list[str]()
    errands = Errands(clock, given_up=given_up.append)
    await errands.drain()
    errands.run(failing(Unavailable("500"), tries=tries, clock=clock), "release", about=ABOUT)
    stops = asyncio.ensure_future(errands.drain())
    await clock.settle()
    errands.run(failing(Unavailable("500"), Unavailable("500"), tries=tries, clock=clock), "free", about="default/d")

    await clock.advance(0.5)
    assert (len(errands), stops.done()) == (1, False)
    await clock.advance(1.0)
    assert (len(errands), stops.done()) == (0, True)


async def test_a_claim_that_was_created_again_under_its_name_gets_a_write_of_its_own() -> None:
    """The first write still waits for a busy server when the second claim is to be deallocated."""
    clock, tries, again = VirtualClock(), list[float](), list[float]()
    errands = Errands(clock)
    errands.run(failing(Unavailable("503"), NotFound("gone"), tries=tries, clock=clock), "w", about=ABOUT, uid="1")
    await clock.advance(0.1)

    errands.run(failing(tries=again, clock=clock), "w", about=ABOUT, uid="2")
    await clock.advance(5.0)

    assert (tries, again) == ([0.0, 0.5], [0.1])
    assert len(errands) == 0
