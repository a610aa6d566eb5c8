"""Fixes that are shown as verified work: applied to an API server, each lets its pod run."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.core.feature_gates import VERSIONS
from tests.parity.explained import apply_fixes
from tests.parity.scenario import Scenario
from tests.parity.suite import scenarios

_PARTS = 8
"""The scenarios are spread over so many tests; each starts a daemon."""


def _plain() -> list[Scenario]:
    return [scenario for scenario in scenarios() if not scenario.feature_gates]


@pytest.mark.parametrize("part", range(_PARTS))
def test_every_verified_fix_lets_its_pod_run(part: int) -> None:
    """All fixes of all pods of the suite that no node fits."""
    applied = asyncio.run(apply_fixes(_plain()[part::_PARTS], VERSIONS[-1]))

    assert applied.fails == []
    assert len(applied.works) > 20
    assert len(applied.without_fix) < applied.explained / 4
