"""A request to a busy server is sent again as often as allowed, after the server's own pauses."""

import pytest

from scheduler.core.busy import BusyRetry
from scheduler.core.clock import SystemClock
from scheduler.core.errors import TooManyRequests


class Napping(SystemClock):
    """Adds up the pauses."""

    slept_s = 0.0

    async def sleep(self, delay_s: float) -> None:
        self.slept_s += delay_s


async def attempts(*waits_s: float | None, tries: int) -> tuple[int, float, bool]:
    """Return the number of requests, the time at the end, and whether one succeeded; the server is busy first."""
    clock, sent = Napping(), 0
    busy = BusyRetry(clock, tries=tries)
    try:
        for wait_s in waits_s:
            sent += 1
            await busy.wait(TooManyRequests("busy", retry_after_s=wait_s))
    except TooManyRequests:
        return sent, clock.slept_s, False
    return sent + 1, clock.slept_s, True


@pytest.mark.parametrize(
    ("waits_s", "tries", "expected"),
    [
        pytest.param((), 1, (1, 0, True), id="not busy"),
        pytest.param((1.0,), 1, (1, 0, False), id="only one try"),
        pytest.param((1.0, 2.0), 3, (3, 3, True), id="the server's own pauses"),
        pytest.param((1.0, 2.0, 4.0), 3, (3, 3, False), id="no pause after the last try"),
        pytest.param((1.0, None), 3, (2, 1, False), id="no time named"),
    ],
)
async def test_busy(waits_s: tuple[float | None, ...], tries: int, expected: tuple[int, float, bool]) -> None:
    assert expected == await attempts(*waits_s, tries=tries)
