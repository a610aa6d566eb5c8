"""Replicas of the real daemon that can be killed, stopped one by one, and lose the lease."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, Self, TypeAlias

from scheduler.api.pod_group import GroupKey
from scheduler.api.podinfo import PodInfo
from scheduler.config.types import ClientConnection, Configuration, RunOptions
from scheduler.core.clock import Clock
from scheduler.daemon.app import Daemon
from scheduler.kube.http.http1 import Http1Client
from scheduler.kube.leader_election import LeaseLost
from scheduler.kube.transport import HttpTransport
from scheduler.profiles.reconciler import RequestedProfile
from simulator.apiserver import ApiServer
from tests.integration.clocks import HASTE
from tests.integration.reservations import Reservations

_RESTART_S: Final = 2
_NAME: Final = "kubestow"
_NAMESPACE: Final = "kube-system"
_tasks: ContextVar[set[asyncio.Task[Any]] | None] = ContextVar("_tasks", default=None)

OnPlan: TypeAlias = Callable[[Daemon, PodInfo, str, Sequence[PodInfo]], None]
"""Called for each preemption that is decided and has not begun: daemon, preemptor, node, victims."""


def remembering_task_factory(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:
    """Add each task to the set of the daemon whose task created it, so that the daemon can be killed with all of them."""
    task = asyncio.Task(coro, loop=loop, **more)
    if (owner := _tasks.get()) is not None:
        owner.add(task)
    return task


class Replica:
    """At most one daemon at a time. A daemon that loses the lease ends, as the process does."""

    def __init__(self, clock: Clock, on_plan: OnPlan, config: Configuration, reservations: Reservations) -> None:
        self.daemon: Daemon | None = None
        self.deaths: list[str] = []
        """Of daemons that ended for another reason than the lease."""
        self.not_undone: list[str] = []
        """What leaders that were stopped had reserved and neither bound nor undone."""
        self._clock = clock
        self._on_plan = on_plan
        self._config = dataclasses.replace(config, client_connection=ClientConnection(qps=-1))
        self._reservations = reservations
        self._begun: set[asyncio.Task[Any]] = set()
        self._changes = 0

    @property
    def has_fallen(self) -> bool:
        """Whether it has lost the lease and has not been stopped yet."""
        return self.daemon is not None and isinstance(self.daemon.failure, LeaseLost)

    def leads(self) -> bool:
        leadership = getattr(self.daemon, "leadership", None)  # made while a daemon starts
        return leadership is not None and leadership.may_write()

    async def start(self, url: str, port: int | None = None) -> None:
        """Start a daemon unless one runs."""
        if self.daemon is not None:
            return
        options = RunOptions(  # no flush: a missing wake-up must show
            config=self._config, master=url, port=port, drain_timeout_s=10 * HASTE, max_in_unschedulable_s=1e9
        )
        self.daemon = Daemon(options, clock=self._clock)
        self._begun = set()
        mark = _tasks.set(self._begun)
        try:
            await asyncio.get_running_loop().create_task(self.daemon.start())
        finally:
            _tasks.reset(mark)
        self._report_plans(self.daemon)

    async def stop(self) -> None:
        """SIGTERM: it drains. A leader undoes what it has not bound."""
        if self.daemon is not None:
            self.check()
            was_leading, daemon, self.daemon = self.leads(), self.daemon, None
            await daemon.stop()
            if was_leading and daemon.failure is None:
                self.not_undone += self._reservations.left(daemon.scheduler.cluster)
            self._reservations.forget(daemon.scheduler.cluster)

    async def stop_fallen(self) -> None:
        """Do what `run_daemon` does when the lease is lost."""
        if self.daemon is not None:
            daemon, self.daemon = self.daemon, None
            await daemon.stop(0)
            self._reservations.forget(daemon.scheduler.cluster)

    async def kill(self) -> None:
        """SIGKILL: every task ends where it is, nothing more is sent, the connections are gone."""
        if self.daemon is None:
            return
        self.check()
        daemon, self.daemon = self.daemon, None
        transport = daemon._transport
        assert isinstance(transport, HttpTransport)
        # At once: a task that handles its cancellation may begin new ones, and these must not be able to send anything.
        closing = []
        for each in (transport, *transport._others):
            assert isinstance(each._requests, Http1Client)
            each._requests.abort()
            if each._streams.session.connector is not None:
                closing.append(each._streams.session.connector.close())
        for task in self._begun:
            task.cancel()
        await asyncio.gather(transport.close(), *closing)
        while not all(task.done() for task in self._begun):  # a task that ended may have started another
            for task in self._begun:
                task.cancel()
            await asyncio.gather(*self._begun, return_exceptions=True)
        self._reservations.forget(daemon.scheduler.cluster)

    def change_profile(self) -> None:
        """Replace the plugins by new ones without any state; nothing where no daemon runs."""
        if self.daemon is not None:
            reloading, self._changes = self.daemon.scheduler.reloading, self._changes + 1
            wish = RequestedProfile("a-profile", self._changes, {"percentageOfNodesToScore": 1 + self._changes % 100})
            wishes = dict.fromkeys(self.daemon.scheduler.profiles, wish)
            self.daemon.scheduler.inbox.put(partial(reloading.reconcile, wishes))

    def check(self) -> None:
        """Note a daemon that ended for another reason than the lease."""
        if self.daemon is not None and self.daemon.failure is not None and not self.has_fallen:
            self.deaths.append(f"the daemon ended by itself: {self.daemon.failure!r}")

    def _report_plans(self, daemon: Daemon) -> None:
        evictions = daemon.scheduler.evictions
        begin = evictions.start

        def start(
            preemptor: PodInfo,
            node_name: str,
            victims: Sequence[PodInfo],
            group: GroupKey | None = None,
            mates: Sequence[tuple[PodInfo, str]] = (),
        ) -> None:
            self._on_plan(daemon, preemptor, node_name, victims)
            begin(preemptor, node_name, victims, group, mates)

        evictions.start = start  # type: ignore[method-assign]


class Replicas:
    """All replicas of a cluster. `async with` restarts, in the background, those that have lost the lease."""

    def __init__(self, server: ApiServer, clock: Clock, make: Callable[[], Replica], count: int) -> None:
        self.all: tuple[Replica, ...] = tuple(make() for _ in range(count))
        self._server = server
        self._clock = clock
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._restart_fallen())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _restart_fallen(self) -> None:
        while True:
            await self._clock.sleep(_RESTART_S)
            for replica in self.all:
                if replica.has_fallen:
                    async with self._turn:
                        await replica.stop_fallen()
                        await replica.start(self._server.url)

    def leaders(self) -> list[Replica]:
        return [replica for replica in self.all if replica.leads()]

    def foremost(self) -> Replica | None:
        running = [replica for replica in self.all if replica.daemon is not None]
        return next(iter(self.leaders() or running), None)

    def daemons(self) -> list[Daemon]:
        return [replica.daemon for replica in self.all if replica.daemon is not None]

    async def start(self, port: int | None = None) -> None:
        async with self._turn:
            for replica in self.all:
                await replica.start(self._server.url, port)

    async def stop(self, *, everyone: bool = False) -> None:
        async with self._turn:
            for replica in self._chosen(everyone):
                await replica.stop()

    async def kill(self, *, everyone: bool = False) -> None:
        async with self._turn:
            for replica in self._chosen(everyone):
                await replica.kill()

    def _chosen(self, everyone: bool) -> Sequence[Replica]:
        found = self.foremost()
        return self.all if everyone else () if found is None else (found,)

    def take_lease(self, duration_s: float) -> None:
        """Write the lease as another process; nothing where there is none yet.

        It lasts as long as ours would have: a shorter one would expire before the old leader has to notice.
        """
        if self._server.list("leases", _NAMESPACE):
            spec = {"holderIdentity": "ghost", "leaseDurationSeconds": int(duration_s)}
            self._server.patch("leases", _NAME, {"spec": spec}, namespace=_NAMESPACE)
