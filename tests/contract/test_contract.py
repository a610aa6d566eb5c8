"""Objects: what creation adds, what updates and patches may change, what deletion leaves, and every refusal's shape."""

from typing import Any

import pytest

from tests.contract.conftest import MERGE, Answer, Api, pod

Object = dict[str, Any]


def refusal(answer: Answer, code: int, reason: str, message: str, details: Object | None = None) -> None:
    expected: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    expected |= {"reason": reason} if reason else {}
    expected |= {"details": details} if details is not None else {}
    assert (answer.status, answer.body) == (code, expected | {"code": code})


def without(obj: Object, *keys: str) -> Object:
    return {key: value for key, value in obj.items() if key not in keys}


# -- creation ----------------------------------------------------------------------------------------------------------


async def test_a_new_pod_gets_the_defaults_a_scheduler_reads(api: Api) -> None:
    """Scheduler name, priority, tolerations, requests from limits, phase: all are there in the answer to POST."""
    container = {
        "name": "c",
        "image": "x",
        "resources": {"limits": {"cpu": "1"}},
        "ports": [{"hostPort": 80, "containerPort": 80}],
    }
    answer = await api("POST", api.pods, pod("a", containers=[container]))
    assert answer.status == 201
    created = answer.body
    assert (created["kind"], created["apiVersion"]) == ("Pod", "v1")
    unready = [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for what in ("not-ready", "unreachable")
    ]
    assert created["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "x",
                "ports": [{"hostPort": 80, "containerPort": 80, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "Always",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": unready,
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert created["status"] == {"phase": "Pending", "qosClass": "Burstable"}
    metadata = without(created["metadata"], "uid", "resourceVersion", "creationTimestamp", "managedFields")
    assert metadata == {"name": "a", "namespace": api.ns, "generation": 1}
    assert (await api("GET", f"{api.pods}/a")).body == created


async def test_a_gated_pod_says_so_in_its_condition(api: Api) -> None:
    """The server itself writes the condition of a pod that is created with gates."""
    created = (await api.pod("a", schedulingGates=[{"name": "g"}])).body
    assert created["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": created["metadata"]["creationTimestamp"],
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
    ]


async def test_tolerations_for_unready_nodes_are_added_only_where_missing(api: Api) -> None:
    """A pod that tolerates everything needs no more."""
    own = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]
    tolerations = (await api.pod("a", tolerations=own)).body["spec"]["tolerations"]
    assert [t.get("key") for t in tolerations] == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    everything = [{"operator": "Exists"}]
    assert (await api.pod("b", tolerations=everything)).body["spec"]["tolerations"] == everything


async def test_a_pods_status_is_not_taken_on_creation(api: Api) -> None:
    """Status comes through /status alone; generateName makes a name."""
    body = pod("a") | {"metadata": {"generateName": "gen-"}, "status": {"phase": "Running"}}
    created = (await api("POST", api.pods, body)).body
    assert created["status"]["phase"] == "Pending"
    assert created["metadata"]["generateName"] == "gen-"
    assert len(created["metadata"]["name"]) == len("gen-12345")


async def test_a_nodes_status_is_taken_on_creation(api: Api) -> None:
    """Nodes keep allocatable and conditions; without allocatable, capacity stands for it."""
    status = {"allocatable": {"cpu": "4", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}
    spec = {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]}
    answer = await api("POST", "/api/v1/nodes", {"metadata": {"name": f"n-{api.ns}"}, "spec": spec, "status": status})
    assert answer.status == 201
    node = answer.body
    assert node["spec"] == spec
    assert node["status"]["allocatable"] == status["allocatable"]
    assert node["status"]["conditions"] == [
        {"type": "Ready", "status": "True", "lastHeartbeatTime": None, "lastTransitionTime": None}
    ]
    assert "generation" not in node["metadata"]
    other = await api(
        "POST", "/api/v1/nodes", {"metadata": {"name": f"m-{api.ns}"}, "status": {"capacity": {"cpu": "2"}}}
    )
    assert other.body["status"]["allocatable"] == {"cpu": "2"}


async def test_priority_comes_from_the_class(api: Api) -> None:
    """The class gives number and policy; a number of one's own must be the same, an unknown class is forbidden."""
    name = f"pc-{api.ns}"
    body = {"metadata": {"name": name}, "value": 1000, "preemptionPolicy": "Never"}
    answer = await api("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    assert answer.status == 201
    await _until_admitted(api, name)
    spec = (await api.pod("a", priorityClassName=name, priority=1000)).body["spec"]
    assert (spec["priority"], spec["preemptionPolicy"], spec["priorityClassName"]) == (1000, "Never", name)
    refusal(
        await api("POST", api.pods, pod("b", priorityClassName="nope")),
        403,
        "Forbidden",
        'pods "b" is forbidden: no PriorityClass with name nope was found',
        {"name": "b", "kind": "pods"},
    )
    refusal(
        await api("POST", api.pods, pod("b", priority=5)),
        403,
        "Forbidden",
        'pods "b" is forbidden: the integer value of priority (5) must not be provided in pod spec; '
        "priority admission controller computed 0 from the given PriorityClass name",
        {"name": "b", "kind": "pods"},
    )
    system = (await api.pod("c", priorityClassName="system-node-critical")).body["spec"]
    assert system["priority"] == 2_000_001_000


async def _until_admitted(api: Api, class_name: str) -> None:
    """Admission of a real server sees a class a moment after its creation."""
    for _ in range(600):
        answer = (
            await api("POST", f"{api.pods}?dryRun=All", pod("dry", priorityClassName=class_name))
            if api.is_real
            else None
        )
        if answer is None or answer.status == 201:
            return


async def test_what_cannot_be_created_is_refused_in_the_servers_words(api: Api) -> None:
    """AlreadyExists, missing namespace, other namespace, resourceVersion, no containers, other kind."""
    await api.pod("a")
    named = {"name": "a", "kind": "pods"}
    refusal(await api("POST", api.pods, pod("a")), 409, "AlreadyExists", 'pods "a" already exists', named)
    refusal(
        await api("POST", "/api/v1/namespaces/nope/pods", pod("a")),
        404,
        "NotFound",
        'namespaces "nope" not found',
        {"name": "nope", "kind": "namespaces"},
    )
    elsewhere = pod("b") | {"metadata": {"name": "b", "namespace": "other"}}
    mismatch = "the namespace of the provided object does not match the namespace sent on the request"
    refusal(await api("POST", api.pods, elsewhere), 400, "BadRequest", mismatch)
    versioned = pod("b") | {"metadata": {"name": "b", "resourceVersion": "5"}}
    refusal(
        await api("POST", api.pods, versioned), 500, "", "resourceVersion should not be set on objects to be created"
    )
    empty = await api("POST", api.pods, pod("b", containers=[]))
    assert (empty.status, empty.body["message"]) == (422, 'Pod "b" is invalid: spec.containers: Required value')
    badly = await api("POST", api.pods, pod("A_b"))
    assert (badly.status, badly.body["reason"]) == (422, "Invalid")
    assert badly.body["message"].startswith(
        'Pod "A_b" is invalid: metadata.name: Invalid value: "A_b": a lowercase RFC 1123'
    )
    wrong = await api("POST", api.pods, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x"}})
    assert (wrong.status, wrong.body["reason"]) == (400, "BadRequest")
    broken = await api("POST", api.pods, b"{")
    assert (broken.status, broken.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("GET", "/api/v1/namespaces/default/foos", 404, id="an unknown kind in a served group"),
        pytest.param("PUT", "/api/v1/namespaces/default/pods", 405, id="a method the collection has not"),
        pytest.param("POST", "/api/v1/namespaces/default/pods/a", 405, id="a method the object has not"),
        pytest.param("POST", "/api/v1/pods", 405, id="creation without a namespace"),
        pytest.param("GET", "/api/v1/namespaces/default/pods/a/binding", 405, id="a method the subresource has not"),
    ],
)
async def test_paths_and_methods_that_are_not_there(api: Api, method: str, path: str, status: int) -> None:
    """Status objects without a name."""
    answer = await api(method, path, {} if method != "GET" else None)
    missing, refused = (
        "the server could not find the requested resource",
        "the server does not allow this method on the requested resource",
    )
    reason, message = ("NotFound", missing) if status == 404 else ("MethodNotAllowed", refused)
    refusal(answer, status, reason, message, {})


async def test_groups_that_are_not_there_are_not_even_an_api(api: Api) -> None:
    """Outside the served groups the answer is plain text."""
    for path in ("/nope", "/apis/foo.example/v1", "/apis/foo.example/v1/bars"):
        answer = await api("GET", path)
        assert (answer.status, answer.body) == (404, "404 page not found\n")


async def test_what_is_not_there(api: Api) -> None:
    """404 names resource and object, with the group where there is one."""
    for method in ("GET", "DELETE"):
        answer = await api(method, f"{api.pods}/a")
        refusal(answer, 404, "NotFound", 'pods "a" not found', {"name": "a", "kind": "pods"})
    refusal(await api.merge(f"{api.pods}/a", {}), 404, "NotFound", 'pods "a" not found', {"name": "a", "kind": "pods"})
    refusal(
        await api("GET", f"{api.at('resource.k8s.io/v1', 'resourceclaims')}/a"),
        404,
        "NotFound",
        'resourceclaims.resource.k8s.io "a" not found',
        {"name": "a", "group": "resource.k8s.io", "kind": "resourceclaims"},
    )


# -- updates -----------------------------------------------------------------------------------------------------------


async def test_an_old_resource_version_conflicts(api: Api) -> None:
    """PUT and both patches, on the object and on its status, and nothing is written."""
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
    message = (
        'Operation cannot be fulfilled on pods "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    for answer in answers:
        refusal(answer, 409, "Conflict", message, {"name": "a", "kind": "pods"})
    assert (await api("GET", path)).body == changed.body


@pytest.mark.parametrize("suffix", ["", "/status"], ids=["the object", "its status"])
async def test_a_patch_for_another_uid_is_invalid(api: Api, suffix: str) -> None:
    """422, not 409: a uid in a patch is an attempt to change it."""
    await api.pod("a")
    answer = await api.patch(f"{api.pods}/a{suffix}", {"metadata": {"uid": "u", "labels": {"a": "b"}}})
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert answer.body["message"] == 'Pod "a" is invalid: metadata.uid: Invalid value: "u": field is immutable'
    assert answer.body["details"]["causes"][0]["field"] == "metadata.uid"


async def test_a_put_for_another_uid_conflicts(api: Api) -> None:
    """409: the precondition of a whole object is checked by storage."""
    old = (await api.pod("a")).body
    other = old | {"metadata": without(old["metadata"], "resourceVersion") | {"uid": "u"}}
    answer = await api("PUT", f"{api.pods}/a", other)
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    end = f"Precondition failed: UID in precondition: u, UID in object meta: {old['metadata']['uid']}"
    assert answer.body["message"].endswith(end)


async def test_a_patch_that_changes_nothing_writes_nothing(api: Api) -> None:
    """Same resourceVersion, so no event either."""
    old = (await api.pod("a", labels={"x": "y"})).body
    assert (await api.merge(f"{api.pods}/a", {"metadata": {"labels": {"x": "y"}}})).body == old
    assert (await api.patch(f"{api.pods}/a", {"status": {"phase": "Running"}})).body == old


async def test_status_and_the_rest_are_written_apart(api: Api) -> None:
    """/status takes the status and labels but no spec; the object takes no status."""
    await api.pod("a")
    patch: Object = {"metadata": {"labels": {"q": "r"}}, "spec": {"priority": 3}, "status": {"nominatedNodeName": "n"}}
    body = (await api.merge(f"{api.pods}/a/status", patch)).body
    assert (body["spec"]["priority"], body["status"]["nominatedNodeName"]) == (0, "n")
    assert (body["metadata"]["labels"], body["metadata"]["generation"]) == ({"q": "r"}, 1)


async def test_conditions_merge_by_type(api: Api) -> None:
    """The patch of one condition leaves the others, fills in nulls for times, and new ones come first."""
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
    """What Go would leave out is not there, so a condition without a message has none."""
    await api.pod("a")
    patch: Object = {"status": {"conditions": [{"type": "B", "status": "True", "reason": "", "message": ""}]}}
    body = (await api.patch(f"{api.pods}/a/status", patch | {"metadata": {"labels": {}}})).body
    assert body["status"]["conditions"] == [
        {"type": "B", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
    ]
    assert "labels" not in body["metadata"]


async def test_a_bound_pod_is_not_nominated(api: Api) -> None:
    """422 for the whole patch; taking a nomination away is always fine."""
    await api.pod("a", nodeName="n")
    answer = await api.patch(f"{api.pods}/a/status", {"status": {"nominatedNodeName": "m", "phase": "Running"}})
    why = "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"
    assert (answer.status, answer.body["message"]) == (422, f'Pod "a" is invalid: {why}')
    assert (await api.merge(f"{api.pods}/a/status", {"status": {"nominatedNodeName": None}})).status == 200


async def test_a_replaced_container_is_defaulted_again(api: Api) -> None:
    """A merge patch replaces the list, so the new image would change the pull policy, which is fixed."""
    await api.pod("a")
    other: Object = {"name": "c", "image": "registry.example/app:2"}
    body = (await api.merge(f"{api.pods}/a", {"spec": {"containers": [other]}})).body
    assert body["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    latest = await api.merge(f"{api.pods}/a", {"spec": {"containers": [other | {"image": "registry.example/app"}]}})
    assert latest.status == 422
    body = (
        await api.patch(f"{api.pods}/a", {"spec": {"containers": [other | {"image": "registry.example/app"}]}})
    ).body
    assert body["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"


async def test_what_is_on_its_way_out_takes_no_finalizer_and_no_successor(api: Api) -> None:
    """New finalizers are forbidden, the name stays taken, and a deletion without a wish changes nothing."""
    await api.pod("a", nodeName="n")
    path = f"{api.pods}/a"
    shortened = (await api("DELETE", f"{path}?gracePeriodSeconds=7")).body
    answer = await api.patch(path, {"metadata": {"finalizers": ["x.example/b", "x.example/a"]}})
    why = "no new finalizers can be added if the object is being deleted, found new finalizers"
    assert (answer.status, answer.body["message"]) == (
        422,
        f'Pod "a" is invalid: metadata.finalizers: Forbidden: {why} []string{{"x.example/a", "x.example/b"}}',
    )
    named = {"name": "a", "kind": "pods"}
    taken = 'object is being deleted: pods "a" already exists'
    refusal(await api("POST", api.pods, pod("a")), 409, "AlreadyExists", taken, named)
    finished = (await api.merge(f"{path}/status", {"status": {"phase": "Failed"}})).body
    assert (await api("DELETE", path)).body == finished
    assert finished["metadata"]["deletionTimestamp"] == shortened["metadata"]["deletionTimestamp"]


async def test_finalizers_are_a_set_and_delay_deletion(api: Api) -> None:
    """Added by merging, taken away by name; the last one to go ends an object that is being deleted."""
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
    assert (last.status, last.metadata["resourceVersion"]) == (200, deleted["metadata"]["resourceVersion"])
    assert (await api("GET", path)).status == 404


async def test_owner_references_merge_by_uid(api: Api) -> None:
    """Two owners, one taken away."""
    await api.pod("a")
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": n, "uid": f"u-{n}"} for n in ("x", "y")]
    body = (await api.patch(f"{api.pods}/a", {"metadata": {"ownerReferences": owners}})).body
    assert [o["uid"] for o in body["metadata"]["ownerReferences"]] == ["u-x", "u-y"]
    gone = [{"uid": "u-x", "$patch": "delete"}]
    body = (await api.patch(f"{api.pods}/a", {"metadata": {"ownerReferences": gone}})).body
    assert [o["uid"] for o in body["metadata"]["ownerReferences"]] == ["u-y"]


async def test_a_pods_spec_is_fixed_but_for_a_few_fields(api: Api) -> None:
    """nodeName is not patched, gates only go, tolerations only come; generation counts what changes."""
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


async def test_a_nodes_spec_and_status(api: Api) -> None:
    """Taints are replaced as a whole; the status changes through /status, which leaves the spec alone."""
    path = f"/api/v1/nodes/n-{api.ns}"
    await api("POST", "/api/v1/nodes", {"metadata": {"name": f"n-{api.ns}"}, "status": {"allocatable": {"cpu": "4"}}})
    for key in ("a", "b"):
        body = (await api.patch(path, {"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}})).body
    assert body["spec"]["taints"] == [{"key": "b", "effect": "NoSchedule"}]
    assert (await api.patch(path, {"status": {"allocatable": {"cpu": "5"}}})).body == body
    patch: Object = {"spec": {"unschedulable": True}, "status": {"allocatable": {"cpu": "6", "x.example/gpu": "2"}}}
    body = (await api.patch(f"{path}/status", patch)).body
    assert body["status"]["allocatable"] == {"cpu": "6", "x.example/gpu": "2"}
    assert "unschedulable" not in body["spec"]


async def test_volumes_and_claims(api: Api) -> None:
    """Protected by finalizers, pending, bound by patches; deletion waits."""
    volumes, name = "/api/v1/persistentvolumes", f"pv-{api.ns}"
    spec: Object = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    created = (await api("POST", volumes, {"metadata": {"name": name}, "spec": spec})).body
    assert created["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    assert (created["status"]["phase"], created["spec"]["volumeMode"]) == ("Pending", "Filesystem")
    claim_ref = {"name": "c", "namespace": api.ns}
    body = (await api.patch(f"{volumes}/{name}", {"spec": {"claimRef": claim_ref}, "status": {"phase": "Bound"}})).body
    assert (body["spec"]["claimRef"], body["status"]["phase"]) == (claim_ref, "Pending")
    assert (await api.patch(f"{volumes}/{name}/status", {"status": {"phase": "Bound"}})).body["status"][
        "phase"
    ] == "Bound"
    wrong = await api.patch(f"{volumes}/{name}", {"metadata": {"uid": "x", "labels": {"a": "b"}}})
    assert wrong.status == 422
    gone = await api("DELETE", f"{volumes}/{name}")
    assert (gone.status, gone.metadata["deletionGracePeriodSeconds"]) == (200, 0)
    claims = api.at("v1", "persistentvolumeclaims")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = (await api("POST", claims, {"metadata": {"name": "c"}, "spec": spec})).body
    assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert claim["status"] == {"phase": "Pending"}
    selected = {"volume.kubernetes.io/selected-node": "n"}
    assert (await api.merge(f"{claims}/c", {"metadata": {"annotations": selected}})).metadata["annotations"] == selected
    assert (await api.merge(f"{claims}/c", {"spec": {"volumeName": name}})).body["spec"]["volumeName"] == name


async def test_resource_claims(api: Api) -> None:
    """reservedFor merges by uid, /status takes no metadata, the spec is fixed."""
    claims = api.at("resource.k8s.io/v1", "resourceclaims")
    requests = [{"name": "a", "exactly": {"deviceClassName": "x"}}]
    created = (await api("POST", claims, {"metadata": {"name": "r"}, "spec": {"devices": {"requests": requests}}})).body
    assert created["spec"]["devices"]["requests"][0]["exactly"] == {
        "deviceClassName": "x",
        "allocationMode": "ExactCount",
        "count": 1,
    }
    assert (created["status"], "generation" in created["metadata"]) == ({}, False)
    user: Object = {"resource": "pods", "name": "p", "uid": "u1"}
    status: Object = {"allocation": {"devices": {}}, "reservedFor": [user]}
    finalizers = {"finalizers": ["resource.kubernetes.io/delete-protection"]}
    body = (await api.patch(f"{claims}/r/status", {"metadata": finalizers, "status": status})).body
    assert (body["status"], "finalizers" in body["metadata"]) == (status, False)
    other = user | {"uid": "u2", "name": "p2"}
    body = (await api.patch(f"{claims}/r/status", {"status": {"reservedFor": [other]}})).body
    assert body["status"]["reservedFor"] == [other, user]
    gone = {"uid": "u1", "$patch": "delete"}
    body = (await api.patch(f"{claims}/r/status", {"status": {"reservedFor": [gone]}})).body
    assert body["status"]["reservedFor"] == [other]
    assert (await api.patch(f"{claims}/r", {"metadata": finalizers})).metadata["finalizers"] == finalizers["finalizers"]
    assert (await api.merge(f"{claims}/r", {"spec": {"devices": {"requests": []}}})).status == 422


async def test_leases(api: Api) -> None:
    """PUT creates, needs the resourceVersion afterwards, and loses against whoever was first."""
    leases = api.at("coordination.k8s.io/v1", "leases")
    body: Object = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
    created = await api("PUT", f"{leases}/l", body)
    assert created.status == 201
    blind = await api("PUT", f"{leases}/l", body)
    assert (blind.status, blind.body["message"]) == (
        422,
        (
            'leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: '
            "Invalid value: 0: must be specified for an update"
        ),
    )
    taken = created.body | {"spec": {"holderIdentity": "b"}}
    assert (await api("PUT", f"{leases}/l", taken)).status == 200
    late = await api("PUT", f"{leases}/l", taken)
    assert (late.status, late.body["reason"]) == (409, "Conflict")
    assert late.body["details"] == {"name": "l", "group": "coordination.k8s.io", "kind": "leases"}
    gone = (await api("DELETE", f"{leases}/l")).body
    assert without(gone, "details") == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    uid = created.metadata["uid"]
    assert gone["details"] == {"name": "l", "group": "coordination.k8s.io", "kind": "leases", "uid": uid}


async def test_events_have_two_faces(api: Api) -> None:
    """Written as events.k8s.io, read as core/v1 under the old names, and the other way round."""
    new, old = api.at("events.k8s.io/v1", "events"), api.at("v1", "events")
    regarding = {"kind": "Pod", "name": "a", "namespace": api.ns}
    event: Object = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "kubestow",
        "reportingInstance": "x",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "regarding": regarding,
        "note": "n",
        "type": "Warning",
    }
    assert (await api("POST", new, event)).status == 201
    core = (await api("GET", f"{old}/e")).body
    assert (core["apiVersion"], core["kind"], core["message"], core["involvedObject"]) == (
        "v1",
        "Event",
        "n",
        regarding,
    )
    assert core["reportingComponent"] == "kubestow"
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}
    assert (await api.patch(f"{new}/e", {"series": series})).body["series"] == series
    dotted = await api("POST", new, event | {"metadata": {"generateName": "e."}})
    assert dotted.status == 422
    for broken in ({"action": ""}, {"note": "x" * 1025}, {"reportingController": ""}):
        assert (await api("POST", new, event | {"metadata": {"name": "f"}} | broken)).status == 422, broken
    classic = {"metadata": {"name": "c"}, "involvedObject": regarding, "reason": "r", "message": "m", "type": "Normal"}
    assert (await api("POST", old, classic)).status == 201
    assert (await api("GET", f"{new}/c")).body["note"] == "m"


async def test_content_types(api: Api) -> None:
    """A patch must say what it is."""
    await api.pod("a")
    answer = await api("PATCH", f"{api.pods}/a", {"a": 1}, content="application/json")
    refusal(answer, 415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    broken = await api("PATCH", f"{api.pods}/a", b"{", content=MERGE)
    assert broken.status == 400


# -- deletion ----------------------------------------------------------------------------------------------------------


async def test_a_pod_without_a_node_goes_at_once(api: Api) -> None:
    """The answer is the pod in its last state."""
    await api.pod("a")
    answer = await api("DELETE", f"{api.pods}/a")
    assert (answer.status, answer.body["kind"]) == (200, "Pod")
    assert (answer.metadata["deletionGracePeriodSeconds"], answer.metadata["generation"]) == (0, 2)
    assert (await api("GET", f"{api.pods}/a")).status == 404


async def test_a_bound_pod_waits_for_its_kubelet(api: Api) -> None:
    """Grace from the pod, shortened by a second deletion, never prolonged; grace 0 ends it."""
    await api.pod("a", nodeName="n")
    path = f"{api.pods}/a"
    body = (await api("DELETE", path)).body
    assert (body["metadata"]["deletionGracePeriodSeconds"], body["metadata"]["generation"]) == (30, 2)
    assert (await api("DELETE", path)).body == body
    shorter = (await api("DELETE", f"{path}?gracePeriodSeconds=5")).body
    assert (shorter["metadata"]["deletionGracePeriodSeconds"], shorter["metadata"]["generation"]) == (5, 2)
    assert (await api("DELETE", path, {"gracePeriodSeconds": 50})).body == shorter
    assert (await api("DELETE", path, {"gracePeriodSeconds": 0})).status == 200
    assert (await api("GET", path)).status == 404


async def test_a_finished_pod_goes_at_once(api: Api) -> None:
    """Nobody has to stop it."""
    await api.pod("a", nodeName="n")
    await api.merge(f"{api.pods}/a/status", {"status": {"phase": "Succeeded"}})
    await api("DELETE", f"{api.pods}/a")
    assert (await api("GET", f"{api.pods}/a")).status == 404


async def test_deletion_has_preconditions(api: Api) -> None:
    """409 for another uid or resourceVersion; the right ones delete."""
    metadata = (await api.pod("a")).metadata
    details = {"name": "a", "kind": "Pod"}
    refusal(
        await api("DELETE", f"{api.pods}/a", {"preconditions": {"uid": "u"}}),
        409,
        "Conflict",
        'Operation cannot be fulfilled on Pod "a": the UID in the precondition (u) does not match the UID in record '
        f"({metadata['uid']}). The object might have been deleted and then recreated",
        details,
    )
    refusal(
        await api("DELETE", f"{api.pods}/a", {"preconditions": {"resourceVersion": "1"}}),
        409,
        "Conflict",
        'Operation cannot be fulfilled on Pod "a": the ResourceVersion in the precondition (1) does not match the '
        f"ResourceVersion in record ({metadata['resourceVersion']}). The object might have been modified",
        details,
    )
    right = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    assert (await api("DELETE", f"{api.pods}/a", {"preconditions": right})).status == 200


async def test_deleting_the_rest_answers_with_a_status(api: Api) -> None:
    """A node goes in one write."""
    name = f"n-{api.ns}"
    uid = (await api("POST", "/api/v1/nodes", {"metadata": {"name": name}})).metadata["uid"]
    answer = await api("DELETE", f"/api/v1/nodes/{name}")
    assert (answer.status, answer.body["status"]) == (200, "Success")
    assert answer.body["details"] == {"name": name, "kind": "nodes", "uid": uid}


async def test_a_namespace_that_is_deleted_takes_nothing_new(api: Api) -> None:
    """It stays, terminating, until its controller has emptied it."""
    answer = await api("DELETE", f"/api/v1/namespaces/{api.ns}")
    assert (answer.status, answer.body["status"]) == (200, {"phase": "Terminating"})
    late = await api("POST", api.pods, pod("late"))
    assert (late.status, late.body["reason"]) == (403, "Forbidden")
    cause = {"reason": "NamespaceTerminating", "message": f"namespace {api.ns} is being terminated"}
    assert late.body["details"]["causes"] == [cause | {"field": "metadata.namespace"}]
