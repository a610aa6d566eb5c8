"""Writes of claims for devices: what they say, on which condition, and what is made of the answer."""

import asyncio
from typing import Any

import msgspec
import pytest

from scheduler.api.core_v1 import (
    ContainerExtendedResourceRequest,
    ExtendedResourceClaimStatus,
)
from scheduler.api.decode import Broken, from_manifest
from scheduler.api.quantity import parse
from scheduler.api.resource_v1 import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.core.errors import (
    Ambiguous,
    Conflict,
    Fenced,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.writes import claim_protobuf as protobuf
from scheduler.kube.writes.api_writer import ApiWriter
from scheduler.kube.writes.permissions import DEVICE_RULES, EXTENDED_RESOURCE_RULES, WRITES as ALWAYS, RbacRule
from simulator.builders.claims import a_claim, an_option
from simulator.builders.core import pod
from tests.support.clock import VirtualClock
from tests.unit.kube.scripted import RecordedRequest, ScriptedTransport, WriteBench as Bench, raw
from tests.unit.kube.test_volume_writes import WRITES as VOLUME_WRITES
from tests.unit.kube.test_writes import FENCED_WRITES

PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c"
MERGE, STRATEGIC, JSON = (f"application/{kind}+json" for kind in ("merge-patch", "strategic-merge-patch", "json-patch"))
FINALIZER = "resource.kubernetes.io/delete-protection"
USER = ConsumerReference(resource="pods", name="p", uid="u1")
OTHER = ConsumerReference(resource="pods", name="p", uid="u9")
AS_SENT = {"resource": "pods", "name": "p", "uid": "u1"}
SEEN = {"uid": "u-c", "resourceVersion": "7"}


def op(name: str, path: str, value: object) -> dict[str, Any]:
    return {"op": name, "path": path, "value": value}


UNCHANGED = [
    op("replace", "/metadata/uid", "u-c"),
    op("replace", "/metadata/resourceVersion", "7"),
]
NOT_SO = Invalid("the server rejected our request due to an error in our request", status=422)
"""The answer to a `test` that failed."""
GONE = NotFound("gone", status=404)
IMMUTABLE = Invalid("field is immutable", status=422)
RESULT = {"request": "r", "driver": "d", "pool": "p", "device": "x"}


MANIFEST = {
    "metadata": {"name": "c", "namespace": "default", **SEEN},
    "spec": a_claim("c").request("r", "gpu").obj()["spec"],
}
WRITTEN = raw(MANIFEST)


def claim(*users: str, **metadata: object) -> ResourceClaim:
    return from_manifest(ResourceClaim, manifest(*users, **metadata))


def manifest(*users: str, **metadata: object) -> dict[str, Any]:
    reserved = [{"resource": "pods", "name": "p", "uid": user} for user in users]
    return MANIFEST | {"metadata": MANIFEST["metadata"] | metadata, "status": {"reservedFor": reserved}}


PLAIN = from_manifest(AllocationResult, {"devices": {"results": [RESULT]}})
OWNER = pod("p").uid("u-p").typed()
TOLD = ExtendedResourceClaimStatus("c", (ContainerExtendedResourceRequest("a", "example.com/gpu", "r"),))
CHANGES = [
    pytest.param(lambda w, c: w.device_claims.protect_claim(c), id="protect"),
    pytest.param(lambda w, c: w.device_claims.allocate_claim(c, PLAIN, USER), id="allocate"),
    pytest.param(lambda w, c: w.device_claims.reserve_claim(c, USER), id="reserve"),
    pytest.param(lambda w, c: w.device_claims.deallocate_claim(c), id="deallocate"),
]
REMOVALS = [
    pytest.param(lambda w, c: w.device_claims.unreserve_claim(c, "u1"), id="release"),
    pytest.param(lambda w, c: w.device_claims.delete_claim(c), id="delete"),
]
ANSWERING = [
    *CHANGES,
    REMOVALS[0],
    pytest.param(lambda w, c: w.device_claims.create_claim(c, OWNER, "p-extended-resources-x"), id="create"),
]
EVERY = [
    *ANSWERING,
    REMOVALS[1],
    pytest.param(
        lambda w, c: w.device_claims.set_extended_resource_status(OWNER, TOLD), id="write the status of the pod"
    ),
]


@pytest.mark.parametrize(
    ("write", "subresource", "body"),
    [
        pytest.param(
            CHANGES[0].values[0],
            "",
            {"metadata": SEEN | {"finalizers": [FINALIZER]}},
            id="protect",
        ),
        pytest.param(
            CHANGES[1].values[0],
            "/status",
            [
                *UNCHANGED,
                op("add", "/status/allocation", {"devices": {"results": [RESULT]}}),
                op("add", "/status/reservedFor", [AS_SENT]),
            ],
            id="allocate: devices and the first user in one write",
        ),
        pytest.param(
            CHANGES[2].values[0],
            "/status",
            [*UNCHANGED, op("replace", "/status/reservedFor/1", AS_SENT)],
            id="reserve: the user is there already",
        ),
        pytest.param(
            lambda w, c: w.device_claims.reserve_claim(c, OTHER),
            "/status",
            [*UNCHANGED, op("add", "/status/reservedFor/-", AS_SENT | {"uid": "u9"})],
            id="reserve: another user",
        ),
        pytest.param(
            lambda w, c: w.device_claims.reserve_claim(claim(), USER),
            "/status",
            [*UNCHANGED, op("add", "/status/reservedFor", [AS_SENT])],
            id="reserve: the first user",
        ),
        pytest.param(
            ANSWERING[4].values[0],
            "/status",
            [
                op("test", "/metadata/uid", "u-c"),
                op("test", "/status/reservedFor/1/uid", "u1"),
                {"op": "remove", "path": "/status/reservedFor/1"},
            ],
            id="release: the uids of claim and user",
        ),
        pytest.param(
            CHANGES[3].values[0],
            "/status",
            {"metadata": SEEN, "status": {"allocation": None, "reservedFor": None, "devices": None}},
            id="deallocate",
        ),
    ],
)
@pytest.mark.parametrize("version", ["v1", "v1beta2"])
async def test_changes(write, subresource, body, version):
    """The fields that are meant, their preconditions, and nothing else; where the server has claims."""
    bench = Bench(WRITTEN, version=version)
    written = await write(bench.writer, claim("u0", "u1", finalizers=["x.y/z"]))

    where = PATH.replace("/v1/", f"/{version}/", 1) + subresource
    content_type = JSON if isinstance(body, list) else MERGE if subresource else STRATEGIC
    assert [RecordedRequest("PATCH", where, {"fieldManager": "kubestow"}, body, content_type)] == bench.recorded
    assert isinstance(written, ResourceClaim)
    assert "c" == written.metadata.name


PROTECTED = manifest(finalizers=[FINALIZER], resourceVersion="8", generateName="c-", managedFields=[{"manager": "x"}])


@pytest.mark.parametrize(("stored", "changed_to", "method"), [
    pytest.param({"status": {}}, "8", "PUT", id="an empty status"),
    pytest.param({"status": None}, "8", "PUT", id="null"),
    pytest.param({}, "8", "PUT", id="no status"),
    pytest.param({"status": {"later": {"than": "1.38"}}}, "8", "PATCH", id="a field that this scheduler does not know"),
    pytest.param({"status": {"reservedFor": [AS_SENT]}}, "8", "PATCH", id="users"),
    pytest.param({"status": {}}, "9", "PATCH", id="written since"),
    pytest.param({"metadata": PROTECTED["metadata"] | {"annotations": {"a": "b" * 5_000}}}, "8", "PATCH",
        id="much metadata"),
])  # fmt: skip
@pytest.mark.parametrize("version", ["v1", "v1beta2"])
async def test_a_status_is_replaced_only_if_the_stored_one_is_empty(stored, changed_to, method, version):
    """An update replaces the whole status, so nothing may be in it; a patch does not touch what it does not name."""
    answer = {key: value for key, value in PROTECTED.items() if key != "status"} | stored
    bench = Bench(raw(answer), WRITTEN, version=version)
    await bench.writer.device_claims.protect_claim(claim())
    seen = claim(finalizers=[FINALIZER], resourceVersion=changed_to)
    await bench.writer.device_claims.allocate_claim(seen, PLAIN, USER)

    written, where = bench.recorded[1], PATH.replace("/v1/", f"/{version}/", 1) + "/status"
    assert (method, where) == (written.method, written.path)
    if method == "PUT":
        assert msgspec.json.decode(written.body) == {
            "apiVersion": f"resource.k8s.io/{version}",
            "kind": "ResourceClaim",
            "metadata": {key: value for key, value in PROTECTED["metadata"].items() if key != "managedFields"},
            "status": {"allocation": {"devices": {"results": [RESULT]}}, "reservedFor": [AS_SENT]},
        }


@pytest.mark.parametrize("refusal", [
    pytest.param(Conflict("modified", status=409), id="conflict"),
    pytest.param(Ambiguous("connection lost"), id="lost answer"),
    pytest.param(IMMUTABLE, id="invalid"),
    pytest.param(Forbidden("no", status=403), id="forbidden"),
])  # fmt: skip
async def test_a_status_that_could_not_be_replaced(refusal):
    bench = Bench(raw(PROTECTED | {"status": {}}), refusal)
    protected = await bench.writer.device_claims.protect_claim(claim())
    assert isinstance(protected, ResourceClaim)
    with pytest.raises(type(refusal)) as caught:
        await bench.writer.device_claims.allocate_claim(protected, PLAIN, USER)

    assert caught.value is refusal
    assert ["PATCH", "PUT"] == [recorded.method for recorded in bench.transport.recorded]


@pytest.mark.parametrize("answer", [b"{}", b"not JSON", raw(PROTECTED | {"status": 3}), raw(PROTECTED | {"spec": 3})])
async def test_an_unreadable_answer_to_the_protection_is_no_error(answer):
    bench = Bench(answer)
    assert isinstance(await bench.writer.device_claims.protect_claim(claim()), Broken)


async def test_a_claim_with_parameters_is_protected_by_a_patch_that_keeps_them():
    """A strategic merge patch would rewrite them."""
    bench = Bench(WRITTEN)
    await bench.writer.device_claims.protect_claim(
        msgspec.structs.replace(claim(finalizers=["x.y/z"]), spec=WITH_PARAMETERS.spec)
    )

    body = [*UNCHANGED, op("add", "/metadata/finalizers", ["x.y/z", FINALIZER])]
    assert [RecordedRequest("PATCH", PATH, {"fieldManager": "kubestow"}, body, JSON)] == bench.recorded


PARAMETERS = {"kind": "X", "none": None, "list": [None, {"none": None}], "float": 1.5, "large": 2**70}


async def test_everything_of_an_allocation():
    allocation: Any = {
        "devices": {
            "results": [
                RESULT
                | {
                    "adminAccess": False,
                    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}],
                    "bindingConditions": ["ready"],
                    "bindingFailureConditions": ["failed"],
                    "shareID": "s",
                    "consumedCapacity": {"memory": "1073741824", "cpu": "1.5", "none": "0"},
                },
                RESULT | {"device": "y"},
            ],
            "config": [
                {"source": "FromClass", "requests": ["r"], "opaque": {"driver": "d", "parameters": PARAMETERS}},
                {"source": "FromClaim", "opaque": {"driver": "d", "parameters": {}}},
            ],
        },
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]},
        "allocationTimestamp": "2026-01-02T03:04:05Z",
    }  # fmt: skip
    bench = Bench(WRITTEN)
    decided = msgspec.json.decode(raw(allocation), type=AllocationResult, dec_hook=lambda _, given: parse(given))
    await bench.writer.device_claims.allocate_claim(claim(), decided, USER)

    (_, _, added, _) = bench.transport.recorded[0].body
    spelled = {"memory": "1Gi", "cpu": "1500m", "none": "0"}
    allocation["devices"]["results"][0]["consumedCapacity"] = spelled
    assert allocation == added["value"]


