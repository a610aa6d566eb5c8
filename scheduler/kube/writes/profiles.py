"""What is told in the status of SchedulerProfile objects; `writes.PROFILE_RULES` is its permission.

Sent once: whoever must know what became of a lost answer reads the object.
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
    """Goes behind bindings and evictions: nothing waits for it."""

    async def tell_profile(self, seen: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
        """Set these fields of the object's status; the object as it is then.

        Precondition: nothing was written since `seen`; `Conflict` otherwise, and `NotFound` when it is gone. Never
        repeated here.
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
