"""The controller of the claims of ephemeral volumes."""

from __future__ import annotations

import contextlib

from scheduler.api.core_v1 import Pod
from scheduler.api.storage_v1 import PersistentVolumeClaim, not_owned
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
        pod = self._server.find("pods", name, namespace)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        for claim in ephemeral_claims(pod):
            found = self._server.find("persistentvolumeclaims", claim["metadata"]["name"], namespace)
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
