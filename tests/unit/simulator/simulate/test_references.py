"""Every object that the input refers to and does not have is named once, with the first object that refers to it."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.simulate.input.manifests import Found
from simulator.simulate.input.references import driver_notes, missing_references

Object = dict[str, Any]
PVC = "PersistentVolumeClaim"
CLUSTER_SCOPED = {
    *("StorageClass", "DeviceClass", "PersistentVolume", "Node", "PriorityClass", "RuntimeClass"),
    *("CSINode", "CSIDriver"),
}


def found(kind: str, name: str, spec: Object | None = None, **rest: Any) -> Found:
    """An object of the namespace default, or a cluster-scoped one."""
    metadata = {"name": name} if kind in CLUSTER_SCOPED else {"name": name, "namespace": "default"}
    return Found(
        {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec or {}, **rest}, f"in.yaml: {kind} {name}"
    )


def mounting(claim: str) -> Object:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}


def of_class(name: str) -> Object:
    return {"storageClassName": name}


def requesting(name: str) -> Object:
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": name}}]}}


CLAIMS = {
    "resourceClaims": [{"name": "c", "resourceClaimName": "rc"}, {"name": "t", "resourceClaimTemplateName": "rt"}]
}
DONE = {"conditions": [{"type": "Complete", "status": "True"}]}
EITHER = {
    "devices": {"requests": [{"name": "r", "firstAvailable": [{"deviceClassName": "x"}, {"deviceClassName": "y"}]}]}
}
SET = {"replicas": 2, "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": of_class("slow")}]}


def template(**spec: Any) -> Found:
    return found("Deployment", "d", {"template": {"spec": spec}})


def annotated(kind: str, name: str, annotations: Object) -> Found:
    made = found(kind, name)
    made.value["metadata"]["annotations"] = annotations
    return made


def default(kind: str, name: str) -> Found:
    return annotated(kind, name, {"storageclass.kubernetes.io/is-default-class": "true"})


@pytest.mark.parametrize(
    ("objects", "missing"),
    [
        pytest.param([found("Pod", "p", mounting("c"))], ["PersistentVolumeClaim default/c"], id="a pod's claim"),
        pytest.param([found("Pod", "p", mounting("c")), found(PVC, "c", of_class(""))], [], id="a claim that is there"),
        pytest.param(
            [found("Pod", "p", CLAIMS)],
            ["ResourceClaim default/rc", "ResourceClaimTemplate default/rt"],
            id="claims for devices and templates",
        ),
        pytest.param([template(**mounting("c"))], ["PersistentVolumeClaim default/c"], id="a template of pods"),
        pytest.param(
            [found("Deployment", "d", {"replicas": 0, "template": {"spec": mounting("c")}})], [], id="no pods are made"
        ),
        pytest.param([found(PVC, "c", of_class("slow"))], ["StorageClass slow"], id="a storage class"),
        pytest.param([found(PVC, "c", {"volumeName": "v", **of_class("slow")})], ["PersistentVolume v"], id="a volume"),
        pytest.param([found("StatefulSet", "db", SET)], ["StorageClass slow"], id="the class of a claim template"),
        pytest.param(
            [
                found("StatefulSet", "db", SET),
                found("StorageClass", "slow"),
                found("Pod", "db-0", mounting("data-db-0")),
            ],
            [],
            id="a claim that a StatefulSet creates",
        ),
        pytest.param([found("ResourceClaim", "c", requesting("gpu"))], ["DeviceClass gpu"], id="a device class"),
        pytest.param(
            [found("ResourceClaim", "c", EITHER)], ["DeviceClass x", "DeviceClass y"], id="the classes of alternatives"
        ),
        pytest.param(
            [found("ResourceClaim", "c", requesting("gpu"), status={"allocation": {}})],
            [],
            id="an allocated claim needs no class",
        ),
        pytest.param([found("Pod", "p", {"nodeName": "n", **mounting("c")})], ["Node n"], id="the node of a bound pod"),
        pytest.param([template(nodeName="n")], ["Node n"], id="the node of a template"),
        pytest.param([found(PVC, "c")], ["StorageClass (default)"], id="no default class"),
        pytest.param([found(PVC, "c"), default("StorageClass", "s")], [], id="a default class that is there"),
        pytest.param(
            [found(PVC, "c"), found("PersistentVolume", "v")],
            [],
            id="a volume without a class, for a claim without one",
        ),
        pytest.param(
            [
                found(PVC, "c", of_class("manual")),
                found("PersistentVolume", "v", of_class("manual")),
            ],
            [],
            id="a class that is only a name of volumes",
        ),
        pytest.param(
            [annotated(PVC, "c", {"volume.beta.kubernetes.io/storage-class": "slow"})],
            ["StorageClass slow"],
            id="the class of an old annotation",
        ),
        pytest.param(
            [template(priorityClassName="high", runtimeClassName="kata")],
            ["PriorityClass high", "RuntimeClass kata"],
            id="classes that an API server requires",
        ),
        pytest.param([template(priorityClassName="system-node-critical")], [], id="a class that every cluster has"),
        pytest.param(
            [found("Job", "j", {"suspend": True, "template": {"spec": mounting("c")}})], [], id="a suspended Job"
        ),
        pytest.param([found("Job", "j", {"template": {"spec": mounting("c")}}, status=DONE)], [], id="a finished Job"),
    ],
)
def test_what_is_missing(objects: list[Found], missing: list[str]) -> None:
    assert [f"{each.kind} {each.name}" for each in missing_references(objects)] == missing


def test_a_missing_object_is_named_once_with_its_field_and_a_similar_name() -> None:
    objects = [found("Pod", f"p{n}", mounting("database")) for n in range(3)]
    (missing,) = missing_references([*objects, found(PVC, "databse", of_class(""))])

    assert str(missing) == (
        "PersistentVolumeClaim default/database: named by in.yaml: Pod p0 and 2 more,"
        " spec.volumes[0].persistentVolumeClaim.claimName; did you mean default/databse?"
    )


def test_known_objects_are_not_missing() -> None:
    """Some kinds are completed before the references are checked."""
    objects = [template(runtimeClassName="kata")]

    assert missing_references(objects, known=[found("RuntimeClass", "kata")]) == ()


def test_an_object_of_another_namespace_is_shown() -> None:
    claim = found(PVC, "c", of_class(""))
    claim.value["metadata"]["namespace"] = "other"
    (missing,) = missing_references([found("Pod", "p", mounting("c")), claim])

    assert missing.hint == "other/c is in another namespace"


DRIVER = "disk.example.com"
CAPACITY = found("CSIStorageCapacity", "c", storageClassName="s")
LISTED = found("CSINode", "n", {"drivers": [{"name": DRIVER}]})
CLASS = found("StorageClass", "s", provisioner=DRIVER)
USED = found(PVC, "c", of_class("s"))
UNLIMITED = [f"no CSINode lists the driver {DRIVER}: its volumes have no attach limit"]


@pytest.mark.parametrize(
    ("objects", "notes"),
    [
        pytest.param([CLASS, USED], UNLIMITED, id="the driver of a class that a claim names"),
        pytest.param([CLASS], [], id="a class that no claim names"),
        pytest.param([CLASS, USED, LISTED], [], id="a driver that a node lists"),
        pytest.param([found("PersistentVolume", "v", {"csi": {"driver": DRIVER}})], UNLIMITED, id="of a volume"),
        pytest.param(
            [found("StorageClass", "s", provisioner="kubernetes.io/no-provisioner"), USED], [], id="no driver at all"
        ),
        pytest.param(
            [found("StorageClass", "s", provisioner="kubernetes.io/aws-ebs"), USED],
            ["no CSINode lists the driver ebs.csi.aws.com: its volumes have no attach limit"],
            id="the driver of a plugin that was part of Kubernetes",
        ),
        pytest.param(
            [found("StorageClass", "s", provisioner="rancher.io/local-path"), USED],
            [],
            id="a provisioner without a driver",
        ),
        pytest.param(
            [CLASS, CAPACITY],
            [f"there is no CSIDriver {DRIVER}: the CSIStorageCapacity objects of StorageClass s are ignored"],
            id="capacity without a driver",
        ),
        pytest.param([CLASS, CAPACITY, found("CSIDriver", DRIVER)], [], id="capacity with its driver"),
    ],
)
def test_notes_on_drivers(objects: list[Found], notes: list[str]) -> None:
    assert driver_notes(objects) == notes
