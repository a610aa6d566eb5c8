"""The PV controller: it binds claims to volumes, releases volumes, and sets the phases of both.

Its writes and their order are those of pkg/controller/volume/persistentvolume of Kubernetes 1.36 (docs/spec/volumes.md
§5.3, §6.7). It provisions no volumes, leaves in-tree plugins to the CSI drivers that replace them, and works on changes
instead of every 15 s. Unreadable objects are left out of its index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from scheduler.api.csi_translation import KINDS
from scheduler.api.decode import from_manifest
from scheduler.api.selectors import LabelSelector
from scheduler.api.storage_v1 import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    FILESYSTEM,
    NO_PROVISIONER,
    STORAGE_PROVISIONERS,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    is_for,
)
from scheduler.core.clock import Clock
from simulator.apiserver import ApiServer
from simulator.controllers.controller import Actor, Key, Object, annotations_of, is_finished, key_of, read


class _Place(NamedTuple):
    class_name: str
    volume: str


class Known:
    """Called for every write, in order."""

    def __init__(self) -> None:
        self.volumes: dict[str, PersistentVolume] = {}
        self._free: dict[str, set[str]] = defaultdict(set)
        """Class → volumes that name no claim."""
        self._naming: dict[Key, set[str]] = defaultdict(set)
        """Claim → volumes that name it."""
        self._places: dict[Key, _Place] = {}
        self._waiting: dict[str, set[Key]] = defaultdict(set)
        """Class → claims that name no volume."""
        self._asking: dict[str, set[Key]] = defaultdict(set)
        """Volume → claims that name it."""

    def claim_written(self, type_: str, obj: Object) -> None:
        """Record that a claim was added, changed or deleted."""
        key = key_of("persistentvolumeclaims", obj)
        before = self._places.pop(key, None)
        if before is not None:
            self._among(before).discard(key)
        claim = read(PersistentVolumeClaim, obj)
        if type_ != "DELETED" and claim is not None:
            self._places[key] = place = _Place(claim.storage_class, claim.spec.volume_name)
            self._among(place).add(key)

    def volume_written(self, type_: str, obj: Object) -> None:
        """Record that a volume was added, changed or deleted."""
        before = self.volumes.pop(obj["metadata"]["name"], None)
        if before is not None:
            self._where(before).discard(before.key)
        volume = read(PersistentVolume, obj)
        if type_ != "DELETED" and volume is not None:
            self.volumes[volume.key] = volume
            self._where(volume).add(volume.key)

    def is_waiting(self, claim: Key) -> bool:
        """Return whether the claim exists and names no volume."""
        return claim in self._places and not self._places[claim].volume

    def waiting(self, class_name: str) -> tuple[Key, ...]:
        """Claims of the class that name no volume."""
        return tuple(self._waiting.get(class_name, ()))

    def claims_naming(self, volume: str) -> tuple[Key, ...]:
        return tuple(self._asking.get(volume, ()))

    def naming(self, claim: Key) -> tuple[str, ...]:
        """Volumes that name this claim."""
        return tuple(self._naming.get(claim, ()))

    def candidates(self, claim: Key, class_name: str) -> Iterator[PersistentVolume]:
        """Volumes that a claim may get: those that name it, and those of its class that name none."""
        names: Iterable[str] = (*self._naming.get(claim, ()), *self._free.get(class_name, ()))
        return (self.volumes[name] for name in names)

    def _among(self, place: _Place) -> set[Key]:
        return self._asking[place.volume] if place.volume else self._waiting[place.class_name]

    def _where(self, volume: PersistentVolume) -> set[str]:
        reference = volume.spec.claim_ref
        return self._free[volume.storage_class] if reference is None else self._naming[claim_key(volume)]


class Consumers:
    """The pods without a node, by the claims that they name. Called for every write of a pod."""

    def __init__(self) -> None:
        self._names: dict[Key, set[str]] = defaultdict(set)

    def pod_written(self, type_: str, pod: Object) -> list[Key]:
        """Record that a pod was added, changed or deleted. Return the claims that it is a new consumer of."""
        name, found = pod["metadata"]["name"], []
        is_over = type_ == "DELETED" or is_finished(pod)
        for key in _claims_of(pod):
            if is_over or pod["spec"].get("nodeName"):
                self._names[key].discard(name)
            elif name not in self._names[key]:
                self._names[key].add(name)
                found.append(key)
        return found

    def of(self, claim: Key) -> list[str]:
        """Return the names of the pods, in their order."""
        return sorted(self._names.get(claim, ()))


def _claims_of(pod: Object) -> Iterator[Key]:
    metadata = pod["metadata"]
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            yield _CLAIMS, metadata["namespace"], volume["persistentVolumeClaim"]["claimName"]
        elif volume.get("ephemeral"):
            yield _CLAIMS, metadata["namespace"], f"{metadata['name']}-{volume['name']}"


def claim_key(volume: PersistentVolume) -> Key:
    reference = volume.spec.claim_ref
    return ("persistentvolumeclaims", reference.namespace, reference.name) if reference is not None else ("", "", "")


def best_volume(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], *, waits: bool
) -> PersistentVolume | None:
    """Return the volume that names the claim, else the smallest match. Fewer access modes come first.

    A claim that waits for its first consumer gets only one that names it.

    Upstream: pkg/controller/volume/persistentvolume/index.go findBestMatchForClaim
    """
    groups: dict[tuple[str, ...], list[PersistentVolume]] = {}
    for volume in volumes:
        if set(volume.spec.access_modes) >= set(claim.spec.access_modes) and _may_hold(volume, claim):
            groups.setdefault(tuple(sorted(volume.spec.access_modes)), []).append(volume)
    selector = _selector(claim)
    for modes in sorted(groups, key=lambda modes: (len(modes), modes)):
        named = next((volume for volume in groups[modes] if is_for(volume, claim)), None)
        if named is not None:
            return named
        free = [] if waits else [volume for volume in groups[modes] if _is_free(volume, claim, selector)]
        if free:
            return min(free, key=lambda volume: (volume.capacity.nano, volume.key))
    return None


def mismatch(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """Return why the volume that a claim names cannot be bound to it, or ""."""
    if volume.metadata.deletion_timestamp is not None:
        return f'the volume is marked for deletion "{volume.key}"'
    if claim.request is not None and volume.capacity.nano < claim.request.nano:
        return "requested PV is too small"
    if volume.storage_class != claim.storage_class:
        return "storageClassName does not match"
    if not _same_attributes(volume, claim):
        return "volumeAttributesClassName does not match"
    if not same_mode(volume, claim):
        return "incompatible volumeMode"
    if not set(volume.spec.access_modes) >= set(claim.spec.access_modes):
        return "incompatible accessMode"
    return ""


def same_mode(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Saying nothing means Filesystem."""
    return (volume.spec.volume_mode or FILESYSTEM) == (claim.spec.volume_mode or FILESYSTEM)


