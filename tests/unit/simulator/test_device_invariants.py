"""The invariants of devices name the claim, device, counter or pod that breaks them.

That they hold where nothing is broken is what the laws and the integration tests show.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from simulator.apiserver import ApiServer
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
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
    return a_claim(name).allocated(*results, on=on)


def share(device: str, share_id: str, **consumed: str) -> dict[str, Any]:
    return a_result("r", device, share=share_id, consumed=consumed)


@pytest.mark.parametrize(
    ("claims", "broken"),
    [
        pytest.param(
            [holding("a", a_result("r", D0)), holding("b", a_result("r", D0))],
            [f"device {D0} is taken by default/a and default/b"],
            id="one for two",
        ),
        pytest.param(
            [holding("a", share(D0, "1")), holding("b", share(D0, "1"))],
            [f"device {D0} is taken by default/a and default/b"],
            id="the same share for two",
        ),
        pytest.param(
            [holding("a", a_result("r", D0), a_result("s", D0))],
            [f"claim default/a has device {D0} twice"],
            id="twice in one claim",
        ),
    ],
)
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


@pytest.mark.parametrize(
    ("objects", "broken"),
    [
        pytest.param(
            [COUNTERS, _eats("d0", "2"), _eats("d1", "2"), holding("a", a_result("r", D0), a_result("s", D1))],
            ["counters d.example/n1/c: memory 4 taken, 3 there"],
            id="both",
        ),
        pytest.param(
            [_eats("d0", "2"), holding("a", a_result("r", D0))],
            ["counters d.example/n1/c: memory 2 taken, 0 there"],
            id="no such counters",
        ),
    ],
)
def test_counters_are_there(objects: list[Builder[object]], broken: list[str]) -> None:
    assert counters_overdrawn(Dump(*objects)) == broken


USED = holding("c", a_result("r", D0), on="n1")
USER = pod("p").claim("e", "c")


@pytest.mark.parametrize(
    ("law", "objects", "broken"),
    [
        pytest.param(
            reserved_for_the_gone,
            [USED.reserved_for("p")],
            ["claim default/c is reserved for pod p, which is gone"],
            id="a pod that is not",
        ),
        pytest.param(
            reserved_for_the_gone,
            [USED.reserved_for("p"), USER.uid("another")],
            ["claim default/c is reserved for pod p, which is gone"],
            id="a pod that had the name before",
        ),
        pytest.param(
            reserved_for_the_gone,
            [USED.reserved_for("p"), USER.bound_to("n1").phase("Failed")],
            ["claim default/c is reserved for pod p, which is gone"],
            id="a pod that has ended",
        ),
        pytest.param(
            reserved_unallocated,
            [a_claim("c").reserved_for("p")],
            ["claim default/c is reserved and not allocated"],
            id="reserved and not allocated",
        ),
    ],
)
def test_reservations_are_real(law: Law, objects: list[Builder[object]], broken: list[str]) -> None:
    assert law(Dump(*objects)) == broken


BOUND = USER.bound_to("n1")
MADE = pod("p").claim("e", template="t").claim_made("e", "c").bound_to("n1")


@pytest.mark.parametrize(
    ("claim", "user", "why"),
    [
        pytest.param(None, BOUND, "claim default/c is not there", id="gone"),
        pytest.param(None, pod("p").claim("e", template="t").bound_to("n1"), "a claim of it was never made", id="never made"),
        pytest.param(USED.reserved_for("p"), MADE, "claim default/c is not its own", id="owned by another pod"),
        pytest.param(a_claim("c"), BOUND, "claim default/c is not allocated", id="not allocated"),
        pytest.param(USED.reserved_for("p"), USER.bound_to("n2"), "claim default/c cannot be used there", id="elsewhere"),
        pytest.param(USED.reserved_for("q"), BOUND, "claim default/c is not reserved for it", id="reserved for another pod"),
        pytest.param(
            USED.owned_by("p", "p-uid"),
            pod("p").bound_to("n1").extended_claim("c"),
            "claim default/c is not reserved for it",
            id="for extended resources",
        ),
    ],
)  # fmt: skip
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
    uid = server.create("pods", BOUND.obj())["metadata"]["uid"]
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
