"""Device selectors (docs/spec/dra.md §5): evaluation, error texts and limits. tests/unit/cel has more."""

from __future__ import annotations

import threading
from functools import partialmethod
from itertools import count
from typing import Any

import pytest

from scheduler.api.quantity import parse
from scheduler.api.resource_v1 import Device, DeviceAttribute, DeviceCapacity
from scheduler.cache.devices import selectors as deviceselectors
from scheduler.cache.devices.pools import DeviceKind
from scheduler.cache.devices.selectors import (
    CompiledSelectors,
    DeviceSelectors,
)
from scheduler.cel.errors import CompileError
from scheduler.cel.eval.program import Program, compile_expression
from scheduler.core.cooperative import finish

DRIVER = "gpu.example.com"
OWN = f'device.attributes["{DRIVER}"]'


def gpu(**attributes: DeviceAttribute) -> DeviceKind:
    """One with 40Gi of memory."""
    return DeviceKind(DRIVER, Device(attributes=attributes, capacity={"memory": DeviceCapacity(parse("40Gi"))}))


MODEL = DeviceAttribute(string="a")
PLAIN = DeviceSelectors(list_attributes=False)


def compiled(expression: str) -> Program | str:
    return finish(PLAIN.compiling(expression))


WITH_LISTS = DeviceSelectors(list_attributes=True)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        pytest.param(f'device.driver == "{DRIVER}"', True, id="the driver is known"),
        pytest.param(f'{OWN}.model == "a"', True, id="an unqualified name is in the driver's domain"),
        pytest.param('device.attributes["other.example.com"].model == "a"', True, id="a qualified one in its own"),
        pytest.param('has(device.attributes["none.example.com"].model)', False, id="an unknown domain is empty"),
        pytest.param('"none.example.com" in device.attributes', False, id="it is no member"),
        pytest.param("device.attributes.?none.hasValue()", True, id="yet an optional look-up finds it"),
        pytest.param("device.attributes.all(d, d != 'none')", True, id="loops see real domains only"),
        pytest.param(f"{OWN}.gone == 1", "CEL runtime error: no such key: gone", id="an unknown name is an error"),
        pytest.param(f'device.capacity["{DRIVER}"].memory == quantity("40Gi")', True, id="capacity is a quantity"),
        pytest.param(f"{OWN}.firmware.isGreaterThan(semver('1.9.0'))", True, id="a version is a version"),
        pytest.param("device.allowMultipleAllocations", False, id="not shared unless it says so"),
        pytest.param(
            "device.drivr",
            "CEL compile error: compilation failed: ERROR: <input>:1:7: undefined field 'drivr'\n"
            " | device.drivr\n | ......^",
            id="a field that no device has",
        ),
        pytest.param(
            "1",
            "CEL compile error: must evaluate to bool or the unknown type, not int",
            id="something else than a verdict",
        ),
        pytest.param(
            "int('one') == 1",
            "CEL compile error: program instantiation failed: type conversion error from 'string' to 'int'",
            id="a constant that cannot be computed",
        ),
        pytest.param(
            f"{OWN}.model",
            "CEL runtime error: CEL result of type string could not be converted to bool: "
            "unsupported native conversion from string to 'bool'",
            id="a verdict that turns out to be none",
        ),
        pytest.param(
            "lists.range(1000).all(x, lists.range(1000).all(y, true))",
            "CEL runtime error: operation cancelled: actual cost limit exceeded",
            id="too expensive",
        ),
    ],
)
def test_verdicts(expression, wanted):
    """As upstream, word for word."""
    attributes = {
        "model": MODEL,
        "other.example.com/model": DeviceAttribute(string="a"),
        "firmware": DeviceAttribute(version="2.0.0"),
    }

    assert wanted == PLAIN.holds(expression, gpu(**attributes))


@pytest.mark.parametrize(("selectors", "attribute", "wanted"), [
    (PLAIN, DeviceAttribute(), "unsupported attribute value"),
    (PLAIN, DeviceAttribute(ints=(1,)), "unsupported attribute value"),
    (PLAIN, DeviceAttribute(version="1.2"), "parse semantic version: No Major.Minor.Patch elements found"),
    (WITH_LISTS, DeviceAttribute(versions=("1.2.3", "v1.2.3")),
        'parse semantic version: Invalid character(s) found in major number "v1"'),
], ids=["no value", "a list while the gate is off", "a bad version", "a bad version in a list"])  # fmt: skip
def test_a_device_that_cannot_be_looked_at(selectors, attribute, wanted):
    assert f"CEL runtime error: attribute broken: {wanted}" == selectors.holds("true", gpu(broken=attribute))


def test_lists():
    """Behind the gate they are values, and attributes are dyn, so that macros go over them."""
    kind = gpu(models=DeviceAttribute(strings=("a", "b")), model=MODEL)

    assert WITH_LISTS.holds(f"{OWN}.models.exists(m, m == 'b')", kind) is True
    assert WITH_LISTS.holds(f"{OWN}.models.includes('b') && {OWN}.model.includes('a')", kind) is True
    assert "type 'any' cannot be range" in str(compiled(f"{OWN}.models.exists(m, m == 'b')"))


def test_types_of_attributes_follow_the_gate():
    assert compiled("dyn(true)") == "must evaluate to bool or the unknown type, not dyn"
    assert isinstance(finish(WITH_LISTS.compiling("dyn(true)")), Program)
    assert isinstance(compiled(f"{OWN}.healthy"), Program)


def test_an_expression_is_compiled_once():
    assert compiled("device.driver == 'x'") is compiled("device.driver == 'x'")


def test_the_same_device_under_another_driver():
    device = gpu(model=MODEL).device

    assert PLAIN.holds(f"has({OWN}.model)", DeviceKind(DRIVER, device)) is True
    assert PLAIN.holds(f"has({OWN}.model)", DeviceKind("other.example.com", device)) is False
    assert PLAIN.holds(f"has({OWN}.model)", DeviceKind(DRIVER, device)) is True


def test_devices_come_and_go(monkeypatch):
    monkeypatch.setattr(deviceselectors, "_DEVICES", 2)
    selectors = DeviceSelectors(list_attributes=False)

    for number in range(10):
        kind = gpu(number=DeviceAttribute(int_=number))
        assert selectors.holds(f"{OWN}.number == {number}", kind) is True

    assert len(selectors._bindings) <= 2


def test_an_evaluation_that_takes_too_long_has_upstreams_error(monkeypatch):
    """50 ms of processor time end it, whatever its cost."""
    monkeypatch.setattr("scheduler.cel.eval.running.processor_nanos", count(step=1_000_000).__next__)

    assert PLAIN.holds("lists.range(3000).all(x, true) || true", gpu()) == (
        "CEL runtime error: operation cancelled: actual cost limit exceeded"
    )


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
        pytest.param([40, 40, 40], "bc", id="the oldest is evicted when a new one needs its bytes"),
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


def test_a_recently_used_selector_stays() -> None:
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

    assert (compiled.size_bytes, len(compiled._kept)) == (30, 1)


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


def test_the_selectors_of_a_class_are_compiled_before_their_first_use(
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
