"""A small cluster of workloads: builders, an API server, and the controllers run until nothing is left to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from simulator.apiserver import ApiServer
from simulator.controllers.controller import Key
from simulator.controllers.kubelet import Kubelet
from simulator.workloads.controllers import Dump, WorkloadControllers
from tests.support.clock import VirtualClock

Object = dict[str, Any]
_API = {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1", "ControllerRevision": "apps/v1"}


def template(app: str = "w", *, image: str = "i:1", **spec: Any) -> Object:
    """A pod template with one container."""
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": image}], **spec}}


def workload(kind: str, called: str = "w", **spec: Any) -> Object:
    """A workload that selects the label `app: w`."""
    selector: Object = {} if kind == "Job" else {"selector": {"matchLabels": {"app": "w"}}}
    if kind == "ReplicationController":
        selector = {"selector": {"app": "w"}}
    metadata = {"name": called, "namespace": "default"}
    return {
        "apiVersion": _API.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": metadata,
        "spec": {**selector, "template": template(), **spec},
    }


def owned(by: Object, name: str, *, node: str = "", labels: dict[str, str] | None = None, **more: Any) -> Object:
    """A pod that a workload controls; with a node it is bound."""
    owner = {"apiVersion": by["apiVersion"], "kind": by["kind"], "name": by["metadata"]["name"], "controller": True}
    metadata = {
        "name": name,
        "namespace": "default",
        "labels": {"app": "w", **(labels or {})},
        "ownerReferences": [owner],
    }
    spec = {"containers": [{"name": "c", "image": "i:1"}], **({"nodeName": node} if node else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | more.pop("metadata", {}), "spec": spec, **more}


def a_node(name: str, *taints: Object, **labels: str) -> Object:
    """A large node."""
    allocatable = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    metadata = {"name": name, "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"taints": list(taints)},
        "status": {"allocatable": allocatable},
    }


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
            created = (
                self.server.apply(each | {"metadata": metadata}) if each["kind"] != "Pod" else self._pod(each, metadata)
            )
            uids[each["kind"], each["metadata"]["name"]] = created["metadata"]["uid"]
            former[created["metadata"]["uid"]] = each
        done: dict[Key, list[Object]] = {}
        for pod in finished:
            done.setdefault(("jobs", "default", pod["metadata"]["ownerReferences"][0]["name"]), []).append(pod)
        self.controllers = WorkloadControllers(self.server, clock=self.clock, dump=Dump(former, done))
        self.run()

    def _pod(self, pod: Object, metadata: Object) -> Object:
        created = self.server.create("pods", pod | {"metadata": metadata})
        if pod.get("status"):
            patch = {"status": pod["status"]}
            return self.server.patch("pods", metadata["name"], patch, namespace="default", subresource="status")
        return created

    def run(self) -> None:
        """Step until nothing is left to do."""
        while self.controllers.step() + self.kubelet.step():
            pass

    def bind_all(self, node: str = "n") -> None:
        """Bind every pod without a node, until nothing changes."""
        while waiting := [pod for pod in self.server.objects("pods") if not pod["spec"].get("nodeName")]:
            for pod in waiting:
                self.server.bind(pod["metadata"]["name"], node, pod["metadata"]["namespace"])
            self.run()

    @property
    def pods(self) -> list[str]:
        """The names of all pods, sorted."""
        return sorted(pod["metadata"]["name"] for pod in self.server.objects("pods"))

    def reason(self, resource: str, name: str = "w") -> str:
        """Return why the workload has fewer pods than it requests."""
        return self.controllers.tallies[resource, "default", name].reason
