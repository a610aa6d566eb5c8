"""Updates, patches and bindings of pods: versions, uids, the two halves, merge keys, fixed fields."""

from typing import Any

import pytest

from tests.contract.conftest import Answer, Api, Object, denies, modified, pod, refusal, without


async def test_an_old_resource_version_conflicts(api: Api) -> None:
    old = (await api.pod("a")).body
    path, version = f"{api.pods}/a", old["metadata"]["resourceVersion"]
    changed = await api.merge(path, {"metadata": {"resourceVersion": version, "labels": {"x": "y"}}})
    assert (changed.status, changed.metadata["labels"]) == (200, {"x": "y"})
    assert changed.rv > int(version)
    late: Object = {"metadata": {"resourceVersion": version}}
    answers = [
        await api.merge(path, late | {"metadata": late["metadata"] | {"labels": {"x": "z"}}}),
        await api.patch(f"{path}/status", late | {"status": {"phase": "Running"}}),
        await api("PUT", path, old),
    ]
    for answer in answers:
        modified(answer, "pods", "a")
    assert (await api("GET", path)).body == changed.body


@pytest.mark.parametrize("suffix", ["", "/status"], ids=["the object", "its status"])
async def test_a_patch_for_another_uid_is_invalid(api: Api, suffix: str) -> None:
    """A uid in a patch is an attempt to change it: 422, not 409."""
    await api.pod("a")
    answer = await api.patch(f"{api.pods}/a{suffix}", {"metadata": {"uid": "u", "labels": {"a": "b"}}})
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    shown = "null" if api.version >= "1.38" else '"u"'
    assert answer.body["message"] == f'Pod "a" is invalid: metadata.uid: Invalid value: {shown}: field is immutable'
    assert len(answer.body["details"]["causes"]) == (1 if api.version >= "1.37" else 2)
    assert answer.body["details"]["causes"][0]["field"] == "metadata.uid"


async def test_a_put_for_another_uid_conflicts(api: Api) -> None:
    """Storage checks the precondition of a whole object: 409."""
    old = (await api.pod("a")).body
    other = old | {"metadata": without(old["metadata"], "resourceVersion") | {"uid": "u"}}
    answer = await api("PUT", f"{api.pods}/a", other)
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    end = f"Precondition failed: UID in precondition: u, UID in object meta: {old['metadata']['uid']}"
    assert answer.body["message"].endswith(end)


async def test_a_patch_that_changes_nothing_writes_nothing(api: Api) -> None:
    old = (await api.pod("a", labels={"x": "y"})).body
    assert (await api.merge(f"{api.pods}/a", {"metadata": {"labels": {"x": "y"}}})).body == old
    assert (await api.patch(f"{api.pods}/a", {"status": {"phase": "Running"}})).body == old


async def test_status_and_the_rest_are_written_apart(api: Api) -> None:
    await api.pod("a")
    patch: Object = {"metadata": {"labels": {"q": "r"}}, "spec": {"priority": 3}, "status": {"nominatedNodeName": "n"}}
    body = (await api.merge(f"{api.pods}/a/status", patch)).body
    assert (body["spec"]["priority"], body["status"]["nominatedNodeName"]) == (0, "n")
    assert (body["metadata"]["labels"], body["metadata"]["generation"]) == ({"q": "r"}, 1)


async def test_conditions_merge_by_type(api: Api) -> None:
    await api.pod("a")
    status = f"{api.pods}/a/status"
    first: Object = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}
    times = {"lastProbeTime": None, "lastTransitionTime": None}
    body = (await api.patch(status, {"status": {"conditions": [first]}})).body
    assert body["status"]["conditions"] == [first | times]
    again = {"type": "PodScheduled", "message": "m2"}
    order = [{"type": "PodScheduled"}]
    body = (await api.patch(status, {"status": {"$setElementOrder/conditions": order, "conditions": [again]}})).body
    assert body["status"]["conditions"] == [first | times | {"message": "m2"}]
    second = {"type": "B", "status": "False"}
    body = (await api.patch(status, {"status": {"conditions": [second], "nominatedNodeName": None}})).body
    assert body["status"]["conditions"] == [second | times, first | times | {"message": "m2"}]
    both = [{"type": "PodScheduled", "status": "True"}, {"type": "C", "status": "True"}]
    body = (await api.patch(status, {"status": {"conditions": both}})).body
    assert [c["type"] for c in body["status"]["conditions"]] == ["B", "PodScheduled", "C"]
    body = (await api.patch(status, {"status": {"conditions": [{"type": "B", "$patch": "delete"}]}})).body
    assert [c["type"] for c in body["status"]["conditions"]] == ["PodScheduled", "C"]


