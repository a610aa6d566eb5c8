"""The transport as a port in bytes, the envelopes of lists and watches, and how a refusal becomes an error type.

The way to the API server as a port in bytes, and how a refusal becomes a type of `core.errors`.

Everything else in this package speaks to `Transport`, so tests script it and a leaner HTTP client can replace the one
in `transport` without touching a caller. Knows no kind and no credentials.

What objects come wrapped in: the pages of a list and the lines of a watch. Objects stay raw, to be decoded singly.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Final, Protocol, TypeAlias

import msgspec
import structlog

from scheduler.api.meta import AnnotatedMetadata
from scheduler.core import api_json as apijson
from scheduler.core.errors import (
    Ambiguous,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)

_log = structlog.get_logger(__name__)

Query: TypeAlias = Mapping[str, str]

JSON: Final = "application/json"
STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

DEFAULT_TIMEOUT_S: Final = 30.0
LIST_TIMEOUT_S: Final = 60.0
RETRY_AFTER_MAX_S: Final = 60.0
"""The longest wait that a server or a proxy can ask for."""
_DIGITS: Final = 9
"""Of the longest Retry-After that is read as a number."""


def as_it_is() -> None:
    """Nothing need be asked before this is sent."""


Answered: TypeAlias = Callable[[str, str, int, float | None], None]
"""Told of each request: method, host, status (0: there was no answer), and seconds; None for a watch."""


def nobody_counts(_method: str, _host: str, _status: int, _seconds: float | None) -> None:
    """Nobody is told."""


class Transport(Protocol):
    """Requests by path (`/api/v1/pods`, already escaped) and answers, both as bytes: of JSON unless another type is named.

    Anything but a 2xx raises a type of `core.errors`. A connection that cannot be made is `Unavailable`. One that is
    lost later is `Unavailable` for reads and `Ambiguous` for writes. Cancelling a write loses its answer, not
    necessarily its effect: callers that must know shield it.

    `before_sending` is called just before a write leaves, each time that it does: with a connection, and with
    credentials. What it raises is raised, and nothing was sent.
    """

    async def get(
        self, path: str, *, query: Query | None = None, timeout_s: float = DEFAULT_TIMEOUT_S, accept: str = JSON
    ) -> bytes:
        """One object, or whatever is at this path. `accept` is the media type of the answer."""

    async def list(self, path: str, query: Query) -> bytes:
        """One page of a list. A larger time limit than `get`."""

    def watch(
        self, path: str, query: Query, *, inactivity_timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Network chunks as they come, not aligned with lines; bookmarks are bytes too.

        `Unavailable` when nothing came for `inactivity_timeout_s` or the stream is cut; a proper end just ends.
        """

    async def post(
        self, path: str, body: bytes, *, query: Query | None = None, before_sending: Callable[[], None] = as_it_is
    ) -> bytes:
        """Create."""

    async def patch(
        self,
        path: str,
        body: bytes,
        *,
        content_type: str,
        query: Query | None = None,
        before_sending: Callable[[], None] = as_it_is,
    ) -> bytes:
        """Change; `content_type` says how the body is meant (`STRATEGIC_MERGE`, `MERGE`, `JSON_PATCH`)."""

    async def put(
        self,
        path: str,
        body: bytes,
        *,
        content_type: str,
        query: Query | None = None,
        before_sending: Callable[[], None] = as_it_is,
    ) -> bytes:
        """Replace. The answer is JSON, whatever `content_type` is. May be sent again on a lost connection.

        The object must name its resourceVersion: what was carried out already is a `Conflict` then.
        """

    async def delete(self, path: str, body: bytes, *, before_sending: Callable[[], None] = as_it_is) -> bytes:
        """Delete; the body is a DeleteOptions and carries the preconditions. May be sent again on a lost connection."""

    async def close(self) -> None:
        """Close every connection; streams that are being read end with `Unavailable`."""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int | None = None


