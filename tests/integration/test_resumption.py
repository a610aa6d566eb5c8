"""Connections that resume a TLS session: which do, and what is verified again when something has changed."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from scheduler.kube.client_config import Settings, tls_for
from scheduler.kube.http.client import HttpRequest, HttpResponse, NotSentError
from tests.integration.test_http1 import http1_client
from tests.integration.test_transport import answer, raw, server_tls
from tests.unit.server.authorities import Authority

READ = HttpRequest("GET", "/x")


async def resumed(settings: Settings, tls: ssl.SSLContext, requests: int = 3) -> list[bool]:
    """Return of each connection, one after the other, whether the server resumed a session."""
    seen: list[bool] = []

    async def script(_: bytes, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("ssl_object").session_reused)
        writer.write(answer(200, b"{}", "Connection: close"))

    async with raw(script, tls) as server:
        settings.server = server.url
        async with http1_client(settings) as client:
            for _ in range(requests):
                assert HttpResponse(200, b"{}", None) == await client.request(READ)
    return seen


def trusting(authority: Authority) -> Settings:
    return Settings("", tls=tls_for(ca_data=authority.pem.decode()), tls_server_name="api")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_later_connections_resume_the_first_session(tmp_path: Path, version: ssl.TLSVersion) -> None:
    authority = Authority("ca")
    tls = server_tls(tmp_path, authority)
    tls.maximum_version = version

    assert [False, True, True] == await resumed(trusting(authority), tls)


async def test_a_client_certificate_is_part_of_the_session(tmp_path: Path) -> None:
    authority = Authority("ca")
    tls = server_tls(tmp_path, authority)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(cadata=authority.pem.decode())
    issued = authority.issues("kubestow")
    (tmp_path / "crt").write_bytes(issued.certificate)
    (tmp_path / "key").write_bytes(issued.key)
    context = tls_for(cert_file=str(tmp_path / "crt"), key_file=str(tmp_path / "key"), ca_data=authority.pem.decode())

    assert [False, True, True] == await resumed(Settings("", tls=context, tls_server_name="api"), tls)


async def test_a_server_without_tickets_gets_whole_handshakes(tmp_path: Path) -> None:
    authority = Authority("ca")
    tls = server_tls(tmp_path, authority)
    tls.num_tickets = 0
    tls.minimum_version = ssl.TLSVersion.TLSv1_3

    assert [False] * 3 == await resumed(trusting(authority), tls)


async def test_a_server_that_has_restarted_gets_a_whole_handshake(tmp_path: Path) -> None:
    """It does not know the ticket, because the key of tickets has changed."""
    authority = Authority("ca")
    settings = trusting(authority)
    await resumed(settings, server_tls(tmp_path, authority))

    assert [False, True, True] == await resumed(settings, server_tls(tmp_path, authority))


async def test_another_authority_or_name_is_verified(tmp_path: Path) -> None:
    """A session belongs to its context and name: no other certificate is accepted in its place."""
    authority, other = Authority("ca"), Authority("other")
    tls = server_tls(tmp_path, authority)
    settings = trusting(authority)
    await resumed(settings, tls)

    with pytest.raises(NotSentError, match="certificate"):
        await resumed(trusting(other), tls)
    settings.tls_server_name = "elsewhere"
    with pytest.raises(NotSentError, match="certificate"):
        await resumed(settings, tls)


async def test_an_intermediate_authority_is_trusted_alone(tmp_path: Path) -> None:
    """As by Go, on each version of Python."""
    intermediate = Authority("intermediate", by=Authority("root"))

    assert [False, True] == await resumed(trusting(intermediate), server_tls(tmp_path, intermediate), requests=2)
