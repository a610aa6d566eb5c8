"""How long a world may take to come to rest: by its own clock, which stands while others have the machine."""

from __future__ import annotations

import itertools

import pytest

from scheduler.core.clock import SystemClock
from tests.integration import daemon
from tests.integration.daemon import until

PEACE_S = 100.0


class Passing(SystemClock):
    """So much time has passed each time that somebody looks."""

    def __init__(self, passes_s: float) -> None:
        self._at = itertools.count(0.0, passes_s)

    def now(self) -> float:
        return next(self._at)


@pytest.mark.parametrize(
    ("passes_s", "is_given_up"),
    [
        pytest.param(0.0, False, id="a machine that is somebody else's is waited for"),
        pytest.param(PEACE_S, True, id="a world that does not come to rest in its time is given up"),
    ],
)
async def test_the_deadline_is_the_worlds(monkeypatch: pytest.MonkeyPatch, passes_s: float, is_given_up: bool) -> None:
    monkeypatch.setattr(daemon, "DEADLINE_S", 0.0)
    asked = itertools.count()

    waiting = until(lambda: next(asked) == 5, lambda: "no rest", clock=Passing(passes_s), lasts_s=PEACE_S)
    if is_given_up:
        with pytest.raises(AssertionError, match="no rest"):
            await waiting
    else:
        await waiting
