"""Watches: where they start, what selectors turn writes into, bookmarks, initial events, and how they end."""

from typing import Any

import pytest

from tests.contract.conftest import Api
from tests.contract.words import WATCH_LIST

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
        assert await events.take(5) == [
            ("DELETED", "p1"),
            ("ADDED", "p0"),
            ("MODIFIED", "p3"),
            ("MODIFIED", "p3"),
            ("DELETED", "p3"),
        ]
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
    if resource == "csinodes" and api.version == "1.37":
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
