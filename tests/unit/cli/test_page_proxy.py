"""The page of a scheduler elsewhere on a port of this machine: the requests that are passed on, and those that are refused."""

from __future__ import annotations

import io
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from scheduler.cli.debug_request import DebugRequest, RawAnswer
from scheduler.cli.leader import NoAnswer
from scheduler.cli.page_proxy import page_proxy

JSON = {"Content-Type": "application/json"}


class Scheduler:
    """Answers each request, and keeps it."""

    def __init__(self) -> None:
        self.requests: list[DebugRequest] = []

    async def send(self, request: DebugRequest) -> RawAnswer:
        self.requests.append(request)
        if request.query.get("cell") == "9":
            raise NoAnswer("no replica leads")
        headers = {"content-type": "text/html", "Content-Security-Policy": "default-src 'none'", "Set-Cookie": "a=b"}
        return RawAnswer(200, headers, b"the page")


@pytest.mark.parametrize(
    ("method", "path", "sent", "status"),
    [
        ("GET", "/ui", {}, 200),
        ("GET", "/ui", {"Sec-Fetch-Site": "cross-site"}, 200),
        ("GET", "/ui/data?nodes=a%20b&page=2", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("GET", "/ui/data", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", "/debug/explain/demo/web-0", {}, 200),
        ("POST", "/debug/what-if", JSON, 200),
        ("POST", "/debug/what-if", {"Content-Type": "text/plain"}, 404),
        ("POST", "/ui", JSON, 404),
        ("GET", "/debug/cache", {}, 404),
        ("GET", "/metrics", {}, 404),
        ("GET", "/debug/explain/demo/web-0/more", {}, 404),
        ("GET", "/ui", {"Host": "evil.example:{port}"}, 403),
        ("GET", "/ui", {"Host": "localhost:{port}"}, 200),
        ("GET", "/ui/data?cell=9", {}, 502),
    ],
    ids=["the page", "a link of another site", "its data", "data for another site", "an explanation", "a question", "a form of another site", "a method", "a page that is not the browser's", "metrics", "a longer path", "another name of this machine", "localhost", "a scheduler that is away"],
)  # fmt: skip
async def test_requests(method: str, path: str, sent: dict[str, str], status: int) -> None:
    scheduler = Scheduler()
    async with page_proxy(scheduler.send) as url, aiohttp.ClientSession() as session:
        port = str(urlsplit(url).port)
        headers = {name: value.replace("{port}", port) for name, value in sent.items()}
        body = b"{}" if method == "POST" else None
        async with session.request(method, url.removesuffix("/ui") + path, headers=headers, data=body) as answer:
            text = await answer.text()

    assert (answer.status, len(scheduler.requests)) == (status, 0 if status in {403, 404} else 1)
    if status == 200:
        assert text == "the page"
        assert answer.headers["Content-Security-Policy"] == "default-src 'none'"
        assert answer.headers["Cache-Control"] == "no-store"
        assert "Set-Cookie" not in answer.headers
        (request,) = scheduler.requests
        split = urlsplit(path)
        assert (request.method, request.path, request.body) == (method, split.path, body)
        assert request.query == ({"nodes": "a b", "page": "2"} if split.query else {})
    if status == 502:
        assert text == "no replica leads\n"


@pytest.mark.parametrize(
    "path", ["/ui", "/ui/data", "/{secret}x/ui", "/{short}/ui", "//ui", "/%2e%2e/ui", "/%ff%fe/ui"]
)
async def test_without_the_secret_there_is_no_page(path: str) -> None:
    scheduler = Scheduler()
    async with page_proxy(scheduler.send) as url, aiohttp.ClientSession() as session:
        split = urlsplit(url)
        secret = split.path.split("/")[1]
        wanted = path.replace("{secret}", secret).replace("{short}", secret[:-1])
        async with session.get(f"http://{split.netloc}{wanted}") as answer:
            assert answer.status == 404
    assert scheduler.requests == []
    assert len(secret) >= 20


async def test_two_pages_have_different_secrets() -> None:
    scheduler = Scheduler()
    async with page_proxy(scheduler.send) as one, page_proxy(scheduler.send) as other:
        assert urlsplit(one).path != urlsplit(other).path


async def test_a_large_question_is_refused() -> None:
    scheduler = Scheduler()
    async with page_proxy(scheduler.send) as url, aiohttp.ClientSession() as session:
        target: Any = url.removesuffix("/ui") + "/debug/what-if"
        async with session.post(target, data=io.BytesIO(b"x" * (2**20 + 1)), headers=JSON) as answer:
            assert answer.status == 413
    assert scheduler.requests == []


async def test_a_port_in_use() -> None:
    scheduler = Scheduler()
    async with page_proxy(scheduler.send) as url:
        with pytest.raises(OSError, match=str(urlsplit(url).port)):
            async with page_proxy(scheduler.send, urlsplit(url).port or 0):
                pass
