"""Run one replay: the in-process API server, kubelets and controllers, the real daemon, and the history.

Everything runs on the virtual clock of one event loop, so equal recordings, configurations and seeds give equal results.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from scheduler.api.pod_group import KINDS
from scheduler.core.clock import Clock
from simulator.apiserver import GROUPS, LIKE_1_37, ApiServer, Refused
from simulator.controllers.kubelet import Kubelet
from simulator.controllers.protection import ProtectionController
from simulator.eventloop import SimulatedClock, VirtualLoop
from simulator.replay.history import History
from simulator.replay.player import Player
from simulator.replay.recording import RecordingReader
from simulator.replay.timeline import Timeline
from simulator.replay.utilization import Utilization
from simulator.simulate import DaemonFor, DaemonOptions
from simulator.simulate.budgets import Budgets
from simulator.simulate.input.complete import controllers, device_controllers

Progress: TypeAlias = Callable[[float], object]
"""Called with the time of the recording in seconds."""

INTERVALS: Final = 240
PROBLEMS_MAX: Final = 50
"""Refused events that are listed."""
_SETTLE_S: Final = 1.0
"""Time after the last event in which pods that arrived at the end get a node."""
_EVENT_TTL_S: Final = 3600.0
"""As kube-apiserver's --event-ttl."""
_PROGRESS_EVERY: Final = 500
_RESOURCES: Final = {
    "Pod": "pods",
    "Node": "nodes",
    "ResourceSlice": "resourceslices",
    "ResourceClaim": "resourceclaims",
    "PersistentVolume": "persistentvolumes",
}


@dataclass(frozen=True, slots=True)
class ReplayRules:
    """How a recording is replayed."""

    scheduler_names: dict[str, str]
    """Recorded name of a scheduler whose pods are replayed → name in the replay."""
    version: str
    seed: int = 0
    pool_label: str = ""
    speed: float | None = None
    """Seconds of the recording in one second; None: as fast as possible."""


@dataclass(slots=True)
class Measured:
    """What a replay, or the recording itself, did."""

    timeline: Timeline
    utilization: Utilization
    problems: list[str] = field(default_factory=list)
    """Events that were refused, the first ones."""
    refused: int = 0
    """All of them."""
    restarts: int = 0

    @classmethod
    def of(cls, history: History, rules: ReplayRules, *, is_replayed: Callable[[dict[str, Any]], bool]) -> Measured:
        """Create empty measurements for the duration of the recording."""
        duration_s = max(history.duration_s, 1.0)
        return cls(Timeline(duration_s, INTERVALS, is_replayed), Utilization(duration_s, INTERVALS, rules.pool_label))

    def observe(self, at_s: float, type_: str, resource: str, obj: dict[str, Any]) -> None:
        """Record one change."""
        at_s = max(at_s, 0.0)
        self.timeline.observe(at_s, type_, resource, obj)
        self.utilization.observe(at_s, type_, resource, obj)

    def finish(self) -> Measured:
        """Let the time pass until the end of the recording, and return the measurements."""
        self.timeline.finish()
        self.utilization.finish()
        return self

    def problem(self, text: str) -> None:
        """Count a refused event."""
        self.refused += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(text)


def recorded(path: str, history: History, rules: ReplayRules) -> Measured:
    """Measure the recording itself: what its own schedulers did. O(events)."""
    measured = Measured.of(
        history, rules, is_replayed=lambda pod: history.is_free(pod["metadata"]["uid"], rules.scheduler_names)
    )
    for event in RecordingReader(path).events():
        if event is None or (resource := _RESOURCES.get(event.kind)) is None:
            continue
        try:
            measured.observe(event.at_s, event.type, resource, event.value())
        except (AttributeError, KeyError, TypeError, ValueError) as why:
            measured.problem(f"{event}: has a wrong form: {why!r}")
    return measured.finish()


