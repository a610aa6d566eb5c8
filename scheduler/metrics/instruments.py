"""Build Prometheus instruments, and the instruments of requests, profiles, volumes, devices and health checks.

Children are cached by their labels. Buckets are upstream's. Requests to the API server have client-go's names, labels
and buckets (docs/spec/core.md §7.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from scheduler.metrics.series import CounterSeries, HistogramSeries

M = TypeVar("M", bound=CounterSeries | Gauge | HistogramSeries)
K = TypeVar("K", bound=tuple[str, ...])


@dataclass(frozen=True, slots=True)
class Description:
    """A metric in the reference, whether or not it has been observed. `name` is the name to query."""

    name: str
    kind: str
    """`counter`, `gauge` or `histogram`."""
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


class Children(dict[tuple[str, ...], M], Generic[M]):
    """Label values → child, created at first use. `.labels()` on each observation would cost three times as much."""

    def __init__(self, create: Callable[..., M]) -> None:
        super().__init__()
        self._create = create

    def __missing__(self, key: tuple[str, ...]) -> M:
        child = self[key] = self._create(*key)
        return child

    def show(self, *key: str) -> None:
        """Create the child with a zero: a series that appears with its first increment has no rate for it."""
        _ = self[key]


@dataclass(eq=False, slots=True)
class _Collector(Collector):
    """Shows the children of one instrument to the registry. It reads them in a thread, while the event loop adds more."""

    described: Description
    children: Children[CounterSeries] | Children[HistogramSeries]

    def collect(self) -> Iterable[Metric]:
        metric = Metric(self.described.name.removesuffix("_total"), self.described.text, self.described.kind)
        for values, child in self.children.copy().items():
            child.show(metric, dict(zip(self.described.labels, values)))
        return [metric]


class Maker:
    """Create instruments in one registry and record them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry: Final = registry
        self.made: list[Description] = []

    def counter(self, name: str, text: str, *labels: str) -> Children[CounterSeries]:
        """Create a counter. `name` is without `_total`."""
        counters = Children(lambda *_: CounterSeries())
        self._register(Description(f"{name}_total", "counter", text, labels), counters)
        return counters

    def plain_counter(self, name: str, text: str) -> CounterSeries:
        """Create a counter without labels, which is exported from the start."""
        return self.counter(name, text)[()]

    def gauge(self, name: str, text: str, *labels: str) -> Children[Gauge]:
        """Create a gauge that is set, not read at a scrape."""
        self.made.append(Description(name, "gauge", text, labels))
        return Children(Gauge(name, text, labels, registry=self.registry).labels)

    def plain_gauge(self, name: str, text: str) -> Gauge:
        """Create a gauge without labels that is set."""
        self.made.append(Description(name, "gauge", text))
        return Gauge(name, text, registry=self.registry)

    def histogram(self, name: str, text: str, *, buckets: Sequence[float]) -> HistogramSeries:
        """Create a histogram without labels, which is exported from the start."""
        return self.histograms(name, text, (), buckets=buckets)[()]

    def histograms(
        self, name: str, text: str, labels: Sequence[str], *, buckets: Sequence[float]
    ) -> Children[HistogramSeries]:
        """Create a histogram for each combination of label values."""
        histograms = Children(lambda *_: HistogramSeries(buckets))
        self._register(Description(name, "histogram", text, tuple(labels), tuple(buckets)), histograms)
        return histograms

    def _register(self, described: Description, children: Children[CounterSeries] | Children[HistogramSeries]) -> None:
        self.made.append(described)
        self.registry.register(_Collector(described, children))


def exponential(start: float, factor: float, count: int) -> list[float]:
    """Return upper bounds as upstream: each is the previous one times `factor`."""
    bounds = [start]
    while len(bounds) < count:
        bounds.append(bounds[-1] * factor)
    return [float(f"{bound:.12g}") for bound in bounds]


class Family(Metric):
    """Values that another part counts, read at a scrape. The labels are known even without samples."""

    def __init__(self, kind: str, name: str, text: str, labels: Sequence[str]) -> None:
        super().__init__(name, text, kind)
        self._shown_as = f"{name}_total" if kind == "counter" else name
        self.description = Description(self._shown_as, kind, text, tuple(labels))

    def show(self, labels: Sequence[str], value: float) -> None:
        """Add a sample."""
        self.add_sample(self._shown_as, dict(zip(self.description.labels, labels)), value)


