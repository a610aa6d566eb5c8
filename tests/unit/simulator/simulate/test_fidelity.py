"""The simulated server has each object of the input, field by field. Only the documented additions differ."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.apiserver import LIKE_1_37, ApiServer
from simulator.simulate.input.complete import complete
from simulator.simulate.input.manifests import load
from simulator.simulate.world import ReadOptions, World

CREATED = "2024-05-06T07:08:09Z"
GONE = "2026-05-06T07:08:09Z"
INPUTS = sorted((Path(__file__).parents[3] / "e2e" / "inputs").glob("*.yaml"))
RULES = ReadOptions(scheduler_names=("kubestow",), keeps_scheduler_names=True)
ADMITTING = ("LimitRange", "RuntimeClass")
Object = dict[str, Any]


def simulated(path: Path) -> dict[tuple[str, str, str], Object]:
    """Return the objects of the server before the controllers and the scheduler start, by kind, namespace and name."""
    server = ApiServer(served=LIKE_1_37)
    cluster = complete(load([str(path)]).objects)
    World(server, cluster, RULES)
    kinds = dict.fromkeys(each.kind for each in cluster.objects)
    found = {}
    for kind in kinds:
        try:
            stored = server.objects(kind)
        except KeyError:
            continue  # a custom resource
        for each in stored:
            found[kind, each["metadata"].get("namespace", ""), each["metadata"]["name"]] = each
    return found


def differences(given: Any, stored: Any, path: str = "") -> Iterator[str]:
    """Yield the fields of the input that the server lacks or has with another value. Additions are no differences."""
    if isinstance(given, dict):
        stored = stored if isinstance(stored, dict) else {}
        for key, value in given.items():
            if value not in (None, {}, []):
                yield from differences(value, stored.get(key), f"{path}.{key}" if path else key)
    elif isinstance(given, list) and isinstance(stored, list):
        for at, value in enumerate(given):
            here = f"{path}[{at}]"
            if isinstance(value, dict):  # a server may add items, and a status may have them in another order
                least = min((list(differences(value, each, here)) for each in stored), key=len, default=[here])
                yield from least
            elif value not in stored:
                yield here
    elif given != stored:
        yield path


def is_documented(kind: str, given: Object, path: str) -> bool:
    """Return whether docs/simulate.md names the difference ("What differs from the input")."""
    if path in {"metadata.resourceVersion", "metadata.managedFields", "metadata.selfLink", "metadata.namespace"}:
        return path != "metadata.namespace" or kind == "Node"
    if kind == "Pod" and path == "status.phase":
        return bool(given["spec"].get("nodeName"))
    if kind == "Pod" and (found := re.match(r"status\.conditions(?:\[(\d+)\])?", path)):
        conditions = given["status"]["conditions"]
        missing = conditions if found[1] is None else [conditions[int(found[1])]]
        return bool(given["spec"].get("nodeName")) or all(each["type"] == "PodScheduled" for each in missing)
    return path.startswith(("spec.priority", "spec.preemptionPolicy")) and kind == "Pod"


def is_left_out(obj: Object) -> bool:
    is_over = (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return obj["kind"] == "Pod" and (is_over or "deletionTimestamp" in obj["metadata"])


def compare(path: Path) -> list[str]:
    """Return the undocumented differences, and the objects that are missing."""
    found = simulated(path)
    wrong = []
    for document in yaml.safe_load_all(path.read_text()):
        for obj in document["items"] if document["kind"] == "List" else [document]:
            kind, metadata = obj["kind"], obj["metadata"]
            if kind in ADMITTING or is_left_out(obj) or not any(key[0] == kind for key in found):
                continue
            name = (kind, metadata.get("namespace", ""), metadata["name"])
            stored = found.get(name) or found.get((kind, "default", metadata["name"]))
            if stored is None:
                wrong.append(f"{name}: missing")
                continue
            wrong += [f"{name}: {each}" for each in differences(obj, stored) if not is_documented(kind, obj, each)]
    return wrong


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.stem)
def test_an_input_of_a_known_project(path: Path) -> None:
    assert compare(path) == []


def dumped(version: str, kind: str, name: str, *, namespace: str = "a", **rest: Any) -> Object:
    """Return an object as a server lists it. `metadata` in `rest` adds to its metadata."""
    metadata = {"name": name, "uid": f"{kind}-{name}", "resourceVersion": "7", "creationTimestamp": CREATED}
    if kind not in CLUSTER_SCOPED:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata | rest.pop("metadata", {}), **rest}


CLUSTER_SCOPED = ("Namespace", "Node", "StorageClass", "PersistentVolume", "DeviceClass", "ResourceSlice", "CSINode")
FOREGROUND: Object = {
    "deletionTimestamp": GONE,
    "deletionGracePeriodSeconds": 0,
    "finalizers": ["foregroundDeletion"],
}
CONTAINER = {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "1"}}}
TEMPLATE = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [CONTAINER]}}
WORKLOAD = {"replicas": 1, "selector": {"matchLabels": {"app": "w"}}, "template": TEMPLATE}
STORAGE = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "s"}
RESULT = {"request": "r", "driver": "d.example", "pool": "n", "device": "d0"}
DEVICES = {
    "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1, "allocationMode": "ExactCount"}}]
}


def owner(kind: str, name: str, uid: str = "") -> list[Object]:
    version = "v1" if kind == "Pod" else "apps/v1"
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": uid or f"{kind}-{name}", "controller": True}]


DUMP = [
    dumped("v1", "Namespace", "default", metadata={"labels": {"team": "x"}}, status={"phase": "Active"}),
    dumped("v1", "Namespace", "a", metadata={"labels": {"team": "a"}}, status={"phase": "Active"}),
    dumped(
        *("v1", "Namespace", "gone"),
        metadata={"deletionTimestamp": GONE},
        status={"phase": "Terminating"},
    ),
    dumped(
        *("v1", "Node", "n"),
        metadata={"labels": {"type": "virtual"}} | FOREGROUND,
        spec={"taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": CREATED}]},
        status={
            "capacity": {"cpu": "4"},
            "allocatable": {"cpu": "3"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": CREATED}],
            "nodeInfo": {"kubeletVersion": "v1.37.2", "operatingSystem": "linux"},
        },
    ),
    dumped("storage.k8s.io/v1", "StorageClass", "s", provisioner="d.example", parameters={"a": "b"}),
    dumped(
        *("storage.k8s.io/v1", "CSINode", "n"),
        metadata={"ownerReferences": owner("Node", "n")},
        spec={"drivers": [{"name": "d.example", "nodeID": "n", "topologyKeys": [], "allocatable": {"count": 3}}]},
    ),
    dumped(
        *("v1", "PersistentVolume", "v"),
        metadata=FOREGROUND | {"finalizers": ["kubernetes.io/pv-protection"]},
        spec={
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "a", "name": "c", "uid": "an older claim"},
            "csi": {"driver": "d.example", "volumeHandle": "h"},
            "storageClassName": "s",
        },
        status={"phase": "Bound", "lastPhaseTransitionTime": CREATED},
    ),
    dumped(
        *("v1", "PersistentVolumeClaim", "c"),
        metadata=FOREGROUND | {"ownerReferences": owner("Pod", "bound", "an older pod")},
        spec=STORAGE | {"volumeName": "v"},
        status={"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
    ),
    dumped("apps/v1", "Deployment", "d", metadata={"generation": 5}, spec=WORKLOAD, status={"observedGeneration": 4}),
    dumped("apps/v1", "ReplicaSet", "d-1", metadata={"ownerReferences": owner("Deployment", "d")}, spec=WORKLOAD),
    dumped("apps/v1", "ReplicaSet", "going", metadata=FOREGROUND, spec=WORKLOAD, status={"replicas": 1}),
    dumped(
        *("policy/v1", "PodDisruptionBudget", "b"),
        metadata={"generation": 2},
        spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "w"}}},
        status={"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2},
    ),
    dumped("resource.k8s.io/v1", "DeviceClass", "gpu", metadata={"generation": 3}, spec={}),
    dumped(
        *("resource.k8s.io/v1", "ResourceClaim", "rc"),
        metadata={"ownerReferences": owner("Pod", "bound")},
        spec={"devices": DEVICES},
        status={
            "allocation": {"devices": {"results": [RESULT]}, "allocationTimestamp": CREATED},
            "reservedFor": [{"resource": "pods", "name": "bound", "uid": "an older pod"}],
            "devices": [
                {"driver": "d.example", "pool": "n", "device": "d0", "data": {"a": [1]}, "conditions": []},
            ],
        },
    ),
    dumped(
        *("v1", "Pod", "bound"),
        metadata={"generation": 2, "ownerReferences": owner("ReplicaSet", "d-1"), "labels": {"app": "w"}},
        spec={"nodeName": "n", "containers": [CONTAINER], "resourceClaims": [
            {"name": "e", "resourceClaimTemplateName": "t"}]},
        status={
            "phase": "Running",
            "startTime": CREATED,
            "podIP": "10.0.0.1",
            "qosClass": "Burstable",
            "nominatedNodeName": "n",
            "resourceClaimStatuses": [{"name": "e", "resourceClaimName": "rc"}],
            "containerStatuses": [{"name": "c", "ready": True, "restartCount": 1, "resources": {"requests": {"cpu": "2"}}}],
        },
    ),
    dumped(
        *("v1", "Pod", "waits"),
        spec={"containers": [CONTAINER], "schedulerName": "kubestow", "tolerations": [{"operator": "Exists"}]},
        status={"phase": "Pending", "nominatedNodeName": "n", "conditions": [
            {"type": "example.com/ready", "status": "True"}]},
    ),
]  # fmt: skip


def test_a_copied_uid_counts_once(tmp_path: Path) -> None:
    """Two nodes of one uid are a manifest and its copy: the second node gets another uid."""
    file = tmp_path / "nodes.json"
    nodes = [dumped("v1", "Node", name, metadata={"uid": "u"}, status={"allocatable": {"cpu": "1"}}) for name in "ab"]
    file.write_text("\n".join(map(json.dumps, nodes)))
    uids = {name: each["metadata"]["uid"] for (_, _, name), each in simulated(file).items()}

    assert uids["a"] == "u"
    assert uids["b"] not in {"", "u"}


def test_a_dump_with_everything_that_a_server_writes(tmp_path: Path) -> None:
    """Uids, times, generations, deletions, references to other objects of the same name, and status."""
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": DUMP}))

    assert compare(file) == []


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        pytest.param("uid", "other", "metadata.uid", id="an identity"),
        pytest.param("labels", {"type": "virtual", "zone": "z"}, "metadata.labels.zone", id="a label"),
        pytest.param("finalizers", ["x"], "metadata.finalizers", id="a list"),
    ],
)
def test_a_difference_is_found(field: str, value: Any, path: str) -> None:
    stored = dumped("v1", "Node", "n", metadata={"labels": {"type": "virtual"}})

    assert list(differences(dumped("v1", "Node", "n", metadata={field: value}), stored)) == [path]
