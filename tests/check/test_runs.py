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


PYTHON_STUB = """#!/bin/sh
case "$*" in
  "-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python && cp "$0" .venv/bin/pip && cp "$0" .venv/bin/kubestow ;;
  "-m pip install"*) echo "install $(echo "$*" | grep -oE 'requirements/[a-z]+' | tr '\\n' ' ')" ;;
esac
"""


def test_make_demo_installs_only_what_it_runs(tmp_path: Path) -> None:
    """The tests' packages include those of the demo, so the demo installs nothing where the tests were run."""
    stub = tmp_path / "python-stub"
    stub.write_text(PYTHON_STUB)
    stub.chmod(0o755)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")

    def installed_by(target: str) -> list[str]:
        command = ["make", target, f"PYTHON={stub}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        lines = [
            line.removeprefix("install").split() for line in done.stdout.splitlines() if line.startswith("install")
        ]
        return [name for names in lines for name in names]

    demo, test = ["requirements/runtime", "requirements/build"], ["requirements/test"]
    assert [installed_by("demo"), installed_by("demo")] == [demo, []]
    assert [installed_by("venv"), installed_by("demo"), installed_by("venv")] == [test, [], []]
    with (tmp_path / "pyproject.toml").open("a") as project:
        project.write("\n")
    assert [installed_by("demo"), installed_by("venv")] == [demo, test], "another version of the project"
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    assert installed_by("venv") == test, "what an older version had installed is not there any more"


def test_the_requirements_of_the_demo_are_those_of_the_tests() -> None:
    """Otherwise the tests would run other versions than the demo and the image, and `make test` would undo `make demo`."""

    def pinned(name: str) -> set[str]:
        text = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8")
        return set(re.findall(r"^([a-z0-9-]+==\S+)", text, re.MULTILINE))

    assert pinned("runtime") | pinned("build") <= pinned("test")
    assert pinned("runtime") <= pinned("notebook")
