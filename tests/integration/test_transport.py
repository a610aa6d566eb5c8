"""The HTTP transport against servers that misbehave, and against many forms of kubeconfig."""

import asyncio
import base64
import contextlib
import gzip
import os
import pathlib
import re
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
import yaml

from scheduler.core.errors import Ambiguous, ApiError, Fenced, TooManyRequests, Unauthorized, Unavailable
from scheduler.kube import client_config
from scheduler.kube.client_config import Settings, SettingsError, load_settings
from scheduler.kube.http.shared_session import SharedSession
from scheduler.kube.transport import HttpTransport
from tests.support import kubeconfigs
from tests.support.clock import VirtualClock
from tests.unit.server.authorities import Authority

Script = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
DENIED = b'{"kind":"Status","message":"Unauthorized","reason":"Unauthorized","code":401}'


@pytest.fixture(autouse=True, params=["http1", "aiohttp"])
def request_client(request, monkeypatch):
    """Send the requests with each of the two clients; without a proxy the first one is used."""
    if request.param == "aiohttp":
        monkeypatch.setattr("scheduler.kube.transport.request_client", lambda _, streams: streams)


class Raw:
    """A server that runs a script for each request and keeps the requests."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[bytes] = []
        self.url = ""
        self.open: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length")]
                self.requests.append(head + await reader.readexactly(sum(length)))
                await self._script(self.requests[-1], writer)
                await writer.drain()
                if writer.is_closing():
                    return


@contextlib.asynccontextmanager
async def raw(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Raw]:
    told = Raw(script)
    server = await asyncio.start_server(told.serve, "127.0.0.1", 0, ssl=tls)
    told.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield told
    finally:
        server.close()
        for writer in told.open:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def client(settings: Settings) -> AsyncIterator[HttpTransport]:
    transport = HttpTransport(settings)
    try:
        yield transport
    finally:
        await transport.close()


def answer(status: int, body: bytes = b"{}", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def hang_up(_: bytes, writer: asyncio.StreamWriter) -> None:
    writer.close()


def says(*parts: bytes) -> Script:
    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)

    return script


JSON = {"content_type": "application/json"}
WRITES = [
    pytest.param(lambda t, **more: t.write("POST", "/x", b"{}", **more), id="post"),
    pytest.param(lambda t, **more: t.write("PATCH", "/x", b"{}", **JSON, **more), id="patch"),
    pytest.param(lambda t, **more: t.write("PUT", "/x", b"{}", **JSON, **more), id="put"),
    pytest.param(lambda t, **more: t.write("DELETE", "/x", b"{}", **more), id="delete"),
]
READS = [pytest.param(lambda t: t.get("/x"), id="get"), pytest.param(lambda t: t.list("/x", {"limit": "5"}), id="list")]


@pytest.mark.parametrize("call", WRITES)
async def test_a_write_whose_answer_is_lost_is_ambiguous(call):
    """The server got the request, and may have carried it out. It is not sent again: that could read as a conflict."""
    async with raw(hang_up) as server, client(Settings(server.url)) as transport:
        with pytest.raises(Ambiguous):
            await call(transport)

    assert len(server.requests) == 1


@pytest.mark.parametrize("call", WRITES)
async def test_a_write_on_a_kept_connection_that_is_reset_is_ambiguous(call):
    """As on a new one. The next write opens a new connection."""

    async def once(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(200)) if len(server.requests) != 2 else writer.transport.abort()

    async with raw(once) as server, client(Settings(server.url)) as transport:
        await transport.get("/first")
        with pytest.raises(Ambiguous):
            await call(transport)
        assert (len(server.open), len(server.requests)) == (1, 2)
        await call(transport)
        assert (len(server.open), len(server.requests)) == (2, 3)


@pytest.mark.parametrize("call", READS)
async def test_a_read_whose_answer_is_lost_is_unavailable(call):
    async with raw(hang_up) as server, client(Settings(server.url)) as transport:
        with pytest.raises(Unavailable):
            await call(transport)


@pytest.mark.parametrize("call", READS + WRITES)
async def test_no_connection_is_unavailable(call):
    async with raw(hang_up) as server:
        pass
    port = server.url.rpartition(":")[2]
    async with client(Settings(server.url.replace("http", "https"), tls=ssl.create_default_context())) as transport:
        with pytest.raises(Unavailable, match=rf"^cannot connect to 127\.0\.0\.1:{port}: Connection refused$"):
            await call(transport)


async def opened(transport):
    async with transport.watch("/x", {}, inactivity_timeout_s=5):
        pass


@pytest.mark.parametrize("call", [*READS, *WRITES, pytest.param(opened, id="watch")])
async def test_after_the_close_nothing_is_sent(call):
    """A write that waits for a busy server can outlive the transport."""
    async with raw(says(answer(200))) as server:
        async with client(Settings(server.url)) as transport:
            await transport.get("/x")
        with pytest.raises(Unavailable, match=r"^not sent: the connections are closed$"):
            await call(transport)

    assert len(server.requests) == 1


async def test_a_time_limit_is_unavailable_for_a_read():
    async with raw(says()) as server, client(Settings(server.url)) as transport:
        with pytest.raises(Unavailable):
            await transport.get("/x", timeout_s=0.05)


async def test_refusals_carry_the_status():
    busy = answer(429, b'{"message":"too many"}', "Retry-After: 3")
    async with raw(says(busy)) as server, client(Settings(server.url)) as transport:
        with pytest.raises(TooManyRequests) as caught:
            await transport.write("POST", "/x", b"{}")

    assert ("too many", 3.0) == (caught.value.message, caught.value.retry_after_s)


async def test_what_is_sent():
    async with raw(says(answer(200))) as server, client(Settings(server.url, authorization="Bearer t")) as transport:
        await transport.list("/api/v1/pods", {"fieldSelector": "status.phase!=Failed", "continue": "a+b/="})
        await transport.write("PATCH", "/x", b'{"a":1}', content_type="application/merge-patch+json")

    listed, patched = (request.decode() for request in server.requests)
    assert "GET /api/v1/pods?fieldSelector=status.phase%21%3DFailed&continue=a%2Bb%2F%3D HTTP/1.1" in listed
    assert {"Host", "User-Agent", "Accept", "Accept-Encoding", "Authorization"} == _headers(listed)
    assert "User-Agent: kubestow/" in listed
    told = {"Host", "User-Agent", "Accept", "Accept-Encoding", "Authorization", "Content-Type", "Content-Length"}
    assert told == _headers(patched)
    assert patched.endswith('{"a":1}')


async def test_bytes_of_another_type():
    protobuf = "application/vnd.kubernetes.protobuf"
    async with raw(says(answer(200))) as server, client(Settings(server.url)) as transport:
        await transport.get("/x", accept=protobuf)
        await transport.write("PUT", "/x", b"k8s\0", content_type=protobuf, query={"fieldManager": "kubestow"})
        await transport.get("/x")

    read, put, plain = (request.decode() for request in server.requests)
    assert f"Accept: {protobuf}\r\n" in read
    assert put.startswith("PUT /x?fieldManager=kubestow HTTP/1.1\r\n")
    assert f"Content-Type: {protobuf}\r\n" in put
    assert all("Accept: application/json\r\n" in request for request in (put, plain))
    assert put.endswith("\r\n\r\nk8s\0")


def _headers(request: str) -> set[str]:
    return {line.partition(":")[0] for line in request.partition("\r\n\r\n")[0].split("\r\n")[1:]}


async def test_refused_credentials_are_renewed_and_the_request_is_sent_again():
    renewals: list[bool] = []

    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(200, b'"yes"') if b"Bearer new" in request else answer(401, DENIED))

    async def renew(force: bool) -> None:
        renewals.append(force)
        await asyncio.sleep(0)
        settings.authorization = "Bearer new"

    async with raw(script) as server:
        settings = Settings(server.url, authorization="Bearer old", renew=renew)
        async with client(settings) as transport:
            answers = await asyncio.gather(*(transport.write("POST", "/x", b"{}") for _ in range(3)))
            async with transport.watch("/x", {}, inactivity_timeout_s=5) as chunks:
                assert b'"yes"' == b"".join([chunk async for chunk in chunks])

    assert [b'"yes"'] * 3 == answers
    assert [True] == renewals


async def test_credentials_that_stay_refused_are_an_error():
    async def renew(force: bool) -> None:
        pass

    async with raw(says(answer(401, DENIED))) as server, client(Settings(server.url, renew=renew)) as transport:
        with pytest.raises(Unauthorized):
            await transport.get("/x")
        with pytest.raises(Unauthorized):
            async with transport.watch("/x", {}, inactivity_timeout_s=5):
                pass

    assert 2 == len(server.requests)


@pytest.mark.parametrize("write", WRITES)
async def test_a_write_is_fenced_when_it_has_its_connection(write):
    """Connecting may take long, so the fence is checked when the connection is ready."""

    def fence() -> None:
        assert server.open
        raise Fenced("too late")

    async with raw(says(answer(200))) as server, client(Settings(server.url)) as transport:
        with pytest.raises(Fenced, match="too late"):
            await write(transport, before_sending=fence)
        assert [] == server.requests
        await transport.get("/x")


@pytest.mark.parametrize("write", WRITES)
async def test_a_write_is_fenced_again_after_new_credentials(write):
    async def renew(force: bool) -> None:
        settings.authorization = "Bearer new"

    def fence() -> None:
        if server.requests:
            raise Fenced("too late")

    async with raw(says(answer(401, DENIED))) as server:
        settings = Settings(server.url, authorization="Bearer old", renew=renew)
        async with client(settings) as transport:
            with pytest.raises(Fenced, match="too late"):
                await write(transport, before_sending=fence)

    assert 1 == len(server.requests)


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("parts", "ends"),
    [
        pytest.param([HEAD, b"2\r\na\n\r\n0\r\n\r\n"], None, id="a proper end"),
        pytest.param([HEAD, b"2\r\na\n\r\n5\r\nb"], Unavailable, id="cut within a chunk"),
        pytest.param([answer(410, b'{"message":"too old"}')], ApiError, id="refused"),
        pytest.param([answer(302, b"", "Location: http://127.0.0.1:1/")], ApiError, id="sent elsewhere"),
    ],
)
async def test_how_a_watch_ends(parts, ends):
    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.writelines(parts)
        await writer.drain()
        writer.close()

    async with raw(script) as server, client(Settings(server.url)) as transport:
        with pytest.raises(ends) if ends else contextlib.nullcontext():
            assert b"a\n" == await _drained(transport, inactivity_timeout_s=5)


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


COMPRESSED = b"HTTP/1.1 200 X\r\nContent-Encoding: gzip\r\n"


async def test_a_compressed_list_is_read():
    """Some proxies compress although the client accepts only identity."""
    body = gzip.compress(b'{"metadata":{"resourceVersion":"5"}}')
    whole = COMPRESSED + b"Content-Length: %d\r\n\r\n" % len(body) + body
    async with raw(says(whole)) as server, client(Settings(server.url)) as transport:
        assert b'{"metadata":{"resourceVersion":"5"}}' == await transport.list("/x", {"limit": "5"})

    assert b"Accept-Encoding: identity\r\n" in server.requests[0]


async def test_a_compressed_watch_is_read_as_it_comes():
    packer = zlib.compressobj(wbits=31)
    parts = [packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH) for text in (b"one\n", b"two\n")]
    head = COMPRESSED + b"Transfer-Encoding: chunked\r\n\r\n"
    async with raw(says(head + chunked(*parts))) as server, client(Settings(server.url)) as transport:
        seen = b""
        async with transport.watch("/x", {}, inactivity_timeout_s=5) as chunks:
            async for chunk in chunks:
                seen += chunk
                if seen == b"one\ntwo\n":  # the stream is open still
                    break
    assert b"one\ntwo\n" == seen


@pytest.mark.parametrize("call", READS)
async def test_a_list_that_is_not_as_compressed_as_it_says_is_unavailable(call):
    whole = COMPRESSED + b"Content-Length: 2\r\n\r\n{}"
    async with raw(says(whole)) as server, client(Settings(server.url)) as transport:
        with pytest.raises(Unavailable):
            await call(transport)


async def test_a_silent_watch_is_given_up():
    async with raw(says(HEAD, b"2\r\na\n\r\n")) as server, client(Settings(server.url)) as transport:
        with pytest.raises(Unavailable):
            await _drained(transport, inactivity_timeout_s=0.1)


async def test_a_proxy_that_says_nothing_is_given_up(monkeypatch):
    """The proxy accepts connections and never answers; the time limit of a stream has not begun then."""
    monkeypatch.setattr("scheduler.kube.http.streams.REACH_S", 0.1)

    async with raw(says()) as proxy, client(Settings("https://10.0.0.1", proxy=proxy.url)) as transport:
        with pytest.raises(Unavailable):
            await _drained(transport, inactivity_timeout_s=60)

    assert proxy.requests[0].startswith(b"CONNECT 10.0.0.1:443 ")


@pytest.mark.parametrize("secret", ["", "user:p@ss"], ids=["no password", "a password"])
async def test_a_proxy_gets_no_token(secret):
    """The bearer token is not sent to the proxy. The proxy's password is sent and not shown, because /readyz has the error."""
    async with raw(says(answer(407))) as proxy:
        login = f"{secret.replace('@', '%40')}@" if secret else ""
        settings = Settings("https://10.0.0.1", "Bearer token", proxy=proxy.url.replace("//", f"//{login}"))
        async with client(settings) as transport:
            with pytest.raises(Unavailable, match="407") as refused:
                await transport.get("/x")
            shared_session = SharedSession(settings, transport)
            lent = await shared_session.session()
            assert lent is not None
            with pytest.raises(aiohttp.ClientHttpProxyError) as borrowed:
                await lent.get(settings.server)
            await shared_session.close()

    assert "ss@" not in f"{refused.value} {borrowed.value}"
    shown = b"Proxy-Authorization: Basic " + base64.b64encode(secret.encode())
    found = [(b"uthorization" in each, shown in each, b"Bearer" in each) for each in proxy.requests]
    assert [(bool(secret), bool(secret), False)] * 2 == found


