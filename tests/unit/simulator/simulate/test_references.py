"""References that the input lacks are named once; validation accepts and refuses what an API server does, with the same texts."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.simulate.input import schema
from simulator.simulate.input.manifests import Found
from simulator.simulate.input.references import driver_notes, missing_references
from simulator.simulate.input.rules.validation import mistakes
from tests.unit.simulator.simulate.manifest_cases import (
    BAD,
    GOOD,
    ManifestCase,
    Object,
    container,
    pod,
    refusal,
    workload,
)

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

MOUNTED = found("Pod", "db-0", mounting("data-db-0"))


def template(**spec: Any) -> Found:
    return found("Deployment", "d", {"template": {"spec": spec}})


def annotated(kind: str, name: str, annotations: Object) -> Found:
    made = found(kind, name)
    made.value["metadata"]["annotations"] = annotations
    return made


def default(kind: str, name: str) -> Found:
    return annotated(kind, name, {"storageclass.kubernetes.io/is-default-class": "true"})


@pytest.mark.parametrize(("objects", "missing"), [
    pytest.param([found("Pod", "p", mounting("c"))], ["PersistentVolumeClaim default/c"], id="a pod's claim"),
    pytest.param([found("Pod", "p", mounting("c")), found(PVC, "c", of_class(""))], [], id="a claim that is there"),
    pytest.param([found("Pod", "p", CLAIMS)], ["ResourceClaim default/rc", "ResourceClaimTemplate default/rt"],
        id="claims for devices and templates"),
    pytest.param([template(**mounting("c"))], ["PersistentVolumeClaim default/c"], id="a template of pods"),
    pytest.param([found("Deployment", "d", {"replicas": 0, "template": {"spec": mounting("c")}})], [],
        id="no pods are made"),
    pytest.param([found(PVC, "c", of_class("slow"))], ["StorageClass slow"], id="a storage class"),
    pytest.param([found(PVC, "c", {"volumeName": "v", **of_class("slow")})], ["PersistentVolume v"], id="a volume"),
    pytest.param([found("StatefulSet", "db", SET)], ["StorageClass slow"], id="the class of a claim template"),
    pytest.param([found("StatefulSet", "db", SET), found("StorageClass", "slow"), MOUNTED], [],
        id="a claim that a StatefulSet creates"),
    pytest.param([found("ResourceClaim", "c", requesting("gpu"))], ["DeviceClass gpu"], id="a device class"),
    pytest.param([found("ResourceClaim", "c", EITHER)], ["DeviceClass x", "DeviceClass y"],
        id="the classes of alternatives"),
    pytest.param([found("ResourceClaim", "c", requesting("gpu"), status={"allocation": {}})], [],
        id="an allocated claim needs no class"),
    pytest.param([found("Pod", "p", {"nodeName": "n", **mounting("c")})], ["Node n"], id="the node of a bound pod"),
    pytest.param([template(nodeName="n")], ["Node n"], id="the node of a template"),
    pytest.param([found(PVC, "c")], ["StorageClass (default)"], id="no default class"),
    pytest.param([found(PVC, "c"), default("StorageClass", "s")], [], id="a default class that is there"),
    pytest.param([found(PVC, "c"), found("PersistentVolume", "v")], [],
        id="a volume without a class, for a claim without one"),
    pytest.param([found(PVC, "c", of_class("manual")), found("PersistentVolume", "v", of_class("manual"))], [],
        id="a class that is only a name of volumes"),
    pytest.param([annotated(PVC, "c", {"volume.beta.kubernetes.io/storage-class": "slow"})], ["StorageClass slow"],
        id="the class of an old annotation"),
    pytest.param([template(priorityClassName="high", runtimeClassName="kata")],
        ["PriorityClass high", "RuntimeClass kata"], id="classes that an API server requires"),
    pytest.param([template(priorityClassName="system-node-critical")], [], id="a class that every cluster has"),
    pytest.param([found("Job", "j", {"suspend": True, "template": {"spec": mounting("c")}})], [], id="a suspended Job"),
    pytest.param([found("Job", "j", {"template": {"spec": mounting("c")}}, status=DONE)], [], id="a finished Job"),
])  # fmt: skip
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


@pytest.mark.parametrize(("objects", "notes"), [
    pytest.param([CLASS, USED], UNLIMITED, id="the driver of a class that a claim names"),
    pytest.param([CLASS], [], id="a class that no claim names"),
    pytest.param([CLASS, USED, LISTED], [], id="a driver that a node lists"),
    pytest.param([found("PersistentVolume", "v", {"csi": {"driver": DRIVER}})], UNLIMITED, id="of a volume"),
    pytest.param([found("StorageClass", "s", provisioner="kubernetes.io/no-provisioner"), USED], [],
        id="no driver at all"),
    pytest.param([found("StorageClass", "s", provisioner="kubernetes.io/aws-ebs"), USED],
        ["no CSINode lists the driver ebs.csi.aws.com: its volumes have no attach limit"],
        id="the driver of a plugin that was part of Kubernetes"),
    pytest.param([found("StorageClass", "s", provisioner="rancher.io/local-path"), USED], [],
        id="a provisioner without a driver"),
    pytest.param([CLASS, CAPACITY],
        [f"there is no CSIDriver {DRIVER}: the CSIStorageCapacity objects of StorageClass s are ignored"],
        id="capacity without a driver"),
    pytest.param([CLASS, CAPACITY, found("CSIDriver", DRIVER)], [], id="capacity with its driver"),
])  # fmt: skip
def test_notes_on_drivers(objects: list[Found], notes: list[str]) -> None:
    assert driver_notes(objects) == notes


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in GOOD])
def test_good_manifests_pass(tmp_path: Any, case: ManifestCase) -> None:
    assert refusal(tmp_path, case.manifest) == ""


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in BAD])
def test_bad_manifests_are_refused(tmp_path: Any, case: ManifestCase) -> None:
    said = refusal(tmp_path, case.manifest)

    line = next((line for line in said.splitlines() if case.said[0] in line), said)
    assert line.startswith("in.yaml: document 1 (") or f"{tmp_path}/in.yaml: document 1 (" in line
    for part in case.said:
        assert part in line


def an_object(kind: str, version: str = "v1", **fields: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, **fields}


TWICE = {"containers": [container(), container()]}
CRON = {"spec": {"parallelism": -1, "template": {"spec": TWICE}}}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(an_object("Job", "batch.volcano.sh/v1alpha1", spec={"tasks": 7}), id="Volcano"),
        pytest.param(an_object("Gateway", "gateway.networking.k8s.io/v1", x=1), id="a CRD of k8s.io"),
        pytest.param(an_object("Workload", "kueue.x-k8s.io/v1beta1", x=1), id="a CRD of x-k8s.io"),
    ],
)
def test_kinds_of_other_groups_are_not_validated(value: Object) -> None:
    """Their schema is unknown."""
    assert mistakes(value) == []


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param(
            pod(containers=[container(requests={"cpu": "2"}, limits={"cpu": "1"}), container()], x=1),
            [
                'unknown field "spec.x"',
                "spec.containers[0].resources.requests: Invalid value",
                'spec.containers[1].name: Duplicate value: "c"',
            ],
            id="the schema's and the server's rules",
        ),
        pytest.param(
            pod(containers=[container(requests={"cpu": [1]}), container()]),
            ["spec.containers[0].resources.requests[cpu]: must be a quantity"],
            id="no rules where a value cannot be decoded",
        ),
        pytest.param(
            workload("CronJob", "batch/v1") | {"spec": {"schedule": "* * * * *", "jobTemplate": CRON}},
            [
                "spec.jobTemplate.spec.parallelism: Invalid value: -1",
                "spec.jobTemplate.spec.template.spec.containers[1].name: Duplicate value",
            ],
            id="the pods of a CronJob",
        ),
        pytest.param(
            an_object("PodTemplate", template={"spec": TWICE}),
            ["template.spec.containers[1].name: Duplicate value"],
            id="a PodTemplate",
        ),
        pytest.param(
            an_object("PersistentVolume", spec={"capacity": {"storage": "-1"}}),
            ['spec.capacity[storage]: Invalid value: "-1": must be greater than zero'],
            id="a volume of less than nothing",
        ),
        pytest.param(
            an_object("Node", spec={"taints": [{"key": "a", "effect": "NoSchedule"}] * 2},
                      status={"allocatable": {"pods": "1500m"}}),
            ['status.allocatable.pods: Invalid value: "1500m": must be an integer',
             'spec.taints[1]: Duplicate value: "a:NoSchedule"'],
            id="a node",
        ),
        pytest.param(
            an_object("Gizmo", "apps/v2"),
            ['no matches for kind "Gizmo" in version "apps/v2"'],
            id="a kind that no version has",
        ),
        pytest.param(
            pod(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}, overhead={"cpu": "-1"}),
            ["spec.resources.requests: Invalid value", "spec.overhead[cpu]: Invalid value"],
            id="resources of the whole pod",
        ),
        pytest.param(
            workload(template=None),
            ["spec.template.spec.containers: Required value", "`selector` does not match template `labels`"],
            id="no template",
        ),
    ],
)  # fmt: skip
def test_all_mistakes_of_an_object_are_found(value: Object, said: list[str]) -> None:
    found = [str(each) for each in mistakes(value)]

    assert len(found) == len(said)
    assert all(part in line for part, line in zip(said, found))


@pytest.mark.parametrize(
    ("version", "kind", "is_namespaced"),
    [
        ("v1", "Pod", True),
        ("v1", "Node", False),
        ("storage.k8s.io/v1", "CSIStorageCapacity", True),
        ("resource.k8s.io/v1beta1", "ResourceSlice", False),
        ("v1", "ComponentStatus", False),
    ],
)
def test_the_schema_knows_scopes(version: str, kind: str, *, is_namespaced: bool) -> None:
    found = schema.find(version, kind)

    assert found is not None
    assert found.is_namespaced is is_namespaced
    assert (kind in schema.cluster_scoped()) is not is_namespaced


def test_types_that_contain_themselves_are_checked_in_depth() -> None:
    """A schema of a custom resource is an object of schemas."""
    deep = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"tipe": "x"}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": deep}}
    spec = {"group": "example.com", "names": {"plural": "xs", "kind": "X"}, "scope": "Cluster", "versions": [version]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    found = mistakes(head | {"metadata": {"name": "xs.example.com"}, "spec": spec})

    path = "spec.versions[0].schema.openAPIV3Schema.properties[a].properties[b].tipe"
    assert [str(each) for each in found] == [f'unknown field "{path}", did you mean "type"?']
