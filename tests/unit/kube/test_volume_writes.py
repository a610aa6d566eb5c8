"""Writes of volumes, claims and profile status: bodies, preconditions and answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.api.decode import Broken, from_manifest
from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim
from scheduler.core.errors import (
    Ambiguous,
    ApiError,
    Conflict,
    Fenced,
    Forbidden,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from scheduler.kube.rate_limit import Throttle
from scheduler.kube.writes.api_writer import ApiWriter
from scheduler.kube.writes.own_objects import PROFILES
from scheduler.kube.writes.permissions import CLAIM_EVENT_RULES, PROFILE_RULES, VOLUME_RULES, RbacRule
from tests.support.clock import VirtualClock
from tests.unit.kube.scripted import RecordedRequest, ScriptedTransport, WriteBench as Bench, raw

VOLUME_PATH = "/api/v1/persistentvolumes/v"
CLAIM_PATH = "/api/v1/namespaces/ns/persistentvolumeclaims/c"
SELECTED = "volume.kubernetes.io/selected-node"
VOLUME = {"metadata": {"name": "v", "uid": "u-v", "resourceVersion": "5"}, "spec": {"storageClassName": "s"}}
CLAIM = {"metadata": {"name": "c", "namespace": "ns", "uid": "u-c", "resourceVersion": "7"}, "spec": {}}
REF = {
    "kind": "PersistentVolumeClaim",
    "apiVersion": "v1",
    "namespace": "ns",
    "name": "c",
    "uid": "u-c",
    "resourceVersion": "7",
}


def volume(**metadata: object) -> PersistentVolume:
    return from_manifest(PersistentVolume, VOLUME | {"metadata": VOLUME["metadata"] | metadata})


def claim(**metadata: object) -> PersistentVolumeClaim:
    return from_manifest(PersistentVolumeClaim, CLAIM | {"metadata": CLAIM["metadata"] | metadata})


WRITES: Any = [
    pytest.param(lambda writer: writer.prebind_volume(volume(), claim(), marks=True), id="volume"),
    pytest.param(lambda writer: writer.select_node(claim(), "n1"), id="selected node"),
    pytest.param(lambda writer: writer.select_node(claim(), None), id="no selected node"),
]


@pytest.mark.parametrize(("write", "path", "annotations", "rest"), [
    pytest.param(lambda w: w.prebind_volume(volume(), claim(), marks=True), VOLUME_PATH,
        {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}, {"spec": {"claimRef": REF}},
        id="U3 bound and marked"),
    pytest.param(lambda w: w.prebind_volume(volume(), claim(), marks=False), VOLUME_PATH, {},
        {"spec": {"claimRef": REF}}, id="U3 not marked: the user chose the claim"),
    pytest.param(lambda w: w.select_node(claim(), "n1"), CLAIM_PATH, {"annotations": {SELECTED: "n1"}}, {},
        id="U6 a node is selected"),
    pytest.param(lambda w: w.select_node(claim(), None), CLAIM_PATH, {"annotations": {SELECTED: None}}, {},
        id="no node is selected: null removes"),
])  # fmt: skip
async def test_changes(write, path, annotations, rest):
    """The fields that are meant, both preconditions, and nothing else."""
    bench = Bench(raw({"metadata": {"name": "x", "namespace": "ns", "resourceVersion": "9"}, "spec": {}}))
    written = await write(bench.writer)

    seen = (VOLUME if path == VOLUME_PATH else CLAIM)["metadata"]
    metadata = {"uid": seen["uid"], "resourceVersion": seen["resourceVersion"]} | annotations
    body, patch = {"metadata": metadata} | rest, "application/merge-patch+json"
    assert [RecordedRequest("PATCH", path, {"fieldManager": "kubestow"}, body, patch)] == bench.recorded
    assert isinstance(written, PersistentVolume if path == VOLUME_PATH else PersistentVolumeClaim)
    assert "9" == written.metadata.resource_version


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda w, lacks: w.prebind_volume(volume(**lacks), claim(), marks=True), id="volume"),
        pytest.param(lambda w, lacks: w.select_node(claim(**lacks), "n1"), id="claim"),
    ],
)
@pytest.mark.parametrize("lacks", [{"resourceVersion": ""}, {"uid": ""}])
async def test_without_a_precondition_nothing_is_sent(write, lacks):
    bench = Bench(raw({}))
    with pytest.raises(Conflict, match="no uid or no resourceVersion"):
        await write(bench.writer, lacks)

    assert [] == bench.transport.recorded


async def test_reading_and_the_permissions_of_all_requests():
    unreadable = raw({"metadata": {"name": "x"}, "spec": 3})
    gone = NotFound("gone", status=404)
    bench = Bench(raw(VOLUME), gone, unreadable, raw(CLAIM), gone, unreadable)
    volumes = [await bench.writer.read_volume("v") for _ in range(3)]
    claims = [await bench.writer.read_claim("ns", "c") for _ in range(3)]

    assert [volume(), None, Broken] == [*volumes[:2], type(volumes[2])]
    assert [claim(), None, Broken] == [*claims[:2], type(claims[2])]
    assert [VOLUME_PATH] * 3 + [CLAIM_PATH] * 3 == bench.transport.paths("GET")
    for write in WRITES:
        await write.values[0](bench.writer)
    assert sorted(VOLUME_RULES) == sorted({recorded.rule for recorded in bench.recorded})


def owned(*managers: str, field: str = SELECTED, annotations: object = None) -> bytes:
    """A claim as a server shows it, with other managers of other fields."""
    entries = [
        {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:resources": {}}}},
        {"manager": "labeller", "fieldsV1": {"f:metadata": {"f:labels": {f"f:{SELECTED}": {}}}}},
        {"manager": "odd", "fieldsV1": {"f:metadata": 3}},
        {"manager": "empty", "fieldsV1": None},
        *(
            {"manager": who, "operation": "Update", "fieldsV1": {"f:metadata": {"f:annotations": {f"f:{field}": {}}}}}
            for who in managers
        ),
    ]
    metadata = CLAIM["metadata"] | {"annotations": {SELECTED: "n1"} if annotations is None else annotations}
    return raw(CLAIM | {"metadata": metadata | {"managedFields": entries}})


@pytest.mark.parametrize(
    ("answer", "owner"),
    [
        pytest.param(owned("kubestow"), "kubestow", id="ours"),
        pytest.param(owned("kube-scheduler"), "kube-scheduler", id="theirs"),
        pytest.param(owned("kubestow", "kubectl-annotate"), "kubectl-annotate", id="our manager and another one"),
        pytest.param(owned("kubestow", field="other"), None, id="another annotation of ours"),
        pytest.param(owned("kubestow", annotations={}), None, id="no annotation any more"),
        pytest.param(raw(CLAIM), None, id="a server that keeps no books"),
        pytest.param(raw({"metadata": 3}), None, id="unreadable"),
        pytest.param(NotFound("gone", status=404), None, id="gone"),
    ],
)
async def test_whose_the_selected_node_is(answer, owner):
    """It is ours only if no other manager owns it."""
    bench = Bench(answer)

    assert owner == await bench.writer.claim_written_by("ns", "c")
    assert [CLAIM_PATH] == bench.transport.paths("GET")


# -- what was said of a claim -----------------------------------------------------------------------------------------

FAILED = {"type": "Warning", "reason": "ProvisioningFailed", "message": "disk full"}
SAID = FAILED | {"lastTimestamp": "2026-01-02T03:04:05Z"}


async def test_the_last_event_of_a_claim():
    """B-21 Selected by the claim's uid on the server, with a limit; listing events is a separate permission."""
    bench = Bench(raw({"items": [SAID]}))
    said = await bench.writer.last_event(claim(), provisioner="p", besides=())

    query = {"fieldSelector": "involvedObject.uid=u-c", "limit": "500"}
    assert "ProvisioningFailed at 2026-01-02T03:04:05Z: disk full" == said
    assert [RecordedRequest("GET", "/api/v1/namespaces/ns/events", query)] == bench.recorded
    assert (RbacRule("", "events", "list"),) == CLAIM_EVENT_RULES


