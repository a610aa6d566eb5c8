"""What upstream charges next to nothing for ends before it holds everybody up; what is told of errors, and remembered."""

from __future__ import annotations

import pytest

from scheduler.cel.environment import KUBERNETES
from scheduler.cel.libraries.remembered import remembered
from scheduler.cel.pace import LETTERS, PACE
from scheduler.cel.program import compile_expression
from scheduler.cel.values import CostExceeded, EvalError
from tests.unit.cel.test_fastpath import BINDINGS, ENV
from tests.unit.cel.twopaths import answer, closures_of, generated

_FAR = 10**9
_EXCEEDED = "CostExceeded: operation cancelled: actual cost limit exceeded"


@pytest.mark.parametrize(
    ("held", "often"),
    [
        pytest.param("lists.range(100000)", "(h + h).size() > 0", id="sums of lists"),
        pytest.param("[lists.range(100000)]", "'%s'.format(h) != ''", id="format"),
        pytest.param("[lists.range(100000)]", "h.flatten().size() > 0", id="flatten"),
        pytest.param("lists.range(100000).map(i, '')", "h.join() == ''", id="join of nothing"),
        pytest.param("[lists.range(100000)]", "h == [lists.range(1000)] || h == h", id="equality of what is inside"),
        pytest.param("[lists.range(100000)]", "!(h != h)", id="inequality"),
        pytest.param("[[lists.range(100000)]]", "h[0] in h", id="in"),
        pytest.param("[[lists.range(100000)]]", "sets.contains(h, h)", id="sets"),
        pytest.param("lists.range(9000).map(i, '')", "h.isSorted()", id="order of short texts"),
        pytest.param("lists.range(9000).map(i, b'')", "h.min() == h.max()", id="the least of short bytes"),
        pytest.param(
            "lists.range(9000).map(i, '')", "h.indexOf('x') == h.lastIndexOf('x')", id="a search among short texts"
        ),
        pytest.param("lists.range(30000).map(i, 'a').join()", "h.findAll('(a)').size() > 0", id="findAll"),
        pytest.param("lists.range(4000).map(i, 'a').join()", "h.findAll('a*b|').size() > 0", id="looking far ahead"),
        pytest.param("lists.range(9000).map(i, dyn(i))", "h.sort().size() > 0", id="order of what nobody knew"),
        pytest.param("lists.range(9000)", "h.sortBy(i, dyn(-i)).size() > 0", id="order by what nobody knew"),
        pytest.param("lists.range(9000).map(i, 'a').join()", "!h.matches('((a{20}){40})*b')", id="large patterns"),
        pytest.param("0", "!'x'.matches('[a-z]+' + string(a))", id="a pattern each turn"),
        pytest.param("0", "!'x'.matches('(' + string(a)) || true", id="a bad pattern each turn"),
        pytest.param("0", "timestamp(a).getHours('no zone ' + string(a)) == 1 || true", id="a bad zone each turn"),
        pytest.param("{'a': [1]}", " && ".join(["h == h"] * 9), id="equality of small maps"),
        pytest.param("['a', 'b']", " && ".join(["h.isSorted()"] * 9), id="order of a few texts"),
    ],
)
def test_cheap_work_without_end_is_ended(held, often):
    """Whichever way it is evaluated. Each turn costs so little that the limit of costs would be far away."""
    source = f"cel.bind(h, {held}, lists.range(100000).all(a, {often}))"

    assert closures_of(source, ENV, BINDINGS) == _EXCEEDED
    assert answer(generated(source, ENV), BINDINGS) == _EXCEEDED


