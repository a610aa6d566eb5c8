"""Send writes: with a token, by priority, with a precondition, and only while this process leads.

Knows nothing of the content of writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler.api.meta import Metadata
from scheduler.core.clock import Clock
from scheduler.core.errors import Conflict, Fenced, NotFound
from scheduler.kube.rate_limit import RequestsInFlight, Throttle
from scheduler.kube.wire import JSON, Method, Query, Transport


def as_seen(metadata: Metadata) -> dict[str, object]:
    """Return the precondition that nothing was written since. Raises Conflict without a version: it would be none."""
    if not metadata.resource_version or not metadata.uid:
        raise Conflict(f"{metadata.key} has no uid or no resourceVersion that could be compared")
    return {"uid": metadata.uid, "resourceVersion": metadata.resource_version}


def the_same(metadata: Metadata) -> dict[str, object]:
    """Return the precondition of a patch or deletion that it is still this object. Raises Conflict likewise."""
    if not metadata.uid:
        raise Conflict(f"{metadata.key} has no uid that could be compared")
    return {"uid": metadata.uid}


OURS: Final = "kubestow"
FIELD_MANAGER: Final = {"fieldManager": OURS}


def always() -> bool:
    """Return True: without leader election this process always leads."""
    return True


class Sender:
    """Base of all writers.

    `may_write` is called before each request, after every wait, and by the transport when the request is sent. If it
    returns False, `Fenced` is raised and nothing is sent. Earlier requests are still awaited.
    """

    def __init__(
        self, transport: Transport, throttle: Throttle, clock: Clock, *, may_write: Callable[[], bool] = always
    ) -> None:
        self._transport = transport
        self._throttle = throttle
        self._clock = clock
        self.may_write = may_write
        self._requests_in_flight = RequestsInFlight()

    async def read(self, path: str, accept: str = JSON) -> bytes | None:
        """Read from the server's storage instead of its cache; None if the object is gone."""
        await self._throttle.take(urgent=True)
        try:
            return await self._transport.get(path, accept=accept)
        except NotFound:
            return None

    async def list_page(self, path: str, query: Query) -> bytes:
        await self._throttle.take(urgent=True)
        return await self._transport.list(path, query)

    async def send_once(
        self, method: Method, path: str, body: bytes, content_type: str = JSON, query: Query | None = FIELD_MANAGER
    ) -> bytes:
        """Send an urgent write once. After a lost answer the caller must check before it repeats the write."""
        await self._throttle.take(urgent=True)
        return await self._send_urgent(method, path, body, content_type, query)

    async def _send_urgent(
        self, method: Method, path: str, body: bytes, content_type: str = JSON, query: Query | None = None
    ) -> bytes:
        """Send an urgent write for which the caller has a token."""
        with self._requests_in_flight.urgent():
            return await self._send(method, path, body, content_type, query)

    async def _send(
        self, method: Method, path: str, body: bytes, content_type: str, query: Query | None = FIELD_MANAGER
    ) -> bytes:
        self._check_fence()
        return await self._transport.write(
            method, path, body, content_type=content_type, query=query, before_sending=self._check_fence
        )

    def _check_fence(self) -> None:
        if not self.may_write():
            raise Fenced("not sent: this process does not lead")
