"""Quantities are exact, rounded up, and refused by name when they are none."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.quantity import parse

MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        pytest.param("100m", 1, 100, id="milli rounds up to whole units"),
        pytest.param("100u", 1, 1, id="a tenth of a milli-CPU is one (row 102)"),
        pytest.param("1n", 1, 1, id="a nano is something"),
        pytest.param("2", 2, 2000, id="plain number"),
        pytest.param(2, 2, 2000, id="a JSON integer"),
        pytest.param(0.5, 1, 500, id="a JSON float"),
        pytest.param("0.1", 1, 100, id="decimal fraction is not binary"),
        pytest.param(".5", 1, 500, id="no digit before the point"),
        pytest.param("5.", 5, 5000, id="no digit after the point"),
        pytest.param("1Ki", 1024, 1024000, id="binary suffix"),
        pytest.param("1.5Gi", 1610612736, 1610612736000, id="fraction of a binary suffix"),
        pytest.param("1k", 1000, 1000000, id="decimal suffix"),
        pytest.param("1e3", 1000, 1000000, id="exponent"),
        pytest.param("1E3", 1000, 1000000, id="capital exponent"),
        pytest.param("1E", 10**18, MAX, id="exa is no exponent, milli is capped"),
        pytest.param("100Ei", MAX, MAX, id="beyond int64 is capped"),
        pytest.param("1e30", MAX, MAX, id="a large exponent is capped"),
        pytest.param("0", 0, 0, id="nothing"),
        pytest.param("+1", 1, 1000, id="plus sign"),
    ],
)
def test_amounts(text: Any, value: int, milli: int) -> None:
    """Both units follow from the text as upstream computes them."""
    quantity = parse(text)

    assert (value, milli) == (quantity.value, quantity.milli)


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1gi", "1KiB", "--1", "1e", "1e99999", "0x10", "1_000", " 1"])
def test_refused_texts(text: str) -> None:
    """What is no quantity is refused with the text in the message."""
    with pytest.raises(ValueError, match="is not a quantity") as refused:
        parse(text)

    assert repr(text) in str(refused.value)


def test_equal_amounts_are_equal() -> None:
    """Spelling does not matter to equality or hash."""
    assert parse("1Gi") == parse("1024Mi")
    assert hash(parse("1")) == hash(parse("1000m"))
    assert parse("1") != parse("1001m")
