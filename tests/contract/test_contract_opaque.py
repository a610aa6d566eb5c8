"""Parameters of drivers are bytes: which requests keep them, which rewrite them, and which patches are refused because of it."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from scheduler.api.decode import from_manifest
from scheduler.api.resource_v1 import (
    AllocatedConfiguration,
    AllocationResult,
    ConsumerReference,
    DeviceAllocationResult,
    ResourceClaim,
)
from scheduler.core.errors import Ambiguous, Conflict
from scheduler.kube.wire import JSON_PATCH
from scheduler.kube.writes.api_writer import ApiWriter
from tests.contract.claims import FIRST, GROUP, RESULT, SECOND, SPOKEN, STATUS, USER, allocation, exactly, readable
from tests.contract.conftest import MERGE, STRATEGIC, Answer, Api, LosingTransport, Object, problems
from tests.contract.test_contract_device_writes import speaking
from tests.contract.words import FINALIZER

NO_PATCH = ()
NOT_STRATEGIC = (JSON_PATCH, MERGE)
ALL = (JSON_PATCH, MERGE, STRATEGIC)
PARAMETERS: list[Any] = [
    pytest.param('{"a":1,"b":"é😀","c":null}', ALL, id="sorted keys, whole numbers, null and letters"),
    pytest.param('{"a":"\\u003c\\u0001\\n\\u2028"}', ALL, id="escapes that Go writes"),
    pytest.param('{"kind":"X","apiVersion":"v1"}', NOT_STRATEGIC, id="unsorted keys"),
    pytest.param('{"a":[{"c":1,"b":{"e":1,"d":2}}]}', NOT_STRATEGIC, id="unsorted keys further down"),
    pytest.param('{"a":1.0}', NOT_STRATEGIC, id="1.0"),
    pytest.param('{"a":1.50}', NOT_STRATEGIC, id="1.50"),
    pytest.param('{"a":1e3}', NOT_STRATEGIC, id="1e3"),
    pytest.param('{"a":1E+3}', NOT_STRATEGIC, id="1E+3"),
    pytest.param('{"a":-0}', NOT_STRATEGIC, id="-0"),
    pytest.param('{"a":12345678901234567890123}', NOT_STRATEGIC, id="23 digits"),
    pytest.param('{"a":"\\u00e9"}', NOT_STRATEGIC, id="an escaped letter"),
    pytest.param('{"a":"\\/"}', NOT_STRATEGIC, id="an escaped slash"),
    pytest.param('{"a":1,"a":2}', NOT_STRATEGIC, id="a key twice"),
    pytest.param('{"a": 1}', NO_PATCH, id="a space"),
    pytest.param('{\n\t"a":1\n}', NO_PATCH, id="new lines"),
    pytest.param('{"a":"<>&"}', NO_PATCH, id="angle brackets"),
    pytest.param('{"a":"\u2028"}', NO_PATCH, id="a line separator"),
]
LABEL: Object = {"metadata": {"labels": {"a": "b"}}}
RESERVED: Object = {"status": {"reservedFor": [USER]}}
LABEL_OPERATIONS = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
RESERVED_OPERATIONS = [{"op": "add", "path": "/status/reservedFor", "value": [USER]}]
MARK = "the parameters"


def body(obj: Any, parameters: str) -> bytes:
    """Return JSON without spaces, with the parameters in place of the mark."""
    return json.dumps(obj, separators=(",", ":")).replace(json.dumps(MARK), parameters).encode()


def config(**more: Any) -> Object:
    return more | {"opaque": {"driver": "d.x", "parameters": MARK}}


async def a_claim_with(api: Api, parameters: str) -> str:
    """Create a claim with these parameters and return its path."""
    claims = api.at(GROUP, "resourceclaims")
    spec: Object = {"devices": exactly() | {"config": [config()]}}
    made = await api("POST", claims, body({"metadata": {"name": "a"}, "spec": spec}, parameters))
    assert made.status == 201, made.body
    return f"{claims}/a"


async def shown(api: Api, path: str) -> list[str]:
    """Return the text of each `parameters` in the claim as GET returns it."""
    async with api.http.get(path) as response:
        text = await response.text()
    found, decoder = [], json.JSONDecoder()
    while (at := text.find('"parameters":')) >= 0:
        text = text[at + len('"parameters":') :]
        found.append(text[: decoder.raw_decode(text)[1]])
    return found


def as_json_shows(parameters: str) -> str:
    """Remove spaces and add Go's escapes for HTML."""
    text = parameters.replace(" ", "").replace("\n", "").replace("\t", "")
    for sign in "<>&\u2028":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


