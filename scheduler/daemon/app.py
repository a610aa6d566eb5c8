"""The composition root: creates every object once, starts the parts in order, and drains them in order.

Start: connect, discover kinds, start informers, stand for election once they are synced, decide only while leading.
Stop: pop no further pod, let bindings and evictions finish within the drain time, write pending conditions, events
and plugin writes, release the lease, close. A daemon belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import os
import random
import signal
import socket
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import structlog

from scheduler.api.core_v1 import FailedPod
from scheduler.api.decode import Broken, Delta
from scheduler.api.pod_group import POD_GROUP
from scheduler.binding_state import PodWatch
from scheduler.config.types import RunOptions
from scheduler.core.clock import Clock, SystemClock, done_within
from scheduler.core.errors import UnforeseenErrors
from scheduler.core.feature_gates import closest_version
from scheduler.customresources.kopf_watch import Operator, is_left_by_kopf
from scheduler.customresources.own_objects import OwnObjects
from scheduler.customresources.what_ifs import WhatIfObjects
from scheduler.daemon.introspection import Introspection
from scheduler.daemon.leadership import Leadership
from scheduler.daemon.list_audit import ListAudit, index_of
from scheduler.daemon.profile_changes import ProfileChanges, kinds_read, writes_of
from scheduler.daemon.supervision import Supervisor
from scheduler.explain.answer import Explanation, WhatIfAnswer
from scheduler.explain.what_if import WhatIfRequest
from scheduler.extenders.http_extender import HTTPExtender, build_extenders
from scheduler.extenders.messages import WholeObjects
from scheduler.framework.profile import Profile
from scheduler.kube.client_config import Settings, load_settings
from scheduler.kube.events import EventRecorder
from scheduler.kube.http.shared_session import SharedSession
from scheduler.kube.informers import Informers
from scheduler.kube.leader_election import AnotherScheduler, LeaseLost, OtherLeases
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.reflector import Reflector
from scheduler.kube.resources import (
    CAPACITY,
    POD,
    POD_GROUPS,
    RESOURCE_CLAIM,
    WHAT_IF,
    Discovery,
    KindSpec,
    ServedKind,
    failed_pods,
)
from scheduler.kube.self_check import SelfCheck
from scheduler.kube.server_version import ServerVersion, server_version
from scheduler.kube.store import Store
from scheduler.kube.transport import HttpTransport
from scheduler.kube.wire import Transport
from scheduler.kube.writes.api_writer import POD_GROUPS_VERSION, ApiWriter
from scheduler.kube.writes.own_objects import ProfileWriter, WhatIfWriter
from scheduler.kube.writes.resource_claims import NEWEST
from scheduler.metrics.metrics import Metrics
from scheduler.scheduler import Scheduler
from scheduler.server.serving import Serving
from scheduler.server.ui.history import History
from scheduler.server.ui.page import UiPages

_log = structlog.get_logger(__name__)

_LAG_EVERY_S: Final = 1.0
_FLUSH_S: Final = 5.0
_LOOK_WITHIN_S: Final = 5.0
"""Time limit for reading SchedulerProfiles before the first decision; later ones are applied later."""
_VERSION_WITHIN_S: Final = 10.0
"""Time limit for the version of the API server."""
_HURRIED: Final = 130
_GC_BEFORE: Final = gc.get_threshold()
GC_THRESHOLD: Final = (5_000, 80, 20)
"""Cached objects are frozen and have no cycles, so the collector need not run every 700 allocations.

