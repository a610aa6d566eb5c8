"""Groups placed by the real daemon over real sockets: all kinds, a kind that comes late, and a restart (docs/spec/groups.md)."""

from __future__ import annotations

import pytest

from simulator.apiserver import GROUPS, LIKE_1_37, ApiServer
from tests.integration.daemon import Rig, rig, until

NAMED_IN = {
    "coscheduling": ("labels", "scheduling.x-k8s.io/pod-group"),
    "volcano": ("annotations", "scheduling.k8s.io/group-name"),
}
OF: dict[str, tuple[str, str]] = {
    "native": ("podgroups", GROUPS[0]),
    "coscheduling": ("podgroups.scheduling.x-k8s.io", GROUPS[1]),
    "volcano": ("podgroups.scheduling.volcano.sh", GROUPS[2]),
}


def add_group(server: ApiServer, kind: str, name: str, least: int) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}} if kind == "native" else {"minMember": least}
    server.create(OF[kind][0], {"metadata": {"name": name}, "spec": spec})


def add_pod(cluster: Rig, kind: str, group: str, name: str, cpu: str) -> None:
    if kind == "native":
        cluster.pod(name, cpu=cpu, schedulingGroup={"podGroupName": group})
    else:
        spec = {
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
            "schedulerName": "kubestow",
        }
        field, key = NAMED_IN[kind]
        cluster.server.create("pods", {"metadata": {"name": name, field: {key: group}}, "spec": spec})


def bound(server: ApiServer) -> set[str]:
    return {each["metadata"]["name"] for each in server.objects("pods") if each["spec"].get("nodeName")}


def reasons(server: ApiServer, name: str) -> list[str]:
    return [each["reason"] for each in server.objects("events") if each["regarding"]["name"] == name]


@pytest.mark.parametrize("kind", OF)
async def test_a_group_starts_whole(kind: str) -> None:
    server = ApiServer(served=(*LIKE_1_37, *GROUPS))
    async with rig(server) as cluster:
        cluster.node("n1", cpu="4")
        add_group(server, kind, "g", 3)
        for at in range(3):
            add_pod(cluster, kind, "g", f"p{at}", "2")
        await until(lambda: reasons(server, "g") == ["FailedScheduling"], lambda: "the event of the refusal")
        assert bound(server) == set()

        cluster.node("n2", cpu="4")
        await until(lambda: bound(server) == {"p0", "p1", "p2"}, lambda: "the whole group")
        await until(
            lambda: reasons(server, "g") == ["FailedScheduling", "GroupScheduled"], lambda: "the event of the start"
        )

        def conditions() -> list[tuple[str, str]]:
            (group,) = server.objects(OF[kind][0])
            return [(each["type"], each["status"]) for each in group.get("status", {}).get("conditions", [])]

        expected = [("PodGroupInitiallyScheduled", "True")] if kind == "native" else []
        await until(lambda: conditions() == expected, lambda: "the condition")


async def test_a_server_without_groups_has_ordinary_pods() -> None:
    server = ApiServer(served=LIKE_1_37)
    async with rig(server) as cluster:
        cluster.node("n1", cpu="4")
        add_pod(cluster, "coscheduling", "g", "p", "1")
        await until(lambda: bound(server) == {"p"}, lambda: "a bound pod")


async def test_a_restart_finds_the_group_of_pods_that_run() -> None:
    """The next daemon places a late pod of a group that has started."""
    server = ApiServer(served=(*LIKE_1_37, *GROUPS))
    async with rig(server) as cluster:
        cluster.node("n1", cpu="4")
        add_group(server, "native", "g", 2)
        for at in range(2):
            add_pod(cluster, "native", "g", f"p{at}", "1")
        await until(lambda: bound(server) == {"p0", "p1"}, lambda: "the group")
    async with rig(server) as cluster:
        add_pod(cluster, "native", "g", "late", "1")
        await until(lambda: bound(server) == {"p0", "p1", "late"}, lambda: "the late pod")
