"""The device kinds under resource.k8s.io/v1, v1beta2 and v1beta1: one object, and how each version shows it."""

from typing import Any

import pytest

from tests.contract.claims import FLAT, OLD, ROOT, STATUS, VERSIONS, allocation, exactly, made
from tests.contract.conftest import Answer, Api, Object, problems
from tests.contract.test_contract_lists import ZEROS
from tests.contract.words import REQUIRED, WATCH_LIST

ONE_OF = "exactly one of `exactly` or `firstAvailable` is required"
NESTED = ("v1", "v1beta2")
CEL: Object = {"selectors": [{"cel": {"expression": "true"}}]}
OPTION: Object = {"name": "s", "deviceClassName": "x", "allocationMode": "ExactCount", "count": 1}
ASKED: Object = {"deviceClassName": "x", "allocationMode": "ExactCount", "count": 1, "adminAccess": False} | CEL


def claims(api: Api, version: str) -> str:
    return api.at(f"resource.k8s.io/{version}", "resourceclaims")


def requests(answer: Answer) -> Any:
    spec = answer.body["spec"]
    return spec.get("spec", spec)["devices"]["requests"]


KINDS = {"deviceclasses", "resourceclaims", "resourceclaims/status", "resourceclaimtemplates", "resourceslices"}
RULES = {"devicetaintrules", "devicetaintrules/status"}


@pytest.mark.parametrize(
    ("version", "kinds"),
    [("v1", KINDS), ("v1beta2", KINDS | RULES), pytest.param(FLAT, KINDS, marks=OLD), ("v1alpha3", RULES)],
)
async def test_what_each_version_has(api: Api, version: str, kinds: set[str]) -> None:
    rows = {row["name"]: row for row in (await api("GET", f"{ROOT}/{version}")).body["resources"]}
    others = {"resourcepoolstatusrequests", "resourcepoolstatusrequests/status"}
    if version == "v1" and api.version >= "1.37":
        kinds = kinds | RULES
    assert rows.keys() - others == kinds
    for name, row in rows.items():
        assert row["namespaced"] is name.startswith("resourceclaim")
        if "/" in name:
            assert row["verbs"] == ["get", "patch", "update"]
    group = (await api("GET", ROOT)).body
    assert [each["version"] for each in group["versions"]] == [
        each for each in ("v1", "v1beta2", "v1beta1", "v1alpha3") if each != FLAT or api.version < "1.38"
    ]
    assert group["preferredVersion"]["version"] == "v1"


@OLD
@pytest.mark.parametrize("resource", ["resourceclaims", "resourceclaimtemplates"])
async def test_a_claim_that_an_old_client_makes(api: Api, resource: str) -> None:
    flat = [
        {"name": "a", "deviceClassName": "x", "adminAccess": False} | CEL,
        {"name": "b", "firstAvailable": [dict(OPTION)]},
    ]
    spec: Object = {"devices": {"requests": flat}}
    body = {"metadata": {"name": "a"}, "spec": spec if resource == "resourceclaims" else {"spec": spec}}
    created = await api("POST", api.at(f"resource.k8s.io/{FLAT}", resource), body)
    assert (created.status, created.body["apiVersion"]) == (201, "resource.k8s.io/v1beta1")
    shown = [{"name": "a"} | ASKED, {"name": "b", "deviceClassName": "", "firstAvailable": [OPTION]}]
    assert requests(created) == shown
    for version in NESTED:
        seen = await api("GET", f"{api.at(f'resource.k8s.io/{version}', resource)}/a")
        assert seen.body["apiVersion"] == f"resource.k8s.io/{version}"
        assert seen.metadata["uid"] == created.metadata["uid"]
        assert requests(seen) == [{"name": "a", "exactly": ASKED}, {"name": "b", "firstAvailable": [OPTION]}]


@OLD
async def test_an_old_client_changes_a_claim(api: Api) -> None:
    old, new = (f"{claims(api, version)}/a" for version in (FLAT, "v1"))
    asked = exactly(allocationMode="All", capacity={"requests": {"m": "1"}})
    made = await api("POST", claims(api, "v1"), {"metadata": {"name": "a"}, "spec": {"devices": asked}})
    flat = [{"name": "a"} | asked["requests"][0]["exactly"]]
    async with api.watch(claims(api, FLAT), resourceVersion=made.metadata["resourceVersion"]) as events:
        seen = await api("GET", old)
        assert requests(seen) == flat
        labelled = await api.merge(old, {"metadata": {"labels": {"a": "b"}}})
        assert (requests(labelled), labelled.metadata["labels"]) == (flat, {"a": "b"})
        event = await events.next()
        assert event["object"]["apiVersion"] == "resource.k8s.io/v1beta1"
        assert event["object"]["spec"] == {"devices": {"requests": flat}}
    ((field, _),) = problems(await api.merge(old, {"spec": {"devices": {"requests": []}}}))
    assert field == "spec"
    status: Object = {"allocation": allocation(), "devices": [STATUS | {"conditions": None}]}
    whole = labelled.body | {"status": status}
    assert (await api("PUT", f"{old}/status", whole)).body["status"] == status
    after = await api("GET", new)
    assert (requests(after), after.body["status"]) == (made.body["spec"]["devices"]["requests"], status)
    (item,) = (await api("GET", claims(api, FLAT))).body["items"]
    assert item["spec"] == {"devices": {"requests": flat}}


