"""The reflector with the real transport against the in-process API server."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable

import pytest

from scheduler.core.clock import SystemClock
from scheduler.core.decode import ObjectDecoder
from scheduler.core.deltas import Delta
from scheduler.core.pod import Pod
from scheduler.kube.credentials import load_settings
from scheduler.kube.kinds import POD, Discovery, KindSpec, Served, discover
from scheduler.kube.reflector import Reflector
from scheduler.kube.transport import HttpTransport
from scheduler.testing.apiserver import ApiServer, Fault
from scheduler.testing.builders import pod

DEADLINE_S = 30.0


class HastyClock(SystemClock):
    """Waits a fiftieth of what it is asked to."""

    async def sleep(self, delay_s: float) -> None:
        await super().sleep(delay_s / 50)


class Mirror:
    """A pod reflector on one server."""

    def __init__(self, server: ApiServer, transport: HttpTransport) -> None:
        self.server = server
        self.deltas: list[Delta[Pod]] = []
        self.reflector: Reflector[Pod] = Reflector(
            POD,
            Served("/api/v1/pods", "v1"),
            decoder=ObjectDecoder("Pod", Pod),
            transport=transport,
            on_batch=self.deltas.extend,
            clock=HastyClock(),
            chance=random.Random(1),
        )
        self.stats = self.reflector.stats

    def names(self) -> set[str]:
        return {obj.metadata.name for obj in self.reflector.store}

    def deleted(self) -> set[str]:
        return {delta.old.metadata.name for delta in self.deltas if delta.new is None and delta.old is not None}

    async def shows(self, *names: str) -> None:
        await until(lambda: self.names() == set(names))


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_true():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def mirroring(server: ApiServer) -> AsyncIterator[Mirror]:
    transport = HttpTransport(await load_settings(master=server.url))
    mirror = Mirror(server, transport)
    task = asyncio.create_task(mirror.reflector.run())
    try:
        yield mirror
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await transport.close()


@pytest.fixture(params=[pytest.param(True, id="WatchList"), pytest.param(False, id="an old server without WatchList")])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ApiServer]:
    async with ApiServer(watch_list=request.param, bookmark_interval_s=0.2) as server:
        yield server


async def test_a_mirror_follows(server):
    """Created, changed, deleted: the store ends up as the server."""
    server.create("pods", pod("a").obj())
    async with mirroring(server) as mirror:
        await mirror.reflector.synced.wait()
        assert {"a"} == mirror.names()

        server.create("pods", pod("b").obj())
        server.delete("pods", "a", grace_s=0)
        await mirror.shows("b")

    assert {"a"} == mirror.deleted()
    assert {"start": 1} == mirror.stats.relists


async def test_a_large_first_picture_is_complete(server):
    """More than two pages of a LIST."""
    wanted = {f"p{n}" for n in range(1203)}
    for name in wanted:
        server.create("pods", pod(name).obj())
    async with mirroring(server) as mirror:
        await mirror.reflector.synced.wait()

        assert wanted == mirror.names()


async def test_finished_pods_leave_the_mirror(server):
    """The field selector turns a phase into a deletion."""
    server.create("pods", pod("a").obj())
    async with mirroring(server) as mirror:
        await mirror.shows("a")
        server.patch("pods", "a", {"status": {"phase": "Succeeded"}}, subresource="status")
        await mirror.shows()


@pytest.mark.parametrize(
    "abruptly", [pytest.param(False, id="properly"), pytest.param(True, id="in the middle of a chunk")]
)
async def test_a_cut_watch_is_resumed_without_a_relist(server, abruptly):
    """Whatever happened while nobody listened is told afterwards, once."""
    async with mirroring(server) as mirror:
        await mirror.reflector.synced.wait()
        for n in range(5):
            server.create("pods", pod(f"p{n}").obj())
            server.cut_watches("pods", abruptly=abruptly)
            server.create("pods", pod(f"q{n}").obj())
            await mirror.shows(*(f"{letter}{i}" for letter in "pq" for i in range(n + 1)))

    assert {"start": 1} == mirror.stats.relists
    assert 10 == len(mirror.deltas)


async def test_after_compaction_the_mirror_reports_what_vanished(server):
    """410, a fresh picture, and deletions for what went unseen."""
    for name in ("stays", "goes"):
        server.create("pods", pod(name).obj())
    async with mirroring(server) as mirror:
        await mirror.shows("stays", "goes")
        away = server.faults.add(Fault(verb="watch", resource="pods", status=503, times=None))
        server.cut_watches("pods")
        await until(lambda: away.hits > 0)
        server.delete("pods", "goes", grace_s=0)
        server.create("pods", pod("comes").obj())
        server.compact()
        server.faults.clear()
        await mirror.shows("stays", "comes")

    assert {"goes"} == mirror.deleted()
    assert 1 == mirror.stats.synthesised_deletes
    assert {"start": 1, "gone": 1} == mirror.stats.relists


async def test_a_forbidden_kind_is_named_until_it_is_allowed(server):
    """Readiness can say which permission is missing."""
    server.forbidden.add(("watch", "pods"))
    async with mirroring(server) as mirror:
        await until(lambda: bool(mirror.stats.denied))
        assert mirror.stats.denied.startswith("cannot watch pods: ")
        assert not mirror.reflector.synced.is_set()

        server.forbidden.clear()
        await mirror.reflector.synced.wait()
        assert not mirror.stats.denied


async def test_a_server_that_restarts_is_found_again(server):
    """Connection refused, then the same objects."""
    server.create("pods", pod("a").obj())
    async with mirroring(server) as mirror:
        await mirror.shows("a")
        port = int(server.url.rpartition(":")[2])
        await server.stop()
        await until(lambda: bool(mirror.stats.last_error))
        server.create("pods", pod("b").obj())
        await server.start(port)
        await mirror.shows("a", "b")


async def test_discovery():
    """Versions in order of preference; what is not served is absent."""
    capacity = KindSpec(
        "CSIStorageCapacity", "csistoragecapacities", ("storage.k8s.io/v1", "storage.k8s.io/v1beta1"), True
    )
    async with ApiServer(served=["v1", "storage.k8s.io/v1"]) as server:
        transport = HttpTransport(await load_settings(master=server.url))
        found = await discover(transport, [POD, capacity, KindSpec("X", "xs", ("x.example/v1",), False)])
        discovery = Discovery(transport, SystemClock(), kinds=[POD])
        await discovery.run(lambda spec, served: None)
        await transport.close()

    assert {
        "Pod": Served("/api/v1/pods", "v1"),
        "CSIStorageCapacity": Served("/apis/storage.k8s.io/v1/csistoragecapacities", "v1"),
        "X": None,
    } == found
    assert {"Pod": Served("/api/v1/pods", "v1")} == discovery.served
