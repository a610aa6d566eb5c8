"""Types of expressions, with functions of the test's own; goldens/ has upstream's messages."""

from __future__ import annotations

from hypothesis import given, strategies as st

from scheduler.cel.check.checker import qualified_name
from scheduler.cel.check.types import (
    BOOL,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    Inference,
    declared,
    list_of,
    map_of,
    more_general,
    optional_of,
    shown,
)
from scheduler.cel.errors import Issue, report
from scheduler.cel.syntax.parser import parse


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
    assert type_ == inference.known(variable)


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
    assert variable == inference.known(variable)


def test_how_types_are_written():
    type_ = map_of(NULL, list_of(TIMESTAMP))

    assert shown(type_) == "map(null, list(timestamp))"
    assert declared(type_) == "map(null_type, list(google.protobuf.Timestamp))"


def test_many_errors():
    lines = report("a b", [Issue(2, "later"), *(Issue(0, str(number)) for number in range(120))]).splitlines()

    assert lines[-4:-1] == ["ERROR: <input>:1:3: later", " | a b", " | ..^"]
    assert lines[-1] == "21 more errors were truncated"