async def test_a_claim_without_a_uid_has_no_events():
    """An empty one would select those of everything that has none."""
    bench = Bench(raw({"items": [SAID]}))

    assert await bench.writer.last_event(claim(uid=""), provisioner="p", besides=()) is None
    assert [] == bench.transport.recorded


@pytest.mark.parametrize("error", [Forbidden("no", status=403), NotFound("no", status=404), Unavailable("down")])
async def test_events_that_cannot_be_read(error):
    with pytest.raises(type(error)):
        await Bench(error).writer.last_event(claim(), provisioner="p", besides=())


async def test_a_question_for_events_waits_behind_bindings():
    clock = VirtualClock()
    throttle = Throttle(clock, qps=1.0, burst=1)
    transport = ScriptedTransport(answers=[raw({"items": [SAID]}), raw(CLAIM)])
    writer = ApiWriter(transport, throttle, clock)
    await throttle.take()
    asking = [asyncio.create_task(writer.last_event(claim(), provisioner="p", besides=())) for _ in range(2)]
    await clock.settle()
    written = asyncio.create_task(writer.select_node(claim(), "n1"))
    await clock.settle()
    asking[0].cancel()
    await clock.advance(1.0)

    assert ["PATCH"] == [recorded.method for recorded in transport.recorded]
    await clock.advance(1.0)
    await asyncio.gather(asking[1], written)
    assert ["PATCH", "GET"] == [recorded.method for recorded in transport.recorded]


