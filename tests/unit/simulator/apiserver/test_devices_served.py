"""Servers with older versions of the device kinds, with all of them, and with what no server has by default."""

from typing import Any

import aiohttp
import pytest

from simulator.apiserver import LIKE_1_32, LIKE_1_36, ApiServer, Refused

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
