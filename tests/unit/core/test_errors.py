"""Unforeseen errors are logged, counted and shown by part; texts that quote objects of tenants are cut."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import Broken, ObjectDecoder
from scheduler.core.errors import SHOWN_S, UnforeseenErrors, shortened
from tests.support.clock import VirtualClock


def fail(text: str) -> None:
    raise ValueError(text)


def mistake(text: str = "wrong") -> Exception:
    """Return an error with a traceback."""
    try:
        fail(text)
    except ValueError as error:
        return error
    raise AssertionError


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def test_errors_are_counted_by_part(clock):
    errors = UnforeseenErrors(clock)
    for part in ("binding", "binding", "endpoint"):
        errors.record(part, mistake())

    assert {"binding": 2, "endpoint": 1} == {part: count for part, count in errors.counts.items() if count}


async def test_the_first_error_of_a_place_has_a_traceback_and_later_ones_are_a_line_each_ten_seconds(clock):
    errors = UnforeseenErrors(clock)
    with capture_logs() as logs:
        for _ in range(41):
            errors.record("binding", mistake(), "binding failed", pod="d/p")
            await clock.advance(1.0)

    assert [True, False, False, False, False] == [bool(line["exc_info"]) for line in logs]
    assert [1, 10, 10, 10, 10] == [line["times"] for line in logs]
    assert {("binding failed", "binding", "d/p")} == {(line["event"], line["part"], line["pod"]) for line in logs}


def test_each_object_has_its_line_and_only_the_first_a_traceback(clock):
    errors = UnforeseenErrors(clock)
    with capture_logs() as logs:
        for pod in ("d/p", "d/q", "d/p"):
            errors.record("binding", mistake(), pod=pod)

    assert [("d/p", True), ("d/q", False)] == [(line["pod"], line["exc_info"] is not None) for line in logs]


async def test_an_error_for_each_of_very_many_objects_does_not_flood_the_log(clock):
    errors = UnforeseenErrors(clock)
    with capture_logs() as logs:
        for number in range(3000):
            errors.record("queueing-hint", mistake(), pod=f"d/p{number}")
        at_once = len(logs)
        await clock.advance(10.0)
        errors.record("queueing-hint", mistake(), pod="d/late")

    assert (1000, "d/late", 3001) == (at_once, logs[-1]["pod"], errors.counts["queueing-hint"])


def test_what_an_object_brings_is_cut_at_1_kib(clock):
    errors = UnforeseenErrors(clock)
    with capture_logs() as logs:
        errors.record("attempt", mistake("x" * 1_000_000), pod="y" * 1_000_000)

    assert 1024 >= len(logs[0]["error"])
    assert 1024 >= len(logs[0]["pod"])
    assert 1200 >= len(errors.recent())


async def test_an_error_is_shown_for_a_minute(clock):
    errors = UnforeseenErrors(clock)
    errors.record("endpoint", mistake())
    await clock.advance(SHOWN_S)
    shown = errors.recent()
    await clock.advance(0.1)

    assert ("endpoint: ValueError 60 s ago", "") == (shown, errors.recent())


def test_a_part_is_down_until_it_starts_over(clock):
    errors = UnforeseenErrors(clock)
    errors.record("informer-pods", mistake())
    errors.went_down("informer-pods", again_in_s=0.5)
    down = errors.down()
    errors.came_up("informer-pods")

    assert ("informer-pods: ValueError, starts over in 0.5 s", "") == (down, errors.down())


@pytest.mark.parametrize(
    ("text", "limit_bytes", "expected"),
    [
        pytest.param("abc", 8, "abc", id="a short text stays as it is"),
        pytest.param("a" * 9, 8, "aaaa ...", id="a long text ends in an ellipsis"),
        pytest.param("äöüß", 8, "äöüß", id="the limit counts bytes"),
        pytest.param("xäöüß", 8, "xä ...", id="121 a character is never cut in half"),
        pytest.param("\U0001f600" * 3, 8, "\U0001f600 ...", id="nor one of four bytes"),
        pytest.param("a\ud800", 8, "a?", id="a lone surrogate becomes a question mark"),
    ],
)
def test_a_text_is_cut_to_the_limit(text: str, limit_bytes: int, expected: str) -> None:
    assert expected == shortened(text, limit_bytes)
    assert len(shortened(text, limit_bytes).encode()) <= limit_bytes


def test_a_text_of_megabytes_is_not_encoded_as_a_whole() -> None:
    class Counted(str):
        __slots__ = ()

        def encode(self, *_: str, **__: str) -> bytes:
            raise AssertionError("encoded as a whole")

    assert len(shortened(Counted("ä" * 1_000_000)).encode()) <= 1024


def test_why_an_object_could_not_be_read_is_cut() -> None:
    raw = b'{"metadata":{"name":"p"},"spec":{"nodeSelector":{"' + b"x" * 5000 + b'":1}}}'

    broken = ObjectDecoder("Pod", Pod).decode(raw)

    assert isinstance(broken, Broken)
    assert len(broken.why.encode()) <= 1024
    assert len(Broken("Pod", broken.metadata, "y" * 5000).why) == 1024
