"""Trees and refusals of the parser. goldens/parser.json has those of cel-go v0.26 by rule."""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from pathlib import Path
from typing import Any, assert_never

import pytest
from hypothesis import given, strategies as st

from scheduler.cel.errors import CompileError
from scheduler.cel.syntax.ast import Call, Comprehension, Ident, ListExpr, Literal, MapExpr, Node, Select, StructExpr
from scheduler.cel.syntax.parser import parse
from scheduler.cel.values import UInt
from tests.unit.cel.conftest import meaning


def shown(node: Node) -> str:
    """Without places."""
    match node:
        case Literal(value=UInt() as value):
            return f"{value}u"
        case Literal(value=value):
            return repr(value)
        case Ident(name=name):
            return name
        case Select(operand=operand, field=field):
            return f"{shown(operand)}{'.?' if node.optional else '.'}{field}{'~test~' if node.test else ''}"
        case Call(function=function, args=args, target=target):
            return f"{'' if target is None else shown(target) + '.'}{function}({', '.join(map(shown, args))})"
        case ListExpr(elements=elements, optional=optional):
            return f"[{', '.join(_mark(index in optional) + shown(each) for index, each in enumerate(elements))}]"
        case MapExpr(entries=entries, optional=optional):
            pairs = (f"{shown(key)}: {shown(value)}" for key, value in entries)
            return f"{{{', '.join(_mark(index in optional) + each for index, each in enumerate(pairs))}}}"
        case StructExpr(type_name=name, entries=fields):
            return f"{name}{{{', '.join(f'{field}: {shown(value)}' for field, value in fields)}}}"
        case Comprehension():
            variables = f"{node.iter_var}, {node.iter_var2}" if node.iter_var2 else node.iter_var
            parts = ", ".join(map(shown, (node.accu_init, node.loop_condition, node.loop_step, node.result)))
            return f"fold({variables} in {shown(node.iter_range)}, {node.accu_var}: {parts})"
        case _:
            assert_never(node)


def _mark(is_optional: bool) -> str:
    return "?" if is_optional else ""


def _refusal(source):
    with pytest.raises(CompileError) as caught:
        parse(source)
    return str(caught.value)


_RULES = json.loads((Path(__file__).parent / "goldens" / "parser.json").read_text())


@pytest.mark.parametrize("rows", _RULES.values(), ids=_RULES)
def test_goldens(rows):
    """What binds to what, and the place and the words of every refusal but of syntax errors, which have our words.

    The name of an optional differs: see test_an_optional_is_computed_once.
    """
    found = {}
    for source in rows:
        try:
            found[source] = shown(parse(source))
        except CompileError as error:
            found[source] = str(error)

    assert {source: meaning(text) for source, text in rows.items()} == {
        source: meaning(text) for source, text in found.items()
    }


@pytest.mark.parametrize(
    ("source", "column", "text"),
    [
        ("", 1, "found the end, expected an expression"),
        ("1 +", 4, "found the end, expected an expression"),
        ("a b", 3, "found 'b', expected an operator or the end"),
        ("a)", 2, "found ')', expected an operator or the end"),
        ("(1", 3, "found the end, expected ')'"),
        ("a ? b", 6, "found the end, expected ':'"),
        ("a ? b ? c : d : e", 7, "found '?', expected ':'"),
        ("a.1", 2, "found '.1', expected an operator or the end"),
        ("a.?(", 4, "found '(', expected a field name"),
        (".1.", 4, "found the end, expected a field name"),
        (". 1", 3, "found '1', expected a name"),
        ("f(a b)", 5, "found 'b', expected ')'"),
        ("f(,)", 3, "found ',', expected an expression"),
        ("f(a,)", 5, "found ')', expected an expression"),
        ("[1 2]", 4, "found '2', expected ',' or ']'"),
        ("[,1]", 3, "found '1', expected ']'"),
        ("{1, 2}", 3, "found ',', expected ':'"),
        ("T{1: 2}", 3, "found '1', expected a field name"),
        ("-!a", 2, "found '!', expected an expression"),
        ("a & b", 3, "no token begins with '&'"),
        ("'open", 1, 'no token begins with "\'"'),
    ],
)
def test_syntax_errors(source, column, text):
    """The first one, with its place and the line."""
    first, *_ = _refusal(source).splitlines()

    assert first == f"ERROR: <input>:1:{column}: Syntax error: {text}"


