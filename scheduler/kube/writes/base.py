"""How writes leave: with a token, in their lane, with a precondition, and never once this process does not lead.

How requests leave: with a token, in their lane, and never once this process does not lead any more.

Knows nothing of what is written; that is in `writes` and `claimwrites`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from scheduler.api.meta import Metadata
from scheduler.core.clock import Clock
from scheduler.core.errors import Conflict, Fenced, NotFound
from scheduler.kube.rate_limit import RequestsInFlight, Throttle
from scheduler.kube.wire import JSON, MERGE, Query, Transport


def as_seen(metadata: Metadata) -> dict[str, object]:
    """Of a patch: nothing was written since.

    Raises Conflict where there is no version: an empty one in a patch would be no precondition at all.
    """
    if not metadata.resource_version or not metadata.uid:
        raise Conflict(f"{metadata.key} has no uid or no resourceVersion that could be compared")
    return {"uid": metadata.uid, "resourceVersion": metadata.resource_version}


def the_same(metadata: Metadata) -> dict[str, object]:
    """Of a patch, or of a deletion: it is still this very object, whatever was written since. Raises Conflict likewise."""
    if not metadata.uid:
        raise Conflict(f"{metadata.key} has no uid that could be compared")
    return {"uid": metadata.uid}


OURS: Final = "kubestow"
FIELD_MANAGER: Final = {"fieldManager": OURS}


def always() -> bool:
    """Nobody else could lead."""
    return True


class Sender:
    """What writers of all kinds have in common.

    `may_write` is asked before each request, after every wait for a token or for another try, and by the transport once
    more when it leaves: once it says no, `Fenced` is raised and nothing leaves. What was sent before is awaited as always.
    Writers that share a `requests_in_flight` let urgent requests of each other go first.
    """

    def __init__(
        self,
        transport: Transport,
        throttle: Throttle,
        clock: Clock,
        *,
        may_write: Callable[[], bool] = always,
        requests_in_flight: RequestsInFlight | None = None,
    ) -> None:
        self._transport = transport
        self._throttle = throttle
        self._clock = clock
        self._may_write = may_write
        self._requests_in_flight = requests_in_flight or RequestsInFlight()

    async def _read(self, path: str, accept: str = JSON) -> bytes | None:
        """From the server's storage rather than its cache; None when it is gone."""
        await self._throttle.take(urgent=True)
        try:
            return await self._transport.get(path, accept=accept)
        except NotFound:
            return None

    async def _list(self, path: str, query: Query) -> bytes:
        """One page of a list."""
        await self._throttle.take(urgent=True)
        return await self._transport.list(path, query)

    async def _patch_once(self, path: str, body: bytes, content_type: str = MERGE) -> bytes:
        """For what a pod's place waits for, and the caller must look at before it is said again."""
        return await self._once(
            lambda: self._transport.patch(
                path, body, content_type=content_type, query=FIELD_MANAGER, before_sending=self._check_fence
            )
        )

    async def _put_once(self, path: str, body: bytes, content_type: str) -> bytes:
        """As `_patch_once`, but for a connection that is lost: the second PUT of one resourceVersion is a conflict."""
        return await self._once(
            lambda: self._transport.put(
                path, body, content_type=content_type, query=FIELD_MANAGER, before_sending=self._check_fence
            )
        )

    async def _post_once(self, path: str, body: bytes) -> bytes:
        """As `_patch_once`."""
        return await self._once(
            lambda: self._transport.post(path, body, query=FIELD_MANAGER, before_sending=self._check_fence)
        )

    async def _delete_once(self, path: str, body: bytes) -> bytes:
        """As `_patch_once`, but for a connection that is lost: a DELETE twice is a DELETE."""
        return await self._once(lambda: self._transport.delete(path, body, before_sending=self._check_fence))

    async def _once(self, send: Callable[[], Awaitable[bytes]]) -> bytes:
        await self._throttle.take(urgent=True)
        self._check_fence()
        self._requests_in_flight.urgent_enters()
        try:
            return await send()
        finally:
            self._requests_in_flight.urgent_leaves()

    def may_write(self) -> bool:
        """Whether this process leads, as far as it knows."""
        return self._may_write()

    def _check_fence(self) -> None:
        if not self._may_write():
            raise Fenced("not sent: this process does not lead")
