"""Two replicas of the daemon and one lease: they can be killed or stopped one by one, and lose the lease."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Self

from scheduler.config.types import Configuration, LeaderElection
from scheduler.core.clock import Clock
from scheduler.daemon.app import Daemon
from scheduler.kube.leader_election import LeaseLost
from simulator.apiserver import ApiServer
from tests.integration.mortal import Mortal, OnPlan
from tests.integration.reservations import Reservations

ELECTION: Final = LeaderElection(True, lease_duration_s=40, renew_deadline_s=25, retry_period_s=4)
"""In virtual seconds. A renewal that does not fit into the deadline only because the machine is busy costs a fail-over."""
COUNT: Final = 2
_RESTART_S: Final = 2
_NAME: Final = "kubestow"
_NAMESPACE: Final = "kube-system"


class Replica(Mortal):
    """A daemon that may lose its lease: then it ends, as the process does."""

    def __init__(self, clock: Clock, on_plan: OnPlan, config: Configuration, told: Reservations) -> None:
        super().__init__(clock, on_plan, config)
        self._told = told
        self.not_undone: list[str] = []
        """What daemons that were stopped while they led had reserved and left so."""

    @property
    def has_fallen(self) -> bool:
        """Whether it has lost the lease, and has not been stopped yet."""
        return self.daemon is not None and isinstance(self.daemon.failure, LeaseLost)

    def leads(self) -> bool:
        leadership = getattr(self.daemon, "_leadership", None)  # made while a daemon starts
        return leadership is not None and leadership.may_write()

    def check(self) -> None:
        """Note if it has ended by itself for another reason than the lease."""
        if not self.has_fallen:
            super().check()

    async def fall(self) -> None:
        """What `run_daemon` does when the lease is lost."""
        if self.daemon is not None:
            daemon, self.daemon = self.daemon, None
            await daemon.stop(0)
            self._told.forget(daemon.decisions.cluster)

    async def stop(self) -> None:
        """SIGTERM: it drains. A leader undoes what it has not bound."""
        daemon, was_leading = self.daemon, self.leads()
        await super().stop()
        if daemon is not None:
            if was_leading and daemon.failure is None:
                self.not_undone += self._told.left(daemon.decisions.cluster)
            self._told.forget(daemon.decisions.cluster)

    async def kill(self) -> None:
        """SIGKILL."""
        daemon = self.daemon
        await super().kill()
        if daemon is not None:
            self._told.forget(daemon.decisions.cluster)


class Replicas:
    """Both, and what starts them again when they have lost the lease. `async with` runs that in the background."""

    def __init__(self, server: ApiServer, clock: Clock, make: Callable[[], Replica]) -> None:
        self.all: tuple[Replica, ...] = tuple(make() for _ in range(COUNT))
        self.falls = 0
        """How often a replica has lost the lease."""
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
                        self.falls += 1
                        await replica.fall()
                        await replica.start(self._server.url)

    # -- which there are ------------------------------------------------------------------------------------------------

    def leaders(self) -> list[Replica]:
        """Those that may write now: never more than one."""
        return [replica for replica in self.all if replica.leads()]

    def foremost(self) -> Replica | None:
        """The leader; without one, any replica that runs."""
        running = [replica for replica in self.all if replica.daemon is not None]
        return next(iter(self.leaders() or running), None)

    def daemons(self) -> list[Daemon]:
        return [replica.daemon for replica in self.all if replica.daemon is not None]

    # -- what happens to them ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Those that do not run."""
        async with self._turn:
            for replica in self.all:
                await replica.start(self._server.url)

    async def stop(self, *, everyone: bool = False) -> None:
        """The foremost, or all of them."""
        async with self._turn:
            for replica in self.all if everyone else self._one():
                await replica.stop()

    async def kill(self, *, everyone: bool = False) -> None:
        """The foremost, or all of them."""
        async with self._turn:
            for replica in self.all if everyone else self._one():
                await replica.kill()

    def _one(self) -> list[Replica]:
        found = self.foremost()
        return [] if found is None else [found]

    def take_lease(self) -> None:
        """Another process writes the lease as its own; nothing where there is none yet.

        For as long as ours would have held it: a shorter one would run out before the leader that was has to notice.
        """
        if self._server.list("leases", _NAMESPACE):
            spec = {"holderIdentity": "ghost", "leaseDurationSeconds": int(ELECTION.lease_duration_s)}
            self._server.patch("leases", _NAME, {"spec": spec}, namespace=_NAMESPACE)
