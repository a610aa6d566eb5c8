"""Volumes in `kubestow simulate` and `what-if --cluster`: capacity per class, topology per node, and refused volumes.

The objects are as several drivers of the CSI make them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli import main as cli
from simulator.builders.core import Builder, PodBuilder, node as a_node, pod as a_pod
from tests.integration.conftest import Simulation, nodes_of, placements
from tests.support.volumebuilders import CapacityBuilder, a_capacity, a_claim, a_class, a_csi_driver, a_csi_node

EXAMPLES = Path(__file__).parents[2] / "examples"
STORAGE_DRIVER = "d.example"
RACK = "example.com/rack"
LVM = "lvm.example.com"
DISKS = "disks.example.com"
NODE = "topology.example.com/node"
ZONE = "topology.example.com/zone"
HOSTNAME = "kubernetes.io/hostname"
FULL = "node(s) did not have enough free storage"


def lvm_node(name: str) -> list[Builder[Any]]:
    return [a_node(name).cpu("8").label(NODE, name), a_csi_node(name).driver(LVM, topology_keys=(NODE,))]


def group(name: str, device_class: str = "") -> list[Builder[Any]]:
    """Return the class of a volume group; without a device class it is the node's default group."""
    parameters = {"lvm.example.com/device-class": device_class} if device_class else {}
    return [a_class(name, LVM).set({"parameters": parameters})]


def left(name: str, class_name: str, amount: str) -> CapacityBuilder:
    return a_capacity(f"{name}-{class_name}", class_name, amount).where(NODE, name)


def user(name: str, size: str, class_name: str) -> PodBuilder:
    return a_pod(name).cpu("100m").ephemeral("data", size, class_name)


def reasons_of(shown: dict[str, Any]) -> dict[str, str]:
    """Return pod → the first sentence of the reason, for pods without a node."""
    return {
        each["pod"].partition("/")[2]: each["message"].partition(". ")[0] for each in shown["pods"] if not each["node"]
    }


TWO_NODES = [*lvm_node("n1"), *lvm_node("n2"), a_csi_driver(LVM).tracks_capacity()]
GROUPS = [
    *(*group("ssd", "ssd"), *group("hdd", "hdd"), *group("spare", "spare")),
    *(left("n1", "ssd", "500Gi"), left("n1", "hdd", "10Gi"), left("n1", "spare", "0")),
    *(left("n2", "ssd", "0"), left("n2", "hdd", "30Gi"), left("n2", "spare", "20Gi")),
]


@pytest.mark.parametrize(("objects", "nodes", "reasons"), [
    pytest.param([*TWO_NODES, *GROUPS, user("a", "50Gi", "hdd"), user("b", "5Gi", "spare"), user("c", "20Gi", "ssd")],
        {"a": "", "b": "n2", "c": "n1"}, {"a": f"0/2 nodes are available: 2 {FULL}"}, id="volume groups of several nodes"),
    pytest.param([*lvm_node("n1"), a_csi_driver(LVM).tracks_capacity(), *group("ssd"), *group("hdd"),
        left("n1", "ssd", "100Gi"), left("n1", "hdd", "100Gi"), user("a", "80Gi", "ssd"), user("b", "80Gi", "hdd")],
        {"a": "n1", "b": "n1"}, {}, id="two volume groups of one node"),
    pytest.param([*lvm_node("n1"), a_csi_driver(LVM).tracks_capacity(), *group("ext4", "ssd"), *group("xfs", "ssd"),
        left("n1", "ext4", "100Gi"), left("n1", "xfs", "100Gi"),
        user("a", "80Gi", "ext4"), user("b", "80Gi", "xfs").priority(-1)],
        {"a": "n1", "b": ""}, {"b": f"0/1 nodes are available: 1 {FULL}"}, id="two classes of one volume group"),
    pytest.param([*lvm_node("n1"), a_csi_driver(LVM).tracks_capacity(), *group("ssd"), *group("hdd"),
        left("n1", "ssd", "100Gi"), user("a", "1Gi", "ssd"), user("b", "1Gi", "hdd")],
        {"a": "n1", "b": ""}, {"b": f"0/1 nodes are available: 1 {FULL}"}, id="a class without capacity objects"),
])  # fmt: skip
def test_classes_have_their_own_capacity(
    simulate: Simulation, objects: list[Builder[Any]], nodes: dict[str, str], reasons: dict[str, str]
) -> None:
    _, shown, _ = simulate.of(*objects)
    assert (shown["settled"], nodes_of(shown), reasons_of(shown)) == (True, nodes, reasons)