@OLD
async def test_claims_that_cannot_be_say_so_as_in_v1(api: Api) -> None:
    at = "spec.devices.requests[0]"
    one = f"{at}.exactly"
    rows: list[tuple[Object, str, str]] = [
        ({"deviceClassName": "x", "count": -1}, f"{one}.count", "Invalid value: -1: must be greater than zero"),
        ({"allocationMode": "All"}, f"{one}.deviceClassName", REQUIRED),
        ({}, at, f"Required value: {ONE_OF}"),
        ({"exactly": {"deviceClassName": "x"}}, at, f"Required value: {ONE_OF}"),
        (
            {"deviceClassName": "x", "firstAvailable": [OPTION]},
            at,
            f"Invalid value: null: {ONE_OF}, but multiple fields are set",
        ),
    ]
    for request, field, why in rows:
        body: Object = {"metadata": {"name": "a"}, "spec": {"devices": {"requests": [{"name": "a"} | request]}}}
        assert problems(await api("POST", claims(api, FLAT), body)) == [(field, why)]
    stranger = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "a"}}
    refused = await api("POST", claims(api, FLAT), stranger)
    message = (
        "the API version in the data (resource.k8s.io/v1) does not match the expected API version "
        "(resource.k8s.io/v1beta1)"
    )
    assert (refused.status, refused.body["reason"], refused.body["message"]) == (400, "BadRequest", message)


@OLD
async def test_a_slice_that_an_old_driver_publishes(api: Api) -> None:
    """v1beta1 has devices inside `basic`. An empty node name and a false `allNodes` are dropped."""
    name = f"x-{api.ns}"
    parts: Object = {"attributes": {"a": {"int": 1}}, "capacity": {"m": {"value": "1"}}}
    spec: Object = {
        "driver": "d.x",
        "pool": {"name": "p", "generation": 0, "resourceSliceCount": 1},
        "nodeName": "n",
        "devices": [{"name": "d1", "basic": parts}, {"name": "d2"}],
    }
    slices = f"{ROOT}/{FLAT}/resourceslices"
    created = await made(api, slices, spec | {"allNodes": False})
    shown = spec | {"devices": [{"name": "d1", "basic": parts}, {"name": "d2", "basic": {}}]}
    assert (created.status, created.body.get("spec")) == (201, shown)
    for version in NESTED:
        seen = (await api("GET", f"{ROOT}/{version}/resourceslices/{name}")).body["spec"]
        assert seen == spec | {"devices": [{"name": "d1"} | parts, {"name": "d2"}]}
    path = f"{slices}/{name}"
    changed = await api.merge(path, {"spec": {"devices": [{"name": "d3"}]}})
    assert (changed.body["spec"]["devices"], changed.metadata["generation"]) == ([{"name": "d3", "basic": {}}], 2)
    selected = await api("GET", f"{slices}?fieldSelector=spec.nodeName=n,metadata.name={name}")
    assert selected.names == [name]
    assert (await api("DELETE", path)).body["spec"] == changed.body["spec"]
    nowhere = await made(api, slices, spec | {"nodeName": ""})
    nodes = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    assert problems(nowhere) == [("spec", f"Required value: {nodes}")]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("resource", ["resourceclaims", "resourceclaimtemplates", "resourceslices", "deviceclasses"])
async def test_bookmarks_of_each_version(api: Api, version: str, resource: str) -> None:
    namespaced = resource.startswith("resourceclaim")
    path = api.at(f"resource.k8s.io/{version}", resource) if namespaced else f"{ROOT}/{version}/{resource}"
    async with api.watch(path, **WATCH_LIST, labelSelector="no=such") as events:
        bookmark = await events.next()
    found = bookmark["object"]
    assert (bookmark["type"], found["apiVersion"]) == ("BOOKMARK", f"resource.k8s.io/{version}")
    (zero,) = (zero for _, name, zero in ZEROS if name == resource)
    assert {key: found[key] for key in ("spec", "status") if key in found} == zero


async def test_bookmarks_of_rules(api: Api) -> None:
    async with api.watch(f"{ROOT}/v1alpha3/devicetaintrules", **WATCH_LIST, labelSelector="no=such") as events:
        found = (await events.next())["object"]
    assert (found["spec"], found["status"]) == ({"taint": {"key": "", "effect": ""}}, {})