@pytest.mark.parametrize(
    "reads",
    [
        pytest.param('url("https://u%20@h" + TEXT + ".com/%20").getHost() != ""', id="odd URLs"),
        pytest.param('isURL("http://[fe80::1%25en" + TEXT + "]:80/")', id="whether they are URLs"),
        pytest.param('ip("fe80::" + TEXT).family() == 6', id="addresses"),
        pytest.param('isIP("fe80::" + TEXT)', id="whether they are addresses"),
        pytest.param('ip.isCanonical("fe80::" + TEXT) || true', id="whether they are canonical"),
        pytest.param('cidr("fe80::" + TEXT + "/64").prefixLength() == 64', id="networks"),
        pytest.param('isCIDR("fe80::" + TEXT + "/64")', id="whether they are networks"),
        pytest.param('semver("1.2.3-rc." + TEXT).major() == 1', id="versions"),
        pytest.param('semver("v1." + TEXT, true).major() == 1', id="lax versions"),
        pytest.param('isSemver("1.2.3-rc." + TEXT)', id="whether they are versions"),
        pytest.param('isSemver("v1." + TEXT, true)', id="whether they are lax versions"),
        pytest.param('quantity(TEXT + "Mi").isInteger()', id="quantities"),
        pytest.param('isQuantity(TEXT + "Mi")', id="whether they are quantities"),
        pytest.param('duration("1h" + TEXT + "m") > duration("0s")', id="durations"),
        pytest.param("timestamp(TEXT) > timestamp(0) || true", id="times"),
        pytest.param("!format.dns1123Label().validate(TEXT).hasValue()", id="formats"),
        pytest.param('strings.quote(TEXT) != ""', id="quotes"),
        pytest.param('TEXT.replace("a", "b") == TEXT', id="replacements"),
        pytest.param('TEXT.indexOf("x") < 0', id="the first place"),
        pytest.param('TEXT.lastIndexOf("x") < 0', id="the last place"),
        pytest.param('bytes(TEXT) != b""', id="bytes"),
    ],
)
def test_texts_that_take_long_to_read_are_read_so_often(reads):
    """Whatever they cost; and far more often than anybody needs."""
    some, many = (f"lists.range({n}).all(a, {reads.replace('TEXT', 'string(a)')})" for n in (100, 61000))

    _ends_for_its_time(some, many)


def _ends_for_its_time(some, many):
    assert compile_expression(some, ENV).evaluate(BINDINGS) is True
    assert answer(generated(some, ENV), BINDINGS) == closures_of(some, ENV, BINDINGS)
    assert closures_of(many, ENV, BINDINGS, limit=_FAR) == _EXCEEDED
    assert answer(generated(many, ENV, limit=_FAR), BINDINGS, limit=_FAR) == _EXCEEDED


@pytest.mark.parametrize(
    "reads",
    [
        pytest.param("isURL('/' + h)", id="URLs"),
        pytest.param("ip(h).family() == 6 || true", id="addresses"),
        pytest.param("isCIDR(h) || true", id="networks"),
        pytest.param("duration(h) == duration('0s') || true", id="durations"),
        pytest.param("int(h) == 1 || true", id="integers"),
        pytest.param("uint(h) == 1u || true", id="unsigned ones"),
        pytest.param("double(h) == 1.0 || true", id="doubles"),
        pytest.param("strings.quote(h) != ''", id="quotes"),
        pytest.param("h.lowerAscii() == h", id="small letters"),
        pytest.param("h.upperAscii() == h", id="large letters"),
    ],
)
def test_each_letter_of_a_text_that_is_read_takes_its_time(reads):
    """And so a few hundred long ones are enough."""
    few, many = (
        f"cel.bind(h, lists.range(1000).map(i, '111').join(), lists.range({n}).all(a, {reads}))" for n in (10, 700)
    )

    _ends_for_its_time(few, many)


def test_all_that_is_read_by_letters_has_a_pace():
    """Its calls take time, too."""
    assert set(LETTERS) <= set(PACE)


def test_a_strain_is_of_one_evaluation():
    """And not of all of them together, or a program would be of no use after a while."""
    program = compile_expression("cel.bind(h, lists.range(10000), lists.range(200).all(a, (h + h).size() > 0))", ENV)

    assert {program.evaluate(BINDINGS) for _ in range(8)} == {True}
    assert program.is_generated


