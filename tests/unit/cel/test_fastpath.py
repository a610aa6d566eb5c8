"""Generated code against closures: the same values, errors, costs, and the limit where it strikes (docs/spec/cel.md)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from scheduler.cel.environment import KUBERNETES
from scheduler.cel.program import compile_expression
from scheduler.cel.types import DYN, INT, STRING, list_of, map_of, optional_of
from scheduler.cel.values import CelError, CompileError, CostExceeded, Optional, UInt
from tests.examples import SLOW_SHARE, examples
from tests.unit.cel.twopaths import LEFT, answer, closures_of, generated, strict

ENV = KUBERNETES.extended(
    {"m": map_of(STRING, DYN), "x": DYN, "n": INT, "l": list_of(INT), "s": STRING, "o": optional_of(DYN)}
)
M = {"a": 1, "b": True, "c": "text", "l": [1, 2], "k": "a", "d": {"e": "f"}}
BINDINGS: dict[str, Any] = {"m": M, "x": 1.5, "n": 7, "l": [1, 2, 3], "s": "some text", "o": Optional({"k": 5})}

# --- expressions ----------------------------------------------------------------------------------------------------

_LEAVES = {
    "bool": [
        "true",
        "false",
        "m.b",
        "x",
        "has(m.a)",
        "has(m.gone)",
        "m.gone",
        "'a' in m",
        "n in [1, 7]",
        "m.c in ['text']",
    ],
    "int": ["0", "1", "-3", "n", "m.a", "l[0]", "l[n]", "9223372036854775807", "size(s)", "m.l[1]", "o.k.orValue(2)"],
    "text": [
        "'a'",
        "''",
        "s",
        "m.c",
        "m.gone",
        "m.d.e",
        "m.?c.orValue('none')",
        "m.?gone.orValue('none')",
        "string(n)",
    ],
    "list": [
        "[]",
        "l",
        "[1, 2]",
        "[n, 1]",
        "m.l",
        "lists.range(4)",
        "lists.range(n)",
        "x",
        "[x]",
        "dyn([1u, 2.0, 'c'])",
    ],
    "map": ["m", "{'a': n}", "{1: 2}", "{true: n, false: 1}", "x"],
    "dyn": ["x", "m.a", "m.c", "null", "1u", "2.5", "o.?k", "quantity('1Gi')"],
}
_FORMS = {
    "bool": [
        "({bool} && {bool})",
        "({bool} || {bool})",
        "({bool} && {bool} && {bool})",
        "!{bool}",
        "({bool} ? {bool} : {bool})",
        "({int} < {int})",
        "({dyn} >= {int})",
        "({int} == {int})",
        "({dyn} == {int})",
        "({dyn} != {dyn})",
        "({dyn} == {text})",
        "({text} != {text})",
        "({text} <= {text})",
        "{text}.startsWith({text})",
        "{text}.contains({text})",
        "{text}.matches('^[a-z]+$')",
        "{list}.all(VAR, {bool})",
        "{list}.exists(VAR, VAR == {dyn})",
        "{list}.exists_one(VAR, {bool})",
        "{list}.all(VAR, VAR > {int})",
        "{list}.exists(VAR, OTHER, VAR == OTHER || {bool})",
        "{map}.all(VAR, {bool})",
        "{map}.exists(VAR, OTHER, OTHER == {dyn})",
        "({int} in {list})",
        "({text} in {map})",
        "({dyn} in [1, 2.0, 'text', true])",
        "({int} / {int} == {dyn} || {bool})",
        "({dyn} < {dyn} && {bool})",
        "({list} == {list})",
        "isQuantity({text})",
        "isSemver({text})",
        "quantity({text}).isLessThan(quantity('1k'))",
        "semver({text}).isLessThan(semver('1.2.3'))",
        "isIP({text})",
        "cidr('10.0.0.0/8').containsIP({text})",
        "isURL({text})",
        "(type({dyn}) == type({int}))",
        "(duration({text}) < duration('1h'))",
        "{text}.matches('a+b?$')",
        "{text}.matches({text})",
        "optional.of({int}).hasValue()",
        "cel.bind(VAR, {bool}, VAR || {bool} && VAR)",
        "sets.contains({list}, {list})",
    ],
    "int": [
        "({int} + {int})",
        "({int} - {int})",
        "({int} * {int})",
        "({int} / {int})",
        "({int} % 3)",
        "({int} / 2)",
        "({int} + {dyn})",
        "({bool} ? {int} : {int})",
        "{list}.size()",
        "size({text})",
        "{list}[{int}]",
        "{list}[0]",
        "cel.bind(VAR, {int}, VAR + {int} * VAR)",
        "int({text})",
        "{list}[?{int}].orValue({int})",
        "{text}.indexOf({text})",
        "{text}.findAll('[ab]').size()",
        "{list}.indexOf({int})",
        "l.sum()",
        "{list}.min()",
        "{list}.reverse().max()",
        "optional.of({int}).value()",
        "optional.none().value()",
        "quantity({int} > 2 ? '5' : {text}).add({int}).asInteger()",
    ],
    "text": [
        "({text} + {text})",
        "string({int})",
        "{text}.replace({text}, {text})",
        "{text}.upperAscii()",
        "{text}.substring({int})",
        "({bool} ? {text} : {text})",
        "'%d'.format([{int}])",
        "'%s-%.1f'.format([{dyn}, {dyn}])",
        "{text}.find('b.*')",
        "{text}.trim()",
        "['a', {text}].join({text})",
    ],
    "list": [
        "{list}.map(VAR, {int})",
        "{list}.map(VAR, VAR)",
        "{list}.map(VAR, {bool}, VAR)",
        "{list}.filter(VAR, {bool})",
        "{list}.filter(VAR, VAR != {int})",
        "({list} + {list})",
        "[{int}, {int}]",
        "{list}.transformList(VAR, OTHER, VAR)",
        "{map}.transformList(VAR, OTHER, OTHER)",
        "{list}.reverse()",
        "[[{int}], {list}].flatten()",
        "cel.bind(VAR, {list}, VAR + VAR)",
        "{list}.sortBy(VAR, VAR)",
        "{list}.distinct()",
        "{list}.slice(0, 1).sort()",
    ],
    "map": [
        "{{'a': {int}, 'b': {int}}}",
        "{{{text}: {dyn}}}",
        "{map}.transformMap(VAR, OTHER, OTHER)",
        "{list}.transformMap(VAR, OTHER, {bool}, VAR)",
        "{list}.transformMapEntry(VAR, OTHER, {{OTHER: VAR}})",
    ],
    "dyn": [
        "dyn({int})",
        "dyn({text})",
        "dyn({bool})",
        "{list}[0]",
        "({bool} ? dyn({int}) : dyn({text}))",
        "{map}[{text}]",
    ],
}


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Well-formed, mostly well-typed, with the variables of the loops around a place in use there."""
    names = iter(range(1000))

    def made(sort: str, depth: int, scope: tuple[str, ...]) -> str:
        if depth == 0 or draw(st.integers(0, 3)) == 0:
            return draw(st.sampled_from([*_LEAVES[sort], *scope]))
        form = draw(st.sampled_from(_FORMS[sort]))
        number = next(names)
        inner = (*scope, f"v{number}", f"w{number}") if "OTHER" in form else (*scope, f"v{number}")
        body = inner if "VAR" in form else scope
        text, rest = "", form
        while rest:
            before, brace, rest = rest.partition("{")
            text += before.replace("}}", "}")
            if not brace:
                break
            if rest.startswith("{"):
                text, rest = text + "{", rest[1:]
                continue
            hole, _, rest = rest.partition("}")
            text += made(hole, depth - 1, body if "VAR" in text else scope)
        return text.replace("VAR", f"v{number}").replace("OTHER", f"w{number}")

    return made(draw(st.sampled_from(list(_FORMS))), draw(st.integers(1, 4)), ())