@pytest.mark.parametrize(("parameters", "takes"), PARAMETERS)
async def test_which_patches_a_claim_takes(api: Api, parameters: str, takes: tuple[str, ...]) -> None:
    """Other patches change bytes of the spec or of the allocation, and both are immutable.

    From 1.38 on a strategic patch leaves the fields that it does not name: a label does not change the spec.
    """
    path = await a_claim_with(api, parameters)
    devices = {"results": [RESULT], "config": [config(source="FromClaim")]}
    status = {"metadata": {"name": "a"}, "status": {"allocation": {"devices": devices}}}
    assert (await api("PUT", f"{path}/status", body(status, parameters))).status == 200
    for content in ALL:
        is_json = content == JSON_PATCH
        labelled = await api("PATCH", path, LABEL_OPERATIONS if is_json else LABEL, content=content)
        reserved = await api("PATCH", f"{path}/status", RESERVED_OPERATIONS if is_json else RESERVED, content=content)
        keeps_spec = api.version >= "1.38" and content == STRATEGIC
        if content in takes:
            assert (labelled.status, reserved.status) == (200, 200)
        else:
            if keeps_spec:
                assert labelled.status == 200
            else:
                assert [field for field, _ in problems(labelled)] == ["spec"]
            assert [field for field, _ in problems(reserved)] == ["status.allocation"]
    assert await shown(api, path) == [as_json_shows(parameters)] * 2
    again: Object = (await api("GET", path)).body
    again["metadata"] = {"name": "a", "resourceVersion": again["metadata"]["resourceVersion"], "labels": {"c": "d"}}
    again["spec"]["devices"]["config"] = [config()]
    again.pop("status")
    assert (await api("PUT", path, body(again, parameters))).metadata["labels"] == {"c": "d"}


GO = '{"a":1000,"b":"é\\u003c","c":[null,{}],"e":1}'
NO_NULLS = '{"a":1e3,"b":"\\u00e9\\u003c","c":[null,{}],"e":1.0}'
AS_SENT = '{"z":null,"e":1.0,"c":[null,{"d":null}],"b":"\\u00e9\\u003c","a":1e3}'


@pytest.mark.parametrize(
    ("content", "stored"),
    [
        pytest.param(JSON_PATCH, AS_SENT, id="a JSON patch: as they are, but for spaces and HTML"),
        pytest.param(
            MERGE, NO_NULLS, id="a merge patch: sorted, without nulls of objects, numbers and escapes as they are"
        ),
        pytest.param(STRATEGIC, GO, id="a strategic merge patch: the same, numbers and letters as Go writes them"),
    ],
)
async def test_parameters_that_a_patch_brings(api: Api, content: str, stored: str) -> None:
    """Only a JSON patch stores the parameters that the claim has."""
    path = await a_claim_with(api, "{}")
    sent = '{"z": null, "e": 1.0, "c": [null, {"d": null}], "b": "\\u00e9<", "a": 1e3}'
    given = {"devices": {"results": [RESULT], "config": [config(source="FromClaim")]}}
    patch: Any = {"status": {"allocation": given}}
    if content == JSON_PATCH:
        patch = [{"op": "add", "path": "/status/allocation", "value": given}]
    assert (await api("PATCH", f"{path}/status", body(patch, sent), content=content)).status == 200
    assert await shown(api, path) == ["{}", stored]


def as_allocated(claim: ResourceClaim) -> AllocationResult:
    """Return an allocation with the claim's own configuration, as the plugin builds it."""
    (own,) = claim.spec.devices.config
    plain = from_manifest(AllocationResult, allocation())
    passed_on = AllocatedConfiguration("FromClaim", (), own.opaque)
    return AllocationResult(DeviceAllocationResult(plain.devices.results, (passed_on,)))


@pytest.mark.parametrize("version", SPOKEN)
@pytest.mark.parametrize("parameters", [pytest.param(row.values[0], id=row.id) for row in PARAMETERS])
async def test_the_life_of_a_claim(api: Api, transport: LosingTransport, parameters: str, version: str) -> None:
    path = await a_claim_with(api, parameters)
    stored, parameters = parameters, as_json_shows(parameters)
    writer = speaking(transport, version)
    seen = readable(await writer.device_claims.read_resource_claim(api.ns, "a"))
    claim = readable(await writer.device_claims.protect_claim(seen))
    assert claim.metadata.finalizers == (FINALIZER,)
    assert stored.encode() in await in_protobuf(api, path)
    with pytest.raises(Conflict):
        await writer.device_claims.protect_claim(seen)
    claim = readable(await writer.device_claims.allocate_claim(claim, as_allocated(claim), FIRST))
    assert await shown(api, path) == [parameters, parameters]
    said: Answer = await api.merge(f"{path}/status", {"status": {"devices": [STATUS]}})
    assert said.body["status"]["devices"][0]["conditions"] is None
    claim = readable(await writer.device_claims.read_resource_claim(api.ns, "a"))
    claim = readable(await writer.device_claims.reserve_claim(claim, SECOND))
    claim = readable(await writer.device_claims.unreserve_claim(claim, FIRST.uid))
    assert claim.status.reserved_for == (SECOND,)
    assert await shown(api, path) == [parameters, parameters]
    claim = readable(await writer.device_claims.unreserve_claim(claim, SECOND.uid))
    claim = readable(await writer.device_claims.deallocate_claim(claim))
    assert (await shown(api, path), claim.metadata.finalizers) == ([parameters], (FINALIZER,))
    claim = readable(await writer.device_claims.allocate_claim(claim, as_allocated(claim), FIRST))
    assert await shown(api, path) == [parameters, parameters]
    await writer.device_claims.delete_claim(readable(await writer.device_claims.deallocate_claim(claim)))
    assert await writer.device_claims.read_resource_claim(api.ns, "a") is None


