"""Calling `e2e.test`, reading its report, and the verdict over a run."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.controlplane.process import Group, ServerProcess
from tests.upstream import build
from tests.upstream.selection import SUITES, suite_of

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


async def _ended(tests: ServerProcess) -> None:
    while tests.is_running():
        await asyncio.sleep(_POLL_S)


# -- ginkgo's JSON report, and the verdict over a run ------------------------------------------------------------------


PASSED, SKIPPED = "passed", "skipped"
_MESSAGE_LINES = 20


@dataclass(frozen=True)
class Spec:
    """The outcome of one test. `message` is empty unless the test failed or skipped itself."""

    name: str
    state: str
    runtime_s: float = 0.0
    message: str = ""


def read(path: Path) -> list[Spec]:
    """Return the tests that were selected, in order, and each failure of the suite's own set-up and tear-down.

    ginkgo writes down deselected tests as well: as skipped and without the message that a test has that skips itself.
    """
    suites = json.loads(path.read_text())
    return [_spec(entry) for suite in suites for entry in suite["SpecReports"] or () if _counts(entry)]


def judge(planned: Collection[str], specs: Sequence[Spec]) -> list[str]:
    """Return the problems of a run: every planned test has to pass, none may skip itself or have no outcome."""
    failed = [
        f"{spec.state} after {spec.runtime_s:.0f} s: {spec.name}\n{_shortened(spec.message)}"
        for spec in specs
        if spec.state != PASSED
    ]
    return [*failed, *_without_outcome(planned, specs)]


def judge_excluded(planned: Collection[str], specs: Sequence[Spec]) -> list[str]:
    """Return the problems of a run of the excluded tests: one that passes need not be excluded."""
    passed = [f"excluded, but passes: {spec.name}" for spec in specs if spec.state == PASSED]
    return [*passed, *_without_outcome(planned, specs)]


def table(specs: Collection[Spec]) -> Iterator[str]:
    """Yield a line per test, slowest last, and a line per suite. What is neither passed nor skipped has failed."""
    for spec in sorted(specs, key=lambda spec: spec.runtime_s):
        yield f"{spec.runtime_s:7.1f} s  {spec.state:8} {spec.name}"
    yield f"{'suite':24}{'passed':>8}{'failed':>8}{'skipped':>8}"
    for suite in (*SUITES, None):
        states = [spec.state for spec in specs if suite_of(spec.name) is suite]
        if states:
            passed, skipped = states.count(PASSED), states.count(SKIPPED)
            failed = len(states) - passed - skipped
            yield f"{suite.name if suite else 'set-up and tear-down':24}{passed:8}{failed:8}{skipped:8}"


def _counts(entry: Mapping[str, Any]) -> bool:
    if entry["LeafNodeType"] != "It":  # such as SynchronizedBeforeSuite
        return entry["State"] not in {PASSED, SKIPPED}
    return entry["State"] != SKIPPED or bool(entry.get("Failure"))


def _spec(entry: Mapping[str, Any]) -> Spec:
    texts = [*(entry["ContainerHierarchyTexts"] or ()), entry["LeafNodeText"] or entry["LeafNodeType"]]
    failure = entry.get("Failure") or {}
    return Spec(" ".join(texts), entry["State"], entry["RunTime"] / 1e9, failure.get("Message", ""))


def _without_outcome(planned: Collection[str], specs: Sequence[Spec]) -> list[str]:
    seen = {spec.name for spec in specs}
    return [f"has no outcome: {name}" for name in planned if name not in seen]


def _shortened(message: str) -> str:
    return "\n".join(f"    {line}" for line in message.splitlines()[:_MESSAGE_LINES])
