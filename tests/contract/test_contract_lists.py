"""Discovery, lists and watches: selectors, pages of one moment, resourceVersion semantics, bookmarks."""

from typing import Any
from urllib.parse import quote

import pytest

from scheduler.kube.wire import METADATA_LIST
from tests.contract.conftest import Api, denies
from tests.contract.words import WATCH_LIST

KINDS = [
    ("v1", "pods", "Pod", True),
    ("v1", "nodes", "Node", False),
    ("v1", "namespaces", "Namespace", False),
    ("v1", "services", "Service", True),
    ("v1", "replicationcontrollers", "ReplicationController", True),
    ("v1", "persistentvolumes", "PersistentVolume", False),
    ("v1", "persistentvolumeclaims", "PersistentVolumeClaim", True),
    ("v1", "events", "Event", True),
    ("v1", "configmaps", "ConfigMap", True),
    ("apps/v1", "replicasets", "ReplicaSet", True),
    ("apps/v1", "statefulsets", "StatefulSet", True),
    ("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", True),
    ("storage.k8s.io/v1", "storageclasses", "StorageClass", False),
    ("storage.k8s.io/v1", "csinodes", "CSINode", False),
    ("storage.k8s.io/v1", "csidrivers", "CSIDriver", False),
    ("storage.k8s.io/v1", "csistoragecapacities", "CSIStorageCapacity", True),
    ("storage.k8s.io/v1", "volumeattachments", "VolumeAttachment", False),
    ("resource.k8s.io/v1", "resourceclaims", "ResourceClaim", True),
    ("resource.k8s.io/v1", "resourceslices", "ResourceSlice", False),
    ("resource.k8s.io/v1", "deviceclasses", "DeviceClass", False),
    ("resource.k8s.io/v1", "resourceclaimtemplates", "ResourceClaimTemplate", True),
    ("coordination.k8s.io/v1", "leases", "Lease", True),
    ("events.k8s.io/v1", "events", "Event", True),
    ("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", False),
]


@pytest.mark.parametrize(
    ("group_version", "resource", "kind", "namespaced"), KINDS, ids=[f"{gv} {name}" for gv, name, _, _ in KINDS]
)
async def test_discovery_and_empty_lists(
    api: Api, group_version: str, resource: str, kind: str, namespaced: bool
) -> None:
    root = f"/api/{group_version}" if "/" not in group_version else f"/apis/{group_version}"
    document = (await api("GET", root)).body
    assert (document["kind"], document["groupVersion"]) == ("APIResourceList", group_version)
    row = next(row for row in document["resources"] if row["name"] == resource)
    assert (row["kind"], row["namespaced"]) == (kind, namespaced)
    assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= set(row["verbs"])
    listed = await api("GET", f"{root}/{resource}")
    assert (listed.status, listed.body["kind"], listed.body["apiVersion"]) == (200, f"{kind}List", group_version)
    assert isinstance(listed.body["items"], list)
    assert listed.rv > 0


async def test_discovery_of_groups(api: Api) -> None:
    assert (await api("GET", "/api")).body["versions"] == ["v1"]
    groups = {g["name"]: g for g in (await api("GET", "/apis")).body["groups"]}
    assert groups["apps"]["preferredVersion"] == {"groupVersion": "apps/v1", "version": "v1"}
    assert {"resource.k8s.io", "storage.k8s.io", "policy", "events.k8s.io", "coordination.k8s.io"} <= groups.keys()
    group = (await api("GET", "/apis/storage.k8s.io")).body
    assert (group["kind"], group["name"]) == ("APIGroup", "storage.k8s.io")
    assert (await api("GET", "/apis/storage.k8s.io/v9")).status == 404
    subresources = {row["name"] for row in (await api("GET", "/api/v1")).body["resources"]}
    assert {"pods/status", "pods/binding", "nodes/status", "persistentvolumeclaims/status"} <= subresources


async def test_health_and_version(api: Api) -> None:
    for path in ("/readyz", "/livez"):
        answer = await api("GET", path)
        assert (answer.status, answer.body) == (200, "ok")
    version = (await api("GET", "/version")).body
    assert (version["major"], version["minor"]) == tuple(api.version.split("."))


