"""Bytes to and from the API server over HTTP/1.1, with credentials that are kept up to date. Knows no kind of object.

Requests go through `Http1Client`, which does only what they need. Watches go through aiohttp, and through a proxy the
requests do as well.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlencode, urlsplit

from scheduler.core.clock import Clock, SystemClock
from scheduler.core.errors import Ambiguous, Unauthorized, Unavailable
from scheduler.kube.client_config import Renewal, Settings
from scheduler.kube.http.client import HttpClient, HttpRequest, LostError, NotSentError
from scheduler.kube.http.http1 import Http1Client
from scheduler.kube.http.streams import Stream, StreamClient
from scheduler.kube.wire import DEFAULT_TIMEOUT_S, JSON, LIST_TIMEOUT_S, Answered, Method, Query, as_it_is, failure


def request_client(settings: Settings, streams: StreamClient) -> HttpClient:
    """Return the client for requests that are no watch."""
    return Http1Client(settings) if settings.proxy is None else streams


class HttpTransport:
    """`Transport` to one API server. Create it inside the running loop.

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
        self._renewals = self._renewal.count
        self._credentials = self._renewal.credentials
        self._others: list[HttpTransport] = []
        self._closing: set[asyncio.Future[None]] = set()
        self._streams = StreamClient(settings)
        self._requests = request_client(settings, self._streams)

    def apart(self) -> HttpTransport:
        """Return a transport with separate connections and the same credentials. It is closed with this one."""
        other = HttpTransport(self._settings, clock=self._clock, on_answer=self._on_answer, renewal=self._renewal)
        self._others.append(other)
        return other

    def reconnect(self) -> None:
        """Close all connections: running requests fail, and the next one opens a new connection."""
        for client in (self._requests, self._streams):
            closing = asyncio.ensure_future(client.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        self._streams = StreamClient(self._settings)
        self._requests = request_client(self._settings, self._streams)

    async def get(
        self, path: str, *, query: Query | None = None, timeout_s: float = DEFAULT_TIMEOUT_S, accept: str = JSON
    ) -> bytes:
        return await self._send(HttpRequest("GET", _target(path, query), None, ("", accept), timeout_s))

    async def list(self, path: str, query: Query) -> bytes:
        return await self._send(HttpRequest("GET", _target(path, query), timeout_s=LIST_TIMEOUT_S))

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
        types = content_type, JSON
        return await self._send(HttpRequest(method, _target(path, query), body, types, before_sending=before_sending))

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, query: Query, *, inactivity_timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        target = _target(path, query)
        credentials = self._take_over_credentials()
        try:
            stream = await self._open(target, inactivity_timeout_s)
        except Unauthorized:
            if not await self._renewal.after_refusal(credentials):
                raise
            self._take_over_credentials()
            stream = await self._open(target, inactivity_timeout_s)
        try:
            async with contextlib.aclosing(stream.chunks()) as chunks:
                yield chunks
        finally:
            stream.close()

    async def close(self) -> None:
        for other in self._others:
            await other.close()
        if self._lent_renewal is None:
            await self._renewal.close()
        await asyncio.gather(self._requests.close(), self._streams.close(), *self._closing)

    async def _open(self, target: str, inactivity_timeout_s: float) -> Stream:
        """Return a stream whose answer has begun with 2xx."""
        status = 0
        try:
            stream = await self._streams.open(target, inactivity_timeout_s=inactivity_timeout_s)
            status = stream.status
            if 200 <= status < 300:
                return stream
            body = await stream.read()
        except (NotSentError, LostError) as error:
            raise Unavailable(str(error)) from error
        finally:
            self._on_answer("GET", self._host, status, None)
        raise failure(status, body, retry_after=stream.retry_after)

    async def _send(self, request: HttpRequest) -> bytes:
        credentials = self._take_over_credentials()
        try:
            return await self._once(request)
        except Unauthorized:
            if not await self._renewal.after_refusal(credentials):
                raise
        self._take_over_credentials()
        return await self._once(request)

    async def _once(self, request: HttpRequest) -> bytes:
        began, status, is_write = self._clock.now(), 0, request.body is not None
        try:
            answer = await self._requests.request(request)
            status = answer.status
        except NotSentError as error:
            raise Unavailable(str(error)) from error
        except LostError as error:
            raise (Ambiguous if is_write else Unavailable)(str(error)) from error
        finally:
            self._on_answer(request.method, self._host, status, self._clock.now() - began)
        if 200 <= status < 300:
            return answer.body
        raise failure(status, answer.body, retry_after=answer.retry_after, is_write=is_write)

    def _take_over_credentials(self) -> tuple[object, ...]:
        """Apply and return the credentials of the last renewal, and start a due renewal without waiting."""
        self._renewal.start_if_due()
        credentials = self._renewal.credentials
        # A renewal sets the credentials a moment before it ends; what else it sets, such as impersonation, may be late.
        if self._renewals != self._renewal.count or self._credentials != credentials:
            self._renewals, self._credentials = self._renewal.count, credentials
            self._streams.adopt()
            self._requests.adopt()
        return self._credentials


def _target(path: str, query: Query | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path
