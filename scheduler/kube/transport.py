"""Bytes to and from the API server over HTTP/1.1.

TCP sockets to the API server on which a peer that has gone silently is noticed within `NOTICED_S`.

A watch only reads, so only keepalive probes tell whether its peer is still there. Data that was sent and not acknowledged is
given up after the same time instead of the kernel's quarter of an hour. Both are answered by the kernel of the peer: a proxy
that keeps a connection open although its own server is gone is not noticed by them (`reflector.INACTIVITY_S` is).

Bytes to and from the API server over HTTP/1.1, with the `credentials` that it keeps up to date. Knows no kind of object.

Our way to the API server, lent to a client that we do not run: the same address, trust, proxy and credentials.

A session is lent rather than described, for what we trust need not be files, and is not in the words of that client. The
borrower may close it. Credentials are renewed by `transport` alone.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode, urlsplit

import aiohttp
from aiohttp.connector import Connection
from multidict import CIMultiDict
from yarl import URL

from scheduler.core.clock import Clock, SystemClock
from scheduler.core.errors import Ambiguous, ApiError, Unauthorized, Unavailable
from scheduler.kube.client_config import Renewal, Settings
from scheduler.kube.wire import (
    DEFAULT_TIMEOUT_S,
    JSON,
    LIST_TIMEOUT_S,
    Answered,
    Query,
    Transport,
    as_it_is,
    failure,
    nobody_counts,
)

_IDLE_S: Final = 10
_INTERVAL_S: Final = 5
_PROBES: Final = 2
NOTICED_S: Final = _IDLE_S + _INTERVAL_S * _PROBES
"""Of a quiet connection. Where `TCP_USER_TIMEOUT` is known, the kernel gives up with the first probe behind it."""

_WANTED: Final = (
    ("TCP_KEEPIDLE", _IDLE_S),
    ("TCP_KEEPALIVE", _IDLE_S),  # macOS' name of it
    ("TCP_KEEPINTVL", _INTERVAL_S),
    ("TCP_KEEPCNT", _PROBES),
    ("TCP_USER_TIMEOUT", 1000 * (NOTICED_S - _INTERVAL_S)),
)
OPTIONS: Final = tuple((getattr(socket, name), value) for name, value in _WANTED if hasattr(socket, name))
"""Those that this platform has."""


def api_server_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket for what `getaddrinfo` answered; aiohttp's `socket_factory`."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in OPTIONS:
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


__all__ = ["HttpTransport", "Transport"]


_Types: TypeAlias = tuple[str, str]
"""Content-Type, "" without a body, and Accept."""
_CONNECT_S: Final = 10.0
_REACH_S: Final = 30.0
"""For all that comes before a request can be sent: a name, a connection, whatever a proxy wants."""
_READ_BUFFER_BYTES: Final = 128 * 1024
_SKIPPED_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


_before_sending: Final[ContextVar[Callable[[], None]]] = ContextVar("before_sending", default=as_it_is)
"""How the question reaches the request: aiohttp makes that, and says nothing when it has found a connection."""


class _Request(aiohttp.ClientRequest):
    """Asks when everything is there that is needed to send it."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        _before_sending.get()()
        return await super().send(conn)


