"""TCP sockets to the API server on which a peer that has gone silently is noticed within `NOTICED_S`.

A watch only reads, so only keepalive probes tell whether its peer is still there. Data that was sent and not acknowledged is
given up after the same time instead of the kernel's quarter of an hour. Both are answered by the kernel of the peer: a proxy
that keeps a connection open although its own server is gone is not noticed by them (`reflector.INACTIVITY_S` is).
"""

from __future__ import annotations

import socket
from typing import Any, Final

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
