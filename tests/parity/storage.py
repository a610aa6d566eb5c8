"""What a scenario has of storage, in short, and the volumes of its pods.

    classes:      name: {provisioner, binding: Immediate, topologies: [{key: [value]}]}   # by default for the first consumer
    pvs:          name: {class, old_class, size, modes: [RWO], volume_mode, vac, phase, labels, annotations, leaving,
                         from: {key: value or [value]} or affinity: [term], for: claim, uid: own or other, by_controller,
                         csi: driver/handle, gce: disk, ebs: volume or source}
    claims:       name: {class, old_class, size, modes, volume_mode, vac, phase, match or selector, annotations, leaving,
                         namespace, volume: pv, bound: pv, selected: node, owner: pod, controls}
    csi_nodes:    name: {drivers: {driver: count or null}, migrated: plugins}
    csi_drivers:  name: {capacity: true or false, needed: no pod of it goes where it is not}
    capacities:   name: {class, size, max, from: {key: value} or selector, namespace}
    attachments:  name: {attacher, node, pv or inline: handle}

    a pod's claims:  [name]
    a pod's volumes: [{claim} or {ephemeral: volume name} or {gce, ro} or {ebs, ro} or {rbd: pool/image, monitors, ro}
                      or {iscsi: iqn, lun, ro} or {csi: driver} or {source}]

Everything is as it would be stored, whatever would have written it: no controller binds, provisions or protects. `volume` is a
claim's volumeName alone, `bound` that of a completed binding; `for` is a PV's claimRef as a user writes it, without a uid,
`uid` adds one. `from` is one affinity term. `leaving` is being deleted. A claim's `owner` is a pod of the scenario.
The names of claims and PVs may be sentences.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.parity.words import Json, labels, long_key, nothing_left, slug

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
SELECTED: Final = "volume.kubernetes.io/selected-node"
OTHER_UID: Final = "00000000-0000-0000-0000-000000000000"
"""Of an object that is gone."""
_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"
_MODES: Final = {"RWO": "ReadWriteOnce", "ROX": "ReadOnlyMany", "RWX": "ReadWriteMany", "RWOP": "ReadWriteOncePod"}
_STORAGE: Final = "storage.k8s.io/v1"
_SIZE: Final = "1Gi"


@dataclass(frozen=True)
class Storage:
    """Manifests. The uids of claims and pods are not known yet: claimRefs that want one have "", owners none."""

    settings: tuple[Json, ...] = ()
    """What no trial changes: classes, drivers, CSINodes, capacities and attachments."""
    claims: tuple[Json, ...] = ()
    volumes: tuple[Json, ...] = ()
    leaving: frozenset[tuple[str, str]] = frozenset()
    """(kind, name) of what is being deleted."""

    def __bool__(self) -> bool:
        return bool(self.settings or self.claims or self.volumes)

    def owned_by(self, pod: Json) -> list[Json]:
        """The claims whose owner has this pod's name and namespace."""
        metadata = pod["metadata"]
        return [claim for claim in self.claims if owner_of(claim) == (metadata["namespace"], metadata["name"])]


def uid_to_come(name: str) -> str:
    """Of a pod that is not there yet."""
    return f"uid-of-{name}"


def owner_of(claim: Json) -> tuple[str, str] | None:
    """Namespace and name of the pod that owns the claim."""
    owners = claim["metadata"].get("ownerReferences")
    return (claim["metadata"]["namespace"], owners[0]["name"]) if owners else None


def storage(short: Json) -> Storage:
    """Takes what it knows out of a scenario's short form."""
    taken = {word: short.pop(word, None) or {} for word in (*_SETTINGS, "claims", "pvs")}
    leaving = {
        ("PersistentVolumeClaim", slug(name)) for name, given in taken["claims"].items() if (given or {}).get("leaving")
    }
    leaving |= {
        ("PersistentVolume", slug(name)) for name, given in taken["pvs"].items() if (given or {}).get("leaving")
    }
    return Storage(
        settings=tuple(
            read(name, dict(given or {})) for word, read in _SETTINGS.items() for name, given in taken[word].items()
        ),
        claims=tuple(claim(name, dict(given or {})) for name, given in taken["claims"].items()),
        volumes=tuple(persistent_volume(name, dict(given or {})) for name, given in taken["pvs"].items()),
        leaving=frozenset(leaving),
    )


# -- what pods use -----------------------------------------------------------------------------------------------------