async def test_empty_texts_are_not_kept(api: Api) -> None:
    await api.pod("a")
    patch: Object = {"status": {"conditions": [{"type": "B", "status": "True", "reason": "", "message": ""}]}}
    body = (await api.patch(f"{api.pods}/a/status", patch | {"metadata": {"labels": {}}})).body
    assert body["status"]["conditions"] == [
        {"type": "B", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
    ]
    assert "labels" not in body["metadata"]


async def test_a_bound_pod_is_not_nominated(api: Api) -> None:
    await api.pod("a", nodeName="n")
    answer = await api.patch(f"{api.pods}/a/status", {"status": {"nominatedNodeName": "m", "phase": "Running"}})
    why = "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"
    denies(answer, 422, f'Pod "a" is invalid: {why}')
    assert (await api.merge(f"{api.pods}/a/status", {"status": {"nominatedNodeName": None}})).status == 200


async def test_a_replaced_container_is_defaulted_again(api: Api) -> None:
    """The patch replaces the list, so a new image would change the immutable pull policy."""
    await api.pod("a")
    other: Object = {"name": "c", "image": "registry.example/app:2"}
    body = (await api.merge(f"{api.pods}/a", {"spec": {"containers": [other]}})).body
    assert body["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    latest = await api.merge(f"{api.pods}/a", {"spec": {"containers": [other | {"image": "registry.example/app"}]}})
    assert latest.status == 422
    latest = await api.patch(f"{api.pods}/a", {"spec": {"containers": [other | {"image": "registry.example/app"}]}})
    body = latest.body
    assert body["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"


async def test_probes_variables_and_files_get_their_defaults(api: Api) -> None:
    """Two pod templates are equal if they differ in these fields alone."""
    field = {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    container: Object = {
        "name": "c",
        "image": "registry.example/app:2",
        "env": [field],
        "readinessProbe": {"httpGet": {"port": 80}},
        "livenessProbe": {"grpc": {"port": 80}, "periodSeconds": 3},
        "lifecycle": {"preStop": {"httpGet": {"port": 80, "path": "/x"}}},
    }
    item = {"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}
    sources = [{"downwardAPI": {"items": [item]}}]
    volumes = [{"name": "d", "downwardAPI": {"items": [item]}}, {"name": "p", "projected": {"sources": sources}}]
    spec = (await api.pod("a", containers=[container], volumes=[*volumes, {"name": "e"}])).body["spec"]
    made = spec["containers"][0]
    assert made["env"][0]["valueFrom"]["fieldRef"] == {"apiVersion": "v1", "fieldPath": "metadata.name"}
    times = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    assert made["readinessProbe"] == times | {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}}
    assert made["livenessProbe"] == times | {"grpc": {"port": 80, "service": ""}, "periodSeconds": 3}
    assert made["lifecycle"]["preStop"]["httpGet"] == {"path": "/x", "port": 80, "scheme": "HTTP"}
    filled = item | {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels"}}
    assert spec["volumes"] == [
        {"name": "d", "downwardAPI": {"items": [filled], "defaultMode": 420}},
        {"name": "p", "projected": {"sources": [{"downwardAPI": {"items": [filled]}}], "defaultMode": 420}},
        {"name": "e", "emptyDir": {}},
    ]


async def test_what_is_on_its_way_out_takes_no_finalizer_and_no_successor(api: Api) -> None:
    await api.pod("a", nodeName="n")
    path = f"{api.pods}/a"
    shortened = (await api("DELETE", f"{path}?gracePeriodSeconds=7")).body
    answer = await api.patch(path, {"metadata": {"finalizers": ["x.example/b", "x.example/a"]}})
    why = "no new finalizers can be added if the object is being deleted, found new finalizers"
    new = '[]string{"x.example/a", "x.example/b"}'
    denies(answer, 422, f'Pod "a" is invalid: metadata.finalizers: Forbidden: {why} {new}')
    both = await api.patch(path, {"metadata": {"uid": "other", "finalizers": ["x.example/a"]}})
    assert both.status == 422
    assert not both.has_known_texts or both.body["message"] == (
        f'Pod "a" is invalid: [metadata.finalizers: Forbidden: {why} []string{{"x.example/a"}}, '
        'metadata.uid: Invalid value: "other": field is immutable]'
    )
    times = 2 if both.has_known_texts else 1
    fields = ["metadata.finalizers", "metadata.uid"] * times
    assert [cause["field"] for cause in both.body["details"]["causes"]] == fields
    named = {"name": "a", "kind": "pods"}
    taken = 'object is being deleted: pods "a" already exists'
    refusal(await api("POST", api.pods, pod("a")), 409, "AlreadyExists", taken, named)
    finished = (await api.merge(f"{path}/status", {"status": {"phase": "Failed"}})).body
    assert (await api("DELETE", path)).body == finished
    assert finished["metadata"]["deletionTimestamp"] == shortened["metadata"]["deletionTimestamp"]


async def test_finalizers_are_a_set_and_delay_deletion(api: Api) -> None:
    await api.pod("a")
    path = f"{api.pods}/a"
    await api.patch(path, {"metadata": {"finalizers": ["x.example/a"]}})
    body = (await api.patch(path, {"metadata": {"finalizers": ["x.example/b"]}})).body
    assert body["metadata"]["finalizers"] == ["x.example/b", "x.example/a"]
    drop = "$deleteFromPrimitiveList/finalizers"
    body = (await api.patch(path, {"metadata": {drop: ["x.example/a"]}})).body
    assert body["metadata"]["finalizers"] == ["x.example/b"]
    deleted = (await api("DELETE", path)).body
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 0
    assert deleted["metadata"]["generation"] == 2
    assert (await api("GET", path)).body == deleted
    last = await api.patch(path, {"metadata": {drop: ["x.example/b"]}})
    assert last.status == 200
    if api.version >= "1.38":
        assert last.rv > int(deleted["metadata"]["resourceVersion"])
    else:
        assert last.metadata["resourceVersion"] == deleted["metadata"]["resourceVersion"]
    assert (await api("GET", path)).status == 404


async def test_owner_references_merge_by_uid(api: Api) -> None:
    await api.pod("a")
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": n, "uid": f"u-{n}"} for n in ("x", "y")]
    body = (await api.patch(f"{api.pods}/a", {"metadata": {"ownerReferences": owners}})).body
    assert [o["uid"] for o in body["metadata"]["ownerReferences"]] == ["u-x", "u-y"]
    gone = [{"uid": "u-x", "$patch": "delete"}]
    body = (await api.patch(f"{api.pods}/a", {"metadata": {"ownerReferences": gone}})).body
    assert [o["uid"] for o in body["metadata"]["ownerReferences"]] == ["u-y"]


async def test_a_pods_spec_is_fixed_but_for_a_few_fields(api: Api) -> None:
    await api.pod("a", schedulingGates=[{"name": "x"}, {"name": "y"}])
    path = f"{api.pods}/a"
    for spec in ({"nodeName": "n"}, {"schedulerName": "other"}, {"priority": 7}):
        answer = await api.merge(path, {"spec": spec})
        assert (answer.status, answer.body["reason"]) == (422, "Invalid"), spec
        assert answer.body["message"].startswith(
            'Pod "a" is invalid: spec: Forbidden: pod updates may not change fields'
        )
    body = (await api.patch(path, {"spec": {"schedulingGates": [{"name": "x", "$patch": "delete"}]}})).body
    assert (body["spec"]["schedulingGates"], body["metadata"]["generation"]) == ([{"name": "y"}], 2)
    body = (await api.merge(path, {"spec": {"schedulingGates": None}})).body
    assert "schedulingGates" not in body["spec"]
    assert body["status"]["conditions"][0]["reason"] == "SchedulingGated"
    answer = await api.merge(path, {"spec": {"schedulingGates": [{"name": "q"}]}})
    assert answer.body["message"] == (
        'Pod "a" is invalid: spec.schedulingGates[0].name: Forbidden: '
        "only deletion is allowed, but found new scheduling gate 'q'"
    )
    more = [*body["spec"]["tolerations"], {"key": "k", "operator": "Exists"}]
    assert (await api.patch(path, {"spec": {"tolerations": more}})).metadata["generation"] == 4
    assert (await api.patch(path, {"spec": {"tolerations": more[:-1]}})).status == 422
    readded = (await api.patch(path, {"spec": {"tolerations": more[1:]}})).body["spec"]["tolerations"]
    assert readded == [*more[1:], more[0]]


# -- POST pods/<name>/binding: what it does to the pod and each reason why not -----------------------------------------


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
    assert answer.status == 201
    api.succeeded(answer, 201)
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
