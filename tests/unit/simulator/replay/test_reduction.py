"""A recording has no secrets: only fields that the scheduler decodes stay, and what it decodes is the same."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
import pytest

from scheduler.api.decode import Broken
from simulator.replay.reduction import RECORDED, reduced

SECRET = "hunter2"
META = {
    "name": "x",
    "namespace": "default",
    "uid": "u",
    "labels": {"app": "web"},
    "annotations": {
        "kubectl.kubernetes.io/last-applied-configuration": f'{{"password":"{SECRET}"}}',
        "example.com/token": SECRET,
    },
    "managedFields": [{"manager": SECRET}],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}],
}
CONTAINER = {
    "name": "c",
    "image": "i:1",
    "command": ["sh", "-c", SECRET],
    "args": [SECRET],
    "env": [{"name": "PASSWORD", "value": SECRET}],
    "livenessProbe": {"exec": {"command": [SECRET]}},
    "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
    "resources": {"requests": {"cpu": "100m", "example.com/gpu": "1"}},
    "ports": [{"containerPort": 80, "hostPort": 80}],
}
POD = {
    "metadata": META,
    "spec": {
        "schedulerName": "kubestow",
        "containers": [CONTAINER],
        "initContainers": [CONTAINER],
        "volumes": [
            {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "c", "configMap": {"name": SECRET}},
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {"metadata": {"annotations": {"a": SECRET}}, "spec": {}}}},
        ],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}]}},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "nodeSelector": {"pool": "gpu"},
        "hostname": SECRET,
    },
    "status": {
        "phase": "Pending",
        "message": SECRET,
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"},
            {"type": "Ready", "status": "False", "message": SECRET},
        ],
        "containerStatuses": [{"name": "c", "state": {"terminated": {"message": SECRET}}}],
    },
}  # fmt: skip
OPAQUE = {"opaque": {"driver": "gpu.example.com", "parameters": {"token": SECRET}}}
CASES: Final[dict[str, dict[str, Any]]] = {
    "Pod": POD,
    "Node": {"metadata": META, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}, "status": {
        "allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True", "message": SECRET}],
        "images": [{"names": ["i:1"], "sizeBytes": 3}]}},
    "PersistentVolumeClaim": {"metadata": META, "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound", "conditions": [{"message": SECRET}]}},
    "PersistentVolume": {"metadata": META, "spec": {"capacity": {"storage": "1Gi"}, "csi": {"driver": "d", "volumeHandle": "h",
        "volumeAttributes": {"key": SECRET}, "nodeStageSecretRef": {"name": SECRET}}}},
    "StorageClass": {"metadata": META, "provisioner": "p", "reclaimPolicy": "Delete", "parameters": {"adminSecret": SECRET},
        "mountOptions": [SECRET], "volumeBindingMode": "WaitForFirstConsumer"},
    "ResourceClaim": {"metadata": META, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}],
        "config": [OPAQUE]}}, "status": {"devices": [{"driver": "d", "pool": "p", "device": "x", "data": {"a": SECRET},
        "conditions": [{"type": "Ready", "status": "True", "message": SECRET}]}]}},
    "DeviceClass": {"metadata": META, "spec": {"selectors": [{"cel": {"expression": "true"}}], "config": [OPAQUE]}},
    "Service": {"metadata": META, "spec": {"selector": {"app": "web"}, "externalName": SECRET}},
    "ReplicaSet": {"metadata": META, "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": POD}},
    "StatefulSet": {"metadata": META, "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": POD}},
    "ReplicationController": {"metadata": META, "spec": {"selector": {"app": "web"}, "template": POD}},
    "PodDisruptionBudget": {"metadata": META, "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}},
        "status": {"disruptionsAllowed": 1, "conditions": [{"message": SECRET}]}},
    "CSINode": {"metadata": META, "spec": {"drivers": [{"name": "d", "nodeID": SECRET, "topologyKeys": ["zone"], "allocatable": {"count": 3}}]}},
    "VolumeAttachment": {"metadata": META, "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
        "status": {"attachmentMetadata": {"a": SECRET}, "attachError": {"message": SECRET}}},
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_no_secret_stays(kind: str) -> None:
    found = json.dumps(reduced(kind, CASES[kind]))

    assert SECRET in json.dumps(CASES[kind])
    assert SECRET not in found


def without_dropped(value: Any) -> Any:
    """What the scheduler decodes, without driver parameters, annotations of users, and messages."""
    if isinstance(value, dict):
        return {k: without_dropped(v) for k, v in value.items() if k not in {"parameters", "annotations", "message"}}
    return [without_dropped(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", CASES)
def test_the_scheduler_decodes_the_same(kind: str) -> None:
    decoder, clean = RECORDED[kind].decoder(), without_dropped(CASES[kind])

    before, after = (
        decoder.decode(msgspec.json.encode(each)) for each in (clean, without_dropped(reduced(kind, CASES[kind])))
    )
    assert not isinstance(before, Broken)
    assert before == after


def test_fields_for_the_controllers_stay() -> None:
    assert reduced("StorageClass", CASES["StorageClass"])["reclaimPolicy"] == "Delete"
    assert reduced("CSINode", CASES["CSINode"])["spec"]["drivers"][0]["topologyKeys"] == ["zone"]
    assert reduced("PodDisruptionBudget", CASES["PodDisruptionBudget"])["spec"]["minAvailable"] == "50%"


def test_the_reason_of_a_refused_pod_stays() -> None:
    conditions = reduced("Pod", POD)["status"]["conditions"]

    assert [each.get("message") for each in conditions] == ["0/1 nodes are available", None]


@pytest.mark.parametrize("kind", sorted(RECORDED))
def test_all_kinds_can_be_reduced(kind: str) -> None:
    odd = {"metadata": ["x"], "spec": "text", "status": {"conditions": {"a": 1}, "phase": {"deep": SECRET}}}

    assert SECRET not in json.dumps(reduced(kind, odd))


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap", "ServiceAccount"])
def test_kinds_with_secrets_are_not_recorded(kind: str) -> None:
    assert kind not in RECORDED