def test_a_pattern_is_paid_once_while_it_is_in_use():
    """A few of them, however often, take no longer than one."""
    source = "lists.range(60).all(a, lists.range(300).all(b, !'x'.matches('[a-w]+' + string(a % 3))))"

    assert compile_expression(source, ENV).evaluate(BINDINGS) is True
    assert closures_of(source, ENV, BINDINGS)[0] == ("bool", "True")


ERRORS = [
    "l.all(v, 1 / (v - 2) == 1)",
    "l.all(v, 1 / (v - 2) != 1 || true)",
    "l.exists(v, l[v] == 1) || n == 7",
    "l.exists(v, l[v + 5] == 1 && m.gone)",
    "l.all(v, m.gone == v)",
    "l.all(v, m.gone == v || m.a == 1)",
    "l.all(v, x < m.c || v > 0)",
    "l.all(v, 9223372036854775807 + v == 1)",
    "l.all(v, x)",
    "l.exists(v, int('x' + string(v)) == 1) || true",
    "l.all(v, quantity('x' + string(v)).isInteger() || v > 0)",
    "l.all(v, [dyn(v), m.gone] == l || {'a': m.gone}.a == 1 || v > 0)",
    "l.all(v, (m.gone ? 1 : 2) == 1 || !m.gone || -m.gone == 1 || v > 0)",
    "l.all(v, cel.bind(w, m.gone, w == 1 || w == 2 || v > 0))",
    "cel.bind(w, 1 / (n - 7), l.all(v, w == 1 || w + v == 2 || v > 0))",
    "l.all(v, l.exists(w, l[w + v] == 1) || true)",
    "m.gone == 1 || l.all(v, v > 0)",
    "l.all(v, optional.none().value() == v || true)",
    "l.all(v, m.c in x || true)",
    "l.map(v, v)[7] == 1 || l.all(v, true)",
    "l.map(v, 1 / (v - 2)).size() == 3 || n == 7",
    "l.map(v, v > 1, 1 / (v - 2)).size() > 0",
    "l.map(v, m.gone > v, l[v]).size() > 0 || true",
    "l.filter(v, 1 / (v - 2) > v).size() > 0 || true",
    "l.filter(v, l[v] > 1 || m.gone).size() > 0",
    "l.exists_one(v, 1 / (v - 2) == 1) || true",
    "l.exists_one(v, v > 1 ? m.gone : l[v + 5] == v)",
    "l.transformList(i, v, l[v] + 1).size() > 0 || true",
    "l.transformMap(i, v, l[v]).size() > 0 || true",
    "l.transformMap(i, v, l[v] > 1, m.gone).size() > 0",
    "l.transformMapEntry(i, v, {1: v}).size() > 0 || true",
    "l.transformMapEntry(i, v, {v: m.gone}).size() > 0",
    "l.map(v, l.map(w, 1 / (w - v)).size()).size() == 0 || l.exists(v, v == 2)",
    "l.all(v, 1 / (v - 1) + 1 / (v - 2) == 1 || v > 0)",
    "l.all(v, v % (v - 1) == 0 || v / -1 == v || v % -2 == 0)",
    "l.all(v, (-9223372036854775807 - 1) / (v - 2) < v || (-9223372036854775807 - v) % (v - 2) == 0 || true)",
    "l.all(v, '%d %s'.format([v, m.gone]) == '' || v > 0)",
    "l.all(v, '%d'.format([x]) == '' || '%.2f'.format([dyn(v)]) == '' || v > 0)",
    "l.all(v, cel.bind(w, [v], (v > 1 || w.size() == 1) && w.size() == 1))",
]


