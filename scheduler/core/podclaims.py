"""Which claims a pod uses, and whether an ephemeral one is its own (docs/spec/volumes.md §2.1)."""

from __future__ import annotations

from typing import NamedTuple

from scheduler.core.pod import Pod, Volume
from scheduler.core.volumes import PersistentVolumeClaim


class ClaimUse(NamedTuple):
    """One volume of a pod that is a claim. `name` may be "" if the pod is wrong."""

    key: str
    """`namespace/name` of the claim."""
    name: str
    is_ephemeral: bool
    volume: str


def claim_uses(pod: Pod) -> tuple[ClaimUse, ...]:
    """In the order of the volumes; a claim that two volumes name comes twice."""
    return tuple(use for volume in pod.spec.volumes if (use := _use(pod, volume)) is not None)


def not_owned(pod: Pod, claim: PersistentVolumeClaim) -> str:
    """Why this claim is not the pod's own ephemeral one; "" if it is: its controller is the pod of this very uid."""
    is_own = claim.metadata.namespace == pod.metadata.namespace and any(
        owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references
    )
    return "" if is_own else f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"


def _use(pod: Pod, volume: Volume) -> ClaimUse | None:
    namespace = pod.metadata.namespace
    if volume.persistent_volume_claim is not None:
        name = volume.persistent_volume_claim.claim_name
        return ClaimUse(f"{namespace}/{name}", name, is_ephemeral=False, volume=volume.name)
    if volume.ephemeral is not None:
        name = f"{pod.metadata.name}-{volume.name}"
        return ClaimUse(f"{namespace}/{name}", name, is_ephemeral=True, volume=volume.name)
    return None
