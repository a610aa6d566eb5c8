"""Numbers that become values only where somebody needs these: generated code against closures, at every edge."""

from __future__ import annotations

from itertools import islice, product

import pytest

from scheduler.cel.environment import KUBERNETES
from scheduler.cel.values import CompileError
from tests.unit.cel.twopaths import answer, closures_of, generated

_UNSIGNED = ["0u", "1u", "7u", "18446744073709551615u"]
_DURATIONS = [
    "duration('1s')",
    "duration('-1h')",
    "duration('2562047h47m16.854775807s')",
    "duration('-2562047h47m16.854775808s')",
]
_TIMES = [
    "timestamp('2020-01-01T00:00:00+01:00')",
    "timestamp('0001-01-01T00:00:00Z')",
    "timestamp('9999-12-31T23:59:59.999999999Z')",
    "timestamp(5)",
]
_TEXTS = ["'abc'", "''", "'abcdefghijklm'"]
_BYTES = ["b'abc'", "b''", "b'\\\\xff'", "b'abcdefghijklm'"]
_NUMBERS = [
    "1",
    "-1",
    "9223372036854775807",
    "1u",
    "18446744073709551615u",
    "1.0",
    "-0.0",
    "9223372036854775807.0",
    "0.0 / 0.0",
]
_LISTS = ["[1]", "[1, 2]", "[2, 1]", "['a']", "[true]", "[1.0]", "[0.0 / 0.0]", "[[1]]", "[1u]", "lists.range(200)"]
_FORMS = ["string({})", "{} == {}", "[{}, {}]"]
_SUMS = ["x + y", "x - y", "x - y - y", "x + y + y", "x * y", "x / y", "x % y"]
_ORDERS = ["x < y", "x <= y", "x > y", "x >= y", "x == y", "x != y"]


def _answers(source: str) -> tuple[object, object] | None:
    try:
        return answer(generated(source, KUBERNETES), {}), closures_of(source, KUBERNETES, {})
    except CompileError:
        return None


@pytest.mark.parametrize(
    "every",
    [pytest.param(5, id="a fifth"), pytest.param(1, id="all", marks=pytest.mark.nightly)],
)
@pytest.mark.parametrize(
    ("left", "right", "operations", "forms"),
    [
        pytest.param(_UNSIGNED, _UNSIGNED, _SUMS, _FORMS, id="unsigned integers"),
        pytest.param(_DURATIONS, _DURATIONS, _SUMS[:4], _FORMS, id="durations"),
        pytest.param(_TIMES, _TIMES, _SUMS[1:2], _FORMS, id="moments"),
        pytest.param(_TIMES, _DURATIONS, _SUMS[:4], _FORMS, id="moments and durations"),
        pytest.param(_DURATIONS, _TIMES, _SUMS[:1], _FORMS, id="durations and moments"),
        pytest.param(_TEXTS, _TEXTS, _SUMS[:1], _FORMS, id="texts"),
        pytest.param(_BYTES, _BYTES, _SUMS[:1], _FORMS[1:], id="bytes"),
        pytest.param(_LISTS, _LISTS, _SUMS[:1], _FORMS[1:], id="lists"),
        pytest.param(_UNSIGNED, _UNSIGNED, _ORDERS, ["{}"], id="order of unsigned integers"),
        pytest.param(_DURATIONS, _DURATIONS, _ORDERS, ["{}"], id="order of durations"),
        pytest.param(_TIMES, _TIMES, _ORDERS, ["{}"], id="order of moments"),
        pytest.param(_BYTES, _BYTES, _ORDERS, ["{}"], id="order of bytes"),
        pytest.param(_NUMBERS, _NUMBERS, _ORDERS, ["{}"], id="order of numbers of all types"),
        pytest.param(_LISTS, _LISTS, _ORDERS[4:], ["{}"], id="equality of lists"),
    ],
)
def test_values_errors_and_costs_are_those_of_the_closures(left, right, operations, forms, every):
    """Whether the value is written down, held, compared, or never made at all."""
    combinations = islice(product(left, right, operations, forms), 0, None, every)
    compared = []
    for one, other, operation, form in combinations:
        made = form.replace("{}", f"({operation})")
        found = _answers(f"[{one}].map(x, [{other}].map(y, {made}))")
        if found is not None:
            compared.append(found)

    assert compared
    assert [given for given, _ in compared] == [expected for _, expected in compared]
