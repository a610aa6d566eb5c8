"""What tests and actors use in-process, and what can be switched: streams, faults, served versions, restarts.

tests/contract compares the rest with a real server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from typing import Any

import aiohttp
import pytest

from simulator.apiserver import LIKE_1_32, LIKE_1_36, ApiServer, Fault, Faults, Refused, Request, WatchFault
from simulator.apiserver.faults import End
from simulator.apiserver.reads import Stream
from simulator.apiserver.resources import Served
from simulator.apiserver.storage import Storage
from simulator.builders.core import pod
from tests.support.clock import VirtualClock
from tests.support.connections import SettledConnector
from tests.unit.server.test_listening import secured


def test_objects_are_handed_out_as_copies() -> None:
    server = ApiServer()
    manifest = pod("a").label("x", "y").obj()
    created = server.create("Pod", manifest)
    created["metadata"]["labels"]["x"] = "z"
    manifest["metadata"]["labels"]["x"] = "z"
    assert server.get("pods", "a")["metadata"]["labels"] == {"x": "y"}
    assert [p["metadata"]["name"] for p in server.list("pods", label_selector="x=y")] == ["a"]


def test_time_and_chance_come_from_outside() -> None:
    server = ApiServer(clock=VirtualClock(wall=0))
    assert server.create("pods", pod("a").obj())["metadata"]["creationTimestamp"] == "1970-01-01T00:00:00Z"


def test_subscribers_get_every_write_in_order_also_writes_of_subscribers() -> None:
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
    server = ApiServer()
    manifest = pod("a", "elsewhere").uid("old").resource_version("7").phase("Running").bound_to("n").obj()
    applied = server.apply(manifest)
    assert (applied["status"]["phase"], applied["spec"]["nodeName"]) == ("Running", "n")
    assert applied["metadata"]["uid"] != "old"


# -- streams without a socket ---------------------------------------------------------------------------------------------


PODS = Served(LIKE_1_36).named("pods")


def manifest(name: str) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "default"}}


def test_many_writes_are_one_chunk() -> None:
    storage = Storage(history=10)
    stream = Stream(PODS, "", None)
    storage.bucket(PODS).watchers.add(stream)
    for name in "abc":
        storage.put(PODS, f"default/{name}", manifest(name))
    assert stream.ready.is_set()
    lines = [json.loads(line) for line in stream.take().splitlines()]
    assert [line["object"]["metadata"]["name"] for line in lines] == ["a", "b", "c"]
    assert (stream.take(), stream.ready.is_set()) == (b"", False)


def test_history_is_limited() -> None:
    storage = Storage(history=2)
    for name in "abc":
        storage.put(PODS, f"default/{name}", manifest(name))
    bucket = storage.bucket(PODS)
    assert [event.rv for event in bucket.since(1, storage.rv)] == [2, 3]
    with pytest.raises(Refused, match=r"^too old resource version: 0 \(3\)$"):
        bucket.since(0, storage.rv)
    assert bucket.at(0) is None


async def test_bookmarks_come_in_their_interval_and_the_end_at_its_time() -> None:
    clock = VirtualClock()
    async with ApiServer(clock=clock, bookmark_interval_s=10) as server, aiohttp.ClientSession(server.url) as http:
        params = {"watch": "1", "resourceVersion": server.resource_version, "allowWatchBookmarks": "true"}
        async with http.get("/api/v1/pods", params={**params, "timeoutSeconds": "25"}) as response:
            server.create("nodes", {"metadata": {"name": "n"}})
            await clock.advance(10)
            bookmark = json.loads(await asyncio.wait_for(response.content.readline(), 30))
            assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "Pod")
            assert bookmark["object"]["metadata"]["resourceVersion"] == server.resource_version
            await clock.advance(15)
            rest = await asyncio.wait_for(response.content.read(), 30)
            assert len(rest.splitlines()) == 1


async def test_a_client_that_leaves_leaves_nothing_behind() -> None:
    async with ApiServer() as server:
        async with (
            aiohttp.ClientSession(server.url) as http,
            http.get("/api/v1/pods", params={"watch": "1"}) as response,
        ):
            assert response.status == 200
            assert len(server._handler.streams) == 1
        while server._handler.streams:
            await asyncio.sleep(0.001)
        server.create("pods", pod("a").obj())


async def test_watches_that_are_held_deliver_all_events_later() -> None:
    """A watch that is opened in between is held, too. Other kinds are not."""
    async with ApiServer() as server, aiohttp.ClientSession(server.url) as http:
        params = {"watch": "1", "resourceVersion": server.resource_version}
        async with http.get("/api/v1/pods", params=params) as before, http.get("/api/v1/nodes", params=params) as nodes:
            server.hold_watches("pods")
            for name in "ab":
                server.create("pods", pod(name).obj())
            server.create("nodes", {"metadata": {"name": "n"}})
            async with http.get("/api/v1/pods", params=params) as meanwhile:
                assert json.loads(await asyncio.wait_for(nodes.content.readline(), 30))["type"] == "ADDED"
                assert [reader.content.total_bytes for reader in (before, meanwhile)] == [0, 0]
                server.release_watches()
                for reader in (before, meanwhile):
                    lines = [json.loads(await asyncio.wait_for(reader.content.readline(), 30)) for _ in "ab"]
                    assert [line["object"]["metadata"]["name"] for line in lines] == ["a", "b"]


@pytest.mark.parametrize("git_version", ["v1.36.3", "v1.37.2", "v1.38.0-beta.0", "v1.40.1"])
async def test_a_server_states_its_version_and_from_1_38_on_that_of_a_bound_pod(git_version: str) -> None:
    async with ApiServer() as server, aiohttp.ClientSession() as session:
        server.upgrade(git_version)
        server.create("pods", pod("a").obj())
        binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}
        async with session.get(f"{server.url}/version") as response:
            version = await response.json()
        async with session.post(f"{server.url}/api/v1/namespaces/default/pods/a/binding", json=binding) as response:
            answer = await response.json()
        stored = server.get("pods", "a", "default")["metadata"]["resourceVersion"]

    is_new = git_version >= "v1.38"
    assert (version["gitVersion"], version["minor"]) == (git_version, git_version[3:5])
    assert (answer["status"], answer["metadata"]) == ("Success", {"resourceVersion": stored} if is_new else {})


# -- faults ---------------------------------------------------------------------------------------------------------------


BINDING = Request("create", "pods", "default", "a", "binding")
EXACT = Fault(verb="create", resource="pods", subresource="binding", status=500)


@pytest.mark.parametrize(
    ("fault", "strikes"),
    [
        pytest.param(Fault(status=500), True, id="an empty rule strikes everything"),
        pytest.param(EXACT, True, id="all fields fit"),
        pytest.param(Fault(subresource="", status=500), False, id="the object itself, not its subresources"),
        pytest.param(Fault(name="b", status=500), False, id="another name"),
        pytest.param(Fault(verb="patch", status=500), False, id="another verb"),
        pytest.param(Fault(probability=0, status=500), False, id="never by chance"),
    ],
)
def test_rules(fault: Fault, strikes: bool) -> None:
    faults = Faults(random.Random(1))
    faults.add(fault)
    assert (faults.strike(BINDING) is fault) is strikes
    assert fault.hits == int(strikes)


def test_a_rule_strikes_a_limited_number_of_times() -> None:
    faults = Faults(random.Random(1))
    first, second = faults.add(Fault(status=500, times=2)), faults.add(Fault(status=409))
    assert [faults.strike(BINDING) for _ in range(4)] == [first, first, second, None]
    assert (first.hits, second.hits) == (2, 1)


@pytest.mark.parametrize(
    ("status", "reason"),
    [(409, "Conflict"), (429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable")],
)
async def test_a_status_is_answered_before_anything_happens(status: int, reason: str) -> None:
    async with ApiServer() as server, aiohttp.ClientSession(server.url) as http:
        server.faults.add(Fault(verb="create", status=status, retry_after_s=7))
        async with http.post("/api/v1/namespaces/default/pods", json=pod("a").obj()) as response:
            body = await response.json()
        assert (response.status, body["reason"], body["code"]) == (status, reason, status)
        assert response.headers.get("Retry-After") == ("7" if status == 429 else None)
        assert server.objects("pods") == []


@pytest.mark.parametrize(("reset", "pods"), [("before", 0), ("after", 1)])
async def test_a_lost_connection_may_or_may_not_have_written(reset: str, pods: int) -> None:
    async with ApiServer() as server, aiohttp.ClientSession(server.url) as http:
        server.faults.add(Fault(verb="create", reset="before" if reset == "before" else "after"))
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.post("/api/v1/namespaces/default/pods", json=pod("a").obj())
        assert len(server.objects("pods")) == pods
        assert server.requests() == {"create pods 0": 1}
        async with http.get("/api/v1/pods") as response:
            assert response.status == 200


@pytest.mark.parametrize(
    ("end", "last"),
    [
        pytest.param("end", "", id="the response ends"),
        pytest.param("gone", "ERROR", id="an ERROR with 410"),
        pytest.param("reset", "reset", id="a reset"),
    ],
)
async def test_watches_that_live_for_seconds(end: End, last: str) -> None:
    """Queued events are lost."""
    clock = VirtualClock()
    async with ApiServer(clock=clock) as server, aiohttp.ClientSession(server.url) as http:
        server.faults.add(Fault(verb="watch", watch=WatchFault((2.0, 3.0), (end,), late=1.0, late_s=(9.0, 9.0))))
        server.create("pods", pod("a").obj())
        async with http.get("/api/v1/pods?watch=true") as response:
            await clock.advance(1.9)
            assert not response.content.is_eof()
            await clock.advance(1.2)
            try:
                said = (await response.content.read()).decode()
            except aiohttp.ClientError:
                said = "reset"
    assert (json.loads(said)["type"] if said.startswith("{") else said) == last


async def test_a_restored_server_assigns_versions_again() -> None:
    server = ApiServer()
    server.create("pods", pod("a").obj())
    backup = server.backup()
    written = server.create("pods", pod("b").obj())["metadata"]["resourceVersion"]
    server.delete("pods", "a", grace_s=0)
    server.restore(backup)
    assert [each["metadata"]["name"] for each in server.list("pods")] == ["a"]
    assert server.create("pods", pod("c").obj())["metadata"]["resourceVersion"] == written


# -- versions of devices --------------------------------------------------------------------------------------------------


ROOT = "/apis/resource.k8s.io"
DEVICE: dict[str, Any] = {"name": "d", "attributes": {"a": {"int": 1}}}
SLICE: dict[str, Any] = {
    "metadata": {"name": "s"},
    "spec": {"driver": "d.x", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n", "devices": [DEVICE]},
}


async def test_in_process_manifests_are_v1_for_every_served_version() -> None:
    async with ApiServer(served=LIKE_1_32) as server, aiohttp.ClientSession(server.url) as http:
        stored = server.create("ResourceSlice", SLICE)
        assert (stored["apiVersion"], stored["spec"]["devices"]) == ("resource.k8s.io/v1", [DEVICE])
        async with http.get(f"{ROOT}/v1beta1/resourceslices/s") as response:
            shown = (await response.json())["spec"]["devices"]
        assert shown == [{"name": "d", "basic": {"attributes": {"a": {"int": 1}}}}]
        server.patch("resourceslices", "s", {"spec": {"pool": {"generation": 1}}})
        assert server.get("resourceslices", "s")["spec"]["devices"] == [DEVICE]
        server.serve(LIKE_1_36)
        async with http.get(f"{ROOT}/v1/resourceslices/s") as response:
            assert (await response.json())["spec"]["devices"] == [DEVICE]


def test_a_v1beta1_manifest_is_converted() -> None:
    server = ApiServer()
    head = {"apiVersion": "resource.k8s.io/v1beta1", "metadata": {"name": "a"}}
    basic = [{"name": "d", "basic": {"attributes": {"a": {"int": 1}}}}]
    server.apply(head | {"kind": "ResourceSlice", "spec": SLICE["spec"] | {"devices": basic}})
    result = {"request": "a", "driver": "d.x", "pool": "p", "device": "d"}
    status = {"allocation": {"devices": {"results": [result]}}}
    spec = {"devices": {"requests": [{"name": "a", "deviceClassName": "x", "allocationMode": "All"}]}}
    claim = server.apply(head | {"kind": "ResourceClaim", "spec": spec, "status": status})
    (slice_,) = server.list("resourceslices")
    assert slice_["spec"]["devices"] == [DEVICE]
    nested = {"name": "a", "exactly": {"deviceClassName": "x", "allocationMode": "All"}}
    assert (claim["spec"], claim["status"]) == ({"devices": {"requests": [nested]}}, status)


def with_attribute(**attribute: Any) -> dict[str, Any]:
    return SLICE | {"spec": SLICE["spec"] | {"devices": [{"name": "d", "attributes": {"a": attribute}}]}}


def test_lists_are_kept_as_attributes() -> None:
    server = ApiServer()
    stored = server.create("ResourceSlice", with_attribute(versions=["1.2.3"]))
    assert stored["spec"]["devices"][0]["attributes"] == {"a": {"versions": ["1.2.3"]}}


@pytest.mark.parametrize(
    ("attribute", "why"),
    [
        pytest.param({"ints": []}, "must not be empty if specified", id="empty"),
        pytest.param({"ints": [1], "int": 1}, "exactly one value must be specified", id="a list and one"),
        pytest.param({"versions": ["1.2"]}, "must be a string compatible with semver.org spec 2.0.0", id="no version"),
        pytest.param({"strings": ["s" * 65]}, "may not be more than 64 bytes", id="long"),
        pytest.param({"ints": [1] * 49}, "the total number of attribute values must not exceed 48", id="too many"),
    ],
)
def test_lists_that_cannot_be_attributes(attribute: dict[str, Any], why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        ApiServer().create("ResourceSlice", with_attribute(**attribute))

    assert refused.value.code == 422


def test_a_slice_with_lists_has_half_as_many_devices() -> None:
    spec: dict[str, Any] = SLICE["spec"] | {
        "devices": [{"name": f"d{i}", "attributes": {"a": {"ints": [i]}}} for i in range(65)]
    }
    with pytest.raises(Refused, match="must have at most 64 items"):
        ApiServer().create("ResourceSlice", SLICE | {"spec": spec})


async def test_a_session_that_is_closed_has_no_open_socket() -> None:
    """Also when each connection was given up before, and the peer says nothing to our goodbye."""
    ours, theirs = secured()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=ours.front)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    connector = SettledConnector(force_close=True)
    async with server, aiohttp.ClientSession(connector=connector) as http:
        async with http.get(url, ssl=theirs, server_hostname="localhost") as answer:
            assert await answer.text() == "ok"

        assert [one.fileno() >= 0 for one in connector.opened] == [True]
    assert [one.fileno() >= 0 for one in connector.opened] == [False]
