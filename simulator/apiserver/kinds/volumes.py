"""Defaults and validation of volumes, claims and their neighbours, when they are created and changed.

Checked are the fields that schedulers and the controllers of volumes read and write. Where a real server prints the
difference of two objects, this one only says what may not differ; it lets any bound claim grow.
"""

from __future__ import annotations

from typing import Any, Final

from scheduler.api.meta import NAME, NAME_RULE, label_key, subdomain
from scheduler.api.quantity import parse
from scheduler.api.storage_v1 import DEFAULT_CLASS_ANNOTATIONS
from scheduler.manifests.defaults import with_claim_defaults
from simulator.apiserver.kinds.defaults import NewRule, fill
from simulator.apiserver.resources import ApiResource, Served
from simulator.apiserver.status import IS_FIXED, check
from simulator.apiserver.storage import Storage
from simulator.apiserver.validation import (
    AT_LEAST_0,
    POSITIVE,
    Problem,
    Problems,
    Row,
    Rule,
    Table,
    duplicate,
    gate,
    missing,
    must,
    name_of,
    names,
    not_allowed,
    not_negative,
    not_supported,
    one_of,
    optional,
    required,
    unique,
    wrong,
)

Object = dict[str, Any]
_NOT_SOURCES: Final = frozenset(
    {"capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy", "storageClassName", "mountOptions"}
    | {"volumeMode", "nodeAffinity", "volumeAttributesClassName"}
)
_ONCE_POD: Final = "ReadWriteOncePod"
_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", _ONCE_POD)


def _modes(modes: Any, _: Any) -> Problems:
    found = [not_supported(mode, _ACCESS_MODES) for mode in modes if mode not in _ACCESS_MODES]
    if _ONCE_POD in modes and set(modes) != {_ONCE_POD}:
        found.append(not_allowed(f"may not use {_ONCE_POD} with other access modes"))
    return found


def amount(given: Any, _: Any = None) -> Problems:
    """Refuse an amount that is not positive. Raises ValueError for one that is none."""
    return [] if parse(given).nano > 0 else [wrong(str(given), POSITIVE)]


def _capacity(given: Any, _: Any) -> Problems:
    found = [] if given else [missing()]
    return found if [*(given or ())] == ["storage"] else [*found, not_supported(given or None, ("storage",))]


def _free_capacity(amount: Any, _: Any) -> Problems:
    return [] if parse(amount).nano >= 0 else [wrong(str(amount), AT_LEAST_0)]


def _one_type(spec: Any, _: Any) -> Problems:
    given = list(sources(spec))
    if not given:
        return [missing("must specify a volume type")]
    return [not_allowed("may not specify more than 1 volume type", at=given[1])] if len(given) > 1 else []


def _claim_size(spec: Any, _: Any) -> Problems:
    requests = (spec.get("resources") or {}).get("requests") or {}
    given = requests.get("storage")
    found = [missing()] if given is None else amount(given)
    return [each.below("resources[storage]") for each in found]


def _one_source(source: Any, _: Any) -> Problems:
    why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    given = sum((source or {}).get(key) is not None for key in ("persistentVolumeName", "inlineVolumeSpec"))
    return [] if given == 1 else [not_allowed(why) if given else missing(why)]


def _topology_keys(driver: Any, _: Any) -> Problems:
    """Check the keys of one driver. As upstream, the problems name the driver.

    Upstream: pkg/apis/storage/validation/validation.go validateCSINodeDriver
    """
    topology = driver.get("topologyKeys") or []
    found = [duplicate(key) for at, key in enumerate(topology) if key in topology[:at]]
    return found + [wrong(key, why) for key in topology for why in label_key(key)]


def _local(spec: Any, _: Any) -> Problems:
    has_nodes = (spec.get("nodeAffinity") or {}).get("required")
    is_wrong = spec.get("local") is not None and not has_nodes
    return [missing("Local volume requires node affinity", at="nodeAffinity")] if is_wrong else []


_CLASS_NAME: Final = must(NAME.fullmatch, NAME_RULE, zero="")
_OPTIONAL_CLASS: Final = Table(("", optional, _CLASS_NAME))
_VOLUME_MODE: Final = one_of("Block", "Filesystem")
_VOLUME: Final = Table(
    ("spec.accessModes", required(), _modes),
    ("spec.capacity", _capacity),
    ("spec.capacity{*}", amount),
    ("spec.persistentVolumeReclaimPolicy", one_of("Delete", "Recycle", "Retain")),
    ("spec", _one_type, _local),
    ("spec.csi?.driver", required()),
    ("spec.csi?.volumeHandle", required()),
    ("spec.storageClassName", _OPTIONAL_CLASS),
    ("spec.volumeMode", _VOLUME_MODE),
)
_CLAIM: Final = Table(
    ("spec.accessModes", required("at least 1 access mode is required"), _modes),
    ("spec", _claim_size),
    ("spec.storageClassName", _OPTIONAL_CLASS),
    ("spec.volumeMode", _VOLUME_MODE),
)
_CAPACITY: Final = Table(("storageClassName", _CLASS_NAME), ("capacity?", _free_capacity))
_CSI_NODE: Final = Table(
    ("spec.drivers[*].name", required()),
    ("spec.drivers[*].nodeID", required()),
    ("spec.drivers[*].allocatable.count?", not_negative),
    ("spec.drivers[*]", _topology_keys),
    ("spec.drivers", unique(name_of, at="name")),
)
_CLASS: Final = Table(
    ("provisioner", required()),
    ("reclaimPolicy", one_of("Delete", "Retain")),
    ("volumeBindingMode", one_of("Immediate", "WaitForFirstConsumer")),
)
_ATTACHMENT: Final = Table(
    ("spec.attacher", required()),
    ("spec.source", _one_source),
    ("spec.nodeName", names(subdomain)),
)