class HttpTransport:
    """`Transport` over one aiohttp session. Make it inside the running loop.

    Connections are not limited here: each watch pins one, and callers bound their writes. Credentials are renewed in the
    background once a minute, as long as there are requests, and after a 401, which is retried once.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        on_answer: Answered = nobody_counts,
        renewal: Renewal | None = None,
    ) -> None:
        """`renewal` is that of another transport with the same settings, which ends it."""
        self._settings = settings
        self._clock = clock or SystemClock()
        self._on_answer = on_answer
        self._host = urlsplit(settings.server).netloc
        self._lent_renewal = renewal
        self._renewal = renewal or Renewal(settings, self._clock)
        self._adopted = self._renewal.count
        self._others: list[HttpTransport] = []
        self._closing: set[asyncio.Future[None]] = set()
        self._headers: dict[_Types, CIMultiDict[str]] = {}
        self._timeouts: dict[tuple[float | None, float | None], aiohttp.ClientTimeout] = {}
        self._options: dict[str, Any] = {}
        self._adopt()
        self._session = _new_session()

    def apart(self) -> HttpTransport:
        """Return a transport with connections of its own and the same credentials. It is closed with this one."""
        other = HttpTransport(self._settings, clock=self._clock, on_answer=self._on_answer, renewal=self._renewal)
        self._others.append(other)
        return other

    def reconnect(self) -> None:
        """Close all connections: what is under way on them fails, and the next request opens a new one."""
        closing = asyncio.ensure_future(self._session.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        self._session = _new_session()

    async def get(
        self, path: str, *, query: Query | None = None, timeout_s: float = DEFAULT_TIMEOUT_S, accept: str = JSON
    ) -> bytes:
        return await self._send("GET", self._url(path, query), timeout_s=timeout_s, accept=accept)

    async def list(self, path: str, query: Query) -> bytes:
        return await self._send("GET", self._url(path, query), timeout_s=LIST_TIMEOUT_S)

    async def post(
        self, path: str, body: bytes, *, query: Query | None = None, before_sending: Callable[[], None] = as_it_is
    ) -> bytes:
        with _asked(before_sending):
            return await self._send("POST", self._url(path, query), body, content_type="application/json")

    async def patch(
        self,
        path: str,
        body: bytes,
        *,
        content_type: str,
        query: Query | None = None,
        before_sending: Callable[[], None] = as_it_is,
    ) -> bytes:
        with _asked(before_sending):
            return await self._send("PATCH", self._url(path, query), body, content_type=content_type)

    async def put(
        self,
        path: str,
        body: bytes,
        *,
        content_type: str,
        query: Query | None = None,
        before_sending: Callable[[], None] = as_it_is,
    ) -> bytes:
        with _asked(before_sending):
            return await self._send("PUT", self._url(path, query), body, content_type=content_type)

    async def delete(self, path: str, body: bytes, *, before_sending: Callable[[], None] = as_it_is) -> bytes:
        with _asked(before_sending):
            return await self._send("DELETE", self._url(path, None), body, content_type="application/json")

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, query: Query, *, inactivity_timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        url = self._url(path, query)
        timeout = self._timeout(None, inactivity_timeout_s)
        try:
            response = await self._open(url, timeout)
        except Unauthorized:
            if not await self._renewal.after_refusal():
                raise
            response = await self._open(url, timeout)
        try:
            async with contextlib.aclosing(_chunks(response)) as chunks:
                yield chunks
        finally:
            response.close()

    async def close(self) -> None:
        for other in self._others:
            await other.close()
        if self._lent_renewal is None:
            await self._renewal.close()
        await asyncio.gather(self._session.close(), *self._closing)

    async def _open(self, url: URL, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        self._take_over_credentials()
        status = 0
        try:
            response = await self._session.request(
                "GET",
                url,
                headers=self._headers_for(("", JSON)),
                timeout=timeout,
                allow_redirects=False,
                **self._options,
            )
            status = response.status
            if 200 <= status < 300:
                return response
            body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as lost:
            raise Unavailable(_text(lost)) from lost
        finally:
            self._on_answer("GET", self._host, status, None)
        raise failure(response.status, body, retry_after=response.headers.get("Retry-After"))

    async def _send(
        self,
        method: str,
        url: URL,
        body: bytes | None = None,
        *,
        content_type: str = "",
        accept: str = JSON,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> bytes:
        types = content_type, accept
        try:
            return await self._once(method, url, body, types=types, timeout_s=timeout_s)
        except Unauthorized:
            if not await self._renewal.after_refusal():
                raise
            return await self._once(method, url, body, types=types, timeout_s=timeout_s)

    async def _once(self, method: str, url: URL, body: bytes | None, *, types: _Types, timeout_s: float) -> bytes:
        self._take_over_credentials()
        began, status = self._clock.now(), 0
        try:
            response = await self._session.request(
                method,
                url,
                data=body,
                headers=self._headers_for(types),
                timeout=self._timeout(timeout_s, None),
                allow_redirects=False,
                **self._options,
            )
            # Read to the end, or the connection could not be used again.
            answer = await response.read()
            status = response.status
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError) as no_way:
            raise Unavailable(_text(no_way)) from no_way
        except (aiohttp.ClientError, TimeoutError, OSError) as lost:
            raise (Unavailable if body is None else Ambiguous)(_text(lost)) from lost
        finally:
            self._on_answer(method, self._host, status, self._clock.now() - began)
        if 200 <= response.status < 300:
            return answer
        retry_after = response.headers.get("Retry-After")
        raise failure(response.status, answer, retry_after=retry_after, is_write=body is not None)

    # -- what a request is made of, prepared once ------------------------------------------------------------------

    def _url(self, path: str, query: Query | None) -> URL:
        text = f"{self._settings.server}{path}?{urlencode(query)}" if query else self._settings.server + path
        return URL(text, encoded=True)

    def _headers_for(self, types: _Types) -> CIMultiDict[str]:
        headers = self._headers.get(types)
        if headers is None:
            headers = self._headers[types] = self._settings.headers()
            content_type, headers["Accept"] = types
            if content_type:
                headers["Content-Type"] = content_type
        return headers

    def _timeout(self, total_s: float | None, read_s: float | None) -> aiohttp.ClientTimeout:
        timeout = self._timeouts.get((total_s, read_s))
        if timeout is None:
            timeout = aiohttp.ClientTimeout(total_s, connect=_REACH_S, sock_connect=_CONNECT_S, sock_read=read_s)
            self._timeouts[total_s, read_s] = timeout
        return timeout

    # -- credentials -----------------------------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Put the settings' credentials into what requests are made of. A new TLS context means new connections."""
        self._headers.clear()
        settings = self._settings
        options = {"ssl": settings.tls, "server_hostname": settings.tls_server_name}
        self._options = {name: value for name, value in options.items() if value is not None} | through(settings.proxy)

    def _take_over_credentials(self) -> None:
        """Before each request: those of the last renewal; the next one begins when it is due, and is not waited for."""
        self._renewal.start_if_due()
        if self._adopted != self._renewal.count:
            self._adopted = self._renewal.count
            self._adopt()


