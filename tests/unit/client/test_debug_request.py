"""One request to a daemon at `--server` or behind a tunnel: answers, the retry, credentials, certificates, and failures."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from scheduler import __version__
from scheduler.client import port_forward as forwarding
from scheduler.client.debug_request import Access, Answer, Client, DebugRequest, answer_of, opened
from scheduler.client.leader import Leader, LeaseName, NoAnswer
from scheduler.client.port_forward import port_forward
from scheduler.kube import transport as client_transport
from scheduler.kube.client_config import load_settings
from scheduler.kube.transport import api_server_socket
from tests.support.kubeconfigs import kubeconfig
from tests.support.port_forwarding import ApiFront, Forwarder, fronted, serving
from tests.unit.kube.scripted import LeapingClock
from tests.unit.server.authorities import Authority

LEASE = LeaseName("kubestow", "stow", "stow")
EXPLAIN = DebugRequest("GET", "/debug/explain/demo/web-0", "/debug/explain/*")
WHAT_IF = DebugRequest("POST", "/debug/what-if", "/debug/what-if", b"{}", wants_text=False)


@dataclass
class Daemon:
    """Gives prepared answers, the last one again and again, and records requests."""

    answers: list[web.Response | Exception]
    requests: list[tuple[str, str, str, bytes]] = field(default_factory=list)

    async def answer(self, request: web.BaseRequest) -> web.Response:
        authorization = request.headers.get("Authorization", "")
        self.requests.append((request.method, request.path_qs, authorization, await request.read()))
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, Exception):
            assert request.transport is not None
            request.transport.abort()
            raise found
        return web.Response(body=found.body, status=found.status, headers=found.headers)


def text(body: str, status: int = 200, code: int | None = None, **headers: str) -> web.Response:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if code is not None:
        given["Kubestow-Exit-Code"] = str(code)
    return web.Response(text=body, status=status, headers=given)


@pytest.fixture
def kubeconfig_file(tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes a kubeconfig of a user."""

    def write(user: dict[str, Any], server: str = "https://127.0.0.1:1", **context: Any) -> str:
        unverified: dict[str, Any] = {"insecure-skip-tls-verify": True}
        document = kubeconfig(user, server, **unverified)
        document["contexts"][0]["context"] |= context
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(document))
        return str(file)

    return write


async def sent(request: DebugRequest, access: Access, clock: LeapingClock | None = None) -> Answer:
    async with opened(access, clock=clock) as client:
        return await client.send(request)


async def plainly(*answers: web.Response | Exception, request: DebugRequest = EXPLAIN) -> tuple[Answer, Daemon]:
    """The answer of a daemon without TLS."""
    daemon = Daemon(list(answers))
    async with serving(daemon.answer) as url:
        return await sent(request, Access(LEASE, server=url), LeapingClock()), daemon


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        pytest.param(text("ok", code=0), (200, "ok", 0), id="an explanation with its exit code"),
        pytest.param(text("ok", code=2), (200, "ok", 2), id="another exit code"),
        pytest.param(text("ok"), (200, "ok", None), id="no exit code"),
        pytest.param(text("ok", code=7), (200, "ok", None), id="an exit code that is none"),
        pytest.param(text("a\x1b[2Jb\n\tc", code=0), (200, "a?[2Jb\n\tc", 0), id="control characters"),
        pytest.param(
            text("there is no pod demo/web-0\n", 404), (404, "there is no pod demo/web-0\n", 3), id="no such pod"
        ),
        pytest.param(
            text("replicas: must be above 0", 400), (400, "replicas: must be above 0", 3), id="a malformed request"
        ),
    ],
)
async def test_an_answer(given: web.Response, answer: tuple[int, str, int | None]) -> None:
    found, _ = await plainly(given)

    assert (found.status, found.text, found.exit_code) == answer


async def test_the_requests() -> None:
    _, daemon = await plainly(text("ok", code=0))
    _, other = await plainly(text("{}", code=0), request=WHAT_IF)

    assert daemon.requests == [("GET", "/debug/explain/demo/web-0?output=text", "", b"")]
    assert other.requests == [("POST", "/debug/what-if", "", b"{}")]