def gauge_family(name: str, text: str, label: str, values: Mapping[str, float]) -> Family:
    """Return a gauge that is read at a scrape."""
    family = Family("gauge", name, text, [label])
    for key, value in values.items():
        family.show([key], value)
    return family


def plain_gauge(name: str, text: str, value: float | None) -> Family:
    """Return a gauge without labels; a value of None is unknown and not exported."""
    family = Family("gauge", name, text, [])
    if value is not None:
        family.show([], value)
    return family


def counter_family(name: str, text: str, labels: Sequence[str], values: Mapping[K, float]) -> Family:
    """Return a counter that another part counts; `name` is without `_total`."""
    family = Family("counter", name, text, labels)
    for key, value in values.items():
        family.show(key, value)
    return family


_REQUEST_S: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_NO_ANSWER: Final = "<error>"


class TrafficInstruments:
    """Instruments of requests: one host, four methods, a few status codes."""

    def __init__(self, make: Maker) -> None:
        self._requests = make.counter(
            "rest_client_requests",
            "Requests to the API server, by status code; <error>: there was no answer.",
            *("code", "method", "host"),
        )
        self._request_s = make.histograms(
            "rest_client_request_duration_seconds",
            "From sending a request to having read its answer; watches are left out.",
            ["verb", "host"],
            buckets=_REQUEST_S,
        )

    def answered(self, method: str, host: str, status: int, seconds: float | None) -> None:
        """Record an answer. Status 0: no answer. Without `seconds` the answer is a stream."""
        self._requests[str(status) if status else _NO_ANSWER, method, host].inc()
        if seconds is not None:
            self._request_s[method, host].observe(seconds)


RESULTS: Final = ("applied", "refused", "removed")


class OperatorInstruments:
    """Instruments of the SchedulerProfile watch, and counters of reloads."""

    def __init__(self, make: Maker) -> None:
        self._reloads = make.counter(
            "kubestow_profile_reloads",
            "Changes of profiles by SchedulerProfile objects: applied, refused, or removed (the file applies again).",
            "result",
        )
        for result in RESULTS:
            self._reloads[result,].inc(0)
        self._generations = make.gauge(
            "kubestow_profile_generation",
            "Generation of the SchedulerProfile in force for a profile; 0: that of the configuration file.",
            "profile",
        )
        self.up = make.plain_gauge(
            "kubestow_shell_up",
            "1 while SchedulerProfiles and WhatIfs are watched; 0: there are no such kinds, or they are listed once a minute.",
        ).set
        """Record whether the watch runs."""
        self.restarted = make.plain_counter(
            "kubestow_shell_restarts", "Times that the watch of SchedulerProfiles and WhatIfs ended and was restarted."
        ).inc
        """Record that the watch ended by itself."""

    def reload(self, result: str) -> None:
        """Count `applied`, `refused` or `removed`."""
        self._reloads[result,].inc()

    def generation(self, profile: str, generation: int) -> None:
        """Set the generation in force for the profile; 0: the file's."""
        self._generations[profile,].set(generation)


_DEVICE_WAIT_S: Final = exponential(0.1, 2, 14)
_STEPS: Final = exponential(1, 4, 11)
"""Buckets up to a million. Few searches need more steps than the pod has devices; the rest need only a rough scale."""


