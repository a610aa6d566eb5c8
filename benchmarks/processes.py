"""The processes of a run: the observer with its output, and the scheduler with its cost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from benchmarks.competitors import Competitor, Limits
from benchmarks.meter import Meter, Usage, machine, usage
from benchmarks.workload import NAMESPACE
from tests.e2e.controlplane.harness import ControlPlane
from tests.e2e.controlplane.process import Group, ServerProcess, free_port

STALLED_AFTER_S = 60.0
READY_WITHIN_S = 300.0
REPOSITORY = Path(__file__).parents[1]


class Bindings:
    """The output of the observer process so far: pod → moment it was seen bound, in that order, and its node."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.node_of: dict[str, str] = {}
        self.nominated_at: dict[str, float] = {}
        self.ready = asyncio.Event()
        self._news = asyncio.Event()

    async def read(self, lines: asyncio.StreamReader) -> None:
        """Until cancelled."""
        async for raw in lines:
            match raw.decode().split():
                case ["ready"]:
                    self.ready.set()
                case ["moved", pod, before, after]:
                    raise RuntimeError(f"{pod} was bound to {before}, then to {after}")
                case [moment, pod, _, "nominated"]:
                    self.nominated_at[pod] = float(moment)
                case [moment, pod, node]:
                    self.at[pod] = float(moment)
                    self.node_of[pod] = node
            self._news.set()
        raise RuntimeError("the observer ended")

    async def until(self, count: int, scheduler: ServerProcess, *, deadline: float | None = None) -> None:
        """Wait for that many; gives up at the deadline (time.monotonic), or without one when a minute brings none.

        Raises Died if the scheduler ends.
        """
        while len(self.at) < count:
            scheduler.check()
            before = len(self.at)
            given_up_at = time.monotonic() + STALLED_AFTER_S if deadline is None else deadline
            while len(self.at) == before:
                if time.monotonic() > given_up_at:
                    log = f"; its log ends:\n{scheduler.tail()}" if deadline is None else ", at its limit of time"
                    print(f"stopped at {before} of {count}{log}", file=sys.stderr)
                    return
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), 1.0)
                scheduler.check()


@asynccontextmanager
async def observed(plane: ControlPlane) -> AsyncIterator[Bindings]:
    """A running observer process."""
    bindings = Bindings()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.observer", str(plane.kubeconfig), NAMESPACE),
        stdout=asyncio.subprocess.PIPE,
        cwd=REPOSITORY,
    )
    assert process.stdout is not None
    try:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(bindings.read(process.stdout))
            ready = group.create_task(bindings.ready.wait())
            await ready
            yield bindings
            reading.cancel()
    finally:
        process.kill()
        await process.wait()


class Plane(Protocol):
    """What a scheduler is started on."""

    @property
    def kubeconfig(self) -> Path: ...
    @property
    def directory(self) -> Path: ...
    @property
    def logs(self) -> Path: ...

    def cpu_s(self, name: str) -> float:
        """CPU seconds of the server so far."""

    def rss_bytes(self, name: str) -> int:
        """Its resident memory."""


@dataclass(frozen=True, slots=True)
class Started:
    """A scheduler that was started at `began` (time.monotonic)."""

    server: ServerProcess
    meter: Meter
    began: float
    ready_url: str
    """Empty if it has none."""

    async def ready(self, within_s: float = READY_WITHIN_S) -> float:
        """Wait until it says that it is; answers with the seconds since its start."""
        deadline = self.began + within_s
        async with ClientSession(timeout=ClientTimeout(total=5), connector=TCPConnector(ssl=False)) as http:
            while time.monotonic() < deadline:
                self.server.check()
                with contextlib.suppress(ClientError, TimeoutError):  # not listening yet
                    async with http.get(self.ready_url) as answer:
                        if answer.status == 200:
                            return time.monotonic() - self.began
                await asyncio.sleep(0.02)
        raise TimeoutError(f"not ready within {within_s:.0f} s; its log ends:\n{self.server.tail()}")


@asynccontextmanager
async def started(
    plane: Plane, competitor: Competitor, limits: Limits, *, beside: Mapping[str, Callable[[], Usage]] | None = None
) -> AsyncIterator[Started]:
    """The scheduler, not awaited to be ready, and a meter that samples it and the other processes; killed at the end."""
    group = Group(plane.logs)
    try:
        port = free_port()
        command = competitor.command(plane.kubeconfig, plane.directory, limits, port)
        began = time.monotonic()
        server = group.start(competitor.name, ["/usr/bin/env", f"PYTHONPATH={REPOSITORY}", *command])
        meter = Meter(
            {
                "scheduler": lambda: usage(server.pid),
                "apiserver": lambda: Usage(plane.cpu_s("kube-apiserver"), plane.rss_bytes("kube-apiserver")),
                "benchmark": lambda: usage(os.getpid()),  # all of the above, etcd, the observer and ourselves
                "machine": machine,
                **(beside or {}),
            }
        )
        sampling = asyncio.create_task(meter.run())
        try:
            endpoint = f"{competitor.scheme}://127.0.0.1:{port}{competitor.ready_path}"
            yield Started(server, meter, began, endpoint if competitor.ready_path else "")
        finally:
            sampling.cancel()
    finally:
        group.stop()
