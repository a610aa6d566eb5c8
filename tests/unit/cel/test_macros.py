from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from scheduler.cel.errors import CompileError
from scheduler.cel.syntax.ast import Comprehension
from scheduler.cel.syntax.parser import parse
from tests.unit.cel.trees import shown

_GO_ON = "@not_strictly_false(@result)"
_GO_ON_UNLESS = "@not_strictly_false(!_(@result))"


@pytest.mark.parametrize(
    ("source", "tree"),
    [
        ("has(a.b)", "a.b~test~"),
        ("has(a.b.c)", "a.b.c~test~"),
        ("has(has(a.b))", "a.b~test~"),
        ("a.all(x, p)", f"fold(x in a, @result: True, {_GO_ON}, _&&_(@result, p), @result)"),
        ("a.all(i, x, p)", f"fold(i, x in a, @result: True, {_GO_ON}, _&&_(@result, p), @result)"),
        ("a.exists(x, p)", f"fold(x in a, @result: False, {_GO_ON_UNLESS}, _||_(@result, p), @result)"),
        ("a.exists(i, x, p)", f"fold(i, x in a, @result: False, {_GO_ON_UNLESS}, _||_(@result, p), @result)"),
        ("a.exists_one(x, p)", "fold(x in a, @result: 0, True, _?_:_(p, _+_(@result, 1), @result), _==_(@result, 1))"),
        (
            "a.exists_one(i, x, p)",
            "fold(i, x in a, @result: 0, True, _?_:_(p, _+_(@result, 1), @result), _==_(@result, 1))",
        ),
        (
            "a.existsOne(i, x, p)",
            "fold(i, x in a, @result: 0, True, _?_:_(p, _+_(@result, 1), @result), _==_(@result, 1))",
        ),
        ("a.map(x, y)", "fold(x in a, @result: [], True, _+_(@result, [y]), @result)"),
        ("a.map(x, p, y)", "fold(x in a, @result: [], True, _?_:_(p, _+_(@result, [y]), @result), @result)"),
        ("a.filter(x, p)", "fold(x in a, @result: [], True, _?_:_(p, _+_(@result, [x]), @result), @result)"),
        ("a.transformList(i, x, y)", "fold(i, x in a, @result: [], True, _+_(@result, [y]), @result)"),
        (
            "a.transformList(i, x, p, y)",
            "fold(i, x in a, @result: [], True, _?_:_(p, _+_(@result, [y]), @result), @result)",
        ),
        ("a.transformMap(i, x, y)", "fold(i, x in a, @result: {}, True, cel.@mapInsert(@result, i, y), @result)"),
        (
            "a.transformMap(i, x, p, y)",
            "fold(i, x in a, @result: {}, True, _?_:_(p, cel.@mapInsert(@result, i, y), @result), @result)",
        ),
        ("a.transformMapEntry(i, x, y)", "fold(i, x in a, @result: {}, True, cel.@mapInsert(@result, y), @result)"),
        (
            "a.transformMapEntry(i, x, p, y)",
            "fold(i, x in a, @result: {}, True, _?_:_(p, cel.@mapInsert(@result, y), @result), @result)",
        ),
        ("cel.bind(x, a, y)", "fold(#unused in [], x: a, False, x, y)"),
        (
            "a.sortBy(e, k)",
            (
                "fold(#unused in [], @__sortBy_input__: a, False, @__sortBy_input__, @__sortBy_input__.@sortByAssociatedKeys("
                "fold(e in @__sortBy_input__, @result: [], True, _+_(@result, [k]), @result)))"
            ),
        ),
        (
            "a.optMap(x, y)",
            "_?_:_(a.hasValue(), optional.of(fold(#unused in [], x: a.value(), False, x, y)), optional.none())",
        ),
        (
            "a.optFlatMap(x, y)",
            "_?_:_(a.hasValue(), fold(#unused in [], x: a.value(), False, x, y), optional.none())",
        ),
        ("a.all(.x, p)", f"fold(.x in a, @result: True, {_GO_ON}, _&&_(@result, p), @result)"),
    ],
)
def test_expansions(source, tree):
    """The folds of cel-go v0.26, but for the name of an optional that is not a variable: see the next test."""
    assert shown(parse(source)) == tree


def test_an_optional_is_computed_once():
    """cel-go writes it twice, and doubles the tree with every link of a chain; a name holds it here."""
    assert shown(parse("a.?b.optMap(x, y)")) == (
        "fold(#unused in [], @optMap_target: a.?b, False, @optMap_target, "
        "_?_:_(@optMap_target.hasValue(), "
        "optional.of(fold(#unused in [], x: @optMap_target.value(), False, x, y)), optional.none()))"
    )
    assert len(shown(parse("a.?b" + ".optMap(x, x)" * 100))) < 100_000


@pytest.mark.parametrize(
    "source",
    [
        "has()",
        "has(a, b)",
        "a.has(b.c)",
        ".has(a.b)",
        "all(x, p)",
        "a.all(x)",
        "a.existsOne(x, p)",
        "a.map(x, y, z, w)",
        "a.bind(x, y, z)",
        ".cel.bind(x, y, z)",
        "cel.bind(x, y)",
        "a.sortBy(e)",
    ],
)
def test_what_is_no_macro_stays_a_call(source):
    """Another number of arguments, another target: some function may have that name."""
    assert shown(parse(source)) == source


@pytest.mark.parametrize(
    ("source", "at", "text"),
    [
        ("has(a)", 5, "invalid argument to has() macro"),
        ("has(a.?b)", 6, "invalid argument to has() macro"),
        ("has(a[0])", 6, "invalid argument to has() macro"),
        ("has(a.b())", 8, "invalid argument to has() macro"),
        ("a.all(b.c, true)", 8, "argument must be a simple name"),
        ("a.all(__result__, true)", 7, "iteration variable overwrites accumulator variable"),
        ("a.exists(1, x, p)", 10, "argument must be a simple name"),
        ("a.exists(x, 1, p)", 13, "argument must be a simple name"),
        ("a.all(x, x, true)", 10, "duplicate variable name: x"),
        ("a.transformMap(i, __result__, 1)", 19, "iteration variable overwrites accumulator variable"),
        ("a.map(1, x)", 7, "argument is not an identifier"),
        ("a.filter(__result__, x)", 10, "iteration variable overwrites accumulator variable"),
        ("cel.bind(x.y, 1, x)", 11, "cel.bind() variable names must be simple identifiers"),
        ("a.optMap(1, y)", 10, "optMap() variable name must be a simple identifier"),
        ("a.optFlatMap(x.y, y)", 15, "optFlatMap() variable name must be a simple identifier"),
        ("a.sortBy(1, e)", 10, "argument is not an identifier"),
        (
            "{}.sortBy(e, e)",
            1,
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression",
        ),
    ],
)
def test_misuse(source, at, text):
    """At the argument that is wrong, in cel-go's words."""
    with pytest.raises(CompileError) as caught:
        parse(source)
    assert str(caught.value) == f"ERROR: <input>:1:{at}: {text}\n | {source}\n | {'.' * (at - 1)}^"


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
