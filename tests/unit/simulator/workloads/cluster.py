"""A small cluster of workloads: builders, an API server, and the controllers run until nothing is left to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from simulator.apiserver import ApiServer
from simulator.builders.core import node
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
    """A large node."""
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
        for pod in finished:
            done.setdefault(("jobs", "default", pod["metadata"]["ownerReferences"][0]["name"]), []).append(pod)
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
        while waiting := [pod for pod in self.server.objects("pods") if not pod["spec"].get("nodeName")]:
            for pod in waiting:
                self.server.bind(pod["metadata"]["name"], node_of(pod), pod["metadata"]["namespace"])
            self.run()

    @property
    def pods(self) -> list[str]:
        """The names of all pods, sorted."""
        return sorted(pod["metadata"]["name"] for pod in self.server.objects("pods"))

    def reason(self, resource: str, name: str = "w") -> str:
        """Return why the workload has fewer pods than it requests."""
        return self.controllers.tallies[resource, "default", name].reason
