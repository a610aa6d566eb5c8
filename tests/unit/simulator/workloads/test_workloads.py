"""The workload controllers create and delete the pods that those of kube-controller-manager would."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from simulator.apiserver import ApiServer
from simulator.builders.core import node, pod
from simulator.controllers.controller import Key
from simulator.controllers.kubelet import Kubelet
from simulator.workloads.controllers import Dump, WorkloadControllers
from simulator.workloads.job import TRACKING, indexes
from tests.support.clock import VirtualClock

_API = {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1", "ControllerRevision": "apps/v1"}


def template(app: str = "w", *, image: str = "i:1", **spec: Any) -> Object:
    """A pod template with one container."""
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": image}], **spec}}


def workload(kind: str, called: str = "w", **spec: Any) -> Object:
    """A workload that selects the label `app: w`."""
    selector: Object = {} if kind == "Job" else {"selector": {"matchLabels": {"app": "w"}}}
    if kind == "ReplicationController":
        selector = {"selector": {"app": "w"}}
    head = {"apiVersion": _API.get(kind, "apps/v1"), "kind": kind}
    return head | {
        "metadata": {"name": called, "namespace": "default"},
        "spec": {**selector, "template": template(), **spec},
    }


def owners(by: Object) -> Object:
    """The metadata of what a workload controls."""
    owner = {"apiVersion": by["apiVersion"], "kind": by["kind"], "name": by["metadata"]["name"], "controller": True}
    return {"ownerReferences": [owner]}


def owned(by: Object, name: str, *, node: str = "", labels: dict[str, str] | None = None, **more: Any) -> Object:
    """A pod that a workload controls; with a node it is bound."""
    metadata = {"name": name, "namespace": "default", "labels": {"app": "w", **(labels or {})}, **owners(by)}
    spec = {"containers": [{"name": "c", "image": "i:1"}], **({"nodeName": node} if node else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | more.pop("metadata", {}), "spec": spec, **more}


def a_node(name: str, *taints: Object, **labels: str) -> Object:
    return node(name).cpu("64").memory("64Gi").labels(labels).set({"spec": {"taints": list(taints)}}).obj()


class WorkloadCluster:
    """The server and its controllers. Objects are created in the order given, owners first."""

    def __init__(self, objects: Iterable[Object], *, finished: Iterable[Object] = ()) -> None:
        self.clock = VirtualClock()
        self.server = ApiServer(clock=self.clock)
        self.kubelet = Kubelet(self.server, clock=self.clock)
        uids: dict[tuple[str, str], str] = {}
        former = {}
        for each in objects:
            references = each["metadata"].get("ownerReferences") or ()
            known = [{**ref, "uid": uids.get((ref["kind"], ref["name"]), "gone")} for ref in references]
            metadata = each["metadata"] | ({"ownerReferences": known} if known else {})
            add = self._pod if each["kind"] == "Pod" else self.server.apply
            created = add(each | {"metadata": metadata})
            uids[each["kind"], each["metadata"]["name"]] = created["metadata"]["uid"]
            former[created["metadata"]["uid"]] = each
        done: dict[Key, list[Object]] = {}
        for each in finished:
            done.setdefault(("jobs", "default", each["metadata"]["ownerReferences"][0]["name"]), []).append(each)
        self.controllers = WorkloadControllers(self.server, clock=self.clock, dump=Dump(former, done))
        self.run()

    def _pod(self, pod: Object) -> Object:
        created = self.server.create("pods", pod)
        if pod.get("status"):
            patch = {"status": pod["status"]}
            return self.server.patch("pods", pod["metadata"]["name"], patch, namespace="default", subresource="status")
        return created

    def run(self) -> None:
        """Step until nothing is left to do."""
        while self.controllers.step() + self.kubelet.step():
            pass

    def bind_all(self, node_of: Callable[[Object], str] = lambda _: "n") -> None:
        """Bind every pod without a node, until nothing changes."""
        while waiting := [each for each in self.server.objects("pods") if not each["spec"].get("nodeName")]:
            for each in waiting:
                self.server.bind(each["metadata"]["name"], node_of(each), each["metadata"]["namespace"])
            self.run()

    @property
    def pods(self) -> list[str]:
        """The names of all pods, sorted."""
        return sorted(pod["metadata"]["name"] for pod in self.server.objects("pods"))

    def reason(self, resource: str, name: str = "w") -> str:
        """Return why the workload has fewer pods than it requests."""
        return self.controllers.tallies[resource, "default", name].reason


NODE = a_node("n")
TAINT = {"key": "k", "effect": "NoSchedule"}
EVICTING = {"key": "k", "effect": "NoExecute"}
Object = dict[str, Any]


def names(prefix: str, *numbers: int) -> list[str]:
    return [f"{prefix}-{number}" for number in numbers]


@pytest.mark.parametrize(("kind", "spec", "pods"), [
    pytest.param("ReplicaSet", {}, ["w-0"], id="a ReplicaSet has one replica unless it says otherwise"),
    pytest.param("ReplicationController", {"replicas": 2}, names("w", 0, 1), id="a ReplicationController has replicas"),
    pytest.param("Deployment", {"replicas": 0}, [], id="a Deployment may be scaled to nothing"),
    pytest.param("Deployment", {"paused": True}, [], id="a paused Deployment starts no rollout"),
    pytest.param("StatefulSet", {"replicas": 2, "ordinals": {"start": 5}}, names("w", 5, 6),
        id="ordinals may start at 5"),
    pytest.param("Job", {}, ["w-0"], id="a Job has one pod unless it says otherwise"),
    pytest.param("Job", {"parallelism": 10, "completions": 3}, names("w", 0, 1, 2), id="no more pods than completions"),
    pytest.param("Job", {"parallelism": 2, "completions": 9}, names("w", 0, 1), id="no more pods than parallelism"),
    pytest.param("Job", {"parallelism": 2}, names("w", 0, 1), id="a work queue has parallelism"),
    pytest.param("Job", {"suspend": True}, [], id="a suspended Job has no pods"),
    pytest.param("Job", {"managedBy": "kueue.x-k8s.io/multikueue"}, [],
        id="a Job of another controller has no pods here"),
    pytest.param("Job", {"parallelism": 2, "completions": 3, "completionMode": "Indexed"}, ["w-0-0", "w-1-0"],
        id="an indexed Job names the index"),
])  # fmt: skip
def test_a_new_workload(kind: str, spec: Object, pods: list[str]) -> None:
    cluster = WorkloadCluster([NODE, workload(kind, **spec)])
    cluster.bind_all()

    assert cluster.pods == pods


def test_one_pod_that_is_created_later() -> None:
    cluster = WorkloadCluster([NODE, workload("StatefulSet", replicas=2)])

    assert cluster.reason("statefulsets") == "1 pod is created, once w-0 is ready"


@pytest.mark.parametrize(("policy", "pods", "reason"), [
    pytest.param("OrderedReady", ["w-0"], "2 pods are created one after the other, once w-0 is ready",
        id="an ordered one waits for each pod"),
    pytest.param("Parallel", names("w", 0, 1, 2), "", id="a parallel one waits for none"),
])  # fmt: skip
def test_the_order_of_a_stateful_set(policy: str, pods: list[str], reason: str) -> None:
    cluster = WorkloadCluster([NODE, workload("StatefulSet", replicas=3, podManagementPolicy=policy)])

    assert (cluster.pods, cluster.reason("statefulsets")) == (pods, reason)


def claim_template(name: str) -> Object:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("policy", "retention", "left"),
    [
        pytest.param("OrderedReady", "Retain", ["d-w-0", "d-w-1", "d-w-2"], id="claims stay by default"),
        pytest.param("Parallel", "Delete", ["d-w-0"], id="claims go with their pods if the policy says so"),
    ],
)
def test_a_stateful_set_that_shrinks(policy: str, retention: str, left: list[str]) -> None:
    kept = {"whenScaled": retention}
    spec: Object = {"podManagementPolicy": policy, "persistentVolumeClaimRetentionPolicy": kept}
    shape = workload("StatefulSet", replicas=3, volumeClaimTemplates=[claim_template("d")], **spec)
    cluster = WorkloadCluster([NODE, shape])
    cluster.bind_all()
    stored = cluster.server.get("statefulsets", "w")
    cluster.server.update("statefulsets", stored | {"spec": stored["spec"] | {"replicas": 1}})
    cluster.run()

    assert cluster.pods == ["w-0"]
    claims = cluster.server.objects("persistentvolumeclaims")
    assert sorted(each["metadata"]["name"] for each in claims if "deletionTimestamp" not in each["metadata"]) == left


def test_pods_of_a_stateful_set_mount_their_claims() -> None:
    shape = template(volumes=[{"name": "data", "emptyDir": {}}, {"name": "run", "emptyDir": {}}])
    claims = [claim_template("data")]
    cluster = WorkloadCluster([NODE, workload("StatefulSet", "db", template=shape, volumeClaimTemplates=claims)])

    volumes = {each["name"]: each for each in cluster.server.get("pods", "db-0")["spec"]["volumes"]}
    assert volumes["data"]["persistentVolumeClaim"] == {"claimName": "data-db-0"}
    assert set(volumes) == {"data", "run"}


CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def node_of(pod: Object) -> str:
    """Return the node to which its DaemonSet ties the pod."""
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (field,) = required["nodeSelectorTerms"][0]["matchFields"]
    assert field["key"] == "metadata.name"
    return str(field["values"][0])


@pytest.mark.parametrize(("node", "spec", "nodes"), [
    pytest.param(a_node("b"), {}, "ab", id="each node has one"),
    pytest.param(a_node("b", TAINT), {}, "a", id="a taint that is not tolerated keeps it away"),
    pytest.param(a_node("b", TAINT), {"tolerations": [{"operator": "Exists"}]}, "ab", id="a taint may be tolerated"),
    pytest.param(a_node("b", CORDON), {}, "ab", id="a cordon is tolerated"),
    pytest.param(a_node("b"), {"nodeSelector": {"disk": "ssd"}}, "a", id="a node selector chooses"),
])  # fmt: skip
def test_daemon_sets(node: Object, spec: Object, nodes: str) -> None:
    cluster = WorkloadCluster([a_node("a", disk="ssd"), node, workload("DaemonSet", template=template(**spec))])

    assert sorted(map(node_of, cluster.server.objects("pods"))) == list(nodes)


def test_a_daemon_pod_leaves_a_node_that_evicts_it_and_stays_on_one_that_only_refuses_it() -> None:
    shape = workload("DaemonSet")
    pods = [owned(shape, "w-a", node="a"), owned(shape, "w-b", node="b"), owned(shape, "w-gone", node="gone")]
    cluster = WorkloadCluster([a_node("a", EVICTING), a_node("b", TAINT), shape, *pods])

    assert cluster.pods == ["w-b"]


@pytest.mark.parametrize(("pods", "left"), [
    pytest.param([{"node": "n"}, {}], [0], id="a pod without a node goes first"),
    pytest.param([{"annotations": {"controller.kubernetes.io/pod-deletion-cost": "5"}}, {}], [0],
        id="a high cost stays"),
    pytest.param([{"created": "2026-01-01T00:00:00Z"}, {"created": "2020-01-01T00:00:00Z"}], [1],
        id="a young pod goes first"),
    pytest.param([{"restarts": 0}, {"restarts": 7}], [0], id="a pod that has restarted goes first"),
])  # fmt: skip
def test_which_pod_a_replica_set_deletes(pods: list[Object], left: list[int]) -> None:
    shape = workload("ReplicaSet", replicas=1)
    made = []
    for at, each in enumerate(pods):
        since = each.get("created", "2025-12-01T00:00:00Z")
        metadata = {"creationTimestamp": since, "annotations": each.get("annotations", {}), "uid": f"u{at}"}
        node = each.get("node", "n" if "node" not in pods[0] else "")
        restarts = [{"name": "c", "restartCount": each.get("restarts", 0)}]
        status = {"phase": "Running" if node else "Pending", "containerStatuses": restarts}
        made.append(owned(shape, f"w-{at}", node=node, metadata=metadata, status=status))
    cluster = WorkloadCluster([NODE, shape, *made])

    assert cluster.pods == [f"w-{at}" for at in left]


def test_matching_pods_are_adopted_and_pods_that_do_not_match_are_released() -> None:
    shape = workload("ReplicaSet", replicas=2)
    orphan = pod("orphan").label("app", "w").obj()
    relabelled = owned(shape, "taken-out", node="n", labels={"app": "debug"})
    cluster = WorkloadCluster([NODE, shape, orphan, relabelled])

    assert cluster.pods == ["orphan", "taken-out", "w-0"]
    assert cluster.controllers.tallies["replicasets", "default", "w"].adopted == 0, "one adopted, one released"


def rolling(**rest: int) -> Object:
    return {"type": "RollingUpdate", "rollingUpdate": rest}


def a_rollout(strategy: Object | None = None, *, image: str = "i:2", **spec: Any) -> list[Object]:
    """A Deployment of three whose template has changed, its ReplicaSet, and three running pods."""
    given: Object = {} if strategy is None else {"strategy": strategy}
    deployment = workload("Deployment", replicas=3, template=template(image=image), **given, **spec)
    old = workload("ReplicaSet", "w-old", replicas=3, template=template())
    old["metadata"] |= {"labels": {"app": "w"}, **owners(deployment)}
    return [NODE, deployment, old, *(owned(old, f"w-old-{n}", node="n") for n in range(3))]


@pytest.mark.parametrize(
    ("strategy", "at_once"),
    [
        pytest.param(None, 4, id="a quarter more, rounded up, may run at once"),
        pytest.param(rolling(maxSurge=2, maxUnavailable=0), 5, id="two more"),
        pytest.param(rolling(maxSurge=0, maxUnavailable=1), 3, id="one less"),
        pytest.param({"type": "Recreate"}, 3, id="all old pods go first"),
    ],
)
def test_a_rollout_ends_with_new_pods_alone(strategy: Object | None, at_once: int) -> None:
    cluster = WorkloadCluster(a_rollout(strategy))
    assert len(cluster.pods) == at_once

    cluster.bind_all()
    assert cluster.pods == names("w", 0, 1, 2)
    assert cluster.reason("deployments") == ""


def test_a_template_that_differs_by_defaults_is_no_rollout() -> None:
    objects = a_rollout(image="i:1")
    full = objects[2]["spec"]["template"]["spec"]
    full |= {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
    full |= {"securityContext": {}}
    full["containers"][0] |= {"imagePullPolicy": "IfNotPresent", "resources": {}}
    full["containers"][0] |= {"terminationMessagePath": "/dev/termination-log"}
    cluster = WorkloadCluster(objects)

    assert cluster.pods == names("w-old", 0, 1, 2)


def test_a_deployment_that_was_scaled_keeps_its_replica_set() -> None:
    objects = a_rollout(image="i:1")
    objects[1]["spec"]["replicas"] = 5
    objects[2]["metadata"]["annotations"] = {"deployment.kubernetes.io/desired-replicas": "3"}
    cluster = WorkloadCluster(objects)

    assert cluster.pods == sorted([*names("w-old", 0, 1, 2), *names("w-old", 3, 4)])


def test_two_active_replica_sets_grow_in_proportion() -> None:
    spec: Object = {"template": template(image="i:2"), "strategy": rolling(maxSurge=5, maxUnavailable=2)}
    deployment = workload("Deployment", replicas=20, paused=True, **spec)
    sets: list[Object] = []
    for name, image, size in (("w-old", "i:1", 8), ("w-new", "i:2", 5)):
        shape = template(image=image)
        shape["metadata"]["labels"] |= {"v": name}
        made = workload("ReplicaSet", name, replicas=size, template=shape, selector={"matchLabels": {"v": name}})
        made["metadata"] |= {"labels": {"app": "w"}, **owners(deployment)}
        made["metadata"]["annotations"] = {"deployment.kubernetes.io/max-replicas": "13"}
        sets.append(made)
    cluster = WorkloadCluster([NODE, deployment, *sets])

    replicas = {each["metadata"]["name"]: each["spec"]["replicas"] for each in cluster.server.objects("replicasets")}
    assert replicas == {"w-old": 15, "w-new": 10}


def a_revision(of: Object, name: str, number: int, image: str) -> Object:
    metadata = {"name": name, "namespace": "default", "labels": {"controller-revision-hash": name}, **owners(of)}
    head = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata}
    return head | {"revision": number, "data": {"spec": {"template": template(image=image)}}}


@pytest.mark.parametrize(
    ("strategy", "replaced"),
    [
        pytest.param({}, {"w-0", "w-1", "w-2"}, id="by default all"),
        pytest.param(rolling(partition=2), {"w-2"}, id="a partition keeps the lower ordinals"),
        pytest.param({"type": "OnDelete"}, set(), id="OnDelete replaces none"),
    ],
)
def test_a_changed_template_replaces_the_pods_of_a_stateful_set(strategy: Object, replaced: set[str]) -> None:
    shape = workload("StatefulSet", replicas=3, template=template(image="i:2"), updateStrategy=strategy)
    pods = [owned(shape, f"w-{n}", node="n", labels={"controller-revision-hash": "old"}) for n in range(3)]
    cluster = WorkloadCluster([NODE, shape, a_revision(shape, "old", 1, "i:1"), *pods])
    cluster.bind_all()

    images = {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in cluster.server.objects("pods")}
    assert {name for name, image in images.items() if image == "i:2"} == replaced
    assert set(images) == {"w-0", "w-1", "w-2"}


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(rolling(maxUnavailable=1), id="one at a time"),
        pytest.param(rolling(maxSurge=1, maxUnavailable=0), id="with surge the new pod comes first"),
    ],
)
def test_a_changed_template_replaces_the_pods_of_a_daemon_set(strategy: Object) -> None:
    shape = workload("DaemonSet", template=template(image="i:2"), updateStrategy=strategy)
    nodes = [a_node(f"n{n}") for n in range(3)]
    pods = [owned(shape, f"old-{n}", node=f"n{n}", labels={"controller-revision-hash": "old"}) for n in range(3)]
    cluster = WorkloadCluster([*nodes, shape, a_revision(shape, "old", 1, "i:1"), *pods])
    cluster.bind_all(node_of)

    stored = cluster.server.objects("pods")
    assert sorted(pod["spec"]["nodeName"] for pod in stored) == ["n0", "n1", "n2"]
    assert all(pod["spec"]["containers"][0]["image"] == "i:2" for pod in stored)


def ended(how: str) -> Object:
    return {"conditions": [{"type": how, "status": "True"}]}


def a_finished_pod(job: Object, name: str, phase: str, *, index: int | None = None, is_counted: bool = False) -> Object:
    annotations = {} if index is None else {"batch.kubernetes.io/job-completion-index": str(index)}
    metadata = {"uid": name, "annotations": annotations, "finalizers": [] if is_counted else [TRACKING]}
    return owned(job, name, metadata=metadata, status={"phase": phase})


@pytest.mark.parametrize(
    ("status", "finished", "pods", "reason"),
    [
        pytest.param({"succeeded": 2}, [], 1, "", id="what has succeeded is not run again"),
        pytest.param({"succeeded": 1}, [("a", "Succeeded", False)], 1, "", id="a pod that is not counted yet counts"),
        pytest.param({"succeeded": 1}, [("a", "Succeeded", True)], 2, "", id="a pod that is counted counts once"),
        pytest.param({"succeeded": 3}, [], 0, "all completions are reached", id="all completions are reached"),
        pytest.param({"failed": 7}, [], 0, "the Job has reached its limit of failures", id="six failures are allowed"),
        pytest.param(ended("Complete"), [], 0, "the Job has finished", id="a Job that is complete"),
        pytest.param(ended("Failed"), [], 0, "the Job has finished", id="a Job that has failed"),
    ],
)
def test_a_job_goes_on_where_it_was(
    status: Object, finished: list[tuple[str, str, bool]], pods: int, reason: str
) -> None:
    job = workload("Job", completions=3, parallelism=10) | {"status": status}
    done = [a_finished_pod(job, name, phase, is_counted=counted) for name, phase, counted in finished]
    cluster = WorkloadCluster([NODE, job], finished=done)

    assert len(cluster.pods) == pods
    assert cluster.reason("jobs") == reason


def test_an_indexed_job_runs_the_indexes_that_are_left() -> None:
    spec: Object = {"completions": 8, "parallelism": 8, "completionMode": "Indexed", "backoffLimitPerIndex": 1}
    job = workload("Job", **spec) | {"status": {"completedIndexes": "0,2-3", "failedIndexes": "5"}}
    running = [
        owned(job, name, node="n", metadata={"annotations": {"batch.kubernetes.io/job-completion-index": "1"}})
        for name in ("w-1-x", "w-1-y")
    ]
    cluster = WorkloadCluster([NODE, job, *running])

    assert len([name for name in cluster.pods if name.startswith("w-1-")]) == 1
    assert [name for name in cluster.pods if not name.startswith("w-1-")] == ["w-4-0", "w-6-0", "w-7-0"]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        pytest.param("", set(), id="none"),
        pytest.param("1,3-5,7", {1, 3, 4, 5, 7}, id="numbers and ranges"),
        pytest.param("x,-3,2", {2}, id="parts that are no numbers are left out"),
        pytest.param("0-99999999999999", set(range(1_000_001)), id="a range without end is cut"),
    ],
)
def test_indexes(text: str, numbers: set[int]) -> None:
    assert indexes(text) == numbers


def test_a_suspended_job_loses_its_pods() -> None:
    job = workload("Job", suspend=True)
    cluster = WorkloadCluster([NODE, job, owned(job, "w-x", node="n")])

    assert cluster.pods == []
    assert cluster.reason("jobs") == "the Job is suspended"
