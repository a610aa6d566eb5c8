"""Zones and regions: the labels that say them, and what CSI drivers call them (docs/spec/volumes.md §0.3, §9.2, §A)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from scheduler.core.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from scheduler.core.volumes import VolumeNodeAffinity

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
SEPARATOR: Final = "__"
"""Between the zones of a volume that has several."""
TOPOLOGY_LABELS: Final = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_VSPHERE_ZONE: Final = "topology.csi.vmware.com/zone"
_VSPHERE_REGION: Final = "topology.csi.vmware.com/region"


class Confined(NamedTuple):
    """A label of a volume that says where it can be used: the node must have one of these values."""

    key: str
    values: frozenset[str]

    @property
    def key_today(self) -> str:
        """What a node has in the key's stead if it lacks the key itself; the same for a key of today."""
        return {BETA_ZONE: ZONE, BETA_REGION: REGION}.get(self.key, self.key)


def confined(labels: Mapping[str, str]) -> tuple[Confined, ...]:
    """Where a volume with these labels can be used (§9.2). One with an empty piece says nothing."""
    out = []
    for key in TOPOLOGY_LABELS:
        if key in labels:
            values = frozenset(piece.strip() for piece in labels[key].split(SEPARATOR))
            if "" not in values:
                out.append(Confined(key, values))
    return tuple(out)


def zone_label(labels: Mapping[str, str]) -> str:
    """The beta label unless it is empty, else the other; "" without either."""
    return labels.get(BETA_ZONE) or labels.get(ZONE, "")


def rewritten(
    affinity: VolumeNodeAffinity | None, labels: Mapping[str, str], driver_key: str
) -> VolumeNodeAffinity | None:
    """A volume's affinity in its driver's words: the zones it names, or else those of the volume's own label."""
    zone, region = _family(affinity, labels)
    if _values(affinity, zone):
        affinity = _renamed(affinity, zone, driver_key)
    else:
        affinity = _with_values(affinity, driver_key, labels.get(zone, "").split(SEPARATOR))
    return _renamed(affinity, region, REGION) if region == BETA_REGION and _values(affinity, region) else affinity


def rewritten_for_vsphere(affinity: VolumeNodeAffinity | None, labels: Mapping[str, str]) -> VolumeNodeAffinity | None:
    """The same for zone and region each; a label is one value, whatever is in it."""
    zone, region = _family(affinity, labels)
    for key, driver_key in ((zone, _VSPHERE_ZONE), (region, _VSPHERE_REGION)):
        if _values(affinity, key):
            affinity = _renamed(affinity, key, driver_key)
        else:
            affinity = _with_values(affinity, driver_key, (labels.get(key, ""),))
    return affinity


def _family(affinity: VolumeNodeAffinity | None, labels: Mapping[str, str]) -> tuple[str, str]:
    """The zone and region keys that this volume speaks in."""
    named = {r.key for term in _terms(affinity) for r in term.match_expressions}
    for known in (named, labels):
        if ZONE in known:
            return ZONE, REGION
        if BETA_ZONE in known:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _terms(affinity: VolumeNodeAffinity | None) -> tuple[NodeSelectorTerm, ...]:
    required = affinity.required if affinity is not None else None
    return required.node_selector_terms if required is not None else ()


def _values(affinity: VolumeNodeAffinity | None, key: str) -> bool:
    """Whether any term gives values for this key, whatever the operator."""
    return any(r.key == key and r.values for term in _terms(affinity) for r in term.match_expressions)


def _renamed(affinity: VolumeNodeAffinity | None, old: str, new: str) -> VolumeNodeAffinity:
    def renamed(requirement: NodeSelectorRequirement) -> NodeSelectorRequirement:
        return msgspec.structs.replace(requirement, key=new) if requirement.key == old else requirement

    return _with_terms(
        msgspec.structs.replace(term, match_expressions=tuple(renamed(r) for r in term.match_expressions))
        for term in _terms(affinity)
    )


def _with_values(affinity: VolumeNodeAffinity | None, key: str, values: Iterable[str]) -> VolumeNodeAffinity | None:
    """One more expression in every term, in one that is made if there is none; as it was if no value is left."""
    wanted = tuple(sorted({value.strip() for value in values} - {""}))
    if not wanted:
        return affinity
    added = NodeSelectorRequirement(key, "In", wanted)
    return _with_terms(
        msgspec.structs.replace(term, match_expressions=(*term.match_expressions, added))
        for term in _terms(affinity) or (NodeSelectorTerm(),)
    )


def _with_terms(terms: Iterable[NodeSelectorTerm]) -> VolumeNodeAffinity:
    return VolumeNodeAffinity(NodeSelector(tuple(terms)))
