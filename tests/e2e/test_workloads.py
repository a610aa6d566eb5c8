"""`simulate` creates, deletes and places the pods that kube-controller-manager and kube-scheduler create, delete and place.

A real cluster is filled with workloads of every kind and comes to rest. Its objects are the dump. Then the workloads are
changed, both in the real cluster, which comes to rest again, and in the dump, which is simulated.
"""

import asyncio
import copy
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli import main as cli
from tests.e2e.cluster import PODS, Cluster, collection, node
from tests.e2e.controlplane.harness import ControlPlane
from tests.e2e.standins import Kubelets, running

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

Object = dict[str, Any]
KINDS = ("deployment", "replicaset", "statefulset", "daemonset", "job", "replicationcontroller")
STORED = (
    *("Node", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet"),
    *("ControllerRevision", "Job", "Pod"),
)
QUIET_S = 6.0
PATIENCE_S = 200.0
AGES_S = (150, 1_200, 9_000, 72_000)
"""For these seconds the pods of one owner have been ready. The logarithms of the ages differ, so that it is clear which pods go first."""
TAINT = {"key": "kept", "effect": "NoSchedule"}


def workload(kind: str, name: str, *, cpu: str = "100m", image: str = "i:1", **spec: Any) -> Object:
    """A workload whose pods have the label `app: <name>`."""
    pod: Object = {"containers": [{"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}]}
    selector: Object = {"selector": {"matchLabels": {"app": name}}}
    if kind == "Job":
        pod["restartPolicy"], selector = "Never", {}
    if kind == "ReplicationController":
        selector = {"selector": {"app": name}}
    version = {"Job": "batch/v1", "ReplicationController": "v1"}.get(kind, "apps/v1")
    template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    head = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}}
    return head | {"spec": {**selector, "template": template, **spec}}


BEFORE = (
    workload("Deployment", "shrinks", replicas=4),
    workload("Deployment", "grows", replicas=2),
    workload("Deployment", "rolls", replicas=3),
    workload("Deployment", "recreated", replicas=2, strategy={"type": "Recreate"}),
    workload("Deployment", "stuck", replicas=4),
    workload("ReplicaSet", "bare", replicas=3),
    workload("ReplicationController", "old", replicas=3),
    workload("StatefulSet", "ordered", replicas=2, serviceName="ordered"),
    workload("StatefulSet", "shorter", replicas=3, serviceName="shorter", ordinals={"start": 4}),
    workload("StatefulSet", "updated", replicas=3, serviceName="updated"),
    workload("DaemonSet", "agent"),
    workload("DaemonSet", "everywhere", tolerated=True),
    workload("Job", "indexed", completions=6, parallelism=3, completionMode="Indexed"),
    workload("Job", "suspended", parallelism=2),
    workload("Job", "narrower", parallelism=4, completions=9),
)
CHANGES: dict[tuple[str, str], Object] = {
    ("Deployment", "shrinks"): {"replicas": 1},
    ("Deployment", "grows"): {"replicas": 5},
    ("Deployment", "rolls"): {"image": "i:2"},
    ("Deployment", "recreated"): {"image": "i:2"},
    ("Deployment", "stuck"): {"cpu": "90"},
    ("ReplicaSet", "bare"): {"replicas": 2},
    ("ReplicationController", "old"): {"replicas": 1},
    ("StatefulSet", "ordered"): {"replicas": 4},
    ("StatefulSet", "shorter"): {"replicas": 1},
    ("StatefulSet", "updated"): {"image": "i:2"},
    ("DaemonSet", "agent"): {"image": "i:2"},
    ("Job", "suspended"): {"suspend": True},
    ("Job", "narrower"): {"parallelism": 2},
    ("Job", "indexed"): {"parallelism": 5},
}
NEW = (
    workload("StatefulSet", "too-large", replicas=3, serviceName="too-large", cpu="90"),
    workload("StatefulSet", "parallel", replicas=3, serviceName="parallel", podManagementPolicy="Parallel"),
    workload("Job", "few", completions=2, parallelism=10),
    workload("Job", "later", suspend=True),
)


def prepared(obj: Object) -> Object:
    """A workload of the tables as the API takes it."""
    made = copy.deepcopy(obj)
    if made["spec"].pop("tolerated", False):
        made["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    return made


def changed(obj: Object) -> Object:
    made = copy.deepcopy(obj)
    change = dict(CHANGES.get((made["kind"], made["metadata"]["name"]), {}))
    container = made["spec"]["template"]["spec"]["containers"][0]
    if "image" in change:
        container["image"] = change.pop("image")
    if "cpu" in change:
        container["resources"]["requests"]["cpu"] = change.pop("cpu")
    made["spec"] |= change
    return made


async def at_rest(cluster: Cluster) -> list[Object]:
    """The pods, once none has changed for a while and each has a node or a reason."""
    deadline, seen, since = time.monotonic() + PATIENCE_S, "", time.monotonic()
    while time.monotonic() < deadline:
        pods: list[Object] = (await cluster.get(PODS))["items"]
        now = json.dumps(sorted((each["metadata"]["name"], each["metadata"]["resourceVersion"]) for each in pods))
        answered = all(each["spec"].get("nodeName") or each["status"].get("conditions") for each in pods)
        if now != seen or not answered:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > QUIET_S:
            return pods
        await asyncio.sleep(0.3)
    pytest.fail(f"the real cluster did not come to rest: {seen}")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A control plane with the workload controllers, kube-scheduler and kubelets."""
    async with ControlPlane() as plane:
        await plane.start_controllers([f"{kind}-controller" for kind in KINDS])
        await plane.start_scheduler()
        async with plane.client() as http:
            found = Cluster(http)
            async with running(Kubelets(found, AGES_S)):
                yield found


async def dump(cluster: Cluster) -> list[Object]:
    """Every object that matters, as `kubectl get -o json` prints them."""
    lists = [await cluster.get(collection(kind)) for kind in STORED]
    return [
        each | {"kind": one["kind"].removesuffix("List"), "apiVersion": one["apiVersion"]}
        for one in lists
        for each in one["items"]
    ]


def root(pod: Object, sets: dict[str, Object]) -> str:
    """The workload at the top: the Deployment of a ReplicaSet that has one."""
    owner = pod["metadata"]["ownerReferences"][0]
    above = sets[owner["name"]]["metadata"].get("ownerReferences") if owner["kind"] == "ReplicaSet" else None
    return f"{above[0]['kind']} {above[0]['name']}" if above else f"{owner['kind']} {owner['name']}"


async def test_the_same_pods_exist_and_are_placed(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await cluster.create(
        *(node(f"n{at}", cpu="16") for at in range(3)), node("kept", spec={"taints": [TAINT]}, cpu="16")
    )
    await cluster.create(*map(prepared, BEFORE))
    before = await at_rest(cluster)
    objects = await dump(cluster)

    for each in BEFORE:
        path = f"{collection(each['kind'])}/{each['metadata']['name']}"
        await cluster.put(path, changed(await cluster.get(path)))
    await cluster.create(*map(prepared, NEW))
    after = await at_rest(cluster)
    sets = {each["metadata"]["name"]: each for each in (await cluster.get(collection("ReplicaSet")))["items"]}

    names = {pod["metadata"]["name"] for pod in before}
    kinds = {(each["kind"], each["metadata"]["name"]) for each in BEFORE}
    edited = [changed(each) if (each["kind"], each["metadata"]["name"]) in kinds else each for each in objects]
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*edited, *map(prepared, NEW)]}))
    await asyncio.to_thread(cli.main, ["simulate", "-o", "json", "--timeout", "120s", str(file)])
    shown = json.loads(capsys.readouterr().out)

    gone = {name for row in shown["workloads"] for name in row["deleted"]}
    assert shown["settled"]
    uids = {pod["metadata"]["uid"] for pod in after}
    assert gone & names == {pod["metadata"]["name"] for pod in before if pod["metadata"]["uid"] not in uids}
    created = Counter(root(pod, sets) for pod in after if pod["metadata"]["name"] not in names - gone)
    made = {
        row["workload"].replace("default/", ""): row["created"] - len(set(row["deleted"]) - names)
        for row in shown["workloads"]
    }
    assert {name: count for name, count in made.items() if count} == dict(created)
    waiting = Counter(root(pod, sets) for pod in after if not pod["spec"].get("nodeName"))
    pending = {each["pod"].split("/")[1] for each in shown["pods"] if not each["node"]}
    assert len(pending) == sum(waiting.values())
    assert waiting.keys() == {"Deployment stuck", "StatefulSet too-large"}
    assert {name.rpartition("-")[0].removesuffix("-0") for name in pending} >= {"too-large"}
