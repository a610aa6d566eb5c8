"""Run the parts of the daemon. A part that fails unexpectedly restarts; only a part that cannot run ends the process.

A part is a coroutine that runs until it is cancelled. The caller chooses the errors that end the process at once
(such as a lost lease). Every other error is recorded, and the part restarts after a growing pause. Ten failures of
one part within a minute count as permanent: the last one is raised, so that the supervisor of the process can start a
new one.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

from scheduler.core.clock import Clock
from scheduler.core.errors import UnforeseenErrors
from scheduler.core.retry import Backoff

FAILURES: Final = 10
WITHIN_S: Final = 60.0
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 10.0

Run: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Supervisor:
    """Starts parts as tasks and keeps them running. One per daemon."""

    def __init__(
        self, clock: Clock, rng: random.Random, errors: UnforeseenErrors, *, fatal: tuple[type[Exception], ...] = ()
    ) -> None:
        """Create a supervisor. `fatal` are the errors that are raised at once."""
        self._clock = clock
        self._rng = rng
        self._errors = errors
        self._fatal = fatal
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def spawn(self, part: str, run: Run) -> asyncio.Task[None]:
        """Run a part until it returns or is cancelled. `part` names it in logs, metrics and /readyz."""
        self._errors.expect(part)
        task = asyncio.create_task(self._keep(part, run), name=part)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def wait(self) -> None:
        """Block until a part cannot run any more; raise its error."""
        await asyncio.shield(self._failed)

    @property
    def failure(self) -> BaseException | None:
        """Return the error of the part that cannot run any more; None while all can."""
        return self._failed.exception() if self._failed.done() and not self._failed.cancelled() else None

    async def stop(self) -> None:
        """Cancel all parts and wait for their ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._failed.cancel()

    async def _keep(self, part: str, run: Run) -> None:
        failed_at: deque[float] = deque(maxlen=FAILURES)
        backoff = Backoff(self._clock, self._rng, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)
        try:
            while True:
                try:
                    return await run()
                except self._fatal:
                    raise
                except Exception as error:
                    now = self._clock.now()
                    if failed_at and now - failed_at[-1] > WITHIN_S:
                        backoff.reset()
                    failed_at.append(now)
                    self._errors.record(part, error, "a part of the daemon failed")
                    if len(failed_at) == FAILURES and now - failed_at[0] <= WITHIN_S:
                        raise
                wait_s = backoff.next_s()
                self._errors.went_down(part, again_in_s=wait_s)
                await self._clock.sleep(wait_s)
                self._errors.came_up(part)
        finally:
            self._errors.came_up(part)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failed.done():
            self._failed.set_exception(error)
