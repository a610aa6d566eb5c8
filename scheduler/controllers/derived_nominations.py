"""Derive nominations from the claims of pods, in memory only (docs/adr/0012).

A restart, or a binding that fails halfway, leaves pods that only one node can take. A worked example, with pod db:

    1. claim data has selected node n2, no volume   tie: data → {n2}; db is nominated to n2 and tried first
    2. the attempt fails because n2 is full         db would not fit: its nomination ends, it is still tried first
    3. pod old on n2 is terminating                 db would fit once old has left: it is nominated to n2 again
    4. claim logs gets a volume on n1               ties: data → {n2}, logs → {n1}; no common node, no nomination
    5. claim logs is deleted                        a claim is missing: db is incomplete, no nomination

A claim without a volume is tied by its selected node, or by a volume whose claimRef names it; a bound claim by the
node affinity of its volume; a resource claim by the node selector of its allocation. Assumptions do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

from scheduler.api.core_v1 import Pod, PodResourceClaim
from scheduler.api.podinfo import PodInfo
from scheduler.api.resource_v1 import ResourceClaim
from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim, is_for
from scheduler.cache.cluster import Cluster
from scheduler.cache.devices.manager import may_be_devices
from scheduler.cache.nodes.node_groups import NodeGroup, Where, matching_selector
from scheduler.cache.storage.reachability import VolumeReachability
from scheduler.cache.storage.volumes import CLAIM, VOLUME
from scheduler.context import Shared
from scheduler.core.cooperative import TURN_S
from scheduler.core.errors import VolumeError
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.framework.interface import CycleState
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import FrameworkRunner
from scheduler.framework.status import AttemptError
from scheduler.plugins.dra.claims import Unresolved, claim_name
from scheduler.queueing.types import Place

Topic: TypeAlias = tuple[str, str]
"""Kind and key, as `Volumes.notify` names a change."""
NODE: Final = "Node"
RESOURCE_CLAIM: Final = "ResourceClaim"


class Tie(NamedTuple):
    """One claim and the nodes that it leaves. `is_selection`: only by its selected node, so that it can be cleared."""

    claim: PersistentVolumeClaim | ResourceClaim
    nodes: NodeSet
    is_selection: bool = False

    @property
    def name(self) -> str:
        """Return kind and name, for messages."""
        kind = "claim" if isinstance(self.claim, PersistentVolumeClaim) else "resource claim"
        return f'{kind} "{self.claim.metadata.name}"'


@dataclass(slots=True)
class PodTies:
    """The ties of one pod, and the objects whose changes may affect them."""

    ties: list[Tie] = field(default_factory=list)
    is_complete: bool = True
    """Whether all claims of the pod exist."""
    topics: dict[Topic, None] = field(default_factory=dict)
    """The claims, volumes, resource claims and nodes that it depends on."""
    volumes: dict[str, None] = field(default_factory=dict)
    """Names of volumes whose node affinity is a tie: it follows the labels of nodes."""
    selectors: list[Where] = field(default_factory=list)
    """Label rules of allocated devices: they follow the labels of nodes as well."""

    def nodes(self, present: NodeSet) -> NodeSet:
        """Return the nodes that all ties leave."""
        for tie in self.ties:
            present &= tie.nodes
        return present


def has_claims(pod: PodInfo) -> bool:
    """Return whether any claim can tie the pod."""
    return bool(pod.claims or pod.pod.spec.resource_claims) or any(map(may_be_devices, pod.requests))


class TieFinder:
    """Find ties in the cache. A pod costs a few look-ups per claim, for any number of claims, volumes and nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = cluster.nodes
        self._volumes = cluster.volumes
        self._devices = cluster.devices
        self._volume_reach = VolumeReachability(cluster.nodes, cluster.volumes)

    def of(self, pod: PodInfo) -> PodTies:
        """Return the ties of a pod without a node."""
        pod_ties = PodTies()
        # A pod may name one claim in several volumes, and one tie per claim is enough: the nodes of the ties are
        # intersected.
        for key in dict.fromkeys(use.key for use in pod.claims):
            self._add_claim(pod_ties, key)
        for entry in pod.pod.spec.resource_claims:
            self._add_entry(pod_ties, pod.pod, entry)
        if any(map(may_be_devices, pod.requests)):
            pod_ties.topics[RESOURCE_CLAIM, pod.uid] = (
                None  # claims that a scheduler created for the pod are notified under its uid
            )
            for claim in self._devices.claims.all_made_for(pod.pod):
                self._add_resource_claim(pod_ties, claim)
        return pod_ties

    # -- volumes -------------------------------------------------------------------------------------------------------

    def _add_claim(self, pod_ties: PodTies, key: str) -> None:
        pod_ties.topics[CLAIM, key] = None
        # Only what the API server has counts. An assumption of this process would nominate a pod because of a
        # decision that may still be taken back, and a restarted process could not derive the same nomination.
        claim = self._volumes.claims.get_api(key)
        if claim is None:
            pod_ties.is_complete = False
            return
        if claim.spec.volume_name:
            pod_ties.topics[VOLUME, claim.spec.volume_name] = None
            volume = self._volumes.volumes.get_api(claim.spec.volume_name)
            if volume is None:
                pod_ties.is_complete = False
            else:
                self._add_volumes(pod_ties, claim, [volume])
            return
        # An administrator or a controller may write the claimRef before the claim has the volume's name. Such a
        # volume is reserved for the claim, and so it ties the pod as a bound one does.
        prebound = [
            volume
            for each in self._volumes.volumes.meant_for(key)
            if (volume := self._volumes.volumes.get_api(each.key)) is not None and is_for(volume, claim)
        ]
        if prebound:
            pod_ties.topics.update(((VOLUME, volume.key), None) for volume in prebound)
            self._add_volumes(pod_ties, claim, prebound)
        # A selected node is the weakest tie: the provisioner follows it, but nothing exists there yet.
        # `stale_volumes` may clear it, hence `is_selection`. The tie to a node that is gone has no nodes, and the pod
        # is nominated nowhere.
        elif claim.selected_node:
            pod_ties.topics[NODE, claim.selected_node] = None
            slot = self._nodes.present_slot(claim.selected_node)
            pod_ties.ties.append(Tie(claim, 1 << slot if slot is not None else EMPTY, is_selection=True))

    def _add_volumes(
        self, pod_ties: PodTies, claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume]
    ) -> None:
        # Several volumes may name one claim, and it gets one of them. The pod can run where any of them is usable, so
        # their nodes are added up. A volume without node affinity is usable everywhere and ties nothing.
        nodes = EMPTY
        for volume in volumes:
            if volume.required_nodes is None:
                return
            pod_ties.volumes[volume.key] = None
            nodes |= self._usable_on(volume)
        pod_ties.ties.append(Tie(claim, nodes))

    def _usable_on(self, volume: PersistentVolume) -> NodeSet:
        """Return all nodes for a volume that cannot be translated: Filter reports it, and does not blame the nodes."""
        try:
            return self._volume_reach.nodes_of(volume, self._nodes.present)
        except VolumeError:
            return self._nodes.present

    # -- devices -------------------------------------------------------------------------------------------------------

    def _add_entry(self, pod_ties: PodTies, pod: Pod, entry: PodResourceClaim) -> None:
        # A claim of a template exists once the resource claim controller has written its name to the pod's status.
        # Until then the pod is incomplete, because the missing claim could tie it to another node.
        try:
            name, _ = claim_name(pod, entry)
        except Unresolved:
            pod_ties.is_complete = False
            return
        key = f"{pod.metadata.namespace}/{name}"
        if name is not None and (RESOURCE_CLAIM, key) not in pod_ties.topics:
            pod_ties.topics[RESOURCE_CLAIM, key] = None
            self._add_resource_claim(pod_ties, self._devices.claims.get(key))

    def _add_resource_claim(self, pod_ties: PodTies, claim: ResourceClaim | None) -> None:
        if claim is None:
            pod_ties.is_complete = False
            return
        selector = claim.status.allocation.node_selector if claim.status.allocation is not None else None
        if selector is None:
            return
        # Only an allocation ties: a request may still be served by devices of any node. Terms that name nodes follow
        # these nodes, and terms with labels follow the node groups of their rules.
        for term in selector.node_selector_terms:
            for requirement in term.match_fields:  # these name nodes
                pod_ties.topics.update(((NODE, name), None) for name in requirement.values)
        where = tuple(term.match_expressions for term in selector.node_selector_terms if term.match_expressions)
        if where:
            pod_ties.selectors.append(where)
        pod_ties.ties.append(Tie(claim, matching_selector(self._nodes, selector)))


