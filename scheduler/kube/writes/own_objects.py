"""The statuses of our own objects, and the reads that an answer needs. `api_writer` has the permissions.

A status is written after bindings and evictions, because no pod waits for it. The precondition is that nothing was
written since the object was read. A write is never repeated here: after a conflict or a lost answer the caller reads
the object and decides again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from scheduler.core.errors import Conflict, NotFound
from scheduler.kube.resources import SCHEDULER_PROFILE, WHAT_IF
from scheduler.kube.wire import MERGE
from scheduler.kube.writes.base import Sender

PROFILES: Final = f"/apis/{SCHEDULER_PROFILE.group_versions[0]}/{SCHEDULER_PROFILE.plural}"
WHAT_IFS: Final = f"/apis/{WHAT_IF.group_versions[0]}"
REFERENCES: Final[Mapping[str, tuple[str, str]]] = {
    "Deployment": ("apps/v1", "deployments"),
    "Job": ("batch/v1", "jobs"),
    "Pod": ("v1", "pods"),
    "ReplicaSet": ("apps/v1", "replicasets"),
    "StatefulSet": ("apps/v1", "statefulsets"),
}
"""The kinds that a WhatIf may refer to: API version and plural."""

_encode: Final = msgspec.json.Encoder().encode


class _StatusWriter(Sender):
    """Write the status of an object as it was seen."""

    async def _write_status(self, kind: str, path: str, seen: Mapping[str, Any], status: Mapping[str, Any]) -> bytes:
        metadata = seen["metadata"]
        before = {"uid": metadata.get("uid"), "resourceVersion": metadata.get("resourceVersion")}
        if not all(before.values()):
            raise Conflict(f"{kind} {metadata['name']} has no uid or no resourceVersion to be compared")
        await self._throttle.take()
        return await self._send("PATCH", f"{path}/status", _encode({"metadata": before, "status": status}), MERGE)


class ProfileWriter(_StatusWriter):
    """Write the status of SchedulerProfile objects. `PROFILE_RULES` is its permission."""

    async def write_profile_status(self, seen: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
        """Set these fields of the object's status; return the object.

        Precondition: no write since `seen`; `Conflict` otherwise, `NotFound` if it is gone.
        """
        path = f"{PROFILES}/{quote(seen['metadata']['name'], safe='')}"
        answer = await self._write_status(SCHEDULER_PROFILE.name, path, seen, status)
        return msgspec.json.decode(answer, type=dict[str, Any])


class WhatIfWriter(_StatusWriter):
    """Read WhatIf objects and what they refer to, and write their status. `WHAT_IF_RULES` is its permission."""

    async def read_what_if(self, namespace: str, name: str) -> bytes | None:
        """Return the object as the server has it; None if it is gone."""
        return await self._read_late(_what_if_path(namespace, name))

    async def read_reference(self, kind: str, namespace: str, name: str) -> bytes | None:
        """Return a workload or pod; None if there is none. `kind` is a key of `REFERENCES`."""
        version, plural = REFERENCES[kind]
        root = "/apis" if "/" in version else "/api"
        return await self._read_late(
            f"{root}/{version}/namespaces/{quote(namespace, safe='')}/{plural}/{quote(name, safe='')}"
        )

    async def write_what_if_status(self, seen: Mapping[str, Any], status: Mapping[str, Any]) -> bytes:
        """Set these fields of the object's status; None removes one. Return the object.

        Precondition: no write since `seen`; `Conflict` otherwise, `NotFound` if it is gone.
        """
        path = _what_if_path(seen["metadata"]["namespace"], seen["metadata"]["name"])
        return await self._write_status(WHAT_IF.name, path, seen, status)

    async def _read_late(self, path: str) -> bytes | None:
        """Read after bindings and evictions."""
        await self._throttle.take()
        try:
            return await self._transport.get(path)
        except NotFound:
            return None


def _what_if_path(namespace: str, name: str) -> str:
    return f"{WHAT_IFS}/namespaces/{quote(namespace, safe='')}/{WHAT_IF.plural}/{quote(name, safe='')}"
