"""The question of a WhatIf object, and the status that answers it: fields, bounds, and what other namespaces keep."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.customresources.what_if_question import (
    FAILED,
    MALFORMED,
    SPEC_MAX,
    STATUS_MAX,
    WorkloadReference,
    answered,
    question,
    read_object,
    read_spec,
    template_of,
    unanswered,
)
from scheduler.explain.answer import (
    DisplacedPod,
    Explanation,
    PlacedPod,
    Reason,
    RejectedNodes,
    WhatIfAnswer,
    WhatIfGroup,
)
from scheduler.explain.manifests import WrongRequest
from scheduler.explain.what_if import WhatIfRequest
from tests.unit.customresources.what_ifs import Object, pod, what_if

NOW = "2026-01-02T03:04:05Z"
THEN = "2026-01-01T00:00:00Z"
NAMES = ("kubestow", "batch")


def request_of(spec: Object, referenced: Object | None = None) -> WhatIfRequest:
    return question(read_spec(read_object(msgspec.json.encode(what_if(spec)))), "demo", NAMES, referenced)


@pytest.mark.parametrize(("spec", "expected"), [
    pytest.param({}, WhatIfRequest(), id="nothing"),
    pytest.param(
        {"replicas": 3, "drain": ["a"], "cordon": ["b"], "addNodesLike": {"c": 2}, "unknown": 1},
        WhatIfRequest(replicas=3, drain=("a",), cordon=("b",), add_nodes_like={"c": 2}),
        id="nodes and a number",
    ),
    pytest.param({"without": ["p", "demo/q"]}, WhatIfRequest(without=("demo/p", "demo/q")),
        id="pods to leave out are of the namespace"),
])  # fmt: skip
def test_the_fields_are_those_of_a_question(spec: Object, expected: WhatIfRequest) -> None:
    assert request_of(spec) == expected


@pytest.mark.parametrize(("manifest", "namespace", "scheduler"), [
    pytest.param(pod(), "demo", "kubestow", id="a pod without namespace and scheduler"),
    pytest.param(pod(namespace="demo", schedulerName="batch"), "demo", "batch", id="a pod with both"),
    pytest.param(pod(schedulerName="default-scheduler"), "demo", "kubestow", id="a pod of another scheduler"),
])  # fmt: skip
def test_pods_get_the_namespace_and_a_scheduler(manifest: Object, namespace: str, scheduler: str) -> None:
    workload = {"kind": "Job", "metadata": manifest["metadata"], "spec": {"template": {"spec": manifest["spec"]}}}

    for given in ([manifest], [{"kind": "List", "items": [manifest]}], [workload]):
        (found,) = request_of({"manifests": given}).manifests
        spec = found["spec"] if found["kind"] == "Pod" else found["spec"]["template"]["spec"]
        assert (found["metadata"]["namespace"], spec["schedulerName"]) == (namespace, scheduler)


def test_a_class_of_priority_has_no_namespace() -> None:
    manifest = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7}

    assert request_of({"manifests": [manifest]}).manifests == (manifest,)


@pytest.mark.parametrize(("spec", "message"), [
    pytest.param({"manifests": [pod(namespace="other")]},
        "spec.manifests[0].metadata.namespace: 'other' is not the namespace of the WhatIf, 'demo'", id="another namespace"),
    pytest.param({"manifests": [{"kind": "List", "items": [pod(), pod(namespace={"a": 1})]}]},
        "spec.manifests[0].items[1].metadata.namespace: {'a': 1} is not", id="a namespace that is no text"),
    pytest.param({"without": ["other/p"]}, "spec.without: 'other' is not the namespace", id="a pod of another namespace"),
    pytest.param({"manifests": 1}, "spec: Expected `array`, got `int` - at `$.manifests`", id="manifests that are no list"),
    pytest.param({"manifests": [1]}, "spec: Expected `object`, got `int` - at `$.manifests[0]`", id="a number as a manifest"),
    pytest.param({"manifests": [{"kind": "List", "items": [1]}]}, "spec.manifests[0].items[0]: expected an object",
        id="a number in a list"),
    pytest.param({"manifests": [{"kind": "List", "items": [{}] * 1001}]}, "at most 1000 objects", id="a long list"),
    pytest.param({"replicas": 1001}, "`$.replicas`", id="too many replicas"),
    pytest.param({"addNodesLike": {"n": 101}}, "`$.addNodesLike[...]`", id="too many nodes"),
    pytest.param({"reference": {"kind": "Secret", "name": "s"}}, "'Secret' - at `$.reference.kind`",
        id="a reference to another kind"),
    pytest.param({"reference": {"kind": "Pod", "name": ".."}}, "`$.reference.name`", id="a reference that is a path"),
    pytest.param({"schedulerName": "x" * SPEC_MAX}, "a question has at most", id="a large spec"),
])  # fmt: skip
def test_a_malformed_question_names_the_field(spec: Object, message: str) -> None:
    with pytest.raises(WrongRequest) as wrong:
        request_of(spec)

    assert message in str(wrong.value)
    assert len(str(wrong.value)) < 1000


@pytest.mark.parametrize("manifest", [
    pytest.param({"kind": [], "metadata": 1}, id="metadata that are a number"),
    pytest.param({"kind": "Job", "metadata": {}, "spec": 1}, id="a spec that is a number"),
    pytest.param({"kind": "Job", "metadata": {}, "spec": {"template": []}}, id="a template that is a list"),
    pytest.param({"kind": "Pod", "metadata": {}, "spec": {"schedulerName": []}}, id="a scheduler that is a list"),
])  # fmt: skip
def test_a_malformed_manifest_is_left_to_the_answer(manifest: Object) -> None:
    assert len(request_of({"manifests": [manifest]}).manifests) == 1


def test_a_reference_becomes_another_workload() -> None:
    raw = {
        "metadata": {"name": "web", "namespace": "demo", "uid": "u", "labels": {"app": "web"}, "ownerReferences": [{}]},
        "spec": {"replicas": 2, "nodeName": "n1", "template": {"spec": {"schedulerName": "batch"}}},
        "status": {"replicas": 2},
    }
    referenced = template_of(msgspec.json.encode(raw), WorkloadReference(kind="Deployment", name="web"))

    (found,) = request_of({}, referenced).manifests
    assert found == {
        "kind": "Deployment",
        "metadata": {"name": "web-what-if", "namespace": "demo", "labels": {"app": "web"}},
        "spec": {"replicas": 2, "template": {"spec": {"schedulerName": "batch"}}},
    }


# -- the status --------------------------------------------------------------------------------------------------------


def status(answer: WhatIfAnswer, before: Object | None = None) -> Object:
    found: Object = answered(read_object(msgspec.json.encode(what_if({}, status=before or {}))), answer, NOW)
    return found


def answer(**more: Any) -> WhatIfAnswer:
    given: Any = {"verdict": "fits", "exit_code": 0, "cause": "1 of 1 pod fits", "replicas": 1, "placed": 1}
    return WhatIfAnswer(**given | more)


def explanation(pod: str, *groups: RejectedNodes) -> Explanation:
    return Explanation(
        pod=pod,
        uid="u",
        scheduler="kubestow",
        state="pending",
        verdict="doesNotFit",
        exit_code=2,
        code="InsufficientResources",
        cause="none of 3 nodes fits",
        move="user",
        node_count=3,
        groups=groups,
    )


def group(nodes: int, *codes: str) -> RejectedNodes:
    reasons = tuple(Reason(code=code, plugin="p", text=f"text of {code}", nodes=nodes) for code in codes)
    return RejectedNodes(nodes=nodes, examples=(), reasons=reasons)


def test_a_status_has_all_fields_and_removes_those_of_the_question_before() -> None:
    before = {"conditions": [{"type": "Reviewed"}, {"type": "Answered", "status": "True", "lastTransitionTime": THEN}]}

    found = status(answer(placements=(PlacedPod(pod="demo/p", node="n1"),)), before)

    condition = {
        "type": "Answered",
        "status": "True",
        "reason": "Answered",
        "message": "1 of 1 pod fits",
        "observedGeneration": 4,
        "lastTransitionTime": THEN,
    }
    assert {name: value for name, value in found.items() if value is not None} == {
        "observedGeneration": 4,
        "answeredAt": NOW,
        "verdict": "fits",
        "cause": "1 of 1 pod fits",
        "replicas": 1,
        "placed": 1,
        "placements": [{"pod": "p", "node": "n1"}],
        "conditions": [{"type": "Reviewed"}, condition],
    }
    assert {name for name, value in found.items() if value is None} == {
        *(
            "placementsOmitted",
            "displaced",
            "displacedOmitted",
            "displacedElsewhere",
            "groups",
            "groupsOmitted",
            "reasons",
        ),
    }


def pod_group(key: str, **more: Any) -> WhatIfGroup:
    given: Any = {"verdict": "fits", "cause": "an attempt now places 3 of 3 pods", "minimum": 2, "pods": 3, "placed": 3}
    return WhatIfGroup(group=key, api_group="scheduling.k8s.io", **given | more)


def test_groups_are_listed() -> None:
    refused = pod_group("demo/h", verdict="doesNotFit", cause="2 of 3 pods fit together, and 3 have to", placed=0)
    found = status(answer(groups=(pod_group("demo/g"), refused)))

    assert found["groups"] == [
        {
            "group": "g",
            "apiGroup": "scheduling.k8s.io",
            "verdict": "fits",
            "cause": "an attempt now places 3 of 3 pods",
            "minimum": 2,
            "pods": 3,
            "placed": 3,
        },
        {
            "group": "h",
            "apiGroup": "scheduling.k8s.io",
            "verdict": "doesNotFit",
            "cause": "2 of 3 pods fit together, and 3 have to",
            "minimum": 2,
            "pods": 3,
            "placed": 0,
        },
    ]
    assert found["groupsOmitted"] is None


def test_a_group_of_another_namespace_is_not_listed() -> None:
    assert status(answer(groups=(pod_group("secret/g"),)))["groups"] is None


def test_reasons_are_summed_over_groups_and_the_most_frequent_come_first() -> None:
    groups = (group(1, "A", "B"), group(4, "B"), group(2, "C"))

    found = status(answer(verdict="doesNotFit", explanation=explanation("demo/p", *groups)))

    assert [(each["code"], each["nodes"]) for each in found["reasons"]] == [("B", 5), ("C", 2), ("A", 1)]
    assert found["cause"] == "1 of 1 pod fits; none of 3 nodes fits"


def test_a_rejection_of_all_nodes_at_once_is_a_reason() -> None:
    found = status(answer(verdict="doesNotFit", explanation=explanation("demo/p")))

    assert found["reasons"] == [{"code": "InsufficientResources", "text": "none of 3 nodes fits", "nodes": 3}]


def test_pods_of_other_namespaces_are_only_counted() -> None:
    displaced = (
        DisplacedPod(pod="demo/a", source="n1", to="n2"),
        DisplacedPod(pod="secret/b", source="n1", to="n2"),
        DisplacedPod(pod="demo/c", source="n1", cause="preempted by secret/b", preempted_by="secret/b"),
        DisplacedPod(pod="demo/d", source="n1", cause="preempted by demo/a", preempted_by="demo/a"),
        DisplacedPod(pod="demo-2/secret", source="n1", cause="none fits"),
    )

    found = status(answer(displaced=displaced, explanation=explanation("secret/b", group(1, "A"))))

    assert found["displaced"] == [
        {"pod": "a", "from": "n1", "to": "n2"},
        {"pod": "c", "from": "n1", "cause": "preempted by a pod of another namespace"},
        {"pod": "d", "from": "n1", "cause": "preempted by demo/a"},
    ]
    assert (found["displacedElsewhere"], found["reasons"], found["cause"]) == (2, None, "1 of 1 pod fits")
    assert b"secret" not in msgspec.json.encode(found)


@pytest.mark.parametrize("name", ["p", "p" * 300, "\x01" * 2000], ids=["short names", "long names", "names to escape"])
def test_a_status_is_bounded(name: str) -> None:
    placements = tuple(PlacedPod(pod=f"demo/{name}-{at}", node=name) for at in range(500))
    displaced = tuple(DisplacedPod(pod=f"demo/{name}-{at}", source=name, cause=name) for at in range(200))
    groups = [group(at, f"{name}{at}") for at in range(1, 40)]

    found = status(
        answer(
            placed=500,
            placements=placements,
            displaced=displaced,
            groups=tuple(pod_group(f"demo/{name}-{at}", cause=name) for at in range(150)),
            explanation=explanation("demo/p", *groups),
        )
    )

    shown = len(found["placements"] or ())
    assert found["placementsOmitted"] == 500 - shown
    assert found["displacedOmitted"] == 200 - len(found["displaced"] or ())
    assert found["groupsOmitted"] == 150 - len(found["groups"] or ())
    assert len(msgspec.json.encode(found)) <= STATUS_MAX
    if name == "p":
        assert (shown, len(found["displaced"]), len(found["groups"]), len(found["reasons"])) == (100, 100, 100, 20)


def test_an_answer_that_ran_out_of_time_says_so() -> None:
    assert status(answer(is_complete=False))["cause"].endswith(
        "; the time for this question was over before all pods were tried"
    )


@pytest.mark.parametrize("reason", [MALFORMED, FAILED])
def test_a_question_without_an_answer_has_a_reason(reason: str) -> None:
    before = {"conditions": [{"type": "Answered", "status": "True", "lastTransitionTime": THEN}], "placed": 3}
    found = unanswered(read_object(msgspec.json.encode(what_if({}, status=before))), reason, "x" * 9999, NOW)

    (condition,) = found["conditions"]
    assert (condition["status"], condition["reason"], condition["lastTransitionTime"]) == ("False", reason, NOW)
    assert (found["verdict"], found["observedGeneration"], found["placed"]) == ("unreadable", 4, None)
    assert len(found["cause"]) == 1024
