"""A pytest plugin: with `E2E=required` a skipped test is a failed one.

Most tests that lack a tool say so by `tests.e2e.controlplane.gate`. This catches every other skip: no root, no IPv6, no
clone. CI sets `E2E=required`, so that a machine that cannot run a test does not report success.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any, TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def _refused(report: Report) -> Report:
    if os.environ.get("E2E") == "required" and report.skipped and not hasattr(report, "wasxfail"):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"E2E=required, but this was skipped. {why}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    return _refused((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """Of a module that skips itself."""
    return _refused((yield))
