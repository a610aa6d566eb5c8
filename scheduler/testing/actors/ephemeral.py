"""Actor: the controller that makes the claims of ephemeral volumes. It deletes nothing."""

from __future__ import annotations

import contextlib

from scheduler.core.clock import Clock
from scheduler.core.pod import Pod
from scheduler.core.podclaims import not_owned
from scheduler.core.volumes import PersistentVolumeClaim
from scheduler.testing.actors.acting import Actor, Key, Object, key_of, read
from scheduler.testing.apiserver import ApiServer, Refused


class EphemeralVolumeController(Actor):
    """`<pod>-<volume>` for each, owned by the pod, `delay_s` after the pod. A claim of that name stays whose it is."""

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
        for volume in _volumes(pod):
            claim = f"{name}-{volume['name']}"
            found = self._find("persistentvolumeclaims", claim, namespace)
            if found is None:
                self._create(pod, claim, volume["ephemeral"]["volumeClaimTemplate"])
            elif why := self._why_not(pod, found):
                self._tell(pod, "Warning", "FailedToCreatePVC", why)

    def _why_not(self, pod: Object, claim: Object) -> str:
        owner, owned = read(Pod, pod), read(PersistentVolumeClaim, claim)
        return "" if owner is None or owned is None else not_owned(owner, owned)

    def _create(self, pod: Object, name: str, template: Object) -> None:
        metadata = pod["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        given = template.get("metadata") or {}
        claim = {
            "metadata": {key: given[key] for key in ("labels", "annotations") if given.get(key)}
            | {
                "name": name,
                "namespace": metadata["namespace"],
                "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
            },
            "spec": template["spec"],
        }
        with contextlib.suppress(Refused):  # its namespace is going, or the template cannot be
            self._server.create("persistentvolumeclaims", claim)


def _volumes(pod: Object) -> list[Object]:
    return [volume for volume in pod["spec"].get("volumes") or () if volume.get("ephemeral")]
