"""Many short requests to one server over kept connections: HTTP/1.1 and nothing else.

A general HTTP client took more than half of the CPU time of a pod. This one does only what the requests of a scheduler
need (ADR 0020). httptools parses the answers; it is strict. The way of a request:

    take the connection that was used last, or wait for one:
    of another request, or a new one                        NotSentError until here
    before_sending()
    write head and body in one piece
    wait for the answer: head, body, end                    LostError from here on
    keep the connection, unless the answer ends it

A connection has one request at a time. If its request ends in any other way than by a whole answer, it is closed: the
rest of the answer must not be read as the answer to the next request.
"""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import ssl
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import aiohappyeyeballs
import httptools
from yarl import URL

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
from scheduler.kube.http.resumption import remember
from scheduler.kube.http.sockets import api_server_socket

_LARGEST_HEAD_BYTES: Final = 64 * 1024
_SECOND_ADDRESS_AFTER_S: Final = 0.25
_OPENING: Final = 4
"""The largest number of connections that are being opened at the same time."""
_FIRST_FINAL_STATUS: Final = 200
_UNESCAPED: Final = re.compile(r"[^!-~]")


class _Server(NamedTuple):
    """What a connection depends on. A connection to another one is not kept."""

    url: str
    tls: ssl.SSLContext | None
    tls_server_name: str | None


class _ClosedBeforeAnswerError(LostError):
    """A connection that had been kept was closed before the first byte of an answer."""


class _Connection(asyncio.Protocol):
    """One connection. The event loop calls it, and so does the parser, with the parts of an answer."""

    def __init__(self, client: Http1Client, server: _Server) -> None:
        self.server = server
        self._client = client
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._answer: asyncio.Future[HttpResponse] | None = None
        """That of the request under way."""
        self._head: dict[bytes, bytes] = {}
        self._head_size_bytes = 0
        """Of a head that is not complete."""
        self._body: list[bytes] | None = None
        """The parts so far; None before the head is complete."""
        self._is_kept = False
        """Whether there was an answer on this connection already."""
        self.is_open = False
        self.unused_since_s = 0.0

    async def exchange(self, request: bytes, before_sending: Callable[[], None]) -> HttpResponse:
        """Send a request and return its answer. Raises NotSentError, LostError, and whatever `before_sending` raises."""
        try:
            before_sending()
        except BaseException:
            self._client.keep(self)
            raise
        if not self.is_open:  # it was closed while `before_sending` ran, or before the caller had it
            raise NotSentError("not sent: the connection was closed")
        answer: asyncio.Future[HttpResponse] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._transport.write(request)
        try:
            return await answer
        finally:
            if self._answer is answer:  # cancelled
                self.abort("cancelled")

    def abort(self, why: str) -> None:
        """Close the connection at once and fail the request under way."""
        if self.is_open:
            self._transport.abort()
        self._end(LostError(why))

    # -- called by the event loop --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # such as a 408 of a load balancer, just before it closes an unused connection
            self.abort("the server sent bytes that belong to no request")
            return
        if self._body is None:
            self._head_size_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.abort(f"unreadable answer: {error}")
            return
        if self._body is None and self._head_size_bytes > _LARGEST_HEAD_BYTES:
            self.abort("unreadable answer: its head is too large")

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        has_length = b"content-length" in self._head or b"transfer-encoding" in self._head
        if error is None and self._body is not None and not has_length:
            self.on_message_complete()  # the end of the connection is the end of such an answer
        is_unanswered = self._is_kept and self._body is None and not self._head_size_bytes
        self._end((_ClosedBeforeAnswerError if is_unanswered else LostError)(str(error or "the connection was closed")))

    # -- called by the parser ------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._head.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._body = []
        self._head_size_bytes = 0

    def on_body(self, part: bytes) -> None:
        self._body.append(part)  # type: ignore[union-attr]

    def on_message_complete(self) -> None:
        status, body = self._parser.get_status_code(), b"".join(self._body or ())
        self._body = None
        if status < _FIRST_FINAL_STATUS:  # "100 Continue" or "103 Early Hints": the answer follows
            return
        answer, self._answer = self._answer, None
        if answer is None:  # more answers than requests
            self.abort("")
            return
        if not self._is_kept:
            self._is_kept = True
            remember(self._transport)
        try:
            body = _decompressed(body, self._head.get(b"content-encoding", b"").strip().lower())
        except (ValueError, EOFError, OSError, zlib.error) as error:
            self._answer = answer
            self.abort(f"unreadable answer: {error}")
            return
        if self.is_open and self._parser.should_keep_alive():
            self._client.keep(self)
        else:
            self.abort("")
        if not answer.done():
            retry_after = self._head.get(b"retry-after")
            answer.set_result(
                HttpResponse(status, body, None if retry_after is None else retry_after.decode("latin-1"))
            )

    def _end(self, error: LostError) -> None:
        self.is_open = False
        self._client.forget(self)
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)