async def test_access_reviews(api: Api) -> None:
    review = {"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}}
    answer = await api("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert (answer.status, answer.body["status"]["allowed"]) == (201, True)


async def five_pods(api: Api) -> None:
    for i in range(5):
        await api.pod(f"p{i}", labels={"i": str(i), "odd": str(i % 2)}, schedulerName="kubestow" if i else "other")


async def test_items_leave_out_kind_and_version(api: Api) -> None:
    await api.pod("a")
    (item,) = (await api("GET", api.pods)).body["items"]
    assert set(item) == {"metadata", "spec", "status"}


async def test_pages_show_one_moment(api: Api) -> None:
    await five_pods(api)
    first = await api("GET", f"{api.pods}?limit=2")
    assert (first.names, first.metadata["remainingItemCount"]) == (["p0", "p1"], 3)
    await api.pod("p21")
    await api("DELETE", f"{api.pods}/p2")
    await api.merge(f"{api.pods}/p3", {"metadata": {"labels": {"i": "x"}}})
    second = await api("GET", f"{api.pods}?limit=2&continue={first.metadata['continue']}")
    assert (second.names, second.rv, second.metadata["remainingItemCount"]) == (["p2", "p3"], first.rv, 1)
    assert second.body["items"][1]["metadata"]["labels"]["i"] == "3"
    third = await api("GET", f"{api.pods}?limit=2&continue={second.metadata['continue']}")
    assert (third.names, third.rv) == (["p4"], first.rv)
    assert third.metadata.keys() == {"resourceVersion"}
    now = await api("GET", api.pods)
    assert now.names == ["p0", "p1", "p21", "p3", "p4"]
    exact = await api("GET", f"{api.pods}?resourceVersion={first.rv}&resourceVersionMatch=Exact")
    assert (exact.names, exact.rv) == (["p0", "p1", "p2", "p3", "p4"], first.rv)


async def test_pages_of_a_selection_do_not_count_the_rest(api: Api) -> None:
    await five_pods(api)
    first = await api("GET", f"{api.pods}?limit=1&labelSelector=odd%3D1")
    assert (first.names, "remainingItemCount" in first.metadata) == (["p1"], False)
    second = await api("GET", f"{api.pods}?limit=1&labelSelector=odd%3D1&continue={first.metadata['continue']}")
    assert second.names == ["p3"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("odd=1", ["p1", "p3"]),
        ("odd==0", ["p0", "p2", "p4"]),
        ("odd!=1", ["p0", "p2", "p4"]),
        ("missing!=1", ["p0", "p1", "p2", "p3", "p4"]),
        ("i in (1, 2),odd", ["p1", "p2"]),
        ("i notin (1)", ["p0", "p2", "p3", "p4"]),
        ("missing notin (1)", ["p0", "p1", "p2", "p3", "p4"]),
        ("!odd", []),
        ("odd", ["p0", "p1", "p2", "p3", "p4"]),
        ("i>2", ["p3", "p4"]),
        ("i<1,odd=0", ["p0"]),
    ],
)
async def test_label_selectors(api: Api, selector: str, names: list[str]) -> None:
    await five_pods(api)
    assert (await api("GET", f"{api.pods}?labelSelector={quote(selector)}")).names == names


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=p1", ["p1"]),
        ("metadata.name==p1", ["p1"]),
        ("spec.nodeName=", ["p0", "p1", "p2", "p3"]),
        ("spec.nodeName!=", ["p4"]),
        ("spec.schedulerName=other", ["p0"]),
        ("status.phase!=Succeeded,status.phase!=Failed", ["p0", "p1", "p2", "p4"]),
        ("metadata.namespace!=default,spec.nodeName=n", ["p4"]),
        ("status.phase=Failed,spec.schedulerName=kubestow", ["p3"]),
        ("status.phase=Failed,spec.schedulerName=other", []),
        (r"spec.schedulerName!=a\,b\=c\\,spec.schedulerName=other", ["p0"]),
        (r"spec.schedulerName=other\,kubestow", []),
    ],
)
async def test_field_selectors(api: Api, selector: str, names: list[str]) -> None:
    await five_pods(api)
    await api.merge(f"{api.pods}/p3/status", {"status": {"phase": "Failed"}})
    await api("POST", f"{api.pods}/p4/binding", {"metadata": {"name": "p4"}, "target": {"name": "n"}})
    assert (await api("GET", f"{api.pods}?fieldSelector={quote(selector)}")).names == names


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        pytest.param("labelSelector=a%20b", 400, "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt", id="no operator"),
        pytest.param("fieldSelector=spec.foo%3D1", 400, "field label not supported: spec.foo", id="unknown field"),
        pytest.param("fieldSelector=metadata.name", 400, "invalid selector: 'metadata.name'; can't understand 'metadata.name'", id="no value"),
        pytest.param("fieldSelector=status.phase%3DFailed%2Cmetadata.name", 400, "invalid selector: 'status.phase=Failed,metadata.name'; can't understand 'metadata.name'", id="no value in the second term"),
        pytest.param("fieldSelector=metadata.name%3Da%3Db", 400, "invalid field selector: unescaped character in value: 61", id="a sign that is not escaped"),
        pytest.param("fieldSelector=metadata.name%3Da%5Cb", 400, "invalid field selector: invalid escape sequence: \\b", id="an escape of nothing"),
        pytest.param("fieldSelector=metadata.name%3Da%5C", 400, "invalid field selector: invalid escape sequence: \\", id="a lone backslash"),
        pytest.param("resourceVersionMatch=NotOlderThan", 422, 'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided', id="match without version"),
        pytest.param("resourceVersion=abc", 400, 'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax', id="no number"),
    ],
)  # fmt: skip
async def test_refused_lists(api: Api, query: str, status: int, message: str) -> None:
    answer = await api("GET", f"{api.pods}?{query}")
    denies(answer, status, message)


