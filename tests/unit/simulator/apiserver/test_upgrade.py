"""An in-process server that becomes 1.38 keeps objects that it would refuse now, and refuses what is changed in them."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import aiohttp
import pytest

from simulator.apiserver import LIKE_1_36_WITH_BETAS, ApiServer, Refused

Object = dict[str, Any]
TERM: Object = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
DEVICE: Object = {"name": "d1", "attributes": {"v": {"version": "1.2.9999999999999999999"}}}


def a_slice(**change: Any) -> Object:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.x", "pool": pool, "nodeName": "n", "devices": [copy.deepcopy(DEVICE)]} | change
    return {"metadata": {"name": "s"}, "spec": {key: value for key, value in spec.items() if value is not None}}


def a_template(**amounts: str) -> Object:
    request = {"name": "a", "exactly": {"deviceClassName": "x", "capacity": {"requests": amounts}}}
    return {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": [request]}}}}


def upgraded(kind: str, obj: Object) -> tuple[ApiServer, Object]:
    """Return a server of 1.38 and its object, which was created in 1.37."""
    server = ApiServer()
    server.upgrade("v1.37.2")
    created = server.create(kind, obj)
    server.upgrade("v1.38.0")
    with pytest.raises(Refused):
        server.create(kind, obj | {"metadata": {"name": "other"}})
    return server, created


def refused(server: ApiServer, kind: str, obj: Object) -> list[str]:
    with pytest.raises(Refused) as refusal:
        server.update(kind, obj)
    return [cause["field"] for cause in (refusal.value.details or {})["causes"]]


def test_the_devices_of_a_slice() -> None:
    server, stored = upgraded("resourceslices", a_slice())
    stored["spec"]["pool"]["generation"] = 2
    kept = server.update("resourceslices", stored)
    assert kept["spec"]["pool"]["generation"] == 2

    kept["spec"]["devices"].append({"name": "d2"})
    assert refused(server, "resourceslices", kept) == ["spec.devices[0].attributes[v].version"]


def test_the_nodes_of_devices() -> None:
    """They depend on a field of the slice, too, so that they are checked again where that changes."""
    selector = {"nodeSelectorTerms": [TERM, TERM]}
    device = {"name": "d1", "nodeSelector": selector}
    server, stored = upgraded("resourceslices", a_slice(devices=[device], nodeName=None, perDeviceNodeSelection=True))
    stored["metadata"]["labels"] = {"x": "y"}
    kept = server.update("resourceslices", stored)
    assert kept["metadata"]["labels"] == {"x": "y"}

    moved = copy.deepcopy(kept)
    del moved["spec"]["perDeviceNodeSelection"]
    moved["spec"]["allNodes"] = True
    assert refused(server, "resourceslices", moved) == ["spec.devices[0]"]


def test_the_capacities_of_a_template() -> None:
    server, stored = upgraded("resourceclaimtemplates", a_template(**{"d.x/m/n": "-1"}))
    stored["metadata"]["labels"] = {"x": "y"}
    kept = server.update("resourceclaimtemplates", stored)
    assert kept["metadata"]["labels"] == {"x": "y"}

    place = "spec.spec.devices.requests[0].exactly.capacity.requests"
    kept["spec"]["spec"]["devices"]["requests"][0]["exactly"]["capacity"]["requests"]["d.x/m/n"] = "-2"
    assert refused(server, "resourceclaimtemplates", kept) == [place, f"{place}[d.x/m/n]", "spec"]


def test_the_allocation_of_a_claim() -> None:
    """A claim with a negative amount can be reserved and deallocated."""
    server = ApiServer()
    server.create("resourceclaims", a_template(m="1")["spec"] | {"metadata": {"name": "c"}})
    result = {"request": "a", "driver": "d.x", "pool": "p", "device": "d1", "consumedCapacity": {"m": "-1"}}
    allocation = {"devices": {"results": [result]}}
    server.patch("resourceclaims", "c", {"status": {"allocation": allocation}}, subresource="status")
    server.upgrade("v1.38.0")

    user = {"resource": "pods", "name": "p", "uid": "u"}
    reserved = server.patch("resourceclaims", "c", {"status": {"reservedFor": [user]}}, subresource="status")
    assert reserved["status"]["reservedFor"] == [user]
    free = {"status": {"reservedFor": None, "allocation": None}}
    assert server.patch("resourceclaims", "c", free, subresource="status")["status"] == {}
    with pytest.raises(Refused, match="must be greater than or equal to 0"):
        server.patch("resourceclaims", "c", {"status": {"allocation": allocation}}, subresource="status")


async def test_watches_of_a_version_that_is_gone_end() -> None:
    async with ApiServer(served=LIKE_1_36_WITH_BETAS) as server, aiohttp.ClientSession(server.url) as http:
        paths = [f"/apis/resource.k8s.io/{version}/resourceslices" for version in ("v1beta1", "v1")]
        async with (
            http.get(paths[0], params={"watch": "1"}) as old,
            http.get(paths[1], params={"watch": "1"}) as new,
        ):
            server.upgrade("v1.38.0")
            assert await asyncio.wait_for(old.content.read(), 30) == b""
            server.create("resourceslices", a_slice(devices=None))
            assert b'"ADDED"' in await asyncio.wait_for(new.content.readline(), 30)
        async with http.get(paths[0]) as gone:
            assert gone.status == 404
        server.serve(LIKE_1_36_WITH_BETAS)
        async with http.get(paths[0]) as gone:
            assert gone.status == 404
