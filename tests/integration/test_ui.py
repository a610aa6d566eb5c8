"""The page /ui of a running daemon: the scheduling loop builds its data."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.clocks import HastyClock
from tests.integration.daemon import rig


async def test_the_page_of_a_running_daemon() -> None:
    async with rig(serves_ui=True) as cluster:
        cluster.node("n1", cpu="4")
        cluster.pod("placed", cpu="3")
        cluster.pod("big-0", cpu="9")
        cluster.pod("big-1", cpu="9")
        await cluster.bound("placed")
        await cluster.until(lambda: all(cluster.condition(f"big-{at}") for at in (0, 1)), "no conditions")

        text = await cluster.shows(
            lambda status, found: status == 200 and _pending(found) == [("Insufficient cpu", 2)], "/ui/data"
        )
        shown = json.loads(text)
        cause = shown["causes"][0]["id"]
        rows = json.loads((await cluster.get(f"/ui/data?cause={cause}"))[1])
        (node,) = json.loads((await cluster.get("/ui/data?cell=0"))[1])["nodes"]

        assert (shown["facts"]["leads"], shown["facts"]["schedulers"], shown["bound"]) == (True, ["kubestow"], 1)
        assert shown["cells"][0]["use"][0] == [75, 75, 75]
        assert [row["pod"] for row in rows["pods"]] == ["default/big-0", "default/big-1"]
        assert "0/1 nodes are available: 1 Insufficient cpu." in rows["pods"][0]["message"]
        assert node["use"][0] == {"resource": "cpu", "used": "3", "of": "4", "percent": 75}
        assert (await cluster.get("/ui"))[0] == 200


async def test_the_last_hour_of_a_running_daemon(clock: HastyClock) -> None:
    """Seconds are milliseconds, so a minute is over soon. Each pod is bound in one of the minutes."""
    async with rig(clock=clock, serves_ui=True) as cluster:
        cluster.node("n1", cpu="4")
        for at in range(3):
            cluster.pod(f"p{at}", cpu="1")
        cluster.pod("large", cpu="9")
        await cluster.bound("p0", "p1", "p2")

        text = await cluster.shows(lambda status, found: status == 200 and _bound(found) == 3, "/ui/data")

        assert json.loads(text)["history"][-1]["pending"]["unschedulable"] == 1


def _bound(text: str) -> int:
    return sum(point["attempts"].get("scheduled", 0) for point in json.loads(text)["history"])


def _pending(text: str) -> list[Any]:
    return [(each["text"], each["pods"]) for each in json.loads(text)["causes"]]


async def test_the_page_is_off_by_default() -> None:
    async with rig() as cluster:
        assert (await cluster.get("/ui"))[0] == 404
