"""The in-process API server in a separate process, and label changes made inside it.

For storms that a real kube-apiserver cannot keep up with on the cores there are: a change costs some 60 µs there, and
watchers see the same lines. It has the ways of a test control plane that a measurement needs. As a script it is that
server: it prints its URL, reads `<nodes> <changes per second> <seconds>` and prints how many it has made so far.
"""

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import yaml

from benchmarks.meter import usage
from benchmarks.workload import node_name
from simulator.apiserver import ApiServer

LABEL = "bench.example.com/turn"
REPOSITORY = Path(__file__).parents[1]
_TELL_EVERY_S = 0.1


class LoopbackPlane:
    """An async context manager."""

    async def __aenter__(self) -> Self:
        self.directory = Path(tempfile.mkdtemp(prefix="kubestow-loopback-"))
        self.logs = self.directory
        self.kubeconfig = self.directory / "kubeconfig"
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.loopback"), stdin=pipe, stdout=pipe, cwd=REPOSITORY
        )
        assert self._process.stdout is not None
        self._url = (await self._process.stdout.readline()).decode().strip()
        self.kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "loopback", "cluster": {"server": self._url}}],
                    "users": [{"name": "user", "user": {}}],
                    "contexts": [{"name": "loopback", "context": {"cluster": "loopback", "user": "user"}}],
                    "current-context": "loopback",
                }
            )
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._process.kill()
        await self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def client(self) -> aiohttp.ClientSession:
        """A session with the server's address in it. The caller closes."""
        return aiohttp.ClientSession(self._url)

    def cpu_s(self, _name: str) -> float:
        return usage(self._process.pid).cpu_s

    def rss_bytes(self, _name: str) -> int:
        return usage(self._process.pid).peak_bytes

    async def storm(self, nodes: int, per_s: float, seconds: float) -> AsyncIterator[int]:
        """Change a label of each of the nodes in turn; yields, ten times a second or so, how many changes were made."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{nodes} {per_s} {seconds}\n".encode())
        while (line := (await self._process.stdout.readline()).strip()) != b"over":
            if not line:
                raise RuntimeError("the server ended")
            yield int(line)


async def _storm(server: ApiServer, nodes: int, per_s: float, until: float) -> None:
    began = time.monotonic()
    told_at = began
    done = 0
    while (now := time.monotonic()) < until:
        # One by one, each with a turn for the watches: that is how a real server sends them.
        await asyncio.sleep(max(0.0, began + done / per_s - now))
        turn, node = divmod(done, nodes)
        server.patch("nodes", node_name(node), {"metadata": {"labels": {LABEL: f"{turn}"}}})
        done += 1
        if now - told_at > _TELL_EVERY_S:
            told_at = now
            print(done, flush=True)


async def _serve() -> None:
    async with ApiServer() as server:
        print(server.url, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            nodes, per_s, seconds = line.split()
            await _storm(server, int(nodes), float(per_s), time.monotonic() + float(seconds))
            print("over", flush=True)


if __name__ == "__main__":
    asyncio.run(_serve())