def test_errors_before_a_syntax_error_aremeaning():
    assert [
        line for line in _refusal("for + 1u8 + 99999999999999999999 )").splitlines() if line.startswith("ERROR")
    ] == [
        "ERROR: <input>:1:1: reserved identifier: for",
        "ERROR: <input>:1:9: Syntax error: found '8', expected an operator or the end",
    ]


def test_there_is_something_to_compare():
    """A file that was cut short would pass too."""
    assert [59, 24, 12, 37, 17] == [len(rows) for rows in _RULES.values()]


_TOO_NESTED = "ERROR: <input>:-1:0: expression recursion limit exceeded: 250"
_TOO_DEEP = "ERROR: <input>:-1:0: max recursion depth exceeded"


@pytest.mark.parametrize(
    ("most", "pieces", "text"),
    [
        pytest.param(249, ("(", "a", ")"), _TOO_NESTED, id="parentheses"),
        pytest.param(250, ("[", "", "]"), _TOO_NESTED, id="lists"),
        pytest.param(249, ("{1:", "1", "}"), _TOO_NESTED, id="maps"),
        pytest.param(249, ("A{a:", "1", "}"), _TOO_NESTED, id="structs"),
        pytest.param(249, ("f(", "1", ")"), _TOO_NESTED, id="calls"),
        pytest.param(249, ("a[", "0", "]"), _TOO_NESTED, id="indexes within indexes"),
        pytest.param(249, ("a?b:", "c", ""), _TOO_NESTED, id="conditions"),
        pytest.param(249, ("[1].all(x,", "true", ")"), _TOO_NESTED, id="macros"),
        pytest.param(249, ("(1+", "1", ")"), _TOO_NESTED, id="sums in sums"),
        pytest.param(250, ("", "a", "[0]"), _TOO_DEEP, id="indexes"),
        pytest.param(250, ("", "a", ".b"), _TOO_DEEP, id="fields"),
        pytest.param(250, ("", "a", ".?b"), _TOO_DEEP, id="optional fields"),
        pytest.param(250, ("", "a", ".b()"), _TOO_DEEP, id="calls of members"),
        pytest.param(250, ("", "a", "+a"), _TOO_DEEP, id="sums"),
        pytest.param(249, ("", "a", "+a*a"), _TOO_DEEP, id="sums of products"),
        pytest.param(250, ("", "a", "==a"), _TOO_DEEP, id="comparisons"),
        pytest.param(250, ("", "[1]", ".map(x,x)"), _TOO_DEEP, id="chains of macros"),
    ],
)
def test_nesting(most, pieces, text):
    before, middle, after = pieces

    parse(before * most + middle + after * most)
    assert _refusal(before * (most + 1) + middle + after * (most + 1)) == text


@pytest.mark.parametrize("source", ["a" + "&&a" * 30_000, "!" * 99_999 + "a", "a" + ".a" * 49_990 + "{}"])
def test_what_may_be_long(source):
    parse(source)


def test_the_longest_source():
    parse("'" + "\u65e5" * 99_998 + "'")
    assert _refusal("#" * 100_001) == (
        "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100001, limit 100000"
    )


def test_nesting_costs_no_stack():
    limit = sys.getrecursionlimit()

    def at_the_bottom(levels):
        return at_the_bottom(levels - 1) if levels else parse("(" * 249 + "a" + ")" * 249)

    assert shown(at_the_bottom(limit - len(inspect.stack(0)) - 60)) == "a"


