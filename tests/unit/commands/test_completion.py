"""Completion at the TAB key in real shells, by kubectl's protocol, and names that are read from the cluster."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml
from aiohttp import web

from kubestow.commands import completion
from kubestow.commands.flags import OPERATOR_COMMANDS, SHELLS
from scheduler.cli import main as cli
from scheduler.cli.flags import parser
from tests.support.kubeconfigs import kubeconfig
from tests.support.port_forwarding import serving

ROOT: Final = Path(__file__).parents[3]
IN_BASH: Final = """
source <(kubestow completion bash)
COMP_LINE="$1"; COMP_POINT=${#1}; COMP_TYPE=9; COMPREPLY=()
_python_argcomplete kubestow "" ""
printf '%s\\n' "${COMPREPLY[@]}"
"""
IN_FISH: Final = "kubestow completion fish | source; complete -C $argv[1] | string replace -r '\\t.*' ''; true"
IN_ZSH: Final = """
autoload -U compinit; compinit -u -D
source <(kubestow completion zsh)
[[ "${_comps[kubestow]}" == _python_argcomplete ]] || exit 1
_describe() { print -rl -- "${(@)completions%%:*}" }
BUFFER="$1" CURSOR=${#1} words=(kubestow)
_python_argcomplete
"""
RUN: Final = {
    "bash": ["bash", "--norc", "-c", IN_BASH, "bash"],
    "zsh": ["zsh", "-f", "-c", IN_ZSH, "zsh"],
    "fish": ["fish", "-N", "-c", IN_FISH],
}
INSTALLED: Final = [shell for shell in RUN if shutil.which(shell)]
"""bash always; the other ones where they are installed."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with the program and some files."""
    program = tmp_path / "bin" / "kubestow"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m kubestow "$@"\n')
    program.chmod(0o755)
    (tmp_path / "pods.yaml").touch()
    (tmp_path / "pods.d").mkdir()
    return tmp_path


def completed(shell: str, directory: Path, line: str) -> set[str]:
    env = {**os.environ, "PATH": f"{directory}/bin:{os.environ['PATH']}", "HOME": str(directory)}
    env.pop("KUBECONFIG", None)
    done = subprocess.run(
        [*RUN[shell], line], cwd=directory, env=env, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stderr == ""
    return {each.strip() for each in done.stdout.splitlines()} - {""}


@pytest.mark.parametrize("shell", INSTALLED)
@pytest.mark.parametrize(
    ("line", "found"),
    [
        pytest.param("kubestow ru", {"run"}, id="a command"),
        pytest.param(
            "kubestow ",
            {"run", "simulate", "check-config", "record", "replay", "explain", "what-if", "ui", "version"}
            | OPERATOR_COMMANDS.run.keys(),
            id="all commands",
        ),
        pytest.param("kubestow run --kubec", {"--kubeconfig"}, id="a flag"),
        pytest.param("kubestow run --requestheader-c", set(), id="no flag that is refused"),
        pytest.param("kubestow run --tls-min-version ", {"VersionTLS12", "VersionTLS13"}, id="the choices of a flag"),
        pytest.param("kubestow completion z", {"zsh"}, id="the choices of an argument"),
        pytest.param("kubestow simulate pods.y", {"pods.yaml"}, id="files of an argument"),
        pytest.param("kubestow run --config pods.y", {"pods.yaml"}, id="a file of a flag"),
        pytest.param("kubestow run --cert-dir pod", {"pods.d/"}, id="directories only"),
        pytest.param("kubestow simulate --drain ", set(), id="nodes without a cluster"),
    ],
)
def test_a_shell_completes(shell: str, directory: Path, line: str, found: set[str]) -> None:
    assert completed(shell, directory, line) == found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        pytest.param("kubestow run --logging-format=j", {"json"}, id="a choice after an equals sign"),
        pytest.param("kubestow run --leader-elect=t", {"true"}, id="a boolean"),
        pytest.param("kubestow run --config=pods.y", {"pods.yaml"}, id="a file after an equals sign"),
    ],
)
def test_bash_completes_after_an_equals_sign(directory: Path, line: str, found: set[str]) -> None:
    """bash splits words at equals signs."""
    assert completed("bash", directory, line) == found


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell], OPERATOR_COMMANDS) == 0

    assert "kubestow" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        pytest.param([], ["bugreport", "explain", "queue", "status", "ui", "version", "what-if", ":4"], id="no word"),
        pytest.param(["ex"], ["explain", ":4"], id="a command"),
        pytest.param(["explain", "--kubec"], ["--kubeconfig", ":4"], id="a flag"),
        pytest.param(["explain", "-o", ""], ["json", "text", ":4"], id="the choices of a flag"),
        pytest.param(["explain", "--output=t"], ["--output=text", ":4"], id="a choice after an equals sign"),
        pytest.param(["what-if", "-f", "po"], ["pods.d/", "pods.yaml", ":4"], id="files of a flag"),
    ],
)
def test_kubectl_completes(
    words: list[str],
    printed: list[str],
    directory: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(directory)

    assert completion.complete_for_kubectl(words) == 0
    assert capsys.readouterr() == ("\n".join(printed) + "\n", "")


# -- names in the cluster --------------------------------------------------------------------------------------------------

OBJECTS: Final = {
    "/api/v1/nodes": [("", "node-a"), ("", "node-b")],
    "/api/v1/namespaces": [("", "shop"), ("", "stow")],
    "/api/v1/namespaces/mine/pods": [("mine", "web-0"), ("mine", "db-0")],
    "/api/v1/namespaces/shop/pods": [("shop", "cart")],
}


class Cluster:
    """An API server in a thread, because completers have an event loop themselves."""

    def __init__(self) -> None:
        self.body: bytes | None = None
        self.requests: list[str] = []
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Cluster:
        self._thread.start()
        assert self._is_ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        async with serving(self._answer) as self.url:
            self._is_ready.set()
            await self._is_over.wait()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        self.requests.append(request.path_qs)
        items = [{"metadata": {"namespace": where, "name": name}} for where, name in OBJECTS.get(request.path, [])]
        body = json.dumps({"items": items}).encode() if self.body is None else self.body
        return web.Response(body=body, content_type="application/json", status=200 if items else 403)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with Cluster() as running:
        document = kubeconfig({"token": "t"}, running.url)
        document["contexts"][0]["context"]["namespace"] = "mine"
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(document))
        monkeypatch.setenv("KUBECONFIG", str(file))
        yield running


