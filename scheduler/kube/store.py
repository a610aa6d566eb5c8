"""The objects of one kind by key, and the changes between two states.

Identity is name *and* uid: a name with another uid is a deletion and an addition. So is an object with other content
at the same version, because a restored etcd reuses versions. Unreadable objects are stored as `Broken`. The reflector
of the kind is the single owner; all other code reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from scheduler.api.decode import Broken, Delta
from scheduler.api.meta import Key, Metadata
from scheduler.core.changes import ChangeLog


class Stored(Protocol):
    """The part of an object that the store needs."""

    @property
    def metadata(self) -> Metadata: ...
    @property
    def key(self) -> Key: ...


T = TypeVar("T", bound=Stored)


class Removals(ChangeLog[Key]):
    """The keys of removed objects, in order."""

    log_max = 8192


class Store(Generic[T]):
    """Objects of one kind, as the server last showed them.

    Upstream: staging/src/k8s.io/client-go/tools/cache/store.go Store
    """

    def __init__(self) -> None:
        self._objects: dict[Key, T | Broken] = {}
        self.removals = Removals()

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T | Broken]:
        return iter(self._objects.values())

    def get(self, key: Key) -> T | Broken | None:
        return self._objects.get(key)

    def held(self, new: T | Broken) -> T | Broken:
        """Return the stored object in place of `new` if they have the same version and content, otherwise `new`."""
        old = self._objects.get(new.key)
        return old if old is not None and _same_version(old, new) and old == new else new

    def is_news(self, new: T | Broken) -> bool:
        """Return whether `new` is not stored, or has a newer version."""
        old = self._objects.get(new.key)
        return old is None or new.metadata.version > old.metadata.version

    def set(self, new: T | Broken, deltas: list[Delta[T]]) -> None:
        """Add or replace one object; append the change to `deltas`. An equal object changes nothing."""
        key = new.key
        old = self._objects.get(key)
        if old is new or (old is not None and _same_version(old, new) and old == new):
            return
        self._objects[key] = new
        if old is not None and _is_another(old, new):
            deltas.append(Delta(old, None))
            old = None
        deltas.append(Delta(old, new))

    def remove(self, gone: T | Broken, deltas: list[Delta[T]]) -> None:
        """Remove one object. An unknown object, or a name of another object, changes nothing."""
        old = self._objects.get(gone.key)
        if old is None or _is_another(old, gone):
            return
        del self._objects[gone.key]
        self.removals.note(gone.key)
        deltas.append(Delta(old, None))

    def replace(self, objects: Iterable[T | Broken]) -> tuple[list[Delta[T]], int]:
        """Replace the whole content. Return the changes, and how many objects had vanished unseen.

        Deletions come first, so that their capacity is free when additions arrive.
        """
        new = {obj.key: obj for obj in objects}
        deltas: list[Delta[T]] = []
        vanished = [
            old
            for key, old in self._objects.items()
            if key not in new or (old is not new[key] and _is_another(old, new[key]))
        ]
        for old in vanished:
            del self._objects[old.key]
            self.removals.note(old.key)
            deltas.append(Delta(old, None))
        for obj in new.values():
            self.set(obj, deltas)
        return deltas, len(vanished)


def _same_version(old: Stored | Broken, new: Stored | Broken) -> bool:
    """Return whether the versions are equal; an unreadable version equals nothing."""
    version = new.metadata.resource_version
    return bool(version) and old.metadata.resource_version == version and old.metadata.uid == new.metadata.uid


def _is_another(old: Stored | Broken, new: Stored | Broken) -> bool:
    """Return whether the uids differ (an unreadable one counts as equal), or the contents at one version."""
    if old.metadata.uid and new.metadata.uid and old.metadata.uid != new.metadata.uid:
        return True
    return _same_version(old, new) and old != new