STATUS = json.dumps({"kind": "Status", "message": 'User "ann" cannot get path "/x"', "code": 403})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(
            text('{"message": "Unauthorized"}', 401),
            "the scheduler does not accept your credentials (401): Unauthorized; it takes bearer tokens and client "
            "certificates that the API server of its cluster knows",
            id="unknown credentials",
        ),
        pytest.param(
            text(STATUS, 403),
            'no permission: User "ann" cannot get path "/x"; a ClusterRole needs the rule {nonResourceURLs: '
            '["/debug/explain/*"], verbs: [get]}',
            id="no right to the page",
        ),
        pytest.param(
            text("404 page not found\n", 404, Server="kubestow/0.1.0"),
            "the scheduler does not serve GET /debug/explain/demo/web-0 (404): it is of version 0.1.0, and this program of "
            f"{__version__}; use the program of the scheduler's version",
            id="a scheduler of another version",
        ),
        pytest.param(
            text("405 method not allowed\n", 405, Server="kubestow"),
            "the scheduler does not serve GET /debug/explain/demo/web-0 (405): it is of version unknown, and this program "
            f"of {__version__}; use the program of the scheduler's version",
            id="a scheduler of an unknown version",
        ),
        pytest.param(
            text("429 too many questions are waiting; try again\n", 429),
            "too many questions wait for the scheduler (429): 429 too many questions are waiting; try again; try again in "
            "a minute",
            id="a busy scheduler",
        ),
        pytest.param(
            text("503 the cache is not filled yet\n", 503),
            "the scheduler cannot answer yet (503): 503 the cache is not filled yet; try again in a minute",
            id="a scheduler that starts",
        ),
        pytest.param(
            text("", 500),
            "the scheduler did not answer the request (500): no text; its log has the cause",
            id="a failure without a text",
        ),
    ],
)
async def test_no_answer(given: web.Response, said: str) -> None:
    with pytest.raises(NoAnswer) as raised:
        await plainly(given)

    assert str(raised.value) == said


@pytest.mark.parametrize("status", [429, 503])
async def test_one_retry_after_the_time_that_the_daemon_names(status: int) -> None:
    clock = LeapingClock()
    daemon = Daemon([text("later", status, Retry_After="7"), text("ok", code=0)])
    async with serving(daemon.answer) as url:
        answer = await sent(EXPLAIN, Access(LEASE, server=url), clock)

    assert (answer.text, len(daemon.requests), clock.slept) == ("ok", 2, [7.0])


@pytest.mark.parametrize(
    ("header", "slept_s"),
    [
        pytest.param("3600", 30.0, id="an hour is too long"),
        pytest.param("soon", 1.0, id="no number"),
        pytest.param("9" * 400, 1.0, id="a number without end"),
    ],
)
async def test_a_bounded_wait(header: str, slept_s: float) -> None:
    clock = LeapingClock()
    daemon = Daemon([text("later", 429, Retry_After=header)])
    async with serving(daemon.answer) as url:
        with pytest.raises(NoAnswer):
            await sent(EXPLAIN, Access(LEASE, server=url), clock)

    assert (len(daemon.requests), clock.slept) == (2, [slept_s])


async def test_a_connection_that_is_closed_in_the_middle() -> None:
    with pytest.raises(NoAnswer, match=r"^http://127\.0\.0\.1:\d+: the connection was closed: .+; try again$"):
        await plainly(ConnectionResetError("cut"))


async def test_nothing_listens() -> None:
    said = r"^http://127\.0\.0\.1:1: cannot connect: .+; is the scheduler started there\?$"
    with pytest.raises(NoAnswer, match=said):
        await sent(EXPLAIN, Access(LEASE, server="http://127.0.0.1:1"))


