"""Queueing hints: the registrations of all profiles, and whether an event can help a pod (docs/spec/core.md §1.10).

Invariant: an event wakes a pod if a plugin that rejected the pod registered for the event and its hint returns QUEUE.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Final, TypeAlias

import msgspec

from scheduler.api.podinfo import PodInfo
from scheduler.core.clock import Clock
from scheduler.core.cluster_events import ANYTHING, ClusterEvent
from scheduler.core.errors import UnforeseenErrors
from scheduler.framework.interface import EventHint, Hint, OfEvent
from scheduler.metrics.metrics import Metrics
from scheduler.queueing.types import QueuedPodInfo, QueueProfile

Rejecter: TypeAlias = tuple[str, str]
"""Profile and plugin."""
SomeTopics: TypeAlias = tuple[Hashable, ...] | None
"""Each topic once; None means all topics."""
_EVERYTHING: Final = (EventHint(ANYTHING),)


class QueueingStrategy(enum.IntEnum):
    """The next step for a rejected pod; the greatest value wins.

    Upstream: pkg/scheduler/backend/queue/scheduling_queue.go queueingStrategy
    """

    SKIP = 0
    AFTER_BACKOFF = 1
    IMMEDIATELY = 2


class HintRegistration(msgspec.Struct, frozen=True, eq=False):
    """One registration of one plugin of one profile."""

    profile: str
    plugin: str
    registered: EventHint
    rejecter: Rejecter
    """Profile and plugin as one key, because every event needs it for a look-up."""


@dataclass(slots=True, eq=False)
class QueueingEvent:
    """An event with its objects, and its topics as far as they have been computed."""

    event: ClusterEvent
    old: object
    new: object
    about: dict[OfEvent, SomeTopics] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class QueueingHints:
    """The registrations by event. Finding those of an event is one look-up, whatever their number.

    Upstream: pkg/scheduler/scheduler.go buildQueueingHintMap
    """

    profiles: InitVar[Mapping[str, QueueProfile]]
    metrics: Metrics
    clock: Clock
    errors: UnforeseenErrors = field(default_factory=UnforeseenErrors)

    def __post_init__(self, profiles: Mapping[str, QueueProfile]) -> None:
        self._hints = {name: dict(profile.hints) for name, profile in profiles.items()}
        self._by_event: dict[ClusterEvent, tuple[HintRegistration, ...]] = {}

    def adopt(self, profiles: Mapping[str, QueueProfile]) -> None:
        """Replace the registrations of these profiles. No pod of them may be indexed by the old registrations."""
        self._hints.update((name, dict(profile.hints)) for name, profile in profiles.items())
        self._by_event.clear()

    def of(self, event: ClusterEvent) -> tuple[HintRegistration, ...]:
        """Return every registration that covers the event."""
        hints = self._by_event.get(event)
        if hints is None:
            hints = self._by_event[event] = tuple(
                HintRegistration(profile, plugin, registered, (profile, plugin))
                for profile, plugins in self._hints.items()
                for plugin, registrations in plugins.items()
                for registered in registrations
                if registered.event.wants(event)
            )
        return hints

    def registrations(self, profile: str, plugin: str) -> tuple[EventHint, ...]:
        return self._hints[profile][plugin]

    def learn(self, profile: str, plugins: Iterable[str]) -> bool:
        """Register all events for rejecters without a registration. Return True if there was a new rejecter."""
        unregistered = [plugin for plugin in plugins if plugin not in self._hints[profile]]
        for plugin in unregistered:
            self._hints[profile][plugin] = _EVERYTHING
        if unregistered:
            self._by_event.clear()
        return bool(unregistered)

    def about(self, queueing_event: QueueingEvent, registration: HintRegistration) -> SomeTopics:
        """Return the topics of the event for this registration. Each function of topics is called once per event."""
        topics = registration.registered.topics
        if topics is None:
            return None
        of_event = topics.of_event
        if of_event not in queueing_event.about:
            queueing_event.about[of_event] = self.topics(
                of_event, queueing_event.old, queueing_event.new, plugin=registration.plugin
            )
        return queueing_event.about[of_event]

    def topics(self, function: Callable[..., Iterable[Hashable] | None], *objects: object, plugin: str) -> SomeTopics:
        """Return the result of one function of `hints.Topics`; if the function raises, all topics."""
        try:
            topics = function(*objects)
            return None if topics is None else tuple(dict.fromkeys(topics))
        except Exception as error:  # noqa: BLE001 (a plugin's error costs unnecessary hint calls, not a wake-up)
            event = "topics of a queueing hint failed, all topics are assumed"
            self.errors.record("queueing-hint", error, event, plugin=plugin)
            return None

    def says_queue(
        self, registration: HintRegistration, event: ClusterEvent, pod: PodInfo, *, old: object, new: object
    ) -> bool:
        """Return whether the hint says QUEUE. A missing hint, or one that raises, counts as QUEUE.

        An unnecessary attempt is better than a pod that waits without need.
        """
        began = self.clock.now()
        hint = registration.registered.hint
        answer = Hint.QUEUE
        label = answer.value
        if hint is not None:
            try:
                answer = hint(pod, old, new)
                label = answer.value
            except Exception as error:  # noqa: BLE001 (a plugin's error must not prevent the wake-up of other pods)
                label = "Error"
                about = {"plugin": registration.plugin, "cause": event.label, "pod": pod.key}
                self.errors.record("queueing-hint", error, "queueing hint failed, Queue is assumed", **about)
        self.metrics.hint(registration.plugin, event.label, label, self.clock.now() - began)
        return answer is Hint.QUEUE

    def evaluate(  # noqa: PLR0913 (each by its name)
        self,
        queued: QueuedPodInfo,
        event: ClusterEvent,
        old: object,
        new: object,
        *,
        is_blurred: bool = False,
        best: QueueingStrategy = QueueingStrategy.SKIP,
        without: str = "",
    ) -> QueueingStrategy:
        """Return the strategy of this event for one pod. Hints of a blurred event count as QUEUE, without a call.

        `best` is what the hints of the plugin `without` have given already.
        """
        rejecters = queued.rejecters
        if not rejecters:
            return QueueingStrategy.AFTER_BACKOFF
        if event.is_wildcard:
            return QueueingStrategy.AFTER_BACKOFF if is_addressed(queued, new) else QueueingStrategy.SKIP
        for registration in self.of(event):
            plugin = registration.plugin
            if plugin not in rejecters or plugin == without or registration.profile != queued.profile:
                continue
            possible = strategy_for(queued, plugin)
            if possible <= best:
                continue
            if is_blurred or self.says_queue(registration, event, queued.info, old=old, new=new):
                best = possible
                if best is QueueingStrategy.IMMEDIATELY or not queued.pending_plugins:
                    break
        return best


def strategy_for(queued: QueuedPodInfo, plugin: str) -> QueueingStrategy:
    """Return the strategy for QUEUE by this plugin's hint. A pending plugin lets the pod skip its back-off."""
    return QueueingStrategy.IMMEDIATELY if plugin in queued.pending_plugins else QueueingStrategy.AFTER_BACKOFF


def is_addressed(queued: QueuedPodInfo, new: object) -> bool:
    """Return whether a wildcard event concerns this pod: it concerns all pods unless it names one."""
    return not isinstance(new, PodInfo) or new.uid == queued.uid
