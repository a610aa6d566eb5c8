"""Instruments of kube-scheduler (docs/spec/core.md §7.1), and ours with the prefix `kubestow_`.

Names, labels and buckets are kube-scheduler's. Decision code calls plain methods with plain values. Children are
looked up in dicts: recording a value costs a quarter of a microsecond. Callbacks read what other parts count (queue
lengths, cache sizes, streams) at a scrape. Labels never contain object names. All functions but `render` must be called
on the event loop.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from scheduler import __version__
from scheduler.core.cluster_events import label_in_1_36
from scheduler.core.feature_gates import ENTITY_LABEL, ENTITY_METRICS, POD_EVENTS
from scheduler.metrics.instruments import (
    Description,
    DeviceInstruments,
    Family,
    Maker,
    OperatorInstruments,
    TrafficInstruments,
    VolumeInstruments,
    counter_family,
    exponential,
)
from scheduler.metrics.scraped import ScrapedSources, families

MANY_ATTEMPTS: Final = 15
"""From this number on pod_scheduling_sli_duration_seconds has the label `15+`, as upstream."""
MOST_HINTS: Final = 24
"""Combinations of plugin, event and hint with a separate histogram. There are hundreds, each with 23 series."""

_BREATH_S: Final = 0.00005
_PIECE: Final = 100
"""Series that are rendered without a pause: about half a millisecond."""
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
"""Reasons with which a kubelet rejects the later pod of two schedulers that filled a node at the same time."""

_ATTEMPT: Final = exponential(0.001, 2, 15)
_SLI: Final = exponential(0.01, 2, 20)
_POINT: Final = exponential(0.0001, 2, 12)
_PLUGIN: Final = exponential(0.00001, 1.5, 20)


@dataclass(slots=True)
class CallCount:
    """The number of calls of one plugin at one extension point; an attempt has some 25 calls."""

    calls: int = 0


@dataclass(eq=False)
class _Families(Collector):
    """Families that exist already."""

    families: Sequence[Metric] = field(default=())

    def collect(self) -> Iterable[Metric]:
        return self.families


class Metrics:
    """All instruments of one daemon, in a separate registry.

    `process=False` omits Prometheus' metrics of the process, the interpreter and its garbage collector.

    Upstream: pkg/scheduler/metrics/metrics.go InitMetrics
    """

    def __init__(self, *, process: bool = True, feature_gates: AbstractSet[str] = frozenset()) -> None:
        """Create the instruments that kube-scheduler has with these gates and named changes."""
        self._registry = CollectorRegistry(auto_describe=True)
        self._make = make = Maker(self._registry)
        self._event = str if POD_EVENTS in feature_gates else label_in_1_36
        self._counts_entities = ENTITY_METRICS in feature_gates
        self._entity = "entity" if ENTITY_LABEL in feature_gates else "type"
        self.sources = ScrapedSources(
            has_entities=self._counts_entities, event_label=self._event, entity_label=self._entity
        )
        """Sources of the gauges that are read at a scrape."""
        self._sampled = _Families()
        self._fresh = 0
        self._registry.register(self._sampled)
        self._make_attempt_instruments(make)
        self._make_group_instruments(make)
        self._make_preemption_instruments(make)
        self._make_queue_instruments(make)
        self.loop_lag = make.histogram(
            "kubestow_event_loop_lag_seconds", "How late the event loop ran a timer that was due.", buckets=_ATTEMPT
        ).observe
        """Record how many seconds late the event loop ran a due timer."""
        self.volumes = VolumeInstruments(make)
        """Instruments of VolumeBinding."""
        self.devices = DeviceInstruments(make)
        """Instruments of DynamicResources."""
        self.shell = OperatorInstruments(make)
        """Instruments of the SchedulerProfile watch, and of profile changes."""
        self.traffic = TrafficInstruments(make)
        """Instruments of the transport."""
        build = make.gauge("kubestow_build_info", "Always 1; the labels are the running versions.", "version", "python")
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
        self.algorithm = make.histogram(
            "scheduler_scheduling_algorithm_duration_seconds", "Time spent choosing a node.", buckets=_ATTEMPT
        ).observe
        """Record the seconds of choosing a node, with or without success."""
        self._sli_s = make.histograms(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From a pod's first entry into the queue to its being bound, over all attempts.",
            ["attempts"],
            buckets=_SLI,
        )
        self._pod_attempts = make.histogram(
            "scheduler_pod_scheduling_attempts", "Attempts that a bound pod took.", buckets=exponential(1, 2, 5)
        )
        self.after_flush = make.plain_counter(
            "scheduler_pod_scheduled_after_flush",
            "Pods bound only after a flush of the unschedulable ones: an event should have woken them.",
        ).inc
        """Record a bound pod that only the periodic flush had woken."""
        self._points = make.histograms(
            "scheduler_framework_extension_point_duration_seconds",
            "Time of all plugins of an extension point together.",
            ["extension_point", "status", "profile"],
            buckets=_POINT,
        )
        self._plugins = make.histograms(
            "scheduler_plugin_execution_duration_seconds",
            "Time of one plugin at one extension point, for a sample of the attempts; not if it skipped the pod.",
            ["plugin", "extension_point", "status"],
            buckets=_PLUGIN,
        )
        self._conflicts = make.counter(
            "kubestow_binding_conflicts",
            "Bindings that failed because another scheduler was faster, by the kind of conflict.",
            "kind",
        )
        self._rejections = make.counter(
            "kubestow_admission_rejections",
            "Pods that a kubelet rejected after they had been bound.",
            "reason",
            "profile",
        )
        self._evaluations: dict[tuple[str, str, str], CallCount] = {}
        self._permit_wait_s = make.histograms(
            "scheduler_permit_wait_duration_seconds",
            "Time that pods were held at Permit.",
            ["result"],
            buckets=_ATTEMPT,
        )

    def _make_group_instruments(self, make: Maker) -> None:
        self._group_attempts = make.counter(
            "scheduler_podgroup_schedule_attempts",
            "Attempts to schedule a group of pods, by how they ended.",
            "result",
            "profile",
        )
        self._group_attempt_s = make.histograms(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Time of an attempt of a group, until its pods are reserved or refused.",
            ["result", "profile"],
            buckets=_ATTEMPT,
        )
        self.group_algorithm = make.histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Time spent choosing the nodes of a group.",
            buckets=_ATTEMPT,
        ).observe
        """Record the seconds of choosing the nodes of a group, with or without success."""
        self.group_given_up = make.plain_counter(
            "kubestow_groups_given_up",
            "Groups whose bindings were given up, because too few pods were prepared for theirs.",
        ).inc
        """Record a group whose bindings were given up."""

    def _make_preemption_instruments(self, make: Maker) -> None:
        self.preemption_attempt = make.plain_counter(
            "scheduler_preemption_attempts", "Pods for which preemption was considered."
        ).inc
        """Record a call of a preemption plugin."""
        self._victims = make.histogram(
            "scheduler_preemption_victims", "Pods evicted by one preemption.", buckets=exponential(1, 2, 7)
        )
        self._preemptions = make.counter(
            "scheduler_preemption_goroutines_execution", "Preemptions that were carried out, by result.", "result"
        )
        self._preemption_s = make.histograms(
            "scheduler_preemption_goroutines_duration_seconds",
            "Time to evict all victims of a preemption.",
            ["result"],
            buckets=exponential(0.01, 2, 20),
        )
        self._other_victims = make.plain_counter(
            "kubestow_preemption_other_victims", "Evicted pods that belong to other schedulers."
        )
        self.preemption_lost = make.plain_counter(
            "kubestow_preemptions_lost",
            "Times that another pod took the capacity freed for a pod on a node, from the second time on.",
        ).inc
        """Record that another pod took the capacity freed on a node, from the second time on."""

    def _make_queue_instruments(self, make: Maker) -> None:
        self._incoming = make.counter(
            "scheduler_queue_incoming_pods", "Pods put into a part of the queue, by cause.", "queue", "event"
        )
        if self._counts_entities:
            self._incoming_entities = make.counter(
                "scheduler_queue_incoming_entities",
                "Pods put into a part of the queue that the cause does not name already. From 1.37 on; the label `entity` is `type` there.",
                "queue",
                "event",
                self._entity,
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
        """Record the end of an attempt: `scheduled`, `unschedulable`, `waiting_on_preemption` or `error`."""
        self._attempts[result, profile].inc()
        self._attempt_s[result, profile].observe(seconds)

    def attempts(self) -> dict[str, float]:
        """Return the ended attempts by result, of all profiles."""
        found: dict[str, float] = {}
        for (result, _), series in self._attempts.items():
            found[result] = found.get(result, 0.0) + series.value
        return found

    def group_attempt(self, result: str, profile: str, seconds: float) -> None:
        """Record the end of a group's attempt: `scheduled`, `unschedulable`, `waiting_on_preemption` or `error`."""
        self._group_attempts[result, profile].inc()
        self._group_attempt_s[result, profile].observe(seconds)

    def point(self, point: str, status: str, profile: str, seconds: float) -> None:
        """Record a run of an extension point; `status` is the text of its status code."""
        self._points[point, status, profile].observe(seconds)

    def plugin(self, plugin: str, point: str, status: str, seconds: float) -> None:
        """Record a run of one plugin. Callers sample about a tenth of the attempts, as upstream.

        Plugins that skipped the pod are not recorded: they would be half of all series, with no measurable time.
        """
        if status != _SKIP:
            self._plugins[plugin, point, status].observe(seconds)

    def evaluations(self, plugin: str, point: str, profile: str) -> CallCount:
        """Return the count of a plugin's calls at PreFilter, Filter, PreScore or Score; the caller increments it."""
        return self._evaluations.setdefault((plugin, point, profile), CallCount())

    def scheduled(self, attempts: int, sli_seconds: float) -> None:
        """Record a bound pod with its attempts and its time since it first entered the queue."""
        self._pod_attempts.observe(attempts)
        label = str(attempts) if attempts < MANY_ATTEMPTS else f"{MANY_ATTEMPTS}+"
        self._sli_s[label,].observe(sli_seconds)

    def binding_conflict(self, kind: str) -> None:
        """Record a lost race: `node`, the node no longer fits; `pod`, the pod is bound elsewhere."""
        self._conflicts[kind,].inc()

    def admission_rejection(self, reason: str, profile: str) -> None:
        """Record that a kubelet rejected a pod that this scheduler bound."""
        self._rejections[reason, profile].inc()

    def preempted(self, victims: int, *, others: int) -> None:
        """Record a chosen node and its number of victims; `others` of them belong to other schedulers."""
        self._victims.observe(victims)
        self._other_victims.inc(others)

    def preemption_done(self, result: str, seconds: float) -> None:
        """Record the end of one preemption's evictions: `success` or `error`."""
        self._preemptions[result,].inc()
        self._preemption_s[result,].observe(seconds)

    def permit_wait(self, result: str, seconds: float) -> None:
        """Record the time of a pod at Permit and the status with which it ended."""
        self._permit_wait_s[result,].observe(seconds)

    def incoming(self, queue: str, event: str) -> None:
        """Record that a pod entered `active`, `backoff` or `unschedulable` because of this event."""
        self._incoming[queue, self._event(event)].inc()

    def incoming_entity(self, queue: str, event: str) -> None:
        """Record the same, unless the cause already names the queue."""
        if self._counts_entities:
            self._incoming_entities[queue, self._event(event), "pod"].inc()

    def unschedulable(self, plugin: str, profile: str, delta: int) -> None:
        """Add `delta` to the waiting pods that this plugin refused."""
        self._unschedulable[plugin, profile].inc(delta)

    def hint(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        """Record a queueing hint."""
        key = plugin, self._event(event), hint
        if key not in self._hints and len(self._hints) >= MOST_HINTS:
            key = _OTHER, _OTHER, hint
        self._hints[key].observe(seconds)

    def event_handled(self, event: str, seconds: float) -> None:
        """Record an applied cluster event."""
        self._events[self._event(event),].observe(seconds)

    # -- what a scrape shows -------------------------------------------------------------------------------------------

    def expect(self, profiles: Iterable[str]) -> None:
        """Create zeros for the counters of these profiles.

        A counter that starts with one has no rate for its first increment.
        """
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
        """Return every instrument by name, observed or not, without those of the process."""
        read = (family.description for family in self._read())
        return sorted((*self._make.made, *read), key=lambda each: each.name)

    def sample(self) -> None:
        """Read the callbacks. Call on the event loop, before `render` runs in its thread."""
        self._sampled.families = self._read()
        self._fresh += 1

    def render(self) -> bytes:
        """Return the text that Prometheus scrapes.

        It takes tens of milliseconds: call it in a thread, after `sample`. It pauses between pieces, because a busy
        thread lets the event loop run only every 5 ms. Without a previous `sample` it takes one itself, which only a
        single-threaded caller may rely on.
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
                text.append(lines.split(b"\n", 2)[2] if at else lines)  # help and type appear once
                time.sleep(_BREATH_S)  # noqa: TID251 (in a thread)
        return b"".join(text)

    def _read(self) -> list[Family]:
        return [
            *families(self.sources),
            counter_family(
                "scheduler_plugin_evaluation",
                "Attempts in which a plugin was called.",
                ("plugin", "extension_point", "profile"),
                {key: each.calls for key, each in self._evaluations.items() if each.calls},
            ),
        ]
