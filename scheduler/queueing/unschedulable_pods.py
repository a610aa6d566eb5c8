"""Pods that wait for an event, indexed by what can wake them.

The waiting pods that one plugin rejected, found by what its hints' answers depend on (docs/spec/core.md §1.10, §10.3).

Pods of one shape get one answer, so they stand together; and shapes are filed by topic, so that an event asks only for
those it can concern. Knows no strategies and asks no hint.

Pods that wait for an event, found by what could wake them (docs/spec/core.md §1.10, §10.3).

Not by asking each: an event asks each registration once per distinct shape of the pods it rejected, of the shapes that
its topics can concern, and only the pods of shapes that said yes are touched. The answer is that of `QueueingHints.evaluate`
for every pod, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeAlias

from scheduler.api.podinfo import PodInfo
from scheduler.core.cluster_events import ClusterEvent
from scheduler.framework.interface import EventHint, OfPod
from scheduler.queueing.queueing_hints import (
    HintRegistration,
    QueueingEvent,
    QueueingHints,
    QueueingStrategy,
    Rejecter,
    SomeTopics,
    is_addressed,
    strategy_for,
)
from scheduler.queueing.types import Place, QueuedPodInfo

Shape: TypeAlias = Callable[[PodInfo], Hashable]
Pods: TypeAlias = dict[str, QueuedPodInfo]
_Groups: TypeAlias = dict[Hashable, Pods]
"""Shape value → its pods."""


class RejectedPods:
    """The pods of one profile that one plugin rejected: together, and by each shape that it registered.

    Adding and removing costs O(shapes); a shape value that is new, or leaves with its last pod, O(topics) more.
    """

    def __init__(self, rejecter: Rejecter, wakers: QueueingHints) -> None:
        self.rejecter = rejecter
        self.pods: Pods = {}
        self._wakers = wakers
        self._class_volumes: dict[Shape, _Shelf] = {}
        for registered in wakers.registrations(*rejecter):
            if registered.shape is None or registered.hint is None:
                continue
            shelf = self._class_volumes.setdefault(registered.shape, _Shelf())
            if registered.topics is not None:
                shelf.catalogues.setdefault(registered.topics.of_pod, _Catalogue())

    def add(self, queued: QueuedPodInfo) -> list[Hashable]:
        """Answers with the pod's shape values, which `remove` wants back: the pod may have changed by then."""
        self.pods[queued.uid] = queued
        values = []
        for shape, shelf in self._class_volumes.items():
            value = self._value(shape, queued.info)
            values.append(value)
            group = shelf.groups.get(value)
            if group is None:
                group = shelf.groups[value] = {}
                for of_pod, catalogue in shelf.catalogues.items():
                    catalogue.file(value, group, self._wakers.topics(of_pod, queued.info, plugin=self.rejecter[1]))
            group[queued.uid] = queued
        return values

    def remove(self, uid: str, values: Iterable[Hashable]) -> None:
        """Take out a pod that is here, by what `add` answered."""
        del self.pods[uid]
        for shelf, value in zip(self._class_volumes.values(), values):
            group = shelf.groups[value]
            del group[uid]
            if not group:
                del shelf.groups[value]
                for catalogue in shelf.catalogues.values():
                    catalogue.unfile(value)

    def groups(self, registered: EventHint, about: SomeTopics) -> Iterable[Pods]:
        """Pods that get one answer each, of those that an event about these topics can concern by the registration."""
        if registered.hint is None:
            return (self.pods,)
        if registered.shape is None:
            return ({uid: queued} for uid, queued in self.pods.items())
        shelf = self._class_volumes[registered.shape]
        if registered.topics is None or about is None:
            return shelf.groups.values()
        return shelf.catalogues[registered.topics.of_pod].concerned(about)

    def _value(self, shape: Shape, info: PodInfo) -> Hashable:
        try:
            value = shape(info)
            hash(value)
        except Exception as error:  # noqa: BLE001 (a plugin's mistake must not lose the pod: it is asked by itself)
            about = {"plugin": self.rejecter[1], "pod": info.key}
            self._wakers.errors.record("queueing-hint", error, "shape of a queueing hint failed", **about)
            return (_Alone, info.uid)
        return value


