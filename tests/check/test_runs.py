"""What runs of the tests and targets of the Makefile promise.

Skips fail where CI runs, a failed law can be repeated, and `make audit` reads all locked requirements.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPS = """
@pytest.mark.skipif(True, reason="no root")
def test_by_a_mark(): ...

def test_by_a_call():
    pytest.skip("no IPv6")

@pytest.fixture
def tool():
    pytest.skip("no tool")

def test_by_a_fixture(tool): ...

@pytest.mark.xfail(reason="known")
def test_that_may_fail():
    assert False
"""
A_WHOLE_MODULE = "pytest.skip('no clone', allow_module_level=True)"
LAW = """
from hypothesis import given, settings, strategies as st

@settings(database=None, print_blob=True, phases=["explicit", "generate"])
@given(st.integers())
def test_a(number):
    assert number < 100
"""
PROFILE = """
import tests.conftest
from hypothesis import settings
profile = settings.default
print(profile.derandomize, profile.print_blob, profile.deadline, profile.max_examples, profile.database)
"""


def python(*args: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """As a person or CI would call it: nothing is taken over from how this run was called."""
    ours = {"CI", "E2E", "KUBESTOW_EXAMPLES", "PYTEST_ADDOPTS"}
    environ = {name: value for name, value in os.environ.items() if name not in ours} | environment
    command = [sys.executable, *map(str, args)]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)


def run_tests(place: Path, source: str, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A file of tests elsewhere, with our plugins."""
    (place / "pytest.ini").write_text("[pytest]\n")
    (place / "test_it.py").write_text(f"import pytest\n\n{source}\n")
    plugins = ("-p", "tests.required", "-p", "tests.seeds", "-p", "no:cacheprovider")
    return python("-m", "pytest", *plugins, "-c", place / "pytest.ini", *args, place / "test_it.py", **environment)


def test_a_skip_is_a_failure_where_all_is_required(tmp_path: Path) -> None:
    """However it is said, and it says why. A test that is expected to fail is no skip, though pytest reports it as one."""
    (tmp_path / "test_whole.py").write_text(f"import pytest\n\n{A_WHOLE_MODULE}\n")
    whole = str(tmp_path / "test_whole.py")
    options = ("-q", "--continue-on-collection-errors", whole)

    free, required = run_tests(tmp_path, SKIPS, *options), run_tests(tmp_path, SKIPS, *options, E2E="required")

    assert (free.returncode, required.returncode) == (0, 1)
    assert "4 skipped, 1 xfailed" in free.stdout
    assert "1 failed, 1 xfailed, 3 errors" in required.stdout  # all but the call skip before the test begins
    for why in ("no root", "no IPv6", "no tool", "no clone"):
        assert f"E2E=required, but this was skipped. {why}" in required.stdout.replace("Skipped: ", "")


def test_a_failed_law_prints_how_to_repeat_it(tmp_path: Path) -> None:
    """With the seed the same example fails, and without it another one."""

    def failed(*args: str) -> tuple[str, str]:
        said = run_tests(tmp_path, LAW, "-q", *args).stdout
        assert "@reproduce_failure(" in said
        (option,) = re.findall(r"^pytest '.*test_it\.py::test_a' (--hypothesis-seed=\d+)$", said, re.MULTILINE)
        return option, re.findall(r"number=(\d+)", said)[0]

    option, number = failed()

    assert failed(option) == (option, number)
    assert failed() != (option, number)


def test_laws_are_tried_alike_with_and_without_ci() -> None:
    """Hypothesis has a profile for CI that tries the same examples in each run, and keeps none."""
    with_ci, without = python("-c", PROFILE, CI="true"), python("-c", PROFILE)

    assert with_ci.stdout == without.stdout
    assert with_ci.stdout.startswith("False True None 100 DirectoryBasedExampleDatabase(")


@pytest.mark.parametrize("weak", ["", *(f"{path.stem}.txt" for path in sorted((ROOT / "requirements").glob("*.txt")))])
def test_make_audit_reads_all_locked_requirements(tmp_path: Path, weak: str) -> None:
    """A weakness in any of the files fails the target, and the other files are read as well."""
    locks = sorted(f"requirements/{path.name}" for path in (ROOT / "requirements").glob("*.txt"))
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    program = tmp_path / ".venv-audit" / "bin" / "pip-audit"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nfor last; do :; done\necho "read $last"\n[ "$last" != "requirements/{weak}" ]\n')
    program.chmod(0o755)

    done = subprocess.run(["make", "audit"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert [line.removeprefix("read ") for line in done.stdout.splitlines() if line.startswith("read ")] == locks
    assert (done.returncode != 0) is bool(weak)
