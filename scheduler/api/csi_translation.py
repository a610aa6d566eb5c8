"""Translate in-tree volumes to CSI: driver, handle, topology.

Rules: docs/spec/volumes.md §A, those of csi-translation-lib v0.36; zones and regions §0.3, §9.2; inline disks §9.3.
Volumes of Azure File and vSphere are never counted and never translated (§3.6, §9.1); of inline ones only the driver matters.
Pure functions over decoded objects. A translation costs a few µs and is not cached. Whether a plugin is migrated on a
node follows from the node's CSINode (§3.6, §9.1).
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from scheduler.api.core_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, Volume
from scheduler.api.storage_v1 import CSISource, PersistentVolume, PersistentVolumeSpec, VolumeNodeAffinity

Source = dict[str, Any]


class TranslationError(Exception):
    """The volume cannot be translated. The message is upstream's, or names the unreadable field."""


class InTree(NamedTuple):
    """An in-tree volume type that a CSI driver replaces."""

    plugin: str
    driver: str
    field: str
    """The field name, in a volume's spec and in a pod's volume."""
    wire: str
    """The field name in a manifest."""
    handle: str
    """The field of the source that becomes the handle, or most of it."""


AWS_EBS: Final = InTree(
    "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "aws_elastic_block_store", "awsElasticBlockStore", "volumeID"
)
GCE_PD: Final = InTree(
    "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "gce_persistent_disk", "gcePersistentDisk", "pdName"
)
AZURE_DISK: Final = InTree("kubernetes.io/azure-disk", "disk.csi.azure.com", "azure_disk", "azureDisk", "diskURI")
AZURE_FILE: Final = InTree("kubernetes.io/azure-file", "file.csi.azure.com", "azure_file", "azureFile", "shareName")
CINDER: Final = InTree("kubernetes.io/cinder", "cinder.csi.openstack.org", "cinder", "cinder", "volumeID")
PORTWORX: Final = InTree(
    "kubernetes.io/portworx-volume", "pxd.portworx.com", "portworx_volume", "portworxVolume", "volumeID"
)
VSPHERE: Final = InTree(
    "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", "vsphere_volume", "vsphereVolume", "volumePath"
)

KINDS: Final = (AWS_EBS, GCE_PD, AZURE_DISK, AZURE_FILE, CINDER, PORTWORX, VSPHERE)
TRANSLATABLE: Final = frozenset(kind.plugin for kind in KINDS)
"""Plugins with a translation."""
MIGRATABLE: Final = frozenset(kind.plugin for kind in (AWS_EBS, GCE_PD, AZURE_DISK, CINDER, PORTWORX))
"""Plugins that count as migrated if a CSINode says so (§3.6), or if it exists (§9.1)."""

_DRIVERS: Final = {kind.plugin: kind.driver for kind in KINDS}
_TOPOLOGY_KEYS: Final = {
    AWS_EBS: "topology.ebs.csi.aws.com/zone",
    GCE_PD: "topology.gke.io/zone",
    CINDER: "topology.cinder.csi.openstack.org/zone",
}
_UNSPECIFIED: Final = "UNSPECIFIED"

