"""What several files of this room need."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from scheduler.metrics import logs
from tests.integration.mortal import HastyClock


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The command sets up logging for its process; here it is a guest in another's."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    monkeypatch.setattr(logs, "setup", lambda *_, **__: None)
    yield
    structlog.configure(**before)


@pytest.fixture
async def clock() -> HastyClock:
    """The time of a test: its server and its daemons take the same clock."""
    return HastyClock()
