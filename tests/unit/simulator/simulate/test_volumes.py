"""Volumes of a simulation: references of a dump get new uids, and storage has the capacity of the dump."""

import pytest

from simulator.apiserver import ApiServer
from simulator.builders.core import Builder, node, pod
from simulator.controllers import ExternalProvisioner
from simulator.controllers.persistent_volume import PROVISIONED_BY
from simulator.simulate.input.complete import controllers, retie
from tests.support.clock import VirtualClock
from tests.support.volumebuilders import CapacityBuilder, a_capacity, a_claim, a_class, a_csi_node, a_pv
from tests.unit.simulator.stage import server_with

DRIVER = "d.example"
RACK = "example.com/rack"
GI = 1 << 30
PROVISIONER = "volume.kubernetes.io/storage-provisioner"


def loaded(*objects: Builder[object]) -> ApiServer:
    server = server_with(*objects)
    retie(server)
    return server


def run(server: ApiServer) -> list[ExternalProvisioner]:
    """Run the controllers, and return the provisioners."""
    return [made for made in controllers(server, VirtualClock()) if isinstance(made, ExternalProvisioner)]


def phases(server: ApiServer) -> dict[str, str]:
    kinds = ("persistentvolumes", "persistentvolumeclaims")
    return {each["metadata"]["name"]: each["status"]["phase"] for kind in kinds for each in server.objects(kind)}


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param(
            [a_pv("v").claimed_by("c", uid="old").phase("Bound"), a_claim("c").bound_to("v")],
            {"v": "Bound", "c": "Bound"},
            id="bound to each other",
        ),
        pytest.param(
            [a_pv("v").claimed_by("c", uid="old"), a_claim("c")],
            {"v": "Bound", "c": "Bound"},
            id="chosen by a scheduler, and not bound yet",
        ),
        pytest.param(
            [a_pv("v").claimed_by("c", uid="old").phase("Released"), a_claim("c")],
            {"v": "Released", "c": "Pending"},
            id="a claim of that name came after the volume's",
        ),
        pytest.param(
            [a_pv("v").claimed_by("gone", uid="old").phase("Bound")],
            {"v": "Released"},
            id="the claim is not in the dump",
        ),
        pytest.param([a_claim("c").bound_to("gone")], {"c": "Lost"}, id="the volume is not in the dump"),
    ],
)
def test_claims_and_volumes_of_a_dump(objects: list[Builder[object]], expected: dict[str, str]) -> None:
    server = loaded(*objects)
    run(server)
    assert phases(server) == expected


def test_an_ephemeral_claim_of_a_dump_is_its_pods() -> None:
    user = pod("p").ephemeral("a", storage_class="w").ephemeral("b", storage_class="w")
    server = loaded(a_class("w"), a_claim("p-a", "7Gi", "w").owned_by("p", "old"), user)
    run(server)
    uid = server.get("pods", "p")["metadata"]["uid"]
    owners = {
        each["metadata"]["name"]: each["metadata"]["ownerReferences"]
        for each in server.objects("persistentvolumeclaims")
    }
    assert {name: [owner["uid"] for owner in given] for name, given in owners.items()} == {"p-a": [uid], "p-b": [uid]}


def here(name: str, rack: str, amount: str, class_name: str = "w") -> CapacityBuilder:
    return a_capacity(name, class_name, amount).where(RACK, rack)


@pytest.mark.parametrize(
    ("capacities", "space"),
    [
        pytest.param([], None, id="no capacity objects"),
        pytest.param([here("a", "r1", "2Gi"), here("b", "r2", "1Gi")], {"r1": 2 * GI, "r2": GI}, id="per rack"),
        pytest.param(
            [here("a", "r1", "2Gi"), here("b", "r1", "3Gi", "x")],
            {"r1": 3 * GI},
            id="classes share the capacity of the rack",
        ),
        pytest.param(
            [here("a", "r1", "2Gi"), here("b", "r1", "9Gi", "other")], {"r1": 2 * GI}, id="capacity of another driver"
        ),
        pytest.param([a_capacity("a", "w", "2Gi").everywhere()], {"": 2 * GI}, id="everywhere"),
        pytest.param([a_capacity("a", "w", "2Gi")], None, id="nowhere"),
        pytest.param([here("a", "r1", "2Gi").where("zone", "z")], {"r1,z": 2 * GI}, id="by two labels"),
        pytest.param(
            [here("a", "r1", "2Gi"), a_capacity("b", "w", "1Gi").where("zone", "z")], None, id="by one or another"
        ),
    ],
)
def test_capacity_of_a_dump(capacities: list[CapacityBuilder], space: dict[str, int] | None) -> None:
    classes = [a_class("w", DRIVER), a_class("x", DRIVER), a_class("other", "o.example")]
    provisioners = {made.driver: made for made in run(loaded(*classes, *capacities))}
    assert set(provisioners) == {DRIVER, "o.example"}
    found = provisioners[DRIVER].space
    assert (None if found is None else found.size_bytes) == space


