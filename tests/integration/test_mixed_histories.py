"""Pods with volumes, devices and placement rules, under faults and fail-overs: each reservation ends in a Binding or is undone."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest
import structlog
from hypothesis import given, strategies as st

from scheduler.kube import reflector
from tests.integration.daemon_laws import unforeseen
from tests.integration.histories import LONG, Step, fixed, live, random
from tests.integration.mixed_histories import histories


@pytest.mark.timeout(900)
@fixed(14)
@given(histories, st.booleans())
def test_what_was_reserved_is_bound_or_undone(history: list[Step], watch_list: bool) -> None:
    _keeps_the_laws(history, watch_list)


@pytest.mark.timeout(LONG * 30 or 900)
@random(9)
@given(histories, st.booleans())
def test_nor_is_anything_left_in_histories_of_this_run(history: list[Step], watch_list: bool) -> None:
    _keeps_the_laws(history, watch_list)


def _keeps_the_laws(history: list[Step], watch_list: bool) -> None:
    with structlog.testing.capture_logs() as log, mock.patch.object(reflector, "_PAGE", "3"):
        broken = asyncio.run(live(history, watch_list=watch_list, volumes=True, devices=True, replicas=2))

    assert [] == broken
    # An elector that cannot reach the server logs an error as well.
    assert [] == [line for line in unforeseen(log) if line["event"] != "lease neither renewed nor acquired"]
