"""Credentials that are renewed in the background, for all transports that use the same settings.

A request never waits for a renewal that is due: it goes on with what there is, which is good for some minutes more. Only a
request that was refused waits, for it cannot go on.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import structlog

from scheduler.core.clock import Clock
from scheduler.kube.credentials import Settings

_log = structlog.get_logger(__name__)

RENEW_S: Final = 60.0


class Renewal:
    """At most one renewal runs at a time. Used inside one event loop."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._due_at = clock.now() + RENEW_S
        self._running: asyncio.Task[None] | None = None
        self._is_forced = False
        self.count = 0
        """Renewals that have ended: a transport that knows of fewer takes over what is in the settings."""

    def start_if_due(self) -> None:
        """Begin a renewal when the last one is a minute old and none runs."""
        if self._settings.renew is not None and self._running is None and self._clock.now() >= self._due_at:
            self._start(force=False)

    async def after_refusal(self) -> bool:
        """After a 401: return whether there are other credentials to try. Many refused requests share one renewal.

        Cancelling the caller does not cancel the renewal.
        """
        if self._settings.renew is None:
            return False
        before = self._current()
        if self._running is not None:
            was_forced = self._is_forced
            await asyncio.shield(self._running)
            if was_forced or self._current() != before:
                return self._current() != before
        await asyncio.shield(self._running or self._start(force=True))
        return self._current() != before

    async def close(self) -> None:
        """Cancel what runs."""
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running

    def _current(self) -> tuple[object, ...]:
        return self._settings.authorization, self._settings.tls

    def _start(self, *, force: bool) -> asyncio.Task[None]:
        assert self._settings.renew is not None
        self._is_forced = force
        self._running = task = asyncio.ensure_future(self._settings.renew(force))
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running = None
        self.count += 1
        self._due_at = self._clock.now() + RENEW_S
        if not task.cancelled() and task.exception() is not None:
            _log.error("credentials could not be renewed", exc_info=task.exception())
