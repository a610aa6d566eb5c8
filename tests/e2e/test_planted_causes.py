"""Fixes work on a real kube-apiserver: applied to it, each lets its pod run."""

from __future__ import annotations

import pytest

from tests.e2e.controlplane.harness import ControlPlane
from tests.explained.causes import KINDS
from tests.explained.proof import on, proofs, summed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


async def test_fixes_of_each_kind_of_cause_work(control_plane_binaries: object, seed: int) -> None:
    """One cluster of each kind, with another seed in each run."""
    async with ControlPlane(volume_resync_s=1) as plane, on(plane) as bench:
        found = await proofs(bench, [(kind, seed) for kind in KINDS], exhaustively=False)

    assert [each.kind for each in found if not each.is_planted] == []
    assert [text for each in found for text in each.fails] == []
    assert summed(found).shown > len(KINDS)
