"""Nodes, as decoded."""

from __future__ import annotations

from scheduler.core.meta import Frozen, Metadata
from scheduler.core.pod import ResourceMap


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
    """An image the node has pulled."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeStatus(Frozen, frozen=True):
    """What the kubelet reports."""

    allocatable: ResourceMap = {}
    conditions: tuple[NodeCondition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(Frozen, frozen=True):
    """A node as the API server has it."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def key(self) -> str:
        """The node's name."""
        return self.metadata.name
