"""Whatever happens to pods with devices and to who serves them: nothing is given twice, nobody who could be placed is left."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest
from hypothesis import given, strategies as st

from scheduler.kube import reflector
from tests.integration.devicehistories import histories, live
from tests.integration.histories import LONG, Step, so_many, so_many_anew


@pytest.mark.timeout(600)
@so_many(5)
@given(histories, st.booleans())
def test_devices_are_neither_given_twice_nor_left_lying(history: list[Step], watch_list: bool) -> None:
    """The laws of tests/integration/deviceworld.py hold after every history, and the log tells of nothing unforeseen."""
    _keeps_the_laws(history, watch_list)


@pytest.mark.timeout(LONG * 20 or 600)
@so_many_anew(3)
@given(histories, st.booleans())
def test_nor_in_histories_of_this_run_alone(history: list[Step], watch_list: bool) -> None:
    """As above."""
    _keeps_the_laws(history, watch_list)


def _keeps_the_laws(history: list[Step], watch_list: bool) -> None:
    with mock.patch.object(reflector, "_PAGE", "3"):
        broken = asyncio.run(live(history, watch_list=watch_list))

    assert [] == broken
