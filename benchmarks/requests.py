"""What a request costs the client: CPU time of this process per POST, over TLS, for each HTTP client of the project.

`python -m benchmarks.requests [--rounds 3]` starts a server in another process, which answers with the headers of
kube-apiserver, and prints one row per client and round. The rounds alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import ssl
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import uvloop

from scheduler.kube.client_config import Settings
from scheduler.kube.http.client import HttpClient, HttpRequest
from scheduler.kube.http.http1 import Http1Client
from scheduler.kube.http.streams import StreamClient
from scheduler.kube.wire import JSON
from tests.unit.server.authorities import Authority

_ID: Final = "4e6a36b4-5c3c-4e32-9d8b-ffb04b1d1c44"
_BODY: Final = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}\n'
_ANSWER: Final = (
    f"HTTP/1.1 201 Created\r\nAudit-Id: {_ID}\r\nCache-Control: no-cache, private\r\nContent-Type: application/json\r\n"
    f"X-Kubernetes-Pf-Flowschema-Uid: {_ID}\r\nX-Kubernetes-Pf-Prioritylevel-Uid: {_ID}\r\n"
    f"Date: Mon, 30 Nov 2026 03:18:07 GMT\r\nContent-Length: {len(_BODY)}\r\n\r\n"
).encode() + _BODY
_BINDING: Final = HttpRequest(
    "POST",
    "/api/v1/namespaces/default/pods/a-pod-of-some-job-x7k2p/binding?fieldManager=kubestow",
    b'{"metadata":{"name":"a-pod-of-some-job-x7k2p","namespace":"default","uid":"%b"},"target":{"kind":"Node","name":"n-17"}}'
    % _ID.encode(),
    (JSON, JSON),
)


class _Answers(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"}}"):  # a client may send head and body one after the other
            self._transport.write(_ANSWER)


def _serve(port: Connection, certificate: str, key: str) -> None:
    async def run() -> None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
        server = await asyncio.get_running_loop().create_server(_Answers, "127.0.0.1", 0, ssl=tls)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(run())


async def _cpu_us(client: HttpClient, requests: int, in_flight: int) -> float:
    """Return the CPU time of this process per request, in microseconds."""
    waiting = iter(range(requests))

    async def work() -> None:
        for _ in waiting:
            assert (await client.request(_BINDING)).status == 201

    await asyncio.gather(*(client.request(_BINDING) for _ in range(in_flight)))  # the connections
    began = time.process_time()
    await asyncio.gather(*(work() for _ in range(in_flight)))
    return (time.process_time() - began) / requests * 1e6


async def _compare(settings: Settings, arguments: argparse.Namespace) -> None:
    for each in range(arguments.rounds):
        for made in (StreamClient, Http1Client):
            client = made(settings)
            cost_us = await _cpu_us(client, arguments.requests, arguments.in_flight)
            await client.close()
            print(f"round {each + 1}  {made.__name__:<14}{cost_us:8.1f} µs per request", flush=True)


def main() -> None:
    """Compare the clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--in-flight", type=int, default=32)
    arguments = parser.parse_args()
    authority = Authority("benchmark")
    issued = authority.issues("api")
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
        certificate.write_bytes(issued.certificate)
        key.write_bytes(issued.key)
        ours, theirs = multiprocessing.Pipe()
        server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, str(certificate), str(key)))
        server.start()
        try:
            tls = ssl.create_default_context(cadata=authority.pem.decode())
            tls.check_hostname = False
            uvloop.run(_compare(Settings(f"https://127.0.0.1:{ours.recv()}", "Bearer token", tls), arguments))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
