"""Whether an event can help a pod: the registrations of all profiles, and how they are asked (docs/spec/core.md §1.10).

The law: a pod is woken by an event if a plugin that rejected it registered for the event and its hint says so.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from scheduler.api.podinfo import PodInfo
from scheduler.core.clock import Clock
from scheduler.core.cluster_events import ANYTHING, ClusterEvent
from scheduler.core.errors import UnforeseenErrors
from scheduler.framework.interface import EventHint, Hint, OfEvent
from scheduler.queueing.types import QueuedPodInfo, QueueMetrics, QueueProfile

Rejecter: TypeAlias = tuple[str, str]
"""Profile and plugin."""
SomeTopics: TypeAlias = tuple[Hashable, ...] | None
"""Each topic once; None for all there are."""
_EVERYTHING: Final = (EventHint(ANYTHING),)


class QueueingStrategy(enum.IntEnum):
    """What becomes of a rejected pod; the greatest answer wins.

    Upstream: pkg/scheduler/backend/queue/scheduling_queue.go queueingStrategy
    """

    SKIP = 0
    AFTER_BACKOFF = 1
    IMMEDIATELY = 2


@dataclass(frozen=True, slots=True, eq=False)
class HintRegistration:
    """One registration of one plugin of one profile."""

    profile: str
    plugin: str
    registered: EventHint
    rejecter: Rejecter
    """Both again, as the look-up of every event wants them."""


@dataclass(slots=True, eq=False)
class QueueingEvent:
    """An event with its objects, and what it is about, as far as anybody has asked."""

    event: ClusterEvent
    old: object
    new: object
    about: dict[OfEvent, SomeTopics] = field(default_factory=dict)


class QueueingHints:
    """Registrations by event. Finding those of an event is one look-up; their number does not matter to others.

    Upstream: pkg/scheduler/scheduler.go buildQueueingHintMap
    """

    def __init__(
        self,
        profiles: Mapping[str, QueueProfile],
        *,
        metrics: QueueMetrics,
        clock: Clock,
        errors: UnforeseenErrors | None = None,
    ) -> None:
        self._hints = {name: dict(profile.hints) for name, profile in profiles.items()}
        self._metrics = metrics
        self._clock = clock
        self.errors = errors or UnforeseenErrors()
        self._by_event: dict[ClusterEvent, tuple[HintRegistration, ...]] = {}

    def adopt(self, profiles: Mapping[str, QueueProfile]) -> None:
        """These profiles register otherwise from now on. Of them no pod may be filed by what they registered before."""
        self._hints.update((name, dict(profile.hints)) for name, profile in profiles.items())
        self._by_event.clear()

    def of(self, event: ClusterEvent) -> tuple[HintRegistration, ...]:
        """Every registration that covers the event; empty when nobody cares."""
        known = self._by_event.get(event)
        if known is None:
            known = self._by_event[event] = tuple(
                HintRegistration(profile, plugin, registered, (profile, plugin))
                for profile, plugins in self._hints.items()
                for plugin, registrations in plugins.items()
                for registered in registrations
                if registered.event.wants(event)
            )
        return known

    def registrations(self, profile: str, plugin: str) -> tuple[EventHint, ...]:
        """What the plugin registered."""
        return self._hints[profile][plugin]

    def learn(self, profile: str, plugins: Iterable[str]) -> bool:
        """Rejecters without a registration are woken by everything from now on. True if there was a new one."""
        strangers = [plugin for plugin in plugins if plugin not in self._hints[profile]]
        for plugin in strangers:
            self._hints[profile][plugin] = _EVERYTHING
        if strangers:
            self._by_event.clear()
        return bool(strangers)

    def about(self, news: QueueingEvent, waker: HintRegistration) -> SomeTopics:
        """What the event is about in the terms of this registration. A function of several is called once per event."""
        topics = waker.registered.topics
        if topics is None:
            return None
        of_event = topics.of_event
        if of_event not in news.about:
            news.about[of_event] = self.topics(of_event, news.old, news.new, plugin=waker.plugin)
        return news.about[of_event]

    def topics(self, ask: Callable[..., Iterable[Hashable] | None], *objects: object, plugin: str) -> SomeTopics:
        """What one of the functions of `hints.Topics` answers; one that raises names all topics."""
        try:
            topics = ask(*objects)
            return None if topics is None else tuple(dict.fromkeys(topics))
        except Exception as error:  # noqa: BLE001 (a plugin's mistake costs needless questions, not a wake-up)
            event = "topics of a queueing hint failed, taken as all of them"
            self.errors.record("queueing-hint", error, event, plugin=plugin)
            return None

    def says_queue(
        self, waker: HintRegistration, event: ClusterEvent, pod: PodInfo, *, old: object, new: object
    ) -> bool:
        """Ask the hint; one that is missing or raises is a yes: better tried in vain than forgotten."""
        began = self._clock.now()
        hint = waker.registered.hint
        answer = Hint.QUEUE
        label = answer.value
        if hint is not None:
            try:
                answer = hint(pod, old, new)
                label = answer.value
            except Exception as error:  # noqa: BLE001 (a plugin's mistake must not cost the wake-up of other pods)
                label = "Error"
                about = {"plugin": waker.plugin, "cause": event.label, "pod": pod.key}
                self.errors.record("queueing-hint", error, "queueing hint failed, taken as a yes", **about)
        self._metrics.hint(waker.plugin, event.label, label, self._clock.now() - began)
        return answer is Hint.QUEUE

    def evaluate(
        self, queued: QueuedPodInfo, event: ClusterEvent, old: object, new: object, *, is_blurred: bool = False
    ) -> QueueingStrategy:
        """What the event means for this one pod. A blurred event's hints cannot be asked and count as yes."""
        rejecters = queued.rejecters
        if not rejecters:
            return QueueingStrategy.AFTER_BACKOFF
        if event.is_wildcard:
            return QueueingStrategy.AFTER_BACKOFF if is_addressed(queued, new) else QueueingStrategy.SKIP
        best = QueueingStrategy.SKIP
        for waker in self.of(event):
            if waker.plugin not in rejecters or waker.profile != queued.profile:
                continue
            possible = strategy_for(queued, waker.plugin)
            if possible <= best:
                continue
            if is_blurred or self.says_queue(waker, event, queued.info, old=old, new=new):
                best = possible
                if best is QueueingStrategy.IMMEDIATELY or not queued.pending_plugins:
                    break
        return best


def strategy_for(queued: QueuedPodInfo, plugin: str) -> QueueingStrategy:
    """What a yes of this plugin is worth: one that the pod only waits for lets it skip the rest of its back-off."""
    return QueueingStrategy.IMMEDIATELY if plugin in queued.pending_plugins else QueueingStrategy.AFTER_BACKOFF


def is_addressed(queued: QueuedPodInfo, new: object) -> bool:
    """Whether a wildcard event is for this pod: for everybody, unless it names one."""
    return not isinstance(new, PodInfo) or new.uid == queued.uid
