"""Writes that nobody waits for: giving back what a pod does not need (architecture D1, D10).

Tried until the server has answered for good. What is given up is logged; the next attempt sees what there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from scheduler.core.clock import Clock
from scheduler.core.errors import Ambiguous, ApiError, Unavailable

_log = structlog.get_logger(__name__)
_TRIES: Final = 5
_PAUSE_S: Final = 0.5


class Errands:
    """Those of one plugin. To be used where an event loop runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, write: Callable[[], Awaitable[None]], what: str) -> None:
        """Do it in the background. `what` is for the log; a second try must do no harm."""
        task = asyncio.ensure_future(self._run(write, what))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, write: Callable[[], Awaitable[None]], what: str) -> None:
        pause_s = _PAUSE_S
        for left in reversed(range(_TRIES)):
            try:
                await write()
            except (Ambiguous, Unavailable) as error:
                if not left:
                    _log.warning("gave up", what=what, error=str(error))
                    return
                await self._clock.sleep(pause_s)
                pause_s *= 2
            except ApiError as error:
                _log.info("not done", what=what, error=str(error))
                return
            else:
                return
