"""The HTTP endpoints, over a real socket on loopback."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import pytest

from scheduler.api.pod_group import API_GROUPS
from scheduler.explain.answer import Explanation, WhatIfAnswer
from scheduler.explain.groups.answer import GroupExplanation
from scheduler.explain.manifests import WrongRequest
from scheduler.explain.questions import ClusterChanged, TooManyQuestions
from scheduler.explain.what_if import WhatIfRequest
from scheduler.server.authorization import RequestGate
from scheduler.server.endpoints import Endpoints, EndpointSources, NotReady, Remark
from tests.unit.server.test_listening import listening, sources
from tests.unit.server.test_tls import Server as ApiServer

FOREIGN: Final = "403 the host must be localhost or an IP address\n"


@dataclass
class Server:
    """A started server, and what its checks say."""

    url: str
    wrong: dict[str, str | None]

    async def raw(
        self, path: str, *head: str, method: str = "GET", body: bytes = b"", host: str = "localhost"
    ) -> tuple[int, str]:
        """Status and body of a request whose path is not normalized. An empty host: HTTP/1.0 without that header."""
        reader, writer = await asyncio.open_connection("127.0.0.1", int(self.url.rpartition(":")[2]))
        try:
            hosts = (f"Host: {host}",) if host else ()
            lines = (f"{method} {path} HTTP/{'1.1' if host else '1.0'}", *hosts, "Connection: close", *head)
            writer.write("\r\n".join((*lines, "", "")).encode() + body)
            status, _, rest = (await reader.read()).partition(b"\r\n")
            head_end = rest.index(b"\r\n\r\n") + 4
            is_chunked = b"chunked" in rest[:head_end]
            return int(status.split()[1]), (_joined(rest[head_end:]) if is_chunked else rest[head_end:]).decode()
        finally:
            writer.close()

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body."""
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return answer.status, await answer.text()


def _joined(body: bytes) -> bytes:
    """Chunks put together again."""
    whole = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        whole, body = whole + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return whole


async def _explained(key: str) -> Explanation | None:
    if key == "a/many":
        raise TooManyQuestions
    if key == "a/early":
        raise NotReady("the cache is not filled yet")
    if key != "a/b":
        return None
    return Explanation(
        pod=key,
        uid="u",
        scheduler="kubestow",
        state="pending",
        verdict="doesNotFit",
        exit_code=2,
        code="NoNodes",
        cause="the cluster has no nodes",
        move="administrator",
    )


async def _explained_group(key: str, api_group: str) -> GroupExplanation | None:
    if key != "a/g" or api_group not in {"", "scheduling.k8s.io"}:
        return None
    return GroupExplanation(
        group=key,
        api_group="scheduling.k8s.io",
        verdict="fitsAfter",
        exit_code=1,
        code="GroupIncomplete",
        cause="2 of 3 pods exist",
        move="user",
        minimum=3,
        members={"gated": 2},
    )


