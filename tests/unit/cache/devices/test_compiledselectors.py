"""What compiled selectors take is counted, and bounded."""

from __future__ import annotations

import threading
from functools import partialmethod
from typing import Any

import pytest

from scheduler.cache.devices import selectors as deviceselectors
from scheduler.cache.devices.selectors import CompiledSelectors, DeviceSelectors
from scheduler.cel.errors import CompileError
from scheduler.cel.eval.program import Program, compile_expression
from scheduler.core.cooperative import finish
from tests.unit.cache.devices.test_deviceselectors import DRIVER, gpu

SHORT = f'device.driver == "{DRIVER}"'
TERMS = 400


def long(number: int) -> str:
    """A selector of some 12 KB, unlike that of any other number."""
    return " || ".join([SHORT, *[f'device.driver == "{number}"'] * TERMS])


COSTLY = "lists.range(5000).all(a, a >= 0)"


@pytest.fixture
def selectors() -> DeviceSelectors:
    return DeviceSelectors(list_attributes=False)


# --- the limit ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        pytest.param([40, 40], "ab", id="what fits is kept"),
        pytest.param([40, 40, 40], "bc", id="the oldest goes when another needs its room"),
        pytest.param([40, 40, 100], "c", id="as many go as need be"),
        pytest.param([40, 101], "a", id="what is larger than the limit is not kept"),
    ],
)
def test_compiled_selectors_are_kept_within_the_limit(sizes: list[int], kept: str) -> None:
    compiled = CompiledSelectors[str](100)
    for name, size_bytes in zip("abc", sizes):
        compiled.put(name, name, size_bytes)

    assert kept == "".join(name for name in "abc" if compiled.get(name))
    assert compiled.size_bytes == sum(size for name, size in zip("abc", sizes) if name in kept)


def test_a_selector_that_was_asked_for_lately_stays() -> None:
    compiled = CompiledSelectors[str](100)
    for name in ("a", "b"):
        compiled.put(name, name, 40)
    compiled.get("a")
    compiled.put("c", "c", 40)

    assert ["a", None, "c"] == [compiled.get(name) for name in ("a", "b", "c")]


def test_a_selector_that_is_compiled_again_counts_once() -> None:
    compiled = CompiledSelectors[str](100)
    compiled.put("a", "a", 40)
    compiled.put("a", "a", 30)

    assert (compiled.size_bytes, len(compiled)) == (30, 1)


# --- the event loop -------------------------------------------------------------------------------------------------


class Held:
    """A function that waits until it is let go, and remembers in which thread it was called."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._go = threading.Event()
        self.threads: list[int] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.threads.append(threading.get_ident())
        assert self._go.wait(60)
        return self._function(*args, **kwargs)

    def let_go(self) -> None:
        self._go.set()


def test_the_loop_has_turns_while_a_long_selector_is_compiled(
    selectors: DeviceSelectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(compile_expression)
    monkeypatch.setattr(deviceselectors, "compile_expression", held)
    work = selectors.holding(long(1), gpu())
    for _ in range(3):
        next(work)
    held.let_go()

    assert finish(work) is True
    assert held.threads != [threading.get_ident()]


def _through(program: Program, held: Held, *args: Any, **kwargs: Any) -> Any:
    return held(program, *args, **kwargs)


def test_the_loop_has_turns_while_a_costly_selector_is_evaluated(
    selectors: DeviceSelectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the loop itself only as far as it costs next to nothing; the next ones are not begun there."""
    held = Held(Program.evaluate)
    monkeypatch.setattr(Program, "evaluate", partialmethod(_through, held))
    works = [selectors.holding(COSTLY, gpu()) for _ in range(2)]
    for work in works:
        next(work)
        next(work)
    held.let_go()

    assert [finish(work) for work in works] == [True, True]
    assert threading.get_ident() not in held.threads


def test_a_selector_whose_caller_gave_up_is_not_compiled_twice(
    selectors: DeviceSelectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was under way goes on, and counts like all else."""
    held = Held(compile_expression)
    monkeypatch.setattr(deviceselectors, "compile_expression", held)
    first = selectors.holding(long(1), gpu())
    while not held.threads:
        next(first)
    first.close()
    second = selectors.holding(long(1), gpu())
    next(second)
    held.let_go()

    assert finish(second) is True
    assert len(held.threads) == 1
    assert selectors.compiled.size_bytes > 0


def test_what_waits_for_its_turn_in_the_worker_is_taken_back_with_its_caller(
    selectors: DeviceSelectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(compile_expression)
    monkeypatch.setattr(deviceselectors, "compile_expression", held)
    first, second = (selectors.holding(long(number), gpu()) for number in (1, 2))
    while not held.threads:
        next(first)
    next(second)
    second.close()
    held.let_go()

    assert finish(first) is True
    assert len(held.threads) == 1


def test_the_selectors_of_a_class_are_compiled_before_they_are_asked_for(
    selectors: DeviceSelectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(compile_expression)
    held.let_go()
    monkeypatch.setattr(deviceselectors, "compile_expression", held)
    selectors.prepare(long(1))
    selectors.prepare(long(1))

    assert selectors.holds(long(1), gpu()) is True
    assert len(held.threads) == 1
    assert threading.get_ident() not in held.threads


# --- texts, and Python's stack --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("&&".join(["x"] * 3000), id="thousands of undeclared names"),
        pytest.param("#" * 3000, id="thousands of characters that are no token"),
        pytest.param(f'{{"a": 1}}["{"x" * 5000}"] == 1', id="a key of 5000 characters that is missing"),
        pytest.param(f'"{"1" * 5000}".find("1").size() == int("{"9" * 5000}")', id="a number of 5000 digits"),
        pytest.param(f'ip("{"1." * 3000}").family() == 4', id="an address of 6000 characters"),
    ],
)
def test_what_is_kept_of_an_error_is_cut(selectors: DeviceSelectors, expression: str) -> None:
    told = selectors.holds(expression, gpu())

    assert isinstance(told, str)
    assert told.startswith("CEL ")
    assert len(told.encode()) <= 1024
    assert selectors.compiled.size_bytes < 100_000


def test_a_stack_that_is_too_short_is_an_error_of_the_selector(
    selectors: DeviceSelectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deeper(*_: Any, **__: Any) -> Any:
        raise RecursionError

    monkeypatch.setattr(Program, "evaluate_cheaply", deeper)
    assert selectors.holds(SHORT, gpu()) == "CEL runtime error: max recursion depth exceeded"
    monkeypatch.setattr("scheduler.cel.eval.program.plan", deeper)
    with pytest.raises(CompileError, match="max recursion depth exceeded"):
        compile_expression("true", selectors._env)
    assert str(selectors.holds("1 == 1", gpu())).endswith("max recursion depth exceeded")
