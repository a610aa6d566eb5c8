"""The SchedulerProfile objects of a cluster: what they wish for, and what is told in their status.

Changes come from the shell as it sees them. Beside that all objects are listed once a minute, and whenever the shell began
anew: it cannot tell what was deleted while it did not look, and it may be down. Every replica takes wishes in, so that
whoever takes over decides by the same rules; only the one that leads writes. Objects of other schedulers are left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import structlog

from scheduler.api.meta import seconds
from scheduler.core import api_json as apijson
from scheduler.core.clock import Clock, done_within
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Fenced, NotFound, Unavailable
from scheduler.framework.wait import settle
from scheduler.kube.wire import Transport
from scheduler.kube.writes.profiles import PROFILES, ProfileWriter
from scheduler.profiles.reconciler import IN_FORCE, ProfileVerdict, RequestedProfile, cut

_log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 60.0
CONDITION: Final = "InForce"
_AGAIN_S: Final = 1.0
"""After a conflict or a failure, doubling to `LOOK_EVERY_S`."""
_MESSAGE_MAX: Final = 4096
_CHANGES_MAX: Final = 1024

Object = dict[str, Any]


class _List(msgspec.Struct):
    items: list[Object] = []
    metadata: Object = {}


_LIST: Final = msgspec.json.Decoder(_List)


class ProfileObjects:
    """Those with the name of a profile of ours."""

    def __init__(
        self,
        transport: Transport,
        writer: ProfileWriter,
        clock: Clock,
        *,
        names: frozenset[str],
        wish: Callable[[Mapping[str, RequestedProfile]], None],
        verdicts: Callable[[], Mapping[str, ProfileVerdict]],
    ) -> None:
        """`wish` is given all wishes when one of them has changed; what became of them is in `verdicts` later."""
        self._transport = transport
        self._writer = writer
        self._clock = clock
        self._names = names
        self._wish = wish
        self._verdicts = verdicts
        self._objects: dict[str, Object] = {}
        self._gone: dict[str, int] = {}
        """Uids of objects that were seen to go, with the version then: what is listed may be older."""
        self._wished: Mapping[str, RequestedProfile] = {}
        self._news = asyncio.Event()
        self._is_due = True
        self._untold = ""
        self._heard: dict[str, int] = {}
        """By uid, the newest version that was told of since the last `listen`."""
        self._listed: dict[str, int] = {}
        self.deaf = asyncio.Event()
        """Set once an object has been in two lists and no event told of it, or once the kind is not served any more."""
        self.why_deaf = ""
        self.unread = ""
        """Why the objects could not be listed the last time; "" if they were."""
        self.looked = asyncio.Event()
        """Set after the first look, whatever came of it; one that only has to be repeated is none."""

    def wake(self) -> None:
        """A verdict may be new, or who leads."""
        self._news.set()

    def listen(self) -> None:
        """From now on changes are told, beginning with what there is. What has gone unseen is looked for soon."""
        self._heard, self._listed = {}, {}
        self.deaf.clear()
        self._is_due = True
        self._news.set()

    async def looked_within(self, limit_s: float) -> None:
        """Wait for the first look, but no longer."""
        await done_within(self._clock, self.looked.wait(), limit_s)

    def remark(self) -> str:
        """What is wrong, in a line; "" if nothing is."""
        return "; ".join(
            filter(None, (self.unread and f"SchedulerProfiles cannot be read: {self.unread}", self._untold))
        )

    # -- what is seen ----------------------------------------------------------------------------------------------------

    def seen(self, type_: str | None, obj: Object) -> None:
        """One event of a watch, or (None) one object of a list that somebody else made."""
        name = obj["metadata"]["name"]
        if name not in self._names:
            return
        self._heard[obj["metadata"].get("uid")] = _version(obj)
        if type_ == "DELETED":
            self._delete(name, obj)
        else:
            self._put(name, obj)
        self._is_due |= type_ is None
        self._tell_wishes()
        self._news.set()

    def _put(self, name: str, obj: Object) -> None:
        """Unless something newer is known."""
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
        """All there was at the version of the list: what is older and not in it has gone.

        `newest` was known when it was asked for. A list is never older, unless the server's state was put back.
        """
        version = int(listed.metadata.get("resourceVersion") or 0)
        if 0 < version < newest:
            self._objects, self._gone, self._heard = {}, {}, {}
        there = {item["metadata"]["name"]: item for item in listed.items if item["metadata"]["name"] in self._names}
        for name, known in list(self._objects.items()):
            if name not in there and _version(known) <= version:
                del self._objects[name]
        for name, item in there.items():
            self._put(name, item)
        self._gone = {uid: at for uid, at in self._gone.items() if at > version}
        before, self._listed = self._listed, {item["metadata"]["uid"]: _version(item) for item in there.values()}
        if any(before.get(uid) == at and self._heard.get(uid, 0) < at for uid, at in self._listed.items()):
            self._is_deaf("changes were not told")
        self._tell_wishes()

    def _is_deaf(self, why: str) -> None:
        self.why_deaf = why
        self.deaf.set()

    def _tell_wishes(self) -> None:
        wishes = {name: _wish(obj) for name, obj in self._objects.items()}
        if wishes != self._wished:
            self._wished = wishes
            self._wish(wishes)

    # -- following -------------------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        """List what there is, tell what became of it; never ends, and no failure ends it."""
        pause_s, look_at = _AGAIN_S, 0.0
        while True:
            self._news.clear()
            try:
                if self._is_due or self._clock.now() >= look_at:
                    await self._list()
                    look_at = self._clock.now() + LOOK_EVERY_S
                failed = not await self._tell_all() or bool(self.unread)
            except Exception as error:  # noqa: BLE001 (an unforeseen failure costs a minute, not all changes to come)
                failed = True
                if self._untold != repr(error):
                    _log.exception("scheduler profiles could not be followed")
                self._untold = repr(error)
            pause_s = min(2 * pause_s, LOOK_EVERY_S) if failed else _AGAIN_S
            wait_s = pause_s if failed else max(0.0, look_at - self._clock.now())
            is_news = await done_within(self._clock, self._news.wait(), wait_s)
            self._is_due |= failed or not is_news

    async def _list(self) -> None:
        before, self._is_due, is_look = self.unread, False, True
        newest = max(map(_version, self._objects.values()), default=0)
        try:
            listed = apijson.decode(_LIST, await self._transport.get(PROFILES))
        except NotFound:  # the kind has gone, and with it all objects
            self.unread = ""
            self._objects.clear()
            self._tell_wishes()
            # kopf ends of it only if it had a watch: one that starts just then finds no kind and waits for ever.
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

    async def _tell_all(self) -> bool:
        """Write each status that does not say what is the case. False if that failed for one."""
        untold = ""
        for name, verdict in self._verdicts().items():
            obj = self._objects.get(name)
            if obj is None or verdict.wish != _wish(obj) or not self._writer.may_write():
                continue
            status = self._status(verdict, obj.get("status") or {})
            if status is None:
                continue
            try:
                self._put(name, await settle(self._writer.tell_profile(obj, status)))
            except Fenced:
                continue
            except (Conflict, NotFound):  # it is another one by now: to be looked at
                untold = untold or " "
            except (ApiError, msgspec.DecodeError, ValueError) as error:
                untold = f"the status of SchedulerProfile {name} cannot be written: {error}"
        if untold.strip() and untold != self._untold:
            _log.warning("scheduler profile's status not written", error=untold)
        self._untold = untold.strip()
        return not untold

    def _status(self, verdict: ProfileVerdict, now: Object) -> Object | None:
        """The fields that are ours as they should be; None if they are."""
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
            "lastTransitionTime": before["lastTransitionTime"] if is_same else seconds(self._clock.wall()),
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
    """Versions of one kind can be compared."""
    text = str(obj["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0
