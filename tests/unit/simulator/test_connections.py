"""The tests' own connector closes its sockets before its session is closed."""

import asyncio
import contextlib

import aiohttp

from tests.support.connections import SettledConnector
from tests.unit.server.test_listening import secured


async def test_a_session_that_is_closed_has_no_open_socket() -> None:
    """Also when each connection was given up before, and the peer says nothing to our goodbye."""
    ours, theirs = secured()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=ours.front)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    connector = SettledConnector(force_close=True)
    async with server, aiohttp.ClientSession(connector=connector) as http:
        async with http.get(url, ssl=theirs, server_hostname="localhost") as answer:
            assert await answer.text() == "ok"

        assert [one.fileno() >= 0 for one in connector.opened] == [True]
    assert [one.fileno() >= 0 for one in connector.opened] == [False]
