"""New objects: what creation adds, what it refuses, and the shape of every refusal for what is not there."""

import pytest

from tests.contract.conftest import Api, missing, pod, refusal, without


async def test_a_new_pod_gets_the_defaults_a_scheduler_reads(api: Api) -> None:
    ports = [{"hostPort": 80, "containerPort": 80}]
    container = {"name": "c", "image": "x", "resources": {"limits": {"cpu": "1"}}, "ports": ports}
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


@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        pytest.param({}, {}, id="nothing as a whole"),
        pytest.param({"requests": {"memory": "3Gi"}}, {"requests": {"memory": "3Gi"}}, id="requests alone"),
        pytest.param(
            {"limits": {"cpu": "3"}},
            {"limits": {"cpu": "3"}, "requests": {"cpu": "1500m", "memory": "1536Mi"}},
            id="limits: the sum of its containers' requests",
        ),
        pytest.param(
            {"limits": {"cpu": "3", "memory": "4Gi"}, "requests": {"memory": "2Gi"}},
            {"limits": {"cpu": "3", "memory": "4Gi"}, "requests": {"cpu": "1500m", "memory": "2Gi"}},
            id="limits, and some requests",
        ),
    ],
)
async def test_a_pod_with_limits_as_a_whole_gets_requests(
    api: Api, whole: dict[str, object], expected: dict[str, object]
) -> None:
    containers = [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}},
        {"name": "d", "image": "x", "resources": {"requests": {"memory": "512Mi"}}},
    ]
    init = [{"name": "i", "image": "x", "resources": {"requests": {"cpu": "1500m"}}}]
    answer = await api("POST", api.pods, pod("a", containers=containers, initContainers=init, resources=whole))

    if api.version >= "1.37" and whole and "limits" not in whole:
        expected = {"requests": {"cpu": "1500m", "memory": "3Gi"}}  # requests alone are completed, too
    assert answer.status == 201
    assert answer.body["spec"].get("resources", {}) == expected
    assert (await api.merge(f"{api.pods}/a", {"spec": {"resources": whole}})).status == 200


async def test_limits_as_a_whole_are_requests_where_containers_have_none(api: Api) -> None:
    """Limits of containers on huge pages are limits of the pod, unless the pod has its own request."""
    huge = {"hugepages-2Mi": "4Mi", "memory": "1Gi"}
    containers = [{"name": "c", "image": "x", "resources": {"requests": huge, "limits": huge}}]
    limited = (await api.pod("a", containers=containers, resources={"limits": {"cpu": "2"}})).body
    resources = limited["spec"]["resources"]
    bare = (await api.pod("b", resources={"limits": {"cpu": "2", "memory": "1Gi"}})).body

    of_containers = {"memory": "1Gi"} if api.version >= "1.37" else {}
    assert resources == {
        "limits": {"cpu": "2", "hugepages-2Mi": "4Mi", **of_containers},
        "requests": {"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "4Mi"},
    }
    assert bare["spec"]["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}
    assert bare["status"]["qosClass"] == "Guaranteed"


async def test_a_gated_pod_says_so_in_its_condition(api: Api) -> None:
    created = await api.pod("a", schedulingGates=[{"name": "g"}])
    (condition,) = created.body["status"]["conditions"]
    assert condition == {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": created.stamped(condition["lastTransitionTime"]),
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


async def test_tolerations_for_unready_nodes_are_added_only_where_missing(api: Api) -> None:
    own = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]
    tolerations = (await api.pod("a", tolerations=own)).body["spec"]["tolerations"]
    assert [t.get("key") for t in tolerations] == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    everything = [{"operator": "Exists"}]
    assert (await api.pod("b", tolerations=everything)).body["spec"]["tolerations"] == everything


async def test_a_pods_status_is_not_taken_on_creation(api: Api) -> None:
    body = pod("a") | {"metadata": {"generateName": "gen-"}, "status": {"phase": "Running"}}
    created = (await api("POST", api.pods, body)).body
    assert created["status"]["phase"] == "Pending"
    assert created["metadata"]["generateName"] == "gen-"
    assert len(created["metadata"]["name"]) == len("gen-12345")


async def test_a_nodes_status_is_taken_on_creation(api: Api) -> None:
    """Without allocatable, the capacity stands for it."""
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
    bare = {"metadata": {"name": f"m-{api.ns}"}, "status": {"capacity": {"cpu": "2"}}}
    other = await api("POST", "/api/v1/nodes", bare)
    assert other.body["status"]["allocatable"] == {"cpu": "2"}


async def test_priority_comes_from_the_class(api: Api) -> None:
    """A number in the spec must equal the number of the class."""
    name = f"pc-{api.ns}"
    body = {"metadata": {"name": name}, "value": 1000, "preemptionPolicy": "Never"}
    answer = await api("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    assert answer.status == 201
    await api.until_known(name, priorityClassName=name)
    spec = (await api.pod("a", priorityClassName=name, priority=1000)).body["spec"]
    assert (spec["priority"], spec["preemptionPolicy"], spec["priorityClassName"]) == (1000, "Never", name)
    details = {"name": "b", "kind": "pods"}
    unknown = "no PriorityClass with name nope was found"
    given = (
        "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 "
        "from the given PriorityClass name"
    )
    for spec, why in (({"priorityClassName": "nope"}, unknown), ({"priority": 5}, given)):
        refused = await api("POST", api.pods, pod("b", **spec))
        refusal(refused, 403, "Forbidden", f'pods "b" is forbidden: {why}', details)
    system = (await api.pod("c", priorityClassName="system-node-critical")).body["spec"]
    assert system["priority"] == 2_000_001_000


async def test_what_cannot_be_created_is_refused_in_the_servers_words(api: Api) -> None:
    await api.pod("a")
    named = {"name": "a", "kind": "pods"}
    refusal(await api("POST", api.pods, pod("a")), 409, "AlreadyExists", 'pods "a" already exists', named)
    missing(await api("POST", "/api/v1/namespaces/nope/pods", pod("a")), "namespaces", "nope")
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
    answer = await api(method, path, {} if method != "GET" else None)
    reason, message = {
        404: ("NotFound", "the server could not find the requested resource"),
        405: ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
    }[status]
    refusal(answer, status, reason, message, {})


async def test_groups_that_are_not_there_are_not_even_an_api(api: Api) -> None:
    for path in ("/nope", "/apis/foo.example/v1", "/apis/foo.example/v1/bars"):
        answer = await api("GET", path)
        if api.version >= "1.38":
            refusal(answer, 404, "NotFound", "404 page not found")
        else:
            assert (answer.status, answer.body) == (404, "404 page not found\n")


async def test_what_is_not_there(api: Api) -> None:
    for method in ("GET", "DELETE"):
        missing(await api(method, f"{api.pods}/a"), "pods", "a")
    missing(await api.merge(f"{api.pods}/a", {}), "pods", "a")
    claim = await api("GET", f"{api.at('resource.k8s.io/v1', 'resourceclaims')}/a")
    missing(claim, "resourceclaims", "a", "resource.k8s.io")
