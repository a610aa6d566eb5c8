"""Each request is told of: method, host, status and time."""

from __future__ import annotations

import pytest

from scheduler.core.errors import Ambiguous, Conflict, Unavailable
from scheduler.kube.credentials import Settings
from scheduler.kube.transport import HttpTransport
from tests.integration.test_transport import Script, answer, hang_up, raw, says


async def _told(script: Script) -> list[tuple[str, int, bool]]:
    """Of a read, a write and a watch: method, status, and whether it took time."""
    told: list[tuple[str, str, int, float | None]] = []
    async with raw(script) as server:
        transport = HttpTransport(Settings(server.url), on_answer=lambda *each: told.append(each))
        for call in (transport.get("/x"), transport.post("/x", b"{}")):
            try:
                await call
            except (Ambiguous, Conflict, Unavailable):
                continue
        try:
            async with transport.watch("/x", {}, inactivity_timeout_s=5) as chunks:
                async for _ in chunks:
                    break
        except (Conflict, Unavailable):
            pass
        await transport.close()
        assert {host for _, host, _, _ in told} == {server.url.removeprefix("http://")}
    return [(method, status, seconds is not None and seconds >= 0) for method, _, status, seconds in told]


@pytest.mark.parametrize(
    ("script", "status"),
    [
        pytest.param(says(answer(200)), 200, id="answered"),
        pytest.param(says(answer(409)), 409, id="refused"),
        pytest.param(hang_up, 0, id="never answered"),
    ],
)
async def test_each_request_is_told_once(script: Script, status: int) -> None:
    """Also those that fail; a watch when it is opened, without a time."""
    assert await _told(script) == [("GET", status, True), ("POST", status, True), ("GET", status, False)]
