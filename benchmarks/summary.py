"""Rows and ratios from raw results: medians over the rounds of one call, never absolute times as a pass mark."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.run import Result


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of one competitor."""

    name: str
    rounds: int
    bound: float
    pods_per_s: float
    cpu_ms_per_pod: float
    apiserver_ms_per_pod: float
    peak_mib: float
    start_s: float
    foreign_cores: float
    asked: int
    provisioning_failures: float
    controllers_ms_per_pod: float
    provisioner_ms_per_pod: float
    latency_p50_ms: float | None
    latency_p99_ms: float | None


def rows(results: Sequence[Result]) -> dict[str, Row]:
    """By competitor, in the order of first appearance."""
    names = dict.fromkeys(result.competitor for result in results)
    return {name: _row(name, [result for result in results if result.competitor == name]) for name in names}


def _row(name: str, own: Sequence[Result]) -> Row:
    def median(value: Callable[[Result], float | None]) -> float | None:
        values = [v for v in map(value, own) if v is not None]
        return statistics.median(values) if values else None

    return Row(
        name=name,
        rounds=len(own),
        bound=median(lambda r: r.bound) or 0,
        pods_per_s=median(lambda r: r.pods_per_s) or 0,
        cpu_ms_per_pod=median(lambda r: r.cpu_ms_per_pod) or 0,
        apiserver_ms_per_pod=median(lambda r: r.apiserver_ms_per_pod) or 0,
        peak_mib=(median(lambda r: r.peak_bytes) or 0) / 2**20,
        start_s=median(lambda r: r.start_s) or 0,
        foreign_cores=median(lambda r: r.foreign_cores) or 0,
        asked=own[0].asked,
        provisioning_failures=median(lambda r: r.provisioning_failures) or 0,
        controllers_ms_per_pod=median(lambda r: 1000 * r.controllers_cpu_s / max(1, r.bound)) or 0,
        provisioner_ms_per_pod=median(lambda r: 1000 * r.provisioner_cpu_s / max(1, r.bound)) or 0,
        latency_p50_ms=median(lambda r: None if r.latency_p50_s is None else 1000 * r.latency_p50_s),
        latency_p99_ms=median(lambda r: None if r.latency_p99_s is None else 1000 * r.latency_p99_s),
    )


def ratios(by_name: Mapping[str, Row]) -> list[str]:
    """Each pair that was measured; a floor that is worse than ours is void as a floor."""
    pairs = (("ours", "kube"), ("ours", "older"), ("ours", "before"), ("ours", "floor"), ("floor", "kube"))
    return [_compared(by_name[one], by_name[other]) for one, other in pairs if {one, other} <= by_name.keys()]


def _compared(one: Row, other: Row) -> str:
    if one.latency_p99_ms is not None and other.latency_p99_ms is not None:
        what = f"{_ratio(one.latency_p99_ms, other.latency_p99_ms)} p99 create to bound"
        is_better = one.latency_p99_ms < other.latency_p99_ms
    else:
        what = f"{_ratio(one.pods_per_s, other.pods_per_s)} pods/s"
        is_better = one.pods_per_s > other.pods_per_s
    void = " (void: the floor is below ours)" if other.name == "floor" and is_better else ""
    cut = "".join(f"; {row.name} bound {row.bound:.0f} of {row.asked}" for row in (one, other) if row.bound < row.asked)
    cpu = _ratio(one.cpu_ms_per_pod, other.cpu_ms_per_pod)
    return f"{one.name}/{other.name}: {what}{void}, {cpu} CPU per pod{cut}"


def _ratio(one: float, other: float) -> str:
    return f"{one / other:.2f}" if other else "-"


def show(results: Sequence[Result], title: str) -> None:
    """A table for people and one plain line per competitor and ratio for everything else."""
    by_name = rows(results)
    table = Table(title=title)
    cells = {name: _cells(row) for name, row in by_name.items()}
    # A figure without a meaning in this workload has no column.
    columns = [column for column in next(iter(cells.values()), {}) if any(own[column] for own in cells.values())]
    for column in columns:
        table.add_column(column, justify="left" if column == "scheduler" else "right")
    for own in cells.values():
        table.add_row(*(own[column] or "-" for column in columns))
    console = Console()
    console.width = max(console.width, 160)  # into a file: no narrower than the table
    console.print(table)
    for own in cells.values():
        print(" ".join(f"{column.replace(' ', '_')}={own[column] or '-'}" for column in columns))
    for line in ratios(by_name):
        print(line)


def _cells(row: Row) -> dict[str, str]:
    """By column; empty where there is nothing to say."""

    def if_any(value: float | None, digits: int = 2) -> str:
        return f"{value:.{digits}f}" if value else ""

    return {
        "scheduler": row.name,
        "rounds": str(row.rounds),
        "pods": f"{row.bound:.0f}",
        "left": if_any(max(0, row.asked - row.bound), 0),
        "pods/s": f"{row.pods_per_s:.0f}" if row.pods_per_s >= 20 else f"{row.pods_per_s:.2f}",
        "CPU ms/pod": f"{row.cpu_ms_per_pod:.2f}",
        "apiserver ms/pod": f"{row.apiserver_ms_per_pod:.2f}",
        "controllers ms/pod": if_any(row.controllers_ms_per_pod),
        "provisioner ms/pod": if_any(row.provisioner_ms_per_pod),
        "failed to provision": if_any(row.provisioning_failures, 0),
        "peak MiB": f"{row.peak_mib:.0f}",
        "start s": f"{row.start_s:.1f}",
        "foreign cores": f"{row.foreign_cores:.1f}",
        "p50 ms": if_any(row.latency_p50_ms, 1),
        "p99 ms": if_any(row.latency_p99_ms, 1),
    }
