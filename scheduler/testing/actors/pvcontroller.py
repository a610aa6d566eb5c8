"""Actor: the PV controller. It joins claims and volumes, parts them again, and gives both their phases.

As pkg/controller/volume/persistentvolume of Kubernetes 1.36, seen from the API: docs/spec/volumes.md §5.3, §6.7. It
provisions nothing itself, knows no in-tree plugins, and instead of every 15 s looks again when something has changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from scheduler.core.clock import Clock
from scheduler.core.decode import from_manifest
from scheduler.core.storage import WAIT_FOR_FIRST_CONSUMER
from scheduler.core.volumes import (
    BIND_COMPLETED,
    NO_PROVISIONER,
    SELECTED_NODE,
    STORAGE_PROVISIONERS,
    PersistentVolume,
    PersistentVolumeClaim,
    is_for,
)
from scheduler.testing.actors.acting import Actor, Key, Object, annotations_of, key_of
from scheduler.testing.actors.joining import bind, is_unfinished, set_phase, unbind
from scheduler.testing.actors.matching import best_volume, mismatch, same_mode
from scheduler.testing.apiserver import ApiServer

PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
_CLAIMS: Final = "persistentvolumeclaims"
_VOLUMES: Final = "persistentvolumes"
_IN_TREE: Final = "kubernetes.io/"


class PersistentVolumeController(Actor):
    """Looks at a claim `delay_s` after it changed, at a volume at once.

    `loses` is how many bindings it is to lose from now on: it meant to do them, and died before the first write. Only
    `look_again`, or another change, brings it back to them. `reclaims`: volumes with the policy Delete that nobody
    provisioned go when their claim has gone; else they become Failed, as where no plugin can delete them.
    """

    component = "persistentvolume-controller"
    resources = ("storageclasses", _VOLUMES, _CLAIMS)

    def __init__(
        self,
        server: ApiServer,
        *,
        clock: Clock | None = None,
        delay_s: float = 0,
        loses: int = 0,
        reclaims: bool = False,
    ) -> None:
        self.loses = loses
        self.lost = 0
        """How many bindings it has lost."""
        self.bound = 0
        """How many claims it has bound."""
        self._delay_s = delay_s
        self._reclaims = reclaims
        self._waiting: dict[str, set[Key]] = defaultdict(set)
        """Class → claims that have no volume yet."""
        self._named: dict[str, set[Key]] = defaultdict(set)
        """Volume → claims with its name."""
        self._meant: dict[Key, set[str]] = defaultdict(set)
        """Claim → volumes whose claimRef names it."""
        self._means: dict[str, Key] = {}
        super().__init__(server, clock=clock)

    # -- what is heard -------------------------------------------------------------------------------------------------

    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        match resource:
            case "persistentvolumeclaims":
                self._heard_claim(type_, obj)
            case "persistentvolumes":
                self._heard_volume(type_, obj)
            case "storageclasses":
                self._note_all(self._waiting.get(obj["metadata"]["name"], ()))

    def _heard_claim(self, type_: str, claim: Object) -> None:
        key, volume = key_of(_CLAIMS, claim), claim["spec"].get("volumeName", "")
        class_name = from_manifest(PersistentVolumeClaim, claim).storage_class
        for claims in (self._waiting[class_name], self._named[volume]):
            claims.discard(key)
        if type_ != "DELETED":
            (self._named[volume] if volume else self._waiting[class_name]).add(key)
            self._note(key, self._delay_s)
        for name in self._meant.get(key, ()):
            self._note((_VOLUMES, "", name))

    def _heard_volume(self, type_: str, volume: Object) -> None:
        name, reference = volume["metadata"]["name"], volume["spec"].get("claimRef")
        meant = (_CLAIMS, reference.get("namespace", ""), reference["name"]) if reference else None
        before = self._means.pop(name, None)
        if before is not None:
            self._meant[before].discard(name)
        if meant is not None:
            if type_ != "DELETED":
                self._means[name] = meant
                self._meant[meant].add(name)
            self._note(meant, self._delay_s)
        self._note_all(self._named.get(name, ()))
        if type_ != "DELETED":
            self._note((_VOLUMES, "", name))
            if reference is None:
                self._note_all(self._waiting.get(from_manifest(PersistentVolume, volume).storage_class, ()))

    def _note_all(self, claims: Iterable[Key]) -> None:
        for key in claims:
            self._note(key, self._delay_s)

    def _handle(self, key: Key) -> None:
        resource, namespace, name = key
        obj = self._find(resource, name, namespace)
        if obj is None:
            return
        if resource == _VOLUMES:
            self._sync_volume(obj)
        elif BIND_COMPLETED in annotations_of(obj):
            self._sync_bound(obj)
        elif obj["spec"].get("volumeName"):
            self._sync_asking(obj)
        else:
            self._sync_open(obj)

    # -- claims --------------------------------------------------------------------------------------------------------

    def _sync_open(self, claim: Object) -> None:
        """No volume yet, and none asked for by name."""
        class_name = from_manifest(PersistentVolumeClaim, claim).storage_class
        storage_class = self._find("storageclasses", class_name) if class_name else None
        waits = storage_class is not None and storage_class["volumeBindingMode"] == WAIT_FOR_FIRST_CONSUMER
        volume = best_volume(claim, self._server.objects(_VOLUMES), waits=waits)
        if volume is not None:
            self._bind(self._server.get(_VOLUMES, volume["metadata"]["name"]), claim)
        elif waits and SELECTED_NODE not in annotations_of(claim):
            why = "waiting for first consumer to be created before binding"
            self._tell(claim, "Normal", "WaitForFirstConsumer", why)
        elif not class_name:
            why = "no persistent volumes available for this claim and no storage class is set"
            self._tell(claim, "Normal", "FailedBinding", why)
        else:
            self._ask_provisioner(claim, class_name, storage_class)

    def _ask_provisioner(self, claim: Object, class_name: str, storage_class: Object | None) -> None:
        if storage_class is None:
            why = f'storageclass.storage.k8s.io "{class_name}" not found'
            self._tell(claim, "Warning", "ProvisioningFailed", why)
            return
        provisioner = storage_class["provisioner"]
        if provisioner == NO_PROVISIONER or provisioner.startswith(_IN_TREE):
            self._tell(claim, "Warning", "ProvisioningFailed", f"no volume plugin matched name: {provisioner}")
            return
        if annotations_of(claim).get(STORAGE_PROVISIONERS[0]) != provisioner:
            claim["metadata"]["annotations"] = annotations_of(claim) | dict.fromkeys(STORAGE_PROVISIONERS, provisioner)
            claim = self._server.update(_CLAIMS, claim)
        why = (
            f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the "
            "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
            "correctly registered."
        )
        self._tell(claim, "Normal", "ExternalProvisioning", why)

    def _sync_asking(self, claim: Object) -> None:
        """Names its volume, and is not bound to it yet."""
        name = claim["spec"]["volumeName"]
        volume = self._find(_VOLUMES, name)
        if volume is None:
            return
        if volume["spec"].get("claimRef") is None:
            why = mismatch(volume, claim)
            if why:
                self._tell(claim, "Warning", "VolumeMismatch", f'Cannot bind to requested volume "{name}": {why}')
            else:
                self._bind(volume, claim)
        elif is_for(from_manifest(PersistentVolume, volume), from_manifest(PersistentVolumeClaim, claim)):
            self._bind(volume, claim)
        else:
            self._tell(claim, "Warning", "FailedBinding", f'volume "{name}" already bound to a different claim.')

    def _sync_bound(self, claim: Object) -> None:
        """Was bound: it is still, or lost."""
        name = claim["spec"].get("volumeName", "")
        volume = self._find(_VOLUMES, name) if name else None
        if not name:
            why = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
            self._lose(claim, "ClaimLost", why)
        elif volume is None:
            self._lose(claim, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
        elif volume["spec"].get("claimRef", claim["metadata"]).get("uid") == claim["metadata"]["uid"]:
            self._bind(volume, claim)
        else:
            why = "Two claims are bound to the same volume, this one is bound incorrectly"
            self._lose(claim, "ClaimMisbound", why)

    def _lose(self, claim: Object, reason: str, why: str) -> None:
        if claim["status"].get("phase") != "Lost":
            claim["status"] = {"phase": "Lost"}
            claim = self._server.update(_CLAIMS, claim, subresource="status")
            self._tell(claim, "Warning", reason, why)

    def _bind(self, volume: Object, claim: Object) -> None:
        """Unless it is one of those to lose, or nothing is left to do."""
        is_done = not is_unfinished(volume, claim)
        if is_done or self.loses == 0:
            bind(self._server, volume, claim)
            self.bound += not is_done
        else:
            self.loses -= 1
            self.lost += 1

    # -- volumes -------------------------------------------------------------------------------------------------------

    def _sync_volume(self, volume: Object) -> None:
        reference = volume["spec"].get("claimRef")
        if reference is None or not reference.get("uid"):
            set_phase(self._server, volume, "Available")
            return
        claim = self._find(_CLAIMS, reference["name"], reference.get("namespace", ""))
        if claim is None or claim["metadata"]["uid"] != reference["uid"]:
            self._release(volume)
        elif not claim["spec"].get("volumeName"):
            if same_mode(from_manifest(PersistentVolume, volume), from_manifest(PersistentVolumeClaim, claim)):
                self._note(key_of(_CLAIMS, claim), self._delay_s)
            else:
                name = volume["metadata"]["name"]
                why = f'Cannot bind PersistentVolume "{name}" to requested PersistentVolumeClaim due to incompatible volumeMode.'
                self._tell(claim, "Warning", "VolumeMismatch", why)
        elif claim["spec"]["volumeName"] == volume["metadata"]["name"]:
            set_phase(self._server, volume, "Bound")
        elif PROVISIONED_BY in annotations_of(volume) and _policy(volume) == "Delete":
            self._release(volume)
        else:
            unbind(self._server, volume)

    def _release(self, volume: Object) -> None:
        """Its claim has gone, or has another volume."""
        if volume["status"].get("phase") not in {"Released", "Failed"}:
            volume = set_phase(self._server, volume, "Released")
        if _policy(volume) == "Recycle":
            self._fail(volume, "VolumeFailedRecycle", "No recycler plugin found for the volume!")
        if _policy(volume) != "Delete" or PROVISIONED_BY in annotations_of(volume) or volume["spec"].get("csi"):
            return
        if not self._reclaims:
            name = volume["metadata"]["name"]
            why = f'error getting deleter volume plugin for volume "{name}": no deletable volume plugin matched'
            self._fail(volume, "VolumeFailedDelete", why)
        elif not volume["metadata"].get("deletionTimestamp"):
            self._server.delete(_VOLUMES, volume["metadata"]["name"])

    def _fail(self, volume: Object, reason: str, why: str) -> None:
        if volume["status"].get("phase") != "Failed":
            volume = set_phase(self._server, volume, "Failed", why)
            self._tell(volume, "Warning", reason, why)


def _policy(volume: Object) -> str:
    return str(volume["spec"]["persistentVolumeReclaimPolicy"])