# -- the status of a profile ------------------------------------------------------------------------------------------

SEEN: dict[str, Any] = {"metadata": {"name": "kubestow", "uid": "u1", "resourceVersion": "7", "labels": {"a": "b"}}}
STATUS = {"observedGeneration": 3, "inForceGeneration": None}


async def test_only_the_status_is_changed_and_only_of_this_very_state() -> None:
    now = SEEN | {"status": STATUS}
    bench = Bench(raw(now))

    assert await bench.profiles.write_profile_status(SEEN, STATUS) == now

    path = "/apis/kubestow.dev/v1alpha1/schedulerprofiles/kubestow/status"
    body = {"metadata": {"uid": "u1", "resourceVersion": "7"}, "status": STATUS}
    patch = RecordedRequest("PATCH", path, {"fieldManager": "kubestow"}, body, "application/merge-patch+json")
    assert [patch] == bench.recorded
    assert (path, PROFILE_RULES) == (f"{PROFILES}/kubestow/status", (patch.rule,))


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Conflict("modified", status=409), id="another client wrote"),
        pytest.param(NotFound("gone", status=404), id="gone"),
        pytest.param(Ambiguous("cut"), id="a lost answer"),
        pytest.param(TooManyRequests("busy", status=429, retry_after_s=1.0), id="a busy server"),
    ],
)
async def test_it_is_sent_once_and_not_at_all_by_a_standby(error: ApiError) -> None:
    """The leader writes the same status."""
    bench = Bench(error)
    with pytest.raises(type(error)):
        await bench.profiles.write_profile_status(SEEN, STATUS)
    bench.until_s = 0
    with pytest.raises(Fenced):
        await bench.profiles.write_profile_status(SEEN, STATUS)

    assert (1, False) == (len(bench.recorded), bench.profiles.may_write())


@pytest.mark.parametrize("lacking", ["uid", "resourceVersion"])
async def test_without_anything_to_compare_nothing_is_sent(lacking: str) -> None:
    bench = Bench()
    with pytest.raises(Conflict):
        await bench.profiles.write_profile_status({"metadata": SEEN["metadata"] | {lacking: ""}}, STATUS)

    assert bench.recorded == []
