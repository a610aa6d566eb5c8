"""SIGKILL at twenty moments of a burst of pods with volumes and devices: none of them is stuck afterwards (docs/adr/0012)."""

from __future__ import annotations

import datetime as dt
import os
from typing import Final

import pytest

from tests.integration.restart_bursts import PODS, restarting

COUNT: Final = max(1, round(5 * float(os.environ.get("KUBESTOW_EXAMPLES") or 1)))
"""Fifty with `KUBESTOW_EXAMPLES=10`."""
TODAY: Final = dt.datetime.now(tz=dt.UTC).toordinal() * 100
"""The seeds change each day."""


@pytest.mark.parametrize("nth", range(COUNT))
async def test_no_pod_is_stuck_after_a_daemon_has_been_killed_again_and_again(nth: int) -> None:
    seed = TODAY + nth
    async with restarting(seed) as burst:
        await burst.run()
        left = await burst.unbound()
        assert (seed, left, burst.broken_laws()) == (seed, [], [])
        assert len(burst.cluster.server.list("pods")) == PODS
