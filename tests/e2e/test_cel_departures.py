"""Kubernetes' CEL environment still departs from cel-spec exactly where and how the checked-in answers say."""

import pytest

from tests.e2e.controlplane.gate import built_or_skip
from tests.unit.cel.departures import FILE, answers, binary, departures, reasons, written_cases

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_the_departures_are_kubernetes_answers() -> None:
    """Byte for byte, but for the reasons: `python -m tests.unit.cel.departures` writes this file."""
    oracle, text = built_or_skip(binary), FILE.read_text()

    assert departures(oracle, reasons(text)) == text


def test_a_case_has_one_answer() -> None:
    """Each ends with a value, an error or a refusal, and says which modules have answered."""
    source, told = answers(built_or_skip(binary), list(written_cases().values()))

    assert source.startswith("k8s.io/apiserver v0.36.3 (cel-go v0.26.0)")
    assert {len(answer) for answer in told} == {1}
    assert set().union(*told) == {"value", "error", "compile"}
