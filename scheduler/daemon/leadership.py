"""Leader election for the composition root: whether this daemon leads or is a standby (docs/spec/core.md §7.4).

Without election it leads at once and permanently. The election itself is in `kube/leader_election.py`.
"""

from __future__ import annotations

import asyncio
import random
import socket
import uuid
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from scheduler.api.meta import micros
from scheduler.config.types import LeaderElection
from scheduler.core.clock import Clock
from scheduler.core.errors import ApiError, UnforeseenErrors
from scheduler.kube.events import Event, EventMetadata, Reference
from scheduler.kube.leader_election import Elector, LeaseTiming, OtherLeases
from scheduler.kube.wire import Transport, as_it_is
from scheduler.kube.writes.api_writer import ApiWriter, LeaseWriter
from scheduler.server.endpoints import Check, Remark

_log = structlog.get_logger(__name__)

CHECK: Final = "leaderElection"
"""Upstream's name of its watchdog in /healthz and /readyz."""
OTHERS: Final = "other-schedulers"


class Leadership:
    """Leadership of one daemon.

    Start `run` as a task; call `resign` once, at the end. Every write checks `may_write`.
    """

    def __init__(
        self,
        settings: LeaderElection,
        transport: Transport,
        clock: Clock,
        errors: UnforeseenErrors | None = None,
        *,
        others: OtherLeases,
        reconnect: Callable[[], None] = as_it_is,
    ) -> None:
        """Create the leadership.

        `transport` has separate connections, so that only the lease uses them; `reconnect` replaces them.
        """
        self._others = others
        self._is_alone = False
        """Whether no other daemon serves our scheduler names, as far as is known."""
        self._errors = errors or UnforeseenErrors(clock)
        self.lease = settings.resource_name if settings.leader_elect else ""
        """Empty without election."""
        self.begun = asyncio.Event()
        """Set when this daemon leads for the first time, and stays set."""
        self._clock = clock
        namespace, name = settings.resource_namespace, settings.resource_name
        self._where = f"{namespace}/{name}"
        self._elector: Elector | None = None
        self._announcement: asyncio.Task[None] | None = None
        self._is_over = False
        self._is_checked = False
        if settings.leader_elect:
            self._elector = Elector(
                LeaseWriter(transport, namespace, name, serves=others.names, reconnect=reconnect),
                clock,
                random.Random(),
                identity=f"{socket.gethostname()}_{uuid.uuid4()}",
                timing=LeaseTiming(settings.lease_duration_s, settings.renew_deadline_s, settings.retry_period_s),
            )

    def may_write(self) -> bool:
        """Return whether this daemon leads now, by the clock. Cheap: called before each write and each attempt."""
        return self._is_alone and not self._is_over and (self._elector is None or self._elector.is_leading())

    async def run(self, writer: ApiWriter, controller: str, on_leading: Callable[[], None]) -> None:
        """Campaign, call `on_leading` once no other daemon is known that serves our names, and keep the lead.

        Raises LeaseLost, also if another daemon serves our names. Returns only without an election. It may be called
        again after an unforeseen error: a lease that is still held is renewed. `controller` is the reporter of the
        Event: the first profile's schedulerName, as upstream.
        """
        elector = self._elector
        if not self._is_checked:
            await self._others.check()
        self._is_checked = True
        if elector is None:
            self._is_alone = True
            self.begun.set()
            on_leading()
            return
        _log.info("attempting to acquire the leader lease", lease=self._where, identity=elector.identity)
        await elector.acquire()
        holding = asyncio.ensure_future(elector.hold())
        checking = asyncio.ensure_future(self._others.check())  # one may have started while this one was a standby
        try:
            await asyncio.wait({holding, checking}, return_when=asyncio.FIRST_COMPLETED)
            if not holding.done():
                await checking
                self._is_alone = True
                if not self.begun.is_set():  # otherwise this part restarted
                    _log.info("leading", lease=self._where, identity=elector.identity)
                    self._announcement = asyncio.ensure_future(self._announce(elector, writer, controller))
                self.begun.set()
                on_leading()
            await holding
        finally:
            for task in (holding, checking):
                task.cancel()
            await asyncio.gather(holding, checking, return_exceptions=True)

    async def resign(self, *, gives_back: bool = True) -> None:
        """Refuse further writes, and release the lease if it is still held.

        Without `gives_back` the lease is kept, because sent writes may still take effect: the next leader then waits
        until the lease has expired.
        """
        self._is_over = True
        if self._announcement is not None:
            self._announcement.cancel()
            await asyncio.gather(self._announcement, return_exceptions=True)
        if self._elector is not None:
            await self._elector.resign(gives_back=gives_back)

    # -- what is shown -----------------------------------------------------------------------------------------------

    def livez(self) -> dict[str, Check]:
        """Return upstream's watchdog; nothing without an election."""
        return {} if self._elector is None else {CHECK: self._overdue}

    def readyz(self) -> dict[str, Check]:
        """Return the watchdog, a lease that cannot be acquired, and another daemon with our names.

        A standby is ready.
        """
        own = {} if self._elector is None else {CHECK: self._unfit}
        return own | {OTHERS: self._other_daemons}

    def _other_daemons(self) -> str | None:
        return self._others.waits_for or Remark(self._others.remark) or None

    def _overdue(self) -> str | None:
        assert self._elector is not None
        return f"failed election to renew leadership on lease {self.lease}" if self._elector.is_overdue() else None

    def _unfit(self) -> str | None:
        assert self._elector is not None
        refused = self._elector.refused
        return self._overdue() or (f"lease {self._where}: {refused}" if refused else None)

    # -- the Event on the Lease --------------------------------------------------------------------------------------

    async def _announce(self, elector: Elector, writer: ApiWriter, controller: str) -> None:
        assert elector.lease is not None
        metadata, now_s = elector.lease.metadata, self._clock.wall()
        event = Event(
            metadata=EventMetadata(f"{metadata.name[:200]}.{int(now_s * 1e9):x}", metadata.namespace),
            event_time=micros(now_s),
            reporting_controller=controller,
            reporting_instance=elector.identity[:128],
            action="LeaderElection",  # upstream's Event has the old form without an action
            reason="LeaderElection",
            regarding=Reference(
                metadata.name,
                metadata.namespace,
                metadata.uid,
                metadata.resource_version,
                kind="Lease",
                api_version="coordination.k8s.io/v1",
            ),
            note=f"{elector.identity} became leader",
            type="Normal",
        )
        try:
            await writer.create_event(metadata.namespace, msgspec.json.encode(event))
        except ApiError as error:
            _log.info("event not recorded", lease=self._where, error=error.message)
        except Exception as error:  # noqa: BLE001 (an Event is not worth the lead)
            self._errors.record("leader-election", error, "event not recorded", lease=self._where)
