"""WhatIf objects on a real control plane: the chart's CustomResourceDefinition, metadata over kopf, RBAC, and the status."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import ClientSession

from scheduler.customresources.what_if_question import STATUS_MAX
from scheduler.kube.resources import WHAT_IF
from scheduler.kube.writes.permissions import WHAT_IF_RULES, RbacRule
from tests.contract.test_contract_profiles import CRDS
from tests.e2e.cluster import Cluster, Json, node, pod, until
from tests.e2e.controlplane.harness import SCHEDULER_NAME, ControlPlane, daemon
from tests.e2e.controlplane.process import ServerProcess
from tests.e2e.faultproxy import ALL, FaultProxy, ProxyStage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

REPOSITORY = Path(__file__).parents[2]
CRD = REPOSITORY / "deploy/helm/files/whatifs-crd.yaml"
SECTION = (REPOSITORY / "docs" / "explain.md").read_text(encoding="utf-8").partition("## As an object")[2]
WHAT_IFS = f"/apis/{WHAT_IF.group_versions[0]}/namespaces/default/{WHAT_IF.plural}"
HEAD: Json = {"apiVersion": WHAT_IF.group_versions[0], "kind": "WhatIf"}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
READING = {RbacRule(WHAT_IF.group, WHAT_IF.plural, verb) for verb in ("list", "watch")}
ANSWERING = set(WHAT_IF_RULES)
MINUTE_S = 150.0
"""What is looked for once a minute, on a machine that is three times slower."""


def documented() -> Json:
    """Return the manifest of the documentation."""
    (found,) = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
    manifest: Json = yaml.safe_load(found)
    return manifest


@dataclass
class Scene:
    """A cluster that serves WhatIf objects and has two nodes of 4 CPUs."""

    plane: ControlPlane
    http: ClientSession

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.http)

    async def open(self) -> None:
        await self.cluster.wipe()
        async with self.http.post(CRDS, json=yaml.safe_load(CRD.read_text(encoding="utf-8"))) as answer:
            assert answer.status in {201, 409}, await answer.text()
        await until(self._is_served, "the kind is served")
        await self.cluster.create(*(node(name, labels={"scene": "what-if"}) for name in ("a", "b")))

    async def close(self) -> None:
        async with self.http.delete(WHAT_IFS) as answer:
            assert answer.status == 200, await answer.text()
        await self.cluster.wipe()

    async def _is_served(self) -> bool:
        async with self.http.get(WHAT_IFS) as answer:
            return answer.status == 200

    async def create(self, name: str, spec: Json) -> None:
        async with self.http.post(WHAT_IFS, json=HEAD | {"metadata": {"name": name}, "spec": spec}) as answer:
            assert answer.status == 201, await answer.text()

    async def answered(self, name: str, *, server: ServerProcess) -> Json:
        """Wait until the status is about the newest spec, and return it."""

        async def status() -> Json | None:
            now = await self.cluster.get(f"{WHAT_IFS}/{name}")
            found: Json = now.get("status", {})
            return found if found.get("observedGeneration") == now["metadata"]["generation"] else None

        return await until(status, f"an answer to {name}", server=server, within_s=MINUTE_S)


@pytest.fixture
async def scene(control_plane: ControlPlane) -> AsyncIterator[Scene]:
    async with control_plane.client() as http:
        scene = Scene(control_plane, http)
        await scene.open()
        yield scene
        await scene.close()


def tiny(cpu: str) -> Json:
    """Return a pod as a user writes it."""
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}


async def test_a_question_is_answered_and_answered_again_when_it_changes(scene: Scene) -> None:
    await scene.create("before", {"manifests": [tiny("3")], "replicas": 2})
    with daemon(scene.plane) as server:
        assert (await scene.answered("before", server=server))["verdict"] == "fits"

        await scene.create("later", {"manifests": [tiny("3")], "replicas": 3})
        status = await scene.answered("later", server=server)
        assert (status["verdict"], status["placed"], status["replicas"]) == ("doesNotFit", 2, 3)
        assert sorted(each["node"] for each in status["placements"]) == ["a", "b"]
        assert status["reasons"] == [{"code": "InsufficientResources", "text": "Insufficient cpu", "nodes": 2}]

        added: Json = {"spec": {"addNodesLike": {"a": 1}}}
        merge = {"Content-Type": "application/merge-patch+json"}
        async with scene.http.patch(f"{WHAT_IFS}/later", json=added, headers=merge) as answer:
            assert answer.status == 200, await answer.text()
        status = await scene.answered("later", server=server)
        assert (status["verdict"], status["placed"], status.get("reasons")) == ("fits", 3, None)

        found = await scene.cluster.get(f"{WHAT_IFS}/later")
        assert {"annotations", "finalizers"}.isdisjoint(found["metadata"])


async def test_the_documented_object_is_answered(scene: Scene) -> None:
    manifest = documented()
    async with scene.http.post(f"{WHAT_IFS}?fieldValidation=Strict", json=manifest) as answer:
        assert answer.status == 201, await answer.text()
    with daemon(scene.plane) as server:
        status = await scene.answered(manifest["metadata"]["name"], server=server)
    assert [each["reason"] for each in status["conditions"]] == ["Answered"]

    async with scene.http.get(f"{WHAT_IFS}/{manifest['metadata']['name']}", headers={"Accept": TABLE}) as answer:
        table = await answer.json()
    columns = [column["name"].upper() for column in table["columnDefinitions"]]
    cells = [str(cell) for cell in table["rows"][0]["cells"]]
    shown = SECTION.partition("$ kubectl get whatif")[2].splitlines()[1:3]
    assert [re.split(r"\s{2,}", line)[:5] for line in shown] == [columns[:5], cells[:5]]
    assert columns[5:] == ["AGE"]


async def test_a_reference_and_the_largest_answer(scene: Scene) -> None:
    await scene.cluster.create(pod("pending", SCHEDULER_NAME, {"nodeSelector": {"disk": "fast"}}, cpu="1"))
    with daemon(scene.plane) as server:
        await scene.create("reference", {"reference": {"apiVersion": "v1", "kind": "Pod", "name": "pending"}})
        status = await scene.answered("reference", server=server)
        assert (status["verdict"], status["reasons"][0]["code"]) == ("doesNotFit", "NodeAffinityMismatch")

        await scene.create("large", {"manifests": [tiny("1m")], "replicas": 200})
        status = await scene.answered("large", server=server)
        assert (len(status["placements"]), status["placementsOmitted"]) == (100, status["placed"] - 100)
        assert len(msgspec.json.encode(status)) < STATUS_MAX

        log = server.output()
        assert ("could not be read" in log, "ended and restarts" in log) == (False, False), log


async def test_the_server_refuses_what_the_schema_excludes(scene: Scene) -> None:
    specs: dict[str, Any] = {
        "spec.manifests": {"manifests": [tiny("1")] * 101},
        "spec.manifests[0].kind": {"manifests": [{"apiVersion": "v1", "metadata": {"name": "p"}}]},
        "spec.replicas": {"replicas": 1001},
        "spec.addNodesLike.a": {"addNodesLike": {"a": 0}},
        "spec.drain[0]": {"drain": [1]},
        "spec.reference.kind": {"reference": {"kind": "Secret", "name": "s"}},
        "spec.reference.name": {"reference": {"kind": "Pod", "name": "../secrets"}},
        "spec": None,
    }
    for path, spec in specs.items():
        async with scene.http.post(WHAT_IFS, json=HEAD | {"metadata": {"name": "w"}, "spec": spec}) as answer:
            body = await answer.json()
        assert (answer.status, path) == (422, path), body
        assert path in [cause["field"] for cause in body["details"]["causes"]], body
    async with scene.http.post(f"{WHAT_IFS}?dryRun=All", json=HEAD | {"metadata": {"name": "w"}, "spec": {}}) as answer:
        assert (answer.status, (await answer.json())["spec"]) == (201, {"schedulerName": "kubestow"})


async def test_the_permissions_of_the_chart_suffice(scene: Scene) -> None:
    async with FaultProxy(scene.plane) as proxy:
        stage = ProxyStage(scene.plane, proxy, scene.http)
        token = await stage.account()
        await stage.permit(ALL | READING | ANSWERING)
        path = scene.plane.directory / "what-if.kubeconfig"
        config = yaml.safe_load(scene.plane.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        path.write_text(yaml.safe_dump(config))
        await scene.create("a", {"reference": {"kind": "Deployment", "name": "none"}})
        await scene.create("b", {"manifests": [tiny("1")]})
        with daemon(scene.plane, flags=[f"--kubeconfig={path}"]) as server:
            assert (await scene.answered("a", server=server))["cause"].endswith("Deployment none does not exist")
            assert (await scene.answered("b", server=server))["verdict"] == "fits"
