"""Fixes hold after controllers have acted: pods are created again, new nodes get daemons, and taints and labels come back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.api.decode import Delta
from scheduler.api.storage_v1 import CSINode
from scheduler.core.cooperative import finish
from scheduler.explain.answer import Explanation, as_text
from scheduler.explain.what_if import WhatIfRequest
from tests.explained.edited import refused
from tests.unit.harness import SchedulerHarness, manifest, read_pod

HOSTNAME = "kubernetes.io/hostname"
ARCH = "kubernetes.io/arch"
GPU = "gpu.example.com/whole"
REPLICAS = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web"}
OTHER = REPLICAS | {"name": "db", "uid": "db"}
DAEMON = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "uid": "ds"}
STATIC = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
PORT = [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]
PINNED = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
        }
    }
}


def cluster(nodes: dict[str, dict[str, Any]], pods: dict[str, dict[str, Any]]) -> SchedulerHarness:
    """Return nodes, and pods of which `owner` is the controller."""
    sched = SchedulerHarness()
    for name, more in nodes.items():
        sched.node(name, **{"labels": {HOSTNAME: name}} | more)
    for name, more in pods.items():
        spec = dict(more)
        owner = spec.pop("owner", None)
        raw = manifest(name, **spec)
        raw["metadata"]["ownerReferences"] = [owner | {"controller": True}] if owner else []
        sched.seen[name] = made = read_pod(raw)
        sched.parts.event_handlers.apply("Pod", [Delta(None, made)])
    sched.parts.inbox.apply()
    return sched


def explained(sched: SchedulerHarness) -> Explanation:
    found = finish(sched.parts.explainer.explain("default/p"))
    assert found is not None
    return found


def texts(found: Explanation) -> list[str]:
    """Return the texts of the verified fixes."""
    return ["; ".join(change.text for change in fix.changes) for fix in found.fixes if fix.verified]


LOWER = "request 500m of cpu instead of 1"
ADD = "add a node like n1"

COMPONENTS = [
    ("ToBeDeletedByClusterAutoscaler", "Cluster Autoscaler is removing node n1"),
    ("karpenter.sh/disrupted", "Karpenter is removing node n1"),
    ("karpenter.sh/unregistered", "Karpenter has not registered node n1 yet"),
    ("node.cilium.io/agent-not-ready", "Cilium is not ready on node n1"),
    ("node.cluster.x-k8s.io/uninitialized", "Cluster API has not initialized node n1 yet"),
    ("aws-node-termination-handler/spot-itn", "AWS Node Termination Handler is draining node n1"),
    ("startup-taint.cluster-autoscaler.kubernetes.io/agent", "node n1 is starting"),
]

FIXES = [
    pytest.param(
        {"n1": {"cpu": "2"}},
        {"a": {"cpu": "1500m", "on": "n1", "owner": OTHER}, "p": {"cpu": "1"}},
        [LOWER, ADD],
        id="a deleted pod of a ReplicaSet would take its capacity again",
    ),
    pytest.param(
        {"n1": {"cpu": "2", "labels": {ARCH: "arm64"}}, "n2": {"cpu": "4"}},
        {"a": {"cpu": "1500m", "on": "n1", "owner": OTHER}, "p": {"cpu": "1", "nodeSelector": {ARCH: "arm64"}}},
        [f"remove {ARCH}=arm64 from the nodeSelector", LOWER, "delete pod default/a on node n1"],
        id="a deleted pod of a ReplicaSet goes to another node",
    ),
    pytest.param(
        {"n1": {"cpu": "2"}},
        {"a": {"cpu": "750m", "on": "n1", "owner": OTHER}, "b": {"cpu": "750m", "on": "n1"}, "p": {"cpu": "1"}},
        [LOWER, "delete pod default/b on node n1", ADD],
        id="of two pods the one without a controller is deleted",
    ),
    pytest.param(
        {"n1": {"cpu": "2"}},
        {"a": {"cpu": "1500m", "on": "n1", "owner": DAEMON}, "p": {"cpu": "1"}},
        [LOWER],
        id="a DaemonSet's pod is neither deleted nor absent from a new node",
    ),
    pytest.param(
        {"n1": {"cpu": "2"}},
        {"a": {"cpu": "1500m", "on": "n1", "owner": STATIC}, "p": {"cpu": "1"}},
        [LOWER],
        id="a static pod is neither deleted nor absent from a new node",
    ),
    pytest.param(
        {"n1": {"cpu": "2"}, "n2": {"cpu": "2", "unschedulable": True}},
        {"a": {"containers": PORT, "on": "n1", "owner": REPLICAS}, "p": {"containers": PORT, "owner": REPLICAS}},
        [
            "uncordon node n2",
            "tolerate the taint node.kubernetes.io/unschedulable:NoSchedule",
            "give up host port 80/TCP of container c",
        ],
        id="the pod's own siblings are not deleted",
    ),
    pytest.param(
        {"n1": {}},
        {"a": {"containers": PORT, "on": "n1", "owner": DAEMON}, "p": {"containers": PORT}},
        ["give up host port 80/TCP of container c"],
        id="the host port of a DaemonSet is taken on each node",
    ),
    pytest.param(
        {"n1": {"cpu": "2"}},
        {"a": {"cpu": "1500m", "on": "n1", "priority": 9}, "p": {"cpu": "1", "priority": 5}},
        [LOWER, ADD, "delete pod default/a on node n1"],
        id="a pod of a higher priority is deleted last",
    ),
    pytest.param(
        {"n1": {"cpu": "2"}},
        {
            "high": {"cpu": "800m", "on": "n1", "priority": 9},
            "low": {"cpu": "900m", "on": "n1", "priority": 4},
            "p": {"cpu": "1", "priority": 5, "preemptionPolicy": "Never"},
        },
        ["request 300m of cpu instead of 1", "delete pod default/low on node n1", ADD],
        id="a pod of a lower priority is deleted first",
    ),
    pytest.param(
        {"n1": {"cpu": "1"}, "n2": {}},
        {"a": {"cpu": "900m", "on": "n1"}, "p": {"cpu": "500m", "affinity": PINNED, "owner": DAEMON}},
        ["request 100m of cpu instead of 500m", "delete pod default/a on node n1"],
        id="a DaemonSet's pod keeps its node",
    ),
    pytest.param(
        {"n1": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}},
        {"p": {}},
        [],
        id="a node that is not ready",
    ),
    pytest.param(
        {
            "n1": {"taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]},
            "n2": {"taints": [{"key": "team", "effect": "NoSchedule"}]},
        },
        {"p": {}},
        ["tolerate the taint team:NoSchedule", "remove the taint team:NoSchedule from node n2"],
        id="a node that is not initialized, and one with an ordinary taint",
    ),
    pytest.param(
        {"n1": {}},
        {"p": {"nodeSelector": {ARCH: "arm64"}}},
        [f"remove {ARCH}=arm64 from the nodeSelector"],
        id="a label of the kubelet",
    ),
    pytest.param(
        {"n1": {}},
        {"p": {"nodeSelector": {"topology.kubernetes.io/zone": "b", "disk": "ssd"}}},
        ["remove topology.kubernetes.io/zone=b from the nodeSelector; remove disk=ssd from the nodeSelector"],
        id="a label of the cloud provider next to another one",
    ),
    pytest.param(
        {"n1": {}},
        {"p": {"nodeSelector": {"plugin.example.com/model": "a"}}},
        ["remove plugin.example.com/model=a from the nodeSelector"],
        id="a label with a domain",
    ),
    pytest.param(
        {"n1": {}},
        {"p": {"nodeSelector": {"node-restriction.kubernetes.io/team": "a"}}},
        [
            "remove node-restriction.kubernetes.io/team=a from the nodeSelector",
            "label node n1 node-restriction.kubernetes.io/team=a",
        ],
        id="a label that only administrators set",
    ),
    pytest.param(
        {"n1": {"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]}},
        {"p": {}},
        [
            "tolerate the taint node-role.kubernetes.io/control-plane:NoSchedule",
            "remove the taint node-role.kubernetes.io/control-plane:NoSchedule from node n1",
        ],
        id="the taint of a control plane node",
    ),
    pytest.param(
        {"n1": {"taints": [{"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"}]}},
        {"p": {}},
        ["tolerate the taint kubernetes.azure.com/scalesetpriority=spot:NoSchedule"],
        id="a taint of the cloud provider that says what the node is for",
    ),
    pytest.param(
        {"n1": {GPU: "4", "taints": [{"key": GPU, "value": "present", "effect": "NoSchedule"}]}},
        {"p": {}},
        [f"tolerate the taint {GPU}=present:NoSchedule"],
        id="a taint whose key is an extended resource of the node",
    ),
    *(
        pytest.param(
            {"n1": {"taints": [{"key": key, "effect": "NoSchedule"}]}, "n2": {"cpu": "1"}},
            {"a": {"cpu": "800m", "on": "n2"}, "p": {"cpu": "1"}},
            ["request 200m of cpu instead of 1", "delete pod default/a on node n2", "add a node like n2"],
            id=f"the taint {key} of a component, and another node",
        )
        for key, _ in COMPONENTS
    ),
    pytest.param(
        {"n1": {"unschedulable": True, "labels": {"aws-node-termination-handler/action": "cordon"}}},
        {"p": {}},
        [],
        id="a node that a component has cordoned, by its label",
    ),
    pytest.param(
        {"n1": {"unschedulable": True, "annotations": {"machineconfiguration.openshift.io/state": "Working"}}},
        {"p": {}},
        [],
        id="a node that a component has cordoned, by its annotation",
    ),
    pytest.param(
        {"n1": {"unschedulable": True, "annotations": {"machineconfiguration.openshift.io/state": "Done"}}},
        {"p": {}},
        ["uncordon node n1", "tolerate the taint node.kubernetes.io/unschedulable:NoSchedule"],
        id="a cordoned node that a component has left",
    ),
    pytest.param(
        {"n1": {"unschedulable": True, "taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}},
        {"p": {"tolerations": [{"key": "karpenter.sh/disrupted", "operator": "Exists"}]}},
        [],
        id="a cordoned node with a component's taint that the pod tolerates",
    ),
    pytest.param(
        {"n1": {"deleting": True, "cpu": "2", "taints": [{"key": "team", "effect": "NoSchedule"}]}, "n2": {"cpu": "1"}},
        {"a": {"cpu": "800m", "on": "n2"}, "p": {"cpu": "1"}},
        ["request 200m of cpu instead of 1", "delete pod default/a on node n2", "add a node like n2"],
        id="a node that is being deleted",
    ),
]


@pytest.mark.parametrize(("nodes", "pods", "expected"), FIXES)
def test_fixes_hold_after_controllers_have_acted(
    nodes: dict[str, dict[str, Any]], pods: dict[str, dict[str, Any]], expected: list[str]
) -> None:
    sched = cluster(nodes, pods)
    before = sched.cluster.sizes()

    found = explained(sched)

    assert (found.verdict, texts(found)) == ("doesNotFit", expected)
    assert (
        refused(manifest("p", **{key: value for key, value in pods["p"].items() if key != "owner"}), found.fixes) == []
    )
    assert sched.cluster.sizes() == before
    assert found.move == (
        "administrator"
        if not expected or expected[0].startswith(("uncordon", "delete", "remove the taint"))
        else "user"
    )


def test_a_taint_of_the_kubelet_is_named_with_the_node() -> None:
    sched = cluster({"n1": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}}, {"p": {}})

    found = explained(sched)

    note = "node n1 is unreachable (taint node.kubernetes.io/unreachable): repair it"
    assert [group.notes for group in found.groups] == [(note,)]
    assert note in as_text(found)


@pytest.mark.parametrize(("key", "said"), COMPONENTS)
def test_the_component_that_has_tainted_a_node_is_named(key: str, said: str) -> None:
    found = explained(cluster({"n1": {"taints": [{"key": key, "effect": "NoSchedule"}]}}, {"p": {}}))

    assert [group.notes for group in found.groups] == [(f"{said} (taint {key})",)]
    assert (found.fixes, found.move) == ((), "administrator")


def test_an_unknown_taint_is_named_with_its_domain() -> None:
    taint = {"key": "storage.example.com/rebuild", "value": "x", "effect": "NoSchedule"}
    found = explained(cluster({"n1": {"taints": [taint]}}, {"p": {}}))

    said = "node n1 has the taint storage.example.com/rebuild=x:NoSchedule: "
    said += "only the owner of storage.example.com knows whether the pod may tolerate it"
    assert ([group.notes for group in found.groups], found.fixes) == ([(said,)], ())


@pytest.mark.parametrize(("node", "said"), [
    pytest.param({"deleting": True}, "node n1 is being deleted", id="deleted"),
    pytest.param({"unschedulable": True, "annotations": {"weave.works/kured-reboot-in-progress": "now"}}, "Kured is rebooting node n1 (weave.works/kured-reboot-in-progress)", id="cordoned by a component"),
])  # fmt: skip
def test_the_departure_of_a_node_is_named(node: dict[str, Any], said: str) -> None:
    found = explained(cluster({"n1": node}, {"p": {"nodeSelector": {"disk": "ssd"}}}))

    assert [group.notes for group in found.groups] == [(said,)]


@pytest.mark.parametrize(("cpu", "placed"), [("2", 0), ("1", 1)])
def test_a_new_node_has_the_pods_of_daemon_sets(cpu: str, placed: int) -> None:
    sched = cluster(
        {"n1": {"cpu": "2"}}, {"a": {"cpu": "1", "on": "n1", "owner": DAEMON}, "b": {"cpu": "1", "on": "n1"}}
    )
    raw = {"kind": "Pod", "metadata": {"name": "w"}, "spec": manifest("w", cpu=cpu)["spec"]}

    found = finish(sched.parts.what_if.answer(WhatIfRequest(manifests=(raw,), add_nodes_like={"n1": 1})))

    assert found.placed == placed
    assert sched.cluster.nodes.present_slot("n1-what-if") is None


def test_the_csi_node_of_a_new_node_is_one_that_an_api_server_takes() -> None:
    sched = cluster({"n1": {"cpu": "2"}}, {"a": {"cpu": "2", "on": "n1"}, "p": {"cpu": "1"}})
    read = {"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "d", "allocatable": {"count": 3}}]}}
    sched.cluster.volumes.set_csi_node("n1", msgspec.convert(read, CSINode))

    found = explained(sched)

    added = next(fix for fix in found.fixes if fix.changes[0].code == "AddNode")
    edits = {edit.kind: edit for edit in added.edits}
    assert added.changes[0].is_description
    assert edits["Node"].like == "n1"
    heads = [
        (edit.manifest["apiVersion"], edit.manifest["kind"], edit.manifest["metadata"]["name"])
        for edit in edits.values()
    ]
    assert heads == [("v1", "Node", "n1-what-if"), ("storage.k8s.io/v1", "CSINode", "n1-what-if")]
    assert edits["CSINode"].manifest["spec"]["drivers"] == [
        {"name": "d", "allocatable": {"count": 3}, "nodeID": "n1-what-if"}
    ]


@pytest.mark.parametrize(("gates", "move", "fixes"), [
    pytest.param(("kueue.x-k8s.io/admission",), "wait", 0, id="the gate of a controller"),
    pytest.param(("mine",), "user", 1, id="a gate without a domain"),
])  # fmt: skip
def test_the_controller_of_a_gate_removes_it(gates: tuple[str, ...], move: str, fixes: int) -> None:
    found = explained(cluster({"n1": {}}, {"p": {"gates": gates}}))

    assert (found.verdict, found.move, len(found.fixes), found.node) == ("fitsAfter", move, fixes, "n1")


@pytest.mark.parametrize(("gates", "expected"), [
    pytest.param(
        ("mine", "other"),
        "remove the scheduling gate mine; remove the scheduling gate other; request 4 of cpu instead of 9",
        id="gates without a domain",
    ),
    pytest.param(("kueue.x-k8s.io/admission",), "request 4 of cpu instead of 9", id="the gate of a controller"),
])  # fmt: skip
def test_each_fix_of_a_gated_pod_that_fits_nowhere_also_removes_its_gates(
    gates: tuple[str, ...], expected: str
) -> None:
    """The rest of a fix alone would leave the pod gated."""
    found = explained(cluster({"n1": {"cpu": "4"}}, {"p": {"cpu": "9", "gates": gates}}))

    assert (found.code, found.verdict, texts(found)) == ("Gated", "doesNotFit", [expected])


def test_a_pod_on_a_node_that_does_not_exist_does_not_run() -> None:
    found = explained(cluster({"n1": {}}, {"p": {"on": "nope"}}))

    assert (found.verdict, found.exit_code, found.code) == ("doesNotFit", 2, "NodeMissing")
    assert found.cause == "node nope does not exist; the pod does not run"


@pytest.mark.parametrize(("claim", "expected"), [
    pytest.param(
        {"resourceClaimName": "c"},
        ("doesNotFit", "user", "create ResourceClaim default/c"),
        id="a claim that a user creates",
    ),
    pytest.param(
        {"resourceClaimTemplateName": "t"},
        ("fitsAfter", "wait", "ResourceClaimTemplate default/t, which must exist"),
        id="a claim that a controller creates",
    ),
])  # fmt: skip
def test_a_device_claim_that_does_not_exist(claim: dict[str, str], expected: tuple[str, str, str]) -> None:
    found = explained(cluster({"n1": {}}, {"p": {"resourceClaims": [{"name": "r", **claim}]}}))

    assert (found.verdict, found.move, found.code) == (*expected[:2], "DeviceClaimMissing")
    assert found.cause.endswith(expected[2])


def test_control_characters_of_the_cluster_do_not_reach_the_terminal() -> None:
    found = explained(cluster({"n1": {}}, {"p": {"nodeSelector": {"a": "b"}}}))
    forged = msgspec.structs.replace(found, cause="\x1b[2J\u202e")

    assert as_text(forged).startswith("default/p: \\x1b[2J\\u202e\n")
