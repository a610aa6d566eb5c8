from __future__ import annotations

import pytest

from tests.unit.cel.conformance import Case, cases, shortcoming
from tests.unit.cel.departures import FILE, reasons

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
