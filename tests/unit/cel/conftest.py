"""Values that double, errors without the words of syntax errors, and the clock of the deadline: it stands still unless a test wants it to advance, so no test depends on the machine's speed."""

from collections.abc import Callable
from itertools import count
from typing import Any, TypeAlias

import pytest

CLOCK = "scheduler.cel.eval.running.processor_nanos"
Reads: TypeAlias = Callable[[], int]


def doubled(times: int, seed: str, twice: str, then: str) -> str:
    """`then` is about `v`, which is the seed doubled so often by `twice`, that is about `x`."""
    text = then.replace("v", f"v{times}")
    for at in range(times, 0, -1):
        text = f"cel.bind(v{at}, {twice.replace('x', f'v{at - 1}')}, {text})"
    return f"cel.bind(v0, {seed}, {text})"


def meaning(error: Any) -> Any:
    """Return the error, without the words and places of a syntax error, after which upstream's parser guesses on."""
    is_syntax = isinstance(error, str) and "Syntax error: " in error
    return "a syntax error" if is_syntax else error


@pytest.fixture(autouse=True)
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CLOCK, lambda: 0)


@pytest.fixture
def busy_clock(still_clock: None, monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Each reading of the clock takes a millisecond. Returns how often it has been read."""
    readings = 0
    times = count(step=1_000_000)

    def read() -> int:
        nonlocal readings
        readings += 1
        return next(times)

    monkeypatch.setattr(CLOCK, read)
    return lambda: readings
