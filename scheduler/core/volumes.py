"""PersistentVolumes and claims as decoded, and what can be said of one of them alone (docs/spec/volumes.md §0.3, §2)."""

from __future__ import annotations

from typing import Any, Final

from scheduler.core.labels import LabelSelectorRequirement
from scheduler.core.meta import AnnotatedMetadata, Frozen
from scheduler.core.pod import NodeSelector, ResourceMap
from scheduler.core.quantity import Quantity

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
STORAGE_PROVISIONERS: Final = (
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
)
CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
FILESYSTEM: Final = "Filesystem"
STORAGE: Final = "storage"
_NOTHING: Final = Quantity(0)


class ObjectRef(Frozen, frozen=True):
    """`claimRef`: which claim a volume is meant for."""

    namespace: str = ""
    name: str = ""
    uid: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class CSISource(Frozen, frozen=True):
    """`csi` of a volume."""

    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(Frozen, frozen=True):
    """`nodeAffinity` of a volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Frozen, frozen=True):
    """What a volume offers. In-tree sources are kept as they came, for translation (docs/spec/volumes.md §A)."""

    capacity: ResourceMap = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectRef | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    persistent_volume_reclaim_policy: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSISource | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    azure_file: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None
    vsphere_volume: dict[str, Any] | None = None


class PersistentVolumeStatus(Frozen, frozen=True):
    """What has become of it."""

    phase: str = ""


class PersistentVolume(Frozen, frozen=True):
    """A volume as the API server has it."""

    metadata: AnnotatedMetadata
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def key(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def storage_class(self) -> str:
        """The legacy annotation if it is there, even if empty; else the field (§1.1)."""
        return _class_of(self.metadata, self.spec.storage_class_name)

    @property
    def required_nodes(self) -> NodeSelector | None:
        """The hard part of its node affinity; None if it can be used anywhere."""
        affinity = self.spec.node_affinity
        return affinity.required if affinity is not None else None

    @property
    def capacity(self) -> Quantity:
        """Its storage; zero if it says nothing."""
        return self.spec.capacity.get(STORAGE, _NOTHING)


class ClaimSelector(Frozen, frozen=True):
    """A claim's selector, unchecked: one that is wrong is told where it matters (§3.3.1)."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class VolumeResources(Frozen, frozen=True):
    """What a claim asks for."""

    requests: ResourceMap = {}


class PersistentVolumeClaimSpec(Frozen, frozen=True):
    """What is claimed."""

    access_modes: tuple[str, ...] = ()
    selector: ClaimSelector | None = None
    resources: VolumeResources = VolumeResources()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(Frozen, frozen=True):
    """What has become of it."""

    phase: str = ""


class PersistentVolumeClaim(Frozen, frozen=True):
    """A claim as the API server has it."""

    metadata: AnnotatedMetadata
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.metadata.key

    @property
    def storage_class(self) -> str:
        """As a volume's (§1.1)."""
        return _class_of(self.metadata, self.spec.storage_class_name or "")

    @property
    def request(self) -> Quantity | None:
        """The storage asked for; None if nothing is said."""
        return self.spec.resources.requests.get(STORAGE)

    @property
    def is_fully_bound(self) -> bool:
        """It names its volume and the PV controller has said that it is done (§2.3). The phase is not looked at."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations

    @property
    def selected_node(self) -> str | None:
        """The node name in the annotation; "" is a value, too. None if there is none."""
        return self.metadata.annotations.get(SELECTED_NODE)


def is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume's claimRef means this very claim; a claimRef without uid means the claim of that name (§3.3.2)."""
    ref = volume.spec.claim_ref
    return (
        ref is not None
        and ref.name == claim.metadata.name
        and ref.namespace == claim.metadata.namespace
        and ref.uid in {"", claim.metadata.uid}
    )


def _class_of(metadata: AnnotatedMetadata, name: str) -> str:
    return metadata.annotations.get(CLASS_ANNOTATION, name)
