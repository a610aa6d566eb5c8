"""A real Prometheus that scrapes one port of this machine every second, and its answers."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.deploy.tools import prometheus
from tests.e2e.controlplane.process import Died, Group, ServerProcess, free_port, was_refused_its_port

JOB = "kubestow"
_DEADLINE_S = 60.0
_CONFIG = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}}


def filled(expr: str, rate_interval: str) -> str:
    """Return a query of the dashboard with its variables filled in."""
    variables = {"$job": JOB, "$instance": ".+", "$profile": ".+", "$__rate_interval": rate_interval}
    for name, value in variables.items():
        expr = expr.replace(name, value)
    return expr


class Prometheus:
    def __init__(self, http: aiohttp.ClientSession, url: str, server: ServerProcess) -> None:
        self._http = http
        self._url = url
        self._server = server

    async def values(self, expr: str) -> list[float]:
        """The answer to an instant query, a number per series. Raises AssertionError with the server's text if it refuses."""
        answer = await self._get("query", query=expr)
        assert answer["status"] == "success", f"{expr}: {answer.get('error')}"
        data = answer["data"]
        results = [data["result"]] if data["resultType"] == "scalar" else [each["value"] for each in data["result"]]
        return [float(value) for _, value in results]

    async def range(self, expr: str, start: float, end: float, step_s: float) -> list[dict[str, Any]]:
        """Return the series of a range query, each with `metric` and `values`."""
        answer = await self._get("query_range", query=expr, start=str(start), end=str(end), step=str(step_s))
        assert answer["status"] == "success", f"{expr}: {answer.get('error')}"
        return [each for each in answer["data"]["result"] if "values" in each]

    async def rules(self) -> list[dict[str, Any]]:
        """The loaded rules, with their last evaluation."""
        answer = await self._get("rules")
        return [rule for group in answer["data"]["groups"] for rule in group["rules"]]

    async def names(self) -> set[str]:
        answer = await self._get("label/__name__/values")
        return set(answer["data"])

    async def until(self, expr: str) -> None:
        """Wait until the query has a result that is neither 0 nor NaN."""
        deadline = time.monotonic() + _DEADLINE_S
        while not any(value and not math.isnan(value) for value in await self._now(expr)):
            self._server.check()
            assert time.monotonic() < deadline, f"never: {expr}\n{self._server.tail()}"
            await asyncio.sleep(0.1)

    async def scraped(self, times: int) -> None:
        expr = f'count_over_time(up{{job="{JOB}"}}[1h])'
        now = await self._now(expr)
        await self.until(f"{expr} >= {(now[0] if now else 0) + times}")

    async def _now(self, expr: str) -> list[float]:
        try:
            return await self.values(expr)
        except (aiohttp.ClientError, json.JSONDecodeError):  # it is starting
            return []

    async def _get(self, path: str, **query: str) -> Any:
        async with self._http.get(f"{self._url}/api/v1/{path}", params=query) as answer:
            return json.loads(await answer.read())


@asynccontextmanager
async def scraping(port: int, directory: Path, *, rules: Sequence[Path] = ()) -> AsyncIterator[Prometheus]:
    """Scrape 127.0.0.1 at that port, with these rules, until the block ends."""
    target = {"job_name": JOB, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    config = _CONFIG | {"scrape_configs": [target], "rule_files": [str(file.resolve()) for file in rules]}
    file = directory / "prometheus.yml"
    file.write_text(json.dumps(config))  # which is YAML too
    group = Group(directory)
    try:
        async with aiohttp.ClientSession() as http:
            yield await _started(group, http, file)
    finally:
        group.stop()


async def _started(group: Group, http: aiohttp.ClientSession, config: Path) -> Prometheus:
    """On a port that no other process took first."""
    while True:
        address = f"127.0.0.1:{free_port()}"
        command = [str(prometheus()), f"--config.file={config}", f"--storage.tsdb.path={config.parent / 'data'}"]
        server = group.start("prometheus", [*command, f"--web.listen-address={address}", "--log.level=warn"])
        started = Prometheus(http, f"http://{address}", server)
        try:
            await started.until("vector(1)")
        except Died:
            if not was_refused_its_port(server):
                raise
        else:
            return started
