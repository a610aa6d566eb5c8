"""POST pods/<name>/binding: what it does to the pod and each reason why not."""

from typing import Any

import pytest

from tests.contract.conftest import Answer, Api, Object, refusal


def binding(name: str = "a", node: str = "n", **metadata: Any) -> Object:
    target = {"kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}


def conflict(answer: Answer, why: str, *, kind: str = "pods/binding") -> None:
    message = f'Operation cannot be fulfilled on {kind} "a": {why}'
    refusal(answer, 409, "Conflict", message, {"name": "a", "kind": kind})


async def test_a_binding_places_the_pod(api: Api) -> None:
    created = await api.pod("a")
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}
    status = {"conditions": [unscheduled, {"type": "B", "status": "True"}], "nominatedNodeName": "other"}
    before = (await api.patch(f"{api.pods}/a/status", {"status": status})).body
    answer = await api("POST", f"{api.pods}/a/binding", binding(uid=created.metadata["uid"]))
    success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    assert (answer.status, answer.body) == (201, success)
    after = (await api("GET", f"{api.pods}/a")).body
    assert after["spec"] == before["spec"] | {"nodeName": "n"}
    scheduled, other = after["status"]["conditions"]
    assert isinstance(scheduled.pop("lastTransitionTime"), str)
    assert scheduled == {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    assert other["type"] == "B"
    assert "nominatedNodeName" not in after["status"]
    assert after["metadata"]["generation"] == created.metadata["generation"]


async def test_a_binding_carries_annotations_and_topology(api: Api) -> None:
    name = f"n-{api.ns}"
    labels = {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "o"}
    await api("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
    await api.pod("a", labels={"own": "1"})
    for _ in range(600):  # admission of a real server sees the node a moment later
        answer = await api("POST", f"{api.pods}/a/binding", binding(node=name, annotations={"x": "y"}))
        if answer.status == 201:
            break
    metadata = (await api("GET", f"{api.pods}/a")).metadata
    assert metadata["annotations"] == {"x": "y"}
    assert metadata["labels"] == {"own": "1", "topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}


async def test_a_pod_is_bound_once(api: Api) -> None:
    uid = (await api.pod("a")).metadata["uid"]
    await api("POST", f"{api.pods}/a/binding", binding())
    again = await api("POST", f"{api.pods}/a/binding", binding(uid=uid))
    conflict(again, 'pod a is already assigned to node "n"')
    conflict(await api("POST", f"{api.pods}/a/binding", binding(node="m")), 'pod a is already assigned to node "n"')


async def test_another_pod_of_that_name_is_not_bound(api: Api) -> None:
    """The uid is a precondition of storage, which is checked first."""
    uid = (await api.pod("a", nodeName="n")).metadata["uid"]
    answer = await api("POST", f"{api.pods}/a/binding", binding(uid="u"))
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/pods/{api.ns}/a, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: u, UID in object meta: {uid}"
    )
    conflict(answer, why, kind="pods")


async def test_a_pod_that_changed_is_not_bound_at_its_old_version(api: Api) -> None:
    old = (await api.pod("a")).metadata["resourceVersion"]
    await api.merge(f"{api.pods}/a", {"metadata": {"labels": {"x": "y"}}})
    answer = await api("POST", f"{api.pods}/a/binding", binding(resourceVersion=old))
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert "nodeName" not in (await api("GET", f"{api.pods}/a")).body["spec"]


async def test_a_gated_pod_is_not_bound(api: Api) -> None:
    await api.pod("a", schedulingGates=[{"name": "g"}])
    conflict(await api("POST", f"{api.pods}/a/binding", binding()), "pod a has non-empty .spec.schedulingGates")


async def test_a_pod_on_its_way_out_is_not_bound(api: Api) -> None:
    await api.pod("a")
    await api.patch(f"{api.pods}/a", {"metadata": {"finalizers": ["x.example/a"]}})
    await api("DELETE", f"{api.pods}/a")
    why = "pod a is being deleted, cannot be assigned to a host"
    conflict(await api("POST", f"{api.pods}/a/binding", binding()), why)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        pytest.param(binding("b"), 400, "name in URL does not match name in Binding object", id="another name"),
        pytest.param(binding(node=""), 500, "target.name: Required value", id="no node"),
        pytest.param(
            binding() | {"target": {"kind": "Pod", "name": "n"}},
            500,
            'target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"',
            id="not a node",
        ),
    ],
)
async def test_a_malformed_binding(api: Api, body: Object, status: int, message: str) -> None:
    """Validation of a binding answers 500."""
    await api.pod("a")
    answer = await api("POST", f"{api.pods}/a/binding", body)
    assert (answer.status, answer.body["message"]) == (status, message)


async def test_a_pod_that_is_not_there_is_not_bound(api: Api) -> None:
    answer = await api("POST", f"{api.pods}/a/binding", binding())
    assert (answer.status, answer.body["message"]) == (404, 'pods "a" not found')