Write = Callable[[ApiWriter, ResourceClaim], Awaitable[object]]
ODD = '{"b": 1, "a": "<"}'
PROTECT: Write = lambda writer, claim: writer.device_claims.protect_claim(claim)  # noqa: E731
RESERVE: Write = lambda writer, claim: writer.device_claims.reserve_claim(claim, SECOND)  # noqa: E731
RELEASE: Write = lambda writer, claim: writer.device_claims.unreserve_claim(claim, USER["uid"])  # noqa: E731
EXACT = [pytest.param(PROTECT, id="protect"), pytest.param(RESERVE, id="reserve"), pytest.param(RELEASE, id="release")]


async def allocated_by_another(api: Api, writer: ApiWriter) -> tuple[str, ResourceClaim]:
    """Allocate as a scheduler that writes protobuf: the allocation has the bytes of the spec."""
    path = await a_claim_with(api, ODD)
    devices = {"results": [RESULT], "config": [config(source="FromClaim")]}
    status: Object = {"allocation": {"devices": devices}, "reservedFor": [USER]}
    put = await api("PUT", f"{path}/status", body({"metadata": {"name": "a"}, "status": status}, ODD))
    assert put.status == 200, put.body
    return path, readable(await writer.device_claims.read_resource_claim(api.ns, "a"))


async def in_protobuf(api: Api, path: str) -> bytes:
    async with api.http.get(path, headers={"Accept": "application/vnd.kubernetes.protobuf"}) as response:
        assert response.content_type == "application/vnd.kubernetes.protobuf"
        return await response.read()


@pytest.mark.parametrize("write", EXACT)
async def test_a_claim_that_takes_no_patch(api: Api, writer: ApiWriter, write: Write) -> None:
    path, claim = await allocated_by_another(api, writer)
    written = readable(await write(writer, claim))
    assert written == await writer.device_claims.read_resource_claim(api.ns, "a")
    assert written.metadata.finalizers == ((FINALIZER,) if write is PROTECT else ())
    users = {RESERVE: [USER["uid"], SECOND.uid], RELEASE: []}.get(write, [USER["uid"]])
    assert [user.uid for user in written.status.reserved_for] == users
    assert (await in_protobuf(api, path)).count(ODD.encode()) == 2
    await writer.device_claims.deallocate_claim(written)
    assert (await in_protobuf(api, path)).count(ODD.encode()) == 1


@pytest.mark.parametrize("write", EXACT)
async def test_a_claim_that_takes_no_patch_and_has_changed(api: Api, writer: ApiWriter, write: Write) -> None:
    _, claim = await allocated_by_another(api, writer)
    third = ConsumerReference(resource="pods", name="r", uid="u3")
    now = readable(await writer.device_claims.reserve_claim(claim, third))
    if write is RELEASE:
        left = readable(await write(writer, claim))
        assert [user.uid for user in left.status.reserved_for] == ["u3"]
        return
    with pytest.raises(Conflict):
        await write(writer, claim)
    assert await writer.device_claims.read_resource_claim(api.ns, "a") == now


@pytest.mark.parametrize("write", EXACT)
async def test_a_lost_answer_about_a_claim_that_takes_no_patch(
    api: Api, transport: LosingTransport, writer: ApiWriter, write: Write
) -> None:
    _, claim = await allocated_by_another(api, writer)
    transport.loses = True
    with pytest.raises(Ambiguous):
        await write(writer, claim)
    transport.loses = False
    assert await writer.device_claims.read_resource_claim(api.ns, "a") != claim


async def test_a_release_finds_the_user_where_it_is(api: Api, writer: ApiWriter) -> None:
    path = await a_claim_with(api, '{"b":1,"a":1.0}')
    claim = readable(await writer.device_claims.read_resource_claim(api.ns, "a"))
    claim = readable(await writer.device_claims.allocate_claim(claim, as_allocated(claim), FIRST))
    both = readable(await writer.device_claims.reserve_claim(claim, SECOND))
    await writer.device_claims.unreserve_claim(both, FIRST.uid)
    left = readable(await writer.device_claims.unreserve_claim(both, SECOND.uid))
    assert left.status.reserved_for == ()
    assert await shown(api, path) == ['{"b":1,"a":1.0}'] * 2
