"""Actor: the kubelets of all nodes. They admit what a scheduler binds, or reject it as a real one does.

Resources are summed over the pods of the node that have not finished, in the order the pods arrived. Host ports,
taints and affinity are not looked at again; pods of a node that does not exist wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from typing import Any, Final

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import Requests, allocatable, requests_of
from scheduler.api.quantity import is_extended
from scheduler.core.clock import Clock, SystemClock
from simulator.apiserver import ApiServer, Refused
from simulator.controllers.controller import is_finished

Object = dict[str, Any]
_FIRST: Final = ("cpu", "memory", "ephemeral-storage")
_RUNNING: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


class Kubelet:
    """Watches one server. `async with` runs it in the background; `step()` does by hand what is due.

    A pod that is admitted becomes Running and Ready at once; a deleted one goes as soon as it is seen.

    Upstream: pkg/kubelet/lifecycle/predicate.go predicateAdmitHandler
    """

    def __init__(self, server: ApiServer, *, clock: Clock | None = None, grace_used_s: float = 0) -> None:
        self._server = server
        self._clock = clock or SystemClock()
        self._grace_used_s = grace_used_s
        self._due: dict[str, Object] = {}
        self._wake = asyncio.Event()
        self._held: dict[str, dict[str, Requests]] = {}
        self._stopping: dict[str, float] = {}
        self._unsubscribe = server.subscribe(self._on_write)
        self._task: asyncio.Task[None] | None = None
        for pod in server.objects("pods"):
            self._on_write("ADDED", "pods", pod)

    async def __aenter__(self) -> Kubelet:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._unsubscribe()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def step(self) -> int:
        """Handle everything that has happened since; returns the number of pods looked at."""
        count = 0
        while self._due:
            due, self._due = self._due, {}
            for pod in due.values():
                count += 1
                self._handle(pod)
        self._wake.clear()
        return count

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self.step()
            if self._stopping:
                await self._clock.sleep(max(0.0, min(self._stopping.values()) - self._clock.now()))
                self._requeue_stopped()

    def _requeue_stopped(self) -> None:
        for pod in self._server.objects("pods"):
            if pod["metadata"]["uid"] in self._stopping:
                self._on_write("MODIFIED", "pods", pod)

    def _on_write(self, type_: str, resource: str, obj: Object) -> None:
        if resource == "nodes" and type_ == "ADDED":
            for pod in self._server.objects("pods"):
                if pod["spec"].get("nodeName") == obj["metadata"]["name"]:
                    self._on_write("MODIFIED", "pods", pod)
        if resource != "pods" or not obj["spec"].get("nodeName"):
            return
        uid = obj["metadata"]["uid"]
        if type_ == "DELETED":
            self._forget(obj)
            self._due.pop(uid, None)
            self._stopping.pop(uid, None)
            return
        self._due[uid] = obj
        self._wake.set()

    def _handle(self, pod: Object) -> None:
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            self._finish(pod)
        elif is_finished(pod):
            self._forget(pod)
        elif metadata["uid"] not in self._held.get(pod["spec"]["nodeName"], {}):
            self._admit(pod)

    def _finish(self, pod: Object) -> None:
        metadata = pod["metadata"]
        if self._grace_used_s:
            end = self._stopping.setdefault(metadata["uid"], self._clock.now() + self._grace_used_s)
            if self._clock.now() < end:
                return
        with contextlib.suppress(Refused):  # another client was faster, or a finalizer holds it
            self._server.delete("pods", metadata["name"], metadata["namespace"], grace_s=0, uid=metadata["uid"])
        self._stopping.pop(metadata["uid"], None)
        self._forget(pod)

    def _forget(self, pod: Object) -> None:
        self._held.get(pod["spec"]["nodeName"], {}).pop(pod["metadata"]["uid"], None)

    def _admit(self, pod: Object) -> None:
        node = self._server.find("nodes", pod["spec"]["nodeName"])
        if node is None:
            return
        held = self._held.setdefault(node["metadata"]["name"], {})
        wanted = _counted(from_manifest(Pod, pod))
        short = _short(allocatable(from_manifest(Node, node).status.allocatable), list(held.values()), wanted)
        if short is None or pod["status"].get("phase") == "Running":  # the pod was admitted before
            held[pod["metadata"]["uid"]] = wanted
            if pod["status"].get("phase") == "Pending":
                self._report(pod, self._running())
            return
        resource, requested, used, capacity = short
        message = (
            f"Pod was rejected: Node didn't have enough resource: {resource}, "
            f"requested: {requested}, used: {used}, capacity: {capacity}"
        )
        self._report(pod, {"phase": "Failed", "reason": f"OutOf{resource}", "message": message})

    def _report(self, pod: Object, status: Object) -> None:
        metadata = pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
        with contextlib.suppress(Refused):  # deleted in between
            self._server.patch("pods", metadata["name"], patch, namespace=metadata["namespace"], subresource="status")

    def _running(self) -> Object:
        now = dt.datetime.fromtimestamp(self._clock.wall(), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"phase": "Running", "startTime": now, "conditions": running_conditions(now)}


def running_conditions(since: str) -> list[Object]:
    """Return the conditions of a pod that runs and is ready. `since` is a time, "" if it is not known."""
    time = {"lastTransitionTime": since} if since else {}
    return [{"type": each, "status": "True"} | time for each in _RUNNING]


def _short(capacity: Requests, held: list[Requests], wanted: Requests) -> tuple[str, int, int, int] | None:
    """(resource, requested, used, capacity) of the first resource that does not suffice; pods come first.

    Extended resources that the node does not have are not counted: an extender manages them.

    Upstream: pkg/kubelet/lifecycle/predicate.go removeMissingExtendedResources
    """
    room = capacity.get("pods", 0)
    if len(held) + 1 > room:
        return "pods", 1, len(held), room
    counted = (name for name in wanted if name in capacity or not is_extended(name))
    for name in sorted(counted, key=lambda n: (_FIRST.index(n) if n in _FIRST else len(_FIRST), n)):
        used = sum(requests.get(name, 0) for requests in held)
        if wanted[name] and used + wanted[name] > capacity.get(name, 0):
            return name, wanted[name], used, capacity.get(name, 0)
    return None


def _counted(pod: Pod) -> Requests:
    """Return the allocatable resources. Devices of claims are counted by the claim."""
    served = pod.status.extended_resource_claim_status
    names = {mapping.resource_name for mapping in served.request_mappings} if served is not None else set()
    return {name: amount for name, amount in requests_of(pod).items() if name not in names}
