"""Requests of the client, and a cluster with a leader whose port is forwarded to a server of the test."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from scheduler.cli.debug_request import Access, DebugAnswer, DebugRequest, opened
from scheduler.cli.leader import LeaseName
from tests.support.port_forwarding import ApiFront, Forwarder, fronted
from tests.unit.kube.scripted import LeapingClock
from tests.unit.server.authorities import Authority

LEASE = LeaseName("kubestow", "stow", "stow")
EXPLAIN = DebugRequest("GET", "/debug/explain/demo/web-0", "/debug/explain/*")
WHAT_IF = DebugRequest("POST", "/debug/what-if", "/debug/what-if", b"{}", wants_text=False)


def text(body: str, status: int = 200, code: int | None = None, **headers: str) -> web.Response:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if code is not None:
        given["Kubestow-Exit-Code"] = str(code)
    return web.Response(text=body, status=status, headers=given)


async def sent(request: DebugRequest, access: Access, clock: LeapingClock | None = None) -> DebugAnswer:
    async with opened(access, clock=clock) as client:
        return await client.send(request)


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


@contextlib.asynccontextmanager
async def other_program(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The URL of a port where each connection gets this answer and is closed."""

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(answered, "127.0.0.1", 0, ssl=tls) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


async def caller(request: web.BaseRequest) -> web.Response:
    """DebugAnswer with the credentials of the request."""
    tls = request.get_extra_info("ssl_object")
    shown = (tls.getpeercert() if tls is not None else None) or {}
    names = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
    return text(f"{request.headers.get('Authorization', '')}|{','.join(names)}", code=0)


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
