"""Every object that the input refers to and does not have is named once, with the first object that refers to it."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.testing.simulate.manifests import Found
from scheduler.testing.simulate.references import missing_references

Object = dict[str, Any]


def found(kind: str, name: str, spec: Object | None = None, **rest: Any) -> Found:
    """An object of the namespace default, or a cluster-scoped one."""
    metadata = (
        {"name": name}
        if kind in {"StorageClass", "DeviceClass", "PersistentVolume", "Node"}
        else {"name": name, "namespace": "default"}
    )
    return Found(
        {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec or {}, **rest}, f"in.yaml: {kind} {name}"
    )


def mounting(claim: str) -> Object:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}


def of_class(name: str) -> Object:
    return {"storageClassName": name}


def asking(name: str) -> Object:
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": name}}]}}


CLAIMS = {
    "resourceClaims": [{"name": "c", "resourceClaimName": "rc"}, {"name": "t", "resourceClaimTemplateName": "rt"}]
}
EITHER = {
    "devices": {"requests": [{"name": "r", "firstAvailable": [{"deviceClassName": "x"}, {"deviceClassName": "y"}]}]}
}
SET = {"replicas": 2, "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": of_class("slow")}]}


@pytest.mark.parametrize(
    ("objects", "missing"),
    [
        pytest.param([found("Pod", "p", mounting("c"))], ["PersistentVolumeClaim default/c"], id="a pod's claim"),
        pytest.param(
            [found("Pod", "p", mounting("c")), found("PersistentVolumeClaim", "c")], [], id="a claim that is there"
        ),
        pytest.param(
            [found("Pod", "p", CLAIMS)],
            ["ResourceClaim default/rc", "ResourceClaimTemplate default/rt"],
            id="claims for devices and templates",
        ),
        pytest.param(
            [found("Deployment", "d", {"template": {"spec": mounting("c")}})],
            ["PersistentVolumeClaim default/c"],
            id="a template of pods",
        ),
        pytest.param(
            [found("Deployment", "d", {"replicas": 0, "template": {"spec": mounting("c")}})], [], id="no pods are made"
        ),
        pytest.param(
            [found("PersistentVolumeClaim", "c", of_class("slow"))], ["StorageClass slow"], id="a storage class"
        ),
        pytest.param([found("PersistentVolumeClaim", "c", of_class(""))], [], id="no class at all"),
        pytest.param(
            [found("PersistentVolumeClaim", "c", {"volumeName": "v", **of_class("slow")})],
            ["PersistentVolume v"],
            id="a volume",
        ),
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
        pytest.param([found("ResourceClaim", "c", asking("gpu"))], ["DeviceClass gpu"], id="a device class"),
        pytest.param(
            [found("ResourceClaim", "c", EITHER)], ["DeviceClass x", "DeviceClass y"], id="the classes of alternatives"
        ),
        pytest.param(
            [found("ResourceClaim", "c", asking("gpu"), status={"allocation": {}})],
            [],
            id="an allocated claim needs no class",
        ),
        pytest.param([found("Pod", "p", {"nodeName": "n", **mounting("c")})], ["Node n"], id="the node of a bound pod"),
    ],
)
def test_what_is_missing(objects: list[Found], missing: list[str]) -> None:
    assert [f"{each.kind} {each.name}" for each in missing_references(objects)] == missing


def test_each_is_named_once_with_its_field_and_a_near_name() -> None:
    objects = [found("Pod", f"p{n}", mounting("database")) for n in range(3)]
    (missing,) = missing_references([*objects, found("PersistentVolumeClaim", "databse")])

    assert str(missing) == (
        "PersistentVolumeClaim default/database: named by in.yaml: Pod p0 and 2 more,"
        " spec.volumes[0].persistentVolumeClaim.claimName; did you mean default/databse?"
    )
