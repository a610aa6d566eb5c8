"""The virtual clock of whole worlds: time does not stand while a task sleeps."""

from __future__ import annotations

import asyncio
import math

import pytest

from tests.integration.skipping import SkippingClock


@pytest.mark.parametrize("left_s", [0.0, 1e-12, 1e-9, 2e-9, 1e-6, 60.0])
async def test_a_caller_that_sleeps_what_is_left_arrives(left_s: float) -> None:
    """A rest below the resolution of asyncio's timers is slept as well, though the loop has work each time."""
    clock = SkippingClock()
    clock._now_s = 8789.979414000998
    due = math.nextafter(clock.now() + left_s, math.inf)
    for _ in range(3):
        asyncio.get_running_loop().call_soon(lambda: None)
        await clock.sleep(max(0.0, due - clock.now()))

    assert due <= clock.now() <= due + 2e-6