T = TypeVar("T")


@dataclass(slots=True)
class _Entry:
    """A pending pod with claims."""

    info: PodInfo
    topics: tuple[Topic, ...] = ()
    """The objects whose changes concern it."""
    selectors: tuple[Where, ...] = ()
    acquired: list[NodeGroup] = field(default_factory=list)
    """Node groups of these selectors."""
    groups: list[NodeGroup] = field(default_factory=list)
    """Label rules of its ties, including the acquired ones."""
    checked_at: int | None = None
    """The slot at which it was last checked."""
    fits: bool = False
    leaving: frozenset[str] = frozenset()
    """Uids of the pods that were terminating there at that time."""


class DerivedNominations:
    """Nominations that follow changes of pods, claims, volumes, nodes and the queue. Owned by the scheduling loop."""

    def __init__(
        self, shared: Shared, *, profiles: Mapping[str, Profile], runners: Mapping[str, FrameworkRunner]
    ) -> None:
        """Create the nominations. `profiles` and `runners` are those in force."""
        self._cluster = shared.cluster
        self._nodes = shared.cluster.nodes
        self._groups = shared.cluster.volumes.groups
        self._queue = shared.queue
        self._pending = shared.pending
        self._clock = shared.clock
        self._profiles = profiles
        self._runners = runners
        self._errors = shared.errors
        self._ties = TieFinder(shared.cluster)
        self._uids: dict[str, str] = {}
        """Key → uid, of pods with an entry."""
        self._entries: dict[str, _Entry] = {}
        self._dirty: dict[str, None] = {}
        """Uids of pods to check."""
        self._by_topic: dict[Topic, dict[str, None]] = {}
        self._by_group: dict[NodeGroup, dict[str, None]] = {}
        self._group_position = self._groups.position
        self._checked: dict[int, dict[str, None]] = {}
        """Slot → uids of the pods that were checked there."""
        self._node_position = self._nodes.position
        shared.cluster.volumes.on_news = self._object_changed
        shared.cluster.devices.on_news = partial(self._object_changed, RESOURCE_CLAIM)

    def tick(self) -> None:
        """Update the nominations. O(pods concerned by changes since the last call).

        Filters run for pods that have been tried before; if that takes long, the rest waits for the next call.
        """
        # The order matters: the changed pods get their entries before changes of nodes and of the queue mark entries
        # as dirty. Each source only marks, so a pod that several sources name is evaluated once.
        for key in self._pending.take_changed():
            self._pod_changed(key)
        if self._by_group or self._checked:
            self._follow_nodes()
        if moved := self._queue.take_moved():
            self._dirty.update(dict.fromkeys(moved))
        if not self._dirty:
            return
        # The set is replaced before the loop. An evaluation can end a nomination, which notifies the queue and may
        # mark further pods. These belong to the next call, or two pods could mark each other without end.
        dirty, self._dirty = self._dirty, {}
        ends_at = self._clock.now() + TURN_S
        for uid in dirty:
            entry, queued = self._entries.get(uid), self._queue.record_of(uid)
            if entry is None:
                continue
            # Untried pods cost some look-ups and are always evaluated, since their nomination must exist before their
            # first attempt. Filters of tried pods may take long; the rest of these pods waits, so the event loop is
            # not blocked.
            if queued is not None and queued.attempts and self._clock.now() > ends_at:
                self._dirty[uid] = None
                continue
            try:
                self._reevaluate(entry)
            except Exception as error:  # noqa: BLE001 (costs this pod its nomination, never the loop)
                self._errors.record("timers", error, "nomination could not be derived", pod=entry.info.key)
                self._nominate(entry.info, "")

    # -- what changed --------------------------------------------------------------------------------------------------

    def _pod_changed(self, key: str) -> None:
        info = self._pending.get(key)
        previous_uid = self._uids.get(key)
        # A StatefulSet creates its pod again under the same key. The new pod must not inherit the entry of the old
        # one, so entries are by uid.
        if previous_uid is not None and (info is None or info.uid != previous_uid):
            self._drop(key, previous_uid)
        if info is None or not has_claims(info):
            return
        entry = self._entries.get(info.uid)
        if entry is None:
            self._uids[key] = info.uid
            self._entries[info.uid] = _Entry(info)
            self._queue.follow(info.uid, is_followed=True)
        else:
            entry.info = info
        self._dirty[info.uid] = None

    def _drop(self, key: str, uid: str) -> None:
        """Remove a pod that is bound or deleted; the queue has ended its nomination."""
        del self._uids[key]
        entry = self._entries.pop(uid)
        self._dirty.pop(uid, None)
        self._queue.follow(uid, is_followed=False)
        self._uncheck(entry)
        self._unfile(entry)

    def _follow_nodes(self) -> None:
        """Follow nodes: labels decide about volumes and devices, columns whether a checked pod still fits."""
        # The logs of changes may be too short for a reader that was not called for long. They then return None, and
        # everything that is indexed is evaluated again.
        self._groups.catch_up()
        changed = self._groups.changed_since(self._group_position)
        self._group_position = self._groups.position
        for group in self._by_group if changed is None else dict.fromkeys(group for group, _ in changed):
            self._dirty.update(self._by_group.get(group, {}))
        touched = self._nodes.changed_since(self._node_position) if self._checked else ()
        self._node_position = self._nodes.position
        for slot in list(self._checked) if touched is None else dict.fromkeys(touched):
            if slot not in self._checked:
                continue
            # A node with a tried pod changes often, for instance with each pod that is bound there. Such a change
            # matters in two cases: the pod fitted, and may fit no longer; or another pod is terminating now, after
            # which it may fit. Capacity that is free at once wakes the pod through the queue, and so marks it.
            leaving = self._leaving(slot).keys()
            for uid in self._checked[slot]:
                entry = self._entries[uid]
                if entry.fits or not leaving <= entry.leaving:
                    self._dirty[uid] = None

    # -- one pod -------------------------------------------------------------------------------------------------------

    def _reevaluate(self, entry: _Entry) -> None:
        info = entry.info
        self._uncheck(entry)
        if self._cluster.get(info.uid) is not None:
            return  # assumed: if its binding fails, it comes back through the queue
        is_on = self._profiles[info.pod.spec.scheduler_name].ours.derived_nominations == "on"
        if not is_on or info.pod.metadata.deletion_timestamp is not None:
            self._unfile(entry)
            self._nominate(info, "")
            return
        # The pod is indexed under all its objects even if it is not tied: the next change of one of them may tie it.
        pod_ties = self._ties.of(info)
        self._file(entry, pod_ties)
        # One node is the condition, not few nodes. A pod with a choice of two would hold capacity on both, and the
        # wrong one blocks other pods.
        nodes = pod_ties.nodes(self._nodes.present)
        is_tied = pod_ties.is_complete and bool(pod_ties.ties) and nodes.bit_count() == 1
        slot = nodes.bit_length() - 1
        node_name = self._nodes.name(slot) if is_tied and self._holds(entry, slot) else ""
        self._nominate(info, node_name, is_first=is_tied)

    def _nominate(self, info: PodInfo, node_name: str, *, is_first: bool = False) -> None:
        """Nominate the pod to this node; "" ends its derived nomination."""
        # A tied pod is first even if it holds no capacity: an attempt that comes later could only find its node
        # fuller.
        self._queue.put_first(info.uid, is_first=is_first)
        nominator = self._queue.nominator
        # The end of a nomination frees capacity for pods of lower priority, so the queue must wake them. The pod
        # itself is not woken: for it nothing has changed, and it would retry without end.
        previous_node = nominator.derive(info, node_name) if node_name else nominator.end_derived(info)
        if previous_node:
            self._queue.nomination_ended(info, previous_node, wakes_itself=False)

    def _holds(self, entry: _Entry, slot: int) -> bool:
        """Return whether the pod reserves capacity there: it is untried, and so is tried first, or it would fit."""
        queued = self._queue.record_of(entry.info.uid)
        if queued is None or queued.place is Place.GATED:
            return False
        # An untried pod holds its node without a check. It is tried first among pods of equal priority, so the
        # attempt decides soon. The check would cost as much as the attempt.
        if not queued.attempts:
            return True
        # A tried pod that cannot fit even after the terminating pods have left would block its node for an unknown
        # time, so it holds nothing. This is the difference from a nomination by preemption, whose victims are known
        # to leave.
        leaving = self._leaving(slot)
        entry.fits = self._fits(entry.info, slot, leaving.values())
        entry.leaving = frozenset(leaving)
        entry.checked_at = slot
        self._checked.setdefault(slot, {})[entry.info.uid] = None
        return entry.fits

    def _leaving(self, slot: int) -> dict[str, PodInfo]:
        """Return the terminating pods on the node, by uid."""
        pods = self._nodes.pods(slot).items()
        return {uid: other for uid, other in pods if other.pod.metadata.deletion_timestamp is not None}

    def _fits(self, info: PodInfo, slot: int, leaving: Iterable[PodInfo]) -> bool:
        """Return whether the filters pass on the node after these pods have left."""
        runner, state = self._runners[info.pod.spec.scheduler_name], CycleState()
        try:
            # The dry run must not change what later attempts see: counters of device use stay as they are within this
            # block.
            with self._cluster.devices.use.still():
                pre_filtered = runner.pre_filter(state, info)
                if pre_filtered.rejection is not None or not pre_filtered.nodes >> slot & 1:
                    return False
                with runner.what_if(state, info).on(slot) as simulation:
                    for other in leaving:
                        simulation.remove(other)
                    return simulation.verdict() is None
        except AttemptError:
            return False

    def _uncheck(self, entry: _Entry) -> None:
        slot, entry.checked_at = entry.checked_at, None
        if slot is not None:
            _remove(self._checked, slot, entry.info.uid)

    # -- indexes -------------------------------------------------------------------------------------------------------

    def _object_changed(self, kind: str, key: str) -> None:
        """Take a change of an object."""
        self._dirty.update(self._by_topic.get((kind, key), {}))

    def _file(self, entry: _Entry, pod_ties: PodTies) -> None:
        """Index the pod under the objects and label rules of its ties."""
        uid, where = entry.info.uid, self._cluster.volumes.volumes.where
        topics, selectors, groups = (
            tuple(pod_ties.topics),
            tuple(pod_ties.selectors),
            [where(name) for name in pod_ties.volumes],
        )
        # Most evaluations follow a change of a node and leave the ties as they were. Comparing is cheaper than
        # releasing and acquiring the same node groups, which would drop their sets of nodes in between.
        if (topics, selectors, groups) == (entry.topics, entry.selectors, entry.groups[: len(groups)]):
            return
        self._unfile(entry)
        entry.topics, entry.selectors = topics, selectors
        entry.acquired = [self._groups.acquire(selector) for selector in selectors]
        entry.groups = groups + entry.acquired
        for topic in entry.topics:
            self._by_topic.setdefault(topic, {})[uid] = None
        for group in entry.groups:
            self._by_group.setdefault(group, {})[uid] = None

    def _unfile(self, entry: _Entry) -> None:
        for topic in entry.topics:
            _remove(self._by_topic, topic, entry.info.uid)
        for group in dict.fromkeys(entry.groups):
            _remove(self._by_group, group, entry.info.uid)
        for group in entry.acquired:
            self._groups.release(group)
        entry.topics, entry.selectors, entry.groups, entry.acquired = (), (), [], []


def _remove(index: dict[T, dict[str, None]], key: T, uid: str) -> None:
    uids = index[key]
    del uids[uid]
    if not uids:
        del index[key]
