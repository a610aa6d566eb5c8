"""Callbacks by topic, and a bounded log of changes for readers that store their positions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import ClassVar, Generic, TypeAlias, TypeVar

Callback: TypeAlias = Callable[[], None]


class Watchers(dict[Hashable, dict[Callback, None]]):
    """A map of topic → subscribed callbacks, in the order of subscription. Each topic in it has at least one."""

    def subscribe(self, topics: Iterable[Hashable], callback: Callback) -> Callback:
        """Call back at each change of one of the topics; return a function that ends the subscription."""
        topics = tuple(topics)
        for topic in topics:
            self.setdefault(topic, {})[callback] = None

        def end() -> None:
            for topic in topics:
                callbacks = self.get(topic)
                if callbacks is not None:
                    callbacks.pop(callback, None)
                    if not callbacks:
                        del self[topic]

        return end

    def notify(self, topic: Hashable) -> None:
        """Call all callbacks of the topic, also those whose subscription one of them ends."""
        for callback in tuple(self.get(topic, ())):
            callback()


T = TypeVar("T")


class ChangeLog(Generic[T]):
    """A bounded list of changes with positions, used alone or as the base class of an index."""

    __slots__ = ("_log", "_log_start")

    log_max: ClassVar[int] = 65_536
    """The older half of the log is dropped when the log is longer than this."""

    def __init__(self) -> None:
        self._log: list[T] = []
        self._log_start = 0

    @property
    def position(self) -> int:
        """The position after the newest entry, for a later `changed_since`."""
        return self._log_start + len(self._log)

    def changed_since(self, position: int) -> list[T] | None:
        """Return the entries since the position, repeats included; None if some of them were dropped."""
        behind = position - self._log_start
        return None if behind < 0 else self._log[behind:]

    def reaches(self, position: int) -> bool:
        """Return whether all entries since the position are kept."""
        return position >= self._log_start

    def note(self, entry: T) -> bool:
        """Append an entry; return whether older entries were dropped. Amortized O(1)."""
        self._log.append(entry)
        if len(self._log) <= self.log_max:
            return False
        drop = len(self._log) // 2
        del self._log[:drop]
        self._log_start += drop
        return True

    def restart(self) -> None:
        """Drop all entries and move the position, so that every reader computes everything again."""
        self._log_start += len(self._log) + 1
        self._log = []

    def drop_all(self) -> None:
        """Drop all entries. The position stays, so that a reader that is up to date remains so."""
        self._log_start += len(self._log)
        self._log = []
