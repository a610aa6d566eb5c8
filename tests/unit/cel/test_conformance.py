from __future__ import annotations

import pytest

from tests.unit.cel.conformance import Case, cases, shortcoming
from tests.unit.cel.departures import FILE, is_as_wanted, reasons
from tests.unit.cel.textproto import read

_CASES = list(cases())


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in _CASES])
def test_conformance(case):
    """cel-spec's cases, with Kubernetes' answers where it departs from them: docs/spec/cel.md."""
    assert shortcoming(case) is None, case.expression


def test_nothing_was_lost_in_conversion():
    """The cases of cel.dev/expr v0.25.1 without protocol buffers, enums and containers."""
    assert len(_CASES) == 1331
    assert len({case.name for case in _CASES}) == 1331


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("1", {"value": ["uint", 1]}),
        ("1", {"value": ["double", "1"]}),
        ("true", {"value": ["int", 1]}),
        ("-0.0", {"value": ["double", "0"]}),
        ("'a'", {"value": ["bytes", "61"]}),
        ("[1]", {"value": ["list", [["uint", 1]]]}),
        ("[1, 1]", {"value": ["list", [["int", 1]]]}),
        ("{1: 2}", {"value": ["map", [[["int", 1], ["int", 3]]]]}),
        ("{1: 2}", {"value": ["map", [[["uint", 1], ["int", 2]]]]}),
        ("{1: 2, 3: 4}", {"value": ["map", [[["int", 1], ["int", 2]]]]}),
        ("1", {"error": "any"}),
        ("1 / 0", {"value": ["int", 0]}),
        ("1 +", {"value": ["int", 1]}),
        ("1 +", {"compile": "another text"}),
    ],
)
def test_other_answers_are_reported(expression, wanted):
    assert shortcoming(Case("", expression, {}, {}, wanted)) is not None


def test_every_departure_has_a_reason():
    """A new answer of Kubernetes needs an entry with the reason why it differs."""
    assert [name for name, why in reasons(FILE.read_text()).items() if not why] == []


@pytest.mark.parametrize(
    ("case", "answer", "is_none"),
    [
        pytest.param({"value": ["int", 1]}, {"value": ["int", 1]}, True, id="the same value"),
        pytest.param({"value": ["int", 1]}, {"value": ["uint", 1]}, False, id="a value of another type"),
        pytest.param({"value": ["int", 1]}, {"error": "any"}, False, id="an error instead of a value"),
        pytest.param({"value": ["int", 1]}, {"compile": "any"}, False, id="a refusal instead of a value"),
        pytest.param({"error": "one"}, {"error": "another"}, True, id="an error with other words"),
        pytest.param({"error": "one"}, {"compile": "another"}, True, id="a refusal instead of an error"),
        pytest.param({"error": "one"}, {"value": ["null"]}, False, id="a value instead of an error"),
        pytest.param(
            {"value": ["double", "10"]}, {"value": ["double", "1e+01"]}, True, id="a double written otherwise"
        ),
        pytest.param({"value": ["double", "nan"]}, {"value": ["double", "NaN"]}, True, id="not a number"),
        pytest.param({"value": ["double", "0"]}, {"value": ["double", "-0"]}, False, id="zero of another sign"),
        pytest.param(
            {"value": ["map", [[["int", 1], ["null"]], [["int", 2], ["null"]]]]},
            {"value": ["map", [[["int", 2], ["null"]], [["int", 1], ["null"]]]]},
            True,
            id="a map in another order",
        ),
        pytest.param(
            {"value": ["list", [["int", 1], ["int", 2]]]},
            {"value": ["list", [["int", 2], ["int", 1]]]},
            False,
            id="a list in another order",
        ),
        pytest.param({"value": ["bool", True]}, {"value": ["bool", False]}, False, id="the other truth"),
        pytest.param({"value": ["list", [["bool", True]]]}, {"value": ["list", [["int", 1]]]}, False, id="1 for true"),
    ],
)
def test_what_is_a_departure(case, answer, is_none):
    assert is_as_wanted(case, answer) == is_none


def test_text_format():
    text = r"""
        # a comment: { "of no interest"
        name: "a" 'b'  # another
        inner { value: -1.5e3, more: [TRUE, 'x'] }
        inner: { [type.example.com/a.B] { at: "\n\x41\101\u00e9\?\"" } }
    """

    assert read(text) == {
        "name": [b"ab"],
        "inner": [
            {"value": ["-1.5e3"], "more": ["TRUE", b"x"]},
            {"[type.example.com/a.B]": [{"at": ['\nAA\u00e9?"'.encode()]}]},
        ],
    }