async def _drained(transport: HttpTransport, *, inactivity_timeout_s: float) -> bytes:
    async with transport.watch("/x", {"watch": "true"}, inactivity_timeout_s=inactivity_timeout_s) as chunks:
        return b"".join([chunk async for chunk in chunks])


# -- settings ----------------------------------------------------------------------------------------------------------


def kubeconfig(path, user, server="http://127.0.0.1:1", **rest):
    path.write_text(yaml.safe_dump(kubeconfigs.kubeconfig(user or {}, server, **rest)))
    return str(path)


async def test_a_token_file_is_read_again(tmp_path):
    token = tmp_path / "token"
    token.write_text("first\n")
    settings = await load_settings(kubeconfig(tmp_path / "config", {"tokenFile": str(token)}))
    assert "Bearer first" == settings.authorization

    token.write_text("second\n")
    assert settings.renew is not None
    await settings.renew(False)
    assert "Bearer second" == settings.authorization

    token.unlink()
    await settings.renew(False)
    assert "Bearer second" == settings.authorization


async def test_an_authority_that_is_replaced_is_read_again(tmp_path):
    """The file keeps its name. Otherwise each connection would fail, and no request would be refused."""
    authorities = Authority("old"), Authority("new")
    ca = tmp_path / "ca.crt"
    ca.write_bytes(authorities[0].pem)
    async with raw(says(answer(200)), server_tls(tmp_path, authorities[1])) as server:
        trust = {"certificate-authority": str(ca), "tls-server-name": "api"}
        settings = await load_settings(kubeconfig(tmp_path / "config", {"token": "t"}, server.url, **trust))
        assert settings.renew is not None
        before = settings.tls
        await settings.renew(False)
        assert before is settings.tls

        clock = VirtualClock()
        transport = HttpTransport(settings, clock=clock)
        try:
            with pytest.raises(Unavailable, match="certificate"):
                await transport.get("/x")
            ca.write_bytes(authorities[1].pem)
            await clock.advance(61.0)
            with pytest.raises(Unavailable, match="certificate"):  # it is read while this one is on its way
                await transport.get("/x")
            assert b"{}" == await transport.get("/x")
        finally:
            await transport.close()


