"""The daemon's own HTTP server: health, metrics, configuration and debugging (docs/spec/core.md §7.3).

Plain HTTP on loopback, because nothing here asks who is calling. Everything shown comes from callables that the
composition root plugs in; this module knows paths and formats only. Callables run on the event loop, rendering of
metrics in a thread.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST


class Remark(str):
    """The answer of a check that passes, and has something to say about it all the same."""

    __slots__ = ()


Check: TypeAlias = Callable[[], str | None]
"""None when all is well, a `Remark` when it is well enough, else what is wrong."""
Checks: TypeAlias = Mapping[str, Check]

DEFAULT_PORT: Final = 10259
_HEADERS: Final = {"Cache-Control": "no-cache, private", "X-Content-Type-Options": "nosniff"}
_SHUTDOWN_S: Final = 1.0


class NotLoopback(ValueError):
    """The address asked for could be reached from other machines."""


class CannotListen(OSError):
    """The port is taken, or may not be. The message names the address."""


def check_loopback(host: str) -> None:
    """Raises NotLoopback unless only this machine can connect to the address."""
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise NotLoopback(f"{host} is not a loopback address; this version serves plain HTTP, on 127.0.0.1 or ::1 only")


@dataclass(slots=True)
class Sources:
    """Where answers come from. Results are encoded as JSON; what JSON cannot hold is printed as its text.

    `sample` is called on the event loop just before `metrics` is rendered in a thread. `debug_pod` gets
    `namespace/name`, and answers None for a pod it does not know.
    """

    livez: Checks
    readyz: Checks
    metrics: Callable[[], bytes]
    configz: Callable[[], object]
    debug_queue: Callable[[], object]
    debug_cache: Callable[[], object]
    debug_pod: Callable[[str], object | None]
    sample: Callable[[], None] = field(default=lambda: None)


class Endpoints:
    """One server; `start` once, `stop` as often as you like."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port; 0 asks for any free one. Raises NotLoopback and CannotListen."""
        check_loopback(host)
        app = web.Application()
        app.router.add_routes(self._routes())
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except BaseException as error:
            await runner.cleanup()
            if isinstance(error, OSError):
                raise CannotListen(f"{host}:{port}: {error.strerror or error}") from error
            raise
        self._runner = runner
        return int(runner.addresses[0][1])

    async def stop(self) -> None:
        """Close; requests under way get a second to finish."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def _routes(self) -> list[web.RouteDef]:
        routes = []
        for name, checks in (
            ("livez", self._sources.livez),
            ("healthz", self._sources.livez),
            ("readyz", self._sources.readyz),
        ):
            page = _Health(name, checks)
            routes += [web.get(f"/{name}", page.all), web.get(f"/{name}/{{check}}", page.one)]
        return [
            *routes,
            web.get("/metrics", self._metrics),
            web.get("/configz", self._configz),
            web.get("/debug/queue", self._debug_queue),
            web.get("/debug/cache", self._debug_cache),
            web.get("/debug/pod/{namespace}/{name}", self._debug_pod),
        ]

    async def _metrics(self, _: web.Request) -> web.Response:
        self._sources.sample()
        body = await asyncio.to_thread(self._sources.metrics)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _configz(self, _: web.Request) -> web.Response:
        return _json({"componentconfig": self._sources.configz()})

    async def _debug_queue(self, _: web.Request) -> web.Response:
        return _json(self._sources.debug_queue())

    async def _debug_cache(self, _: web.Request) -> web.Response:
        return _json(self._sources.debug_cache())

    async def _debug_pod(self, request: web.Request) -> web.Response:
        key = f"{request.match_info['namespace']}/{request.match_info['name']}"
        shown = self._sources.debug_pod(key)
        if shown is None:
            return _text(f"nothing is remembered of pod {key}\n", status=404)
        return _json(shown)


class _Health:
    """`/readyz` and its like: `ok`, or the list of checks when asked for (?verbose) or when one fails.

    Remarks fail nothing.
    """

    def __init__(self, name: str, checks: Checks) -> None:
        self._name = name
        self._checks = {"ping": lambda: None} | dict(checks)

    async def all(self, request: web.Request) -> web.Response:
        excluded = set(request.query.getall("exclude", []))
        answers = {name: check() for name, check in self._checks.items() if name not in excluded}
        is_well = not any(_is_wrong(answer) for answer in answers.values())
        if is_well and "verbose" not in request.query:
            return _text("ok")
        lines = [_line(name, answer) for name, answer in answers.items()]
        unknown = sorted(excluded - set(self._checks))
        if unknown:
            lines.append(f"warn: some health checks cannot be excluded: no matches for {', '.join(unknown)}")
        lines.append(f"{self._name} check {'passed' if is_well else 'failed'}")
        return _text("\n".join(lines) + "\n", status=200 if is_well else 500)

    async def one(self, request: web.Request) -> web.Response:
        check = self._checks.get(request.match_info["check"])
        if check is None:
            return _text("404 page not found\n", status=404)
        answer = check()
        return _text(f"internal server error: {answer}\n", status=500) if _is_wrong(answer) else _text("ok")


def _is_wrong(answer: str | None) -> bool:
    return bool(answer) and not isinstance(answer, Remark)


def _line(name: str, answer: str | None) -> str:
    if _is_wrong(answer):
        return f"[-]{name} failed: {answer}"
    return f"[+]{name} ok ({answer})" if answer else f"[+]{name} ok"


def _text(text: str, *, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, headers=_HEADERS)


def _json(value: object) -> web.Response:
    body = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)
    return web.Response(body=body + b"\n", content_type="application/json", headers=_HEADERS)
