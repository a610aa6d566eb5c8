"""A daemon in a container or a confinement, and the small cluster that it schedules."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from simulator.apiserver import ApiServer
from tests.e2e.controlplane.process import free_port
from tests.support.connections import SettledConnector

DEADLINE_S = 60.0
ANSWER = aiohttp.ClientTimeout(total=5.0)


@dataclass
class Running:
    """A daemon that was started. `find_pid` returns its process id outside of the container."""

    process: asyncio.subprocess.Process
    log: Path
    port: int
    find_pid: Callable[[int], int | None]

    @property
    def pid(self) -> int:
        found = self.find_pid(self.process.pid)
        assert found is not None, self.log.read_text()
        return found

    def check(self) -> None:
        assert self.process.returncode is None, self.log.read_text()

    def was_refused_its_port(self) -> bool:
        """Return whether the daemon ended because another process took the port first."""
        return self.process.returncode is not None and "Address already in use" in self.log.read_text()

    async def kill(self) -> None:
        """Kill the process if it still runs."""
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def ready(self) -> None:
        """Wait until /readyz returns ok. The daemon's certificate is self-signed."""
        last = "no answer"
        async with aiohttp.ClientSession(connector=SettledConnector(ssl=False)) as http:
            deadline = time.monotonic() + DEADLINE_S
            while last != "ok":
                assert time.monotonic() < deadline, f"{last}\n{self.log.read_text()}"
                self.check()
                await asyncio.sleep(0.05)
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with http.get(f"https://127.0.0.1:{self.port}/readyz", timeout=ANSWER) as answer:
                        last = await answer.text()

    async def ended(self) -> int:
        """Send SIGTERM to the daemon alone and return the exit code."""
        os.kill(self.pid, signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def daemon(
    command: Callable[[Sequence[str]], Sequence[str]],
    *flags: str,
    log: Path,
    environ: Mapping[str, str],
    find_pid: Callable[[int], int | None],
) -> AsyncIterator[Running]:
    """Start `kubestow run` on a free port of loopback and yield it once it is ready; kill it at the end.

    `command` receives the arguments of kubestow and returns the process to start with `environ`.
    """
    running = None
    while running is None or running.was_refused_its_port():
        port = free_port()
        started = command(["run", f"--secure-port={port}", "--bind-address=127.0.0.1", *flags])
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(*started, env=dict(environ), stdout=out, stderr=out)
        running = Running(process, log, port, find_pid)
        try:
            await running.ready()
        except AssertionError:
            if not running.was_refused_its_port():
                await running.kill()
                raise
    try:
        yield running
    finally:
        await running.kill()


def fill(server: ApiServer) -> None:
    """Create one node and one pod that fits."""
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    server.create("nodes", {"metadata": {"name": "n1"}, "status": {"allocatable": amounts}})
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "kubestow", "containers": [container]}
    server.create("pods", {"metadata": {"name": "p", "namespace": "default"}, "spec": spec})


async def bound(server: ApiServer, running: Running) -> None:
    """Wait until the pod of `fill` is bound."""
    deadline = time.monotonic() + DEADLINE_S
    while server.get("pods", "p")["spec"].get("nodeName") != "n1":
        assert time.monotonic() < deadline, running.log.read_text()
        running.check()
        await asyncio.sleep(0.02)
