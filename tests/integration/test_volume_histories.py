"""Whatever happens to pods with volumes and to who serves them: no volume is promised twice, nobody who could be placed is left."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest
import structlog
from hypothesis import given, strategies as st

from scheduler.kube import reflector
from tests.integration.histories import LONG, Step, so_many, so_many_anew
from tests.integration.judging import unforeseen
from tests.integration.volumehistories import histories, live


@pytest.mark.timeout(600)
@so_many(7)
@given(histories, st.booleans())
def test_volumes_are_neither_promised_twice_nor_left_lying(history: list[Step], watch_list: bool) -> None:
    """The laws of tests/integration/volumeworld.py hold after every history, and the log tells of nothing unforeseen."""
    _keeps_the_laws(history, watch_list)


@pytest.mark.timeout(LONG * 20 or 600)
@so_many_anew(5)
@given(histories, st.booleans())
def test_nor_in_histories_of_this_run_alone(history: list[Step], watch_list: bool) -> None:
    """As above."""
    _keeps_the_laws(history, watch_list)


def _keeps_the_laws(history: list[Step], watch_list: bool) -> None:
    with structlog.testing.capture_logs() as log, mock.patch.object(reflector, "_PAGE", "3"):
        broken = asyncio.run(live(history, watch_list=watch_list))

    assert [] == broken
    assert [] == unforeseen(log)
