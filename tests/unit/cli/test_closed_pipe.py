"""A command whose reader has gone ends quietly, with the exit code of SIGPIPE."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from scheduler.cli.closed_pipe import NOT_WRITTEN, PIPE_CLOSED, until_closed

ROOT: Final = Path(__file__).parents[3]
MAIN: Final = "from kubestow.__main__ import main"
PLUGIN: Final = "from scheduler.cli.kubectl_plugin import main"
COMPLETE: Final = "from kubestow.__main__ import kubectl_complete as main"
NODE: Final = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
"""


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    ("program", "words"),
    [
        pytest.param(MAIN, ["completion", "bash"], id="completion"),
        pytest.param(MAIN, ["version"], id="version"),
        pytest.param(MAIN, ["simulate", "node.yaml"], id="simulate"),
        pytest.param(MAIN, ["simulate", "-o", "json", "node.yaml"], id="simulate, as JSON"),
        pytest.param(MAIN, ["simulate", "-o", "html", "node.yaml"], id="simulate, as a page"),
        pytest.param(MAIN, ["simulate", "--seeds", "2", "node.yaml"], id="simulate with several seeds"),
        pytest.param(PLUGIN, ["version"], id="the plugin of kubectl"),
        pytest.param(COMPLETE, ["expl"], id="the completion of the plugin"),
    ],
)
def test_the_reader_of_the_output_has_gone(program: str, words: list[str], unbuffered: str, tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text(NODE, encoding="utf-8")
    reader, writer = os.pipe()
    os.close(reader)
    env = os.environ | {"PYTHONUNBUFFERED": unbuffered, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}; sys.exit(main())", *words],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=env,
        cwd=tmp_path,
        text=True,
        check=False,
    )
    os.close(writer)

    assert (ran.returncode, ran.stderr) == (PIPE_CLOSED, "")


@pytest.mark.parametrize(
    ("words", "redirection", "code", "said"),
    [
        pytest.param("version", ">&-", 0, "", id="no output"),
        pytest.param("version", ">&- 2>&-", 0, "", id="no output and no errors"),
        pytest.param("queue --server http://127.0.0.1:1", "2>&-", 4, "", id="no errors"),
        pytest.param("queue --server http://127.0.0.1:1", "<&- >&-", 4, "cannot connect", id="no input and no output"),
        pytest.param(
            "version", "> /dev/full", NOT_WRITTEN, "the output cannot be written: No space left", id="a full disk"
        ),
        pytest.param(
            "simulate -o json node.yaml",
            "> /dev/full",
            NOT_WRITTEN,
            "the output cannot be written",
            id="a large output",
        ),
    ],
)
def test_the_shell_has_closed_a_stream_or_the_disk_is_full(
    words: str, redirection: str, code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "node.yaml").write_text(NODE, encoding="utf-8")
    line = f"{shlex.quote(sys.executable)} -m kubestow {words} {redirection}"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(["sh", "-c", line], capture_output=True, env=env, cwd=tmp_path, text=True, check=False)

    assert (ran.returncode, said in ran.stderr, "Traceback" in ran.stderr) == (code, True, False), ran.stderr


def test_an_error_of_a_socket_is_raised() -> None:
    def command() -> int:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        until_closed(command)


def test_the_exit_code_of_the_command_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert until_closed(lambda: 2) == 2
