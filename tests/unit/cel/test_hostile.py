"""Selectors that are made to cost much: what it takes to compile them, what they keep, and what their evaluation takes.

Steps are Python's calls, not time: they are the same on every machine.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest

from benchmarks.hostile_selectors import HOSTILE, LONGEST
from scheduler.cache.devices.selectors import environment
from scheduler.cel.check.environment import KUBERNETES
from scheduler.cel.check.types import INT
from scheduler.cel.errors import CelError, CostExceeded
from scheduler.cel.eval.program import Program, TooCostly, compile_expression
from tests.unit.cel.conftest import doubled

ENV = environment(list_attributes=False)
CALLS_PER_CHARACTER = 150
BYTES_PER_CHARACTER = 400


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
    half, whole = (HOSTILE[name](length) for length in (LONGEST // 16, LONGEST // 8))
    compiled(half)  # what is remembered between expressions is known now

    fewer, more = (calls(partial(compiled, source)) for source in (half, whole))

    assert more <= CALLS_PER_CHARACTER * len(whole)
    assert more <= 2.4 * fewer + 2000


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_program_keeps_is_a_multiple_of_its_source(name: str) -> None:
    program = compiled(HOSTILE[name](LONGEST))

    assert isinstance(program, str) or program.footprint <= BYTES_PER_CHARACTER * LONGEST


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_counted_is_what_the_memory_tracer_sees(name: str) -> None:
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
    assert 0.7 * traced - 10_000 <= program.footprint <= 1.5 * traced + 20_000


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
        program = compiled(HOSTILE[name](LONGEST))
        return program if isinstance(program, str) else program.evaluate({})

    assert deeper(limit // 2)
    assert limit == sys.getrecursionlimit()
