"""Trees and refusals of the parser. goldens/parser.json has those of cel-go v0.26 by rule; `shown` writes the trees."""

from __future__ import annotations

import inspect
import json
import math
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from scheduler.cel.errors import CompileError
from scheduler.cel.syntax.ast import Literal
from scheduler.cel.syntax.parser import parse
from scheduler.cel.values import UInt
from tests.unit.cel.trees import shown

_OPERAND = (
    "'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER"
)


def _refusal(source):
    with pytest.raises(CompileError) as caught:
        parse(source)
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("null", None),
        ("true", True),
        ("false", False),
        ("0", 0),
        ("007", 7),
        ("-1", -1),
        ("- 1", -1),
        ("0x1F", 31),
        ("9223372036854775807", (1 << 63) - 1),
        ("-9223372036854775808", -1 << 63),
        ("-0x8000000000000000", -1 << 63),
        pytest.param("0" * 5000 + "1", 1, id="more zeros than Python reads"),
        ("1u", UInt(1)),
        ("0xfU", UInt(15)),
        ("18446744073709551615u", UInt((1 << 64) - 1)),
        ("1.5", 1.5),
        (".5", 0.5),
        ("-.5", -0.5),
        ("1e3", 1000.0),
        ("1.5E-3", 0.0015),
        ("1e-400", 0.0),
        ("'a'", "a"),
        ('"a"', "a"),
        ("''", ""),
        ("'''a'b''c\n'''", "a'b''c\n"),
        ('"""a"b"""', 'a"b'),
        ("''''a'''", "'a"),
        ("'''\r\n\r'''", "\n\n"),
        (r"r'\n'", r"\n"),
        (r"R'''\'''", "\\"),
        (r"'\a\b\f\n\r\t\v\\\'\"\`\?'", "\a\b\f\n\r\t\v\\'\"`?"),
        (r"'\x41\X7e\101\u00e9\U0001d11e'", "A~A\u00e9\U0001d11e"),
        (r"'\xff\377'", "\u00ff\u00ff"),
        ("'\u65e5\u672c'", "\u65e5\u672c"),
        ("b'a'", b"a"),
        (r"b'\xff\377\n'", b"\xff\xff\n"),
        ("b'\u00e9'", "\u00e9".encode()),
        (r"br'\x'", rb"\x"),
        (r"bR'''\n'''", rb"\n"),
    ],
)
def test_literals(source, value):
    """Every way to write a value, with the type that it has."""
    node = parse(source)

    assert isinstance(node, Literal)
    assert (type(node.value), node.value) == (type(value), value)


def test_the_sign_of_zero_is_read():
    """-0.0 is a literal of its own."""
    node = parse("-0.0")

    assert isinstance(node, Literal)
    assert math.copysign(1, node.value) == -1


_RULES = json.loads((Path(__file__).parent / "goldens" / "parser.json").read_text())


@pytest.mark.parametrize("rows", _RULES.values(), ids=_RULES)
def test_goldens(rows):
    """What binds to what, and the place and the words of every refusal. The name of an optional differs: see test_macros."""
    found = {}
    for source in rows:
        try:
            found[source] = shown(parse(source))
        except CompileError as error:
            found[source] = str(error)

    assert rows == found


def test_there_is_something_to_compare():
    """A file that was cut short would pass too."""
    assert [59, 24, 12, 37, 17] == [len(rows) for rows in _RULES.values()]


def test_nothing_at_all():
    """An empty expression has no line to show."""
    assert _refusal("") == f"ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting {{{_OPERAND}}}"


def test_all_that_is_wrong_is_told():
    """Up to the first error of syntax, in the order of the places; wide characters have wide marks below them."""
    assert _refusal("'\u65e5' + if + \u672c 1 2").splitlines() == [
        "ERROR: <input>:1:7: reserved identifier: if",
        " | '\u65e5' + if + \u672c 1 2",
        " | .\uff0e....^",
        "ERROR: <input>:1:12: Syntax error: token recognition error at: '\u672c'",
        " | '\u65e5' + if + \u672c 1 2",
        " | .\uff0e.........\uff3e",
        "ERROR: <input>:1:16: Syntax error: extraneous input '2' expecting <EOF>",
        " | '\u65e5' + if + \u672c 1 2",
        " | .\uff0e.........\uff0e...^",
    ]


@pytest.mark.parametrize(
    ("source", "at", "text"),
    [
        ("a = b", 3, "= "),
        ("a & b", 3, "& "),
        ("#", 1, "#"),
        ('"abc', 1, '"abc'),
        (r"'\q'", 1, r"'\q"),
        (r"'\xg'", 1, r"'\xg"),
        (r'"\u12"', 1, r'"\u12"'),
        (r"'\08'", 1, r"'\08"),
        ("'''a", 3, "'a"),
        ("``", 1, "``"),
    ],
)
def test_what_is_no_token(source, at, text):
    """Told up to and with the character that makes it none."""
    first = _refusal(source).split("\n")[0]

    assert first == f"ERROR: <input>:1:{at}: Syntax error: token recognition error at: '{text}'"


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
        pytest.param(124, ("(1+", "1", ")"), _TOO_NESTED, id="sums in sums: two levels each"),
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
    """As deep as cel-go allows, and no deeper."""
    before, middle, after = pieces

    parse(before * most + middle + after * most)
    assert _refusal(before * (most + 1) + middle + after * (most + 1)) == text


@pytest.mark.parametrize("source", ["a" + "&&a" * 30_000, "!" * 99_999 + "a", "a" + ".a" * 49_990 + "{}"])
def test_what_may_be_long(source):
    """Chains of logic are balanced, signs cancel each other, and a type's name is one name."""
    parse(source)


def test_the_longest_source():
    """In code points, counted before anything is read."""
    parse("'" + "\u65e5" * 99_998 + "'")
    assert _refusal("#" * 100_001) == (
        "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100001, limit 100000"
    )


def test_nesting_costs_no_stack():
    """The parser may be called where Python's stack is nearly full."""
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
    """Of the token that makes a node what it is, in code points: messages point there."""
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
        *(
            "&&",
            "||",
            "!",
            "1",
            "2u",
            "1.5",
            ".5",
            "0x1F",
            "'s'",
            "b's'",
            "r'\\'",
            "true",
            "false",
            "null",
            "as",
            "`q`",
        ),
        *("//", "#", "=", "&", "'", '"', "'''", '"""', "\\", "\\x4", "\u00e9", " ", "\n", "\r"),
    ]
)


@given(st.one_of(st.text(), st.lists(_PIECES, max_size=40).map("".join)))
def test_any_text_is_a_tree_or_refused(source):
    """Nothing but CompileError, and always with a place."""
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
    """What may stand alone may stand in parentheses, as an argument and between ends of lines, and is the same."""
    tree = shown(parse(source))

    assert shown(parse(f"(({source}))")) == tree
    assert shown(parse(f"f({source})")) == f"f({tree})"
    assert shown(parse(source.replace(" ", "\n//'\n"))) == tree