A collection of 5000 young objects blocks the event loop for about 2 ms.
"""


class Daemon:
    """One daemon process: `start`, then `wait`, then `stop`.

    Upstream: cmd/kube-scheduler/app/server.go Run
    """

    def __init__(
        self, options: RunOptions, *, clock: Clock | None = None, take_signals: Callable[[], None] | None = None
    ) -> None:
        """Create a daemon.

        `take_signals` installs the process's signal handlers again after a library has replaced them.
        """
        self._options = options
        self._take_signals = take_signals or _leave_signals
        self._clock = clock or SystemClock()
        self._errors = UnforeseenErrors(self._clock)
        self._parts: Supervisor | None = None
        self._is_composed = False
        self.is_synced = False
        self._is_stopping = False
        self._serving: Serving | None = None
        self._transport: Transport | None = None
        self._scheduling: asyncio.Task[None] | None = None
        self._election: asyncio.Task[None] | None = None
        self._extenders: list[HTTPExtender] = []
        self._whole: WholeObjects | None = None
        self.metrics = Metrics(feature_gates=options.config.feature_gates)
        self.port = self.secure_port = 0
        """Ports of plain HTTP on 127.0.0.1 and of HTTPS; 0 if not served."""

    async def start(self) -> None:
        """Connect and start. Returns once the endpoints listen and the informers run, before they are synced."""
        _collect_rarely()
        connection = self._options.config.client_connection
        self._parts = parts = Supervisor(self._clock, random.Random(), self._errors, fatal=(LeaseLost,))
        self._spawn = parts.spawn
        asyncio.get_running_loop().set_exception_handler(self._unhandled)
        settings = await _settings(self._options)
        self._transport = transport = HttpTransport(
            settings, clock=self._clock, on_answer=self.metrics.traffic.answered
        )
        throttle = Throttle(self._clock, qps=connection.qps, burst=connection.burst)
        election = self._options.config.leader_election
        lease = (election.resource_namespace, election.resource_name) if election.leader_elect else None
        self.leadership = self._leadership_over(transport.apart(), lease)
        self._writer = writer = ApiWriter(
            transport,
            throttle,
            self._clock,
            may_write=self.leadership.may_write,
            claims_version=self._claims_version,
            groups_version=self._groups_version,
        )
        self._recorder = EventRecorder(writer, self._clock, instance=socket.gethostname(), errors=self._errors)
        self._extenders, self._whole = await build_extenders(self._options.config, may_write=self.leadership.may_write)
        self.scheduler = Scheduler(
            self._options,
            writer=writer,
            recorder=self._recorder,
            clock=self._clock,
            metrics=self.metrics,
            errors=self._errors,
            pod_watch=PodWatch(self._pods_version, self._pods_disconnected_s),
            extenders=self._extenders,
            stores=self._stores,
        )
        self._is_composed = True
        profiles = self.scheduler.profiles
        kinds = kinds_read(profiles.values(), self._options)
        self._discovery = Discovery(
            transport, self._clock, kinds=[*kinds, *map(failed_pods, profiles)], server=settings.server
        )
        self.informers = Informers(kinds, self._discovery, self._clock)
        writes = writes_of(profiles.values(), self._options)
        self.self_check = check = SelfCheck(transport, self._clock, self._discovery, kinds=kinds, writes=writes)
        self._server_version = ServerVersion(
            transport, self._clock, self._options.emulated_version, self._options.server_version
        )
        changes = ProfileChanges(
            self._options,
            self.scheduler,
            self.informers,
            check,
            spawn=self._spawn,
            reflect=partial(self._reflect, transport),
        )
        self._shell = self._shell_on(transport, settings, throttle, changes)
        self._showing = showing = Introspection(
            self._options,
            self.scheduler,
            self.informers,
            self.leadership,
            check,
            self._server_version,
            self._recorder,
            self.metrics,
            self._clock,
            throttle=throttle,
            is_synced=lambda: self.is_synced,
            is_stopping=lambda: self._is_stopping,
            shell=self._shell,
            errors=self._errors,
            history=History(self._clock, self.scheduler.pending, self.metrics.attempts),
        )
        showing.bind_metrics()
        self._serving = Serving(self._options, showing.sources(), transport, self._clock)
        await self._serving.start()
        self.port, self.secure_port = self._serving.port, self._serving.secure_port
        self._spawn("certificates", self._serving.run)
        if self._options.config.delay_cache_until_active:
            self._stand()
        self._spawn("discovery", partial(self._mirror, transport))
        if self._shell.kinds:
            self._spawn("scheduler-profiles", self._shell.run)
        self._spawn("event-recorder", self._recorder.run)
        self._spawn_watchdogs(transport, throttle)
        self._scheduling = self._spawn("scheduling-loop", self._schedule)

    def _spawn_watchdogs(self, transport: Transport, throttle: Throttle) -> None:
        lists = ListAudit(
            self.informers,
            self.scheduler.audit,
            transport=transport,
            throttle=throttle,
            clock=self._clock,
            rng=self.scheduler.rng,
        )
        self._spawn("list-audit", lists.run)
        if self._options.server_version:
            self._spawn("server-version", self._server_version.run)
        self._spawn("event-loop-lag", self._measure_lag)

    async def wait(self) -> None:
        """Block until the lease is lost or a part cannot run any more; raise that error."""
        assert self._parts is not None
        await self._parts.wait()

    @property
    def failure(self) -> BaseException | None:
        """Return the error that `wait` raises; None while the daemon can continue."""
        return self._parts.failure if self._parts is not None else None

    async def stop(self, drain_timeout_s: float | None = None) -> None:
        """Drain and close. Safe to call twice, and after a `start` that failed or was cancelled."""
        if self._is_stopping:
            return
        self._is_stopping = True
        limit_s = self._options.drain_timeout_s if drain_timeout_s is None else drain_timeout_s
        if self._is_composed:
            await self._drain(limit_s)
            await self._step_down()
        if self._parts is not None:
            await self._parts.stop()
        if self._serving is not None:
            await self._serving.stop()
        for extender in self._extenders:
            await extender.close()
        if self._transport is not None:
            await self._transport.close()
        gc.unfreeze()
        gc.set_threshold(*_GC_BEFORE)

    def idle(self) -> bool:
        """Return whether all informers are synced and there is no work."""
        return self.is_synced and self.scheduler.is_idle()

    def at_rest(self, since: float, waiting: int = 0) -> bool:
        """Return whether it is idle, but for errors in attempts after `since` and for `waiting` bindings."""
        return self.is_synced and self.scheduler.is_at_rest(since, waiting)

    async def explain(self, pod: str) -> Explanation | None:
        """Explain the pod `namespace/name`; None if it does not exist. Raises NotReady and TooManyQuestions."""
        return await self._showing.explain(pod)

    async def ui_pages(self) -> UiPages:
        """Return all data of the page /ui, for a file. Raises NotReady and TooManyQuestions."""
        return await self._showing.ui_pages()

    async def what_if(self, request: WhatIfRequest) -> WhatIfAnswer:
        """Answer whether pods would fit. Raises NotReady, TooManyQuestions and Refused."""
        return await self._showing.what_if(request)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _shell_on(
        self, transport: HttpTransport, settings: Settings, throttle: Throttle, changes: ProfileChanges
    ) -> Operator:
        """Create the shell with the kinds that are switched on."""
        scheduler, may_write = self.scheduler, self.leadership.may_write
        writer = ProfileWriter(transport, throttle, self._clock, may_write=may_write)
        self._profile_objects = changes.objects(transport, writer, self._clock)
        what_ifs = WhatIfObjects(
            transport,
            WhatIfWriter(transport, throttle, self._clock, may_write=may_write),
            self._clock,
            names=frozenset(scheduler.profiles),
            holder=f"{socket.gethostname()}_{uuid.uuid4()}",
            answer=lambda request: scheduler.questions.answer_to(partial(scheduler.what_if.answer, request)),
            is_ready=lambda: self.is_synced and not self._is_stopping,
        )
        own: list[OwnObjects] = [self._profile_objects] if self._options.scheduler_profiles else []
        own += [what_ifs] if self._options.what_if_objects else []
        return Operator(
            transport,
            partial(SharedSession, settings, transport, metadata_of=(f"/{WHAT_IF.plural}",)),
            own,
            self._clock,
            metrics=self.metrics.shell,
            reclaim_signals=self._take_signals,
        )

    def _leadership_over(self, transport: HttpTransport, lease: tuple[str, str] | None) -> Leadership:
        """Create the leader election with separate connections, which it replaces when one does not answer."""
        names = {profile.scheduler_name for profile in self._options.config.profiles}
        others = OtherLeases(transport, self._clock, names, lease, self._options.is_forced)
        election = self._options.config.leader_election
        return Leadership(election, transport, self._clock, self._errors, others=others, reconnect=transport.reconnect)

    async def _drain(self, limit_s: float) -> None:
        scheduler = self.scheduler
        scheduler.loop.stop()
        if self._scheduling is not None and self.is_synced:
            await asyncio.wait([self._scheduling])
        await scheduler.consultations.stop()
        listening = asyncio.ensure_future(self._listen())
        try:
            bindings, preemptions, _, _ = await asyncio.gather(
                scheduler.binder.drain(limit_s),
                scheduler.evictions.drain(limit_s),
                scheduler.stale.drain(limit_s),
                scheduler.node_name_pods.drain(limit_s),
            )
        finally:
            listening.cancel()
        if self.leadership.may_write():  # otherwise nothing may be written about cancelled work
            scheduler.inbox.apply()
        scheduler.queue.close()
        _log.info("drained", bindings_cancelled=bindings, preemptions_cut_short=preemptions)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await asyncio.gather(self._write_the_rest(), self._give_back_the_rest())
        scheduler.patches.give_up()

    async def _write_the_rest(self) -> None:
        await asyncio.gather(self.scheduler.patches.drain(), self.scheduler.group_status.drain())
        await self._recorder.flush(_FLUSH_S)

    async def _give_back_the_rest(self) -> None:
        if self.leadership.may_write():
            await self.scheduler.drain_plugins()

    async def _listen(self) -> None:
        """Apply changes until the drain ends.

        Bindings wait for watches, and the scheduling loop, which applied the changes, has ended.
        """
        inbox = self.scheduler.inbox
        while True:
            await inbox.wait()
            if not self.leadership.may_write():
                return
            inbox.apply()

    def _stand(self) -> None:
        """Stand for election once all informers are synced, as upstream, so that a new leader can decide at once."""
        controller = self._options.config.profiles[0].scheduler_name
        campaign = partial(self.leadership.run, self._writer, controller, self._lead)
        self._election = self._spawn("leader-election", campaign)

    def _lead(self) -> None:
        self._shell.wake()
        self.scheduler.inbox.put(self._report_broken_pods)

    def _report_broken_pods(self) -> None:
        """Report broken pods: a standby could not write about them."""
        for pod in self._pods.store if self._pods is not None else ():
            if isinstance(pod, Broken):
                self.scheduler.event_handlers.pods.report_broken(pod)

    async def _step_down(self) -> None:
        """Release the lease after all writes, so that the next leader starts at once."""
        if self._election is not None:
            self._election.cancel()
            await asyncio.gather(self._election, return_exceptions=True)
        is_quiet = not self.scheduler.binder and not self.scheduler.evictions
        await self.leadership.resign(gives_back=is_quiet)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record the errors of callbacks and of tasks that no code waits for; a peer that went away is none.

        The loop keeps this handler after `stop`, because such tasks may be collected later.
        """
        error = context.get("exception")
        if is_left_by_kopf(context.get("future") or context.get("task")):
            _log.debug("a request that kopf left behind failed", error=repr(error))
        elif isinstance(error, Exception) and not isinstance(error, OSError):
            self._errors.record("event-loop", error, context["message"])
        else:
            loop.default_exception_handler(context)

    async def _mirror(self, transport: Transport) -> None:
        if self._options.config.delay_cache_until_active:
            await self.leadership.begun.wait()
        await self._discovery.run(partial(self._reflect, transport))

    def _reflect(self, transport: Transport, spec: KindSpec, served: ServedKind) -> None:
        """Start the informer of a kind that the server has."""
        reflector: Reflector[Any] = Reflector(
            spec,
            served,
            decoder=spec.decoder() if self._whole is None else self._whole.keeping(spec.typ, spec.decoder()),
            transport=transport,
            on_batch=self._on_failed if spec.typ is FailedPod else partial(self._on_batch, spec.name),
            clock=self._clock,
            rng=self.scheduler.rng,
            locate=partial(self._discovery.locate, spec),
            on_served=self._on_served(spec),
        )
        self.informers.add(reflector)
        self.scheduler.audit.expect(index_of(reflector))
        self._spawn("informer-failed-pods" if spec.typ is FailedPod else f"informer-{spec.plural}", reflector.run)

    def _on_batch(self, kind: str, deltas: list[Delta[Any]]) -> None:
        if self._whole is not None:
            self._whole.forget_deleted(deltas)
        self.scheduler.inbox.put(partial(self.scheduler.event_handlers.apply, kind, deltas))

    def _on_served(self, spec: KindSpec) -> Callable[[bool], object]:
        """Return what to call when the server begins or stops to serve the kind. Other kinds keep their last objects."""
        handlers = self.scheduler.event_handlers
        if spec.name == CAPACITY.name:
            return lambda is_served: self.scheduler.inbox.put(partial(handlers.storage.capacity_served, is_served))
        if spec in POD_GROUPS:
            served = partial(handlers.pod_groups.served, spec.name)
            return lambda is_served: self.scheduler.inbox.put(partial(served, is_served))
        return bool

    def _on_failed(self, deltas: list[Delta[FailedPod]]) -> None:
        self.scheduler.inbox.put(partial(self.scheduler.refusals.failed, deltas))

    def _stores(self) -> dict[str, Store[Any]]:
        """Return the stores that have a complete list, by kind."""
        return {kind: each.store for kind, each in self.informers.reflectors.items() if each.stats.synced}

    def _pods_version(self) -> str:
        return self._pods.version if self._pods is not None else ""

    def _pods_disconnected_s(self) -> float:
        return self._pods.stats.down_s if self._pods is not None else 0.0

    @property
    def _pods(self) -> Reflector[Any] | None:
        return self.informers.reflectors.get(POD.name)

    def _claims_version(self) -> str:
        """Return the API version of device claims that the server reported last."""
        served = self._discovery.served.get(RESOURCE_CLAIM.name)
        return served.version if served is not None else NEWEST

    def _groups_version(self) -> str:
        """Return the API version of groups that the server reported last."""
        served = self._discovery.served.get(POD_GROUP)
        return served.version if served is not None else POD_GROUPS_VERSION

    async def _schedule(self) -> None:
        await self.informers.complete()
        if self._options.scheduler_profiles:  # the first decision should use the requested profiles
            await done_within(self._clock, self._profile_objects.looked.wait(), _LOOK_WITHIN_S)
        if CAPACITY.name not in self.informers.reflectors:
            self._on_served(CAPACITY)(False)
        self.scheduler.inbox.apply()
        gc.collect()
        gc.freeze()
        self.is_synced = True
        named = Counter(info.pod.spec.scheduler_name for info in self.scheduler.shared.pending)
        waiting = {name: named[name] for name in self.scheduler.profiles}
        _log.info("synced", **self.scheduler.cluster.sizes(), pending=sum(waiting.values()), by_profile=waiting)
        if self._election is None and not self._is_stopping:
            self._stand()
        await self.scheduler.loop.run(self.leadership.may_write)

    async def _measure_lag(self) -> None:
        while True:
            due = self._clock.now() + _LAG_EVERY_S
            await self._clock.sleep(_LAG_EVERY_S)
            self.metrics.loop_lag(max(0.0, self._clock.now() - due))
            self._showing.history.tick()


