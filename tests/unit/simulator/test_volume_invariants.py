"""The invariants of volumes name the claim, volume, pod or segment that breaks them."""

import pytest

from simulator.apiserver import ApiServer
from simulator.builders.core import Builder, node, pod
from tests.support.invariants import claimed_twice, segments_overdrawn, stranded, volumes_of_pods
from tests.support.volumebuilders import a_claim, a_pv
from tests.unit.simulator.stage import server_with

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