def sources(spec: Object) -> Object:
    return {key: value for key, value in spec.items() if key not in _NOT_SOURCES and value is not None}


def check_claim(resource: ApiResource, claim: Object) -> None:
    """Raise 422 for a PersistentVolumeClaim that cannot be."""
    check(resource, claim, _CLAIM)


# -- changes ---------------------------------------------------------------------------------------------------------

_CLAIM_FIXED: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)
_SOURCE_FIXED: Final = "spec.persistentvolumesource is immutable after creation"
_AFFINITY_FIXED: Final = "field is immutable, except for updating from beta label to GA"


def with_changes(resource: ApiResource, old: Object, new: Object) -> Object:
    """Return what is stored when `new` comes in place of `old`, other than through /status. Raises 422."""
    table = _CHANGES.get(resource.name)
    if table is not None:
        check(resource, new, table, old)
    return _with_nulls(new) if resource.name == "csinodes" else new


def _fixed(*path: str, shown_as: str = "", zero: Any = None) -> Row:
    """Return the row of a field that keeps its value. Some messages name another field."""

    def rule(new: Any, old: Object) -> Problems:
        before: Any = old
        after = new
        for name in path:
            before, after = (before or {}).get(name), (after or {}).get(name)
        shown = zero if after is None else after
        return [] if before == after else [wrong(shown, IS_FIXED, at=shown_as or ".".join(path))]

    return "", rule


def _fixed_volume(new: Any, old: Object) -> Problems:
    before, after = old["spec"], new["spec"]
    found = []
    if sources(before) != sources(after):
        found.append(not_allowed(_SOURCE_FIXED, at="spec.persistentvolumesource"))
    if before["volumeMode"] != after["volumeMode"]:
        found.append(wrong(after["volumeMode"], IS_FIXED, at="volumeMode"))
    if before.get("nodeAffinity") and before["nodeAffinity"] != after.get("nodeAffinity"):
        found += _immutable("nodeAffinity", _AFFINITY_FIXED)
    return found


def _fixed_claim(new: Any, old: Object) -> Problems:
    before, after = old["spec"], new["spec"]
    free = set() if before.get("volumeName") else {"volumeName"}
    if before.get("storageClassName") is None and after.get("storageClassName") is not None:
        free.add("storageClassName")
    if (old.get("status") or {}).get("phase") == "Bound":
        free |= {"resources", "volumeAttributesClassName"}
    is_same = all(before.get(name) == after.get(name) for name in (before.keys() | after.keys()) - free)
    found = [] if is_same else [not_allowed(_CLAIM_FIXED, at="spec")]
    return found + (_fixed_size(new, old) if "resources" in free else [])


def _fixed_size(new: Object, old: Object) -> Problems:
    before, after = (parse(each["spec"]["resources"]["requests"]["storage"]) for each in (old, new))
    has = parse((old["status"].get("capacity") or {}).get("storage", "0"))
    if after.nano >= before.nano or after.nano > has.nano:
        return []
    return [not_allowed("field can not be less than status.capacity", at="spec.resources.requests.storage")]


def _fixed_drivers(new: Any, old: Object) -> Problems:
    """Check that drivers are only added, removed, or changed in their limit."""
    before = {driver["name"]: driver for driver in old["spec"].get("drivers") or ()}
    drivers = [{"topologyKeys": None} | driver for driver in (new.get("spec") or {}).get("drivers") or ()]
    is_same = all(_unlimited(before.get(driver["name"], driver)) == _unlimited(driver) for driver in drivers)
    return [] if is_same else _immutable("spec.drivers")


def _fixed_attachment(new: Any, old: Object) -> Problems:
    return [] if old.get("spec") == new.get("spec") else _immutable("spec")


def _immutable(field: str, why: str = IS_FIXED) -> Problems:
    """Return the problem of a field whose value is not shown, because a real server prints a difference."""
    return [Problem(field, "FieldValueInvalid", f"Invalid value: {why}")]


def _unlimited(driver: Object) -> Object:
    return {key: value for key, value in driver.items() if key != "allocatable"}


