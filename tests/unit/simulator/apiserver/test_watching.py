"""Streams without a socket: bookmarks on the clock, batches, history limits."""

import asyncio
import json

import aiohttp
import pytest

from simulator.apiserver import ApiServer, Refused
from simulator.apiserver.reads import Stream
from simulator.apiserver.resources import LIKE_1_36, Served
from simulator.apiserver.storage import Storage
from simulator.builders.core import pod
from tests.support.clock import VirtualClock

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
