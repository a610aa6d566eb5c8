"""Programs that tests run to their end, the packages that the lock file of the product names, and code blocks of docs/."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
_FENCED = re.compile(r"^```(\w+) (\S[^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SESSION = re.compile(r"^```console\n\$ ([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def ended(
    command: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the program with this text as its input, and return what it wrote, whether it succeeded or not."""
    return subprocess.run(command, cwd=cwd, env=env, input=given, capture_output=True, text=True, check=False)


def step(*command: str | Path, env: Mapping[str, str], is_clean: bool = False) -> str:
    """Run one step of a release to its end, print its time and CPU time, and return its output. It must succeed.

    The environment is this one with `env`, or `env` alone if `is_clean`.
    """
    name = " ".join(_short(each) for each in command)
    began, cpu_began_s = time.monotonic(), _cpu_s()
    ran = ended(command, cwd=ROOT, env={**({} if is_clean else os.environ), **env})
    assert ran.returncode == 0, f"{name}\n{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}"
    wall_s, cpu_s = time.monotonic() - began, _cpu_s() - cpu_began_s
    print(f"{wall_s:6.1f} s {cpu_s:6.1f} s CPU  {name}")  # noqa: T201 (the transcript of `make release-trial`)
    return ran.stdout


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _short(word: str | Path) -> str:
    """Return the word without directories outside of the repository, and with a short digest."""
    if isinstance(word, Path):
        return str(word.relative_to(ROOT)) if word.is_relative_to(ROOT) else word.name
    return re.sub(r"(@sha256:[0-9a-f]{8})[0-9a-f]+", r"\1…", word)


def locked(markers: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the packages of requirements/runtime.txt that are for this interpreter, with their versions."""
    lines = (ROOT / "requirements/runtime.txt").read_text().splitlines()
    pinned = [Requirement(line.removesuffix("\\").strip()) for line in lines if re.match(r"[\w-]+==", line)]
    chosen = [each for each in pinned if not each.marker or each.marker.evaluate(dict(markers or {}))]
    return {normal(each.name): str(each.specifier)[2:] for each in chosen}


def normal(name: str) -> str:
    """Return the name of a package as an index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def named(page: str) -> dict[str, str]:
    """The fenced blocks of a page of docs/ with a name after their language, by name: a test can run them unchanged."""
    found = _FENCED.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    blocks = {name: text for _, name, text in found}
    assert len(blocks) == len(found), "two blocks of one name"
    return blocks


def sessions(page: str) -> dict[str, str]:
    """Command → output on the page."""
    return dict(_SESSION.findall((ROOT / "docs" / page).read_text(encoding="utf-8")))
