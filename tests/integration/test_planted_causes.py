"""The fixes of pods that do not fit, against exhaustive search: on random clusters with a planted cause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import pytest

from scheduler.explain.answer import ChangeAnswer, Explanation, FixAnswer
from scheduler.explain.edits import Edit, Step
from tests.explained.bench import Bench
from tests.explained.causes import KINDS, planted
from tests.explained.proof import Proof, in_process, proofs, prove, summed

_SEEDS: Final = 2
_NIGHTLY_SEEDS: Final = 100


async def _prove(cases: list[tuple[str, int]]) -> list[Proof]:
    async with in_process() as bench:
        return await proofs(bench, cases, exhaustively=True)


def _check(found: list[Proof]) -> None:
    """Check four promises.

    * Each fix that is shown as verified works: on a fresh copy of the cluster on the API server, with the fix applied, the pod
      gets a node, or has one and waits there for its volumes.
    * A fix is found in at least 98 % of the clusters where exhaustive search finds one of up to three changes.
    * Fixes are minimal in at least 95 % of the clusters. Then no set of fewer changes by the same actors, which costs no more,
      works in place of the first fix, and no part of any shown fix suffices.
    * Amounts are minimal in at least 95 % of the clusters. Then no shown fix works with one unit less given up.
    """
    sums = summed(found)

    assert [each.kind for each in found if not (each.base_fits and each.is_planted)] == []
    assert [text for each in found for text in each.fails] == []
    assert sums.shown >= sums.clusters * 0.98
    assert sums.found_share >= 0.98, [text for each in found for text in each.missing]
    assert sums.minimal_share >= 0.95, [text for each in found for text in each.not_minimal]
    assert sums.least_share >= 0.95, [text for each in found for text in each.too_much]


async def test_fixes_of_each_kind_of_cause_work_and_are_minimal() -> None:
    found = await _prove([(kind, seed) for kind in KINDS for seed in range(_SEEDS)])

    _check(found)


async def test_claims_of_an_earlier_copy_take_no_storage_of_the_next() -> None:
    """Two of the three fixes put the claim on the same node, where it fits once."""
    _check(await _prove([("capacity-in-flight", 30995)]))


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
async def test_fixes_of_a_kind_of_cause_work_and_are_minimal(kind: str) -> None:
    found = await _prove([(kind, seed) for seed in range(_NIGHTLY_SEEDS)])

    _check(found)


# -- wrong fixes are noticed -------------------------------------------------------------------------------------------

USELESS: Final = ChangeAnswer(
    code="LabelNode",
    actor="user",
    text="label node n0 a=b",
    edits=(Edit("patch", "Node", "n0", patch=(Step("add", "/metadata/labels/a", "b"),)),),
)


def _only(fixes: Sequence[FixAnswer], *changes: ChangeAnswer) -> tuple[FixAnswer, ...]:
    return (msgspec.structs.replace(fixes[0], changes=changes),)


def _one_less(change: ChangeAnswer) -> ChangeAnswer:
    """Return the lowering of cpu with 100 m less of the pod's request left."""
    (edit,) = change.edits
    lowered = f"{int(edit.patch[0].value.removesuffix('m')) - 100}m"
    steps = (msgspec.structs.replace(edit.patch[0], value=lowered), *edit.patch[1:])
    return msgspec.structs.replace(change, edits=(msgspec.structs.replace(edit, patch=steps),))


WRONG = [
    pytest.param(lambda fixes: _only(fixes, USELESS), "fails", id="a fix after which the pod does not fit"),
    pytest.param(lambda fixes: (), "missing", id="no fix where one exists"),
    pytest.param(
        lambda fixes: _only(fixes, *fixes[0].changes, USELESS), "not_minimal", id="a change that is not needed"
    ),
    pytest.param(
        lambda fixes: _only(fixes, _one_less(fixes[0].changes[0])), "too_much", id="an amount below the least"
    ),
]


@pytest.mark.parametrize(("altered", "where"), WRONG)
async def test_a_wrong_fix_is_noticed(
    monkeypatch: pytest.MonkeyPatch, altered: Callable[[Sequence[FixAnswer]], tuple[FixAnswer, ...]], where: str
) -> None:
    right = Bench.explain

    def wrong(bench: Bench, pod: dict[str, object]) -> Explanation:
        found = right(bench, pod)
        return msgspec.structs.replace(found, fixes=altered(found.fixes))

    monkeypatch.setattr(Bench, "explain", wrong)
    async with in_process() as bench:
        proof = await prove(bench, planted("cpu", 0), exhaustively=True)

    problems = {name for name in ("fails", "missing", "not_minimal", "too_much") if getattr(proof, name)}
    assert problems == {where}
