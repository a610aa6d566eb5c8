"""Serve the page of a scheduler elsewhere on a port of this machine, for the browser of one user (docs/ui.md).

The proxy passes on the requests of the page and no other ones. The caller sends them with the user's credentials. So the
address has a secret part: another user of this machine, and a page of another site, do not know it. The `Host` must be
this machine's, so no other site can read the page by its own name (DNS rebinding).
"""

from __future__ import annotations

import contextlib
import hmac
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeAlias

from aiohttp import web

from scheduler.cli.debug_request import DebugRequest, RawAnswer
from scheduler.cli.leader import NoAnswer

Send: TypeAlias = Callable[[DebugRequest], Awaitable[RawAnswer]]
"""Sends a request to the scheduler, and returns its answer as it was sent. Raises NoAnswer."""

_HOSTS: Final = ("127.0.0.1", "localhost")
_GET: Final = re.compile(r"/ui|/ui/data|/debug/explain/[^/]+/[^/]+")
_POST: Final = "/debug/what-if"
_BODY_MAX: Final = 2**20
"""The scheduler's limit."""
_PASSED: Final = (
    "Content-Type",
    "Content-Security-Policy",
    "Referrer-Policy",
    "X-Frame-Options",
    "X-Content-Type-Options",
    "Cross-Origin-Opener-Policy",
    "Cross-Origin-Resource-Policy",
    "Retry-After",
)
_CLOSED_WITHIN_S: Final = 1.0


@contextlib.asynccontextmanager
async def page_proxy(send: Send, port: int = 0) -> AsyncIterator[str]:
    """Serve the page and yield its URL; port 0 is a free one. Raises OSError."""
    secret = secrets.token_urlsafe(18)

    async def answered(request: web.BaseRequest) -> web.StreamResponse:
        return await _answered(request, f"/{secret}", send)

    runner = web.ServerRunner(web.Server(answered), shutdown_timeout=_CLOSED_WITHIN_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, _HOSTS[0], port).start()
        yield f"http://{_HOSTS[0]}:{runner.addresses[0][1]}/{secret}/ui"
    finally:
        await runner.cleanup()


async def _answered(request: web.BaseRequest, prefix: str, send: Send) -> web.StreamResponse:
    if request.headers.get("Host", "").rpartition(":")[0] not in _HOSTS:
        return _text("403 the host must be 127.0.0.1 or localhost\n", 403)
    given, path = request.path[: len(prefix)], request.path[len(prefix) :]
    has_secret = hmac.compare_digest(given.encode(errors="replace"), prefix.encode())
    if not has_secret or not _is_of_page(request, path):
        return _text("404 page not found\n", 404)
    if path != "/ui" and request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        return _text("403 only this page may read its data\n", 403)
    body = None
    if request.method == "POST":
        if request.content_length is None or request.content_length > _BODY_MAX:
            return _text(f"413 a question has at most {_BODY_MAX} bytes\n", 413)
        body = await request.read()
    try:
        found = await send(DebugRequest(request.method, path, path, body, wants_text=False, query=dict(request.query)))
    except NoAnswer as why:
        return _text(f"{why}\n", 502)
    kept = {name.lower(): value for name, value in found.headers.items()}
    headers = {name: kept[name.lower()] for name in _PASSED if name.lower() in kept}
    return web.Response(status=found.status, body=found.body, headers={**headers, "Cache-Control": "no-store"})


def _is_of_page(request: web.BaseRequest, path: str) -> bool:
    if request.method == "POST":
        return path == _POST and request.content_type == "application/json"
    return request.method == "GET" and _GET.fullmatch(path) is not None


def _text(text: str, status: int) -> web.Response:
    return web.Response(text=text, status=status)
