"""Read the `Upstream:` lines of scheduler/ and the rows of docs/upstream-map.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
MAP: Final = ROOT / "docs" / "upstream-map.md"
WIDTH: Final = 120

_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?"
_FORM = re.compile(rf" *Upstream: ((?:pkg|cmd|staging/src/k8s\.io)/[\w./-]+\.go) ({_NAME}(?:, {_NAME})*)")
_ROW = re.compile(r"\| (.*?) \| (.*?) \|(?: (.*?))? \|")
_RENAMED = re.compile(r"\* `(.+?)` `(.+?)` is (now|from 1\.38 on) `(.+?)` `(.+?)`")
_TYPED = r"(?:struct|interface|func)\b"


class Upstream(NamedTuple):
    """A file of kubernetes and names that are defined in it. `at` is where that is written."""

    path: str
    names: tuple[str, ...]
    at: str


class MapRow(NamedTuple):
    """One row of the map: upstream's file and names, and ours."""

    upstream: Upstream
    path: str
    names: tuple[str, ...]


def read_line(line: str, at: str) -> Upstream:
    """Return what a line says. Raises ValueError if it does not have the form."""
    found = _FORM.fullmatch(line)
    if found is None or len(line) > WIDTH:
        msg = f"{at}: not `Upstream: <path> <name>[, <name>…]` within {WIDTH} columns: {line.strip()}"
        raise ValueError(msg)
    return Upstream(found[1], tuple(found[2].split(", ")), at)


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Return the docstrings of a module, its classes and its functions."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    yield from (ast.get_docstring(node, clean=False) or "" for node in ast.walk(tree) if isinstance(node, kinds))


def lines(source: str, at: str) -> list[Upstream]:
    """Return the lines of one module. Raises ValueError for a line of another form or in another place."""
    marked = [line for line in source.splitlines() if "Upstream:" in line]
    found = [read_line(line, at) for line in marked]
    in_docstrings = [text.count("Upstream:") for text in docstrings(ast.parse(source))]
    if sum(in_docstrings) != len(marked) or max(in_docstrings, default=0) > 1:
        msg = f"{at}: an `Upstream:` line is outside of a docstring, or one docstring has several"
        raise ValueError(msg)
    return found


def all_lines() -> list[Upstream]:
    """Return the lines of scheduler/ and simulator/."""
    modules = sorted(path for name in ("scheduler", "simulator") for path in (ROOT / name).rglob("*.py"))
    return [one for path in modules for one in lines(path.read_text(), str(path.relative_to(ROOT)))]


def rows(text: str) -> list[MapRow]:
    """Return the rows of the map. Raises ValueError for a row of another form."""
    return [_row(line) for line in text.splitlines() if line.startswith("| `")]


def renamed(text: str, *, version: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Return path and name in kube-scheduler 1.37 or 1.38 by those in 1.36, from the lists of the map."""
    since = {"now"} if version == "1.37" else {"now", "from 1.38 on"}
    return {
        (path, name): (new_path, new) for path, name, when, new_path, new in _RENAMED.findall(text) if when in since
    }


def _row(line: str) -> MapRow:
    found = _ROW.fullmatch(line)
    theirs, ours = (re.findall(r"`([^`]+)`", cell) for cell in (found[1], found[2])) if found else ([], [])
    if len(theirs) < 2 or not ours:
        msg = f"docs/upstream-map.md: not a row: {line}"
        raise ValueError(msg)
    return MapRow(Upstream(theirs[0], tuple(theirs[1:]), "docs/upstream-map.md"), ours[0], tuple(ours[1:]))


def defined(source: str) -> set[str]:
    """Return the names that a Python module defines: classes, functions, `Class.method`, constants."""
    found = set()
    for node in ast.parse(source).body:
        match node:
            case ast.ClassDef(name=name, body=body):
                found |= {name} | {f"{name}.{inner}" for each in body for inner in _names(each)}
            case _:
                found |= set(_names(node))
    return found


def _names(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def is_defined_in_go(name: str, source: str) -> bool:
    """Whether a Go file defines a function, method, type, variable or constant of this name, or `Type.method`."""
    receiver, _, last = name.rpartition(".")
    if receiver:
        return re.search(rf"^func \(\w* ?\*?{receiver}(?:\[\w+\])?\) {last}\b", source, re.MULTILINE) is not None
    forms = (rf"func (?:\([^)]*\) )?{last}[(\[]", rf"(?:type|var|const) {last}\b", rf"\t{last} (?:{_TYPED}|.*=)")
    return re.search("|".join(f"^{form}" for form in forms), source, re.MULTILINE) is not None
