"""One competitor on one workload: fill the cluster, start it, watch it bind, add up what it cost.

The first `WARM_UP` bindings are not counted. A pod whose node changes, or that is bound by anybody else, spoils the run.
"""

import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks import load
from benchmarks.competitors import Competitor, Limits
from benchmarks.meter import Meter, Usage, machine, usage
from benchmarks.workload import NAMESPACE, Workload
from tests.e2e.controlplane.harness import ControlPlane
from tests.e2e.controlplane.process import Group, Server

WARM_UP = 50
SETTLED_BELOW_CORES = 0.05  # events are written after the bindings: CPU is counted until a second this quiet
SETTLED_WITHIN_S = 30.0
STALLED_AFTER_S = 60.0
REPOSITORY = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Offer:
    """How the pods come: all before the scheduler starts (rate None), or at a fixed rate while it runs."""

    rate_per_s: float | None = None


@dataclass(slots=True)
class Result:
    """Raw figures of one run; `cpu_s` from the first counted binding until the scheduler was idle after the last."""

    competitor: str
    workload: dict[str, object]
    rate_per_s: float | None
    round: int
    bound: int
    seconds: float
    pods_per_s: float
    cpu_s: float
    cpu_total_s: float
    apiserver_cpu_s: float
    peak_bytes: int
    start_s: float
    """From the start of the process to its first binding."""
    scheduled_events: int
    foreign_cores: float
    """Cores that others on this machine were using meanwhile: with more than a little, the row says little."""
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    limits: dict[str, object] = field(default_factory=dict)

    @property
    def cpu_ms_per_pod(self) -> float:
        return 1000 * self.cpu_s / max(1, self.bound)

    @property
    def apiserver_ms_per_pod(self) -> float:
        return 1000 * self.apiserver_cpu_s / max(1, self.bound)


class Bindings:
    """What the observer process has told so far: pod → moment it was seen bound, in that order."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
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
                case [moment, pod, _node]:
                    self.at[pod] = float(moment)
            self._news.set()
        raise RuntimeError("the observer ended")

    async def until(self, count: int, scheduler: Server) -> None:
        """Wait for that many; gives up when a minute brings none. Raises Died if the scheduler ends."""
        while len(self.at) < count:
            scheduler.check()
            before = len(self.at)
            deadline = time.monotonic() + STALLED_AFTER_S
            while len(self.at) == before:
                if time.monotonic() > deadline:
                    print(f"stalled at {before} of {count}; its log ends:\n{scheduler.tail()}", file=sys.stderr)
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


class Run:
    """One measurement on a plane whose nodes exist and whose pods are gone."""

    def __init__(self, plane: ControlPlane, workload: Workload, offer: Offer, *, limits: Limits) -> None:
        self._plane = plane
        self._workload = workload
        self._offer = offer
        self._limits = limits

    async def measure(self, competitor: Competitor, round_number: int) -> Result:
        """Create, schedule, count. Leaves the pods behind."""
        prefix = f"{competitor.name}-{round_number}-{time.time_ns() // 10**9 % 10**6}-"  # new for each repetition
        count = self._workload.pods + WARM_UP
        names = [f"{prefix}{index:06d}" for index in range(count)]
        bodies = [self._workload.pod_body(name, index, competitor.scheduler_name) for index, name in enumerate(names)]
        sent: list[float] = []
        async with self._plane.client() as http:
            if self._offer.rate_per_s is None:
                await load.create_pods(http, bodies)
            async with observed(self._plane) as bindings, self._started(competitor) as (server, meter):
                started = time.monotonic()
                if self._offer.rate_per_s is not None:
                    await load.create_pods(http, bodies[:WARM_UP])
                    await bindings.until(WARM_UP, server)
                    sent = await load.create_at_rate(http, bodies[WARM_UP:], per_s=self._offer.rate_per_s)
                await bindings.until(count, server)
                await _settled(meter)
            events = await load.count_scheduled_events(http, prefix)
        result = self._result(competitor, bindings.at, meter, started)
        result.round, result.scheduled_events = round_number, events
        if sent:
            _add_latencies(result, [bindings.at[n] - s for n, s in zip(names[WARM_UP:], sent) if n in bindings.at])
        return result

    @asynccontextmanager
    async def _started(self, competitor: Competitor) -> AsyncIterator[tuple[Server, Meter]]:
        group = Group(self._plane.logs)
        try:
            command = competitor.command(self._plane.kubeconfig, self._plane.directory, self._limits)
            server = group.start(competitor.name, ["/usr/bin/env", f"PYTHONPATH={REPOSITORY}", *command])
            meter = Meter(
                {
                    "scheduler": lambda: usage(server.pid),
                    "apiserver": self._apiserver_usage,
                    "benchmark": lambda: usage(os.getpid()),  # all of the above, etcd, the observer and ourselves
                    "machine": machine,
                }
            )
            sampling = asyncio.create_task(meter.run())
            try:
                yield server, meter
            finally:
                sampling.cancel()
        finally:
            group.stop()

    def _apiserver_usage(self) -> Usage:
        return Usage(self._plane.cpu_s("kube-apiserver"), self._plane.rss_bytes("kube-apiserver"))

    def _result(self, competitor: Competitor, at: dict[str, float], meter: Meter, started: float) -> Result:
        moments = sorted(at.values())
        counted = moments[WARM_UP:]
        begin, end = (moments[WARM_UP - 1], counted[-1]) if counted else (started, started)
        settled = time.monotonic()
        return Result(
            competitor=competitor.name,
            workload=asdict(self._workload),
            rate_per_s=self._offer.rate_per_s,
            round=0,
            bound=len(counted),
            seconds=end - begin,
            pods_per_s=len(counted) / (end - begin) if counted else 0.0,
            cpu_s=meter.cpu_s("scheduler", begin, settled),
            cpu_total_s=meter.total_cpu_s("scheduler"),
            apiserver_cpu_s=meter.cpu_s("apiserver", begin, settled),
            peak_bytes=meter.peak_bytes["scheduler"],
            start_s=(moments[0] if moments else started) - started,
            scheduled_events=0,
            foreign_cores=(meter.cpu_s("machine", begin, end) - meter.cpu_s("benchmark", begin, end))
            / max(end - begin, 0.001),
            limits=asdict(self._limits),
        )


async def _settled(meter: Meter) -> None:
    """Return after the scheduler has been idle for a second, with that moment sampled."""
    deadline = time.monotonic() + SETTLED_WITHIN_S
    while time.monotonic() < deadline:
        await asyncio.sleep(1.0)
        meter.sample()
        now = time.monotonic()
        if meter.cpu_s("scheduler", now - 1.0, now) < SETTLED_BELOW_CORES:
            return


def _add_latencies(result: Result, latencies: list[float]) -> None:
    percentiles = statistics.quantiles(latencies, n=100)
    result.latency_p50_s, result.latency_p99_s = percentiles[49], percentiles[98]
