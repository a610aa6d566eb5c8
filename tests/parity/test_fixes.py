"""Fixes that are shown as verified work: applied to an API server, each lets its pod run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import pytest

from tests.e2e.controlplane.build import MINOR
from tests.parity.explained import apply_fixes
from tests.parity.recordings import Recording
from tests.parity.scenario import Scenario
from tests.parity.suite import scenarios

_PARTS = 8
"""The scenarios are spread over this number of tests; each starts a daemon, and takes half a minute."""
_NIGHTLY = [pytest.param(part, marks=pytest.mark.nightly) for part in range(1, _PARTS)]

KNOWN: Final = frozenset({"devices-0/devices 004/p2"})
"""Pods with a fix that may not work: counters of the pool are overdrawn before, and the check before binding refuses the share."""


def _plain() -> list[Scenario]:
    return [scenario for scenario in scenarios() if not scenario.feature_gates]


@pytest.mark.parametrize("part", [0, *_NIGHTLY])
def test_every_verified_fix_lets_its_pod_run(recorded: Mapping[str, dict[str, Recording]], part: int) -> None:
    """All fixes of all pods of a part of the suite that no node fits."""
    version = MINOR
    scenarios = [scenario for scenario in _plain() if scenario.key in recorded[version]]

    applied = asyncio.run(apply_fixes(scenarios[part::_PARTS], recorded[version], version))

    assert [each for each in applied.fails if not any(each.startswith(f"{known}: ") for known in KNOWN)] == []
    assert len(applied.works) > applied.explained / 2
