"""What instruments are made of: children found by their labels, buckets as upstream makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric

M = TypeVar("M", bound=Counter | Gauge | Histogram)
K = TypeVar("K", bound=tuple[str, ...])


@dataclass(frozen=True, slots=True)
class Description:
    """One metric as the reference lists it, whether or not it has been observed. `name` is the one that is queried."""

    name: str
    kind: str
    """`counter`, `gauge` or `histogram`."""
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


class Children(dict[tuple[str, ...], M], Generic[M]):
    """Label values → child, made at first use: `.labels()` on each observation costs three times as much."""

    def __init__(self, parent: M) -> None:
        super().__init__()
        self._child = cast("Callable[..., M]", parent.labels)

    def __missing__(self, key: tuple[str, ...]) -> M:
        child = self._child(*key)
        self[key] = child
        return child

    def show(self, *key: str) -> None:
        """Let it be there with a zero: what appears with its first increment has no rate for that one."""
        _ = self[key]


class Maker:
    """Makes instruments in one registry, and remembers what it made."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry: Final = registry
        self.made: list[Description] = []

    def counter(self, name: str, text: str, *labels: str) -> Children[Counter]:
        """`name` is without `_total`."""
        self.made.append(Description(f"{name}_total", "counter", text, labels))
        return Children(Counter(name, text, labels, registry=self.registry))

    def plain_counter(self, name: str, text: str) -> Counter:
        """Without labels: it is there from the start."""
        self.made.append(Description(f"{name}_total", "counter", text))
        return Counter(name, text, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Children[Gauge]:
        """One that is set, not read when a scrape comes."""
        self.made.append(Description(name, "gauge", text, labels))
        return Children(Gauge(name, text, labels, registry=self.registry))

    def plain_gauge(self, name: str, text: str) -> Gauge:
        """One that is set, without labels."""
        self.made.append(Description(name, "gauge", text))
        return Gauge(name, text, registry=self.registry)

    def histogram(self, name: str, text: str, *, buckets: Sequence[float]) -> Histogram:
        """Without labels."""
        self.made.append(Description(name, "histogram", text, (), tuple(buckets)))
        return Histogram(name, text, buckets=buckets, registry=self.registry)

    def histograms(
        self, name: str, text: str, labels: Sequence[str], *, buckets: Sequence[float]
    ) -> Children[Histogram]:
        """One for each combination of label values."""
        self.made.append(Description(name, "histogram", text, tuple(labels), tuple(buckets)))
        return Children(Histogram(name, text, labels, buckets=buckets, registry=self.registry))


def exponential(start: float, factor: float, count: int) -> list[float]:
    """Upper bounds as upstream makes them: each is the previous one times `factor`."""
    bounds = [start]
    while len(bounds) < count:
        bounds.append(bounds[-1] * factor)
    return [float(f"{bound:.12g}") for bound in bounds]


class Family(Metric):
    """Somebody else's numbers, as they are when a scrape comes. Its labels are known though it has no samples."""

    def __init__(self, kind: str, name: str, text: str, labels: Sequence[str]) -> None:
        super().__init__(name, text, kind)
        self._shown_as = f"{name}_total" if kind == "counter" else name
        self.description = Description(self._shown_as, kind, text, tuple(labels))

    def show(self, labels: Sequence[str], value: float) -> None:
        """One sample."""
        self.add_sample(self._shown_as, dict(zip(self.description.labels, labels)), value)


def gauge_family(name: str, text: str, label: str, values: Mapping[str, float]) -> Family:
    """A gauge as it is read when a scrape comes."""
    family = Family("gauge", name, text, [label])
    for key, value in values.items():
        family.show([key], value)
    return family


def plain_gauge(name: str, text: str, value: float | None) -> Family:
    """A gauge without labels; None: not known yet."""
    family = Family("gauge", name, text, [])
    if value is not None:
        family.show([], value)
    return family


def counter_family(name: str, text: str, labels: Sequence[str], values: Mapping[K, float]) -> Family:
    """A counter that somebody else counts; `name` is without `_total`."""
    family = Family("counter", name, text, labels)
    for key, value in values.items():
        family.show(key, value)
    return family
