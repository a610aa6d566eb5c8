"""One request behind a tunnel, or over TLS: credentials, certificates, trust, a proxy, and connections that break."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from scheduler import __version__
from scheduler.cli import port_forward as forwarding
from scheduler.cli.debug_request import Access
from scheduler.cli.leader import Leader, NoAnswer
from scheduler.cli.port_forward import port_forward
from scheduler.kube.client_config import load_settings
from scheduler.kube.http import sockets as client_sockets
from scheduler.kube.http.sockets import api_server_socket
from tests.support.kubeconfigs import kubeconfig
from tests.support.port_forwarding import serving
from tests.unit.cli.requests import EXPLAIN, LEASE, WHAT_IF, Certified, caller, cluster, other_program, sent, text
from tests.unit.server.authorities import Authority


def users(certified: Certified, tmp_path: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """Users of a kubeconfig, and what the daemon sees of each."""
    issued = certified.authority.issues("ann")
    data = {
        "client-certificate-data": base64.b64encode(issued.certificate).decode(),
        "client-key-data": base64.b64encode(issued.key).decode(),
    }
    token_file = tmp_path / "token"
    token_file.write_text("of-a-file")
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "of-a-plugin"},
    }
    plugin = {"apiVersion": credential["apiVersion"], "command": "echo", "args": [json.dumps(credential)]}
    return {
        "token": ({"token": "static"}, "Bearer static|"),
        "file": ({"tokenFile": str(token_file)}, "Bearer of-a-file|"),
        "plugin": ({"exec": plugin}, "Bearer of-a-plugin|"),
        "certificate": (data, "|ann"),
        "nothing": ({}, "|"),
    }


@pytest.mark.parametrize("way", ["a server", "a tunnel"])
@pytest.mark.parametrize("user", ["token", "file", "plugin", "certificate", "nothing"])
async def test_credentials(certified: Certified, tmp_path: Path, kubeconfig_file: Any, user: str, way: str) -> None:
    """Each kind of credentials reaches the daemon, whose certificate is not verified."""
    given, seen = users(certified, tmp_path)[user]
    async with serving(caller, certified.context("localhost")) as url:
        if way == "a server":
            access = Access(LEASE, kubeconfig=kubeconfig_file(given), server=url)
            answer = await sent(EXPLAIN, access)
        else:
            async with cluster(int(url.rpartition(":")[2]), certified.context("127.0.0.1")) as front:
                answer = await sent(EXPLAIN, Access(LEASE, kubeconfig=kubeconfig_file(given, front.url)))

    assert answer.text == seen


@pytest.mark.parametrize(
    ("name", "expected", "said"),
    [
        pytest.param("kubestow.stow.svc", "", "", id="the name of the Service"),
        pytest.param("localhost", "localhost", "", id="the name that is given"),
        pytest.param(
            "localhost", "", "the scheduler's certificate is not valid for kubestow.stow.svc: ", id="another name"
        ),
    ],
)
async def test_a_certificate_is_verified_with_authorities(
    certified: Certified, kubeconfig_file: Any, name: str, expected: str, said: str
) -> None:
    async with (
        serving(caller, certified.context(name)) as url,
        cluster(int(url.rpartition(":")[2])) as front,
    ):
        access = Access(
            LEASE,
            kubeconfig=kubeconfig_file({"token": "t"}, front.url),
            ca_file=certified.ca_file,
            server_name=expected,
        )
        if not said:
            assert (await sent(EXPLAIN, access)).text == "Bearer t|"
            return
        with pytest.raises(NoAnswer) as raised:
            await sent(EXPLAIN, access)

    assert str(raised.value).startswith(said)
    assert str(raised.value).endswith("--scheduler-ca-file and the name by --scheduler-server-name")


async def test_a_foreign_authority(certified: Certified, tmp_path: Path, kubeconfig_file: Any) -> None:
    """Nothing is sent to a server whose certificate is not valid."""
    requests: list[str] = []

    async def record(request: web.BaseRequest) -> web.Response:
        requests.append(request.path)
        return text("ok", code=0)

    other = tmp_path / "other.pem"
    other.write_bytes(Authority("other").pem)
    async with serving(record, certified.context("localhost")) as url:
        server = url.replace("127.0.0.1", "localhost")
        access = Access(LEASE, kubeconfig=kubeconfig_file({"token": "t"}), server=server, ca_file=str(other))
        with pytest.raises(NoAnswer, match=r"^the scheduler's certificate is not valid for localhost: "):
            await sent(EXPLAIN, access)
        assert requests == []


async def test_an_unreadable_authority(kubeconfig_file: Any) -> None:
    access = Access(LEASE, kubeconfig=kubeconfig_file({}), server="https://127.0.0.1:1", ca_file="/nowhere")
    with pytest.raises(NoAnswer, match=r"^/nowhere: cannot be used as a certificate: .*No such file"):
        await sent(EXPLAIN, access)


@pytest.mark.parametrize(
    "cuts_after_bytes",
    [pytest.param(20, id="within the handshake"), pytest.param(3000, id="within the answer")],
)
async def test_a_tunnel_that_is_closed_in_the_middle(
    certified: Certified, kubeconfig_file: Any, cuts_after_bytes: int
) -> None:
    async def long(_: web.BaseRequest) -> web.Response:
        return text("x" * 100_000, code=0)

    async with (
        serving(long, certified.context("localhost")) as url,
        cluster(int(url.rpartition(":")[2]), cuts_after_bytes=cuts_after_bytes) as front,
    ):
        access = Access(LEASE, kubeconfig=kubeconfig_file({"token": "t"}, front.url))
        with pytest.raises(NoAnswer, match=r"^the connection to pod stow/stow-0 was closed: .+; try again$"):
            await sent(EXPLAIN, access)


async def test_a_port_of_another_program(certified: Certified, kubeconfig_file: Any) -> None:
    async with (
        other_program(b"SSH-2.0-OpenSSH\r\n", certified.context("localhost")) as url,
        cluster(int(url.rpartition(":")[2])) as front,
    ):
        access = Access(LEASE, kubeconfig=kubeconfig_file({"token": "t"}, front.url))
        with pytest.raises(
            NoAnswer, match=r"^port \d+ of pod stow/stow-0: the answer is no HTTP \(.+; another program "
        ):
            await sent(EXPLAIN, access)


async def test_the_trust_of_the_kubeconfig(certified: Certified, tmp_path: Path) -> None:
    """The websocket verifies the API server as each other request does."""
    other = tmp_path / "other.pem"
    other.write_bytes(Authority("other").pem)
    async with (
        serving(caller, certified.context("localhost")) as url,
        cluster(int(url.rpartition(":")[2]), certified.context("api")) as front,
    ):
        leader = Leader("stow", "stow-0", int(url.rpartition(":")[2]))
        for authority, name, is_valid in ((certified.ca_file, "api", True), (str(other), "api", False)):
            document = kubeconfig(
                {"token": "t"}, front.url, **{"certificate-authority": authority, "tls-server-name": name}
            )
            file = tmp_path / "trusting"
            file.write_text(yaml.safe_dump(document))
            settings = await load_settings(str(file))
            if is_valid:
                assert (await sent(EXPLAIN, Access(LEASE, kubeconfig=str(file)))).text == "Bearer t|"
                continue
            with pytest.raises(NoAnswer, match=r"^the API server cannot be reached: .*certificate"):
                async with port_forward(settings, leader):
                    pass
    assert len(front.forwarder.requested) == 1


async def test_a_proxy_before_the_api_server(certified: Certified, tmp_path: Path) -> None:
    """The requests and the websocket go through the proxy of the kubeconfig."""
    connected: list[str] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        connected.append(head.split()[1].decode())
        host, _, port = connected[-1].rpartition(":")
        back, forth = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(copied(reader, forth), copied(back, writer))

    async def copied(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await source.read(65536):
                target.write(chunk)
                await target.drain()
        target.close()

    async with (
        serving(caller, certified.context("localhost")) as url,
        cluster(int(url.rpartition(":")[2]), certified.context("127.0.0.1")) as front,
        await asyncio.start_server(proxy, "127.0.0.1", 0) as server,
    ):
        through = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        trust = {"certificate-authority": certified.ca_file, "proxy-url": through}
        file = tmp_path / "proxied"
        file.write_text(yaml.safe_dump(kubeconfig({"token": "t"}, front.url, **trust)))
        assert (await sent(EXPLAIN, Access(LEASE, kubeconfig=str(file)))).text == "Bearer t|"

    assert connected == [front.url.removeprefix("https://")] * 2


async def test_a_port_on_which_nothing_listens(kubeconfig_file: Any) -> None:
    async with cluster(1) as front:
        with pytest.raises(NoAnswer) as raised:
            await sent(EXPLAIN, Access(LEASE, kubeconfig=kubeconfig_file({"token": "t"}, front.url)))

    assert str(raised.value) == (
        "the connection to pod stow/stow-0 was closed: failed to connect to localhost:1 inside the pod: connection "
        "refused; try again"
    )


async def test_a_tunnel_in_which_nothing_comes(certified: Certified, kubeconfig_file: Any) -> None:
    async with (
        serving(caller, certified.context("localhost")) as url,
        cluster(int(url.rpartition(":")[2]), hangs=True) as front,
    ):
        access = Access(LEASE, kubeconfig=kubeconfig_file({"token": "t"}, front.url), timeout_s=3.0)
        with pytest.raises(NoAnswer) as raised:
            await sent(EXPLAIN, access)

    assert str(raised.value) == (
        "no answer within 3 s, while waiting for an answer of pod stow/stow-0; --timeout gives more time"
    )


async def test_the_version_of_a_pod(certified: Certified, kubeconfig_file: Any) -> None:
    async def unknown(_: web.BaseRequest) -> web.Response:
        return text("404 page not found\n", 404)

    async with (
        serving(unknown, certified.context("localhost")) as url,
        cluster(int(url.rpartition(":")[2])) as front,
    ):
        with pytest.raises(NoAnswer) as raised:
            await sent(WHAT_IF, Access(LEASE, kubeconfig=kubeconfig_file({"token": "t"}, front.url)))

    assert str(raised.value) == (
        "pod stow/stow-0 does not serve POST /debug/what-if (404): it is of version 9, and this program of "
        f"{__version__}; use the program of the scheduler's version"
    )


@pytest.mark.parametrize("way", ["a tunnel", "a tunnel that is cut", "a refused tunnel", "a server", "no trust"])
async def test_no_socket_is_left_when_the_loop_ends(
    certified: Certified, kubeconfig_file: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The command's loop ends with its request."""
    made: list[socket.socket] = []

    def recorded(address: Any) -> socket.socket:
        made.append(api_server_socket(address))
        return made[-1]

    def pair() -> tuple[socket.socket, socket.socket]:
        ends = socketpair()
        made.extend(ends)
        return ends

    async def closing(request: web.BaseRequest) -> web.Response:
        response = await caller(request)
        response.force_close()
        return response

    socketpair = socket.socketpair
    faults: dict[str, Any] = {"cuts_after_bytes": 1000} if way == "a tunnel that is cut" else {}
    async with (
        serving(closing, certified.context("localhost")) as url,
        cluster(int(url.rpartition(":")[2]), certified.context("127.0.0.1"), **faults) as front,
    ):
        front.statuses = {"/portforward": 403} if way == "a refused tunnel" else {}
        server = url if way == "a server" else ""
        ca_file = certified.ca_file if way == "no trust" else ""
        access = Access(LEASE, kubeconfig=kubeconfig_file({"token": "t"}, front.url), server=server, ca_file=ca_file)

        def run() -> None:
            gc.disable()
            with contextlib.suppress(NoAnswer):
                asyncio.run(sent(EXPLAIN, access))

        for module in (client_sockets, forwarding):
            monkeypatch.setattr(module, "api_server_socket", recorded)
        monkeypatch.setattr(forwarding.socket, "socketpair", pair)  # type: ignore[attr-defined]
        try:
            await asyncio.to_thread(run)
            left = [each for each in made if each.fileno() >= 0]
        finally:
            gc.enable()

    assert len(made) >= 1
    assert left == []
