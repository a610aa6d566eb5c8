"""SchedulerProfile objects on a real control plane: the chart's CustomResourceDefinition, kopf over TLS, RBAC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml
from aiohttp import ClientSession

from scheduler.kube.resources import SCHEDULER_PROFILE
from scheduler.kube.writes.permissions import PROFILE_RULES, RbacRule
from tests.contract.test_contract_profiles import CRD, CRDS, PROFILES
from tests.e2e.cluster import Cluster, Json, node, pod, until
from tests.e2e.controlplane.harness import SCHEDULER_NAME, ControlPlane, daemon
from tests.e2e.controlplane.process import ServerProcess, free_port
from tests.e2e.faultproxy import ALL, FaultProxy, ProxyStage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PROFILE = f"{PROFILES}/{SCHEDULER_NAME}"
READING = {RbacRule(SCHEDULER_PROFILE.group, SCHEDULER_PROFILE.plural, verb) for verb in ("list", "watch")}
TELLING = set(PROFILE_RULES)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
MINUTE_S = 150.0
"""What is looked for once a minute, on a machine that is three times slower."""


def fit(strategy: str, weight: int = 1) -> Json:
    """NodeResourcesFit is the only score."""
    return {
        "plugins": {
            "score": {"enabled": [{"name": "NodeResourcesFit", "weight": weight}], "disabled": [{"name": "*"}]}
        },
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": strategy}}}],
    }


MOST, LEAST = fit("MostAllocated"), fit("LeastAllocated")


@dataclass
class Scene:
    """A cluster with SchedulerProfile objects, one node that is half full, and one that is empty."""

    plane: ControlPlane
    http: ClientSession
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.http)

    async def open(self) -> None:
        await self.cluster.wipe()
        async with self.http.post(CRDS, json=yaml.safe_load(CRD.read_text())) as answer:
            assert answer.status in {201, 409}, await answer.text()
        await until(self._is_served, "the kind is served")
        await self.forget()
        await self.cluster.create(*(node(name, labels={"scene": "profiles"}) for name in ("full", "empty")))
        await self.cluster.create(pod("there", SCHEDULER_NAME, {"nodeName": "full"}, cpu="2", memory="4Gi"))

    async def _is_served(self) -> bool:
        async with self.http.get(PROFILES) as answer:
            return answer.status == 200

    async def forget(self) -> None:
        async with self.http.delete(PROFILE) as answer:
            assert answer.status in {200, 404}, await answer.text()

    async def wish(self, spec: Json) -> None:
        head = {"apiVersion": "kubestow.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": SCHEDULER_NAME}}
        async with self.http.get(PROFILE) as found:
            now: Json = await found.json() if found.status == 200 else {}
        if not now:
            async with self.http.post(PROFILES, json=head | {"spec": spec}) as answer:
                assert answer.status == 201, await answer.text()
            return
        async with self.http.put(PROFILE, json=head | {"metadata": now["metadata"], "spec": spec}) as answer:
            assert answer.status == 200, await answer.text()

    async def status(self) -> Json:
        found: Json = (await self.cluster.get(PROFILE)).get("status", {})
        return found

    async def has_state(self, state: str, *, server: ServerProcess) -> Json:
        """Wait until the condition is about the newest spec and has this state."""

        async def said() -> Json | None:
            now = await self.cluster.get(PROFILE)
            for condition in now.get("status", {}).get("conditions", []):
                has_state = (condition["status"], condition["observedGeneration"])
                if has_state == (state, now["metadata"]["generation"]):
                    return dict(condition)
            return None

        return await until(said, f"InForce={state}", server=server, within_s=MINUTE_S)

    async def placed(self, name: str, *, server: ServerProcess) -> str:
        """The node of a small pod."""
        await self.cluster.create(pod(name, SCHEDULER_NAME, cpu="100m"))

        async def bound() -> str:
            return await self.cluster.node_of(name)

        return await until(bound, f"pod {name} is bound", server=server)

    async def readyz(self) -> str:
        async with ClientSession() as http, http.get(f"http://127.0.0.1:{self.port}/readyz?verbose") as answer:
            return await answer.text() if answer.status == 200 else ""

    async def says(self, words: str, *, server: ServerProcess) -> None:
        """Wait for these words in a /readyz that passes."""

        async def said() -> bool:
            return words in await self.readyz()

        await until(said, words, server=server, within_s=MINUTE_S)


async def ends_cleanly(server: ServerProcess) -> None:
    """It stops when the signal says so, and nothing in it failed by surprise until then."""
    await asyncio.to_thread(server.terminate, 60.0)
    output = server.output()
    before, trace, after = output.partition("Traceback")
    assert not trace, before[-500:] + trace + after
    assert server.exit_code == 0, server.tail()


@pytest.fixture
async def scene(control_plane: ControlPlane) -> AsyncIterator[Scene]:
    async with control_plane.client() as http:
        scene = Scene(control_plane, http)
        await scene.open()
        yield scene
        await scene.forget()
        await scene.cluster.wipe()


async def test_a_profile_is_changed_refused_and_forgotten(scene: Scene) -> None:
    with daemon(scene.plane, flags=[f"--plain-port={scene.port}"]) as server:
        assert await scene.placed("a", server=server) == "empty"

        await scene.wish(MOST)
        await scene.has_state("True", server=server)
        assert await scene.placed("b", server=server) == "full"

        await scene.wish(fit("MostAllocated", 7) | {"plugins": {"score": {"enabled": [{"name": "NodeResourceFit"}]}}})
        said = await scene.has_state("False", server=server)
        assert said["reason"] == "Invalid"
        assert said["message"].startswith('spec.plugins.score.enabled[0].name: unknown plugin "NodeResourceFit"')
        assert (await scene.status())["inForceGeneration"] == 1
        assert await scene.placed("c", server=server) == "full"
        await scene.says(
            "[+]scheduler-profiles ok (SchedulerProfile kubestow is not in force: spec.plugins.", server=server
        )

        async with scene.http.get(PROFILES, headers={"Accept": TABLE}) as answer:
            table = await answer.json()
        columns = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
        row = dict(zip((column["name"] for column in table["columnDefinitions"]), table["rows"][0]["cells"]))
        assert columns == ["Name", "In Force", "Changes", "Reason", "Age"]
        assert (row["Name"], row["In Force"], row["Reason"]) == (SCHEDULER_NAME, "False", "Invalid")
        assert "args: NodeResourcesFit" in row["Changes"]

        await scene.forget()

        async def forgotten() -> bool:
            return "not in force" not in await scene.readyz() and "profile is as in the file" in server.output()

        await until(forgotten, "the file counts again", server=server, within_s=MINUTE_S)
        assert await scene.placed("d", server=server) == "empty"

        await ends_cleanly(server)


async def test_what_the_schema_knows_the_server_refuses_itself(scene: Scene) -> None:
    head: Json = {"apiVersion": "kubestow.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": "schema"}}
    specs: dict[str, Any] = {
        "spec.plugins.score.enabled[0].weight": {"plugins": {"score": {"enabled": [{"name": "A", "weight": "heavy"}]}}},
        "spec.percentageOfNodesToScore": {"percentageOfNodesToScore": 101},
        "spec.pluginConfig[0].name": {"pluginConfig": [{"args": {}}]},
        "spec.pluginConfig": {"pluginConfig": [{"name": f"p{at}"} for at in range(257)]},
    }
    for path, spec in specs.items():
        async with scene.http.post(PROFILES, json=head | {"spec": spec}) as answer:
            body = await answer.json()
        assert (answer.status, [cause["field"] for cause in body["details"]["causes"]]) == (422, [path])
    args = {"kind": "KubestowArgs", "anything": [{"goes": 1}]}
    spec = {"pluginConfig": [{"name": "Kubestow", "args": args}]}
    async with scene.http.post(f"{PROFILES}?dryRun=All&fieldValidation=Strict", json=head | {"spec": spec}) as answer:
        body = await answer.json()
    assert (answer.status, body["spec"]) == (201, spec)


async def test_a_server_that_comes_back_is_watched_again(scene: Scene) -> None:
    with daemon(scene.plane, flags=[f"--plain-port={scene.port}"]) as server:
        await scene.wish(LEAST)
        await scene.has_state("True", server=server)

        await scene.plane.restart_apiserver()

        assert await scene.placed("a", server=server) == "empty"
        await scene.wish(MOST)
        await scene.has_state("True", server=server)
        assert await scene.placed("b", server=server) == "full"

        await ends_cleanly(server)


async def test_without_permissions_pods_are_bound_all_the_same(scene: Scene) -> None:
    async with FaultProxy(scene.plane) as proxy:
        stage = ProxyStage(scene.plane, proxy, scene.http)
        token = await stage.account()
        path = scene.plane.directory / "profiles.kubeconfig"
        config = yaml.safe_load(scene.plane.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        path.write_text(yaml.safe_dump(config))
        await scene.wish(MOST)
        with daemon(scene.plane, flags=[f"--plain-port={scene.port}", f"--kubeconfig={path}"]) as server:
            assert await scene.placed("a", server=server) == "empty"
            await scene.says("SchedulerProfiles cannot be read: ", server=server)

            await stage.permit(ALL | READING)
            await scene.says("the status of SchedulerProfile kubestow cannot be written: ", server=server)
            assert await scene.placed("b", server=server) == "full"
            assert await scene.status() == {}

            await stage.permit(ALL | READING | TELLING)
            await scene.has_state("True", server=server)

            await ends_cleanly(server)