async def test_a_shared_session_follows_a_replaced_authority(tmp_path):
    authorities = Authority("old"), Authority("new")
    trusts = [ssl.create_default_context(cadata=each.pem.decode()) for each in authorities]
    async with raw(says(answer(200)), server_tls(tmp_path, authorities[1])) as server:
        settings = Settings(server.url, tls=trusts[0], tls_server_name="api")
        async with client(settings) as transport:
            shared_session = SharedSession(settings, transport)
            session = await shared_session.session()
            assert session is not None
            try:
                with pytest.raises(aiohttp.ClientConnectorCertificateError):
                    await session.get(shared_session.server)

                settings.tls = trusts[1]

                async with session.get(shared_session.server) as answered:
                    assert 200 == answered.status
            finally:
                await shared_session.close()


@pytest.mark.parametrize(("path", "accept"), [
    pytest.param("/apis/g/v1/whatifs?limit=100", b"as=PartialObjectMetadataList;", id="a list of the kind"),
    pytest.param("/apis/g/v1/whatifs?watch=true", b"as=PartialObjectMetadata;", id="a watch of the kind"),
    pytest.param("/apis/g/v1", b"", id="discovery"),
    pytest.param("/apis/g/v1/schedulerprofiles", b"", id="another kind"),
])  # fmt: skip
async def test_a_shared_session_reads_metadata_alone_of_some_kinds(path, accept):
    """An empty list of metadata has `items: null`, over which kopf cannot iterate."""
    async with raw(says(answer(200, b'{"items": null}'))) as server:
        settings = Settings(server.url, "Bearer token")
        async with client(settings) as transport:
            shared_session = SharedSession(settings, transport, metadata_of=("/whatifs",))
            session = await shared_session.session()
            assert session is not None
            async with session.get(f"{server.url}{path}") as answered:
                assert await answered.json() == {"items": []}
            await shared_session.close()

    (request,) = server.requests
    assert (b"as=PartialObjectMetadata" in request, accept in request) == (bool(accept), True)
    assert b"Authorization: Bearer token" in request


