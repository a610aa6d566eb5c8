"""The plugin of pytest, in another process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.library.manifests import NODE, a_pod

ROOT = Path(__file__).parents[3]
EXAMPLES = ("pyproject.toml", "test_fits.py")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a cluster, a workload that fits, and one that does not."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nkubestow_cluster = cluster\n")
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster/nodes.json").write_text(json.dumps(NODE))
    (tmp_path / "small.json").write_text(json.dumps(a_pod("small")))
    (tmp_path / "large.json").write_text(json.dumps(a_pod("large", "9")))
    return tmp_path


def run(project: Path, source: str) -> str:
    (project / "test_it.py").write_text(source)
    plugins = ["-p", "no:kubestow", "-p", "kubestow.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, check=False).stdout


def test_workloads_that_fit_pass_and_larger_ones_fail(project: Path) -> None:
    shown = run(project, """
def test_small(assert_fits):
    assert assert_fits("small.json").placements == {"default/small": "n"}

def test_large(assert_fits):
    assert_fits("small.json", "large.json", seed=1)

def test_expected(assert_fits):
    assert_fits("large.json", expect_pending=["large"])
""")  # fmt: skip

    assert "1 failed, 2 passed" in shown
    assert "AssertionError: 1 of 2 pods placed on 1 node" in shown
    assert "default/large was not placed: 0/1 nodes are available: 1 Insufficient cpu." in shown


def test_a_project_can_have_its_own_cluster(project: Path) -> None:
    shown = run(project, """
import pytest

@pytest.fixture
def kubestow_cluster(kubestow_cluster):
    return kubestow_cluster.with_node("added", {"cpu": "16", "memory": "64Gi"})

def test_large(assert_fits):
    assert assert_fits("large.json").placements == {"default/large": "added"}
""")  # fmt: skip

    assert "1 passed" in shown, shown


def test_the_examples_of_the_page_pass(project: Path) -> None:
    page = (ROOT / "docs/library.md").read_text()
    settings, source = (
        re.findall(rf"^```\w+ {name}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0] for name in EXAMPLES
    )
    (project / "pytest.ini").unlink()
    (project / "pyproject.toml").write_text(settings)
    (project / "deploy").mkdir()
    (project / "small.json").rename(project / "deploy/small.json")
    (project / "next-release.yaml").write_text(json.dumps(a_pod("next", "4")))

    assert "2 passed" in run(project, source)


def test_without_the_setting_the_cluster_is_empty(project: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\n")

    assert "1 passed" in run(project, "def test_it(kubestow_cluster):\n    assert kubestow_cluster.inputs == ()\n")


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param("nowhere", id="a path that does not exist"),
        pytest.param("cluster/*.json", id="a pattern"),
        pytest.param("cluster # nodes", id="a comment after the path"),
        pytest.param("-", id="standard input"),
    ],
)
def test_a_setting_that_names_no_file_is_named(project: Path, setting: str) -> None:
    (project / "pytest.ini").write_text(f"[pytest]\nkubestow_cluster = {setting}\n")
    shown = run(project, "def test_it(assert_fits):\n    assert_fits('small.json')\n")

    assert f"UsageError: kubestow_cluster: {project}/{setting} does not exist" in shown
    assert "1 error" in shown
