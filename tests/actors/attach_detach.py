"""The attach-detach controller and the external attachers."""

from __future__ import annotations

import contextlib
import hashlib
from collections import defaultdict
from typing import Final, NamedTuple

from scheduler.api.core_v1 import Pod
from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim, claim_uses
from scheduler.core.clock import Clock
from simulator.apiserver import ApiServer, Refused
from simulator.controllers.controller import Actor, Key, Object, key_of, read

_ATTACHMENTS: Final = "volumeattachments"
_OVER: Final = frozenset({"Succeeded", "Failed"})


class _Wanted(NamedTuple):
    driver: str
    handle: str
    volume: str
    node: str

    @property
    def name(self) -> str:
        digest = hashlib.sha256(f"{self.handle}{self.driver}{self.node}".encode()).hexdigest()
        return f"csi-{digest}"


class AttachDetachController(Actor):
    """A VolumeAttachment per CSI volume and node where an unfinished pod uses it.

    It says attached `attach_delay_s` later, and goes `detach_delay_s` after the last such pod. Drivers whose CSIDriver
    says that nothing is to be attached get none.

    Its model is pkg/controller/volume/attachdetach of Kubernetes.
    """

    component = "attachdetach-controller"
    resources = ("csidrivers", "persistentvolumes", "persistentvolumeclaims", "pods", _ATTACHMENTS)

    def __init__(
        self, server: ApiServer, *, clock: Clock | None = None, attach_delay_s: float = 0, detach_delay_s: float = 0
    ) -> None:
        self._attach_delay_s = attach_delay_s
        self._detach_delay_s = detach_delay_s
        self._users: dict[str, set[Key]] = defaultdict(set)
        """Claim → pods that name it."""
        self._claims: dict[str, set[str]] = defaultdict(set)
        """Volume → claims bound to it."""
        self._wants: dict[Key, frozenset[_Wanted]] = {}
        self._needed: dict[str, set[Key]] = defaultdict(set)
        """Attachment → pods that need it."""
        super().__init__(server, clock=clock)

    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        metadata = obj["metadata"]
        match resource:
            case "pods":
                self._heard_pod(type_, obj)
            case "persistentvolumeclaims":
                key = f"{metadata['namespace']}/{metadata['name']}"
                if obj["spec"].get("volumeName"):
                    self._claims[obj["spec"]["volumeName"]].add(key)
                self._note_users(key)
            case "persistentvolumes":
                for key in self._claims.get(metadata["name"], ()):
                    self._note_users(key)
            case "csidrivers":
                for users in self._users.values():
                    for pod in users:
                        self._note(pod)
            case "volumeattachments" if type_ == "ADDED":
                self._note((_ATTACHMENTS, "attach", metadata["name"]), self._attach_delay_s)
                self._note((_ATTACHMENTS, "detach", metadata["name"]), self._detach_delay_s)

    def _heard_pod(self, type_: str, obj: Object) -> None:
        pod, key = read(Pod, obj), key_of("pods", obj)
        for use in () if pod is None else claim_uses(pod):
            (self._users[use.key].discard if type_ == "DELETED" else self._users[use.key].add)(key)
            self._note(key)

    def _note_users(self, claim: str) -> None:
        for pod in self._users.get(claim, ()):
            self._note(pod)

    def _handle(self, key: Key) -> None:
        match key:
            case ("pods", namespace, name):
                self._settle(key, self._server.find("pods", name, namespace))
            case (_, "attach", name):
                attachment = self._server.find(_ATTACHMENTS, name)
                if attachment is not None and not attachment["status"].get("attached"):
                    attachment["status"] = attachment["status"] | {"attached": True}
                    self._server.update(_ATTACHMENTS, attachment, subresource="status")
            case (_, _, name):
                self._detach(name)

    def _settle(self, key: Key, pod: Object | None) -> None:
        """Update the attachments that this pod needs."""
        typed = None if pod is None else read(Pod, pod)
        wants = frozenset() if typed is None else self._needs(typed)
        before = self._wants.pop(key, frozenset())
        if wants:
            self._wants[key] = wants
        for wanted in before - wants:
            self._needed[wanted.name].discard(key)
            if not self._needed[wanted.name]:
                self._note((_ATTACHMENTS, "detach", wanted.name), self._detach_delay_s)
        for wanted in sorted(wants):
            self._needed[wanted.name].add(key)
            self._attach(wanted)

    def _needs(self, pod: Pod) -> frozenset[_Wanted]:
        if not pod.spec.node_name or pod.status.phase in _OVER:
            return frozenset()
        found = set()
        for use in claim_uses(pod):
            raw = self._server.find("persistentvolumeclaims", use.name, pod.metadata.namespace)
            claim = None if raw is None else read(PersistentVolumeClaim, raw)
            if claim is None or not claim.is_fully_bound:
                continue
            bound = self._server.find("persistentvolumes", claim.spec.volume_name)
            volume = None if bound is None else read(PersistentVolume, bound)
            csi = None if volume is None else volume.spec.csi
            if csi is not None and self._attaches(csi.driver):
                found.add(_Wanted(csi.driver, csi.volume_handle, claim.spec.volume_name, pod.spec.node_name))
        return frozenset(found)

    def _attaches(self, driver: str) -> bool:
        found = self._server.find("csidrivers", driver)
        return found is None or bool(found["spec"].get("attachRequired", True))

    def _attach(self, wanted: _Wanted) -> None:
        spec = {"attacher": wanted.driver, "nodeName": wanted.node, "source": {"persistentVolumeName": wanted.volume}}
        with contextlib.suppress(Refused):  # it is there already
            self._server.create(_ATTACHMENTS, {"metadata": {"name": wanted.name}, "spec": spec})

    def _detach(self, name: str) -> None:
        if not self._needed.get(name):
            with contextlib.suppress(Refused):
                self._server.delete(_ATTACHMENTS, name)
