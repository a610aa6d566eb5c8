"""Log lines: one form for our lines and those of libraries, with the levels of -v."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from scheduler.metrics import logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def lines(out: io.BytesIO) -> list[dict[str, Any]]:
    """What was logged, decoded."""
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_ours_and_foreign_lines_have_one_shape() -> None:
    out = io.BytesIO()
    logs.setup("json", file=out, cache_loggers=False)

    structlog.get_logger("scheduler.x").info("pod bound", pod="a/b", node="n")
    logging.getLogger("aiohttp").warning("odd %s", "thing")

    ours, foreign = lines(out)
    assert list(ours) == ["timestamp", "level", "event", "pod", "node"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", ours["timestamp"])
    assert {"level": "warning", "event": "odd thing", "logger": "aiohttp"}.items() <= foreign.items()


@pytest.mark.parametrize(
    ("verbosity", "seen"),
    [
        (-1, ["their warning"]),
        (0, ["our info", "their warning"]),
        (1, ["our info", "their warning"]),
        (2, ["our debug", "our info", "their info", "their warning"]),
        (4, ["our debug", "our info", "their debug", "their info", "their warning"]),
    ],
)
def test_verbosity(verbosity: int, seen: list[str]) -> None:
    out = io.BytesIO()
    logs.setup("json", verbosity, file=out, cache_loggers=False)
    ours, theirs = structlog.get_logger(), logging.getLogger("kopf.x")

    ours.debug("our debug")
    ours.info("our info")
    theirs.debug("their debug")
    theirs.info("their info")
    theirs.warning("their warning")

    assert seen == [line["event"] for line in lines(out)]


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_exceptions_are_rendered_without_local_variables(log_format: logs.LogFormat) -> None:
    out = io.BytesIO()
    logs.setup(log_format, file=out, cache_loggers=False)
    token = "hunter2" * 2
    try:
        dict[int, int]()[len(token)]
    except KeyError:
        structlog.get_logger().exception("attempt failed", pod="a/b")
        logging.getLogger("x").exception("attempt failed")

    text = out.getvalue().decode()
    assert text.count("KeyError: 14") == 2
    assert "hunter2hunter2" not in text


def test_what_json_cannot_hold_is_printed() -> None:
    out = io.BytesIO()
    logs.setup("json", file=out, cache_loggers=False)

    structlog.get_logger().info("odd", error=ValueError("x"))

    assert lines(out)[0]["error"] == "ValueError('x')"


def test_text_is_for_reading() -> None:
    out = io.BytesIO()
    logs.setup("text", file=out, cache_loggers=False)

    structlog.get_logger().info("pod bound", pod="a/b")
    logging.getLogger("x").warning("odd")

    ours, foreign = out.getvalue().decode().splitlines()
    assert re.fullmatch(r"\S+Z \[info\s*\] pod bound\s+pod=a/b", ours)
    assert "odd" in foreign
    assert "[x]" in foreign
