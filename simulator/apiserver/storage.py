"""What etcd and the watch cache are to a real server: objects, one resourceVersion for everything, history, watchers.

An object is a plain dict that is never changed once stored: a write stores a new one. It is encoded once per
resourceVersion; lists and watches share the bytes. Knows nothing of HTTP, admission or what a pod is.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from simulator.apiserver.kinds import opaque, versions as faces
from simulator.apiserver.resources import ApiResource
from simulator.apiserver.status import Refused, expired

Object = dict[str, Any]
Subscriber = Callable[[str, str, Object], None]
_encode = msgspec.json.Encoder().encode


class Entry:
    """One object at one resourceVersion."""

    __slots__ = ("_body", "_other_body", "key", "namespace", "obj", "rv")

    def __init__(self, key: str, obj: Object, rv: int) -> None:
        self.key = key
        self.obj = obj
        self.rv = rv
        self.namespace: str = obj["metadata"].get("namespace", "")
        self._body: bytes | None = None
        self._other_body: bytes | None = None

    def body(self, resource: ApiResource) -> bytes:
        """JSON without kind and apiVersion, as items of a list are."""
        if resource.has_other_face:
            if self._other_body is None:
                self._other_body = _encode(_bare(_answered(resource, faces.shown(resource, self.obj))))
            return self._other_body
        if self._body is None:
            self._body = _encode(_bare(_answered(resource, self.obj)))
        return self._body

    def has_body(self, body: bytes) -> None:
        """Answer these bytes, whatever the object is."""
        self._body = self._other_body = body

    def full(self, resource: ApiResource) -> bytes:
        """Return the JSON of a GET under this group and version."""
        return head(resource) + self.body(resource)[1:]


def _answered(resource: ApiResource, obj: Object) -> Object:
    answered: Object = opaque.each(obj, opaque.as_answered) if opaque.has_opaque(resource) else obj
    return answered


def _bare(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in {"kind", "apiVersion"}}


_heads: dict[tuple[str, str], bytes] = {}


def head(resource: ApiResource) -> bytes:
    """`{"kind":"Pod","apiVersion":"v1",`."""
    at = (resource.kind, resource.group_version)
    known = _heads.get(at)
    if known is None:
        known = _heads[at] = f'{{"kind":"{resource.kind}","apiVersion":"{resource.group_version}",'.encode()
    return known


@dataclass(slots=True)
class StorageEvent:
    """One write. `entry` is the object after it (for a deletion: its last state), `before` the one it replaced."""

    rv: int
    type: str
    entry: Entry
    before: Entry | None


class Watcher(Protocol):
    """A watcher that is called for every write to one bucket, in order and at once."""

    def offer(self, event: StorageEvent) -> None:
        """Take note of it; must not wait and must not write."""


class Bucket:
    """All objects of one kind, in the order of their keys, and the last `history` writes to them."""

    def __init__(self, resource: ApiResource, history: int) -> None:
        self.resource = resource
        self.entries: dict[str, Entry] = {}
        self.watchers: set[Watcher] = set()
        self.events: deque[StorageEvent] = deque(maxlen=history)
        self.compacted = 0
        """The newest resourceVersion whose successor event is gone."""
        self._keys: list[str] = []
        self._pictures: dict[int, list[Entry]] = {}

    def record(self, event: StorageEvent) -> None:
        """Apply one write and call the watchers."""
        key = event.entry.key
        if event.type == "DELETED":
            del self.entries[key]
            del self._keys[bisect.bisect_left(self._keys, key)]
        else:
            if event.type == "ADDED":
                bisect.insort(self._keys, key)
            self.entries[key] = event.entry
        if len(self.events) == self.events.maxlen:
            self.compacted = self.events[0].rv
        self.events.append(event)
        for watcher in tuple(self.watchers):
            watcher.offer(event)

    def ordered(self) -> list[Entry]:
        """Everything there is, by key."""
        return [self.entries[key] for key in self._keys]

    def since(self, rv: int, now: int) -> list[StorageEvent]:
        """Return the writes after `rv`; raises 410 when some of them are forgotten."""
        if rv < self.compacted:
            raise expired(f"too old resource version: {rv} ({now})")
        newer: list[StorageEvent] = []
        for event in reversed(self.events):
            if event.rv <= rv:
                break
            newer.append(event)
        newer.reverse()
        return newer

    def at(self, rv: int) -> list[Entry] | None:
        """Everything there was at `rv`, by key; None when that is forgotten. Kept for the next page, costs history."""
        picture = self._pictures.get(rv)
        if picture is None:
            if rv < self.compacted:
                return None
            then = dict(self.entries)
            for event in reversed(self.events):
                if event.rv <= rv:
                    break
                if event.before is None:
                    del then[event.entry.key]
                else:
                    then[event.entry.key] = event.before
            picture = self._pictures[rv] = [then[key] for key in sorted(then)]
            if len(self._pictures) > 8:
                del self._pictures[next(iter(self._pictures))]
        return picture

    def restore(self, entries: dict[str, Entry], now: int) -> None:
        """Replace all objects by these, without any history."""
        self.entries = dict(entries)
        self._keys = sorted(entries)
        self.compact(now)

    def compact(self, now: int) -> None:
        """Forget all history."""
        self.events.clear()
        self._pictures.clear()
        self.compacted = now


@dataclass(frozen=True, slots=True)
class Backup:
    """All objects at one resourceVersion, by resource and key."""

    rv: int
    entries: dict[str, dict[str, Entry]]


class Storage:
    """The buckets, the one counter and the subscribers."""

    def __init__(self, *, history: int) -> None:
        self.rv = 0
        self._history = history
        self._buckets: dict[str, Bucket] = {}
        self._subscribers: list[Subscriber] = []
        self._news: deque[tuple[str, str, Object]] = deque()
        self._is_telling = False

    def bucket(self, resource: ApiResource) -> Bucket:
        """Where objects of this kind live, whatever the version."""
        found = self._buckets.get(resource.stored_as)
        if found is None:
            found = self._buckets[resource.stored_as] = Bucket(resource, self._history)
        return found

    def buckets(self) -> Iterator[Bucket]:
        """Those that were ever used."""
        return iter(self._buckets.values())

    def backup(self) -> Backup:
        """Return all objects and the resourceVersion, as `restore` takes them."""
        return Backup(self.rv, {name: dict(bucket.entries) for name, bucket in self._buckets.items()})

    def restore(self, backup: Backup) -> None:
        """Go back to a backup as `etcdutl snapshot restore` does: resourceVersions are given a second time.

        Subscribers are not called. Watchers must be gone: a real API server is restarted for it.
        """
        self.rv = backup.rv
        for name, bucket in self._buckets.items():
            bucket.restore(backup.entries.get(name, {}), backup.rv)

    def put(self, resource: ApiResource, key: str, obj: Object, *, body: Callable[[int], bytes] | None = None) -> Entry:
        """Create or replace; `obj` must be new down to its metadata, which gets the resourceVersion.

        `body` makes the bytes that are answered for that version, if they are not to be those of `obj`.
        """
        bucket = self.bucket(resource)
        before = bucket.entries.get(key)
        entry = self._next(key, obj)
        if body is not None:
            entry.has_body(body(self.rv))
        self._commit(bucket, StorageEvent(self.rv, "ADDED" if before is None else "MODIFIED", entry, before))
        return entry

    def remove(self, resource: ApiResource, key: str, last: Object) -> Entry:
        """Delete; `last` is the object's final state, which gets the resourceVersion of the deletion."""
        bucket = self.bucket(resource)
        before = bucket.entries[key]
        entry = self._next(key, last)
        self._commit(bucket, StorageEvent(self.rv, "DELETED", entry, before))
        return entry

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call `callback(event_type, resource, obj)` for every write, in order. It may write. Returns the undo."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def _next(self, key: str, obj: Object) -> Entry:
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        return Entry(key, obj, self.rv)

    def _commit(self, bucket: Bucket, event: StorageEvent) -> None:
        bucket.record(event)
        self._news.append((event.type, bucket.resource.stored_as, event.entry.obj))
        if self._is_telling:
            return  # a subscriber wrote: its news waits until all have heard the present one
        self._is_telling = True
        try:
            while self._news:
                news = self._news.popleft()
                for callback in tuple(self._subscribers):
                    callback(*news)
        finally:
            self._is_telling = False


def too_large(wanted: int, now: int) -> Refused:
    """504 for a list from the future."""
    return Refused(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {wanted}, current: {now}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        retry_after_s=1,
    )
