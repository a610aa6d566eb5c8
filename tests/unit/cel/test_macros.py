"""Macros. goldens/parser.json has their expansions and refusals."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from scheduler.cel.syntax.ast import Comprehension
from scheduler.cel.syntax.parser import parse
from tests.unit.cel.trees import shown


def test_an_optional_is_computed_once():
    """cel-go writes it twice, and doubles the tree with every link of a chain; a name holds it here."""
    assert shown(parse("a.?b.optMap(x, y)")) == (
        "fold(#unused in [], @optMap_target: a.?b, False, @optMap_target, "
        "_?_:_(@optMap_target.hasValue(), "
        "optional.of(fold(#unused in [], x: @optMap_target.value(), False, x, y)), optional.none()))"
    )
    assert len(shown(parse("a.?b" + ".optMap(x, x)" * 100))) < 100_000


@pytest.mark.parametrize(
    ("source", "macro"),
    [
        ("a.all(x, p)", "all"),
        ("a.exists(i, x, p)", "exists"),
        ("a.existsOne(i, x, p)", "exists_one"),
        ("a.map(x, p, y)", "map"),
        ("a.filter(x, p)", "filter"),
        ("a.transformList(i, x, y)", "transformList"),
        ("a.transformMap(i, x, y)", "transformMap"),
        ("a.transformMapEntry(i, x, y)", "transformMapEntry"),
        ("cel.bind(x, a, y)", "bind"),
        ("a.sortBy(e, k)", "bind"),
        ("a.?b.optMap(x, y)", "bind"),
    ],
)
def test_a_fold_tells_what_it_was(source, macro):
    """A compiler may know a shorter way for it."""
    node = parse(source)

    assert isinstance(node, Comprehension)
    assert node.macro == macro


def test_nodes_are_not_shared():
    """What is known of a node is kept beside the tree, by identity."""
    seen: set[int] = set()
    todo: list[Any] = [parse("a.filter(x, x.b).optMap(y, y).sortBy(z, z.c).exists(i, v, cel.bind(w, v, w))")]
    while todo:
        node = todo.pop()
        if isinstance(node, tuple):
            todo += node
        elif dataclasses.is_dataclass(node):
            assert id(node) not in seen
            seen.add(id(node))
            todo += [getattr(node, each.name) for each in dataclasses.fields(node)]
    assert len(seen) > 40
