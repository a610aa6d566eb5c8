"""The invariants name the pod, node, claim, volume or segment that breaks them.

That they hold where nothing is broken is what the laws and the integration tests show.
"""

from typing import Any

import pytest

from simulator.apiserver import ApiServer
from simulator.builders.core import Builder, PodBuilder, node, pod
from tests.support.invariants import (
    Witness,
    claimed_twice,
    on_missing_nodes,
    overcommitted,
    segments_overdrawn,
    stranded,
    unbound,
    volumes_of_pods,
)
from tests.support.volumebuilders import a_claim, a_pv
from tests.unit.simulator.stage import server_with


@pytest.mark.parametrize(
    ("pods", "broken"),
    [
        pytest.param([pod("a").cpu("1"), pod("b").cpu("1001m")], ["node n: cpu requested 2001, allocatable 2000"], id="too much cpu"),
        pytest.param([pod("a").req("x.example/gpu", "1")], ["node n: x.example/gpu requested 1, allocatable 0"], id="a resource that the node lacks"),
        pytest.param([pod("a"), pod("b"), pod("c")], ["node n: pods requested 3, allocatable 2"], id="too many pods"),
        pytest.param(
            [pod("a").host_port(80), pod("b").host_port(80, ip="10.0.0.1")],
            ["node n: port 80/TCP held by default/a and default/b"],
            id="a port twice",
        ),
    ],
)  # fmt: skip
def test_no_capacity_is_used_twice(pods: list[PodBuilder], broken: list[str]) -> None:
    server = ApiServer()
    server.create("nodes", node("n").cpu("2").pods(2).obj())
    for each in pods:
        server.create("pods", each.bound_to("n").obj())
    assert overcommitted(server) == broken


def test_finished_pods_hold_nothing() -> None:
    """Pods on deleted nodes are reported."""
    server = ApiServer()
    server.create("nodes", node("n").cpu("1").obj())
    for name in ("a", "b"):
        server.create("pods", pod(name).cpu("1").bound_to("n").obj())
    server.patch("pods", "a", {"status": {"phase": "Failed"}}, subresource="status")
    server.create("pods", pod("c").cpu("9").bound_to("gone").obj())
    assert overcommitted(server) == []
    assert on_missing_nodes(server) == ["pod default/c is bound to gone, which does not exist"]


def test_every_schedulable_pod_is_bound_in_the_end() -> None:
    server = ApiServer()
    server.create("pods", pod("a").obj())
    server.create("pods", pod("b").label("stays").obj())
    server.create("pods", pod("c").bound_to("n").obj())
    assert unbound(server) == ["pod default/a is still without a node", "pod default/b is still without a node"]

    def is_schedulable(obj: dict[str, Any]) -> bool:
        return "stays" not in obj["metadata"].get("labels", {})

    assert unbound(server, is_schedulable) == ["pod default/a is still without a node"]


def test_the_witness_sees_bindings_that_change() -> None:
    """A server forbids the change, so the test calls the witness."""
    server = ApiServer()
    witness = Witness(server)
    first = server.create("pods", pod("a").bound_to("n").obj())
    assert (witness.bound_twice(), witness.bindings) == ([], 1)
    witness._on_write("MODIFIED", "pods", first | {"spec": first["spec"] | {"nodeName": "m"}})
    assert witness.bound_twice() == ["pod default/a was bound to n and then to m"]


def test_a_deleted_pod_is_not_lost() -> None:
    server = ApiServer()
    witness = Witness(server)
    server.create("pods", pod("a").obj())
    server.create("pods", pod("b").obj())
    server.delete("pods", "a")
    assert witness.lost() == []
    witness._alive["some-uid"] = "default/c"
    assert witness.lost() == ["pod default/c (some-uid) vanished"]


TARGET = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


@pytest.mark.parametrize(
    ("priority", "condition", "is_planned", "broken"),
    [
        pytest.param(
            0,
            {},
            True,
            ["pod default/victim was deleted without the condition of a preemption"],
            id="without the condition",
        ),
        pytest.param(
            0,
            {**TARGET, "reason": "EvictionByEvictionAPI"},
            True,
            ["pod default/victim was deleted without the condition of a preemption"],
            id="with another condition",
        ),
        pytest.param(
            0, TARGET, False, ["pod default/victim was deleted without a preemption plan"], id="without a preemptor"
        ),
        pytest.param(
            1000,
            TARGET,
            True,
            ["pod default/victim was to be evicted for a pod that is not more important"],
            id="for a pod of equal priority",
        ),
    ],
)
def test_deletions_by_schedulers(priority: int, condition: dict[str, str], is_planned: bool, broken: list[str]) -> None:
    """Excused deletions of other clients do not count."""
    server = ApiServer()
    for value in {priority, 1000}:
        server.create("priorityclasses", {"metadata": {"name": f"p{value}"}, "value": value})
    witness = Witness(server)
    victim = server.create("pods", pod("victim").priority_class(f"p{priority}").bound_to("n").obj())
    preemptor = server.create("pods", pod("preemptor").priority_class("p1000").obj())
    excused = server.create("pods", pod("excused").bound_to("n").obj())
    if is_planned:
        witness.planned(preemptor["metadata"]["uid"], [victim["metadata"]["uid"]])
    if condition:
        server.patch("pods", "victim", {"status": {"conditions": [condition]}}, subresource="status")
    witness.excuse(excused["metadata"]["uid"])
    for name in ("victim", "excused"):
        server.delete("pods", name)

    assert witness.wronged() == broken
    assert list(witness.preempted.values()) == ["default/victim"]


