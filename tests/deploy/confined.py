"""Runs a program in a directory as a container engine would: that root and no other, an empty environment, PID 1.

Root, on a machine that lets it make namespaces, gets the real thing. Anybody else gets the same files with their write permissions
taken away, run from outside: paths are then this machine's.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_TOOLS = ("unshare", "mount", "chroot", "env", "sh")
MOUNTS = ("dev", "proc")
_ENTER = """
root=$1 user=$2 writable=$3; shift 3
{mount} --bind "$root" "$root"
{mount} --bind /dev "$root/dev"
{mount} -t proc proc "$root/proc"
[ "$writable" ] || {mount} -o remount,bind,ro "$root"
exec {env} -i {given} {chroot} --userspec="$user" "$root" "$@"
"""


@functools.cache
def is_possible() -> bool:
    """Whether this machine lets us do it in full."""
    if os.getuid() != 0 or not all(map(shutil.which, _TOOLS)):
        return False
    probe = [_tool("unshare"), "--mount", "--pid", "--fork", "--propagation", "private", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def prepare(root: Path) -> None:
    """What an engine adds to an image: where it mounts things."""
    for name in MOUNTS:
        (root / name).mkdir(exist_ok=True)


@dataclass(frozen=True)
class Confined:
    """How to run the programs of an image."""

    root: Path
    user: str = "123456:123456"
    env: Mapping[str, str] = field(default_factory=dict)
    is_writable: bool = False

    def close(self) -> None:
        """Where it cannot be mounted read-only, nobody may write: to be called before what is in there is looked at."""
        if not is_possible() and not self.is_writable:
            subprocess.run(["chmod", "-R", "a-w", str(self.root)], check=True)

    def command(self, program: Sequence[str]) -> list[str]:
        """What to execute, with `environ` for its environment, to have the program run in there."""
        if not is_possible():
            return self._outside(program)
        given = shlex.join(f"{name}={value}" for name, value in self.env.items())
        script = _ENTER.format(given=given, **{name: _tool(name) for name in ("mount", "env", "chroot")})
        writable = "yes" if self.is_writable else ""
        return [
            *(_tool("unshare"), "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"),
            *(_tool("sh"), "-euc", script, "sh", str(self.root), self.user, writable, *program),
        ]

    def run(self, program: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """To its end."""
        return subprocess.run(self.command(program), env=self.environ, capture_output=True, text=True, check=False)

    @property
    def environ(self) -> dict[str, str]:
        """Of what is executed here."""
        return {} if is_possible() else dict(self.env)

    def _outside(self, program: Sequence[str]) -> list[str]:
        """A script's interpreter is named by an absolute path, which is the image's."""
        first, *rest = program
        found = self.root / first.lstrip("/")
        with found.open("rb") as file:
            line = file.readline()
        if not line.startswith(b"#!"):
            return [str(found), *rest]
        interpreter, *flags = line[2:].decode().split()
        return [str(self.root / interpreter.lstrip("/")), *flags, str(found), *rest]


def first_process(outer: int) -> int | None:
    """The process of ours that is PID 1 in there, by its number out here; None while there is none."""
    if not is_possible():
        return outer
    children = Path(f"/proc/{outer}/task/{outer}/children").read_text(encoding="ascii").split()
    return int(children[0]) if children else None


def _tool(name: str) -> str:
    found = shutil.which(name)
    assert found is not None
    return found
