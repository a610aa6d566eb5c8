"""Carries out a Dockerfile in directories, as far as ours goes: no engine, no registry, no network of its own.

A stage is a directory. This machine stands in for a base image: RUN in its shell form is run here, in the stage's working
directory, and must therefore name paths relative to that; RUN in its exec form is left to the caller, who can give it
the stage for its root. An instruction, a flag or a form that is not known here is an error, never skipped.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

_VARIABLE = re.compile(r"\$\{(\w+)\}")


class Unknown(ValueError):
    """Something that this reader does not understand; the message quotes the line."""


@dataclass(frozen=True)
class Instruction:
    """`NAME rest`, with continued lines joined."""

    name: str
    rest: str

    def exec_form(self) -> list[str] | None:
        """The list of `["a", "b"]`; None if it is not one."""
        try:
            found = json.loads(self.rest)
        except ValueError:
            return None
        return found if isinstance(found, list) else None


@dataclass
class Image:
    """A stage: where its files are, and what was said of it."""

    root: Path
    base: str
    env: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = ""
    entrypoint: Sequence[str] = ()
    cmd: Sequence[str] = ()
    healthcheck: Sequence[str] = ()
    exposed: str = ""
    runs: list[list[str]] = field(default_factory=list)
    """RUN instructions in their exec form, to be run with `root` as root."""
    layers: list[Path] = field(default_factory=list)
    """What COPY --from brought, in order."""

    def path(self, name: str) -> Path:
        """Where a path of the image, absolute or relative to its working directory, is here."""
        return self.root / os.path.normpath(f"{self.workdir}/{name}" if not name.startswith("/") else name).lstrip("/")

    def size(self) -> int:
        """Bytes of all layers, as registries count them before compression."""
        return sum(each.lstat().st_size for layer in self.layers for each in layer.rglob("*") if not each.is_dir())


def instructions(text: str) -> list[Instruction]:
    """In order; comments and blank lines left out."""
    joined: list[str] = []
    continued = False
    for line in text.splitlines():
        if line.lstrip().startswith("#") or not line.strip():
            continue
        part = line.strip().removesuffix("\\").strip()
        if continued:
            joined[-1] += f" {part}"
        else:
            joined.append(part)
        continued = line.rstrip().endswith("\\")
    return [Instruction(name.upper(), rest.strip()) for name, _, rest in (line.partition(" ") for line in joined)]


def build(dockerfile: Path, context: Path, work: Path, given: Mapping[str, str]) -> Image:
    """All stages; the last one is returned. `given` is what `--build-arg` would say."""
    return _Build(context, work, given).run(instructions(dockerfile.read_text(encoding="utf-8")))


class _Build:
    def __init__(self, context: Path, work: Path, given: Mapping[str, str]) -> None:
        self._context = context
        self._work = work
        self._given = given
        self._global: dict[str, str] = {}
        self._args: dict[str, str] = {}
        self._stages: dict[str, Image] = {}
        self._ignored = ignored_by((context / ".dockerignore").read_text(encoding="utf-8"))

    def run(self, lines: Sequence[Instruction]) -> Image:
        image: Image | None = None
        for line in lines:
            if line.name == "ARG" and image is None:
                self._declare(line.rest, self._global)
            elif line.name == "FROM":
                image = self._begin(line)
            elif image is None:
                raise Unknown(f"{line.name} before FROM")
            else:
                self._step(image, line)
        assert image is not None
        return image

    def _begin(self, line: Instruction) -> Image:
        base, *named = self._filled(line.rest, self._global).split()
        if named and (named[0].upper() != "AS" or len(named) != 2):
            raise Unknown(line.rest)
        name = named[1] if named else str(len(self._stages))
        image = Image(self._work / name, base)
        image.root.mkdir(parents=True)
        self._stages[name], self._args = image, {}
        return image

    def _step(self, image: Image, line: Instruction) -> None:
        rest = (
            line.rest if line.name in {"RUN", "HEALTHCHECK"} else self._filled(line.rest, {**self._args, **image.env})
        )
        line = replace(line, rest=rest)
        match line.name:
            case "ARG":
                self._declare(rest, self._args)
            case "ENV":
                image.env |= _pairs(rest)
            case "LABEL":
                image.labels |= _pairs(rest)
            case "WORKDIR":
                image.path(rest).mkdir(parents=True, exist_ok=True)
                image.workdir = os.path.normpath(f"{image.workdir}/{rest}" if not rest.startswith("/") else rest)
            case "USER":
                image.user = rest
            case "EXPOSE":
                image.exposed = rest
            case "ENTRYPOINT":
                image.entrypoint = _must_be_exec(line)
            case "CMD":
                image.cmd = _must_be_exec(line)
            case "HEALTHCHECK":
                _, _, command = rest.partition(" CMD ")
                image.healthcheck = _must_be_exec(Instruction("HEALTHCHECK", command.strip()))
            case "COPY":
                self._copy(image, shlex.split(rest))
            case "RUN":
                self._run(image, line)
            case _:
                raise Unknown(f"{line.name} {rest}")

    def _declare(self, rest: str, into: dict[str, str]) -> None:
        name, _, default = rest.partition("=")
        into[name] = self._given.get(name, default or self._global.get(name, ""))

    @staticmethod
    def _filled(text: str, variables: Mapping[str, str]) -> str:
        def value(found: re.Match[str]) -> str:
            if found[1] not in variables:
                raise Unknown(f"{found[0]} is not declared")
            return variables[found[1]]

        return _VARIABLE.sub(value, text)

    def _copy(self, image: Image, words: list[str]) -> None:
        source_root, ignored = self._context, self._ignored
        if words[0].startswith("--from="):
            source_root, ignored = self._stages[words.pop(0).removeprefix("--from=")].root, _nothing
        if any(word.startswith("--") for word in words):
            raise Unknown(f"COPY {words}")
        *sources, target = words
        into = image.path(target)
        for source in sources:
            found = source_root / source.lstrip("/")
            if ignored(source) or not found.exists():
                raise FileNotFoundError(f"COPY {source}: not in the build context")
            if not found.is_dir():
                is_directory = target.endswith("/") or len(sources) > 1
                into.mkdir(parents=True, exist_ok=True) if is_directory else None
                shutil.copy2(found, into / found.name if is_directory else into)
                continue
            if ignored is _nothing:
                image.layers.append(found)
            _copy_tree(found, into, ignored=partial(_is_ignored, ignored, source_root))

    def _run(self, image: Image, line: Instruction) -> None:
        command = line.exec_form()
        if command is not None:
            image.runs.append(command)
            return
        if image.base == "scratch":
            raise Unknown(f"there is no shell to run {line.rest}")
        if re.search(r"(^|\s)/", line.rest):
            raise Unknown(f"an absolute path would be this machine's: {line.rest}")
        outside = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "HOME"))}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**outside, "PATH": path, **image.env}
        subprocess.run(["/bin/sh", "-c", line.rest], cwd=image.path("."), env=env, check=True)


def _pairs(text: str) -> dict[str, str]:
    pairs = {}
    for word in shlex.split(text):
        name, equals, value = word.partition("=")
        if not equals:
            raise Unknown(text)
        pairs[name] = value
    return pairs


def _must_be_exec(line: Instruction) -> list[str]:
    found = line.exec_form()
    if found is None:
        raise Unknown(f"{line.name} would run a shell: {line.rest}")
    return found


def _copy_tree(source: Path, target: Path, *, ignored: Callable[[Path], bool]) -> None:
    """The contents of a directory, over what is there, links as links."""
    target.mkdir(parents=True, exist_ok=True)
    for each in sorted(source.iterdir()):
        to = target / each.name
        if ignored(each):
            continue
        if each.is_dir() and not each.is_symlink():
            _copy_tree(each, to, ignored=ignored)
        else:
            shutil.copy2(each, to, follow_symlinks=False)
    shutil.copystat(source, target)


def _is_ignored(ignored: Callable[[str], bool], base: Path, path: Path) -> bool:
    return ignored(str(path.relative_to(base)))


def ignored_by(text: str) -> Callable[[str], bool]:
    """Whether a .dockerignore keeps a path out: the last pattern that matches it, or a directory above it, decides."""
    rules = [(line.startswith("!"), _pattern(line.removeprefix("!"))) for line in _lines(text)]

    def ignored(path: str) -> bool:
        verdict = False
        parts = Path(path).parts
        above = ["/".join(parts[:at]) for at in range(1, len(parts) + 1)]
        for is_exception, pattern in rules:
            if any(pattern.fullmatch(each) for each in above):
                verdict = not is_exception
        return verdict

    return ignored


def _nothing(_path: str) -> bool:
    return False


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _pattern(glob: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*)", glob.strip("/"))
    translated = {"**/": "(.*/)?", "*": "[^/]*"}
    return re.compile("".join(translated.get(part, re.escape(part)) for part in parts))