def persistent_volume(name: str, short: Json) -> Json:
    """By default available, of 1 GiB, for one node at a time and reachable from everywhere."""
    short.pop("leaving", None)
    spec: Json = {"capacity": {"storage": short.pop("size", _SIZE)}, **_common(short), **_source(name, short)}
    if (place := short.pop("from", None)) is not None:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": _expressions(place)}]}}
    if (terms := short.pop("affinity", None)) is not None:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    annotations = _annotations(short)
    if short.pop("by_controller", False):
        annotations[BY_CONTROLLER] = "yes"
    if wanted := short.pop("for", None):
        namespace, _, claim_name = f"default/{wanted}".rpartition("/")
        spec["claimRef"] = {"namespace": namespace.rpartition("/")[2], "name": slug(claim_name)}
        if whose := short.pop("uid", None):
            spec["claimRef"]["uid"] = {"own": "", "other": OTHER_UID}[whose]
    metadata = {"name": slug(name), "labels": labels(short.pop("labels", {})), "annotations": annotations}
    status = {"phase": short.pop("phase", "Available")}
    nothing_left(f"pv {name}", short)
    return _object("v1", "PersistentVolume", metadata, spec=spec, status=status)


def claim(name: str, short: Json) -> Json:
    """By default of 1 GiB for one node at a time, and unbound."""
    short.pop("leaving", None)
    spec: Json = {"resources": {"requests": {"storage": short.pop("size", _SIZE)}}, **_common(short)}
    if (matched := short.pop("match", None)) is not None:
        spec["selector"] = {"matchLabels": matched}
    if (selector := short.pop("selector", None)) is not None:
        spec["selector"] = selector
    annotations, phase = _annotations(short), "Pending"
    if bound := short.pop("bound", None):
        spec["volumeName"], annotations[BIND_COMPLETED], phase = slug(bound), "yes", "Bound"
    if volume := short.pop("volume", None):
        spec["volumeName"] = slug(volume)
    if (selected := short.pop("selected", None)) is not None:
        annotations[SELECTED] = selected
    metadata: Json = {"name": slug(name), "namespace": short.pop("namespace", "default"), "annotations": annotations}
    if owner := short.pop("owner", None):
        reference = {"apiVersion": "v1", "kind": "Pod", "name": slug(owner), "controller": short.pop("controls", True)}
        metadata["ownerReferences"] = [reference]
    status = {"phase": short.pop("phase", phase)}
    nothing_left(f"claim {name}", short)
    return _object("v1", "PersistentVolumeClaim", metadata, spec=spec, status=status)


def _common(short: Json) -> Json:
    spec: Json = {"accessModes": [_MODES[mode] for mode in short.pop("modes", ["RWO"])]}
    for word, field in (
        ("class", "storageClassName"),
        ("volume_mode", "volumeMode"),
        ("vac", "volumeAttributesClassName"),
    ):
        if (value := short.pop(word, None)) is not None:
            spec[field] = value
    return spec


def _annotations(short: Json) -> dict[str, str]:
    annotations = dict(short.pop("annotations", {}))
    old_class = short.pop("old_class", None)
    return annotations if old_class is None else annotations | {_OLD_CLASS: old_class}


def _source(name: str, short: Json) -> Json:
    if (handle := short.pop("csi", None)) is not None:
        driver, _, volume = handle.partition("/")
        return {"csi": {"driver": driver, "volumeHandle": volume or slug(name)}}
    if (disk := short.pop("gce", None)) is not None:
        return {"gcePersistentDisk": {"pdName": disk}}
    if (volume := short.pop("ebs", None)) is not None:
        return {"awsElasticBlockStore": {"volumeID": volume}}
    source: Json = short.pop("source", {"hostPath": {"path": f"/{slug(name)}"}})
    return source


def _expressions(place: Mapping[str, str | list[str]]) -> list[Json]:
    return [
        {"key": long_key(key), "operator": "In", "values": [value] if isinstance(value, str) else value}
        for key, value in place.items()
    ]


# -- settings ----------------------------------------------------------------------------------------------------------


def storage_class(name: str, short: Json) -> Json:
    """By default without a provisioner, for the first consumer, and everywhere."""
    fields: Json = {
        "provisioner": short.pop("provisioner", "kubernetes.io/no-provisioner"),
        "volumeBindingMode": short.pop("binding", "WaitForFirstConsumer"),
    }
    if (terms := short.pop("topologies", None)) is not None:
        fields["allowedTopologies"] = [
            {"matchLabelExpressions": [{"key": long_key(key), "values": values} for key, values in term.items()]}
            for term in terms
        ]
    nothing_left(f"class {name}", short)
    return _object(_STORAGE, "StorageClass", {"name": name}, **fields)


