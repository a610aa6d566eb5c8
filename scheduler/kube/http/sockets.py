"""TCP sockets that notice a silent peer within `NOTICED_S`.

A watch only reads, so keepalive probes find a dead peer; unacknowledged data is abandoned after the same time instead
of the kernel's quarter of an hour. The peer's kernel answers both, so a proxy that keeps a connection open without its
server is only noticed by `reflector.INACTIVITY_S`.
"""

from __future__ import annotations

import socket
from typing import Any, Final

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
    """Return a socket for an answer of `getaddrinfo`; the `socket_factory` of aiohttp and aiohappyeyeballs."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in OPTIONS:
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
