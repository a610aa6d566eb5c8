"""The kinds of the server, under every group and version that it can serve."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scheduler.core.feature_gates import minor_version

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
DEVICES: Final = "resource.k8s.io"
OURS: Final = "kubestow.dev"
"""Of the kinds that a CustomResourceDefinition brings; this server takes their specs as they are."""
COSCHEDULING: Final = "scheduling.x-k8s.io"
VOLCANO: Final = "scheduling.volcano.sh"
"""The same, of the coscheduling plugin and of Volcano. Their PodGroups have the short name of Kubernetes' own."""
_OF_PLUGINS: Final = frozenset({COSCHEDULING, VOLCANO})
CORE_FIELDS: Final = ("metadata.name", "metadata.namespace")
_POD_FIELDS: Final = (
    *(f"spec.{name}" for name in ("nodeName", "restartPolicy", "schedulerName", "serviceAccountName", "hostNetwork")),
    *(f"status.{name}" for name in ("phase", "podIP", "nominatedNodeName")),
)
REGARDING: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS: Final = (*(f"regarding.{name}" for name in REGARDING), "reason", "reportingController", "type")


@dataclass(frozen=True, slots=True)
class ApiResource:
    """One kind under one group and version. `stored_as` decides where objects are stored: versions share them."""

    group: str
    version: str
    name: str
    kind: str
    namespaced: bool
    has_status: bool = False
    has_generation: bool = False
    unconditional_put: bool = True
    """Whether a PUT may leave out metadata.resourceVersion."""
    put_creates: bool = False
    selectable: tuple[str, ...] = ()
    """Field selectors besides metadata.name and metadata.namespace, as stored."""

    @property
    def group_version(self) -> str:
        """`v1` or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`pods`, `leases.coordination.k8s.io`: how messages name the resource."""
        return f"{self.name}.{self.group}" if self.group else self.name

    @property
    def qualified_kind(self) -> str:
        """`Pod`, `Lease.coordination.k8s.io`: how messages name the kind."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def stored_as(self) -> str:
        """The place of the objects: the resource, with its group if another group has a resource of this name."""
        return self.qualified if self.group in _OF_PLUGINS else self.name

    @property
    def known_as(self) -> str:
        """The kind for in-process callers, as `stored_as`."""
        return self.qualified_kind if self.group in _OF_PLUGINS else self.kind

    @property
    def is_core_event(self) -> bool:
        """core/v1 Events are events.k8s.io Events with other names for the fields."""
        return self.name == "events" and not self.group

    @property
    def is_flat(self) -> bool:
        """resource.k8s.io/v1beta1 has the fields of the device kinds in other places."""
        return self.group == DEVICES and self.version == "v1beta1"

    @property
    def has_other_face(self) -> bool:
        """Whether objects look otherwise here than they are stored."""
        return self.is_core_event or self.is_flat

    @property
    def is_custom(self) -> bool:
        """Such objects know no strategic merge patch."""
        return self.group in {OURS, *_OF_PLUGINS}

    @property
    def returns_deleted(self) -> bool:
        """Whether a DELETE that ends the object answers with its last state."""
        return self.group == DEVICES

    def key(self, namespace: str, name: str) -> str:
        """`namespace/name`, or the bare name of a cluster-scoped object."""
        return f"{namespace}/{name}" if self.namespaced else name


def _several(group: str, versions: Sequence[str], **rest: tuple[str, bool, str]) -> list[ApiResource]:
    """Rows `resource=(kind, namespaced, flags)`; flags: s status, g generation, c conditional PUT only, p PUT creates."""
    return [
        ApiResource(
            group,
            version,
            name,
            kind,
            namespaced,
            has_status="s" in flags,
            has_generation="g" in flags,
            unconditional_put="c" not in flags,
            put_creates="p" in flags,
            selectable=_SELECTABLE.get(name, ()),
        )
        for version in versions
        for name, (kind, namespaced, flags) in rest.items()
    ]


_SELECTABLE: Final = {
    "pods": _POD_FIELDS,
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "events": _EVENT_FIELDS,
    "resourceslices": ("spec.nodeName", "spec.driver"),
}

ALL: Final = (
    *_several(
        "",
        ["v1"],
        pods=("Pod", True, "sg"),
        nodes=("Node", False, "s"),
        namespaces=("Namespace", False, "s"),
        services=("Service", True, "sp"),
        replicationcontrollers=("ReplicationController", True, "sg"),
        persistentvolumes=("PersistentVolume", False, "s"),
        persistentvolumeclaims=("PersistentVolumeClaim", True, "s"),
        events=("Event", True, "p"),
        configmaps=("ConfigMap", True, ""),
    ),
    *_several(
        "apps",
        ["v1"],
        deployments=("Deployment", True, "sg"),
        replicasets=("ReplicaSet", True, "sg"),
        statefulsets=("StatefulSet", True, "sg"),
        daemonsets=("DaemonSet", True, "sg"),
        controllerrevisions=("ControllerRevision", True, ""),
    ),
    *_several("batch", ["v1"], jobs=("Job", True, "sg"), cronjobs=("CronJob", True, "sg")),
    *_several("policy", ["v1"], poddisruptionbudgets=("PodDisruptionBudget", True, "sgc")),
    *_several(
        "storage.k8s.io",
        ["v1"],
        storageclasses=("StorageClass", False, ""),
        csinodes=("CSINode", False, "c"),
        csidrivers=("CSIDriver", False, "c"),
        volumeattachments=("VolumeAttachment", False, "sc"),
    ),
    *_several("storage.k8s.io", ["v1", "v1beta1"], csistoragecapacities=("CSIStorageCapacity", True, "c")),
    *_several(
        DEVICES,
        ["v1", "v1beta2", "v1beta1"],
        resourceclaims=("ResourceClaim", True, "s"),
        resourceslices=("ResourceSlice", False, "g"),
        deviceclasses=("DeviceClass", False, "g"),
        resourceclaimtemplates=("ResourceClaimTemplate", True, ""),
    ),
    *_several(DEVICES, ["v1beta2", "v1alpha3", "v1"], devicetaintrules=("DeviceTaintRule", False, "sg")),
    *_several("coordination.k8s.io", ["v1"], leases=("Lease", True, "cp")),
    *_several("events.k8s.io", ["v1"], events=("Event", True, "p")),
    *_several("scheduling.k8s.io", ["v1"], priorityclasses=("PriorityClass", False, "g")),
    *_several("scheduling.k8s.io", ["v1beta1"], podgroups=("PodGroup", True, "s")),
    *_several(COSCHEDULING, ["v1alpha1"], podgroups=("PodGroup", True, "sgc")),
    *_several(VOLCANO, ["v1beta1"], podgroups=("PodGroup", True, "sgc")),
    *_several(
        OURS, ["v1alpha1"], schedulerprofiles=("SchedulerProfile", False, "sgc"), whatifs=("WhatIf", True, "sgc")
    ),
)
"""Everything that can be served. What *is* served is the constructor's `served`."""

