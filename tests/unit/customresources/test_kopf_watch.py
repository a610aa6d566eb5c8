"""The watch of our own kinds through kopf: starts, restarts and its end, with a stand-in for kopf."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from scheduler.core.errors import Forbidden, NotFound, Unavailable
from scheduler.customresources import kopf_watch as shell
from scheduler.customresources.kopf_watch import Operator
from scheduler.customresources.own_objects import OwnObjects
from scheduler.customresources.scheduler_profiles import ProfileObjects
from scheduler.kube.client_config import Settings
from scheduler.kube.http.shared_session import SharedSession
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.resources import WHAT_IF
from scheduler.kube.writes.own_objects import PROFILES, ProfileWriter
from scheduler.metrics.metrics import Metrics
from tests.support.clock import VirtualClock
from tests.unit.kube.scripted import ScriptedTransport

Object = dict[str, Any]
KIND = "/apis/kubestow.dev/v1alpha1"
EMPTY_LIST = msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": []})


class Stand:
    """A shell, and a stand-in for kopf that records its calls. A test may replace `spawn`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        self.started_at: list[float] = []
        self.watched: list[str] = []
        """The plurals with a handler, of all starts."""
        self.clock = VirtualClock()
        self.transport = ScriptedTransport()
        self.transport.by_path = {
            KIND: msgspec.json.encode({"resources": [{"name": "schedulerprofiles"}]}),
            PROFILES: EMPTY_LIST,
        }
        self.metrics = Metrics(process=False)
        self.tasks: list[asyncio.Task[None]] = []
        """All tasks that were spawned."""
        self.spawn: Callable[[], Any] = self._two
        writer = ProfileWriter(self.transport, Throttle(self.clock, qps=-1, burst=1), self.clock)
        self.objects = ProfileObjects(
            self.transport, writer, self.clock, names=frozenset(), on_requested=lambda _: None, verdicts=dict
        )
        self.shell = Operator(
            self.transport,
            lambda: SharedSession(Settings("http://api"), self.transport),
            [self.objects],
            self.clock,
            metrics=self.metrics.shell,
            reclaim_signals=lambda: self.said.append("signals are ours"),
        )
        monkeypatch.setattr(shell, "_kopf", self._loaded)
        monkeypatch.setattr(shell, "_settings", lambda _kopf: None)

    def _loaded(self) -> Any:
        def registered(*_: object, **__: object) -> Callable[[object], object]:
            return lambda handler: handler

        def watched(_group: str, _version: str, plural: str, **_: object) -> Callable[[object], object]:
            self.watched.append(plural)
            return lambda handler: handler

        on = SimpleNamespace(login=registered, event=watched)
        return SimpleNamespace(OperatorRegistry=object, on=on, spawn_tasks=self._spawned)

    async def _spawned(self, **given: Any) -> list[asyncio.Task[None]]:
        assert (given["standalone"], given["clusterwide"], given["stop_flag"].is_set()) == (True, True, False)
        self.started_at.append(self.clock.now())
        self.said.append("spawned")
        tasks: list[asyncio.Task[None]] = await self.spawn()
        self.tasks += tasks
        return tasks

    async def _two(self) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._part(), name=name) for name in ("one", "two")]

    async def _part(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.said.append("a part ended")

    def shown(self, name: str) -> float:
        lines = self.metrics.render().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


async def nothing() -> list[asyncio.Task[None]]:
    """A start that fails."""
    raise ValueError("no")


async def until_it(holds: Callable[[], object]) -> None:
    """Wait for threads."""
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.001)


async def ended(running: asyncio.Task[None]) -> None:
    running.cancel()
    async with asyncio.timeout(60):
        await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()


async def test_when_one_task_ends_all_end_and_the_shell_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(monkeypatch)

    async def breaks() -> None:
        raise ValueError("worn out")

    async def one_breaks() -> list[asyncio.Task[None]]:
        return [asyncio.create_task(breaks(), name="brittle"), asyncio.create_task(stand._part())]

    stand.spawn = one_breaks
    running = asyncio.ensure_future(stand.shell.run())
    while stand.shown("kubestow_shell_restarts_total") < 3:
        await until_it(stand.shell.remark)
        assert stand.shell.remark() == (
            "the shell is down, changes are noticed once a minute: brittle: ValueError('worn out')"
        )
        await stand.clock.advance(60)
        await asyncio.sleep(0.001)
    await ended(running)

    assert len(stand.tasks) == 2 * len(stand.started_at) >= 6
    assert all(task.done() for task in stand.tasks)  # a task may be cancelled before its first step


