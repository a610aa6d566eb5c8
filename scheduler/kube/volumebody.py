"""The patches that VolumeBinding sends for volumes and claims, and who wrote a claim's selected node.

Merge patches of the few fields that are meant, so that what this version does not know stays as it is. Each names the
uid and the resourceVersion that was seen: the server refuses it when anything was written since.
Rules: docs/spec/volumes.md §5.3, §6.3.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from scheduler.core.meta import Frozen
from scheduler.core.volumes import BOUND_BY_CONTROLLER, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from scheduler.kube.preconditions import as_seen

_encode: Final = msgspec.json.Encoder().encode


def prebinding(volume: PersistentVolume, claim: PersistentVolumeClaim, *, marks: bool) -> bytes:
    """The volume is this claim's from now on; `marks`: and we were the ones who chose it."""
    metadata = as_seen(volume.metadata)
    if marks:
        metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
    ref = {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
        "resourceVersion": claim.metadata.resource_version,
    }
    return _encode({"metadata": metadata, "spec": {"claimRef": ref}})


def selection(claim: PersistentVolumeClaim, node_name: str | None) -> bytes:
    """The claim's volume is to be made for this node; None: for no node any more."""
    return _encode({"metadata": as_seen(claim.metadata) | {"annotations": {SELECTED_NODE: node_name}}})


class _Owner(Frozen, frozen=True):
    manager: str = ""
    fields_v1: Any = msgspec.field(default=None, name="fieldsV1")


class _OwnedMetadata(Frozen, frozen=True):
    annotations: dict[str, str] | None = None
    managed_fields: tuple[_Owner, ...] | None = None


class _Owned(Frozen, frozen=True):
    metadata: _OwnedMetadata = _OwnedMetadata()


_owned: Final = msgspec.json.Decoder(_Owned).decode


def owners_of_selection(raw: bytes) -> tuple[str, ...]:
    """The field managers of the claim's selected-node annotation. Empty without one, and where nobody can tell."""
    try:
        metadata = _owned(raw).metadata
    except (msgspec.DecodeError, ValueError):
        return ()
    if SELECTED_NODE not in (metadata.annotations or {}):
        return ()
    return tuple(owner.manager for owner in metadata.managed_fields or () if _owns(owner))


def _owns(owner: _Owner) -> bool:
    """`fieldsV1` mirrors the object, each field under `f:` and its name."""
    fields = owner.fields_v1
    for step in ("f:metadata", "f:annotations", f"f:{SELECTED_NODE}"):
        fields = fields.get(step) if isinstance(fields, dict) else None
    return fields is not None
