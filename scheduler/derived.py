"""Nominations that follow from what is written in a pod's claims, in memory only (docs/adr/0012).

A restart, or a binding that fails halfway, leaves pods that only one node can take. Such a pod counts as nominated there,
so that no pod of equal or lower priority takes its place. It is tried first among pods of equal priority. Once it has been
tried, it holds room only while it would fit after the terminating pods on its node have left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from scheduler.cache.nodegroups import NodeGroup, Where
from scheduler.core.podinfo import PodInfo
from scheduler.core.turns import TURN_S
from scheduler.core.verdicts import AttemptError
from scheduler.framework.profile import Profile
from scheduler.framework.runner import Runner
from scheduler.framework.state import CycleState
from scheduler.queueing.records import Place
from scheduler.shared import Shared
from scheduler.ties import RESOURCE_CLAIM, Reach, Ties, Topic, has_claims

T = TypeVar("T")


@dataclass(slots=True)
class _Entry:
    """A pending pod of ours that has claims."""

    info: PodInfo
    topics: tuple[Topic, ...] = ()
    """The objects whose changes concern it."""
    selectors: tuple[Where, ...] = ()
    acquired: list[NodeGroup] = field(default_factory=list)
    """The groups of these selectors."""
    groups: list[NodeGroup] = field(default_factory=list)
    """The label rules that its ties follow, the acquired ones included."""
    checked_at: int | None = None
    """The slot where it was last found to fit, or not to."""
    fits: bool = False
    leaving: frozenset[str] = frozenset()
    """Uids of the pods that were terminating there then."""


class DerivedNominations:
    """Kept up to date by changes of pods, claims, volumes, nodes and the queue. Single owner: the scheduling loop."""

    def __init__(self, shared: Shared, *, profiles: Mapping[str, Profile], runners: Mapping[str, Runner]) -> None:
        """`profiles` and `runners` are those in force."""
        self._cluster = shared.cluster
        self._nodes = shared.cluster.nodes
        self._groups = shared.cluster.volumes.groups
        self._queue = shared.queue
        self._pending = shared.pending
        self._clock = shared.clock
        self._profiles = profiles
        self._runners = runners
        self._errors = shared.errors
        self._ties = Ties(shared.cluster)
        self._uids: dict[str, str] = {}
        """Key → uid, of pods with an entry."""
        self._entries: dict[str, _Entry] = {}
        self._dirty: dict[str, None] = {}
        """Uids of pods to look at."""
        self._by_topic: dict[Topic, dict[str, None]] = {}
        self._by_group: dict[NodeGroup, dict[str, None]] = {}
        self._group_position = self._groups.position
        self._checked: dict[int, dict[str, None]] = {}
        """Slot → uids of the pods that were found to fit there, or not to."""
        self._node_position = self._nodes.position
        shared.cluster.volumes.on_news = self._news
        shared.cluster.devices.on_news = partial(self._news, RESOURCE_CLAIM)

    def tick(self) -> None:
        """Bring the nominations up to date. O(pods concerned by what changed since the last call).

        Filters are asked for pods that have been tried before; when that takes long, the rest waits for the next call.
        """
        for key in self._pending.take_changed():
            self._pod_changed(key)
        if self._by_group or self._checked:
            self._follow_nodes()
        if moved := self._queue.take_moved():
            self._dirty.update(dict.fromkeys(moved))
        if not self._dirty:
            return
        dirty, self._dirty = self._dirty, {}
        ends_at = self._clock.now() + TURN_S
        for uid in dirty:
            entry, queued = self._entries.get(uid), self._queue.record_of(uid)
            if entry is None:
                continue
            if queued is not None and queued.attempts and self._clock.now() > ends_at:
                self._dirty[uid] = None
                continue
            try:
                self._look_at(entry)
            except Exception as error:  # noqa: BLE001 (costs this pod its nomination, never the loop)
                self._errors.record("timers", error, "nomination could not be derived", pod=entry.info.key)
                self._end(entry)

    # -- what changed --------------------------------------------------------------------------------------------------

    def _pod_changed(self, key: str) -> None:
        info = self._pending.get(key)
        known = self._uids.get(key)
        if known is not None and (info is None or info.uid != known):
            self._drop(key, known)
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
        """The pod is bound or gone; the queue has ended its nomination."""
        del self._uids[key]
        entry = self._entries.pop(uid)
        self._dirty.pop(uid, None)
        self._queue.follow(uid, is_followed=False)
        self._uncheck(entry)
        self._unfile(entry)

    def _follow_nodes(self) -> None:
        """Labels of nodes decide where volumes and devices can be used; columns, whether a checked pod still fits."""
        self._groups.catch_up()
        changed = self._groups.changed_since(self._group_position)
        self._group_position = self._groups.position
        for group in self._by_group if changed is None else dict.fromkeys(group for group, _ in changed):
            self._dirty.update(self._by_group.get(group, {}))
        touched = self._nodes.changed_since(self._node_position) if self._checked else ()
        self._node_position = self._nodes.position
        for slot in list(self._checked) if touched is None else dict.fromkeys(touched):
            if slot in self._checked:
                self._node_touched(slot)

    def _node_touched(self, slot: int) -> None:
        """Pods that fitted may fit no more; pods that did not may once those that began to terminate have left."""
        leaving = self._leaving(slot).keys()
        for uid in self._checked[slot]:
            entry = self._entries[uid]
            if entry.fits or not leaving <= entry.leaving:
                self._dirty[uid] = None

    # -- one pod -------------------------------------------------------------------------------------------------------

    def _look_at(self, entry: _Entry) -> None:
        info = entry.info
        self._uncheck(entry)
        if self._cluster.get(info.uid) is not None:
            return  # assumed: if its binding fails, it comes back through the queue
        if not self._derives(info):
            self._unfile(entry)
            self._end(entry)
            return
        reach = self._ties.of(info)
        self._file(entry, reach)
        nodes = reach.nodes(self._nodes.present)
        is_tied = reach.is_complete and bool(reach.ties) and nodes.bit_count() == 1
        self._queue.put_first(info.uid, is_first=is_tied)
        slot = nodes.bit_length() - 1
        if is_tied and self._holds(entry, slot):
            left = self._queue.nominator.derive(info, self._nodes.name(slot))
        else:
            left = self._queue.nominator.end_derived(info)
        if left:
            self._queue.nomination_ended(info, left, wakes_itself=False)

    def _derives(self, info: PodInfo) -> bool:
        return (
            self._profiles[info.pod.spec.scheduler_name].derives_nominations
            and info.pod.metadata.deletion_timestamp is None
        )

    def _holds(self, entry: _Entry, slot: int) -> bool:
        """Whether the pod holds room there: it is untried, and so tried before others, or it would fit."""
        queued = self._queue.record_of(entry.info.uid)
        if queued is None or queued.place is Place.GATED:
            return False
        if not queued.attempts:
            return True
        leaving = self._leaving(slot)
        entry.fits = self._fits(entry.info, slot, leaving.values())
        entry.leaving = frozenset(leaving)
        entry.checked_at = slot
        self._checked.setdefault(slot, {})[entry.info.uid] = None
        return entry.fits

    def _leaving(self, slot: int) -> dict[str, PodInfo]:
        """The pods that are terminating on the node, by uid."""
        pods = self._nodes.pods(slot).items()
        return {uid: other for uid, other in pods if other.pod.metadata.deletion_timestamp is not None}

    def _fits(self, info: PodInfo, slot: int, leaving: Iterable[PodInfo]) -> bool:
        """Whether the filters pass on the node once these pods have left."""
        runner, state = self._runners[info.pod.spec.scheduler_name], CycleState()
        try:
            with self._cluster.devices.use.still():
                before = runner.pre_filter(state, info)
                if before.rejection is not None or not before.nodes >> slot & 1:
                    return False
                with runner.what_if(state, info).on(slot) as scene:
                    for other in leaving:
                        scene.remove(other)
                    return scene.verdict() is None
        except AttemptError:
            return False

    def _end(self, entry: _Entry) -> None:
        self._queue.put_first(entry.info.uid, is_first=False)
        left = self._queue.nominator.end_derived(entry.info)
        if left:
            self._queue.nomination_ended(entry.info, left, wakes_itself=False)

    def _uncheck(self, entry: _Entry) -> None:
        slot, entry.checked_at = entry.checked_at, None
        if slot is not None:
            _remove(self._checked, slot, entry.info.uid)

    # -- what concerns whom --------------------------------------------------------------------------------------------

    def _news(self, kind: str, key: str) -> None:
        """An object changed."""
        self._dirty.update(self._by_topic.get((kind, key), {}))

    def _file(self, entry: _Entry, reach: Reach) -> None:
        """Find the pod by the objects and label rules that its ties depend on now."""
        uid, where = entry.info.uid, self._cluster.volumes.volumes.where
        topics, selectors, groups = tuple(reach.topics), tuple(reach.selectors), [where(name) for name in reach.volumes]
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
    here = index[key]
    del here[uid]
    if not here:
        del index[key]
