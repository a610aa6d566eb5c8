"""Calling `e2e.test`."""

import asyncio
import re
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path

from tests.e2e.controlplane.process import Group, Server
from tests.upstream import build
from tests.upstream.report import Spec, read

_POLL_S = 1.0


class Stopped(Exception):
    """`e2e.test` ended without a report. The message carries the end of its log."""


async def listed(focuses: Iterable[str]) -> list[str]:
    """Return the full names of the tests that the patterns select, without a cluster and without running one."""
    with tempfile.TemporaryDirectory() as logs:
        flags = ["--ginkgo.dry-run", f"--ginkgo.focus={'|'.join(focuses)}"]
        return [spec.name for spec in await _outcomes(Path(logs), flags)]


async def run(kubeconfig: Path, names: Collection[str], logs: Path, *, timeout_s: int) -> list[Spec]:
    """Run these tests one after the other; the log and ginkgo's report stay in `logs`. Returns their outcomes."""
    limits = [f"--ginkgo.focus={exactly(names)}", f"--ginkgo.timeout={timeout_s}s"]
    return await _outcomes(logs, [f"--kubeconfig={kubeconfig}", "--ginkgo.v", "--ginkgo.silence-skips", *limits])


def exactly(names: Iterable[str]) -> str:
    """Return a pattern for just these tests; ginkgo searches in the suite's description and the test's full name."""
    return "|".join(f" {re.escape(name)}$" for name in names)


async def _outcomes(logs: Path, flags: Collection[str]) -> list[Spec]:
    report = logs / "report.json"
    report.unlink(missing_ok=True)
    group = Group(logs)
    try:
        command = [str(build.binaries() / build.E2E_TEST), "--provider=skeleton", "--ginkgo.no-color"]
        tests = group.start(build.E2E_TEST, [*command, f"--ginkgo.json-report={report}", *flags])
        await _ended(tests)
    finally:
        group.stop()
    if not report.exists():
        raise Stopped(tests.tail())
    return read(report)


async def _ended(tests: Server) -> None:
    while tests.is_running():
        await asyncio.sleep(_POLL_S)
