"""Check the scheduling queue, its indexes, and the nominated pods against the unbound pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduler.api.podinfo import PodInfo
from scheduler.audit.findings import Check, Comparison, Steps, by_key, faultless, in_parts
from scheduler.cache.cluster import Cluster
from scheduler.context import UnboundPods
from scheduler.queue import SchedulingQueue
from scheduler.queueing.types import IN_POOL, Place


class QueueChecks:
    """The checks of the queue. `is_binding` says of a uid whether a binding of this pod runs."""

    def __init__(
        self, cluster: Cluster, queue: SchedulingQueue, pending: UnboundPods, is_binding: Callable[[str], bool]
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._states = queue.places
        self._pool = queue.places.pool
        self._pending = pending
        self._is_binding = is_binding

    def checks(self) -> dict[str, Check]:
        nominator = self._queue.nominator
        return {
            "queue": self._pods,
            "queue-order": self._heaps,
            "unschedulable-pods": lambda: by_key(
                self._pool.uids(), self._about, self._pool.entries, self._in_pool, lambda _: self._states.rebuild()
            ),
            "queueing-hints": lambda: faultless("waiting pods", self._pool.faults(), self._states.rebuild),
            "nominations": lambda: by_key(
                nominator.uids(), self._about, nominator.entries, self._nominated, self._end_nomination
            ),
        }

    # -- one place per pod -------------------------------------------------------------------------------------------

    def _pods(self) -> Steps:
        """Compare the unbound pods with the records of the queue: each has one, unless it is in flight or binding."""
        for some in in_parts(self._pending):
            found = Comparison("")
            for info in some:
                newest = self._pending.get(info.key)
                if newest is not None and newest.uid == info.uid:
                    self._pod(found, newest)
            yield found
        for uid in [queued.uid for queued in self._states]:
            queued, found = self._states.get(uid), Comparison(f"pod with uid {uid}")
            if queued is not None:
                found.about = f"pod {queued.info.key}"
                newest = self._pending.get(queued.info.key)
                is_waiting = newest is not None and newest.uid == uid
                if found.differs("in the queue", queued.place.value, queued.place.value if is_waiting else "gone"):
                    self._states.forget(queued)
            yield found
        for uid in [queued.uid for queued in self._queue.in_flight]:
            found, record = Comparison(f"pod with uid {uid}"), self._queue.in_flight.get(uid)
            if record is not None and found.differs("in flight and queued", uid in self._states, False):
                self._states.forget(record)
            yield found

    def _pod(self, found: Comparison, info: PodInfo) -> None:
        queue, uid = self._queue, info.uid
        is_elsewhere = self._cluster.is_assumed(uid) or self._is_binding(uid)
        if not queue.owns(info.pod) or is_elsewhere or info.pod.metadata.deletion_timestamp is not None:
            return  # a pod that is being deleted is not tried
        is_held = queue.in_flight.get(uid) is not None
        queued = self._states.get(uid)
        found.about = f"pod {info.key}"
        if queued is None:
            if found.differs("places in the queue", int(is_held), 1):
                queue.add(info)
            return
        version = queued.info.pod.metadata.resource_version
        if queued.info is not info and found.differs("version", version, info.pod.metadata.resource_version):
            self._states.replace(queued, info)

    # -- heaps and unschedulable pods ----------------------------------------------------------------------------------

    def _heaps(self) -> Steps:
        """Compare the keys of the pods in the heaps with their records, and the gauges with the heaps."""
        states = self._states
        for some in in_parts([queued.uid for queued in states], 50):
            found, keys = Comparison(""), dict[int, object]()
            for heap in states.heaps:
                keys |= heap.entries()
            for uid in some:
                queued = states.get(uid)
                if queued is not None and queued.place not in IN_POOL:
                    found.about = f"pod {queued.info.key}"
                    key = keys.get(id(queued), "missing")
                    found.differs(f"order among {queued.place.value} pods", key, states.key(queued))
            yield self._rebuilt(found)
        found = Comparison("pods in the queue")
        for name, heap in zip(("active", "active and costly", "backing off", "backing off after errors"), states.heaps):
            found.differs(name, heap.live, len(heap.entries()))
            found.differs(f"order of {name}", heap.is_ordered, True)
        yield self._rebuilt(found)

    def _rebuilt(self, found: Comparison) -> Comparison:
        if found:
            self._states.rebuild()
        return found

    def _about(self, uid: str) -> str:
        queued = self._states.get(uid)
        return f"pod {queued.info.key}" if queued is not None else f"pod with uid {uid}"

    def _in_pool(self, uid: str) -> Mapping[Any, object]:
        """Return the index in which the record must be, if it waits or is gated."""
        queued = self._states.get(uid)
        if queued is None or queued.place not in IN_POOL:
            return {}
        index = (queued.profile, queued.gating_plugin) if queued.place is Place.GATED else ("", "")
        return {"index": index, index: queued}

    # -- nominations -------------------------------------------------------------------------------------------------

    def _nominated(self, uid: str) -> Mapping[str, object]:
        """Return what the nominator must know of a pod: nothing of a pod of this scheduler that is gone or bound."""
        nominator = self._queue.nominator
        name, entries = nominator.node_of(uid), nominator.entries(uid)
        info = next((info for at, info in nominator.pods() if (at, info.uid) == (name, uid)), None)
        newest = self._pending.get(info.key) if info is not None else None
        is_ours = info is not None and "foreign" not in entries["kinds"] and self._queue.owns(info.pod)
        if name is None or info is None or (is_ours and (newest is None or newest.uid != uid)):
            return {"nominated to": None, "listed on": [], "kinds": []}
        return {**entries, "listed on": [name]}

    def _end_nomination(self, uid: str) -> None:
        """End a nomination that is wrong; the one of the pod's status remains."""
        self._queue.nominator.forget(uid)
        if (queued := self._states.get(uid)) is not None:
            self._queue.nominator.add(queued.info, None)