VARIABLES = st.fixed_dictionaries(
    {
        "m": st.just(M),
        "x": st.sampled_from([1.5, True, 3, "text", None, [1, 2, "a"], {"a": 1}, UInt(4), [True, False], Optional(3)]),
        "n": st.sampled_from([0, 1, 7, -2, 2**63 - 1]) | st.integers(0, 20),
        "l": st.lists(st.integers(-3, 9), max_size=4),
        "s": st.text("abc", max_size=40),
        "o": st.sampled_from([Optional({"k": 5}), Optional(present=False), Optional([1, 2])]),
    }
)


NOTHING = {"m": M, "x": 1.5, "n": 0, "l": [], "s": "", "o": Optional({"k": 5})}


@example("quantity(('a' + 'a')).isLessThan(quantity('1k'))", [NOTHING], 0)
@given(expressions(), st.lists(VARIABLES, min_size=1, max_size=3), st.integers(0, 400))
@settings(max_examples=examples(400, share=SLOW_SHARE), deadline=None)
def test_both_ways_are_one(source, settings_of_variables, limit):
    """What generated code answers is what closures answer, to the unit of cost; and so is where the limit strikes."""
    if "lists.range(n)" in source:
        settings_of_variables = [each | {"n": min(abs(each["n"]), 20)} for each in settings_of_variables]
    try:
        fast, uncounted = generated(source, ENV), generated(source, ENV, counts=False)
        limited = generated(source, ENV, limit=limit)
    except CompileError:
        return
    for bindings in settings_of_variables:
        expected = closures_of(source, ENV, bindings)
        assert answer(fast, bindings) in (expected, LEFT)
        assert answer(limited, bindings, limit=limit) in (closures_of(source, ENV, bindings, limit=limit), LEFT)
        without = answer(uncounted, bindings)
        assert without in (LEFT, expected) or without[0] == expected[0]