async def _answered(request: WhatIfRequest) -> WhatIfAnswer:
    """Answer; the nodes to drain choose an error."""
    for name in request.drain:
        raise {
            "many": TooManyQuestions(),
            "early": NotReady("the cache is not filled yet"),
            "changing": ClusterChanged("the cluster changed"),
        }.get(name) or WrongRequest(f"drain: node {name} does not exist")
    return WhatIfAnswer(verdict="fits", exit_code=0, cause="3 of 3 pods fit", replicas=3, placed=3)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Endpoints with two readiness checks that a test can break."""
    wrong: dict[str, str | None] = {}
    sampled: list[int] = []
    pages = EndpointSources(
        livez=lambda: {"loop": lambda: wrong.get("loop")},
        readyz=lambda: {"synced": lambda: wrong.get("synced"), "shutdown": lambda: wrong.get("shutdown")},
        metrics=lambda: b"samples %d\n" % len(sampled),
        sample=lambda: sampled.append(1),
        configz=lambda: {"componentconfig": {"parallelism": 16}},
        debug_queue=lambda: {"active": lambda: ["a/b"]},
        debug_cache=lambda: {"sizes": lambda: {"nodes": 1}, "nodes": lambda: iter([frozenset({"x"})])},
        debug_pod=lambda key: {"pod": key} if key == "a/b" else None,
        explain=_explained,
        explain_group=_explained_group,
        what_if=_answered,
        audit=lambda: {"passes": 3},
    )
    async with listening(Endpoints(pages)) as crowd:
        yield Server(f"http://127.0.0.1:{crowd.listener.port}", wrong)


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/livez", 200, "ok"),
        ("/healthz", 200, "ok"),
        ("/readyz", 200, "ok"),
        ("/readyz?verbose", 200, "[+]ping ok\n[+]synced ok\n[+]shutdown ok\nreadyz check passed\n"),
        ("/healthz?verbose", 200, "[+]ping ok\n[+]loop ok\nhealthz check passed\n"),
        ("/readyz/synced", 200, "ok"),
        ("/readyz/other", 404, "404 page not found\n"),
        ("/metrics", 200, "samples 1\n"),
        ("/configz", 200, '{\n  "componentconfig": {\n    "parallelism": 16\n  }\n}\n'),
        ("/debug/queue", 200, '{\n  "active": [\n    "a/b"\n  ]\n}\n'),
        ("/debug/pod/a/b", 200, '{\n  "pod": "a/b"\n}\n'),
        ("/debug/pod/a/c", 404, "no decision is recorded for pod a/c\n"),
        (
            "/debug/explain/a/b?output=text",
            200,
            "a/b: the cluster has no nodes\nnext step: an administrator changes nodes, volumes, devices or other pods\n\nno fix was found\n",
        ),
        ("/debug/explain/a/c", 404, "there is no pod a/c that has not ended\n"),
        (
            "/debug/explain/a/g?group&output=text",
            200,
            "a/g (PodGroup of scheduling.k8s.io): 2 of 3 pods exist\nnext step: change the pods or their group\npods: 2 gated; it starts with 3\n",
        ),
        ("/debug/explain/a/b?group", 404, "there is no group a/b\n"),
        ("/debug/explain/a/g?group=scheduling.x-k8s.io", 404, "there is no group a/g of scheduling.x-k8s.io\n"),
        ("/debug/explain/a/g?group=foo.io", 400, f"400 group must be one of {', '.join(API_GROUPS.values())}\n"),
        ("/debug/explain/a/b?output=xml", 400, "400 output must be one of json, text\n"),
        ("/debug/explain/a/b?output=", 400, "400 output must be one of json, text\n"),
        ("/debug/explain/a/b?output=text&output=xml", 400, "400 output must be one of json, text\n"),
        ("/debug/explain/a/g?group&output=yaml", 400, "400 output must be one of json, text\n"),
        ("/debug/explain/a/many", 429, "429 too many questions are waiting; try again\n"),
        ("/debug/explain/a/early", 503, "503 the cache is not filled yet\n"),
        ("/debug/audit", 200, '{\n  "passes": 3\n}\n'),
        ("/debug/cache", 200, '{\n  "sizes": {\n    "nodes": 1\n  },\n  "nodes": [\n    [\n      "x"\n    ]\n  ]\n}\n'),
        ("/", 404, "404 page not found\n"),
        ("/debug", 404, "404 page not found\n"),
        ("/livez/../metrics", 404, "404 page not found\n"),
        ("/livez/%2e%2e/metrics", 404, "404 page not found\n"),
        ("/healthz/%2e%2e/debug/cache", 404, "404 page not found\n"),
        ("/livez\\..\\metrics", 404, "404 page not found\n"),
        ("/livez#/../metrics", 404, "404 page not found\n"),
        ("http://x/metrics", 404, "404 page not found\n"),
        ("/debug/%2fmetrics", 404, "404 page not found\n"),
        ("//metrics", 404, "404 page not found\n"),
        ("/metrics/", 404, "404 page not found\n"),
        ("/%6detrics", 404, "404 page not found\n"),
        ("/debug/pod/a/b/c", 404, "404 page not found\n"),
        ("/metrics" + "x" * 4000, 400, None),
    ],
)
async def test_pages(server: Server, path: str, status: int, body: str | None) -> None:
    answered, said = await server.raw(path)

    assert answered == status
    assert said == body or body is None


async def test_a_failing_check_is_named_with_its_reason(server: Server) -> None:
    server.wrong["synced"] = "Node: no list yet"

    assert await server.get("/readyz") == (
        500,
        "[+]ping ok\n[-]synced failed: Node: no list yet\n[+]shutdown ok\nreadyz check failed\n",
    )
    assert await server.get("/readyz/synced") == (500, "internal server error: Node: no list yet\n")
    assert await server.get("/readyz/shutdown") == (200, "ok")
    assert await server.get("/livez") == (200, "ok")
    assert await server.get("/readyz?exclude=synced") == (200, "ok")


async def test_service_level_indicators_count_the_checks_of_the_whole_pages(server: Server) -> None:
    await server.get("/readyz")
    server.wrong["synced"] = "Node: no list yet"
    for path in ("/readyz", "/readyz/shutdown", "/readyz?exclude=ping", "/livez"):
        await server.get(path)

    status, said = await server.get("/metrics/slis")

    assert status == 200
    assert {line for line in said.splitlines() if re.match(r"kubernetes_healthchecks?(_total)?{", line)} == {
        'kubernetes_healthcheck{name="ping",type="readyz"} 1.0',
        'kubernetes_healthcheck{name="synced",type="readyz"} 0.0',
        'kubernetes_healthcheck{name="shutdown",type="readyz"} 1.0',
        'kubernetes_healthcheck{name="ping",type="livez"} 1.0',
        'kubernetes_healthcheck{name="loop",type="livez"} 1.0',
        'kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} 2.0',
        'kubernetes_healthchecks_total{name="synced",status="success",type="readyz"} 1.0',
        'kubernetes_healthchecks_total{name="synced",status="error",type="readyz"} 2.0',
        'kubernetes_healthchecks_total{name="shutdown",status="success",type="readyz"} 3.0',
        'kubernetes_healthchecks_total{name="ping",status="success",type="livez"} 1.0',
        'kubernetes_healthchecks_total{name="loop",status="success",type="livez"} 1.0',
    }
    assert "\nprocess_start_time_seconds " in said


async def test_a_remark_is_shown_and_fails_nothing(server: Server) -> None:
    server.wrong["synced"] = Remark("without budgets")

    assert await server.get("/readyz") == (200, "ok")
    assert await server.get("/readyz/synced") == (200, "ok")
    shown = "[+]ping ok\n[+]synced ok (without budgets)\n[+]shutdown ok\nreadyz check passed\n"
    assert await server.get("/readyz?verbose") == (200, shown)
    server.wrong["shutdown"] = "shutting down"
    status, said = await server.get("/readyz")
    assert (status, "[+]synced ok (without budgets)" in said) == (500, True)


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/debug/cache", "/nowhere"])
async def test_only_reading_is_allowed(server: Server, path: str) -> None:
    """Other methods are refused before anything else is looked at."""
    async with aiohttp.ClientSession() as session:
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            async with session.request(method, server.url + path) as answer:
                assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
        async with session.head(server.url + path) as answer:
            assert (answer.status, await answer.read()) == (404 if path == "/nowhere" else 200, b"")


@pytest.mark.parametrize("path", [
    "/livez", "/healthz", "/readyz", "/readyz?verbose", "/readyz/synced",
    "/metrics", "/metrics/resources", "/metrics/slis", "/configz",
    "/debug/queue", "/debug/cache", "/debug/pod/a/b", "/debug/explain/a/b", "/debug/audit", "/debug/what-if", "/nowhere",
])  # fmt: skip
async def test_without_a_gate_no_page_answers_under_a_name_that_a_site_can_rebind(server: Server, path: str) -> None:
    """A browser sends the name of the site whose address now is this machine's, and lets the site read the answer."""
    question = ("Content-Type: application/json", "Content-Length: 2")
    ways: list[dict[str, Any]] = [{}, {"method": "HEAD"}]
    if path == "/debug/what-if":
        ways = [{"method": "POST", "body": b"{}"}]
    for way in ways:
        head = question if "body" in way else ()
        for host in ("evil.example:10260", "127.0.0.1.evil.example", "localhost.evil.example", "kubestow.ns.svc", "x"):
            status, text = await server.raw(path, *head, host=host, **way)
            assert (status, text) == (403, "" if "method" in way and "body" not in way else FOREIGN), host
        for host in ("localhost:10260", "LOCALHOST", "127.0.0.1:1", "[::1]:10260", "192.0.2.7", "[2001:db8::7]:1", ""):
            status, _ = await server.raw(path, *head, host=host, **way)
            assert status == (404 if path == "/nowhere" else 200), host


