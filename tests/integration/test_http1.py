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
    everything = asyncio.Barrier(5)

    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        if b"GET" in request:
            await everything.wait()
        writer.write(answer(200))

    async with raw(script) as server, http1_client(Settings(server.url)) as client:
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


class Opening:
    """Holds each connection that is being opened until the test lets it go on, or fails it."""

    def __init__(self, client: http1.Http1Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held: list[asyncio.Future[None]] = []
        connect = client._connect

        async def held(deadline_s: float):
            gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.held.append(gate)
            await gate
            return await connect(deadline_s)

        monkeypatch.setattr(client, "_connect", held)

    async def begins(self, number: int) -> None:
        """Wait until this number of connections has begun to open."""
        async with asyncio.timeout(60):
            while len(self.held) < number:
                await asyncio.sleep(0.001)


async def test_requests_of_a_burst_wait_for_few_connections(monkeypatch):
    """All of them are answered on the first connection if no other one gets open."""
    async with raw(says(answer(200))) as server, http1_client(Settings(server.url)) as client:
        opening = Opening(client, monkeypatch)
        requests = [asyncio.create_task(client.request(WRITE)) for _ in range(100)]
        await opening.begins(http1._OPENING)
        opening.held[0].set_result(None)
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*requests)

        assert answers == [HttpResponse(200, b"{}", None)] * 100
        assert (len(server.open), len(server.requests)) == (1, 100)
        assert len(opening.held) == http1._OPENING + 1  # one more began when the first one was open


async def test_requests_have_their_own_connections_if_none_is_left():
    """A server that answers none of 50 requests gets all of them."""
    async with raw(says()) as server, http1_client(Settings(server.url)) as client:
        requests = [asyncio.create_task(client.request(WRITE)) for _ in range(50)]
        async with asyncio.timeout(60):
            while len(server.requests) < 50:
                await asyncio.sleep(0.01)
        await client.close()
        outcomes = await asyncio.gather(*requests, return_exceptions=True)

    assert all(isinstance(each, LostError) for each in outcomes)


async def test_a_connection_that_cannot_be_opened_fails_one_request(monkeypatch):
    """The longest waiting one. The next connection is for the other requests."""
    monkeypatch.setattr(http1, "_OPENING", 1)
    async with raw(says(answer(200))) as server, http1_client(Settings(server.url)) as client:
        opening = Opening(client, monkeypatch)
        first, second = (asyncio.create_task(client.request(WRITE)) for _ in range(2))
        await opening.begins(1)
        opening.held[0].set_exception(NotSentError("no route"))
        with pytest.raises(NotSentError, match="no route"):
            await first
        await opening.begins(2)
        opening.held[1].set_result(None)

        assert (await second).status == 200


async def test_a_cancelled_request_leaves_its_connection_to_the_next_one(monkeypatch):
    """Also in the turn of the loop in which it was handed the connection."""
    monkeypatch.setattr(http1, "_OPENING", 1)
    async with raw(says(answer(200))) as server, http1_client(Settings(server.url)) as client:
        keep = client.keep

        def keep_and_cancel(connection):
            keep(connection)
            handed.cancel()

        monkeypatch.setattr(client, "keep", keep_and_cancel)
        opening = Opening(client, monkeypatch)
        waiting, handed, last = (asyncio.create_task(client.request(WRITE)) for _ in range(3))
        await opening.begins(1)
        waiting.cancel()
        await asyncio.sleep(0)
        opening.held[0].set_result(None)

        assert (await last).status == 200
        assert waiting.cancelled()
        assert handed.cancelled()
        assert (len(server.open), len(server.requests)) == (1, 1)


async def test_a_request_without_a_connection_ends_in_time(monkeypatch):
    async with raw(says(answer(200))) as server, http1_client(Settings(server.url)) as client:
        opening = Opening(client, monkeypatch)
        with pytest.raises(NotSentError, match="timed out"):
            await client.request(HttpRequest("POST", "/x", b"{}", timeout_s=0.05))
        opening.held[0].set_result(None)

        assert (await client.request(READ)).status == 200
        assert len(server.open) == 1


async def test_closing_fails_requests_that_wait_for_a_connection(monkeypatch):
    async with raw(says(answer(200))) as server, http1_client(Settings(server.url)) as client:
        Opening(client, monkeypatch)
        requests = [asyncio.create_task(client.request(WRITE)) for _ in range(10)]
        await asyncio.sleep(0)
        await client.close()
        outcomes = await asyncio.gather(*requests, return_exceptions=True)

    assert [str(each) for each in outcomes] == ["not sent: the connections are closed"] * 10
    assert server.requests == []


async def test_a_connection_with_former_credentials_is_not_handed_over(monkeypatch):
    """It was being opened when they were replaced."""
    async with raw(says(answer(200))) as server:
        settings = Settings(server.url)
        async with http1_client(settings) as client:
            opening = Opening(client, monkeypatch)
            request = asyncio.create_task(client.request(WRITE))
            await opening.begins(1)
            connect = http1._Connection

            def of_before(made, _):
                return connect(made, http1._Server(server.url, None, "before"))

            monkeypatch.setattr(http1, "_Connection", of_before)
            opening.held[0].set_result(None)
            await opening.begins(2)
            monkeypatch.setattr(http1, "_Connection", connect)
            opening.held[1].set_result(None)

            assert (await request).status == 200

    assert (len(server.open), len(server.requests)) == (2, 1)
