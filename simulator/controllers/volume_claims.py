"""Actors: the controllers of ephemeral volumes and of the protection of volumes and claims.

The two protection controllers: they release deleted volumes and claims once no pod uses them.
"""

from __future__ import annotations

import contextlib
from typing import Final

from scheduler.api.core_v1 import Pod
from scheduler.api.storage_v1 import PersistentVolumeClaim, claim_uses, not_owned
from scheduler.core.clock import Clock
from scheduler.manifests.pods import ephemeral_claims
from simulator.apiserver import ApiServer, Refused
from simulator.controllers.controller import Actor, Key, Object, key_of, read


class EphemeralVolumeController(Actor):
    """`<pod>-<volume>` for each, owned by the pod, `delay_s` after the pod. A claim of that name stays whose it is.

    Upstream: pkg/controller/volume/ephemeral/controller.go ephemeralController
    """

    component = "ephemeral-volume-controller"
    resources = ("pods",)

    def __init__(self, server: ApiServer, *, clock: Clock | None = None, delay_s: float = 0) -> None:
        self._delay_s = delay_s
        super().__init__(server, clock=clock)

    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        if resource == "pods" and type_ == "ADDED" and _volumes(obj):
            self._note(key_of(resource, obj), self._delay_s)
        elif resource == "persistentvolumeclaims" and type_ == "DELETED":
            for owner in obj["metadata"].get("ownerReferences") or ():
                if owner["kind"] == "Pod":
                    self._note(("pods", obj["metadata"]["namespace"], owner["name"]), self._delay_s)

    def _handle(self, key: Key) -> None:
        _, namespace, name = key
        pod = self._find("pods", name, namespace)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        for claim in ephemeral_claims(pod):
            found = self._find("persistentvolumeclaims", claim["metadata"]["name"], namespace)
            if found is None:
                with contextlib.suppress(Refused):  # its namespace is going, or the template cannot be
                    self._server.create("persistentvolumeclaims", claim)
            elif why := self._why_not(pod, found):
                self._record(pod, "Warning", "FailedToCreatePVC", why)

    def _why_not(self, pod: Object, claim: Object) -> str:
        owner, owned = read(Pod, pod), read(PersistentVolumeClaim, claim)
        return "" if owner is None or owned is None else not_owned(owner, owned)


def _volumes(pod: Object) -> list[Object]:
    return [volume for volume in pod["spec"].get("volumes") or () if volume.get("ephemeral")]


_CLAIM: Final = "kubernetes.io/pvc-protection"
_VOLUME: Final = "kubernetes.io/pv-protection"


class ProtectionController(Actor):
    """Takes the finalizers of a deleted claim that no pod on a node names, and of a deleted volume that is not Bound.

    Upstream: pkg/controller/volume/pvcprotection/pvc_protection_controller.go Controller
    """

    component = "protection-controller"
    resources = ("persistentvolumeclaims", "persistentvolumes")

    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        if resource in self.resources:
            if type_ != "DELETED" and obj["metadata"].get("deletionTimestamp"):
                self._note(key_of(resource, obj))
        elif resource == "pods" and type_ != "ADDED":
            namespace = obj["metadata"]["namespace"]
            for name in _claims(obj):
                self._note(("persistentvolumeclaims", namespace, name))

    def _handle(self, key: Key) -> None:
        resource, namespace, name = key
        obj = self._find(resource, name, namespace)
        if obj is None or not obj["metadata"].get("deletionTimestamp"):
            return
        is_claim = resource == "persistentvolumeclaims"
        finalizer = _CLAIM if is_claim else _VOLUME
        in_use = self._is_named(obj) if is_claim else obj["status"].get("phase") == "Bound"
        finalizers = obj["metadata"].get("finalizers") or []
        if finalizer in finalizers and not in_use:
            obj["metadata"]["finalizers"] = [each for each in finalizers if each != finalizer]
            self._server.update(resource, obj)

    def _is_named(self, claim: Object) -> bool:
        metadata = claim["metadata"]
        return any(
            pod["metadata"]["namespace"] == metadata["namespace"]
            and pod["spec"].get("nodeName")
            and metadata["name"] in _claims(pod)
            for pod in self._server.objects("pods")
        )


def _claims(obj: Object) -> set[str]:
    pod = read(Pod, obj)
    return set() if pod is None else {use.name for use in claim_uses(pod)}