@pytest.mark.parametrize("fails", [True, False])
async def test_cancelled_while_it_starts_it_ends(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    stand, go_on = Stand(monkeypatch), asyncio.Event()

    async def slowly() -> list[asyncio.Task[None]]:
        await go_on.wait()
        if fails:
            raise ValueError("no")
        return await stand._two()

    stand.spawn = slowly
    running = asyncio.ensure_future(stand.shell.run())
    await until_it(lambda: stand.said)
    running.cancel()
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(60):
        await asyncio.gather(running, return_exceptions=True)

    assert running.cancelled()
    assert stand.said[:2] == (["spawned"] if fails else ["spawned", "signals are ours"])
    assert all(task.done() for task in stand.tasks)


async def test_pauses_double(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(monkeypatch)
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)
        await asyncio.sleep(0)

    stand.spawn = nothing
    monkeypatch.setattr(stand.shell, "clock", SimpleNamespace(now=stand.clock.now, sleep=sleep))
    running = asyncio.ensure_future(stand.shell.run())
    await until_it(lambda: len(slept) >= 8)
    await ended(running)

    assert slept[:8] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


async def test_a_server_that_does_not_answer_at_first_is_tried_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(monkeypatch)
    served = stand.transport.by_path[KIND]
    stand.transport.by_path[KIND] = Unavailable("down")
    running = asyncio.ensure_future(stand.shell.run())
    await until_it(lambda: KIND in stand.transport.paths("GET"))
    await asyncio.sleep(0)
    assert not stand.objects.looked.is_set()

    stand.transport.by_path[KIND] = served
    await stand.clock.advance(1)
    await until_it(stand.objects.looked.is_set)
    await ended(running)


class OtherKind(OwnObjects):
    """A second kind, of which every object is kept."""

    spec = WHAT_IF

    def kept(self, obj: Object) -> Object | None:
        return obj


def with_both_kinds(stand: Stand, *served: str, unread: bool = False) -> OtherKind:
    """Add the second kind to the shell. The server has the kinds `served`."""
    other = OtherKind(stand.transport, stand.clock)
    stand.shell.kinds = [stand.objects, other]
    stand.transport.by_path[KIND] = msgspec.json.encode({"resources": [{"name": name} for name in served]})
    stand.transport.by_path[f"{KIND}/whatifs"] = Forbidden("no", status=403) if unread else EMPTY_LIST
    return other


@pytest.mark.parametrize(("served", "unread", "watched"), [
    pytest.param(["schedulerprofiles", "whatifs"], False, ["schedulerprofiles", "whatifs"], id="both"),
    pytest.param(["schedulerprofiles"], False, ["schedulerprofiles"], id="the first one alone"),
    pytest.param(["whatifs"], False, ["whatifs"], id="the second one alone"),
    pytest.param(["schedulerprofiles", "whatifs"], True, ["schedulerprofiles"], id="one of them cannot be read"),
])  # fmt: skip
async def test_of_two_kinds_each_is_watched_that_can_be(
    monkeypatch: pytest.MonkeyPatch, served: list[str], unread: bool, watched: list[str]
) -> None:
    stand = Stand(monkeypatch)
    other = with_both_kinds(stand, *served, unread=unread)
    running = asyncio.ensure_future(stand.shell.run())
    await until_it(lambda: stand.started_at)
    await until_it(lambda: stand.objects.looked.is_set() and other.looked.is_set())

    assert stand.watched == watched
    assert stand.shell.remark() == ("WhatIfs cannot be read: no" if unread else "")
    await ended(running)


async def test_a_kind_that_appears_later_is_watched_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(monkeypatch)
    with_both_kinds(stand, "whatifs")
    running = asyncio.ensure_future(stand.shell.run())
    await until_it(lambda: stand.watched == ["whatifs"])

    both = [{"name": name} for name in ("schedulerprofiles", "whatifs")]
    stand.transport.by_path[KIND] = msgspec.json.encode({"resources": both})
    while len(stand.started_at) < 2:
        await stand.clock.advance(60)
        await asyncio.sleep(0.001)

    assert stand.watched == ["whatifs", "schedulerprofiles", "whatifs"]
    assert (stand.shown("kubestow_shell_restarts_total"), stand.shell.remark()) == (0, "")
    await ended(running)


async def test_a_kind_that_is_deleted_leaves_the_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(monkeypatch)
    with_both_kinds(stand, "schedulerprofiles", "whatifs")
    running = asyncio.ensure_future(stand.shell.run())
    await until_it(lambda: len(stand.watched) == 2)

    stand.transport.by_path[KIND] = msgspec.json.encode({"resources": [{"name": "schedulerprofiles"}]})
    stand.transport.by_path[f"{KIND}/whatifs"] = NotFound("gone", status=404)
    while len(stand.started_at) < 2:
        await stand.clock.advance(60)
        await asyncio.sleep(0.001)

    assert stand.watched == ["schedulerprofiles", "whatifs", "schedulerprofiles"]
    await ended(running)


async def test_a_session_that_cannot_be_closed_does_not_end_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(monkeypatch)

    class Stuck(SharedSession):
        async def close(self) -> None:
            raise OSError("cannot be closed")

    stand.spawn = nothing
    monkeypatch.setattr(stand.shell, "shared_session", lambda: Stuck(Settings("http://api"), stand.transport))
    running = asyncio.ensure_future(stand.shell.run())
    await until_it(lambda: running.done() or stand.shown("kubestow_shell_restarts_total"))

    assert not running.done()
    await ended(running)
