"""Storage classes, CSI objects and volume attachments as decoded (docs/spec/volumes.md §1.1, §8)."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from scheduler.core.labels import LabelSelector
from scheduler.core.meta import AnnotatedMetadata, Frozen, Metadata, Values
from scheduler.core.quantity import Quantity

_FEW: Final = msgspec.Meta(max_length=1_000)
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"


class TopologyLabelRequirement(Frozen, frozen=True):
    """A node label and the values that will do."""

    key: str = ""
    values: Values = ()


class TopologySelectorTerm(Frozen, frozen=True):
    """All expressions hold."""

    match_label_expressions: Annotated[tuple[TopologyLabelRequirement, ...], _FEW] = ()


class StorageClass(Frozen, frozen=True):
    """How volumes of a class come to be."""

    metadata: Metadata
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: Annotated[tuple[TopologySelectorTerm, ...], _FEW] = ()

    @property
    def key(self) -> str:
        """Its name."""
        return self.metadata.name


class DriverResources(Frozen, frozen=True):
    """How many volumes may be attached; None is no limit."""

    count: int | None = None


class CSINodeDriver(Frozen, frozen=True):
    """A driver that runs on a node."""

    name: str = ""
    allocatable: DriverResources = DriverResources()


class CSINodeSpec(Frozen, frozen=True):
    """The drivers on a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Frozen, frozen=True):
    """What CSI drivers say about a node of the same name."""

    metadata: AnnotatedMetadata
    spec: CSINodeSpec = CSINodeSpec()

    @property
    def key(self) -> str:
        """The node's name."""
        return self.metadata.name

    @property
    def migrated_plugins(self) -> frozenset[str]:
        """In-tree plugins that CSI drivers stand in for here; split, not trimmed (§3.6)."""
        return frozenset(self.metadata.annotations.get(MIGRATED_PLUGINS, "").split(",")) - {""}

    @property
    def limits(self) -> dict[str, int]:
        """Driver → how many volumes it can attach; drivers without a limit are not in it."""
        return {d.name: d.allocatable.count for d in self.spec.drivers if d.allocatable.count is not None}


class CSIDriverSpec(Frozen, frozen=True):
    """What a driver asks of the scheduler."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(Frozen, frozen=True):
    """A driver of the cluster."""

    metadata: Metadata
    spec: CSIDriverSpec = CSIDriverSpec()

    @property
    def key(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def tracks_capacity(self) -> bool:
        """Whether it publishes how much room there is, and wants that looked at."""
        return bool(self.spec.storage_capacity)


class CSIStorageCapacity(Frozen, frozen=True):
    """How much room a class has on some nodes; v1 and v1beta1 have the same fields (§8)."""

    metadata: Metadata
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.metadata.key

    @property
    def limit(self) -> Quantity | None:
        """The largest volume it can hold: the maximum if it is told, else all its room (§3.4)."""
        return self.capacity if self.maximum_volume_size is None else self.maximum_volume_size


class AttachmentSource(Frozen, frozen=True):
    """What is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Frozen, frozen=True):
    """By whom, what and where."""

    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(Frozen, frozen=True):
    """A volume that is, is being, or was attached to a node."""

    metadata: Metadata
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()

    @property
    def key(self) -> str:
        """Its name."""
        return self.metadata.name
