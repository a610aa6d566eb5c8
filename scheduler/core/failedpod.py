"""Failed pods, as decoded: who, where and why, and nothing else, because a cluster may keep thousands of them."""

from __future__ import annotations

from scheduler.core.meta import Frozen, Key


class Identity(Frozen, frozen=True):
    """The part of `metadata` that tells one object from another."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> Key:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class FailedSpec(Frozen, frozen=True):
    """Where it was bound."""

    node_name: str = ""


class FailedStatus(Frozen, frozen=True):
    """`OutOfcpu` and the like when the kubelet refused it; whatever ended it otherwise."""

    reason: str = ""


class FailedPod(Frozen, frozen=True):
    """A pod with `status.phase` Failed."""

    metadata: Identity
    spec: FailedSpec = FailedSpec()
    status: FailedStatus = FailedStatus()

    @property
    def key(self) -> Key:
        """`namespace/name`."""
        return self.metadata.key
