"""What new volumes and their neighbours get by default."""

from __future__ import annotations

from typing import Any, Final

from scheduler.core.volumes import CLASS_ANNOTATION
from scheduler.testing.apiserver.defaults import Rule, fill
from scheduler.testing.apiserver.resources import Resource, Served
from scheduler.testing.apiserver.storage import Storage
from scheduler.testing.apiserver.volumechecks import (
    BINDING_MODES,
    RECLAIM,
    check_capacity,
    check_claim,
    check_volume,
    checked_csi_node,
    forbidden_field,
    required,
    supported,
)

Object = dict[str, Any]
DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_ONE_SOURCE: Final = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


def rules(storage: Storage, served: Served) -> dict[str, Rule]:
    """The rule of each resource."""
    return {
        "persistentvolumes": with_volume,
        "persistentvolumeclaims": Claims(storage, served.named("storageclasses")),
        "storageclasses": with_class,
        "csidrivers": with_driver,
        "csinodes": with_csi_node,
        "csistoragecapacities": with_capacity,
        "volumeattachments": with_attachment,
    }


def with_volume(resource: Resource, volume: Object, now: str) -> None:
    """A new PersistentVolume. Raises 422."""
    spec = volume.setdefault("spec", {})
    fill(spec, persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")
    if isinstance(spec.get("hostPath"), dict):
        spec["hostPath"].setdefault("type", "")
    volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now}
    _protect(volume, "kubernetes.io/pv-protection")
    check_volume(resource, volume)


class Claims:
    """New claims, which may get the default class."""

    def __init__(self, storage: Storage, classes: Resource) -> None:
        self._storage = storage
        self._classes = classes

    def __call__(self, resource: Resource, claim: Object, _: str) -> None:
        """A new PersistentVolumeClaim. Raises 422."""
        spec = claim.setdefault("spec", {})
        fill(spec, volumeMode="Filesystem")
        claim["status"] = {"phase": "Pending"}
        _protect(claim, "kubernetes.io/pvc-protection")
        has_class = CLASS_ANNOTATION in (claim["metadata"].get("annotations") or {})
        if spec.get("storageClassName") is None and not has_class and (default := self._default()):
            spec["storageClassName"] = default
        check_claim(resource, claim)

    def _default(self) -> str:
        """The newest of the default classes, of equally new ones the first by name."""
        found = ""
        newest = ""
        for entry in self._storage.bucket(self._classes).ordered():
            metadata = entry.obj["metadata"]
            annotations = metadata.get("annotations") or {}
            is_default = any(annotations.get(key) == "true" for key in DEFAULT_CLASS)
            if is_default and metadata["creationTimestamp"] > newest:
                found, newest = metadata["name"], metadata["creationTimestamp"]
        return found


def with_class(resource: Resource, storage_class: Object, _: str) -> None:
    """A new StorageClass. Raises 422."""
    fill(storage_class, reclaimPolicy="Delete", volumeBindingMode="Immediate")
    name = storage_class["metadata"]["name"]
    if not storage_class.get("provisioner"):
        raise required(resource, name, "provisioner")
    supported(resource, name, "reclaimPolicy", storage_class["reclaimPolicy"], RECLAIM)
    supported(resource, name, "volumeBindingMode", storage_class["volumeBindingMode"], BINDING_MODES)


def with_driver(_: Resource, driver: Object, __: str) -> None:
    """A new CSIDriver. `preventPodSchedulingIfMissing` is kept, as it is where VolumeLimitScaling is on."""
    spec = driver.setdefault("spec", {})
    defaults: Object = {
        "attachRequired": True,
        "podInfoOnMount": False,
        "volumeLifecycleModes": ["Persistent"],
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": False,
        "seLinuxMount": False,
    }
    for key, value in defaults.items():
        if spec.get(key) in (None, []):
            spec[key] = value


def with_csi_node(resource: Resource, csi_node: Object, _: str) -> None:
    """A new CSINode. Raises 422."""
    csi_node["spec"] = checked_csi_node(resource, csi_node)


def with_capacity(resource: Resource, capacity: Object, _: str) -> None:
    """A new CSIStorageCapacity. Raises 422."""
    check_capacity(resource, capacity)


def with_attachment(resource: Resource, attachment: Object, _: str) -> None:
    """A new VolumeAttachment, which nothing has attached yet. Raises 422."""
    name, spec = attachment["metadata"]["name"], attachment.setdefault("spec", {})
    if not spec.get("attacher"):
        raise required(resource, name, "spec.attacher")
    source = spec.get("source") or {}
    given = [key for key in ("persistentVolumeName", "inlineVolumeSpec") if source.get(key) is not None]
    if not given:
        raise required(resource, name, "spec.source", _ONE_SOURCE)
    if len(given) > 1:
        raise forbidden_field(resource, name, "spec.source", f"Forbidden: {_ONE_SOURCE}")
    attachment["status"] = {"attached": False}


def _protect(obj: Object, finalizer: str) -> None:
    finalizers = obj["metadata"].get("finalizers") or []
    obj["metadata"]["finalizers"] = finalizers if finalizer in finalizers else [*finalizers, finalizer]