TWO_GPUS = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
async def test_a_claim_for_extended_resources(version):
    """Named as a server would, owned by the pod, marked, protected; of the source only the requests are copied."""
    asked_for = a_claim("<extended-resources>").request("r", "gpu", count=2).first_available("f", an_option("o", "x"))
    made_from = msgspec.structs.replace(asked_for.typed(), metadata=claim(labels={"a": "b"}).metadata)
    bench = Bench(WRITTEN, version=version)
    await bench.writer.device_claims.create_claim(made_from, OWNER, "p-extended-resources-x")

    (recorded,) = bench.transport.recorded
    collection = f"/apis/resource.k8s.io/{version}/namespaces/default/resourceclaims"
    assert ("POST", collection, {"fieldManager": "kubestow"}) == (recorded.method, recorded.path, recorded.query)
    option = asked_for.obj()["spec"]["devices"]["requests"][1]["firstAvailable"]
    requests = [{"name": "r", "exactly": TWO_GPUS}, {"name": "f", "firstAvailable": option}]
    assert requests == recorded.body.pop("spec")["devices"]["requests"]
    assert recorded.body == {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": "default",
            "name": "p-extended-resources-x",
            "generateName": "p-extended-resources-",
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "finalizers": [FINALIZER],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-p", "controller": True}],
        },
    }


