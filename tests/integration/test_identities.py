"""Identities in a kubeconfig: impersonation, and tokens of an OIDC issuer."""

from __future__ import annotations

import asyncio
import base64
import json
import pathlib
from typing import Any

import pytest
import yaml

from scheduler.kube.client_config import SettingsError, load_settings
from scheduler.kube.transport import SharedSession
from tests.integration.test_transport import answer, client, kubeconfig, raw, says, server_tls
from tests.unit.server.authorities import Authority

pytestmark = pytest.mark.filterwarnings("ignore:.*aiohttp.encode_basic_auth:DeprecationWarning")  # the library's

ELSE: dict[str, object] = {
    "as": "system:serviceaccount:kube-system:kubestow",
    "as-uid": "u-1",
    "as-groups": ["one", "two"],
    "as-user-extra": {"Example.com/reason": ["night shift"]},
}


async def test_requests_carry_the_impersonated_user(tmp_path):
    """Without these headers, the requests would have all rights of the kubeconfig's user."""
    async with raw(says(answer(200))) as server:
        settings = await load_settings(kubeconfig(tmp_path / "config", ELSE | {"token": "t"}, server.url))
        async with client(settings) as transport:
            await transport.get("/x")
            shared_session = SharedSession(settings, transport)
            session = await shared_session.session()
            assert session is not None
            async with session.get(server.url):
                await shared_session.close()

    for request in server.requests:
        assert [line for line in request.decode().split("\r\n") if line.startswith("Impersonate")] == [
            "Impersonate-User: system:serviceaccount:kube-system:kubestow",
            "Impersonate-Uid: u-1",
            "Impersonate-Group: one",
            "Impersonate-Group: two",
            "Impersonate-Extra-example.com%2Freason: night shift",
        ]


@pytest.mark.parametrize(
    "user",
    [
        pytest.param({"as-groups": ["system:masters"]}, id="groups without a user"),
        pytest.param({"as": "a\nb"}, id="a name of two lines"),
        pytest.param({"as": "a", "as-user-extra": ["b"]}, id="extra without keys"),
    ],
)
async def test_an_invalid_user_to_impersonate_is_refused(tmp_path, user):
    with pytest.raises(SettingsError, match=str(tmp_path)):
        await load_settings(kubeconfig(tmp_path / "config", user))


async def test_files_are_relative_to_the_kubeconfig_that_names_them(tmp_path):
    (tmp_path / "token").write_text("mine")

    settings = await load_settings(kubeconfig(tmp_path / "config", {"tokenFile": "token"}))

    assert settings.authorization == "Bearer mine"


async def test_an_issuer_whose_authority_is_named_is_believed(tmp_path):
    authority = Authority("issuers")

    token = await _token_of_issuer(tmp_path, authority, {"idp-certificate-authority-data": _in_base64(authority.pem)})

    assert token == "Bearer new"
    (user,) = yaml.safe_load((tmp_path / "config").read_text())["users"]
    assert user["user"]["auth-provider"]["config"]["refresh-token"] == "newer"


@pytest.mark.parametrize("named", [False, True], ids=["none is named", "another is named"])
async def test_an_issuer_of_an_untrusted_authority_gets_no_refresh_token(tmp_path, named):
    trust = {"idp-certificate-authority-data": _in_base64(Authority("another").pem)} if named else {}

    with pytest.raises(SettingsError, match="certificate"):
        await _token_of_issuer(tmp_path, Authority("issuers"), trust)


async def _token_of_issuer(directory: pathlib.Path, authority: Authority, trust: dict[str, str]) -> str | None:
    """Return the authorization that would be sent to the API server."""

    async def issue(request: bytes, writer: asyncio.StreamWriter) -> None:
        body: dict[str, Any] = {"token_endpoint": f"{issuer}/token"}
        if request.startswith(b"POST"):
            assert b"refresh_token=old" in request
            body = {"id_token": "new", "refresh_token": "newer"}
        writer.write(answer(200, json.dumps(body).encode()))

    async with raw(issue, server_tls(directory, authority, "localhost")) as server:
        issuer = server.url.replace("127.0.0.1", "localhost")
        config = {"client-id": "c", "client-secret": "s", "idp-issuer-url": issuer, "refresh-token": "old"} | trust
        user: dict[str, object] = {"auth-provider": {"name": "oidc", "config": config}}
        settings = await load_settings(kubeconfig(directory / "config", user))
    return settings.authorization


def _in_base64(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
