"""What a test does that needs the control plane where there is none: it is skipped, unless `E2E=required`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.e2e.controlplane.build import Unavailable, binaries

_Built = TypeVar("_Built")


def binaries_or_skip(*names: str) -> Path:
    """`binaries()`; without Go the test is skipped with one line, or fails if `E2E=required`."""
    return built_or_skip(lambda: binaries(*names))


def built_or_skip(build: Callable[[], _Built]) -> _Built:
    """The same, of whatever raises `Unavailable`."""
    try:
        return build()
    except Unavailable as why:
        if os.environ.get("E2E") == "required":
            pytest.fail(f"E2E=required, but {why}", pytrace=False)
        pytest.skip(str(why))
