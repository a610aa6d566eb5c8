"""Instruments with kube-scheduler's names, labels and buckets (docs/spec/core.md §7.1), and ours behind `kubestow_`.

Decision code calls plain methods with plain values and never sees Prometheus. Children are looked up in dicts: a
recorded value costs about a microsecond. What others already count (queue lengths, cache sizes, streams) is read
from callbacks when a scrape comes. No object names in labels.

Everything here may be called from the event loop only, but for `render`.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeAlias, TypeVar, cast

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler import __version__

M = TypeVar("M", bound=Counter | Gauge | Histogram)
K = TypeVar("K", bound=tuple[str, ...])
Counts: TypeAlias = Mapping[str, int]

MANY_ATTEMPTS: Final = 15
"""From here on pod_scheduling_sli_duration_seconds says `15+`, as upstream."""


class ReflectorStats(Protocol):
    """What the mirror of one kind counts about itself; counts only grow, `objects` and `silent_s` do not."""

    @property
    def objects(self) -> int: ...
    @property
    def events(self) -> Counts: ...
    @property
    def relists(self) -> Counts: ...
    @property
    def silent_s(self) -> float: ...
    @property
    def synthesised_deletes(self) -> int: ...
    @property
    def decode_errors(self) -> int: ...


class _Children(dict[tuple[str, ...], M], Generic[M]):
    """Label values → child, made at first use: `.labels()` on each observation costs three times as much."""

    def __init__(self, parent: M) -> None:
        super().__init__()
        self._child = cast("Callable[..., M]", parent.labels)

    def __missing__(self, key: tuple[str, ...]) -> M:
        child = self._child(*key)
        self[key] = child
        return child


def exponential(start: float, factor: float, count: int) -> list[float]:
    """Upper bounds as upstream makes them: each is the previous one times `factor`."""
    bounds = [start]
    while len(bounds) < count:
        bounds.append(bounds[-1] * factor)
    return [float(f"{bound:.12g}") for bound in bounds]


_ATTEMPT: Final = exponential(0.001, 2, 15)
_SLI: Final = exponential(0.01, 2, 20)
_POINT: Final = exponential(0.0001, 2, 12)
_PLUGIN: Final = exponential(0.00001, 1.5, 20)


@dataclass(slots=True)
class _Sources:
    """Callbacks of `bind_*`; those not bound give nothing."""

    pending: Callable[[], Counts] = dict
    inflight_events: Callable[[], Counts] = dict
    cache: Callable[[], Counts] = dict
    bindings_in_flight: Callable[[], int] | None = None
    reflectors: Callable[[], Mapping[str, ReflectorStats]] = dict
    recorder: Callable[[], Counts] = dict
    leading: Callable[[], Counts] = dict


@dataclass(eq=False)
class _Sampled(Collector):
    """Families made from the callbacks by `sample`; a scrape prints them."""

    families: Sequence[Metric] = field(default=())

    def collect(self) -> Iterable[Metric]:
        return self.families


class Metrics:
    """All instruments of one daemon, in a registry of its own.

    `process=False` leaves out what Prometheus says about the process, the interpreter and its garbage collector.
    """

    def __init__(self, *, process: bool = True) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # upstream has no `_created` series, and they cost a third of a scrape
        self._registry = CollectorRegistry()
        self._sources = _Sources()
        self._sampled = _Sampled()
        self._fresh = 0
        self._registry.register(self._sampled)
        self._make_attempt_instruments()
        self._make_preemption_instruments()
        self._make_queue_instruments()
        self._loop_lag = self._histogram(
            "kubestow_event_loop_lag_seconds", "How late the event loop ran a timer that was due.", buckets=_ATTEMPT
        )
        build = Gauge(
            "kubestow_build_info",
            "Always 1; the labels say what is running.",
            ["version", "python"],
            registry=self._registry,
        )
        build.labels(__version__, platform.python_version()).set(1)
        if process:
            ProcessCollector(registry=self._registry)
            PlatformCollector(registry=self._registry)
            GCCollector(registry=self._registry)

    def _make_attempt_instruments(self) -> None:
        self._attempts = self._counter(
            "scheduler_schedule_attempts", "Attempts to schedule a pod, by how they ended.", "result", "profile"
        )
        self._attempt_s = self._histograms(
            "scheduler_scheduling_attempt_duration_seconds",
            "From taking a pod off the queue to its being bound, or to the end of the failed attempt.",
            ["result", "profile"],
            buckets=_ATTEMPT,
        )
        self._algorithm_s = self._histogram(
            "scheduler_scheduling_algorithm_duration_seconds", "Time spent choosing a node.", buckets=_ATTEMPT
        )
        self._sli_s = self._histograms(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From a pod's first entry into the queue to its being bound, over all attempts.",
            ["attempts"],
            buckets=_SLI,
        )
        self._pod_attempts = self._histogram(
            "scheduler_pod_scheduling_attempts", "Attempts that a bound pod took.", buckets=exponential(1, 2, 5)
        )
        self._after_flush = Counter(
            "scheduler_pod_scheduled_after_flush",
            "Pods bound only after a flush of the unschedulable ones: an event should have woken them.",
            registry=self._registry,
        )
        self._points = self._histograms(
            "scheduler_framework_extension_point_duration_seconds",
            "Time of all plugins of an extension point together.",
            ["extension_point", "status", "profile"],
            buckets=_POINT,
        )
        self._plugins = self._histograms(
            "scheduler_plugin_execution_duration_seconds",
            "Time of one plugin at one extension point, for a sample of the attempts.",
            ["plugin", "extension_point", "status"],
            buckets=_PLUGIN,
        )
        self._conflicts = self._counter(
            "kubestow_binding_conflicts",
            "Bindings given up because another scheduler was faster, by what it had taken.",
            "kind",
        )
        self._rejections = self._counter(
            "kubestow_admission_rejections",
            "Pods that a kubelet refused after they had been bound.",
            "reason",
            "profile",
        )
        self._evaluations: dict[tuple[str, str, str], int] = {}
        self._permit_wait_s = self._histograms(
            "scheduler_permit_wait_duration_seconds",
            "Time that pods were held at Permit.",
            ["result"],
            buckets=_ATTEMPT,
        )

    def _make_preemption_instruments(self) -> None:
        self._preemption_attempts = Counter(
            "scheduler_preemption_attempts", "Pods for which preemption was considered.", registry=self._registry
        )
        self._victims = self._histogram(
            "scheduler_preemption_victims", "Pods evicted by one preemption.", buckets=exponential(1, 2, 7)
        )
        self._preemptions = self._counter(
            "scheduler_preemption_goroutines_execution", "Preemptions carried out, by how they ended.", "result"
        )
        self._preemption_s = self._histograms(
            "scheduler_preemption_goroutines_duration_seconds",
            "Time to evict all victims of a preemption.",
            ["result"],
            buckets=exponential(0.01, 2, 20),
        )
        self._other_victims = Counter(
            "kubestow_preemption_other_victims",
            "Evicted pods that belong to other schedulers.",
            registry=self._registry,
        )
        self._lost_preemptions = Counter(
            "kubestow_preemptions_lost",
            "Times that room made for a pod on a node had been taken by another pod, from the second on.",
            registry=self._registry,
        )

    def _make_queue_instruments(self) -> None:
        self._incoming = self._counter(
            "scheduler_queue_incoming_pods", "Pods put into a part of the queue, by cause.", "queue", "event"
        )
        self._hints = self._histograms(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Time a plugin took to say whether an event helps a waiting pod.",
            ["plugin", "event", "hint"],
            buckets=_PLUGIN,
        )
        self._events = self._histograms(
            "scheduler_event_handling_duration_seconds",
            "Time to apply a cluster event to cache and queue.",
            ["event"],
            buckets=_POINT,
        )
        self._unschedulable = _Children(
            Gauge(
                "scheduler_unschedulable_pods",
                "Waiting pods that this plugin turned down at their last attempt; a pod counts for each of its plugins.",
                ["plugin", "profile"],
                registry=self._registry,
            )
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
        """One plugin was run. Call it for about a tenth of the attempts, as upstream does."""
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
        self._hints[plugin, event, hint].observe(seconds)

    def event_handled(self, event: str, seconds: float) -> None:
        """A cluster event was applied."""
        self._events[event,].observe(seconds)

    def loop_lag(self, seconds: float) -> None:
        """The event loop ran a due timer this late."""
        self._loop_lag.observe(seconds)

    # -- what is read when a scrape comes -------------------------------------------------------------------------------

    def bind_gauges(
        self,
        *,
        pending: Callable[[], Counts],
        inflight_events: Callable[[], Counts],
        cache: Callable[[], Counts],
        bindings_in_flight: Callable[[], int],
    ) -> None:
        """Where gauges come from: pods by queue, events by label, cache size by type, running binding tasks."""
        self._sources.pending = pending
        self._sources.inflight_events = inflight_events
        self._sources.cache = cache
        self._sources.bindings_in_flight = bindings_in_flight

    def bind_reflectors(self, stats: Callable[[], Mapping[str, ReflectorStats]]) -> None:
        """Where the counts of each watched kind come from."""
        self._sources.reflectors = stats

    def bind_recorder(self, stats: Callable[[], Counts]) -> None:
        """Where the event recorder's counts come from, by outcome: `sent`, `failed`, `dropped`."""
        self._sources.recorder = stats

    def bind_election(self, lease: str, is_leading: Callable[[], bool]) -> None:
        """Where the state of leader election comes from. Not called: there is none, and no such series."""
        self._sources.leading = lambda: {lease: int(is_leading())}

    def sample(self) -> None:
        """Read the callbacks. On the event loop, before `render` runs in its thread."""
        self._sampled.families = [
            *_gauges(self._sources),
            *_reflector_families(self._sources.reflectors()),
            _counter(
                "scheduler_plugin_evaluation",
                "Attempts in which a plugin was asked.",
                ("plugin", "extension_point", "profile"),
                self._evaluations,
            ),
        ]
        self._fresh += 1

    def render(self) -> bytes:
        """The text that Prometheus scrapes. Takes tens of milliseconds: run it in a thread, after `sample`.

        Without a `sample` of its own it takes one itself, which only a single-threaded caller should rely on.
        """
        if not self._fresh:
            self.sample()
        self._fresh -= 1
        return generate_latest(self._registry)

    # -- making instruments ---------------------------------------------------------------------------------------------

    def _counter(self, name: str, text: str, *labels: str) -> _Children[Counter]:
        return _Children(Counter(name, text, labels, registry=self._registry))

    def _histogram(self, name: str, text: str, *, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, text, buckets=buckets, registry=self._registry)

    def _histograms(
        self, name: str, text: str, labels: Sequence[str], *, buckets: Sequence[float]
    ) -> _Children[Histogram]:
        return _Children(Histogram(name, text, labels, buckets=buckets, registry=self._registry))


