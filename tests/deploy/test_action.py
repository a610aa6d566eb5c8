"""The composite action for pull requests: its linter, its pinned actions, and its script."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.builders import node, pod
from tests.deploy.commands import ROOT, ended
from tests.deploy.test_repository import zizmor_on

ACTION = ROOT / "deploy/action"
TEXT = (ACTION / "action.yml").read_text()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a cluster and two workloads, and a runner on which Kubestow is installed."""
    program = tmp_path / "kubestow/bin/kubestow"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m kubestow "$@"\n')
    program.chmod(0o755)
    files = {"nodes": node("n").cpu("2").memory("4Gi"), "small": pod("small").cpu("1"), "large": pod("large").cpu("9")}
    for name, each in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(each.obj()))
    return tmp_path


def run(repository: Path, workload: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {
        "PATH": os.environ["PATH"],
        "RUNNER_TEMP": str(repository),
        "GITHUB_STEP_SUMMARY": str(repository / "summary.md"),
        "KUBESTOW_CLUSTER": "\n  nodes.json \n\n",
        "KUBESTOW_WORKLOAD": workload,
        **variables,
    }
    return ended([ACTION / "fits.sh"], cwd=repository, env=env)


def test_zizmor(release_environment: Path) -> None:
    ran = zizmor_on(release_environment, ACTION / "action.yml")

    assert ran.returncode == 0, ran.stdout
    assert "No findings to report" in ran.stdout


def test_the_pinned_actions_are_those_of_the_workflows() -> None:
    workflows = "".join(path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml"))

    assert [line for line in re.findall(r"uses: .*", TEXT) if line not in workflows] == []


def test_the_script_gets_every_input() -> None:
    action: dict[str, Any] = yaml.safe_load(TEXT)
    (step,) = [each for each in action["runs"]["steps"] if "run" in each]

    assert step["env"] == {f"KUBESTOW_{name.upper()}": f"${{{{ inputs.{name} }}}}" for name in action["inputs"]}


def test_workloads_that_fit_pass(repository: Path) -> None:
    ran = run(repository, "small.json")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 of 1 pod" in (repository / "summary.md").read_text()


def test_a_workload_that_does_not_fit_fails(repository: Path) -> None:
    ran = run(repository, "small.json\nlarge.json\n")

    assert ran.returncode == 1
    assert "Insufficient cpu" in ran.stdout
    assert (repository / "summary.md").read_text() == f"```\n{ran.stdout}```\n"


def test_flags_are_passed_on(repository: Path) -> None:
    assert run(repository, "large.json", KUBESTOW_FLAGS="--expect-pending=lar*\n--validate=ignore").returncode == 0


def test_an_input_is_never_executed(repository: Path) -> None:
    ran = run(repository, "$(touch executed); *")

    assert ran.returncode == 2
    assert not (repository / "executed").exists()
