"""The self-audit of a running daemon: a store that lost an object, a wrong sum, and /debug/audit. Time is virtual."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import structlog

from scheduler.daemon import list_audit
from tests.integration.daemon import Rig
from tests.integration.metering import DaemonStage, reached, staged

EVERY_S = 60.0
"""In place of an hour, because many bookmarks arrive within an hour."""


def shown(stage: DaemonStage) -> dict[str, Any]:
    return stage.daemon.scheduler.audit.page()


async def passes(stage: DaemonStage, index: str, count: int) -> None:
    """Wait until the index was compared this many times."""
    await reached(
        stage.clock,
        lambda: shown(stage)["indexes"].get(index, {"passes": 0})["passes"] >= count,
        lambda: f"{index} was not compared: {shown(stage)}",
        within_s=10 * EVERY_S,
    )


@mock.patch.object(list_audit, "EVERY_S", EVERY_S)
async def test_an_object_that_the_store_lost_is_found_by_the_next_list_and_the_store_is_healed() -> None:
    async with staged(port=0) as stage:
        stage.node("n1")
        stage.pod("a", cpu="1")
        await stage.until(lambda: bool(stage.pods().get("a")), "never bound")
        await passes(stage, "list-pods", 1)
        reflector = stage.daemon.informers.reflectors["Pod"]
        assert shown(stage)["differences"] == 0
        lost = reflector.store._objects.pop("default/a")

        with structlog.testing.capture_logs() as log:
            await passes(stage, "list-pods", 2)
            await stage.until(lambda: reflector.store.get("default/a") is not None, "the store was not healed")

        found = [line for line in log if line.get("index") == "list-pods"]
        assert [(line["object"], line["cached"], line["log_level"]) for line in found] == [
            ("Pod default/a", "missing", "error")
        ]
        assert found[0]["stored"] == f"{lost.metadata.uid} {lost.metadata.resource_version}"
        assert reflector.stats.relists["audit"] == 1
        assert [] == [line for line in log if line["event"] == "a part of the daemon failed"]

        await passes(stage, "list-pods", 3)
        assert shown(stage)["indexes"]["list-pods"]["differences"] == 1
        status, text = await Rig.get(stage, "/debug/audit")
        page = json.loads(text)
        assert status == 200
        assert page["indexes"]["list-pods"]["lastDifference"]["object"] == "Pod default/a"
        assert page["indexes"]["list-pods"]["compared"] == 3
        assert page["indexes"]["list-nodes"]["differences"] == 0
        assert page["indexes"]["requests"]["passes"] >= 2
        assert not any("skipped" in each for each in page["indexes"].values())


async def test_a_wrong_sum_is_corrected_within_minutes() -> None:
    async with staged() as stage:
        stage.node("n1")
        await stage.until(lambda: stage.daemon.idle() and len(stage.daemon.scheduler.cluster.nodes) == 1, "no node")
        nodes = stage.daemon.scheduler.cluster.nodes
        nodes.requested[0, 0] = 4000
        stage.pod("a", cpu="1")
        await stage.until(lambda: "Insufficient cpu" in stage.condition("a").get("message", ""), "not refused")
        await stage.until(lambda: bool(stage.pods().get("a")), "not tried again after the correction")
        assert shown(stage)["indexes"]["requests"]["lastDifference"]["field"] == "requested cpu"
        assert nodes.requested[0, 0] == 1000


async def test_a_standby_audits_its_cache() -> None:
    async with staged() as stage:
        stage.node("n1")
        await stage.until(lambda: stage.daemon.idle() and len(stage.daemon.scheduler.cluster.nodes) == 1, "no node")
        stage.daemon.scheduler.loop._may_pop = lambda: False
        stage.pod("a", cpu="1")
        await passes(stage, "requests", 2)
        assert stage.daemon.scheduler.queue.counts()["active"] == 1
        assert shown(stage)["differences"] == 0