class _Alone:
    """Marks the shape value of a pod that shares its group with no other."""


class _Shelf:
    """The pods of a room by one shape, and what is filed of the shape's values."""

    __slots__ = ("catalogues", "groups")

    def __init__(self) -> None:
        self.groups: _Groups = {}
        self.catalogues: dict[OfPod, _Catalogue] = {}


class _Catalogue:
    """Groups by topic. Orders are those of arrival, so that equal histories wake pods in equal order."""

    __slots__ = ("_anything", "_by_topic", "_topics")

    def __init__(self) -> None:
        self._by_topic: dict[Hashable, _Groups] = {}
        self._anything: _Groups = {}
        self._topics: dict[Hashable, SomeTopics] = {}

    def file(self, value: Hashable, group: Pods, topics: SomeTopics) -> None:
        self._topics[value] = topics
        if topics is None:
            self._anything[value] = group
            return
        for topic in topics:
            self._by_topic.setdefault(topic, {})[value] = group

    def unfile(self, value: Hashable) -> None:
        topics = self._topics.pop(value)
        if topics is None:
            del self._anything[value]
            return
        for topic in topics:
            groups = self._by_topic[topic]
            del groups[value]
            if not groups:
                del self._by_topic[topic]

    def concerned(self, about: tuple[Hashable, ...]) -> Iterable[Pods]:
        """O(topics of the event + groups that share one), and those that depend on anything."""
        found = [groups for topic in about if (groups := self._by_topic.get(topic)) is not None]
        if not found:
            return self._anything.values()
        once = self._anything.copy()
        for groups in found:
            once.update(groups)
        return once.values()


Concerns: TypeAlias = Callable[[PodInfo], bool] | None


class _Index:
    """Waiting pods of which an event may wake some. Adding and removing costs O(rejecters x shapes)."""

    def __init__(self, wakers: QueueingHints) -> None:
        self._wakers = wakers
        self.pods: Pods = {}
        self._rooms: dict[Rejecter, RejectedPods] = {}
        self._kept: dict[str, list[tuple[RejectedPods, list[Hashable]]]] = {}

    def add(self, queued: QueuedPodInfo) -> None:
        kept = []
        for plugin in queued.rejecters:
            rejecter = (queued.profile, plugin)
            room = self._rooms.get(rejecter)
            if room is None:
                room = self._rooms[rejecter] = RejectedPods(rejecter, self._wakers)
            kept.append((room, room.add(queued)))
        self.pods[queued.uid] = queued
        self._kept[queued.uid] = kept

    def remove(self, queued: QueuedPodInfo) -> None:
        """By what was kept at `add`: the pod and its rejecters may have changed since."""
        uid = queued.uid
        del self.pods[uid]
        for room, values in self._kept.pop(uid):
            room.remove(uid, values)
            if not room.pods:
                del self._rooms[room.rejecter]

    def woken_by(
        self, news: QueueingEvent, wakers: Iterable[HintRegistration], concerns: Concerns
    ) -> list[tuple[QueuedPodInfo, QueueingStrategy]]:
        best: dict[str, tuple[QueuedPodInfo, QueueingStrategy]] = {}
        for waker in wakers:
            room = self._rooms.get(waker.rejecter)
            if room is None:
                continue
            for queued in self._said_yes(room, waker, news):
                strategy = strategy_for(queued, waker.plugin)
                known = best.get(queued.uid)
                if known is not None and known[1] >= strategy:
                    continue
                if concerns is None or concerns(queued.info):
                    best[queued.uid] = (queued, strategy)
        return list(best.values())

    def concerned(self, news: QueueingEvent, wakers: Iterable[HintRegistration]) -> list[QueuedPodInfo] | None:
        """The pods that share a topic with the event by one of these registrations of one plugin; None: any may."""
        found: dict[str, QueuedPodInfo] = {}
        for waker in wakers:
            about = self._wakers.about(news, waker)
            if about is None:
                return None
            if (room := self._rooms.get(waker.rejecter)) is not None:
                for pods in room.groups(waker.registered, about):
                    found.update(pods)
        return list(found.values())

    def _said_yes(self, room: RejectedPods, waker: HintRegistration, news: QueueingEvent) -> Iterator[QueuedPodInfo]:
        for pods in room.groups(waker.registered, self._wakers.about(news, waker)):
            anyone = next(iter(pods.values()))  # all of a group get the same answer
            if self._wakers.says_queue(waker, news.event, anyone.info, old=news.old, new=news.new):
                yield from pods.values()


