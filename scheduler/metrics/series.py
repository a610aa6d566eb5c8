"""Counters and histograms without locks, which prometheus_client's registry reads at a scrape.

prometheus_client takes a lock for each value that changes. A pod changes some thirty values, all on the event loop,
where the locks protect nothing. The exposition is equal (tests/unit/metrics/test_series.py), without `_created` series:
upstream has none, and they cost a third of a scrape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import inf

from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString


class CounterSeries:
    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Add `amount`, which is not negative."""
        self._value += amount

    @property
    def value(self) -> float:
        """The present count."""
        return self._value

    def show(self, metric: Metric, labels: dict[str, str]) -> None:
        """Add the sample to the metric."""
        metric.add_sample(f"{metric.name}_total", labels, self._value)


class HistogramSeries:
    """All series of a histogram that have the same labels. `bounds` are sorted and without +Inf."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, amount: float) -> None:
        """Count `amount`, which is a number, in the first bucket whose upper bound is not below it."""
        self._counts[bisect_left(self._bounds, amount)] += 1
        self._sum += amount

    def show(self, metric: Metric, labels: dict[str, str]) -> None:
        """Add the samples to the metric."""
        counts = list(accumulate(self._counts))
        for bound, count in zip((*self._bounds, inf), counts):
            le = floatToGoString(bound)  # type: ignore[no-untyped-call]
            metric.add_sample(f"{metric.name}_bucket", {**labels, "le": le}, count)
        metric.add_sample(f"{metric.name}_count", labels, counts[-1])
        metric.add_sample(f"{metric.name}_sum", labels, self._sum)