async def test_the_capacity_object_follows_new_volumes() -> None:
    """The object of the dump is updated, and no second one is created."""
    room = here("a", "r1", "5Gi").maximum("4Gi")
    server = loaded(node("n").label(RACK, "r1"), a_class("w", DRIVER), room)
    clock = VirtualClock()
    *_, provisioner = made = controllers(server, clock)
    server.apply(a_claim("c", "2Gi", "w").selected("n").obj())
    server.patch("persistentvolumeclaims", "c", {"metadata": {"annotations": {PROVISIONER: DRIVER}}})
    for _ in range(3):
        await clock.advance(0.1)
        for actor in made:
            actor.step()
    (capacity,) = server.objects("csistoragecapacities")
    assert (capacity["metadata"]["name"], capacity["capacity"]) == ("a", str(3 * GI))
    assert capacity["maximumVolumeSize"] == str(3 * GI), "no volume can be larger than what is left"
    assert isinstance(provisioner, ExternalProvisioner)
    assert provisioner.provisioned == 1


ZONE = "topology.example.com/zone"
HOSTNAME = "kubernetes.io/hostname"
LOCAL_PATH = "rancher.io/local-path"


@pytest.mark.parametrize(
    ("driver", "further", "expected"),
    [
        pytest.param(DRIVER, [a_csi_node("n").driver(DRIVER, topology_keys=(RACK,))], {RACK: "r1"}, id="by a label"),
        pytest.param(
            DRIVER,
            [a_csi_node("n").driver(DRIVER, topology_keys=("kubernetes.io/os", RACK, ZONE))],
            {"kubernetes.io/os": "linux", RACK: "r1", ZONE: "z1"},
            id="by all labels of the driver, as those of AWS EBS",
        ),
        pytest.param(DRIVER, [a_csi_node("n").driver(DRIVER, topology_keys=())], {}, id="from every node"),
        pytest.param(DRIVER, [], {}, id="from every node where no CSINode lists the driver"),
        pytest.param(LOCAL_PATH, [], {HOSTNAME: "host-n"}, id="on the node itself: local-path-provisioner"),
        pytest.param(
            DRIVER,
            [a_pv("other", "1Gi", "w").set({"metadata": {"annotations": {PROVISIONED_BY: DRIVER}}}).where(ZONE, "z2")],
            {ZONE: "z1"},
            id="like a volume that the provisioner made before",
        ),
    ],
)
def test_the_node_affinity_of_a_new_volume(
    driver: str, further: list[Builder[object]], expected: dict[str, str]
) -> None:
    """Without capacity objects the topology keys of the driver count. Without those every node is allowed."""
    labels = {RACK: "r1", ZONE: "z1", "kubernetes.io/os": "linux", HOSTNAME: "host-n"}
    host = node("n")
    for key, value in labels.items():
        host = host.label(key, value)
    server = loaded(host, a_class("w", driver), *further, a_claim("c", "1Gi", "w").selected("n"))
    run(server)
    (volume,) = (each for each in server.objects("persistentvolumes") if each["metadata"]["name"] != "other")
    terms = volume["spec"].get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", [])
    found = {one["key"]: one["values"] for term in terms for one in term["matchExpressions"]}
    assert found == {key: [value] for key, value in expected.items()}
    assert phases(server)["c"] == "Bound"


def test_an_in_tree_class_has_its_csi_driver() -> None:
    server = loaded(node("n"), a_class("gp2", "kubernetes.io/aws-ebs"), a_claim("c", "1Gi", "gp2").selected("n"))
    (provisioner,) = run(server)
    assert provisioner.driver == "ebs.csi.aws.com"
    assert phases(server)["c"] == "Bound"