class UnschedulablePods:
    """The pool: rejected pods in one index, gated ones in one per plugin that keeps them out.

    An event that the gating plugin did not register costs nothing per gated pod, whoever else rejected them
    (docs/spec/core.md §10.3).

    Upstream: pkg/scheduler/backend/queue/unschedulable_pods.go unschedulablePods
    """

    def __init__(self, wakers: QueueingHints) -> None:
        self._wakers = wakers
        self._rejected = _Index(wakers)
        self._gated: dict[Rejecter, _Index] = {}
        self._index_of: dict[str, _Index] = {}

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        return (index.pods[uid] for uid, index in self._index_of.items())

    def __len__(self) -> int:
        return len(self._index_of)

    @property
    def gated_count(self) -> int:
        """How many a PreEnqueue plugin keeps out."""
        return len(self._index_of) - len(self._rejected.pods)

    def add(self, queued: QueuedPodInfo) -> None:
        """Where `queued.place` says; its rejecters and its gating plugin must be set."""
        self._wakers.learn(queued.profile, queued.rejecters)
        index = self._rejected
        if queued.place is Place.GATED:
            gate = (queued.profile, queued.gating_plugin)
            if gate not in self._gated:
                self._gated[gate] = _Index(self._wakers)
            index = self._gated[gate]
        index.add(queued)
        self._index_of[queued.uid] = index

    def remove(self, queued: QueuedPodInfo) -> None:
        """Take out a pod that is in the pool."""
        self._index_of.pop(queued.uid).remove(queued)

    def woken_by(
        self, event: ClusterEvent, old: object, new: object, *, concerns: Concerns
    ) -> list[tuple[QueuedPodInfo, QueueingStrategy]]:
        """The pods that the event can help, and how far. Changes nothing."""
        if event.is_wildcard:
            return [
                (queued, QueueingStrategy.AFTER_BACKOFF)
                for queued in self
                if is_addressed(queued, new) and (concerns is None or concerns(queued.info))
            ]
        wakers = self._wakers.of(event)
        news = QueueingEvent(event, old, new)
        woken = self._rejected.woken_by(news, wakers, concerns)
        if self._gated:
            for gate in dict.fromkeys(waker.rejecter for waker in wakers):
                if (index := self._gated.get(gate)) is not None:
                    woken += self._let_in(index, gate, news, wakers, concerns)
        return woken

    def _let_in(
        self,
        index: _Index,
        gate: Rejecter,
        news: QueueingEvent,
        wakers: tuple[HintRegistration, ...],
        concerns: Concerns,
    ) -> list[tuple[QueuedPodInfo, QueueingStrategy]]:
        """Of the pods behind one gate: by its own topics, those that the event can concern; then as all others."""
        few = index.concerned(news, [waker for waker in wakers if waker.rejecter == gate])
        if few is None:
            return index.woken_by(news, wakers, concerns)
        woken: list[tuple[QueuedPodInfo, QueueingStrategy]] = []
        for queued in few:
            strategy = self._wakers.evaluate(queued, news.event, news.old, news.new)
            if strategy is not QueueingStrategy.SKIP and (concerns is None or concerns(queued.info)):
                woken.append((queued, strategy))
        return woken
