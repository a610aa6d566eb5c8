"""Old servers, and servers that change under their clients: storage capacities under v1beta1, both, and v1."""

import asyncio
from typing import Any

import aiohttp
import pytest

from scheduler.testing.apiserver import LIKE_1_23, LIKE_1_25, LIKE_1_36, ApiServer
from tests.support.volumebuilders import a_capacity, a_class

CAPACITIES = "csistoragecapacities"
OLD = f"/apis/storage.k8s.io/v1beta1/{CAPACITIES}"
NEW = f"/apis/storage.k8s.io/v1/{CAPACITIES}"


async def listed(http: aiohttp.ClientSession, version: str) -> set[str]:
    """What discovery names under this version of storage.k8s.io; nothing if it is not served."""
    async with http.get(f"/apis/storage.k8s.io/{version}") as response:
        if response.status == 404:
            return set()
        return {row["name"] for row in (await response.json())["resources"]}


async def status(http: aiohttp.ClientSession, path: str) -> int:
    async with http.get(path) as response:
        return response.status


@pytest.mark.parametrize(
    ("served", "old", "new"),
    [
        pytest.param(LIKE_1_23, 200, 404, id="1.23 has v1beta1 alone"),
        pytest.param(LIKE_1_25, 200, 200, id="1.25 has both"),
        pytest.param(LIKE_1_36, 404, 200, id="1.27 and later have v1 alone"),
    ],
)
async def test_where_capacities_are(served: tuple[str, ...], old: int, new: int) -> None:
    """Discovery and the paths say the same; the other storage kinds are v1 everywhere, and never v1beta1."""
    async with ApiServer(served=served) as server, aiohttp.ClientSession(server.url) as http:
        assert (await status(http, OLD), await status(http, NEW)) == (old, new)
        assert await listed(http, "v1beta1") == ({CAPACITIES} if old == 200 else set())
        others = {"storageclasses", "csinodes", "csidrivers", "volumeattachments", "volumeattachments/status"}
        assert await listed(http, "v1") == others | ({CAPACITIES} if new == 200 else set())
        server.apply(a_class("w").obj())
        assert await status(http, "/apis/storage.k8s.io/v1/storageclasses/w") == 200
        assert await status(http, "/apis/storage.k8s.io/v1beta1/storageclasses/w") == 404


async def test_an_upgrade_ends_the_watches_of_what_is_gone() -> None:
    """1.25, then 1.36: v1beta1 is not found, its watches end, v1 goes on, and the objects are the same."""
    async with ApiServer(served=LIKE_1_25) as server, aiohttp.ClientSession(server.url) as http:
        stored = server.apply(a_capacity("c", "w", "1Gi").obj())
        watching: dict[str, Any] = {"watch": "true", "resourceVersion": server.resource_version}
        async with http.get(OLD, params=watching) as old, http.get(NEW, params=watching) as new:
            server.serve(LIKE_1_36)
            assert await asyncio.wait_for(old.content.read(), 60) == b""
            server.patch(CAPACITIES, "c", {"capacity": "2Gi"})
            line = await asyncio.wait_for(new.content.readline(), 60)
            assert b'"capacity":"2Gi"' in line
        assert (await status(http, OLD), await listed(http, "v1beta1")) == (404, set())
        async with http.get(NEW) as response:
            (item,) = (await response.json())["items"]
        assert item["metadata"]["uid"] == stored["metadata"]["uid"]
        server.serve(LIKE_1_23)
        async with http.get(OLD) as response:
            (item,) = (await response.json())["items"]
        assert item["capacity"] == "2Gi"
