"""Draw the results of `benchmarks.head_to_head` as an SVG bar chart: pods per second, kube-scheduler next to Kubestow."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Any, Final

_TITLES: Final = {
    "basic": "plain pods",
    "csi": "bound CSI volumes",
    "localpv": "local volumes",
    "dynamic": "provisioned volumes",
    "models": "a device of one of two models",
    "preemption": "preemption",
}
_COMPETITORS: Final = {"kube": ("kube-scheduler", "#8a8f98"), "ours": ("Kubestow", "#2f6fde")}
_WIDTH: Final = 860
_LABELS: Final = 300
_BAR: Final = 15
_ROW: Final = 50
_TOP: Final = 58


@dataclass(frozen=True, slots=True)
class Row:
    """One workload. `pods_per_s` has the median of each competitor; `is_stopped`: kube-scheduler did not finish."""

    title: str
    pods_per_s: dict[str, float]
    is_stopped: bool

    @property
    def ratio(self) -> float:
        """Kubestow's pods per second divided by kube-scheduler's."""
        return self.pods_per_s["ours"] / self.pods_per_s["kube"]


def rows(results: Iterable[dict[str, Any]]) -> list[Row]:
    """Return a row for each workload, in the order of the results."""
    found: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for result in results:
        workload = result["workload"]
        found.setdefault((workload["name"], workload["nodes"], workload["pods"]), []).append(result)
    return [_row(name, nodes, of_workload) for (name, nodes, _), of_workload in found.items()]


def _row(name: str, nodes: int, results: list[dict[str, Any]]) -> Row:
    speeds = {
        who: median(each["pods_per_s"] for each in results if each["competitor"] == who)
        for who in ("kube", "floor", "ours")
        if any(each["competitor"] == who for each in results)
    }
    is_stopped = any(each["competitor"] == "kube" and each["bound"] < each["workload"]["pods"] for each in results)
    return Row(f"{_TITLES[name]}, {nodes} nodes", speeds, is_stopped)


def svg(results: Iterable[dict[str, Any]], source: str) -> str:
    """Return the chart. The axis is logarithmic, because the speeds differ by a factor of a thousand."""
    drawn = rows(results)
    height = _TOP + _ROW * len(drawn) + 34
    longest = max(speed for row in drawn for speed in row.pods_per_s.values())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" font-size="14">',
        "<style>text{font-family:system-ui,sans-serif;fill:#24292f}@media(prefers-color-scheme:dark){text{fill:#e6edf3}}</style>",
        '<text x="0" y="20" font-size="17" font-weight="600">Pods per second (logarithmic axis)</text>',
        *_legend(),
    ]
    for at, row in enumerate(drawn):
        parts += _bars(row, _TOP + at * _ROW, longest)
    parts.append(f'<text x="0" y="{height - 8}" font-size="12">{escape(source)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _legend() -> Iterator[str]:
    for at, (name, color) in enumerate(_COMPETITORS.values()):
        x = _LABELS + at * 150
        yield f'<rect x="{x}" y="30" width="12" height="12" fill="{color}"/><text x="{x + 18}" y="41">{name}</text>'


def _bars(row: Row, top: int, longest: float) -> Iterator[str]:
    yield f'<text x="0" y="{top + 21}">{escape(row.title)}</text>'
    for at, (who, (_, color)) in enumerate(_COMPETITORS.items()):
        speed = row.pods_per_s[who]
        width = (_WIDTH - _LABELS - 150) * math.log1p(speed) / math.log1p(longest)
        y = top + at * (_BAR + 3)
        note = f"{speed:.{0 if speed >= 100 else 1}f}"
        if who == "ours":
            note += f"  ({row.ratio:.1f} ×)"
        elif row.is_stopped:
            note += "  (stopped)"
        yield f'<rect x="{_LABELS}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2" fill="{color}"/>'
        yield f'<text x="{_LABELS + width + 6:.1f}" y="{y + 12}" font-size="13">{note}</text>'


def read(text: str) -> list[dict[str, Any]]:
    """Return the results of a file with one JSON object per line."""
    return [json.loads(line) for line in text.splitlines() if line]