@pytest.mark.parametrize(
    ("source", "places"),
    [
        ("  a.b", {"Ident": 2, "Select": 3}),
        ("a.?b", {"Ident": 0, "Select": 1}),
        (".a", {"Ident": 1}),
        ("a.f ()", {"Ident": 0, "Call": 4}),
        ("f(a)", {"Ident": 2, "Call": 1}),
        ("a[0]", {"Ident": 0, "Literal": 2, "Call": 1}),
        ("a + - 1", {"Ident": 0, "Literal": 4, "Call": 2}),
        (" [ a]", {"Ident": 3, "ListExpr": 1}),
        (" {a: 1}", {"Ident": 2, "Literal": 5, "MapExpr": 1}),
        ("a.C{x: 1}", {"Literal": 7, "StructExpr": 3}),
        ("'\u65e5' in a", {"Ident": 7, "Literal": 0, "Call": 4}),
    ],
)
def test_places(source, places):
    assert {type(each).__name__: each.at for each in _nodes(parse(source))} == places


def _nodes(node):
    yield node
    children = [getattr(node, name, None) for name in ("operand", "target")]
    children += [*getattr(node, "args", ()), *getattr(node, "elements", ())]
    children += [part for entry in getattr(node, "entries", ()) for part in entry if not isinstance(part, str)]
    for child in children:
        if child is not None:
            yield from _nodes(child)


_PIECES = st.sampled_from(
    [
        *("a", "x", "f(", "has(", ".all(x,", ".map(x,y,", "cel.bind(x,", ".optMap(y,", ".sortBy(e,", "T{", "x:", "in"),
        *("(", ")", "[", "]", "{", "}", ",", ":", "?", ".", ".?", "[?", "+", "-", "*", "/", "%", "==", "!=", "<", ">="),
        *("&&", "||", "!", "1", "2u", "1.5", ".5", "0x1F", "'s'", "b's'", "r'\\'"),
        *("true", "false", "null", "as", "`q`"),
        *("//", "#", "=", "&", "'", '"', "'''", '"""', "\\", "\\x4", "\u00e9", " ", "\n", "\r"),
    ]
)


@given(st.one_of(st.text(), st.lists(_PIECES, max_size=40).map("".join)))
def test_any_text_is_a_tree_or_refused(source):
    told = "ERROR: <input>:"
    try:
        shown(parse(source))
    except CompileError as error:
        told = str(error)
    assert told.startswith("ERROR: <input>:")


_EXPRESSIONS = st.recursive(
    st.sampled_from(["a", "1", "'s'", "null", ".b"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "*", "==", "in", "&&", "||", "-", "%"]), inner).map(" ".join),
        st.tuples(inner, inner, inner).map(lambda parts: "{} ? ({}) : {}".format(*parts)),
        inner.map("({})".format),
        inner.map("!({})".format),
        inner.map("({}).b".format),
        st.tuples(inner, inner).map(lambda parts: "({})[{}]".format(*parts)),
        st.lists(inner, max_size=3).map(lambda parts: f"f({', '.join(parts)})"),
        st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]"),
    ),
    max_leaves=12,
)


@given(_EXPRESSIONS)
def test_brackets_that_change_nothing_change_nothing(source):
    tree = shown(parse(source))

    assert shown(parse(f"(({source}))")) == tree
    assert shown(parse(f"f({source})")) == f"f({tree})"
    assert shown(parse(source.replace(" ", "\n//'\n"))) == tree


def test_an_optional_is_computed_once():
    """cel-go writes it twice, and doubles the tree with every link of a chain; a name holds it here."""
    assert shown(parse("a.?b.optMap(x, y)")) == (
        "fold(#unused in [], @optMap_target: a.?b, False, @optMap_target, "
        "_?_:_(@optMap_target.hasValue(), "
        "optional.of(fold(#unused in [], x: @optMap_target.value(), False, x, y)), optional.none()))"
    )
    assert len(shown(parse("a.?b" + ".optMap(x, x)" * 100))) < 100_000


def test_nodes_are_not_shared():
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