async def test_a_deletion_is_two_writes():
    """The finalizer, then the claim, of this uid; the version is not checked."""
    bench = Bench(WRITTEN, b"{}")
    await bench.writer.device_claims.delete_claim(claim(resourceVersion="", finalizers=["x.y/z", FINALIZER]))

    lifted = [
        op("test", "/metadata/uid", "u-c"),
        op("test", "/metadata/finalizers/1", FINALIZER),
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]
    assert bench.recorded == [
        RecordedRequest("PATCH", PATH, {"fieldManager": "kubestow"}, lifted, JSON),
        RecordedRequest("DELETE", PATH, {}, {"preconditions": {"uid": "u-c"}}),
    ]


@pytest.mark.parametrize(("answers", "requests"), [
    pytest.param([GONE], 1, id="gone"),
    pytest.param([NOT_SO, raw(manifest(uid="other"))], 2, id="a namesake"),
    pytest.param([NOT_SO, GONE], 2, id="gone between the patch and the read"),
    pytest.param([NOT_SO, raw(manifest()), GONE], 3, id="another writer removed the finalizer"),
    pytest.param([WRITTEN, GONE], 2, id="gone with its finalizer"),
    pytest.param([WRITTEN, Conflict("the uid does not match", status=409)], 2, id="a new claim of the same name"),
])  # fmt: skip
async def test_nothing_to_delete(answers, requests):
    bench = Bench(*answers)
    await bench.writer.device_claims.delete_claim(claim(finalizers=[FINALIZER]))

    assert requests == len(bench.transport.recorded)


