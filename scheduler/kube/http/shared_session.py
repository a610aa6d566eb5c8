"""A session with the address, trust, proxy and credentials of a transport, lent to kopf.

It is lent instead of described, because our trust need not be files. The borrower may close it; only `transport` renews
credentials.
"""

from __future__ import annotations

from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from scheduler.core.errors import ApiError
from scheduler.kube.client_config import Settings
from scheduler.kube.http.sockets import api_server_socket
from scheduler.kube.http.streams import through
from scheduler.kube.wire import METADATA, METADATA_LIST, Transport


class _LentResponse(aiohttp.ClientResponse):
    """A response without a null list: for the metadata of no objects the server sends `items: null`."""

    async def json(self, **more: Any) -> Any:
        found = await super().json(**more)
        if isinstance(found, dict) and found.get("items", ()) is None:
            found["items"] = []
        return found


class SharedSession:
    """A lent session; one per borrower."""

    def __init__(self, settings: Settings, transport: Transport, *, metadata_of: tuple[str, ...] = ()) -> None:
        """Create the lender. The transport keeps `settings` up to date.

        Lists and watches of paths with these ends request only the metadata of the objects.
        """
        self.server = settings.server
        self._settings = settings
        self._transport = transport
        self._metadata_of = metadata_of
        self._lent: tuple[object, ...] | None = None
        self._sessions: list[aiohttp.ClientSession] = []

    async def session(self) -> aiohttp.ClientSession | None:
        """Return a session with the current credentials; None if the same ones were lent before and were refused.

        Call it once, and again when the lent session has been refused.
        """
        if self._lent is not None:
            try:
                await self._transport.get("/version")  # if it is refused as well, the transport renews its credentials
            except ApiError:
                return None
        now = (self._settings.authorization, self._settings.tls)
        if now == self._lent:
            return None
        self._lent = now
        self._sessions = [each for each in self._sessions if not each.closed]
        self._sessions.append(self._made())
        return self._sessions[-1]

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()

    def _made(self) -> aiohttp.ClientSession:
        settings, metadata_of = self._settings, self._metadata_of
        way = through(settings.proxy)

        class Ours(aiohttp.ClientRequest):
            """A request with our trust at the time of its creation: an authority may be replaced at any time.

            A proxy does not get the headers of the session, because they contain the token.
            """

            def __init__(self, method: str, url: URL, **more: Any) -> None:
                if url.path.endswith(metadata_of):
                    more["headers"] = CIMultiDict(more["headers"] or {})
                    more["headers"]["Accept"] = METADATA if "watch" in url.query else METADATA_LIST
                headers = {
                    "ssl": settings.tls if settings.tls is not None else True,
                    "server_hostname": settings.tls_server_name,
                    "proxy_headers": way.get("proxy_headers"),
                }
                super().__init__(method, url, **more | headers)

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=api_server_socket),
            headers=settings.headers(),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=way.get("proxy"),
            request_class=Ours,
            response_class=_LentResponse,
        )
