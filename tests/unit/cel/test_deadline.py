"""Limits of time and size, and selectors that are made to cost much (docs/spec/cel.md)."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final

import pytest

from benchmarks.hostile_selectors import HOSTILE, LONGEST as LONGEST_TEXT
from scheduler.cache.devices.selectors import environment
from scheduler.cel.check.environment import KUBERNETES
from scheduler.cel.check.types import DYN, INT, STRING, list_of
from scheduler.cel.errors import CelError, CostExceeded, EvalError
from scheduler.cel.eval.program import Program, TooCostly, compile_expression
from scheduler.cel.eval.running import LONGEST
from tests.unit.cel.conftest import CLOCK, Reads, doubled

ENDLESS: Final = "lists.range(100000)"
EXCEEDED: Final = r"^operation cancelled: actual cost limit exceeded$"
_FAR: Final = 10**9


def _program(source: str) -> Program:
    """The cost is never what ends it."""
    return compile_expression(source, KUBERNETES, cost_limit=_FAR)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(f"{ENDLESS}.all(a, a >= 0)", id="all"),
        pytest.param(f"{ENDLESS}.exists(a, a < 0)", id="exists"),
        pytest.param(f"{ENDLESS}.exists_one(a, a == 1)", id="exists_one"),
        pytest.param(f"{ENDLESS}.map(a, a).size() > 0", id="map"),
        pytest.param(f"{ENDLESS}.filter(a, a > 5).size() > 0", id="filter"),
        pytest.param(f"{ENDLESS}.transformList(i, a, a).size() > 0", id="transformList"),
        pytest.param(f"{ENDLESS}.transformMap(i, a, a).size() > 0", id="transformMap"),
        pytest.param(f"{ENDLESS}.all(a, 1 / 0 == 1 || true)", id="absorbed errors"),
        pytest.param(f"true || {ENDLESS}.all(a, 1 / 0 == 1)", id="the limit is no error to absorb"),
        pytest.param(f"{ENDLESS}.all(a, 1 / 0 == 1) || true", id="nor if it comes first"),
        pytest.param(" || ".join(["size('a')>1"] * 5000), id="calls without a loop"),
    ],
)
def test_an_evaluation_ends_at_its_deadline(source: str, busy_clock: Reads) -> None:
    """With upstream's error of the cost limit, 50 ms of processor time after the first look at the clock."""
    program = _program(source)
    if source.startswith("true"):
        assert program.evaluate({}) is True
        return

    with pytest.raises(CostExceeded, match=EXCEEDED):
        program.evaluate({})

    assert busy_clock() == 52


def test_each_evaluation_has_its_own_deadline(busy_clock: Reads) -> None:
    program = _program("lists.range(600).all(a, a >= 0)")

    assert [program.evaluate({}) for _ in range(5)] == [True] * 5
    assert busy_clock() > 52


def test_a_short_evaluation_does_not_read_the_clock(busy_clock: Reads) -> None:
    assert _program("[1, 2, 3].all(a, a > 0) && 'abc'.matches('b')").evaluate({}) is True
    assert not busy_clock()


_H: Final = list(range(2000))
_LOOKED: Final = {
    "h": _H,
    "g": list(_H),
    "hs": [[*_H[:-1], -at] for at in range(99)],
    "t": "1" * 3000,
    "ts": ["1" * 3000 + str(at) for at in range(99)],
    "nans": [float("nan")] * 9000,
}