def csi_node(name: str, short: Json) -> Json:
    """By default without drivers; a driver whose count is null has no limit."""
    migrated = short.pop("migrated", None)
    drivers = [
        {"name": driver, "nodeID": name, **({} if count is None else {"allocatable": {"count": count}})}
        for driver, count in short.pop("drivers", {}).items()
    ]
    nothing_left(f"CSINode {name}", short)
    annotations = {} if migrated is None else {_MIGRATED: migrated}
    return _object(_STORAGE, "CSINode", {"name": name, "annotations": annotations}, spec={"drivers": drivers})


def csi_driver(name: str, short: Json) -> Json:
    """By default without capacities, and not missed."""
    words = (("capacity", "storageCapacity"), ("needed", "preventPodSchedulingIfMissing"))
    spec = {field: short.pop(word) for word, field in words if word in short}
    nothing_left(f"CSIDriver {name}", short)
    return _object(_STORAGE, "CSIDriver", {"name": name}, spec=spec)


def capacity(name: str, short: Json) -> Json:
    """By default of no node, and of unknown size."""
    fields: Json = {"storageClassName": short.pop("class")}
    for word, field in (("size", "capacity"), ("max", "maximumVolumeSize"), ("selector", "nodeTopology")):
        if (value := short.pop(word, None)) is not None:
            fields[field] = value
    if (place := short.pop("from", None)) is not None:
        fields["nodeTopology"] = {"matchLabels": labels(place)} if place else {}
    metadata = {"name": name, "namespace": short.pop("namespace", "default")}
    nothing_left(f"capacity {name}", short)
    return _object(_STORAGE, "CSIStorageCapacity", metadata, **fields)


def attachment(name: str, short: Json) -> Json:
    """Of a PV, or of a handle that is written out in the attachment."""
    attacher = short.pop("attacher")
    source: Json = {"persistentVolumeName": short.pop("pv", None)}
    if (handle := short.pop("inline", None)) is not None:
        inline = {"accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain"}
        source = {"inlineVolumeSpec": {"csi": {"driver": attacher, "volumeHandle": handle}, **inline}}
    spec = {"attacher": attacher, "nodeName": short.pop("node"), "source": source}
    nothing_left(f"attachment {name}", short)
    return _object(_STORAGE, "VolumeAttachment", {"name": name}, spec=spec)


_SETTINGS: Final = {
    "classes": storage_class,
    "csi_drivers": csi_driver,
    "csi_nodes": csi_node,
    "capacities": capacity,
    "attachments": attachment,
}


def _object(api_version: str, kind: str, metadata: Json, **rest: object) -> Json:
    """Without labels or annotations if there are none."""
    kept = {key: value for key, value in metadata.items() if value or key in {"name", "namespace"}}
    return {"apiVersion": api_version, "kind": kind, "metadata": kept, **rest}


# -- volumes of pods ---------------------------------------------------------------------------------------------------


def pod_volumes(claims: Iterable[str], volumes: Sequence[Json]) -> list[Json]:
    """`spec.volumes`: those of claims first."""
    wanted = [*({"claim": name} for name in claims), *volumes]
    return [_pod_volume(f"v{i}", dict(short)) for i, short in enumerate(wanted)]


def _pod_volume(name: str, short: Json) -> Json:
    kind, given = next(((word, short.pop(word)) for word in _VOLUMES if word in short), ("", None))
    if not kind:
        raise ValueError(f"volume {name}: no such word in the short form: {', '.join(sorted(short))}")
    if kind == "ephemeral":
        name = str(given)
    read_only = {"readOnly": True} if short.pop("ro", False) else {}
    source = _VOLUMES[kind](given, short)
    nothing_left(f"volume {name}", short)
    return {"name": name, **{field: inner | read_only for field, inner in source.items()}}


def _rbd(image: str, short: Json) -> Json:
    pool, _, name = image.partition("/")
    return {"rbd": {"monitors": short.pop("monitors"), "pool": pool, "image": name}}


def _iscsi(name: str, short: Json) -> Json:
    return {"iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": name, "lun": short.pop("lun", 0)}}


def _ephemeral(_: str, short: Json) -> Json:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": _SIZE}}}
    if "class" in short:
        spec["storageClassName"] = short.pop("class")
    return {"ephemeral": {"volumeClaimTemplate": {"spec": spec}}}


_VOLUMES: Final = {
    "claim": lambda name, _: {"persistentVolumeClaim": {"claimName": slug(name)}},
    "ephemeral": _ephemeral,
    "gce": lambda disk, _: {"gcePersistentDisk": {"pdName": disk}},
    "ebs": lambda volume, _: {"awsElasticBlockStore": {"volumeID": volume}},
    "rbd": _rbd,
    "iscsi": _iscsi,
    "csi": lambda driver, _: {"csi": {"driver": driver}},
    "source": lambda source, _: source,
}
