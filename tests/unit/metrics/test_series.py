"""The law of our counters and histograms: a scrape has the text that prometheus_client's own would have."""

from __future__ import annotations

import math
from collections.abc import Sequence

import prometheus_client
import pytest
from hypothesis import given, settings, strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from scheduler.metrics.instruments import Maker
from tests.examples import examples

LABELS = ("result", "profile")
VALUES = st.sampled_from(["", "scheduled", 'a "quoted" \\ text\n', "é"])
KEYS = st.tuples(VALUES, VALUES)
BOUNDS = st.lists(st.floats(0, 1e6), min_size=1, max_size=8, unique=True).map(sorted)
TEXT = 'Help with a \\ and a line\nbreak, and "quotes".'


@st.composite
def amounts(draw: st.DrawFn, bounds: Sequence[float]) -> float:
    """A bound itself, one of its neighbours, or any number."""
    near = st.sampled_from(bounds).flatmap(
        lambda b: st.sampled_from([b, math.nextafter(b, -1), math.nextafter(b, 1e9)])
    )
    return draw(near | st.integers(0, 10) | st.floats(allow_nan=False))


@settings(max_examples=examples(100))
@given(st.data())
def test_expositions_are_equal(data: st.DataObject) -> None:
    prometheus_client.disable_created_metrics()
    bounds = data.draw(BOUNDS)
    increments = data.draw(st.lists(st.tuples(KEYS, st.none() | st.integers(0, 9) | st.floats(0, 1e9))))
    observations = data.draw(st.lists(st.tuples(KEYS, amounts(bounds))))
    ours, theirs = CollectorRegistry(auto_describe=True), CollectorRegistry()
    make = Maker(ours)
    counters = (
        make.counter("attempts", TEXT, *LABELS),
        prometheus_client.Counter("attempts", TEXT, LABELS, registry=theirs),
    )
    plain = make.plain_counter("flushes", TEXT), prometheus_client.Counter("flushes", TEXT, registry=theirs)
    histograms = (
        make.histograms("wait_seconds", TEXT, LABELS, buckets=bounds),
        prometheus_client.Histogram("wait_seconds", TEXT, LABELS, buckets=bounds, registry=theirs),
    )
    one = (
        make.histogram("lag_seconds", TEXT, buckets=bounds),
        prometheus_client.Histogram("lag_seconds", TEXT, buckets=bounds, registry=theirs),
    )

    for key, amount in increments:
        by = () if amount is None else (amount,)
        for counter in (counters[0][key], counters[1].labels(*key), *plain):
            counter.inc(*by)
    for key, seconds in observations:
        for histogram in (histograms[0][key], histograms[1].labels(*key), *one):
            histogram.observe(seconds)

    for expose in (generate_latest, generate_openmetrics):
        assert expose(theirs).decode() == expose(ours).decode()


def test_a_name_is_registered_once() -> None:
    make = Maker(CollectorRegistry(auto_describe=True))
    make.counter("attempts", "Attempts.", "result")

    with pytest.raises(ValueError, match="Duplicated timeseries"):
        make.plain_counter("attempts", "Attempts.")
