"""Discovery and lists: selectors, pages of one moment, resourceVersion semantics."""

from urllib.parse import quote

import pytest

from tests.contract.conftest import Api, denies

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