def _collect_rarely() -> None:
    """Set the daemon's thresholds. What the imports have made stays, so no collection reads it, which takes 55 ms."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)


def _leave_signals() -> None:
    """Ignore signals: without a callback no part of the process replaces the handlers."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)


async def run_daemon(options: RunOptions, *, for_version: Callable[[str], RunOptions] | None = None) -> int:
    """Run until SIGTERM, SIGINT or a failure; return the process's exit code.

    `for_version` makes the options for a version of kube-scheduler. If it is given, the API server's version is read
    first, and `options` only say how to reach it; without an answer the daemon runs with `options`.
    A signal drains; a second signal stops at once. Raises what `Daemon.start` raises: no API server, a used port, a
    wrong configuration.
    """
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def signalled() -> None:
        if asked.is_set():
            os._exit(_HURRIED)  # a second signal stops without flushing or waiting
        asked.set()

    def take_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, signalled)

    take_signals()
    stopping = asyncio.ensure_future(asked.wait())
    if for_version is not None:
        asking = asyncio.ensure_future(_for_server(options, for_version))
        if not await _unless(stopping, asking):
            return 0
        options = asking.result()
    daemon = Daemon(options, take_signals=take_signals)
    try:
        if not await _unless(stopping, asyncio.ensure_future(daemon.start())):
            return 0
        _log_without_effect(options, daemon.scheduler.profiles)
        _log.info(
            "started",
            profiles=list(daemon.scheduler.profiles),
            plain_port=daemon.port,
            secure_port=daemon.secure_port,
            emulated_version=options.emulated_version,
        )
        try:
            await _unless(stopping, asyncio.ensure_future(daemon.wait()))
        except LeaseLost as lost:
            is_other = isinstance(lost, AnotherScheduler)
            _log.error("another scheduler serves the same names" if is_other else "leader election lost", why=str(lost))
            await daemon.stop(0)
            return 1
        except Exception as error:  # noqa: BLE001 (the edge of the process: said, and turned into an exit code)
            _log.error("a part of the daemon failed", exc_info=error)
            await daemon.stop(0)
            return 1
        _log.info("stopping")
        return 0
    finally:
        stopping.cancel()
        await daemon.stop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _log_without_effect(options: RunOptions, profiles: Mapping[str, Profile]) -> None:
    for path in options.config.ignored:
        _log.warning("configuration field has no effect", field=path)
    for name, profile in profiles.items():
        for plugin in profile.resolved.absent:
            _log.warning("plugin of the configuration does not exist here", profile=name, plugin=plugin)


async def _settings(options: RunOptions) -> Settings:
    kubeconfig = options.kubeconfig or options.config.client_connection.kubeconfig
    settings = await load_settings(kubeconfig or None, options.master or None)
    if options.token:
        settings.authorization = f"Bearer {options.token}"
    return settings


async def _for_server(options: RunOptions, for_version: Callable[[str], RunOptions]) -> RunOptions:
    """Return the options for the API server's version, or these if it does not answer within _VERSION_WITHIN_S."""
    settings, clock = await _settings(options), SystemClock()
    transport = HttpTransport(settings, clock=clock)
    git_version = ""
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_VERSION_WITHIN_S):
                git_version = await server_version(transport, clock)
    finally:
        await transport.close()
    if git_version:
        return dataclasses.replace(for_version(closest_version(git_version)), server_version=git_version)
    _log.warning("the version of the API server is unknown", server=settings.server, used=options.emulated_version)
    return options


async def _unless(stopping: asyncio.Future[Any], running: asyncio.Future[Any]) -> bool:
    """Wait for the end; return False if `stopping` came first, after which the step is cancelled. Raises its error."""
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        await running
        return True
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return False
