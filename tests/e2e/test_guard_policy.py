"""`guardPolicy` of the chart on a real API server: the scheduler's token cannot be used for more than scheduling.

tests/e2e/test_chart.py runs with the policy as well: there the daemon schedules pods with volumes and devices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from scheduler.api.storage_v1 import SELECTED_NODE
from simulator.builders.claims import a_claim as a_device_claim
from tests.deploy import tools
from tests.deploy.chart import NAMESPACE, rendered
from tests.e2e.cluster import Cluster, Json, node, pod, until
from tests.e2e.controlplane.gate import built_or_skip
from tests.e2e.controlplane.harness import ControlPlane, started
from tests.e2e.installed import Account, Applier, Installation
from tests.support.volumebuilders import a_claim, a_class, a_pv

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(280)]

SPACE: Final = "shop"
OTHER: Final = "payments"
VALUES: Final[Json] = {"guardPolicy": {"enabled": True, "bindNamespaces": [SPACE], "evictNamespaces": [SPACE]}}
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
POD: Final = f"/api/v1/namespaces/{SPACE}/pods"
PV: Final = "/api/v1/persistentvolumes"
PVC: Final = f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims"
CLAIM: Final = f"/apis/resource.k8s.io/v1/namespaces/{SPACE}/resourceclaims"
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


@pytest.fixture(scope="module")
def plane(control_plane_binaries: Path) -> Iterator[ControlPlane]:
    built_or_skip(tools.helm)
    with started(ControlPlane()) as plane:
        yield plane


@dataclass(frozen=True)
class Request:
    """A write with the scheduler's token."""

    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"

    async def send(self, http: aiohttp.ClientSession, scheduler_account: Account, **query: str) -> tuple[int, str]:
        headers = {"Content-Type": self.content_type, **scheduler_account.headers}
        async with http.request(self.method, self.path, params=query, json=self.body, headers=headers) as answer:
            return answer.status, (await answer.json()).get("message", "")


def binding(name: str, space: str = SPACE, **metadata: Any) -> Request:
    body = {"metadata": {"name": name, "namespace": space, **metadata}, "target": {"kind": "Node", "name": "n1"}}
    return Request(
        "POST", f"/api/v1/namespaces/{space}/pods/{name}/binding", {"apiVersion": "v1", "kind": "Binding", **body}
    )


def merge(path: str, **body: Any) -> Request:
    return Request("PATCH", path, body, MERGE)


def status(name: str, **fields: Any) -> Request:
    return Request("PATCH", f"{POD}/{name}/status", {"status": fields}, STRATEGIC)


def selection(claim: str, node_name: str | None) -> Request:
    return merge(f"{PVC}/{claim}", metadata={"annotations": {SELECTED_NODE: node_name}})


def allocation(claim: str, user: Json, **change: Any) -> Request:
    allocated = {"devices": {"results": [RESULT | change]}}
    return merge(f"{CLAIM}/{claim}/status", status={"allocation": allocated, "reservedFor": [user]})


def replaced_status(claim: str, user: Json, **metadata: str) -> Request:
    """Return the update that allocates a claim: it brings the metadata that the server does not keep by itself."""
    body = {"metadata": {"name": claim, "namespace": SPACE, **metadata}}
    status_ = {"allocation": {"devices": {"results": [RESULT]}}, "reservedFor": [user]}
    return Request(
        "PUT",
        f"{CLAIM}/{claim}/status",
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **body, "status": status_},
    )


def condition(type_: str, value: str = "False") -> Json:
    return {"type": type_, "status": value, "reason": "Test", "message": "m"}


def extended(name: str = "made", *, owner: str = "Pod", annotation: str = "true", admin: bool = False) -> Request:
    exactly: Json = {"deviceClassName": "gpu"} | ({"adminAccess": True} if admin else {})
    metadata = {
        "name": name,
        "annotations": {"resource.kubernetes.io/extended-resource-claim": annotation},
        "ownerReferences": [{"apiVersion": "v1", "kind": owner, "name": "ours", "uid": "1", "controller": True}],
    }
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return Request(
        "POST", CLAIM, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
    )


@pytest.fixture(scope="module")
def scheduler_account(plane: ControlPlane) -> Account:
    """The scheduler's account. The chart, the objects and the policies are in force."""

    async def install() -> Account:
        async with plane.client() as http:
            await Applier(http).namespaces(NAMESPACE, SPACE, OTHER)
            admin = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
            await Cluster(http).merge(f"/api/v1/namespaces/{SPACE}", admin)
            await _make_objects(http)
            scheduler_account = await Installation(plane, rendered(VALUES)).install(http)
            for probe in PROBES:
                await until(partial(_is_refused, http, scheduler_account, ABUSES[probe][0]), f"a policy: {probe}")
            return scheduler_account

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(install())


