"""docs/metrics.md, and what every metric of ours must have."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.metrics.instruments import Description
from scheduler.metrics.metrics import Metrics
from tests.unit.metrics.test_metrics import used
from tools.metrics_page import reference

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
ALL = Metrics(process=False).described()
OURS = [each for each in ALL if each.name.startswith("kubestow_")]
COUNTED = ("_steps", "_victims", "_attempts")
"""Histograms of numbers, which have no unit."""


def test_the_page_is_what_the_code_says() -> None:
    """Else: python -m tools.metrics_page > docs/metrics.md"""
    head, _, process = reference().partition("\n## The process\n")
    assert head == PAGE.read_text().partition("\n## The process\n")[0]
    assert "process_resident_memory_bytes" in process


def test_nothing_is_shown_that_is_not_described() -> None:
    """With the labels and the type that the page has."""
    described = {each.name: each for each in ALL}
    for family in text_string_to_metric_families(used().render().decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        each = described[name]
        assert (each.kind, each.text) == (family.type, family.documentation)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(each.labels), name


def test_each_has_a_name_of_its_own() -> None:
    """Also across those that are read at a scrape."""
    assert len({each.name for each in ALL}) == len(ALL)


@pytest.mark.parametrize("each", ALL, ids=lambda each: each.name)
def test_text_and_unit(each: Description) -> None:
    """A sentence; counters end in _total, histograms in their unit, gauges of times in seconds."""
    assert each.text.endswith(".")
    assert each.text[0].isupper() or each.text[0].isdigit()
    assert each.name.endswith("_total") == (each.kind == "counter")
    if each.kind == "histogram":
        assert each.name.endswith(("_seconds", *COUNTED))
        assert list(each.buckets) == sorted(each.buckets)
    assert not each.name.endswith(("_ms", "_minutes", "_gib", "_milliseconds"))
    assert not {"pod", "node", "namespace", "claim", "name"} & set(each.labels) or each.name.startswith(
        "leader_election"
    )


@pytest.mark.parametrize("each", OURS, ids=lambda each: each.name)
def test_ours_do_not_say_what_they_are_twice(each: Description) -> None:
    """No type in the name."""
    assert not {"gauge", "counter", "histogram"} & set(each.name.split("_"))
