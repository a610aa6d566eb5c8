"""NodeVolumeLimits: a node attaches a limited number of volumes of a CSI driver (docs/spec/volumes.md §9.1).

Filter decides for all nodes with operations on columns and sets. A volume that cannot be determined is an error of the
pod. `RemainingAttachments` follows pods that leave a node and come back, for preemption, without changing the cache.

More events than upstream retry a pod ([B-11]): a limit is removed, a driver registers or is no longer required, and
a volume is detached for a pod with ephemeral volumes. A changed claim retries its pods, because its volume may be
attached already, or may not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from scheduler.api.csi_translation import TranslationError, translate_inline
from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import (
    ClaimUse,
    CSIDriver,
    CSINode,
    CSISource,
    PersistentVolumeClaim,
    VolumeAttachment,
    not_owned,
)
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes.volume_users import disk_of, disks_of, uses_of
from scheduler.cache.storage.volumes import CLAIM, Volumes
from scheduler.core.cluster_events import UPDATE, Action, ClusterEvent, Resource
from scheduler.core.feature_gates import VOLUME_LIMIT_SCALING
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, EventHint, Hint, StateKey, Tally, Topics
from scheduler.framework.memo import all_alike, on_common_topic
from scheduler.framework.status import SKIP, AttemptError, Code, Groups, Rejection, Skip

PLUGIN: Final = "NodeVolumeLimits"
_ONE_NODE: Final = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})


class WantedVolumes(NamedTuple):
    """The volumes of one pod; valid while `AttachedVolumes.version` is unchanged. Pods with equal ones get equal verdicts."""

    names: tuple[CSISource, ...]
    """Each once, in the order of the volumes."""
    in_tree: frozenset[CSISource] = frozenset()
    """Those that do not count on nodes without a CSINode."""
    own: frozenset[CSISource] = frozenset()
    """Those for one node at a time: no other pod is expected to share them before they are attached."""
    problem: Rejection | None = None
    """A rejection on every node."""
    problem_with_csi_node: Rejection | None = None
    """A rejection on nodes with a CSINode, which comes before `problem`."""

    @property
    def drivers(self) -> dict[str, bool]:
        """Each driver, with whether it is also needed on nodes without a CSINode."""
        counted: dict[str, bool] = {}
        for name in self.names:
            counted[name.driver] = counted.get(name.driver, False) or name not in self.in_tree
        return counted


def wanted_by(pod: PodInfo, volumes: Volumes) -> WantedVolumes:
    """Return the pod's volumes in order; the first invalid one decides.

    Upstream: pkg/scheduler/framework/plugins/nodevolumelimits/csi.go filterAttachableVolumes
    """
    names: dict[CSISource, bool] = {}
    own: set[CSISource] = set()
    uses = iter(pod.claims)
    translation: Rejection | None = None
    for volume in pod.pod.spec.volumes:
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            use = next(uses)
            claim = volumes.claims.get_api(use.key)
            problem = _problem(pod, use, claim, volumes)
            if problem is not None or claim is None:
                return WantedVolumes((), problem=problem, problem_with_csi_node=translation)
            named = volumes.attached.name_of(claim)
            if named.name is not None:
                names[named.name] = named.is_in_tree and names.get(named.name, True)
                if _ONE_NODE.issuperset(claim.spec.access_modes):
                    own.add(named.name)
            continue
        try:
            disk = disk_of(volume)
        except TranslationError as error:
            translation = translation or _error(f"converting volume({volume.name}) from inline to csi: {error}")
            continue
        if disk is not None:
            names.setdefault(disk, True)
    in_tree = frozenset(name for name, is_in_tree in names.items() if is_in_tree)
    return WantedVolumes(tuple(names), in_tree, frozenset(own), None, translation)


def _problem(pod: PodInfo, use: ClaimUse, claim: PersistentVolumeClaim | None, volumes: Volumes) -> Rejection | None:
    if not use.name:
        return _error("PersistentVolumeClaim had no name")
    if claim is None:
        why = f"looking up PVC {use.key}: {volumes.absent(CLAIM, use.key)}"
        return Rejection(PLUGIN, Code.UNRESOLVABLE, (why,), cause="ClaimUnusable")
    why = not_owned(pod.pod, claim) if use.is_ephemeral else ""
    return _error(why) if why else None


def _error(text: str) -> Rejection:
    return Rejection(PLUGIN, Code.ERROR, (text,))


MAX_VOLUMES: Final = Rejection(PLUGIN, Code.UNSCHEDULABLE, ("node(s) exceed max volume count",))


class RemainingAttachments:
    """The free attachments of one node, for the pod's drivers that have a limit there.

    A volume is free when its last user leaves; a needed volume that is already in use costs nothing.
    """

    __slots__ = ("_cluster", "_is_charged_twice", "_needs", "_remaining", "_slot", "_units", "_users", "_wanted")

    def __init__(
        self, cluster: Cluster, slot: int, wanted: Iterable[CSISource], *, shared: frozenset[CSISource], twice: bool
    ) -> None:
        """Take the node's counts.

        `shared`: needed volumes that other pods may use. `twice`: attached volumes count again.
        """
        attached = cluster.volumes.attached
        self._cluster = cluster
        self._slot = slot
        self._is_charged_twice = twice
        self._wanted = shared
        self._remaining: dict[str, int] = {}
        self._needs: dict[str, int] = {}
        self._units: dict[Hashable, int] = {}
        self._users: dict[CSISource, int] = {}
        for name in wanted:
            remaining = attached.free(name.driver, slot)
            if remaining is None:
                continue
            self._remaining[name.driver] = remaining
            is_held = attached.by_pods.count(slot, name) > 0 or (
                not twice and attached.by_attachments.count(slot, name) > 0
            )
            self._needs[name.driver] = self._needs.get(name.driver, 0) + (not is_held)

    def clone(self) -> RemainingAttachments:
        other = object.__new__(RemainingAttachments)
        other._cluster, other._slot, other._wanted = self._cluster, self._slot, self._wanted
        other._is_charged_twice = self._is_charged_twice
        other._remaining, other._needs = self._remaining.copy(), self._needs.copy()
        other._units, other._users = self._units.copy(), self._users.copy()
        return other

    @property
    def is_short(self) -> bool:
        """Whether the needed volumes that are not attached exceed a limit."""
        return any(0 < need > self._remaining[driver] for driver, need in self._needs.items())

    def move(self, other: PodInfo, by: int) -> None:
        """Add (1) or remove (-1) a pod."""
        if not self._remaining:
            return
        for unit, name, count in self._of(other):
            now = self._units.get(unit, count) + by
            self._units[unit] = now
            if now == max(by, 0):  # the first user, or the last one
                self._use(name, by)

    def _of(self, other: PodInfo) -> Iterator[tuple[Hashable, CSISource, int]]:
        """Yield the pod's claim or disk, its volume's name, and how many pods of the node use it in the cache."""
        nodes, volumes = self._cluster.nodes, self._cluster.volumes
        for key, is_ephemeral in uses_of(other).items():
            name = volumes.attached.name_in_use(key)
            if name is None or name.driver not in self._remaining:
                continue
            claim = volumes.claims.get_api(key)
            if claim is not None and not (is_ephemeral and not_owned(other.pod, claim)):
                yield key, name, nodes.claim_users.rightful(self._slot, claim)
        for disk in disks_of(other) if other.disks else ():
            if disk.driver in self._remaining:
                yield disk, disk, nodes.disk_users.users.count(self._slot, disk)

    def _use(self, name: CSISource, by: int) -> None:
        attached = self._cluster.volumes.attached
        users = self._users.get(name)
        users = self._users[name] = (attached.by_pods.count(self._slot, name) if users is None else users) + by
        if users != max(by, 0):
            return
        is_attached = attached.by_attachments.count(self._slot, name) > 0
        if not is_attached:
            self._remaining[name.driver] -= by
        if name in self._wanted and (self._is_charged_twice or not is_attached):
            self._needs[name.driver] -= by


class AttachCheck:
    """The verdict on one node. The pod must fit with nominated pods, and without them (docs/spec/core.md §3.5)."""

    __slots__ = ("_fixed", "_free", "_pods_on_node", "_with")

    def __init__(self, free: RemainingAttachments, *, pods_on_node: Container[str], fixed: Rejection | None) -> None:
        """Take the free attachments.

        `fixed` is a rejection that no pod changes; `pods_on_node` are uids.
        """
        self._free = free
        self._with: RemainingAttachments | None = None
        self._pods_on_node = pods_on_node
        self._fixed = fixed

    def add(self, other: PodInfo) -> None:
        """Add a pod that comes back, or a nominated pod."""
        if other.uid in self._pods_on_node:
            self._free.move(other, 1)
        elif self._with is None:
            self._with = self._free.clone()
        if self._with is not None:
            self._with.move(other, 1)

    def remove(self, other: PodInfo) -> None:
        self._free.move(other, -1)
        if self._with is not None:
            self._with.move(other, -1)

    def verdict(self) -> Rejection | None:
        """Return the filter's verdict on this node. Raises AttemptError if the filter fails."""
        if self._fixed is not None:
            if not self._fixed.code.is_rejection:
                text = f'running "{PLUGIN}" filter plugin: {self._fixed.message}'
                raise AttemptError(text, plugin=PLUGIN)
            return self._fixed
        is_short = self._free.is_short or (self._with is not None and self._with.is_short)
        return MAX_VOLUMES if is_short else None


