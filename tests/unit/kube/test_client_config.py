"""Proxies in Go's reading of the environment, shared sessions, and the throttle: bindings go before events."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.core.errors import ApiError, Unauthorized
from scheduler.kube import client_config
from scheduler.kube.client_config import Settings, proxy_for
from scheduler.kube.http.shared_session import SharedSession
from scheduler.kube.rate_limit import BUSY, RequestsInFlight, Throttle
from tests.support.clock import VirtualClock
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


@pytest.mark.parametrize(
    ("content", "namespace"),
    [pytest.param("ci\n", "ci", id="a mounted file"), pytest.param(None, "", id="no file")],
)
def test_the_namespace_of_a_service_account(monkeypatch, tmp_path, content, namespace):
    file = tmp_path / "namespace"
    if content is not None:
        file.write_text(content)
    monkeypatch.setattr(client_config, "_SERVICE_ACCOUNT_NAMESPACE", file)

    assert client_config._ServiceAccount()._namespace() == namespace


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


class Line:
    """Callers of one throttle, in the order in which they are served."""

    def __init__(self, *, qps: float, burst: int) -> None:
        self.clock = VirtualClock()
        self.throttle = Throttle(self.clock, qps=qps, burst=burst)
        self.served: list[str] = []

    def join(self, name: str, *, urgent: bool = False) -> asyncio.Task[None]:
        async def wait() -> None:
            await self.throttle.take(urgent=urgent)
            self.served.append(name)

        return asyncio.create_task(wait())


async def test_the_burst_is_free_and_then_tokens_come_at_their_rate():
    line = Line(qps=2, burst=2)
    tasks = [line.join(str(n)) for n in range(5)]
    counts = []
    for step_s in (0.0, 0.5, 0.5, 0.5):
        await line.clock.advance(step_s)
        counts.append(len(line.served))

    assert [2, 3, 4, 5] == counts
    assert ["0", "1", "2", "3", "4"] == line.served
    await asyncio.gather(*tasks)


async def test_unused_tokens_are_saved_up_to_the_burst():
    line = Line(qps=10, burst=3)
    await asyncio.gather(*(line.join("early") for _ in range(3)))
    await line.clock.advance(3600.0)
    tasks = [line.join("late") for _ in range(5)]
    await line.clock.settle()

    assert 3 == line.served.count("late")
    await line.clock.advance(1.0)
    await asyncio.gather(*tasks)


async def test_bindings_are_served_first():
    """A binding that comes later overtakes everything else, and each kind keeps its order."""
    line = Line(qps=1, burst=1)
    await line.throttle.take()
    tasks = [line.join("event 1"), line.join("event 2")]
    await line.clock.settle()
    tasks += [line.join("bind 1", urgent=True), line.join("bind 2", urgent=True)]
    await line.clock.advance(4.0)

    assert ["bind 1", "bind 2", "event 1", "event 2"] == line.served
    await asyncio.gather(*tasks)


async def test_bindings_never_starve_other_requests():
    """Every fifth token goes to another waiting request."""
    line = Line(qps=1, burst=1)
    await line.throttle.take()
    tasks = [line.join("other") for _ in range(2)] + [line.join("bind", urgent=True) for _ in range(12)]
    await line.clock.advance(14.0)

    assert [4, 9] == [n for n, name in enumerate(line.served) if name == "other"]
    await asyncio.gather(*tasks)


async def test_a_cancelled_caller_costs_no_token():
    line = Line(qps=1, burst=1)
    await line.throttle.take()
    first, second, third = line.join("1"), line.join("2"), line.join("3")
    await line.clock.settle()
    assert 3 == line.throttle.waiting

    first.cancel()
    await line.clock.settle()
    assert 2 == line.throttle.waiting
    await line.clock.advance(1.0)
    assert ["2"] == line.served

    third.cancel()
    await line.clock.settle()
    last = line.join("4")
    await line.clock.advance(1.0)
    assert ["2", "4"] == line.served
    await asyncio.gather(first, second, third, last, return_exceptions=True)


async def test_a_negative_rate_switches_the_limit_off():
    """As client-go."""
    throttle = Throttle(VirtualClock(), qps=-1, burst=1)
    for _ in range(1000):
        await throttle.take()


async def test_zero_means_the_default():
    """A burst of 100, as kube-scheduler's clientConnection."""
    line = Line(qps=0, burst=0)
    tasks = [line.join(str(n)) for n in range(120)]
    await line.clock.advance(0.0)

    assert 100 == len(line.served)
    await line.clock.advance(0.2)
    assert 110 == len(line.served)
    await line.clock.advance(1.0)
    await asyncio.gather(*tasks)


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Wire:
    """Requests in flight, and events that want to be sent."""

    def __init__(self, bindings: int, events: int) -> None:
        self.requests = RequestsInFlight()
        self.urgent = [self.requests.urgent() for _ in range(bindings)]
        for each in self.urgent:
            each.__enter__()
        self.in_flight = [self.requests.event() for _ in range(events)]
        self.events = [asyncio.ensure_future(each.__aenter__()) for each in self.in_flight]

    @property
    def entered(self) -> int:
        return sum(event.done() for event in self.events)


async def wire(*, bindings: int = BUSY, events: int = 3) -> Wire:
    made = Wire(bindings, events)
    await turn()
    return made


@pytest.mark.parametrize(
    ("bindings", "entered"),
    [
        pytest.param(0, 3, id="nothing else on the wire: all at once"),
        pytest.param(BUSY - 1, 3, id="a few bindings: all at once"),
        pytest.param(BUSY, 1, id="a burst: one"),
    ],
)
async def test_events_enter(bindings, entered):
    full = await wire(bindings=bindings)

    assert entered == full.entered
    for event in full.events:
        event.cancel()


async def test_during_a_burst_one_follows_another():
    full = await wire()
    for done, event in enumerate(full.in_flight, start=1):
        assert done == full.entered
        await event.__aexit__(None, None, None)
        await turn()


async def test_the_end_of_a_burst_lets_all_in():
    full = await wire(events=5)
    full.urgent[0].__exit__(None, None, None)
    await turn()

    assert 5 == full.entered


async def test_hurried_events_do_not_wait_for_the_end_of_a_burst():
    full = await wire(events=5)
    full.requests.hurry_events(True)
    await turn()
    assert 5 == full.entered

    full.requests.hurry_events(False)
    more = [asyncio.ensure_future(full.requests.event().__aenter__()) for _ in range(2)]
    await turn()
    assert [False, False] == [event.done() for event in more]
    for event in more:
        event.cancel()


async def test_one_that_gives_up_does_not_take_the_turn_with_it():
    full = await wire()
    first, second, third = full.events
    second.cancel()
    await turn()

    await full.in_flight[0].__aexit__(None, None, None)
    await turn()

    assert (first.done(), second.cancelled(), third.done()) == (True, True, True)
