"""One competitor on one workload: fill the cluster, start it, watch it bind, add up what it cost.

The first bindings, as many as the workload says, are not counted. A pod whose node changes, or that is bound by anybody
else, spoils the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from benchmarks import load, storageload
from benchmarks.competitors import Competitor, Limits
from benchmarks.meter import Meter, Usage, machine, usage
from benchmarks.preempting import PREEMPTION
from benchmarks.workload import NAMESPACE, WARM_UP, Workload
from tests.e2e.controlplane.harness import ControlPlane
from tests.e2e.controlplane.process import Group, Server, free_port

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SETTLED_BELOW_CORES = 0.05  # events are written after the bindings: CPU is counted until a second this quiet
SETTLED_WITHIN_S = 30.0
AT_REST_WITHIN_S = 900.0
STALLED_AFTER_S = 60.0
READY_WITHIN_S = 300.0
REPOSITORY = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Offer:
    """How the pods come: all before the scheduler starts (rate None), or at a fixed rate while it runs.

    `at_once`: all while it runs but is frozen, and every pod counts, from the moment that it goes on: for workloads whose
    first binding comes late. `limit_s`: the run ends so long after it could begin, however many pods are left.
    """

    rate_per_s: float | None = None
    at_once: bool = False
    limit_s: float | None = None


@dataclass(slots=True)
class Result:
    """Raw figures of one run; `cpu_s` from the first counted binding until the scheduler was idle after the last."""

    competitor: str
    bound: int
    seconds: float
    pods_per_s: float
    cpu_s: float
    cpu_total_s: float
    apiserver_cpu_s: float
    peak_bytes: int
    start_s: float
    """From the start of the process to its first binding."""
    foreign_cores: float
    """Cores that others on this machine were using meanwhile: with more than a little, the row says little."""
    workload: dict[str, object] = field(default_factory=dict)
    rate_per_s: float | None = None
    round: int = 0
    scheduled_events: int = 0
    broken_rules: int = 0
    """Apps whose pods are not where their rules want them, and claims and volumes that are not as they should be: with
    any, the row is worth nothing."""
    evicted: int = 0
    """Pods that had to leave for those that were bound, the warm-up included."""
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    limits: dict[str, object] = field(default_factory=dict)
    asked: int = 0
    """So many pods were to be counted."""
    limit_s: float | None = None
    is_cut: bool = False
    """The limit came first: figures are those until the last binding within it."""
    first_to_last_s: float = 0.0
    """Of the counted bindings. Where many pods wait at once before they are bound, it flatters."""
    provisioning_failures: int = 0
    """How often the node that was selected for a claim had no room."""
    controllers_cpu_s: float = 0.0
    provisioner_cpu_s: float = 0.0

    @property
    def cpu_ms_per_pod(self) -> float:
        return 1000 * self.cpu_s / max(1, self.bound)

    @property
    def apiserver_ms_per_pod(self) -> float:
        return 1000 * self.apiserver_cpu_s / max(1, self.bound)

    def told(self) -> str:
        """For people, in one line."""
        return (
            f"{self.competitor}: {self.bound} {f'of {self.asked} ' if self.is_cut else ''}pods in {self.seconds:.1f} s, "
            f"{self.pods_per_s:.0f} pods/s, {self.cpu_ms_per_pod:.2f} ms CPU per pod, "
            f"{self.scheduled_events} Scheduled events, others used {self.foreign_cores:.1f} cores"
            + (f", {self.evicted} evicted" if self.evicted else "")
            + (f", {self.provisioning_failures} provisioning failures" if self.provisioning_failures else "")
            + (f", cut after {self.limit_s:.0f} s" if self.is_cut and self.limit_s else "")
            + (f", RULES BROKEN {self.broken_rules} times" if self.broken_rules else "")
        )


class Bindings:
    """What the observer process has told so far: pod → moment it was seen bound, in that order, and its node."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.node_of: dict[str, str] = {}
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
                case [moment, pod, node]:
                    self.at[pod] = float(moment)
                    self.node_of[pod] = node
            self._news.set()
        raise RuntimeError("the observer ended")

    async def until(self, count: int, scheduler: Server, *, deadline: float | None = None) -> None:
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

    server: Server
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
    """The scheduler, not awaited to be ready, and a meter that samples it and what is beside; killed at the end."""
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
        names = [f"{prefix}{index:06d}" for index in range(self._workload.all_pods)]
        async with self._plane.client() as http:
            standing = self._workload.anchor_bodies(prefix)
            await load.create_pods(http, standing)
            async with storageload.prepared(self._plane, http, self._workload, names) as beside:
                result, node_of = await self._scheduled(competitor, http, names, beside)
            wrong = await storageload.broken_rules(http, self._workload, node_of)
            for line in wrong[:10]:
                print(line, file=sys.stderr)
            result.scheduled_events = await load.count_scheduled_events(http, prefix)
            if self._workload.name == PREEMPTION:
                result.evicted = len(standing) - await load.count_pods(http, f"{prefix}low-")
        result.workload, result.limits = asdict(self._workload), asdict(self._limits)
        result.rate_per_s, result.round = self._offer.rate_per_s, round_number
        at_index = {index: node_of[name] for index, name in enumerate(names) if name in node_of}
        result.broken_rules = self._workload.broken_rules(at_index) + len(wrong)
        return result

    async def _scheduled(
        self, competitor: Competitor, http: ClientSession, names: Sequence[str], beside: storageload.Beside
    ) -> tuple[Result, dict[str, str]]:
        """The figures, and the node of each pod that was bound."""
        offer, warm_up = self._offer, self._workload.warm_up
        bodies = [self._workload.pod_body(name, index, competitor.scheduler_name) for index, name in enumerate(names)]
        sent: list[float] = []
        if offer.rate_per_s is None and not offer.at_once:
            await load.create_pods(http, bodies)
        starting = started(self._plane, competitor, self._limits, beside=beside.sources)
        async with observed(self._plane) as bindings, starting as scheduler:
            if offer.rate_per_s is not None:
                await load.create_pods(http, bodies[:warm_up])
                await bindings.until(warm_up, scheduler.server)
                sent = await load.create_at_rate(http, bodies[warm_up:], per_s=offer.rate_per_s)
            begin = await while_frozen(scheduler, http, bodies) if offer.at_once else None
            deadline = (begin or time.monotonic()) + offer.limit_s if offer.limit_s is not None else None
            await bindings.until(len(names), scheduler.server, deadline=deadline)
            is_cut = deadline is not None and len(bindings.at) < len(names)
            if not is_cut:
                await settled(scheduler.meter)
            result = summed_up(competitor.name, scheduler, bindings.at, begin=begin, warm_up=warm_up, is_cut=is_cut)
        result.asked = len(names) - (0 if offer.at_once else warm_up)
        result.limit_s, result.provisioning_failures = offer.limit_s, beside.failures
        if sent:
            _add_latencies(result, [bindings.at[n] - s for n, s in zip(names[warm_up:], sent) if n in bindings.at])
        return result, dict(bindings.node_of)