async def test_no_answer_in_time() -> None:
    async def never(_: web.BaseRequest) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(never) as url:
        with pytest.raises(NoAnswer) as raised:
            await sent(EXPLAIN, Access(LEASE, server=url, timeout_s=0.2))

    assert str(raised.value) == (
        f"no answer within 0.2 s, while waiting for an answer of {url}; --timeout gives more time"
    )


@pytest.mark.parametrize(
    ("server", "said"),
    [
        pytest.param(
            "127.0.0.1:10259", "expected an address such as https://127.0.0.1:10259, got '127.0", id="no scheme"
        ),
        pytest.param("https://h/debug", "expected an address such as", id="a path"),
        pytest.param("https://h:port", "expected an address such as", id="no port"),
        pytest.param("https://10.0.0.1:10259", "https://10.0.0.1:10259 is not on this machine, so its", id="far away"),
        pytest.param("http://10.0.0.1", "http://10.0.0.1 is not on this machine, so its", id="far away, without TLS"),
    ],
)
async def test_credentials_go_to_no_server_that_nothing_vouches_for(server: str, said: str) -> None:
    with pytest.raises(NoAnswer) as raised:
        await sent(EXPLAIN, Access(LEASE, server=server))

    assert str(raised.value).startswith(f"--server: {said}")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param({"kubeconfig": "/nowhere"}, "kubeconfig /nowhere: no such file", id="no file"),
        pytest.param({"context": "x"}, "Expected object with name x in", id="no such context"),
    ],
)
async def test_an_unusable_kubeconfig(kubeconfig_file: Any, given: dict[str, str], said: str) -> None:
    with pytest.raises(NoAnswer) as raised:
        await sent(EXPLAIN, Access(LEASE, **{"kubeconfig": kubeconfig_file({"token": "t"})} | given))

    assert said in str(raised.value)
    assert str(raised.value).endswith(
        "; name a kubeconfig by --kubeconfig or $KUBECONFIG, and its context by --context"
    )


@pytest.mark.parametrize(
    ("context", "namespace"),
    [
        pytest.param({}, "default", id="a context without a namespace"),
        pytest.param({"namespace": "demo"}, "demo", id="a context with a namespace"),
    ],
)
async def test_the_namespace_of_the_context(kubeconfig_file: Any, context: dict[str, str], namespace: str) -> None:
    async with opened(Access(LEASE, kubeconfig=kubeconfig_file({"token": "t"}, **context))) as client:
        assert client.namespace == namespace


# -- TLS -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Certified:
    """A serving certificate, its authority, and contexts of the server."""

    authority: Authority
    directory: Path

    def context(self, name: str) -> ssl.SSLContext:
        issued, file = self.authority.issues(name), self.directory / f"{name}.pem"
        file.write_bytes(issued.key + issued.certificate)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=self.authority.pem.decode())
        context.load_cert_chain(file)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    @property
    def ca_file(self) -> str:
        file = self.directory / "ca.pem"
        file.write_bytes(self.authority.pem)
        return str(file)


@pytest.fixture
def certified(tmp_path: Path) -> Certified:
    return Certified(Authority("authority"), tmp_path)


async def caller(request: web.BaseRequest) -> web.Response:
    """Answer with the credentials of the request."""
    tls = request.get_extra_info("ssl_object")
    shown = (tls.getpeercert() if tls is not None else None) or {}
    names = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
    return text(f"{request.headers.get('Authorization', '')}|{','.join(names)}", code=0)


def users(certified: Certified, tmp_path: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """Users of a kubeconfig, and what the daemon sees of each."""
    issued = certified.authority.issues("ann")
    data = {
        "client-certificate-data": base64.b64encode(issued.certificate).decode(),
        "client-key-data": base64.b64encode(issued.key).decode(),
    }
    token_file = tmp_path / "token"
    token_file.write_text("of-a-file")
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "of-a-plugin"},
    }
    plugin = {"apiVersion": credential["apiVersion"], "command": "echo", "args": [json.dumps(credential)]}
    return {
        "token": ({"token": "static"}, "Bearer static|"),
        "file": ({"tokenFile": str(token_file)}, "Bearer of-a-file|"),
        "plugin": ({"exec": plugin}, "Bearer of-a-plugin|"),
        "certificate": (data, "|ann"),
        "nothing": ({}, "|"),
    }


