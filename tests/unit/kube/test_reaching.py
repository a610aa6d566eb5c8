"""Addresses and proxies, in Go's reading of the environment."""

import pytest

from scheduler.kube.client_config import proxy_for

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
    """A service network in NO_PROXY is what pods behind a proxy live by."""
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
    """One without a scheme speaks HTTP."""
    monkeypatch.setenv("HTTPS_PROXY", said)
    monkeypatch.delenv("https_proxy", raising=False)
    monkeypatch.setenv("NO_PROXY", "other")

    assert meant == proxy_for("https://api")


def test_a_proxy_of_another_kind_is_refused_without_its_password(monkeypatch):
    """Errors are read by many."""
    monkeypatch.setenv("HTTPS_PROXY", "socks5://user:secret@proxy")
    monkeypatch.setenv("NO_PROXY", "other")

    with pytest.raises(ValueError, match=r"begin with https:// or http://") as refused:
        proxy_for("https://api")

    assert "secret" not in str(refused.value)