async def test_the_status_of_the_pod_is_written():
    bench = Bench(b"{}")
    await bench.writer.device_claims.set_extended_resource_status(OWNER, TOLD)

    mapping = {"containerName": "a", "resourceName": "example.com/gpu", "requestName": "r"}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": [mapping]}}
    path, body = "/api/v1/namespaces/default/pods/p/status", {"metadata": {"uid": "u-p"}, "status": status}
    assert [RecordedRequest("PATCH", path, {"fieldManager": "kubestow"}, body, STRATEGIC)] == bench.recorded


def _without_claim(writes: list[Any]) -> Any:
    """Writes that take no claim for devices, called like those that do."""
    return [pytest.param(lambda writer, _, write=each.values[0]: write(writer), id=each.id) for each in writes]


VOLUMES = _without_claim(VOLUME_WRITES)
HELD = claim("u1", finalizers=[FINALIZER])
"""With the user and the finalizer that the writes below remove."""


@pytest.mark.parametrize("write", [*EVERY, *VOLUMES])
@pytest.mark.parametrize("refusal", [
    pytest.param(Ambiguous("connection lost"), id="lost answer"),
    pytest.param(Unavailable("no way", status=500), id="unavailable"),
    pytest.param(TooManyRequests("busy"), id="busy"),
    pytest.param(TooManyRequests("busy", retry_after_s=1.0), id="busy with a wish"),
    pytest.param(Forbidden("no", status=403), id="forbidden"),
    pytest.param(Conflict("modified", status=409), id="conflict"),
])  # fmt: skip
async def test_no_refusal_is_tried_again(write, refusal):
    bench = Bench(refusal)
    with pytest.raises(type(refusal)) as caught:
        await write(bench.writer, HELD)

    assert caught.value is refusal
    assert 1 == len(bench.transport.recorded)
    assert [] == bench.clock.slept


@pytest.mark.parametrize("write", [*CHANGES, EVERY[5], EVERY[7], *VOLUMES])
@pytest.mark.parametrize(
    "refusal", [IMMUTABLE, GONE, Unauthorized("expired", status=401)], ids=["invalid", "gone", "unauthorized"]
)
async def test_an_invalid_write_is_not_tried_again(write, refusal):
    bench = Bench(refusal)
    with pytest.raises(type(refusal)) as caught:
        await write(bench.writer, HELD)

    assert caught.value is refusal
    assert 1 == len(bench.transport.recorded)


