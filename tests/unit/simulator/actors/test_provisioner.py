"""The external provisioner: what it refuses, where volumes are created, and when a claim gets another node.

The texts are those of external-provisioner 6.4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scheduler.api.storage_v1 import SELECTED_NODE
from simulator.apiserver import ApiServer
from simulator.builders.core import Builder, node
from simulator.controllers import PersistentVolumeController
from simulator.controllers.storage_space import ReportedCapacity
from tests.actors.provisioner import FaultyProvisioner, ProvisionCall
from tests.support.clock import VirtualClock
from tests.support.volumebuilders import (
    CapacityBuilder,
    ClaimBuilder,
    StorageClassBuilder,
    a_capacity,
    a_claim,
    a_class,
    a_csi_node,
    a_pv,
)
from tests.unit.simulator.stage import add, server_with, settle

GI = 1 << 30
DRIVER = "d.example"
ZONE = "topology.d.example/zone"


class Harness:
    """A server with two nodes in two zones, two classes, a PV controller, and the provisioner."""

    def __init__(self, **options: Any) -> None:
        self.clock = VirtualClock()
        nodes = [node(name).label(ZONE, zone) for name, zone in (("n1", "z1"), ("n2", "z2"))]
        csi_nodes = [a_csi_node(name).driver(DRIVER, topology_keys=(ZONE,)) for name in ("n1", "n2")]
        classes = (a_class("w", DRIVER), a_class("i", DRIVER).immediate())
        self.server = server_with(*nodes, *csi_nodes, *classes, clock=self.clock)
        self.controller = PersistentVolumeController(self.server, clock=self.clock)
        self.provisioner = FaultyProvisioner(self.server, DRIVER, clock=self.clock, segment_key=ZONE, **options)

    def claim(self, name: str, size: str = "1Gi", *, on: str = "", class_name: str = "w") -> None:
        claim = a_claim(name, size, class_name)
        self.server.apply((claim.selected(on) if on else claim).obj())
        self.settle()

    def select(self, name: str, on: str) -> None:
        self.server.patch("persistentvolumeclaims", name, {"metadata": {"annotations": {SELECTED_NODE: on}}})
        self.settle()

    def settle(self) -> None:
        settle(self.controller, self.provisioner)

    async def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.clock.advance(1)
            self.settle()

    def zone(self, name: str) -> str:
        """Return the zone of the claim's volume, or ""."""
        claim = self.server.get("persistentvolumeclaims", name)
        if not claim["spec"].get("volumeName"):
            return ""
        volume = self.server.get("persistentvolumes", claim["spec"]["volumeName"])
        assert volume["spec"]["csi"]["driver"] == DRIVER
        (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        (expression,) = term["matchExpressions"]
        assert (expression["key"], expression["operator"]) == (ZONE, "In")
        zone: str = expression["values"][0]
        return zone

    def selected(self, name: str) -> str | None:
        annotations: dict[str, str] = self.server.get("persistentvolumeclaims", name)["metadata"].get("annotations", {})
        return annotations.get(SELECTED_NODE)

    def failures(self, name: str) -> list[str]:
        """Return the errors that events of the claim show."""
        events = self.server.objects("events")
        return [each["note"] for each in events if each["type"] == "Warning" and each["regarding"]["name"] == name]

    def counts(self) -> tuple[int, int, int]:
        return self.provisioner.provisioned, self.provisioner.failures, self.provisioner.rescheduled

    def published(self) -> dict[str, int]:
        return {
            f"{each['storageClassName']} {each['nodeTopology']['matchLabels'][ZONE]}": int(each["capacity"]) // GI
            for each in self.server.objects("csistoragecapacities")
        }


def test_a_volume_is_created_on_the_selected_node() -> None:
    harness = Harness()
    harness.claim("c", "3Gi")
    assert (harness.zone("c"), harness.provisioner.calls) == ("", [])
    harness.select("c", "n2")
    assert (harness.zone("c"), harness.counts()) == ("z2", (1, 0, 0))
    assert harness.provisioner.calls == [ProvisionCall(1, "default/c", "n2")]
    (volume,) = harness.server.objects("persistentvolumes")
    assert (volume["spec"]["capacity"], volume["spec"]["storageClassName"]) == ({"storage": "3Gi"}, "w")
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"


def test_an_immediate_claim_gets_the_zone_with_the_most_capacity() -> None:
    harness = Harness(space={"z1": 2 * GI, "z2": 3 * GI})
    harness.claim("c", class_name="i")
    harness.claim("d", "2Gi", class_name="i")
    assert (harness.zone("c"), harness.zone("d")) == ("z2", "z1")


def test_without_capacity_the_selected_node_is_removed() -> None:
    harness = Harness(space={"z1": 2 * GI, "z2": 2 * GI})
    harness.claim("a", "2Gi", on="n1")
    harness.claim("b", on="n1")
    assert (harness.zone("a"), harness.zone("b"), harness.selected("b")) == ("z1", "", None)
    assert harness.counts() == (1, 1, 1)
    (why,) = harness.failures("b")
    assert why == f"rpc error: code = ResourceExhausted desc = not enough free storage in z1: {GI} of 0 bytes"
    harness.select("b", "n2")
    assert (harness.zone("b"), harness.provisioner.overdrawn()) == ("z2", [])


async def test_capacity_is_as_old_as_its_publication() -> None:
    """A new class is published at once."""
    harness = Harness(space={"z1": 5 * GI, "z2": 2 * GI}, publishes_every_s=60)
    harness.settle()
    fresh = {"i z1": 5, "i z2": 2, "w z1": 5, "w z2": 2}
    assert harness.published() == fresh
    harness.claim("c", "3Gi", on="n1")
    await harness.wait(59)
    assert (harness.zone("c"), harness.published()) == ("z1", fresh)
    await harness.wait(1)
    assert harness.published() == {"i z1": 2, "i z2": 2, "w z1": 2, "w z2": 2}
    harness.server.apply(a_class("x", DRIVER).obj())
    harness.settle()
    assert harness.published()["x z1"] == 2


def test_lost_storage_is_reported() -> None:
    harness = Harness(space={"z1": GI})
    harness.claim("c", on="n1")
    assert harness.provisioner.space is not None
    harness.provisioner.space.size_bytes["z1"] = 0
    assert harness.provisioner.overdrawn() == [f"segment z1: {GI} bytes made, 0 there"]


# -- refusals ----------------------------------------------------------------------------------------------------------

GENERATING = "error generating accessibility requirements: "


def without_csi_node(harness: Harness) -> None:
    harness.server.delete("csinodes", "n1")


def without_node(harness: Harness) -> None:
    harness.server.delete("nodes", "n1")


def without_both(harness: Harness) -> None:
    without_node(harness)
    without_csi_node(harness)


def without_driver(harness: Harness) -> None:
    harness.server.patch("csinodes", "n1", {"spec": {"drivers": [{"name": DRIVER, "$patch": "delete"}]}})


def without_label(harness: Harness) -> None:
    harness.server.patch("nodes", "n1", {"metadata": {"labels": {ZONE: None, "rack": "7"}}})


def test_a_harness_without_changes_provisions() -> None:
    harness = Harness()
    harness.claim("c", on="n1")
    assert (harness.zone("c"), harness.failures("c")) == ("z1", [])


@pytest.mark.parametrize(("change", "why", "is_given_back"), [
    pytest.param(without_csi_node, 'failed to get selected CSINode n1: csinode.storage.k8s.io "n1" not found', True,
        id="no CSINode"),
    pytest.param(without_both, 'failed to get selected CSINode n1: csinode.storage.k8s.io "n1" not found', True,
        id="neither Node nor CSINode"),
    pytest.param(without_node, f"{GENERATING}topology labels from selected node map[] does not match topology keys from "
        f"CSINode [{ZONE}]", False, id="no Node"),
    pytest.param(without_driver, f"{GENERATING}no topology key found for node n1", False,
        id="a CSINode without the driver"),
    pytest.param(without_label, f"{GENERATING}topology labels from selected node map[kubernetes.io/hostname:n1 rack:7] does not match topology "
        f"keys from CSINode [{ZONE}]", False, id="a Node without the label"),
])  # fmt: skip
def test_refusals_by_the_node(change: Callable[[Harness], None], why: str, is_given_back: bool) -> None:
    """Only a missing CSINode gives the claim back. In every case no call reaches the driver."""
    harness = Harness()
    change(harness)
    harness.claim("c", on="n1")
    assert (harness.failures("c"), harness.provisioner.calls) == ([why], [])
    assert harness.selected("c") == (None if is_given_back else "n1")


async def test_a_driver_that_registers_later() -> None:
    harness = Harness()
    without_driver(harness)
    harness.claim("c", on="n1")
    assert harness.provisioner.refused == {"default/c": f"{GENERATING}no topology key found for node n1"}
    drivers = a_csi_node("n1").driver(DRIVER, topology_keys=(ZONE,)).obj()["spec"]
    harness.server.patch("csinodes", "n1", {"spec": drivers})
    harness.settle()
    assert (harness.zone("c"), harness.provisioner.refused) == ("z1", {})


def from_source(kind: str, name: str = "old", group: str = "", size: str = "2Gi") -> ClaimBuilder:
    source = {"kind": kind, "name": name} | ({"apiGroup": group} if group else {})
    return a_claim("c", size, "x").set({"spec": {"dataSource": source}})


OLD = [a_pv("v", "2Gi", "x").csi(DRIVER).claimed_by("old"), a_claim("old", "2Gi", "x").wants("v")]
OTHER_DRIVER = [a_pv("v", "2Gi", "x").csi("other").claimed_by("old"), a_claim("old", "2Gi", "x").wants("v")]
CLASS = a_class("x", DRIVER)
CLONE = "error getting handle for DataSource Type PersistentVolumeClaim by Name old: "


@pytest.mark.parametrize(("storage_class", "claim", "others", "why"), [
    pytest.param(CLASS, a_claim("c", "1Gi", "x").matching({"a": "b"}), [], "claim Selector is not supported",
        id="a selector"),
    pytest.param(CLASS.set({"parameters": {"fsType": "xfs", "csi.storage.k8s.io/fstype": "ext4"}}),
        a_claim("c", "1Gi", "x"), [],
        'fstype specified in parameters with both "fstype" and "csi.storage.k8s.io/fstype" keys', id="two file systems"),
    pytest.param(CLASS.set({"parameters": {"csi.storage.k8s.io/flavour": "x"}}), a_claim("c", "1Gi", "x"), [],
        'failed to strip CSI Parameters of prefixed keys: found unknown parameter key "csi.storage.k8s.io/flavour" with '
        "reserved namespace csi.storage.k8s.io/", id="an unknown parameter"),
    pytest.param(CLASS.allowed("example.com/rack", "r1"), a_claim("c", "1Gi", "x"), [],
        f'{GENERATING}topology [{{{ZONE} z1}}] from selected node "n1" is not in requisite: [[{{example.com/rack r1}}]]',
        id="an allowed topology by a label that the driver does not know"),
    pytest.param(CLASS, from_source("VolumeSnapshot", group="other.io"), [],
        "the PVC source does not belong to the right APIGroup. Expected snapshot.storage.k8s.io, Got other.io",
        id="a snapshot of another group"),
    pytest.param(CLASS, from_source("PersistentVolumeClaim"), [], f"{CLONE}error getting PVC old (namespace "
        '"default") from api server: persistentvolumeclaim "old" not found', id="a source that does not exist"),
    pytest.param(CLASS, from_source("PersistentVolumeClaim"), [a_claim("old", "1Gi", "w")],
        f"{CLONE}the PVC DataSource old must have a status of Bound.  Got Pending", id="a source without a volume"),
    pytest.param(CLASS, from_source("PersistentVolumeClaim", size="1Gi"), OLD,
        f"{CLONE}error, new PVC request must be greater than or equal in size to the specified PVC data source, "
        f"requested {GI} but source is {2 * GI}", id="a source that is larger"),
    pytest.param(CLASS, from_source("PersistentVolumeClaim"), OTHER_DRIVER,
        f"{CLONE}claim in dataSource not bound or invalid", id="a source of another driver"),
    pytest.param(CLASS, from_source("PersistentVolumeClaim").volume_mode("Block"), OLD,
        f"{CLONE}the source PVC and destination PVCs must have the same volume mode for cloning.  Source is Filesystem, "
        "but new PVC requested Block", id="a source of another volume mode"),
])  # fmt: skip
def test_refusals_by_claim_and_class(
    storage_class: StorageClassBuilder, claim: ClaimBuilder, others: list[Builder[object]], why: str
) -> None:
    harness = Harness()
    add(harness.server, storage_class, *others)
    harness.settle()
    harness.server.apply(claim.selected("n1").obj())
    harness.settle()
    assert (harness.failures("c"), harness.selected("c"), harness.provisioner.calls) == ([why], "n1", [])


def test_a_clone() -> None:
    harness = Harness()
    add(harness.server, CLASS, *OLD)
    harness.settle()
    harness.server.apply(from_source("PersistentVolumeClaim").selected("n1").obj())
    harness.settle()
    assert (harness.failures("c"), harness.zone("c")) == ([], "z1")


def test_a_claim_for_a_volume_populator_is_left_alone() -> None:
    harness = Harness()
    add(harness.server, CLASS)
    harness.server.apply(from_source("Archive", group="populator.example.com").selected("n1").obj())
    harness.settle()
    assert (harness.failures("c"), harness.provisioner.calls, harness.counts()) == ([], [], (0, 0, 0))
    (why,) = harness.provisioner.refused.values()
    assert why.startswith("data source (Archive) is not handled by the provisioner")


@pytest.mark.parametrize("change", [
    pytest.param(lambda server: server.delete("persistentvolumeclaims", "c"), id="the claim is deleted"),
    pytest.param(lambda server: server.patch("persistentvolumeclaims", "c",
        {"metadata": {"annotations": {SELECTED_NODE: None}}}), id="the selected node is removed"),
])  # fmt: skip
def test_a_refusal_ends_with_its_claim_and_its_node(change: Callable[[ApiServer], object]) -> None:
    harness = Harness()
    without_driver(harness)
    harness.claim("c", on="n1")
    assert list(harness.provisioner.refused) == ["default/c"]
    change(harness.server)
    harness.settle()
    assert harness.provisioner.refused == {}


# -- topology ----------------------------------------------------------------------------------------------------------


def test_each_node_has_its_own_topology_keys() -> None:
    """An empty value of a label is a value, too."""
    disks = {"n1": "disk/slow", "n2": "disk/fast"}
    hosts = [node(name).label(ZONE, "z").label(disk, "") for name, disk in disks.items()]
    csi_nodes = [a_csi_node(name).driver(DRIVER, topology_keys=(ZONE, disk)) for name, disk in disks.items()]
    claims = [a_claim(f"on-{name}", "1Gi", "w").selected(name) for name in disks]
    server = server_with(*hosts, *csi_nodes, a_class("w", DRIVER), *claims)
    clock = VirtualClock()
    settle(PersistentVolumeController(server, clock=clock), FaultyProvisioner(server, DRIVER, clock=clock))
    found = {}
    for volume in server.objects("persistentvolumes"):
        (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        found[volume["spec"]["claimRef"]["name"]] = {one["key"]: one["values"] for one in term["matchExpressions"]}
    assert found == {f"on-{name}": {ZONE: ["z"], disk: [""]} for name, disk in disks.items()}


def test_a_provisioner_without_a_csi_driver_looks_at_the_node() -> None:
    server = server_with(node("n1"), a_class("w", DRIVER), a_claim("c", "1Gi", "w").selected("gone"))
    clock = VirtualClock()
    provisioner = FaultyProvisioner(server, DRIVER, clock=clock, topology_keys=("kubernetes.io/hostname",))
    settle(PersistentVolumeController(server, clock=clock), provisioner)
    assert SELECTED_NODE not in server.get("persistentvolumeclaims", "c")["metadata"]["annotations"]
    assert [each["note"] for each in server.objects("events") if each["type"] == "Warning"] == [
        'nodes "gone" not found'
    ]


# -- errors of the driver ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "zone"), [
    pytest.param("Unavailable", "z1", id="the driver may still be at work: the first node's topology is kept"),
    pytest.param("Internal", "z2", id="a final error: the topology of the node that is selected now"),
])  # fmt: skip
async def test_the_topology_after_an_error(code: str, zone: str) -> None:
    """Only ResourceExhausted removes the selected node."""
    errors = [f"rpc error: code = {code} desc = planned"]
    harness = Harness(fault=lambda _: errors.pop() if errors else "")
    harness.claim("c", on="n1")
    assert (harness.selected("c"), harness.provisioner.rescheduled) == ("n1", 0)
    harness.select("c", "n2")
    assert harness.zone("c") == zone


