"""A proxy in front of a real kube-apiserver that does to requests what networks do: it delays them and cuts connections.

Plain HTTP on loopback towards the client, TLS towards the server. A client without credentials gets the proxy's. The
rules are those of the in-process API server (`simulator.apiserver.Fault`) without a status; other requests pass through,
byte for byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NoReturn, Self

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from scheduler.kube.resources import KINDS
from scheduler.kube.writes.permissions import (
    CLAIM_EVENT_RULES,
    DEVICE_RULES,
    EXTENDED_RESOURCE_RULES,
    OTHER_LEASE_RULES,
    VOLUME_RULES,
    RbacRule,
)
from simulator.apiserver import LIKE_1_36, LIKE_1_37, Fault, Faults, Refused, Request
from simulator.apiserver.requests import target
from simulator.apiserver.resources import Served
from tests.e2e.cluster import RBAC, Cluster, Json, account, ensure
from tests.e2e.controlplane.build import MINOR
from tests.e2e.controlplane.harness import SCHEDULER_NAME, ControlPlane, daemon, scheduler_config
from tests.e2e.controlplane.process import ServerProcess
from tests.e2e.sandbox import Sandbox
from tests.support.kubeconfigs import kubeconfig

_PASSED_ON: Final = ("Authorization", "Accept", "Content-Type", "User-Agent")
_PASSED_BACK: Final = ("Content-Type", "Retry-After")
_ANSWER_S: Final = 60.0


class FaultProxy:
    """An async context manager; `url` is where clients go."""

    def __init__(self, plane: ControlPlane, *more: str) -> None:
        """`more` groups and versions are those that this plane serves besides the defaults of its version."""
        self.faults = Faults(random.Random(1))
        self.seen: Counter[str] = Counter()
        """How often, by `verb resource[/subresource] status`; status 0 for what was cut."""
        self.url = ""
        self.meanwhile: Callable[[Request], Awaitable[None]] | None = None
        """What happens while a request that a rule strikes is on its way; it goes on, or not, when that is done."""
        self._plane = plane
        # A watch of a kind that is missing here would not be streamed.
        self._served = Served((*(LIKE_1_36 if MINOR == "1.36" else LIKE_1_37), *more))
        self._streams: set[asyncio.Event] = set()

    async def __aenter__(self) -> Self:
        self._upstream = self._plane.client()
        self._server = web.Server(self._handle, access_log=None, handler_cancellation=True)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1024).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        for ended in self._streams:
            ended.set()
        await self._runner.cleanup()
        await self._upstream.close()

    async def is_idle(self) -> bool:
        """Whether no connection is open. A client that is killed may leave requests in the socket, which are still read."""
        return not self._server.connections

    def add(self, *faults: Fault) -> None:
        for fault in faults:
            self.faults.add(fault)

    # -- one request ---------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = self._request_of(request)
        fault = self.faults.strike(asked) if asked is not None else None
        if fault is not None and asked is not None and self.meanwhile is not None:
            await self.meanwhile(asked)
        if fault is not None and fault.delay_s:
            await asyncio.sleep(fault.delay_s)
        if fault is not None and fault.reset == "before":
            self._cut(request, asked)
        async with self._passed_on(request) as answer:
            if asked is not None and asked.verb == "watch" and answer.status == 200:
                self._count(asked, answer.status)
                return await self._watch(request, answer)
            body = await answer.read()
        if fault is not None and fault.reset == "after":
            self._cut(request, asked)
        self._count(asked, answer.status)
        return web.Response(body=body, status=answer.status, headers=_kept(answer.headers, _PASSED_BACK))

    def _request_of(self, request: web.BaseRequest) -> Request | None:
        """The request in the terms of the rules; None for discovery, health and reviews."""
        with contextlib.suppress(Refused):
            found = target(self._served, request.path)
            if found is not None:
                return found.request(request.method, watch=request.query.get("watch") in {"true", "1"})
        return None

    @contextlib.asynccontextmanager
    async def _passed_on(self, request: web.BaseRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        async with self._upstream.request(
            request.method,
            URL(request.raw_path, encoded=True),
            data=await request.read() if request.can_read_body else None,
            headers=_kept(request.headers, _PASSED_ON),
            skip_auto_headers=("Accept-Encoding",),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_ANSWER_S),
            allow_redirects=False,
        ) as answer:
            yield answer

    def _cut(self, request: web.BaseRequest, asked: Request | None) -> NoReturn:
        self._count(asked, 0)
        assert request.transport is not None
        request.transport.abort()
        raise ConnectionResetError("cut by a fault rule")

    def _count(self, asked: Request | None, status: int) -> None:
        if asked is not None:
            sub = f"/{asked.subresource}" if asked.subresource else ""
            self.seen[f"{asked.verb} {asked.resource}{sub} {status}"] += 1

    # -- watches -------------------------------------------------------------------------------------------------------

    async def _watch(self, request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(headers=_kept(answer.headers, _PASSED_BACK))
        response.enable_chunked_encoding()
        await response.prepare(request)
        ended = asyncio.Event()
        self._streams.add(ended)
        pumping = asyncio.ensure_future(_pump(answer, response))
        ending = asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait({pumping, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._streams.discard(ended)
            for part in (pumping, ending):
                part.cancel()
            await asyncio.gather(pumping, ending, return_exceptions=True)
        await response.write_eof()
        return response


async def _pump(answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
    async for chunk in answer.content.iter_any():
        await response.write(chunk)


def _kept(headers: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: headers[name] for name in names if name in headers}


# -- a daemon behind the proxy, with chosen permissions ----------------------------------------------------------------


ACCOUNT: Final = "kubestow-faults"


VOLUMES: Final = frozenset(VOLUME_RULES)
DEVICES: Final = frozenset((*DEVICE_RULES, *EXTENDED_RESOURCE_RULES))
ALL: Final = frozenset(
    {
        RbacRule("", "pods/binding", "create"),
        RbacRule("", "pods", "delete"),
        RbacRule("", "pods/status", "patch"),
        *(rule for rule in (*VOLUMES, *DEVICES) if rule.verb != "get"),
        *CLAIM_EVENT_RULES,
        *OTHER_LEASE_RULES,
        *(RbacRule(group, "events", verb) for group in ("", "events.k8s.io") for verb in ("create", "patch")),
        *(RbacRule(kind.group, kind.plural, verb) for kind in KINDS.values() for verb in ("get", "list", "watch")),
    }
)


@dataclass
class ProxyStage:
    """A plane, a proxy, and a session that does not pass through the proxy."""

    plane: ControlPlane
    proxy: FaultProxy
    admin: aiohttp.ClientSession

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.admin)

    @contextlib.contextmanager
    def daemon(
        self, token: str = "", *, config: Json | None = None, name: str = SCHEDULER_NAME
    ) -> Iterator[ServerProcess]:
        """The daemon behind the proxy, with this token or the proxy's permissions. `name` is the scheduler's."""
        path = self.plane.directory / f"{name}-proxy.kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig({"token": token} if token else {}, self.proxy.url)))
        with daemon(self.plane, name, config=config, flags=(f"--kubeconfig={path}",), name=name) as server:
            yield server

    async def account(self) -> str:
        """The token of a service account with the daemon's permissions and no more, until `permit` changes them."""
        return await account(self.admin, ACCOUNT, _rules(ALL))

    async def permit(self, permissions: Iterable[RbacRule]) -> None:
        role = {"metadata": {"name": ACCOUNT}, "rules": _rules(permissions)}
        await ensure(self.admin, f"{RBAC}/clusterroles", role)


def _rules(permissions: Iterable[RbacRule]) -> list[Json]:
    return [{"apiGroups": [p.group], "resources": [p.resource], "verbs": [p.verb]} for p in sorted(permissions)]


@contextlib.asynccontextmanager
async def staged(sandbox: Sandbox) -> AsyncIterator[ProxyStage]:
    """A proxy; the sandbox's pods are for the scheduler behind it."""
    sandbox.scheduler = f"kubestow-{sandbox.name}"
    async with sandbox.plane.client() as admin, FaultProxy(sandbox.plane) as proxy:
        yield ProxyStage(sandbox.plane, proxy, admin)


@contextlib.asynccontextmanager
async def running(sandbox: Sandbox, stage: ProxyStage, *, token: str = "") -> AsyncIterator[None]:
    with stage.daemon(token, config=scheduler_config(sandbox.scheduler), name=sandbox.scheduler) as server:
        sandbox.server = server
        yield


async def has_no_failure_event(sandbox: Sandbox, *pods: str) -> None:
    for name in pods:
        assert "FailedScheduling" not in {event["reason"] for event in await sandbox.cluster.events(name)}