def _decompressed(body: bytes, encoding: bytes) -> bytes:
    """Return the body without its Content-Encoding. Some proxies compress although no client requested it."""
    match encoding:
        case b"" | b"identity":
            return body
        case b"gzip" | b"x-gzip":
            return gzip.decompress(body)
        case b"deflate":
            return zlib.decompress(body)
    raise ValueError(f"Content-Encoding {encoding.decode('latin-1')!r}")


class Http1Client:
    """`HttpClient` without a proxy. Create it inside the running loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._server = _server_of(settings)
        self._url = URL(settings.server)
        self._heads: dict[MediaTypes, bytes] = {}
        """All lines from the end of the request line to the name of the length."""
        self._addresses: list[Any] = []
        self._addresses_until_s = 0.0
        self._looking_up = asyncio.Lock()
        self._connections: set[_Connection] = set()
        self._unused: list[_Connection] = []
        """In the order of their last use. The last one is taken first, so that the first ones get old and are closed."""
        self._waiting: deque[asyncio.Future[_Connection]] = deque()
        """Requests without a connection, in the order of their arrival. Some of them may be cancelled."""
        self._opening: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def request(self, request: HttpRequest) -> HttpResponse:
        text = self._text(request)
        deadline_s = self._loop.time() + request.timeout_s
        connection = self._unused.pop() if self._unused else await self._next(deadline_s)
        try:
            return await self._exchange(connection, text, request, deadline_s)
        except _ClosedBeforeAnswerError:
            if request.body is not None:
                raise
        # The server closed the connection just then. The other ones are as old, so the read gets a new one.
        return await self._exchange(await self._connect(deadline_s), text, request, deadline_s)

    async def _exchange(
        self, connection: _Connection, text: bytes, request: HttpRequest, deadline_s: float
    ) -> HttpResponse:
        limit = self._loop.call_at(deadline_s, connection.abort, f"no answer within {request.timeout_s:g} s")
        try:
            return await connection.exchange(text, request.before_sending)
        finally:
            limit.cancel()

    def adopt(self) -> None:
        self._heads.clear()
        server = _server_of(self._settings)
        if server == self._server:
            return
        self._server, self._url, self._addresses_until_s = server, URL(server.url), 0.0
        for connection in list(self._unused):
            connection.abort("")

    async def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        """Close all connections at once."""
        self._is_closed = True
        for connection in list(self._connections):
            connection.abort("the connections are closed")
        for opening in self._opening:
            opening.cancel()
        while self._waiting:
            _settle(self._waiting.popleft(), NotSentError("not sent: the connections are closed"))
        if self._sweep is not None:
            self._sweep.cancel()

    # -- connections ---------------------------------------------------------------------------------------------------

    async def _next(self, deadline_s: float) -> _Connection:
        """Return the first connection that another request leaves, or that is opened for the requests that wait."""
        self._raise_if_closed()
        handed: asyncio.Future[_Connection] = self._loop.create_future()
        self._waiting.append(handed)
        self._open_for_waiting()
        try:
            async with asyncio.timeout_at(min(deadline_s, self._loop.time() + REACH_S)):
                return await handed
        except TimeoutError as error:
            self._give_up(handed)
            raise NotSentError(cannot_connect(self._url.raw_host, self._url.port, error)) from error
        except asyncio.CancelledError:
            self._give_up(handed)
            raise

    def _give_up(self, handed: asyncio.Future[_Connection]) -> None:
        """Drop a request that no longer waits. It may have been handed a connection in the same turn of the loop."""
        if handed in self._waiting:
            self._waiting.remove(handed)
        elif not handed.cancelled() and handed.exception() is None:
            self.keep(handed.result())

    def _open_for_waiting(self) -> None:
        """Open a connection for each request that waits, but only some at the same time.

        In a burst most requests are sent on a connection that another one leaves before theirs would be open. A TLS
        handshake takes the processor time of many requests, here and in the server.
        """
        while len(self._opening) < min(_OPENING, len(self._waiting)):
            self._opening.add(self._loop.create_task(self._open()))

    async def _open(self) -> None:
        try:
            self.keep(await self._connect(self._loop.time() + REACH_S))
        except Exception as error:  # noqa: BLE001 (raised by the request that waits longest)
            while self._waiting and not _settle(self._waiting.popleft(), error):
                pass
        finally:
            self._opening.discard(asyncio.current_task())
            self._open_for_waiting()

    def keep(self, connection: _Connection) -> None:
        """Take back a connection that is ready for the next request."""
        if connection.server != self._server or not connection.is_open:  # credentials have changed
            connection.abort("")
            return
        while self._waiting:
            if _settle(self._waiting.popleft(), connection):
                return
        connection.unused_since_s = self._loop.time()
        self._unused.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(UNUSED_S, self._close_unused)

    def forget(self, connection: _Connection) -> None:
        """Drop a connection that has been closed."""
        self._connections.discard(connection)
        if connection in self._unused:
            self._unused.remove(connection)

    def _close_unused(self) -> None:
        now_s = self._loop.time()
        # The same sum as that of the timer: a rounded difference would find nothing to close at this very moment.
        while self._unused and self._unused[0].unused_since_s + UNUSED_S <= now_s:
            self._unused[0].abort("")
        self._sweep = None
        if self._unused:
            self._sweep = self._loop.call_at(self._unused[0].unused_since_s + UNUSED_S, self._close_unused)

    async def _connect(self, deadline_s: float) -> _Connection:
        self._raise_if_closed()
        server, url = self._server, self._url
        try:
            async with asyncio.timeout_at(min(deadline_s, self._loop.time() + REACH_S)):
                addresses = await self._look_up(url)
                async with asyncio.timeout(CONNECT_S):
                    sock = await aiohappyeyeballs.start_connection(
                        addresses,
                        happy_eyeballs_delay=_SECOND_ADDRESS_AFTER_S,
                        interleave=1,
                        socket_factory=api_server_socket,
                    )
                    _, connection = await self._loop.create_connection(
                        lambda: _Connection(self, server),
                        sock=sock,
                        ssl=server.tls,
                        server_hostname=_certified_name(server, url) if server.tls else None,
                    )
        except OSError as error:
            self._addresses_until_s = 0.0
            raise NotSentError(cannot_connect(url.raw_host, url.port, error)) from error
        self._connections.add(connection)
        if self._is_closed:
            connection.abort("")
        self._raise_if_closed()
        return connection

    def _raise_if_closed(self) -> None:
        """Raise for a write that waited for a busy server, or for a connection, and outlived this client."""
        if self._is_closed:
            raise NotSentError("not sent: the connections are closed")

    async def _look_up(self, url: URL) -> list[Any]:
        """Return the addresses of the server. Requests that need new connections at the same time share one look-up."""
        async with self._looking_up:
            if self._loop.time() >= self._addresses_until_s:
                self._addresses = await self._addresses_of(url.raw_host, url.port)
                self._addresses_until_s = self._loop.time() + ADDRESSES_S
            return self._addresses

    async def _addresses_of(self, host: str | None, port: int | None) -> list[Any]:
        try:  # an address needs no thread
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            return await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _text(self, request: HttpRequest) -> bytes:
        """Return the bytes to send. Raises NotSentError for a target that is not escaped."""
        if _UNESCAPED.search(request.target):
            raise NotSentError(f"not sent: {request.target!r} is not escaped")
        line = f"{request.method} {self._url.raw_path.rstrip('/')}{request.target}".encode("ascii")
        head = self._heads.get(request.types)
        if head is None:
            lines = (f"{name}: {value}" for name, value in headers_of(self._settings, request.types).items())
            head = "\r\n".join([" HTTP/1.1", f"Host: {self._url.host_port_subcomponent}", *lines]).encode()
            self._heads[request.types] = head
        if request.body is None:
            return b"%b%b\r\n\r\n" % (line, head)
        return b"%b%b\r\nContent-Length: %d\r\n\r\n%b" % (line, head, len(request.body), request.body)


def _settle(handed: asyncio.Future[_Connection], outcome: _Connection | Exception) -> bool:
    """Hand over a connection or an error; return False if the request does not wait any more."""
    if handed.done():
        return False
    if isinstance(outcome, Exception):
        handed.set_exception(outcome)
    else:
        handed.set_result(outcome)
    return True


def _certified_name(server: _Server, url: URL) -> str:
    """Return the name in the server's certificate, which has no dot at its end."""
    return server.tls_server_name or (url.raw_host or "").rstrip(".")


def _server_of(settings: Settings) -> _Server:
    return _Server(settings.server, settings.tls, settings.tls_server_name)
