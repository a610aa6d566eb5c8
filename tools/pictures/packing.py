"""Draw the results of `benchmarks.packing` as curves: the share of GPUs that is allocated, and the share that is fragmented."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from statistics import mean
from typing import Any, Final

COLORS: Final = {
    "leastFragmentation": "#2f6fde",
    "leastFragmentation first": "#1f9e9e",
    "FGD, as published": "#e0752d",
    "pack": "#7b61c4",
    "kube-scheduler": "#3f9142",
    "random": "#8a8f98",
}
"""The policies that are drawn."""
_WIDTH: Final = 420
_HEIGHT: Final = 300
_FROM: Final = 70
"""Per cent of the GPUs that arrived, at the left end."""
_STYLE: Final = (
    "<style>text{font-family:system-ui,sans-serif;fill:#24292f;font-size:12px}.title{font-size:14px;font-weight:600}"
    ".axis{stroke:#8a8f98;stroke-opacity:.4}@media(prefers-color-scheme:dark){text{fill:#e6edf3}}</style>"
)


def means(results: Iterable[Mapping[str, Any]], field: str) -> dict[str, list[float]]:
    """Return policy → the mean over the seeds after each per cent that arrived."""
    curves: dict[str, list[Sequence[float]]] = {}
    for result in results:
        curves.setdefault(result["policy"], []).append(result[field])
    return {policy: [mean(at) for at in zip(*some)] for policy, some in curves.items()}


def svg(results: Sequence[Mapping[str, Any]], source: str) -> str:
    """Return both diagrams side by side, with one legend."""
    drawn = [policy for policy in COLORS if any(result["policy"] == policy for result in results)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _WIDTH + 20} {_HEIGHT + 90}" role="img">',
        _STYLE,
    ]
    diagrams = (("allocated", "allocated, % of all GPUs", 84, 97), ("fragmented", "fragmented, % of all GPUs", 3, 16))
    for at, (field, title, lowest, highest) in enumerate(diagrams):
        curves = means(results, field)
        parts.append(f'<g transform="translate({at * (_WIDTH + 20)},0)">')
        parts += _diagram({policy: curves[policy] for policy in drawn}, title, lowest, highest)
        parts.append("</g>")
    for at, policy in enumerate(drawn):
        x, y = 40 + at % 3 * 260, _HEIGHT + 40 + at // 3 * 18
        parts.append(f'<rect x="{x}" y="{y - 6}" width="16" height="3" fill="{COLORS[policy]}"/>')
        parts.append(f'<text x="{x + 22}" y="{y}">{escape(policy)}</text>')
    parts.append(f'<text x="0" y="{_HEIGHT + 84}">{escape(source)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _diagram(curves: Mapping[str, Sequence[float]], title: str, lowest: float, highest: float) -> Iterator[str]:
    left, top, right, bottom = 36, 34, _WIDTH - 14, _HEIGHT - 24

    def y(value: float) -> float:
        return bottom - (value - lowest) / (highest - lowest) * (bottom - top)

    def x(arrived: int) -> float:
        return left + (arrived - _FROM) / (130 - _FROM) * (right - left)

    yield f'<text class="title" x="{left}" y="18">{escape(title)}</text>'
    for value in range(int(lowest) + 1, int(highest), 2):
        yield f'<line class="axis" x1="{left}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        yield f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value}</text>'
    for arrived in range(_FROM, 131, 10):
        yield f'<text x="{x(arrived):.1f}" y="{bottom + 18}" text-anchor="middle">{arrived}</text>'
    yield f'<text x="{(left + right) // 2}" y="{bottom + 36}" text-anchor="middle">% of all GPUs requested so far</text>'
    for policy, values in curves.items():
        points = (
            f"{x(arrived):.1f},{y(value):.1f}" for arrived, value in enumerate(values) if 130 >= arrived >= _FROM and value >= lowest
        )  # fmt: skip
        yield f'<polyline fill="none" stroke="{COLORS[policy]}" stroke-width="2" points="{" ".join(points)}"/>'


def read(text: str) -> list[dict[str, Any]]:
    """Return the results of a file with one JSON object per line."""
    return [json.loads(line) for line in text.splitlines() if line]
