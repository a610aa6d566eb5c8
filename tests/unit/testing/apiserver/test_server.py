"""What tests and actors use in-process, and what can be switched: served versions, rights, old behaviour, restarts."""

from typing import Any

import aiohttp
import pytest

from scheduler.testing.apiserver import LIKE_1_36, ApiServer, Refused
from scheduler.testing.builders import node, pod
from tests.support.clock import VirtualClock

WATCH_LIST = {"watch": "1", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


def test_objects_are_handed_out_as_copies() -> None:
    """Whoever changes what they got changes nothing on the server."""
    server = ApiServer()
    manifest = pod("a").label("x", "y").obj()
    created = server.create("Pod", manifest)
    created["metadata"]["labels"]["x"] = "z"
    manifest["metadata"]["labels"]["x"] = "z"
    assert server.get("pods", "a")["metadata"]["labels"] == {"x": "y"}
    assert [p["metadata"]["name"] for p in server.list("pods", label_selector="x=y")] == ["a"]


def test_time_and_chance_come_from_outside() -> None:
    """The virtual clock dates objects."""
    server = ApiServer(clock=VirtualClock(wall=0))
    assert server.create("pods", pod("a").obj())["metadata"]["creationTimestamp"] == "1970-01-01T00:00:00Z"


def test_subscribers_hear_every_write_in_order_even_of_those_who_write() -> None:
    """What the first one writes reaches the second after what caused it."""
    server = ApiServer()
    heard: list[tuple[str, str, str]] = []

    def bind(type_: str, resource: str, obj: dict[str, Any]) -> None:
        if type_ == "ADDED" and resource == "pods":
            server.bind(obj["metadata"]["name"], "n")

    server.subscribe(bind)
    stop = server.subscribe(lambda t, r, o: heard.append((t, r, o["spec"].get("nodeName", ""))))
    server.create("pods", pod("a").obj())
    assert heard == [("ADDED", "pods", ""), ("MODIFIED", "pods", "n")]
    stop()
    server.create("pods", pod("b").obj())
    assert len(heard) == 2


def test_a_dump_is_applied_with_its_status_and_namespace() -> None:
    """What `kubectl get -o yaml` wrote can be loaded, names and fields of the old server aside."""
    server = ApiServer()
    manifest = pod("a", "elsewhere").uid("old").resource_version("7").phase("Running").bound_to("n").obj()
    applied = server.apply(manifest)
    assert (applied["status"]["phase"], applied["spec"]["nodeName"]) == ("Running", "n")
    assert applied["metadata"]["uid"] != "old"


def test_updates_and_deletions_in_process() -> None:
    """As over HTTP, with the same refusals."""
    server = ApiServer()
    server.create("nodes", node("n").obj())
    stale = server.get("nodes", "n")
    assert server.patch("nodes", "n", {"spec": {"unschedulable": True}})["spec"] == {"unschedulable": True}
    with pytest.raises(Refused) as refused:
        server.update("nodes", stale)
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    server.delete("nodes", "n")
    with pytest.raises(Refused) as refused:
        server.get("nodes", "n")
    assert refused.value.code == 404


async def test_an_old_server_serves_less() -> None:
    """A group that is not served is not in discovery and answers plain 404; an old version has its own name."""
    kept = [gv for gv in LIKE_1_36 if not gv.startswith(("resource.k8s.io", "storage.k8s.io"))]
    async with ApiServer(served=[*kept, "storage.k8s.io/v1beta1"]) as server, aiohttp.ClientSession(server.url) as http:
        async with http.get("/apis/resource.k8s.io/v1/resourceclaims") as response:
            assert (response.status, await response.text()) == (404, "404 page not found\n")
        async with http.get("/apis") as response:
            groups = {g["name"]: g["preferredVersion"]["version"] for g in (await response.json())["groups"]}
        assert (groups["storage.k8s.io"], "resource.k8s.io" in groups) == ("v1beta1", False)
        capacity = {"metadata": {"name": "c", "namespace": "default"}, "storageClassName": "s"}
        server.create("CSIStorageCapacity", capacity)
        async with http.get("/apis/storage.k8s.io/v1beta1/csistoragecapacities") as response:
            listed = await response.json()
        assert (listed["apiVersion"], len(listed["items"])) == ("storage.k8s.io/v1beta1", 1)


async def test_rights_can_be_taken_away() -> None:
    """A forbidden pair is answered 403 and denied in a review."""
    review = {"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    async with ApiServer() as server, aiohttp.ClientSession(server.url) as http:
        server.forbidden.add(("list", "pods"))
        async with http.get("/api/v1/pods") as response:
            assert (response.status, (await response.json())["reason"]) == (403, "Forbidden")
        async with http.post(path, json=review) as response:
            assert (await response.json())["status"] == {"allowed": False}
        server.forbidden.clear()
        async with http.get("/api/v1/pods") as response:
            assert response.status == 200


async def test_a_server_without_watch_lists_says_422() -> None:
    """As one whose feature gate is off."""
    async with ApiServer(watch_list=False) as server, aiohttp.ClientSession(server.url) as http:
        async with http.get("/api/v1/pods", params=WATCH_LIST) as response:
            assert response.status == 422
            assert "unless the WatchList feature gate is enabled" in (await response.json())["message"]
        server.watch_list = True
        async with http.get("/api/v1/pods", params=WATCH_LIST) as response:
            assert response.status == 200


async def test_objects_outlive_a_restart() -> None:
    """Same objects, same counter, another connection."""
    server = ApiServer()
    url = await server.start()
    server.create("pods", pod("a").obj())
    version = server.resource_version
    await server.stop()
    await server.start(int(url.rpartition(":")[2]))
    async with aiohttp.ClientSession(url) as http, http.get("/api/v1/pods") as response:
        listed = await response.json()
    assert (listed["metadata"]["resourceVersion"], len(listed["items"])) == (version, 1)
    await server.stop()
    await server.stop()


async def test_the_log_counts_requests() -> None:
    """By verb, resource and answer."""
    async with ApiServer() as server, aiohttp.ClientSession(server.url) as http:
        for _ in range(2):
            async with http.get("/api/v1/namespaces/default/pods/a") as response:
                await response.read()
        async with http.get("/api/v1/nodes") as response:
            await response.read()
        assert server.requests() == {"get pods 404": 2, "list nodes 200": 1}
        assert [entry.request.name for entry in server.log] == ["a", "a", ""]
