"""Fixtures of several modules of this folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from scheduler.metrics import logs
from tests.integration.clocks import HastyClock


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the logging set-up of the test process: the command would replace it."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    monkeypatch.setattr(logs, "setup", lambda *_, **__: None)
    yield
    structlog.configure(**before)


@pytest.fixture
async def clock() -> HastyClock:
    """Return the clock that the server and the daemons of a test share."""
    return HastyClock()