_EBS_ID: Final = re.compile(r"vol-[^/]*")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}")
_AWS: Final = "aws://"
_HOST: Final = re.compile(r"[^/?#]*")
_NOT_IN_HOST: Final = re.compile(r"[ \\^`{|}]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def kind_of(volume: PersistentVolumeSpec | Volume) -> InTree | None:
    """Return the in-tree type of the volume; None for all other volumes, including CSI."""
    return _found(volume)[0]


def driver_of(plugin: str) -> str:
    """Return the CSI driver that replaces this in-tree plugin or provisioner; "" if there is none."""
    return _DRIVERS.get(plugin, "")


def translate_volume(volume: PersistentVolume) -> PersistentVolume:
    """Return the translated volume as a copy. Raises TranslationError.

    Upstream: staging/src/k8s.io/csi-translation-lib/translate.go TranslateInTreePVToCSI
    """
    kind, source = _found(volume.spec)
    if kind is None or kind.plugin not in MIGRATABLE:
        raise TranslationError(f"could not find in-tree plugin translation logic for {_quoted(volume.key)}")
    labels, affinity = volume.metadata.labels, volume.spec.node_affinity
    if kind is GCE_PD:
        handle = _gce_handle(_text(kind, source, kind.handle), zone_label(labels))
    else:
        handle = _plain_handle(kind, source)
    if kind in _TOPOLOGY_KEYS:
        affinity = rewritten(affinity, labels, _TOPOLOGY_KEYS[kind])
    changed = {"csi": CSISource(kind.driver, handle), "node_affinity": affinity, kind.field: None}
    return msgspec.structs.replace(volume, spec=msgspec.structs.replace(volume.spec, **changed))


def translate_inline(volume: Volume) -> CSISource:
    """Return driver and handle of an inline volume of a pod. Raises TranslationError.

    Upstream: staging/src/k8s.io/csi-translation-lib/translate.go TranslateInTreeInlineVolumeToCSI
    """
    kind, source = _found(volume)
    if kind is None:
        raise TranslationError(f"could not find in-tree plugin translation logic for {_quoted(volume.name)}")
    if kind is GCE_PD:
        return CSISource(kind.driver, _zonal(_UNSPECIFIED, _text(kind, source, kind.handle)))
    return CSISource(kind.driver, _plain_handle(kind, source))


def _found(sources: PersistentVolumeSpec | Volume) -> tuple[InTree | None, Source]:
    for kind in KINDS:
        source = getattr(sources, kind.field)
        if source is not None:
            return kind, source
    return None, {}


# -- handles -----------------------------------------------------------------------------------------------------------


def _plain_handle(kind: InTree, source: Source) -> str:
    """Return the handle of a type whose handle depends on the source alone."""
    handle = _text(kind, source, kind.handle)
    if kind is AWS_EBS:
        return _ebs_handle(handle)
    if kind is AZURE_DISK and source.get("kind") is not None:
        asked = _text(kind, source, "kind")
        if asked.lower() != "managed":
            raise TranslationError(f"kind({asked}) is not supported in csi migration")
    return handle


def _ebs_handle(written: str) -> str:
    """Return the id of `aws://{zone}/{id}` and `aws:///{id}`; other texts are ids already."""
    if not written.startswith(_AWS):
        return written
    failed = "failed to translate Kubernetes ID to EBS Volume ID"
    problem = _url_problem(written)
    if problem:
        raise TranslationError(f"{failed} Invalid disk name ({written}): parse {_quoted(written)}: {problem}")
    path = re.split(r"[?#]", written.removeprefix(_AWS), maxsplit=1)[0].partition("/")[2]
    handle = urllib.parse.unquote(path).strip("/")
    if _EBS_ID.fullmatch(handle) is None:
        raise TranslationError(f"{failed} Invalid format for AWS volume ({written})")
    return handle


def _url_problem(written: str) -> str:
    """Return why Go cannot parse the URL, in Go's words; "" if it can."""
    if _CONTROL.search(written):
        return "net/url: invalid control character in URL"
    wrong = _BAD_ESCAPE.search(written)
    if wrong is not None:
        return f"invalid URL escape {_quoted(wrong[0])}"
    host = _HOST.match(written, len(_AWS))
    if host is not None and (wrong := _NOT_IN_HOST.search(host[0])) is not None:
        return f"invalid character {_quoted(wrong[0])} in host name"
    return ""


def _gce_handle(disk: str, zone: str) -> str:
    zones = zone.split(SEPARATOR)
    if len(zones) == 1:
        return _zonal(zones[0] or _UNSPECIFIED, disk)
    failed = "failed to get region from zones"
    regions = set()
    for one in zones:
        parts = one.split("-")
        if len(parts) != 3:
            wanted = "zone in unexpected format, expected: {locale}-{region}-{zone}"
            raise TranslationError(f"{failed}: {wanted}, got: {one}")
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        got = " ".join(f"{region}:{{}}" for region in sorted(regions))
        raise TranslationError(f"{failed}: multiple or no regions gotten from zones, got: map[{got}]")
    return f"projects/{_UNSPECIFIED}/regions/{regions.pop()}/disks/{disk}"


def _zonal(zone: str, disk: str) -> str:
    return f"projects/{_UNSPECIFIED}/zones/{zone}/disks/{disk}"


def _text(kind: InTree, source: Source, field: str) -> str:
    """Return a field of a source, "" if it is absent."""
    value = source.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TranslationError(f"{kind.wire}.{field}: expected a string, got {value!r}")
    return value


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
SEPARATOR: Final = "__"
"""Separates the zones of a volume with several."""
TOPOLOGY_LABELS: Final = (BETA_ZONE, BETA_REGION, ZONE, REGION)


class Confined(NamedTuple):
    """A label of a volume that restricts nodes: the node must have one of these values."""

    key: str
    values: frozenset[str]

    @property
    def key_today(self) -> str:
        """The current key for a beta key, which a node may have instead; the same for a current key."""
        return {BETA_ZONE: ZONE, BETA_REGION: REGION}.get(self.key, self.key)


def confined(labels: Mapping[str, str]) -> tuple[Confined, ...]:
    """Return the restrictions of these labels (§9.2). A label with an empty part restricts nothing."""
    restrictions = []
    for key in TOPOLOGY_LABELS:
        if key in labels:
            values = frozenset(piece.strip() for piece in labels[key].split(SEPARATOR))
            if "" not in values:
                restrictions.append(Confined(key, values))
    return tuple(restrictions)


def zone_label(labels: Mapping[str, str]) -> str:
    """Return the beta label unless it is empty, otherwise the current label; "" without either.

    Upstream: pkg/scheduler/framework/plugins/volumezone/volume_zone.go translateToGALabel
    """
    return labels.get(BETA_ZONE) or labels.get(ZONE, "")


def rewritten(
    affinity: VolumeNodeAffinity | None, labels: Mapping[str, str], driver_key: str
) -> VolumeNodeAffinity | None:
    """Return the affinity with the driver's key.

    Its values are the zones that the affinity names, otherwise those of the volume's label.
    """
    zone, region = _family(affinity, labels)
    if _values(affinity, zone):
        affinity = _renamed(affinity, zone, driver_key)
    else:
        affinity = _with_values(affinity, driver_key, labels.get(zone, "").split(SEPARATOR))
    return _renamed(affinity, region, REGION) if region == BETA_REGION and _values(affinity, region) else affinity


def _family(affinity: VolumeNodeAffinity | None, labels: Mapping[str, str]) -> tuple[str, str]:
    """Return the zone and region keys that this volume uses."""
    named = {r.key for term in _terms(affinity) for r in term.match_expressions}
    for keys in (named, labels):
        if ZONE in keys:
            return ZONE, REGION
        if BETA_ZONE in keys:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _terms(affinity: VolumeNodeAffinity | None) -> tuple[NodeSelectorTerm, ...]:
    required = affinity.required if affinity is not None else None
    return required.node_selector_terms if required is not None else ()


def _values(affinity: VolumeNodeAffinity | None, key: str) -> bool:
    """Return whether any term gives values for this key, with any operator."""
    return any(r.key == key and r.values for term in _terms(affinity) for r in term.match_expressions)


def _renamed(affinity: VolumeNodeAffinity | None, old: str, new: str) -> VolumeNodeAffinity:
    def renamed(requirement: NodeSelectorRequirement) -> NodeSelectorRequirement:
        return msgspec.structs.replace(requirement, key=new) if requirement.key == old else requirement

    return _with_terms(
        msgspec.structs.replace(term, match_expressions=tuple(renamed(r) for r in term.match_expressions))
        for term in _terms(affinity)
    )


def _with_values(affinity: VolumeNodeAffinity | None, key: str, values: Iterable[str]) -> VolumeNodeAffinity | None:
    """Return the affinity with one more expression in every term; unchanged if no value is left."""
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


_sources = attrgetter("gce_persistent_disk", "aws_elastic_block_store", "iscsi", "rbd")
_NONE: Final = (None, None, None, None)


class InlineDisk(NamedTuple):
    """An identity of a disk. An RBD image has one per monitor: volumes with a common one are the same disk."""

    id: tuple[str, ...]
    is_read_only: bool
    """Read-only users do not conflict. EBS volumes are never read-only."""


def inline_disks(pod: Pod) -> tuple[InlineDisk, ...]:
    """Return the disks in the order of the volumes, with duplicates. Namespaces do not matter."""
    found = [volume for volume in pod.spec.volumes if _sources(volume) != _NONE]
    return tuple(disk for volume in found for disk in _disks(volume)) if found else ()


def do_conflict(wanted: tuple[InlineDisk, ...], held: tuple[InlineDisk, ...]) -> bool:
    """Return whether pods with these disks cannot share a node.

    Upstream: pkg/scheduler/framework/plugins/volumerestrictions/volume_restrictions.go isVolumeConflict
    """
    return any(one.id == other.id and not (one.is_read_only and other.is_read_only) for one in wanted for other in held)


def _disks(volume: Volume) -> Iterator[InlineDisk]:
    gce, ebs, iscsi, rbd = _sources(volume)
    if gce is not None:
        yield InlineDisk(("gce", _disk_text(gce, "pdName")), _is_read_only(gce))
    if ebs is not None:
        yield InlineDisk(("ebs", _disk_text(ebs, "volumeID")), is_read_only=False)
    if iscsi is not None:
        yield InlineDisk(("iscsi", _disk_text(iscsi, "iqn")), _is_read_only(iscsi))
    if rbd is not None:
        image = ("rbd", _disk_text(rbd, "pool"), _disk_text(rbd, "image"))
        for monitor in rbd.get("monitors") or ():
            yield InlineDisk((*image, str(monitor)), _is_read_only(rbd))


def _disk_text(source: dict[str, Any], field: str) -> str:
    return str(source.get(field) or "")


def _is_read_only(source: dict[str, Any]) -> bool:
    return source.get("readOnly") is True