@pytest.mark.parametrize("way", ["a server", "a tunnel"])
@pytest.mark.parametrize("user", ["token", "file", "plugin", "certificate", "nothing"])
async def test_credentials(certified: Certified, tmp_path: Path, kubeconfig_file: Any, user: str, way: str) -> None:
    """Each kind of credentials reaches the daemon, whose certificate is not verified."""
    given, seen = users(certified, tmp_path)[user]
    async with serving(caller, certified.context("localhost")) as url:
        if way == "a server":
            access = Access(LEASE, kubeconfig=kubeconfig_file(given), server=url)
            answer = await sent(EXPLAIN, access)
        else:
            async with cluster(int(url.rpartition(":")[2]), certified.context("127.0.0.1")) as front:
                answer = await sent(EXPLAIN, Access(LEASE, kubeconfig=kubeconfig_file(given, front.url)))

    assert answer.text == seen


@pytest.mark.parametrize(
    ("name", "expected", "said"),
    [
        pytest.param("kubestow.stow.svc", "", "", id="the name of the Service"),
        pytest.param("localhost", "localhost", "", id="the name that is given"),
        pytest.param(
            "localhost", "", "the scheduler's certificate is not valid for kubestow.stow.svc: ", id="another name"
        ),
    ],
)
async def test_a_certificate_is_verified_with_authorities(
    certified: Certified, kubeconfig_file: Any, name: str, expected: str, said: str
) -> None:
    async with (
        serving(caller, certified.context(name)) as url,
        cluster(int(url.rpartition(":")[2])) as front,
    ):
        access = Access(
            LEASE,
            kubeconfig=kubeconfig_file({"token": "t"}, front.url),
            ca_file=certified.ca_file,
            server_name=expected,
        )
        if not said:
            assert (await sent(EXPLAIN, access)).text == "Bearer t|"
            return
        with pytest.raises(NoAnswer) as raised:
            await sent(EXPLAIN, access)

    assert str(raised.value).startswith(said)
    assert str(raised.value).endswith("--scheduler-ca-file and the name by --scheduler-server-name")


async def test_a_foreign_authority(certified: Certified, tmp_path: Path, kubeconfig_file: Any) -> None:
    """Nothing is sent to a server whose certificate is not valid."""
    requests: list[str] = []

    async def record(request: web.BaseRequest) -> web.Response:
        requests.append(request.path)
        return text("ok", code=0)

    other = tmp_path / "other.pem"
    other.write_bytes(Authority("other").pem)
    async with serving(record, certified.context("localhost")) as url:
        server = url.replace("127.0.0.1", "localhost")
        access = Access(LEASE, kubeconfig=kubeconfig_file({"token": "t"}), server=server, ca_file=str(other))
        with pytest.raises(NoAnswer, match=r"^the scheduler's certificate is not valid for localhost: "):
            await sent(EXPLAIN, access)
        assert requests == []


async def test_an_unreadable_authority(kubeconfig_file: Any) -> None:
    access = Access(LEASE, kubeconfig=kubeconfig_file({}), server="https://127.0.0.1:1", ca_file="/nowhere")
    with pytest.raises(NoAnswer, match=r"^/nowhere: cannot be used as a certificate: .*No such file"):
        await sent(EXPLAIN, access)


# -- the tunnel ------------------------------------------------------------------------------------------------------------


def cluster(port: int, tls: ssl.SSLContext | None = None, **faults: Any) -> Any:
    """An API server with a Lease and a pod whose port is forwarded to this one."""
    record = {"holderIdentity": "stow-0_1", "renewTime": "2999-01-01T00:00:00Z"}
    objects = {
        "/leases/kubestow": {"metadata": {"name": "kubestow", "resourceVersion": "1"}, "spec": record},
        "/pods/stow-0": {
            "spec": {"nodeName": "n1", "containers": [{"image": "stow:9"}]},
            "status": {"phase": "Running"},
        },
    }

    class Front(ApiFront):
        async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
            for end, value in objects.items():
                if request.path.endswith(end):
                    return web.json_response(value)
            return await super().answer(request)

    return fronted(Front(Forwarder(port, **faults)), tls)


