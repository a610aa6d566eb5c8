"""Manifests become what an API server with its controllers would hold; mistakes are named by place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from scheduler.testing.simulate.complete import complete
from scheduler.testing.simulate.manifests import Found, InputError, load


def read(tmp_path: Path, text: str) -> list[Found]:
    """The completed objects of one file."""
    return complete(load([_written(tmp_path, dedent(text))]).objects)


def _written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "in.yaml"
    file.write_text(text)
    return str(file)


def pod(**spec: Any) -> str:
    """A pod's manifest in one document."""
    spec = {"containers": [{"name": "c"}], **spec}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})


def test_a_dump_loses_what_the_server_added(tmp_path: Path) -> None:
    """Bound pods keep their node; finished pods and unbound ones that are being deleted are left out."""
    objects = read(
        tmp_path,
        """
        apiVersion: v1
        kind: List
        items:
        - apiVersion: v1
          kind: Pod
          metadata: {name: bound, namespace: a, uid: x, resourceVersion: "7", managedFields: [], labels: {k: v},
            creationTimestamp: 2026-01-01T00:00:00Z, deletionTimestamp: 2026-01-01T00:00:00Z}
          spec: {nodeName: "n", containers: [{name: c}]}
          status: {phase: Running, podIP: 10.0.0.1}
        - apiVersion: v1
          kind: Pod
          metadata: {name: waiting, namespace: a, uid: y}
          spec: {containers: [{name: c}]}
          status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable}]}
        - apiVersion: v1
          kind: Pod
          metadata: {name: leaving, namespace: a, deletionTimestamp: 2026-01-01T00:00:00Z}
          spec: {containers: [{name: c}]}
        ---
        apiVersion: v1
        kind: PodList
        items:
        - metadata: {name: done}
          spec: {nodeName: "n", containers: [{name: c}]}
          status: {phase: Succeeded}
        - metadata: {name: other}
          spec: {containers: [{name: c}]}
        """,
    )

    bound, waiting, other = (found.value for found in objects)
    assert bound["metadata"] == {"name": "bound", "namespace": "a", "labels": {"k": "v"}}
    assert bound["spec"]["nodeName"] == "n"
    assert "status" not in waiting
    assert (other["kind"], other["metadata"]["namespace"]) == ("Pod", "default")


@pytest.mark.parametrize(
    ("kind", "spec", "count"),
    [
        pytest.param("Deployment", {"replicas": 3}, 3, id="a Deployment has replicas"),
        pytest.param("ReplicaSet", {}, 1, id="one replica unless said otherwise"),
        pytest.param("StatefulSet", {"replicas": 2}, 2, id="a StatefulSet has replicas"),
        pytest.param("Job", {"parallelism": 4, "completions": 9}, 4, id="a Job has parallelism"),
        pytest.param("ReplicationController", {"replicas": 2}, 2, id="a ReplicationController has replicas"),
        pytest.param("Deployment", {"replicas": 0}, 0, id="scaled to nothing"),
    ],
)
def test_workloads_become_pods(tmp_path: Path, kind: str, spec: dict[str, Any], count: int) -> None:
    """Each pod is owned, named by its number, and has the template's labels and namespace of the workload."""
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c"}]}}
    workload = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w", "namespace": "ns"}}
    objects = read(tmp_path, json.dumps({**workload, "spec": {**spec, "template": template}}))

    pods = [found for found in objects if found.kind == "Pod"]
    assert [found.name for found in pods] == [f"w-{n}" for n in range(count)]
    for found in pods:
        metadata = found.value["metadata"]
        assert (metadata["namespace"], metadata["labels"]) == ("ns", {"app": "w"})
        assert metadata["ownerReferences"][0]["kind"] == ("ReplicaSet" if kind == "Deployment" else kind)


@pytest.mark.parametrize(
    ("kind", "spec", "kept", "selector"),
    [
        pytest.param(
            "Deployment",
            {"selector": {"matchLabels": {"a": "b"}}},
            "ReplicaSet",
            {"matchLabels": {"a": "b"}},
            id="a Deployment's ReplicaSet",
        ),
        pytest.param("ReplicaSet", {}, "ReplicaSet", {"matchLabels": {"app": "w"}}, id="a ReplicaSet without selector"),
        pytest.param(
            "StatefulSet",
            {"selector": {"matchLabels": {"a": "b"}}},
            "StatefulSet",
            {"matchLabels": {"a": "b"}},
            id="a StatefulSet",
        ),
        pytest.param("ReplicationController", {}, "ReplicationController", {"app": "w"}, id="a ReplicationController"),
        pytest.param("Job", {}, None, None, id="a Job says nothing about spreading"),
    ],
)
def test_what_default_constraints_go_by_is_kept(
    tmp_path: Path, kind: str, spec: dict[str, Any], kept: str | None, selector: dict[str, Any] | None
) -> None:
    """Else pods of a workload that no Service selects would not spread, as they do in a cluster."""
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c"}]}}
    workload = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w"}}
    objects = read(tmp_path, json.dumps({**workload, "spec": {**spec, "template": template}}))

    owners = [found for found in objects if found.kind != "Pod"]
    assert [(found.kind, found.name) for found in owners] == ([] if kept is None else [(kept, "w")])
    assert [found.value["spec"]["selector"] for found in owners] == ([] if selector is None else [selector])


