"""The real daemon on a fast clock. It can be killed with everything it has begun, and is watched while it decides."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeAlias

from scheduler.app import Daemon
from scheduler.config.types import ClientConnection, Configuration
from scheduler.core.clock import SystemClock
from scheduler.core.podinfo import PodInfo
from scheduler.options import RunOptions
from scheduler.reload import Wish

HASTE: Final = 100
_tasks: ContextVar[set[asyncio.Task[Any]] | None] = ContextVar("_tasks", default=None)

OnPlan: TypeAlias = Callable[[Daemon, PodInfo, str, Sequence[PodInfo]], None]
"""Told of each preemption that was decided and has not begun: by whom, for whom, on which node, who is to go."""


class HastyClock(SystemClock):
    """A second lasts ten milliseconds."""

    def now(self) -> float:
        return super().now() * HASTE

    async def sleep(self, delay_s: float) -> None:
        await super().sleep(delay_s / HASTE)


def remembered(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:
    """A task factory: a task belongs to whom its maker belongs to, so that a daemon can be killed with all of them."""
    task = asyncio.Task(coro, loop=loop, **more)
    if (owner := _tasks.get()) is not None:
        owner.add(task)
    return task


class Mortal:
    """At most one daemon at a time."""

    def __init__(self, clock: HastyClock, on_plan: OnPlan, config: Configuration | None = None) -> None:
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
            wish = Wish("a-profile", self._changes, {"percentageOfNodesToScore": 1 + self._changes % 100})
            wishes = dict.fromkeys(self.daemon.decisions.profiles, wish)
            self.daemon.decisions.inbox.put(partial(reloading.reconcile, wishes))

    def check(self) -> None:
        """Note if it has ended by itself."""
        failed = self.daemon._failed if self.daemon is not None else None
        if failed is not None and failed.done():
            self.deaths.append(f"the daemon ended by itself: {failed.exception()!r}")

    def _listen(self, daemon: Daemon) -> None:
        evictions = daemon.decisions.evictions
        begin = evictions.start

        def start(preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
            self._on_plan(daemon, preemptor, node_name, victims)
            begin(preemptor, node_name, victims)

        evictions.start = start  # type: ignore[method-assign]
