"""The files of the image, from the engine or, without one, from the same script; and programs that run in them.

A program runs as a container engine runs it: with that root, an empty environment and PID 1. Root, on a machine that
permits namespaces, gets exactly that. Other users get the same files without their write permissions, and the program
runs outside of the directory: paths are then this machine's.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.commands import ROOT, ended
from tests.e2e.controlplane.build import Unavailable

SCRIPT = ROOT / "deploy" / "image" / "build.sh"
PROGRAM = ("/opt/kubestow/bin/kubestow",)


@dataclass(frozen=True)
class Image:
    """A root file system, ready to run programs in."""

    root: Path

    @property
    def site(self) -> str:
        """The directory of the Python packages, relative to the root."""
        (found,) = self.root.glob("opt/kubestow/lib/python3.*/site-packages")
        return str(found.relative_to(self.root))

    @property
    def python(self) -> str:
        """The minor version of the interpreter: `3.11`."""
        return re.findall(r"python(3\.\d+)", self.site)[0]  # type: ignore[no-any-return]

    def files(self) -> list[str]:
        """Return all files and links, relative to the root. What an engine and the tests mount is left out."""
        paths = (each.relative_to(self.root) for each in sorted(self.root.rglob("*")) if not each.is_dir())
        return [str(path) for path in paths if path.parts[0] not in {*MOUNTS, ".dockerenv", "run"}]


def from_script(work: Path) -> Image:
    """Run the steps of the Dockerfile in directories, with this interpreter, and merge the layers."""
    if shutil.which("strip") is None:
        raise Unavailable("no strip, and no container engine: install binutils, or podman, runc and mmdebstrap")
    context, root = work / "build", work / "root"
    context.mkdir()
    root.mkdir()
    for name in ("requirements", "kubestow", "scheduler", "simulator"):
        shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, context)
    for step in ("interpreter", "wheels", "kubestow"):
        env = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": "", "PIP_ROOT_USER_ACTION": "ignore"}
        subprocess.run([str(SCRIPT), step], cwd=context, env=env, check=True)
    for layer in ("interpreter", "wheels", "kubestow"):
        shutil.copytree(context / "layers" / layer, root, symlinks=True, dirs_exist_ok=True)
    shutil.rmtree(context)
    return prepared(Image(root))


def prepared(image: Image) -> Image:
    """Add the mount points that an engine adds to an image, and that a confined program needs."""
    for name in MOUNTS:
        (image.root / name).mkdir(exist_ok=True)
    return image


# -- a program in such a directory -------------------------------------------------------------------------------------


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
def can_confine() -> bool:
    """Whether this machine permits it in full."""
    if os.getuid() != 0 or not all(map(shutil.which, _TOOLS)):
        return False
    probe = [_tool("unshare"), "--mount", "--pid", "--fork", "--propagation", "private", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@dataclass(frozen=True)
class Confined:
    root: Path
    user: str = "123456:123456"
    env: Mapping[str, str] = field(default_factory=dict)
    is_writable: bool = False

    def close(self) -> None:
        """Without a read-only mount: remove write permissions. To be called before the files are compared."""
        if not can_confine() and not self.is_writable:
            subprocess.run(["chmod", "-R", "a-w", str(self.root)], check=True)

    def command(self, program: Sequence[str]) -> list[str]:
        """The command that runs the program in the directory, with `environ` for its environment."""
        if not can_confine():
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
        return {} if can_confine() else dict(self.env)

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
    if not can_confine():
        return outer
    children = Path(f"/proc/{outer}/task/{outer}/children").read_text(encoding="ascii").split()
    return int(children[0]) if children else None


def _tool(name: str) -> str:
    found = shutil.which(name)
    assert found is not None
    return found