@pytest.mark.parametrize(
    ("head", "body"),
    [(("Content-Length: 5",), b"hello"), (("Transfer-Encoding: chunked",), b"5\r\nhello\r\n0\r\n\r\n")],
    ids=["of a length", "in chunks"],
)
async def test_a_body_is_not_read(server: Server, head: tuple[str, ...], body: bytes) -> None:
    status, _ = await server.raw("/metrics", *head, body=body)

    assert status == 413


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /livez HTTP/9.9\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
        b"GET /livez HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    ],
    ids=["no HTTP", "TLS", "no version", "no header", "too many headers", "too long a header", "two lengths"],
)
async def test_nonsense_is_refused_without_a_word_in_the_log(
    server: Server, caplog: pytest.LogCaptureFixture, request_: bytes
) -> None:
    caplog.set_level("INFO")
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    writer.write(request_)
    said = await asyncio.wait_for(reader.read(), 60)
    writer.close()

    assert said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    assert [record.getMessage() for record in caplog.records] == []
    assert await server.get("/livez") == (200, "ok")


async def test_a_page_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> object:
        raise ValueError("a secret")

    async with listening(Endpoints(sources(configz=broken))) as crowd:
        server = Server(f"http://127.0.0.1:{crowd.listener.port}", {})
        status, said = await server.get("/configz")
        assert (status, "secret" in said) == (500, False)
        assert await server.get("/livez") == (200, "ok")
    assert "a secret" in caplog.text