async def test_the_first_topology_is_kept_without_its_node() -> None:
    errors = ["rpc error: code = DeadlineExceeded desc = planned"]
    harness = Harness(fault=lambda _: errors.pop() if errors else "")
    harness.claim("c", on="n1")
    without_both(harness)
    harness.settle()
    assert (harness.selected("c"), harness.zone("c")) == ("n1", "z1")


async def test_a_restart_forgets_the_first_topology() -> None:
    errors = ["rpc error: code = Unavailable desc = planned"]
    harness = Harness(fault=lambda _: errors.pop() if errors else "")
    harness.claim("c", on="n1")
    harness.provisioner.die()
    harness.select("c", "n2")
    harness.provisioner.revive()
    harness.settle()
    assert harness.zone("c") == "z2"


async def test_an_infeasible_claim_waits_for_five_minutes() -> None:
    errors = ["rpc error: code = InvalidArgument desc = planned"]
    harness = Harness(fault=lambda _: errors.pop() if errors else "")
    harness.claim("c", on="n1")
    (why,) = harness.failures("c")
    assert why.startswith("Volume provisioning failed with infeasible error. Retries will be delayed. rpc error: ")
    harness.select("c", "n2")
    await harness.wait(299)
    assert (harness.zone("c"), len(harness.provisioner.calls)) == ("", 1)
    await harness.wait(1)
    assert harness.zone("c") == "z2"


