"""Manifests are completed as by an API server. Mistakes are named with their place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from scheduler.core.clock import SystemClock
from simulator.simulate.input.complete import complete
from simulator.simulate.input.manifests import Found, InputError, Level, load


def read(tmp_path: Path, text: str) -> list[Found]:
    """The completed objects of one file."""
    return list(complete(load([_written(tmp_path, dedent(text))]).objects).objects)


def _written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "in.yaml"
    file.write_text(text)
    return str(file)


def pod(**spec: Any) -> str:
    """A pod's manifest in one document."""
    spec = {"containers": [{"name": "c"}], **spec}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})


def apps(kind: str, fields: str, pods: str = "containers: [{name: c}]") -> str:
    """The workload `w`. `pods` is the spec of its template."""
    spec = f"{fields}, template: {{spec: {{{pods}}}}}"
    return f"{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: w}}, spec: {{{spec}}}}}"


LABELS = {"matchLabels": {"a": "b"}}
DATA = "volumeClaimTemplates: [{metadata: {name: d}}]"


def test_fields_of_the_server_are_removed_from_a_dump(tmp_path: Path) -> None:
    """Bound pods keep their node. Finished and terminating pods are left out."""
    objects = read(
        tmp_path,
        """
        apiVersion: v1
        kind: List
        items:
        - apiVersion: v1
          kind: Pod
          metadata: {name: bound, namespace: a, uid: x, resourceVersion: "7", managedFields: [], labels: {k: v},
            creationTimestamp: 2026-01-01T00:00:00Z}
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
    assert waiting["status"] == {"phase": "Pending"}, "without the verdict of its cluster's scheduler"
    assert (other["kind"], other["metadata"]["namespace"]) == ("Pod", "default")


@pytest.mark.parametrize(
    ("kind", "spec", "selector"),
    [
        pytest.param("StatefulSet", {"selector": LABELS}, LABELS, id="an explicit selector"),
        pytest.param("Deployment", {}, {"matchLabels": {"app": "w"}}, id="a Deployment: the labels of its pods"),
        pytest.param("ReplicationController", {}, {"app": "w"}, id="a ReplicationController: a map"),
        pytest.param("Job", {}, None, id="a Job: none"),
    ],
)
def test_a_workload_without_a_selector_selects_its_pods(
    tmp_path: Path, kind: str, spec: dict[str, Any], selector: dict[str, Any] | None
) -> None:
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c"}]}}
    workload = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w"}}
    (found,) = read(tmp_path, json.dumps({**workload, "spec": {**spec, "template": template}}))

    assert (found.kind, found.value["spec"].get("selector")) == (kind, selector)


def test_generated_names(tmp_path: Path) -> None:
    text = pod().replace('"name": "p"', '"generateName": "web-"')
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
def test_kinds_of_other_groups(tmp_path: Path, version: str, kind: str, shown: str) -> None:
    text = json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": {"tasks": []}})

    assert [found.kind for found in load([_written(tmp_path, text)]).objects] == [shown]


def test_defaults_of_nodes(tmp_path: Path) -> None:
    """A node has no namespace, even if one is written."""
    head = 'apiVersion: v1, kind: Node, metadata: {name: "n", namespace: b}'
    (found,) = read(tmp_path, f'{{{head}, status: {{capacity: {{cpu: "4"}}}}}}')

    assert (found.namespace, found.where.endswith("document 1 (Node n)")) == ("", True)
    assert found.value["status"]["allocatable"] == {"cpu": "4", "pods": "110"}
    assert found.value["metadata"]["labels"] == {"kubernetes.io/hostname": "n"}


@pytest.mark.parametrize(("text", "said"), [
    pytest.param("a: 1\nb: }\n", "in.yaml: line 2: is not YAML", id="no YAML"),
    pytest.param("--- 7", "in.yaml: document 1: must be an object, got int", id="not an object"),
    pytest.param("{kind: Pod}", "in.yaml: document 1: apiVersion: is required", id="no apiVersion"),
    pytest.param("{apiVersion: v1, kind: Pod}", "in.yaml: document 1: metadata: is required", id="no metadata"),
    pytest.param("{apiVersion: v1, kind: Pod, metadata: {name: 7}}", "document 1: metadata.name: is required",
        id="bad name"),
    pytest.param("{apiVersion: v1, kind: List, items: [{}]}", "document 1: items[0]: apiVersion: is required",
        id="bad item"),
    pytest.param(pod() + "\n---\n" + pod(containers=[{"name": "c", "resources": {"requests": {"cpu": "much"}}}]),
        "in.yaml: document 2 (Pod default/p): spec.containers[0].resources.requests[...]: 'much' is not a quantity",
        id="a bad quantity"),
    pytest.param(pod(containers=[{"name": "c"}], resources={"limits": 7}),
        "document 1 (Pod default/p): spec.resources.limits: Expected `object`, got `int`",
        id="invalid limits of the pod"),
    pytest.param(pod(containers=[]), "document 1 (Pod default/p): spec.containers: is required", id="no container"),
    pytest.param(pod(priorityClassName="none"), "spec.priorityClassName: no PriorityClass 'none'",
        id="an unknown class"),
    pytest.param("{apiVersion: v1, kind: Node, metadata: {name: node}}",
        "document 1 (Node node): status.allocatable: is required", id="a node of unknown size"),
    pytest.param(apps("Deployment", "replicas: two", "containers: []"),
        "document 1 (Deployment default/w): spec.replicas: Expected `int`, got `str`", id="replicas in words"),
    pytest.param(apps("Deployment", "replicas: 99999999999"),
        "document 1 (Deployment default/w): spec.replicas: is more than can be simulated (1000000), got 99999999999",
        id="more replicas than memory"),
    pytest.param(apps("StatefulSet", DATA, "volumes: d, containers: [{name: c}]"),
        "document 1 (StatefulSet default/w): spec.template.spec.volumes: must be a list",
        id="invalid volumes of a template"),
    pytest.param(apps("ReplicaSet", "selector: [a]"),
        "document 1 (ReplicaSet default/w): spec.selector: Expected `object | null`, got `array`",
        id="an invalid selector"),
    pytest.param("{apiVersion: v1, kind: Pod, metadata: {name: w}, spec: " + "{a: " * 900 + "1" + "}" * 900 + "}",
        "in.yaml: document 1: is nested too deeply", id="nested without end"),
])  # fmt: skip
def test_mistakes_name_file_document_and_field(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        read(tmp_path, text)

    assert said in str(refused.value)


class _Readings(SystemClock):
    def __init__(self, *times: float) -> None:
        self._times = iter(times)

    def now(self) -> float:
        return next(self._times)


def test_the_loader_counts(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.yaml", "b.yaml")]
    for file in files:
        file.write_text(pod())
    seen: list[tuple[float, int]] = []
    loaded = load([str(tmp_path)], clock=_Readings(1.0, 1.5), progress=lambda *bytes_read: seen.append(bytes_read))

    size = files[0].stat().st_size
    assert seen == [(size, 2 * size), (2 * size, 2 * size)]
    assert str(loaded) == "reading: 2 objects from 2 files in 0.50 s"


@pytest.mark.parametrize("text", ["", "---\n---\n", "{apiVersion: v1, kind: List, items: []}"])
def test_an_input_without_objects_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"in\.yaml: no object found: at least a pod or a workload is expected"):
        load([_written(tmp_path, text)])


def test_all_mistakes_of_all_documents_are_listed(tmp_path: Path) -> None:
    wrong = pod(nodeNme="n") + "\n---\n" + pod(priority="high", priority2=1) + "\n---\n{kind: Pod}"
    with pytest.raises(InputError) as refused:
        load([_written(tmp_path, wrong)], level="strict")
    many = "\n---\n".join(pod(nodeNme="n") for _ in range(60))
    with pytest.raises(InputError) as refused_many:
        load([_written(tmp_path, many)], level="strict")

    assert [line.partition("in.yaml: ")[2] for line in str(refused.value).splitlines()] == [
        'document 1 (Pod default/p): unknown field "spec.nodeNme", did you mean "nodeName"?',
        'document 2 (Pod default/p): spec.priority: must be an integer, got "high"',
        'document 2 (Pod default/p): unknown field "spec.priority2", did you mean "priority"?',
        "document 3: apiVersion: is required",
    ]
    lines = str(refused_many.value).splitlines()
    assert len(lines) == 52
    assert lines[50:] == ["and 10 more", "--validate=warn goes on in spite of this, --validate=ignore says nothing"]


def test_mistakes_that_only_a_server_names_are_listed_at_once(tmp_path: Path) -> None:
    """Those of the schema, of the server's rules and of expressions, also several of one object."""
    request = {"name": "r", "exactly": {"deviceClassName": "d", "selectors": [{"cel": {"expression": "1"}}]}}
    devices = {"requests": [request, request], "constraints": [{"matchAttribute": "model"}], "wrong": 1}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {}}
    text = f"{json.dumps(claim | {'spec': {'devices': devices}})}\n---\n{json.dumps(volume)}"
    with pytest.raises(InputError) as refused:
        load([_written(tmp_path, text)], level="strict")

    assert [re.sub(r"^.*\): | value: .*", "", line) for line in str(refused.value).splitlines()[:-1]] == [
        'unknown field "spec.devices.wrong"',
        "spec.devices.requests[1]: Duplicate",
        "spec.devices.constraints[0].matchAttribute: Invalid",
        "spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid",
        "spec.devices.requests[1].exactly.selectors[0].cel.expression: Invalid",
        "spec.accessModes: Required value",
        "spec.capacity: Required value",
        "spec.capacity: Unsupported",
        "spec: Required",
    ]


@pytest.mark.parametrize(("level", "count"), [("warn", 2), ("ignore", 0)])
def test_mistakes_of_validation_stop_nothing_at_lower_levels(tmp_path: Path, level: Level, count: int) -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  name: p\nspec: {nodeNme: x, containers: [{name: c}]}\n"
    loaded = load([_written(tmp_path, text)], level=level)

    assert [found.name for found in loaded.objects] == ["p"]
    assert len(loaded.warnings) == count
    assert all("in.yaml: document 1 (Pod default/p): " in each for each in loaded.warnings)
    if loaded.warnings:
        assert loaded.warnings[0].endswith('line 5: duplicate field "metadata.name"')


def test_an_invalid_object_is_refused_at_each_level(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="metadata: is required"):
        load([_written(tmp_path, "{apiVersion: v1, kind: Pod}")], level="warn")
