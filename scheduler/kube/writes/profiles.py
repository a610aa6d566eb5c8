"""Write the status of SchedulerProfile objects; `api_writer.PROFILE_RULES` is its permission.

Each write is sent once: after a lost answer the caller reads the object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from scheduler.core.errors import Conflict
from scheduler.kube.resources import SCHEDULER_PROFILE
from scheduler.kube.wire import MERGE
from scheduler.kube.writes.base import FIELD_MANAGER, Sender

PROFILES: Final = f"/apis/{SCHEDULER_PROFILE.group_versions[0]}/{SCHEDULER_PROFILE.plural}"
_encode: Final = msgspec.json.Encoder().encode


class ProfileWriter(Sender):
    """Writes that give way to bindings and evictions."""

    async def write_profile_status(self, seen: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
        """Set these fields of the object's status; return the object.

        Precondition: no write since `seen`; `Conflict` otherwise, `NotFound` if it is gone. Never repeated here.
        """
        metadata = seen["metadata"]
        before = {"uid": metadata.get("uid"), "resourceVersion": metadata.get("resourceVersion")}
        if not all(before.values()):
            raise Conflict(f"SchedulerProfile {metadata['name']} has no uid or no resourceVersion to be compared")
        path = f"{PROFILES}/{quote(metadata['name'], safe='')}/status"
        body = _encode({"metadata": before, "status": status})
        await self._throttle.take()
        self._check_fence()
        answer = await self._transport.patch(
            path, body, content_type=MERGE, query=FIELD_MANAGER, before_sending=self._check_fence
        )
        return msgspec.json.decode(answer, type=dict[str, Any])
