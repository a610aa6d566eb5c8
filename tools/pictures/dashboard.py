"""Draw panels of the Grafana dashboard as SVG, from answers of a real Prometheus to the dashboard's own queries.

`python -m tests.deploy.record_dashboard` records the answers in docs/results/dashboard.json. Grafana itself is not run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

ROWS: Final = ("Overview", "Queue", "Attempts and latency", "Volumes", "Devices")
"""The rows of the dashboard that are drawn."""
_COLORS: Final = ("#2f6fde", "#e0752d", "#3f9142", "#b83280", "#7b61c4", "#8a8f98", "#c9a227", "#1f9e9e")
_UNITS: Final = {"s": "s", "reqps": "/s", "bytes": "B", "percentunit": "", "none": ""}
_COLUMN: Final = 50
_LINE: Final = 22
_GAP: Final = 8
_STYLE: Final = (
    "<style>text{font-family:system-ui,sans-serif;fill:#24292f;font-size:11px}.title{font-size:13px;font-weight:600}"
    ".row{font-size:16px;font-weight:600}.value{font-size:26px;font-weight:600}.panel{fill:none;stroke:#8a8f98;stroke-opacity:.4}"
    ".axis{stroke:#8a8f98;stroke-opacity:.4}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}}</style>"
)

Series = Sequence[tuple[float, float]]
Answers = Mapping[str, Mapping[str, Series]]
"""Query → name of the series → points as seconds since the start and value."""


def svg(dashboard: Mapping[str, Any], recorded: Mapping[str, Any], source: str) -> str:
    """Return the picture of ROWS. `recorded` has `seconds` and `answers` as the recorder writes them."""
    answers: Answers = recorded["answers"]
    parts: list[str] = []
    top, offset, is_drawn = 0, 0, False
    height = 0
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        if panel["type"] == "row":
            is_drawn = panel["title"] in ROWS
            if is_drawn:
                offset = place["y"] - top
        if not is_drawn:
            continue
        y = place["y"] - offset
        top = max(top, y + place["h"])
        height = top * _LINE
        parts += _panel(panel, place["x"] * _COLUMN, y * _LINE, answers, recorded["seconds"])
    width = 24 * _COLUMN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 24}" role="img">',
            _STYLE,
            *parts,
            f'<text x="4" y="{height + 16}">{escape(source)}</text>',
            "</svg>\n",
        ]
    )


def _panel(panel: Mapping[str, Any], x: int, y: int, answers: Answers, seconds: float) -> Iterator[str]:
    if panel["type"] == "row":
        yield f'<text class="row" x="{x + 4}" y="{y + 17}">{escape(panel["title"])}</text>'
        return
    width, height = panel["gridPos"]["w"] * _COLUMN - _GAP, panel["gridPos"]["h"] * _LINE - _GAP
    unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "none")
    series = {name: points for target in panel["targets"] for name, points in answers[target["expr"]].items()}
    yield f'<g transform="translate({x + _GAP // 2},{y})"><title>{escape(panel.get("description", panel["title"]))}</title>'
    yield f'<rect class="panel" width="{width}" height="{height}" rx="4"/>'
    yield f'<text class="title" x="8" y="16">{escape(panel["title"])}</text>'
    if panel["type"] == "stat":
        yield f'<text class="value" x="8" y="{height - 18}">{escape(_stat(panel, series, unit))}</text>'
    else:
        yield from _lines(series, width, height, seconds, unit)
    yield "</g>"


def _stat(panel: Mapping[str, Any], series: Mapping[str, Series], unit: str) -> str:
    if not series:
        return "no data"
    name, points = next(iter(series.items()))
    is_name = "{{" in (panel["targets"][0].get("legendFormat") or "")
    return name if is_name else amount(points[-1][1], unit)


def _lines(series: Mapping[str, Series], width: int, height: int, seconds: float, unit: str) -> Iterator[str]:
    left, top, right, bottom = 52, 26, width - 10, height - 30
    highest = max((value for points in series.values() for _, value in points), default=0.0) or 1.0
    for part in (0.0, 0.5, 1.0):
        y = bottom - part * (bottom - top)
        yield f'<line class="axis" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{left - 4}" y="{y + 4:.1f}" text-anchor="end">{amount(part * highest, unit)}</text>'
    if not series:
        yield f'<text x="{(left + right) // 2}" y="{(top + bottom) // 2}" text-anchor="middle">no data</text>'
    legend = 8.0
    for at, (name, points) in enumerate(series.items()):
        color = _COLORS[at % len(_COLORS)]
        drawn = " ".join(
            f"{left + second / seconds * (right - left):.0f},{bottom - value / highest * (bottom - top):.0f}"
            for second, value in points
        )
        yield f'<polyline fill="none" stroke="{color}" stroke-width="1.5" points="{drawn}"/>'
        if legend < width - 60:
            yield f'<rect x="{legend:.0f}" y="{height - 17}" width="9" height="3" fill="{color}"/>'
            yield f'<text x="{legend + 12:.0f}" y="{height - 12}">{escape(name[:24])}</text>'
        legend += 26 + 6.2 * len(name[:24])


def amount(value: float, unit: str) -> str:
    """Return a number with three digits and its unit, as short as an axis needs it."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s" and 0 < value < 1:
        return f"{1000 * value:.3g} ms"
    for factor, prefix in ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")) if unit == "bytes" else ((1000, "k"),):
        if value >= factor * (1 if unit == "bytes" else 10):
            return f"{value / factor:.3g} {prefix}{_UNITS[unit]}"
    return f"{value:.3g} {_UNITS[unit]}".rstrip()


def read(text: str) -> Any:
    """Return a JSON document."""
    return json.loads(text)
