"""Runs a program in a directory as a container engine does: with that root, an empty environment and PID 1.

Root, on a machine that permits namespaces, gets exactly that. Other users get the same files without their write
permissions, and the program runs outside of the directory: paths are then this machine's."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.commands import ended

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
    """Whether this machine permits it in full."""
    if os.getuid() != 0 or not all(map(shutil.which, _TOOLS)):
        return False
    probe = [_tool("unshare"), "--mount", "--pid", "--fork", "--propagation", "private", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def prepare(root: Path) -> None:
    """Add the mount points that an engine adds to an image."""
    for name in MOUNTS:
        (root / name).mkdir(exist_ok=True)


@dataclass(frozen=True)
class Confined:
    root: Path
    user: str = "123456:123456"
    env: Mapping[str, str] = field(default_factory=dict)
    is_writable: bool = False

    def close(self) -> None:
        """Without a read-only mount: remove write permissions. To be called before the files are compared."""
        if not is_possible() and not self.is_writable:
            subprocess.run(["chmod", "-R", "a-w", str(self.root)], check=True)

    def command(self, program: Sequence[str]) -> list[str]:
        """The command that runs the program in the directory, with `environ` for its environment."""
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
        return ended(self.command(program), env=self.environ)

    @property
    def environ(self) -> dict[str, str]:
        return {} if is_possible() else dict(self.env)

    def _outside(self, program: Sequence[str]) -> list[str]:
        """A script's interpreter is named by an absolute path of the image."""
        first, *rest = program
        found = self.root / first.lstrip("/")
        with found.open("rb") as file:
            line = file.readline()
        if not line.startswith(b"#!"):
            return [str(found), *rest]
        interpreter, *flags = line[2:].decode().split()
        return [str(self.root / interpreter.lstrip("/")), *flags, str(found), *rest]


def first_process(outer: int) -> int | None:
    """The number out here of our process that is PID 1 in there; None while there is none."""
    if not is_possible():
        return outer
    children = Path(f"/proc/{outer}/task/{outer}/children").read_text(encoding="ascii").split()
    return int(children[0]) if children else None


def _tool(name: str) -> str:
    found = shutil.which(name)
    assert found is not None
    return found