def _same_attributes(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return (volume.spec.volume_attributes_class_name or "") == (claim.spec.volume_attributes_class_name or "")


def _may_hold(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Also a volume that names the claim must."""
    is_others = volume.spec.claim_ref is not None and not is_for(volume, claim)
    is_small = claim.request is not None and volume.capacity.nano < claim.request.nano
    fits = same_mode(volume, claim) and _same_attributes(volume, claim)
    return not is_others and not is_small and fits and volume.metadata.deletion_timestamp is None


def _is_free(volume: PersistentVolume, claim: PersistentVolumeClaim, selector: LabelSelector | None) -> bool:
    return (
        volume.status.phase == "Available"
        and volume.storage_class == claim.storage_class
        and (selector is None or selector.matches(volume.metadata.labels))
    )


def _selector(claim: PersistentVolumeClaim) -> LabelSelector | None:
    given = claim.spec.selector
    return (
        None
        if given is None
        else LabelSelector(match_labels=given.match_labels, match_expressions=given.match_expressions)
    )


_CLAIMS: Final = "persistentvolumeclaims"
_VOLUMES: Final = "persistentvolumes"


def bind(server: ApiServer, volume: Object, claim: Object) -> None:
    """Bind both: claimRef, phase of the volume, volumeName with bind-completed, phase of the claim."""
    meant = claim_ref(volume, claim)
    if meant is not None:
        if not _is_for(volume, claim):
            volume["metadata"]["annotations"] = annotations_of(volume) | {BOUND_BY_CONTROLLER: "yes"}
        volume["spec"]["claimRef"] = meant
        volume = server.update(_VOLUMES, volume)
    volume = set_phase(server, volume, "Bound")
    name = volume["metadata"]["name"]
    if claim["spec"].get("volumeName") != name or BIND_COMPLETED not in annotations_of(claim):
        marks = {BIND_COMPLETED: "yes"}
        if claim["spec"].get("volumeName") != name:
            marks[BOUND_BY_CONTROLLER] = "yes"
        claim["spec"]["volumeName"] = name
        claim["metadata"]["annotations"] = marks | annotations_of(claim)
        claim = server.update(_CLAIMS, claim)
    _set_bound(server, claim, volume)


def claim_ref(volume: Object, claim: Object) -> Object | None:
    """Return the new claimRef of the volume, or None if it is right."""
    metadata, reference = claim["metadata"], volume["spec"].get("claimRef") or {}
    if all(reference.get(field) == metadata[field] for field in ("name", "namespace", "uid")):
        return None
    fields = ("namespace", "name", "uid", "resourceVersion")
    return {"kind": "PersistentVolumeClaim", "apiVersion": "v1"} | {field: metadata[field] for field in fields}


def unbind(server: ApiServer, volume: Object) -> None:
    """Remove the claimRef. If a user set it only its uid is removed."""
    if BOUND_BY_CONTROLLER in annotations_of(volume):
        del volume["spec"]["claimRef"]
        del volume["metadata"]["annotations"][BOUND_BY_CONTROLLER]
    else:
        volume["spec"]["claimRef"].pop("uid", None)
    set_phase(server, server.update(_VOLUMES, volume), "Available")


def set_phase(server: ApiServer, volume: Object, phase: str, message: str = "") -> Object:
    """Return the volume with this phase. It is written only if the phase differs."""
    if volume["status"].get("phase") == phase:
        return volume
    status = {key: value for key, value in volume["status"].items() if key != "message"} | {"phase": phase}
    volume["status"] = status | ({"message": message} if message else {})
    return server.update(_VOLUMES, volume, subresource="status")


def _set_bound(server: ApiServer, claim: Object, volume: Object) -> None:
    status, spec = claim["status"], volume["spec"]
    wanted = {"phase": "Bound", "accessModes": spec["accessModes"]}
    if status.get("phase") != "Bound":
        wanted["capacity"] = spec["capacity"]
        if status.get("phase") == "Pending" and spec.get("volumeAttributesClassName") is not None:
            wanted["currentVolumeAttributesClassName"] = spec["volumeAttributesClassName"]
    if status | wanted != status:
        claim["status"] = status | wanted
        server.update(_CLAIMS, claim, subresource="status")


def _is_for(volume: Object, claim: Object) -> bool:
    return is_for(from_manifest(PersistentVolume, volume), from_manifest(PersistentVolumeClaim, claim))


PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
_IN_TREE: Final = "kubernetes.io/"
_STAND_INS: Final = {kind.plugin: kind.driver for kind in KINDS}


class PersistentVolumeController(Actor):
    """Handles a claim `delay_s` after it changed, a volume at once.

    `reclaims`: volumes with the policy Delete that no provisioner created are deleted after their claim. Otherwise they
    become Failed, as without a plugin that can delete them.

    Upstream: pkg/controller/volume/persistentvolume/pv_controller.go PersistentVolumeController
    """

    component = "persistentvolume-controller"
    resources = ("storageclasses", "pods", _VOLUMES, _CLAIMS)

    def __init__(
        self,
        server: ApiServer,
        *,
        clock: Clock | None = None,
        delay_s: float = 0,
        reclaims: bool = False,
    ) -> None:
        self._delay_s = delay_s
        self._reclaims = reclaims
        self._known = Known()
        self._consumers = Consumers()
        self._late: set[str] = set()
        """Classes that wait for the first consumer."""
        super().__init__(server, clock=clock)

    # -- what is heard ------------------------------------------------------------------------------------------------

    def _heard(self, type_: str, resource: str, obj: Object) -> None:
        match resource:
            case "persistentvolumeclaims":
                self._heard_claim(type_, obj)
            case "persistentvolumes":
                self._heard_volume(type_, obj)
            case "pods":
                self._note_all(filter(self._known.is_waiting, self._consumers.pod_written(type_, obj)))
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
        self._note_all(self._known.claims_naming(name))
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
        obj = self._server.find(resource, name, namespace)
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
            self._sync_named(obj, claim)
        else:
            self._sync_open(obj, claim)

    # -- claims -------------------------------------------------------------------------------------------------------

    def _sync_open(self, obj: Object, claim: PersistentVolumeClaim) -> None:
        """Sync a claim without a volume that names none."""
        class_name = claim.storage_class
        waits = class_name in self._late
        volume = best_volume(claim, self._known.candidates(key_of(_CLAIMS, obj), class_name), waits=waits)
        if volume is not None:
            self._bind(volume, obj)
        elif waits and claim.selected_node is None:
            self._waits_for_pods(obj)
        elif not class_name:
            why = "no persistent volumes available for this claim and no storage class is set"
            self._record(obj, "Normal", "FailedBinding", why)
        else:
            self._request_provisioning(obj, class_name)

    def _waits_for_pods(self, claim: Object) -> None:
        """Name the pods that a claim waits for.

        Upstream: pkg/controller/volume/persistentvolume/pv_controller.go emitEventForUnboundDelayBindingClaim
        """
        reason, why = "WaitForFirstConsumer", "waiting for first consumer to be created before binding"
        names = self._consumers.of(key_of(_CLAIMS, claim))
        if names:
            pods = "pods" if len(names) > 1 else "pod"
            reason, why = "WaitForPodScheduled", f"waiting for {pods} {','.join(names)} to be scheduled"
        self._record(claim, "Normal", reason, why)

    def _request_provisioning(self, claim: Object, class_name: str) -> None:
        storage_class = self._server.find("storageclasses", class_name)
        if storage_class is None:
            why = f'storageclass.storage.k8s.io "{class_name}" not found'
            self._record(claim, "Warning", "ProvisioningFailed", why)
            return
        provisioner = provisioner_of(storage_class)
        if provisioner == NO_PROVISIONER or provisioner.startswith(_IN_TREE):
            self._record(claim, "Warning", "ProvisioningFailed", f"no volume plugin matched name: {provisioner}")
            return
        if annotations_of(claim).get(STORAGE_PROVISIONERS[0]) != provisioner:
            claim["metadata"]["annotations"] = annotations_of(claim) | dict.fromkeys(STORAGE_PROVISIONERS, provisioner)
            claim = self._server.update(_CLAIMS, claim)
        why = (
            f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the "
            "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
            "correctly registered."
        )
        self._record(claim, "Normal", "ExternalProvisioning", why)

    def _sync_named(self, obj: Object, claim: PersistentVolumeClaim) -> None:
        """Names its volume, and is not bound to it yet."""
        name = claim.spec.volume_name
        volume = self._known.volumes.get(name)
        if volume is None:
            return
        if volume.spec.claim_ref is None:
            why = mismatch(volume, claim)
            if why:
                self._record(obj, "Warning", "VolumeMismatch", f'Cannot bind to requested volume "{name}": {why}')
            else:
                self._bind(volume, obj)
        elif is_for(volume, claim):
            self._bind(volume, obj)
        else:
            self._record(obj, "Warning", "FailedBinding", f'volume "{name}" already bound to a different claim.')

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
            self._record(claim, "Warning", reason, why)

    def _bind(self, volume: PersistentVolume, claim: Object) -> None:
        bind(self._server, self._server.get(_VOLUMES, volume.key), claim)

    # -- volumes ------------------------------------------------------------------------------------------------------

    def _sync_volume(self, obj: Object, volume: PersistentVolume) -> None:
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            set_phase(self._server, obj, "Available")
            return
        found = self._server.find(_CLAIMS, reference.name, reference.namespace)
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
                self._record(found, "Warning", "VolumeMismatch", why)
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
            self._record(volume, "Warning", reason, why)


def provisioner_of(storage_class: Object) -> str:
    """Return the provisioner of a class. CSI drivers replace in-tree plugins."""
    name: str = storage_class["provisioner"]
    return _STAND_INS.get(name, name)


def _policy(volume: Object) -> str:
    return str(volume["spec"]["persistentVolumeReclaimPolicy"])