@pytest.mark.parametrize(
    "cuts_after_bytes",
    [pytest.param(20, id="within the handshake"), pytest.param(3000, id="within the answer")],
)
async def test_a_tunnel_that_is_closed_in_the_middle(
    certified: Certified, kubeconfig_file: Any, cuts_after_bytes: int
) -> None:
    async def long(_: web.BaseRequest) -> web.Response:
        return text("x" * 100_000, code=0)

    async with (
        serving(long, certified.context("localhost")) as url,
        cluster(int(url.rpartition(":")[2]), cuts_after_bytes=cuts_after_bytes) as front,
    ):
        access = Access(LEASE, kubeconfig=kubeconfig_file({"token": "t"}, front.url))
        with pytest.raises(NoAnswer, match=r"^the connection to pod stow/stow-0 was closed: .+; try again$"):
            await sent(EXPLAIN, access)


async def test_the_trust_of_the_kubeconfig(certified: Certified, tmp_path: Path) -> None:
    """The websocket verifies the API server as each other request does."""
    other = tmp_path / "other.pem"
    other.write_bytes(Authority("other").pem)
    async with (
        serving(caller, certified.context("localhost")) as url,
        cluster(int(url.rpartition(":")[2]), certified.context("api")) as front,
    ):
        leader = Leader("stow", "stow-0", int(url.rpartition(":")[2]))
        for authority, name, is_valid in ((certified.ca_file, "api", True), (str(other), "api", False)):
            document = kubeconfig(
                {"token": "t"}, front.url, **{"certificate-authority": authority, "tls-server-name": name}
            )
            file = tmp_path / "trusting"
            file.write_text(yaml.safe_dump(document))
            settings = await load_settings(str(file))
            if is_valid:
                assert (await sent(EXPLAIN, Access(LEASE, kubeconfig=str(file)))).text == "Bearer t|"
                continue
            with pytest.raises(NoAnswer, match=r"^the API server cannot be reached: .*certificate"):
                async with port_forward(settings, leader):
                    pass
    assert len(front.forwarder.requested) == 1


