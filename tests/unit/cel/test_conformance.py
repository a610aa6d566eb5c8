from __future__ import annotations

import pytest

from tests.unit.cel.conformance import cases, shortcoming

_CASES = list(cases())


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in _CASES])
def test_conformance(case):
    """cel-spec's cases, with Kubernetes' answers where it departs from them: docs/spec/cel.md."""
    assert shortcoming(case) is None, case.expression


def test_nothing_was_lost_in_conversion():
    """The cases of cel.dev/expr v0.25.1 without protocol buffers, enums and containers."""
    assert len(_CASES) == 1331
    assert len({case.name for case in _CASES}) == 1331