class Status(msgspec.Struct, rename="camel"):
    """A metav1.Status: the body of a refusal, and of an ERROR in a watch stream."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


_STATUS: Final = msgspec.json.Decoder(Status)

_TYPES: Final[Mapping[int, type[ApiError]]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: Invalid,
    406: Invalid,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    422: Invalid,
}

_MAYBE_DONE: Final = ("etcdserver: request timed out", "etcdserver: leader changed", "context deadline exceeded")
"""With these texts the store may have committed although the answer is a 500."""


def failure(
    status: int, body: bytes | msgspec.Raw, *, retry_after: str | None = None, is_write: bool = False
) -> ApiError:
    """The error for an answer that is not a 2xx, to be raised by the caller.

    `retry_after` is the header, of which at most a minute counts. For a write, an answer that leaves open whether it was carried out is `Ambiguous`:
    502 and 504 (whoever answered lost the server, or gave up waiting), and a store that timed out.
    """
    try:
        seen = apijson.decode(_STATUS, body)
    except (msgspec.DecodeError, ValueError):
        seen = Status()
    code = status or seen.code or 0
    message = seen.message or bytes(body)[:200].decode(errors="replace") or f"HTTP status {code}"
    reason = seen.reason or ""
    wait_s = _seconds(retry_after)
    if wait_s is None and seen.details is not None and (told_s := seen.details.retry_after_seconds):
        wait_s = _bounded(told_s)
    if is_write and (code in {502, 504} or (code == HTTPStatus.INTERNAL_SERVER_ERROR and _maybe_done(message))):
        return Ambiguous(message, status=code, reason=reason)
    if code == HTTPStatus.TOO_MANY_REQUESTS or (code == HTTPStatus.SERVICE_UNAVAILABLE and wait_s is not None):
        return TooManyRequests(message, status=code, reason=reason, retry_after_s=wait_s)
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Unavailable(message, status=code, reason=reason)
    return _TYPES.get(code, ApiError)(message, status=code, reason=reason)


def in_stream(status: msgspec.Raw) -> ApiError:
    """The error for the object of an ERROR line in a watch stream."""
    return failure(0, status)


def _maybe_done(message: str) -> bool:
    return any(text in message for text in _MAYBE_DONE)


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; the form with a date is not used by API servers."""
    if header is None or not header.isdecimal():
        return None
    return _bounded(int(header) if len(header) <= _DIGITS else math.inf)


def _bounded(asked_s: float) -> float:
    """A proxy that asks for an hour must not keep a pod, a write or a watch waiting for an hour."""
    if asked_s > RETRY_AFTER_MAX_S:
        _log.warning("Retry-After is shortened", asked_s=min(asked_s, 10.0**_DIGITS), waits_s=RETRY_AFTER_MAX_S)
    return float(min(max(asked_s, 0), RETRY_AFTER_MAX_S))


class WatchLine(msgspec.Struct):
    """One line of a watch stream."""

    type: str
    object: msgspec.Raw


class Bookmark(msgspec.Struct):
    """The object of a BOOKMARK: only its metadata is filled."""

    metadata: AnnotatedMetadata = AnnotatedMetadata()


class _ListMeta(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """One page of a list; `metadata.continue_` is empty on the last."""

    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


LINES: Final = msgspec.json.Decoder(WatchLine)
MARKS: Final = msgspec.json.Decoder(Bookmark)
_PAGES: Final = msgspec.json.Decoder(Page)


def page_of(body: bytes) -> Page:
    """Decode a list's envelope; what is not one is an `ApiError`, as if the server had failed.

    Every list has a version. An answer without one, such as `{}` from a proxy, does not say that there are no objects.
    """
    try:
        page = apijson.decode(_PAGES, body)
    except (msgspec.DecodeError, ValueError) as error:
        raise ApiError(f"unreadable list: {error}") from error
    if not page.metadata.resource_version:
        raise ApiError("unreadable list: it has no metadata.resourceVersion")
    return page
