"""Print the size and the shape of the code: `make stats`.

The import circles include imports that only type checkers execute. One circle is one strongly connected component.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
TREES = ("kubestow", "scheduler", "simulator", "tests")
FOLDER_MAX = 12


def main() -> None:
    """Print all figures to standard output."""
    for tree in TREES:
        files = sorted((ROOT / tree).rglob("*.py"))
        lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
        _show(f"{tree}: {lines} lines in {len(files)} files")
        _list(f"{tree}: folders with more than {FOLDER_MAX} modules", large_folders(files))
        _list(f"{tree}: class names that several modules define", shared_class_names(files))
    imports = import_graph()
    _list("import circles", (" ".join(circle) for circle in circles(imports)))
    _list("modules with exactly one importer", single_importers(imports))


def import_graph() -> dict[str, set[str]]:
    """Return for each module of the library, the scheduler and the simulator the modules that it imports."""
    graph = grimp.build_graph("kubestow", "scheduler", "simulator", cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def large_folders(files: Iterable[Path]) -> list[str]:
    """Return `folder: count` of each folder that has more than `FOLDER_MAX` modules apart from its `__init__`."""
    counts: dict[Path, int] = defaultdict(int)
    for file in files:
        counts[file.parent] += file.name != "__init__.py"
    return [f"{folder.relative_to(ROOT)}: {count}" for folder, count in counts.items() if count > FOLDER_MAX]


def shared_class_names(files: Iterable[Path]) -> list[str]:
    """Return `name: modules` of each public class name that is defined at the top level of several modules."""
    where: dict[str, list[str]] = defaultdict(list)
    for file in files:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(str(file.relative_to(ROOT)))
    return [f"{name}: {' '.join(paths)}" for name, paths in sorted(where.items()) if len(paths) > 1]


def single_importers(imports: Mapping[str, set[str]]) -> list[str]:
    """Return `module <- importer` of each module that exactly one module imports."""
    importers: dict[str, list[str]] = defaultdict(list)
    for importer, imported in imports.items():
        for module in imported:
            importers[module].append(importer)
    return [f"{module} <- {by[0]}" for module, by in sorted(importers.items()) if len(by) == 1]


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components with more than one module (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in imports[module]:
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for module in sorted(imports):
        if module not in index:
            visit(module)
    return sorted(found)


def _list(title: str, rows: Iterable[str]) -> None:
    rows = list(rows)
    _show(f"\n{title}: {len(rows)}", *(f"  {row}" for row in rows))


def _show(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