async def _is_refused(http: aiohttp.ClientSession, scheduler_account: Account, probe: Request) -> bool:
    answer, message = await probe.send(http, scheduler_account, dryRun="All")
    return answer == 422 and "ValidatingAdmissionPolicy" in message


async def _make_objects(http: aiohttp.ClientSession) -> None:
    shop, other, system = Cluster(http, SPACE), Cluster(http, OTHER), Cluster(http, "kube-system")
    critical = {"priorityClassName": "system-node-critical", "nodeName": "n1"}
    placed = {"nodeName": "n1"}
    reference = REFERENCE | {"namespace": OTHER, "name": "somewhere"}
    await shop.create(node("n1"), a_class("slow").obj(), *(a_pv(name, "5Gi", "slow").obj() for name in VOLUMES))
    await shop.create(*(a_claim(name, "1Gi", "slow", ns=SPACE).obj() for name in CLAIMS))
    await shop.create(*(_pod(name, SPACE) for name in ("ours", "fresh")), _pod("theirs", SPACE, "default-scheduler"))
    await shop.create(_pod("victim", SPACE, spec=placed), _pod("kept", SPACE, spec=placed))
    await other.create(_pod("far", OTHER), _pod("far-victim", OTHER, spec=placed))
    await system.create(_pod("critical", "kube-system", "default-scheduler", critical))
    await shop.create(*(a_device_claim(name, ns=SPACE).request("r", "gpu").obj() for name in DEVICE_CLAIMS))
    await shop.merge(f"{CLAIM}/of-template", {"metadata": {"generateName": "of-"}})
    await shop.merge(f"{PV}/taken", {"spec": {"claimRef": reference}})
    await shop.merge(f"{PV}/reserved", {"spec": {"claimRef": MINE}})
    await shop.merge(f"{PVC}/done", {"spec": {"volumeName": "taken"}})
    await shop.merge(f"{PVC}/kept", {"metadata": {"finalizers": ["example.com/backup"]}})


def _pod(name: str, space: str, scheduler: str = "kubestow", spec: Json | None = None) -> Json:
    found = pod(name, scheduler, spec)
    found["metadata"]["namespace"] = space
    return found


