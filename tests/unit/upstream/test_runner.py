"""What the runner of Kubernetes' own end-to-end tests reads from ginkgo's report, and what it calls a problem."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.controlplane.build import MINOR
from tests.upstream import selection
from tests.upstream.ginkgo import Spec, exactly, judge, judge_excluded, read
from tests.upstream.selection import EXCLUDED, SUITES, mistakes

SECOND_NS = 10**9
SCHEDULING, DRA = "[sig-scheduling] A [Serial] b", "[sig-node] [DRA] control plane c"


def entry(state: str, *texts: str, message: str = "", kind: str = "It") -> dict[str, Any]:
    """One of ginkgo's SpecReports; the last text is the leaf's."""
    *containers, leaf = texts or ("",)
    failure = {"Failure": {"Message": message}} if message else {}
    return {
        "ContainerHierarchyTexts": containers or None,
        "LeafNodeText": leaf,
        "LeafNodeType": kind,
        "State": state,
        "RunTime": 2 * SECOND_NS,
        "NumAttempts": 0,
    } | failure


@pytest.mark.parametrize(("given", "expected"), [
    pytest.param(entry("passed", "A", "b"), Spec("A b", "passed", 2), id="a test that passed"),
    pytest.param(entry("failed", "A", "b", message="no"), Spec("A b", "failed", 2, "no"),
        id="a test that failed, with why"),
    pytest.param(entry("timedout", "b"), Spec("b", "timedout", 2), id="a test outside of containers"),
    pytest.param(entry("skipped", "A", "b", message="one zone"), Spec("A b", "skipped", 2, "one zone"),
        id="a test that skipped itself"),
    pytest.param(entry("skipped", "A", "b"), None, id="a test that was not selected is left out"),
    pytest.param(entry("pending", "A", "b"), Spec("A b", "pending", 2), id="a test that upstream has switched off"),
    pytest.param(entry("passed", kind="SynchronizedBeforeSuite"), None, id="a set-up that passed is no test"),
    pytest.param(entry("failed", kind="SynchronizedBeforeSuite", message="no"),
        Spec("SynchronizedBeforeSuite", "failed", 2, "no"), id="a set-up that failed"),
])  # fmt: skip
def test_an_entry_of_the_report(given: dict[str, Any], expected: Spec | None, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps([{"SpecReports": [given]}, {"SpecReports": None}]))

    assert read(path) == ([] if expected is None else [expected])


@pytest.mark.parametrize(("specs", "problems"), [
    pytest.param([Spec("A b", "passed")], [], id="a test that passes is no problem"),
    pytest.param([Spec("A b", "failed", 3, "x\ny")], ["failed after 3 s: A b\n    x\n    y"], id="a failure is quoted"),
    pytest.param([Spec("A b", "skipped", 0, "z")], ["skipped after 0 s: A b\n    z"],
        id="a planned test may not skip itself"),
    pytest.param([], ["has no outcome: A b"], id="a planned test must not be missing"),
    pytest.param([Spec("A b", "passed"), Spec("SynchronizedAfterSuite", "panicked")],
        ["panicked after 0 s: SynchronizedAfterSuite\n"], id="a tear-down that fails is a problem"),
])  # fmt: skip
def test_the_problems_of_a_run(specs: list[Spec], problems: list[str]) -> None:
    assert judge(["A b"], specs) == problems


@pytest.mark.parametrize(
    ("specs", "problems"),
    [
        pytest.param([Spec("A b", "passed")], ["excluded, but passes: A b"], id="one that passes need not be excluded"),
        pytest.param([Spec("A b", "failed")], [], id="one that fails is excluded rightly"),
        pytest.param([Spec("A b", "skipped", 0, "z")], [], id="one that skips itself is excluded rightly"),
        pytest.param([], ["has no outcome: A b"], id="one that did not run proves nothing"),
    ],
)
def test_the_problems_of_a_run_of_the_excluded_tests(specs: list[Spec], problems: list[str]) -> None:
    assert judge_excluded(["A b"], specs) == problems


# -- what is selected --------------------------------------------------------------------------------------------------


def full_set() -> list[str]:
    """As many tests as each suite has, the excluded ones among them."""
    fillers = {suite.name: f"{suite.name} filler" for suite in SUITES}
    names = list(EXCLUDED)
    for suite in SUITES:
        have = sum(selection.suite_of(name) is suite for name in names)
        names += [f"{fillers[suite.name]} {number}" for number in range(suite.specs - have)]
    return names


def test_the_pinned_version_agrees() -> None:
    assert not list(mistakes(full_set()))


def test_an_excluded_test_that_does_not_exist_is_a_mistake() -> None:
    """Its name has changed, or the test is gone."""
    gone, *others = EXCLUDED
    names = [name for name in full_set() if name != gone]

    assert f"excluded, but does not exist: {gone}" in list(mistakes(names))
    assert not any(other in mistake for mistake in mistakes(names) for other in others)


def test_another_number_of_tests_is_a_mistake() -> None:
    count = SUITES[0].specs
    assert list(mistakes([*full_set(), SCHEDULING])) == [
        f"[sig-scheduling] has {count + 1} tests instead of {count}: see what is new, and adapt the number"
    ]


def test_each_excluded_test_has_a_suite_and_a_reason() -> None:
    assert all(selection.suite_of(name) and reason for name, reason in EXCLUDED.items())


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_the_documentation_has_these_counts(suite: selection.Suite) -> None:
    """A row of the table: name, pattern, tests, left out, run."""
    left_out = sum(selection.suite_of(name) is suite for name in EXCLUDED)
    row = f"| `{suite.name}` | {MINOR} | {suite.specs} | {left_out} | {suite.specs - left_out}"

    assert row in (Path(__file__).parents[3] / "docs/upstream-tests.md").read_text()


@pytest.mark.parametrize(
    ("name", "is_selected"),
    [
        pytest.param(SCHEDULING, True, id="the test itself"),
        pytest.param(f"{SCHEDULING} c", False, id="a test whose name goes on"),
        pytest.param(SCHEDULING.replace("[Serial]", "S"), False, id="brackets are no character class"),
    ],
)
def test_the_pattern_for_ginkgo_selects_exactly(name: str, is_selected: bool) -> None:
    pattern = exactly([SCHEDULING, DRA])

    assert bool(re.search(pattern, f"Kubernetes e2e suite {name}")) is is_selected
