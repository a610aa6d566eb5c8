"""The source distribution: whoever has nothing else can test, document and deploy what is in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from scheduler import __version__

ROOT = Path(__file__).parents[2]


def test_everything_is_in_it(tmp_path: Path) -> None:
    """All that the repository has."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no clone: nobody can say what belongs to it")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(tmp_path / f"kubestow-{__version__}.tar.gz") as made:
        names = {name.partition("/")[2] for name in made.getnames()}

    assert [name for name in listed.stdout.splitlines() if name not in names and (ROOT / name).exists()] == []
