"""Events give way to bindings, and still get through."""

import asyncio

import pytest

from scheduler.kube.rate_limit import BUSY, RequestsInFlight


def started(requests_in_flight: RequestsInFlight) -> "asyncio.Task[None]":
    return asyncio.ensure_future(requests_in_flight.event_enters())


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("bindings", "entered"),
    [
        pytest.param(0, 3, id="nothing else on the wire: all at once"),
        pytest.param(BUSY - 1, 3, id="a few bindings: all at once"),
        pytest.param(BUSY, 1, id="a burst: one"),
    ],
)
async def test_events_enter(bindings, entered):
    """How many of three events may be on the wire beside so many bindings."""
    requests_in_flight = RequestsInFlight()
    for _ in range(bindings):
        requests_in_flight.urgent_enters()

    events = [started(requests_in_flight) for _ in range(3)]
    await turn()

    assert entered == sum(event.done() for event in events)
    for event in events:
        event.cancel()


async def test_during_a_burst_one_follows_another():
    """The next event enters when the last one has left: they trickle."""
    requests_in_flight = RequestsInFlight()
    for _ in range(BUSY):
        requests_in_flight.urgent_enters()
    events = [started(requests_in_flight) for _ in range(3)]
    await turn()

    for done in (1, 2, 3):
        assert done == sum(event.done() for event in events)
        requests_in_flight.event_leaves()
        await turn()


async def test_the_end_of_a_burst_lets_all_in():
    """No event is left behind when bindings ebb."""
    requests_in_flight = RequestsInFlight()
    for _ in range(BUSY):
        requests_in_flight.urgent_enters()
    events = [started(requests_in_flight) for _ in range(5)]
    await turn()

    requests_in_flight.urgent_leaves()
    await turn()

    assert all(event.done() for event in events)


async def test_one_that_gives_up_does_not_take_the_turn_with_it():
    """A cancelled waiter is passed over."""
    requests_in_flight = RequestsInFlight()
    for _ in range(BUSY):
        requests_in_flight.urgent_enters()
    first, second, third = (started(requests_in_flight) for _ in range(3))
    await turn()
    second.cancel()
    await turn()

    requests_in_flight.event_leaves()
    await turn()

    assert (first.done(), second.cancelled(), third.done()) == (True, True, True)