def test_what_if_does_not_promise_the_capacity_of_another_class(
    guest: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    dump, question = tmp_path / "dump.json", tmp_path / "question.json"
    items = [each.obj() for each in (*TWO_NODES, *GROUPS)]
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    question.write_text(json.dumps(user("a", "40Gi", "hdd").obj()))

    cli.main(["what-if", "--cluster", str(dump), "-f", str(question)])

    shown = capsys.readouterr().out
    assert shown.startswith(f"0 of 1 pod fits\n\ndefault/a: none of 2 nodes fits: 2 {FULL}\n")


def disk_node(name: str, *disks: str) -> list[Builder[Any]]:
    """Return a node of a zone whose machine can attach these kinds of disks."""
    made = a_node(name).cpu("8").label(ZONE, "z")
    for disk in disks:
        made = made.label(f"disk-type.example.com/{disk}", "true")
    keys = (ZONE, *(f"disk-type.example.com/{disk}" for disk in disks))
    return [made, a_csi_node(name).driver(DISKS, topology_keys=keys)]


def apart(name: str) -> PodBuilder:
    term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": HOSTNAME}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return a_pod(name).cpu("100m").label("app", "a").pvc("shared").affinity({"podAntiAffinity": rule})


def test_a_volume_is_out_of_reach_of_machines_with_other_topology_keys(simulate: Simulation) -> None:
    allowed = [
        {"key": ZONE, "values": ["z"]},
        {"key": "disk-type.example.com/balanced", "values": ["true"]},
    ]
    _, shown, _ = simulate.of(
        *(*disk_node("old", "spinning", "ssd"), *disk_node("new", "balanced")),
        a_class("balanced", DISKS).set({"allowedTopologies": [{"matchLabelExpressions": allowed}]}),
        *(a_claim("shared", "1Gi", "balanced"), apart("a"), apart("b")),
    )
    assert (shown["settled"], sorted(nodes_of(shown).values())) == (True, ["", "new"])
    (reason,) = reasons_of(shown).values()
    assert reason == (
        "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, "
        "1 node(s) didn't match pod anti-affinity rules"
    )


def test_a_volume_on_a_node_without_the_driver(simulate: Simulation) -> None:
    """The only node with enough CPU does not list the driver: the provisioner requests no volume there."""
    _, shown, _ = simulate.of(
        *disk_node("small", "ssd"),
        *(a_node("large").cpu("64").label(ZONE, "z"), a_csi_node("large")),
        *(a_class("ssd", DISKS), a_claim("data", "1Gi", "ssd"), a_pod("db").cpu("32").pvc("data")),
    )
    (db,) = shown["pods"]
    assert (shown["settled"], db["node"], db["reason"]) == (True, None, "WaitForVolumeBinding")
    assert db["message"] == (
        'waits for its volumes: claim "data": error generating accessibility requirements: '
        "no topology key found for node large"
    )


def test_a_clone_of_a_volume_that_is_created_here(simulate: Simulation) -> None:
    """The provisioner requests the second volume again once the first claim is bound."""
    clone = a_claim("copy", "1Gi", "ssd").set(
        {"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "data"}}}
    )
    _, shown, _ = simulate.of(
        *(*disk_node("n1", "ssd"), a_class("ssd", DISKS), a_claim("data", "1Gi", "ssd"), clone),
        *(a_pod("reader").cpu("100m").priority(1).pvc("copy"), a_pod("db").cpu("100m").pvc("data")),
    )
    assert (shown["settled"], nodes_of(shown)) == (True, {"reader": "n1", "db": "n1"})


def test_the_example_of_volumes(simulate: Simulation) -> None:
    code, shown, _ = simulate(str(EXAMPLES / "volumes.yaml"))
    assert (code, shown["problems"], shown["settled"]) == (0, [], True)
    placed = placements(shown)

    databases = {placed[f"database-{i}"][0] for i in range(3)}
    assert databases == {"store-1", "store-2", "store-3"}
    assert placed["archive"] == ("store-1", "")
    racks = sorted(placed[f"queue-{i}"][0] for i in range(3))
    assert (racks[-1], set(racks[:2]) <= {"store-1", "store-2"}) == ("store-3", True)
    assert {placed[f"scratch-{i}"][0] for i in range(2)} == {"small-1"}

    assert "did not have enough free storage" in placed["warehouse"][1]
    assert "1 node(s) exceed max volume count" in placed["scratch-too-many"][1]
    assert 'persistentvolumeclaim "forgotten" not found' in placed["forgotten"][1]


def test_a_burst_does_not_use_more_than_there_is(simulate: Simulation) -> None:
    _, shown, _ = simulate.of(
        *(a_node(f"n{i}").cpu("8").label(RACK, f"r{i}") for i in range(2)),
        a_class("w", STORAGE_DRIVER),
        a_csi_driver(STORAGE_DRIVER).tracks_capacity(),
        a_capacity("r0", "w", "35Gi").where(RACK, "r0"),
        a_capacity("r1", "w", "20Gi").where(RACK, "r1"),
        *(a_pod(f"p{i}").ephemeral("v", "10Gi", "w") for i in range(12)),
    )
    assert shown["settled"]
    placed = placements(shown)
    nodes = [where for where, _ in placed.values()]
    assert (nodes.count("n0"), nodes.count("n1"), nodes.count("")) == (3, 2, 7)
    reasons = {why for where, why in placed.values() if not where}
    assert reasons == {"0/2 nodes are available: 2 node(s) did not have enough free storage"}