async def test_other_kinds_know_fewer_fields(api: Api) -> None:
    nodes = await api("GET", "/api/v1/nodes?fieldSelector=spec.nodeName%3Da")
    assert (nodes.status, nodes.body["message"]) == (400, "field label not supported: spec.nodeName")
    claims = await api("GET", "/api/v1/persistentvolumeclaims?fieldSelector=spec.nodeName%3Da")
    known = 'only "metadata.name", "metadata.namespace"'
    assert (claims.status, claims.body["message"]) == (400, f'"spec.nodeName" is not a known field selector: {known}')


async def test_versions_of_lists(api: Api) -> None:
    await five_pods(api)
    now = (await api("GET", api.pods)).rv
    for query in ("resourceVersion=0", f"resourceVersion={now}&resourceVersionMatch=NotOlderThan"):
        answer = await api("GET", f"{api.pods}?{query}")
        assert (len(answer.names), answer.rv >= now) == (5, True)
    future = await api("GET", f"{api.pods}?resourceVersion={now + 10_000}")
    assert (future.status, future.body["reason"]) == (504, "Timeout")
    token = (await api("GET", f"{api.pods}?limit=1")).metadata["continue"]
    both = await api("GET", f"{api.pods}?limit=1&continue={token}&resourceVersion={now}")
    denies(both, 400, "specifying resource version is not allowed when using continue")
    broken = await api("GET", f"{api.pods}?limit=1&continue=abc")
    assert (broken.status, broken.body["reason"]) == (400, "BadRequest")


async def test_compaction_ends_pages(api: Api) -> None:
    await five_pods(api)
    first = await api("GET", f"{api.pods}?limit=2")
    await api.pod("p9")
    await api.compact()
    late = await api("GET", f"{api.pods}?limit=2&continue={first.metadata['continue']}")
    assert (late.status, late.body["reason"], late.body["code"]) == (410, "Expired", 410)
    assert late.body["message"].startswith("The provided continue parameter is too old to display a consistent list")
    rest = await api("GET", f"{api.pods}?continue={late.metadata['continue']}")
    assert (rest.status, rest.names) == (200, ["p2", "p3", "p4", "p9"])
    exact = await api("GET", f"{api.pods}?resourceVersion={first.rv}&resourceVersionMatch=Exact")
    assert (exact.status, exact.body["reason"]) == (410, "Expired")


# -- watches: where they start, what selectors turn writes into, bookmarks, initial events, and how they end -----------