def found(*words: str) -> list[str]:
    return completion.candidates(parser(OPERATOR_COMMANDS), words[:-1], words[-1])


@pytest.mark.parametrize(
    ("words", "names"),
    [
        pytest.param(["explain", ""], ["web-0", "db-0"], id="pods of the context's namespace"),
        pytest.param(["explain", "w"], ["web-0"], id="pods by their beginning"),
        pytest.param(["explain", "shop/"], ["shop/cart"], id="pods of the word's namespace"),
        pytest.param(["explain", "-n", "shop", ""], ["cart"], id="pods of the flag's namespace"),
        pytest.param(["explain", "-n", ""], ["shop", "stow"], id="namespaces"),
        pytest.param(["what-if", "--drain", ""], ["node-a", "node-b"], id="nodes"),
        pytest.param(["what-if", "--drain=node-b"], ["--drain=node-b"], id="nodes after an equals sign"),
        pytest.param(["simulate", "--nodes-needed", "node-a"], ["node-a"], id="a node of simulate"),
        pytest.param(["what-if", "--without", "db"], ["db-0"], id="pods that are left out"),
        pytest.param(["queue", "--scheduler-namespace", "st"], ["stow"], id="the scheduler's namespace"),
        pytest.param(["status", "--context", ""], ["the-context"], id="contexts"),
        pytest.param(["explain", "../x/"], [], id="no namespace"),
        pytest.param(["explain", "{0.__class__}/"], [], id="braces"),
    ],
)
def test_names_of_the_cluster(cluster: Cluster, words: list[str], names: list[str]) -> None:
    if names == ["the-context"]:
        names = [each["name"] for each in yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())["contexts"]]

    assert found(*words) == names


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"null", b'{"items": null}', b'{"items": [1]}', b'{"items": [{"metadata": {}}]}', b"[" * 100_000, b"\xff",
    ],
)  # fmt: skip
def test_an_answer_that_is_none(cluster: Cluster, body: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    cluster.body = body

    assert found("explain", "") == []
    assert capfd.readouterr() == ("", "")


def test_names_that_mean_something_to_a_shell_are_left_out(cluster: Cluster) -> None:
    names = ["a b", "$(x)", "a\nb", "\x1b[2J", "`x`", "ok"]
    cluster.body = json.dumps({"items": [{"metadata": {"name": name}} for name in names]}).encode()

    assert found("explain", "") == ["ok"]


def test_names_are_limited(cluster: Cluster) -> None:
    items = [{"metadata": {"name": f"p{at}"}} for at in range(20_000)]
    cluster.body = json.dumps({"items": items}).encode()

    assert len(found("explain", "")) == completion.NAMES_MAX
    assert cluster.requests == ["/api/v1/namespaces/mine/pods?limit=500"]


def test_a_cluster_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes the connection and is silent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(kubeconfig({}, f"http://127.0.0.1:{silent.getsockname()[1]}")))
        monkeypatch.setenv("KUBECONFIG", str(file))
        began = time.monotonic()

        assert found("explain", "") == []
        assert time.monotonic() - began < 30, "the limit is one second, and imports take time on a busy machine"