VOLUMES: Final = ("free", "chosen", "taken", "reserved", "local")
CLAIMS: Final = ("mine", "other", "done", "kept")
DEVICE_CLAIMS: Final = ("devices", "written", "of-template")
MINE: Final[Json] = {"namespace": SPACE, "name": "mine"}
REFERENCE: Final[Json] = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "uid": "u"} | MINE
USER: Final[Json] = {"resource": "pods", "name": "ours", "uid": "1"}
JOB: Final[Json] = USER | {"resource": "jobs", "apiGroup": "batch"}
RESULT: Final[Json] = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "a"}
ABUSES: Final[dict[str, tuple[Request, str]]] = {
    "bind a pod in another namespace": (binding("far", OTHER), "bindNamespaces"),
    "add annotations to a pod by binding it": (binding("fresh", annotations={"a": "b"}), "annotations"),
    "end a pod by its phase": (status("ours", phase="Succeeded"), "only conditions"),
    "give a pod an address": (status("ours", podIP="10.1.2.3", podIPs=[{"ip": "10.1.2.3"}]), "only conditions"),
    "make a pod ready": (status("kept", conditions=[condition("Ready", "True")]), "PodScheduled"),
    "write a condition to a pod of another scheduler": (
        status("theirs", conditions=[condition("PodScheduled")]),
        "another scheduler",
    ),
    "nominate a pod of another scheduler": (status("theirs", nominatedNodeName="n1"), "another scheduler"),
    "label a pod": (
        Request("PATCH", f"{POD}/ours/status", {"metadata": {"labels": {"a": "b"}}}, STRATEGIC),
        "metadata",
    ),
    "evict a critical pod": (Request("DELETE", "/api/v1/namespaces/kube-system/pods/critical"), "maxVictimPriority"),
    "evict a pod in another namespace": (
        Request("DELETE", f"/api/v1/namespaces/{OTHER}/pods/far-victim"),
        "evictNamespaces",
    ),
    "delete a pending pod": (Request("DELETE", f"{POD}/ours"), "on a node"),
    "take a volume from its claim": (merge(f"{PV}/taken", spec={"claimRef": REFERENCE}), "reserved only"),
    "release a volume": (merge(f"{PV}/taken", spec={"claimRef": None}), "reserved only"),
    "enlarge a volume": (merge(f"{PV}/local", spec={"capacity": {"storage": "9Gi"}}), "only claimRef"),
    "have a volume deleted": (merge(f"{PV}/local", spec={"persistentVolumeReclaimPolicy": "Delete"}), "only claimRef"),
    "remove the finalizers of a volume": (merge(f"{PV}/local", metadata={"finalizers": None}), "metadata"),
    "remove the finalizers of a claim": (merge(f"{PVC}/kept", metadata={"finalizers": None}), "metadata"),
    "bind a claim to a volume": (merge(f"{PVC}/other", spec={"volumeName": "free"}), "spec of a claim"),
    "annotate a claim": (merge(f"{PVC}/other", metadata={"annotations": {"example.com/owner": "me"}}), "selected-node"),
    "select a node for a bound claim": (selection("done", "n1"), "is bound"),
    "create any device claim": (extended(annotation="false"), "extended resources"),
    "create a device claim for another owner": (extended(owner="Job"), "extended resources"),
    "create a device claim with admin access": (extended(admin=True), "admin access"),
    "delete a device claim": (Request("DELETE", f"{CLAIM}/devices"), "extended resources"),
    "remove the prefix of a device claim's name": (replaced_status("of-template", USER), "no metadata"),
    "label a device claim": (merge(f"{CLAIM}/devices", metadata={"labels": {"a": "b"}}), "delete-protection"),
    "reserve a device claim for a Job": (allocation("devices", JOB), "only pods"),
    "allocate a device with admin access": (allocation("devices", USER, adminAccess=True), "admin access"),
    "create another lease": (
        Request("POST", LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x"}}),
        "lease",
    ),
    "report an event as the kubelet": (
        Request(
            "POST",
            f"/apis/events.k8s.io/v1/namespaces/{SPACE}/events",
            {
                "metadata": {"name": "e"},
                "regarding": {"kind": "Pod", "name": "ours", "namespace": SPACE},
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingController": "kubelet",
                "reportingInstance": "n1",
                "action": "Killing",
                "reason": "Killing",
                "type": "Normal",
            },
        ),
        "name of the scheduler",
    ),
}
"""A write, and a word of the refusal."""
PROBES: Final = (
    *("add annotations to a pod by binding it", "end a pod by its phase", "delete a pending pod", "release a volume"),
    *("annotate a claim", "label a device claim", "reserve a device claim for a Job", "create another lease"),
)
"""One abuse for each policy: a policy takes effect some time after it was created."""

NEEDED: Final[dict[str, Request]] = {
    "a condition and a nomination": status("ours", conditions=[condition("PodScheduled")], nominatedNodeName="n1"),
    "the condition of a victim": status("kept", conditions=[condition("DisruptionTarget", "True")]),
    "clear a nomination": status("ours", nominatedNodeName=None),
    "reserve a free volume": merge(
        f"{PV}/chosen",
        metadata={"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
        spec={"claimRef": REFERENCE},
    ),
    "reserve a volume that names the claim": merge(f"{PV}/reserved", spec={"claimRef": REFERENCE}),
    "select a node": selection("other", "n1"),
    "remove the selected node": selection("other", None),
    "protect a device claim": merge(
        f"{CLAIM}/written", metadata={"finalizers": ["resource.kubernetes.io/delete-protection"]}
    ),
    "allocate devices": allocation("written", USER),
    "allocate devices by an update": replaced_status("of-template", USER, generateName="of-"),
    "release devices": merge(
        f"{CLAIM}/written/status", status={"allocation": None, "reservedFor": None, "devices": None}
    ),
    "create a device claim for extended resources": extended(),
    "remove its protection": merge(f"{CLAIM}/made", metadata={"finalizers": None}),
    "delete it": Request("DELETE", f"{CLAIM}/made"),
    "bind a pod": binding("fresh"),
    "evict a pod": Request("DELETE", f"{POD}/victim"),
}
"""Writes of the scheduler. Some depend on earlier ones."""


@pytest.mark.parametrize(("request_", "message"), ABUSES.values(), ids=ABUSES.keys())
async def test_an_abuse_is_refused(
    http: aiohttp.ClientSession, scheduler_account: Account, request_: Request, message: str
) -> None:
    answer, text = await request_.send(http, scheduler_account)

    assert answer == 422, text
    assert "ValidatingAdmissionPolicy" in text
    assert message in text


async def test_the_writes_of_the_scheduler_are_allowed(http: aiohttp.ClientSession, scheduler_account: Account) -> None:
    answers = {what: await request_.send(http, scheduler_account) for what, request_ in NEEDED.items()}

    assert {what: text for what, (answer, text) in answers.items() if answer not in {200, 201}} == {}


async def test_other_accounts_are_not_restricted(http: aiohttp.ClientSession, scheduler_account: Account) -> None:
    await Cluster(http, SPACE).merge(f"{PV}/local", {"metadata": {"labels": {"a": "b"}}})
