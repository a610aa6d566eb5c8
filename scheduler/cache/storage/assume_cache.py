"""Objects as the watch has them, and the few that are about to be written (docs/spec/volumes.md §1.2).

An assumption carries the resource version of the object it was derived from, and counts only while that one is the
newest: whatever else arrives beats it. Versions are compared for equality only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from scheduler.api.meta import Metadata


class Versioned(Protocol):
    """What an assume cache needs of an object."""

    @property
    def metadata(self) -> Metadata: ...
    @property
    def key(self) -> str: ...


T = TypeVar("T", bound=Versioned)


class NotKnown(Exception):
    """No such object. The message is upstream's."""


class OutOfSync(Exception):
    """The object that was assumed is not derived from the newest. The message is upstream's."""


class AssumeCache(Generic[T]):
    """Single owner: the scheduling loop. `plural` is how messages call the kind.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/passive_assume_cache.go passiveAssumeCache
    """

    def __init__(self, plural: str) -> None:
        self._plural = plural
        self._store: dict[str, T] = {}
        self._assumed: dict[str, T] = {}

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[T]:
        """As the API server has them."""
        return iter(self._store.values())

    def get_api(self, key: str) -> T | None:
        """The newest object that the watch has shown; None if there is none. Assumptions never show."""
        return self._store.get(key)

    def get(self, key: str) -> T | None:
        """The assumption if there is one on the newest object, else the newest object."""
        stored = self._store.get(key)
        if self._assumed and stored is not None:
            assumed = self._assumed.get(key)
            if assumed is not None and assumed.metadata.resource_version == stored.metadata.resource_version:
                return assumed
        return stored

    def need(self, key: str) -> T:
        """As `get`; raises NotKnown with upstream's text."""
        found = self.get(key)
        if found is None:
            raise NotKnown(self.absence(key))
        return found

    def absence(self, key: str) -> str:
        """How upstream's cache says that there is no such object."""
        return f'{self._plural} "{key}" not found'

    def assumed_keys(self) -> tuple[str, ...]:
        """Those with an assumption, whether or not it still counts."""
        return tuple(self._assumed)

    def is_assumed(self, key: str) -> bool:
        """Whether an assumption counts for it."""
        stored, assumed = self._store.get(key), self._assumed.get(key)
        return stored is not None and assumed is not None and _same(stored, assumed)

    def assume(self, obj: T) -> None:
        """Let `obj` stand for the newest object until that changes. The last one wins. Raises NotKnown, OutOfSync."""
        stored = self._store.get(obj.key)
        if stored is None:
            raise NotKnown(self.absence(obj.key))
        if not _same(stored, obj):
            have, given = stored.metadata.resource_version, obj.metadata.resource_version
            raise OutOfSync(f'"{obj.key}" is out of sync (stored: {have}, assume: {given})')
        before = self.get(obj.key)
        self._assumed[obj.key] = obj
        self._changed(before, obj)

    def restore(self, obj: T) -> None:
        """Drop the assumption, if it is one on this very version. Safe to repeat."""
        assumed = self._assumed.get(obj.key)
        if assumed is None or not _same(assumed, obj):
            return
        before = self.get(obj.key)
        del self._assumed[obj.key]
        self._changed(before, self._store.get(obj.key))

    def set(self, obj: T) -> None:
        """The watch has shown this object. The same version again leaves an assumption alone."""
        key = obj.key
        before = self.get(key)
        self._store[key] = now = obj
        assumed = self._assumed.get(key)
        if assumed is not None:
            if _same(assumed, obj):
                now = assumed
            else:
                del self._assumed[key]
        self._changed(before, now)

    def remove(self, key: str) -> None:
        """The watch has shown that it is gone."""
        before = self.get(key)
        self._store.pop(key, None)
        self._assumed.pop(key, None)
        if before is not None:
            self._changed(before, None)

    def _changed(self, before: T | None, now: T | None) -> None:
        """For indexes over what `get` answers: called after every change of it."""


def _same(left: Versioned, right: Versioned) -> bool:
    return left.metadata.resource_version == right.metadata.resource_version
