"""Fixtures of the tests of the library."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aiohttp import web_app


@pytest.fixture(autouse=True)
def _stopped_daemons_are_freed() -> Iterator[None]:
    """aiohttp keeps each server that answered a request, and so a whole daemon, in a cache of its middlewares."""
    yield
    web_app._cached_build_middleware.cache_clear()
