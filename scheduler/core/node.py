"""Nodes, as decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Final

from msgspec import Meta
from msgspec.structs import force_setattr

from scheduler.core.interner import Interner
from scheduler.core.meta import AnnotatedMetadata, Frozen
from scheduler.core.pod import BoundedResourceMap


class Taint(Frozen, frozen=True):
    """`spec.taints[]`. Hashable: nodes are grouped by their taints."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Frozen, frozen=True):
    """What administrators set."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(Frozen, frozen=True):
    """Only type and status: timestamps change with every heartbeat and mean nothing to us."""

    type: str = ""
    status: str = ""


class ContainerImage(Frozen, frozen=True):
    """An image the node has pulled. `names` is null for one that lost its names to a newer build."""

    names: tuple[str, ...] | None = ()
    size_bytes: int = 0


_NAMES_MAX: Final = 10_000
"""Image names of one node that count; a kubelet reports 50 images by default."""
_images: Final[Interner[ContainerImage, ContainerImage]] = Interner(50_000)
"""Images seen so far are forgotten at this number; those in use are known again after every node's next heartbeat."""


class NodeStatus(Frozen, frozen=True):
    """What the kubelet reports."""

    allocatable: BoundedResourceMap = {}
    conditions: tuple[NodeCondition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declared_features: Annotated[tuple[str, ...], Meta(max_length=1_000)] = ()

    def __post_init__(self) -> None:
        """Equal images of all nodes become one object: fifty a node are else nine tenths of its memory."""
        if self.images:
            force_setattr(self, "images", tuple(_counting(self.images)))


def _counting(images: Iterable[ContainerImage]) -> Iterator[ContainerImage]:
    """Images until one would exceed the number of names that count, each as the one object that all nodes share."""
    left = _NAMES_MAX
    for image in images:
        left -= len(image.names or ()) or 1
        if left < 0:
            return
        yield _images.share(image, image)


class Node(Frozen, frozen=True):
    """A node as the API server has it."""

    metadata: AnnotatedMetadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def key(self) -> str:
        """The node's name."""
        return self.metadata.name
