"""The four laws of docs/architecture.md are worth what import-linter catches: each is broken on purpose, and seen."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = {
    "api",
    "binding",
    "cache",
    "cel",
    "consultations",
    "context",
    "controllers",
    "core",
    "cycle",
    "eventhandlers",
    "failure",
    "framework",
    "manifests",
    "plugins",
    "preemption",
    "queue",
    "queueing",
    "scheduler",
}
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    """A copy of the package and of the laws."""
    for package in ("kubestow", "scheduler", "simulator"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def broken_laws(layout: Path) -> tuple[set[str], str]:
    """The contracts that import-linter finds broken in the copy, by name, and what it says about them."""
    ran = subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache"], cwd=layout, capture_output=True, text=True, check=False
    )
    broken = set(re.findall(r"^(.+) BROKEN\b", ran.stdout, re.MULTILINE))

    assert ran.returncode == (1 if broken else 0), ran.stdout + ran.stderr
    assert re.search(r"^Contracts: \d+ kept, \d+ broken\.$", ran.stdout, re.MULTILINE), ran.stdout + ran.stderr
    return broken, ran.stdout


def test_the_architecture_has_no_violation(layout: Path) -> None:
    """The tree as it is breaks none of them."""
    broken, said = broken_laws(layout)

    assert broken == set(), said


@pytest.mark.parametrize(("planted", "law", "said"), [
    pytest.param({"framework/planted.py": "import scheduler.kube"},
        "Decisions never see the API server, even indirectly", "scheduler.framework.planted -> scheduler.kube",
        id="a decision package imports the API edge"),
    pytest.param({"plugins/planted.py": "import scheduler.metrics.planted", "metrics/planted.py": "import aiohttp"},
        "Decisions never see the API server, even indirectly", "scheduler.plugins.planted -> scheduler.metrics.planted",
        id="a decision package reaches a socket through another package"),
    pytest.param({"server/planted.py": "def f():\n    import kopf"}, "kopf lives in customresources/kopf_watch.py",
        "scheduler.server.planted", id="kopf outside the shell, inside a function"),
    pytest.param({"kube/planted.py": "from kubernetes_asyncio import client"},
        "kubernetes_asyncio lives in kube/client_config.py", "scheduler.kube.planted",
        id="kubernetes_asyncio outside the transport"),
    pytest.param({"kube/planted.py": "from prometheus_client import Counter"},
        "prometheus_client lives in metrics and server/endpoints.py", "scheduler.kube.planted",
        id="an instrument of one's own"),
    pytest.param({"config/planted.py": "import aiohttp"},
        "aiohttp lives in kube, cli, extenders, server and the simulator", "scheduler.config.planted",
        id="a socket of one's own"),
    pytest.param({"plugins/planted.py": "from scheduler.plugins import sown", "plugins/sown.py": ""},
        "Plugins do not know each other", "scheduler.plugins.planted -> scheduler.plugins.sown",
        id="one plugin imports another"),
    pytest.param({"daemon/planted.py": "import simulator.builders"}, "Only the command line and the library know the simulator",
        "scheduler.daemon.planted", id="the daemon imports the simulator"),
    pytest.param({"cli/planted.py": "import kubestow"}, "Nothing imports the library",
        "scheduler.cli.planted -> kubestow", id="the command line imports the library"),
    pytest.param({"core/planted.py": "import scheduler.framework"}, "Layers point down",
        "scheduler.core.planted -> scheduler.framework", id="a layer looks up"),
    pytest.param({"metrics/planted.py": "import scheduler.config"}, "Layers point down",
        "scheduler.metrics.planted -> scheduler.config", id="a package imports its neighbour"),
    pytest.param({"attic.py": ""}, "Layers point down", "scheduler.attic", id="a package without a layer"),
])  # fmt: skip
def test_a_broken_law_is_caught(layout: Path, planted: dict[str, str], law: str, said: str) -> None:
    """A violation turns its law's contract red, and the report shows where."""
    for path, text in planted.items():
        (layout / "scheduler" / path).write_text(f'"""Planted."""\n{text}\n')

    broken, report = broken_laws(layout)

    assert law in broken, report
    assert said in report


def test_the_first_law_covers_every_decision_package() -> None:
    """The contract must name a new decision package; otherwise it is not checked."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    covered = next(set(c["source_modules"]) for c in contracts if c["id"] == "decisions")
    rooms = {p.stem for p in (ROOT / "scheduler").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}

    assert {f"scheduler.{room}" for room in rooms & DECISIONS} <= covered