def test_a_workload_whose_children_are_in_the_dump_is_not_expanded(tmp_path: Path) -> None:
    """`kubectl get all -o yaml` prints a Deployment, its ReplicaSet and their pods: each pod and ReplicaSet once."""
    owned = {"ownerReferences": [{"kind": "ReplicaSet", "name": "w-1", "controller": True}]}
    template = {"spec": {"containers": [{"name": "c"}]}}
    items = [
        {"kind": "Deployment", "metadata": {"name": "w"}, "spec": {"replicas": 2, "template": template}},
        {
            "kind": "ReplicaSet",
            "metadata": {"name": "w-1", "ownerReferences": [{"kind": "Deployment", "name": "w", "controller": True}]},
            "spec": {"replicas": 2, "template": template},
        },
        {"kind": "Pod", "metadata": {"name": "w-1-x", **owned}, "spec": template["spec"]},
    ]
    objects = read(tmp_path, "\n---\n".join(json.dumps({"apiVersion": "v1", **item}) for item in items))

    assert [(found.kind, found.name) for found in objects] == [("ReplicaSet", "w-1"), ("Pod", "w-1-x")]


def test_a_stateful_set_s_pods_mount_their_claims(tmp_path: Path) -> None:
    """A pod that needs a claim must not pass for one that needs none. They stand for the template's volumes of their names."""
    objects = read(
        tmp_path,
        """
        apiVersion: apps/v1
        kind: StatefulSet
        metadata: {name: db}
        spec:
          volumeClaimTemplates: [{metadata: {name: data}}]
          template: {spec: {volumes: [{name: data, emptyDir: {}}, {name: run, emptyDir: {}}], containers: [{name: c}]}}
        """,
    )

    (shown,) = (found.value["spec"] for found in objects if found.kind == "Pod")
    own = {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}
    assert shown["volumes"] == [{"name": "run", "emptyDir": {}}, own]


def test_a_stateful_set_makes_its_claims(tmp_path: Path) -> None:
    """One per pod and template, with what the template says, unless the input has it."""
    objects = read(
        tmp_path,
        """
        apiVersion: apps/v1
        kind: StatefulSet
        metadata: {name: db, namespace: ns}
        spec:
          replicas: 2
          volumeClaimTemplates: [{metadata: {name: data, labels: {a: b}}, spec: {resources: {requests: {storage: 1Gi}}}}]
          template: {spec: {containers: [{name: c}]}}
        ---
        apiVersion: v1
        kind: PersistentVolumeClaim
        metadata: {name: data-db-1, namespace: ns}
        spec: {volumeName: v}
        """,
    )

    claims = {each.name: each.value for each in objects if each.kind == "PersistentVolumeClaim"}
    assert claims["data-db-0"]["metadata"] == {"labels": {"a": "b"}, "name": "data-db-0", "namespace": "ns"}
    assert claims["data-db-0"]["spec"] == {"resources": {"requests": {"storage": "1Gi"}}}
    assert claims["data-db-1"]["spec"] == {"volumeName": "v"}
    assert len([each for each in objects if each.kind == "PersistentVolumeClaim"]) == 2


def test_generated_names(tmp_path: Path) -> None:
    """As with a server two of one prefix are two, and a simulation that is repeated has the same ones."""
    text = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "web-"},
            "spec": {"containers": [{"name": "c"}]},
        }
    )
    first, second = (found.name for found in read(tmp_path, f"{text}\n---\n{text}"))

    assert re.fullmatch(r"web-[b-z2-9]{5}", first)
    assert first != second
    assert [first, second] == [found.name for found in read(tmp_path, f"{text}\n---\n{text}")]


