"""The files of the image: exported from the engine, or made by the same script without an engine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.deploy import confined
from tests.e2e.controlplane.build import Unavailable

ROOT = Path(__file__).parents[2]
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
        return [str(path) for path in paths if path.parts[0] not in {*confined.MOUNTS, ".dockerenv", "run"}]


def from_script(work: Path) -> Image:
    """Run the steps of the Dockerfile in directories, with this interpreter, and merge the layers."""
    if shutil.which("strip") is None:
        raise Unavailable("no strip, and no container engine: install binutils, or podman, runc and mmdebstrap")
    context, root = work / "build", work / "root"
    context.mkdir()
    root.mkdir()
    for name in ("requirements", "scheduler", "simulator"):
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
    """Add the directories that a confined program needs."""
    confined.prepare(image.root)
    return image
