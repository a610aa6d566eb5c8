"""Writes in the background: they release what a pod does not need.

Rule: docs/architecture.md, "Design principles".

A write is retried until the API server answers definitely, or for some minutes. A failed write is logged. After a
pause, waiting pods of the claim are retried: no event would wake them, and an immediate retry would be rejected
again. An unexpected error is logged as one and retried like an unavailable server.

A caller that needs a claim waits for its background writes first. Otherwise a late write could take something from a
pod that is already running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias

import structlog

from scheduler.core.clock import Clock
from scheduler.core.errors import Ambiguous, ApiError, NotFound, Unavailable, UnforeseenErrors
from scheduler.core.retry import Retry

_log = structlog.get_logger(__name__)
_TRIES: Final = 10
_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0
_BEFORE_GIVEN_UP_S: Final = 5.0
_Key: TypeAlias = tuple[str, str]
"""The name of the write, and the uid of the object."""


class BackgroundWrites:
    """The background writes of one plugin. It needs a running event loop."""

    def __init__(
        self, clock: Clock, *, given_up: Callable[[str], None] | None = None, errors: UnforeseenErrors | None = None
    ) -> None:
        """Call `given_up` with the claim of each write that failed permanently."""
        self._errors = errors or UnforeseenErrors()
        self._clock = clock
        self._given_up = given_up
        self._failed: set[_Key] = set()
        self._tasks: dict[_Key, asyncio.Task[None]] = {}
        self._about: dict[str, set[asyncio.Task[None]]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def run(self, write: Callable[[], Awaitable[None]], what: str, *, about: str = "", uid: str = "") -> None:
        """Start the write in the background, unless the same write for the same object is running.

        It must be safe to repeat. `what` names the write in the log; `about` is the claim as `namespace/name`. `uid`
        is the claim's: a claim that was deleted and created again under its name needs another write.
        """
        key = what, uid
        if key in self._tasks:
            return
        task = self._tasks[key] = asyncio.ensure_future(self._run(write, key, about))
        self._about.setdefault(about, set()).add(task)
        task.add_done_callback(lambda _: self._ended(task, key, about))

    async def done(self, about: Iterable[str]) -> None:
        """Return when no write for these claims is running. Cancellation does not cancel the writes."""
        keys = tuple(about)
        while tasks := [task for key in keys for task in self._about.get(key, ())]:
            await asyncio.wait(tasks)

    async def drain(self) -> None:
        """Return when no write is running. The caller limits the wait."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    def _ended(self, task: asyncio.Task[None], key: _Key, about: str) -> None:
        del self._tasks[key]
        here = self._about[about]
        here.discard(task)
        if not here:
            del self._about[about]
        if key in self._failed:
            self._failed.discard(key)
            if self._given_up is not None:
                try:
                    self._given_up(about)
                except Exception as error:  # noqa: BLE001 (in a callback of the event loop it would not be reported)
                    self._errors.record("background-write", error, what=key[0], claim=about)

    async def _run(self, write: Callable[[], Awaitable[None]], key: _Key, about: str) -> None:
        what, retry = key[0], Retry(self._clock, first_s=_PAUSE_S, longest_s=_LONGEST_PAUSE_S, tries=_TRIES)
        try:
            while True:
                try:
                    await write()
                    return
                except NotFound:
                    return  # the claim is deleted, so there is nothing to release
                except (Ambiguous, Unavailable) as error:
                    failed: ApiError = error
                except ApiError as error:
                    _log.info("background write not done", what=what, claim=about, error=str(error))
                    break
                except Exception as error:  # noqa: BLE001 (an unexpected error must not lose what is to be released)
                    self._errors.record(
                        "background-write", error, "a write in the background failed", what=what, claim=about
                    )
                    failed = Unavailable(repr(error))
                await retry.pause(failed)
        except ApiError as error:
            _log.warning("background write given up", what=what, claim=about, error=str(error))
        await self._clock.sleep(_BEFORE_GIVEN_UP_S)
        self._failed.add(key)
