"""Types of expressions, with functions of the test's own; goldens/ has upstream's messages."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from scheduler.cel.check.checker import check, qualified_name
from scheduler.cel.check.types import (
    BOOL,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    A,
    B,
    Env,
    ObjectType,
    Overload,
    Type,
    assign,
    declared,
    list_of,
    map_of,
    more_general,
    optional_of,
    shown,
    substitute,
    type_of,
    variable,
)
from scheduler.cel.errors import CompileError, Issue, report
from scheduler.cel.syntax.parser import parse


def _never(*_args: object) -> None:
    raise AssertionError("nothing is evaluated here")


def overload(name: str, *params: Type, gives: Type, member: bool = False) -> Overload:
    """One whose id says it all."""
    return Overload(f"{name}({', '.join(map(str, params))})", name, params, gives, _never, member=member)


BOX = ObjectType("test.Box", {"width": INT, "labels": map_of(STRING, STRING)})
OVERLOADS = (
    overload("_&&_", BOOL, BOOL, gives=BOOL),
    overload("_==_", A, A, gives=BOOL),
    overload("_+_", INT, INT, gives=INT),
    overload("_+_", STRING, STRING, gives=STRING),
    overload("_[_]", list_of(A), INT, gives=A),
    overload("_[_]", map_of(A, B), A, gives=B),
    overload("pair", A, A, gives=list_of(A)),
    overload("swap", map_of(A, B), gives=map_of(B, A)),
    overload("space.name", INT, gives=INT),
    overload("name", INT, gives=STRING, member=True),
)
FUNCTIONS: dict[str, tuple[Overload, ...]] = {
    name: tuple(each for each in OVERLOADS if each.name == name) for name in {each.name for each in OVERLOADS}
}
VARIABLES = {"n": INT, "s": STRING, "d": DYN, "box": Type("test.Box"), "o": optional_of(map_of(STRING, INT))}
ENV = Env({**VARIABLES, "int": type_of(INT)}, FUNCTIONS, {"test.Box": BOX})


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("n", INT),
        (".n", INT),
        ("box.width", INT),
        ("box.labels.any", STRING),
        ("d.anything.at.all", DYN),
        ("o.key", optional_of(INT)),
        ("box.?width", optional_of(INT)),
        ("has(box.width)", BOOL),
        ("pair(1, n)", list_of(INT)),
        ("pair(1, d)", list_of(DYN)),
        ("pair([], [1])", list_of(list_of(INT))),
        ("swap({'a': [1]})", map_of(list_of(INT), STRING)),
        ("swap({})", map_of(DYN, DYN)),
        ("d + 1", INT),
        ("d + d", DYN),
        ("[1][0]", INT),
        ("{'a': null}", map_of(STRING, NULL)),
        ("space.name(1)", INT),
        ("n.name()", STRING),
        ("int", type_of(INT)),
        ("test.Box", type_of(Type("test.Box"))),
        ("test.Box{width: 1}.width", INT),
        ("[1, 'a']", list_of(DYN)),
        ("[?o, ?o]", list_of(map_of(STRING, INT))),
    ],
)
def test_types(source, wanted):
    """What is not known is dyn, in the end."""
    assert wanted == check(parse(source), source, ENV).result


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("n == s", ["<input>:1:3: found no matching overload for '_==_' applied to '(int, string)'"]),
        ("s.name()", ["<input>:1:7: found no matching overload for 'name' applied to 'string.()'"]),
        (
            "pair([], {})",
            ["<input>:1:5: found no matching overload for 'pair' applied to '(list(dyn), map(dyn, dyn))'"],
        ),
        ("box.depth", ["<input>:1:4: undefined field 'depth'"]),
        ("n.depth", ["<input>:1:2: type 'int' does not support field selection"]),
        ("a && b", ["<input>:1:1: undeclared reference to 'a'", "<input>:1:6: undeclared reference to 'b'"]),
        ("n && true", ["<input>:1:1: expected type 'bool' but found 'int'"]),
        ("f(a)", ["<input>:1:2: undeclared reference to 'f'", "<input>:1:3: undeclared reference to 'a'"]),
        ("[?n]", ["<input>:1:3: expected type 'optional_type(int)' but found 'int'"]),
        ("n{}", ["<input>:1:2: 'int' is not a type"]),
        ("int{}", ["<input>:1:4: 'int' is not a message type"]),
        ("no.Such{}", ["<input>:1:8: undeclared reference to 'no.Such'"]),
        ("cel.bind(x, 1, x == s)", ["<input>:1:18: found no matching overload for '_==_' applied to '(int, string)'"]),
    ],
)
def test_errors(source, wanted):
    """All of them, in the order of their places, and none twice."""
    with pytest.raises(CompileError) as raised:
        check(parse(source), source, ENV)

    found = [line.removeprefix("ERROR: ") for line in str(raised.value).splitlines() if line.startswith("ERROR")]
    assert len(wanted) == len(found)
    assert all(line.startswith(start) for line, start in zip(found, wanted)), found


def test_which_overloads_may_be_meant():
    """One where the types are known; several where an argument is dyn."""
    known, unknown = (parse(source) for source in ("1 + n", "d + d"))

    assert ["_+_(int, int)"] == [each.id for each in check(known, "", ENV).calls[known]]
    assert [INT, STRING] == [each.result for each in check(unknown, "", ENV).calls[unknown]]


def test_a_variable_of_a_loop_hides_others():
    """Inside its loop only."""
    source = "cel.bind(n, 'text', n) + s == s && n == 1"

    assert check(parse(source), source, ENV).result == BOOL


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
    """In both directions, and a variable may stand for it."""
    assert assign({}, [type_], [type_])
    assert assign({}, [type_], [DYN])
    assert assign({}, [DYN], [type_])
    bound: dict[str, Type] = {}
    assert assign(bound, [type_], [variable(0)])
    assert type_ == substitute(bound, variable(0))


@given(TYPES, TYPES)
def test_fitting_has_no_direction_between_known_types(one, other):
    """And of two that fit each other, one is the more general."""
    fits = assign({}, [one], [other])

    assert fits is assign({}, [other], [one])
    if fits:
        assert more_general(one, other) in {one, other}


def test_a_variable_does_not_contain_itself():
    """`list(A)` is no A."""
    bound: dict[str, Type] = {}
    assert not assign(bound, [list_of(variable(0))], [variable(0)])
    assert not bound


def test_how_types_are_written():
    """Messages of the checker are short, the one about the result is not."""
    type_ = map_of(NULL, list_of(TIMESTAMP))

    assert shown(type_) == "map(null, list(timestamp))"
    assert declared(type_) == "map(null_type, list(google.protobuf.Timestamp))"


@pytest.mark.parametrize(
    ("source", "at", "wanted"),
    [
        ("ab", 1, "ERROR: <input>:1:2: no\n | ab\n | .^"),
        ("a\n\tb", 3, "ERROR: <input>:2:2: no\n |  b\n | .^"),
        ("ä.ö", 2, "ERROR: <input>:1:3: no\n | ä.ö\n | ．.＾"),
        ("", 0, "ERROR: <input>:1:1: no\n | \n | ^"),
        ("x" * 16385, 1, "ERROR: <input>:1:2: no"),
    ],
    ids=["a line", "a later line with a tab", "wide characters", "nothing", "a line that is too long to show"],
)
def test_pictures(source, at, wanted):
    """The place of an error is shown under its line."""
    assert wanted == report(source, [Issue(at, "no")])


def test_many_errors():
    """A hundred are enough."""
    lines = report("a b", [Issue(2, "later"), *(Issue(0, str(number)) for number in range(120))]).splitlines()

    assert lines[-4:-1] == ["ERROR: <input>:1:3: later", " | a b", " | ..^"]
    assert lines[-1] == "21 more errors were truncated"
