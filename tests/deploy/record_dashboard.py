"""`python -m tests.deploy.record_dashboard` sends every query of the Grafana dashboard to a real Prometheus and keeps the answers.

The daemon runs on the in-process API server (`monitored`) until MINUTES are over; Prometheus scrapes it every second.
docs/results/dashboard.json has the answers, and `python -m tools.pictures` draws them.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.deploy.monitored import Monitored, monitored
from tests.deploy.prometheus import Prometheus, filled, scraping
from tests.deploy.test_monitoring import PANELS, RULES

RESULT: Final = Path(__file__).parents[2] / "docs" / "results" / "dashboard.json"
MINUTES: Final = 4
ROUNDS: Final = 14
"""The cluster has devices for 15."""
STEP_S: Final = 5
RATE_INTERVAL: Final = "30s"


def legend(template: str, labels: dict[str, str]) -> str:
    """Return the name of a series as Grafana makes it."""
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda name: labels.get(name[1], ""), template).strip()


def points(series: dict[str, Any], start: float) -> list[tuple[int, float]]:
    """Return the finite values, as seconds since the start and three digits."""
    values = ((round(second - start), float(value)) for second, value in series["values"])
    return [(second, float(f"{value:.3g}")) for second, value in values if math.isfinite(value)]


async def answers(server: Prometheus, start: float, end: float) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Return query → series → points of all panels."""
    found: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for target in (target for panel in PANELS for target in panel["targets"]):
        result = await server.range(filled(target["expr"], RATE_INTERVAL), start, end, STEP_S)
        named = ((legend(target.get("legendFormat") or "", each["metric"]), points(each, start)) for each in result)
        found[target["expr"]] = {name: drawn for name, drawn in named if drawn}
    return found


async def _load(world: Monitored, start: float) -> None:
    for number in range(ROUNDS):
        await world.round()
        await asyncio.sleep(max(0.0, start + (number + 1) * 60 * MINUTES / ROUNDS - time.time()))


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with monitored() as world, scraping(world.port, Path(directory), rules=[RULES]) as server:
            start = time.time()
            end = start + 60 * MINUTES
            await _load(world, start)
            recorded = {"seconds": 60 * MINUTES, "answers": await answers(server, start, end)}
    RESULT.write_text(json.dumps(recorded, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
