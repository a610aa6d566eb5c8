"""Requests are throttled: bindings go before events, and events still get through."""

import asyncio

import pytest

from scheduler.kube.rate_limit import BUSY, RequestsInFlight, Throttle
from tests.support.clock import VirtualClock


class Line:
    """Callers of one throttle, in the order in which they are served."""

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


async def test_bindings_never_starve_other_requests():
    """Every fifth token goes to another waiting request."""
    line = Line(qps=1, burst=1)
    await line.throttle.take()
    tasks = [line.join("other") for _ in range(2)] + [line.join("bind", urgent=True) for _ in range(12)]
    await line.clock.advance(14.0)

    assert [4, 9] == [n for n, name in enumerate(line.served) if name == "other"]
    await asyncio.gather(*tasks)


async def test_a_cancelled_caller_costs_no_token():
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


async def test_a_negative_rate_switches_the_limit_off():
    """As client-go."""
    throttle = Throttle(VirtualClock(), qps=-1, burst=1)
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


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Wire:
    """Requests in flight, and events that want to be sent."""

    def __init__(self, bindings: int, events: int) -> None:
        self.requests = RequestsInFlight()
        self.urgent = [self.requests.urgent() for _ in range(bindings)]
        for each in self.urgent:
            each.__enter__()
        self.in_flight = [self.requests.event() for _ in range(events)]
        self.events = [asyncio.ensure_future(each.__aenter__()) for each in self.in_flight]

    @property
    def entered(self) -> int:
        return sum(event.done() for event in self.events)


async def wire(*, bindings: int = BUSY, events: int = 3) -> Wire:
    made = Wire(bindings, events)
    await turn()
    return made


@pytest.mark.parametrize(
    ("bindings", "entered"),
    [
        pytest.param(0, 3, id="nothing else on the wire: all at once"),
        pytest.param(BUSY - 1, 3, id="a few bindings: all at once"),
        pytest.param(BUSY, 1, id="a burst: one"),
    ],
)
async def test_events_enter(bindings, entered):
    full = await wire(bindings=bindings)

    assert entered == full.entered
    for event in full.events:
        event.cancel()


async def test_during_a_burst_one_follows_another():
    full = await wire()
    for done, event in enumerate(full.in_flight, start=1):
        assert done == full.entered
        await event.__aexit__(None, None, None)
        await turn()


async def test_the_end_of_a_burst_lets_all_in():
    full = await wire(events=5)
    full.urgent[0].__exit__(None, None, None)
    await turn()

    assert 5 == full.entered


async def test_one_that_gives_up_does_not_take_the_turn_with_it():
    full = await wire()
    first, second, third = full.events
    second.cancel()
    await turn()

    await full.in_flight[0].__aexit__(None, None, None)
    await turn()

    assert (first.done(), second.cancelled(), third.done()) == (True, True, True)
