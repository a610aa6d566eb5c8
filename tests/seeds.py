"""A pytest plugin: each run draws other examples and histories, and says how to repeat those of a failed test.

One seed serves all laws of a run. `--hypothesis-seed=N` repeats them.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator
from typing import Any

import pytest

_OPTION = "--hypothesis-seed"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draw a seed before Hypothesis does, unless the command line has one."""
    if config.getoption(_OPTION) is None:
        config.option.hypothesis_seed = str(secrets.randbits(32))


def pytest_report_header(config: pytest.Config) -> str:
    return f"laws and histories: {_OPTION}={config.getoption(_OPTION)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    """Put the seed next to the failure of a law: the header is far away, and absent with `-q`."""
    report = yield
    if report.failed and item.get_closest_marker("hypothesis"):
        report.sections.append(("how to repeat", f"pytest '{item.nodeid}' {_OPTION}={item.config.getoption(_OPTION)}"))
    return report
