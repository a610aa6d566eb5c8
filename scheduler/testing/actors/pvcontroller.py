"""Actor: the PV controller. It joins claims and volumes, parts them again, and gives both their phases.

As pkg/controller/volume/persistentvolume of Kubernetes 1.36, seen from the API: docs/spec/volumes.md §5.3, §6.7. It
provisions nothing itself, leaves in-tree plugins to the CSI drivers that stand in for them, and instead of every 15 s looks
again when something has changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from scheduler.core.clock import Clock
from scheduler.core.intree import KINDS
from scheduler.core.storage import WAIT_FOR_FIRST_CONSUMER
from scheduler.core.volumes import (
    BIND_COMPLETED,
    NO_PROVISIONER,
    STORAGE_PROVISIONERS,
    PersistentVolume,
    PersistentVolumeClaim,
    is_for,
)
from scheduler.testing.actors.acting import Actor, Key, Object, annotations_of, key_of, read
from scheduler.testing.actors.joining import bind, is_unfinished, set_phase, unbind
from scheduler.testing.actors.known import Known, claim_key
from scheduler.testing.actors.matching import best_volume, mismatch, same_mode
from scheduler.testing.apiserver import ApiServer

PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
_CLAIMS: Final = "persistentvolumeclaims"
_VOLUMES: Final = "persistentvolumes"
_IN_TREE: Final = "kubernetes.io/"
_STAND_INS: Final = {kind.plugin: kind.driver for kind in KINDS}


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
        self._known = Known()
        self._late: set[str] = set()
        """Classes that wait for the first consumer."""
        super().__init__(server, clock=clock)

    # -- what is heard -------------------------------------------------------------------------------------------------

    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        match resource:
            case "persistentvolumeclaims":
                self._heard_claim(type_, obj)
            case "persistentvolumes":
                self._heard_volume(type_, obj)
            case "storageclasses":
                name, waits = obj["metadata"]["name"], obj["volumeBindingMode"] == WAIT_FOR_FIRST_CONSUMER
                (self._late.add if waits and type_ != "DELETED" else self._late.discard)(name)
                self._note_all(self._known.waiting(name))

    def _heard_claim(self, type_: str, obj: Object) -> None:
        key = key_of(_CLAIMS, obj)
        self._known.claim_written(type_, obj)
        self._note(key, self._delay_s)
        for name in self._known.naming(key):
            self._note((_VOLUMES, "", name))

    def _heard_volume(self, type_: str, obj: Object) -> None:
        name = obj["metadata"]["name"]
        before = self._known.volumes.get(name)
        self._known.volume_written(type_, obj)
        volume = self._known.volumes.get(name)
        self._note((_VOLUMES, "", name))
        self._note_all(self._known.asking(name))
        for each in (before, volume):
            if each is not None and each.spec.claim_ref is not None:
                self._note(claim_key(each), self._delay_s)
        if volume is not None and volume.spec.claim_ref is None and volume.storage_class not in self._late:
            self._note_all(self._known.waiting(volume.storage_class))

    def _note_all(self, claims: Iterable[Key]) -> None:
        for key in claims:
            self._note(key, self._delay_s)

    def _handle(self, key: Key) -> None:
        resource, namespace, name = key
        obj = self._find(resource, name, namespace)
        if resource == _VOLUMES:
            volume = self._known.volumes.get(name)
            if obj is not None and volume is not None:
                self._sync_volume(obj, volume)
            return
        claim = None if obj is None else read(PersistentVolumeClaim, obj)
        if obj is None or claim is None:
            return
        if BIND_COMPLETED in claim.metadata.annotations:
            self._sync_bound(obj, claim)
        elif claim.spec.volume_name:
            self._sync_asking(obj, claim)
        else:
            self._sync_open(obj, claim)

    # -- claims --------------------------------------------------------------------------------------------------------

    def _sync_open(self, obj: Object, claim: PersistentVolumeClaim) -> None:
        """No volume yet, and none asked for by name."""
        class_name = claim.storage_class
        waits = class_name in self._late
        volume = best_volume(claim, self._known.candidates(key_of(_CLAIMS, obj), class_name), waits=waits)
        if volume is not None:
            self._bind(volume, obj)
        elif waits and claim.selected_node is None:
            why = "waiting for first consumer to be created before binding"
            self._tell(obj, "Normal", "WaitForFirstConsumer", why)
        elif not class_name:
            why = "no persistent volumes available for this claim and no storage class is set"
            self._tell(obj, "Normal", "FailedBinding", why)
        else:
            self._ask_provisioner(obj, class_name)

    def _ask_provisioner(self, claim: Object, class_name: str) -> None:
        storage_class = self._find("storageclasses", class_name)
        if storage_class is None:
            why = f'storageclass.storage.k8s.io "{class_name}" not found'
            self._tell(claim, "Warning", "ProvisioningFailed", why)
            return
        provisioner = provisioner_of(storage_class)
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

    def _sync_asking(self, obj: Object, claim: PersistentVolumeClaim) -> None:
        """Names its volume, and is not bound to it yet."""
        name = claim.spec.volume_name
        volume = self._known.volumes.get(name)
        if volume is None:
            return
        if volume.spec.claim_ref is None:
            why = mismatch(volume, claim)
            if why:
                self._tell(obj, "Warning", "VolumeMismatch", f'Cannot bind to requested volume "{name}": {why}')
            else:
                self._bind(volume, obj)
        elif is_for(volume, claim):
            self._bind(volume, obj)
        else:
            self._tell(obj, "Warning", "FailedBinding", f'volume "{name}" already bound to a different claim.')

    def _sync_bound(self, obj: Object, claim: PersistentVolumeClaim) -> None:
        """Was bound: it is still, or lost."""
        name = claim.spec.volume_name
        volume = self._known.volumes.get(name)
        if not name:
            why = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
            self._lose(obj, "ClaimLost", why)
        elif volume is None:
            self._lose(obj, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
        elif volume.spec.claim_ref is None or volume.spec.claim_ref.uid == claim.metadata.uid:
            self._bind(volume, obj)
        else:
            why = "Two claims are bound to the same volume, this one is bound incorrectly"
            self._lose(obj, "ClaimMisbound", why)

    def _lose(self, claim: Object, reason: str, why: str) -> None:
        if claim["status"].get("phase") != "Lost":
            claim["status"] = {"phase": "Lost"}
            claim = self._server.update(_CLAIMS, claim, subresource="status")
            self._tell(claim, "Warning", reason, why)

    def _bind(self, volume: PersistentVolume, claim: Object) -> None:
        """Unless it is one of those to lose, or nothing is left to do."""
        obj = self._server.get(_VOLUMES, volume.key)
        is_done = not is_unfinished(obj, claim)
        if is_done or self.loses == 0:
            bind(self._server, obj, claim)
            self.bound += not is_done
        else:
            self.loses -= 1
            self.lost += 1

    # -- volumes -------------------------------------------------------------------------------------------------------

    def _sync_volume(self, obj: Object, volume: PersistentVolume) -> None:
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            set_phase(self._server, obj, "Available")
            return
        found = self._find(_CLAIMS, reference.name, reference.namespace)
        claim = None if found is None else read(PersistentVolumeClaim, found)
        if found is None or found["metadata"]["uid"] != reference.uid:
            self._release(obj)
        elif claim is None:
            return
        elif not claim.spec.volume_name:
            if same_mode(volume, claim):
                self._note(claim_key(volume), self._delay_s)
            else:
                why = f'Cannot bind PersistentVolume "{volume.key}" to requested PersistentVolumeClaim due to incompatible volumeMode.'
                self._tell(found, "Warning", "VolumeMismatch", why)
        elif claim.spec.volume_name == volume.key:
            set_phase(self._server, obj, "Bound")
        elif PROVISIONED_BY in annotations_of(obj) and _policy(obj) == "Delete":
            self._release(obj)
        else:
            unbind(self._server, obj)

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


def provisioner_of(storage_class: Object) -> str:
    """Who makes the volumes of a class: CSI drivers stand in for the in-tree plugins that they have replaced."""
    name: str = storage_class["provisioner"]
    return _STAND_INS.get(name, name)


def _policy(volume: Object) -> str:
    return str(volume["spec"]["persistentVolumeReclaimPolicy"])
