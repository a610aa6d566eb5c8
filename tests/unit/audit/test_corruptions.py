"""Each planted corruption is found by the check of its index, logged with both sides, counted, and healed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import structlog

from tests.unit.audit.corruptions import CORRUPTIONS, rows
from tests.unit.audit.planted import Harm
from tests.unit.audit.world import world


@pytest.mark.parametrize(("index", "harm"), rows())
async def test_a_corruption_is_found_and_healed(index: str, harm: Harm) -> None:
    here = await world()
    audit = here.parts.audit
    here.run_pass()
    assert not any(audit.counts().values())

    harm(here)
    with structlog.testing.capture_logs() as log:
        here.run_pass()

    lines = [line for line in log if line.get("index") == index]
    assert lines
    assert all(line["cached"] != line["stored"] for line in lines)
    assert audit.counts()[index] >= len(lines)
    assert audit.page()["indexes"][index]["lastDifference"]["field"] == lines[-1]["field"]
    assert [] == here.differences()
    assert not any(here.parts.errors.counts.values())


async def test_each_index_has_a_corruption() -> None:
    here = await world()
    assert set(here.parts.audit.checks) == {each.of for each in CORRUPTIONS}


async def test_the_documentation_has_each_index() -> None:
    here = await world()
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    table = page.partition("## Self-audit")[2].partition("## Logs")[0]
    named = {
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`([\w-]+)`", row)
    }
    assert {name for name in named if not name.startswith("list-")} == set(here.parts.audit.checks)