@pytest.mark.parametrize("write", REMOVALS)
async def test_an_invalid_removal_is_looked_at(write):
    bench = Bench(IMMUTABLE, raw(manifest("u1", finalizers=[FINALIZER])))
    with pytest.raises(Invalid) as caught:
        await write(bench.writer, HELD)

    assert caught.value is IMMUTABLE
    assert ["PATCH", "GET"] == [recorded.method for recorded in bench.transport.recorded]


MOVED = manifest("u0", "u1", finalizers=["x.y/z", FINALIZER], resourceVersion="8")


@pytest.mark.parametrize(("write", "path"), [
    pytest.param(REMOVALS[0].values[0], "/status/reservedFor/1", id="release"),
    pytest.param(REMOVALS[1].values[0], "/metadata/finalizers/1", id="delete"),
])  # fmt: skip
async def test_an_item_that_has_moved_is_removed_where_it_is(write, path):
    bench = Bench(NOT_SO, raw(MOVED), WRITTEN, b"{}")
    await write(bench.writer, HELD)

    _, read, removed, *_ = bench.transport.recorded
    assert ("GET", PATH) == (read.method, read.path)
    assert {"op": "remove", "path": path} == removed.body[-1]


@pytest.mark.parametrize(("answers", "caught"), [
    pytest.param([NOT_SO, raw(manifest("u1", uid="other"))], Conflict, id="a namesake"),
    pytest.param([NOT_SO, GONE], NotFound, id="gone"),
    pytest.param([NOT_SO, raw({"metadata": SEEN | {"name": "c"}, "spec": 3})], Invalid, id="unreadable"),
    pytest.param([answer for n in range(5) for answer in (NOT_SO, raw(manifest("u1", resourceVersion=str(n + 8))))],
        Conflict, id="changed again and again"),
])  # fmt: skip
async def test_a_release_that_cannot_be(answers, caught):
    bench = Bench(*answers)
    with pytest.raises(caught):
        await bench.writer.device_claims.unreserve_claim(HELD, "u1")

    assert len(answers) == len(bench.transport.recorded)


@pytest.mark.parametrize("seen", [pytest.param(claim(), id="not seen there"), pytest.param(HELD, id="seen there")])
async def test_a_user_that_is_not_there_needs_no_release(seen):
    bench = Bench(*([NOT_SO] if seen is HELD else []), raw(manifest("u0", resourceVersion="8")))
    released = await bench.writer.device_claims.unreserve_claim(seen, "u1")

    assert claim("u0", resourceVersion="8") == released


@pytest.mark.parametrize("write", CHANGES)
@pytest.mark.parametrize("lacks", [{"resourceVersion": ""}, {"uid": ""}])
async def test_without_a_precondition_nothing_is_sent(write, lacks):
    bench = Bench(WRITTEN)
    with pytest.raises(Conflict, match="no uid or no resourceVersion"):
        await write(bench.writer, claim(**lacks))

    assert [] == bench.transport.recorded


@pytest.mark.parametrize("write", [ANSWERING[4], EVERY[6]])
async def test_without_a_uid_nothing_is_sent(write):
    """It would be said of any claim of that name."""
    bench = Bench(WRITTEN)
    with pytest.raises(Conflict, match="no uid"):
        await write(bench.writer, claim(uid=""))

    assert [] == bench.transport.recorded


# -- claims that take no patch ----------------------------------------------------------------------------------------

OPAQUE = {"config": [{"opaque": {"driver": "d", "parameters": {"a": 1}}}]}
WITH_PARAMETERS = msgspec.structs.replace(
    HELD, spec=from_manifest(ResourceClaim, MANIFEST | {"spec": {"devices": MANIFEST["spec"]["devices"] | OPAQUE}}).spec
)
IN_FULL = raw(manifest("u1", finalizers=[FINALIZER]) | {"spec": {"devices": MANIFEST["spec"]["devices"] | OPAQUE}})