@pytest.mark.parametrize(
    ("version", "kind", "shown"),
    [
        ("batch.volcano.sh/v1alpha1", "Job", "Job.batch.volcano.sh"),
        ("serving.knative.dev/v1", "Service", "Service.serving.knative.dev"),
        ("resource.k8s.io/v1", "ResourceClaim", "ResourceClaim"),
        ("policy/v1", "PodDisruptionBudget", "PodDisruptionBudget"),
        ("v1", "Service", "Service"),
    ],
)
def test_a_kind_of_the_same_name_is_another_one(tmp_path: Path, version: str, kind: str, shown: str) -> None:
    """A Job without a template is Volcano's, and no mistake."""
    text = json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": {"tasks": []}})

    assert [found.kind for found in load([_written(tmp_path, text)]).objects] == [shown]


def test_defaults_of_nodes(tmp_path: Path) -> None:
    """A node has a host name, takes 110 pods, and capacity stands in for allocatable."""
    (found,) = read(tmp_path, '{apiVersion: v1, kind: Node, metadata: {name: "n"}, status: {capacity: {cpu: "4"}}}')

    assert found.value["status"]["allocatable"] == {"cpu": "4", "pods": "110"}
    assert found.value["metadata"]["labels"] == {"kubernetes.io/hostname": "n"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("a: 1\nb: }\n", "in.yaml: line 2: is not YAML", id="no YAML"),
        pytest.param("--- 7", "in.yaml: document 1: must be an object, got int", id="not an object"),
        pytest.param("{kind: Pod}", "in.yaml: document 1: apiVersion: is required", id="no apiVersion"),
        pytest.param("{apiVersion: v1, kind: Pod}", "in.yaml: document 1: metadata: is required", id="no metadata"),
        pytest.param(
            "{apiVersion: v1, kind: Pod, metadata: {name: 7}}", "document 1: metadata.name: is required", id="bad name"
        ),
        pytest.param(
            "{apiVersion: v1, kind: List, items: [{}]}", "document 1: items[0]: apiVersion: is required", id="bad item"
        ),
        pytest.param(
            pod() + "\n---\n" + pod(containers=[{"name": "c", "resources": {"requests": {"cpu": "much"}}}]),
            "in.yaml: document 2 (Pod default/p): spec.containers[0].resources.requests[...]: 'much' is not a quantity",
            id="a bad quantity",
        ),
        pytest.param(
            pod(containers=[{"name": "c"}], resources={"limits": 7}),
            "document 1 (Pod default/p): spec.resources.limits: Expected `object`, got `int`",
            id="limits of the whole pod that are none",
        ),
        pytest.param(pod(containers=[]), "document 1 (Pod default/p): spec.containers: is required", id="no container"),
        pytest.param(
            pod(priorityClassName="none"), "spec.priorityClassName: no PriorityClass 'none'", id="an unknown class"
        ),
        pytest.param(
            "{apiVersion: v1, kind: Node, metadata: {name: node}}",
            "document 1 (Node node): status.allocatable: is required",
            id="a node of unknown size",
        ),
        pytest.param(
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: w}, spec: {replicas: two, "
            "template: {spec: {containers: []}}}}",
            "document 1 (Deployment default/w): spec.replicas: must be a number >= 0, got 'two'",
            id="replicas in words",
        ),
        pytest.param(
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: w}, spec: {replicas: 99999999999, "
            "template: {spec: {containers: [{name: c}]}}}}",
            "document 1 (Deployment default/w): spec.replicas: is more than can be simulated (1000000), got 99999999999",
            id="more replicas than memory",
        ),
        pytest.param(
            "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: w}, spec: {volumeClaimTemplates: "
            "[{metadata: {name: d}}], template: {spec: {volumes: d, containers: [{name: c}]}}}}",
            "document 1 (StatefulSet default/w): spec.template.spec.volumes: must be a list",
            id="volumes of a template that are none",
        ),
        pytest.param(
            "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: w}, spec: {selector: [a], "
            "template: {spec: {containers: [{name: c}]}}}}",
            "document 1 (ReplicaSet default/w): spec.selector: Expected `object | null`, got `array`",
            id="a selector that is none",
        ),
        pytest.param(
            "{apiVersion: v1, kind: Pod, metadata: {name: w}, spec: " + "{a: " * 900 + "1" + "}" * 900 + "}",
            "in.yaml: document 1: is nested too deeply",
            id="nested without end",
        ),
    ],
)
def test_mistakes_name_file_document_and_field(tmp_path: Path, text: str, said: str) -> None:
    """Whoever wrote the file finds the place."""
    with pytest.raises(InputError) as refused:
        read(tmp_path, text)

    assert said in str(refused.value)


def test_a_file_that_is_not_there() -> None:
    """Named like every other mistake."""
    with pytest.raises(InputError, match=r"nowhere\.yaml: cannot be read: No such file"):
        load(["nowhere.yaml"])
