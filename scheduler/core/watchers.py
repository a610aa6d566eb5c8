"""Callbacks by topic."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

Callback: TypeAlias = Callable[[], None]


class Watchers(dict[Hashable, dict[Callback, None]]):
    """Topic → the callbacks that follow it, in the order of their subscription. No topic is without one."""

    def subscribe(self, topics: Iterable[Hashable], callback: Callback) -> Callback:
        """Call back at each change of one of the topics; return a function that ends the subscription."""
        topics = tuple(topics)
        for topic in topics:
            self.setdefault(topic, {})[callback] = None

        def end() -> None:
            for topic in topics:
                here = self.get(topic)
                if here is not None:
                    here.pop(callback, None)
                    if not here:
                        del self[topic]

        return end

    def tell(self, topic: Hashable) -> None:
        """Call all callbacks of the topic, also those whose subscription one of them ends."""
        for callback in tuple(self.get(topic, ())):
            callback()