def in_protobuf(uid: str = "u-c", version: str = "7") -> bytes:
    metadata = protobuf.message(5, uid.encode()) + protobuf.message(6, version.encode())
    spec = protobuf.message(2, b'{"a": 1}')
    users = protobuf.message(2, protobuf.message(4, b"p") + protobuf.message(5, b"u1"))
    claim = protobuf.message(1, metadata + protobuf.message(14, FINALIZER.encode())) + spec + protobuf.message(3, users)
    return protobuf.envelope_of("resource.k8s.io/v1", "ResourceClaim", claim)


def decoded(envelope: bytes) -> tuple[list[str], list[str], bytes]:
    """Finalizers, users and spec."""
    claim = protobuf.opened(envelope)
    metadata, spec, status = (protobuf.first(claim, number) for number in (1, 2, 3))
    finalizers = [each.decode() for each in protobuf.every(metadata, 14)]
    return finalizers, [protobuf.first(user, 5).decode() for user in protobuf.every(status, 2)], spec


@pytest.mark.parametrize(("write", "subresource", "finalizers", "users"), [
    pytest.param(CHANGES[0].values[0], "", [FINALIZER], ["u1"], id="protect"),
    pytest.param(lambda w, c: w.device_claims.reserve_claim(c, OTHER), "/status", [FINALIZER], ["u1", "u9"],
        id="reserve"),
    pytest.param(CHANGES[2].values[0], "/status", [FINALIZER], ["u1"], id="reserve: the user is there already"),
    pytest.param(REMOVALS[0].values[0], "/status", [FINALIZER], [], id="release"),
    pytest.param(REMOVALS[1].values[0], "", [], ["u1"], id="delete"),
])  # fmt: skip
async def test_a_claim_that_takes_no_patch_is_written_in_protobuf(write, subresource, finalizers, users):
    reads = [IN_FULL] if not users or not finalizers else []
    bench = Bench(IMMUTABLE, *reads, in_protobuf(), WRITTEN, b"{}")
    await write(bench.writer, WITH_PARAMETERS)

    patched, *_, read, put = bench.transport.recorded[: 3 + len(reads)]
    assert ("PATCH", "GET", "PUT") == (patched.method, read.method, put.method)
    assert (PATH, PATH + subresource) == (read.path, put.path)
    assert [protobuf.CONTENT_TYPE] * 2 == [read.content_type, put.content_type]
    assert (finalizers, users, b'{"a": 1}') == decoded(put.body)
    assert ("u-c", "7") == protobuf.seen(put.body)


@pytest.mark.parametrize("write", [CHANGES[0], CHANGES[2]])
@pytest.mark.parametrize(("answer", "caught"), [
    pytest.param(in_protobuf(version="8"), Conflict, id="written since"),
    pytest.param(in_protobuf(uid="other"), Conflict, id="a namesake"),
    pytest.param(GONE, NotFound, id="gone"),
    pytest.param(IN_FULL, Invalid, id="JSON instead of protobuf"),
    pytest.param(in_protobuf()[:-3], Invalid, id="cut off"),
    pytest.param(Unavailable("no way", status=500), Unavailable, id="unavailable"),
])  # fmt: skip
async def test_a_claim_that_cannot_be_written_in_protobuf(write, answer, caught):
    bench = Bench(IMMUTABLE, answer)
    with pytest.raises(caught):
        await write(bench.writer, WITH_PARAMETERS)

    assert ["PATCH", "GET"] == [recorded.method for recorded in bench.transport.recorded]


@pytest.mark.parametrize("refusal", [Conflict("modified"), Ambiguous("lost"), IMMUTABLE, Forbidden("no")], ids=repr)
async def test_a_put_that_is_refused(refusal):
    bench = Bench(IMMUTABLE, in_protobuf(), refusal)
    with pytest.raises(type(refusal)):
        await bench.writer.device_claims.protect_claim(WITH_PARAMETERS)

    assert ["PATCH", "GET", "PUT"] == [recorded.method for recorded in bench.transport.recorded]


async def test_a_release_in_protobuf_that_comes_too_late():
    tries = [answer for _ in range(5) for answer in (IMMUTABLE, IN_FULL, in_protobuf(), Conflict("modified"))]
    bench = Bench(*tries)
    with pytest.raises(Conflict, match="changed 5 times"):
        await bench.writer.device_claims.unreserve_claim(WITH_PARAMETERS, "u1")

    assert len(tries) == len(bench.transport.recorded)


