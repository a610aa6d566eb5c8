"""Imports: heavy libraries that a command does not load."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.kubeconfigs import kubeconfig
from tests.unit.server.authorities import Authority

ROOT: Final = Path(__file__).parents[3]
HEAVY: Final = frozenset(
    {
        "aiohttp",
        "argcomplete",
        "asyncio",
        "cryptography",
        "highspy",
        "kopf",
        "kubernetes_asyncio",
        "msgspec",
        "numpy",
        "prometheus_client",
        "pygments",
        "re2",
        "rich",
        "structlog",
        "uvloop",
        "yaml",
        "scheduler.cel",
        "scheduler.queue",
        "simulator",
    }
)
RUN: Final = """
import json, sys
from kubestow.__main__ import main
try:
    main()
except SystemExit:
    pass
print("\\n" + json.dumps(sorted(sys.modules)))
"""
CONFIG: Final = "examples/config/kubestow.yaml"


@pytest.mark.parametrize(("argv", "loaded"), [
    pytest.param([], set(), id="no command"),
    pytest.param(["--help"], set(), id="--help"),
    pytest.param(["version"], set(), id="version"),
    pytest.param(["run", "--help"], set(), id="run --help"),
    pytest.param(["run", "--kubeconfg=x"], set(), id="an unknown flag"),
    pytest.param(["explain", "--help"], set(), id="explain --help"),
    pytest.param(["explain", "web", "--kubeconfig=/nowhere"],
        {"aiohttp", "asyncio", "msgspec", "numpy", "structlog", "yaml"}, id="explain"),
    pytest.param(["simulate", "--help"], set(), id="simulate --help"),
    pytest.param(["status", "--help"], set(), id="status --help"),
    pytest.param(["completion", "bash"], {"argcomplete"}, id="completion"),
    pytest.param(["status", "--kubeconfig=/nowhere"],
        {"aiohttp", "asyncio", "msgspec", "numpy", "structlog", "yaml"}, id="status"),
    pytest.param(["check-config", CONFIG], {"asyncio", "msgspec", "numpy", "structlog", "yaml"},
        id="check-config"),
    pytest.param(["run", f"--config={CONFIG}", "--write-config-to=/dev/null"],
        {"asyncio", "msgspec", "structlog", "yaml"}, id="--write-config-to"),
    pytest.param(["simulate", "/nowhere.yaml"],
        HEAVY - {"cryptography", "highspy", "kopf", "kubernetes_asyncio", "pygments", "argcomplete"}, id="simulate"),
])  # fmt: skip
def test_a_command_loads_only_what_it_needs(argv: list[str], loaded: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, *argv], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    modules = set(json.loads(done.stdout.splitlines()[-1]))

    assert HEAVY & modules == loaded


def test_rich_can_be_imported_after_structlog() -> None:
    script = RUN.replace("print(", "import rich.console, structlog.dev; assert structlog.dev.rich is None; print(")
    subprocess.run([sys.executable, "-c", script, "check-config", CONFIG], cwd=ROOT, check=True, capture_output=True)


def test_a_daemon_loads_only_what_it_needs(tmp_path: Path) -> None:
    """Of the imports' time and memory, most went to libraries that such a daemon does not use."""
    cluster = {"certificate-authority-data": base64.b64encode(Authority("kubernetes").pem).decode()}
    config = tmp_path / "config"
    config.write_text(json.dumps(kubeconfig({"token": "t"}, "https://127.0.0.1:1", **cluster)))
    argv = ["run", f"--kubeconfig={config}", "--emulated-version=1.37", "--plain-port=0", "--secure-port=0"]
    daemon = subprocess.Popen(
        [sys.executable, "-c", RUN, *argv], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with daemon:
        assert daemon.stderr is not None
        log = list(itertools.takewhile(lambda line: "started" not in line, daemon.stderr))
        daemon.terminate()
        written, rest = daemon.communicate(timeout=60)
    assert daemon.returncode == 0, [*log, rest]

    assert HEAVY & set(json.loads(written.splitlines()[-1])) == HEAVY - {
        "cryptography", "highspy", "kopf", "kubernetes_asyncio", "pygments", "re2", "rich", "scheduler.cel", "argcomplete",
        "simulator",
    }  # fmt: skip
