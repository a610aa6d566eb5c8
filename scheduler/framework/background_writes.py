"""Writes that nobody waits for: giving back what a pod does not need.

Rule: docs/architecture.md, "Design principles".

Tried until the server has answered for good, or for some minutes. What is given up is logged, and after a pause whoever
waits for the claim sees what there is and tries again: no event would tell it, and at once it would be refused again.
A mistake of ours is logged as one, and costs no more than a server that is down: the errand is tried again like any other.
Whoever is about to rely on a claim waits for the errands about it first: what one of them takes away late would be missed
by a pod that is running by then.
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
_BEFORE_TELLING_S: Final = 5.0
_Key: TypeAlias = tuple[str, str]
"""What is written, and the uid of the object."""


class BackgroundWrites:
    """Those of one plugin. To be used where an event loop runs."""

    def __init__(
        self, clock: Clock, *, given_up: Callable[[str], None] | None = None, errors: UnforeseenErrors | None = None
    ) -> None:
        """`given_up` is called with the claim of an errand that failed for good."""
        self._errors = errors or UnforeseenErrors()
        self._clock = clock
        self._tell_given_up = given_up
        self._failed: set[_Key] = set()
        self._tasks: dict[_Key, asyncio.Task[None]] = {}
        self._about: dict[str, set[asyncio.Task[None]]] = {}

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._tasks)

    def run(self, write: Callable[[], Awaitable[None]], what: str, *, about: str = "", uid: str = "") -> None:
        """Do it in the background, unless the same write about the same object is running. A second try must do no harm.

        `what` is the write, for the log; `about` is the claim by `namespace/name`. `uid` is the claim's: a claim that was
        deleted and created again under its name needs a write of its own.
        """
        key = what, uid
        if key in self._tasks:
            return
        task = self._tasks[key] = asyncio.ensure_future(self._run(write, key, about))
        self._about.setdefault(about, set()).add(task)
        task.add_done_callback(lambda _: self._ended(task, key, about))

    async def done(self, about: Iterable[str]) -> None:
        """Return when nothing is under way about these claims. Cancels nothing when it is cancelled."""
        keys = tuple(about)
        while tasks := [task for key in keys for task in self._about.get(key, ())]:
            await asyncio.wait(tasks)

    async def drain(self) -> None:
        """Return when nothing is under way at all; for whoever stops, and limits the wait."""
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
            if self._tell_given_up is not None:
                try:
                    self._tell_given_up(about)
                except Exception as error:  # noqa: BLE001 (it would end in the event loop, where nobody looks)
                    self._errors.record("background-write", error, what=key[0], claim=about)

    async def _run(self, write: Callable[[], Awaitable[None]], key: _Key, about: str) -> None:
        what, retry = key[0], Retry(self._clock, first_s=_PAUSE_S, longest_s=_LONGEST_PAUSE_S, tries=_TRIES)
        try:
            while True:
                try:
                    await write()
                    return
                except NotFound:
                    return  # nothing to give back any more
                except (Ambiguous, Unavailable) as error:
                    failed: ApiError = error
                except ApiError as error:
                    _log.info("not done", what=what, claim=about, error=str(error))
                    break
                except Exception as error:  # noqa: BLE001 (an unforeseen failure must not lose what is to be given back)
                    self._errors.record(
                        "background-write", error, "a write in the background failed", what=what, claim=about
                    )
                    failed = Unavailable(repr(error))
                await retry.pause(failed)
        except ApiError as error:
            _log.warning("gave up", what=what, claim=about, error=str(error))
        await self._clock.sleep(_BEFORE_TELLING_S)
        self._failed.add(key)
