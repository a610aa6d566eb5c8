"""The mirror of one kind: objects by key, and what changed when the mirror did.

Identity is name *and* uid: a name that comes back with another uid is a deletion and an addition. What cannot be read
is kept as `Broken` in the object's place, because its place matters. Single owner: the kind's reflector; everybody
else reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from scheduler.core.decode import Broken
from scheduler.core.deltas import Delta
from scheduler.core.meta import Key


class Named(Protocol):
    """What the mirror needs of an object's `metadata`."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class Stored(Protocol):
    """What the mirror needs of an object."""

    @property
    def metadata(self) -> Named: ...
    @property
    def key(self) -> Key: ...


T = TypeVar("T", bound=Stored)


class Store(Generic[T]):
    """Objects of one kind, as the server last showed them."""

    def __init__(self) -> None:
        self._objects: dict[Key, T | Broken] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T | Broken]:
        return iter(self._objects.values())

    def get(self, key: Key) -> T | Broken | None:
        """The object, a `Broken` in its place, or None."""
        return self._objects.get(key)

    def set(self, new: T | Broken, deltas: list[Delta[T]]) -> None:
        """Add or replace one object; what changed is appended to `deltas`. The version already held changes nothing."""
        key = new.key
        old = self._objects.get(key)
        if old is not None and _same_version(old, new):
            return
        self._objects[key] = new
        if old is not None and _is_another(old, new):
            deltas.append(Delta(old, None))
            old = None
        deltas.append(Delta(old, new))

    def remove(self, gone: T | Broken, deltas: list[Delta[T]]) -> None:
        """Take one object out. Not known, or its name is another object's by now: nothing."""
        old = self._objects.get(gone.key)
        if old is None or _is_another(old, gone):
            return
        del self._objects[gone.key]
        deltas.append(Delta(old, None))

    def replace(self, objects: Iterable[T | Broken]) -> tuple[list[Delta[T]], int]:
        """Make `objects` the whole content. Returns the changes and how many objects had vanished unseen.

        Deletions come first, so that what they free is free when the additions arrive.
        """
        new = {obj.key: obj for obj in objects}
        deltas: list[Delta[T]] = []
        vanished = [old for key, old in self._objects.items() if key not in new or _is_another(old, new[key])]
        for old in vanished:
            del self._objects[old.key]
            deltas.append(Delta(old, None))
        for obj in new.values():
            self.set(obj, deltas)
        return deltas, len(vanished)


def _same_version(old: Stored | Broken, new: Stored | Broken) -> bool:
    """Resource versions are compared for equality only; an unreadable one equals nothing."""
    version = new.metadata.resource_version
    return bool(version) and old.metadata.resource_version == version and old.metadata.uid == new.metadata.uid


def _is_another(old: Stored | Broken, new: Stored | Broken) -> bool:
    """Same name, other uid. An unreadable uid is taken for the same object."""
    return bool(old.metadata.uid and new.metadata.uid) and old.metadata.uid != new.metadata.uid
