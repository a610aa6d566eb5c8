"""An extender on loopback: it records its calls and returns scripted answers."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from aiohttp import web

Json: TypeAlias = dict[str, Any]
Behaviour: TypeAlias = Callable[[Json], Any]
"""Arguments → answer: JSON, a whole response, or something to wait for that ends in one of them."""


@dataclass
class TestExtender:
    """`verbs` has the behaviour by verb; the answer to another verb is 404."""

    verbs: dict[str, Behaviour] = field(default_factory=dict)
    url: str = ""
    calls: list[tuple[str, Json]] = field(default_factory=list)

    __test__ = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        verb, arguments = request.path.rpartition("/")[-1], await request.json()
        self.calls.append((verb, arguments))
        behaviour = self.verbs.get(verb)
        if behaviour is None:
            return web.Response(status=404)
        answer = behaviour(arguments)
        if isinstance(answer, Awaitable):
            answer = await answer
        return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)

    def called(self, verb: str) -> list[tuple[str, list[str]]]:
        """Pod and nodes of each call of this verb."""
        return [(args["Pod"]["metadata"]["name"], names(args)) for name, args in self.calls if name == verb]


@contextlib.asynccontextmanager
async def extender(
    verbs: dict[str, Behaviour], *, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[TestExtender]:
    """Serve on a free port; `url` is its prefix."""
    running = TestExtender(verbs)
    app = web.Application(client_max_size=2**28)
    app.router.add_route("*", "/{path:.*}", running.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    running.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/prefix"
    try:
        yield running
    finally:
        await runner.cleanup()


def names(args: Json) -> list[str]:
    """The nodes of a call, sorted."""
    if args.get("NodeNames") is not None:
        return sorted(args["NodeNames"])
    return sorted(item["metadata"]["name"] for item in (args.get("Nodes") or {"items": ()})["items"])


def filtering(
    *passing: str, failed: Json | None = None, unresolvable: Json | None = None, whole: bool = False
) -> Behaviour:
    """Let these nodes pass if they are in the call, and report reasons for the rest."""

    def answer(args: Json) -> Json:
        left = [name for name in names(args) if name in passing]
        reasons = {"FailedNodes": failed or {}, "FailedAndUnresolvableNodes": unresolvable or {}, "Error": ""}
        if not whole:
            return {"Nodes": None, "NodeNames": left, **reasons}
        items = [item for item in args["Nodes"]["items"] if item["metadata"]["name"] in left]
        return {"Nodes": {"metadata": {}, "items": items}, "NodeNames": None, **reasons}

    return answer


def scoring(**scores: int) -> Behaviour:
    """Give these scores; other nodes get none."""
    return lambda args: [{"Host": name, "Score": score} for name, score in scores.items() if name in names(args)]


def held(until: asyncio.Event, then: Behaviour) -> Behaviour:
    """Answer only after the event."""

    async def answer(args: Json) -> Any:
        await until.wait()
        return then(args)

    return answer
