"""The other kinds, deletion, and how Events are found."""

import asyncio
import datetime as dt
from email.utils import parsedate_to_datetime
from urllib.parse import quote

import pytest

from scheduler.api.decode import from_manifest
from scheduler.api.storage_v1 import PersistentVolumeClaim
from scheduler.kube.writes.api_writer import ApiWriter
from tests.contract.conftest import MERGE, PATIENCE_S, Api, Object, denies, missing, modified, pod, refusal
from tests.contract.words import new_event


async def test_a_nodes_spec_and_status(api: Api) -> None:
    path = f"/api/v1/nodes/n-{api.ns}"
    await api("POST", "/api/v1/nodes", {"metadata": {"name": f"n-{api.ns}"}, "status": {"allocatable": {"cpu": "4"}}})
    for key in ("a", "b"):
        body = (await api.patch(path, {"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}})).body
    assert body["spec"]["taints"] == [{"key": "b", "effect": "NoSchedule"}]
    assert (await api.patch(path, {"status": {"allocatable": {"cpu": "5"}}})).body == body
    patch: Object = {"spec": {"unschedulable": True}, "status": {"allocatable": {"cpu": "6", "x.example/gpu": "2"}}}
    body = (await api.patch(f"{path}/status", patch)).body
    assert body["status"]["allocatable"] == {"cpu": "6", "x.example/gpu": "2"}
    assert "unschedulable" not in body["spec"]


async def test_what_kubelets_declare(api: Api) -> None:
    feature, image = "RestartAllContainersOnContainerExits", {"names": ["app@sha256:1", "app:1"], "sizeBytes": 7}
    body: Object = {"metadata": {"name": f"n-{api.ns}"}, "status": {"declaredFeatures": [feature], "images": [image]}}
    created = (await api("POST", "/api/v1/nodes", body)).body
    assert (created["status"]["declaredFeatures"], created["status"]["images"]) == ([feature], [image])
    status = f"/api/v1/nodes/n-{api.ns}/status"
    changed = (await api.patch(status, {"status": {"declaredFeatures": ["Another", feature]}})).body
    assert changed["status"] == created["status"] | {"declaredFeatures": ["Another", feature]}
    assert "declaredFeatures" not in (await api.merge(status, {"status": {"declaredFeatures": None}})).body["status"]
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    container = {"name": "c", "image": "x", "restartPolicy": "Never", "restartPolicyRules": [rule]}
    volume: Object = {"name": "v", "image": {"reference": "y:1", "pullPolicy": "Never"}}
    spec = (await api.pod("a", containers=[container], volumes=[volume], hostUsers=False)).body["spec"]
    assert (spec["containers"][0]["restartPolicyRules"], spec["volumes"][0]) == ([rule], volume)
    assert spec["hostUsers"] is False


async def test_volumes_and_claims(api: Api) -> None:
    volumes, name = "/api/v1/persistentvolumes", f"pv-{api.ns}"
    spec: Object = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    created = (await api("POST", volumes, {"metadata": {"name": name}, "spec": spec})).body
    assert created["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    assert (created["status"]["phase"], created["spec"]["volumeMode"]) == ("Pending", "Filesystem")
    claim_ref = {"name": "c", "namespace": api.ns}
    body = (await api.patch(f"{volumes}/{name}", {"spec": {"claimRef": claim_ref}, "status": {"phase": "Bound"}})).body
    assert (body["spec"]["claimRef"], body["status"]["phase"]) == (claim_ref, "Pending")
    status = (await api.patch(f"{volumes}/{name}/status", {"status": {"phase": "Bound"}})).body["status"]
    assert status["phase"] == "Bound"
    wrong = await api.patch(f"{volumes}/{name}", {"metadata": {"uid": "x", "labels": {"a": "b"}}})
    assert wrong.status == 422
    gone = await api("DELETE", f"{volumes}/{name}")
    assert (gone.status, gone.metadata["deletionGracePeriodSeconds"]) == (200, 0)
    claims = api.at("v1", "persistentvolumeclaims")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = (await api("POST", claims, {"metadata": {"name": "c"}, "spec": spec})).body
    assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert claim["status"] == {"phase": "Pending"}
    selected = {"volume.kubernetes.io/selected-node": "n"}
    assert (await api.merge(f"{claims}/c", {"metadata": {"annotations": selected}})).metadata["annotations"] == selected
    assert (await api.merge(f"{claims}/c", {"spec": {"volumeName": name}})).body["spec"]["volumeName"] == name


async def test_leases(api: Api) -> None:
    leases = api.at("coordination.k8s.io/v1", "leases")
    body: Object = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
    created = await api("PUT", f"{leases}/l", body)
    assert created.status == 201
    blind = await api("PUT", f"{leases}/l", body)
    why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    denies(blind, 422, f'leases.coordination.k8s.io "l" is invalid: {why}')
    taken = created.body | {"spec": {"holderIdentity": "b"}}
    assert (await api("PUT", f"{leases}/l", taken)).status == 200
    late = await api("PUT", f"{leases}/l", taken)
    assert (late.status, late.body["reason"]) == (409, "Conflict")
    assert late.body["details"] == {"name": "l", "group": "coordination.k8s.io", "kind": "leases"}
    gone = await api("DELETE", f"{leases}/l")
    api.succeeded(gone)
    uid = created.metadata["uid"]
    assert gone.body["details"] == {"name": "l", "group": "coordination.k8s.io", "kind": "leases", "uid": uid}


async def test_marked_leases_are_listed_in_all_namespaces(api: Api) -> None:
    leases = api.at("coordination.k8s.io/v1", "leases")
    for name, labels in (("marked", {"kubestow.dev/scheduler-lease": "true"}), ("plain", {"team": "a"})):
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"holderIdentity": "a"}}
        assert (await api("POST", leases, body)).status == 201
    listed = "/apis/coordination.k8s.io/v1/leases?labelSelector=kubestow.dev%2Fscheduler-lease"
    found = [item["metadata"] for item in (await api("GET", listed)).body["items"]]
    assert [each["name"] for each in found if each["namespace"] == api.ns] == ["marked"]
    assert (await api("GET", f"{listed}&limit=50")).status == 200


async def test_a_lease_as_leader_election_writes_it(api: Api) -> None:
    leases = api.at("coordination.k8s.io/v1", "leases")
    spec: Object = {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000001Z",
        "renewTime": "2026-01-01T00:00:02.000000Z",
        "leaseTransitions": 0,
    }
    body: Object = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": spec}
    made = await api("POST", leases, body)
    assert (made.status, made.body["spec"]) == (201, spec)
    details = {"name": "l", "group": "coordination.k8s.io", "kind": "leases"}
    again = await api("POST", leases, body)
    refusal(again, 409, "AlreadyExists", 'leases.coordination.k8s.io "l" already exists', details)
    await api.merge(f"{leases}/l", {"metadata": {"labels": {"x": "y"}}})
    seen = await api("GET", f"{leases}/l")

    free: Object = {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 3}
    precondition: Object = {name: seen.metadata[name] for name in ("uid", "resourceVersion")}
    changed = await api.merge(f"{leases}/l", {"metadata": precondition, "spec": free})
    assert (changed.status, changed.body["spec"], changed.metadata["labels"]) == (200, spec | free, {"x": "y"})
    late = await api.merge(f"{leases}/l", {"metadata": precondition, "spec": spec})
    modified(late, "leases", "l", "coordination.k8s.io")

    await api("DELETE", f"{leases}/l")
    for gone in (
        await api.merge(f"{leases}/l", {"metadata": precondition, "spec": spec}),
        await api("GET", f"{leases}/l"),
    ):
        missing(gone, "leases", "l", "coordination.k8s.io")
    again = await api("POST", leases, body)
    late = await api.merge(f"{leases}/l", {"metadata": precondition, "spec": free})
    assert (again.status, late.status) == (201, 409)
    nowhere = "/apis/coordination.k8s.io/v1/namespaces/nowhere/leases"
    missing(await api("POST", nowhere, body), "namespaces", "nowhere")


async def test_events_have_two_faces(api: Api) -> None:
    new, old = api.at("events.k8s.io/v1", "events"), api.at("v1", "events")
    regarding = {"kind": "Pod", "name": "a", "namespace": api.ns}
    event = new_event("e", "2026-01-01T00:00:00.000000Z", regarding)
    assert (await api("POST", new, event)).status == 201
    core = (await api("GET", f"{old}/e")).body
    assert (core["apiVersion"], core["kind"], core["message"]) == ("v1", "Event", "n")
    assert (core["involvedObject"], core["reportingComponent"]) == (regarding, "kubestow")
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}
    assert (await api.patch(f"{new}/e", {"series": series})).body["series"] == series
    dotted = await api("POST", new, event | {"metadata": {"generateName": "e."}})
    assert dotted.status == 422
    for broken in ({"action": ""}, {"note": "x" * 1025}, {"reportingController": ""}):
        assert (await api("POST", new, event | {"metadata": {"name": "f"}} | broken)).status == 422, broken
    classic = {"metadata": {"name": "c"}, "involvedObject": regarding, "reason": "r", "message": "m", "type": "Normal"}
    assert (await api("POST", old, classic)).status == 201
    assert (await api("GET", f"{new}/c")).body["note"] == "m"


async def test_content_types(api: Api) -> None:
    await api.pod("a")
    answer = await api("PATCH", f"{api.pods}/a", {"a": 1}, content="application/json")
    refusal(answer, 415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    broken = await api("PATCH", f"{api.pods}/a", b"{", content=MERGE)
    assert broken.status == 400


async def test_a_pod_without_a_node_goes_at_once(api: Api) -> None:
    await api.pod("a")
    answer = await api("DELETE", f"{api.pods}/a")
    assert (answer.status, answer.body["kind"]) == (200, "Pod")
    assert (answer.metadata["deletionGracePeriodSeconds"], answer.metadata["generation"]) == (0, 2)
    assert (await api("GET", f"{api.pods}/a")).status == 404


async def test_a_bound_pod_waits_for_its_kubelet(api: Api) -> None:
    await api.pod("a", nodeName="n")
    path = f"{api.pods}/a"
    body = (await api("DELETE", path)).body
    assert (body["metadata"]["deletionGracePeriodSeconds"], body["metadata"]["generation"]) == (30, 2)
    assert (await api("DELETE", path)).body == body
    shorter = (await api("DELETE", f"{path}?gracePeriodSeconds=5")).body
    assert (shorter["metadata"]["deletionGracePeriodSeconds"], shorter["metadata"]["generation"]) == (5, 2)
    assert (await api("DELETE", path, {"gracePeriodSeconds": 50})).body == shorter
    assert (await api("DELETE", path, {"gracePeriodSeconds": 0})).status == 200
    assert (await api("GET", path)).status == 404


async def test_a_shorter_grace_does_not_end_in_the_past(api: Api) -> None:
    """If the shorter grace is over already, the server grants one second."""
    await api.pod("a", nodeName="n")
    first = (await api("DELETE", f"{api.pods}/a?gracePeriodSeconds=1000")).metadata["deletionTimestamp"]
    async with asyncio.timeout(PATIENCE_S):
        while (clock := await _server_time(api)) <= dt.datetime.fromisoformat(first) - dt.timedelta(seconds=1000 - 2):
            await asyncio.sleep(0.05)

    again = (await api("DELETE", f"{api.pods}/a?gracePeriodSeconds=2")).metadata

    assert again["deletionGracePeriodSeconds"] == 1
    end = dt.datetime.fromisoformat(again["deletionTimestamp"])
    assert clock <= end < clock + dt.timedelta(seconds=PATIENCE_S)


async def _server_time(api: Api) -> dt.datetime:
    """Return the server's time in whole seconds."""
    return parsedate_to_datetime((await api("GET", f"{api.pods}/a")).headers["Date"])


async def test_a_finished_pod_goes_at_once(api: Api) -> None:
    await api.pod("a", nodeName="n")
    await api.merge(f"{api.pods}/a/status", {"status": {"phase": "Succeeded"}})
    await api("DELETE", f"{api.pods}/a")
    assert (await api("GET", f"{api.pods}/a")).status == 404


async def test_deletion_has_preconditions(api: Api) -> None:
    metadata = (await api.pod("a")).metadata
    details = {"name": "a", "kind": "Pod"}
    other = (
        f"the UID in the precondition (u) does not match the UID in record ({metadata['uid']}). "
        "The object might have been deleted and then recreated"
    )
    late = (
        "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record "
        f"({metadata['resourceVersion']}). The object might have been modified"
    )
    for precondition, why in (({"uid": "u"}, other), ({"resourceVersion": "1"}, late)):
        refused = await api("DELETE", f"{api.pods}/a", {"preconditions": precondition})
        refusal(refused, 409, "Conflict", f'Operation cannot be fulfilled on Pod "a": {why}', details)
    right = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    assert (await api("DELETE", f"{api.pods}/a", {"preconditions": right})).status == 200


async def test_deleting_the_rest_answers_with_a_status(api: Api) -> None:
    name = f"n-{api.ns}"
    uid = (await api("POST", "/api/v1/nodes", {"metadata": {"name": name}})).metadata["uid"]
    answer = await api("DELETE", f"/api/v1/nodes/{name}")
    assert (answer.status, answer.body["status"]) == (200, "Success")
    assert answer.body["details"] == {"name": name, "kind": "nodes", "uid": uid}


async def test_a_namespace_that_is_deleted_takes_nothing_new(api: Api) -> None:
    answer = await api("DELETE", f"/api/v1/namespaces/{api.ns}")
    assert (answer.status, answer.body["status"]) == (200, {"phase": "Terminating"})
    late = await api("POST", api.pods, pod("late"))
    assert (late.status, late.body["reason"]) == (403, "Forbidden")
    cause = {"reason": "NamespaceTerminating", "message": f"namespace {api.ns} is being terminated"}
    assert late.body["details"]["causes"] == [cause | {"field": "metadata.namespace"}]


# -- Events of one object, found by field selectors under both versions, and what the product reads of them ------------


CORE, NEW = "v1", "events.k8s.io/v1"
DRIVER = "disk.example"
FAILED = "failed to provision volume: out of space"


def about(api: Api, uid: str) -> Object:
    claim = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "name": "c", "namespace": api.ns, "uid": uid}
    return claim | {"resourceVersion": "7", "fieldPath": "spec"}


async def three_events(api: Api) -> None:
    """Create an Event as client-go writes it, one as events.k8s.io has it, and one about another claim of the same name."""
    classic: Object = {
        "metadata": {"name": "failed"},
        "involvedObject": about(api, "u-1"),
        "reason": "ProvisioningFailed",
        "message": FAILED,
        "type": "Warning",
        "source": {"component": f"{DRIVER}_host_1"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:09Z",
        "count": 2,
    }
    began = classic | {"metadata": {"name": "namesake"}, "involvedObject": about(api, "u-2"), "type": "Normal"}
    newer = new_event("newer", "2026-01-01T00:00:10.000000Z", about(api, "u-1")) | {"reason": "SelectedNodeCleared"}
    for version, event in ((CORE, classic), (CORE, began), (NEW, newer)):
        answer = await api("POST", api.at(version, "events"), event)
        assert answer.status == 201, answer.body


@pytest.mark.parametrize(
    ("version", "selector", "names"),
    [
        (CORE, "involvedObject.uid=u-1", ["failed", "newer"]),
        (CORE, "involvedObject.uid!=u-1", ["namesake"]),
        (CORE, "involvedObject.uid=u-3", []),
        (CORE, "involvedObject.uid=u-1,type=Normal", []),
        (CORE, "involvedObject.name=c,involvedObject.kind=PersistentVolumeClaim,type=Normal", ["namesake"]),
        (CORE, "involvedObject.apiVersion=v1,reason=SelectedNodeCleared", ["newer"]),
        (CORE, "involvedObject.resourceVersion=7,involvedObject.fieldPath=spec,type=Normal", ["namesake"]),
        (CORE, "reportingComponent=kubestow", ["newer"]),
        (CORE, "source=kubestow", ["newer"]),
        (CORE, f"source={DRIVER}_host_1", ["failed", "namesake"]),
        (CORE, "metadata.name=newer", ["newer"]),
        (NEW, "regarding.uid=u-1", ["failed", "newer"]),
        (NEW, "regarding.uid=u-2,regarding.name=c", ["namesake"]),
        (NEW, "regarding.apiVersion=v1,regarding.resourceVersion=7,regarding.fieldPath=spec,type=Normal", ["namesake"]),
        (NEW, "reportingController=kubestow", ["newer"]),
    ],
)
async def test_events_are_selected_by_what_they_are_about(
    api: Api, version: str, selector: str, names: list[str]
) -> None:
    await three_events(api)
    answer = await api("GET", f"{api.at(version, 'events')}?fieldSelector={quote(selector)}")
    assert (answer.status, answer.names) == (200, names)


@pytest.mark.parametrize(
    ("version", "field"),
    [
        (CORE, "regarding.uid"),
        (CORE, "reportingController"),
        (CORE, "involvedObject"),
        (NEW, "involvedObject.uid"),
        (NEW, "reportingComponent"),
        (NEW, "source"),
    ],
)
async def test_each_version_knows_its_own_names_only(api: Api, version: str, field: str) -> None:
    answer = await api("GET", f"{api.at(version, 'events')}?fieldSelector={field}%3Dx")
    refusal(answer, 400, "BadRequest", f"field label not supported: {field}")


async def test_a_limit_counts_what_is_selected(api: Api) -> None:
    await three_events(api)
    answer = await api("GET", f"{api.at(CORE, 'events')}?fieldSelector=reason%3DSelectedNodeCleared&limit=1")
    assert answer.names == ["newer"]


@pytest.mark.parametrize(
    ("uid", "besides", "expected"),
    [
        pytest.param("u-1", {"kubestow"}, f"ProvisioningFailed at 2026-01-01T00:00:09Z: {FAILED}", id="the provisioner's"),
        pytest.param("u-1", set(), "SelectedNodeCleared at 2026-01-01T00:00:10Z: n", id="the newest of all"),
        pytest.param("u-2", {"kubestow"}, f"ProvisioningFailed at 2026-01-01T00:00:09Z: {FAILED}", id="though Normal"),
        pytest.param("u-3", set(), None, id="none"),
    ],
)  # fmt: skip
async def test_the_product_reads_what_was_said_last(
    api: Api, writer: ApiWriter, uid: str, besides: set[str], expected: str | None
) -> None:
    await three_events(api)
    claim = from_manifest(PersistentVolumeClaim, {"metadata": {"name": "c", "namespace": api.ns, "uid": uid}})
    assert await writer.last_event(claim, provisioner=DRIVER, besides=besides) == expected
