"""Whatever happens to pods that need all at once, and to the daemons: what was reserved is bound or undone, nothing is left."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest
import structlog
from hypothesis import given, strategies as st

from scheduler.kube import reflector
from tests.integration.histories import LONG, Step, so_many
from tests.integration.judging import unforeseen
from tests.integration.mixedhistories import histories, live


@pytest.mark.timeout(LONG * 30 or 600)
@so_many(10)
@given(histories, st.booleans())
def test_what_was_reserved_is_bound_or_undone(history: list[Step], watch_list: bool) -> None:
    """The laws of tests/integration/mixedworld.py hold after every history, and the log tells of nothing unforeseen."""
    with structlog.testing.capture_logs() as log, mock.patch.object(reflector, "_PAGE", "3"):
        broken = asyncio.run(live(history, watch_list=watch_list))

    assert [] == broken
    assert [] == unforeseen(log)