GROUPS: Final = ("scheduling.k8s.io/v1beta1", f"{COSCHEDULING}/v1alpha1", f"{VOLCANO}/v1beta1")
"""The kinds of groups: with the gate GenericWorkload, with the coscheduling plugin, and with Volcano's CRDs."""

_DEVICE_KINDS: Final = ("resourceclaims", "resourceslices", "deviceclasses", "resourceclaimtemplates")

LIKE_1_36: Final = (
    "v1",
    "apps/v1",
    "batch/v1",
    "policy/v1",
    "storage.k8s.io/v1",
    *(f"{DEVICES}/v1/{name}" for name in _DEVICE_KINDS),
    "coordination.k8s.io/v1",
    "events.k8s.io/v1",
    "scheduling.k8s.io/v1",
    "authentication.k8s.io/v1",
    "authorization.k8s.io/v1",
)
"""The groups and versions a kube-apiserver 1.36 serves with its defaults, as far as the server knows them."""


LIKE_1_37: Final = (*LIKE_1_36, f"{DEVICES}/v1/devicetaintrules")
"""With the rules that taint devices, which 1.37 serves under v1 by default."""

LIKE_1_36_WITH_OURS: Final = (*LIKE_1_36, f"{OURS}/v1alpha1")
"""With our own API objects."""

