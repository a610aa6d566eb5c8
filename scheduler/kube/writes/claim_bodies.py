"""Request bodies for claims: patches of single fields, and claims for extended resources.

Claims contain parameters of drivers, which the server compares byte by byte. A strategic merge patch rewrites them
and is refused; JSON patches and merge patches keep them. A patch that adds to a claim names the uid and the seen
resourceVersion. A patch that removes an item of a list tests the uid and the item. `status` is equal in every version
of resource.k8s.io; requests were flat in v1beta1. Rules: docs/spec/dra.md §3.5, §3.8, §3.10, §3.12.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from scheduler.api.core_v1 import ExtendedResourceClaimStatus, NodeAllocatableResourceClaimStatus, Pod
from scheduler.api.meta import Metadata
from scheduler.api.quantity import Quantity, text
from scheduler.api.resource_v1 import (
    EXTENDED_RESOURCE_CLAIM,
    FINALIZER,
    AllocationResult,
    ConsumerReference,
    DeviceClaim,
    DeviceRequest,
    ResourceClaim,
)
from scheduler.kube.writes.base import as_seen, the_same

_Operation: TypeAlias = dict[str, object]
_FLAT: Final = "v1beta1"
"""The version in which requests have no `exactly`."""


def _hook(value: Any) -> str:
    if isinstance(value, Quantity):
        return text(value)
    raise TypeError(f"cannot encode {value!r}")


_encode: Final = msgspec.json.Encoder(enc_hook=_hook).encode


def protection(claim: ResourceClaim) -> bytes:
    """Return the JSON patch that adds the finalizer to those of the claim."""
    finalizers = dict.fromkeys((*claim.metadata.finalizers, FINALIZER))
    return _encode([*_seen(claim.metadata), _add("/metadata/finalizers", list(finalizers))])


def allocating(claim: ResourceClaim, allocation: AllocationResult, user: ConsumerReference) -> bytes:
    """Return the JSON patch that sets the allocation and the first user.

    A merge patch would sort the parameters and drop their nulls. A server always shows a status, even an empty one.
    The finalizer cannot be part of it, because a status is written alone.
    """
    return _encode(
        [*_seen(claim.metadata), _add("/status/allocation", allocation), _add("/status/reservedFor", [user])]
    )


def reserving(claim: ResourceClaim, user: ConsumerReference) -> bytes:
    """Return the JSON patch that adds the user, or replaces the entry with its uid."""
    users = claim.status.reserved_for
    place = next((at for at, each in enumerate(users) if each.uid == user.uid), None)
    if place is not None:
        change = {"op": "replace", "path": f"/status/reservedFor/{place}", "value": user}
    else:
        change = _add("/status/reservedFor/-", user) if users else _add("/status/reservedFor", [user])
    return _encode([*_seen(claim.metadata), change])


def releasing(claim: ResourceClaim, place: int) -> bytes:
    """Return the JSON patch that removes the user at this index, if it is still the same."""
    path, user = f"/status/reservedFor/{place}", claim.status.reserved_for[place]
    return _encode([_test_uid(claim.metadata), _test(f"{path}/uid", user.uid), {"op": "remove", "path": path}])


def deallocating(claim: ResourceClaim) -> bytes:
    """Return the merge patch that removes allocation, users and device status."""
    gone = {"allocation": None, "reservedFor": None, "devices": None}
    return _encode({"metadata": as_seen(claim.metadata), "status": gone})


def unprotecting(claim: ResourceClaim, place: int) -> bytes:
    """Return the JSON patch that removes the finalizer at this index, if it is still there."""
    path = f"/metadata/finalizers/{place}"
    return _encode([_test_uid(claim.metadata), _test(path, FINALIZER), {"op": "remove", "path": path}])


def deletion(claim: ResourceClaim) -> bytes:
    """Return the options that delete this claim only."""
    return _encode({"preconditions": the_same(claim.metadata)})


def extended_claim(claim: ResourceClaim, pod: Pod, version: str, *, name: str) -> bytes:
    """Return a new claim of the pod with `generateName` and the finalizer: it saves a write before the allocation."""
    metadata = pod.metadata
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid, "controller": True}
    return _encode(
        {
            "apiVersion": f"resource.k8s.io/{version}",
            "kind": "ResourceClaim",
            "metadata": {
                "namespace": metadata.namespace,
                "name": name,
                "generateName": f"{metadata.name}-extended-resources-",
                "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
                "finalizers": [FINALIZER],
                "ownerReferences": [owner],
            },
            "spec": {"devices": _claimed(claim.spec.devices, version)},
        }
    )


def extended_status(pod: Pod, status: ExtendedResourceClaimStatus) -> bytes:
    """Return the strategic patch of the pod's status with the claim and its requests. Mappings are replaced."""
    return _encode({"metadata": the_same(pod.metadata), "status": {"extendedResourceClaimStatus": status}})


def claim_amounts(pod: Pod, statuses: tuple[NodeAllocatableResourceClaimStatus, ...]) -> bytes:
    """Return the merge patch with what the claims of the pod take of its node. It replaces the whole list.

    An empty list removes it: a server keeps the old one for clients that do not know the field.
    """
    return _encode({"metadata": the_same(pod.metadata), "status": {"nodeAllocatableResourceClaimStatuses": statuses}})


def _seen(metadata: Metadata) -> list[_Operation]:
    """Return the precondition that nothing was written since: a failed `replace` is a conflict, a `test` a 422."""
    return [{"op": "replace", "path": f"/metadata/{name}", "value": value} for name, value in as_seen(metadata).items()]


def _test_uid(metadata: Metadata) -> _Operation:
    return _test("/metadata/uid", the_same(metadata)["uid"])


def _test(path: str, value: object) -> _Operation:
    return {"op": "test", "path": path, "value": value}


def _add(path: str, value: object) -> _Operation:
    return {"op": "add", "path": path, "value": value}


def _claimed(devices: DeviceClaim, version: str) -> Mapping[str, object] | DeviceClaim:
    if version != _FLAT:
        return devices
    requests = [_flat(request) for request in devices.requests]
    return {"requests": requests, "constraints": devices.constraints, "config": devices.config}


def _flat(request: DeviceRequest) -> DeviceRequest | object:
    if request.exactly is None:
        return request
    return msgspec.structs.replace(request.exactly, name=request.name)
