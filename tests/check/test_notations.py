"""tests/README.md: each example is executed, and is read by the module that its section names. A helper class has one meaning."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "tests" / "README.md"
_SECTION: Final = re.compile(r"^### (.+)\n\nRead by `(.+?)`", re.MULTILINE)
_EXAMPLE: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Notation(NamedTuple):
    """One section of the page."""

    heading: str
    module: str
    """A path from the root of the repository."""
    examples: tuple[str, ...]


def notations(text: str) -> list[Notation]:
    parts = [part.partition("\n## ")[0] for part in re.split(r"^(?=### )", text, flags=re.MULTILINE)[1:]]
    heads = [_SECTION.match(part) for part in parts]
    assert all(heads), f"a section does not begin with `Read by`: {parts[heads.index(None)] if None in heads else ''}"
    return [
        Notation(head[1], head[2], tuple(_EXAMPLE.findall(part)))
        for head, part in zip(heads, parts, strict=True)
        if head is not None
    ]


NOTATIONS: Final = notations(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("notation", NOTATIONS, ids=lambda each: each.heading)
def test_examples_are_read_by_the_module_that_the_page_names(notation: Notation) -> None:
    module = notation.module.removesuffix(".py").replace("/", ".")
    assert (ROOT / notation.module).is_file()
    assert notation.examples, "a notation without an example"

    for example in notation.examples:
        tree = ast.parse(example)
        assert module in {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
        assert any(isinstance(node, ast.Assert) for node in tree.body)
        exec(compile(tree, f"{PAGE.name}: {notation.heading}", "exec"), {})


def test_a_class_of_the_helper_modules_has_one_meaning() -> None:
    """A reader of a test knows the class by its name. Private classes and those of test modules have one reader."""
    listed = subprocess.run(["git", "ls-files", "tests"], cwd=ROOT, capture_output=True, text=True, check=True)
    places: dict[str, list[str]] = defaultdict(list)
    for name in listed.stdout.splitlines():
        if name.endswith(".py") and not Path(name).name.startswith("test_"):
            body = ast.parse((ROOT / name).read_text(encoding="utf-8")).body
            for node in body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(name)

    assert {name: found for name, found in places.items() if len(found) > 1} == {}
