"""WATCH: one `Stream` per request turns writes into lines, with the transitions that selectors ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from scheduler.testing.apiserver.bookmarks import zero
from scheduler.testing.apiserver.lists import list_options_invalid, parse_version
from scheduler.testing.apiserver.resources import Resource
from scheduler.testing.apiserver.selectors import Predicate, compile_selectors
from scheduler.testing.apiserver.status import Refused
from scheduler.testing.apiserver.storage import Entry, Event, Storage, head

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Stream:
    """The lines of one watch that wait to be sent. `ready` is set while there are some, or when it has ended."""

    def __init__(self, resource: Resource, namespace: str, predicate: Predicate | None, *, after: int = 0) -> None:
        """Shows only what is newer than `after`, of which a server that was restored from a backup knows nothing yet."""
        self.resource = resource
        self.ready = asyncio.Event()
        self.flowing = asyncio.Event()
        """Not set while the server keeps what is queued to itself."""
        self.flowing.set()
        self.is_ended = False
        self._after = after
        self._namespace = namespace
        self._predicate = predicate
        self._lines: list[bytes] = []

    def offer(self, event: Event) -> None:
        """Queue the line for one write, if this watch is to see it."""
        if event.rv <= self._after or (self._namespace and event.entry.namespace != self._namespace):
            return
        matched = event.before is not None and self._matches(event.before)
        matches = event.type != "DELETED" and self._matches(event.entry)
        if matches:
            self._line("MODIFIED" if matched else "ADDED", event.entry.full(self.resource))
        elif matched:
            self._line("DELETED", self._last(event).full(self.resource))

    def add(self, entry: Entry) -> None:
        """Queue an object that was there when the watch began."""
        if (not self._namespace or entry.namespace == self._namespace) and self._matches(entry):
            self._line("ADDED", entry.full(self.resource))

    def bookmark(self, rv: int, *, initial: bool = False) -> None:
        """Tell how far the stream has come; `initial` marks the end of the initial events."""
        if rv < self._after:
            return
        metadata: dict[str, Any] = {"resourceVersion": str(rv)}
        if initial:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        outline: dict[str, Any] = {"metadata": metadata} | zero(self.resource)
        self._line("BOOKMARK", head(self.resource) + msgspec.json.encode(outline)[1:])

    def fail(self, refusal: Refused) -> None:
        """Queue an ERROR event and end."""
        self._line("ERROR", msgspec.json.encode(refusal.body()))
        self.end()

    def end(self) -> None:
        """Let the response end after what is queued, as a real server does at any moment."""
        self.is_ended = True
        self.flowing.set()
        self.ready.set()

    def take(self) -> bytes:
        """Everything queued, as one chunk."""
        chunk = b"".join(self._lines)
        self._lines.clear()
        if not self.is_ended:
            self.ready.clear()
        return chunk

    def _matches(self, entry: Entry) -> bool:
        return self._predicate is None or self._predicate(entry.obj)

    def _last(self, event: Event) -> Entry:
        """A deleted object as it was; one that left the selector as it was before, at the new resourceVersion."""
        if event.type == "DELETED" or event.before is None:
            return event.entry
        before = event.before.obj
        old = before | {"metadata": before["metadata"] | {"resourceVersion": str(event.rv)}}
        return Entry(event.before.key, old, event.rv)

    def _line(self, type_: str, obj: bytes) -> None:
        self._lines.append(b'{"type":"%b","object":%b}\n' % (type_.encode(), obj))
        self.ready.set()


def open_stream(
    storage: Storage, resource: Resource, namespace: str, query: Mapping[str, str], *, watch_list: bool
) -> Stream:
    """A stream with everything queued that precedes the present. The caller registers it in the same breath."""
    initial = query.get("sendInitialEvents") == "true"
    _check_options(query, watch_list=watch_list)
    predicate = compile_selectors(resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
    text = query.get("resourceVersion", "")
    try:
        rv = parse_version(text)
    except ValueError:
        syntax = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        raise Refused(500, "", f'resourceVersion: Invalid value: "{text}": {syntax}') from None
    bucket = storage.bucket(resource)
    stream = Stream(resource, namespace, predicate, after=0 if initial else rv)
    if initial or rv == 0:
        if query.get("sendInitialEvents") != "false":
            for entry in bucket.ordered():
                stream.add(entry)
        if initial and _wants_bookmarks(query):
            stream.bookmark(storage.rv, initial=True)
        return stream
    try:
        for event in bucket.since(rv, storage.rv):
            stream.offer(event)
    except Refused as refusal:
        stream.fail(refusal)
    return stream


def _wants_bookmarks(query: Mapping[str, str]) -> bool:
    return query.get("allowWatchBookmarks") in {"true", "1"}


def _check_options(query: Mapping[str, str], *, watch_list: bool) -> None:
    match = query.get("resourceVersionMatch", "")
    if "sendInitialEvents" not in query:
        if match:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            raise list_options_invalid("resourceVersionMatch", why)
        return
    if not watch_list:
        why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        raise list_options_invalid("sendInitialEvents", why)
    if match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise list_options_invalid("resourceVersionMatch", why)
