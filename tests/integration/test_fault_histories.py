"""Whatever faults an API server makes: each pod is bound once, none is lost, and no pod that fits stays pending."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest
import structlog
from hypothesis import given, strategies as st

from scheduler.kube import reflector
from tests.integration.histories import LONG, Step, fixed, histories, live, random


@fixed(12)
@given(histories, st.booleans())
def test_nothing_is_bound_twice_lost_or_left(history: list[Step], watch_list: bool) -> None:
    _keeps_the_laws(history, watch_list)


@pytest.mark.timeout(LONG * 10 or 300)
@random(8)
@given(histories, st.booleans())
def test_nor_in_histories_of_this_run(history: list[Step], watch_list: bool) -> None:
    _keeps_the_laws(history, watch_list)


def _keeps_the_laws(history: list[Step], watch_list: bool) -> None:
    # Pages of three: lists have several, which can expire in between.
    with structlog.testing.capture_logs() as log, mock.patch.object(reflector, "_PAGE", "3"):
        broken = asyncio.run(live(history, watch_list=watch_list, kubelets_grace_s=2))

    assert [] == broken
    # The self-check says which permission was taken away; any other error is unexpected.
    assert [] == [line for line in log if line["log_level"] == "error" and line["event"] != "self-check"]
