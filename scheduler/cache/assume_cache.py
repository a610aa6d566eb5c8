"""Watched objects, and assumptions for objects that are about to be written (docs/spec/volumes.md §1.2).

An assumption has the resource version of the object from which it was derived, and counts only while that version is
the newest. Any other version from the watch replaces it. Versions are compared only for equality.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView
from typing import Generic, TypeVar

from scheduler.api.storage_v1 import PersistentVolume, PersistentVolumeClaim

T = TypeVar("T", bound=PersistentVolume | PersistentVolumeClaim)


class NotKnown(Exception):
    """There is no such object. The message is upstream's."""


class OutOfSync(Exception):
    """The assumed object is not derived from the newest version. The message is upstream's."""


class AssumeCache(Generic[T]):
    """The cache of one kind. Only the scheduling loop uses it. `plural` is the name of the kind in messages.

    Upstream: pkg/scheduler/framework/plugins/volumebinding/passive_assume_cache.go passiveAssumeCache
    """

    def __init__(self, plural: str) -> None:
        self._plural = plural
        self._store: dict[str, T] = {}
        self._assumed: dict[str, T] = {}

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[T]:
        """Iterate over the objects of the watch."""
        return iter(self._store.values())

    def keys(self) -> KeysView[str]:
        """Return the keys of the objects of the watch. A live view."""
        return self._store.keys()

    def get_api(self, key: str) -> T | None:
        """Return the newest object of the watch, never an assumption; None if there is none."""
        return self._store.get(key)

    def get(self, key: str) -> T | None:
        """Return the assumption on the newest object, else the newest object."""
        stored = self._store.get(key)
        # `set` drops an assumption whose version is replaced. The comparison keeps this a property of `get` itself:
        # an old assumption never hides a newer object.
        if self._assumed and stored is not None:
            assumed = self._assumed.get(key)
            if assumed is not None and assumed.metadata.resource_version == stored.metadata.resource_version:
                return assumed
        return stored

    def need(self, key: str) -> T:
        """Return the result of `get`; raise NotKnown with upstream's text if there is none."""
        found = self.get(key)
        if found is None:
            raise NotKnown(self.absence(key))
        return found

    def absence(self, key: str) -> str:
        """Return the text of upstream's cache for a missing object."""
        return f'{self._plural} "{key}" not found'

    def assumed_keys(self) -> tuple[str, ...]:
        """Return the keys with an assumption, valid or not."""
        return tuple(self._assumed)

    def is_assumed(self, key: str) -> bool:
        """Return whether there is a valid assumption."""
        stored, assumed = self._store.get(key), self._assumed.get(key)
        return stored is not None and assumed is not None and _same(stored, assumed)

    def is_stale(self, key: str) -> bool:
        """Return whether there is an assumption that does not count."""
        return key in self._assumed and not self.is_assumed(key)

    def drop(self, key: str) -> None:
        """Drop an assumption that does not count."""
        self._assumed.pop(key, None)

    def assume(self, obj: T) -> None:
        """Use `obj` in place of the newest object until that changes. The last call wins. Raise NotKnown or OutOfSync."""
        stored = self._store.get(obj.key)
        if stored is None:
            raise NotKnown(self.absence(obj.key))
        # The caller decided on an older state. Its assumption could hide a change of the spec or a deletion from
        # later decisions, so it must read the object again.
        if not _same(stored, obj):
            have, given = stored.metadata.resource_version, obj.metadata.resource_version
            raise OutOfSync(f'"{obj.key}" is out of sync (stored: {have}, assume: {given})')
        # Subclasses maintain indexes over the results of `get`. They must see the pair before and after each change,
        # also when one assumption replaces another.
        before = self.get(obj.key)
        self._assumed[obj.key] = obj
        self._changed(before, obj)

    def restore(self, obj: T) -> None:
        """Drop the assumption if it has this version. Idempotent."""
        assumed = self._assumed.get(obj.key)
        # A binding that failed takes back its own assumption only. The watch, or a newer binding, may have replaced
        # it in the meantime.
        if assumed is None or not _same(assumed, obj):
            return
        before = self.get(obj.key)
        del self._assumed[obj.key]
        self._changed(before, self._store.get(obj.key))

    def set(self, obj: T) -> None:
        """Store an object of the watch. The same version again does not change an assumption."""
        key = obj.key
        before = self.get(key)
        self._store[key] = now = obj
        assumed = self._assumed.get(key)
        if assumed is not None:
            # A relist shows the same version again. The assumption is still derived from it, so it stays.
            if _same(assumed, obj):
                now = assumed
            else:
                del self._assumed[key]
        self._changed(before, now)

    def remove(self, key: str) -> None:
        """Remove an object that the watch no longer shows."""
        before = self.get(key)
        self._store.pop(key, None)
        self._assumed.pop(key, None)
        if before is not None:
            self._changed(before, None)

    def _changed(self, before: T | None, now: T | None) -> None:
        """Update an index over the results of `get`: called after every change of them."""


def _same(left: T, right: T) -> bool:
    return left.metadata.resource_version == right.metadata.resource_version
