"""The watched kinds, their API versions, and which of them the server has.

A kind that the server lacks is absent and checked once a minute: upgrades add versions, feature gates add groups. To
watch another kind, give its row a `typ` and name it in the plugin's `reads`; the chart's permissions follow from this
table. Rules: docs/spec/core.md §4.1.

All versions of a row have the same fields. resource.k8s.io/v1beta1 and rules of v1alpha3 have different fields, and no server since
1.36 has these versions alone (docs/spec/dra.md §6).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import InitVar, dataclass
from typing import Any, Final

import msgspec
import structlog

from scheduler.api.apps_and_policy import PodDisruptionBudget, ReplicaSet, ReplicationController, Service, StatefulSet
from scheduler.api.core_v1 import FailedPod, Namespace, Node, Pod
from scheduler.api.decode import ObjectDecoder
from scheduler.api.pod_group import (
    COSCHEDULING_POD_GROUP,
    POD_GROUP,
    VOLCANO_POD_GROUP,
    CoschedulingPodGroup,
    PodGroup,
    VolcanoPodGroup,
)
from scheduler.api.resource_v1 import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from scheduler.api.storage_v1 import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from scheduler.core.clock import Clock
from scheduler.core.errors import ApiError, NotFound
from scheduler.core.feature_gates import TAINT_RULES
from scheduler.core.retry import Backoff
from scheduler.kube.wire import Transport
from scheduler.kube.writes.permissions import RbacRule

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KindSpec:
    """One row of the table. `typ` is None while nothing reads the kind.

    `by_age`: a new list, which the server sorts by name, is reported in the order of writing, as a watch would.
    """

    name: str
    plural: str
    group_versions: tuple[str, ...]
    namespaced: bool
    typ: type[Any] | None = None
    field_selector: str = ""
    by_age: bool = False
    effect: str = ""
    """What suffers where the server does not have the kind."""
    is_needed: bool = False
    """Whether no pod can be placed without the kind. Without another one, only pods that need it suffer."""
    is_optional: bool = False
    """Whether the first decision does not wait for a kind that is served and may not be read."""

    def decoder(self) -> ObjectDecoder[Any]:
        assert self.typ is not None
        return ObjectDecoder(self.name, self.typ)

    @property
    def group(self) -> str:
        """Return the API group; "" for the core group."""
        return self.group_versions[0].rpartition("/")[0]

    def permission(self, verb: str) -> RbacRule:
        """Return the permission to `list` or `watch` the kind."""
        effect = self.effect if self.is_optional else ""
        return RbacRule(self.group, self.plural, verb, effect=effect, is_needed=not self.is_optional)


@dataclass(frozen=True, slots=True)
class ServedKind:
    """The place of a kind: the path of the collection over all namespaces, and the version."""

    path: str
    version: str


_STORAGE: Final = ("storage.k8s.io/v1",)
_DEVICES: Final = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2")

POD: Final = KindSpec("Pod", "pods", ("v1",), True, Pod, "status.phase!=Succeeded,status.phase!=Failed", is_needed=True)
NODE: Final = KindSpec("Node", "nodes", ("v1",), False, Node, is_needed=True)
NAMESPACE: Final = KindSpec("Namespace", "namespaces", ("v1",), False, Namespace)
WORKLOADS: Final[tuple[KindSpec, ...]] = (
    KindSpec("Service", "services", ("v1",), True, Service),
    KindSpec("ReplicationController", "replicationcontrollers", ("v1",), True, ReplicationController),
    KindSpec("ReplicaSet", "replicasets", ("apps/v1",), True, ReplicaSet),
    KindSpec("StatefulSet", "statefulsets", ("apps/v1",), True, StatefulSet),
)
"""For default spread constraints (docs/spec/core.md §5.8)."""

VOLUMES: Final[tuple[KindSpec, ...]] = (
    KindSpec("PersistentVolume", "persistentvolumes", ("v1",), False, PersistentVolume),
    KindSpec("PersistentVolumeClaim", "persistentvolumeclaims", ("v1",), True, PersistentVolumeClaim),
)
STORAGE: Final[tuple[KindSpec, ...]] = (
    KindSpec("StorageClass", "storageclasses", _STORAGE, False, StorageClass),
    KindSpec("CSINode", "csinodes", _STORAGE, False, CSINode),
    KindSpec("CSIDriver", "csidrivers", _STORAGE, False, CSIDriver),
    KindSpec("VolumeAttachment", "volumeattachments", _STORAGE, False, VolumeAttachment),
)
CAPACITY: Final = KindSpec(
    "CSIStorageCapacity",
    "csistoragecapacities",
    _STORAGE,
    True,
    CSIStorageCapacity,
    effect="volumes are placed without a check of the capacity",
)
"""Capacity for new volumes (docs/spec/volumes.md §8)."""

_WITHOUT_DEVICES: Final = "pods that need devices stay pending"
RESOURCE_CLAIM: Final = KindSpec(
    "ResourceClaim",
    "resourceclaims",
    _DEVICES,
    True,
    ResourceClaim,
    by_age=True,
    effect=_WITHOUT_DEVICES,
)
"""Of two claims that got one device the later one gives way (docs/spec/dra.md §10.5)."""
RESOURCE_SLICE: Final = KindSpec(
    "ResourceSlice", "resourceslices", _DEVICES, False, ResourceSlice, effect=_WITHOUT_DEVICES
)
DEVICE_CLASS: Final = KindSpec("DeviceClass", "deviceclasses", _DEVICES, False, DeviceClass, effect=_WITHOUT_DEVICES)
TAINT_RULE: Final = KindSpec(
    "DeviceTaintRule",
    "devicetaintrules",
    _DEVICES,
    False,
    DeviceTaintRule,
    effect="devices are allocated as if no rule tainted them",
)
"""Watched only if its gate is on: few servers have it (docs/spec/dra.md §4.11)."""
DEVICES: Final = (RESOURCE_CLAIM, RESOURCE_SLICE, DEVICE_CLASS)
"""The kinds that device allocation needs (docs/spec/dra.md §0.4)."""

BUDGET: Final = KindSpec(
    "PodDisruptionBudget",
    "poddisruptionbudgets",
    ("policy/v1",),
    True,
    PodDisruptionBudget,
    effect="preemption goes on without budgets",
    is_optional=True,
)
"""Preemption spares budgets where it can (docs/spec/core.md §3.10)."""

POD_GROUPS: Final[tuple[KindSpec, ...]] = (
    KindSpec(
        POD_GROUP,
        "podgroups",
        ("scheduling.k8s.io/v1", "scheduling.k8s.io/v1beta1"),
        True,
        PodGroup,
        is_optional=True,
    ),
    KindSpec(
        COSCHEDULING_POD_GROUP,
        "podgroups",
        ("scheduling.x-k8s.io/v1alpha1",),
        True,
        CoschedulingPodGroup,
        is_optional=True,
    ),
    KindSpec(
        VOLCANO_POD_GROUP,
        "podgroups",
        ("scheduling.volcano.sh/v1beta1",),
        True,
        VolcanoPodGroup,
        is_optional=True,
    ),
)
"""Groups of pods that start together (docs/spec/groups.md). Most servers have none of these kinds."""

WATCHED_NOW: Final[tuple[KindSpec, ...]] = (
    *(POD, NODE, NAMESPACE),
    *VOLUMES,
    *WORKLOADS,
    BUDGET,
    *STORAGE,
    CAPACITY,
    *DEVICES,
    *POD_GROUPS,
)
"""Everything that a default configuration watches."""

_PRIORITY_CLASS: Final = KindSpec("PriorityClass", "priorityclasses", ("scheduling.k8s.io/v1",), False)
KINDS: Final[Mapping[str, KindSpec]] = {spec.name: spec for spec in (*WATCHED_NOW, TAINT_RULE, _PRIORITY_CLASS)}

SCHEDULER_PROFILE: Final = KindSpec("SchedulerProfile", "schedulerprofiles", ("kubestow.dev/v1alpha1",), False)
WHAT_IF: Final = KindSpec("WhatIf", "whatifs", ("kubestow.dev/v1alpha1",), True)
"""Our own kinds. kopf watches them; no informer does, and no decision reads them."""

NO_VERSION: Final = "none"


def with_capacity(kinds: Iterable[KindSpec], version: str) -> tuple[KindSpec, ...]:
    """Return the kinds, with `none` those without capacity objects."""
    return tuple(spec for spec in kinds if version != NO_VERSION or spec != CAPACITY)


def with_taint_rules(kinds: Iterable[KindSpec], feature_gates: Container[str]) -> tuple[KindSpec, ...]:
    """Return the kinds with device taint rules if devices are watched and the gate is on, otherwise without them."""
    kinds = tuple(spec for spec in kinds if spec != TAINT_RULE)
    return (*kinds, TAINT_RULE) if TAINT_RULES in feature_gates and RESOURCE_SLICE in kinds else kinds


def failed_pods(scheduler_name: str) -> KindSpec:
    """Return the watch of one profile's failed pods, which the watch of pods omits.

    A pod that leaves that watch keeps its last content, without the reason of its failure.
    """
    value = re.sub(r"([\\,=])", r"\\\1", scheduler_name)
    selector = f"status.phase=Failed,spec.schedulerName={value}"
    return KindSpec(f"FailedPod/{scheduler_name}", POD.plural, POD.group_versions, True, FailedPod, selector)


def watched(names: Iterable[str]) -> tuple[KindSpec, ...]:
    """Return pods, nodes, and the kinds that plugins read, in the order of the table."""
    wanted = frozenset(names)
    return tuple(spec for spec in KINDS.values() if spec.is_needed or spec.name in wanted)


_AGAIN_S: Final = 60.0
_UNANSWERED_S: Final = 10.0
_LOG_AGAIN_S: Final = 60.0


class _Resource(msgspec.Struct):
    name: str = ""


class _ResourceList(msgspec.Struct):
    resources: list[_Resource] | None = None


_RESOURCES: Final = msgspec.json.Decoder(_ResourceList)


class DiscoveryFailed(Exception):
    """Some group versions did not answer; whether their kinds are served is unknown."""

    def __init__(
        self, failed: Mapping[str, str], served: Mapping[str, ServedKind | None], *, is_total: bool = False
    ) -> None:
        """Create the error.

        `is_total`: no group version answered. A common cause is reported once, without their names.
        """
        causes: dict[str, list[str]] = {}
        for group_version, why in failed.items():
            causes.setdefault(why, []).append(group_version)
        self.is_total = is_total and len(causes) == 1
        named = (f"{', '.join(group_versions)}: {why}" for why, group_versions in causes.items())
        super().__init__(next(iter(causes)) if self.is_total else "; ".join(named))
        self.served = served


async def discover(transport: Transport, kinds: Iterable[KindSpec] = WATCHED_NOW) -> Mapping[str, ServedKind | None]:
    """Return the place of each kind by name, None if it is not served. Sends one request per group version.

    Raises `DiscoveryFailed` if a group version failed; the error has the known places. A kind whose preferred version did
    not answer stays unknown.
    """
    kinds = tuple(kinds)
    wanted = sorted({group_version for spec in kinds for group_version in spec.group_versions})
    answers = await asyncio.gather(*(_plurals(transport, group_version) for group_version in wanted))
    plurals = dict(zip(wanted, answers))
    served: dict[str, ServedKind | None] = {}
    for spec in kinds:
        for group_version in spec.group_versions:
            found = plurals[group_version]
            if isinstance(found, str):
                break
            if spec.plural in found:
                path = f"{_root(group_version)}/{spec.plural}"
                served[spec.name] = ServedKind(path, group_version.rpartition("/")[2])
                break
        else:
            served[spec.name] = None
    failed = {group_version: found for group_version, found in plurals.items() if isinstance(found, str)}
    if failed:
        raise DiscoveryFailed(failed, served, is_total=len(failed) == len(wanted))
    return served


@dataclass(eq=False, repr=False)
class Discovery:
    """Find the wanted kinds at start, and missing ones repeatedly."""

    transport: Transport
    clock: Clock
    kinds: InitVar[Iterable[KindSpec]] = WATCHED_NOW
    server: str = ""
    """The URL in log lines."""

    def __post_init__(self, kinds: Iterable[KindSpec]) -> None:
        self.missing = {spec.name: spec for spec in kinds}
        """The kinds not found yet; after `answered`, those that the server lacks."""
        self._logged_at_s = 0.0
        self._logged = ""
        self._is_running = False
        self.served: dict[str, ServedKind] = {}
        self.answered = asyncio.Event()
        """Set once every kind has been found or is known to be absent."""
        self.last_error = ""

    def want(self, spec: KindSpec) -> None:
        """Look for another kind, in a running or a new `run`."""
        self.missing[spec.name] = spec

    async def locate(self, spec: KindSpec) -> ServedKind | None:
        """Return the current place of a kind. Raises DiscoveryFailed if it is unknown."""
        try:
            found = await discover(self.transport, [spec])
        except DiscoveryFailed as why:
            if spec.name not in why.served:
                raise
            found = why.served
        served = found[spec.name]
        if served is not None:
            self.served[spec.name] = served
        return served

    async def run(self, on_served: Callable[[KindSpec, ServedKind], None]) -> None:
        """Call `on_served` for each kind that is found; return when none is missing.

        A server without an answer gets the next request after 1 s, doubling to 10 s. Returns at once while another call
        runs.
        """
        if self._is_running:
            return
        self._is_running = True
        backoff = Backoff(self.clock, first_s=1.0, longest_s=_UNANSWERED_S)
        try:
            while self.missing:
                if await self._pass(on_served):
                    self.answered.set()
                    backoff.reset()
                    if self.missing:
                        await self.clock.sleep(_AGAIN_S)
                else:
                    await backoff.next()
        finally:
            self._is_running = False

    async def _pass(self, on_served: Callable[[KindSpec, ServedKind], None]) -> bool:
        """Send the requests once; return whether all were answered."""
        found: Mapping[str, ServedKind | None]
        try:
            found = await discover(self.transport, self.missing.values())
            if self._logged:
                _log.info("the API server answers again", server=self.server)
            self.last_error = self._logged = ""
        except DiscoveryFailed as why:
            found = why.served
            self.last_error = str(why)
            self._log_failure(why)
        for name, served in found.items():
            if served is not None:
                self.served[name] = served
                on_served(self.missing.pop(name), served)
        return not self.last_error

    def _log_failure(self, why: DiscoveryFailed) -> None:
        """Log a new cause at once, and the same one once a minute."""
        now_s = self.clock.now()
        if self._logged == str(why) and now_s - self._logged_at_s < _LOG_AGAIN_S:
            return
        self._logged, self._logged_at_s = str(why), now_s
        event = "the API server does not answer" if why.is_total else "API discovery is incomplete"
        _log.warning(event, server=self.server, error=str(why))


async def _plurals(transport: Transport, group_version: str) -> frozenset[str] | str:
    """Return the plurals of the group version; none if it is absent, the error's text without an answer."""
    try:
        listed = _RESOURCES.decode(await transport.get(_root(group_version)))
    except NotFound:
        return frozenset()
    except ApiError as error:
        return error.message
    except (msgspec.DecodeError, ValueError) as error:
        return str(error)
    return frozenset(resource.name for resource in listed.resources or ())


def _root(group_version: str) -> str:
    return f"/{'apis' if '/' in group_version else 'api'}/{group_version}"
