"""The status of a claim for devices: which changes are valid, and which permission each part needs."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Set as AbstractSet
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from simulator.apiserver import ApiServer
from tests.contract.claims import GROUP, NO_REQUEST, RESULT, STATUS, USER, a_claim, allocation, kept, write
from tests.contract.conftest import PATIENCE_S, Api, Object, modified, problems, without
from tests.contract.test_contract_access import grant_user
from tests.contract.words import FINALIZER, REQUIRED, SINCE, SUBDOMAIN, Row, condition, too_many, wrong
from tests.e2e.controlplane.harness import ControlPlane

GOING = "Forbidden: new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
UNALLOCATED = "Forbidden: may not be specified when `allocated` is not set"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        wrong("a request it has not", {"request": "z"}, "request", f'Invalid value: "z": {NO_REQUEST}'),
        wrong("an option likewise", {"request": "f/t"}, "request", f'Invalid value: "f/t": {NO_REQUEST}'),
        wrong("no driver", {"driver": ""}, "driver", REQUIRED),
        wrong("a driver's name", {"driver": "D_x"}, "driver", f'Invalid value: "D_x": {SUBDOMAIN}'),
        wrong("no pool", {"pool": ""}, "pool", REQUIRED),
        wrong("a pool's name", {"pool": "a//b"}, "pool", f'Invalid value: "": {SUBDOMAIN}'),
        wrong("a device's name", {"device": "a.b"}, "device", 'Invalid value: "a.b": must not contain dots'),
        wrong(
            "a share", {"shareID": "x"}, "shareID", 'Invalid value: "x": error validating uid: invalid UUID length: 1'
        ),
        pytest.param(
            {"bindingConditions": ["a", "a"], "bindingFailureConditions": ["a"]},
            [
                ("bindingConditions[1]", 'Duplicate value: "a"'),
                (
                    "bindingFailureConditions[0]",
                    'Invalid value: "a": bindingFailureConditions must not overlap with bindingConditions',
                ),
            ],
            id="a condition said twice",
        ),
        wrong(
            "no failure condition",
            {"bindingConditions": ["a"]},
            "bindingFailureConditions",
            "Invalid value: null: bindingFailureConditions are required to use bindingConditions",
        ),
        too_many(
            "too many conditions",
            {"bindingConditions": list("abcde"), "bindingFailureConditions": ["z"]},
            "bindingConditions",
            5,
            4,
        ),
    ],
)
async def test_results_that_cannot_be(api: Api, change: Object, expected: list[Row]) -> None:
    answer = await write(api, await a_claim(api), allocation=allocation(**change))
    assert problems(answer) == [(f"status.allocation.devices.results[0].{field}", why) for field, why in expected]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        too_many(
            "too many results",
            {"devices": {"results": [RESULT | {"device": f"d{i}"} for i in range(33)]}},
            "devices.results",
            33,
            32,
        ),
        pytest.param(
            {"devices": {"config": [{"opaque": {"driver": "d.x", "parameters": {}}}, {"source": "X"}]}},
            [
                ("devices.config[0].source", REQUIRED),
                ("devices.config[1].source", 'Unsupported value: "X": supported values: "FromClaim", "FromClass"'),
                ("devices.config[1].opaque", REQUIRED),
            ],
            id="a configuration from nowhere",
        ),
        wrong(
            "a selector of nothing",
            {"nodeSelector": {"nodeSelectorTerms": []}},
            "nodeSelector.nodeSelectorTerms",
            "Required value: must have at least one node selector term",
        ),
    ],
)
async def test_allocations_that_cannot_be(api: Api, given: Object, expected: list[Row]) -> None:
    answer = await write(api, await a_claim(api), allocation=given)
    assert problems(answer) == [(f"status.allocation.{field}", why) for field, why in expected]


async def test_an_allocation_stays_as_it_is(api: Api) -> None:
    path = await a_claim(api)
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
    full: Object = allocation(adminAccess=False, tolerations=[{"key": "k", "operator": "Equal"}])
    full |= {"nodeSelector": {"nodeSelectorTerms": terms}, "allocationTimestamp": SINCE}
    config = {"source": "FromClaim", "opaque": {"driver": "d.x", "parameters": {"a": {"b": []}}}}
    full["devices"]["config"] = [config | {"requests": ["a"]}, config | {"source": "FromClass"}]
    first_write = await write(api, path, allocation=full, reservedFor=[USER | {"apiGroup": ""}])
    assert first_write.body["status"] == {"allocation": full, "reservedFor": [USER]}
    again = await write(api, path, allocation=full, reservedFor=[USER])
    assert again.rv == first_write.rv
    for change in (allocation(device="d2"), {"allocationTimestamp": "2026-01-01T00:00:01Z"}, {"nodeSelector": None}):
        ((field, why),) = problems(await write(api, path, allocation=change))
        ends = ": field cannot be modified once set" if api.version >= "1.37" else ": field is immutable"
        assert (field, why.endswith(ends)) == ("status.allocation", True)
    assert await kept(api, path, allocation=None, reservedFor=None) == {}
    assert await kept(api, path, allocation=allocation(request="f/s")) == {"allocation": allocation(request="f/s")}
    assert await kept(api, path, allocation=None) == {}
    uid = "01234567-89ab-cdef-0123-456789abcdef"
    part = allocation(shareID=uid, consumedCapacity={"m": "1Gi"})
    assert await kept(api, path, allocation=part) == {"allocation": part}
    said = STATUS | {"shareID": uid, "conditions": [condition()], "data": {"a": 1}}
    assert await kept(api, path, devices=[said]) == {"allocation": part, "devices": [said]}


async def test_amounts_that_are_none(api: Api) -> None:
    """The claim cannot be read: 400, or 422 for a patch that would make it unreadable."""
    path = await a_claim(api)
    unread = allocation(consumedCapacity={"m": "x"})
    seen = (await api("GET", path)).body
    answer = await api("PUT", f"{path}/status", seen | {"status": {"allocation": unread}})
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    for patch in (api.merge, api.patch):
        answer = await patch(f"{path}/status", {"status": {"allocation": unread}})
        ((field, reason),) = [(cause["field"], cause["reason"]) for cause in answer.body["details"]["causes"]]
        assert (answer.status, answer.body["reason"], field, reason) == (422, "Invalid", "patch", "FieldValueInvalid")
        assert answer.body["message"].startswith(' "" is invalid: patch: Invalid value: "')


async def test_reservations_need_an_allocation(api: Api) -> None:
    path = await a_claim(api)
    at = "status.reservedFor"
    assert problems(await write(api, path, reservedFor=[USER])) == [(at, UNALLOCATED)]
    assert await kept(api, path, allocation=allocation(), reservedFor=[USER]) == {
        "allocation": allocation(),
        "reservedFor": [USER],
    }
    missing = [(f"{at}[0].{name}", REQUIRED) for name in ("resource", "name", "uid")]
    assert problems(await write(api, path, reservedFor=[{}])) == missing
    assert problems(await write(api, path, reservedFor=[USER, USER])) == [(f"{at}[1]", 'Duplicate value: "u1"')]
    many = [USER | {"uid": f"u{i}"} for i in range(257)]
    assert problems(await write(api, path, reservedFor=many)) == [(at, "Too many: 257: must have at most 256 items")]
    assert len((await kept(api, path, reservedFor=many[:256]))["reservedFor"]) == 256
    assert problems(await write(api, path, allocation=None)) == [(at, UNALLOCATED)]
    assert await kept(api, path, reservedFor=[]) == {"allocation": allocation()}
    assert await kept(api, path, allocation=None) == {}


async def test_one_user_comes_and_goes(api: Api) -> None:
    path = await a_claim(api)
    await kept(api, path, allocation=allocation(), reservedFor=[USER])
    seen = await api("GET", path)
    other = USER | {"uid": "u2", "name": "p2"}
    precondition = {name: seen.metadata[name] for name in ("uid", "resourceVersion")}
    added = await api.patch(f"{path}/status", {"metadata": precondition, "status": {"reservedFor": [other]}})
    assert added.body["status"]["reservedFor"] == [other, USER]
    removal: Object = {"reservedFor": [{"$patch": "delete", "uid": "u1"}]}
    late = await api.patch(f"{path}/status", {"metadata": precondition, "status": removal})
    modified(late, "resourceclaims", "a", "resource.k8s.io")
    stranger = await api.patch(f"{path}/status", {"metadata": {"uid": "zz"}, "status": removal})
    assert problems(stranger) == [("metadata.uid", 'Invalid value: "zz": field is immutable')] * 2
    uid = {"uid": seen.metadata["uid"]}
    removed = await api.patch(f"{path}/status", {"metadata": uid, "status": removal})
    assert removed.body["status"] == {"allocation": allocation(), "reservedFor": [other]}
    again = await api.patch(f"{path}/status", {"metadata": uid, "status": removal})
    assert (again.status, again.rv) == (200, removed.rv)


async def test_the_two_halves_of_a_claim(api: Api) -> None:
    path = await a_claim(api)
    created = await api("GET", path)
    assert created.body["status"] == {}
    unheard = await api.merge(path, {"status": {"allocation": allocation()}})
    assert (unheard.status, unheard.body) == (200, created.body)
    metadata = {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": [FINALIZER], "ownerReferences": []}
    body: Object = {"metadata": metadata, "spec": {"devices": {"requests": []}}, "status": {"allocation": allocation()}}
    answer = await api.merge(f"{path}/status", body)
    assert (answer.body["spec"], answer.body["status"]) == (created.body["spec"], {"allocation": allocation()})
    books = ("resourceVersion", "managedFields")
    assert without(answer.metadata, *books) == without(created.metadata, *books)
    whole = answer.body | {"status": {"allocation": allocation(), "reservedFor": [USER]}}
    assert (await api("PUT", f"{path}/status", whole)).body["status"]["reservedFor"] == [USER]
    late = await api("PUT", f"{path}/status", whole | {"status": {}})
    assert (late.status, late.body["reason"]) == (409, "Conflict")
    for at in (path, f"{path}/status"):
        stranger = await api("PUT", at, whole | {"metadata": {"name": "a", "uid": "zz"}})
        why = f"Precondition failed: UID in precondition: zz, UID in object meta: {created.metadata['uid']}"
        assert (stranger.status, stranger.body["message"][-len(why) :]) == (409, why)


async def test_a_claim_that_is_going(api: Api) -> None:
    path = await a_claim(api)
    await api.merge(path, {"metadata": {"finalizers": [FINALIZER]}})
    await kept(api, path, allocation=allocation(), reservedFor=[USER])
    going = await api("DELETE", path)
    assert (going.metadata["deletionGracePeriodSeconds"], going.metadata["finalizers"]) == (0, [FINALIZER])
    other = USER | {"uid": "u2"}
    assert problems(await write(api, path, reservedFor=[USER, other])) == [("status.reservedFor", GOING)]
    assert (await kept(api, path, reservedFor=None)) == {"allocation": allocation()}
    assert problems(await write(api, path, reservedFor=[USER])) == [("status.reservedFor", GOING)]
    assert await kept(api, path, allocation=None) == {}
    assert (await api("GET", path)).metadata["deletionTimestamp"]
    assert (await api.merge(path, {"metadata": {"finalizers": None}})).status == 200
    assert (await api("GET", path)).status == 404


async def test_what_drivers_say_of_a_device(api: Api) -> None:
    path = await a_claim(api)
    no_device = {"Driver": "d.x", "Pool": "p", "Device": "d1", "ShareID": ""}
    shown = str(no_device).replace("'", '"').replace(": ", ":").replace(", ", ",")
    unknown = f"Invalid value: {shown}: must be an allocated device in the claim"
    assert problems(await write(api, path, devices=[STATUS])) == [("status.devices[0]", unknown)]
    await kept(api, path, allocation=allocation())
    assert (await kept(api, path, devices=[STATUS]))["devices"] == [STATUS | {"conditions": None}]
    twice = problems(await write(api, path, devices=[STATUS, STATUS]))
    assert twice == [("status.devices[1]", f"Duplicate value: {shown}")]
    bare = STATUS | {"conditions": [{"type": "Ready", "status": "True"}]}
    missing = [(f"status.devices[0].conditions[0].{name}", REQUIRED) for name in ("lastTransitionTime", "reason")]
    assert problems(await write(api, path, devices=[bare])) == missing
    nine = STATUS | {"conditions": [condition(f"C{i}") for i in range(9)]}
    too_many = [("status.devices[0].conditions", "Too many: 9: must have at most 8 items")]
    assert problems(await write(api, path, devices=[nine])) == too_many
    first_said, then = (STATUS | {"conditions": [condition(name)]} for name in ("Ready", "Other"))
    for said in (first_said, then):
        answer = await api.patch(f"{path}/status", {"status": {"devices": [said]}})
        assert answer.body["status"]["devices"] == [said]
    assert await kept(api, path, allocation=None) == {}


# -- permissions to write it--------------------------------------------------------------------------------------------

BINDING, DRIVER = ("patch", "resourceclaims/binding"), ("arbitrary-node:patch", "resourceclaims/driver")
PATCH_STATUS = ("patch", "resourceclaims/status")


@dataclass
class Writers:
    """An admin and a user with few rights, in one namespace. The in-process server has one user: the admin
    within `admin_writes`.
    """

    admin: Api
    them: Api
    forbidden: set[tuple[str, str]]

    @contextmanager
    def admin_writes(self) -> Iterator[None]:
        denied = set(self.forbidden)
        self.forbidden.clear()
        yield
        self.forbidden.update(denied)


@asynccontextmanager
async def writers(plane: ControlPlane | None, rights: AbstractSet[tuple[str, str]]) -> AsyncIterator[Writers]:
    """Yield a user with these rights and the right to patch the status."""
    if plane is None:
        async with ApiServer() as server, aiohttp.ClientSession(server.url) as http:
            server.forbidden.update({BINDING, DRIVER} - rights)
            api = Api(http, is_real=False, ns="default")
            yield Writers(api, api, server.forbidden)
        return
    async with plane.client() as http, plane.client() as theirs:
        user = "writer-" + "-".join(sorted(what.partition("/")[2] for _, what in rights))
        await grant_user(
            http, user, [("resource.k8s.io", what, verb) for verb, what in sorted(rights | {PATCH_STATUS})]
        )
        theirs.headers["Impersonate-User"] = user
        async with http.post("/api/v1/namespaces", json={"metadata": {"generateName": "writers-"}}) as made:
            ns = (await made.json())["metadata"]["name"]
        await _until_allowed(theirs, ns)
        admin, them = (Api(each, is_real=True, ns=ns) for each in (http, theirs))
        yield Writers(admin, them, set())


async def _until_allowed(http: aiohttp.ClientSession, ns: str) -> None:
    """The role takes effect some moments later."""
    path = f"/apis/{GROUP}/namespaces/{ns}/resourceclaims/none/status"
    deadline = time.monotonic() + PATIENCE_S
    while True:
        async with http.patch(path, json={}, headers={"Content-Type": "application/merge-patch+json"}) as answer:
            if answer.status == 404:
                return
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def refused_for(api: Api, path: str, **status: Any) -> set[str]:
    """Return the fields for which the write is refused, and check that each missing permission is named in full."""
    answer = await write(api, path, **status)
    if answer.status == 200:
        return set()
    for field, why in problems(answer):
        what = 'resourceclaims/binding", verb="patch"'
        where = "at the cluster scope"
        if field == "status.devices":
            what, where = 'resourceclaims/driver", verb="[arbitrary-node:patch]"', f'in the namespace "{api.ns}"'
        head, _, permission = why.partition(" permission: ")
        assert head.endswith(f'requires resource="{what}')
        assert permission.startswith("resourceclaims.resource.k8s.io ")
        assert permission.endswith(f'in API group "resource.k8s.io" {where}')
    return {field for field, _ in problems(answer)}


@pytest.mark.parametrize(
    ("rights", "allocates", "reports"),
    [
        pytest.param(set(), False, False, id="the status alone"),
        pytest.param({BINDING}, True, False, id="a scheduler"),
        pytest.param({DRIVER}, False, True, id="a driver"),
    ],
)
async def test_the_rights_to_parts_of_the_status(
    plane: ControlPlane | None, rights: set[tuple[str, str]], allocates: bool, reports: bool
) -> None:
    may_not_allocate = set() if allocates else {"status.allocation"}
    may_not_report = set() if reports else {"status.devices"}
    async with writers(plane, rights) as both:
        path, them = await a_claim(both.admin), both.them
        assert await refused_for(them, path) == set()
        assert await refused_for(them, path, allocation=allocation()) == may_not_allocate
        with both.admin_writes():
            await kept(both.admin, path, allocation=allocation())
        assert await refused_for(them, path, reservedFor=[USER]) == may_not_allocate
        assert await refused_for(them, path, devices=[STATUS]) == may_not_report
        with both.admin_writes():
            await kept(both.admin, path, devices=[STATUS])
        assert await refused_for(them, path, devices=None) == may_not_report
        gone: Object = {"allocation": None, "reservedFor": None, "devices": None}
        with both.admin_writes():
            await kept(both.admin, path, devices=[STATUS])
        assert await refused_for(them, path, **gone) == may_not_allocate
