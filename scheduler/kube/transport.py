"""Bytes to and from the API server over HTTP/1.1, with credentials that are kept up to date. Knows no kind of object.

TCP sockets notice a silent peer within `NOTICED_S`. A watch only reads, so keepalive probes find a dead peer;
unacknowledged data is abandoned after the same time instead of the kernel's quarter of an hour. The peer's kernel
answers both, so a proxy that keeps a connection open without its server is only noticed by `reflector.INACTIVITY_S`.

A session with the same address, trust, proxy and credentials is lent to kopf. It is lent instead of described,
because our trust need not be files. The borrower may close it; only `transport` renews credentials.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
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
    METADATA,
    METADATA_LIST,
    Answered,
    Method,
    Query,
    Transport,
    as_it_is,
    failure,
)

_IDLE_S: Final = 10
_INTERVAL_S: Final = 5
_PROBES: Final = 2
NOTICED_S: Final = _IDLE_S + _INTERVAL_S * _PROBES
"""On an idle connection. With `TCP_USER_TIMEOUT` the kernel gives up at the first probe after it."""

_WANTED: Final = (
    ("TCP_KEEPIDLE", _IDLE_S),
    ("TCP_KEEPALIVE", _IDLE_S),  # the name on macOS
    ("TCP_KEEPINTVL", _INTERVAL_S),
    ("TCP_KEEPCNT", _PROBES),
    ("TCP_USER_TIMEOUT", 1000 * (NOTICED_S - _INTERVAL_S)),
)
OPTIONS: Final = tuple((getattr(socket, name), value) for name, value in _WANTED if hasattr(socket, name))
"""The options that this platform has."""


def api_server_socket(address: tuple[Any, ...]) -> socket.socket:
    """Return a socket for an answer of `getaddrinfo`; aiohttp's `socket_factory`."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in OPTIONS:
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


_Types: TypeAlias = tuple[str, str]
"""Content-Type ("" without a body) and Accept."""
_CONNECT_S: Final = 10.0
_REACH_S: Final = 30.0
"""For everything before a request can be sent: name, connection, proxy."""
_READ_BUFFER_BYTES: Final = 128 * 1024
_SKIPPED_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


_before_sending: Final[ContextVar[Callable[[], None]]] = ContextVar("before_sending", default=as_it_is)
"""Passes the callback to the request, which aiohttp creates when it has a connection."""


class _Request(aiohttp.ClientRequest):
    """Call the callback when everything is ready to send."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        _before_sending.get()()
        return await super().send(conn)


class _Lost(aiohttp.ClientError):
    """The connection was lost after the request was sent."""


async def _sent_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending a PUT or DELETE again after a lost connection.

    The first one may have been carried out, and the second one would then read as a conflict, or as a missing object.
    aiohttp repeats after `ClientOSError` and `ServerDisconnectedError`, and has no public option against that.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as lost:
        raise _Lost(str(lost)) from lost


class HttpTransport:
    """`Transport` over one aiohttp session. Create it inside the running loop.

    The number of connections is not limited: each watch needs one, and callers limit their writes. Credentials are
    renewed in the background once a minute while there are requests, and after a 401, which is retried once.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        on_answer: Answered = lambda *_: None,
        renewal: Renewal | None = None,
    ) -> None:
        """Create a transport. `renewal` is that of another transport with the same settings, which closes it."""
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
        """Return a transport with separate connections and the same credentials. It is closed with this one."""
        other = HttpTransport(self._settings, clock=self._clock, on_answer=self._on_answer, renewal=self._renewal)
        self._others.append(other)
        return other

    def reconnect(self) -> None:
        """Close all connections: running requests fail, and the next one opens a new connection."""
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

    async def write(
        self,
        method: Method,
        path: str,
        body: bytes,
        *,
        content_type: str = JSON,
        query: Query | None = None,
        before_sending: Callable[[], None] = as_it_is,
    ) -> bytes:
        token = _before_sending.set(before_sending)
        try:
            return await self._send(method, self._url(path, query), body, content_type=content_type)
        finally:
            _before_sending.reset(token)

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
        session, status = self._open_session(), 0
        try:
            response = await session.request(
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
        session, began, status = self._open_session(), self._clock.now(), 0
        try:
            response = await session.request(
                method,
                url,
                data=body,
                headers=self._headers_for(types),
                timeout=self._timeout(timeout_s, None),
                allow_redirects=False,
                middlewares=() if body is None else (_sent_once,),
                **self._options,
            )
            # Read to the end, otherwise the connection could not be used again.
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

    def _open_session(self) -> aiohttp.ClientSession:
        """Return the session. A write that waits for a busy server can outlive it."""
        if self._session.closed:
            raise Unavailable("not sent: the connections are closed")
        return self._session

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
        """Apply the credentials of the settings. A new TLS context needs new connections."""
        self._headers.clear()
        settings = self._settings
        options = {"ssl": settings.tls, "server_hostname": settings.tls_server_name}
        self._options = {name: value for name, value in options.items() if value is not None} | through(settings.proxy)

    def _take_over_credentials(self) -> None:
        """Apply the credentials of the last renewal before a request, and start a due renewal without waiting."""
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
        auto_decompress=True,  # some proxies compress although no client requested it
        read_bufsize=_READ_BUFFER_BYTES,
        request_class=_Request,
    )


def through(proxy: str | None) -> dict[str, Any]:
    """Return aiohttp's arguments for a proxy, with a separate password, because errors show the address."""
    if proxy is None:
        return {}
    url = URL(proxy)
    if url.user is None:
        return {"proxy": url, "proxy_headers": {}}
    secret = base64.b64encode(f"{url.user}:{url.password or ''}".encode()).decode()
    return {"proxy": url.with_user(None), "proxy_headers": {"Proxy-Authorization": f"Basic {secret}"}}


async def _chunks(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, TimeoutError, OSError) as lost:
        raise Unavailable(_text(lost)) from lost


def _text(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(
        error, aiohttp.ClientConnectorCertificateError
    ):  # its text would contain a memory address
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error.os_error
        return f"cannot connect to {error.host}:{error.port}: {why}"
    return str(error) or type(error).__name__


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
        """Close all lent sessions."""
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
