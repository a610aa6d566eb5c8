"""Our way to the API server, lent to a client that we do not run: the same address, trust, proxy and credentials.

A session is lent rather than described, for what we trust need not be files, and is not in the words of that client. The
borrower may close it. Credentials are renewed by `transport` alone.
"""

from __future__ import annotations

from typing import Any

import aiohttp

from scheduler.core.errors import ApiError
from scheduler.kube.credentials import Settings
from scheduler.kube.sockets import api_server_socket
from scheduler.kube.transport import through
from scheduler.kube.wire import Transport


class Lender:
    """One per borrower."""

    def __init__(self, settings: Settings, transport: Transport) -> None:
        """`settings` are those that the transport keeps up to date."""
        self._settings = settings
        self._transport = transport
        self._lent: tuple[object, ...] | None = None
        self._sessions: list[aiohttp.ClientSession] = []

    @property
    def server(self) -> str:
        """The address."""
        return self._settings.server

    async def session(self) -> aiohttp.ClientSession | None:
        """A session with the credentials of this moment; None if the same were lent before and are of no use.

        To be asked for once, and again when what was lent has been refused.
        """
        if self._lent is not None:
            try:
                await self._transport.get("/version")  # refused as well, the transport renews what it has
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
        """All that was lent and is not closed yet."""
        for session in self._sessions:
            await session.close()

    def _made(self) -> aiohttp.ClientSession:
        settings = self._settings
        way = through(settings.proxy)

        class Ours(aiohttp.ClientRequest):
            """Trusts whom we trust when it is made, by the name that we know: an authority may be replaced meanwhile.

            A proxy is not told what a session tells each server: the token is among that.
            """

            def __init__(self, *args: Any, **more: Any) -> None:
                told = {
                    "ssl": settings.tls if settings.tls is not None else True,
                    "server_hostname": settings.tls_server_name,
                    "proxy_headers": way.get("proxy_headers"),
                }
                super().__init__(*args, **more | told)

        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=api_server_socket),
            headers=settings.headers(),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=way.get("proxy"),
            request_class=Ours,
        )
