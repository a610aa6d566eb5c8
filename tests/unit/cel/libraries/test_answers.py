"""Answers of the function libraries. The answers and costs are those of cel-go v0.26.0 in Kubernetes v1.36.3.

goldens/libraries.json has them by library and rule: for each expression its value and cost, or its error.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cel.libraries.asking import answer

ANSWERS = json.loads((Path(__file__).parents[1] / "goldens" / "libraries.json").read_text())
RULES = {f"{library}: {rule}": rows for library, rules in ANSWERS.items() for rule, rows in rules.items()}


@pytest.mark.parametrize("answers", RULES.values(), ids=RULES)
def test_answers(answers: dict[str, str]) -> None:
    assert answers == {each: answer(each) for each in answers}


def test_there_is_something_to_compare() -> None:
    """A file that was cut short would pass too."""
    assert (13, 677) == (len(ANSWERS), sum(map(len, RULES.values())))
