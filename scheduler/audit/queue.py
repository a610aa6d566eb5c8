"""Check the scheduling queue, its indexes, and the nominated pods against the unbound pods."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, Final

from scheduler.api.podinfo import PodInfo
from scheduler.audit.findings import Check, Comparison, Steps, in_parts
from scheduler.cache.cluster import Cluster
from scheduler.context import UnboundPods
from scheduler.queue import SchedulingQueue
from scheduler.queueing.active_queue import ActiveQueue
from scheduler.queueing.types import IN_POOL, Place, QueuedPodInfo
from scheduler.queueing.unschedulable_pods import RejectedPods, _Index

_MANY: Final = 50


class QueueChecks:
    """The checks of the queue. `is_binding` says of a uid whether a binding of this pod runs."""

    def __init__(
        self, cluster: Cluster, queue: SchedulingQueue, pending: UnboundPods, is_binding: Callable[[str], bool]
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._states = queue._places
        self._pool = queue._pool
        self._pending = pending
        self._is_binding = is_binding

    def checks(self) -> dict[str, Check]:
        """Return index → check."""
        return {
            "queue": self._pods,
            "queue-order": self._heaps,
            "unschedulable-pods": self._pool_steps,
            "queueing-hints": self._hints,
            "nominations": self._nominations,
        }

    # -- one place per pod -------------------------------------------------------------------------------------------

    def _pods(self) -> Steps:
        """Compare the unbound pods with the records of the queue: each has one, unless it is in flight or binding."""
        for some in in_parts(self._pending, _MANY):
            found = Comparison("")
            for info in some:
                newest = self._pending.get(info.key)
                if newest is not None and newest.uid == info.uid:
                    self._pod(found, newest)
            yield found
        for uid in tuple(self._states._pods):
            queued, found = self._states.get(uid), Comparison(f"pod with uid {uid}")
            if queued is not None:
                found.about = f"pod {queued.info.key}"
                newest = self._pending.get(queued.info.key)
                is_waiting = newest is not None and newest.uid == uid
                if found.differs("in the queue", queued.place.value, queued.place.value if is_waiting else "gone"):
                    self._forget(queued)
            yield found
        for uid in tuple(self._queue._in_flight._pods):
            found, record = Comparison(f"pod with uid {uid}"), self._queue._in_flight.get(uid)
            if record is not None and found.differs("in flight and queued", uid in self._states, False):
                self._forget(record)
            yield found

    def _pod(self, found: Comparison, info: PodInfo) -> None:
        queue, uid = self._queue, info.uid
        is_elsewhere = self._cluster.is_assumed(uid) or self._is_binding(uid)
        if not queue.owns(info.pod) or is_elsewhere or info.pod.metadata.deletion_timestamp is not None:
            return  # a pod that is being deleted is not tried
        is_held = queue._in_flight.get(uid) is not None
        queued = self._states.get(uid)
        found.about = f"pod {info.key}"
        if queued is None:
            if found.differs("places in the queue", int(is_held), 1):
                queue.add(info)
            return
        version = queued.info.pod.metadata.resource_version
        if queued.info is not info and found.differs("version", version, info.pod.metadata.resource_version):
            self._states.replace(queued, info)

    def _forget(self, queued: QueuedPodInfo) -> None:
        """Remove a record from all parts of the queue, whatever is wrong with it."""
        self._states._pods.pop(queued.uid, None)
        index = self._pool._index_of.pop(queued.uid, None)
        if index is not None:
            _remove(index, queued.uid)
        queued.place, queued.ticket = Place.NOWHERE, -1
        self._recount()

    # -- heaps -------------------------------------------------------------------------------------------------------

    def _heaps(self) -> Steps:
        """Compare the heaps with the places of the pods, and the gauges with the heaps."""
        for some in in_parts(self._states._pods, _MANY):
            found = Comparison("")
            entries = {id(entry[2]): entry[0] for heap in self._all() for entry in heap._entries if _is_valid(entry)}
            for uid in some:
                queued = self._states.get(uid)
                if queued is not None and queued.place not in IN_POOL:
                    self._in_heap(found, queued, entries.get(id(queued)))
            yield found
        yield self._recount()

    def _in_heap(self, found: Comparison, queued: QueuedPodInfo, key: object) -> None:
        """Compare the place of one pod with its valid entry, which has this key."""
        states, place = self._states, queued.place
        found.about = f"pod {queued.info.key}"
        order = states._order(self._queue._profiles, queued)
        stored: object = order
        if place is Place.ERROR_BACKOFF:
            stored = (states.backoff.until(queued),)
        elif place is Place.BACKOFF:
            stored = (states.backoff.until(queued), *order)
        if found.differs(f"order among {place.value} pods", "missing" if key is None else key, stored):
            queued.ticket = -1
            self._recount()
            queued.order, queued.is_passed_over = order, False
            states._push(queued, place)

    def _all(self) -> tuple[ActiveQueue, ...]:
        states = self._states
        return states._active, states._passed_over, states.backoff._rejected, states.backoff._failed

    def _recount(self) -> Comparison:
        """Compare the number of pods in each heap, which is a gauge, with its valid entries. O(entries)."""
        found = Comparison("pods in the queue")
        for name, heap in zip(("active", "active and costly", "backing off", "backing off after errors"), self._all()):
            entries = heap._entries
            live = sum(map(_is_valid, entries))
            if found.differs(name, heap._live, live):
                heap._live = live
            is_heap = all(entries[(at - 1) // 2] <= entries[at] for at in range(1, len(entries)))
            if found.differs(f"order of {name}", is_heap, True):
                heapq.heapify(entries)
        return found

    # -- unschedulable pods ------------------------------------------------------------------------------------------

    def _pool_steps(self) -> Steps:
        """Compare the pool with the pods that wait or are gated."""
        for uid in tuple({**self._states._pods, **self._pool._index_of}):
            queued, index = self._states.get(uid), self._pool._index_of.get(uid)
            found = Comparison(f"pod {queued.info.key}" if queued is not None else f"pod with uid {uid}")
            place = queued.place.value if queued is not None and queued.place in IN_POOL else "not here"
            stored = self._place_in_pool(index)
            if found.differs("place in the pool", stored, place):
                if index is not None:
                    del self._pool._index_of[uid]
                    _remove(index, uid)
                if queued is not None and queued.place in IN_POOL:
                    self._pool.add(queued)
            elif (
                queued is not None
                and index is not None
                and found.differs("record in the pool", index.pods.get(uid) is queued, True)
            ):
                _remove(index, uid)
                self._pool.add(queued)
            yield found
        for index in self._indexes():
            for uid in tuple(index.pods):
                found = Comparison(f"pod with uid {uid}")
                if found.differs("index", True, self._pool._index_of.get(uid) is index):
                    _remove(index, uid)
                yield found

    def _indexes(self) -> tuple[_Index, ...]:
        return (self._pool._rejected, *self._pool._gated.values())

    def _place_in_pool(self, index: _Index | None) -> str:
        if index is None:
            return "not here"
        return str((Place.WAITING if index is self._pool._rejected else Place.GATED).value)

    def _hints(self) -> Steps:
        """Compare the groups and topics of each waiting pod with the index of the plugins that refused it.

        Shapes and topics are not computed again: they are those of the time when the pod was refused.
        """
        for uid in tuple(self._pool._index_of):
            index, queued = self._pool._index_of.get(uid), self._states.get(uid)
            found = Comparison(f"pod with uid {uid}")
            if index is not None and queued is not None and index.pods.get(uid) is queued:
                found.about = f"pod {queued.info.key}"
                self._hint(found, index, queued)
            yield found
        for index in self._indexes():
            for rejected in tuple(index._by_rejecter.values()):
                yield self._strangers(index, rejected)

    def _hint(self, found: Comparison, index: _Index, queued: QueuedPodInfo) -> None:
        entries = index._entries.get(queued.uid, [])
        rejecters = sorted(rejected.rejecter[1] for rejected, _ in entries)
        found.differs("plugins that refused it", rejecters, sorted(queued.rejecters))
        for rejected, values in entries:
            plugin = rejected.rejecter[1]
            found.differs(f"indexed by {plugin}", index._by_rejecter.get(rejected.rejecter) is rejected, True)
            found.differs(f"refused by {plugin}", rejected.pods.get(queued.uid) is queued, True)
            shapes = rejected._shape_indexes
            found.differs(f"number of shapes for {plugin}", len(values), len(shapes))
            for shape_index, value in zip(shapes.values(), values):
                group = shape_index.groups.get(value)
                found.differs(f"group for {plugin}", group is not None and group.get(queued.uid) is queued, True)
                for topics in shape_index.topic_indexes.values():
                    found.differs(f"has topics for {plugin}", id(group) in topics.topics, True)
                    of_group = topics.topics.get(id(group), ())
                    groups: tuple[Any, ...] = (topics.with_all_topics,)
                    if of_group is not None:
                        groups = tuple(topics.by_topic.get(topic, {}) for topic in of_group)
                    is_found = all(each.get(id(group)) is group for each in groups)
                    found.differs(f"found by topics for {plugin}", is_found, True)
        if found:
            self._add_again(index, queued.uid, entries)

    def _add_again(self, index: _Index, uid: str, entries: Iterable[tuple[RejectedPods, Iterable[Any]]]) -> None:
        """Remove a pod and the pods of its groups from the index, and add them again."""
        uids = {uid: None}
        for rejected, values in entries:
            for shape_index, value in zip(rejected._shape_indexes.values(), values):
                uids |= dict.fromkeys(shape_index.groups.get(value, ()))
        for each in uids:
            _remove(index, each)
            self._pool._index_of.pop(each, None)
        for each in uids:
            record = self._states.get(each)
            if record is not None and record.place in IN_POOL:
                self._pool.add(record)

    def _strangers(self, index: _Index, rejected: RejectedPods) -> Comparison:
        """Compare the pods of one plugin's groups with the pods of the index. O(pods that the plugin refused)."""
        found = Comparison(f"pods that {rejected.rejecter[1]} refused")
        known = [rejected.pods, *(g for each in rejected._shape_indexes.values() for g in each.groups.values())]
        gone = sorted({uid for pods in known for uid in pods if uid not in index.pods})
        if found.differs("pods that are gone", gone, []):
            for uid in gone:
                _remove(index, uid)
        for shape_index in rejected._shape_indexes.values():
            living = set(map(id, shape_index.groups.values()))
            for topics in shape_index.topic_indexes.values():
                for groups in (topics.with_all_topics, *topics.by_topic.values()):
                    stale = [number for number, pods in groups.items() if number != id(pods) or number not in living]
                    if found.differs("groups by topic that are gone", len(stale), 0):
                        for number in stale:
                            del groups[number]
        return found

    # -- nominations -------------------------------------------------------------------------------------------------

    def _nominations(self) -> Steps:
        """Compare the nominated pods with the nodes of nominations, and ours with the unbound pods."""
        nominator = self._queue.nominator
        for uid in tuple(nominator._node_of):
            name, found = nominator.node_of(uid), Comparison(f"pod with uid {uid}")
            if name is not None:
                info = nominator._by_node.get(name, {}).get(uid)
                found.differs(f"nominated to {name}", info is not None, True)
                if info is not None and uid not in nominator._foreign and self._queue.owns(info.pod):
                    newest = self._pending.get(info.key)
                    found.about = f"pod {info.key}"
                    found.differs("unbound", newest is not None and newest.uid == uid, True)
                if found:
                    self._end(uid)
            yield found
        for name in nominator.nodes():
            for uid, info in tuple(nominator._by_node.get(name, {}).items()):
                found = Comparison(f"pod {info.key}")
                if found.differs("nominated to", name, nominator.node_of(uid) or ""):
                    del nominator._by_node[name][uid]
                    nominator._record(name)
                    if not nominator._by_node[name]:
                        del nominator._by_node[name], nominator._versions[name]
                yield found
        found = Comparison("nominations")
        for kind, uids in (("foreign", nominator._foreign), ("derived", nominator._derived)):
            if found.differs(f"{kind} and not nominated", sorted(uids - nominator._node_of.keys()), []):
                uids.intersection_update(nominator._node_of)
        yield found

    def _end(self, uid: str) -> None:
        nominator = self._queue.nominator
        queued = self._states.get(uid)
        name = nominator._node_of.pop(uid, "")
        nominator._foreign.discard(uid)
        nominator._derived.discard(uid)
        nominator._by_node.get(name, {}).pop(uid, None)
        nominator._record(name)
        if not nominator._by_node.get(name):
            nominator._by_node.pop(name, None)
            nominator._versions.pop(name, None)
        if queued is not None:
            nominator.add(queued.info, None)


def _is_valid(entry: tuple[Any, int, QueuedPodInfo]) -> bool:
    return entry[2].ticket == entry[1]


def _remove(index: _Index, uid: str) -> None:
    """Remove a pod from an index, whatever is wrong with its entries. O(groups)."""
    index.pods.pop(uid, None)
    index._entries.pop(uid, None)
    for rejecter, rejected in tuple(index._by_rejecter.items()):
        rejected.pods.pop(uid, None)
        for shape_index in rejected._shape_indexes.values():
            for value, group in tuple(shape_index.groups.items()):
                group.pop(uid, None)
                if not group:
                    del shape_index.groups[value]
                    for topics in shape_index.topic_indexes.values():
                        topics.topics.pop(id(group), None)
                        topics.with_all_topics.pop(id(group), None)
                        for topic, groups in tuple(topics.by_topic.items()):
                            groups.pop(id(group), None)
                            if not groups:
                                del topics.by_topic[topic]
        if not rejected.pods:
            del index._by_rejecter[rejecter]
