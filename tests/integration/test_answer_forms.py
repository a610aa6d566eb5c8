"""Every form in which a server or a proxy in front of it may answer a request, with both HTTP clients."""

import asyncio
import gzip
import ssl
import zlib

import pytest

from scheduler.core.errors import Ambiguous, Fenced, TooManyRequests, Unavailable
from scheduler.kube.client_config import Settings
from tests.integration.test_transport import (
    answer,
    chunked,
    client,
    hang_up,
    raw,
    request_client,  # noqa: F401 (a fixture)
    says,
    server_tls,
)
from tests.unit.server.authorities import Authority

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH_2 = b"Content-Length: 2\r\n\r\n{}"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def deflated(text: bytes) -> bytes:
    packed = zlib.compress(text)
    return OK + b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed


@pytest.mark.parametrize(("whole", "body"), [
    pytest.param(OK + LENGTH_2, b"{}", id="a length"),
    pytest.param(b"HTTP/1.1 200\r\n" + LENGTH_2, b"{}", id="no reason phrase"),
    pytest.param(OK + b"content-length:2\r\n\r\n{}", b"{}", id="lower case, no space"),
    pytest.param(OK + b"Content-Length: 0\r\n\r\n", b"", id="no body"),
    pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", b"", id="a status without a body"),
    pytest.param(OK + CHUNKED + chunked(b"{", b"}") + END, b"{}", id="chunks"),
    pytest.param(OK + CHUNKED + b"2;name=value\r\n{}\r\n" + END, b"{}", id="a chunk with an extension"),
    pytest.param(OK + CHUNKED + chunked(b"{}") + b"0\r\nGrpc-Status: 0\r\n\r\n", b"{}", id="a trailer"),
    pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + OK + LENGTH_2, b"{}", id="continue"),
    pytest.param(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK + LENGTH_2, b"{}", id="early hints"),
    pytest.param(deflated(b"{}"), b"{}", id="deflate"),
    pytest.param(OK + b"X: " + b"x" * 7000 + b"\r\n" + LENGTH_2, b"{}", id="a long header"),
])  # fmt: skip
@pytest.mark.parametrize("size_bytes", [1, 7, 1 << 20], ids=["by bytes", "by sevens", "at once"])
async def test_an_answer_is_read_and_its_connection_is_used_again(whole, body, size_bytes):
    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        for begin in range(0, len(whole), size_bytes):
            writer.write(whole[begin : begin + size_bytes])
            await writer.drain()
            if len(whole) < 400:
                await asyncio.sleep(0)

    async with raw(script) as server, client(Settings(server.url)) as transport:
        assert body == await transport.get("/x")
        assert body == await transport.write("POST", "/x", b"{}")

    assert (len(server.open), len(server.requests)) == (1, 2)


@pytest.mark.parametrize(("whole", "body"), [
    pytest.param(OK + b"Connection: close\r\n" + LENGTH_2, b"{}", id="close"),
    pytest.param(OK + b"Connection: close\r\n\r\n{}", b"{}", id="no length"),
    pytest.param(b"HTTP/1.0 200 OK\r\n" + LENGTH_2, b"{}", id="HTTP/1.0"),
    pytest.param(b"HTTP/1.0 200 OK\r\n\r\n{}", b"{}", id="HTTP/1.0 without a length"),
    pytest.param(OK + b"Connection: Close\r\n" + CHUNKED + chunked(b"{}") + END, b"{}", id="chunks and close"),
])  # fmt: skip
async def test_an_answer_may_end_the_connection(whole, body):
    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(whole)
        writer.close()

    async with raw(script) as server, client(Settings(server.url)) as transport:
        assert body == await transport.write("POST", "/x", b"{}")
        assert body == await transport.get("/x")

    assert len(server.open) == 2


@pytest.mark.parametrize("whole", [
    pytest.param(b"", id="nothing"),
    pytest.param(OK, id="half a head"),
    pytest.param(OK + b"Content-Length: 3\r\n\r\n{}", id="half a body"),
    pytest.param(OK + CHUNKED + b"5\r\n{}", id="half a chunk"),
    pytest.param(OK + CHUNKED + chunked(b"{}"), id="no last chunk"),
    pytest.param(OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x", id="two lengths"),
    pytest.param(OK + b"Content-Length: -2\r\n\r\n{}", id="a negative length"),
    pytest.param(OK + CHUNKED + b"two\r\n{}\r\n" + END, id="a chunk without a size"),
    pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="not HTTP"),
    pytest.param(OK + b"Content-Encoding: gzip\r\n" + LENGTH_2, id="not as compressed as it says"),
])  # fmt: skip
async def test_an_unusable_answer_is_no_answer(whole):
    """A read is Unavailable. A write is Ambiguous: the server has the request, and may have carried it out."""

    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(whole)
        writer.close()

    async with raw(script) as server, client(Settings(server.url)) as transport:
        with pytest.raises(Unavailable):
            await transport.get("/x")
        with pytest.raises(Ambiguous):
            await transport.write("POST", "/x", b"{}")

    assert sum(request.startswith(b"POST") for request in server.requests) == 1


async def test_a_head_without_end_is_given_up():
    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"X: ")
        for _part in range(40):
            writer.write(b"x" * 4096)
            await writer.drain()

    async with raw(script) as server, client(Settings(server.url)) as transport:
        with pytest.raises(Unavailable):
            await transport.get("/x", timeout_s=20)