LIKE_1_36_WITH_BETAS: Final = (
    *LIKE_1_36,
    *(f"{DEVICES}/{version}" for version in ("v1beta2", "v1beta1", "v1alpha3")),
)
"""The defaults and the device kinds that a real server serves only on request: older versions, and DeviceTaintRules."""

_BEFORE_DEVICES: Final = tuple(version for version in LIKE_1_36 if not version.startswith(f"{DEVICES}/"))
LIKE_1_32: Final = (*_BEFORE_DEVICES, f"{DEVICES}/v1beta1")
"""Devices under v1beta1 alone."""
LIKE_1_33: Final = (
    *_BEFORE_DEVICES,
    *(f"{DEVICES}/v1beta2/{name}" for name in _DEVICE_KINDS),
    f"{DEVICES}/v1beta1",
)
"""Devices under v1beta2 and v1beta1, and no rules that taint them."""
LIKE_1_25: Final = (*_BEFORE_DEVICES, "storage.k8s.io/v1beta1")
"""Capacities under both versions, as 1.24 to 1.26."""
LIKE_1_23: Final = (
    *(version for version in _BEFORE_DEVICES if version != "storage.k8s.io/v1"),
    *(f"storage.k8s.io/v1/{name}" for name in ("storageclasses", "csinodes", "csidrivers", "volumeattachments")),
    "storage.k8s.io/v1beta1",
)
"""Capacities under v1beta1 alone; the other storage kinds are v1."""


_GONE: Final = {f"{DEVICES}/v1beta1": 38}
"""Group and version → the first minor version of servers that do not have it."""


class Served:
    """The version of the server, and the kinds of the chosen groups and versions, by path and by name."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._entries = tuple(entries)
        self.upgrade("v1.36.3")

    def upgrade(self, git_version: str) -> None:
        """Be of this version from now on, without what it no longer has. Raises ValueError for a text that is no version."""
        version = minor_version(git_version)
        if version is None:
            raise ValueError(f"{git_version!r} is not a version")
        self.git_version, self.minor = git_version, version[1]
        self.change(self._entries)

    def change(self, entries: Iterable[str]) -> None:
        """Serve these from now on: `group/version`, or `group/version/resource` for one kind of a group and version."""
        self._entries = tuple(entries)
        wanted = [entry for entry in self._entries if self.knows(entry)]
        cut = [entry.rpartition("/")[0] if entry.count("/") == 2 else entry for entry in wanted]
        self.group_versions = tuple(dict.fromkeys(cut))
        chosen = [r for r in ALL if r.group_version in wanted or f"{r.group_version}/{r.name}" in wanted]
        self._by_path = {(r.group, r.version, r.name): r for r in chosen}
        named_as_served = [r for r in chosen if r.group != DEVICES]  # devices are stored in one version, served or not
        stored = {r.stored_as: r for r in (*reversed(ALL), *reversed(named_as_served))}
        self._stored = stored | {"events": next(r for r in ALL if r.group == "events.k8s.io")}
        self._by_kind = {r.known_as: r for r in self._stored.values()}

    def knows(self, group_version: str) -> bool:
        """Return whether this version of Kubernetes still has a group and version."""
        return self.minor < _GONE.get(group_version, math.inf)

    def at(self, group: str, version: str, name: str) -> ApiResource | None:
        """Return the resource under this path, None when it is not served."""
        return self._by_path.get((group, version, name))

    def named(self, kind_or_resource: str) -> ApiResource:
        """For in-process callers: `Pod` or `pods`; served or not."""
        found = self._stored.get(kind_or_resource) or self._by_kind.get(kind_or_resource)
        if found is None:
            raise KeyError(f"no kind or resource named {kind_or_resource!r}")
        return found

    def of_manifest(self, obj: Mapping[str, Any]) -> ApiResource:
        """For in-process callers: the kind of an object, served or not."""
        kind, group = obj["kind"], obj.get("apiVersion", "").rpartition("/")[0]
        return self.named(f"{kind}.{group}" if group in _OF_PLUGINS else kind)

    def stored(self) -> Iterable[ApiResource]:
        """One resource per place where objects are stored."""
        return self._stored.values()

    def of(self, group: str, version: str) -> list[ApiResource]:
        """Return what discovery lists for one group and version."""
        return [r for (g, v, _), r in self._by_path.items() if (g, v) == (group, version)]