def keep(out: Path, figures: DataclassInstance) -> None:
    """Append them to the raw results, as one JSON line with the time."""
    with out.open("a") as lines:
        lines.write(json.dumps({"at": time.time(), **asdict(figures)}) + "\n")


async def while_frozen(scheduler: Started, http: ClientSession, bodies: Sequence[bytes]) -> float:
    """Create the pods; answers with the moment when the scheduler could go on."""
    if scheduler.ready_url:
        await scheduler.ready()
    await settled(scheduler.meter)
    os.kill(scheduler.server.pid, signal.SIGSTOP)
    await load.create_pods(http, bodies)
    os.kill(scheduler.server.pid, signal.SIGCONT)
    return time.monotonic()


def summed_up(
    name: str,
    scheduler: Started,
    at: dict[str, float],
    *,
    begin: float | None = None,
    warm_up: int = WARM_UP,
    is_cut: bool = False,
) -> Result:
    """What it cost to bind these pods; to be called once it is idle.

    Without a `begin` the first `warm_up` are not counted, and it begins with the last of them. If it `is_cut`, what it
    does after the last binding is not counted.
    """
    meter = scheduler.meter
    moments = sorted(at.values())
    counted = moments[warm_up:] if begin is None else moments
    if begin is None:
        begin = moments[max(warm_up, 1) - 1] if counted else scheduler.began
    end = counted[-1] if counted else begin
    idle = end if is_cut else time.monotonic()
    foreign_s = meter.cpu_s("machine", begin, end) - meter.cpu_s("benchmark", begin, end)
    result = Result(
        competitor=name,
        bound=len(counted),
        seconds=end - begin,
        pods_per_s=len(counted) / (end - begin) if counted else 0.0,
        cpu_s=meter.cpu_s("scheduler", begin, idle),
        cpu_total_s=meter.total_cpu_s("scheduler"),
        apiserver_cpu_s=meter.cpu_s("apiserver", begin, idle),
        peak_bytes=meter.peak_bytes["scheduler"],
        start_s=(moments[0] if moments else scheduler.began) - scheduler.began,
        foreign_cores=foreign_s / max(end - begin, 0.001),
        is_cut=is_cut,
        first_to_last_s=end - counted[0] if counted else 0.0,
    )
    if "controllers" in meter.peak_bytes:
        result.controllers_cpu_s = meter.cpu_s("controllers", begin, idle)
    if "provisioner" in meter.peak_bytes:
        result.provisioner_cpu_s = meter.cpu_s("provisioner", begin, idle)
    return result


async def settled(meter: Meter, *, quiet_s: float = 1.0, within_s: float = SETTLED_WITHIN_S) -> None:
    """Return after the scheduler has been idle for so long, with that moment sampled; not later than `within_s`."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        await asyncio.sleep(quiet_s)
        meter.sample()
        now = time.monotonic()
        if meter.cpu_s("scheduler", now - quiet_s, now) < SETTLED_BELOW_CORES * quiet_s:
            return


async def at_rest(meter: Meter) -> None:
    """Return when the scheduler has tried what it was given and written what it had to say of it.

    Waiting for a busy server, it may seem idle for a second or two.
    """
    await settled(meter, quiet_s=5.0, within_s=AT_REST_WITHIN_S)


def _add_latencies(result: Result, latencies: list[float]) -> None:
    percentiles = statistics.quantiles(latencies, n=100)
    result.latency_p50_s, result.latency_p99_s = percentiles[49], percentiles[98]