def test_an_event_names_victim_and_preemptor() -> None:
    server = ApiServer()
    witness = Witness(server)
    witness.planned("for", ["gone"])
    for name, related in (("right", "for"), ("wrong", "other")):
        event = {
            "metadata": {"name": name},
            "reason": "Preempted",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "action": "Preempting",
            "type": "Normal",
            "reportingController": "kubestow",
            "reportingInstance": "here",
            "regarding": {"kind": "Pod", "namespace": "default", "name": "v", "uid": "gone"},
            "related": {"kind": "Pod", "namespace": "default", "name": "p", "uid": related},
        }
        server.create("events", event)

    assert witness.wronged() == ["an event says that gone was evicted for other"]


# -- volumes --------------------------------------------------------------------------------------------------------------


ZONE = "example.com/zone"


def tied(*objects: Builder[object]) -> ApiServer:
    """Return a server with these objects. Each claimRef without a uid gets the uid of its claim."""
    server = server_with(*objects)
    for volume in server.objects("persistentvolumes"):
        reference = volume["spec"].get("claimRef")
        if reference and not reference.get("uid"):
            uid = server.get("persistentvolumeclaims", reference["name"])["metadata"]["uid"]
            server.patch("persistentvolumes", volume["metadata"]["name"], {"spec": {"claimRef": {"uid": uid}}})
    return server


MINE = a_pv("v").claimed_by("c")
BOUND = a_claim("c").bound_to("v")


@pytest.mark.parametrize(
    ("objects", "broken"),
    [
        pytest.param([a_pv("v"), BOUND], ["claim default/c is bound to volume v, which is meant for no claim"], id="a volume without a claimRef"),
        pytest.param(
            [a_pv("v").claimed_by("c", uid="of another c"), BOUND],
            ["claim default/c is bound to volume v, which is meant for default/c"],
            id="a volume of an earlier claim of the name",
        ),
        pytest.param(
            [MINE, BOUND, a_claim("d").bound_to("v")],
            ["claim default/d is bound to volume v, which is meant for default/c", "volume v is bound to default/c and default/d"],
            id="two claims on one volume",
        ),
    ],
)  # fmt: skip
def test_a_volume_belongs_to_one_claim(objects: list[Builder[object]], broken: list[str]) -> None:
    assert claimed_twice(tied(*objects)) == broken


@pytest.mark.parametrize(
    ("objects", "broken"),
    [
        pytest.param(
            [a_claim("c"), pod("p").pvc("c").bound_to("n")], ["pod default/p is on n, and claim default/c has no volume"], id="an unbound claim"
        ),
        pytest.param(
            [pod("p").ephemeral("e").bound_to("n")], ["pod default/p is on n, and claim default/p-e has no volume"], id="an ephemeral volume without a claim"
        ),
        pytest.param(
            [MINE.on("m"), BOUND, pod("p").pvc("c").bound_to("n")], ["pod default/p is on n, which cannot reach volume v"], id="elsewhere"
        ),
        pytest.param(
            [MINE, BOUND, a_claim("d").bound_to("v"), pod("p").pvc("c").bound_to("n"), pod("q").pvc("d").bound_to("n")],
            ["volume v is used by pods default/p and default/q through different claims"],
            id="two claims of two pods",
        ),
    ],
)  # fmt: skip
def test_pods_have_their_volumes(objects: list[Builder[object]], broken: list[str]) -> None:
    assert volumes_of_pods(tied(node("n"), node("m"), *objects)) == broken


def test_segments_are_not_overdrawn() -> None:
    volumes = [a_pv(f"v{i}", "2Gi").csi("d.x").where(ZONE, zone) for i, zone in enumerate("aab")]
    server = tied(*volumes, a_pv("other", "9Gi").csi("o.x").where(ZONE, "a"), a_pv("any", "9Gi").csi("d.x"))
    assert segments_overdrawn(server, "d.x", ZONE, {"a": 4 << 30, "b": 2 << 30}) == []
    assert segments_overdrawn(server, "d.x", ZONE, {"a": 4 << 30}) == [
        f"segment b of d.x: {2 << 30} bytes in volumes, 0 there"
    ]


def test_no_claim_waits_for_a_deleted_node() -> None:
    claims = (a_claim("c").selected("gone"), a_claim("d").selected("gone").bound_to("v"), a_claim("e").selected("n"))
    assert stranded(tied(node("n"), *claims)) == ["claim default/c waits for node gone, which does not exist"]
