"""The daemon's HTTP pages: health, metrics, configuration and debugging (docs/spec/core.md §7.3).

All content comes from callables of the composition root; this module knows paths and formats. Callables run on the
event loop, long pages in pieces, the rendering of metrics in a thread. Only GET and HEAD are served, without bodies, and
POST for a what-if question, which changes nothing.
Ambiguous paths are refused, because gate and router must mean the same page.

Upstream: cmd/kube-scheduler/app/server.go newEndpointsHandler
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias, TypeVar

import msgspec
from aiohttp import http_exceptions, web
from prometheus_client import CONTENT_TYPE_LATEST

from scheduler.api.pod_group import API_GROUPS
from scheduler.core.clock import Clock, SystemClock
from scheduler.explain.answer import EXIT_CODES, Explanation, WhatIfAnswer, as_text, what_if_as_text
from scheduler.explain.groups.answer import GroupExplanation, group_as_text
from scheduler.explain.questions import ClusterChanged, Refused, TooManyQuestions
from scheduler.explain.what_if import WhatIfRequest, decoded
from scheduler.metrics.instruments import HealthcheckMetrics
from scheduler.server.authorization import Refusal, RequestAttributes, RequestGate, certified
from scheduler.server.cache_dump import Page, indented, pieces
from scheduler.server.listening import Connection
from scheduler.server.ui.page import MalformedQuery, headers, html

T = TypeVar("T")


class Remark(str):
    """The text of a check that passes with a remark."""

    __slots__ = ()


Check: TypeAlias = Callable[[], str | None]
"""None if all is well, a `Remark` if it is well enough, otherwise the problem."""
Checks: TypeAlias = Mapping[str, Check]

_HEADERS: Final = {"Cache-Control": "no-cache, private", "X-Content-Type-Options": "nosniff", "Server": "kubestow"}
_SHUTDOWN_S: Final = 1.0
_METHODS: Final = ("GET", "HEAD")
_WHAT_IF: Final = "/debug/what-if"
_BODY_MAX: Final = 1024 * 1024
_BODY_WITHIN_S: Final = 10.0
EXIT_CODE: Final = "Kubestow-Exit-Code"
"""The header with the exit code of the command that prints an answer."""
_PLAIN_PATH: Final = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)+")
_NEVER_S: Final = 86_400.0
"""The listener closes idle connections instead."""
_LONGEST_LINE: Final = 2048
_LONGEST_HEADER: Final = 16 * 1024
"""A bearer token with many claims is long."""
_UNRESOLVED_HOST: Final = re.compile(r"(localhost|\d+\.\d+\.\d+\.\d+|\[[0-9a-f:.]+\])(:\d+)?", re.IGNORECASE)
"""A Host that a browser resolves without a name server, so that no site can point it at this machine."""
_OUTPUTS: Final = ("json", "text")
_AT_ONCE: Final = 2
"""Concurrent pages of a slow kind; further requests wait."""


class _OurFault(logging.Filter):
    """Hide log lines about malformed requests, so that clients cannot fill the log."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        return not isinstance(error, http_exceptions.HttpProcessingError)


_log = logging.getLogger(__name__)
_log.addFilter(_OurFault())


@dataclass(slots=True)
class EndpointSources:
    """Sources of the pages. Results are encoded as JSON; a value that JSON lacks becomes its text.

    `sample` is called on the event loop just before `metrics` is rendered in a thread. `debug_pod` gets
    `namespace/name`, and returns None for an unknown pod. `explain` does the same, and raises NotReady or TooManyQuestions.
    `what_if` raises Refused, too.
    """

    livez: Callable[[], Checks]
    readyz: Callable[[], Checks]
    metrics: Callable[[], bytes]
    configz: Callable[[], object]
    debug_queue: Callable[[], Page]
    debug_cache: Callable[[], Page]
    debug_pod: Callable[[str], object | None]
    explain: Callable[[str], Awaitable[Explanation | None]]
    explain_group: Callable[[str, str], Awaitable[GroupExplanation | None]]
    """Gets `namespace/name` and an API group, "" for any."""
    what_if: Callable[[WhatIfRequest], Awaitable[WhatIfAnswer]]
    audit: Callable[[], object]
    sample: Callable[[], None] = field(default=lambda: None)
    pod_resources: Callable[[], Iterator[bytes]] = field(default=lambda: iter(()))
    """The pieces of /metrics/resources."""
    ui_data: Callable[[Mapping[str, str]], Awaitable[object | None]] | None = None
    """The data of the page /ui for a query; None if the page is off. Raises MalformedQuery, NotReady, TooManyQuestions."""
    healthchecks: HealthcheckMetrics = field(default_factory=HealthcheckMetrics)
    """Counts the checks of all pages; /metrics/slis shows it."""
    on_error: Callable[[Exception], None] = field(
        default=lambda error: _log.error("an endpoint failed", exc_info=error)
    )
    """Called with unexpected errors; clients do not see their text."""


