"""The files of a release: sdist, wheel and SBOM, as `make dist` builds them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from scheduler import __version__
from tests.deploy.commands import ROOT, ended, locked, normal

PAGE = ("replay.html", "uPlot.iife.min.js", "uPlot.min.css", "uPlot.LICENSE")
"""The page of a replay. The library that draws its charts comes with its licence."""
DIST_INFO = ("METADATA", "WHEEL", "RECORD", "LICENSE", "uPlot.LICENSE", "entry_points.txt")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

pytestmark = pytest.mark.timeout(900)  # the first test waits for the wheels


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return dist / f"kubestow-{__version__}-py3-none-any.whl"


def tracked(*under: str) -> list[str]:
    """Return the paths that git knows and that still exist."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no clone: git does not know which files belong to the project")
    listed = subprocess.run(["git", "ls-files", *under], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def test_the_sdist_has_all_files(dist: Path) -> None:
    with tarfile.open(dist / f"kubestow-{__version__}.tar.gz") as made:
        names = {name.partition("/")[2] for name in made.getnames()}

    assert [name for name in tracked() if name not in names] == []


def test_the_sdist_builds_the_same_wheel(dist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(dist / f"kubestow-{__version__}.tar.gz") as made:
        made.extractall(tmp_path, filter="data")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")]
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, cwd=tmp_path / f"kubestow-{__version__}", env=env, capture_output=True, check=True)
    again = tmp_path / "again" / wheel.name

    assert contents(again) == contents(wheel)
    assert again.read_bytes() == wheel.read_bytes()


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as made:
        return {name: made.read(name) for name in made.namelist()}


def test_the_wheel_has_the_package_alone(wheel: Path) -> None:
    made = contents(wheel)
    metadata = {name for name in made if name.startswith(f"kubestow-{__version__}.dist-info/")}

    assert set(made) - metadata == set(tracked("kubestow", "scheduler", "simulator"))
    assert [name for name in made if re.search(r"(^|/)(tests?|conftest\.py|test_[^/]*)(/|$)", name)] == []
    assert [name for name in made if name.endswith("schema.json.gz")] != []
    assert "scheduler/server/ui/static/page.html" in made
    assert {f"simulator/replay/{name}" for name in PAGE} <= set(made)
    assert {Path(name).name for name in metadata} == {*DIST_INFO}


def test_the_metadata(dist: Path) -> None:
    (site,) = dist.glob("environment/lib/python3.*/site-packages")
    (found,) = importlib.metadata.distributions(name="kubestow", path=[str(site)])

    assert found.version == __version__
    assert found.metadata["License-Expression"] == "Apache-2.0 AND MIT"
    assert set(map(Requirement, found.requires or [])) == set(map(Requirement, PROJECT["dependencies"]))
    assert found.metadata["Requires-Python"].split(",")[::-1] == PROJECT["requires-python"].split(",")


def test_the_installed_program(dist: Path, tmp_path: Path) -> None:
    program = str(dist / "environment/bin/kubestow")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    version = ended([program, "version"], cwd=tmp_path, env=env)
    plugin = ended([dist / "environment/bin/kubectl-kubestow", "version"], cwd=tmp_path, env=env)
    completion = ended([dist / "environment/bin/kubectl_complete-kubestow", "ex"], cwd=tmp_path, env=env)
    demo = ended([program, "simulate", ROOT / "examples/demo.yaml"], cwd=tmp_path, env=env)

    assert version.stdout.startswith(f"kubestow {__version__} ("), version.stderr
    assert (plugin.stdout, completion.stdout) == (version.stdout, "explain\n:4\n")
    assert demo.returncode == 0, demo.stderr
    assert "484 of 500 pods placed on 50 nodes" in demo.stdout


# -- the SBOM --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sbom(dist: Path) -> dict[str, Any]:
    return json.loads((dist / f"kubestow-{__version__}.cdx.json").read_text())  # type: ignore[no-any-return]


def test_the_sbom_is_complete(sbom: dict[str, Any]) -> None:
    assert {normal(each["name"]): each["version"] for each in sbom["components"]} == locked()
    assert [each["name"] for each in sbom["components"] if not each["purl"].startswith("pkg:pypi/")] == []
    assert [each["name"] for each in sbom["components"] if not each.get("licenses")] == []


def test_the_sbom_names_the_product(sbom: dict[str, Any]) -> None:
    product = sbom["metadata"]["component"]
    (needed,) = [each["dependsOn"] for each in sbom["dependencies"] if each["ref"] == product["bom-ref"]]

    assert (sbom["bomFormat"], product["name"], product["version"]) == ("CycloneDX", "kubestow", __version__)
    assert {normal(ref.partition("==")[0]) for ref in needed} == {
        normal(Requirement(each).name) for each in PROJECT["dependencies"]
    }