ZEROS: list[tuple[str, str, dict[str, Any]]] = [
    ("v1", "nodes", {"spec": {}, "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}, "nodeInfo": dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture"), "")}}),
    ("v1", "namespaces", {"spec": {}, "status": {}}),
    ("v1", "services", {"spec": {}, "status": {"loadBalancer": {}}}),
    ("v1", "replicationcontrollers", {"spec": {}, "status": {"replicas": 0}}),
    ("v1", "persistentvolumes", {"spec": {}, "status": {}}),
    ("v1", "persistentvolumeclaims", {"spec": {"resources": {}}, "status": {}}),
    ("v1", "events", {"involvedObject": {}, "source": {}, "firstTimestamp": None, "lastTimestamp": None, "eventTime": None, "reportingComponent": "", "reportingInstance": ""}),
    ("apps/v1", "replicasets", {"spec": {"replicas": 0, "selector": None, "template": {"metadata": {}, "spec": {"containers": None}}}, "status": {"replicas": 0}}),
    ("apps/v1", "statefulsets", {"spec": {"replicas": 0, "selector": None, "template": {"metadata": {}, "spec": {"containers": None}}, "serviceName": "", "updateStrategy": {}}, "status": {"replicas": 0, "availableReplicas": 0}}),
    ("policy/v1", "poddisruptionbudgets", {"spec": {}, "status": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}}),
    ("storage.k8s.io/v1", "storageclasses", {"provisioner": ""}),
    ("storage.k8s.io/v1", "csinodes", {"spec": {"drivers": None}}),
    ("storage.k8s.io/v1", "csidrivers", {"spec": {}}),
    ("storage.k8s.io/v1", "csistoragecapacities", {"storageClassName": ""}),
    ("storage.k8s.io/v1", "volumeattachments", {"spec": {"attacher": "", "source": {}, "nodeName": ""}, "status": {"attached": False}}),
    ("resource.k8s.io/v1", "resourceclaims", {"spec": {"devices": {"requests": None}}, "status": {}}),
    ("resource.k8s.io/v1", "resourceslices", {"spec": {"driver": "", "pool": {"name": "", "generation": 0, "resourceSliceCount": 0}}}),
    ("resource.k8s.io/v1", "deviceclasses", {"spec": {}}),
    ("resource.k8s.io/v1", "resourceclaimtemplates", {"spec": {"metadata": {}, "spec": {"devices": {"requests": None}}}}),
    ("coordination.k8s.io/v1", "leases", {"spec": {}}),
    ("events.k8s.io/v1", "events", {"eventTime": None, "regarding": {}, "deprecatedSource": {}, "deprecatedFirstTimestamp": None, "deprecatedLastTimestamp": None}),
    ("scheduling.k8s.io/v1", "priorityclasses", {"value": 0}),
]  # fmt: skip


async def test_a_watch_resumes_after_its_version(api: Api) -> None:
    rv = (await api("GET", api.pods)).rv
    await api.pod("a")
    await api.merge(f"{api.pods}/a", {"metadata": {"labels": {"x": "y"}}})
    await api("POST", f"{api.pods}/a/binding", {"metadata": {"name": "a"}, "target": {"name": "n"}})
    await api("DELETE", f"{api.pods}/a?gracePeriodSeconds=0")
    async with api.watch(api.pods, resourceVersion=str(rv)) as events:
        assert await events.take(5) == [("ADDED", "a"), *[("MODIFIED", "a")] * 3, ("DELETED", "a")]
        created, labelled, bound, marked, gone = (event["object"] for event in events.seen)
    assert (created["kind"], created["apiVersion"]) == ("Pod", "v1")
    assert labelled["metadata"]["labels"] == {"x": "y"}
    assert bound["spec"]["nodeName"] == "n"
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events.seen]
    assert versions == sorted(set(versions))
    drop = ("resourceVersion", "managedFields")
    same = [{k: v for k, v in o["metadata"].items() if k not in drop} for o in (marked, gone)]
    assert same[0] == same[1]


async def test_a_watch_goes_on(api: Api) -> None:
    async with api.watch(api.pods, resourceVersion=str((await api("GET", api.pods)).rv)) as events:
        await api("POST", "/api/v1/namespaces/default/pods", {"metadata": {"generateName": "x-"}, "spec": {"containers": [{"name": "c", "image": "x"}]}})  # fmt: skip
        await api.pod("a")
        assert await events.take(1) == [("ADDED", "a")]
        await api.pod("b")
        assert await events.take(1) == [("ADDED", "b")]


