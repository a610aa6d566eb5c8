"""docs/pictures: each picture that a page shows exists and has a text, and the chart is drawn from the committed results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.pictures import chart
from tools.pictures.__main__ import PICTURES, RESULTS, ROOT, monitoring, packed, performance

_SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)]+\.(?:svg|png))\)")
_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown() -> list[tuple[Path, str, str]]:
    return [(page, text, path) for page in _PAGES for text, path in _SHOWN.findall(page.read_text(encoding="utf-8"))]


def test_pictures_exist_and_have_a_text() -> None:
    wrong = [f"{page.name}: {path}" for page, text, path in shown() if not text or not (page.parent / path).is_file()]

    assert wrong == []


def test_every_picture_is_shown_and_small() -> None:
    used = {(page.parent / path).resolve() for page, _, path in shown()}

    assert set(PICTURES.glob("*")) == used
    assert [each.name for each in PICTURES.glob("*") if each.stat().st_size > 200_000] == []


def test_pictures_load_nothing_from_elsewhere() -> None:
    """A picture of a terminal would load its fonts from another site."""
    text = "".join(each.read_text(encoding="utf-8") for each in PICTURES.glob("*.svg"))

    assert re.findall(r"(?:url\(|href=)[\"']?https?:", text) == []


def test_the_chart_is_drawn_from_the_results() -> None:
    """Write it with: python -m tools.pictures"""
    assert (PICTURES / "performance.svg").read_text(encoding="utf-8") == performance()
    assert (PICTURES / "packing.svg").read_text(encoding="utf-8") == packed()


def test_the_dashboard_is_drawn_from_the_recorded_answers() -> None:
    """A panel that is added or changed needs a new recording: python -m tests.deploy.record_dashboard"""
    assert (PICTURES / "dashboard.svg").read_text(encoding="utf-8") == monitoring()


def test_the_page_has_the_figures_of_the_results() -> None:
    """The overview of docs/performance.md, and nothing that was not measured."""
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| ([^|]+ nodes) \| ([\d.]+)[^|]*\| ([\d.]+)[^|]*\| ([\d.]*)", page, re.MULTILINE)
    rows = {row.title: row for row in chart.rows(chart.read(RESULTS.read_text(encoding="utf-8")))}

    assert [title for title, *_ in table] == list(rows)
    for title, kube, ours, floor in table:
        speeds = rows[title].pods_per_s
        assert float(kube) == pytest.approx(speeds["kube"], rel=0.02)
        assert float(ours) == pytest.approx(speeds["ours"], rel=0.02)
        assert not floor or float(floor) == pytest.approx(speeds["ours"] / speeds["floor"], rel=0.02)
