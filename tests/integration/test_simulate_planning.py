"""`kubestow simulate` with changes of the cluster: the outcome with them, and the difference to the outcome without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli import main as cli
from scheduler.cli.client_flags import SCALED_KINDS
from simulator.builders.claims import a_claim as a_device_claim, a_claim_template, a_result
from simulator.builders.core import node as a_node, pod as a_pod
from simulator.builders.devices import a_device, a_device_class, a_node_selector, a_slice, on_node
from simulator.simulate.planning.changes import SCALED
from tests.integration.conftest import Simulation, nodes_of, workload
from tests.integration.test_simulate import pod
from tests.integration.test_simulate_groups import group, members
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_csi_driver, a_csi_node, a_pv

NODE = '{apiVersion: v1, kind: Node, metadata: {name: "n"}, status: {allocatable: {cpu: "4", memory: 4Gi}}}'
TWIN = NODE.replace('"n"', '"twin"')
GPU_DRIVER = "gpu.example.com"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web-uid", "controller": True}


def bound(name: str, node: str = "n", cpu: str = "1", **fields: Any) -> dict[str, Any]:
    """Return a pod on a node that a ReplicaSet which the input lacks has created."""
    made: dict[str, Any] = json.loads(pod(name, cpu, nodeName=node))
    made["metadata"] |= {"ownerReferences": [OWNER]}
    made["spec"] |= fields
    return made


def changes(shown: dict[str, Any]) -> dict[str, dict[str, tuple[str | None, str | None]]]:
    """Return kind of difference → pod → node before and after."""
    return {
        kind: {each["pod"].partition("/")[2]: (each["before"], each["after"]) for each in shown["plan"][kind]}
        for kind in ("unplaced", "placed", "moved")
    }


def test_without_changes_nothing_is_compared(simulate: Simulation) -> None:
    _, shown, _ = simulate.of(NODE, pod("a"))

    assert shown["plan"] is None


def test_an_added_node_gets_the_pods_that_did_not_fit(simulate: Simulation) -> None:
    code, shown, _ = simulate.of(NODE, pod("a", "4"), pod("b", "4"), flags=["--add-node-like=n"])

    assert code == 0
    assert sorted(nodes_of(shown).values()) == ["n", "n-what-if"]
    assert shown["plan"]["changes"] == ["add 1 node like n"]
    assert (shown["plan"]["before"]["placed"], shown["summary"]["placed"]) == (1, 2)
    assert (shown["plan"]["before"]["nodes"], shown["summary"]["nodes"]) == (1, 2)
    assert len(shown["plan"]["placed"]) == 1
    assert not shown["plan"]["unplaced"]


def test_copies_add_up(simulate: Simulation) -> None:
    _, shown, _ = simulate.of(NODE, pod("a"), flags=["--add-node-like=n=2", "--add-node-like=n"])

    assert {each["node"] for each in shown["nodes"]} == {"n", "n-what-if", "n-what-if-2", "n-what-if-3"}


def test_the_pods_of_a_drained_node_move(simulate: Simulation) -> None:
    code, shown, _ = simulate.of(NODE, TWIN, bound("a"), flags=["--drain=n"])

    assert code == 0
    assert changes(shown) == {"unplaced": {}, "placed": {}, "moved": {"a": ("n", "twin")}}


def test_the_pods_of_a_drained_node_that_fit_nowhere(simulate: Simulation) -> None:
    code, shown, _ = simulate.of(NODE, TWIN, bound("a", cpu="3"), bound("b", "twin", cpu="3"), flags=["--drain=n"])

    assert code == 1
    assert changes(shown)["unplaced"] == {"a": ("n", None)}
    assert "Insufficient cpu" in shown["plan"]["unplaced"][0]["reason"]


def test_a_drained_pod_without_a_controller_is_gone(simulate: Simulation) -> None:
    code, shown, _ = simulate.of(NODE, TWIN, pod("alone", nodeName="n"), flags=["--drain=n"])

    assert code == 1
    assert shown["problems"] == ["default/alone is gone: it leaves node n, and no controller creates it again"]
    assert changes(shown)["unplaced"] == {"alone": ("n", None)}


def test_pods_that_belong_to_a_drained_node_stay(simulate: Simulation) -> None:
    owner = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "agent-uid", "controller": True}]
    agent = bound("agent")
    agent["metadata"]["ownerReferences"] = owner
    code, shown, _ = simulate.of(NODE, TWIN, agent, pod("a"), flags=["--drain=n"])

    assert code == 0
    assert nodes_of(shown) == {"a": "twin"}
    assert changes(shown)["moved"] == {}


@pytest.mark.parametrize("has_daemon_set", [True, False])
def test_an_added_node_has_the_pods_of_daemon_sets_once(simulate: Simulation, *, has_daemon_set: bool) -> None:
    daemon_set = workload("DaemonSet", "agent", 1, cpu="1")
    del daemon_set["spec"]["replicas"]
    daemon_set["metadata"]["uid"] = "agent-uid"
    agent = bound("agent-0")
    agent["metadata"] |= {"labels": {"app": "agent"}}
    agent["metadata"]["ownerReferences"] = [OWNER | {"kind": "DaemonSet", "name": "agent", "uid": "agent-uid"}]
    objects: list[str | dict[str, Any]] = [NODE, agent, *([daemon_set] if has_daemon_set else [])]
    _, shown, _ = simulate.of(*objects, pod("a", "3"), pod("b", "3"), flags=["--add-node-like=n"])

    used = {each["node"]: each["resources"][0]["requested"] for each in shown["nodes"]}
    assert used == {"n": "4", "n-what-if": "4"}
    assert set(nodes_of(shown).values()) == {"n", "n-what-if"}


def test_a_cordoned_node_gets_no_pod_and_its_copy_does(simulate: Simulation) -> None:
    _, shown, _ = simulate.of(NODE, pod("a"), flags=["--cordon=n"])
    assert changes(shown)["unplaced"] == {"a": ("n", None)}

    _, shown, _ = simulate.of(NODE, pod("a"), flags=["--cordon=n", "--add-node-like=n"])
    assert nodes_of(shown) == {"a": "n-what-if"}


@pytest.mark.parametrize(
    ("replicas", "placed", "unplaced"), [(4, {"web-2", "web-3"}, set()), (0, set(), {"web-0", "web-1"})]
)
def test_a_scaled_workload(simulate: Simulation, replicas: int, placed: set[str], unplaced: set[str]) -> None:
    web = workload("StatefulSet", "web", 2)
    _, shown, _ = simulate.of(NODE, web, flags=[f"--scale=statefulset/web={replicas}"])

    found = changes(shown)
    assert set(found["placed"]) == placed
    assert set(found["unplaced"]) == unplaced


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_workload_is_scaled_to_more_pods_than_can_be_simulated(simulate: Simulation, kind: str) -> None:
    """The number is that of the flag and not of the document, which has another one."""
    web = workload(kind, "web", 1)
    code, _, said = simulate.of(NODE, web, flags=[f"--scale={kind.lower()}/web=1000001"])

    assert code == 2
    assert said == f"--scale {kind}/web=1000001: is more than the 1000000 pods that can be simulated\n"


@pytest.mark.parametrize("flag", ["--scale=deployment/web=2", "--scale=deployment/b/web=2"])
def test_a_workload_is_named_with_its_namespace_if_there_are_two(simulate: Simulation, flag: str) -> None:
    webs = [workload("Deployment", "web", 1, namespace=each) for each in "ab"]
    code, shown, said = simulate.of(NODE, *webs, flags=[flag])

    if "/b/" in flag:
        assert (code, len(shown["pods"])) == (0, 3)
    else:
        assert code == 2
        assert "in several namespaces (a, b); name one: --scale Deployment/a/web=2" in said


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("--drain=x", "--drain: the input has no node x"),
        ("--cordon=x", "--cordon: the input has no node x"),
        ("--add-node-like=x", "--add-node-like: the input has no node x"),
        ("--scale=job/x=1", "--scale: the input has no Job x"),
        ("--add-node-like=n", "the input has Node n-what-if, the name of a copy, already"),
    ],
)
def test_changes_of_objects_that_the_input_lacks(simulate: Simulation, flag: str, why: str) -> None:
    code, _, said = simulate.of(NODE, NODE.replace('"n"', '"n-what-if"'), pod("a"), flags=[flag])

    assert code == 2
    assert why in said


@pytest.mark.parametrize(
    "flag", ["--scale=web=1", "--scale=pod/web=1", "--scale=job/web=-1", "--scale=job/web", "--drain=A"]
)
def test_malformed_changes(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["simulate", flag, "x.yaml"])

    assert ended.value.code == 2


def test_the_difference_as_text(
    guest: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.yaml").write_text("\n---\n".join([NODE, TWIN, json.dumps(bound("a")), pod("b", "4"), pod("c", "4")]))
    code = cli.main(["simulate", "in.yaml", "--drain=n", "--add-node-like=n=2"])

    out = capsys.readouterr().out
    assert code == 0
    assert "changes: add 2 nodes like n, drain n\n" in out
    assert "before: 2 pods on 2 nodes, 1 pending\nafter:  3 pods on 4 nodes, 0 pending\n" in out
    assert "~ default/a  n → " in out


def test_a_group_that_starts_with_another_node(simulate: Simulation) -> None:
    version = "scheduling.x-k8s.io/v1alpha1"
    objects: list[str | dict[str, Any]] = [NODE, group(version, "train", 2), *members(version, "train", 2, cpu="3")]
    _, shown, _ = simulate.of(*objects, flags=["--add-node-like=n"])

    (found,) = shown["plan"]["groups"]
    assert [(found[when]["placed"], found[when]["started"]) for when in ("before", "after")] == [(0, False), (2, True)]


def test_the_command_line_has_the_kinds_that_can_be_scaled() -> None:
    assert tuple(SCALED) == SCALED_KINDS


# -- devices and volumes -------------------------------------------------------------------------------------------------


def gpu_node(name: str) -> tuple[Any, Any]:
    """Return a node with one device."""
    return a_node(name), a_slice(name, GPU_DRIVER, a_device("d0"))


def on(node: str, pod: Any) -> Any:
    """Return the pod on this node, created by a controller that the input lacks."""
    return pod.bound_to(node).set({"metadata": {"ownerReferences": [OWNER]}})


def allocated(name: str, *users: str) -> Any:
    """Return a claim that has the device of node n1, for these pods."""
    claim = a_device_claim(name).request("r", "gpu").allocated(a_result("r", f"{GPU_DRIVER}/n1/d0"))
    for each in users:
        claim = claim.reserved_for(each)
    return claim


def test_a_copy_has_own_devices(simulate: Simulation) -> None:
    claims = [a_device_claim(each).request("r", "gpu") for each in "ab"]
    pods = [a_pod(each).claim("e", claim=each) for each in "ab"]
    code, shown, _ = simulate.of(*gpu_node("n1"), a_device_class("gpu"), *claims, *pods, flags=["--add-node-like=n1"])

    assert code == 0
    assert sorted(nodes_of(shown).values()) == ["n1", "n1-what-if"]


def test_a_copy_has_as_many_pools_of_a_driver_as_its_model(simulate: Simulation) -> None:
    pools = [a_slice("n1", GPU_DRIVER, a_device("d0")).named(each).pool(each) for each in ("fast", "slow")]
    claim = a_device_claim("a").request("r", "gpu", count=1)
    _, shown, _ = simulate.of(
        *(a_node("n1"), *pools, a_device_class("gpu"), claim, a_pod("a").claim("e", claim="a")),
        flags=["--add-node-like=n1", "--cordon=n1"],
    )

    assert nodes_of(shown) == {"a": "n1-what-if"}
    pools_of_copy = [each["pool"] for each in shown["nodes"][1]["devicePools"]]
    assert pools_of_copy == ["fast-n1-what-if", "slow-n1-what-if"]


def test_a_copy_of_a_node_with_an_old_slice(simulate: Simulation) -> None:
    """A slice of resource.k8s.io/v1beta1 has its devices inside `basic`."""
    node, found = gpu_node("n1")
    old = found.obj() | {"apiVersion": "resource.k8s.io/v1beta1"}
    old["spec"]["devices"] = [{"name": "d0", "basic": {"attributes": {"model": {"string": "m"}}}}]
    _, shown, _ = simulate.of(
        *(node, old, a_device_class("gpu", f'device.attributes["{GPU_DRIVER}"].model == "m"')),
        a_device_claim("a").request("r", "gpu"),
        a_pod("a").claim("e", claim="a"),
        flags=["--add-node-like=n1", "--cordon=n1", "--validate=warn"],
    )

    assert nodes_of(shown) == {"a": "n1-what-if"}
    assert [each["pool"] for each in shown["pods"][0]["devices"]] == ["n1-what-if"]


@pytest.mark.parametrize(
    ("users", "node"),
    [
        pytest.param(("a",), "n2", id="of the pod alone"),
        pytest.param(("a", "b"), "", id="of a pod that stays"),
    ],
)
def test_the_devices_of_a_drained_pod(simulate: Simulation, users: tuple[str, ...], node: str) -> None:
    """They are free again, unless a pod that stays uses them: then the claim can be used at the drained node only."""
    static = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1-uid", "controller": True}
    _, shown, _ = simulate.of(
        *(*gpu_node("n1"), *gpu_node("n2"), a_device_class("gpu")),
        allocated("used", *users).set({"status": {"allocation": {"nodeSelector": on_node("n1")}}}),
        on("n1", a_pod("a").claim("e", claim="used")),
        a_pod("b").claim("e", claim="used").bound_to("n1").set({"metadata": {"ownerReferences": [static]}}),
        flags=["--drain=n1"],
    )

    assert nodes_of(shown) == {"a": node}


def test_a_claim_that_was_made_for_a_drained_pod(simulate: Simulation) -> None:
    _, shown, _ = simulate.of(
        *(*gpu_node("n1"), *gpu_node("n2"), a_device_class("gpu"), a_claim_template("t").request("r", "gpu")),
        allocated("a-e-x", "a").for_entry("e").owned_by("a", "a-uid"),
        on("n1", a_pod("a").uid("a-uid").claim("e", template="t").claim_made("e", "a-e-x")),
        flags=["--drain=n1"],
    )

    assert nodes_of(shown) == {"a": "n2"}
    assert [(each["claim"], each["pool"]) for each in shown["pods"][0]["devices"]] == [("default/a-e-x", "n2")]


def test_the_extended_resource_of_a_drained_pod(simulate: Simulation) -> None:
    """The scheduler makes another claim."""
    claim = allocated("old", "a").for_extended_resources().owned_by("a", "a-uid")
    pod = a_pod("a").uid("a-uid").extended("x.example/gpu", "1")
    _, shown, _ = simulate.of(
        *(*gpu_node("n1"), *gpu_node("n2")),
        *(a_device_class("gpu").set({"spec": {"extendedResourceName": "x.example/gpu"}}), claim),
        on("n1", pod.extended_claim("old", ("main", "x.example/gpu", "r"))),
        flags=["--drain=n1"],
    )

    assert nodes_of(shown) == {"a": "n2"}
    assert [each["pool"] for each in shown["pods"][0]["devices"]] == ["n2"]


def test_an_ephemeral_volume_of_a_drained_pod_is_made_again(simulate: Simulation) -> None:
    """A volume of a claim that the user made keeps the pod at the drained node."""
    nodes = [a_node(name) for name in ("n1", "n2")]
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default"}
    affinity = {"required": a_node_selector(("kubernetes.io/hostname", "In", "n1"))}
    volumes = [
        a_pv(f"pv-{each}", "1Gi", "w").set(
            {"spec": {"claimRef": reference | {"name": each}, "nodeAffinity": affinity}, "status": {"phase": "Bound"}}
        )
        for each in ("a-v", "b")
    ]
    claims = [a_claim(each, "1Gi", "w").bound_to(f"pv-{each}") for each in ("a-v", "b")]
    pods = [on("n1", a_pod("a").ephemeral("v", "1Gi", "w")), on("n1", a_pod("b").pvc("b"))]
    _, shown, _ = simulate.of(
        *nodes, a_class("w", "rancher.io/local-path"), *volumes, *claims, *pods, flags=["--drain=n1"]
    )

    assert nodes_of(shown) == {"a": "n2", "b": ""}


def test_a_copy_has_own_slots_and_capacity(simulate: Simulation) -> None:
    """Attach limits are those of its CSINode; local capacity is that of the node, and shared capacity stays as it is."""
    node = a_node("n1").label("topology.x/node", "n1").label("topology.x/rack", "r")
    csi_node = a_csi_node("n1").driver("x.csi", 1, topology_keys=("topology.x/node",))
    objects = [
        *(node, csi_node, a_csi_driver("x.csi").tracks_capacity(), a_class("w", "x.csi")),
        a_capacity("local", "w", "1Gi").where("topology.x/node", "n1"),
        *(a_claim(each, "1Gi", "w") for each in "ab"),
        *(a_pod(each).pvc(each) for each in "ab"),
    ]
    before, _, _ = simulate.of(*objects)
    code, shown, _ = simulate.of(*objects, flags=["--add-node-like=n1"])

    assert before == 1
    assert code == 0, shown["pods"]
    assert sorted(nodes_of(shown).values()) == ["n1", "n1-what-if"]
