"""The transport as a port in bytes, the envelopes of lists and watches, and how a refusal becomes an error type.

The rest of this package uses `Transport`, so that tests can script it. Objects in lists and watches stay raw, to be
decoded one by one. Knows no kinds and no credentials.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Final, Literal, Protocol, TypeAlias

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
    ResourceVersionTooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)

_log = structlog.get_logger(__name__)

Query: TypeAlias = Mapping[str, str]
Method: TypeAlias = Literal["POST", "PUT", "PATCH", "DELETE"]

JSON: Final = "application/json"
STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
"""Metadata alone, in a watch; METADATA_LIST in a list. A server that does not know it sends whole objects."""
METADATA_LIST: Final = METADATA.replace("PartialObjectMetadata", "PartialObjectMetadataList")

DEFAULT_TIMEOUT_S: Final = 30.0
LIST_TIMEOUT_S: Final = 60.0
RETRY_AFTER_MAX_S: Final = 60.0
"""The longest wait that a server or proxy can request."""
_DIGITS: Final = 9
"""Digits of the longest Retry-After that is read as a number."""


def as_it_is() -> None:
    """Do nothing before a request is sent."""


Answered: TypeAlias = Callable[[str, str, int, float | None], None]
"""Called with each request: method, host, status (0 without an answer), and seconds; None for a watch."""


class Transport(Protocol):
    """Send requests by path (`/api/v1/pods`, already escaped).

    Bodies are bytes, of JSON unless another type is named. Every status but 2xx raises a type of `core.errors`. A
    failed connection is `Unavailable`. A lost one is `Unavailable` for reads and `Ambiguous` for writes. Cancelling a
    write loses its answer, not necessarily its effect: callers that need the answer shield it.

    `before_sending` is called just before a write is sent, each time, with a connection and credentials ready. Its
    exceptions are raised, and nothing is sent.
    """

    async def get(
        self, path: str, *, query: Query | None = None, timeout_s: float = DEFAULT_TIMEOUT_S, accept: str = JSON
    ) -> bytes:
        """Return one object, or the content of this path. `accept` is the media type of the answer."""

    async def list(self, path: str, query: Query) -> bytes:
        """Return one page of a list, with a larger time limit than `get`."""

    def watch(
        self, path: str, query: Query, *, inactivity_timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Yield network chunks as they come, not aligned with lines; bookmarks are bytes too.

        Raises `Unavailable` after `inactivity_timeout_s` without a byte, and if the stream is cut; a proper end
        returns.
        """

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
        """Send a write. `content_type` is the type of the body, or of a patch. The answer is JSON for any of them.

        Each is sent once, but for a 401 (`before_sending`). The object of a PUT must have its resourceVersion. The body
        of a DELETE is a DeleteOptions with the preconditions.
        """

    async def close(self) -> None:
        """Close every connection; open streams end with `Unavailable`."""


class _Cause(msgspec.Struct):
    reason: str | None = None


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int | None = None
    causes: tuple[_Cause, ...] | None = None


class Status(msgspec.Struct, rename="camel"):
    """A metav1.Status: the body of a refusal, and of an ERROR in a watch."""

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

_MAYBE_DONE: Final = (
    "etcdserver: request timed out",
    "etcdserver: leader changed",
    "context deadline exceeded",
    "context canceled",
    *(f"rpc error: code = {code}" for code in ("Unavailable", "DeadlineExceeded", "Canceled", "Unknown")),
)
"""With these texts the store may have committed although the status is 500."""


def failure(
    status: int, body: bytes | msgspec.Raw, *, retry_after: str | None = None, is_write: bool = False
) -> ApiError:
    """Return the error for a status other than 2xx, or with 0 for the object of an ERROR line in a watch.

    `retry_after` is the header; at most a minute counts. A write is `Ambiguous` if it may have been executed: after
    502 and 504 (a proxy lost the server or stopped waiting), and after a time-out of the store.
    """
    try:
        seen = apijson.decode(_STATUS, body)
    except (msgspec.DecodeError, ValueError):
        seen = Status()
    code = status or seen.code or 0
    message = seen.message or bytes(body)[:200].decode(errors="replace") or f"HTTP status {code}"
    reason = seen.reason or ""
    wait_s = _seconds(retry_after)
    if wait_s is None and seen.details is not None and (retry_after_s := seen.details.retry_after_seconds):
        wait_s = _bounded(retry_after_s)
    is_timeout_of_store = code == HTTPStatus.INTERNAL_SERVER_ERROR and any(text in message for text in _MAYBE_DONE)
    if is_write and (code in {502, 504} or is_timeout_of_store):
        return Ambiguous(message, status=code, reason=reason)
    if code == HTTPStatus.TOO_MANY_REQUESTS or (code == HTTPStatus.SERVICE_UNAVAILABLE and wait_s is not None):
        return TooManyRequests(message, status=code, reason=reason, retry_after_s=wait_s)
    if seen.details is not None and _Cause("ResourceVersionTooLarge") in (seen.details.causes or ()):
        return ResourceVersionTooLarge(message, status=code, reason=reason)
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Unavailable(message, status=code, reason=reason)
    return _TYPES.get(code, ApiError)(message, status=code, reason=reason)


def _seconds(header: str | None) -> float | None:
    """Return Retry-After in seconds. API servers do not use the form with a date."""
    if header is None or not header.isdecimal():
        return None
    return _bounded(int(header) if len(header) <= _DIGITS else math.inf)


def _bounded(asked_s: float) -> float:
    """Limit the wait: a proxy that requests an hour must not delay a pod, a write or a watch for an hour."""
    if asked_s > RETRY_AFTER_MAX_S:
        _log.warning("Retry-After is shortened", asked_s=min(asked_s, 10.0**_DIGITS), waits_s=RETRY_AFTER_MAX_S)
    return float(min(max(asked_s, 0), RETRY_AFTER_MAX_S))


class WatchLine(msgspec.Struct):
    type: str
    object: msgspec.Raw


class Bookmark(msgspec.Struct):
    """The object of a BOOKMARK: only its metadata is set."""

    metadata: AnnotatedMetadata = AnnotatedMetadata()


class _ListMeta(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """One page of a list; `metadata.continue_` is empty on the last one."""

    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


LINES: Final = msgspec.json.Decoder(WatchLine)
MARKS: Final = msgspec.json.Decoder(Bookmark)
_PAGES: Final = msgspec.json.Decoder(Page)


def page_of(body: bytes) -> Page:
    """Decode a list's envelope; raise `ApiError` for anything else, as after a failure of the server.

    Every list has a version. An answer without one, such as `{}` from a proxy, does not mean that there are no
    objects.
    """
    try:
        page = apijson.decode(_PAGES, body)
    except (msgspec.DecodeError, ValueError) as error:
        raise ApiError(f"unreadable list: {error}") from error
    if not page.metadata.resource_version:
        raise ApiError("unreadable list: it has no metadata.resourceVersion")
    return page
