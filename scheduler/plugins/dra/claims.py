"""Which resource claims a pod uses, and whether it may (docs/spec/dra.md §2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from scheduler.api.core_v1 import Pod, PodResourceClaim
from scheduler.api.resource_v1 import RESERVED_FOR_MAX, ConsumerReference, ResourceClaim
from scheduler.cache.storage.assume_cache import NotKnown

NAMED_ANEW: Final = "the pod's status names other resource claims by now"
Need: TypeAlias = Callable[[str], ResourceClaim]
"""`namespace/name` → claim; raises NotKnown."""


class Unresolved(Exception):
    """The pod cannot run yet. The message is upstream's."""


def claim_name(pod: Pod, entry: PodResourceClaim) -> tuple[str | None, bool]:
    """The name, and whether the pod must own the claim; None for one that is not needed. Raises Unresolved (§2.1).

    Upstream: staging/src/k8s.io/dynamic-resource-allocation/resourceclaim/resourceclaim.go Name
    """
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name, False
    if entry.resource_claim_template_name is None:
        raise Unresolved(f'pod "{pod.key}", spec.resourceClaim "{entry.name}": none of the supported fields are set')
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name, True
    raise Unresolved(f'pod "{pod.key}": ResourceClaim not created yet')


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """Those whose names are known by now, as `namespace/name`: whose changes concern the pod."""
    keys = []
    for entry in pod.spec.resource_claims:
        try:
            name, _ = claim_name(pod, entry)
        except Unresolved:
            continue
        if name is not None:
            keys.append(f"{pod.metadata.namespace}/{name}")
    return tuple(dict.fromkeys(keys))


def names_others(pod: Pod, claims: Iterable[ResourceClaim]) -> bool:
    """Whether the pod's entries have come to name others than these, which were decided on."""
    return set(claim_keys(pod)) != {claim.key for claim in claims}


def claims_of(pod: Pod, need: Need) -> tuple[ResourceClaim, ...]:
    """Each claim once, in the order of the entries. Raises Unresolved with the first problem (§2.2).

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
        found.setdefault(claim.uid, claim)
    return tuple(found.values())


def not_owned(pod: Pod, claim: ResourceClaim) -> str:
    """Why the claim was not made for this pod; "" if it was."""
    if claim.metadata.namespace != pod.metadata.namespace:
        return f"ResourceClaim {claim.key} is not in the same namespace as Pod {pod.key}"
    if any(owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references):
        return ""
    return f"ResourceClaim {claim.key} was not created for Pod {pod.key} (Pod is not owner)"


def is_full(claim: ResourceClaim, pod_uid: str) -> bool:
    """Whether the claim has as many users as it may have, and this pod is none of them (§10.3)."""
    return len(claim.status.reserved_for) >= RESERVED_FOR_MAX and not claim.is_reserved_for(pod_uid)


def consumer(pod: Pod) -> ConsumerReference:
    """The pod as a claim names its users."""
    return ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
