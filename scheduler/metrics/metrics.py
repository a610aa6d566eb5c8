"""Instruments with kube-scheduler's names, labels and buckets (docs/spec/core.md §7.1), and ours behind `kubestow_`.

Decision code calls plain methods with plain values and never sees Prometheus. Children are looked up in dicts: a
recorded value costs about a microsecond. What others already count (queue lengths, cache sizes, streams) is read
from callbacks when a scrape comes. No object names in labels.

Everything here may be called from the event loop only, but for `render`.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from scheduler import __version__
from scheduler.metrics.instruments import (
    Description,
    DeviceInstruments,
    Family,
    Maker,
    ShellInstruments,
    TrafficInstruments,
    VolumeInstruments,
    counter_family,
    exponential,
)
from scheduler.metrics.scraped import ScrapedSources, families

MANY_ATTEMPTS: Final = 15
"""From here on pod_scheduling_sli_duration_seconds says `15+`, as upstream."""
MOST_HINTS: Final = 24
"""Combinations of plugin, event and answer that have a histogram of their own: there are hundreds, of 23 series each."""

_BREATH_S: Final = 0.00005
_PIECE: Final = 100
"""Series rendered in one go: half a millisecond or so."""
_SKIP: Final = "Skip"
_OTHER: Final = "other"
_USUAL_REFUSALS: Final = (
    "OutOfcpu",
    "OutOfmemory",
    "OutOfpods",
    "NodeAffinity",
    "NodePorts",
    "UnexpectedAdmissionError",
)
"""What a kubelet says to the later of two schedulers that filled a node together."""

_ATTEMPT: Final = exponential(0.001, 2, 15)
_SLI: Final = exponential(0.01, 2, 20)
_POINT: Final = exponential(0.0001, 2, 12)
_PLUGIN: Final = exponential(0.00001, 1.5, 20)


@dataclass(eq=False)
class _Families(Collector):
    """Families that are there already."""

    families: Sequence[Metric] = field(default=())

    def collect(self) -> Iterable[Metric]:
        return self.families


class Metrics:
    """All instruments of one daemon, in a registry of its own.

    `process=False` leaves out what Prometheus says about the process, the interpreter and its garbage collector.

    Upstream: pkg/scheduler/metrics/metrics.go InitMetrics
    """

    def __init__(self, *, process: bool = True) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # upstream has no `_created` series, and they cost a third of a scrape
        self._registry = CollectorRegistry()
        self._make = make = Maker(self._registry)
        self.sources = ScrapedSources()
        """Where gauges come from that are read when a scrape comes."""
        self._sampled = _Families()
        self._fresh = 0
        self._registry.register(self._sampled)
        self._make_attempt_instruments(make)
        self._make_preemption_instruments(make)
        self._make_queue_instruments(make)
        self._loop_lag = make.histogram(
            "kubestow_event_loop_lag_seconds", "How late the event loop ran a timer that was due.", buckets=_ATTEMPT
        )
        self.volumes = VolumeInstruments(make)
        """For VolumeBinding."""
        self.devices = DeviceInstruments(make)
        """For DynamicResources."""
        self.shell = ShellInstruments(make)
        """For the shell, and for profiles that change."""
        self.traffic = TrafficInstruments(make)
        """For the transport."""
        build = make.gauge("kubestow_build_info", "Always 1; the labels say what is running.", "version", "python")
        build[__version__, platform.python_version()].set(1)
        if process:
            ProcessCollector(registry=self._registry)
            PlatformCollector(registry=self._registry)
            GCCollector(registry=self._registry)

    def _make_attempt_instruments(self, make: Maker) -> None:
        self._attempts = make.counter(
            "scheduler_schedule_attempts", "Attempts to schedule a pod, by how they ended.", "result", "profile"
        )
        self._attempt_s = make.histograms(
            "scheduler_scheduling_attempt_duration_seconds",
            "From taking a pod off the queue to its being bound, or to the end of the failed attempt.",
            ["result", "profile"],
            buckets=_ATTEMPT,
        )
        self._algorithm_s = make.histogram(
            "scheduler_scheduling_algorithm_duration_seconds", "Time spent choosing a node.", buckets=_ATTEMPT
        )
        self._sli_s = make.histograms(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From a pod's first entry into the queue to its being bound, over all attempts.",
            ["attempts"],
            buckets=_SLI,
        )
        self._pod_attempts = make.histogram(
            "scheduler_pod_scheduling_attempts", "Attempts that a bound pod took.", buckets=exponential(1, 2, 5)
        )
        self._after_flush = make.plain_counter(
            "scheduler_pod_scheduled_after_flush",
            "Pods bound only after a flush of the unschedulable ones: an event should have woken them.",
        )
        self._points = make.histograms(
            "scheduler_framework_extension_point_duration_seconds",
            "Time of all plugins of an extension point together.",
            ["extension_point", "status", "profile"],
            buckets=_POINT,
        )
        self._plugins = make.histograms(
            "scheduler_plugin_execution_duration_seconds",
            "Time of one plugin at one extension point, for a sample of the attempts; not if it had nothing to say.",
            ["plugin", "extension_point", "status"],
            buckets=_PLUGIN,
        )
        self._conflicts = make.counter(
            "kubestow_binding_conflicts",
            "Bindings given up because another scheduler was faster, by what it had taken.",
            "kind",
        )
        self._rejections = make.counter(
            "kubestow_admission_rejections",
            "Pods that a kubelet refused after they had been bound.",
            "reason",
            "profile",
        )
        self._evaluations: dict[tuple[str, str, str], int] = {}
        self._permit_wait_s = make.histograms(
            "scheduler_permit_wait_duration_seconds",
            "Time that pods were held at Permit.",
            ["result"],
            buckets=_ATTEMPT,
        )

    def _make_preemption_instruments(self, make: Maker) -> None:
        self._preemption_attempts = make.plain_counter(
            "scheduler_preemption_attempts", "Pods for which preemption was considered."
        )
        self._victims = make.histogram(
            "scheduler_preemption_victims", "Pods evicted by one preemption.", buckets=exponential(1, 2, 7)
        )
        self._preemptions = make.counter(
            "scheduler_preemption_goroutines_execution", "Preemptions carried out, by how they ended.", "result"
        )
        self._preemption_s = make.histograms(
            "scheduler_preemption_goroutines_duration_seconds",
            "Time to evict all victims of a preemption.",
            ["result"],
            buckets=exponential(0.01, 2, 20),
        )
        self._other_victims = make.plain_counter(
            "kubestow_preemption_other_victims",
            "Evicted pods that belong to other schedulers.",
        )
        self._lost_preemptions = make.plain_counter(
            "kubestow_preemptions_lost",
            "Times that room made for a pod on a node had been taken by another pod, from the second on.",
        )

    def _make_queue_instruments(self, make: Maker) -> None:
        self._incoming = make.counter(
            "scheduler_queue_incoming_pods", "Pods put into a part of the queue, by cause.", "queue", "event"
        )
        self._hints = make.histograms(
            "scheduler_queueing_hint_execution_duration_seconds",
            f"Time a plugin took to say whether an event helps a waiting pod; after {MOST_HINTS} combinations: other.",
            ["plugin", "event", "hint"],
            buckets=_PLUGIN,
        )
        self._events = make.histograms(
            "scheduler_event_handling_duration_seconds",
            "Time to apply a cluster event to cache and queue.",
            ["event"],
            buckets=_POINT,
        )
        self._unschedulable = make.gauge(
            "scheduler_unschedulable_pods",
            "Waiting pods that this plugin turned down at their last attempt; a pod counts for each of its plugins.",
            "plugin",
            "profile",
        )

    # -- what decisions report -----------------------------------------------------------------------------------------

    def attempt(self, result: str, profile: str, seconds: float) -> None:
        """An attempt ended: `scheduled`, `unschedulable` or `error`."""
        self._attempts[result, profile].inc()
        self._attempt_s[result, profile].observe(seconds)

    def algorithm(self, seconds: float) -> None:
        """Choosing a node took this long, whatever came of it."""
        self._algorithm_s.observe(seconds)

    def point(self, point: str, status: str, profile: str, seconds: float) -> None:
        """An extension point was run; `status` is the text of its status code."""
        self._points[point, status, profile].observe(seconds)

    def plugin(self, plugin: str, point: str, status: str, seconds: float) -> None:
        """One plugin was run. Call it for about a tenth of the attempts, as upstream does.

        Those that had nothing to say about the pod are left out: half of all series, and no time to speak of.
        """
        if status != _SKIP:
            self._plugins[plugin, point, status].observe(seconds)

    def evaluation(self, plugin: str, point: str, profile: str) -> None:
        """A plugin was asked at PreFilter, Filter, PreScore or Score."""
        key = (plugin, point, profile)
        self._evaluations[key] = self._evaluations.get(key, 0) + 1

    def scheduled(self, attempts: int, sli_seconds: float) -> None:
        """A pod is bound, after so many attempts and so long since it first came into the queue."""
        self._pod_attempts.observe(attempts)
        label = str(attempts) if attempts < MANY_ATTEMPTS else f"{MANY_ATTEMPTS}+"
        self._sli_s[label,].observe(sli_seconds)

    def after_flush(self) -> None:
        """A pod was bound that only the periodic flush had woken."""
        self._after_flush.inc()

    def binding_conflict(self, kind: str) -> None:
        """Somebody else was faster: `node`, it takes the pod no more; `pod`, it has been bound elsewhere."""
        self._conflicts[kind,].inc()

    def admission_rejection(self, reason: str, profile: str) -> None:
        """A kubelet refused a pod that we had bound."""
        self._rejections[reason, profile].inc()

    def preemption_attempt(self) -> None:
        """A preemption plugin was asked for a way out."""
        self._preemption_attempts.inc()

    def preempted(self, victims: int, *, others: int) -> None:
        """A node was chosen; so many pods leave it, `others` of them other schedulers'."""
        self._victims.observe(victims)
        self._other_victims.inc(others)

    def preemption_done(self, result: str, seconds: float) -> None:
        """The evictions of one preemption ended, `success` or `error`."""
        self._preemptions[result,].inc()
        self._preemption_s[result,].observe(seconds)

    def preemption_lost(self) -> None:
        """The room made for a pod on a node was taken by another, not for the first time."""
        self._lost_preemptions.inc()

    def permit_wait(self, result: str, seconds: float) -> None:
        """A pod that was held at Permit was let go with this status."""
        self._permit_wait_s[result,].observe(seconds)

    def incoming(self, queue: str, event: str) -> None:
        """A pod entered `active`, `backoff` or `unschedulable` because of this event."""
        self._incoming[queue, event].inc()

    def unschedulable(self, plugin: str, profile: str, delta: int) -> None:
        """So many more (or fewer) waiting pods were turned down by this plugin."""
        self._unschedulable[plugin, profile].inc(delta)

    def hint(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        """A queueing hint was asked and answered."""
        key = plugin, event, hint
        if key not in self._hints and len(self._hints) >= MOST_HINTS:
            key = _OTHER, _OTHER, hint
        self._hints[key].observe(seconds)

    def event_handled(self, event: str, seconds: float) -> None:
        """A cluster event was applied."""
        self._events[event,].observe(seconds)

    def loop_lag(self, seconds: float) -> None:
        """The event loop ran a due timer this late."""
        self._loop_lag.observe(seconds)

    # -- what a scrape shows -------------------------------------------------------------------------------------------

    def expect(self, profiles: Iterable[str]) -> None:
        """Show zeros of what matters when it first happens: a counter that appears with a one has no rate for that one."""
        for profile in profiles:
            for result in ("scheduled", "unschedulable", "error"):
                self._attempts.show(result, profile)
            for reason in _USUAL_REFUSALS:
                self._rejections.show(reason, profile)
        for kind in ("node", "pod"):
            self._conflicts.show(kind)
        for result in ("success", "error"):
            self._preemptions.show(result)

    def described(self) -> list[Description]:
        """Every instrument, whether or not it has been observed, by name; not what is said of the process."""
        read = (family.description for family in self._read())
        return sorted((*self._make.made, *read), key=lambda each: each.name)

    def sample(self) -> None:
        """Read the callbacks. On the event loop, before `render` runs in its thread."""
        self._sampled.families = self._read()
        self._fresh += 1

    def render(self) -> bytes:
        """The text that Prometheus scrapes. Takes tens of milliseconds: run it in a thread, after `sample`.

        Piece by piece, with a breath between them: a thread that computes lets the loop in only every 5 ms by itself.
        Without a `sample` of its own it takes one itself, which only a single-threaded caller should rely on.
        """
        if not self._fresh:
            self.sample()
        self._fresh -= 1
        text = []
        for family in self._registry.collect():
            for at in range(0, len(family.samples) or 1, _PIECE):
                piece = Metric(family.name, family.documentation, family.type)
                piece.samples = family.samples[at : at + _PIECE]
                lines = generate_latest(_Families([piece]))
                text.append(lines.split(b"\n", 2)[2] if at else lines)  # help and type are said once
                time.sleep(_BREATH_S)  # noqa: TID251 (in a thread)
        return b"".join(text)

    def _read(self) -> list[Family]:
        return [
            *families(self.sources),
            counter_family(
                "scheduler_plugin_evaluation",
                "Attempts in which a plugin was asked.",
                ("plugin", "extension_point", "profile"),
                self._evaluations,
            ),
        ]
