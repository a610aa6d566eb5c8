"""The resource claims that a pod uses, and whether it may use them (docs/spec/dra.md §2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from scheduler.api.core_v1 import Pod, PodResourceClaim
from scheduler.api.resource_v1 import ResourceClaim
from scheduler.cache.assume_cache import NotKnown

NAMED_ANEW: Final = "the pod's status names other resource claims by now"
Need: TypeAlias = Callable[[str], ResourceClaim]
"""`namespace/name` → claim; raises NotKnown."""


class Unresolved(Exception):
    """A claim of the pod cannot be used yet. The message is upstream's."""


def claim_name(pod: Pod, entry: PodResourceClaim) -> tuple[str | None, bool]:
    """Return the claim's name, and whether the pod must own the claim. The name is None if no claim is needed (§2.1).

    Raises Unresolved.

    Upstream: staging/src/k8s.io/dynamic-resource-allocation/resourceclaim/resourceclaim.go Name
    """
    # A claim that the user created may be shared by pods, so no owner is required. A claim from a template must
    # belong to the pod, because its name is predictable.
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name, False
    if entry.resource_claim_template_name is None:
        raise Unresolved(f'pod "{pod.key}", spec.resourceClaim "{entry.name}": none of the supported fields are set')
    # The name is generated, so the claim controller notes it in the status. An entry without a name says that no
    # claim is needed.
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name, True
    raise Unresolved(f'pod "{pod.key}": ResourceClaim not created yet')


def claims_of(pod: Pod, need: Need) -> tuple[ResourceClaim, ...]:
    """Return each claim once, in the order of the entries. Raises Unresolved with the first problem (§2.2).

    Upstream: pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go podResourceClaims
    """
    found: dict[str, ResourceClaim] = {}
    for entry in pod.spec.resource_claims:
        name, must_own = claim_name(pod, entry)
        if name is None:
            continue
        try:
            claim = need(f"{pod.metadata.namespace}/{name}")
        except NotKnown as error:
            raise Unresolved(str(error)) from error
        if claim.metadata.deletion_timestamp is not None:
            raise Unresolved(f'resourceclaim "{claim.metadata.name}" is being deleted')
        problem = not_owned(pod, claim) if must_own else ""
        if problem:
            raise Unresolved(problem)
        # Two entries may name one claim. It is allocated once, and its devices are counted once.
        found.setdefault(claim.uid, claim)
    return tuple(found.values())


def not_owned(pod: Pod, claim: ResourceClaim) -> str:
    """Return why the claim was not created for this pod; "" if it was."""
    if claim.metadata.namespace != pod.metadata.namespace:
        return f"ResourceClaim {claim.key} is not in the same namespace as Pod {pod.key}"
    if any(owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references):
        return ""
    return f"ResourceClaim {claim.key} was not created for Pod {pod.key} (Pod is not owner)"
