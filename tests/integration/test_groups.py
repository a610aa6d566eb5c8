"""Groups placed by the real daemon over real sockets: all kinds, a kind that comes late, and a restart (docs/spec/groups.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.apiserver import GROUPS, LIKE_1_37, ApiServer
from tests.integration.daemon import Rig, rig, until
from tests.support.jsonschema import mistakes

NAMED_IN = {
    "coscheduling": ("labels", "scheduling.x-k8s.io/pod-group"),
    "volcano": ("annotations", "scheduling.k8s.io/group-name"),
}
OF: dict[str, tuple[str, str]] = {
    "native": ("podgroups", GROUPS[0]),
    "coscheduling": ("podgroups.scheduling.x-k8s.io", GROUPS[1]),
    "volcano": ("podgroups.scheduling.volcano.sh", GROUPS[2]),
}

API_GROUPS = {"native": "scheduling.k8s.io", "coscheduling": "scheduling.x-k8s.io", "volcano": "scheduling.volcano.sh"}
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "explain-group.schema.json").read_text())


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


@pytest.mark.parametrize("kind", OF)
async def test_a_group_is_explained(kind: str) -> None:
    """Its members of other schedulers are counted, and the answer of one of its pods names the pod that fits nowhere."""
    server = ApiServer(served=(*LIKE_1_37, *GROUPS))
    async with rig(server) as cluster:
        cluster.node("n1", cpu="4")
        add_group(server, kind, "g", 3)
        for name, cpu in {"small0": "1", "small1": "1", "large": "6"}.items():
            add_pod(cluster, kind, "g", name, cpu)
        foreign = server.get("pods", "small0")
        foreign["metadata"] = {key: foreign["metadata"].get(key, {}) for key in ("labels", "annotations")} | {
            "name": "x"
        }
        foreign["spec"]["schedulerName"] = "other"
        server.create("pods", foreign)
        await until(lambda: reasons(server, "g") == ["FailedScheduling"], lambda: "the event of the refusal")

        status, body = await cluster.get("/debug/explain/default/g?group")
        found = json.loads(body)
        assert status == 200
        assert found["apiGroup"] == API_GROUPS[kind]
        assert found["cause"] == "2 of 3 pods fit together, and 3 have to"
        assert (found["verdict"], found["exitCode"], found["minimum"]) == ("doesNotFit", 2, 3)
        assert (found["members"], found["otherSchedulers"]) == ({"waiting": 3}, {"other": 1})
        assert found["blocking"] == ["default/large"]
        assert found["explanation"]["fixes"][0]["verified"]
        assert "no preemption victims found" in found["preemption"].lower()
        assert list(mistakes(found, SCHEMA)) == []
        shown = (await cluster.get(f"/debug/explain/default/g?group={API_GROUPS[kind]}&output=text"))[1]
        assert shown.startswith(
            f"default/g (PodGroup of {API_GROUPS[kind]}): 2 of 3 pods fit together, and 3 have to\n"
        )
        assert "note: 1 pod of it names the scheduler other\n" in shown
        assert (await cluster.get("/debug/explain/default/none?group"))[0] == 404
        of_a_pod = json.loads((await cluster.get("/debug/explain/default/small0"))[1])
        assert "default/large: none of 1 node fits: 1 Insufficient cpu" in of_a_pod["cause"]
        assert bound(server) == set()

        cluster.node("n2", cpu="8")
        await until(lambda: bound(server) == {"small0", "small1", "large"}, lambda: "the whole group")
        await cluster.shows(lambda _, text: '"Bound"' in text, "/debug/explain/default/g?group")


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