def _gauges(sources: _Sources) -> list[Metric]:
    bindings = {} if sources.bindings_in_flight is None else {"binding": sources.bindings_in_flight()}
    return [
        _gauge("scheduler_pending_pods", "Pods waiting, by part of the queue.", "queue", sources.pending()),
        _gauge(
            "scheduler_inflight_events", "Events kept for pods being tried.", "event", sources.inflight_events()
        ),
        _gauge("scheduler_cache_size", "Nodes, pods and assumed pods in the cache.", "type", sources.cache()),
        _gauge("scheduler_goroutines", "Running tasks, by what they do.", "operation", bindings),
        _gauge("leader_election_master_status", "1 while this process holds the lease.", "name", sources.leading()),
        _counter(
            "kubestow_recorder_events", "Events about pods, by what became of them.", ["outcome"],
            {(outcome,): count for outcome, count in sources.recorder().items()},
        ),
    ]  # fmt: skip


def _reflector_families(kinds: Mapping[str, ReflectorStats]) -> list[Metric]:
    events = {(kind, type_): n for kind, stats in kinds.items() for type_, n in stats.events.items()}
    relists = {(kind, cause): n for kind, stats in kinds.items() for cause, n in stats.relists.items()}
    deletes = {(kind,): stats.synthesised_deletes for kind, stats in kinds.items()}
    errors = {(kind,): stats.decode_errors for kind, stats in kinds.items()}
    return [
        _gauge("kubestow_watch_objects", "Mirrored objects.", "kind", {k: s.objects for k, s in kinds.items()}),
        _gauge(
            "kubestow_watch_silent_seconds", "Since the server last sent a byte.", "kind",
            {k: s.silent_s for k, s in kinds.items()},
        ),
        _counter("kubestow_watch_events", "Watch events received.", ["kind", "type"], events),
        _counter("kubestow_watch_relists", "Fresh lists, by cause.", ["kind", "cause"], relists),
        _counter("kubestow_watch_synthesised_deletes", "Objects that a fresh list no longer had.", ["kind"], deletes),
        _counter("kubestow_watch_decode_errors", "Objects that could not be read.", ["kind"], errors),
    ]  # fmt: skip


def _gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counter(name: str, text: str, labels: Sequence[str], values: Mapping[K, float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family