async def test_half_a_file_is_looked_at_again(tmp_path):
    """The writer may not be done; the old authority counts until the next read."""
    ca = tmp_path / "ca.crt"
    ca.write_bytes(Authority("old").pem)
    trust = {"certificate-authority": str(ca)}
    settings = await load_settings(kubeconfig(tmp_path / "config", {}, "https://127.0.0.1:1", **trust))
    assert settings.renew is not None
    before, new = settings.tls, Authority("new").pem
    ca.write_bytes(new[:100])
    await settings.renew(False)
    assert before is settings.tls

    ca.write_bytes(new)
    await settings.renew(False)
    assert before is not settings.tls


def server_tls(directory: pathlib.Path, authority: Authority, name: str = "api") -> ssl.SSLContext:
    issued = authority.issues(name)
    file = directory / "serving.pem"
    file.write_bytes(issued.key + issued.certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(file)
    return tls


async def test_of_two_kubeconfigs_the_first_one_says_which_context(tmp_path):
    """As kubectl reads $KUBECONFIG: otherwise another cluster would be scheduled."""
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        kubeconfig(path, {}, f"http://{path.name}", name=path.name)

    settings = await load_settings(os.pathsep.join(map(str, paths)))

    assert "http://a" == settings.server


async def test_master_replaces_the_address(tmp_path):
    settings = await load_settings(kubeconfig(tmp_path / "config", {"token": "t"}), "http://other:8080/")
    assert settings.renew is not None
    await settings.renew(True)
    alone = await load_settings(master="http://127.0.0.1:8080/")

    assert ("http://other:8080", "Bearer t") == (settings.server, settings.authorization)
    assert ("http://127.0.0.1:8080", None, None) == (alone.server, alone.authorization, alone.renew)


NO_ADDRESSES = "localhost:8080 http://[::1 http://host:99999 ftp://host https:// http://a..b http://h?a=b http://a:b@c"


@pytest.mark.parametrize("master", NO_ADDRESSES.split())
async def test_an_address_that_is_none_is_refused(master):
    with pytest.raises(SettingsError, match=re.escape(master)):
        await load_settings(master=master)


_CLUSTER = """current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: {}}}}}]
users:
- name: u
"""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(None, "", id="no such file"),
        pytest.param("/", "Is a directory", id="a directory"),
        pytest.param("", "holds no kubeconfig", id="empty"),
        pytest.param("- a", "holds no kubeconfig", id="a list"),
        pytest.param("\x01", "unacceptable character", id="no text"),
        pytest.param("{: :", "", id="not YAML"),
        pytest.param("kind: Config", "", id="nothing in it"),
        pytest.param("current-context: x\ncontexts: []\nclusters: []\nusers: []", "", id="no such context"),
        pytest.param(_CLUSTER.format("localhost:6443"), "", id="an address without its scheme"),
        pytest.param(_CLUSTER.format("https://x, proxy-url: socks5://y"), "", id="a proxy of a kind that we do not speak"),
        pytest.param(_CLUSTER.format("https://x") + '  user: {token: "a\\nb"}\n', "", id="a token of two lines"),
    ],
)  # fmt: skip
async def test_a_useless_kubeconfig_is_named_in_one_line(tmp_path, content, said):
    path = tmp_path / "config"
    if content == "/":
        path.mkdir()
    elif content is not None:
        path.write_text(content)

    with pytest.raises(SettingsError, match=str(path)) as refused:
        await load_settings(str(path))
    assert said in str(refused.value)
    assert not said or "\n" not in str(refused.value)


async def test_the_service_account_is_found(tmp_path, monkeypatch):
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("one")
    ca.write_bytes(Authority("cluster").pem)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(client_config, "_SERVICE_ACCOUNT_TOKEN", token)
    monkeypatch.setattr(client_config, "_SERVICE_ACCOUNT_CA", ca)

    settings = await load_settings()
    assert ("https://10.0.0.1:443", "Bearer one") == (settings.server, settings.authorization)
    assert settings.tls is not None

    token.write_text("two\n")
    assert settings.renew is not None
    await settings.renew(False)
    assert "Bearer two" == settings.authorization
