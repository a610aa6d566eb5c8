"""The commands in the documentation: flags are accepted, targets and modules exist, and other programs are known.

`tests/integration/test_quoted.py` runs the simulations whose output a page shows.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from kubestow.commands.flags import OPERATOR_COMMANDS
from scheduler.cli.flags import parser

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
TARGETS: Final = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
ELSEWHERE: Final = {
    "helm": "tests/deploy and tests/e2e/test_chart.py render and install the chart",
    "kubectl": "needs a cluster",
    "docker": "tests/deploy/test_container.py runs the image with podman",
    "kind": "needs kind; tests/deploy/test_kind.py runs the script with stand-ins",
    "curl": "tests/integration/test_serving.py sends the requests",
    "cosign": "needs a published release",
    "gh": "needs a published release",
    "TOKEN": "a shell variable",
    "LEADER": "a shell variable",
    "python3": "tests/deploy/test_packages.py installs the wheel",
    "kubestow/bin/pip": "tests/deploy/test_packages.py installs the wheel",
    "pip": "tests/deploy/test_release.py installs the wheel from an index",
    "pre-commit": "needs pre-commit",
    "apt-get": "needs root",
}
"""Programs whose commands are not checked here, with the reason or the test that runs them."""
_BLOCK: Final = re.compile(r"^```(console|shell|sh|bash|)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_OURS: Final = ("kubestow", "kubestow/bin/kubestow", ".venv/bin/kubestow")


class Command(NamedTuple):
    """One simple command of a page, as words."""

    page: str
    words: tuple[str, ...]


def commands(page: str, text: str) -> Iterator[Command]:
    """Yield each command. A block with `$` has output between its commands; a block without has commands only."""
    for kind, block in _BLOCK.findall(text):
        lines = re.sub(r"\\\n\s*", " ", block).splitlines()
        has_prompt = any(line.startswith("$ ") for line in lines)
        if not has_prompt and not kind:
            lines = [line for line in lines if line.startswith(("kubestow ", "python -m ", "make "))]
        for line in lines:
            if has_prompt and not line.startswith("$ "):
                continue
            yield from (Command(page, tuple(words)) for words in simple_commands(line.removeprefix("$ ")))


def simple_commands(line: str) -> Iterator[list[str]]:
    """Split a line at `&&`, `|`, `;` and `&` outside of quotations, and leave out where output goes (`> FILE`)."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for token in [*lexer, ";"]:
        if set(token) <= set("&|;"):
            if words:
                yield words
            words = []
        elif words[-1:] == [">"]:
            words.pop()
        else:
            words.append(token)


ALL: Final = [each for page in PAGES for each in commands(page.name, page.read_text(encoding="utf-8"))]


def of(*programs: str) -> list[Any]:
    found = dict.fromkeys(each for each in ALL if each.words[0] in programs)
    return [pytest.param(each.words, id=f"{each.page}: {' '.join(each.words)}") for each in found]


@pytest.mark.parametrize("words", of(*_OURS))
def test_kubestow_accepts_the_flags(words: tuple[str, ...]) -> None:
    parser(OPERATOR_COMMANDS).parse_args(words[1:])


@pytest.mark.parametrize("words", of("make"))
def test_the_target_exists(words: tuple[str, ...]) -> None:
    targets = {word for word in words[1:] if "=" not in word and not word.startswith("-")}

    assert targets
    assert targets <= TARGETS


class _Parsed(BaseException):
    """Raised instead of running a program whose arguments were accepted."""


@pytest.mark.parametrize("words", of("python"))
def test_the_module_accepts_the_arguments(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    assert words[1] == "-m"
    assert importlib.util.find_spec(words[2]) is not None
    if not words[2].startswith("benchmarks."):
        return
    original = argparse.ArgumentParser.parse_args

    def parse_args(self: argparse.ArgumentParser, *arguments: Any, **more: Any) -> argparse.Namespace:
        original(self, *arguments, **more)
        raise _Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    monkeypatch.delitem(sys.modules, words[2], raising=False)  # a second import as __main__ warns
    monkeypatch.setattr(sys, "argv", [words[2], *words[3:]])
    with pytest.raises(_Parsed):
        runpy.run_module(words[2], run_name="__main__")


def test_every_other_program_is_known() -> None:
    programs = {each.words[0].partition("=")[0] for each in ALL} - {
        *_OURS,
        "make",
        "python",
        "jq",
        "grep",
        "cut",
        "sleep",
    }

    assert programs - ELSEWHERE.keys() == set()


@pytest.mark.parametrize("words", [each for each in of(*_OURS) if each.values[0][1:2] == ("simulate",)])
def test_simulations_of_files_in_the_repository_run(words: tuple[str, ...]) -> None:
    files = [word for word in words[2:] if (ROOT / word).is_file()]
    if not files or len(files) < len(words) - 2:
        return
    ran = subprocess.run(
        [sys.executable, "-m", "scheduler", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert ran.returncode in {0, 1}, ran.stderr
    assert "pods placed on" in ran.stdout