@pytest.mark.parametrize(
    ("call", "least"),
    [
        pytest.param("h == g", 1, id="equality"),
        pytest.param("h != g", 1, id="inequality"),
        pytest.param("hs == hs.map(i, i + [])", 99, id="equality of lists in lists"),
        pytest.param("{1: hs} == {1: hs.map(i, i + [])}", 99, id="equality of lists in maps"),
        pytest.param("h in hs", 99, id="in"),
        pytest.param("hs.indexOf(h) < 0", 99, id="indexOf"),
        pytest.param("hs.lastIndexOf(h) < 0", 99, id="lastIndexOf"),
        pytest.param("hs.slice(0, 48).includes(h)", 48, id="includes"),
        pytest.param("hs.distinct().size() > 0", 99, id="distinct"),
        pytest.param("sets.contains(hs, [h])", 99, id="sets"),
        pytest.param("t.findAll('1*2|').size() > 0", 3000, id="a pattern that looks at all of the text each time"),
        pytest.param("ts.all(a, a.lowerAscii() == a)", 99, id="small letters"),
        pytest.param("ts.all(a, isURL('/' + a))", 99, id="URLs"),
        pytest.param("ts.all(a, ip(a).family() == 6 || true)", 99, id="addresses"),
        pytest.param("ts.all(a, isCIDR(a) || true)", 99, id="networks"),
        pytest.param("ts.all(a, duration(a) == duration('0s') || true)", 99, id="durations"),
        pytest.param("ts.all(a, int(a) == 1 || true)", 99, id="integers"),
        pytest.param("ts.all(a, isQuantity(a) || true)", 99, id="quantities"),
        pytest.param("ts.all(a, isSemver(a) || true)", 99, id="versions"),
        pytest.param("ts.all(a, strings.quote(a) != '')", 99, id="quotes"),
        pytest.param("ts.all(a, !'x'.matches('[a-f]+' + a.substring(2990)))", 99, id="a pattern each turn"),
        pytest.param("ts.all(a, !'x'.matches('(' + a.substring(2990)) || true)", 99, id="a bad pattern each turn"),
        pytest.param("nans.isSorted()", 100, id="order of doubles that have none"),
    ],
)
def test_work_that_takes_long_looks_at_the_clock(
    call: str, least: int, still_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = count()
    monkeypatch.setattr(CLOCK, lambda: next(reads) * 0)
    types = dict.fromkeys(("h", "g", "nans"), DYN) | {"hs": list_of(DYN), "t": STRING, "ts": list_of(STRING)}
    program = compile_expression(call, KUBERNETES.extended(types), cost_limit=_FAR)

    assert program.evaluate(_LOOKED) in {True, False}
    assert next(reads) >= least


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("(h + h).size() > 0", id="a sum of lists"),
        pytest.param("(t + t).size() > 0", id="a sum of texts"),
        pytest.param("(bytes(t) + bytes(t)).size() > 0", id="a sum of bytes"),
        pytest.param("[h, h].flatten().size() > 0", id="flatten"),
        pytest.param("[[[h]], [[h]]].flatten(3).size() > 0", id="flatten of lists in lists"),
        pytest.param("[t, t].join().size() > 0", id="join"),
        pytest.param("['', '', ''].join(t + 'abcdefghijklmno').size() > 0", id="join by a long text"),
        pytest.param("'ab'.replace('', t).size() > 0", id="replace"),
        pytest.param("'%s%s'.format([t, t]).size() > 0", id="format of texts"),
        pytest.param("'%s'.format([[t, t]]).size() > 0", id="format of a list of texts"),
        pytest.param("'%s'.format([{1: t, 2: t}]).size() > 0", id="format of a map of texts"),
        pytest.param("'%s'.format([h]).size() > 0", id="format of a list"),
        pytest.param("strings.quote('\\n' + t.replace('a', '\\n')).size() > 0", id="quotes"),
    ],
)
def test_no_call_makes_a_text_or_list_that_is_too_long(source: str) -> None:
    """The next call might take too long for the deadline to be in time."""
    half = LONGEST // 2 + 1
    given = f"cel.bind(h, lists.range({half}), cel.bind(t, lists.range({half}).map(i, 'a').join(), {source}))"

    with pytest.raises(CostExceeded, match=EXCEEDED):
        _program(given).evaluate({})


