"""Client connections that are closed before the loop that carries them."""

import asyncio
import socket
import time
from typing import Any

import aiohttp

CLOSED_WITHIN_S = 60.0


class SettledConnector(aiohttp.TCPConnector):
    """A connector whose `close` returns when every socket that it opened is closed.

    aiohttp waits only for the connections in its pool. One that was given up before (`force_close`, `Connection:
    close`) says goodbye in TLS in the turns of the loop that follow, and a loop that is closed first leaves its transport
    behind: a ResourceWarning, which ends a test, whenever the garbage collector finds it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(socket_factory=self._open, **options)
        self.opened: list[socket.socket] = []

    def _open(self, info: Any) -> socket.socket:
        family, kind, protocol, _, _ = info
        opened = socket.socket(family, kind, protocol)
        self.opened = [*filter(_is_open, self.opened), opened]
        return opened

    async def close(self, *, abort_ssl: bool = False) -> None:
        await super().close(abort_ssl=abort_ssl)
        deadline = time.monotonic() + CLOSED_WITHIN_S
        while still := list(filter(_is_open, self.opened)):
            assert time.monotonic() < deadline, still
            await asyncio.sleep(0.001)


def _is_open(one: socket.socket) -> bool:
    return one.fileno() >= 0
