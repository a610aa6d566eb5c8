"""The fixes of pods that do not fit, against exhaustive search: on random clusters with a planted cause."""

from __future__ import annotations

from typing import Final

import pytest

from tests.explained.causes import KINDS
from tests.explained.proof import Proof, in_process, proofs, summed

_SEEDS: Final = 2
_NIGHTLY_SEEDS: Final = 100


async def _prove(cases: list[tuple[str, int]]) -> list[Proof]:
    async with in_process() as bench:
        return await proofs(bench, cases, exhaustively=True)


def _check(found: list[Proof]) -> None:
    """Check the three promises.

    * Each fix that is shown as verified works: on a fresh copy of the cluster on the API server, with the fix applied, the pod
      gets a node, or has one and waits there for its volumes.
    * A fix is found where exhaustive search finds one: in at least 98 % of the clusters where up to three changes suffice.
    * Fixes are minimal, in at least 95 % of the clusters: no set of fewer changes by the same actors works in place of the
      first fix, and of no fix that is shown a part suffices.
    * An amount that a fix lowers is the least that suffices, in at least 95 % of the clusters.
    """
    sums = summed(found)

    assert [each.kind for each in found if not (each.base_fits and each.is_planted)] == []
    assert [text for each in found for text in each.fails] == []
    assert sums.shown > sums.clusters
    assert sums.found_share >= 0.98, [text for each in found for text in each.missing]
    assert sums.minimal_share >= 0.95, [text for each in found for text in each.not_minimal]
    assert 1 - sums.too_much / sums.clusters >= 0.95, [text for each in found for text in each.too_much]


async def test_fixes_of_each_kind_of_cause_work_and_are_minimal() -> None:
    found = await _prove([(kind, seed) for kind in KINDS for seed in range(_SEEDS)])

    _check(found)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
async def test_fixes_of_a_kind_of_cause_work_and_are_minimal(kind: str) -> None:
    found = await _prove([(kind, seed) for seed in range(_NIGHTLY_SEEDS)])

    _check(found)
