"""Validation accepts the manifests that an API server accepts, and refuses other ones with the field.

The same manifests are sent to a real server by `tests/e2e/test_manifest_validation.py`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulator.simulate.input import schema
from simulator.simulate.input.manifests import InputError, load
from simulator.simulate.input.validation import mistakes
from tests.unit.simulator.simulate.manifest_cases import BAD, GOOD, Case, Object, container, pod, workload


def refusal(tmp_path: Any, manifest: Object | str) -> str:
    """What strict validation says of a file with this manifest."""
    file = tmp_path / "in.yaml"
    file.write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
    try:
        load([str(file)], level="strict")
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in GOOD])
def test_good_manifests_pass(tmp_path: Any, case: Case) -> None:
    assert refusal(tmp_path, case.manifest) == ""


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in BAD])
def test_bad_manifests_are_refused(tmp_path: Any, case: Case) -> None:
    said = refusal(tmp_path, case.manifest)

    line = next((line for line in said.splitlines() if case.said[0] in line), said)
    assert line.startswith("in.yaml: document 1 (") or f"{tmp_path}/in.yaml: document 1 (" in line
    for part in case.said:
        assert part in line


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"tasks": 7}}, id="Volcano"),
        pytest.param({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "x": 1}, id="a CRD of k8s.io"),
        pytest.param({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "x": 1}, id="a CRD of x-k8s.io"),
    ],
)
def test_kinds_of_other_groups_are_not_validated(value: Object) -> None:
    """Their schema is unknown."""
    assert mistakes({**value, "metadata": {"name": "x"}}) == []


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
            workload("CronJob", "batch/v1") | {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {
                "parallelism": -1, "template": {"spec": {"containers": [container(), container()]}}}}}},
            [
                "spec.jobTemplate.spec.parallelism: Invalid value: -1",
                "spec.jobTemplate.spec.template.spec.containers[1].name: Duplicate value",
            ],
            id="the pods of a CronJob",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t"},
             "template": {"spec": {"containers": [container(), container()]}}},
            ["template.spec.containers[1].name: Duplicate value"],
            id="a PodTemplate",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
             "spec": {"capacity": {"storage": "-1"}}},
            ['spec.capacity[storage]: Invalid value: "-1": must be greater than zero'],
            id="a volume of less than nothing",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"},
             "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}, "status": {"allocatable": {"pods": "1500m"}}},
            ['status.allocatable.pods: Invalid value: "1500m": must be an integer',
             'spec.taints[1]: Duplicate value: "a:NoSchedule"'],
            id="a node",
        ),
        pytest.param(
            {"apiVersion": "apps/v2", "kind": "Gizmo", "metadata": {"name": "x"}},
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