@pytest.mark.parametrize("write", [*ANSWERING, *VOLUMES])
async def test_an_answer_that_cannot_be_read(write):
    bench = Bench(raw({"metadata": {"name": "x", "namespace": "ns", "resourceVersion": "9"}, "spec": 3}))
    written = await write(bench.writer, HELD)

    assert isinstance(written, Broken)
    assert ("ns/x", "9") == (written.key, written.metadata.resource_version)
    assert written.kind in {"ResourceClaim", "PersistentVolume", "PersistentVolumeClaim"}
    assert "$.spec" in written.why


@pytest.mark.parametrize("write", [*EVERY, *VOLUMES, *_without_claim(FENCED_WRITES)])
@pytest.mark.parametrize("is_late", [False, True])
async def test_behind_the_fence_nothing_leaves(write, is_late):
    """Also when the fence falls late: the transport may have to connect first, or to renew its credentials."""
    bench = Bench(WRITTEN)
    bench.until_s = bench.clock.now() + is_late
    bench.transport.on_the_way = lambda: setattr(bench.clock, "time_s", bench.until_s)
    with pytest.raises(Fenced):
        await write(bench.writer, HELD)

    assert [] == bench.transport.recorded


@pytest.mark.parametrize("write", [*EVERY, *VOLUMES])
async def test_a_write_takes_a_token_and_goes_before_events(write):
    clock = VirtualClock()
    throttle = Throttle(clock, qps=1.0, burst=1)
    transport = ScriptedTransport(answers=[WRITTEN] * 3)
    writer = ApiWriter(transport, throttle, clock)
    await throttle.take()
    event = asyncio.create_task(writer.create_event("ns", b"{}"))
    await clock.settle()
    written = asyncio.create_task(write(writer, HELD))
    await clock.settle()
    assert [] == transport.recorded
    await clock.advance(1.0)
    assert "/api/v1/namespaces/ns/events" not in transport.paths("POST")
    assert 1 == len(transport.recorded)
    await clock.advance(2.0)
    await asyncio.gather(event, written)

    assert transport.recorded[-1].path.endswith("/events")


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
async def test_reading(version):
    bench = Bench(raw(MANIFEST), GONE, raw({"metadata": {"name": "x"}, "spec": 3}), version=version)
    found = [await bench.writer.device_claims.read_resource_claim("default", "c") for _ in range(3)]

    assert [claim(), None, Broken] == [*found[:2], type(found[2])]
    assert [PATH.replace("/v1/", f"/{version}/")] * 3 == bench.transport.paths("GET")


async def test_reading_what_a_claim_was():
    bench = Bench(raw({"kind": "ResourceClaimList", "items": [MANIFEST]}), raw({"items": []}))

    found = [await bench.writer.device_claims.read_resource_claim_at("default", "c", at) for at in (7, 3)]

    assert [claim(), None] == found
    assert [("7", "Exact", "metadata.name=c"), ("3", "Exact", "metadata.name=c")] == [
        tuple(recorded.query[key] for key in ("resourceVersion", "resourceVersionMatch", "fieldSelector"))
        for recorded in bench.transport.recorded
    ]


async def test_the_version_is_read_for_each_write():
    bench = Bench(WRITTEN, WRITTEN, version="v1beta2")
    await bench.writer.device_claims.protect_claim(claim())
    bench.version = "v1"
    await bench.writer.device_claims.protect_claim(claim())

    assert ["v1beta2", "v1"] == [recorded.path.split("/")[3] for recorded in bench.transport.recorded]


async def test_every_request_has_its_permission():
    bench = Bench(*[WRITTEN] * 9)
    writes: list[Any] = [param.values[0] for param in EVERY]
    for write in writes:
        await write(bench.writer, HELD)
    await bench.writer.device_claims.read_resource_claim("default", "c")
    changes: list[Any] = [CHANGES[0].values[0], CHANGES[2].values[0]]
    for change in changes:
        bench.transport.answers = [IMMUTABLE, in_protobuf(), WRITTEN]
        await change(bench.writer, WITH_PARAMETERS)

    used = {recorded.rule for recorded in bench.recorded}
    pods = {rule for rule in used if not rule.group}
    assert pods <= set(ALWAYS)
    binding = {RbacRule("resource.k8s.io", "resourceclaims/binding", verb) for verb in ("patch", "update")}
    assert sorted((*DEVICE_RULES, *EXTENDED_RESOURCE_RULES)) == sorted({*(used - pods), *binding})
