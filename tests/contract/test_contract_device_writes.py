"""What a scheduler writes to claims for devices: what the server takes, refuses, and keeps of it."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler.api.core_v1 import ContainerExtendedResourceRequest, ExtendedResourceClaimStatus, Pod
from scheduler.api.decode import from_manifest
from scheduler.api.meta import Metadata
from scheduler.api.resource_v1 import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.cache.devices.claim_tracker import is_made_for
from scheduler.core.clock import SystemClock
from scheduler.core.errors import Ambiguous, Conflict, Gone, Invalid, NotFound
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.wire import JSON_PATCH
from scheduler.kube.writes.api_writer import ApiWriter
from tests.contract.claims import (
    FIRST,
    GROUP,
    SECOND,
    SPOKEN,
    STATUS,
    USER,
    a_claim,
    allocation,
    exactly,
    kept,
    readable,
)
from tests.contract.conftest import Answer, Api, LosingTransport, Object, pod, refusal, without
from tests.contract.words import FINALIZER

REFUSED = "the server rejected our request due to an error in our request"
PARAMETERS: Object = {"kind": "X", "none": None, "list": [1, None, {"none": None}], "float": 1.0, "text": "é<\u0001"}
SELECTOR: Object = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
}
UID = "01234567-89ab-cdef-0123-456789abcdef"
FULL: Object = {
    "devices": {
        "results": [
            {
                "request": "a",
                "driver": "d.x",
                "pool": "p/q",
                "device": "d1",
                "adminAccess": False,
                "tolerations": [{"key": "k", "operator": "Equal"}],
                "bindingConditions": ["a"],
                "bindingFailureConditions": ["b"],
                "shareID": UID,
                "consumedCapacity": {"m": "1Gi", "d.x/n": "100m", "o": "0"},
            },
            {"request": "f/s", "driver": "e.x", "pool": "p", "device": "d1"},
        ],
        "config": [
            {"source": "FromClass", "requests": ["a"], "opaque": {"driver": "d.x", "parameters": PARAMETERS}},
            {"source": "FromClaim", "opaque": {"driver": "d.x", "parameters": {}}},
        ],
    },
    "nodeSelector": SELECTOR,
    "allocationTimestamp": "2026-01-01T00:00:00Z",
}
PLAIN = from_manifest(AllocationResult, allocation())


def speaking(transport: LosingTransport, version: str) -> ApiWriter:
    return ApiWriter(transport, Throttle(SystemClock(), qps=-1), SystemClock(), claims_version=lambda: version)


async def seen(writer: ApiWriter, api: Api, name: str = "a") -> ResourceClaim:
    return readable(await writer.device_claims.read_resource_claim(api.ns, name))


async def allocated(writer: ApiWriter, api: Api) -> ResourceClaim:
    """Return a claim with the finalizer, devices and one user."""
    await a_claim(api)
    protected = readable(await writer.device_claims.protect_claim(await seen(writer, api)))
    return readable(await writer.device_claims.allocate_claim(protected, PLAIN, FIRST))


# -- JSON patch -------------------------------------------------------------------------------------------------------


async def test_a_json_patch_keeps_null(api: Api) -> None:
    """A merge patch drops nulls from parameters of drivers."""
    path = await a_claim(api)
    ops = [{"op": "add", "path": "/status/allocation", "value": FULL}]
    answer = await api("PATCH", f"{path}/status", ops, content=JSON_PATCH)
    assert (answer.status, answer.body["status"]) == (200, {"allocation": FULL})
    await kept(api, path, allocation=None)
    merged = await kept(api, path, allocation=FULL)
    if api.is_real:
        (first, _) = merged["allocation"]["devices"]["config"]
        assert "none" not in first["opaque"]["parameters"]


@pytest.mark.parametrize(
    "op",
    [
        pytest.param({"op": "test", "path": "/metadata/name", "value": "b"}, id="what does not hold"),
        pytest.param({"op": "add", "path": "/status/none/x", "value": 1}, id="nowhere to add"),
        pytest.param({"op": "remove", "path": "/status/none"}, id="nothing to remove"),
        pytest.param({"op": "zip", "path": "/status"}, id="no operation"),
    ],
)
async def test_a_json_patch_that_cannot_be_carried_out(api: Api, op: Object) -> None:
    path = await a_claim(api)
    ops = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}, op]
    refusal(await api("PATCH", path, ops, content=JSON_PATCH), 422, "Invalid", REFUSED, {})
    assert "labels" not in (await api("GET", path)).metadata


async def test_a_json_patch_of_lists(api: Api) -> None:
    path = await a_claim(api)
    ops = [
        {"op": "add", "path": "/metadata/finalizers", "value": ["x.y/a"]},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "x.y/b"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/x.y~1z", "value": "1"},
    ]
    answer = await api("PATCH", path, ops, content=JSON_PATCH)
    assert (answer.status, answer.metadata["finalizers"]) == (200, ["x.y/b"])
    assert answer.metadata["annotations"] == {"x.y/z": "1"}
    for nonsense in ({"op": "add"}, b"none"):
        refused = await api("PATCH", path, nonsense, content=JSON_PATCH)
        assert (refused.status, refused.body["reason"]) == (400, "BadRequest")


# -- the product's writes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", SPOKEN)
async def test_the_product_allocates(api: Api, transport: LosingTransport, version: str) -> None:
    path = await a_claim(api)
    writer = speaking(transport, version)
    await api.merge(path, {"metadata": {"finalizers": ["x.y/z"], "labels": {"a": "b"}}})
    protected = readable(await writer.device_claims.protect_claim(await seen(writer, api)))
    assert protected == await seen(writer, api)
    assert set(protected.metadata.finalizers) == {"x.y/z", FINALIZER}
    written = await writer.device_claims.allocate_claim(protected, from_manifest_whole(FULL), FIRST)
    assert written == await seen(writer, api)
    stored = await api("GET", path)
    assert stored.body["status"] == {"allocation": FULL, "reservedFor": [USER]}
    assert (set(stored.metadata["finalizers"]), stored.metadata["labels"]) == ({"x.y/z", FINALIZER}, {"a": "b"})
    if api.is_real:  # ours keeps no books of claims
        assert "kubestow" in {entry["manager"] for entry in stored.metadata["managedFields"]}


def from_manifest_whole(manifest: Object) -> AllocationResult:
    """Decode with nulls in parameters kept, as claims of a server are read."""
    return msgspec.json.decode(msgspec.json.encode(manifest), type=AllocationResult, dec_hook=from_manifest)


async def test_the_status_takes_no_finalizer(api: Api) -> None:
    """Protection is therefore a separate write."""
    path = await a_claim(api)
    ops = [
        {"op": "add", "path": "/metadata/finalizers", "value": [FINALIZER]},
        {"op": "add", "path": "/status/allocation", "value": allocation()},
    ]
    for at, has in ((f"{path}/status", (False, True)), (path, (True, True))):
        answer = await api("PATCH", at, ops, content=JSON_PATCH)
        assert ("finalizers" in answer.metadata, "allocation" in answer.body["status"]) == has


async def test_users_come_and_go(api: Api, writer: ApiWriter) -> None:
    first = await allocated(writer, api)
    second = readable(await writer.device_claims.reserve_claim(first, SECOND))
    assert set(second.status.reserved_for) == {FIRST, SECOND}
    assert second.status.allocation == PLAIN
    left = readable(await writer.device_claims.unreserve_claim(first, "u1"))  # whatever was written since
    assert left.status.reserved_for == (SECOND,)
    assert await writer.device_claims.unreserve_claim(first, "u1") == left
    await kept(api, f"{api.at(GROUP, 'resourceclaims')}/a", devices=[STATUS])
    freed = readable(await writer.device_claims.deallocate_claim(await seen(writer, api)))
    assert freed.status == msgspec.structs.replace(freed.status, allocation=None, reserved_for=(), devices=())
    assert FINALIZER in freed.metadata.finalizers


Write = Callable[[ApiWriter, ResourceClaim], Any]
FROM_WHAT_WAS_SEEN: list[Any] = [
    pytest.param(lambda writer, claim: writer.device_claims.protect_claim(claim), id="protect"),
    pytest.param(lambda writer, claim: writer.device_claims.allocate_claim(claim, PLAIN, FIRST), id="allocate"),
    pytest.param(lambda writer, claim: writer.device_claims.reserve_claim(claim, SECOND), id="reserve"),
    pytest.param(lambda writer, claim: writer.device_claims.deallocate_claim(claim), id="deallocate"),
]
RELEASE = pytest.param(lambda writer, claim: writer.device_claims.unreserve_claim(claim, "u1"), id="release")


@pytest.mark.parametrize("write", FROM_WHAT_WAS_SEEN)
async def test_what_was_decided_on_an_old_version_is_refused(api: Api, writer: ApiWriter, write: Write) -> None:
    claim = await allocated(writer, api)
    await api.merge(f"{api.at(GROUP, 'resourceclaims')}/a", {"metadata": {"labels": {"new": "1"}}})
    now = await seen(writer, api)
    with pytest.raises(Conflict):
        await write(writer, claim)
    assert await seen(writer, api) == now


@pytest.mark.parametrize("write", [*FROM_WHAT_WAS_SEEN, RELEASE])
async def test_a_namesake_is_left_alone(api: Api, writer: ApiWriter, write: Write) -> None:
    """The new claim of the same name has another version. The release, which ignores versions, compares the uid."""
    claim = await allocated(writer, api)
    await writer.device_claims.delete_claim(claim)
    other = await allocated(writer, api)
    with pytest.raises(Conflict):
        await write(writer, claim)
    await writer.device_claims.delete_claim(claim)
    assert await seen(writer, api) == other


@pytest.mark.parametrize("write", [*FROM_WHAT_WAS_SEEN, RELEASE])
async def test_a_claim_that_is_gone(api: Api, writer: ApiWriter, write: Write) -> None:
    claim = await allocated(writer, api)
    await writer.device_claims.delete_claim(claim)
    with pytest.raises(NotFound):
        await write(writer, claim)
    await writer.device_claims.delete_claim(claim)
    assert await writer.device_claims.read_resource_claim(api.ns, "a") is None


@pytest.mark.parametrize("write", [*FROM_WHAT_WAS_SEEN, RELEASE])
async def test_an_answer_that_is_lost(api: Api, transport: LosingTransport, write: Write) -> None:
    """The write was carried out: a read shows it, and writes from the older version conflict."""
    writer = speaking(transport, "v1")
    await a_claim(api)
    claim = await seen(writer, api)
    is_first = write in {param.values[0] for param in FROM_WHAT_WAS_SEEN[:2]}
    if not is_first:
        claim = readable(await writer.device_claims.allocate_claim(claim, PLAIN, FIRST))
    transport.loses = True
    with pytest.raises(Ambiguous):
        await write(writer, claim)
    transport.loses = False
    now = await seen(writer, api)
    assert now != claim
    if write is RELEASE.values[0]:
        assert await write(writer, claim) == now
    else:
        with pytest.raises(Conflict):
            await write(writer, claim)
        assert await seen(writer, api) == now


async def a_claim_of_a_template(api: Api) -> str:
    """Create a claim as the claim controller does; return its path."""
    metadata: Object = {
        "name": "a",
        "generateName": "p-gpu-",
        "labels": {"a": "b"},
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": UID, "controller": True}],
    }
    body = {"metadata": metadata, "spec": {"devices": exactly()}}
    assert (await api("POST", api.at(GROUP, "resourceclaims"), body)).status == 201
    return f"{api.at(GROUP, 'resourceclaims')}/a"


async def test_an_allocation_changes_no_metadata(api: Api, writer: ApiWriter) -> None:
    path = await a_claim_of_a_template(api)
    protected = readable(await writer.device_claims.protect_claim(await seen(writer, api)))
    before = (await api("GET", path)).metadata
    await writer.device_claims.allocate_claim(protected, PLAIN, FIRST)
    after = await api("GET", path)
    assert "allocation" in after.body["status"]
    changed = {key for key in before if before[key] != after.metadata.get(key)}
    assert changed - {"managedFields"} == {"resourceVersion"}


@pytest.mark.parametrize("subresource", ["", "/status"])
async def test_an_update_without_the_prefix_of_the_name_removes_it(api: Api, subresource: str) -> None:
    """An update of the status keeps labels and owners that it does not name, but not this."""
    path = await a_claim_of_a_template(api)
    stored = await api("GET", path)
    del stored.metadata["generateName"]
    answer = await api("PUT", f"{path}{subresource}", stored.body)
    assert (answer.status, "generateName" in answer.metadata) == (200, False)
    assert "ownerReferences" in answer.metadata


async def protected_and_empty(writer: ApiWriter, api: Api) -> ResourceClaim:
    """Return a claim whose status the next allocation replaces: no field is in it."""
    await a_claim(api)
    return readable(await writer.device_claims.protect_claim(await seen(writer, api)))


async def test_a_status_is_not_replaced_after_another_write(api: Api, writer: ApiWriter) -> None:
    claim = await protected_and_empty(writer, api)
    await api.merge(f"{api.at(GROUP, 'resourceclaims')}/a", {"metadata": {"labels": {"new": "1"}}})
    now = await seen(writer, api)
    with pytest.raises(Conflict):
        await writer.device_claims.allocate_claim(claim, PLAIN, FIRST)
    assert await seen(writer, api) == now


async def test_the_status_of_a_namesake_is_not_replaced(api: Api, writer: ApiWriter) -> None:
    claim = await protected_and_empty(writer, api)
    await writer.device_claims.delete_claim(claim)
    with pytest.raises(NotFound):
        await writer.device_claims.allocate_claim(claim, PLAIN, FIRST)
    other = await protected_and_empty(writer, api)
    with pytest.raises(Conflict):
        await writer.device_claims.allocate_claim(claim, PLAIN, FIRST)
    assert await seen(writer, api) == other


async def test_a_replaced_status_whose_answer_is_lost(api: Api, transport: LosingTransport) -> None:
    writer = speaking(transport, "v1")
    claim = await protected_and_empty(writer, api)
    transport.loses = True
    with pytest.raises(Ambiguous):
        await writer.device_claims.allocate_claim(claim, PLAIN, FIRST)
    transport.loses = False
    now = await seen(writer, api)
    assert (now.status.allocation, now.status.reserved_for) == (PLAIN, (FIRST,))
    with pytest.raises(Conflict):
        await writer.device_claims.allocate_claim(claim, PLAIN, FIRST)


async def test_an_allocation_cannot_be_replaced(api: Api, writer: ApiWriter) -> None:
    claim = await allocated(writer, api)
    assert await writer.device_claims.allocate_claim(claim, PLAIN, FIRST) == claim
    other = from_manifest(AllocationResult, allocation(device="d2"))
    with pytest.raises(Invalid, match=r"field is immutable|field cannot be modified once set"):
        await writer.device_claims.allocate_claim(claim, other, FIRST)
    assert await seen(writer, api) == claim


async def test_a_claim_has_at_most_256_users(api: Api, writer: ApiWriter) -> None:
    await allocated(writer, api)
    many = [USER | {"uid": f"u{i}"} for i in range(256)]
    await kept(api, f"{api.at(GROUP, 'resourceclaims')}/a", reservedFor=many)
    full = await seen(writer, api)
    with pytest.raises(Invalid, match="must have at most 256 items"):
        await writer.device_claims.reserve_claim(full, ConsumerReference(resource="pods", name="p", uid="one more"))
    assert await writer.device_claims.reserve_claim(full, FIRST) == full


async def test_users_need_an_allocation(api: Api, writer: ApiWriter) -> None:
    await a_claim(api)
    with pytest.raises(Invalid, match="may not be specified when `allocated` is not set"):
        await writer.device_claims.reserve_claim(await seen(writer, api), FIRST)


async def test_a_claim_that_is_going_gets_nothing(api: Api, writer: ApiWriter) -> None:
    claim = await allocated(writer, api)
    await api("DELETE", f"{api.at(GROUP, 'resourceclaims')}/a")
    going = await seen(writer, api)
    assert going.metadata.deletion_timestamp
    with pytest.raises(Invalid):
        await writer.device_claims.reserve_claim(going, SECOND)
    left = readable(await writer.device_claims.unreserve_claim(claim, "u1"))
    await writer.device_claims.deallocate_claim(left)
    await writer.device_claims.delete_claim(claim)
    assert await writer.device_claims.read_resource_claim(api.ns, "a") is None


# -- claims for extended resources ------------------------------------------------------------------------------------


async def a_pod(api: Api) -> Pod:
    resources = {"requests": {"example.com/gpu": "2"}, "limits": {"example.com/gpu": "2"}}
    containers = [{"name": "c", "image": "registry.example/app:1", "resources": resources}]
    made = await api("POST", api.pods, pod("p", containers=containers))
    assert made.status == 201, made.body
    return from_manifest(Pod, made.body)


EXACT: Object = {
    "name": "container-0-request-0",
    "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
}
OPTION: Object = {"name": "s", "deviceClassName": "gpu"}
ASKED = from_manifest(
    ResourceClaim,
    {
        "metadata": {"name": "<extended-resources>", "uid": "temporary"},
        "spec": {"devices": {"requests": [EXACT, {"name": "f", "firstAvailable": [OPTION]}]}},
    },
)


@pytest.mark.parametrize("version", SPOKEN)
async def test_the_product_makes_a_claim(api: Api, transport: LosingTransport, version: str) -> None:
    owner, writer = await a_pod(api), speaking(transport, version)
    made = readable(await writer.device_claims.create_claim(ASKED, owner, "p-extended-resources-x"))
    assert made.metadata.name == "p-extended-resources-x"
    stored: Answer = await api("GET", f"{api.at(GROUP, 'resourceclaims')}/{made.metadata.name}")
    assert stored.metadata["generateName"] == "p-extended-resources-"
    assert stored.metadata["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert stored.metadata["finalizers"] == [FINALIZER]
    owning = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner.metadata.uid, "controller": True}
    assert stored.metadata["ownerReferences"] == [owning]
    exact, first = stored.body["spec"]["devices"]["requests"]
    assert exact == EXACT
    assert without(first["firstAvailable"][0], "allocationMode", "count") == OPTION
    result = {"request": "container-0-request-0", "driver": "d.x", "pool": "p", "device": "d1"}
    given = from_manifest(AllocationResult, {"devices": {"results": [result]}})
    written = readable(await writer.device_claims.allocate_claim(made, given, FIRST))
    assert written.status.allocation == given
    await writer.device_claims.delete_claim(made)  # although it was written since
    assert await writer.device_claims.read_resource_claim(api.ns, made.metadata.name) is None


async def test_the_product_names_the_claim_in_the_pod_status(api: Api, writer: ApiWriter) -> None:
    owner = await a_pod(api)
    for name in ("one", "two"):
        mapping = ContainerExtendedResourceRequest("c", "example.com/gpu", f"{name}-request")
        await writer.device_claims.set_extended_resource_status(owner, ExtendedResourceClaimStatus(name, (mapping,)))
        told = (await api("GET", f"{api.pods}/p")).body["status"]["extendedResourceClaimStatus"]
        mappings = [{"containerName": "c", "resourceName": "example.com/gpu", "requestName": f"{name}-request"}]
        assert told == {"resourceClaimName": name, "requestMappings": mappings}
    other = msgspec.structs.replace(owner, metadata=Metadata(name="p", namespace=api.ns, uid="zz"))
    with pytest.raises((Conflict, Invalid)):
        await writer.device_claims.set_extended_resource_status(other, ExtendedResourceClaimStatus("x", ()))


async def test_a_claim_that_was_made_unheard(api: Api, transport: LosingTransport) -> None:
    owner, writer = await a_pod(api), speaking(transport, "v1")
    transport.loses = True
    with pytest.raises(Ambiguous):
        await writer.device_claims.create_claim(ASKED, owner, "p-extended-resources-x")
    with pytest.raises(Conflict):
        await writer.device_claims.create_claim(ASKED, owner, "p-extended-resources-x")
    read = readable(await writer.device_claims.read_resource_claim(api.ns, "p-extended-resources-x"))
    assert is_made_for(read, owner)
    found = (await api("GET", api.at(GROUP, "resourceclaims"))).body["items"]
    assert [claim["metadata"]["ownerReferences"][0]["uid"] for claim in found] == [owner.metadata.uid]


async def test_a_claim_is_read_as_it_was_at_a_version(writer: ApiWriter, api: Api) -> None:
    other = await api.pod("earlier")
    before = int(other.body["metadata"]["resourceVersion"])
    given = await allocated(writer, api)
    freed = readable(await writer.device_claims.deallocate_claim(given))

    versions = (before, given.version - 1, given.version, freed.version)
    found = [await writer.device_claims.read_resource_claim_at(api.ns, "a", version) for version in versions]

    assert [isinstance(each, ResourceClaim) and each.is_allocated for each in found] == [False, False, True, False]
    assert found[0] is None


async def test_what_a_claim_was_at_a_version_that_is_forgotten(writer: ApiWriter, api: Api) -> None:
    given = await allocated(writer, api)
    await writer.device_claims.deallocate_claim(given)
    await api.compact()

    with pytest.raises(Gone):
        await writer.device_claims.read_resource_claim_at(api.ns, "a", given.version)
