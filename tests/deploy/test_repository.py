"""Workflows and settings of the repository: checked by actionlint, zizmor and Renovate's schema, and against the project."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler import __version__
from tests.deploy.commands import ROOT, ended
from tests.deploy.engine import PACKAGES
from tests.deploy.tools import ORAS

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
NAMES = ("release", "scorecard", "test")


def workflow(name: str) -> dict[str, Any]:
    # PyYAML reads the key `on` as the truth value of YAML 1.1.
    return yaml.safe_load((GITHUB / "workflows" / f"{name}.yml").read_text())  # type: ignore[no-any-return]


def steps(name: str) -> Iterator[dict[str, Any]]:
    for job in workflow(name)["jobs"].values():
        yield from job.get("steps", ())


# -- the linters -----------------------------------------------------------------------------------------------------------


def actionlint_on(program: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    return ended([program, "-no-color", "-shellcheck=", "-pyflakes=", *paths], cwd=ROOT)


def zizmor_on(environment: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in {"GH_TOKEN", "GITHUB_TOKEN"}}
    flags = ("--offline", "--no-progress", "--color=never")
    return ended([environment / "bin/zizmor", *flags, *paths], cwd=ROOT, env=env)


def test_actionlint(actionlint: Path) -> None:
    ran = actionlint_on(actionlint, *WORKFLOWS)

    assert (ran.returncode, ran.stdout) == (0, "")


def test_zizmor(release_environment: Path) -> None:
    ran = zizmor_on(release_environment, GITHUB)

    assert ran.returncode == 0, ran.stdout
    assert "No findings to report" in ran.stdout


@pytest.mark.parametrize(
    ("old", "new", "linters"),
    [
        pytest.param(
            "${{ matrix.python }}", "${{ matrix.pythom }}", {"actionlint"}, id="a property that does not exist"
        ),
        pytest.param("persist-credentials: false", "fetch-depth: 1", {"zizmor"}, id="credentials that stay on disk"),
        pytest.param(
            "run: make unit PYTHON=python",
            "run: echo ${{ github.head_ref }}",
            {"actionlint", "zizmor"},
            id="an injection",
        ),
    ],
)
def test_the_linters_find(
    old: str, new: str, linters: set[str], actionlint: Path, release_environment: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "test.yml"
    text = (GITHUB / "workflows/test.yml").read_text()
    assert old in text
    broken.write_text(text.replace(old, new))
    ran = {"actionlint": actionlint_on(actionlint, broken), "zizmor": zizmor_on(release_environment, broken)}

    assert {name for name, each in ran.items() if each.returncode != 0} == linters


# -- the project's own rules -----------------------------------------------------------------------------------------------


def test_the_workflows() -> None:
    assert tuple(path.stem for path in WORKFLOWS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_actions_are_pinned(name: str) -> None:
    text = (GITHUB / "workflows" / f"{name}.yml").read_text()
    used = re.findall(r"uses: (\S+)(.*)", text)

    assert used
    for action, comment in used:
        if not action.startswith("./"):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), f"{action}{comment}"


def test_one_version_of_each_action() -> None:
    used = {step["uses"] for name in NAMES for step in steps(name) if "uses" in step}

    assert len({action.partition("@")[0] for action in used}) == len(used)


@pytest.mark.parametrize("name", NAMES)
def test_permissions(name: str) -> None:
    found = workflow(name)

    assert found["permissions"] == {}
    for job in found["jobs"].values():
        assert job["permissions"]
        assert "uses" in job or job["timeout-minutes"] <= 90


def test_tests_are_those_of_the_project() -> None:
    jobs = workflow("test")["jobs"]
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    versions = [each.rpartition(" ")[2] for each in classifiers if re.search(r":: 3\.\d+$", each)]
    given = [step.get("with", {}) for name in NAMES for step in steps(name)]
    module = (ROOT / "tests/e2e/controlplane/kubernetes-1.36/go.mod").read_text()

    assert any(step.get("run", "").endswith(" .ci/run") for step in jobs["ci"]["steps"])
    assert jobs["unit"]["strategy"]["matrix"]["python"] == versions
    assert {each["go-version"] for each in given if "go-version" in each} == set(
        re.findall(r"^go (1\.\d+)", module, re.MULTILINE)
    )


def test_a_release_waits_for_the_tests() -> None:
    jobs = workflow("release")["jobs"]

    def needs(name: str) -> set[str]:
        direct = jobs[name].get("needs", [])
        direct = [direct] if isinstance(direct, str) else direct
        return {*direct, *(each for other in direct for each in needs(other))}

    publishes = {name for name, job in jobs.items() if {"packages", "contents"} & writes(job) or "environment" in job}
    assert publishes == {"image", "publish", "pypi", "release"}
    assert [name for name in publishes if not {"test", "build"} <= needs(name)] == []


def test_the_steps_are_scripts_that_the_trial_runs() -> None:
    """What the workflow runs and the trial does not is listed in docs/releasing.md."""
    text = (GITHUB / "workflows/release.yml").read_text()
    trial = "".join((ROOT / f"tests/deploy/{name}.py").read_text() for name in ("conftest", "engine", "publishing"))
    scripts = {path.name for path in (ROOT / "deploy/release").iterdir()} | {"make.sh"}
    called = set(re.findall(r"deploy/(?:release|image)/([\w.]+)", text))

    assert called == scripts - {"build.sh", "upload.sh"}, (
        "`make dist` calls the first, PyPI's action replaces the second"
    )
    assert [name for name in scripts if name not in trial] == []


def writes(job: dict[str, Any]) -> set[str]:
    return {name for name, right in job["permissions"].items() if right == "write"}


@pytest.mark.parametrize(
    ("tag", "is_right"),
    [(f"v{__version__}", True), (__version__, False), ("v99.0.0", False)],
    ids=["its own version", "without v", "another version"],
)
def test_the_tag_of_a_release(tag: str, is_right: bool) -> None:
    ran = ended([ROOT / "deploy/release/version.sh", tag])

    assert (ran.returncode == 0) is is_right, ran.stderr
    assert ran.stdout == (f"version={__version__}\n" if is_right else "")


def test_the_tests_install_the_container_engine_and_npm() -> None:
    """`make test` does it, so that a new machine skips nothing that it could run."""
    engine, npm = re.findall(r"\|\| packages\+=\((.+)\)", (ROOT / "tests/tools/packages.sh").read_text())
    calls = re.findall(r"^\t(tests/tools/packages\.sh)$", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert engine.split() == list(PACKAGES)
    assert npm == "npm"
    assert len(calls) == 3, "in `tools`, `deploy-tests` and `release-trial`"


# -- other settings --------------------------------------------------------------------------------------------------------


def test_renovate(renovate_schema: Path, release_environment: Path) -> None:
    schema, config = json.loads(renovate_schema.read_text()), json.loads((ROOT / "renovate.json").read_text())
    checked = "import json, jsonschema, sys; jsonschema.Draft7Validator(json.load(open(sys.argv[1]))).validate(json.load(open(sys.argv[2])))"
    ran = ended([release_environment / "bin/python", "-c", checked, renovate_schema, ROOT / "renovate.json"])

    assert ran.returncode == 0, ran.stderr
    assert set(config) - set(schema["properties"]) == {"$schema"}
    for manager in config["customManagers"]:
        (pattern,) = manager["matchStrings"]
        (place,) = manager["managerFilePatterns"]
        assert re.fullmatch(place.strip("/").replace("\\/", "/"), ".github/workflows/release.yml")
        found = re.findall(pattern.replace("(?<", "(?P<"), (GITHUB / "workflows/release.yml").read_text())
        assert [name for name, _ in found] == [ORAS.path, "github.com/sigstore/cosign/v3"]
        assert ORAS.name in map("@".join, found), "the trial of a release runs the version of the workflow"


def test_pre_commit_hooks() -> None:
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    entries = [hook["entry"].split()[0] for repo in repos for hook in repo["hooks"]]

    assert [repo["repo"] for repo in repos] == ["local"]
    assert entries == [".venv/bin/ruff", ".venv/bin/ruff", ".venv/bin/mypy"]
    assert [entry for entry in entries if not (ROOT / entry).exists()] == []


def test_issue_forms() -> None:
    forms = [path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]

    assert {path.stem for path in forms} == {"bug", "feature"}
    for path in forms:
        form = yaml.safe_load(path.read_text())
        ids = [field["id"] for field in form["body"]]
        assert form["name"]
        assert form["description"]
        assert len(set(ids)) == len(ids)
        assert all(field["attributes"]["label"] for field in form["body"])
        assert {field["type"] for field in form["body"]} <= {"textarea", "input", "dropdown"}
    assert yaml.safe_load((GITHUB / "ISSUE_TEMPLATE/config.yml").read_text())["blank_issues_enabled"] is False
