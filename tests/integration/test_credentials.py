"""Credentials of kubeconfigs: plugins that hang, fail, write much or are not installed, impersonation, and OIDC tokens."""

from __future__ import annotations

import asyncio
import base64
import json
import pathlib
import re
from typing import Any

import pytest
import yaml

from scheduler.config.types import LeaderElection
from scheduler.kube.client_config import SettingsError, load_settings
from scheduler.kube.http.shared_session import SharedSession
from scheduler.kube.transport import HttpTransport
from simulator.apiserver import ApiServer
from tests.integration.clocks import HastyClock
from tests.integration.daemon import rig_on, until
from tests.integration.test_transport import answer, client, kubeconfig, raw, says, server_tls
from tests.support.clock import VirtualClock
from tests.unit.server.authorities import Authority

pytestmark = pytest.mark.filterwarnings("ignore:.*aiohttp.encode_basic_auth:DeprecationWarning")  # the library's

SAYS = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{STATUS}}'
EXPIRED = '{"token":"t1","expirationTimestamp":"2000-01-01T00:00:00Z"}'


def user(path: pathlib.Path, script: str, **more: object) -> dict[str, object]:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), **more}}


def once_then(path: pathlib.Path, then: str, status: str = EXPIRED) -> dict[str, object]:
    """Return a user whose plugin gives a token once and then runs `then`."""
    said = SAYS.replace("STATUS", status.strip("{}")).replace("'", "")
    first = f"if [ ! -e {path}.ran ]; then touch {path}.ran; echo '{said}'; exit 0; fi"
    return user(path, f"{first}\n{then}")


def is_alive(pid_file: pathlib.Path) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid_file.read_text().strip()}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # a child of a child is collected by init, some time


@pytest.mark.parametrize(
    ("status", "forced", "expected"),
    [
        pytest.param('"token":"token-NUMBER"', False, "token-1", id="without expiry it is kept"),
        pytest.param('"token":"token-NUMBER"', True, "token-2", id="without expiry until it is refused"),
        pytest.param('"token":"token-NUMBER","expirationTimestamp":"2100-01-01T00:00:00Z"', False, "token-1", id="valid"),
        pytest.param('"token":"token-NUMBER","expirationTimestamp":"2100-01-01T00:00:00Z"', True, "token-2", id="valid but refused"),
        pytest.param('"token":"token-NUMBER","expirationTimestamp":"2000-01-01T00:00:00Z"', False, "token-2", id="expired"),
    ],
)  # fmt: skip
async def test_when_a_plugin_is_run_again(tmp_path, status, forced, expected):
    said, runs = SAYS.replace("STATUS", status), tmp_path / "runs"
    numbered = f"echo x >> {runs}; echo '{said}' | sed \"s/NUMBER/$(wc -l < {runs} | tr -d ' ')/\""
    settings = await load_settings(kubeconfig(tmp_path / "config", user(tmp_path / "plugin", numbered)))
    assert "Bearer token-1" == settings.authorization
    assert settings.renew is not None

    await settings.renew(forced)

    assert f"Bearer {expected}" == settings.authorization


async def test_requests_go_on_while_the_plugin_hangs(tmp_path):
    """The token is still valid, so no request waits for a new one."""
    pid = tmp_path / "pid"
    hangs = once_then(tmp_path / "plugin", f"echo $$ > {pid}; sleep 1000")
    async with raw(says(answer(200))) as server:
        settings = await load_settings(kubeconfig(tmp_path / "config", hangs, server.url))
        clock = VirtualClock()
        transport = HttpTransport(settings, clock=clock)
        await transport.get("/x")
        await clock.advance(61)

        for _ in range(100):
            assert await asyncio.wait_for(transport.get("/x"), 30) == b"{}"

        await until(pid.exists, lambda: "never run again")
        assert is_alive(pid)
        await transport.close()
        await until(lambda: not is_alive(pid), lambda: "it was left behind")


async def test_a_leader_keeps_its_lease_while_its_plugin_hangs(tmp_path):
    pid = tmp_path / "pid"
    hangs = once_then(tmp_path / "plugin", f"echo $$ > {pid}; sleep 1000")
    clock = HastyClock()
    async with ApiServer(clock=clock) as server:
        path = kubeconfig(tmp_path / "config", hangs, server.url)
        elected = {"kubeconfig": path, "leader_election": LeaderElection(leader_elect=True)}
        async with rig_on(server, clock=clock, **elected) as cluster:
            await cluster.until(pid.exists, "the plugin was not run again")
            began = clock.now()
            await until(lambda: clock.now() > began + 60, lambda: "time stands", clock=clock, lasts_s=120)
            cluster.node("n1")
            cluster.pod("p")
            await cluster.bound("p")

            assert is_alive(pid)
            assert cluster.daemon.failure is None


