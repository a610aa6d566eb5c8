"""A session for a client that is not ours: with our credentials, and with new ones when they are refused."""

from __future__ import annotations

from scheduler.core.errors import ApiError, Unauthorized
from scheduler.kube.client_config import Settings
from scheduler.kube.transport import SharedSession
from tests.unit.kube.scripted import ScriptedTransport

SERVER = "https://api.example:6443"


async def test_it_carries_what_the_transport_has() -> None:
    """Address, token and proxy; its closing is the lender's business in the end."""
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


async def test_refused_the_transport_is_asked_for_newer_ones() -> None:
    """Whatever renewed them; it is done once, and there."""
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


async def test_what_the_borrower_has_closed_is_forgotten() -> None:
    """Tokens are replaced every hour, for as long as the process lives; what was lent and is open is closed in the end."""
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


async def test_the_same_are_not_lent_twice() -> None:
    """Refused and of no use again: else two would go round in circles. Nor while nobody answers."""
    answers: list[bytes | ApiError] = [b"{}", Unauthorized("no", status=401)]
    shared_session = SharedSession(Settings(SERVER, authorization="Bearer one"), ScriptedTransport(answers=answers))
    assert await shared_session.session() is not None

    assert await shared_session.session() is None
    assert await shared_session.session() is None
    await shared_session.close()
