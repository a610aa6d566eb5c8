"""Imports: heavy libraries that a command does not load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
HEAVY: Final = frozenset(
    {
        "aiohttp",
        "asyncio",
        "cryptography",
        "highspy",
        "kopf",
        "kubernetes_asyncio",
        "msgspec",
        "numpy",
        "prometheus_client",
        "re2",
        "rich",
        "shtab",
        "structlog",
        "uvloop",
        "yaml",
        "scheduler.queue",
        "simulator",
    }
)
RUN: Final = """
import json, sys
from scheduler.cli.main import main
try:
    main(sys.argv[1:])
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
        {"aiohttp", "asyncio", "kubernetes_asyncio", "msgspec", "numpy", "structlog", "yaml"}, id="explain"),
    pytest.param(["completion", "bash"], {"shtab"}, id="completion"),
    pytest.param(["check-config", CONFIG], {"asyncio", "msgspec", "numpy", "re2", "structlog", "yaml"},
        id="check-config"),
    pytest.param(["run", f"--config={CONFIG}", "--write-config-to=/dev/null"],
        {"asyncio", "msgspec", "structlog", "yaml"}, id="--write-config-to"),
    pytest.param(["simulate", "/nowhere.yaml"],
        HEAVY - {"cryptography", "highspy", "kopf", "kubernetes_asyncio", "shtab"}, id="simulate"),
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
