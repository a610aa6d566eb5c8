"""The daemon with real extenders on loopback: what happens while an extender is called, and when its answer is lost.

Calls and verdicts are in the recordings of kube-scheduler (tests/parity/extenders.yaml)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from scheduler.config.load import parse
from tests.integration.daemon import Rig, rig
from tests.support.extender import Behaviour, TestExtender, extender, filtering, held


@contextlib.asynccontextmanager
async def world(verbs: dict[str, Behaviour], **fields: Any) -> AsyncIterator[tuple[Rig, TestExtender]]:
    """A daemon with one extender of these verbs."""
    async with extender(verbs) as running:
        given = {"urlPrefix": running.url, **{f"{verb}Verb": verb for verb in verbs}, **fields}
        kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        config = parse(json.dumps(kind | {"extenders": [given]}), source="test")
        async with rig(extenders=config.extenders) as on:
            yield on, running


async def test_other_pods_go_on_while_an_extender_is_slow() -> None:
    """The pods of the extender are tried one after another, the most important first."""
    gate = asyncio.Event()
    verbs = {"filter": held(gate, filtering("n1"))}
    async with world(verbs, nodeCacheCapable=True, managedResources=[{"name": "a.b/c"}]) as (on, server):
        on.node("n1", **{"a.b/c": "9"})

        def managed(name: str, priority_class: str) -> None:
            resources = {"requests": {"a.b/c": "1"}, "limits": {"a.b/c": "1"}}
            container = {"name": "c", "image": "i", "resources": resources}
            on.pod(name, containers=[container], priorityClassName=priority_class)

        for name, value in (("minor", 1), ("major", 2)):
            on.server.create("priorityclasses", {"metadata": {"name": name}, "value": value})
        managed("first", "minor")
        await on.until(lambda: bool(server.calls), "the extender was not called")
        managed("low", "minor")
        managed("high", "major")
        on.pod("other")
        await on.bound("other")

        assert [pod for pod, _ in server.called("filter")] == ["first"]
        assert not on.daemon.idle()
        gate.set()
        await on.bound("first", "low", "high")
        assert [pod for pod, _ in server.called("filter")] == ["first", "high", "low"]


async def test_what_changed_during_a_call_counts() -> None:
    """The node that it accepted is gone when it answers, so it is called again with the new one."""
    gate = asyncio.Event()
    async with world({"filter": held(gate, filtering("n1", "n2"))}, nodeCacheCapable=True) as (on, server):
        on.node("n1")
        on.pod("p")
        await on.until(lambda: bool(server.calls), "the extender was not called")
        on.server.delete("nodes", "n1")
        on.node("n2")
        await on.until(lambda: on.daemon.scheduler.cluster.nodes.present_slot("n2") is not None, "n2 was not seen")
        await on.until(lambda: on.daemon.scheduler.cluster.nodes.present_slot("n1") is None, "n1 was seen")
        gate.set()
        await on.bound("p")

        assert on.pods() == {"p": "n2"}
        assert server.called("filter") == [("p", ["n1"]), ("p", ["n2"])]


async def test_a_pod_that_is_deleted_while_its_extender_is_called_is_forgotten() -> None:
    gate = asyncio.Event()
    async with world({"filter": held(gate, filtering("n1"))}, nodeCacheCapable=True) as (on, server):
        on.node("n1")
        on.pod("p")
        await on.until(lambda: bool(server.calls), "the extender was not called")
        on.server.delete("pods", "p")
        gate.set()
        await on.until(on.daemon.idle, "never idle")
        on.pod("q")
        await on.bound("q")


async def test_a_stopping_daemon_does_not_wait_for_an_extender() -> None:
    """The call is cancelled; the pod is for the next leader."""
    async with world({"filter": held(asyncio.Event(), filtering())}, nodeCacheCapable=True) as (on, server):
        on.node("n1")
        on.pod("p")
        await on.until(lambda: bool(server.calls), "the extender was not called")
        await on.daemon.stop()

        assert on.pods() == {"p": ""}


async def test_130_reasons_of_an_extender_are_shown_and_any_event_wakes_its_pod() -> None:
    verbs = {"filter": filtering(failed={"n1": "no licence"}, unresolvable={"n2": "wrong rack"})}
    async with world(verbs, nodeCacheCapable=True) as (on, server):
        for name in ("n1", "n2", "n3"):
            on.node(name)
        on.pod("p")
        await on.until(lambda: bool(on.condition("p")), "no condition of p")

        assert on.condition("p")["message"].startswith("0/3 nodes are available: 1 no licence, 1 wrong rack. ")
        server.verbs["filter"] = filtering("n3")
        on.node("n4")
        await on.bound("p")

        assert on.pods() == {"p": "n3"}


async def test_an_extender_binds_and_its_answer_is_lost() -> None:
    rigs: list[Rig] = []

    def bind(args: dict[str, Any]) -> web.Response:
        rigs[0].server.bind(args["PodName"], args["Node"], args["PodNamespace"])
        return web.Response(status=500)

    async with world({"bind": bind}) as (on, server):
        rigs.append(on)
        on.node("n1")
        on.pod("p")
        await on.bound("p")
        await on.until(on.daemon.idle, "never idle")

        assert len(server.calls) == 1
        assert on.condition("p").get("status") != "False"