class DeviceInstruments:
    """Implements the `DeviceMetrics` port."""

    def __init__(self, make: Maker) -> None:
        self._claims = make.counter(
            "scheduler_resourceclaim_creates",
            "Claims that were to be made for extended resources, by what came of it.",
            "status",
        )
        self._claims_of_pods = make.counter(
            "dynamic_resource_allocation_resourceclaim_creates",
            "The same as scheduler_resourceclaim_creates_total, under the name of kube-scheduler 1.37.",
            *("status", "admin_access", "owner_api_group", "owner_api_kind"),
        )
        self._allocations = make.counter(
            "scheduler_dra_bindingconditions_allocations",
            "Devices with binding conditions that a pod waited for, by driver and by how the wait ended.",
            *("profile", "driver", "status"),
        )
        self._waits_s = make.histograms(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time that a pod waited for its devices before it was bound, once for each of them.",
            ["profile", "driver", "status"],
            buckets=_DEVICE_WAIT_S,
        )
        self.claim_conflict = make.plain_counter(
            "kubestow_claim_write_conflicts",
            "Writes to device claims that conflicted with another client, or whose answer was lost.",
        ).inc
        self.collision = make.plain_counter(
            "kubestow_device_collisions", "Allocations undone because another claim had got one of the devices."
        ).inc
        self.searched = make.histogram(
            "kubestow_device_search_steps", "Devices tried in the search of one node.", buckets=_STEPS
        ).observe
        evaluations = make.counter(
            "kubestow_device_cel_evaluations",
            "Evaluations of CEL selectors for a kind of device; known: the result was cached.",
            "known",
        )
        self._asked, self._remembered = evaluations["false",], evaluations["true",]

    def conditions_allocation(self, profile: str, driver: str, status: str) -> None:
        self._allocations[profile, driver, status].inc()

    def conditions_wait(self, profile: str, driver: str, status: str, seconds: float) -> None:
        self._waits_s[profile, driver, status].observe(seconds)

    def claim_created(self, status: str) -> None:
        self._claims[status,].inc()
        self._claims_of_pods[status, "false", "", "Pod"].inc()

    def evaluated(self, is_known: bool) -> None:
        (self._remembered if is_known else self._asked).inc()


_WAIT_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class VolumeInstruments:
    """Implements the `VolumeMetrics` port."""

    def __init__(self, make: Maker) -> None:
        self._stage_errors = make.counter(
            "scheduler_volume_scheduling_stage_error",
            "Stages of volume scheduling that failed with an error.",
            "operation",
        )
        make.counter(
            "scheduler_volume_binder_cache_requests",
            "As upstream: exists for dashboards, and is never counted.",
            "operation",
        )
        self._conflicts = make.counter(
            "kubestow_volume_write_conflicts",
            "Writes to volumes and claims that conflicted with another client, or whose answer was lost.",
            "resource",
        )
        self._wait_s = make.histograms(
            "kubestow_volume_bind_wait_seconds",
            "From the first write to the last bound claim of a pod, or to the failure.",
            ["kind"],
            buckets=_WAIT_S,
        )
        self._long_waits = make.counter(
            "kubestow_volume_bind_long_waits", "Pods whose volumes were not bound after this time, in seconds.", "after"
        )
        for seconds in ("30", "60", "300"):
            self._long_waits.show(seconds)
        for operation in ("predicate", "assume", "bind"):
            self._stage_errors.show(operation)
        for resource in ("PersistentVolume", "PersistentVolumeClaim"):
            self._conflicts.show(resource)

    def stage_error(self, operation: str) -> None:
        self._stage_errors[operation,].inc()

    def write_conflict(self, resource: str) -> None:
        self._conflicts[resource,].inc()

    def bind_wait(self, kind: str, seconds: float) -> None:
        self._wait_s[kind,].observe(seconds)

    def long_wait(self, after_s: int) -> None:
        self._long_waits[str(after_s),].inc()


class HealthcheckMetrics:
    """The two metrics of health checks, and the start time of the process, for /metrics/slis.

    Upstream: staging/src/k8s.io/component-base/metrics/prometheus/slis/metrics.go ObserveHealthcheck
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        make = Maker(self._registry)
        self._last = make.gauge(
            "kubernetes_healthcheck",
            "[STABLE] This metric records the result of a single healthcheck.",
            *("name", "type"),
        )
        self._results = make.counter(
            "kubernetes_healthchecks",
            "[STABLE] This metric records the results of all healthcheck.",
            *("name", "type", "status"),
        )
        process = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=process)
        self._started = process.restricted_registry(["process_start_time_seconds"])

    def observe(self, check: str, page: str, *, is_well: bool) -> None:
        """Count one result of a check of a page, which is `livez`, `healthz` or `readyz`."""
        self._last[check, page].set(is_well)
        self._results[check, page, "success" if is_well else "error"].inc()

    def render(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self._registry) + generate_latest(self._started)
