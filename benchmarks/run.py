"""One competitor on one workload: fill the cluster, start it, watch it bind, add up what it cost.

The first bindings, as many as the workload says, are not counted. A pod whose node changes, or that another process binds,
spoils the run.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import ClientSession

from benchmarks import deviceload, gangload, load, storageload
from benchmarks.competitors import Competitor, Limits
from benchmarks.meter import Meter
from benchmarks.preempting import PREEMPTIONS
from benchmarks.processes import Started, observed, started
from benchmarks.workload import WARM_UP, Workload
from tests.e2e.controlplane.build import VERSION
from tests.e2e.controlplane.harness import ControlPlane

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SETTLED_BELOW_CORES = 0.05  # events are written after the bindings: CPU is counted until a second this quiet
SETTLED_WITHIN_S = 30.0
AT_REST_WITHIN_S = 900.0
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Offer:
    """How the pods come: all before the scheduler starts (rate None), or at a fixed rate while it runs.

    `at_once`: all while it runs but is frozen, and every pod counts, from the moment that it goes on: for workloads whose
    first binding comes late. `limit_s`: the run ends this long after it could begin, however many pods are left.
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
    """Cores that other processes used during the run: with more than a little, the row means little."""
    workload: dict[str, object] = field(default_factory=dict)
    rate_per_s: float | None = None
    round: int = 0
    kubernetes: str = VERSION
    """Version of the control plane and of kube-scheduler."""
    scheduled_events: int = 0
    began_at: float = 0.0
    """Seconds since the epoch."""
    last_event_s: float = 0.0
    """Until the last Scheduled event was stored, rounded up to the second of the server's clock."""
    broken_rules: int = 0
    """Apps whose pods are not where their rules want them, and claims and volumes that are not as they should be: with
    any, the row is worth nothing."""
    evicted: int = 0
    """Pods that had to leave for those that were bound, the warm-up included."""
    nominated_s: float | None = None
    """Until the last one of the pods was nominated to its node, where all of them were."""
    failed_events: int = 0
    """FailedScheduling events of the pods."""
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    limits: dict[str, object] = field(default_factory=dict)
    asked: int = 0
    """The pods that should be counted."""
    limit_s: float | None = None
    is_cut: bool = False
    """The limit came first: figures are those until the last binding within it."""
    first_to_last_s: float = 0.0
    """Of the counted bindings. Where many pods wait at once before they are bound, it flatters."""
    provisioning_failures: int = 0
    """How often the node that was selected for a claim had no capacity."""
    controllers_cpu_s: float = 0.0
    provisioner_cpu_s: float = 0.0

    @property
    def cpu_ms_per_pod(self) -> float:
        return 1000 * self.cpu_s / max(1, self.bound)

    @property
    def apiserver_ms_per_pod(self) -> float:
        return 1000 * self.apiserver_cpu_s / max(1, self.bound)

    def line(self) -> str:
        """For people, in one line."""
        return (
            f"{self.competitor}: {self.bound} {f'of {self.asked} ' if self.is_cut else ''}pods in {self.seconds:.1f} s, "
            f"{self.pods_per_s:.0f} pods/s, {self.cpu_ms_per_pod:.2f} ms CPU per pod, "
            f"{self.scheduled_events} Scheduled events within {self.last_event_s:.0f} s, other processes used {self.foreign_cores:.1f} cores"
            + (f", {self.evicted} evicted" if self.evicted else "")
            + (f", all nominated after {self.nominated_s:.2f} s" if self.nominated_s else "")
            + (f", {self.failed_events} FailedScheduling events" if self.failed_events else "")
            + (f", {self.provisioning_failures} provisioning failures" if self.provisioning_failures else "")
            + (f", cut after {self.limit_s:.0f} s" if self.is_cut and self.limit_s else "")
            + (f", RULES BROKEN {self.broken_rules} times" if self.broken_rules else "")
        )


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
            await gangload.create_groups(http, self._workload, names)
            async with (
                storageload.prepared(self._plane, http, self._workload, names) as beside,
                deviceload.prepared(self._plane, http, self._workload, names=names, beside=beside),
            ):
                result, node_of = await self._scheduled(competitor, http, names, beside)
            wrong = await storageload.broken_rules(http, self._workload, node_of)
            wrong += await deviceload.broken_rules(http, self._workload, names=names, node_of=node_of)
            for line in wrong[:10]:
                print(line, file=sys.stderr)
            stored = await load.events(http, "Scheduled", prefix)
            result.scheduled_events = len(stored)
            result.last_event_s = max(stored, default=result.began_at) + 1 - result.began_at
            result.failed_events = await load.count_events(http, "FailedScheduling", prefix)
            if self._workload.name in PREEMPTIONS:
                result.evicted = len(standing) - await load.count_pods(http, f"{prefix}low-")
        result.workload, result.limits = asdict(self._workload), asdict(self._limits)
        result.rate_per_s, result.round = self._offer.rate_per_s, round_number
        at_index = {index: node_of[name] for index, name in enumerate(names) if name in node_of}
        result.broken_rules = self._workload.broken_rules(at_index) + len(wrong)
        return result

    async def _scheduled(
        self, competitor: Competitor, http: ClientSession, names: Sequence[str], beside: storageload.Companions
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
        if begin is not None and bindings.nominated_at.keys() >= set(names):
            result.nominated_s = max(bindings.nominated_at.values()) - begin
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
        began_at=time.time() - (time.monotonic() - begin),
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
    """Return after the scheduler has been idle for this time, with that moment sampled; not later than `within_s`."""
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
