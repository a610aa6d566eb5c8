"""The SchedulerProfile objects of a cluster: the requested profiles, and the status of each.

Every replica reads the objects, so that a new leader decides by the same rules. Objects of other schedulers are
ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from scheduler.api.meta import seconds
from scheduler.core.clock import Clock
from scheduler.core.errors import ApiError, Conflict, Fenced, NotFound
from scheduler.customresources.own_objects import Object, OwnObjects
from scheduler.framework.wait import settle
from scheduler.kube.resources import SCHEDULER_PROFILE
from scheduler.kube.wire import Transport
from scheduler.kube.writes.own_objects import ProfileWriter
from scheduler.profiles.reconciler import IN_FORCE, ProfileVerdict, RequestedProfile, cut

_log = structlog.get_logger(__name__)

CONDITION: Final = "InForce"
_MESSAGE_MAX: Final = 4096
_CHANGES_MAX: Final = 1024


class ProfileObjects(OwnObjects):
    """The objects named as a profile of this scheduler."""

    spec = SCHEDULER_PROFILE

    def __init__(
        self,
        transport: Transport,
        writer: ProfileWriter,
        clock: Clock,
        *,
        names: frozenset[str],
        on_requested: Callable[[Mapping[str, RequestedProfile]], None],
        verdicts: Callable[[], Mapping[str, ProfileVerdict]],
    ) -> None:
        """Create the objects.

        `on_requested` is called with all requested profiles when one has changed; `verdicts` returns the results later.
        """
        super().__init__(transport, clock)
        self.writer = writer
        self.names = names
        self.on_requested = on_requested
        self.verdicts = verdicts
        self._requested: Mapping[str, RequestedProfile] = {}

    def kept(self, obj: Object) -> Object | None:
        """Return the object if it has the name of a profile."""
        return obj if obj["metadata"]["name"] in self.names else None

    def changed(self) -> None:
        """Report the requested profiles if one has changed."""
        requested = {name: _requested_profile(obj) for name, obj in self._objects.items()}
        if requested != self._requested:
            self._requested = requested
            self.on_requested(requested)

    async def write(self) -> bool:
        """Write each status that is out of date. Returns False if a write failed."""
        untold = ""
        for name, verdict in self.verdicts().items():
            obj = self._objects.get(name)
            if obj is None or verdict.request != _requested_profile(obj) or not self.writer.may_write():
                continue
            status = self._status(verdict, obj.get("status") or {})
            if status is None:
                continue
            try:
                self._put(await settle(self.writer.write_profile_status(obj, status)))
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
            "observedGeneration": verdict.request.generation,
            "lastTransitionTime": before["lastTransitionTime"] if is_same else seconds(self.clock.wall()),
        }
        status: Object = {
            "observedGeneration": verdict.request.generation,
            "inForceGeneration": verdict.in_force or None,
            "changes": cut(verdict.changes, _CHANGES_MAX) or None,
            "conditions": [*(c for c in conditions if c.get("type") != CONDITION), condition],
        }
        return None if all(now.get(field) == value for field, value in status.items()) else status


def _requested_profile(obj: Object) -> RequestedProfile:
    metadata = obj["metadata"]
    return RequestedProfile(str(metadata.get("uid", "")), int(metadata.get("generation") or 0), obj.get("spec"))
