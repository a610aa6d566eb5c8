"""What instruments are made of: children found by their labels, buckets as upstream makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

M = TypeVar("M", bound=Counter | Gauge | Histogram)
K = TypeVar("K", bound=tuple[str, ...])


class Children(dict[tuple[str, ...], M], Generic[M]):
    """Label values → child, made at first use: `.labels()` on each observation costs three times as much."""

    def __init__(self, parent: M) -> None:
        super().__init__()
        self._child = cast("Callable[..., M]", parent.labels)

    def __missing__(self, key: tuple[str, ...]) -> M:
        child = self._child(*key)
        self[key] = child
        return child


class Maker:
    """Makes instruments in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry: Final = registry

    def counter(self, name: str, text: str, *labels: str) -> Children[Counter]:
        """`name` is without `_total`."""
        return Children(Counter(name, text, labels, registry=self.registry))

    def plain_counter(self, name: str, text: str) -> Counter:
        """Without labels: it is there from the start."""
        return Counter(name, text, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Children[Gauge]:
        """One that is set, not read when a scrape comes."""
        return Children(Gauge(name, text, labels, registry=self.registry))

    def histogram(self, name: str, text: str, *, buckets: Sequence[float]) -> Histogram:
        """Without labels."""
        return Histogram(name, text, buckets=buckets, registry=self.registry)

    def histograms(
        self, name: str, text: str, labels: Sequence[str], *, buckets: Sequence[float]
    ) -> Children[Histogram]:
        """One for each combination of label values."""
        return Children(Histogram(name, text, labels, buckets=buckets, registry=self.registry))


def exponential(start: float, factor: float, count: int) -> list[float]:
    """Upper bounds as upstream makes them: each is the previous one times `factor`."""
    bounds = [start]
    while len(bounds) < count:
        bounds.append(bounds[-1] * factor)
    return [float(f"{bound:.12g}") for bound in bounds]


def gauge_family(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """A gauge as it is read when a scrape comes."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def counter_family(name: str, text: str, labels: Sequence[str], values: Mapping[K, float]) -> Metric:
    """A counter that somebody else counts; `name` is without `_total`."""
    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family
