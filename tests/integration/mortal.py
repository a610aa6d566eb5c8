"""The real daemon on a fast clock. It can be killed with everything it has begun, and is watched while it decides."""

from __future__ import annotations

import asyncio
import dataclasses
import selectors
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeAlias

from scheduler.api.podinfo import PodInfo
from scheduler.config.types import ClientConnection, Configuration, RunOptions
from scheduler.core.clock import Clock, SystemClock
from scheduler.daemon.app import Daemon
from scheduler.profiles.reconciler import RequestedProfile

HASTE: Final = 125
_HASTE_AT_WORK: Final = 25
_ROUNDED_S: Final = 0.001
"""By so much more a selector sleeps at most, as it counts in milliseconds."""
_tasks: ContextVar[set[asyncio.Task[Any]] | None] = ContextVar("_tasks", default=None)

OnPlan: TypeAlias = Callable[[Daemon, PodInfo, str, Sequence[PodInfo]], None]
"""Told of each preemption that was decided and has not begun: by whom, for whom, on which node, who is to go."""


class HastyClock(SystemClock):
    """A second lasts eight milliseconds while the loop has nothing to do, and five times as long while it works.

    A world is one event loop: what it waits for is time, or its own work. Of work only what it costs this thread is counted.
    So time stands while the machine is busy with others, and a slow one does not let time-outs pass while answers are on
    their way.
    """

    def __init__(self) -> None:
        """In the loop that it is for."""
        self._idle_s = 0.0
        selector: selectors.BaseSelector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        self._select = selector.select
        selector.select = self._timed_select  # type: ignore[method-assign]

    def now(self) -> float:
        return self._idle_s * HASTE + time.thread_time() * _HASTE_AT_WORK

    async def sleep(self, delay_s: float) -> None:
        until = self.now() + delay_s
        await super().sleep(delay_s / HASTE)
        while (left_s := until - self.now()) > 0:
            await super().sleep(left_s / HASTE)

    def _timed_select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What the loop sleeps in. Being woken late is not sleep."""
        began = time.monotonic()
        events = self._select(timeout)
        if timeout is None or timeout > 0:
            slept_s = time.monotonic() - began
            self._idle_s += slept_s if timeout is None else min(slept_s, timeout + _ROUNDED_S)
        return events


def remembered(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:
    """A task factory: a task belongs to whom its maker belongs to, so that a daemon can be killed with all of them."""
    task = asyncio.Task(coro, loop=loop, **more)
    if (owner := _tasks.get()) is not None:
        owner.add(task)
    return task


class Mortal:
    """At most one daemon at a time."""

    def __init__(self, clock: Clock, on_plan: OnPlan, config: Configuration | None = None) -> None:
        """`config` in place of all defaults; requests are never limited."""
        self.daemon: Daemon | None = None
        self.deaths: list[str] = []
        """Of daemons that ended by themselves, as they must not."""
        self._clock = clock
        self._on_plan = on_plan
        self._config = dataclasses.replace(config or Configuration(), client_connection=ClientConnection(qps=-1))
        self._begun: set[asyncio.Task[Any]] = set()
        self._changes = 0

    async def start(self, url: str, port: int | None = None) -> None:
        """Nothing if it runs. All its tasks, and theirs, are remembered."""
        if self.daemon is not None:
            return
        options = RunOptions(  # no flush: a wake-up that is missing must be missed
            config=self._config, master=url, port=port, drain_timeout_s=10 * HASTE, max_in_unschedulable_s=1e9
        )
        self.daemon = Daemon(options, clock=self._clock)
        self._begun = set()
        mark = _tasks.set(self._begun)
        try:
            await asyncio.get_running_loop().create_task(self.daemon.start())
        finally:
            _tasks.reset(mark)
        self._listen(self.daemon)

    async def stop(self) -> None:
        """SIGTERM: it drains."""
        if self.daemon is not None:
            self.check()
            daemon, self.daemon = self.daemon, None
            await daemon.stop()

    async def kill(self) -> None:
        """SIGKILL: every task ends where it is, nothing more is sent, the connections are gone."""
        if self.daemon is None:
            return
        self.check()
        daemon, self.daemon = self.daemon, None
        for task in self._begun:
            task.cancel()
        assert daemon._transport is not None
        await daemon._transport.close()
        while True:
            for task in self._begun:
                task.cancel()
            await asyncio.gather(*self._begun, return_exceptions=True)
            if all(task.done() for task in self._begun):  # one that ended may have started another
                return

    def change_profile(self) -> None:
        """Plugins that are made anew decide from the next attempt on; nothing where none runs."""
        if self.daemon is not None:
            reloading, self._changes = self.daemon.decisions.reloading, self._changes + 1
            wish = RequestedProfile("a-profile", self._changes, {"percentageOfNodesToScore": 1 + self._changes % 100})
            wishes = dict.fromkeys(self.daemon.decisions.profiles, wish)
            self.daemon.decisions.inbox.put(partial(reloading.reconcile, wishes))

    def check(self) -> None:
        """Note if it has ended by itself."""
        if self.daemon is not None and self.daemon.failure is not None:
            self.deaths.append(f"the daemon ended by itself: {self.daemon.failure!r}")

    def _listen(self, daemon: Daemon) -> None:
        evictions = daemon.decisions.evictions
        begin = evictions.start

        def start(preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
            self._on_plan(daemon, preemptor, node_name, victims)
            begin(preemptor, node_name, victims)

        evictions.start = start  # type: ignore[method-assign]
