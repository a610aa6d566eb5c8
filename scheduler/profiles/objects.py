"""The SchedulerProfile objects of a cluster: the requested profiles, and the status of each.

Changes come from the kopf watch. All objects are also listed once a minute and after each start of kopf, because kopf
cannot report deletions that it missed, and may be down. Every replica reads the objects, so that a new leader decides
by the same rules. Only the leader writes. Objects of other schedulers are ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from scheduler.api.meta import seconds
from scheduler.core import api_json as apijson
from scheduler.core.clock import Clock, done_within
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Fenced, NotFound, Unavailable
from scheduler.core.retry import Backoff
from scheduler.framework.wait import settle
from scheduler.kube.wire import Transport
from scheduler.kube.writes.api_writer import PROFILES, ProfileWriter
from scheduler.profiles.reconciler import IN_FORCE, ProfileVerdict, RequestedProfile, cut

_log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 60.0
CONDITION: Final = "InForce"
_AGAIN_S: Final = 1.0
"""Pause after a conflict or a failure, doubling to `LOOK_EVERY_S`."""
_MESSAGE_MAX: Final = 4096
_CHANGES_MAX: Final = 1024

Object = dict[str, Any]


class _List(msgspec.Struct):
    items: list[Object] = []
    metadata: Object = {}


_LIST: Final = msgspec.json.Decoder(_List)


@dataclass(eq=False, repr=False)
class ProfileObjects:
    """The objects named as a profile of this scheduler."""

    transport: Transport
    writer: ProfileWriter
    clock: Clock
    names: frozenset[str]
    wish: Callable[[Mapping[str, RequestedProfile]], None]
    """Called with all requested profiles when one has changed."""
    verdicts: Callable[[], Mapping[str, ProfileVerdict]]
    """Returns the results later."""

    def __post_init__(self) -> None:
        self._objects: dict[str, Object] = {}
        self._gone: dict[str, int] = {}
        """Uids of objects that were deleted, with the version at that time: a list may be older."""
        self._wished: Mapping[str, RequestedProfile] = {}
        self._news = asyncio.Event()
        self._is_due = True
        self._untold = ""
        self._heard: dict[str, int] = {}
        """The newest version that was reported since the last `listen`, by uid."""
        self._listed: dict[str, int] = {}
        self.deaf = asyncio.Event()
        """Set once an object was in two lists without an event, or once the kind is no longer served."""
        self.why_deaf = ""
        self.unread = ""
        """Why the objects could not be listed the last time; "" if they were."""
        self.looked = asyncio.Event()
        """Set after the first list, whether it succeeded or failed; a list that is only repeated does not count."""

    def wake(self) -> None:
        """Write statuses again: a result or the leader may have changed."""
        self._news.set()

    def listen(self) -> None:
        """Begin to record reported changes, and list the objects soon, to find missed ones."""
        self._heard, self._listed = {}, {}
        self.deaf.clear()
        self._is_due = True
        self._news.set()

    def remark(self) -> str:
        """Return the problem in one line; "" if there is none."""
        return "; ".join(
            filter(None, (self.unread and f"SchedulerProfiles cannot be read: {self.unread}", self._untold))
        )

    # -- what is seen ----------------------------------------------------------------------------------------------------

    def seen(self, type_: str | None, obj: Object) -> None:
        """Take one event of a watch, or one object of another component's list (None)."""
        name = obj["metadata"]["name"]
        if name not in self.names:
            return
        self._heard[obj["metadata"].get("uid")] = _version(obj)
        if type_ == "DELETED":
            self._delete(name, obj)
        else:
            self._put(name, obj)
        self._is_due |= type_ is None
        self._report_wishes()
        self._news.set()

    def _put(self, name: str, obj: Object) -> None:
        """Store the object unless a newer one is known."""
        known, uid = self._objects.get(name), obj["metadata"].get("uid")
        if uid in self._gone or (known is not None and _version(obj) < _version(known)):
            return
        self._objects[name] = obj

    def _delete(self, name: str, obj: Object) -> None:
        uid = obj["metadata"].get("uid")
        self._gone[uid] = _version(obj)
        if self._objects.get(name, {}).get("metadata", {}).get("uid") == uid:
            del self._objects[name]

    def _take_list(self, listed: _List, newest: int) -> None:
        """Take a complete list: objects that are older than the list and not in it are deleted.

        `newest` was the newest known version when the list was requested. A list is never older, unless the server
        was restored.
        """
        version = int(listed.metadata.get("resourceVersion") or 0)
        if 0 < version < newest:
            self._objects, self._gone, self._heard = {}, {}, {}
        there = {item["metadata"]["name"]: item for item in listed.items if item["metadata"]["name"] in self.names}
        for name, known in list(self._objects.items()):
            if name not in there and _version(known) <= version:
                del self._objects[name]
        for name, item in there.items():
            self._put(name, item)
        self._gone = {uid: at for uid, at in self._gone.items() if at > version}
        before, self._listed = self._listed, {item["metadata"]["uid"]: _version(item) for item in there.values()}
        if any(before.get(uid) == at and self._heard.get(uid, 0) < at for uid, at in self._listed.items()):
            self._is_deaf("changes were not reported")
        self._report_wishes()

    def _is_deaf(self, why: str) -> None:
        self.why_deaf = why
        self.deaf.set()

    def _report_wishes(self) -> None:
        wishes = {name: _wish(obj) for name, obj in self._objects.items()}
        if wishes != self._wished:
            self._wished = wishes
            self.wish(wishes)

    # -- following -------------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """List the objects and write statuses. Never returns and never raises."""
        backoff, look_at = Backoff(self.clock, first_s=2 * _AGAIN_S, longest_s=LOOK_EVERY_S), 0.0
        while True:
            self._news.clear()
            try:
                if self._is_due or self.clock.now() >= look_at:
                    await self._list()
                    look_at = self.clock.now() + LOOK_EVERY_S
                failed = not await self._write_statuses() or bool(self.unread)
            except Exception as error:  # noqa: BLE001 (an unforeseen failure costs a minute, not all changes to come)
                failed = True
                if self._untold != repr(error):
                    _log.exception("scheduler profiles could not be followed")
                self._untold = repr(error)
            if not failed:
                backoff.reset()
            wait_s = backoff.next_s() if failed else max(0.0, look_at - self.clock.now())
            is_news = await done_within(self.clock, self._news.wait(), wait_s)
            self._is_due |= failed or not is_news

    async def _list(self) -> None:
        before, self._is_due, is_look = self.unread, False, True
        newest = max(map(_version, self._objects.values()), default=0)
        try:
            listed = apijson.decode(_LIST, await self.transport.get(PROFILES))
        except NotFound:  # the kind is deleted, and with it all objects
            self.unread = ""
            self._objects.clear()
            self._report_wishes()
            # Without an existing watch kopf does not end here: it would wait forever for a kind that it does not
            # find.
            self._is_deaf("the kind is not served any more")
        except ApiError as error:
            self.unread, is_look = error.message, not isinstance(error, (Unavailable, Ambiguous))
        except (msgspec.DecodeError, ValueError) as error:
            self.unread = str(error)
        else:
            self.unread = ""
            self._take_list(listed, newest)
        if self.unread and self.unread != before:
            _log.warning("scheduler profiles could not be read", error=self.unread)
        if is_look:
            self.looked.set()

    # -- telling ---------------------------------------------------------------------------------------------------------

    async def _write_statuses(self) -> bool:
        """Write each status that is out of date. Returns False if a write failed."""
        untold = ""
        for name, verdict in self.verdicts().items():
            obj = self._objects.get(name)
            if obj is None or verdict.wish != _wish(obj) or not self.writer.may_write():
                continue
            status = self._status(verdict, obj.get("status") or {})
            if status is None:
                continue
            try:
                self._put(name, await settle(self.writer.write_profile_status(obj, status)))
            except Fenced:
                continue
            except (Conflict, NotFound):  # the object has changed and is read again
                untold = untold or " "
            except (ApiError, msgspec.DecodeError, ValueError) as error:
                untold = f"the status of SchedulerProfile {name} cannot be written: {error}"
        if untold.strip() and untold != self._untold:
            _log.warning("scheduler profile's status not written", error=untold)
        self._untold = untold.strip()
        return not untold

    def _status(self, verdict: ProfileVerdict, now: Object) -> Object | None:
        """Return our fields of the status; None if they are up to date."""
        conditions = [c for c in now.get("conditions") or [] if isinstance(c, dict)]
        before = next((c for c in conditions if c.get("type") == CONDITION), {})
        state = "True" if verdict.reason == IN_FORCE else "False"
        is_same = before.get("status") == state and before.get("lastTransitionTime")
        condition = {
            "type": CONDITION,
            "status": state,
            "reason": verdict.reason,
            "message": cut(verdict.message, _MESSAGE_MAX),
            "observedGeneration": verdict.wish.generation,
            "lastTransitionTime": before["lastTransitionTime"] if is_same else seconds(self.clock.wall()),
        }
        status: Object = {
            "observedGeneration": verdict.wish.generation,
            "inForceGeneration": verdict.in_force or None,
            "changes": cut(verdict.changes, _CHANGES_MAX) or None,
            "conditions": [*(c for c in conditions if c.get("type") != CONDITION), condition],
        }
        return None if all(now.get(field) == value for field, value in status.items()) else status


def _wish(obj: Object) -> RequestedProfile:
    metadata = obj["metadata"]
    return RequestedProfile(str(metadata.get("uid", "")), int(metadata.get("generation") or 0), obj.get("spec"))


def _version(obj: Object) -> int:
    """Return the version as a number: versions of one kind can be compared."""
    text = str(obj["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0
