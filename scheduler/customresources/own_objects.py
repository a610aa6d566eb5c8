"""The objects of one of our own kinds, from kopf's events and from lists.

All objects are also listed once a minute and after each start of kopf, because kopf cannot report deletions that it
missed, and may be down. Every replica reads the objects. Only the leader writes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec
import structlog

from scheduler.core import api_json as apijson
from scheduler.core.clock import Clock, done_within
from scheduler.core.errors import Ambiguous, ApiError, NotFound, Unavailable
from scheduler.core.retry import Backoff
from scheduler.kube.resources import KindSpec
from scheduler.kube.wire import JSON, Transport

_log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 60.0
AGAIN_S: Final = 1.0
"""Pause after a conflict or a failure, doubling to `LOOK_EVERY_S`."""
SOON_S: Final = 5.0
"""Time after the first object of kopf's list until all are listed here: kopf needs a millisecond for each."""
UNHEARD_S: Final = 30.0
"""Least time between two lists that are compared with the events."""
_PAGE: Final = "100"

Object = dict[str, Any]


class _List(msgspec.Struct):
    items: list[Object] | None = None
    metadata: Object = {}


_LIST: Final = msgspec.json.Decoder(_List)


class OwnObjects:
    """The objects of `spec` that concern this scheduler. A subclass decides which these are, and what follows."""

    spec: ClassVar[KindSpec]
    accept: ClassVar[str] = JSON
    """The media type of lists."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self.transport = transport
        self.clock = clock
        self.deaf = asyncio.Event()
        """Set once the watch is silent about an object of two lists, or once the kind is no longer served."""
        self.why_deaf = ""
        self.unread = ""
        """Why the objects could not be listed the last time; "" if they were."""
        self.looked = asyncio.Event()
        """Set after the first list, whether it succeeded or failed; a list that is only repeated does not count."""
        self._objects: dict[str, Object] = {}
        """`namespace/name`, or the name of a cluster-scoped object → what `kept` returned."""
        self._gone: dict[str, int] = {}
        """Uids of objects that were deleted, with the version at that time: a list may be older."""
        self._news = asyncio.Event()
        self._is_due = True
        self._list_at = 0.0
        self._untold = ""
        self._heard: dict[str, int] = {}
        """The newest version that was reported since the last `listen`, by uid."""
        self._heard_at = self._listed_at = -math.inf
        self._listed: dict[str, int] = {}
        """The versions of the list at `_listed_at`, by uid."""

    # -- decided by the kind ---------------------------------------------------------------------------------------------

    def kept(self, obj: Object) -> Object | None:
        """Return the part of an object to keep, with its metadata; None if it does not concern this scheduler."""
        raise NotImplementedError

    def stored(self, key: str, obj: Object) -> None:
        """Take note of an object that is new or may have changed."""

    def removed(self, key: str, obj: Object) -> None:
        """Take note of an object that was deleted."""

    def changed(self) -> None:
        """Take note that an event or a list is stored."""

    async def write(self) -> bool:
        """Write what is out of date. Returns False if a write failed."""
        return True

    # -- used by the shell -----------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Write again: a result or the leader may have changed."""
        self._news.set()

    def listen(self) -> None:
        """Begin to record reported changes, and list the objects soon, to find missed ones."""
        self._heard, self._listed, self._listed_at = {}, {}, -math.inf
        self.deaf.clear()
        self._is_due = True
        self._news.set()

    def remark(self) -> str:
        """Return the problem in one line; "" if there is none."""
        unread = self.unread and f"{self.spec.name}s cannot be read: {self.unread}"
        return "; ".join(filter(None, (unread, self._untold)))

    def seen(self, type_: str | None, obj: Object) -> None:
        """Take one event of a watch, or one object of another component's list (None)."""
        self._heard_at = self.clock.now()
        if type_ is None:
            self._list_at = min(self._list_at, self._heard_at + SOON_S)
        kept = self.kept(obj)
        if kept is None:
            return
        self._heard[kept["metadata"].get("uid")] = version_of(kept)
        if type_ == "DELETED":
            self._delete(kept)
        else:
            self._put(kept)
        self.changed()
        self._news.set()

    async def follow(self) -> None:
        """List the objects and write. Never returns and never raises."""
        backoff = Backoff(self.clock, first_s=2 * AGAIN_S, longest_s=LOOK_EVERY_S)
        while True:
            self._news.clear()
            try:
                if self._is_due or self.clock.now() >= self._list_at:
                    self._list_at = self.clock.now() + LOOK_EVERY_S
                    await self._list()
                failed = not await self.write() or bool(self.unread)
            except Exception as error:  # noqa: BLE001 (an unforeseen failure costs a minute, not all changes to come)
                failed = True
                untold = f"{self.spec.name}s could not be followed: {type(error).__name__}"
                if self._untold != untold:
                    _log.exception("objects could not be followed", kind=self.spec.name)
                self._untold = untold  # /readyz is public: the text may have a user's data
            if not failed:
                backoff.reset()
            wait_s = backoff.next_s() if failed else max(0.0, self._list_at - self.clock.now())
            is_news = await done_within(self.clock, self._news.wait(), wait_s)
            self._is_due |= failed or not is_news

    # -- what is stored --------------------------------------------------------------------------------------------------

    def _put(self, obj: Object) -> None:
        """Store the object unless a newer one is known."""
        key = _key(obj)
        stored = self._objects.get(key)
        if obj["metadata"].get("uid") in self._gone or (stored is not None and version_of(obj) < version_of(stored)):
            return
        if stored is not None and stored["metadata"].get("uid") != obj["metadata"].get("uid"):
            self._remove(key)
        self._objects[key] = obj
        self.stored(key, obj)

    def _delete(self, obj: Object) -> None:
        key, uid = _key(obj), obj["metadata"].get("uid")
        self._gone[uid] = version_of(obj)
        if self._objects.get(key, {}).get("metadata", {}).get("uid") == uid:
            self._remove(key)

    def _remove(self, key: str) -> None:
        self.removed(key, self._objects.pop(key))

    async def _list(self) -> None:
        before, self._is_due, is_look = self.unread, False, True
        newest = max(map(version_of, self._objects.values()), default=0)
        try:
            there, version = await self._read_all()
        except NotFound:  # the kind is deleted, and with it all objects
            self.unread = ""
            for key in list(self._objects):
                self._remove(key)
            self.changed()
            # Without an existing watch kopf does not end here: it would wait forever for a kind that it does not
            # find.
            self._is_deaf("the kind is not served any more")
        except ApiError as error:
            self.unread, is_look = error.message, not isinstance(error, (Unavailable, Ambiguous))
        except (msgspec.DecodeError, ValueError) as error:
            self.unread = str(error)
        else:
            self.unread = ""
            self._take_list(there, version, newest)
        if self.unread and self.unread != before:
            _log.warning("objects could not be read", kind=self.spec.name, error=self.unread)
        if is_look:
            self.looked.set()

    async def _read_all(self) -> tuple[Mapping[str, Object], int]:
        """Return the objects of all pages, and the version of the list."""
        query, there = {"limit": _PAGE}, {}
        while True:
            path = f"/apis/{self.spec.group_versions[0]}/{self.spec.plural}"
            page = apijson.decode(_LIST, await self.transport.get(path, query=query, accept=self.accept))
            there.update({_key(kept): kept for kept in map(self.kept, page.items or ()) if kept is not None})
            following = page.metadata.get("continue")
            if not following:
                return there, int(page.metadata.get("resourceVersion") or 0)
            query = query | {"continue": str(following)}

    def _take_list(self, there: Mapping[str, Object], version: int, newest: int) -> None:
        """Take a complete list: objects that are older than the list and not in it are deleted.

        `newest` was the newest known version when the list was requested. A list is never older, unless the server
        was restored.
        """
        is_restored = 0 < version < newest
        if is_restored:
            self._gone, self._heard = {}, {}
        for key, stored in list(self._objects.items()):
            if is_restored or (key not in there and version_of(stored) <= version):
                self._remove(key)
        for obj in there.values():
            self._put(obj)
        self._gone = {uid: at for uid, at in self._gone.items() if at > version}
        versions = {obj["metadata"]["uid"]: version_of(obj) for obj in there.values()}
        self._compare(versions)
        self._heard = {uid: at for uid, at in self._heard.items() if uid in versions or at > version}
        self.changed()

    def _compare(self, versions: dict[str, int]) -> None:
        """Find out whether the watch is silent: nothing was reported since a list whose objects were not all reported."""
        now = self.clock.now()
        if now - self._listed_at < UNHEARD_S:
            return
        is_silent = self._heard_at <= self._listed_at
        if is_silent and any(self._listed.get(uid) == at > self._heard.get(uid, 0) for uid, at in versions.items()):
            self._is_deaf("changes were not reported")
        self._listed, self._listed_at = versions, now

    def _is_deaf(self, why: str) -> None:
        self.why_deaf = why
        self.deaf.set()


def version_of(obj: Object) -> int:
    """Return the version as a number: versions of one kind can be compared."""
    text = str(obj["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0


def _key(obj: Object) -> str:
    namespace = obj["metadata"].get("namespace")
    name: str = obj["metadata"]["name"]
    return f"{namespace}/{name}" if namespace else name
