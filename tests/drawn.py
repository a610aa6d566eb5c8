"""A pytest plugin: the seed from which tests draw different scenarios in each run.

The header of a run has the seed, and so has each failure of a test that draws. `KUBESTOW_SEED=<number>` draws the same again.
"""

import os
import secrets
from typing import Final

import pytest

_VARIABLE: Final = "KUBESTOW_SEED"
_END: Final = 100_000
"""The first number that is never drawn: seeds are short enough to be typed."""
SEED: Final = int(os.environ.get(_VARIABLE) or secrets.randbelow(_END))


def pytest_report_header() -> str:
    return f"drawn scenarios: {_VARIABLE}={SEED}"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this run; with `-q` there is no header, so a failed test says it as well."""
    request.node.add_report_section("setup", "seed", f"{_VARIABLE}={SEED} draws the same again")
    return SEED