async def test_answers_are_not_for_caches_and_say_what_they_are(server: Server) -> None:
    async with aiohttp.ClientSession() as session:
        for path in ("/livez", "/metrics", "/configz", "/debug/cache", "/nowhere"):
            async with session.get(server.url + path) as answer:
                assert answer.headers["Cache-Control"] == "no-cache, private", path
                assert answer.headers["X-Content-Type-Options"] == "nosniff", path
                assert answer.headers["Server"] == "kubestow", path


async def test_authorization_comes_before_routing() -> None:
    """Unauthorized callers do not learn which pages exist; HEAD is a separate verb, as in kube-scheduler."""
    api = ApiServer(known=("ann", "bob"), permits=("ann",))
    async with listening(Endpoints(sources(), RequestGate(api, ("/livez",)))) as crowd:
        server = Server(f"http://127.0.0.1:{crowd.listener.port}", {})

        async def status(path: str, *, token: str = "", method: str = "GET") -> int:
            status, _ = await server.raw(path, *([f"Authorization: Bearer {token}"] if token else []), method=method)
            return status

        closed = ("/metrics", "/nowhere", "/livez/ping")
        assert [await status(path) for path in ("/livez", *closed)] == [200, 403, 403, 403]
        assert [await status("/metrics", token=token) for token in ("ann", "bob", "eve")] == [200, 403, 401]
        assert await status("/nowhere", token="ann") == 404
        assert await status("/metrics", token="ann", method="HEAD") == 200
    assert api.asked[-1][1:] == ("head", "/metrics")


@pytest.mark.parametrize(("body", "content_type", "status", "text", "exit_code"), [
    pytest.param("{}", "application/json", 200, "3 of 3 pods fit\n", "0", id="an answer"),
    pytest.param("{", "application/json", 400, "400 Input data was truncated\n", "3", id="no JSON"),
    pytest.param('{"drain": ["n1"]}', "application/json", 400, "400 drain: node n1 does not exist\n", "3", id="refused"),
    pytest.param('{"drain": ["many"]}', "application/json", 429, "429 too many questions are waiting; try again\n", None, id="too many questions"),
    pytest.param('{"drain": ["early"]}', "application/json", 503, "503 the cache is not filled yet\n", None, id="before the cache is filled"),
    pytest.param('{"drain": ["changing"]}', "application/json", 503, "503 the cluster changed\n", None, id="a restless cluster"),
    pytest.param("{}", "text/plain", 415, "415 the Content-Type must be application/json\n", None, id="what a form of another site can send"),
])  # fmt: skip
async def test_a_question_is_posted(
    server: Server, body: str, content_type: str, status: int, text: str, exit_code: str | None
) -> None:
    async with aiohttp.ClientSession() as http:
        answer = await http.post(
            f"{server.url}/debug/what-if?output=text",
            data=body,
            headers={"Content-Type": content_type},
        )
        assert (answer.status, await answer.text()) == (status, text)
        assert answer.headers.get("Kubestow-Exit-Code") == exit_code


async def test_the_answer_to_a_question_has_two_forms(server: Server) -> None:
    async with aiohttp.ClientSession() as http:
        answer = await http.post(f"{server.url}/debug/what-if?output=xml", json={})
        assert (answer.status, await answer.text()) == (400, "400 output must be one of json, text\n")
        assert answer.headers["Kubestow-Exit-Code"] == "3"


async def test_a_question_has_a_greatest_length(server: Server) -> None:
    head = ("Content-Type: application/json", "Content-Length: 1048577")
    status, text = await server.raw("/debug/what-if", *head, method="POST")
    assert (status, text) == (413, "413 a question has at most 1048576 bytes\n")


@pytest.mark.parametrize(("method", "path", "allowed"), [
    ("GET", "/debug/what-if", "POST"),
    ("POST", "/debug/explain/a/b", "GET, HEAD"),
    ("PUT", "/debug/what-if", "POST"),
])  # fmt: skip
async def test_each_page_has_its_methods(server: Server, method: str, path: str, allowed: str) -> None:
    async with aiohttp.ClientSession() as http:
        answer = await http.request(method, f"{server.url}{path}")
        assert (answer.status, answer.headers["Allow"]) == (405, allowed)