# -- the capacity of a dump --------------------------------------------------------------------------------------------

RACK = "example.com/rack"


def here(name: str, rack: str, amount: str, class_name: str = "w") -> CapacityBuilder:
    return a_capacity(name, class_name, amount).where(RACK, rack)


@pytest.mark.parametrize(("capacities", "largest"), [
    pytest.param([], None, id="no capacity objects"),
    pytest.param([here("a", "r1", "2Gi"), here("b", "r2", "1Gi")], 2 * GI, id="the rack of the node"),
    pytest.param([here("b", "r2", "1Gi")], 0, id="only another rack"),
    pytest.param([here("a", "r1", "2Gi"), here("b", "r1", "3Gi", "x")], 2 * GI, id="another class has its own capacity"),
    pytest.param([here("b", "r1", "3Gi", "x")], None, id="only another class"),
    pytest.param([here("a", "r1", "9Gi", "other")], None, id="capacity of another driver"),
    pytest.param([a_capacity("a", "w", "2Gi").everywhere()], 2 * GI, id="everywhere"),
    pytest.param([a_capacity("a", "w", "2Gi")], None, id="an object without a topology"),
    pytest.param([here("a", "r1", "2Gi").where("zone", "z")], 2 * GI, id="by two labels"),
    pytest.param([here("a", "r1", "2Gi"), a_capacity("b", "w", "1Gi").where("zone", "z")], 2 * GI,
        id="by one or another label"),
    pytest.param([here("a", "r1", "5Gi").maximum("2Gi")], 2 * GI, id="the largest volume"),
])  # fmt: skip
def test_the_largest_volume_of_a_dump(capacities: list[CapacityBuilder], largest: int | None) -> None:
    classes = [a_class("w", DRIVER), a_class("x", DRIVER), a_class("other", "o.example")]
    reported = ReportedCapacity(server_with(*classes, *capacities), DRIVER)
    assert reported.largest("w", {RACK: "r1", "zone": "z"}) == largest


