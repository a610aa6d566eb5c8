"""The unschedulable pods, indexed by the events that can wake them (docs/spec/core.md §1.10, §10.3).

A hint's result depends only on the pod's shape, so pods of one shape form a group. Groups are indexed by topic. An
event calls each hint once per distinct shape of the rejected pods with a topic of the event. It touches only the pods
of shapes for which the hint says QUEUE. The result equals that of `QueueingHints.evaluate` for every pod.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

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

TOPICS_MAX: Final = 256
"""A pod with more topics counts as one with all topics: its hints are called at more events."""

Shape: TypeAlias = Callable[[PodInfo], Hashable]
Pods: TypeAlias = dict[str, QueuedPodInfo]
_Groups: TypeAlias = dict[Hashable, Pods]
"""Shape value → its pods."""
_GroupsById: TypeAlias = dict[int, Pods]
"""`id` of a group → the group. A shape value may have thousands of parts, and its hash takes time for each of them."""


class RejectedPods:
    """The pods of one profile that one plugin rejected, in total and by each shape that the plugin registered.

    Adding and removing costs O(shapes). A shape value that is new, or loses its last pod, costs O(topics) more.
    """

    def __init__(self, rejecter: Rejecter, hints: QueueingHints) -> None:
        self.rejecter = rejecter
        self.pods: Pods = {}
        self._hints = hints
        self._shape_indexes: dict[Shape, _ShapeIndex] = {}
        for registered in hints.registrations(*rejecter):
            if registered.shape is None or registered.hint is None:
                continue
            index = self._shape_indexes.setdefault(registered.shape, _ShapeIndex())
            if registered.topics is not None:
                index.topic_indexes.setdefault(registered.topics.of_pod, _TopicIndex())

    def add(self, queued: QueuedPodInfo) -> list[Hashable]:
        """Add the pod and return its shape values. `remove` needs them, because the pod may change before the call."""
        self.pods[queued.uid] = queued
        values = []
        for shape, index in self._shape_indexes.items():
            value = self._value(shape, queued.info)
            values.append(value)
            group = index.groups.get(value)
            if group is None:
                group = index.groups[value] = {}
                for of_pod, topic_index in index.topic_indexes.items():
                    topic_index.add(group, self._topics(of_pod, queued.info))
            group[queued.uid] = queued
        return values

    def remove(self, uid: str, values: Iterable[Hashable]) -> None:
        """Remove a pod; `values` is the result of `add`."""
        del self.pods[uid]
        for index, value in zip(self._shape_indexes.values(), values):
            group = index.groups[value]
            del group[uid]
            if not group:
                del index.groups[value]
                for topic_index in index.topic_indexes.values():
                    topic_index.remove(group)

    def has(self, queued: QueuedPodInfo, values: Sequence[Hashable]) -> bool:
        """Return whether the pod is in the groups of these values, and in no place with another record."""
        places = zip(self._shape_indexes.values(), values)
        groups = [self.pods, *(index.groups.get(value, {}) for index, value in places)]
        return len(groups) == len(self._shape_indexes) + 1 and all(each.get(queued.uid) is queued for each in groups)

    def faults(self, pods: Pods) -> list[str]:
        """Return what is wrong with groups and topics. `pods` are those of the index. O(pods and topics)."""
        faults = [f"pod with uid {uid}" for uid in self.pods if uid not in pods]
        for index in self._shape_indexes.values():
            faults += ["groups by shape"] if sum(map(len, index.groups.values())) != len(self.pods) else []
            for topics in index.topic_indexes.values():
                faults += ["groups by topic"] if not topics.has_exactly(index.groups.values()) else []
        return faults

    def groups(self, registered: EventHint, about: SomeTopics) -> Iterable[Pods]:
        """Return the groups of pods with equal hint results, of those that an event about these topics can concern."""
        if registered.hint is None:
            return (self.pods,)
        if registered.shape is None:
            return ({uid: queued} for uid, queued in self.pods.items())
        index = self._shape_indexes[registered.shape]
        if registered.topics is None or about is None:
            return index.groups.values()
        return index.topic_indexes[registered.topics.of_pod].concerned(about)

    def _topics(self, of_pod: OfPod, info: PodInfo) -> SomeTopics:
        """Return the topics of a pod; None, which means all, for more than `TOPICS_MAX`: each one costs 300 bytes."""
        few = self._hints.topics(lambda pod: _first(of_pod(pod)), info, plugin=self.rejecter[1])
        return None if few is not None and len(few) > TOPICS_MAX else few

    def _value(self, shape: Shape, info: PodInfo) -> Hashable:
        try:
            value = shape(info)
            hash(value)
        except Exception as error:  # noqa: BLE001 (a plugin's error must not lose the pod: it is a separate group)
            about = {"plugin": self.rejecter[1], "pod": info.key}
            self._hints.errors.record("queueing-hint", error, "shape of a queueing hint failed", **about)
            return (_Alone, info.uid)
        return value


def _first(topics: Iterable[Hashable] | None) -> Iterable[Hashable] | None:
    return None if topics is None else itertools.islice(topics, TOPICS_MAX + 1)


class _Alone:
    """A marker in the shape value of a pod that has a group for itself."""


@dataclass(slots=True, eq=False)
class _ShapeIndex:
    """The groups of one shape function, and their indexes by topic."""

    groups: _Groups = field(default_factory=dict)
    topic_indexes: dict[OfPod, _TopicIndex] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _TopicIndex:
    """Groups by topic. All orders are those of arrival, so that equal histories wake pods in equal order."""

    by_topic: dict[Hashable, _GroupsById] = field(default_factory=dict)
    with_all_topics: _GroupsById = field(default_factory=dict)
    topics: dict[int, SomeTopics] = field(default_factory=dict)

    def add(self, group: Pods, topics: SomeTopics) -> None:
        """Add a group, which must live until it is removed. O(topics)."""
        self.topics[id(group)] = topics
        if topics is None:
            self.with_all_topics[id(group)] = group
            return
        for topic in topics:
            self.by_topic.setdefault(topic, {})[id(group)] = group

    def remove(self, group: Pods) -> None:
        topics = self.topics.pop(id(group))
        if topics is None:
            del self.with_all_topics[id(group)]
            return
        for topic in topics:
            groups = self.by_topic[topic]
            del groups[id(group)]
            if not groups:
                del self.by_topic[topic]

    def has_exactly(self, groups: Iterable[Pods]) -> bool:
        """Return whether these are the groups, with the topics that they had when they were added."""
        fresh = _TopicIndex()
        for group in groups:
            fresh.add(group, self.topics.get(id(group), ()))
        ours = (self.topics, self.with_all_topics, self.by_topic)
        return ours == (fresh.topics, fresh.with_all_topics, fresh.by_topic)

    def concerned(self, about: tuple[Hashable, ...]) -> Iterable[Pods]:
        """Return the groups that share a topic with the event, and those with all topics. O(its topics + groups)."""
        found = [groups for topic in about if (groups := self.by_topic.get(topic)) is not None]
        if not found:
            return self.with_all_topics.values()
        once = self.with_all_topics.copy()
        for groups in found:
            once.update(groups)
        return once.values()


Concerns: TypeAlias = Callable[[PodInfo], bool] | None


class _Index:
    """Waiting pods, by rejecter. Adding and removing costs O(rejecters x shapes)."""

    def __init__(self, hints: QueueingHints) -> None:
        self._hints = hints
        self.pods: Pods = {}
        self._by_rejecter: dict[Rejecter, RejectedPods] = {}
        self._entries: dict[str, list[tuple[RejectedPods, list[Hashable]]]] = {}

    def add(self, queued: QueuedPodInfo) -> None:
        entries = []
        for plugin in queued.rejecters:
            rejecter = (queued.profile, plugin)
            rejected = self._by_rejecter.get(rejecter)
            if rejected is None:
                rejected = self._by_rejecter[rejecter] = RejectedPods(rejecter, self._hints)
            entries.append((rejected, rejected.add(queued)))
        self.pods[queued.uid] = queued
        self._entries[queued.uid] = entries

    def remove(self, queued: QueuedPodInfo) -> None:
        """Remove the pod by the values of `add`, because the pod and its rejecters may have changed."""
        uid = queued.uid
        del self.pods[uid]
        for rejected, values in self._entries.pop(uid):
            rejected.remove(uid, values)
            if not rejected.pods:
                del self._by_rejecter[rejected.rejecter]

    def faults(self) -> Iterator[list[str]]:
        """Yield what is wrong with the groups of each pod, and of each plugin: empty lists, unless there is a bug."""
        for uid, queued in tuple(self.pods.items()):
            entries = self._entries.get(uid, [])
            is_right = {each.rejecter[1] for each, _ in entries} == set(queued.rejecters) and all(
                self._by_rejecter.get(each.rejecter) is each and each.has(queued, values) for each, values in entries
            )
            yield [] if is_right or self.pods.get(uid) is not queued else [f"pod {queued.info.key}"]
        for rejected in tuple(self._by_rejecter.values()):
            yield rejected.faults(self.pods)

    def woken_by(
        self, queueing_event: QueueingEvent, registrations: Iterable[HintRegistration], concerns: Concerns
    ) -> list[tuple[QueuedPodInfo, QueueingStrategy]]:
        best: dict[str, tuple[QueuedPodInfo, QueueingStrategy]] = {}
        for registration in registrations:
            rejected = self._by_rejecter.get(registration.rejecter)
            if rejected is None:
                continue
            for queued in self._accepted_by_hint(rejected, registration, queueing_event):
                strategy = strategy_for(queued, registration.plugin)
                previous = best.get(queued.uid)
                if previous is not None and previous[1] >= strategy:
                    continue
                if concerns is None or concerns(queued.info):
                    best[queued.uid] = (queued, strategy)
        return list(best.values())

    def concerned(
        self, queueing_event: QueueingEvent, registrations: Iterable[HintRegistration]
    ) -> list[QueuedPodInfo] | None:
        """Return the pods that share a topic with the event by these registrations of one plugin; None if any pod may."""
        found: dict[str, QueuedPodInfo] = {}
        for registration in registrations:
            about = self._hints.about(queueing_event, registration)
            if about is None:
                return None
            if (rejected := self._by_rejecter.get(registration.rejecter)) is not None:
                for pods in rejected.groups(registration.registered, about):
                    found.update(pods)
        return list(found.values())

    def _accepted_by_hint(
        self, rejected: RejectedPods, registration: HintRegistration, queueing_event: QueueingEvent
    ) -> Iterator[QueuedPodInfo]:
        for pods in rejected.groups(registration.registered, self._hints.about(queueing_event, registration)):
            representative = next(iter(pods.values()))  # all pods of a group get the same result
            if self._hints.says_queue(
                registration, queueing_event.event, representative.info, old=queueing_event.old, new=queueing_event.new
            ):
                yield from pods.values()


class UnschedulablePods:
    """The rejected pods in one index, and the gated pods in one index per gating plugin.

    An event for which the gating plugin is not registered costs nothing per gated pod (docs/spec/core.md §10.3).

    Upstream: pkg/scheduler/backend/queue/unschedulable_pods.go unschedulablePods
    """

    def __init__(self, hints: QueueingHints) -> None:
        self._hints = hints
        self._rejected = _Index(hints)
        self._gated: dict[Rejecter, _Index] = {}
        self._index_of: dict[str, _Index] = {}

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        return (index.pods[uid] for uid, index in self._index_of.items())

    def __len__(self) -> int:
        return len(self._index_of)

    @property
    def gated_count(self) -> int:
        """The number of pods that a PreEnqueue plugin rejects."""
        return len(self._index_of) - len(self._rejected.pods)

    def add(self, queued: QueuedPodInfo) -> None:
        """Add the pod to the index that `queued.place` names; its rejecters and its gating plugin must be set."""
        self._hints.learn(queued.profile, queued.rejecters)
        index = self._rejected
        if queued.place is Place.GATED:
            gate = (queued.profile, queued.gating_plugin)
            if gate not in self._gated:
                self._gated[gate] = _Index(self._hints)
            index = self._gated[gate]
        index.add(queued)
        self._index_of[queued.uid] = index

    def clear(self) -> None:
        self._rejected, self._gated, self._index_of = _Index(self._hints), {}, {}

    def uids(self) -> dict[str, None]:
        """Return the uids of all pods in any part of the pool, for the self-audit."""
        return dict.fromkeys((*self._index_of, *(uid for index in self._indexes().values() for uid in index.pods)))

    def entries(self, uid: str) -> Mapping[Any, object]:
        """Return index → record for each index that has the pod, and the index that the pool knows for it."""
        indexes = self._indexes().items()
        home = [("index", name) for name, index in indexes if index is self._index_of.get(uid)]
        return dict([*home, *((name, index.pods[uid]) for name, index in indexes if uid in index.pods)])

    def faults(self) -> Iterator[list[str]]:
        """Yield what is wrong with the groups by which pods are woken."""
        for index in tuple(self._indexes().values()):
            yield from index.faults()

    def _indexes(self) -> dict[Rejecter, _Index]:
        return {("", ""): self._rejected, **self._gated}

    def remove(self, queued: QueuedPodInfo) -> None:
        self._index_of.pop(queued.uid).remove(queued)

    def woken_by(
        self, event: ClusterEvent, old: object, new: object, *, concerns: Concerns
    ) -> list[tuple[QueuedPodInfo, QueueingStrategy]]:
        """Return the pods that the event can help, each with its strategy. Nothing is changed. O(1) if no pod waits."""
        if not self._index_of:
            return []
        if event.is_wildcard:
            return [
                (queued, QueueingStrategy.AFTER_BACKOFF)
                for queued in self
                if is_addressed(queued, new) and (concerns is None or concerns(queued.info))
            ]
        registrations = self._hints.of(event)
        queueing_event = QueueingEvent(event, old, new)
        woken = self._rejected.woken_by(queueing_event, registrations, concerns)
        if self._gated:
            for gate in dict.fromkeys(registration.rejecter for registration in registrations):
                if (index := self._gated.get(gate)) is not None:
                    woken += self._woken_of_gated(index, gate, queueing_event, registrations, concerns)
        return woken

    def _woken_of_gated(
        self,
        index: _Index,
        gate: Rejecter,
        queueing_event: QueueingEvent,
        registrations: tuple[HintRegistration, ...],
        concerns: Concerns,
    ) -> list[tuple[QueuedPodInfo, QueueingStrategy]]:
        """Return the woken pods of one gating plugin. If it has topics, a pod must share one with the event.

        Its hints are called once per shape, those of other plugins that rejected a pod before for each such pod.
        """
        own = [registration for registration in registrations if registration.rejecter == gate]
        candidates = index.concerned(queueing_event, own)
        if candidates is None:
            return index.woken_by(queueing_event, registrations, concerns)
        by_gate = {queued.uid: strategy for queued, strategy in index.woken_by(queueing_event, own, concerns)}
        woken: list[tuple[QueuedPodInfo, QueueingStrategy]] = []
        for queued in candidates:
            strategy = by_gate.get(queued.uid, QueueingStrategy.SKIP)
            if len(queued.rejecters) > 1 and (concerns is None or concerns(queued.info)):
                event, old, new = queueing_event.event, queueing_event.old, queueing_event.new
                strategy = self._hints.evaluate(queued, event, old, new, best=strategy, without=gate[1])
            if strategy is not QueueingStrategy.SKIP:
                woken.append((queued, strategy))
        return woken
