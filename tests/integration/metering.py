"""Actions on a daemon, and its metrics before and after each of them. Time is virtual.

A scenario runs one daemon and divides what happens into named steps. A row says which sample a step must change, and how.
Each row is one test; the scenario runs once for all of them. A scenario waits for what the API server or the
daemon has done, so that a metric that is never written fails only its rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from scheduler.config.types import ClientConnection
from scheduler.core.clock import Clock
from scheduler.daemon.app import Daemon
from simulator.apiserver import LIKE_1_36, ApiServer
from tests.integration.clocks import SkippingClock
from tests.integration.daemon import Rig, rig_on
from tests.integration.harness import Harness

Samples: TypeAlias = dict[str, dict[frozenset[tuple[str, str]], float]]
"""Name → label pairs → value."""
Amount: TypeAlias = float | tuple[float, float]
"""A value, or the least and the greatest one."""
ANY: Final = "*"
"""In place of a label's value: the sum over all of them."""
_SAMPLE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_DEADLINE_S: Final = 600.0
"""Of virtual time: longer than any back-off or check of the daemon."""


def scraped(daemon: Daemon) -> Samples:
    daemon.metrics.sample()
    found: Samples = {}
    for name, labels, value in _SAMPLE.findall(daemon.metrics.render().decode()):
        found.setdefault(name, {})[frozenset(_LABEL.findall(labels))] = float(value)
    return found


@dataclass(frozen=True)
class MetricRow:
    """The change of one metric in one step. `name` is the one in docs/metrics.md, `labels` has all of its labels."""

    step: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    rises: Amount | None = None
    """For a counter its increase, for a histogram the number of observations."""
    total: Amount | None = None
    """For a histogram: the increase of the sum of what was observed."""
    shows: Amount | None = None
    """For a gauge: the value after the step, which it had not before."""

    def __str__(self) -> str:
        labels = ",".join(f"{key}={value}" for key, value in self.labels.items())
        return f"{self.name}{{{labels}}} when {self.step}"

    def problems(self, seen: Mapping[str, tuple[Samples, Samples]]) -> list[str]:
        before, after = seen[self.step]
        if self.shows is not None:
            was, now = self._value(before, self.name), self._value(after, self.name)
            is_new = was is None or not _is_in(was, self.shows)
            wrong = [] if now is not None and _is_in(now, self.shows) else [f"{self.name} is {now}, not {self.shows}"]
            return wrong if is_new else [*wrong, f"{self.name} was {was} before the step already"]
        is_histogram = f"{self.name}_count" in after
        rises = [(f"{self.name}_count" if is_histogram else self.name, self.rises)]
        rises += [(f"{self.name}_sum", self.total)] if self.total is not None else []
        found = [(name, (self._value(after, name) or 0) - (self._value(before, name) or 0), by) for name, by in rises]
        return [f"{name} rises by {rise}, not by {by}" for name, rise, by in found if not _is_in(rise, by)]

    def _value(self, samples: Samples, name: str) -> float | None:
        wanted = {(key, value) for key, value in self.labels.items() if value != ANY}
        values = [value for labels, value in samples.get(name, {}).items() if wanted <= labels]
        return sum(values) if values else None


def when(step: str, *rows: MetricRow) -> list[MetricRow]:
    return [MetricRow(step, row.name, row.labels, row.rises, row.total, row.shows) for row in rows]


def rises(name: str, by: Amount = 1, /, *, total: Amount | None = None, **labels: str) -> MetricRow:
    """A counter is incremented, or a histogram observes. Labels that are Python keywords end with `_`."""
    return MetricRow("", name, _spelled(labels), rises=by, total=total)


def shows(name: str, value: Amount, /, **labels: str) -> MetricRow:
    """A gauge changes to this value."""
    return MetricRow("", name, _spelled(labels), shows=value)


def starts(name: str, /, **labels: str) -> MetricRow:
    """A counter is shown with a zero: what appears with its first increment has no rate for that one."""
    return shows(name, 0, **labels)


def _spelled(labels: Mapping[str, str]) -> dict[str, str]:
    return {key.rstrip("_"): value for key, value in labels.items()}