@given(expressions(), st.lists(VARIABLES, min_size=3, max_size=30))
@settings(max_examples=examples(100), deadline=None)
def test_a_program_answers_the_same_however_often_it_is_asked(source, settings_of_variables):
    """Before there is generated code, with it, and after it was given up."""
    try:
        program = compile_expression(source, ENV)
    except CompileError:
        return
    for bindings in settings_of_variables:
        if "lists.range(n)" in source and bindings["n"] > 20:
            continue
        outcomes = []
        for ask in (program.evaluate, lambda given: program.measure(given).value):
            try:
                outcomes.append(strict(ask(bindings)))
            except CelError as error:
                outcomes.append(f"{type(error).__name__}: {error}")

        assert outcomes[0] == outcomes[1]


# --- what must not be left to the closures, and where the limit is ---------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "n == 7 && m.b",
        "m.a + n > 3 || m.c == 'text'",
        "m.c in ['text', 'other']",
        "l.all(v, v > 0)",
        "l.exists(v, v == 2)",
        "l.exists_one(v, v == 2)",
        "l.map(v, v * 2).filter(v, v % 4 == 0).size() == 1",
        "l.transformMap(i, v, i < 2, v)",
        "l.transformMapEntry(i, v, {v: i})",
        "m.transformList(k, v, k)",
        "m.?c.orValue('x') + m.?gone.orValue('y')",
        "cel.bind(v, m.d, v.e + v.e)",
        "has(m.a) && !has(m.gone)",
        "(n > 3 ? l : [n])[1]",
        "lists.range(10).all(a, lists.range(10).all(b, string(a) + string(b) != s))",
        "quantity('1Gi').isGreaterThan(quantity('1Mi'))",
        "s.replace('e', 'ee').split(' ').join('-').upperAscii()",
        "{'a': n, s: 2}[s] == 2",
        "[[1, 2], l].flatten().sum() + l.sortBy(v, -v)[0]",
        "s.findAll('te').size() + s.findAll('t', 1).size()",
        "(dyn('a') ? 1 : 2) == 1 || n == 7",
        "dyn('text').foo == 1 || n == 7",
        "dyn('text')['a'] == 1 || n == 7",
    ],
)
def test_ordinary_expressions_are_answered(source):
    """And not by chance: the law would hold of code that never has an answer, too."""
    assert closures_of(source, ENV, BINDINGS) == answer(generated(source, ENV), BINDINGS)


