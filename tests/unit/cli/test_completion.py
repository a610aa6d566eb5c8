"""Completion scripts: bash completes commands, flags, choices and files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scheduler.cli import main as cli
from scheduler.cli.completion import script
from scheduler.cli.flags import SHELLS, parser

COMPLETE = """
source script.bash
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
$(complete -p kubestow | sed 's/.* -F \\([^ ]*\\) .*/\\1/') kubestow
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""The function that bash calls for the TAB key, with the words before the cursor."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with the script and some files."""
    (tmp_path / "script.bash").write_text(script(parser(), "bash"))
    (tmp_path / "pods.yaml").touch()
    (tmp_path / "pods.d").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        pytest.param(["ru"], {"run"}, id="a command"),
        pytest.param([""], {"run", "simulate", "check-config", "completion", "version"}, id="all commands"),
        pytest.param(["run", "--kubec"], {"--kubeconfig"}, id="a flag"),
        pytest.param(["run", "--requestheader-c"], {""}, id="no flag that is refused"),
        pytest.param(["run", "--tls-min-version", ""], {"VersionTLS12", "VersionTLS13"}, id="the choices of a flag"),
        pytest.param(["run", "--logging-format", "=", "j"], {"json"}, id="a choice after an equals sign"),
        pytest.param(["run", "--loop", "="], {"uvloop", "asyncio"}, id="all choices after an equals sign"),
        pytest.param(["run", "--leader-elect", "=", "t"], {"true"}, id="a boolean"),
        pytest.param(["completion", "z"], {"zsh"}, id="the choices of an argument"),
        pytest.param(["simulate", "po"], {"pods.yaml", "pods.d"}, id="files of an argument"),
        pytest.param(["check-config", "pods.y"], {"pods.yaml"}, id="a file of a configuration"),
        pytest.param(["run", "--config", "pods.y"], {"pods.yaml"}, id="a file of a flag"),
        pytest.param(["run", "--config", "=", "pods.y"], {"pods.yaml"}, id="a file after an equals sign"),
        pytest.param(["run", "--cert-dir", "po"], {"pods.d"}, id="directories only"),
    ],
)
def test_bash_completes(directory: Path, words: list[str], completed: set[str]) -> None:
    command = ["bash", "--norc", "-c", COMPLETE, "bash", "kubestow", *words]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)

    assert (set(done.stdout.splitlines()), done.stderr) == (completed, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0

    said = capsys.readouterr().out
    assert "check-config" in said
    assert "--kubeconfig" in said or "kubeconfig" in said
