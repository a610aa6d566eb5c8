"""PersistentVolumes, claims, storage classes and CSI objects as they are decoded.

Sources: docs/spec/volumes.md §0.3, §1.1, §8; rules on one object alone §2; the claims of a pod §2.1.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

import msgspec

from scheduler.api.core_v1 import NodeSelector, Pod, ResourceMap
from scheduler.api.meta import AnnotatedMetadata, ClusterObject, Frozen, NamespacedObject, Values
from scheduler.api.quantity import Quantity
from scheduler.api.selectors import LabelSelector, LabelSelectorRequirement

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
STORAGE_PROVISIONERS: Final = (
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
)
DEFAULT_CLASS_ANNOTATIONS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
FILESYSTEM: Final = "Filesystem"
STORAGE: Final = "storage"
_NOTHING: Final = Quantity(0)


class ObjectRef(Frozen, frozen=True):
    """`claimRef`: the claim that a volume is reserved for."""

    namespace: str = ""
    name: str = ""
    uid: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class CSISource(Frozen, frozen=True):
    """`csi` of a volume."""

    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(Frozen, frozen=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Frozen, frozen=True):
    """In-tree sources are kept as they came, for translation (docs/spec/volumes.md §A)."""

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


class VolumeStatus(Frozen, frozen=True):
    """`status` of a volume or a claim."""

    phase: str = ""


class PersistentVolume(ClusterObject, frozen=True):
    metadata: AnnotatedMetadata
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: VolumeStatus = VolumeStatus()

    @property
    def storage_class(self) -> str:
        """The legacy annotation if it exists, even if empty; otherwise the field (§1.1)."""
        return self.metadata.annotations.get(CLASS_ANNOTATION, self.spec.storage_class_name)

    @property
    def required_nodes(self) -> NodeSelector | None:
        """The required node affinity; None if the volume is usable on every node."""
        affinity = self.spec.node_affinity
        return affinity.required if affinity is not None else None

    @property
    def capacity(self) -> Quantity:
        """Its storage; zero if it gives none."""
        return self.spec.capacity.get(STORAGE, _NOTHING)


class ClaimSelector(Frozen, frozen=True):
    """A claim's selector, unchecked: a wrong one is reported where it matters (§3.3.1)."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class VolumeResources(Frozen, frozen=True):
    requests: ResourceMap = {}


class PersistentVolumeClaimSpec(Frozen, frozen=True):
    access_modes: tuple[str, ...] = ()
    selector: ClaimSelector | None = None
    resources: VolumeResources = VolumeResources()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaim(NamespacedObject, frozen=True):
    metadata: AnnotatedMetadata
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: VolumeStatus = VolumeStatus()

    @property
    def storage_class(self) -> str:
        """The storage class, with the rule of volumes (§1.1)."""
        return self.metadata.annotations.get(CLASS_ANNOTATION, self.spec.storage_class_name or "")

    @property
    def request(self) -> Quantity | None:
        """The requested storage; None if there is no request."""
        return self.spec.resources.requests.get(STORAGE)

    @property
    def size_bytes(self) -> int:
        """The requested storage in bytes, rounded up; 0 if there is no request."""
        return self.spec.resources.requests.get(STORAGE, _NOTHING).value

    @property
    def size_nano(self) -> int:
        """The requested storage in billionths of a byte, which is exact; 0 if there is no request."""
        return self.spec.resources.requests.get(STORAGE, _NOTHING).nano

    @property
    def is_fully_bound(self) -> bool:
        """Whether it names its volume and the PV controller has completed the binding (§2.3).

        The phase does not matter.
        """
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations

    @property
    def selected_node(self) -> str | None:
        """The node name in the annotation, which may be ""; None without annotation."""
        return self.metadata.annotations.get(SELECTED_NODE)


def is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether the volume's claimRef means this claim; without a uid it means the claim of that name (§3.3.2)."""
    ref = volume.spec.claim_ref
    return (
        ref is not None
        and ref.name == claim.metadata.name
        and ref.namespace == claim.metadata.namespace
        and ref.uid in {"", claim.metadata.uid}
    )


_FEW: Final = msgspec.Meta(max_length=1_000)
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"


class TopologyLabelRequirement(Frozen, frozen=True):
    """A node label and its allowed values."""

    key: str = ""
    values: Values = ()


class TopologySelectorTerm(Frozen, frozen=True):
    """All expressions must match."""

    match_label_expressions: Annotated[tuple[TopologyLabelRequirement, ...], _FEW] = ()


class StorageClass(ClusterObject, frozen=True):
    metadata: AnnotatedMetadata
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: Annotated[tuple[TopologySelectorTerm, ...], _FEW] = ()

    @property
    def is_default(self) -> bool:
        """Whether the API server gives this class to new claims that name none."""
        return any(self.metadata.annotations.get(name) == "true" for name in DEFAULT_CLASS_ANNOTATIONS)


class DriverResources(Frozen, frozen=True):
    """The attach limit; None is no limit."""

    count: int | None = None


class CSINodeDriver(Frozen, frozen=True):
    name: str = ""
    allocatable: DriverResources = DriverResources()


class CSINodeSpec(Frozen, frozen=True):
    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(ClusterObject, frozen=True):
    """What CSI drivers report about the node of the same name."""

    metadata: AnnotatedMetadata
    spec: CSINodeSpec = CSINodeSpec()

    @property
    def migrated_plugins(self) -> frozenset[str]:
        """In-tree plugins that CSI drivers replace here; split, not trimmed (§3.6)."""
        return frozenset(self.metadata.annotations.get(MIGRATED_PLUGINS, "").split(",")) - {""}

    @property
    def limits(self) -> dict[str, int]:
        """Driver → attach limit; drivers without a limit are absent."""
        return {d.name: d.allocatable.count for d in self.spec.drivers if d.allocatable.count is not None}


class CSIDriverSpec(Frozen, frozen=True):
    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(ClusterObject, frozen=True):
    spec: CSIDriverSpec = CSIDriverSpec()

    @property
    def tracks_capacity(self) -> bool:
        """Whether it publishes capacity and wants it to be checked."""
        return bool(self.spec.storage_capacity)


class CSIStorageCapacity(NamespacedObject, frozen=True):
    """Capacity of a class on some nodes (§8)."""

    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None

    @property
    def limit(self) -> Quantity | None:
        """The largest possible volume: the published maximum, otherwise the whole capacity (§3.4)."""
        return self.capacity if self.maximum_volume_size is None else self.maximum_volume_size


class AttachmentSource(Frozen, frozen=True):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Frozen, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(ClusterObject, frozen=True):
    """A volume that is, is being, or was attached to a node."""

    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


class ClaimUse(NamedTuple):
    """A volume of a pod that is a claim. `name` may be "" in a wrong pod."""

    key: str
    """`namespace/name` of the claim."""
    name: str
    is_ephemeral: bool
    volume: str


def claim_uses(pod: Pod) -> tuple[ClaimUse, ...]:
    """Return the claims in the order of the volumes, with duplicates."""
    namespace, uses = pod.metadata.namespace, []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            name = f"{pod.metadata.name}-{volume.name}"
        else:
            continue
        uses.append(ClaimUse(f"{namespace}/{name}", name, volume.persistent_volume_claim is None, volume.name))
    return tuple(uses)


def not_owned(pod: Pod, claim: PersistentVolumeClaim) -> str:
    """Return why this claim is not the pod's ephemeral one; "" if the pod's uid is its controller."""
    is_own = claim.metadata.namespace == pod.metadata.namespace and any(
        owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references
    )
    return "" if is_own else f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"
