"""What CSI makes of volumes that are written in the old way: driver, handle, access modes, topology.

Rules: docs/spec/volumes.md §A, those of csi-translation-lib v0.36. Pure functions over decoded objects; a translation
costs some µs and is not kept. Whether a plugin has been migrated on a node is told by the node's CSINode (§3.6, §9.1).
"""

from __future__ import annotations

import json
import re
import urllib.parse
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from scheduler.core.pod import Volume
from scheduler.core.topologies import SEPARATOR, rewritten, rewritten_for_vsphere, zone_label
from scheduler.core.volumes import CSISource, PersistentVolume

Source = dict[str, Any]


class TranslationError(Exception):
    """The volume cannot be translated. The message is upstream's, or names the field that cannot be read."""


class InTree(NamedTuple):
    """A kind of volume that CSI drivers stand in for."""

    plugin: str
    driver: str
    field: str
    """Of a volume's spec and of a pod's volume alike."""
    wire: str
    """The field as a manifest has it."""
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
"""Plugins for which there is a translation."""
MIGRATABLE: Final = frozenset(kind.plugin for kind in (AWS_EBS, GCE_PD, AZURE_DISK, CINDER, PORTWORX))
"""Plugins that count as migrated where a CSINode says so (§3.6), or is there at all (§9.1)."""

_DRIVERS: Final = {kind.plugin: kind.driver for kind in KINDS}
_TOPOLOGY_KEYS: Final = {
    AWS_EBS: "topology.ebs.csi.aws.com/zone",
    GCE_PD: "topology.gke.io/zone",
    CINDER: "topology.cinder.csi.openstack.org/zone",
}
_RESOURCE_GROUP: Final = "kubernetes.io/azure-file-resource-group"
_UNSPECIFIED: Final = "UNSPECIFIED"

_EBS_ID: Final = re.compile(r"vol-[^/]*")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}")
_AWS: Final = "aws://"
_HOST: Final = re.compile(r"[^/?#]*")
_NOT_IN_HOST: Final = re.compile(r"[ \\^`{|}]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SECRET_NAME: Final = re.compile(r"azure-storage-account-(.+)-secret")


class _Sources(Protocol):
    """A volume's spec or a pod's volume."""

    @property
    def aws_elastic_block_store(self) -> Source | None: ...
    @property
    def gce_persistent_disk(self) -> Source | None: ...
    @property
    def azure_disk(self) -> Source | None: ...
    @property
    def azure_file(self) -> Source | None: ...
    @property
    def cinder(self) -> Source | None: ...
    @property
    def portworx_volume(self) -> Source | None: ...
    @property
    def vsphere_volume(self) -> Source | None: ...


def kind_of(volume: PersistentVolume) -> InTree | None:
    """Which in-tree kind the volume is of; None for every other, CSI among them."""
    return _found(volume.spec)[0]


def kind_of_inline(volume: Volume) -> InTree | None:
    """The same for a volume that a pod has written out."""
    return _found(volume)[0]


def driver_of(plugin: str) -> str:
    """The CSI driver that stands in for this in-tree plugin, or provisioner; "" if none does."""
    return _DRIVERS.get(plugin, "")


def translate_volume(volume: PersistentVolume) -> PersistentVolume:
    """The volume as its CSI driver has it; `volume` itself is left alone. Raises TranslationError."""
    kind, source = _found(volume.spec)
    if kind is None:
        raise TranslationError(f"could not find in-tree plugin translation logic for {_quoted(volume.key)}")
    handle = _volume_handle(kind, source, volume)
    spec = volume.spec
    affinity, modes = spec.node_affinity, spec.access_modes
    key = _TOPOLOGY_KEYS.get(kind)
    if key is not None:
        affinity = rewritten(affinity, volume.metadata.labels, key)
    elif kind is VSPHERE:
        affinity = rewritten_for_vsphere(affinity, volume.metadata.labels)
    if kind is GCE_PD:
        modes = _gce_modes(modes)
    changed = {
        "csi": CSISource(kind.driver, handle),
        "node_affinity": affinity,
        "access_modes": modes,
        kind.field: None,
    }
    return msgspec.structs.replace(volume, spec=msgspec.structs.replace(spec, **changed))


def translate_inline(volume: Volume, namespace: str) -> CSISource:
    """Driver and handle of a volume that a pod in `namespace` has written out. Raises TranslationError."""
    kind, source = _found(volume)
    if kind is None:
        raise TranslationError(f"could not find in-tree plugin translation logic for {_quoted(volume.name)}")
    if kind is GCE_PD:
        return CSISource(kind.driver, _zonal(_UNSPECIFIED, _text(kind, source, kind.handle)))
    if kind is AZURE_FILE:
        return CSISource(kind.driver, _share("", source, volume.name, namespace or "default"))
    return CSISource(kind.driver, _plain_handle(kind, source))


def _found(sources: _Sources) -> tuple[InTree | None, Source]:
    for kind in KINDS:
        source = getattr(sources, kind.field)
        if source is not None:
            return kind, source
    return None, {}


# -- handles -----------------------------------------------------------------------------------------------------------


def _volume_handle(kind: InTree, source: Source, volume: PersistentVolume) -> str:
    if kind is GCE_PD:
        return _gce_handle(_text(kind, source, kind.handle), zone_label(volume.metadata.labels))
    if kind is AZURE_FILE:
        return _azure_file_handle(source, volume)
    return _plain_handle(kind, source)


def _plain_handle(kind: InTree, source: Source) -> str:
    """Of the kinds whose handle hangs on the source alone."""
    handle = _text(kind, source, kind.handle)
    if kind is AWS_EBS:
        return _ebs_handle(handle)
    if kind is AZURE_DISK and source.get("kind") is not None:
        asked = _text(kind, source, "kind")
        if asked.lower() != "managed":
            raise TranslationError(f"kind({asked}) is not supported in csi migration")
    return handle


def _ebs_handle(written: str) -> str:
    """`aws://{zone}/{id}` and `aws:///{id}` → id; anything that does not begin so is an id already."""
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
    """Why Go would not take it for a URL, in its words; "" if it would."""
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


def _gce_modes(modes: tuple[str, ...]) -> tuple[str, ...]:
    """In-tree disks were never checked: what CSI would refuse to attach becomes what was done with them."""
    asked = {"ReadWriteOnce" if mode == "ReadWriteMany" else mode for mode in modes}
    if "ReadOnlyMany" in asked and "ReadWriteOnce" not in asked:
        return ("ReadOnlyMany",)
    return ("ReadWriteOnce",) if modes else ()


def _azure_file_handle(source: Source, volume: PersistentVolume) -> str:
    if source.get("secretNamespace") is not None:
        namespace = _text(AZURE_FILE, source, "secretNamespace")
    else:
        claim = volume.spec.claim_ref
        namespace = claim.namespace if claim is not None else ""
    if not namespace:
        raise TranslationError("could not find a secret namespace in PersistentVolumeSource or ClaimRef")
    return _share(volume.metadata.annotations.get(_RESOURCE_GROUP, ""), source, volume.key, namespace)


def _share(group: str, source: Source, name: str, namespace: str) -> str:
    secret = _text(AZURE_FILE, source, "secretName")
    named = _SECRET_NAME.search(secret)
    account = secret if named is None else named[1]
    return f"{group}#{account}#{_text(AZURE_FILE, source, AZURE_FILE.handle)}#{name}#{namespace}"


def _text(kind: InTree, source: Source, field: str) -> str:
    """A field of a source, "" if it is not there."""
    value = source.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TranslationError(f"{kind.wire}.{field}: expected a string, got {value!r}")
    return value


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