LOOPS = [
    "lists.range(9).all(a, lists.range(9).exists(b, a * b == 8 || a + b == a))",
    "lists.range(9).map(a, lists.range(9).filter(b, a < b)).size() > 0",
    "lists.range(9).exists_one(a, a == 3 ? s + s == '' : a > 7)",
    "lists.range(9).transformMap(i, v, string(v) + s).size() > 0",
    "[lists.range(20) + lists.range(20), l].exists(v, v.size() == 40)",
]


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize(
    "source",
    [
        "l[n - 8] == 3",
        "l[-1] == 3",
        "[1, 2][n - 8] == 2",
        "l.exists(i, l[i - 2] == 3)",
        "s.split(' ')[-1] == 'text'",
        "s.split(' ')[s.indexOf('zz')] == 'text'",
    ],
)
def test_an_index_before_the_beginning_of_a_list_is_an_error(source, counts):
    """It does not count from the end, in generated code either."""
    error = "EvalError: index out of bounds: -1"
    fast = generated(source, ENV, counts=counts)

    assert error == closures_of(source, ENV, BINDINGS)
    assert answer(fast, BINDINGS) == (error if fast is not None and fast.tells else LEFT)


@pytest.mark.parametrize(
    "share",
    [pytest.param(0.05, id="some limits"), pytest.param(1.0, id="all limits", marks=pytest.mark.nightly)],
)
@pytest.mark.parametrize("source", LOOPS)
def test_the_limit_strikes_at_the_same_cost(source, share):
    """One unit less than an evaluation costs is too little, and every limit below."""
    value, cost = closures_of(source, ENV, BINDINGS)
    assert (value, cost) == answer(generated(source, ENV), BINDINGS)
    for limit in {*range(0, cost + 2, round(1 / share)), cost - 1, cost, cost + 1}:
        expected = closures_of(source, ENV, BINDINGS, limit=limit)

        assert expected == answer(generated(source, ENV, limit=limit), BINDINGS, limit=limit)
    assert isinstance(closures_of(source, ENV, BINDINGS, limit=cost - 1), str)


def test_what_runs_long_is_taken_over():
    """In the first evaluation, with the closures' verdict."""
    program = compile_expression("lists.range(1000).all(a, lists.range(1000).all(b, a + b >= 0))", ENV)

    with pytest.raises(CostExceeded, match=r"^operation cancelled: actual cost limit exceeded$"):
        program.evaluate(BINDINGS)
    assert program.is_generated


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, CostExceeded])
def test_generated_code_can_be_stopped(error):
    """What the check raises comes out as it is, and costs the code no trust."""
    program = compile_expression("lists.range(3000).all(a, a >= 0) || true", ENV)
    assert program.evaluate(BINDINGS) is True
    assert program.is_generated
    calls = 0

    def stop_at_third() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise error

    with pytest.raises(error):
        program.evaluate({}, check=stop_at_third)
    assert calls == 3
    assert program.evaluate(BINDINGS, check=lambda: None) is True


def test_code_that_has_no_answers_is_given_up():
    """Errors are the closures', and asking both would take longer than asking one."""
    program = compile_expression("m.gone == 1 || n == 7", ENV)

    assert {program.evaluate(BINDINGS) for _ in range(60)} == {True}

    assert not program.is_generated


@pytest.mark.parametrize(
    "source",
    [
        "lists.range(100).map(v, s).join('').replace('', lists.range(9000).map(v, s).join(''))",
        "lists.range(9000).map(v, string(v)).join(lists.range(9000).map(v, s).join(''))",
        "lists.range(9000).map(v, l2).flatten()",
        "'%s%s'.format([lists.range(9000).map(v, l2), 1])",
        "lists.range(9223372036854775807)",
        "lists.range(999990)",
    ],
    ids=["replace", "join", "flatten", "format", "a range without end", "a range that costs too much"],
)
def test_what_would_fill_the_memory_is_not_made(source):
    """Its parts are cheap, and upstream charges no more than for them."""
    source = f"cel.bind(l2, lists.range(9000), {source}.size() > 0 || l2.size() > 0)"
    bindings = BINDINGS | {"s": "a text of some twenty letters"}
    expected = "CostExceeded: operation cancelled: actual cost limit exceeded"

    assert expected == closures_of(source, ENV, bindings)
    assert expected == answer(generated(source, ENV), bindings)
