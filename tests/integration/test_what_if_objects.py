"""A whole daemon and WhatIf objects: a created object gets its answer through kopf, and nothing but its status is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from scheduler.config.types import LeaderElection
from simulator.apiserver import LIKE_1_36, LIKE_1_36_WITH_OURS, ApiServer, Fault
from tests.integration.clocks import HastyClock
from tests.integration.daemon import Rig, rig_on, until

ELECTION = LeaderElection(True, lease_duration_s=3600, renew_deadline_s=3000, retry_period_s=0.2)
Object = dict[str, Any]
PROFILES_ALONE = (*LIKE_1_36, "kubestow.dev/v1alpha1/schedulerprofiles")
WHAT_IFS_ALONE = (*LIKE_1_36, "kubestow.dev/v1alpha1/whatifs")


@pytest.fixture
async def server(clock: HastyClock) -> AsyncIterator[ApiServer]:
    async with ApiServer(clock=clock, served=LIKE_1_36_WITH_OURS) as server:
        yield server


def pod(cpu: str, **more: Any) -> Object:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": "p"}, "kind": "Pod", "spec": {"containers": [container], **more}}


def question(server: ApiServer, name: str, spec: Object, namespace: str = "default") -> None:
    """Create the object, or replace its spec."""
    if server.list("whatifs", field_selector=f"metadata.name={name}"):
        server.patch("whatifs", name, {"spec": spec | {"$patch": "replace"}}, namespace=namespace)
    else:
        server.create("whatifs", {"metadata": {"name": name, "namespace": namespace}, "spec": spec})


def status(server: ApiServer, name: str, namespace: str = "default") -> Object:
    found: Object = server.get("whatifs", name, namespace=namespace).get("status", {})
    return found


async def answered(server: ApiServer, name: str, generation: int = 1, namespace: str = "default") -> Object:
    """Return the status once it is about this generation."""
    await until(
        lambda: status(server, name, namespace).get("observedGeneration") == generation,
        lambda: f"{name}: {status(server, name, namespace)}",
    )
    return status(server, name, namespace)


def writes(server: ApiServer) -> dict[str, int]:
    return {key: n for key, n in server.requests().items() if key.split()[0] in {"patch", "update", "create", "delete"}}


async def test_questions_are_answered_in_the_status_and_nothing_else_is_written(
    server: ApiServer, clock: HastyClock
) -> None:
    question(server, "before", {"manifests": [pod("1")], "replicas": 3})
    question(server, "theirs", {"manifests": [pod("1")], "schedulerName": "other"})
    Rig(server, None).node("n1", cpu="2")  # type: ignore[arg-type] # before there is a daemon
    async with rig_on(server, clock=clock) as cluster:
        assert (await answered(server, "before"))["cause"].startswith("2 of 3 pods fit; none of 1 node fits: ")

        question(server, "fits", {"manifests": [pod("1")], "replicas": 2})
        found = await answered(server, "fits")
        assert (found["verdict"], found["placed"], found["replicas"]) == ("fits", 2, 2)
        assert found["placements"] == [{"pod": "p-0", "node": "n1"}, {"pod": "p-1", "node": "n1"}]
        question(server, "fits", {"manifests": [pod("1")], "replicas": 3})
        found = await answered(server, "fits", generation=2)
        assert (found["verdict"], found["placed"]) == ("doesNotFit", 2)
        assert found["reasons"] == [{"code": "InsufficientResources", "text": "Insufficient cpu", "nodes": 1}]

        question(server, "malformed", {"manifests": [pod("1") | {"kind": "Service"}]})
        found = await answered(server, "malformed")
        assert [each["reason"] for each in found["conditions"]] == ["Malformed"]
        assert "kind 'Service' cannot be placed" in found["cause"]

        assert status(server, "theirs") == {}
        assert writes(server) == {"patch whatifs/status 200": 8}  # begun and answered
        assert cluster.daemon.scheduler.cluster.sizes()["pods"] == 0


async def test_a_tenant_learns_no_names_of_other_namespaces(server: ApiServer, clock: HastyClock) -> None:
    server.create("namespaces", {"metadata": {"name": "secret"}})
    async with rig_on(server, clock=clock) as cluster:
        cluster.node("n1", cpu="2")
        for name, namespace in (("mine", "default"), ("hidden", "secret")):
            body = pod("1", nodeName="n1", schedulerName="kubestow")["spec"]
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "o", "controller": True}
            metadata = {"name": name, "namespace": namespace, "ownerReferences": [owner]}
            server.create("pods", {"metadata": metadata, "spec": body})
        await until(lambda: cluster.daemon.scheduler.cluster.sizes()["pods"] == 2, lambda: "not cached")

        question(server, "drain", {"drain": ["n1"]})
        question(server, "without", {"without": ["secret/hidden"]})
        question(
            server,
            "claim",
            {"manifests": [{"kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "secret"}}]},
        )

        found = await answered(server, "drain")
        assert [each["pod"] for each in found["displaced"]] == ["mine"]
        assert found["displacedElsewhere"] == 1
        assert "hidden" not in str(found)
        for name in ("without", "claim"):
            assert (await answered(server, name))["conditions"][0]["reason"] == "Malformed"


async def test_a_reference_is_a_question_about_further_pods(server: ApiServer, clock: HastyClock) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("1")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    server.create("deployments", {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
    async with rig_on(server, clock=clock) as cluster:
        cluster.node("n1", cpu="3")
        question(server, "more", {"reference": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}})
        question(server, "none", {"reference": {"kind": "Deployment", "name": "api"}})

        found = await answered(server, "more")
        assert (found["replicas"], [each["pod"] for each in found.get("placements", [])]) == (
            2,
            ["web-what-if-0", "web-what-if-1"],
        )
        assert (await answered(server, "none"))["cause"] == "spec.reference: Deployment api does not exist"


async def test_the_pods_of_a_group_get_nodes_together(server: ApiServer, clock: HastyClock) -> None:
    named = pod("1", schedulingGroup={"podGroupName": "g"})
    size = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": size}
    async with rig_on(server, clock=clock) as cluster:
        cluster.node("n1", cpu="2")
        question(server, "whole", {"manifests": [named, group], "replicas": 3})
        found = await answered(server, "whole")

        assert (found["verdict"], found["placed"]) == ("doesNotFit", 0)
        (shown,) = found["groups"]
        assert (shown["group"], shown["minimum"], shown["pods"], shown["placed"]) == ("g", 3, 3, 0)
        assert shown["cause"] == "2 of 3 pods fit together, and 3 have to"


async def test_a_standby_answers_once_it_leads(server: ApiServer) -> None:
    async with rig_on(server, leader_election=ELECTION) as first:
        first.node("n1")
        await first.until(first.leads, "no replica leads")
        async with rig_on(server, leader_election=ELECTION) as second:
            question(server, "a", {"manifests": [pod("1")]})
            await answered(server, "a")
            await first.daemon.stop()
            await second.until(second.leads, "no replica took over")
            question(server, "b", {"manifests": [pod("1")]})
            await answered(server, "b")

    assert writes(server)["patch whatifs/status 200"] == 4  # begun and answered


@pytest.mark.parametrize("fault", [
    pytest.param({"status": 409}, id="a conflict"),
    pytest.param({"status": 500}, id="an error"),
    pytest.param({"reset": "before"}, id="a lost request"),
    pytest.param({"reset": "after"}, id="a lost answer"),
])  # fmt: skip
async def test_a_status_that_is_not_written_is_answered_again(
    server: ApiServer, clock: HastyClock, fault: dict[str, Any]
) -> None:
    planned = server.faults.add(Fault(verb="patch", resource="whatifs", times=1, **fault))
    async with rig_on(server, clock=clock) as cluster:
        cluster.node("n1")
        question(server, "a", {"manifests": [pod("1")]})

        assert (await answered(server, "a"))["conditions"][0]["reason"] == "Answered"
        assert planned.hits == 1


@pytest.mark.parametrize("served", [PROFILES_ALONE, WHAT_IFS_ALONE], ids=["SchedulerProfile alone", "WhatIf alone"])
async def test_one_kind_works_without_the_other(clock: HastyClock, served: tuple[str, ...]) -> None:
    async with ApiServer(clock=clock, served=served) as server, rig_on(server, clock=clock) as cluster:
        cluster.node("n1")
        await until(lambda: cluster.metric("kubestow_shell_up") == {(): 1}, lambda: "not up")
        if served is WHAT_IFS_ALONE:
            question(server, "a", {"manifests": [pod("1")]})
            await answered(server, "a")
        else:
            server.create("schedulerprofiles", {"metadata": {"name": "kubestow"}, "spec": {}})
            await until(lambda: bool(server.get("schedulerprofiles", "kubestow").get("status")), lambda: "no status")

        server.serve(LIKE_1_36_WITH_OURS)

        if served is WHAT_IFS_ALONE:
            server.create("schedulerprofiles", {"metadata": {"name": "kubestow"}, "spec": {}})
            await until(lambda: bool(server.get("schedulerprofiles", "kubestow").get("status")), lambda: "no status")
        else:
            question(server, "a", {"manifests": [pod("1")]})
            await answered(server, "a")


async def test_switched_off_nothing_is_read(server: ApiServer, clock: HastyClock) -> None:
    question(server, "a", {"manifests": [pod("1")]})
    async with rig_on(server, clock=clock, what_if_objects=False) as cluster:
        await until(lambda: cluster.metric("kubestow_shell_up") == {(): 1}, lambda: "not up")

    assert not [key for key in server.requests() if "whatifs" in key]
