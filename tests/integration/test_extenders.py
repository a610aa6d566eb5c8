"""The daemon with real extenders on loopback: the way of a pod through filter, prioritize, preempt and bind."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from scheduler.config.load import parse
from scheduler.config.types import Configuration
from tests.integration.daemon import Rig, rig
from tests.support.extender import Behaviour, TestExtender, extender, filtering, held, scoring

VERBS = {"filter": "filterVerb", "prioritize": "prioritizeVerb", "bind": "bindVerb", "preempt": "preemptVerb"}


@contextlib.asynccontextmanager
async def world(verbs: dict[str, Behaviour], **fields: Any) -> AsyncIterator[tuple[Rig, TestExtender]]:
    """A daemon with one extender of these verbs."""
    async with extender(verbs) as running:
        weight = {"weight": 1} if "prioritize" in verbs else {}
        given = {"urlPrefix": running.url, **{VERBS[verb]: verb for verb in verbs}, **weight, **fields}
        async with rig(extenders=configuration(given).extenders) as on:
            yield on, running


def configuration(*extenders: dict[str, Any]) -> Configuration:
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return parse(json.dumps(kind | {"extenders": extenders}), source="test")


async def unschedulable(on: Rig, name: str) -> str:
    """The message of the pod's condition."""
    await on.until(lambda: bool(on.condition(name)), f"no condition of {name}")
    return str(on.condition(name)["message"])


@pytest.mark.parametrize("is_capable", [True, False], ids=["names of nodes", "whole nodes"])
async def test_an_extender_chooses_the_node(is_capable: bool) -> None:
    verbs = {"filter": filtering("n2", "n3", whole=not is_capable), "prioritize": scoring(n2=1, n3=10)}
    async with world(verbs, nodeCacheCapable=is_capable) as (on, server):
        for name in ("n1", "n2", "n3"):
            on.node(name)
        on.pod("p")
        await on.bound("p")

        assert on.pods() == {"p": "n3"}
        assert server.called("filter") == [("p", ["n1", "n2", "n3"])]
        assert server.called("prioritize") == [("p", ["n2", "n3"])]
        assert server.calls[0][1]["Pod"]["spec"]["containers"][0]["image"] == "none"  # which scheduling does not read


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
        await on.until(lambda: on.daemon.decisions.cluster.nodes.present_slot("n2") is not None, "n2 was not seen")
        await on.until(lambda: on.daemon.decisions.cluster.nodes.present_slot("n1") is None, "n1 was seen")
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
        said = await unschedulable(on, "p")

        assert said.startswith("0/3 nodes are available: 1 no licence, 1 wrong rack. ")
        server.verbs["filter"] = filtering("n3")
        on.node("n4")
        await on.bound("p")

        assert on.pods() == {"p": "n3"}


async def test_an_extender_that_is_down_may_be_ignored() -> None:
    """It is called last, also if the file lists it first."""
    async with extender({"filter": filtering("n1")}) as running:
        down = {"urlPrefix": "http://127.0.0.1:9", "filterVerb": "f", "nodeCacheCapable": True, "ignorable": True}
        up = {"urlPrefix": running.url, "filterVerb": "filter", "nodeCacheCapable": True}
        async with rig(extenders=configuration(down, up).extenders) as on:
            on.node("n1")
            on.node("n2")
            on.pod("p")
            await on.bound("p")

            assert on.pods() == {"p": "n1"}


# -- bind ------------------------------------------------------------------------------------------------------------


def binding(on: list[Rig], *, error: str = "", status: int = 200) -> Behaviour:
    """Bind the pod on the server, and then answer."""

    def bind(args: dict[str, Any]) -> Any:
        if not error:
            on[0].server.bind(args["PodName"], args["Node"], args["PodNamespace"])
        return web.json_response({"Error": error}, status=status)

    return bind


@pytest.mark.parametrize("status", [200, 500], ids=["it says so", "its answer is lost"])
async def test_an_extender_binds(status: int) -> None:
    rigs: list[Rig] = []
    async with world({"bind": binding(rigs, status=status)}) as (on, server):
        rigs.append(on)
        on.node("n1")
        on.pod("p")
        await on.bound("p")
        await on.until(on.daemon.idle, "never idle")

        [(_, args)] = server.calls
        uid = on.server.get("pods", "p")["metadata"]["uid"]
        assert args == {"PodName": "p", "PodNamespace": "default", "PodUID": uid, "Node": "n1"}
        assert on.condition("p").get("status") != "False"


BY_NAME: dict[str, Any] = {"nodeCacheCapable": True}


@pytest.mark.parametrize(
    ("verbs", "fields", "said"),
    [
        pytest.param({"filter": lambda _: {"Error": "out of licences"}}, BY_NAME, "out of licences", id="an error"),
        pytest.param(
            {"filter": lambda _: web.Response(status=500)},
            BY_NAME,
            "failed filter with extender at URL {url}/filter, code 500",
            id="a status",
        ),
        pytest.param(
            {"filter": lambda _: {"NodeNames": ["n9"]}},
            BY_NAME,
            'extender "{url}" claims a filtered node "n9" which is not found in the input node list',
            id="an unknown node",
        ),
        pytest.param(
            {"filter": filtering("n1")},
            {"urlPrefix": "http://127.0.0.1:9"},
            'Post "http://127.0.0.1:9/filter": dial tcp 127.0.0.1:9: connect: connection refused',
            id="it is down",
        ),
        pytest.param(
            {"filter": held(asyncio.Event(), filtering())},
            BY_NAME | {"httpTimeout": "50ms"},
            'Post "{url}/filter": context deadline exceeded (Client.Timeout exceeded while awaiting headers)',
            id="it is too slow",
        ),
        pytest.param({"bind": binding([], error="no")}, {}, "no", id="it does not bind"),
    ],
)
async def test_an_error_of_an_extender_fails_the_attempt(
    verbs: dict[str, Behaviour], fields: dict[str, Any], said: str
) -> None:
    async with world(verbs, **fields) as (on, server):
        on.node("n1")
        on.pod("p")

        assert await unschedulable(on, "p") == said.format(url=server.url)
        assert on.condition("p")["reason"] == "SchedulerError"


async def test_an_ignorable_extender_that_does_not_bind_leaves_it_to_the_plugins() -> None:
    async with world({"bind": binding([], error="no")}, ignorable=True) as (on, _):
        on.node("n1")
        on.pod("p")
        await on.bound("p")
