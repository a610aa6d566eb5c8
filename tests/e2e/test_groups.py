"""Groups on a real API server: all kinds of objects, their conditions and events, and a daemon that is killed (docs/spec/groups.md)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.cluster import NODES, PODS, Cluster, collection, node, pod, until
from tests.e2e.controlplane.build import VERSION
from tests.e2e.controlplane.harness import SCHEDULER_NAME, ControlPlane, daemon, started

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

NATIVE = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
COSCHEDULING = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"


def crd(group: str, version: str) -> dict[str, Any]:
    """A kind named PodGroup of this API group; its schema lets everything pass."""
    approval = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podgroups.{group}", "annotations": approval},
        "spec": {
            "group": group,
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup", "listKind": "PodGroupList"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }


CRDS = {path: crd(*path.split("/")[2:4]) for path in (COSCHEDULING, VOLCANO)}
NAMED_IN = {
    COSCHEDULING: ("labels", "scheduling.x-k8s.io/pod-group"),
    VOLCANO: ("annotations", "scheduling.k8s.io/group-name"),
}
HAS_NATIVE = not VERSION.startswith("v1.36")
"""1.36 has an older version of the API alone, which Kubestow does not read."""


async def is_served(http: aiohttp.ClientSession, path: str) -> bool:
    async with http.get(path) as answer:
        return answer.status == 200


@pytest.fixture(scope="module")
def plane(control_plane_binaries: Path) -> Iterator[ControlPlane]:
    """A server with the gates for groups, and the CRDs of the coscheduling plugin and of Volcano."""
    gates = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
    gate = [gates, "--runtime-config=scheduling.k8s.io/v1beta1=true"]

    async def prepare(plane: ControlPlane) -> None:
        async with plane.client() as http:
            for path, kind in CRDS.items():
                async with http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=kind) as answer:
                    assert answer.status == 201, await answer.text()
                await until(partial(is_served, http, path), "the CRD")

    with started(ControlPlane(apiserver_flags=gate if HAS_NATIVE else []), prepare) as plane:
        yield plane


@pytest.fixture
async def cluster(plane: ControlPlane, http: aiohttp.ClientSession) -> AsyncIterator[Cluster]:
    cluster = Cluster(http)
    yield cluster
    await cluster.wipe()
    for path in (*((NATIVE,) if HAS_NATIVE else ()), *CRDS):
        for item in (await cluster.get(path))["items"]:
            await cluster.delete(f"{path}/{item['metadata']['name']}")


def group(path: str, name: str, least: int) -> dict[str, Any]:
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}} if path == NATIVE else {"minMember": least}
    return {"apiVersion": "/".join(path.split("/")[2:4]), "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def member(path: str, of: str, name: str, cpu: str) -> dict[str, Any]:
    if path == NATIVE:
        return pod(name, SCHEDULER_NAME, {"schedulingGroup": {"podGroupName": of}}, cpu=cpu)
    made = pod(name, SCHEDULER_NAME, cpu=cpu)
    field, key = NAMED_IN[path]
    made["metadata"][field] = {key: of}
    return made


async def create(http: aiohttp.ClientSession, path: str, item: dict[str, Any]) -> None:
    async with http.post(path, json=item) as answer:
        assert answer.status == 201, await answer.text()


async def bound(cluster: Cluster) -> set[str]:
    items = (await cluster.get(PODS))["items"]
    return {item["metadata"]["name"] for item in items if item["spec"].get("nodeName")}


PATHS = [
    *((pytest.param(NATIVE, id="scheduling.k8s.io"),) if HAS_NATIVE else ()),
    pytest.param(COSCHEDULING, id="scheduling.x-k8s.io"),
    pytest.param(VOLCANO, id="scheduling.volcano.sh"),
]


@pytest.mark.parametrize("path", PATHS)
async def test_a_group_starts_whole(
    plane: ControlPlane, cluster: Cluster, http: aiohttp.ClientSession, path: str
) -> None:
    name = {NATIVE: "native", COSCHEDULING: "labelled", VOLCANO: "annotated"}[path]
    await cluster.create(node("n1", cpu="4"))
    with daemon(plane) as server:
        await create(http, path, group(path, name, 3))
        for at in range(2):
            await cluster.create(member(path, name, f"{name}-{at}", "2"))
        await cluster.create(pod("ordinary", SCHEDULER_NAME, cpu="100m"))

        async def the_ordinary_pod_runs() -> bool:
            return await bound(cluster) == {"ordinary"}

        await until(the_ordinary_pod_runs, "a pod without a group", server=server)
        await cluster.create(member(path, name, f"{name}-2", "2"))

        async def is_refused() -> bool:
            events = (await cluster.get(collection("Event"), fieldSelector=f"regarding.name={name}"))["items"]
            return [event["reason"] for event in events] == ["FailedScheduling"]

        await until(is_refused, "the event of the refused group", server=server)
        assert await bound(cluster) == {"ordinary"}, "two of three would fit"
        await cluster.create(node("n2", cpu="4"))

        async def all_run() -> bool:
            return await bound(cluster) == {"ordinary", *(f"{name}-{at}" for at in range(3))}

        await until(all_run, "the whole group", server=server)
        if path == NATIVE:

            async def has_condition() -> bool:
                conditions = (await cluster.get(f"{NATIVE}/{name}"))["status"].get("conditions") or []
                return [(each["type"], each["status"], each["reason"]) for each in conditions] == [
                    ("PodGroupInitiallyScheduled", "True", "Scheduled")
                ]

            await until(has_condition, "the condition of the group", server=server)
        assert "Traceback" not in server.output()


@pytest.mark.skipif(not HAS_NATIVE, reason="the coscheduling kind has no topology constraints")
async def test_a_group_starts_in_one_domain(plane: ControlPlane, cluster: Cluster, http: aiohttp.ClientSession) -> None:
    for rack in ("r1", "r2"):
        await cluster.create(node(f"{rack}a", cpu="4", labels={"rack": rack}))
    wanted = group(NATIVE, "near", 3)
    wanted["spec"]["schedulingConstraints"] = {"topology": [{"key": "rack"}]}
    with daemon(plane) as server:
        await create(http, NATIVE, wanted)
        for at in range(3):
            await cluster.create(member(NATIVE, "near", f"near-{at}", "2"))

        async def is_refused() -> bool:
            conditions = (await cluster.get(f"{NATIVE}/near")).get("status", {}).get("conditions") or []
            return [each["reason"] for each in conditions] == ["Unschedulable"]

        await until(is_refused, "the condition of the refused group", server=server)
        message = (await cluster.get(f"{NATIVE}/near"))["status"]["conditions"][0]["message"]
        assert "0/2 placements are available, first placement status: " in message
        assert await bound(cluster) == set(), "three would fit in both racks together"
        await cluster.create(node("r2b", cpu="4", labels={"rack": "r2"}))

        async def all_run() -> bool:
            return await bound(cluster) == {f"near-{at}" for at in range(3)}

        await until(all_run, "the whole group", server=server)
        pods = (await cluster.get(PODS))["items"]
        assert {each["spec"]["nodeName"][:2] for each in pods} == {"r2"}


@pytest.mark.parametrize("path", PATHS[:1])
async def test_a_daemon_that_is_killed_starts_the_group_whole(
    plane: ControlPlane, cluster: Cluster, http: aiohttp.ClientSession, path: str
) -> None:
    """Ten groups of twenty pods, and kills while they are placed: what a kill leaves in part, the next daemon completes."""
    await cluster.create(*(node(f"n{at}", cpu="100") for at in range(4)))
    for number in range(10):
        await create(http, path, group(path, f"k{number}", 20))
    names = {f"k{number}-{at}" for number in range(10) for at in range(20)}
    pods = [member(path, name.partition("-")[0], name, "1") for name in sorted(names)]
    creating = asyncio.create_task(cluster.create(*pods))
    for _ in range(4):
        with daemon(plane) as server:
            before = len(await bound(cluster))

            async def some_are_bound(before: int = before) -> bool:
                return len(await bound(cluster)) > before or len(await bound(cluster)) == len(names)

            await until(some_are_bound, "some bound pods", server=server)
            server.kill()
    await creating
    with daemon(plane) as server:

        async def all_run() -> bool:
            return await bound(cluster) == names

        await until(all_run, "all groups", server=server)
    assert (await cluster.get(NODES))["items"]
