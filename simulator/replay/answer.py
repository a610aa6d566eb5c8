"""The JSON that `kubestow replay -o json` prints, as types. `docs/replay.schema.json` is generated from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from scheduler.api.podinfo import CPU
from simulator.replay.history import History
from simulator.replay.run import INTERVALS, Measured, ReplayRules
from simulator.replay.timeline import VERBS, PodTimes, Verb, distribution, percentile
from simulator.replay.utilization import Group, SeriesKey, UseSeries, shown

SCHEMA_VERSION: Final = 1
POOLS_MAX: Final = 20
"""Pools of one resource or driver that have series; of more pools only the sum has one."""
BOUNDS_S: Final = (
    *(0.01, 0.1, 1.0, 5.0, 15.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 43_200.0, 86_400.0),
)
"""Of the distribution of waiting times."""
_BYTES: Final = ("memory", "ephemeral-storage")

Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0, description="Seconds since the start of the recording.")]
Series = Annotated[list[float], Meta(description="One number for each interval.")]
Share = Annotated[float, Meta(ge=0, description="Of the capacity.")]


class _Piece(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """An object of the answer."""


class RecordingAnswer(_Piece, frozen=True):
    """The file that was replayed."""

    started_at: str
    duration_s: float
    events: Count
    pods: Annotated[Count, Meta(description="All pods, of any scheduler.")]
    server: Annotated[str, Meta(description="The version of the API server; empty if it was not readable.")]
    is_cut_short: Annotated[bool, Meta(description="Whether the file ends abruptly; whole lines were replayed.")]


class WaitBound(_Piece, frozen=True):
    """The number of pods that waited at most this time."""

    at_most_s: float
    pods: Count


class WaitAnswer(_Piece, frozen=True):
    """Times from the arrival of pods to their Bindings, of the pods that got a node."""

    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    max_s: float
    distribution: Annotated[list[WaitBound], Meta(description="Cumulative, as the histograms of Prometheus are.")]


class UseAnswer(_Piece, frozen=True):
    """Use over time of one thing."""

    group: Group
    name: Annotated[str, Meta(description="A resource, a driver of devices, or a storage class.")]
    pool: Annotated[str, Meta(description="A pool of devices, or a value of --pool-label; empty: all together.")]
    unit: Literal["cores", "bytes", "count"]
    used: Series
    capacity: Annotated[list[float], Meta(description="One number for each interval; zeros if it is not limited.")]
    mean: Annotated[Share, Meta(description="Of the capacity, over the whole time; 0 without a capacity.")]
    peak: Annotated[Share, Meta(description="The largest share at any moment.")]


class DecisionAnswer(_Piece, frozen=True):
    """One decision about a pod."""

    at_s: Seconds
    pod: Annotated[str, Meta(description="Namespace and name.")]
    verb: Verb
    detail: Annotated[str, Meta(description="The node; of a refused pod the scheduler's text.")]


class PodTimesAnswer(_Piece, frozen=True):
    """One pod that was replayed."""

    pod: Annotated[str, Meta(description="Namespace and name. A pod that was evicted arrives again with `-again-N`.")]
    arrived_s: Annotated[float | None, Meta(description="Null for a pod that stayed gated.")]
    waited_s: Annotated[float | None, Meta(description="Until its Binding; null without one.")]
    node: Annotated[str, Meta(description="Empty without one.")]
    ended_s: Annotated[float | None, Meta(description="Null for a pod that existed at the end.")]
    refusals: Count
    message: Annotated[str, Meta(description="The last reason for which it was refused; empty if it never was.")]


class RunAnswer(_Piece, frozen=True):
    """What one scheduler did with the history. The run `recorded` is what the recording shows."""

    name: Annotated[str, Meta(description="`recorded`, `A` or `B`.")]
    config: Annotated[str, Meta(description="The file of the configuration; empty for the default one.")]
    version: Annotated[str, Meta(description="The version of kube-scheduler that is emulated.")]
    arrived: Annotated[Count, Meta(description="Pods that could be scheduled, with those that arrived again.")]
    bound: Count
    waiting: Annotated[Count, Meta(description="Pods without a node at the end.")]
    preempted: Count
    restarted: Annotated[Count, Meta(description="Evicted pods that arrived again, with the time that they had left.")]
    rejected: Annotated[Count, Meta(description="Pods that the kubelet of their node did not admit.")]
    wait: WaitAnswer
    use: list[UseAnswer]
    intervals: Annotated[
        dict[str, Series],
        Meta(description="`waiting`: mean number of pods that wait. `arrived` and each verb: their number."),
    ]
    decisions: Annotated[list[DecisionAnswer], Meta(description="In their order.")]
    pods: list[PodTimesAnswer]
    refused_events: Annotated[Count, Meta(description="Events of the recording that could not be replayed.")]
    problems: Annotated[list[str], Meta(description="The first of these events, with the reasons.")]


class ReplayAnswer(_Piece, frozen=True):
    """The whole answer."""

    schema_version: int
    recording: RecordingAnswer
    scheduler_names: Annotated[list[str], Meta(description="Recorded names of the schedulers that are replayed.")]
    seed: Count
    interval_s: Annotated[float, Meta(description="The length of each interval of the series.")]
    runs: list[RunAnswer]


def replay_answer(history: History, rules: ReplayRules, runs: Sequence[RunAnswer]) -> ReplayAnswer:
    """Return the answer."""
    header = history.header
    duration_s = max(history.duration_s, 1.0)
    return ReplayAnswer(
        SCHEMA_VERSION,
        RecordingAnswer(
            header.started_at,
            history.duration_s,
            history.events,
            len(history.pods),
            header.server,
            history.is_cut_short,
        ),
        sorted(rules.scheduler_names),
        rules.seed,
        duration_s / INTERVALS,
        list(runs),
    )


def run_answer(name: str, config: str, version: str, measured: Measured) -> RunAnswer:
    """Return the answer of one run. Times have milliseconds, amounts three decimals."""
    timeline = measured.timeline
    pods, counts = timeline.pods.values(), timeline.counts
    series = shown(measured.utilization.series, POOLS_MAX)
    return RunAnswer(
        name=name,
        config=config,
        version=version,
        arrived=sum(counts["arrived"]),
        bound=sum(counts["bound"]),
        waiting=sum(each.is_waiting for each in pods),
        preempted=sum(counts["preempted"]),
        restarted=measured.restarts,
        rejected=sum(counts["rejected"]),
        wait=_wait(timeline.waits_s()),
        use=[_use(key, each) for key, each in series],
        intervals={"waiting": _rounded(timeline.waiting.means())}
        | {name: [float(each) for each in counts[name]] for name in ("arrived", *VERBS)},
        decisions=[
            DecisionAnswer(round(each.at_s, 3), each.pod, each.verb, each.detail) for each in timeline.decisions
        ],
        pods=[_pod(each) for each in pods],
        refused_events=measured.refused,
        problems=measured.problems,
    )


def as_json(answer: ReplayAnswer) -> bytes:
    """Return the answer on one line. Equal answers give equal bytes."""
    return msgspec.json.encode(answer) + b"\n"


def _wait(ordered: list[float]) -> WaitAnswer:
    mean_s = sum(ordered) / len(ordered) if ordered else 0.0
    return WaitAnswer(
        mean_s=round(mean_s, 3),
        p50_s=round(percentile(ordered, 0.5), 3),
        p90_s=round(percentile(ordered, 0.9), 3),
        p99_s=round(percentile(ordered, 0.99), 3),
        max_s=round(percentile(ordered, 1.0), 3),
        distribution=[WaitBound(bound, pods) for bound, pods in distribution(ordered, BOUNDS_S)],
    )


def _use(key: SeriesKey, series: UseSeries) -> UseAnswer:
    used, capacity = series.used.means(), series.capacity.means()
    total = sum(capacity)
    return UseAnswer(
        *key,
        _unit(key),
        _rounded(used),
        _rounded(capacity),
        round(sum(used) / total, 6) if total > 0 else 0.0,
        round(series.peak, 6),
    )


def _unit(key: SeriesKey) -> Any:
    if key.group == "storage" or key.name in _BYTES or key.name.startswith("hugepages-"):
        return "bytes"
    return "cores" if key == ("resource", CPU, key.pool) else "count"


def _pod(times: PodTimes) -> PodTimesAnswer:
    waited_s = times.waited_s
    return PodTimesAnswer(
        times.pod,
        None if times.arrived_s is None else round(times.arrived_s, 3),
        None if waited_s is None else round(waited_s, 3),
        times.node,
        None if times.ended_s is None else round(times.ended_s, 3),
        times.refusals,
        times.message,
    )


def _rounded(numbers: list[float]) -> list[float]:
    return [round(each, 3) for each in numbers]