def test_a_text_may_be_three_times_as_long_as_a_selector() -> None:
    size = 30 * 1024
    source = f"cel.bind(t, lists.range({size}).map(i, 'a').join(), [t.size(), t.replace('a', 'b').size(), (t + t.charAt(0)).size()])"

    assert _program(source).evaluate({}) == [size, size, size + 1]


@pytest.mark.parametrize(
    "each",
    [
        pytest.param("h + h", id="sums of lists"),
        pytest.param("h.reverse()", id="lists in reverse"),
        pytest.param("h.slice(0, 15000)", id="parts of lists"),
        pytest.param("t + t", id="sums of texts"),
        pytest.param("t.split('')", id="parts of texts"),
    ],
)
def test_all_that_calls_make_is_bounded_together(each: str) -> None:
    """Copies fill the memory faster than they take time."""
    given = f"cel.bind(h, lists.range(15000), cel.bind(t, lists.range(15000).map(i, 'a').join(), lists.range(2000).map(i, {each}).size() > 0))"

    try:
        outcome = str(_program(given).evaluate({}))
    except CostExceeded as error:
        outcome = str(error)

    assert outcome == "operation cancelled: actual cost limit exceeded"


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("((a{20}){40})*b", id="a large pattern for a long text"),
        pytest.param("[^a]{1000}", id="a larger one"),
    ],
)
def test_a_large_pattern_is_not_for_a_long_text(pattern: str) -> None:
    source = f"cel.bind(t, lists.range(30000).map(i, 'a').join(), t.matches('{pattern}'))"

    with pytest.raises(CostExceeded, match=EXCEEDED):
        _program(source).evaluate({})
    assert _program(f"'aaa'.matches('{pattern}')").evaluate({}) in {True, False}


def test_a_huge_pattern_is_an_error() -> None:
    """It is not compiled: that would take a fifth of a second, and all in one call."""
    with pytest.raises(EvalError, match="pattern too large"):
        _program(r"'x'.matches('(\\pL|\\pN|\\pS){300' + '}')").evaluate({})


def test_lists_that_hold_each_other_end_at_the_deadline(busy_clock: Reads) -> None:
    with pytest.raises(CostExceeded, match=EXCEEDED):
        _program(doubled(30, "[0.0 / 0.0]", "[x, x]", '"%s".format([v]).size() > 0')).evaluate({})


# --- the event loop -------------------------------------------------------------------------------------------------


def test_the_event_loop_has_a_deadline_of_a_few_milliseconds(busy_clock: Reads) -> None:
    source = f"cel.bind(t, '{'1' * 900}', [1, 2, 3, 4, 5, 6, 7, 8, 9].all(a, isURL(t + '/') || true))"
    program = _program(source)

    with pytest.raises(TooCostly):
        program.evaluate_cheaply({})

    assert busy_clock() == 7
    assert program.is_costly
    assert program.evaluate({}) is True


ENV = environment(list_attributes=False)
CALLS_PER_CHARACTER = 150
BYTES_PER_CHARACTER = 700