async def test_a_watch_from_the_future_is_silent(api: Api) -> None:
    """The server may have been restored from a backup: no error, event or bookmark until its version is reached."""
    start = {"resourceVersion": str((await api("GET", api.pods)).rv + 10**6), "timeoutSeconds": "3"}
    async with api.watch(api.pods, allowWatchBookmarks="true", **start) as events:
        await api.pod("a")
        assert await events.end() == b""


@pytest.mark.parametrize("start", [{}, {"resourceVersion": "0"}], ids=["no version", "version 0"])
async def test_a_watch_from_nowhere_begins_with_what_is_there(api: Api, start: dict[str, str]) -> None:
    await api.pod("a")
    await api.pod("b")
    await api("GET", api.pods)
    async with api.watch(api.pods, **start) as events:
        assert sorted(await events.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        await api.pod("c")
        assert await events.take(1) == [("ADDED", "c")]


async def test_selectors_turn_changes_into_comings_and_goings(api: Api) -> None:
    for name, odd in (("p0", "0"), ("p1", "1"), ("p3", "1"), ("p4", "0")):
        await api.pod(name, labels={"odd": odd})
    rv = (await api("GET", api.pods)).rv
    left = await api.merge(f"{api.pods}/p1", {"metadata": {"labels": {"odd": "0"}}})
    await api.merge(f"{api.pods}/p0", {"metadata": {"labels": {"odd": "1"}}})
    await api.merge(f"{api.pods}/p3", {"metadata": {"labels": {"zz": "1"}}})
    await api("DELETE", f"{api.pods}/p3")
    await api("DELETE", f"{api.pods}/p4")
    async with api.watch(api.pods, resourceVersion=str(rv), labelSelector="odd=1") as events:
        assert await events.take(2) == [("DELETED", "p1"), ("ADDED", "p0")]
        assert await events.take(3) == [("MODIFIED", "p3"), ("MODIFIED", "p3"), ("DELETED", "p3")]
        gone = events.seen[0]["object"]["metadata"]
        assert (gone["labels"], gone["resourceVersion"]) == ({"odd": "1"}, str(left.rv))


async def test_a_pod_that_finishes_leaves_the_schedulers_watch(api: Api) -> None:
    await api.pod("a")
    selector = "status.phase!=Succeeded,status.phase!=Failed"
    async with api.watch(api.pods, fieldSelector=selector, **WATCH_LIST) as events:
        assert await events.take(2) == [("ADDED", "a"), ("BOOKMARK", "")]
        await api.merge(f"{api.pods}/a/status", {"status": {"phase": "Running"}})
        await api.merge(f"{api.pods}/a/status", {"status": {"phase": "Failed"}})
        await api("DELETE", f"{api.pods}/a")
        await api.pod("b")
        assert await events.take(3) == [("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]
        assert events.seen[3]["object"]["status"]["phase"] == "Running"


async def test_failed_pods_enter_the_watch_that_is_about_them(api: Api) -> None:
    selector = "status.phase=Failed,spec.schedulerName=kubestow"
    for name in ("old", "ours", "theirs"):
        await api.pod(name, schedulerName="other" if name == "theirs" else "kubestow")
    await api.merge(f"{api.pods}/old/status", {"status": {"phase": "Failed", "reason": "OutOfpods"}})
    async with api.watch(api.pods, fieldSelector=selector, **WATCH_LIST) as events:
        assert await events.take(2) == [("ADDED", "old"), ("BOOKMARK", "")]
        for name in ("theirs", "ours"):
            await api("POST", f"{api.pods}/{name}/binding", {"metadata": {"name": name}, "target": {"name": "n"}})
            await api.merge(f"{api.pods}/{name}/status", {"status": {"phase": "Failed", "reason": "OutOfcpu"}})
        await api.merge(f"{api.pods}/ours", {"metadata": {"labels": {"a": "b"}}})
        assert await events.take(2) == [("ADDED", "ours"), ("MODIFIED", "ours")]
        shown = events.seen[2]["object"]
        assert (shown["spec"]["nodeName"], shown["status"]["reason"]) == ("n", "OutOfcpu")


async def test_initial_events_end_with_a_bookmark(api: Api) -> None:
    await api.pod("a", labels={"x": "y"})
    await api.pod("b")
    rv = (await api("GET", api.pods)).rv
    async with api.watch(api.pods, labelSelector="x=y", **WATCH_LIST) as events:
        assert await events.take(2) == [("ADDED", "a"), ("BOOKMARK", "")]
        bookmark = events.seen[1]["object"]
        assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(bookmark["metadata"]["resourceVersion"]) >= rv
        zero = {"kind": "Pod", "apiVersion": "v1", "spec": {"containers": None}, "status": {}}
        assert bookmark == zero | {"metadata": bookmark["metadata"]}
        await api.pod("c", labels={"x": "y"})
        assert await events.take(1) == [("ADDED", "c")]


@pytest.mark.parametrize(
    ("group_version", "resource", "zero"), ZEROS, ids=[f"{gv} {resource}" for gv, resource, _ in ZEROS]
)
async def test_a_bookmark_is_an_empty_object_of_its_kind(
    api: Api, group_version: str, resource: str, zero: dict[str, Any]
) -> None:
    root = f"/api/{group_version}" if "/" not in group_version else f"/apis/{group_version}"
    async with api.watch(f"{root}/{resource}", labelSelector="no=such", **WATCH_LIST) as events:
        assert await events.take(1) == [("BOOKMARK", "")]
    bookmark = events.seen[0]["object"]
    assert bookmark["metadata"].keys() == {"resourceVersion", "annotations"}
    rest = {key: value for key, value in bookmark.items() if key not in {"kind", "apiVersion", "metadata"}}
    if resource == "csinodes" and api.version >= "1.37":
        zero = zero | {"status": {}}
    assert rest == zero


async def test_a_watch_ends_at_its_time(api: Api) -> None:
    rv = (await api("GET", api.pods)).rv
    async with api.watch(api.pods, resourceVersion=str(rv), timeoutSeconds="1") as events:
        assert await events.end() == b""


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        pytest.param({"sendInitialEvents": "true"}, 422, "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan", id="initial events without match"),
        pytest.param({"resourceVersionMatch": "NotOlderThan", "resourceVersion": "5"}, 422, "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided", id="match without initial events"),
        pytest.param({"resourceVersion": "abc"}, 500, 'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax', id="no number"),
        pytest.param({"fieldSelector": "a.b=1"}, 400, "field label not supported: a.b", id="unknown field"),
    ],
)  # fmt: skip
async def test_refused_watches(api: Api, query: dict[str, str], status: int, message: str) -> None:
    async with api.http.get(api.pods, params={"watch": "true", **query}) as response:
        body = await response.json()
    assert response.status == status
    assert body["message"].removeprefix('ListOptions.meta.k8s.io "" is invalid: ') == message


async def test_a_version_that_is_forgotten_ends_the_watch(api: Api) -> None:
    rv = (await api.pod("a")).rv
    await api.pod("b")
    await api.compact()
    await api("GET", f"{api.pods}?resourceVersion=0")
    async with api.watch(api.pods, resourceVersion=str(rv)) as events:
        error = await events.next()
        assert error["type"] == "ERROR"
        status = error["object"]
        assert status["message"].startswith(f"too old resource version: {rv} (")
        assert (status["kind"], status["status"]) == ("Status", "Failure")
        assert (status["reason"], status["code"]) == ("Expired", 410)
        assert await events.end() == b""


async def test_a_list_of_metadata_has_the_versions_of_whole_objects_page_by_page(api: Api) -> None:
    """The self-audit compares it with the informers."""
    at = api.at("v1", "configmaps")
    for name in ("m-1", "m-2", "m-3"):
        body = {"metadata": {"name": name, "labels": {"outline": "yes"}}, "data": {"k": "v"}}
        assert (await api("POST", at, body)).status == 201
    whole = (await api("GET", f"{at}?labelSelector=outline%3Dyes")).body["items"]
    first = await api("GET", f"{at}?limit=2&labelSelector=outline%3Dyes", accept=METADATA_LIST)
    token = quote(first.metadata["continue"])
    second = await api("GET", f"{at}?limit=2&labelSelector=outline%3Dyes&continue={token}", accept=METADATA_LIST)

    kinds = {(page.body["kind"], page.body["apiVersion"]) for page in (first, second)}
    assert kinds == {("PartialObjectMetadataList", "meta.k8s.io/v1")}
    assert first.rv == second.rv
    items = first.body["items"] + second.body["items"]
    assert [item["metadata"] for item in items] == [item["metadata"] for item in whole]
    assert {item["kind"] for item in items} == {"PartialObjectMetadata"}
    assert not any("data" in item for item in items)
