"""The kubelet's half of port forwarding over a websocket, and an API server that has it in front of another one.

`serve` is what a kubelet or a container runtime does: two channels per port, each of which begins with two bytes of
the port; an error of the connection is a text on the second channel.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

PROTOCOL = "v4.channel.k8s.io"
DATA, ERROR = b"\0", b"\1"


@dataclass
class Forwarder:
    """Forwards each connection to a port of this machine. The other fields are faults."""

    port: int
    protocols: tuple[str, ...] = (PROTOCOL,)
    cuts_after_bytes: int | None = None
    """The websocket ends when the pod has sent this number of bytes."""
    is_bytewise: bool = False
    """Each byte of the pod is a message, also of the ports at the beginning."""
    hangs: bool = False
    """Bytes of the pod are never sent on."""
    requested: list[str] = field(default_factory=list)
    """Paths with their queries."""

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requested.append(request.path_qs)
        messages = web.WebSocketResponse(protocols=self.protocols)
        await messages.prepare(request)
        query = request.query
        port = int(query.get("ports") or query["port"]).to_bytes(2, "little")
        for channel in (DATA, ERROR):
            await self._send(messages, channel, port)
            await messages.send_bytes(channel)  # some servers announce a channel by an empty message
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            text = f"failed to connect to localhost:{self.port} inside the pod: connection refused"
            await messages.send_bytes(ERROR + text.encode())
            await messages.close()
            return messages
        try:
            sending = asyncio.create_task(self._from_pod(messages, reader))
            async for message in messages:
                if message.data[:1] == DATA:
                    writer.write(message.data[1:])
                    await writer.drain()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return messages

    async def _from_pod(self, messages: web.WebSocketResponse, reader: asyncio.StreamReader) -> None:
        left = self.cuts_after_bytes
        while chunk := await reader.read(4096):
            if self.hangs:
                continue
            await self._send(messages, DATA, chunk if left is None else chunk[:left])
            if left is not None and (left := left - len(chunk)) <= 0:
                break
        await messages.close()

    async def _send(self, messages: web.WebSocketResponse, channel: bytes, content: bytes) -> None:
        parts = [content[at : at + 1] for at in range(len(content))] if self.is_bytewise else [content]
        for part in parts:
            await messages.send_bytes(channel + part)


@dataclass
class ApiFront:
    """An API server that forwards ports; everything else is read from another one, or refused by `statuses`."""

    forwarder: Forwarder
    behind: str = ""
    """Address of the API server with the objects."""
    statuses: dict[str, int] = field(default_factory=dict)
    """The end of a path → the status with which it is refused."""
    texts: dict[str, str] = field(default_factory=dict)
    """End of a path → the text of the answer, such as a log."""
    url: str = ""

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        for end, status in self.statuses.items():
            if request.path.endswith(end):
                message = f'"{request.path}" is refused'
                return web.json_response({"kind": "Status", "message": message, "code": status}, status=status)
        for end, text in self.texts.items():
            if request.path.endswith(end):
                return web.Response(text=text)
        if request.path.endswith("/portforward"):
            return await self.forwarder.serve(request)
        async with aiohttp.ClientSession() as http, http.get(self.behind + request.path_qs) as found:
            return web.Response(body=await found.read(), status=found.status, content_type="application/json")


@contextlib.asynccontextmanager
async def serving(answer: Callable[[web.BaseRequest], object], tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Yield the address of a server on loopback that answers each request like this."""
    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def fronted(front: ApiFront, tls: ssl.SSLContext | None = None) -> AsyncIterator[ApiFront]:
    """Serve the front; its `url` is set."""
    async with serving(front.answer, tls) as front.url:
        yield front