_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Endpoints:
    """The pages of one listener. Call `start` once, then `make` per connection.

    Without a gate they are public, but only under `localhost` or an IP address: a browser sends another name if a site
    has rebound that name to this machine. No Service leads to such a listener, because it is on the loopback address.
    """

    def __init__(
        self, sources: EndpointSources, gate: RequestGate | None = None, *, clock: Clock | None = None
    ) -> None:
        self._sources = sources
        self._gate = gate
        self._clock = clock or SystemClock()
        self._scrapes, self._long = asyncio.Semaphore(_AT_ONCE), asyncio.Semaphore(_AT_ONCE)
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Start serving connections."""
        app = web.Application(middlewares=[self._timed, self._guarded, self._answered], client_max_size=_BODY_MAX)
        app.router.add_routes(self._routes())
        runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,
            shutdown_timeout=_SHUTDOWN_S,
            keepalive_timeout=_NEVER_S,
            lingering_time=0.0,
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_HEADER,
            max_headers=64,
            logger=_log,
        )
        await runner.setup()
        self._runner = runner

    async def stop(self) -> None:
        """Let running requests finish within a second. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def make(self) -> asyncio.Protocol:
        """Return the protocol of one connection."""
        assert self._runner is not None
        assert self._runner.server is not None
        made: asyncio.Protocol = self._runner.server()
        return made

    # -- every request -----------------------------------------------------------------------------------------------

    @web.middleware
    async def _timed(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Report to the connection when its request begins, and when its answer is handed over."""
        connection = _connection(request)
        if connection is None:
            return _unheard()
        try:
            await connection.begins()
            response = await handler(request)
            if connection.is_last:
                response.force_close()
            await response.prepare(request)
            await response.write_eof()
            return response
        except ConnectionError:
            if _connection(request) is not None:
                raise
            return _unheard()
        finally:
            connection.ended()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if self._gate is None and not _UNRESOLVED_HOST.fullmatch(request.headers.get("Host", "localhost")):
            return _last(_foreign_host())
        path = request.raw_path.partition("?")[0]
        methods = ("POST",) if path == _WHAT_IF else _METHODS
        if request.method not in methods:
            response = _text("405 method not allowed\n", status=405)
            response.headers["Allow"] = ", ".join(methods)
            return _last(response)
        if request.body_exists and path != _WHAT_IF:
            return _last(_text("413 a request must not have a body\n", status=413))
        if not _PLAIN_PATH.fullmatch(path):
            return _not_found()
        if self._gate is not None:
            refusal = await self._gate.refuses(self._attributes(request, path))
            if refusal is not None:
                return _refused(refusal)
        if (connection := _connection(request)) is not None:
            connection.admitted()
        return await handler(request)

    @web.middleware
    async def _answered(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Return the answer, or the response that says why there is none."""
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return _not_found()
        except (web.HTTPException, ConnectionError):
            raise
        except TooManyQuestions:
            return _later("429 too many questions are waiting; try again\n", status=429)
        except (NotReady, ClusterChanged) as why:
            return _later(f"503 {why}\n", status=503)
        except Refused as why:
            return _unreadable(f"400 {why}\n", status=400)
        except Exception as error:  # noqa: BLE001 (a page that fails costs its own request)
            self._sources.on_error(error)
            return _last(_text("500 internal server error\n", status=500))

    def _attributes(self, request: web.Request, path: str) -> RequestAttributes:
        tls = request.get_extra_info("ssl_object")
        authorization = request.headers.get("Authorization", "")
        return RequestAttributes(request.method.lower(), path, authorization, certified(tls, self._clock.wall()))

    # -- pages -------------------------------------------------------------------------------------------------------

    def _routes(self) -> list[web.RouteDef]:
        routes = []
        for name, checks in (
            ("livez", self._sources.livez),
            ("healthz", self._sources.livez),
            ("readyz", self._sources.readyz),
        ):
            page = _Health(name, checks, self._sources)
            routes += [web.get(f"/{name}", page.all), web.get(f"/{name}/{{check}}", page.one)]
        return [
            *routes,
            web.get("/metrics", self._metrics),
            web.get("/metrics/resources", self._resources),
            web.get("/metrics/slis", self._slis),
            web.get("/configz", self._configz),
            web.get("/debug/queue", partial(self._in_pieces, self._sources.debug_queue)),
            web.get("/debug/cache", partial(self._in_pieces, self._sources.debug_cache)),
            web.get("/debug/pod/{namespace}/{name}", self._debug_pod),
            web.get("/debug/explain/{namespace}/{name}", self._explain),
            *([] if self._sources.ui_data is None else self._ui_routes(self._sources.ui_data)),
            web.post(_WHAT_IF, self._what_if),
            web.get("/debug/audit", self._audit),
        ]

    def _ui_routes(self, data: Callable[[Mapping[str, str]], Awaitable[object | None]]) -> list[web.RouteDef]:
        """Return the page and its data. Scripts of other sites get no data."""

        async def page(_: web.Request) -> web.StreamResponse:
            return web.Response(
                body=html(), content_type="text/html", charset="utf-8", headers={**_HEADERS, **headers()}
            )

        async def rows(request: web.Request) -> web.StreamResponse:
            if request.headers.get("Sec-Fetch-Site", "none") in {"cross-site", "same-site"}:
                return _text("403 only this page may read its data\n", status=403)
            try:
                found = await data(request.query)
            except MalformedQuery as why:
                return _text(f"400 {why}\n", status=400)
            return _compact(found) if found is not None else _text("404 no such pods or nodes\n", status=404)

        return [web.get("/ui", page), web.get("/ui/data", rows)]

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        await self._scrapes.acquire()
        rendering = asyncio.ensure_future(self._render())
        rendering.add_done_callback(
            lambda _: self._scrapes.release()
        )  # not when the client has gone: rendering continues
        return _samples(await asyncio.shield(rendering))

    async def _render(self) -> bytes:
        self._sources.sample()
        return await asyncio.to_thread(self._sources.metrics)

    async def _resources(self, request: web.Request) -> web.StreamResponse:
        return await self._streamed(request, self._sources.pod_resources, CONTENT_TYPE_LATEST)

    async def _slis(self, _: web.Request) -> web.StreamResponse:
        return _samples(self._sources.healthchecks.render())

    async def _configz(self, _: web.Request) -> web.StreamResponse:
        return _json(self._sources.configz())

    async def _in_pieces(self, page: Callable[[], Page], request: web.Request) -> web.StreamResponse:
        return await self._streamed(request, lambda: pieces(page()), "application/json")

    async def _streamed(
        self, request: web.Request, make: Callable[[], Iterator[bytes]], content_type: str
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=_HEADERS | {"Content-Type": content_type})
        async with self._long:
            made = make()  # before the status is sent, because it may fail
            await response.prepare(request)
            for piece in made if request.method != "HEAD" else ():
                if piece:
                    await response.write(piece)
                await asyncio.sleep(0)
            await response.write_eof()
        return response

    async def _debug_pod(self, request: web.Request) -> web.StreamResponse:
        key = f"{request.match_info['namespace']}/{request.match_info['name']}"
        shown = self._sources.debug_pod(key)
        if shown is None:
            return _text(f"no decision is recorded for pod {key}\n", status=404)
        return _json(shown)

    async def _audit(self, _: web.Request) -> web.StreamResponse:
        return _json(self._sources.audit())

    async def _explain(self, request: web.Request) -> web.StreamResponse:
        """Answer about a pod in JSON, or with `?output=text` as text; with `?group` about a group, `?group=API-GROUP` chooses it."""
        _check(request, "output", _OUTPUTS)
        key = f"{request.match_info['namespace']}/{request.match_info['name']}"
        if "group" in request.query:
            _check(request, "group", ("", *API_GROUPS.values()))
            api_group = request.query["group"]
            group = await self._sources.explain_group(key, api_group)
            what = f"there is no group {key}" + (f" of {api_group}\n" if api_group else "\n")
            return (
                _unreadable(what, status=404)
                if group is None
                else _shown(request, group, group_as_text, group.exit_code)
            )
        found = await self._sources.explain(key)
        return (
            _unreadable(f"there is no pod {key} that has not ended\n", status=404)
            if found is None
            else _shown(request, found, as_text, found.exit_code)
        )

    async def _what_if(self, request: web.Request) -> web.StreamResponse:
        """Answer a question in JSON (docs/explain.md), or with `?output=text` as text.

        Only JSON is read, so that no page of another site can send a question through a browser.
        """
        if request.content_type != "application/json":
            return _last(_text("415 the Content-Type must be application/json\n", status=415))
        too_large = f"413 a question has at most {_BODY_MAX} bytes\n"
        if (request.content_length or 0) > _BODY_MAX:
            return _last(_text(too_large, status=413))
        try:
            async with asyncio.timeout(_BODY_WITHIN_S):
                body = await request.read()
        except TimeoutError:
            return _last(_text("408 the request takes too long\n", status=408))
        except web.HTTPRequestEntityTooLarge:
            return _last(_text(too_large, status=413))
        _check(request, "output", _OUTPUTS)
        found = await self._sources.what_if(decoded(body))
        return _shown(request, found, what_if_as_text, found.exit_code)


class NotReady(Exception):
    """The daemon cannot answer yet; the text says why."""


class _Health:
    """`/readyz` and similar pages: `ok`, or the list of checks with ?verbose or after a failure.

    Remarks do not fail a page.
    """

    def __init__(self, name: str, checks: Callable[[], Checks], sources: EndpointSources) -> None:
        """Create the page. `checks` may return other checks each time."""
        self._name = name
        self._sources = sources
        self._of_others = checks

    def _checks(self) -> Checks:
        return {"ping": lambda: None, **self._of_others()}

    async def all(self, request: web.Request) -> web.StreamResponse:
        excluded = set(request.query.getall("exclude", []))
        checks = self._checks()
        answers = {
            name: checked(check, self._sources.on_error) for name, check in checks.items() if name not in excluded
        }
        for name, answer in answers.items():
            self._sources.healthchecks.observe(name, self._name, is_well=not _is_wrong(answer))
        is_well = not any(_is_wrong(answer) for answer in answers.values())
        if is_well and "verbose" not in request.query:
            return _text("ok")
        lines = [_line(name, answer) for name, answer in answers.items()]
        unknown = sorted(excluded - set(checks))
        if unknown:
            lines.append(f"warn: some health checks cannot be excluded: no matches for {', '.join(unknown)}")
        lines.append(f"{self._name} check {'passed' if is_well else 'failed'}")
        return _text("\n".join(lines) + "\n", status=200 if is_well else 500)

    async def one(self, request: web.Request) -> web.StreamResponse:
        check = self._checks().get(request.match_info["check"])
        if check is None:
            return _not_found()
        answer = checked(check, self._sources.on_error)
        return _text(f"internal server error: {answer}\n", status=500) if _is_wrong(answer) else _text("ok")


def checked(check: Check, on_error: Callable[[Exception], None]) -> str | None:
    """Return the result of a check. An exception counts as a failure of this check."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001 (one check must not hide the rest)
        on_error(error)
        return f"the check raised {type(error).__name__}"


def _is_wrong(answer: str | None) -> bool:
    return bool(answer) and not isinstance(answer, Remark)


def _line(name: str, answer: str | None) -> str:
    if _is_wrong(answer):
        return f"[-]{name} failed: {answer}"
    return f"[+]{name} ok ({answer})" if answer else f"[+]{name} ok"


def _connection(request: web.Request) -> Connection | None:
    """Return the connection; None if it has been lost."""
    transport = request.transport
    if transport is None or transport.is_closing():
        return None
    connection = transport.get_protocol()
    assert isinstance(connection, Connection)
    return connection


def _unheard() -> web.Response:
    """Return an answer that is neither sent nor logged, for a client that closed the connection."""
    return web.Response(status=499)


def _refused(refusal: Refusal) -> web.Response:
    response = _text(refusal.text, status=refusal.status)
    if refusal.is_json:
        response.content_type = "application/json"
    return response


def _not_found() -> web.Response:
    return _text("404 page not found\n", status=404)


def _unreadable(text: str, *, status: int) -> web.Response:
    response = _text(text, status=status)
    response.headers[EXIT_CODE] = str(EXIT_CODES["unreadable"])
    return response


def _check(request: web.Request, name: str, allowed: Sequence[str]) -> None:
    """Raise Refused for a value of this parameter that is not allowed."""
    for value in request.query.getall(name, ()):
        if value not in allowed:
            raise Refused(f"{name} must be one of {', '.join(filter(None, allowed))}")


def _last(response: web.Response) -> web.Response:
    """Close the connection after this answer."""
    response.force_close()
    return response


def _foreign_host() -> web.Response:
    """Refuse another site that has this machine's address under a name of its site (DNS rebinding)."""
    return _text("403 the host must be localhost or an IP address\n", status=403)


def _samples(body: bytes) -> web.Response:
    return web.Response(body=body, headers=_HEADERS | {"Content-Type": CONTENT_TYPE_LATEST})


def _text(text: str, *, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, headers=_HEADERS)


def _shown(request: web.Request, answer: T, as_text_: Callable[[T], str], exit_code: int) -> web.Response:
    response = _text(as_text_(answer)) if request.query.get("output") == "text" else _json(answer)
    response.headers[EXIT_CODE] = str(exit_code)
    return response


def _later(text: str, *, status: int) -> web.Response:
    response = _text(text, status=status)
    response.headers["Retry-After"] = "1"
    return response


def _json(value: object) -> web.Response:
    return web.Response(body=indented(value) + b"\n", content_type="application/json", headers=_HEADERS)


def _compact(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", headers=_HEADERS)