LISTS_OF_ANYTHING = [
    "l.all(v, dyn(x.reverse().min()) == 'a' || v > 0)",
    "l.all(v, x.distinct().sortBy(w, w).size() > 0 || v > 0)",
    "l.all(v, dyn(x.slice(0, 1).sum()) == 1.0 || v > 0)",
    "l.all(v, dyn([dyn(v), x].max()) == 1 || v > 0)",
    "l.all(v, x.map(w, w).isSorted() || v > 0)",
    "l.all(v, dyn(null).isSorted() || dyn(3).min() == x || v > 0)",
]
PATTERNS_OF_NO_USE = [
    "l.all(v, s.matches(dyn(1)))",
    "l.all(v, s.matches('a'.substring(5)) || v > 0)",
    "l.all(v, s.find(dyn(null)) == '' || v > 0)",
    "l.all(v, s.find('a'.charAt(7) + 'b') == '' || true)",
    "l.all(v, s.findAll(dyn(2)).size() == 0 || true)",
    "l.all(v, s.matches(m.gone) || true)",
    "l.all(v, x.findAll('[ab]+', n).size() == 0)",
    "l.all(v, x.findAll('[ab]+', 2).size() == 0)",
    "l.all(v, x.findAll(s, 2).size() == 0)",
]


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(range(3, 120, 23), id="some limits"),
        pytest.param(range(120), id="all limits", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("source", [*ERRORS, *PATTERNS_OF_NO_USE])
def test_errors_are_told_where_costs_are_counted(source, limits):
    """The same error, or the same value where it is absorbed; at the same cost, and with the same limits."""
    expected = closures_of(source, ENV, BINDINGS)
    assert expected == answer(generated(source, ENV), BINDINGS)
    for limit in limits:
        limited = closures_of(source, ENV, BINDINGS, limit=limit)

        assert limited == answer(generated(source, ENV, limit=limit), BINDINGS, limit=limit)


@pytest.mark.parametrize("source", LISTS_OF_ANYTHING)
@pytest.mark.parametrize("held", [[1, 2, "a"], ["a", 1], [1.0, 2.0], [True, False], [], [None], "text", [1, 2], 1.5])
def test_what_a_list_holds_decides(source, held):
    """What is known of a list says nothing of its elements unless these are known as well."""
    bindings = BINDINGS | {"x": held}

    assert closures_of(source, ENV, bindings) == answer(generated(source, ENV), bindings)


def test_code_that_meets_errors_stays_in_use():
    """They are answers like others."""
    program = compile_expression("lists.range(400).all(a, 1 / (a - a) == 1 || a >= 0)", ENV)
    failing = compile_expression("lists.range(400).all(a, 1 / (a - a) == 1)", ENV)

    for _ in range(60):
        assert program.evaluate(BINDINGS) is True
        with pytest.raises(EvalError, match=r"^division by zero$"):
            failing.evaluate(BINDINGS)

    assert program.is_generated
    assert failing.is_generated


def test_a_loop_of_errors_ends_at_the_limit():
    """In generated code too."""
    program = compile_expression("lists.range(300000).all(a, 1 / (a - a) == 1 || true)", KUBERNETES)

    with pytest.raises(CostExceeded):
        program.evaluate({})

    assert program.is_generated


def test_short_texts_are_read_once():
    """Of long ones nothing is kept."""
    reads: list[str] = []

    @remembered
    def read(text: str) -> int:
        reads.append(text)
        return len(text)

    long = "x" * 1000
    assert [read("a"), read("a"), read(long), read(long)] == [1, 1, 1000, 1000]
    assert reads == ["a", long, long]


@pytest.mark.parametrize(
    "source", ["quantity(s)", "semver(s)", "ip(s)", "cidr(s)", "url(s)", "duration(s)", "timestamp(s)"]
)
def test_a_refusal_is_remembered_as_well(source):
    """And its text is the same every time."""
    program = compile_expression(f"type({source}) == type(1)", ENV)
    texts = set()
    for _ in range(3):
        with pytest.raises(EvalError) as caught:
            program.evaluate({"s": "a text of none\x7f"})
        texts.add(str(caught.value))

    assert len(texts) == 1