POOL = {"pool": "ssd"}


@pytest.mark.parametrize(("parameters", "after"), [
    pytest.param({"w": {}, "x": {}}, {"w r1": 4, "w r2": 5, "x r1": 5}, id="without parameters"),
    pytest.param({"w": POOL, "x": {"pool": "hdd"}}, {"w r1": 4, "w r2": 5, "x r1": 5}, id="other parameters"),
    pytest.param({"w": POOL, "x": POOL | {"fsType": "xfs", "csi.storage.k8s.io/fstype": "xfs"}},
        {"w r1": 4, "w r2": 5, "x r1": 4}, id="the same parameters for the driver"),
])  # fmt: skip
def test_only_the_objects_of_the_storage_of_a_volume_change(
    parameters: dict[str, dict[str, str]], after: dict[str, int]
) -> None:
    """And they are as before once the volume is deleted."""
    classes = [a_class(name, DRIVER).set({"parameters": given}) for name, given in parameters.items()]
    capacities = [here("1", "r1", "5Gi"), here("2", "r2", "5Gi"), here("3", "r1", "5Gi", "x")]
    server = server_with(*classes, *capacities)
    reported = ReportedCapacity(server, DRIVER)
    written = []
    server.subscribe(lambda _, __, obj: written.append(obj["metadata"]["name"]))
    reported.publish()
    assert written == []

    def shown() -> dict[str, int]:
        return {
            f"{each['storageClassName']} {each['nodeTopology']['matchLabels'][RACK]}": int(each["capacity"]) // GI
            for each in server.objects("csistoragecapacities")
            if each["metadata"]["name"] in written
        }

    assert reported.take("v", "w", {RACK: "r1"}, GI)
    reported.publish()
    assert shown() == {name: left for name, left in after.items() if left != 5}
    volume = a_pv("v", "1Gi", "w").where(RACK, "r1").obj()
    reported.give_back(volume)
    reported.publish()
    assert set(shown().values()) == {5}
    reported.give_back(volume | {"metadata": {"name": "older"}})
    reported.publish()
    assert set(shown().values()) == {6}, "a volume of the dump is deleted"
