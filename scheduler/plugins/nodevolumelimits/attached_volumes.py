"""Volumes that a pod attaches, and how many more a node can attach (docs/spec/volumes.md §9.1).

A volume that cannot be determined is an error of the pod. `RemainingAttachments` follows pods that leave a node and
come back, for preemption, without changing the cache.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator
from typing import Final, NamedTuple

from scheduler.api.csi_translation import TranslationError
from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import ClaimUse, CSISource, PersistentVolumeClaim, not_owned
from scheduler.cache.cluster import Cluster
from scheduler.cache.storage.volume_users import disk_of, disks_of, uses_of
from scheduler.cache.storage.volumes import Volumes, absent_claim
from scheduler.framework.status import AttemptError, Code, Rejection

PLUGIN: Final = "NodeVolumeLimits"
_ONE_NODE: Final = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})


class WantedVolumes(NamedTuple):
    """The volumes of one pod; valid while `Attached.version` is unchanged. Pods with equal ones get equal verdicts."""

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
        out: dict[str, bool] = {}
        for name in self.names:
            out[name.driver] = out.get(name.driver, False) or name not in self.in_tree
        return out


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
            named = volumes.attached.names.of(claim)
            if named.name is not None:
                names[named.name] = named.is_in_tree and names.get(named.name, True)
                if _ONE_NODE.issuperset(claim.spec.access_modes):
                    own.add(named.name)
            continue
        try:
            disk = disk_of(volume, pod.pod.metadata.namespace)
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
        why = f"looking up PVC {use.key}: {absent_claim(volumes, use.key)}"
        return Rejection(PLUGIN, Code.UNRESOLVABLE, (why,))
    why = not_owned(pod.pod, claim) if use.is_ephemeral else ""
    return _error(why) if why else None


def _error(text: str) -> Rejection:
    return Rejection(PLUGIN, Code.ERROR, (text,))


MAX_VOLUMES: Final = Rejection(PLUGIN, Code.UNSCHEDULABLE, ("node(s) exceed max volume count",))


class RemainingAttachments:
    """The free attachments of one node, for the pod's drivers that have a limit there.

    A volume is free when its last user leaves; a needed volume that is already in use costs nothing.
    """

    __slots__ = ("_cluster", "_is_charged_twice", "_left", "_needs", "_slot", "_units", "_users", "_wanted")

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
        self._left: dict[str, int] = {}
        self._needs: dict[str, int] = {}
        self._units: dict[Hashable, int] = {}
        self._users: dict[CSISource, int] = {}
        for name in wanted:
            left = attached.free(name.driver, slot)
            if left is None:
                continue
            self._left[name.driver] = left
            is_held = attached.uses(name, slot) > 0 or (not twice and attached.is_attached(name, slot))
            self._needs[name.driver] = self._needs.get(name.driver, 0) + (not is_held)

    def clone(self) -> RemainingAttachments:
        other = object.__new__(RemainingAttachments)
        other._cluster, other._slot, other._wanted = self._cluster, self._slot, self._wanted
        other._is_charged_twice = self._is_charged_twice
        other._left, other._needs = self._left.copy(), self._needs.copy()
        other._units, other._users = self._units.copy(), self._users.copy()
        return other

    @property
    def is_short(self) -> bool:
        """Whether the needed volumes that are not attached exceed a limit."""
        return any(0 < need > self._left[driver] for driver, need in self._needs.items())

    def move(self, other: PodInfo, by: int) -> None:
        """Add (1) or remove (-1) a pod."""
        if not self._left:
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
            if name is None or name.driver not in self._left:
                continue
            claim = volumes.claims.get_api(key)
            if claim is not None and not (is_ephemeral and not_owned(other.pod, claim)):
                yield key, name, nodes.claim_users.rightful(self._slot, claim)
        for disk in disks_of(other) if other.disks else ():
            if disk.driver in self._left:
                yield disk, disk, nodes.disk_users.count(self._slot, disk)

    def _use(self, name: CSISource, by: int) -> None:
        attached = self._cluster.volumes.attached
        users = self._users.get(name)
        users = self._users[name] = (attached.uses(name, self._slot) if users is None else users) + by
        if users != max(by, 0):
            return
        is_attached = attached.is_attached(name, self._slot)
        if not is_attached:
            self._left[name.driver] -= by
        if name in self._wanted and (self._is_charged_twice or not is_attached):
            self._needs[name.driver] -= by


class AttachCheck:
    """The verdict on one node. The pod must fit with nominated pods, and without them (docs/spec/core.md §3.5)."""

    __slots__ = ("_fixed", "_free", "_here", "_with")

    def __init__(self, free: RemainingAttachments, *, here: Container[str], fixed: Rejection | None) -> None:
        """Take the free attachments.

        `fixed` is a rejection that no pod changes; `here` are uids of pods on the node.
        """
        self._free = free
        self._with: RemainingAttachments | None = None
        self._here = here
        self._fixed = fixed

    def add(self, other: PodInfo) -> None:
        """Add a pod that comes back, or a nominated pod."""
        if other.uid in self._here:
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
