"""Print the answer of a replay: a table for people, and a page with pictures."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from scheduler.core.terminal import printable
from scheduler.server.ui.page import embedded
from simulator.replay.answer import PodTimesAnswer, ReplayAnswer, RunAnswer, UseAnswer
from simulator.simulate.report import plain

_ROWS_MAX: Final = 50
"""Pods in a table of the page."""
_DATA: Final = b'<script type="application/json" id="data">null</script>'
_UNITS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "m"))


def as_table(answer: ReplayAnswer) -> Table:
    """Return the runs side by side."""
    table = Table(box=SIMPLE_HEAD, title=_title(answer), title_justify="left")
    table.add_column("")
    for run in answer.runs:
        table.add_column(plain(f"{run.name}\n{_source(run)}"), justify="right")
    for title, text in _COUNTS:
        table.add_row(title, *map(text, answer.runs))
    for key in dict.fromkeys((use.group, use.name, use.pool) for run in answer.runs for use in run.use):
        group, name, pool = key
        title = f"{name}{f' in {pool}' if pool else ''}"
        cells = [_share(_found(run, key)) for run in answer.runs]
        table.add_row(plain(f"{title}, mean (peak)" if group != "storage" else f"{title}, mean"), *cells)
    return table


def notes(answer: ReplayAnswer) -> Iterator[str]:
    """Yield what a reader of the numbers must know."""
    if answer.recording.is_cut_short:
        yield "the recording ends abruptly; everything up to its last whole line was replayed"
    for run in answer.runs:
        if run.refused_events:
            yield f"{run.name}: {run.refused_events} events could not be replayed, such as {printable(run.problems[0])}"


def as_html(answer: ReplayAnswer) -> bytes:
    """Return a page that needs no network: the charts are drawn by uPlot, which is inside of it."""
    whole = _page()
    head, place, tail = whole.partition(_DATA)
    assert place
    return b"".join((head, place.replace(b"null", embedded(_shown(answer))), tail))


# -- the table ---------------------------------------------------------------------------------------------------------


def _title(answer: ReplayAnswer) -> Text:
    recording = answer.recording
    names = ", ".join(answer.scheduler_names)
    return plain(
        f"{recording.started_at}, {duration(recording.duration_s)}, {recording.events} events, pods of {names}"
    )


def _source(run: RunAnswer) -> str:
    return "" if run.name == "recorded" else f"{run.config or 'default'}, {run.version}"


_COUNTS: Final[Sequence[tuple[str, Callable[[RunAnswer], str]]]] = (
    ("pods that arrived", lambda run: str(run.arrived)),
    ("bound", lambda run: str(run.bound)),
    ("waiting at the end", lambda run: str(run.waiting)),
    ("preempted", lambda run: str(run.preempted)),
    ("wait, mean", lambda run: duration(run.wait.mean_s)),
    ("wait, 50 %", lambda run: duration(run.wait.p50_s)),
    ("wait, 90 %", lambda run: duration(run.wait.p90_s)),
    ("wait, 99 %", lambda run: duration(run.wait.p99_s)),
    ("wait, longest", lambda run: duration(run.wait.max_s)),
)


def _found(run: RunAnswer, key: tuple[str, str, str]) -> UseAnswer | None:
    return next((use for use in run.use if (use.group, use.name, use.pool) == key), None)


def _share(use: UseAnswer | None) -> str:
    if use is None:
        return "-"
    if not any(use.capacity):
        return f"{sum(use.used) / len(use.used):.4g}"
    return f"{use.mean:.1%} ({use.peak:.1%})"


def duration(seconds: float) -> str:
    """Return a time as `2h03m`, `12.3s` or `15ms`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    for (size, unit), (below, below_unit) in zip(_UNITS, (*_UNITS[1:], (1.0, "s"))):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}{int(seconds % size // below):02d}{below_unit}"
    return f"{seconds:.1f}s"


# -- the page ----------------------------------------------------------------------------------------------------------


def _shown(answer: ReplayAnswer) -> dict[str, Any]:
    """Return the data of the page: all series, and of the pods those with the longest waits and largest differences."""
    shown: dict[str, Any] = msgspec.to_builtins(answer)
    for run, of_page in zip(answer.runs, shown["runs"]):
        longest = sorted(run.pods, key=lambda pod: (-_waited(answer, pod), pod.pod))[:_ROWS_MAX]
        of_page["pods"] = msgspec.to_builtins([each for each in longest if _waited(answer, each) > 0])
        del of_page["decisions"]
    shown["differences"] = _differences(answer)
    return shown


def _waited(answer: ReplayAnswer, pod: PodTimesAnswer) -> float:
    """Return how long the pod waited, for one without a node until its end or that of the recording."""
    if pod.waited_s is not None or pod.arrived_s is None:
        return pod.waited_s or 0.0
    end_s = answer.recording.duration_s if pod.ended_s is None else pod.ended_s
    return max(0.0, end_s - pod.arrived_s)


def _differences(answer: ReplayAnswer) -> list[list[Any]]:
    """Return the pods that waited longest in one of the last two runs and not in the other: name and both times."""
    if len(answer.runs) < 2:
        return []
    first, second = ({pod.pod: pod for pod in run.pods} for run in answer.runs[-2:])
    rows = [(name, _waited(answer, first[name]), _waited(answer, second[name])) for name in first if name in second]
    rows.sort(key=lambda row: (-abs(row[2] - row[1]), row[0]))
    return [list(row) for row in rows[:_ROWS_MAX] if row[1] != row[2]]


@cache
def _page() -> bytes:
    """Return the page with the library in it, and the policy that allows these scripts and styles only."""
    folder = files("simulator.replay")
    page = folder.joinpath("replay.html").read_bytes()
    library, style, licence = (
        folder.joinpath(f"uPlot.{name}").read_bytes() for name in ("iife.min.js", "min.css", "LICENSE")
    )
    page = page.replace(b"/* uPlot.min.css */", style.strip()).replace(
        b"/* uPlot.iife.min.js */", b"/*!\n" + licence.strip() + b"\n*/\n" + library.strip()
    )
    styles, scripts = (
        " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'" for text in found)
        for found in (
            re.findall(rb"<style>(.*?)</style>", page, re.DOTALL),
            re.findall(rb"<script>(.*?)</script>", page, re.DOTALL),
        )
    )
    policy = (
        f"default-src 'none'; style-src-elem {styles}; style-src-attr 'unsafe-inline'; script-src {scripts};"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )
    return page.replace(b"POLICY", policy.encode(), 1)
