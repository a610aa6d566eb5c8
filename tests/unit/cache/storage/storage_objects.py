"""Volumes, claims and capacity objects drawn from few enough values that they meet: for laws over histories."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st

from scheduler.api.core_v1 import NodeSelector
from scheduler.api.meta import AnnotatedMetadata
from scheduler.api.quantity import parse
from scheduler.api.selectors import LabelSelector, LabelSelectorRequirement
from scheduler.api.storage_v1 import (
    SELECTED_NODE,
    STORAGE_PROVISIONERS,
    ClaimSelector,
    CSIStorageCapacity,
    ObjectRef,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    VolumeNodeAffinity,
    VolumeResources,
    VolumeStatus,
)
from tests.unit.cache.nodes.labelled_nodes import NAMES, affinities, selectors

_T = TypeVar("_T")


def mostly(common: _T, *others: Any) -> st.SearchStrategy[_T]:
    """One value in nearly all cases: a volume that fits a claim has to agree with it in nine ways."""
    return st.sampled_from([*[common] * (9 * len(others)), *others, common])


CLASSES = mostly("x", "y")
SIZES = st.sampled_from(["2Gi", "3Gi", "2Gi", "3Gi", "1Gi", "1.2", "1.5", "9Ei", "200E", "2Gi"])
_ASKED = st.sampled_from(["1Gi", "2Gi", "1Gi", "2Gi", "1.5", "0", None, "3Gi", "9Ei", "1Gi"])
_ONCE = ("ReadWriteOnce",)
_MODES = mostly(_ONCE, (*_ONCE, "ReadOnlyMany"), ())
_VOLUME_MODES = mostly("Filesystem", None, "Block")
_ATTRIBUTES = mostly(None, "", "gold")
_LABELS = st.fixed_dictionaries({}, optional={"tier": st.sampled_from("ab")})
_PHASES = mostly("Available", "Bound", "Released", "")
_DELETED = mostly(None, "2026-01-01T00:00:00Z")
_CLAIMS = st.sampled_from(["c0", "c1"])
_REFS = mostly(None, *(ObjectRef("default", name, uid) for name in ("c0", "c1") for uid in ("", "c0", "c1", "gone")))


def _affine(required: NodeSelector | None) -> VolumeNodeAffinity | None:
    return None if required is None else VolumeNodeAffinity(required)


volumes = st.builds(
    PersistentVolume,
    st.builds(
        AnnotatedMetadata,
        name=st.sampled_from([f"v{at}" for at in range(8)]),
        labels=_LABELS,
        deletion_timestamp=_DELETED,
    ),
    st.builds(
        PersistentVolumeSpec,
        capacity=SIZES.map(lambda size: {"storage": parse(size)}),
        access_modes=_MODES,
        claim_ref=_REFS,
        storage_class_name=CLASSES,
        volume_mode=_VOLUME_MODES,
        volume_attributes_class_name=_ATTRIBUTES,
        node_affinity=affinities.map(_affine),
    ),
    st.builds(VolumeStatus, _PHASES),
)
"""By eight names, in two classes, everywhere or somewhere, free or not."""

_selected = mostly(
    None,
    ClaimSelector(),
    ClaimSelector(match_labels={"tier": "a"}),
    ClaimSelector(match_expressions=(LabelSelectorRequirement("tier", "NotIn", ("a",)),)),
    ClaimSelector({"tier": "b"}, (LabelSelectorRequirement("tier", "Exists"),)),
)
claims = st.builds(
    lambda name, spec: PersistentVolumeClaim(AnnotatedMetadata(name=name, namespace="default", uid=name), spec),
    _CLAIMS,
    st.builds(
        PersistentVolumeClaimSpec,
        access_modes=_MODES,
        selector=_selected,
        resources=_ASKED.map(lambda size: VolumeResources({} if size is None else {"storage": parse(size)})),
        storage_class_name=CLASSES,
        volume_mode=_VOLUME_MODES,
        volume_attributes_class_name=_ATTRIBUTES,
    ),
)
"""Two claims with all kinds of requirements."""

_CAPACITIES = st.sampled_from(["5Gi", "3Gi", "5Gi", "1Gi", "9Ei", None, "0", "5Gi"])
_SERVED = st.one_of(
    st.just(LabelSelector()),
    st.builds(lambda zone: LabelSelector({"zone": zone}), st.sampled_from("ab")),
    st.builds(lambda name: LabelSelector({"host": name}), st.sampled_from(NAMES)),
    selectors,
)
capacities = st.builds(
    CSIStorageCapacity,
    st.builds(AnnotatedMetadata, name=st.sampled_from(["o0", "o1", "o2"]), namespace=mostly("default", "other")),
    CLASSES,
    _SERVED,
    _CAPACITIES.map(lambda capacity: None if capacity is None else parse(capacity)),
    mostly(None, parse("2Gi"), parse("0")),
)
"""Capacity objects of two classes in all forms of the API."""


def at_version(obj: Any, version: object, *, uid: str | None = None) -> Any:
    """The object as it is written next."""
    metadata = msgspec.structs.replace(obj.metadata, resource_version=str(version), uid=uid or obj.metadata.uid)
    return msgspec.structs.replace(obj, metadata=metadata)


def taken_by(volume: PersistentVolume, claim: str) -> PersistentVolume:
    """As it is assumed for a claim."""
    return msgspec.structs.replace(
        volume, spec=msgspec.structs.replace(volume.spec, claim_ref=ObjectRef("default", claim, claim))
    )


def with_selected_node(
    claim: PersistentVolumeClaim, node_name: str | None, *, is_known: bool = True
) -> PersistentVolumeClaim:
    """Return the claim with that selected node or none; `is_known`: the controller has named the provisioner."""
    annotations = {} if node_name is None else {SELECTED_NODE: node_name}
    if is_known:
        annotations[STORAGE_PROVISIONERS[0]] = "p"
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=annotations))