def _is_in(value: float, amount: Amount | None) -> bool:
    least, greatest = amount if isinstance(amount, tuple) else (amount, amount)
    assert least is not None
    assert greatest is not None
    return least - 1e-6 <= value <= greatest + 1e-6


class Steps:
    def __init__(self, daemon: Callable[[], Daemon]) -> None:
        self._daemon = daemon
        self.seen: dict[str, tuple[Samples, Samples]] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        before = scraped(self._daemon())
        yield
        self.seen[name] = before, scraped(self._daemon())

    def begin(self, name: str) -> None:
        """Record the metrics since the start of the daemon, when there were none."""
        self.seen[name] = {}, scraped(self._daemon())


class MeteredScenario:
    """Runs a scenario once, when a row needs it."""

    def __init__(self, scenario: Callable[[], Coroutine[Any, Any, Steps]]) -> None:
        self._story = scenario
        self._steps: Steps | None = None
        self._error: Exception | None = None

    def problems(self, row: MetricRow) -> list[str]:
        """Return `MetricRow.problems`. Raises the error of the scenario, and for later rows an AssertionError that names it."""
        assert self._error is None, f"the scenario failed: {self._error!r}"
        if self._steps is None:
            try:
                self._steps = asyncio.run(self._story())
            except Exception as error:
                self._error = error
                raise
        return row.problems(self._steps.seen)


async def reached(
    clock: Clock, holds: Callable[[], object], what: Callable[[], str], within_s: float = _DEADLINE_S
) -> None:
    """Wait for a condition, within ten minutes of virtual time or as long as is said."""
    deadline = clock.now() + within_s
    while not holds():
        assert clock.now() < deadline, what()
        await clock.sleep(0.1)


class ClusterStage:
    def __init__(self, cluster: Harness) -> None:
        self.cluster = cluster
        self.steps = Steps(cluster.running)

    async def until(self, holds: Callable[[], object], what: str) -> None:
        await reached(self.cluster.clock, holds, lambda: f"{what}: {self.cluster.server.list('pods')}")

    async def seconds(self, count: float) -> None:
        await self.cluster.clock.sleep(count)

    async def bound(self, name: str) -> None:
        await self.until(lambda: self.cluster.node_of(name), f"{name} was never bound")
        await self.seconds(1)


class DaemonStage(Rig):
    clock: SkippingClock
    steps: Steps

    async def seconds(self, count: float) -> None:
        await self.clock.sleep(count)

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        await reached(self.clock, holds, lambda: f"{what}: {self.pods()}")

    async def refused(self, *names: str) -> None:
        await self.until(lambda: all(self.condition(name).get("message") for name in names), f"not refused: {names}")

    def moved(self, name: str, node_name: str) -> None:
        """Store a bound pod with another node, as a server that was restored from a backup."""
        pod = self.server.get("pods", name)
        pod["spec"]["nodeName"] = node_name
        pod["metadata"]["resourceVersion"] = "1"
        pod |= {"apiVersion": "v1", "kind": "Pod"}
        self.server.store("pods", json.dumps(pod, separators=(",", ":")).encode(), name=name, namespace="default")

    def patch_status(self, name: str, **status: Any) -> None:
        self.server.patch("pods", name, {"status": status}, subresource="status")


@contextlib.asynccontextmanager
async def staged(
    *,
    before: Iterable[Callable[[ApiServer], object]] = (),
    served: Iterable[str] = LIKE_1_36,
    qps: float = -1,
    max_in_unschedulable_s: float = 1e9,
    **config: Any,
) -> AsyncIterator[DaemonStage]:
    """Run a daemon on a new server. `before` is applied to the server before the daemon starts."""
    clock = SkippingClock()
    more = {"client_connection": ClientConnection(qps=qps, burst=max(1, int(qps))), "port": None, **config}
    async with ApiServer(clock=clock, rng=random.Random(1), served=served, bookmark_interval_s=5) as server:
        for prepare in before:
            prepare(server)
        async with rig_on(server, clock=clock, max_in_unschedulable_s=max_in_unschedulable_s, **more) as cluster:
            cluster.daemon.scheduler.rng.seed(1)
            stage = DaemonStage(server, cluster.daemon)
            stage.clock, stage.steps = clock, Steps(lambda: cluster.daemon)
            yield stage
