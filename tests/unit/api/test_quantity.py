"""Quantities are exact and rounded up; errors name the text. Resource names."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from scheduler.api import quantity as module
from scheduler.api.quantity import Quantity, domain, is_extended, is_scalar, parse, text as spelled
from scheduler.cel.libraries.quantities import Amount

MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        pytest.param("1.0000000001", 10**9 + 1, id="finer than nano is rounded up"),
        pytest.param("-1.0000000001", -(10**9) - 1, id="away from nothing on either side"),
        pytest.param("1.5Gi", 1536 * 2**20 * 10**9, id="K16 fraction of a binary suffix"),
        pytest.param("0.1Ki", 1024 * 10**8, id="a decimal fraction of a binary suffix is exact"),
        pytest.param("800E", 800 * 10**27, id="M22 decimal suffixes are not capped"),
        pytest.param("9Ei", MAX * 10**9, id="M23 binary suffixes are capped at int64"),
        pytest.param("8Ei", MAX * 10**9, id="by one byte, if need be"),
        pytest.param("7Ei", 7 * 2**60 * 10**9, id="and not below it"),
        pytest.param("-9Ei", -MAX * 10**9, id="on either side"),
    ],
)
def test_nano_is_exact(text: str, nano: int) -> None:
    """For comparing: as upstream reads it, and never rounded to what a decision is not made in."""
    assert nano == parse(text).nano


@pytest.mark.parametrize(("left", "right"), [("9Ei", "8Ei"), ("1536Mi", "1.5Gi"), ("1e3", "1k"), ("0.1n", "1n")])
def test_what_upstream_reads_as_one_amount_is_equal(left: str, right: str) -> None:
    """M23 and K16, whatever the spelling."""
    assert parse(left) == parse(right) != parse("0")
    assert hash(parse(left)) == hash(parse(right))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param("1025", "1025", id="none divides"),
        pytest.param("1024000", "1000Ki", id="both divide: binary"),
        pytest.param("1.5", "1500m", id="one and a part"),
        pytest.param("-0.5", "-500m", id="less than none by a part"),
        pytest.param("8Ei", str(2**63 - 1), id="binary numbers end there"),
        pytest.param(str(2**63), str(2**63), id="decimal ones do not"),
    ],
)
def test_texts(given: str, wanted: str) -> None:
    assert wanted == spelled(parse(given))


MIN = -(2**63)


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        ("10E", MAX, MAX),
        ("1e20", MAX, MAX),
        ("8Ei", MAX, MAX),
        ("16Ei", MAX, MAX),
        ("9E", 9 * 10**18, MAX),
        ("12345678901234567890", MAX, MAX),
        ("-9.5Gi", -10200547328, -10200547328000),
        ("-10E", MIN, MIN),
        ("-9223372036854775808", MIN, MIN),
        ("9223372036854775807.5", MAX, MAX),
        ("1e-1000", 1, 1),
    ],
)
def test_amounts_outside_int64_saturate(text: str, value: int, milli: int) -> None:
    assert (value, milli) == (parse(text).value, parse(text).milli)


@pytest.mark.parametrize(
    ("text", "alike"),
    [
        pytest.param("1" * 29 + "1", "1" * 28 + "20", id="29 digits count, the rest is rounded up"),
        pytest.param("1" * 29 + "0", "1" * 29 + "0", id="nothing is added for zeros"),
        pytest.param("0." + "1" * 69 + "01Ei", "0." + "1" * 69 + "1Ei", id="70 before a binary suffix"),
    ],
)
def test_further_digits_are_rounded_away_from_zero(text: str, alike: str) -> None:
    assert parse(text) == parse(alike)


def _whole(count: int) -> Quantity:
    return Quantity(count * 10**9)


@given(
    st.one_of(
        st.integers(-(2**80), 2**80).map(Quantity),
        st.integers(-(10**24), 10**24).map(_whole),
        st.builds(lambda n, k: _whole(n << 10 * k), st.integers(-(2**20), 2**20), st.integers(0, 4)),
    )
)
def test_a_text_says_the_amount(quantity: Quantity) -> None:
    """Exactly, and no unit larger would."""
    assert quantity == parse(spelled(quantity))


ANSWERS: Final = [
    json.loads(line) for line in (Path(__file__).parent / "goldens" / "quantities.jsonl").read_text().splitlines()
]
YARDSTICKS: Final = tuple(
    parse(text).nano
    for text in (
        *("-9223372036854775807", "-9223372036854775807m", "-1", "0", "1n", "1", "1Gi"),
        *("9223372036854775807m", "9223372036854775807", "1e30", "1e90"),
    )
)
"""What the goldens compare each quantity with."""
AT_1E30 = 9


def _text(answer: dict[str, Any]) -> str:
    return str(answer["head"] + answer.get("middle", "") * answer.get("times", 0) + answer.get("tail", ""))


def _wanted(answer: dict[str, Any]) -> dict[str, Any]:
    """What upstream counts, on either side of nothing and beyond int64."""
    return {field: answer[field] for field in ("value", "milli", "integer", "order") if field in answer}


def _read(answer: dict[str, Any]) -> dict[str, Any]:
    quantity = parse(_text(answer))
    return {
        "value": quantity.value,
        "milli": quantity.milli,
        "integer": Amount(*quantity.form).as_int64() is not None,
        "order": [(quantity.nano > each) - (quantity.nano < each) for each in YARDSTICKS],
    }


def test_upstream_reads_the_same_amounts() -> None:
    readable = [answer for answer in ANSWERS if "error" not in answer]

    differing = [answer for answer in readable if not _wanted(answer).items() <= _read(answer).items()]

    assert len(readable) > 500
    assert differing == []


def test_a_canonical_text_of_upstream_is_the_same_amount() -> None:
    """So the API server stores what it was sent. Beyond 10^30 its texts lose the exponent."""
    canonical = [answer for answer in ANSWERS if "text" in answer and answer["order"][AT_1E30] < 0]

    differing = [answer for answer in canonical if parse(_text(answer)) != parse(answer["text"])]

    assert len(canonical) > 400
    assert differing == []


def test_upstream_refuses_the_same_texts() -> None:
    refused = [answer for answer in ANSWERS if "error" in answer]

    for answer in refused:
        with pytest.raises(ValueError, match="is not a quantity"):
            parse(_text(answer))
    assert len(refused) > 200


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("0" * 1_000_000 + "x", id="zeros and a letter"),
        pytest.param("0." + "3" * 1_000_000 + "Ei", id="digits after the point, with a binary suffix"),
        pytest.param("1" + "0" * 1_000_000 + "e-999999", id="zeros taken back by the exponent"),
        pytest.param("1e" + "0" * 1_000_000 + "5", id="zeros in the exponent"),
        pytest.param("1e" + "9" * 1_000_000, id="digits in the exponent"),
        pytest.param("1e2147483647", id="the largest exponent that upstream keeps"),
    ],
)
def test_a_text_of_a_megabyte_takes_milliseconds_and_builds_no_large_number(text: str) -> None:
    """A hundred times what it takes, so that the pace of the machine does not matter; a quadratic one takes minutes."""
    began = time.process_time()
    why, numbers = "", [0]
    try:
        quantity = parse(text)
        numbers = [quantity.nano, quantity.form.unscaled]
    except ValueError as refused:
        why = str(refused)

    assert time.process_time() - began < 1
    assert len(why) < 1024
    assert max(map(sys.getsizeof, numbers)) < 100


def test_what_is_remembered_of_texts_is_bounded() -> None:
    for count in range(20_000):
        parse(f"{count}k")
    parse("1" + "0" * 1000)

    known = module._interned
    assert len(known) <= 10_000
    assert max(map(len, known)) <= 32


@pytest.mark.parametrize(
    ("name", "extended", "scalar"),
    [
        ("example.com/gpu", True, True),
        ("requests.example.com/gpu", False, False),
        ("kubernetes.io/thing", False, True),
        ("sub.kubernetes.io/thing", False, True),
        ("hugepages-2Mi", False, True),
        ("attachable-volumes-csi-x", False, True),
        ("cpu", False, False),
        ("storage", False, False),
    ],
)
def test_kinds(name: str, extended: bool, scalar: bool) -> None:
    """Spelling decides, as upstream's does."""
    assert (extended, scalar) == (is_extended(name), is_scalar(name))


def test_domain() -> None:
    assert domain("example.com/gpu") == "example.com"
