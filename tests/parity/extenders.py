"""Scenarios with extenders (extenders.yaml): the calls that a scheduler makes, and its first verdict.

Extenders are configured for a whole scheduler, so each scenario has its own one, which starts when the cluster is
complete. `python -m tests.parity.record_extenders` records kube-scheduler; `test_extenders` replays Kubestow.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

import yaml
from aiohttp import web

from tests.e2e.controlplane.harness import scheduler_config
from tests.parity.answers import HERE, RecordedAnswers
from tests.parity.api import ScenarioApi, put, put_budgets, put_pods, wipe
from tests.parity.scenario import Scenario, named, scenario
from tests.parity.words import Json
from tests.support.extender import Behaviour, TestExtender, extender, filtering, names, scoring

ANSWERS: Final = RecordedAnswers("extender")
SCHEDULER_NAME: Final = "extended"
_VERBS: Final = {"filter": "filterVerb", "prioritize": "prioritizeVerb", "bind": "bindVerb", "preempt": "preemptVerb"}
_PATIENCE_S: Final = 60.0

Bind = Callable[[str, str], Awaitable[None]]
"""Binds a pod of the default namespace to a node."""


@dataclass(frozen=True)
class Scene:
    """A cluster, the pod that is tried, and the extenders."""

    cluster: Scenario
    extenders: tuple[Json, ...]

    @property
    def key(self) -> str:
        return self.cluster.id


def scenes() -> list[Scene]:
    read = yaml.safe_load((HERE / "extenders.yaml").read_text(encoding="utf-8"))
    return [Scene(scenario("extenders", short), tuple(given)) for short in read for given in [short.pop("extenders")]]


async def verdict(
    scene: Scene, api: ScenarioApi, bind: Bind, start: Callable[[Json], AbstractAsyncContextManager[None]]
) -> Json:
    """Return what a scheduler does with the pod. `start` runs it with a configuration."""
    await wipe(api)
    await put(api, scene.cluster)
    await put_budgets(api, scene.cluster)
    await put_pods(api, scene.cluster, waiting_for=SCHEDULER_NAME)
    [pod] = scene.cluster.asked.values()
    uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in await api.items("Pod")}
    async with contextlib.AsyncExitStack() as stack:
        world = _World(bind, uids)
        running = [await stack.enter_async_context(_serve(given, world)) for given in scene.extenders]
        fields = [_fields(given, one.url) for given, one in zip(scene.extenders, running, strict=True)]
        created = await api.create(named(pod, SCHEDULER_NAME))
        if status := pod.get("status"):
            created = await api.patch("Pod", created["metadata"]["name"], "default", {"status": status})
        await stack.enter_async_context(start(configuration(fields)))
        async with asyncio.timeout(_PATIENCE_S):
            found = await api.first(created, _first_verdict)
            calls = [
                [at, verb, world.summary(verb, args)] for at, one in enumerate(running) for verb, args in one.calls
            ]
            if found.get("nominated"):
                found["victims"] = await _victims(api, uids)
        return {**_without_urls(found, running), "calls": calls}


def configuration(extenders: list[Json]) -> Json:
    """Return the configuration of both schedulers. No pod is tried twice within a minute."""
    patient = {"podInitialBackoffSeconds": 60, "podMaxBackoffSeconds": 60}
    return scheduler_config(SCHEDULER_NAME) | patient | {"extenders": extenders}


@dataclass
class _World:
    """The API server as extenders see it."""

    bind: Bind
    uids: Mapping[str, str]

    def summary(self, verb: str, args: Json) -> Any:
        """Return what differs between calls: nodes, victims by name, and which fields were sent."""
        sent = sorted(key for key, value in args.items() if value is not None)
        if verb == "bind":
            return [args["PodName"], args["PodNamespace"], args["Node"], sent]
        if verb != "preempt":
            return [args["Pod"]["metadata"]["name"], names(args), sent]
        by_uid = {uid: name for name, uid in self.uids.items()}
        found: Json = {}
        for name, victims in (args["NodeNameToMetaVictims"] or args["NodeNameToVictims"]).items():
            pods = [
                by_uid[each["UID"]] if "UID" in each else each["metadata"]["name"] for each in victims["Pods"] or ()
            ]
            found[name] = [sorted(pods), victims["NumPDBViolations"]]
        return [args["Pod"]["metadata"]["name"], dict(sorted(found.items())), sent]


def _serve(given: Json, world: _World) -> AbstractAsyncContextManager[TestExtender]:
    return extender({verb: _behaviour(verb, given[verb], world) for verb in _VERBS if verb in given})


def _fields(given: Json, url: str) -> Json:
    fields = {key: value for key, value in given.items() if key not in _VERBS}
    return {"urlPrefix": url, **fields, **{field: verb for verb, field in _VERBS.items() if verb in given}}


def _behaviour(verb: str, given: Json, world: _World) -> Behaviour:
    if "status" in given:
        return lambda _: web.Response(status=given["status"])
    if "answer" in given:
        return lambda _: given["answer"]
    if "error" in given:
        return lambda _: {"Error": str(given["error"])}
    if given.get("hangs"):
        return lambda _: asyncio.Event().wait()
    match verb:
        case "filter":
            failed, unresolvable = given.get("failed"), given.get("unresolvable")
            whole = given.get("whole", False)
            return filtering(*given.get("pass", ()), failed=failed, unresolvable=unresolvable, whole=whole)
        case "prioritize":
            return scoring(**given)
        case "preempt":
            return _preempting(given, world)
    return _binding(world)


def _preempting(given: Json, world: _World) -> Behaviour:
    violations = given.get("violations", {})
    answer = {
        name: {
            "Pods": [{"UID": world.uids.get(victim, victim)} for victim in victims],
            "NumPDBViolations": violations.get(name, 0),
        }
        for name, victims in given.items()
        if name != "violations"
    }
    return lambda _: {"NodeNameToMetaVictims": answer}


def _binding(world: _World) -> Behaviour:
    async def bind(args: Json) -> Json:
        await world.bind(args["PodName"], args["Node"])
        return {"Error": ""}

    return bind


def _first_verdict(version: Json) -> Json | None:
    """Return the verdict in this version of the pod; None if there is none yet."""
    if node_name := version["spec"].get("nodeName"):
        return {"node": node_name}
    status = version.get("status", {})
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            found = {"reason": condition["reason"], "message": condition["message"]}
            return {**found, "nominated": status.get("nominatedNodeName", "")}
    return None


async def _victims(api: ScenarioApi, uids: Mapping[str, str]) -> list[str]:
    """Return the pods that are deleted or leaving; wait for the first of them."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        there = {
            each["metadata"]["name"] for each in await api.items("Pod") if "deletionTimestamp" not in each["metadata"]
        }
        if gone := sorted(uids.keys() - there):
            return gone
        assert time.monotonic() < deadline, "no victim leaves"
        await asyncio.sleep(0.01)


def _without_urls(found: Json, running: list[TestExtender]) -> Json:
    text = json.dumps(found)
    for at, one in enumerate(running):
        text = text.replace(one.url, f"<extender {at}>")
    replaced: Json = json.loads(text)
    return replaced