async def test_a_proxy_before_the_api_server(certified: Certified, tmp_path: Path) -> None:
    """The requests and the websocket go through the proxy of the kubeconfig."""
    connected: list[str] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        connected.append(head.split()[1].decode())
        host, _, port = connected[-1].rpartition(":")
        back, forth = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(copied(reader, forth), copied(back, writer))

    async def copied(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await source.read(65536):
                target.write(chunk)
                await target.drain()
        target.close()

    async with (
        serving(caller, certified.context("localhost")) as url,
        cluster(int(url.rpartition(":")[2]), certified.context("127.0.0.1")) as front,
        await asyncio.start_server(proxy, "127.0.0.1", 0) as server,
    ):
        through = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        trust = {"certificate-authority": certified.ca_file, "proxy-url": through}
        file = tmp_path / "proxied"
        file.write_text(yaml.safe_dump(kubeconfig({"token": "t"}, front.url, **trust)))
        assert (await sent(EXPLAIN, Access(LEASE, kubeconfig=str(file)))).text == "Bearer t|"

    assert connected == [front.url.removeprefix("https://")] * 2


async def test_a_port_on_which_nothing_listens(kubeconfig_file: Any) -> None:
    async with cluster(1) as front:
        with pytest.raises(NoAnswer) as raised:
            await sent(EXPLAIN, Access(LEASE, kubeconfig=kubeconfig_file({"token": "t"}, front.url)))

    assert str(raised.value) == (
        "the connection to pod stow/stow-0 was closed: failed to connect to localhost:1 inside the pod: connection "
        "refused; try again"
    )


async def test_a_tunnel_in_which_nothing_comes(certified: Certified, kubeconfig_file: Any) -> None:
    async with (
        serving(caller, certified.context("localhost")) as url,
        cluster(int(url.rpartition(":")[2]), hangs=True) as front,
    ):
        access = Access(LEASE, kubeconfig=kubeconfig_file({"token": "t"}, front.url), timeout_s=3.0)
        with pytest.raises(NoAnswer) as raised:
            await sent(EXPLAIN, access)

    assert str(raised.value) == (
        "no answer within 3 s, while waiting for an answer of pod stow/stow-0; --timeout gives more time"
    )


async def test_the_version_of_a_pod(certified: Certified, kubeconfig_file: Any) -> None:
    async def unknown(_: web.BaseRequest) -> web.Response:
        return text("404 page not found\n", 404)

    async with (
        serving(unknown, certified.context("localhost")) as url,
        cluster(int(url.rpartition(":")[2])) as front,
    ):
        with pytest.raises(NoAnswer) as raised:
            await sent(WHAT_IF, Access(LEASE, kubeconfig=kubeconfig_file({"token": "t"}, front.url)))

    assert str(raised.value) == (
        "pod stow/stow-0 does not serve POST /debug/what-if (404): it is of version 9, and this program of "
        f"{__version__}; use the program of the scheduler's version"
    )


def test_an_answer_that_is_not_utf_8() -> None:
    assert answer_of(200, {}, b"\xff").text == "\ufffd"


async def test_an_answer_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.client.debug_request._LONGEST_ANSWER", 1000)
    with pytest.raises(NoAnswer, match=r"^the answer has more than 1000 bytes; use -o text$"):
        await plainly(text("x" * 2000, code=0))


async def test_two_requests_of_one_client() -> None:
    daemon = Daemon([text("ok", code=0)])
    async with serving(daemon.answer) as url, opened(Access(LEASE, server=url)) as client:
        assert isinstance(client, Client)
        for request in (EXPLAIN, WHAT_IF):
            assert (await client.send(request)).text == "ok"

    assert [each[0] for each in daemon.requests] == ["GET", "POST"]


@pytest.mark.parametrize("way", ["a tunnel", "a tunnel that is cut", "a refused tunnel", "a server", "no trust"])
async def test_no_socket_is_left_when_the_loop_ends(
    certified: Certified, kubeconfig_file: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The command's loop ends with its request."""
    made: list[socket.socket] = []

    def recorded(address: Any) -> socket.socket:
        made.append(api_server_socket(address))
        return made[-1]

    def pair() -> tuple[socket.socket, socket.socket]:
        ends = socketpair()
        made.extend(ends)
        return ends

    async def closing(request: web.BaseRequest) -> web.Response:
        response = await caller(request)
        response.force_close()
        return response

    socketpair = socket.socketpair
    faults: dict[str, Any] = {"cuts_after_bytes": 1000} if way == "a tunnel that is cut" else {}
    async with (
        serving(closing, certified.context("localhost")) as url,
        cluster(int(url.rpartition(":")[2]), certified.context("127.0.0.1"), **faults) as front,
    ):
        front.statuses = {"/portforward": 403} if way == "a refused tunnel" else {}
        server = url if way == "a server" else ""
        ca_file = certified.ca_file if way == "no trust" else ""
        access = Access(LEASE, kubeconfig=kubeconfig_file({"token": "t"}, front.url), server=server, ca_file=ca_file)

        def run() -> None:
            gc.disable()
            with contextlib.suppress(NoAnswer):
                asyncio.run(sent(EXPLAIN, access))

        for module in (client_transport, forwarding):
            monkeypatch.setattr(module, "api_server_socket", recorded)
        monkeypatch.setattr(forwarding.socket, "socketpair", pair)  # type: ignore[attr-defined]
        try:
            await asyncio.to_thread(run)
            left = [each for each in made if each.fileno() >= 0]
        finally:
            gc.enable()

    assert len(made) >= 1
    assert left == []
