"""Pods that wait for an event, found by what could wake them (docs/spec/core.md §1.10, §10.3).

Not by asking each: an event asks each registration once per distinct shape of the pods it rejected, and only the pods
of shapes that said yes are touched. The answer is that of `Wakers.evaluate` for every pod, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeAlias

from scheduler.core.events import ClusterEvent
from scheduler.core.podinfo import PodInfo
from scheduler.queueing.records import Place, QueuedPod
from scheduler.queueing.wakers import Strategy, Waker, Wakers, is_addressed, strategy_for

Shape: TypeAlias = Callable[[PodInfo], Hashable]
Pods: TypeAlias = dict[str, QueuedPod]
Concerns: TypeAlias = Callable[[PodInfo], bool] | None


class _Room:
    """The pods of one profile that one plugin rejected, all together and by each shape it registered."""

    def __init__(self, shapes: Iterable[Shape]) -> None:
        self.pods: Pods = {}
        self.by_shape: dict[Shape, dict[Hashable, Pods]] = {shape: {} for shape in shapes}


class _Index:
    """Waiting pods of which an event may wake some. Adding and removing costs O(rejecters x shapes)."""

    def __init__(self, wakers: Wakers, log: Any) -> None:
        self._wakers = wakers
        self._log = log
        self.pods: Pods = {}
        self._rooms: dict[tuple[str, str], _Room] = {}
        self._kept: dict[str, list[tuple[tuple[str, str], list[Hashable]]]] = {}

    def add(self, queued: QueuedPod) -> None:
        kept = []
        for plugin in queued.rejecters:
            name = (queued.profile, plugin)
            room = self._rooms.get(name)
            if room is None:
                room = self._rooms[name] = self._room(*name)
            room.pods[queued.uid] = queued
            values = []
            for shape, buckets in room.by_shape.items():
                value = self._value(shape, queued.info, plugin)
                values.append(value)
                buckets.setdefault(value, {})[queued.uid] = queued
            kept.append((name, values))
        self.pods[queued.uid] = queued
        self._kept[queued.uid] = kept

    def remove(self, queued: QueuedPod) -> None:
        """By what was kept at `add`: the pod and its rejecters may have changed since."""
        uid = queued.uid
        del self.pods[uid]
        for name, values in self._kept.pop(uid):
            room = self._rooms[name]
            del room.pods[uid]
            if not room.pods:
                del self._rooms[name]
                continue
            for buckets, value in zip(room.by_shape.values(), values):
                bucket = buckets[value]
                del bucket[uid]
                if not bucket:
                    del buckets[value]

    def woken_by(
        self, event: ClusterEvent, old: object, new: object, concerns: Concerns
    ) -> list[tuple[QueuedPod, Strategy]]:
        best: dict[str, tuple[QueuedPod, Strategy]] = {}
        for waker in self._wakers.of(event):
            room = self._rooms.get((waker.profile, waker.plugin))
            if room is None:
                continue
            for queued in self._said_yes(room, waker, event, old=old, new=new):
                strategy = strategy_for(queued, waker.plugin)
                known = best.get(queued.uid)
                if known is not None and known[1] >= strategy:
                    continue
                if concerns is None or concerns(queued.info):
                    best[queued.uid] = (queued, strategy)
        return list(best.values())

    def _said_yes(
        self, room: _Room, waker: Waker, event: ClusterEvent, *, old: object, new: object
    ) -> Iterator[QueuedPod]:
        hint, shape = waker.registered.hint, waker.registered.shape
        if hint is not None and shape is None:
            for queued in room.pods.values():
                if self._wakers.says_queue(waker, event, queued.info, old=old, new=new):
                    yield queued
            return
        groups = (room.pods,) if hint is None or shape is None else room.by_shape[shape].values()
        for pods in groups:
            anyone = next(iter(pods.values()))  # all of a shape get the same answer
            if self._wakers.says_queue(waker, event, anyone.info, old=old, new=new):
                yield from pods.values()

    def _room(self, profile: str, plugin: str) -> _Room:
        registered = self._wakers.registrations(profile, plugin)
        return _Room(dict.fromkeys(r.shape for r in registered if r.shape is not None and r.hint is not None))

    def _value(self, shape: Shape, info: PodInfo, plugin: str) -> Hashable:
        try:
            value = shape(info)
            hash(value)
        except Exception:  # noqa: BLE001 (a plugin's mistake must not lose the pod: it is asked by itself)
            self._log.exception("shape of a queueing hint failed", plugin=plugin, pod=info.key)
            return (_Alone, info.uid)
        return value


class _Alone:
    """Marks the shape value of a pod that shares its bucket with no other."""


class Waiting:
    """The pool: rejected pods in one index, gated ones in one per plugin that keeps them out.

    An event that the gating plugin did not register costs nothing per gated pod, whoever else rejected them
    (docs/spec/core.md §10.3).
    """

    def __init__(self, wakers: Wakers, log: Any) -> None:
        self._wakers = wakers
        self._log = log
        self._rejected = _Index(wakers, log)
        self._gated: dict[tuple[str, str], _Index] = {}
        self._index_of: dict[str, _Index] = {}

    def __iter__(self) -> Iterator[QueuedPod]:
        return (index.pods[uid] for uid, index in self._index_of.items())

    def __len__(self) -> int:
        return len(self._index_of)

    @property
    def gated_count(self) -> int:
        """How many a PreEnqueue plugin keeps out."""
        return len(self._index_of) - len(self._rejected.pods)

    def add(self, queued: QueuedPod) -> None:
        """Where `queued.place` says; its rejecters and its gating plugin must be set."""
        self._wakers.learn(queued.profile, queued.rejecters)
        index = self._rejected
        if queued.place is Place.GATED:
            gate = (queued.profile, queued.gating_plugin)
            if gate not in self._gated:
                self._gated[gate] = _Index(self._wakers, self._log)
            index = self._gated[gate]
        index.add(queued)
        self._index_of[queued.uid] = index

    def remove(self, queued: QueuedPod) -> None:
        """Take out a pod that is in the pool."""
        self._index_of.pop(queued.uid).remove(queued)

    def woken_by(
        self, event: ClusterEvent, old: object, new: object, *, concerns: Concerns
    ) -> list[tuple[QueuedPod, Strategy]]:
        """The pods that the event can help, and how far. Changes nothing."""
        if event.is_wildcard:
            return [
                (queued, Strategy.AFTER_BACKOFF)
                for queued in self
                if is_addressed(queued, new) and (concerns is None or concerns(queued.info))
            ]
        woken = self._rejected.woken_by(event, old, new, concerns)
        if self._gated:
            for gate in dict.fromkeys((waker.profile, waker.plugin) for waker in self._wakers.of(event)):
                if (index := self._gated.get(gate)) is not None:
                    woken += index.woken_by(event, old, new, concerns)
        return woken
