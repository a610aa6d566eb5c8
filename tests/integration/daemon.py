"""The real daemon against the in-process API server, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from scheduler.config.types import ClientConnection, Configuration, RunOptions
from scheduler.core.clock import Clock
from scheduler.daemon.app import Daemon
from simulator.apiserver import ApiServer
from tests.integration.clocks import HastyClock

DEADLINE_S = 150.0
"""The machine may become three times slower within a minute."""


@dataclass
class Rig:
    server: ApiServer
    daemon: Daemon

    def node(self, name: str, **more: Any) -> None:
        labels, taints = more.pop("labels", {}), more.pop("taints", [])
        spec = {"taints": taints, "unschedulable": more.pop("unschedulable", False)}
        allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110", **more}
        obj = {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": allocatable}}
        self.server.create("nodes", obj)

    def pod(self, name: str, cpu: str = "", **spec: Any) -> None:
        requests = {"requests": {"cpu": cpu}} if cpu else {}
        body = {
            "schedulerName": "kubestow",
            "containers": [{"name": "c", "image": "none", "resources": requests}],
            **spec,
        }
        self.server.create("pods", {"metadata": {"name": name, "namespace": "default"}, "spec": body})

    def pods(self) -> dict[str, str]:
        """Name → node, "" while there is none."""
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in self.server.list("pods")}

    def condition(self, name: str) -> dict[str, Any]:
        conditions = self.server.get("pods", name).get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == "PodScheduled"), {})

    def events(self, reason: str) -> list[dict[str, Any]]:
        return [event for event in self.server.list("events") if event["reason"] == reason]

    def leads(self) -> bool:
        return self.daemon.leadership.may_write()

    def metric(self, name: str) -> dict[tuple[str, ...], float]:
        """Return label values → value of a metric."""
        text = self.daemon.metrics.render().decode()
        return {
            tuple(sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        }

    async def get(self, path: str) -> tuple[int, str]:
        """Return status and text of a page that the daemon serves without TLS."""
        url = f"http://127.0.0.1:{self.daemon.port}"
        async with aiohttp.ClientSession(url) as http, http.get(path) as answer:
            return answer.status, await answer.text()

    async def shows(self, holds: Callable[[int, str], bool], path: str = "/readyz?verbose") -> str:
        """Wait until status and text of a page are as wanted, and return the text."""
        deadline = time.monotonic() + DEADLINE_S
        while not holds(*(found := await self.get(path))):
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.01)
        return found[1]

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        await until(holds, lambda: f"{what}: {self.pods()}")

    async def bound(self, *names: str) -> None:
        await self.until(lambda: all(self.pods().get(name) for name in names), f"never bound {names}")


async def until(
    holds: Callable[[], bool], what: Callable[[], str], *, clock: Clock | None = None, lasts_s: float = 0.0
) -> None:
    """Poll a condition of this process; raises AssertionError after the deadline.

    With a clock, `lasts_s` must pass on it, too: it almost stands still while the machine is busy.
    """
    deadline = time.monotonic() + DEADLINE_S
    end = clock.now() + lasts_s if clock is not None else 0.0
    while not holds():
        if time.monotonic() > deadline and (clock is None or clock.now() > end):
            raise AssertionError(what())
        await asyncio.sleep(0.01)


def options(url: str, **more: Any) -> RunOptions:
    """Return options without a rate limit, with any free port and a short drain.

    `more` are fields of RunOptions or of its configuration.
    """
    run: dict[str, Any] = {"master": url, "port": 0, "drain_timeout_s": 5}
    run |= {each.name: more.pop(each.name) for each in dataclasses.fields(RunOptions) if each.name in more}
    return RunOptions(config=Configuration(**{"client_connection": ClientConnection(qps=-1)} | more), **run)


@contextlib.asynccontextmanager
async def rig(server: ApiServer | None = None, *, clock: Clock | None = None, **more: Any) -> AsyncIterator[Rig]:
    """Run a server and a daemon; stop the daemon first."""
    async with server or ApiServer() as running, rig_on(running, clock=clock, **more) as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def rig_on(server: ApiServer, *, clock: Clock | None = None, **more: Any) -> AsyncIterator[Rig]:
    """Run a daemon on a server that runs already. Without a clock it uses the machine's."""
    if isinstance(clock, HastyClock):
        more.setdefault("trial_s", 60.0)  # a second of work lasts milliseconds
    daemon = Daemon(options(server.url, **more), clock=clock)
    try:
        await daemon.start()
        yield Rig(server, daemon)
    finally:
        await daemon.stop()