async def test_the_server_may_answer_before_it_has_read_everything():
    """Such as 413, or 429 from a proxy. The rest of the body cannot be sent, and the answer counts."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer(429, b'{"message":"busy"}', "Retry-After: 2", "Connection: close"))
        await writer.drain()
        await reader.read(1 << 22)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, client(Settings(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")) as transport:
        with pytest.raises(TooManyRequests) as caught:
            await transport.write("POST", "/x", b"x" * (1 << 20))

    assert caught.value.retry_after_s == 2


async def test_a_read_on_a_connection_that_the_server_just_closed_gets_a_new_one():
    """Servers close unused connections, sometimes at the moment of the next request. A write is not sent again."""

    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        if len(server.requests) == 2:
            writer.close()
        else:
            writer.write(answer(200))

    async with raw(script) as server, client(Settings(server.url)) as transport:
        assert [b"{}", b"{}"] == [await transport.get("/x") for _ in range(2)]

    assert (len(server.open), len(server.requests)) == (2, 3)


async def test_a_read_that_was_answered_in_part_is_not_sent_again():
    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(200) if len(server.requests) == 1 else answer(200)[:-1])
        if len(server.requests) > 1:
            writer.close()

    async with raw(script) as server, client(Settings(server.url)) as transport:
        await transport.get("/x")
        with pytest.raises(Unavailable):
            await transport.get("/x")

    assert len(server.requests) == 2


async def test_a_cancelled_request_leaves_no_answer_to_the_next_one():
    seen = asyncio.Event()

    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        if b"/slow" in request:
            seen.set()
            await asyncio.sleep(0.05)
        writer.write(answer(200, request.split()[1]))

    async with raw(script) as server, client(Settings(server.url)) as transport:
        slow = asyncio.create_task(transport.get("/slow"))
        await seen.wait()
        slow.cancel()
        assert [b"/quick"] * 3 == [await transport.get("/quick") for _ in range(3)]
        with pytest.raises(asyncio.CancelledError):
            await slow


async def test_a_time_limit_closes_the_connection():
    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        if b"/slow" not in request:
            writer.write(answer(200, b'"quick"'))

    async with raw(script) as server, client(Settings(server.url)) as transport:
        with pytest.raises(Unavailable):
            await transport.get("/slow", timeout_s=0.05)
        assert await transport.get("/quick") == b'"quick"'

    assert len(server.open) == 2


async def test_requests_at_the_same_time_have_different_connections():
    """Afterwards they are shared one after the other."""
    everything = asyncio.Barrier(20)

    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        if b"/together" in request:
            await everything.wait()
        writer.write(answer(200, request.split()[1]))

    async with raw(script) as server, client(Settings(server.url)) as transport:
        targets = [f"/together/{number}" for number in range(20)]
        assert [each.encode() for each in targets] == await asyncio.gather(*map(transport.get, targets))
        for number in range(30):
            await transport.get(f"/alone/{number}")

    assert len(server.open) == 20


async def test_a_refused_write_gives_its_connection_back():
    def fence() -> None:
        raise Fenced("too late")

    async with raw(says(answer(200))) as server, client(Settings(server.url)) as transport:
        for _ in range(3):
            with pytest.raises(Fenced):
                await transport.write("POST", "/x", b"{}", before_sending=fence)
        await transport.get("/x")

    assert len(server.requests) == 1


async def test_a_new_certificate_needs_new_connections(tmp_path):
    """A request that is under way ends on the connection that it has."""
    authority = Authority("ca")
    trusts = [ssl.create_default_context(cadata=authority.pem.decode()) for _ in range(2)]
    slow, go_on = asyncio.Event(), asyncio.Event()

    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        if b"/slow" in request:
            slow.set()
            await go_on.wait()
        writer.write(answer(200, b"%d" % len(server.open)))

    async with raw(script, server_tls(tmp_path, authority)) as server:
        settings = Settings(server.url, tls=trusts[0], tls_server_name="api")
        async with client(settings) as transport:
            assert await transport.get("/x") == b"1"
            under_way = asyncio.create_task(transport.get("/slow"))
            await slow.wait()
            settings.tls = trusts[1]
            assert await transport.get("/x") == b"2"
            go_on.set()
            await under_way
            await transport.get("/x")

    assert len(server.open) == 2


async def test_a_server_behind_a_path():
    """Such as an API server behind Rancher's proxy."""
    async with raw(says(answer(200))) as server, client(Settings(f"{server.url}/k8s/clusters/c-1")) as transport:
        await transport.get("/api/v1/pods", query={"limit": "5"})

    assert server.requests[0].startswith(b"GET /k8s/clusters/c-1/api/v1/pods?limit=5 HTTP/1.1\r\nHost: 127.0.0.1:")


async def test_a_host_name_with_several_addresses(monkeypatch):
    """The first address does not answer."""
    loop = asyncio.get_running_loop()
    found = loop.getaddrinfo

    async def two(host, port, **more):
        if host != "api.example":
            return await found(host, port, **more)
        return await found("127.0.0.9", port, **more) + await found("127.0.0.1", port, **more)

    monkeypatch.setattr(loop, "getaddrinfo", two)
    async with (
        raw(says(answer(200))) as server,
        client(Settings(server.url.replace("127.0.0.1", "api.example"))) as transport,
    ):
        assert await transport.get("/x") == b"{}"
    assert b"Host: api.example:" in server.requests[0]


async def test_a_host_name_without_an_address():
    async with client(Settings("http://api.invalid:6443")) as transport:
        with pytest.raises(Unavailable, match=r"^cannot connect to api\.invalid:6443: "):
            await transport.get("/x")


async def test_gzip_of_several_members():
    whole = gzip.compress(b"[1,") + gzip.compress(b"2]")
    head = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(whole)
    async with raw(says(head + whole)) as server, client(Settings(server.url)) as transport:
        assert await transport.get("/x") == b"[1,2]"


async def test_a_server_that_hangs_up_is_reported_once():
    async with raw(hang_up) as server, client(Settings(server.url)) as transport:
        with pytest.raises(Unavailable):
            await transport.get("/x")
