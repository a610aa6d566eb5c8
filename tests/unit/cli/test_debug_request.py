"""One request to a daemon at `--server`: answers, the retry, failures, and where no credentials are sent."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from scheduler import __version__
from scheduler.cli.debug_request import Access, Client, DebugAnswer, DebugRequest, MalformedInput, answer_of, opened
from scheduler.cli.leader import NoAnswer
from tests.support.port_forwarding import serving
from tests.unit.cli.requests import EXPLAIN, LEASE, WHAT_IF, Certified, other_program, sent, text
from tests.unit.kube.scripted import LeapingClock

NO_PORT = "must have only a colon and a port of 1 to 65535 after the host"


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


async def plainly(*answers: web.Response | Exception, request: DebugRequest = EXPLAIN) -> tuple[DebugAnswer, Daemon]:
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
        pytest.param(text("a\x1b[2Jb\n\tc", code=0), (200, "a\\x1b[2Jb\n\tc", 0), id="control characters"),
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


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"SSH-2.0-OpenSSH\r\n", id="another protocol"),
        pytest.param(b"HTTP/1.1 many\r\n\r\n", id="no status"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA B\r\n\r\n", id="no header"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="no chunk"),
    ],
)
async def test_an_answer_that_is_no_http(answer: bytes) -> None:
    async with other_program(answer) as url:
        with pytest.raises(NoAnswer) as raised:
            await sent(EXPLAIN, Access(LEASE, server=url))

    said = rf"{url}: the answer is no HTTP \([A-Z][^\n]+[a-z/]\); another program than the scheduler listens there"
    assert re.fullmatch(said, str(raised.value))


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        pytest.param(
            "socks5://u:secret@p", "the address of HTTP_PROXY must begin with https:// or http://", id="socks"
        ),
        pytest.param("http://p:", f"the address of HTTP_PROXY {NO_PORT}", id="an empty port"),
    ],
)
async def test_a_proxy_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, proxy: str, said: str) -> None:
    monkeypatch.setattr("scheduler.kube.client_config._is_loopback", lambda _: False)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(NoAnswer) as raised:
        await sent(EXPLAIN, Access(LEASE, server="http://127.0.0.1:1"))

    assert str(raised.value).startswith(f"http://127.0.0.1:1: {said}")
    assert "secret" not in str(raised.value)


async def test_a_proxy_that_refuses(
    monkeypatch: pytest.MonkeyPatch, kubeconfig_file: Any, certified: Certified
) -> None:
    async with other_program(b"HTTP/1.1 403 Forbidden\r\n\r\n") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        access = Access(LEASE, kubeconfig=kubeconfig_file({}), server="https://s:1", ca_file=certified.ca_file)
        with pytest.raises(NoAnswer) as raised:
            await sent(EXPLAIN, access)

    assert str(raised.value) == f"https://s:1: the proxy {proxy} does not connect: 403 Forbidden"


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
        pytest.param("127.0.0.1:10259", "must begin with https:// or http:// and name a host", id="no scheme"),
        pytest.param("foo", "must begin with https:// or http:// and name a host", id="a word"),
        pytest.param("https://h/debug", "must have no path", id="a path"),
        pytest.param("https://h?x=1", "must end with the path", id="a query"),
        pytest.param("https://u:p@h:1", "must not name a user", id="a user"),
        pytest.param("https://h:port", NO_PORT, id="no port"),
        pytest.param("http://127.0.0.1:", NO_PORT, id="an empty port"),
    ],
)
async def test_a_server_that_is_no_address(server: str, said: str) -> None:
    with pytest.raises(MalformedInput) as raised:
        await sent(EXPLAIN, Access(LEASE, server=server))

    expected = "expected an address such as https://127.0.0.1:10259"
    assert str(raised.value) == f"--server {said}; {expected}, got {server!r}"


@pytest.mark.parametrize(
    ("server", "said"),
    [
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
        pytest.param({"context": "x"}, 'context "x" does not exist', id="no such context"),
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


def test_an_answer_that_is_not_utf_8() -> None:
    assert answer_of(200, {}, b"\xff").text == "\ufffd"


async def test_an_answer_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.cli.debug_request._LONGEST_ANSWER", 1000)
    with pytest.raises(NoAnswer, match=r"^the answer to /debug/explain/demo/web-0 has more than 1000 bytes$"):
        await plainly(text("x" * 2000, code=0))


async def test_two_requests_of_one_client() -> None:
    daemon = Daemon([text("ok", code=0)])
    async with serving(daemon.answer) as url, opened(Access(LEASE, server=url)) as client:
        assert isinstance(client, Client)
        for request in (EXPLAIN, WHAT_IF):
            assert (await client.send(request)).text == "ok"

    assert [each[0] for each in daemon.requests] == ["GET", "POST"]
