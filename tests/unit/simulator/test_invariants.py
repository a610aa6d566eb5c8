"""The invariants name the pod, node, claim, volume, segment, device or counter that breaks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from simulator.apiserver import ApiServer
from simulator.builders.claims import ClaimBuilder, a_claim as device_claim, a_result
from simulator.builders.core import Builder, PodBuilder, node, pod
from simulator.builders.devices import SliceBuilder, a_device, a_slice
from tests.support.clock import VirtualClock
from tests.support.deviceinvariants import (
    ReservationWitness,
    Stored,
    capacity_overdrawn,
    claims_of_pods,
    counters_overdrawn,
    devices_taken_twice,
    out_of_reach,
    reserved_for_the_gone,
    reserved_unallocated,
)
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


@pytest.mark.parametrize(("pods", "broken"), [
    pytest.param([pod("a").cpu("1"), pod("b").cpu("1001m")], ["node n: cpu requested 2001, allocatable 2000"],
        id="too much cpu"),
    pytest.param([pod("a").req("x.example/gpu", "1")], ["node n: x.example/gpu requested 1, allocatable 0"],
        id="a resource that the node lacks"),
    pytest.param([pod("a"), pod("b"), pod("c")], ["node n: pods requested 3, allocatable 2"], id="too many pods"),
    pytest.param([pod("a").host_port(80), pod("b").host_port(80, ip="10.0.0.1")],
        ["node n: port 80/TCP held by default/a and default/b"], id="a port twice"),
])  # fmt: skip
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


@pytest.mark.parametrize(("priority", "condition", "is_planned", "broken"), [
    pytest.param(0, {}, True, ["pod default/victim was deleted without the condition of a preemption"],
        id="without the condition"),
    pytest.param(0, {**TARGET, "reason": "EvictionByEvictionAPI"}, True,
        ["pod default/victim was deleted without the condition of a preemption"], id="with another condition"),
    pytest.param(0, TARGET, False, ["pod default/victim was deleted without a preemption plan"],
        id="without a preemptor"),
    pytest.param(1000, TARGET, True, ["pod default/victim was to be evicted for a pod that is not more important"],
        id="for a pod of equal priority"),
])  # fmt: skip
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


Law = Callable[[Stored], list[str]]
D0, D1 = "d.example/n1/d0", "d.example/n1/d1"


class Dump:
    """Stored objects, also impossible ones."""

    def __init__(self, *objects: Builder[object]) -> None:
        self._objects: dict[str, list[dict[str, Any]]] = {}
        for each in objects:
            obj = each.obj()
            obj["metadata"].setdefault("uid", f"{obj['metadata']['name']}-uid")
            plural = {"ResourceClaim": "resourceclaims", "ResourceSlice": "resourceslices"}
            self._objects.setdefault(plural.get(obj["kind"], f"{obj['kind'].lower()}s"), []).append(obj)

    def objects(self, kind_or_resource: str, /) -> Sequence[dict[str, Any]]:
        return self._objects.get(kind_or_resource, [])


def holding(name: str, *results: dict[str, Any], on: str = "") -> ClaimBuilder:
    return device_claim(name).allocated(*results, on=on)


def share(device: str, share_id: str, **consumed: str) -> dict[str, Any]:
    return a_result("r", device, share=share_id, consumed=consumed)


@pytest.mark.parametrize(("claims", "broken"), [
    pytest.param([holding("a", a_result("r", D0)), holding("b", a_result("r", D0))],
        [f"device {D0} is taken by default/a and default/b"], id="one for two"),
    pytest.param([holding("a", share(D0, "1")), holding("b", share(D0, "1"))],
        [f"device {D0} is taken by default/a and default/b"], id="the same share for two"),
    pytest.param([holding("a", a_result("r", D0), a_result("s", D0))], [f"claim default/a has device {D0} twice"],
        id="twice in one claim"),
])  # fmt: skip
def test_no_device_is_taken_twice(claims: list[ClaimBuilder], broken: list[str]) -> None:
    assert devices_taken_twice(Dump(*claims)) == broken


SHARED = a_slice("n1", "d.example", a_device("d0").shared().cap("memory", "2Gi").cap("cores", "1500m"))


@pytest.mark.parametrize(
    ("objects", "broken"),
    [
        pytest.param(
            [SHARED, *(holding(name, share(D0, name, cores="501m")) for name in "abc")],
            [f"device {D0}: cores 1.503 taken, 1.5 there"],
            id="a little more than there is",
        ),
        pytest.param(
            [a_slice("n1", "d.example", a_device("d0")), holding("a", share(D0, "1"))],
            [f"claim default/a shares device {D0}, which is not to be shared"],
            id="an exclusive device",
        ),
        pytest.param(
            [
                a_slice("n1", "d.example", a_device("d0").shared().cap("memory", "1Gi")).named("x").generation(2),
                SHARED,
                holding("a", share(D0, "1", memory="2Gi")),
            ],
            [f"device {D0}: memory 2147483648 taken, 1073741824 there"],
            id="the newest generation counts",
        ),
    ],
)
def test_shared_capacity_is_there(objects: list[Builder[object]], broken: list[str]) -> None:
    assert capacity_overdrawn(Dump(*objects)) == broken


def _eats(name: str, amount: str) -> SliceBuilder:
    device = a_device(name).consumes("c", {"memory": amount})
    return a_slice("n1", "d.example", device).named(name).of(3)


COUNTERS = a_slice("n1", "d.example").counters("c", {"memory": "3"}).of(3)


@pytest.mark.parametrize(("objects", "broken"), [
    pytest.param([COUNTERS, _eats("d0", "2"), _eats("d1", "2"), holding("a", a_result("r", D0), a_result("s", D1))],
        ["counters d.example/n1/c: memory 4 taken, 3 there"], id="both"),
    pytest.param([_eats("d0", "2"), holding("a", a_result("r", D0))],
        ["counters d.example/n1/c: memory 2 taken, 0 there"], id="no such counters"),
])  # fmt: skip
def test_counters_are_there(objects: list[Builder[object]], broken: list[str]) -> None:
    assert counters_overdrawn(Dump(*objects)) == broken


USED = holding("c", a_result("r", D0), on="n1")
USER = pod("p").claim("e", "c")


@pytest.mark.parametrize(("law", "objects", "broken"), [
    pytest.param(reserved_for_the_gone, [USED.reserved_for("p")],
        ["claim default/c is reserved for pod p, which is gone"], id="a pod that is not"),
    pytest.param(reserved_for_the_gone, [USED.reserved_for("p"), USER.uid("another")],
        ["claim default/c is reserved for pod p, which is gone"], id="a pod that had the name before"),
    pytest.param(reserved_for_the_gone, [USED.reserved_for("p"), USER.bound_to("n1").phase("Failed")],
        ["claim default/c is reserved for pod p, which is gone"], id="a pod that has ended"),
    pytest.param(reserved_unallocated, [device_claim("c").reserved_for("p")],
        ["claim default/c is reserved and not allocated"], id="reserved and not allocated"),
])  # fmt: skip
def test_reservations_are_real(law: Law, objects: list[Builder[object]], broken: list[str]) -> None:
    assert law(Dump(*objects)) == broken


BOUND_POD = USER.bound_to("n1")
MADE = pod("p").claim("e", template="t").claim_made("e", "c").bound_to("n1")


@pytest.mark.parametrize(("claim", "user", "why"), [
    pytest.param(None, BOUND_POD, "claim default/c is not there", id="gone"),
    pytest.param(None, pod("p").claim("e", template="t").bound_to("n1"), "a claim of it was never made",
        id="never made"),
    pytest.param(USED.reserved_for("p"), MADE, "claim default/c is not its own", id="owned by another pod"),
    pytest.param(device_claim("c"), BOUND_POD, "claim default/c is not allocated", id="not allocated"),
    pytest.param(USED.reserved_for("p"), USER.bound_to("n2"), "claim default/c cannot be used there", id="elsewhere"),
    pytest.param(USED.reserved_for("q"), BOUND_POD, "claim default/c is not reserved for it",
        id="reserved for another pod"),
    pytest.param(USED.owned_by("p", "p-uid"), pod("p").bound_to("n1").extended_claim("c"),
        "claim default/c is not reserved for it", id="for extended resources"),
])  # fmt: skip
def test_pods_have_their_claims(claim: ClaimBuilder | None, user: PodBuilder, why: str) -> None:
    objects: list[Builder[object]] = [node("n1"), node("n2"), user]
    if claim is not None:
        objects.append(claim)
    at = user.obj()["spec"].get("nodeName")
    assert claims_of_pods(Dump(*objects)) == [f"pod default/p is on {at}, and {why}"]


PLAIN = a_device("d0")


@pytest.mark.parametrize(
    "slice_",
    [
        pytest.param(a_slice("n1", "d.example", PLAIN).on("n2"), id="another node"),
        pytest.param(a_slice("n1", "d.example", PLAIN).where("zone", "b"), id="nodes with another label"),
        pytest.param(a_slice("n1", "d.example", PLAIN.on("n2")).per_device(), id="another, by the device"),
        pytest.param(a_slice("n1", "d.example", PLAIN.where("zone", "b")).per_device(), id="label, by device"),
    ],
)
def test_allocations_reach_their_devices(slice_: SliceBuilder) -> None:
    nodes = [node("n1").label("zone", "a"), node("n2").label("zone", "b")]
    assert out_of_reach(Dump(*nodes, slice_, USED)) == [
        f"claim default/c may be used on n1, and device {D0} is not for it"
    ]


def test_an_allocation_for_all_nodes_reaches_its_devices_from_all() -> None:
    """A device without a slice is not checked."""
    nodes = [node("n1"), node("n2")]
    claim = holding("c", a_result("r", D0), a_result("r", D1))
    assert out_of_reach(Dump(*nodes, a_slice("n1", "d.example", PLAIN), claim)) == [
        f"claim default/c may be used on n2, and device {D0} is not for it"
    ]


@pytest.mark.parametrize(
    "ends", [pytest.param(True, id="it has ended, and was deleted later"), pytest.param(False, id="it was deleted")]
)
async def test_reservations_end_in_time_after_their_pods(ends: bool) -> None:
    clock = VirtualClock()
    server = ApiServer(clock=clock)
    witness = ReservationWitness(server, clock)
    uid = server.create("pods", BOUND_POD.obj())["metadata"]["uid"]
    server.apply(USED.request("r", "gpu").reserved_for("p", uid).obj())
    await clock.advance(60)
    assert witness.lingering(0) == []
    if ends:
        server.patch("pods", "p", {"status": {"phase": "Failed"}}, subresource="status")
        await clock.advance(10)
    server.delete("pods", "p", grace_s=0)
    await clock.advance(10 if ends else 20)
    assert witness.lingering(20) == []
    assert witness.lingering(19) == ["claim default/c is reserved for pod p, gone for 20 s"]
    server.patch("resourceclaims", "c", {"status": {"reservedFor": None}}, subresource="status")
    assert witness.lingering(19) == []
