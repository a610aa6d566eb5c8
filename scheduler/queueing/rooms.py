"""The waiting pods that one plugin rejected, found by what its hints' answers depend on (docs/spec/core.md §1.10, §10.3).

Pods of one shape get one answer, so they stand together; and shapes are filed by topic, so that an event asks only for
those it can concern. Knows no strategies and asks no hint.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

from scheduler.core.podinfo import PodInfo
from scheduler.framework.hints import EventHint, OfPod
from scheduler.queueing.records import QueuedPod
from scheduler.queueing.wakers import Rejecter, SomeTopics, Wakers

Shape: TypeAlias = Callable[[PodInfo], Hashable]
Pods: TypeAlias = dict[str, QueuedPod]
_Groups: TypeAlias = dict[Hashable, Pods]
"""Shape value → its pods."""


class Room:
    """The pods of one profile that one plugin rejected: together, and by each shape that it registered.

    Adding and removing costs O(shapes); a shape value that is new, or leaves with its last pod, O(topics) more.
    """

    def __init__(self, rejecter: Rejecter, wakers: Wakers) -> None:
        self.rejecter = rejecter
        self.pods: Pods = {}
        self._wakers = wakers
        self._shelves: dict[Shape, _Shelf] = {}
        for registered in wakers.registrations(*rejecter):
            if registered.shape is None or registered.hint is None:
                continue
            shelf = self._shelves.setdefault(registered.shape, _Shelf())
            if registered.topics is not None:
                shelf.catalogues.setdefault(registered.topics.of_pod, _Catalogue())

    def add(self, queued: QueuedPod) -> list[Hashable]:
        """Answers with the pod's shape values, which `remove` wants back: the pod may have changed by then."""
        self.pods[queued.uid] = queued
        values = []
        for shape, shelf in self._shelves.items():
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
        for shelf, value in zip(self._shelves.values(), values):
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
        shelf = self._shelves[registered.shape]
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
