"""Kubernetes' CEL environment still departs from cel-spec exactly where and how the checked-in answers say."""

import pytest

from tests.e2e.controlplane.build import MINOR
from tests.e2e.controlplane.gate import built_or_skip
from tests.unit.cel.departures import FILE, answers, binary, departures, reasons, written_cases

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_the_departures_are_kubernetes_answers() -> None:
    """Byte for byte, but for the reasons: `python -m tests.unit.cel.departures` writes this file, with Kubernetes 1.36.

    With 1.37 only the versions in its head differ.
    """
    oracle, text = built_or_skip(binary), FILE.read_text()
    now, known = departures(oracle, reasons(text)).splitlines(), text.splitlines()

    assert now[1:] == known[1:]
    assert (now[0] == known[0]) is (MINOR == "1.36")


def test_a_case_has_one_answer() -> None:
    """Each ends with a value, an error or a refusal, and says which modules have answered."""
    source, told = answers(built_or_skip(binary), list(written_cases().values()))

    modules = {"1.36": "k8s.io/apiserver v0.36.3 (cel-go v0.26.0)", "1.37": "k8s.io/apiserver v0.37.2 (cel-go v0.29.2)"}
    assert source.startswith(modules[MINOR])
    assert {len(answer) for answer in told} == {1}
    assert set().union(*told) == {"value", "error", "compile"}
