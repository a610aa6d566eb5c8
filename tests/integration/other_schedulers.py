"""Controllers of histories with volumes: a garbage collector, and another scheduler."""

from __future__ import annotations

from collections import Counter
from typing import Final

from scheduler.api.core_v1 import Pod
from scheduler.api.storage_v1 import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    NO_PROVISIONER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    claim_uses,
)
from scheduler.core.clock import Clock
from simulator.apiserver import ApiServer
from simulator.controllers import Actor
from simulator.controllers.controller import Key, Object, annotations_of, key_of, read

_CLAIMS: Final = "persistentvolumeclaims"
_VOLUMES: Final = "persistentvolumes"
_TRIES_MAX: Final = 3


class GarbageCollector(Actor):
    component = "garbage-collector"
    resources = (_CLAIMS,)

    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        if resource == _CLAIMS and type_ == "ADDED":
            self._note(key_of(resource, obj))
        elif resource == "pods" and type_ == "DELETED":
            for claim in self._server.objects(_CLAIMS):
                if any(
                    owner["uid"] == obj["metadata"]["uid"] for owner in claim["metadata"].get("ownerReferences", ())
                ):
                    self._note(key_of(_CLAIMS, claim))

    def _handle(self, key: Key) -> None:
        resource, namespace, name = key
        claim = self._server.find(resource, name, namespace)
        owners = {owner["uid"] for owner in claim["metadata"].get("ownerReferences", ())} if claim else set()
        present = {pod["metadata"]["uid"] for pod in self._server.objects("pods")}
        if owners and not owners & present:
            self._server.delete(_CLAIMS, name)


class OtherScheduler(Actor):
    """As kube-scheduler with one node only: pre-binds volumes, selects that node, and binds its pods.

    It is slow, and gives up a claim that lost its node too often.
    """

    component = "other-scheduler"
    resources = ("pods",)

    def __init__(
        self, server: ApiServer, *, clock: Clock, scheduler_name: str, node_name: str, delay_s: float = 1
    ) -> None:
        self._name = scheduler_name
        self._node_name = node_name
        self._delay_s = delay_s
        self._tries: Counter[str] = Counter()
        super().__init__(server, clock=clock)

    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        if resource == "pods" and type_ != "DELETED" and self._waits(obj):
            self._note(key_of(resource, obj), self._delay_s)
        elif resource in {_CLAIMS, "nodes"}:
            for pod in self._server.objects("pods"):
                if self._waits(pod):
                    self._note(key_of("pods", pod), self._delay_s)

    def _waits(self, pod: Object) -> bool:
        """Return whether it is a pending pod with volumes; pods without them are not served."""
        spec = pod["spec"]
        return spec["schedulerName"] == self._name and not spec.get("nodeName") and bool(spec.get("volumes"))

    def _handle(self, key: Key) -> None:
        _, namespace, name = key
        obj, node = self._server.find("pods", name, namespace), self._server.find("nodes", self._node_name)
        pod = read(Pod, obj) if obj is not None and self._waits(obj) else None
        if pod is None or node is None:
            return
        claims = [self._server.find(_CLAIMS, use.name, namespace) for use in claim_uses(pod)]
        for claim in claims:
            if claim is not None and not _is_done(claim):
                self._provide(claim, node["metadata"]["labels"])
        if all(claim is not None and _is_done(claim) for claim in claims):
            self._server.bind(name, self._node_name)

    def _provide(self, obj: Object, labels: dict[str, str]) -> None:
        claim = read(PersistentVolumeClaim, obj)
        storage_class = None if claim is None else self._server.find("storageclasses", claim.storage_class)
        if claim is None or storage_class is None or claim.spec.volume_name or claim.selected_node is not None:
            return
        if storage_class["volumeBindingMode"] != WAIT_FOR_FIRST_CONSUMER or claim.metadata.deletion_timestamp:
            return
        if storage_class["provisioner"] == NO_PROVISIONER:
            self._pre_bind(obj, claim, labels)
        elif self._tries[claim.metadata.uid] < _TRIES_MAX:
            self._tries[claim.metadata.uid] += 1
            obj["metadata"]["annotations"] = annotations_of(obj) | {SELECTED_NODE: self._node_name}
            self._server.update(_CLAIMS, obj)

    def _pre_bind(self, obj: Object, claim: PersistentVolumeClaim, labels: dict[str, str]) -> None:
        request = claim.request
        volumes = [(volume, read(PersistentVolume, volume)) for volume in self._server.objects(_VOLUMES)]
        if any(
            typed is not None and typed.spec.claim_ref is not None and typed.spec.claim_ref.uid == claim.metadata.uid
            for _, typed in volumes
        ):
            return
        fitting = [
            volume
            for volume, typed in volumes
            if typed is not None
            and typed.storage_class == claim.storage_class
            and typed.spec.claim_ref is None
            and typed.status.phase == "Available"
            and typed.metadata.deletion_timestamp is None
            and request is not None
            and typed.capacity.nano >= request.nano
            and reaches(volume, labels)
        ]
        if fitting:
            best = self._server.get(_VOLUMES, min(fitting, key=_size_of)["metadata"]["name"])
            metadata = obj["metadata"]
            reference = {field: metadata[field] for field in ("namespace", "name", "uid", "resourceVersion")}
            best["spec"]["claimRef"] = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"} | reference
            best["metadata"]["annotations"] = annotations_of(best) | {BOUND_BY_CONTROLLER: "yes"}
            self._server.update(_VOLUMES, best)


def reaches(volume: Object, labels: dict[str, str]) -> bool:
    """Return whether nodes with these labels can use the volume. Volumes of histories name one label, or none."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    if required is None:
        return True
    return any(
        all(labels.get(each["key"]) in each["values"] for each in term["matchExpressions"])
        for term in required["nodeSelectorTerms"]
    )


def _is_done(claim: Object) -> bool:
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in annotations_of(claim)


def _size_of(volume: Object) -> tuple[int, str]:
    return gibi(volume["spec"]["capacity"]["storage"]), volume["metadata"]["name"]


def gibi(amount: str) -> int:
    return int(amount.removesuffix("Gi"))
