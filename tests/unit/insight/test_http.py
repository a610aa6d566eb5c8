"""The HTTP endpoints, over a real socket on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest

from scheduler.insight.http import CannotListen, Endpoints, NotLoopback, Remark, Sources, check_loopback


@dataclass
class Server:
    """A started server, and what its checks say."""

    url: str
    wrong: dict[str, str | None]

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body."""
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Endpoints with two readiness checks that a test can break."""
    wrong: dict[str, str | None] = {}
    sampled: list[int] = []
    endpoints = Endpoints(
        Sources(
            livez={"loop": lambda: wrong.get("loop")},
            readyz={"synced": lambda: wrong.get("synced"), "shutdown": lambda: wrong.get("shutdown")},
            metrics=lambda: b"samples %d\n" % len(sampled),
            sample=lambda: sampled.append(1),
            configz=lambda: {"parallelism": 16},
            debug_queue=lambda: {"active": ["a/b"]},
            debug_cache=lambda: {"nodes": {frozenset({"x"})}},
            debug_pod=lambda key: {"pod": key} if key == "a/b" else None,
        )
    )
    port = await endpoints.start("127.0.0.1", 0)
    try:
        yield Server(f"http://127.0.0.1:{port}", wrong)
    finally:
        await endpoints.stop()
        await endpoints.stop()


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
        ("/debug/pod/a/c", 404, "nothing is remembered of pod a/c\n"),
        ("/debug/cache", 200, '{\n  "nodes": [\n    [\n      "x"\n    ]\n  ]\n}\n'),
    ],
)
async def test_pages(server: Server, path: str, status: int, body: str) -> None:
    """Each page when all is well."""
    assert (status, body) == await server.get(path)


async def test_a_failing_check_is_named_with_its_reason(server: Server) -> None:
    """Readiness fails as a whole and at the check; liveness and the other check do not."""
    server.wrong["synced"] = "Node: no list yet"

    assert await server.get("/readyz") == (
        500,
        "[+]ping ok\n[-]synced failed: Node: no list yet\n[+]shutdown ok\nreadyz check failed\n",
    )
    assert await server.get("/readyz/synced") == (500, "internal server error: Node: no list yet\n")
    assert await server.get("/readyz/shutdown") == (200, "ok")
    assert await server.get("/livez") == (200, "ok")
    assert await server.get("/readyz?exclude=synced") == (200, "ok")


async def test_a_remark_is_told_and_fails_nothing(server: Server) -> None:
    """Shown when asked for, and beside what fails."""
    server.wrong["synced"] = Remark("without budgets")

    assert await server.get("/readyz") == (200, "ok")
    assert await server.get("/readyz/synced") == (200, "ok")
    shown = "[+]ping ok\n[+]synced ok (without budgets)\n[+]shutdown ok\nreadyz check passed\n"
    assert await server.get("/readyz?verbose") == (200, shown)
    server.wrong["shutdown"] = "shutting down"
    status, said = await server.get("/readyz")
    assert (status, "[+]synced ok (without budgets)" in said) == (500, True)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", ""])
async def test_other_addresses_are_refused(host: str) -> None:
    """Nothing is served to other machines."""
    with pytest.raises(NotLoopback, match="loopback"):
        check_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_addresses(host: str) -> None:
    """Every spelling of this machine will do."""
    check_loopback(host)


async def test_a_port_that_is_taken(server: Server) -> None:
    """Failing to listen raises, and leaves nothing open."""
    sources = Sources({}, {}, bytes, configz=dict, debug_queue=dict, debug_cache=dict, debug_pod=lambda _: None)
    with pytest.raises(CannotListen, match=r"127\.0\.0\.1:\d+: .*in use"):
        await Endpoints(sources).start("127.0.0.1", int(server.url.rpartition(":")[2]))
