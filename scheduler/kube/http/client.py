"""What both clients have in common: an answer, the ways in which a request fails, its headers, and time limits.

`http1` sends the requests of a daemon; `streams` sends them through a proxy, and opens watches.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec
from multidict import CIMultiDict

from scheduler.kube.client_config import Settings
from scheduler.kube.wire import DEFAULT_TIMEOUT_S, JSON, as_it_is

MediaTypes: TypeAlias = tuple[str, str]
"""Content-Type ("" without a body) and Accept."""

CONNECT_S: Final = 10.0
"""Time limit of a TCP connection and its TLS handshake."""
REACH_S: Final = 30.0
"""Time limit of everything before a request can be sent: name, connection, proxy."""
UNUSED_S: Final = 30.0
"""A connection is closed after this time without a request."""
ADDRESSES_S: Final = 60
"""After this time the addresses of a host name are looked up again."""


class NotSentError(Exception):
    """The request was not sent: there was no connection."""


class LostError(Exception):
    """The request was sent, at least in part, and there is no usable answer."""


class HttpRequest(msgspec.Struct, frozen=True):
    """A request for an escaped path with its query. One without a body is a read.

    `before_sending` is called with a connection ready; if it raises, nothing is sent. `timeout_s` includes connecting.
    """

    method: str
    target: str
    body: bytes | None = None
    types: MediaTypes = ("", JSON)
    timeout_s: float = DEFAULT_TIMEOUT_S
    before_sending: Callable[[], None] = as_it_is


class HttpResponse(NamedTuple):
    """A whole answer. `retry_after` is the header's text."""

    status: int
    body: bytes
    retry_after: str | None


class HttpClient(Protocol):
    """Send requests to one server. The number of connections is not limited: callers limit their writes."""

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Send a request and return its answer.

        A read is sent once more if a kept connection turns out to be closed; a request with a body is sent once. Raises
        NotSentError and LostError. Cancelling closes the connection.
        """

    def adopt(self) -> None:
        """Use the present credentials of the settings. A new TLS context needs new connections."""

    async def close(self) -> None:
        """Close all connections. Requests under way fail, and later ones are not sent."""


def headers_of(settings: Settings, types: MediaTypes) -> CIMultiDict[str]:
    """Return the headers of a request, without Host and Content-Length."""
    headers = settings.headers()
    content_type, headers["Accept"] = types
    if content_type:
        headers["Content-Type"] = content_type
    return headers


def cannot_connect(host: str | None, port: int | None, error: OSError) -> str:
    """Return a text without memory addresses, which repeats if the error does."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"certificate verify failed: {error.verify_message}"
    elif isinstance(error, ssl.SSLError):
        why = error.reason or "TLS failed"
    elif isinstance(error, TimeoutError):
        why = "timed out"
    elif error.errno and error.errno > 0:
        why = os.strerror(error.errno)
    else:
        why = error.strerror or str(error) or type(error).__name__
    return f"cannot connect to {host}:{port}: {why}"
