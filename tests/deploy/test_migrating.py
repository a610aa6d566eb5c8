"""docs/migrating.md agrees with the program: configurations and lists of flags."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from scheduler.cli.flags import parser
from tests.deploy.commands import ended, named, sessions

PAGE = "migrating.md"
FLAGS = named(PAGE)


@pytest.mark.parametrize(("command", "printed"), sessions(PAGE).items())
def test_what_is_quoted(command: str, printed: str, tmp_path: Path) -> None:
    for name, text in named(PAGE).items():
        if name.endswith(".yaml"):
            (tmp_path / name).write_text(text)
    program, *arguments = shlex.split(command)
    assert program == "kubestow"
    ran = ended([sys.executable, "-m", "scheduler", *arguments], cwd=tmp_path)

    shown, lines = printed.splitlines(), (ran.stdout + ran.stderr).splitlines()
    assert [line.rstrip() for line in lines[: len(shown)]] == shown
    assert ran.returncode == (0 if shown[0].endswith(": ok") else 1)


@pytest.mark.parametrize("flag", [flag for flag in FLAGS["taken"].splitlines() if flag != "--version"])
def test_flags_that_have_their_meaning(flag: str) -> None:
    given = parser().parse_args(["run", flag])

    assert (given.command, given.without_effect) == ("run", {})


@pytest.mark.parametrize("flag", FLAGS["ignored"].splitlines())
def test_flags_without_effect_are_accepted(flag: str) -> None:
    assert parser().parse_args(["run", flag]).without_effect.keys() == {flag.partition("=")[0].removeprefix("--")}


@pytest.mark.parametrize("flag", FLAGS["refused"].splitlines())
def test_flags_that_are_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parser().parse_args(["run", flag])

    assert left.value.code == 2
    assert flag.partition("=")[0] in capsys.readouterr().err


def test_every_existing_flag_of_kube_scheduler_is_documented() -> None:
    told = {line.partition("=")[0] for name in ("taken", "ignored", "refused") for line in FLAGS[name].splitlines()}
    ours = {
        *("--allow-default-scheduler", "--csi-storage-capacity-api-version", "--drain-timeout", "--force"),
        *("--help", "--loop", "--plain-port", "--scheduler-profiles", "--ui", "--what-if-objects"),
    }
    run = next(action for action in parser()._actions if action.choices).choices["run"]  # type: ignore[index]
    have = {option for action in run._actions for option in action.option_strings if option != "-h"}

    assert have - told - ours == set()
    assert told - have == {"--scheduler-name"}