def _new_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0, ttl_dns_cache=60, keepalive_timeout=30.0, socket_factory=api_server_socket
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_SKIPPED_HEADERS,
        auto_decompress=True,  # some proxies compress although no client asked for it
        read_bufsize=_READ_BUFFER_BYTES,
        request_class=_Request,
    )


def through(proxy: str | None) -> dict[str, Any]:
    """What aiohttp is told of a proxy: its address and the password apart, for errors show the address to everybody."""
    if proxy is None:
        return {}
    url = URL(proxy)
    if url.user is None:
        return {"proxy": url, "proxy_headers": {}}
    secret = base64.b64encode(f"{url.user}:{url.password or ''}".encode()).decode()
    return {"proxy": url.with_user(None), "proxy_headers": {"Proxy-Authorization": f"Basic {secret}"}}


@contextlib.contextmanager
def _asked(before_sending: Callable[[], None]) -> Iterator[None]:
    token = _before_sending.set(before_sending)
    try:
        yield
    finally:
        _before_sending.reset(token)


async def _chunks(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, TimeoutError, OSError) as lost:
        raise Unavailable(_text(lost)) from lost


def _text(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(
        error, aiohttp.ClientConnectorCertificateError
    ):  # its own text shows where our TLS context is in memory
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error.os_error
        return f"cannot connect to {error.host}:{error.port}: {why}"
    return str(error) or type(error).__name__


class SharedSession:
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
