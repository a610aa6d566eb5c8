import asyncio

import pytest

from scheduler.kube.rate_limit import Throttle
from tests.support.clock import VirtualClock


class Line:
    """Callers of one throttle, and who was served when."""

    def __init__(self, *, qps: float, burst: int) -> None:
        self.clock = VirtualClock()
        self.throttle = Throttle(self.clock, qps=qps, burst=burst)
        self.served: list[str] = []

    def join(self, name: str, *, urgent: bool = False) -> asyncio.Task[None]:
        async def wait() -> None:
            await self.throttle.take(urgent=urgent)
            self.served.append(name)

        return asyncio.create_task(wait())


async def test_the_burst_is_free_and_then_tokens_come_at_their_rate():
    """Two at once, then one every half second."""
    line = Line(qps=2, burst=2)
    tasks = [line.join(str(n)) for n in range(5)]
    counts = []
    for step_s in (0.0, 0.5, 0.5, 0.5):
        await line.clock.advance(step_s)
        counts.append(len(line.served))

    assert [2, 3, 4, 5] == counts
    assert ["0", "1", "2", "3", "4"] == line.served
    await asyncio.gather(*tasks)


async def test_unused_tokens_are_saved_up_to_the_burst():
    """An idle hour is worth no more than the burst."""
    line = Line(qps=10, burst=3)
    await asyncio.gather(*(line.join("early") for _ in range(3)))
    await line.clock.advance(3600.0)
    tasks = [line.join("late") for _ in range(5)]
    await line.clock.settle()

    assert 3 == line.served.count("late")
    await line.clock.advance(1.0)
    await asyncio.gather(*tasks)


async def test_bindings_are_served_first():
    """A binding that comes later overtakes everything else, and each kind keeps its order."""
    line = Line(qps=1, burst=1)
    await line.throttle.take()
    tasks = [line.join("event 1"), line.join("event 2")]
    await line.clock.settle()
    tasks += [line.join("bind 1", urgent=True), line.join("bind 2", urgent=True)]
    await line.clock.advance(4.0)

    assert ["bind 1", "bind 2", "event 1", "event 2"] == line.served
    await asyncio.gather(*tasks)


async def test_bindings_never_starve_the_others():
    """Every fifth token goes to whoever else waits."""
    line = Line(qps=1, burst=1)
    await line.throttle.take()
    tasks = [line.join("other") for _ in range(2)] + [line.join("bind", urgent=True) for _ in range(12)]
    await line.clock.advance(14.0)

    assert [4, 9] == [n for n, name in enumerate(line.served) if name == "other"]
    await asyncio.gather(*tasks)


async def test_who_gives_up_costs_no_token():
    """A cancelled waiter leaves the line; one cancelled with the token in hand gives it back."""
    line = Line(qps=1, burst=1)
    await line.throttle.take()
    first, second, third = line.join("1"), line.join("2"), line.join("3")
    await line.clock.settle()
    assert 3 == line.throttle.waiting

    first.cancel()
    await line.clock.settle()
    assert 2 == line.throttle.waiting
    await line.clock.advance(1.0)
    assert ["2"] == line.served

    third.cancel()
    await line.clock.settle()
    last = line.join("4")
    await line.clock.advance(1.0)
    assert ["2", "4"] == line.served
    await asyncio.gather(first, second, third, last, return_exceptions=True)


async def test_a_token_granted_to_someone_who_was_cancelled_meanwhile_is_given_back():
    """Both happen within one turn of the loop."""
    line = Line(qps=1, burst=1)
    await line.throttle.take()
    granted = line.join("cancelled")
    await line.clock.settle()
    waiter = line.throttle._next()
    assert waiter is not None
    before = line.throttle._tokens

    waiter.set_result(None)
    granted.cancel()
    await line.clock.settle()

    assert before + 1 == line.throttle._tokens
    assert granted.cancelled()
    assert [] == line.served


@pytest.mark.parametrize("qps", [pytest.param(-1.0, id="negative")])
async def test_no_limit(qps):
    """As client-go: a negative rate switches the limit off."""
    throttle = Throttle(VirtualClock(), qps=qps, burst=1)
    for _ in range(1000):
        await throttle.take()


async def test_zero_means_the_default():
    """A burst of 100, as kube-scheduler's clientConnection."""
    line = Line(qps=0, burst=0)
    tasks = [line.join(str(n)) for n in range(120)]
    await line.clock.advance(0.0)

    assert 100 == len(line.served)
    await line.clock.advance(0.2)
    assert 110 == len(line.served)
    await line.clock.advance(1.0)
    await asyncio.gather(*tasks)