_CLAIMS: Final = "pods with claims"


def _after_csi_node_gone(_pod: PodInfo, old: CSINode, _new: CSINode | None) -> Hint:
    """Return QUEUE if it had limits: a node without CSINode has none."""
    return Hint.QUEUE if old.limits else Hint.SKIP


class NodeVolumeLimitsHints:
    """The hints of one profile.

    Upstream: pkg/scheduler/framework/plugins/nodevolumelimits/csi.go EventsToRegister
    """

    def __init__(self, *, is_scaling: bool, as_upstream: bool) -> None:
        self._is_scaling = is_scaling
        self._as_upstream = as_upstream

    def events(self) -> Sequence[EventHint]:
        """Return upstream's events, and those that upstream lacks."""
        changed = Action.ADD if self._as_upstream else Action.ADD | UPDATE
        claim = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, changed)
        detached = ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE)
        hints = [
            EventHint(ClusterEvent(Resource.CSI_NODE, Action.ADD)),
            EventHint(ClusterEvent(Resource.CSI_NODE, UPDATE), self._after_csi_node, all_alike),
            EventHint(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), _after_pod_gone, all_alike),
            on_common_topic(claim, _claims, Topics(_claims, _claim)),
            EventHint(detached, self._after_detaching, self._waits_for, Topics(self._waits_for, _detached)),
        ]
        if not self._as_upstream:
            hints.append(EventHint(ClusterEvent(Resource.CSI_NODE, Action.DELETE), _after_csi_node_gone, all_alike))
        if self._is_scaling and not self._as_upstream:
            driver = ClusterEvent(Resource.CSI_DRIVER, UPDATE | Action.DELETE)
            hints.append(EventHint(driver, _after_driver, all_alike))
        return hints

    def _after_csi_node(self, _pod: PodInfo, old: CSINode, new: CSINode) -> Hint:
        """Return QUEUE if a limit grew. Upstream treats a missing limit, and a missing driver, as a limit of 0."""
        before, now = old.limits, new.limits
        grew = any(limit > before.get(name, 0) for name, limit in now.items())
        if not grew and not self._as_upstream:
            registered = {driver.name for driver in old.spec.drivers}
            grew = bool(before.keys() - now.keys()) or any(d.name not in registered for d in new.spec.drivers)
        return Hint.QUEUE if grew else Hint.SKIP

    def _after_detaching(self, pod: PodInfo, old: VolumeAttachment, _new: VolumeAttachment | None) -> Hint:
        """Check the volumes in order; a volume that cannot be translated raises, which counts as QUEUE."""
        for volume in pod.pod.spec.volumes:
            if volume.persistent_volume_claim is not None or (volume.ephemeral is not None and not self._as_upstream):
                return Hint.QUEUE
            if volume not in pod.disks:
                continue
            try:
                driver = translate_inline(volume).driver
            except TranslationError as error:
                raise TranslationError(f"converting volume({volume.name}) from inline to csi: {error}") from error
            if driver == old.spec.attacher:
                return Hint.QUEUE
        return Hint.SKIP

    def _waits_for(self, pod: PodInfo) -> frozenset[Hashable] | None:
        """Return the topics that `_after_detaching` depends on; None for any."""
        topics: set[Hashable] = set()
        if any(not use.is_ephemeral or not self._as_upstream for use in pod.claims):
            topics.add(_CLAIMS)
        for volume in pod.disks:
            try:
                topics.add(translate_inline(volume).driver)
            except TranslationError:
                return None
        return frozenset(topics)


