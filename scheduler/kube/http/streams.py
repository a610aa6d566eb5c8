"""aiohttp for one server: watches, and all requests if there is a proxy."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from typing import Any, Final

import aiohttp
from aiohttp.connector import Connection
from multidict import CIMultiDict
from yarl import URL

from scheduler.core.errors import Unavailable
from scheduler.kube.client_config import Settings
from scheduler.kube.http.client import (
    ADDRESSES_S,
    CONNECT_S,
    REACH_S,
    UNUSED_S,
    HttpRequest,
    HttpResponse,
    LostError,
    MediaTypes,
    NotSentError,
    cannot_connect,
    headers_of,
)
from scheduler.kube.http.sockets import api_server_socket
from scheduler.kube.wire import JSON, as_it_is

_READ_BUFFER_BYTES: Final = 128 * 1024
_SKIPPED_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


_before_sending: Final[ContextVar[Callable[[], None]]] = ContextVar("before_sending", default=as_it_is)
"""Passes the callback to the request, which aiohttp creates when it has a connection."""


class _Request(aiohttp.ClientRequest):
    """Call the callback when everything is ready to send."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        _before_sending.get()()
        return await super().send(conn)


class _ConnectionLostError(aiohttp.ClientError):
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
        raise _ConnectionLostError(str(lost)) from lost


class Stream:
    """An answer that is read as it comes. Close it after use."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.retry_after = response.headers.get("Retry-After")

    async def read(self) -> bytes:
        """Return the whole body. Raises LostError."""
        try:
            return await self._response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as lost:
            raise LostError(_text(lost)) from lost

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield network chunks as they come, until the proper end. Raises Unavailable if the stream is cut or silent."""
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as lost:
            raise Unavailable(_text(lost)) from lost

    def close(self) -> None:
        """Close the connection, unless the answer has ended."""
        self._response.close()


class StreamClient:
    """`HttpClient` over one aiohttp session, which also opens streams. Create it inside the running loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._headers: dict[MediaTypes, CIMultiDict[str]] = {}
        self._timeouts: dict[tuple[float | None, float | None], aiohttp.ClientTimeout] = {}
        self._options: dict[str, Any] = {}
        self.adopt()
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                ttl_dns_cache=ADDRESSES_S,
                keepalive_timeout=UNUSED_S,
                socket_factory=api_server_socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_SKIPPED_HEADERS,
            auto_decompress=True,  # some proxies compress although no client requested it
            read_bufsize=_READ_BUFFER_BYTES,
            request_class=_Request,
        )

    async def request(self, request: HttpRequest) -> HttpResponse:
        token = _before_sending.set(request.before_sending)
        try:
            response = await self._open_session().request(
                request.method,
                self._url(request.target),
                data=request.body,
                headers=self._headers_for(request.types),
                timeout=self._timeout(request.timeout_s, None),
                allow_redirects=False,
                middlewares=() if request.body is None else (_sent_once,),
                **self._options,
            )
            # Read to the end, otherwise the connection could not be used again.
            answer = await response.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError) as no_way:
            raise NotSentError(_text(no_way)) from no_way
        except (aiohttp.ClientError, TimeoutError, OSError) as lost:
            raise LostError(_text(lost)) from lost
        finally:
            _before_sending.reset(token)
        return HttpResponse(response.status, answer, response.headers.get("Retry-After"))

    async def open(self, target: str, *, inactivity_timeout_s: float) -> Stream:
        """Return the answer to a GET as soon as it has begun. Raises NotSentError and LostError."""
        try:
            response = await self._open_session().request(
                "GET",
                self._url(target),
                headers=self._headers_for(("", JSON)),
                timeout=self._timeout(None, inactivity_timeout_s),
                allow_redirects=False,
                **self._options,
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as lost:
            raise LostError(_text(lost)) from lost
        return Stream(response)

    def adopt(self) -> None:
        """See `HttpClient`."""
        self._headers.clear()
        settings = self._settings
        options = {"ssl": settings.tls, "server_hostname": settings.tls_server_name}
        self._options = {name: value for name, value in options.items() if value is not None} | through(settings.proxy)

    async def close(self) -> None:
        """See `HttpClient`. Open streams end with LostError."""
        await self.session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        """Return the session. A write that waits for a busy server can outlive it."""
        if self.session.closed:
            raise NotSentError("not sent: the connections are closed")
        return self.session

    def _url(self, target: str) -> URL:
        return URL(self._settings.server + target, encoded=True)

    def _headers_for(self, types: MediaTypes) -> CIMultiDict[str]:
        headers = self._headers.get(types)
        if headers is None:
            headers = self._headers[types] = headers_of(self._settings, types)
        return headers

    def _timeout(self, total_s: float | None, read_s: float | None) -> aiohttp.ClientTimeout:
        timeout = self._timeouts.get((total_s, read_s))
        if timeout is None:
            timeout = aiohttp.ClientTimeout(total_s, connect=REACH_S, sock_connect=CONNECT_S, sock_read=read_s)
            self._timeouts[total_s, read_s] = timeout
        return timeout


def through(proxy: str | None) -> dict[str, Any]:
    """Return aiohttp's arguments for a proxy, with a separate password, because errors show the address."""
    if proxy is None:
        return {}
    url = URL(proxy)
    if url.user is None:
        return {"proxy": url, "proxy_headers": {}}
    secret = base64.b64encode(f"{url.user}:{url.password or ''}".encode()).decode()
    return {"proxy": url.with_user(None), "proxy_headers": {"Proxy-Authorization": f"Basic {secret}"}}


def _text(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return cannot_connect(error.host, error.port, error.certificate_error)  # type: ignore[arg-type]
    if isinstance(error, aiohttp.ClientConnectorError):
        return cannot_connect(error.host, error.port, error.os_error)
    return str(error) or type(error).__name__