_CHANGES: Final[dict[str, Rule]] = {
    "persistentvolumes": Table(("", gate(_VOLUME), _fixed_volume)),
    "persistentvolumeclaims": Table(("", gate(_CLAIM), _fixed_claim)),
    "storageclasses": Table(
        *(_fixed(field, zero="") for field in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"))
    ),
    "csidrivers": Table(
        _fixed("spec", "attachRequired", shown_as="spec.attachedRequired"), _fixed("spec", "volumeLifecycleModes")
    ),
    "csinodes": Table(("", gate(_CSI_NODE), _fixed_drivers)),
    "csistoragecapacities": Table(_fixed("nodeTopology"), _fixed("storageClassName")),
    "volumeattachments": Table(("", _fixed_attachment)),
}
"""The context is the old object."""


def with_transition_time(old: Object, new: Object, now: str) -> None:
    """Set the time of the phase in a volume's status. Replaces the status, never edits it."""
    before, after = old.get("status") or {}, new.get("status") or {}
    since, told = before.get("lastPhaseTransitionTime"), after.get("lastPhaseTransitionTime")
    if before.get("phase") == after.get("phase"):
        if told is None and since is not None:
            new["status"] = after | {"lastPhaseTransitionTime": since}
    elif told in (None, since):
        new["status"] = after | {"lastPhaseTransitionTime": now}


def rules(storage: Storage, served: Served) -> dict[str, NewRule]:
    return {
        "persistentvolumes": with_volume,
        "persistentvolumeclaims": Claims(storage, served.named("storageclasses")),
        "storageclasses": with_class,
        "csidrivers": with_driver,
        "csinodes": with_csi_node,
        "csistoragecapacities": with_capacity,
        "volumeattachments": with_attachment,
    }


def with_volume(resource: ApiResource, volume: Object, now: str) -> None:
    """Return a new PersistentVolume. Raises 422."""
    spec = volume.setdefault("spec", {})
    fill(spec, persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")
    if isinstance(spec.get("hostPath"), dict):
        spec["hostPath"].setdefault("type", "")
    volume["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now}
    _protect(volume, "kubernetes.io/pv-protection")
    check(resource, volume, _VOLUME)


class Claims:
    """New claims, which may get the default class."""

    def __init__(self, storage: Storage, classes: ApiResource) -> None:
        self._storage = storage
        self._classes = classes

    def __call__(self, resource: ApiResource, claim: Object, _: str) -> None:
        """Return a new PersistentVolumeClaim. Raises 422."""
        annotations = claim["metadata"].get("annotations") or {}
        claim["spec"] = with_claim_defaults(claim.get("spec") or {}, annotations, self._default())
        claim["status"] = {"phase": "Pending"}
        _protect(claim, "kubernetes.io/pvc-protection")
        check_claim(resource, claim)

    def _default(self) -> str:
        """Return the newest of the default classes, of equally new ones the first by name."""
        found = ""
        newest = ""
        for entry in self._storage.bucket(self._classes).ordered():
            metadata = entry.obj["metadata"]
            annotations = metadata.get("annotations") or {}
            is_default = any(annotations.get(key) == "true" for key in DEFAULT_CLASS_ANNOTATIONS)
            if is_default and metadata["creationTimestamp"] > newest:
                found, newest = metadata["name"], metadata["creationTimestamp"]
        return found


def with_class(resource: ApiResource, storage_class: Object, _: str) -> None:
    """Return a new StorageClass. Raises 422."""
    fill(storage_class, reclaimPolicy="Delete", volumeBindingMode="Immediate")
    check(resource, storage_class, _CLASS)


def with_driver(_: ApiResource, driver: Object, __: str) -> None:
    """Return a new CSIDriver. `preventPodSchedulingIfMissing` is kept, as it is where VolumeLimitScaling is on."""
    spec = driver.setdefault("spec", {})
    defaults: Object = {
        "attachRequired": True,
        "podInfoOnMount": False,
        "volumeLifecycleModes": ["Persistent"],
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": False,
        "seLinuxMount": False,
    }
    for key, value in defaults.items():
        if spec.get(key) in (None, []):
            spec[key] = value


def with_csi_node(resource: ApiResource, csi_node: Object, _: str) -> None:
    """Return a new CSINode. Raises 422."""
    check(resource, csi_node, _CSI_NODE)
    csi_node["spec"] = _with_nulls(csi_node)["spec"]


def _with_nulls(csi_node: Object) -> Object:
    """Return the object with the nulls that a real server writes for empty lists."""
    spec = csi_node.get("spec") or {}
    drivers = [{"topologyKeys": None} | driver for driver in spec.get("drivers") or ()]
    return csi_node | {"spec": spec | {"drivers": drivers or None}}


def with_capacity(resource: ApiResource, capacity: Object, _: str) -> None:
    """Return a new CSIStorageCapacity. Raises 422."""
    check(resource, capacity, _CAPACITY)


def with_attachment(resource: ApiResource, attachment: Object, _: str) -> None:
    """Return a new VolumeAttachment, which nothing has attached yet. Raises 422."""
    check(resource, attachment, _ATTACHMENT)
    attachment["status"] = {"attached": False}


def _protect(obj: Object, finalizer: str) -> None:
    finalizers = obj["metadata"].get("finalizers") or []
    obj["metadata"]["finalizers"] = finalizers if finalizer in finalizers else [*finalizers, finalizer]