async def test_a_token_is_renewed_in_the_background(tmp_path):
    """The first request of each minute starts the renewal and uses the old token."""
    renewed: list[bool] = []
    async with raw(says(answer(200))) as server:
        settings = await load_settings(kubeconfig(tmp_path / "config", {"token": "old"}, server.url))

        async def renew(force: bool) -> None:
            renewed.append(force)
            settings.authorization = "Bearer new"

        settings.renew = renew
        clock = VirtualClock()
        transport = HttpTransport(settings, clock=clock)
        apart = transport.apart()
        await clock.advance(61)
        for each in (transport, transport, apart):
            await each.get("/x")
        await transport.close()

    sent = [re.findall(rb"Bearer (\w+)", request)[0] for request in server.requests]
    assert (renewed, sent) == ([False], [b"old", b"new", b"new"])


async def test_a_plugin_that_hangs_is_killed_with_all_that_it_has_started(tmp_path, monkeypatch):
    """Its children hold its pipes open, so all of them must end."""
    pids = [tmp_path / "pid", tmp_path / "child"]
    script = f"echo $$ > {pids[0]}; sh -c 'echo $$ > {pids[1]}; sleep 1000' & wait; sleep 1000"
    settings = await load_settings(kubeconfig(tmp_path / "config", once_then(tmp_path / "plugin", script)))
    monkeypatch.setattr("scheduler.kube.client_config._ASKING_S", 0.5)
    assert settings.renew is not None

    await settings.renew(True)

    await until(lambda: not any(is_alive(pid) for pid in pids), lambda: "left behind")
    assert settings.authorization == "Bearer t1"


async def test_a_plugin_may_write_much_to_both_pipes(tmp_path):
    noise = "i=0; while [ $i -lt 4000 ]; do echo 'a warning of some fifty characters or a little more' >&2; i=$((i+1)); done"
    said = SAYS.replace("STATUS", '"token":"t1"')
    settings = await asyncio.wait_for(
        load_settings(kubeconfig(tmp_path / "config", user(tmp_path / "plugin", f"{noise}\necho '{said}'"))), 60
    )

    assert settings.authorization == "Bearer t1"


@pytest.mark.parametrize(
    ("script", "error"),
    [
        pytest.param("echo 'no such account' >&2; exit 3", "returned 3. no such account", id="it fails"),
        pytest.param("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1", "returned 1. xxxx", id="it fails with many words"),
        pytest.param("echo hello", "wrote no JSON", id="no JSON"),
        pytest.param("echo '[]'", "wrote no ExecCredential: apiVersion is missing", id="another object"),
        pytest.param(f"echo '{SAYS.replace('{STATUS}', '1')}'", "status is no object", id="no status"),
        pytest.param(f"echo '{SAYS.replace('k8s.io/v1', 'k8s.io/v0')}'".replace("STATUS", ""), "not in", id="another version"),
    ],
)  # fmt: skip
async def test_what_a_plugin_does_wrong_is_said_with_its_name(tmp_path, script, error):
    with pytest.raises(SettingsError, match=error) as raised:
        await load_settings(kubeconfig(tmp_path / "config", user(tmp_path / "plugin", script)))

    assert "exec: '" in str(raised.value)
    assert "plugin'" in str(raised.value)
    assert len(str(raised.value)) < 1024 + 200


@pytest.mark.parametrize(
    ("hint", "advice"),
    [
        pytest.param({}, "No such file or directory", id="without a hint"),
        pytest.param(
            {"installHint": "Get it:\n  apt install x"},
            "No such file or directory. Get it: apt install x",
            id="with the kubeconfig's hint how to install it",
        ),
    ],
)
async def test_a_plugin_that_is_not_installed_is_named(tmp_path, hint, advice, caplog):
    missing = {"apiVersion": "client.authentication.k8s.io/v1", "command": "cloud-auth-plugin", **hint}
    path = kubeconfig(tmp_path / "config", {"exec": missing})

    with pytest.raises(SettingsError) as raised:
        await load_settings(path)

    assert str(raised.value) == f"kubeconfig {path}: user \"k\": exec: cannot run 'cloud-auth-plugin': {advice}"
    assert caplog.records == []


# -- identities: impersonation, and tokens of an OIDC issuer -----------------------------------------------------------

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
