"""The two protection controllers, which release deleted volumes and claims once no pod uses them."""

from __future__ import annotations

from typing import Final

from scheduler.api.core_v1 import Pod
from scheduler.api.storage_v1 import claim_uses
from simulator.controllers.controller import Actor, Key, Object, key_of, read

_CLAIM: Final = "kubernetes.io/pvc-protection"
_VOLUME: Final = "kubernetes.io/pv-protection"


class ProtectionController(Actor):
    """Takes the finalizers of a deleted claim that no pod on a node names, and of a deleted volume that is not Bound.

    Its model is pkg/controller/volume/pvcprotection of Kubernetes.
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
        obj = self._server.find(resource, name, namespace)
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
