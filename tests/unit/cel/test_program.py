"""Types and evaluation: errors that are absorbed or kept, costs and bounds (docs/spec/cel.md). goldens/ has upstream's messages."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from scheduler.cel.check.checker import check, qualified_name
from scheduler.cel.check.environment import KUBERNETES
from scheduler.cel.check.types import (
    BOOL,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    Env,
    Inference,
    declared,
    list_of,
    map_of,
    more_general,
    optional_of,
    shown,
)
from scheduler.cel.errors import CompileError, CostExceeded, EvalError, Issue, report
from scheduler.cel.eval.plan import NotInstantiable, plan
from scheduler.cel.eval.program import compile_expression
from scheduler.cel.eval.running import Run
from scheduler.cel.syntax.ast import Comprehension, Node
from scheduler.cel.syntax.parser import parse
from scheduler.cel.values import Optional
from tests.examples import examples
from tests.unit.cel.conftest import doubled

ENV = KUBERNETES.extended({"m": map_of(STRING, DYN), "x": DYN, "n": INT, "l": list_of(INT), "o": optional_of(DYN)})
BINDINGS = {
    "m": {"a": 1, "b": True, "c": "text", "l": [1, 2], "k": "a"},
    "x": 1.5,
    "n": 7,
    "l": [1, 2, 3],
    "o": Optional({"k": 5}),
}


def evaluated(source: str, env: Env = ENV) -> object:
    """The value, or the text of the error."""
    try:
        return compile_expression(source, env).evaluate(BINDINGS)
    except EvalError as error:
        return str(error)


def test_a_program_may_run_out_of_budget():
    endless = "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, true))) || true"

    with pytest.raises(CostExceeded, match=r"^operation cancelled: actual cost limit exceeded$"):
        compile_expression(endless, ENV, cost_limit=10_000).evaluate({})
    with pytest.raises(CostExceeded):
        compile_expression("n == 7", ENV, cost_limit=0).evaluate(BINDINGS)
    assert compile_expression("n == 7", ENV, cost_limit=1).evaluate(BINDINGS) is True


@pytest.mark.parametrize("source", [
    "".join(f"cel.bind(a{n + 1}, a{n} + a{n}, " for n in range(1, 60)) + "a60.size() > 0" + ")" * 59,
    "lists.range(90000).distinct().size() > 0",
    "sets.contains(lists.range(90000), lists.range(90000))",
], ids=["lists that double", "a quadratic function", "a product of two lists"])  # fmt: skip
def test_what_is_too_expensive_ends_at_the_deadline(source, busy_clock):
    """It would take minutes, or all memory."""
    with pytest.raises(CostExceeded):
        compile_expression(f"cel.bind(a1, [1, 2], {source})", ENV).evaluate({})


def test_a_large_map_is_made_in_one_piece():
    """A copy per entry would take minutes."""
    source = "lists.range(100000).transformMap(i, v, v * 2)"

    made = compile_expression(source, ENV).evaluate({})

    assert made == {number: number * 2 for number in range(100_000)}
    assert type(made) is dict


def test_a_constant_that_cannot_be_computed():
    """Upstream computes conversions of literals, and patterns, when it makes the program."""
    with pytest.raises(NotInstantiable, match=r"^type conversion error from 'string' to 'int'$"):
        compile_expression("int('x') == 1 || true", ENV)
    with pytest.raises(NotInstantiable, match="error parsing regexp"):
        compile_expression("m.c.find('(') == ''", ENV)


@pytest.mark.parametrize(("source", "wanted"), [
    ("!" * 51 + "true", False),
    ("(" * 120 + "true" + ")" * 120, True),
    ("[" * 120 + "1" + "]" * 120 + ".size()", 1),
    ("".join(f"[1].all(x{number}, " for number in range(110)) + "true" + ")" * 110, True),
    (" + ".join(["1"] * 249), 249),
    ("true" + " ? true : false" * 1, True),
    (" || ".join(["m.gone == 1"] * 700) + " || true", True),
], ids=["negations", "parentheses", "lists", "loops in loops", "a sum", "a choice", "a long disjunction"])  # fmt: skip
def test_deep_expressions(source, wanted):
    limit = sys.getrecursionlimit()

    def nested(levels: int) -> object:
        return nested(levels - 1) if levels else evaluated(source)

    assert wanted == nested(500)
    assert limit == sys.getrecursionlimit()


def test_too_deep_an_expression_is_refused():
    """With upstream's error, not Python's."""
    with pytest.raises(CompileError, match="recursion"):
        compile_expression("".join(f"[1].all(x{number}, " for number in range(300)) + "true" + ")" * 300, ENV)


@pytest.mark.parametrize(
    ("then", "wanted"),
    [
        ("v == v", True),
        ("v != v", False),
        ("dyn(v) == dyn([v, v])", False),
        ("v in [v]", True),
        ("{'a': v} == {'a': v}", True),
        ("optional.of(v) == optional.of(v)", True),
        ("[v, v].distinct().size()", 1),
        ("[v].indexOf(v)", 0),
        ("[v].lastIndexOf(v)", 0),
        ("sets.contains([v], [v])", True),
        ("v.map(y, y) == v", True),
        ("dyn(v) == dyn([v[0], [v[0][0], v[0][1]]])", True),
    ],
)
def test_lists_that_hold_each_other_are_compared_part_by_part(then, wanted):
    assert wanted == evaluated(doubled(59, "[1, 1]", "[x, x]", then))


def _without_macros(node: Node) -> Node:
    """Return the tree with general loops only."""
    if not isinstance(node, Comprehension):
        return node
    return dataclasses.replace(node, macro="")


@given(
    items=st.lists(st.sampled_from([0, 1, 2, True, False, "a", None]), max_size=6),
    macro=st.sampled_from(["all", "exists"]),
    test=st.sampled_from(["y", "y == 1", "6 / y == 3", "m.gone", "y == 0 || 6 / y == 3", "y > 0"]),
)
@settings(max_examples=examples(300), deadline=None)
def test_the_shorter_way_through_a_loop_changes_nothing(items, macro, test):
    source = f"x.{macro}(y, {test})"
    tree = parse(source)
    outcomes = []
    for root in (tree, _without_macros(tree)):
        code, slots = plan(check(root, source, ENV), ENV)
        run = Run({"m": {}, "x": items}, slots)
        try:
            outcome: object = code(run)
        except EvalError as error:
            outcome = str(error)
        outcomes.append(outcome)

    assert outcomes[0] == outcomes[1]


def _written(expression: Any, *, swapped: bool = False) -> str:
    """The text of a junction; `swapped` exchanges the operands of every operator."""
    if isinstance(expression, str):
        return expression
    operator, *operands = expression
    left, right = (_written(each, swapped=swapped) for each in (reversed(operands) if swapped else operands))
    return f"({left} {operator} {right})"


TERMS = st.sampled_from(["m.b", "!m.b", "m.gone == 1", "m.c", "n == 7"])
JUNCTIONS = st.recursive(TERMS, lambda inner: st.tuples(st.sampled_from(["&&", "||"]), inner, inner), max_leaves=8)


@given(JUNCTIONS)
@settings(max_examples=examples(200), deadline=None)
def test_logic_does_not_depend_on_order(expression):
    one, other = evaluated(_written(expression)), evaluated(_written(expression, swapped=True))

    assert isinstance(one, str) is isinstance(other, str)
    assert isinstance(one, str) or one is other


def test_qualified_names():
    """Selections of a name are one; of anything else, or with a test in them, they are not."""
    assert qualified_name(parse("a.b.c")) == "a.b.c"
    assert qualified_name(parse("f().b")) is None
    assert qualified_name(parse("has(a.b)")) is None
    assert qualified_name(parse("a.?b")) is None


TYPES = st.recursive(
    st.sampled_from([INT, STRING, BOOL, DYN, TIMESTAMP, NULL]),
    lambda inner: st.one_of(
        inner.map(list_of), inner.map(optional_of), st.tuples(inner, inner).map(lambda p: map_of(*p))
    ),
    max_leaves=4,
)


@given(TYPES)
def test_every_type_fits_itself_and_dyn(type_):
    assert Inference().assign([type_], [type_])
    assert Inference().assign([type_], [DYN])
    assert Inference().assign([DYN], [type_])
    inference = Inference()
    variable = inference.new_variable()
    assert inference.assign([type_], [variable])
    assert type_ == inference.resolved(variable)


@given(TYPES, TYPES)
def test_fitting_has_no_direction_between_known_types(one, other):
    fits = Inference().assign([one], [other])

    assert fits is Inference().assign([other], [one])
    if fits:
        assert more_general(one, other) in {one, other}


def test_a_variable_does_not_contain_itself():
    inference = Inference()
    variable = inference.new_variable()
    assert not inference.assign([list_of(variable)], [variable])
    assert variable == inference.resolved(variable)


def test_how_types_are_written():
    type_ = map_of(NULL, list_of(TIMESTAMP))

    assert shown(type_) == "map(null, list(timestamp))"
    assert declared(type_) == "map(null_type, list(google.protobuf.Timestamp))"


def test_many_errors():
    lines = report("a b", [Issue(2, "later"), *(Issue(0, str(number)) for number in range(120))]).splitlines()

    assert lines[-4:-1] == ["ERROR: <input>:1:3: later", " | a b", " | ..^"]
    assert lines[-1] == "21 more errors were truncated"
