"""What is sent for claims: patches of the few fields that are meant, and claims for extended resources.

All but a release name the uid and the resourceVersion that was seen. What became of a claim looks the same in every version
of resource.k8s.io; only what is claimed was flat in v1beta1. Rules: docs/spec/dra.md §3.5, §3.8, §3.10, §3.12.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from scheduler.core.meta import Metadata
from scheduler.core.pod import ExtendedResourceClaimStatus, Pod
from scheduler.core.quantity import Quantity, text
from scheduler.core.resourceclaims import (
    EXTENDED_RESOURCE_CLAIM,
    FINALIZER,
    AllocationResult,
    ConsumerReference,
    DeviceClaim,
    DeviceRequest,
    ResourceClaim,
)
from scheduler.kube.preconditions import as_seen, the_same

_FLAT: Final = "v1beta1"
"""The version in which requests have no `exactly`."""


def _hook(value: Any) -> str:
    if isinstance(value, Quantity):
        return text(value)
    raise TypeError(f"cannot encode {value!r}")


_encode: Final = msgspec.json.Encoder(enc_hook=_hook).encode


def protection(claim: ResourceClaim) -> bytes:
    """Strategic: with the finalizer, others stay."""
    return _encode({"metadata": as_seen(claim.metadata) | {"finalizers": [FINALIZER]}})


def allocating(claim: ResourceClaim, allocation: AllocationResult, user: ConsumerReference) -> bytes:
    """A JSON patch: any other drops what is null in a driver's parameters, which are passed on as they came.

    A server always shows a status, be it empty. The finalizer cannot come with it: a status is written alone.
    """
    return _encode(
        [
            *({"op": "replace", "path": f"/metadata/{name}", "value": value} for name, value in _seen(claim.metadata)),
            {"op": "add", "path": "/status/allocation", "value": allocation},
            {"op": "add", "path": "/status/reservedFor", "value": [user]},
        ]
    )


def reserving(claim: ResourceClaim, user: ConsumerReference) -> bytes:
    """Strategic: users merge by their uid."""
    return _encode({"metadata": as_seen(claim.metadata), "status": {"reservedFor": [user]}})


def releasing(claim: ResourceClaim, pod_uid: str) -> bytes:
    """Strategic: without this user, if it is one."""
    gone = [{"$patch": "delete", "uid": pod_uid}]
    return _encode({"metadata": the_same(claim.metadata), "status": {"reservedFor": gone}})


def deallocating(claim: ResourceClaim) -> bytes:
    """Null removes. What drivers say of devices goes with them."""
    gone = {"allocation": None, "reservedFor": None, "devices": None}
    return _encode({"metadata": as_seen(claim.metadata), "status": gone})


def unprotecting(claim: ResourceClaim) -> bytes:
    """Strategic: without the finalizer, if it is there; others stay."""
    return _encode({"metadata": the_same(claim.metadata) | {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}})


def deletion(claim: ResourceClaim) -> bytes:
    """Of this very claim."""
    return _encode({"preconditions": the_same(claim.metadata)})


def extended_claim(claim: ResourceClaim, pod: Pod, version: str, *, name: str) -> bytes:
    """A new claim of the pod's, with the finalizer at once: that is one write less before it gets its devices.

    It says what name it would have had the server make up, as all such claims do.
    """
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
    """Strategic: the pod's status names the claim and who uses which request of it; mappings are replaced as a whole."""
    return _encode({"metadata": the_same(pod.metadata), "status": {"extendedResourceClaimStatus": status}})


def _seen(metadata: Metadata) -> list[tuple[str, object]]:
    return list(as_seen(metadata).items())


def _claimed(devices: DeviceClaim, version: str) -> Mapping[str, object] | DeviceClaim:
    if version != _FLAT:
        return devices
    requests = [_flat(request) for request in devices.requests]
    return {"requests": requests, "constraints": devices.constraints, "config": devices.config}


def _flat(request: DeviceRequest) -> DeviceRequest | object:
    if request.exactly is None:
        return request
    return msgspec.structs.replace(request.exactly, name=request.name)
