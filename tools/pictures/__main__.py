"""`python -m tools.pictures` writes docs/pictures: charts and dashboard from docs/results, the terminal from a run of the examples."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tools.pictures import chart, dashboard, packing, terminal

ROOT: Final = Path(__file__).parents[2]
PICTURES: Final = ROOT / "docs" / "pictures"
RESULTS: Final = ROOT / "docs" / "results" / "2026-11-26-1.37.jsonl"
DASHBOARD: Final = ROOT / "docs" / "results" / "dashboard.json"
DASHBOARD_SOURCE: Final = "Drawn from a real Prometheus' answers to the dashboard's queries (docs/results/dashboard.json); Grafana was not run."
SOURCE: Final = "2 cores for etcd, API server, load and scheduler; kube-scheduler 1.37.2; docs/results/2026-11-26-1.37.jsonl has all rounds"
PACKING: Final = ROOT / "docs" / "results" / "2026-11-30-packing.jsonl"
PACKING_SOURCE: Final = (
    "Alibaba's trace openb, 1213 nodes with 6212 GPUs, mean of the seeds; docs/results/2026-11-30-packing.jsonl"
)


def performance() -> str:
    """Return the bar chart."""
    return chart.svg(chart.read(RESULTS.read_text(encoding="utf-8")), SOURCE)


def packed() -> str:
    """Return the curves of packing."""
    return packing.svg(packing.read(PACKING.read_text(encoding="utf-8")), PACKING_SOURCE)


def monitoring() -> str:
    """Return the panels of the Grafana dashboard."""
    panels = dashboard.read((ROOT / "deploy" / "helm" / "files" / "dashboard.json").read_text(encoding="utf-8"))
    return dashboard.svg(panels, dashboard.read(DASHBOARD.read_text(encoding="utf-8")), DASHBOARD_SOURCE)


def demo() -> str:
    """Run the second part of `make demo` and return its output as a picture."""
    command = [sys.executable, "-m", "scheduler", "simulate", "examples/volumes.yaml"]
    output = terminal.recorded(command, ROOT)
    return terminal.drawn([("kubestow simulate examples/volumes.yaml", output)], "make demo")


def main() -> None:
    """Write all pictures."""
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "performance.svg").write_text(performance(), encoding="utf-8")
    (PICTURES / "packing.svg").write_text(packed(), encoding="utf-8")
    (PICTURES / "dashboard.svg").write_text(monitoring(), encoding="utf-8")
    (PICTURES / "demo.svg").write_text(demo(), encoding="utf-8")


if __name__ == "__main__":
    main()