def calls(work: Callable[[], object]) -> int:
    """How many functions were called."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def compiled(source: str) -> Program | str:
    try:
        return compile_expression(source, ENV)
    except CelError as error:
        return str(error)


@pytest.mark.parametrize("name", HOSTILE)
def test_compiling_takes_steps_in_proportion_to_the_source(name: str) -> None:
    half, whole = (HOSTILE[name](length) for length in (LONGEST_TEXT // 16, LONGEST_TEXT // 8))
    compiled(half)  # what is remembered between expressions is known now

    fewer, more = (calls(partial(compiled, source)) for source in (half, whole))

    assert more <= CALLS_PER_CHARACTER * len(whole)
    assert more <= 2.4 * fewer + 2000


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_program_keeps_is_a_multiple_of_its_source(name: str) -> None:
    program = compiled(HOSTILE[name](LONGEST_TEXT))

    assert isinstance(program, str) or program.size_bytes <= BYTES_PER_CHARACTER * LONGEST_TEXT


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_counted_is_at_least_what_the_memory_tracer_sees(name: str) -> None:
    source = HOSTILE[name](2500)
    compiled(source)
    gc.collect()
    tracemalloc.start()
    try:
        program = compiled(source)
        gc.collect()
        traced, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert isinstance(program, Program)
    assert traced <= program.size_bytes + 500
    assert program.size_bytes <= 8 * traced + sys.getsizeof(source)


# --- evaluation -----------------------------------------------------------------------------------------------------


BOMBS = {
    "texts doubled forty times": doubled(40, '"0123456789"', "x + x", "size(v) > 0"),
    "texts made ten times as long": doubled(8, '"0123456789"', " + ".join("x" * 10), "size(v) > 0"),
    "texts of unknown type": doubled(40, 'dyn("0123456789")', "dyn(x) + dyn(x)", "size(v) > 0"),
    "bytes": doubled(40, 'b"0123456789"', "x + x", "size(v) > 0"),
    "bytes of unknown type": doubled(40, 'dyn(b"0123456789")', "dyn(x) + x", "size(v) > 0"),
    "lists": doubled(40, "[1, 2, 3]", "x + x", "size(v) > 0"),
    "lists of unknown type": doubled(40, "dyn([1, 2, 3])", "dyn(x) + x", "size(v) > 0"),
    "texts of texts": doubled(28, '"0123456789"', "string(x) + string(x)", "size(v) > 0"),
    "characters": doubled(24, '"0123456789"', "x + x.charAt(0) + x", "size(v) > 0"),
    "a long text a hundred times": doubled(
        16, '"0123456789"', "x + x", " || ".join([f'size(v + "{at}") < 0' for at in range(100)])
    ),
    "format of lists in lists": doubled(30, "[1]", "[x, x]", '"%s".format([v]).size() > 0'),
    "format of many small lists": 'cel.bind(l, lists.range(50000).map(i, [i]), "%s".format([l]).size() > 0)',
    "format of texts": doubled(
        10, '"aaaaaaaaaa"', '"%s%s%s%s%s%s%s%s".format([x, x, x, x, x, x, x, x])', "size(v) > 0"
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_grows_without_end_ends_with_upstreams_error(name: str) -> None:
    program = compile_expression(BOMBS[name], KUBERNETES)
    tracemalloc.start()
    try:
        with pytest.raises(CostExceeded, match="actual cost limit exceeded"):
            program.evaluate({})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < 100 * 2**20


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("lists.range(2500).all(a, a >= 0)", id="a long loop"),
        pytest.param("[1].all(a, lists.range(2500).exists(b, b < 0)) || true", id="a loop that settles nothing"),
    ],
)
def test_the_event_loop_is_spared_a_costly_evaluation(source: str) -> None:
    program = compile_expression(source, ENV)

    def refused() -> None:
        with pytest.raises(TooCostly):
            program.evaluate_cheaply({})

    first, second = calls(refused), calls(refused)

    assert first < 60_000
    assert second < 200
    assert program.evaluate({}) is True


def test_a_costly_evaluation_is_given_up_after_cheap_ones() -> None:
    program = compile_expression("lists.range(n).all(a, a >= 0)", KUBERNETES.extended({"n": INT}))
    for _ in range(12):
        program.evaluate_cheaply({"n": 3})

    with pytest.raises(TooCostly):
        program.evaluate_cheaply({"n": 3000})
    assert program.evaluate({"n": 3000}) is True


# --- Python's stack -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in HOSTILE if name.startswith(("deep", "parentheses", "negations"))])
def test_no_selector_runs_into_the_end_of_pythons_stack(name: str) -> None:
    limit = sys.getrecursionlimit()

    def deeper(levels: int) -> object:
        if levels:
            return deeper(levels - 1)
        program = compiled(HOSTILE[name](LONGEST_TEXT))
        return program if isinstance(program, str) else program.evaluate({})

    assert deeper(limit // 2)
    assert limit == sys.getrecursionlimit()
