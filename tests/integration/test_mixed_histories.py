"""Pods with volumes, devices and placement rules, under faults and fail-overs: each reservation ends in a Binding or is undone."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest
import structlog
from hypothesis import given, strategies as st

from scheduler.kube import reflector
from tests.integration.histories import LONG, Step, so_many, so_many_anew
from tests.integration.judging import unforeseen
from tests.integration.mixedhistories import histories, live


@pytest.mark.timeout(900)
@so_many(14)
@given(histories, st.booleans())
def test_what_was_reserved_is_bound_or_undone(history: list[Step], watch_list: bool) -> None:
    _keeps_the_laws(history, watch_list)


@pytest.mark.timeout(LONG * 30 or 900)
@so_many_anew(9)
@given(histories, st.booleans())
def test_nor_is_anything_left_in_histories_of_this_run_alone(history: list[Step], watch_list: bool) -> None:
    _keeps_the_laws(history, watch_list)


def _keeps_the_laws(history: list[Step], watch_list: bool) -> None:
    with structlog.testing.capture_logs() as log, mock.patch.object(reflector, "_PAGE", "3"):
        broken = asyncio.run(live(history, watch_list=watch_list))

    assert [] == broken
    # So do those that elect a leader.
    assert [] == [line for line in unforeseen(log) if line["event"] != "lease neither renewed nor acquired"]