def _after_pod_gone(_pod: PodInfo, old: PodInfo | None, _new: PodInfo | None) -> Hint:
    """Return QUEUE if the deleted pod had volumes attached, or was about to."""
    if old is None or not (old.node_name or old.pod.status.nominated_node_name):
        return Hint.SKIP
    return Hint.QUEUE if old.claims or old.disks else Hint.SKIP


def _after_driver(_pod: PodInfo, old: CSIDriver, new: CSIDriver | None) -> Hint:
    """Return QUEUE if the driver was required on the node and no longer is."""
    had_to, has_to = (d is not None and d.spec.prevent_pod_scheduling_if_missing for d in (old, new))
    return Hint.QUEUE if had_to and not has_to else Hint.SKIP


def _claims(pod: PodInfo) -> tuple[Hashable, ...]:
    return tuple(use.key for use in pod.claims)


def _claim(_old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> tuple[Hashable, ...]:
    return (new.key,)


def _detached(old: VolumeAttachment, _new: VolumeAttachment | None) -> Iterator[Hashable]:
    yield _CLAIMS
    yield old.spec.attacher


_WANTED: Final[StateKey[tuple[int, WantedVolumes]]] = StateKey("nodevolumelimits.wanted")


class NodeVolumeLimits:
    """PreFilter, Filter.

    Upstream: pkg/scheduler/framework/plugins/nodevolumelimits/csi.go CSILimits
    """

    name: Final = PLUGIN
    reads: Final = frozenset(
        {"PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "CSIDriver", "VolumeAttachment"}
    )

    def __init__(self, args: object, handle: Handle) -> None:
        self._cluster = handle.cluster
        self._volumes = handle.cluster.volumes
        self._attached = handle.cluster.volumes.attached
        self._is_charged_twice = handle.ours.count_attached_twice
        self._required = frozenset(handle.ours.require_csi_node_drivers)
        self._is_scaling = VOLUME_LIMIT_SCALING in handle.feature_gates
        self._hints = NodeVolumeLimitsHints(is_scaling=self._is_scaling, as_upstream=handle.ours.parity)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Skip | None:
        """Skip pods without volumes to attach."""
        return None if pod.claims or pod.disks else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        """Reject nodes without a required driver, and nodes that cannot attach the missing volumes."""
        self._attached.catch_up()
        wanted = self._wanted(state, pod)
        groups = self._fixed(wanted, nodes)
        for refused in groups.values():
            nodes &= ~refused
        refused = self._full(wanted, nodes)
        if refused:
            groups[MAX_VOLUMES] = refused
        return groups

    def tally(self, state: CycleState, pod: PodInfo, slot: int) -> Tally:
        """Count the volumes that pods on this node have attached."""
        self._attached.catch_up()
        wanted = self._wanted(state, pod)
        fixed = next(iter(self._fixed(wanted, 1 << slot)), None)
        names = wanted.names if fixed is None else ()
        free = RemainingAttachments(
            self._cluster, slot, names, shared=self._shared(wanted), twice=self._is_charged_twice
        )
        return AttachCheck(free, pods_on_node=self._cluster.nodes.pods(slot).keys(), fixed=fixed)

    def tally_shape(self, pod: PodInfo) -> Hashable:
        """Return the names of volumes that other pods may share, and the number of other volumes per driver."""
        self._attached.catch_up()
        wanted = wanted_by(pod, self._volumes)
        shared = self._shared(wanted)
        others = Counter((name.driver, name in wanted.in_tree) for name in wanted.names if name not in shared)
        missing = tuple(self._must_be_there(wanted))
        return shared, frozenset(others.items()), missing, wanted.problem, wanted.problem_with_csi_node

    def events_to_register(self) -> Sequence[EventHint]:
        """Return the events of detached volumes, of changed limits and drivers, and of the pod's claims."""
        return self._hints.events()

    def _wanted(self, state: CycleState, pod: PodInfo) -> WantedVolumes:
        """Return the pod's volumes as of now: a claim may be bound between the attempt and the check before Bind."""
        version = self._attached.version
        if state.has(_WANTED):
            seen, wanted = state.get(_WANTED)
            if seen == version:
                return wanted
        wanted = wanted_by(pod, self._volumes)
        state.set(_WANTED, (version, wanted))
        return wanted

    def _shared(self, wanted: WantedVolumes) -> frozenset[CSISource]:
        """Return the volumes that other pods may use: in use or attached anywhere, or for many nodes.

        All other volumes are equivalent, so that the pods of a StatefulSet share results. If a pod nominated to the
        same node shares such a claim, this is not counted in the pod's favor.
        """
        users, holders = self._attached.by_pods.nodes, self._attached.by_attachments.nodes
        return frozenset(name for name in wanted.names if name not in wanted.own or users(name) or holders(name))

    def _fixed(self, wanted: WantedVolumes, nodes: NodeSet) -> Groups:
        """Return the rejections that do not depend on the pods of a node."""
        groups: Groups = {}
        if wanted.problem_with_csi_node is not None:
            refused = nodes & self._attached.with_csi_node
            nodes &= ~refused
            if refused:
                groups[wanted.problem_with_csi_node] = refused
        if wanted.problem is not None:
            if nodes:
                groups[wanted.problem] = groups.get(wanted.problem, EMPTY) | nodes
            return groups
        for driver, where in self._must_be_there(wanted):
            refused = nodes & where & ~self._attached.installed(driver)
            nodes &= ~refused
            if refused:
                text = f"{driver} CSI driver is not installed on the node"
                groups[Rejection(PLUGIN, Code.UNSCHEDULABLE, (text,), cause="DriverNotInstalled")] = refused
        return groups

    def _must_be_there(self, wanted: WantedVolumes) -> Iterator[tuple[str, NodeSet]]:
        """Yield each driver that a node must have, and the nodes that must have it."""
        if not self._required and not self._is_scaling:
            return
        for driver, is_everywhere in wanted.drivers.items():
            csi_driver = self._volumes.drivers.get(driver)
            if driver in self._required:
                yield driver, ~EMPTY
            elif self._is_scaling and csi_driver is not None and csi_driver.spec.prevent_pod_scheduling_if_missing:
                yield driver, ~EMPTY if is_everywhere else self._attached.with_csi_node

    def _full(self, wanted: WantedVolumes, nodes: NodeSet) -> NodeSet:
        """Return nodes where a driver cannot attach the missing volumes."""
        full = EMPTY
        for driver in wanted.drivers if nodes else ():
            names = [name for name in wanted.names if name.driver == driver]
            short = nodes & self._attached.over(driver, len(names))
            if short:
                full |= self._short(driver, names, short)
        return full

    def _short(self, driver: str, names: list[CSISource], nodes: NodeSet) -> NodeSet:
        """Return those of the nodes, too full for all these volumes, that are too full for the missing ones."""
        at_least = [nodes, *(EMPTY for _ in names)]
        """Index → nodes that have at least this many of the volumes."""
        for name in names:
            users = self._attached.by_pods.nodes(name)
            if not self._is_charged_twice:
                users |= self._attached.by_attachments.nodes(name)
            for count in range(len(names), 0, -1):
                at_least[count] |= at_least[count - 1] & users
        refused = at_least[0] & ~at_least[1]
        for count in range(1, len(names)):
            exactly = at_least[count] & ~at_least[count + 1]
            if exactly:
                refused |= exactly & self._attached.over(driver, len(names) - count)
        return refused