def replayed(
    path: str, history: History, rules: ReplayRules, daemon_for: DaemonFor, progress: Progress = lambda _: None
) -> Measured:
    """Replay the recording with one configuration, in virtual time. Raises InputError and the errors of the daemon."""
    loop = VirtualLoop(speed=rules.speed)
    clock = SimulatedClock(loop, wall_at_start=history.header.started_s)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(_replay(path, history, rules, daemon_for, clock, progress))


async def _replay(  # noqa: PLR0917 (the parts of one replay)
    path: str, history: History, rules: ReplayRules, daemon_for: DaemonFor, clock: Clock, progress: Progress
) -> Measured:
    def is_replayed(pod: dict[str, Any]) -> bool:
        return player.is_replayed(pod["metadata"]["uid"])

    groups = (version for kind, version in zip(KINDS, GROUPS) if kind in history.kinds)
    server = ApiServer(clock=clock, rng=random.Random(rules.seed), served=(*LIKE_1_37, *groups))
    server.token = secrets.token_urlsafe()
    measured = Measured.of(history, rules, is_replayed=is_replayed)
    player = Player(server, history, clock, rules.scheduler_names, measured.problem, began_s=clock.now())
    server.subscribe(lambda type_, resource, obj: measured.observe(player.at_s, type_, resource, obj))
    _expire_events(server, clock)
    async with server, Kubelet(server, clock=clock) as kubelet, AsyncExitStack() as running:
        player.load()
        server.upgrade(f"v{rules.version}.0")
        actors = (
            *controllers(server, clock),
            *device_controllers(server, clock),
            ProtectionController(server, clock=clock),
        )
        while kubelet.step() + sum(actor.step() for actor in actors):
            pass
        budgets = [each for each in server.objects("PodDisruptionBudget") if each.get("status")]
        Budgets(server, {f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in budgets})
        for actor in actors:
            await running.enter_async_context(actor)
        daemon = daemon_for(DaemonOptions(server.url, server.token, rules.version, rules.seed, clock))
        try:
            await daemon.start()
            await _until_done(daemon.wait(), _play(path, player, clock, progress))
        finally:
            await daemon.stop()
    measured.restarts = player.restarts
    return measured.finish()


async def _play(path: str, player: Player, clock: Clock, progress: Progress) -> None:
    """Carry out the events at their times."""
    is_first = True
    for number, event in enumerate(RecordingReader(path).events()):
        if event is None:
            is_first = False
        elif not is_first:
            if (delay_s := event.at_s - player.at_s) > 0:
                await clock.sleep(delay_s)
            player.play(event)
            if number % _PROGRESS_EVERY == 0:
                progress(event.at_s)
    await clock.sleep(max(0.0, player.history.duration_s - player.at_s) + _SETTLE_S)


async def _until_done(failing: Awaitable[None], work: Awaitable[None]) -> None:
    """Wait for the work. Raises its error, or that of the daemon."""
    failed, done = asyncio.ensure_future(failing), asyncio.ensure_future(work)
    try:
        await asyncio.wait({failed, done}, return_when=asyncio.FIRST_COMPLETED)
        for each in (done, failed):
            if each.done():
                each.result()
    finally:
        for each in (failed, done):
            each.cancel()
        await asyncio.gather(failed, done, return_exceptions=True)


def _expire_events(server: ApiServer, clock: Clock) -> None:
    """Delete Events after an hour, as an API server does: a day of them would fill the memory."""
    kept: deque[tuple[float, str, str]] = deque()

    def written(type_: str, resource: str, obj: dict[str, Any]) -> None:
        if resource != "events" or type_ != "ADDED":
            return
        metadata = obj["metadata"]
        kept.append((clock.now(), metadata["namespace"], metadata["name"]))
        while kept[0][0] < kept[-1][0] - _EVENT_TTL_S:
            _, namespace, name = kept.popleft()
            with suppress(Refused):
                server.delete("events", name, namespace)

    server.subscribe(written)
