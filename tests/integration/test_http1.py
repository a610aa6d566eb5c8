"""What the client of requests does otherwise than aiohttp, and when it closes connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from scheduler.kube.client_config import Settings
from scheduler.kube.http import http1
from scheduler.kube.http.client import HttpRequest, HttpResponse, LostError, NotSentError
from tests.integration.test_transport import answer, raw, says

READ = HttpRequest("GET", "/x")
WRITE = HttpRequest("POST", "/x", b"{}")
OK = b"HTTP/1.1 200 OK\r\n"


@contextlib.asynccontextmanager
async def http1_client(settings: Settings) -> AsyncIterator[http1.Http1Client]:
    made = http1.Http1Client(settings)
    try:
        yield made
    finally:
        await made.close()


@pytest.mark.parametrize("whole", [
    pytest.param(OK + b"Content-Encoding: zstd, gzip\r\nContent-Length: 2\r\n\r\n{}", id="another compression"),
    pytest.param(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", id="another protocol"),
])  # fmt: skip
async def test_an_answer_that_was_not_requested_is_lost(whole):
    async with raw(says(whole)) as server, http1_client(Settings(server.url)) as client:
        with pytest.raises(LostError, match=r"^unreadable answer: "):
            await client.request(WRITE)
        with pytest.raises(LostError):
            await client.request(READ)

    assert (len(server.open), len(server.requests)) == (2, 2)


@pytest.mark.parametrize("more", [
    pytest.param(answer(408), id="an answer to no request"),
    pytest.param(b"\x15\x03\x01", id="noise"),
])  # fmt: skip
async def test_bytes_after_an_answer_are_no_answer_to_the_next_request(more):
    """Load balancers write 408 to unused connections, just before they close them."""

    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(200, b'"%d"' % len(server.requests)) + more)

    async with raw(script) as server, http1_client(Settings(server.url)) as client:
        answers = [await client.request(WRITE) for _ in range(3)]

    assert [each.body for each in answers] == [b'"1"', b'"2"', b'"3"']
    assert len(server.open) == 3


async def test_a_target_that_is_not_escaped_is_not_sent():
    """Paths have names of objects: a line break in one must not begin another request."""
    async with raw(says(answer(200))) as server, http1_client(Settings(server.url)) as client:
        for target in ("/x\r\nX: y", "/x y", "/ü"):
            with pytest.raises(NotSentError, match="is not escaped"):
                await client.request(HttpRequest("GET", target))

    assert server.requests == []


async def test_unused_connections_are_closed(monkeypatch):
    monkeypatch.setattr(http1, "UNUSED_S", 0.05)
    async with raw(says(answer(200))) as server, http1_client(Settings(server.url)) as client:
        await asyncio.gather(*(client.request(READ) for _ in range(5)))
        async with asyncio.timeout(60):
            while client._unused:
                await asyncio.sleep(0.01)
        assert await client.request(WRITE) == HttpResponse(200, b"{}", None)

    assert len(server.open) == 6


async def test_a_closed_client_fails_what_is_under_way():
    async with raw(says()) as server, http1_client(Settings(server.url)) as client:
        under_way = asyncio.create_task(client.request(WRITE))
        async with asyncio.timeout(60):
            while not server.requests:
                await asyncio.sleep(0.01)
        await client.close()
        with pytest.raises(LostError, match=r"^the connections are closed$"):
            await under_way
        with pytest.raises(NotSentError, match=r"^not sent: the connections are closed$"):
            await client.request(READ)


async def test_a_connection_that_is_closed_before_sending_has_sent_nothing():
    """So a write is known not to be carried out."""
    async with raw(says(answer(200))) as server, http1_client(Settings(server.url)) as client:
        with pytest.raises(NotSentError, match=r"^not sent: "):
            await client.request(HttpRequest("POST", "/x", b"{}", before_sending=client.abort))

    assert server.requests == []


async def test_a_closed_client_also_fails_what_is_under_way_with_the_credentials_of_before():
    async with raw(says()) as server:
        settings = Settings(server.url)
        async with http1_client(settings) as client:
            under_way = asyncio.create_task(client.request(WRITE))
            async with asyncio.timeout(60):
                while not server.requests:
                    await asyncio.sleep(0.01)
            settings.tls_server_name = "api"
            client.adopt()
            await client.close()
            with pytest.raises(LostError, match=r"^the connections are closed$"):
                await under_way
