"""Proxies in Go's reading of the environment, and sessions that are shared with other clients."""

from __future__ import annotations

import pytest

from scheduler.core.errors import ApiError, Unauthorized
from scheduler.kube.client_config import Settings, proxy_for
from scheduler.kube.transport import SharedSession
from tests.unit.kube.scripted import ScriptedTransport

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "spared", "is_direct"),
    [
        pytest.param("https://10.96.0.1:443", "", False, id="nothing is spared"),
        pytest.param("https://10.96.0.1:443", "10.96.0.1", True, id="an address"),
        pytest.param("https://10.96.0.1:443", "localhost, 10.96.0.0/12", True, id="a network, after a blank"),
        pytest.param("https://10.200.0.1", "10.96.0.0/12", False, id="outside of the network"),
        pytest.param("https://[fd00::1]:443", "fd00::/8", True, id="a network of IPv6"),
        pytest.param("https://[fd00::1]:443", "10.0.0.0/8", False, id="a network of the other family"),
        pytest.param("https://[fd00::1]:443", "[fd00::1]:443", True, id="an IPv6 address with its port"),
        pytest.param("https://api.example.com", "example.com", True, id="below a domain"),
        pytest.param("https://example.com", "Example.com", True, id="the domain itself, whatever its case"),
        pytest.param("https://api.example.com", ".example.com", True, id="below a domain with a dot"),
        pytest.param("https://api.example.com", "*.example.com", True, id="below a domain with a star"),
        pytest.param("https://notexample.com", "example.com", False, id="another domain that ends alike"),
        pytest.param("https://api.example.com", "api.example.com:443", True, id="its port, not said in the address"),
        pytest.param("https://api.example.com:6443", "api.example.com:443", False, id="another port"),
        pytest.param("https://api.example.com", "*", True, id="everything"),
        pytest.param("https://api.example.com", ",, ", False, id="empty entries"),
        pytest.param("https://localhost:6443", "", True, id="this machine by name"),
        pytest.param("https://127.0.0.1:6443", "", True, id="this machine"),
        pytest.param("https://[::1]:6443", "", True, id="this machine in IPv6"),
        pytest.param("http://api.example.com", "", True, id="no proxy is named for plain HTTP"),
    ],
)
def test_what_no_proxy_spares(monkeypatch, server, spared, is_direct):
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", spared)

    assert (None if is_direct else PROXY) == proxy_for(server)


@pytest.mark.parametrize(
    ("said", "meant"),
    [("proxy:3128", PROXY), (PROXY, PROXY), ("https://user:secret@proxy", "https://user:secret@proxy"), ("", None)],
)
def test_proxies(monkeypatch, said, meant):
    monkeypatch.setenv("HTTPS_PROXY", said)
    monkeypatch.delenv("https_proxy", raising=False)
    monkeypatch.setenv("NO_PROXY", "other")

    assert meant == proxy_for("https://api")


def test_a_proxy_of_another_kind_is_refused_without_its_password(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "socks5://user:secret@proxy")
    monkeypatch.setenv("NO_PROXY", "other")

    with pytest.raises(ValueError, match=r"begin with https:// or http://") as refused:
        proxy_for("https://api")

    assert "secret" not in str(refused.value)


SERVER = "https://api.example:6443"


async def test_the_session_has_the_credentials_of_the_transport() -> None:
    settings = Settings(SERVER, authorization="Bearer one", proxy="http://proxy:3128")
    shared_session = SharedSession(settings, ScriptedTransport())

    session = await shared_session.session()
    assert session is not None
    assert shared_session.server == SERVER
    assert session.headers["Authorization"] == "Bearer one"
    assert str(session._default_proxy) == "http://proxy:3128"
    assert not session.closed

    await shared_session.close()
    assert session.closed


async def test_after_a_refusal_the_transport_gets_a_new_token() -> None:
    settings = Settings(SERVER, authorization="Bearer old")

    class Renewing(ScriptedTransport):
        async def get(self, path: str, **_: object) -> bytes:
            assert path == "/version"
            settings.authorization = "Bearer new"
            return b"{}"

    shared_session = SharedSession(settings, Renewing())
    await shared_session.session()

    session = await shared_session.session()

    assert session is not None
    assert session.headers["Authorization"] == "Bearer new"
    await shared_session.close()


async def test_sessions_that_the_client_closed_are_forgotten() -> None:
    """Tokens are replaced every hour, so closed sessions must not pile up; open sessions are closed at the end."""
    settings = Settings(SERVER, authorization="Bearer 0")
    shared_session = SharedSession(settings, ScriptedTransport(answers=[b"{}"] * 3))
    first = await shared_session.session()
    for n in range(1, 4):
        settings.authorization = f"Bearer {n}"
        last = await shared_session.session()
        assert last is not None
        await last.close()

    assert shared_session._sessions == [first, last]
    await shared_session.close()
    assert first is not None
    assert first.closed


async def test_refused_credentials_give_no_new_session() -> None:
    """Else both clients would retry with the same token again and again. The same holds while the server is away."""
    answers: list[bytes | ApiError] = [b"{}", Unauthorized("no", status=401)]
    shared_session = SharedSession(Settings(SERVER, authorization="Bearer one"), ScriptedTransport(answers=answers))
    assert await shared_session.session() is not None

    assert await shared_session.session() is None
    assert await shared_session.session() is None
    await shared_session.close()
