"""What Reserve takes and Unreserve gives back: docs/spec/volumes.md §5, rows A1–A13, and the holders of assumed objects (B-15)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.storage_v1 import BOUND_BY_CONTROLLER, ObjectRef
from scheduler.cache.storage.assume_cache import OutOfSync
from scheduler.framework.status import Code
from scheduler.plugins.volumebinding.plugin import STATE
from scheduler.plugins.volumebinding.pod_volumes import PodVolumes, VolumeError
from tests.support.volumebuilders import a_capacity, a_claim, a_class
from tests.unit.plugins.volumebinding.world import D1, D2, U1, U2, A, B, World, tracking, using

REF = ObjectRef("default", "u1", "u1")
A_FOR_U1 = A.claimed_by("u1", uid="u1", by_controller=True)


def found(world: World, *claims: str) -> PodVolumes:
    """What n1 would do."""
    state, no = world.pre_filtered(using("p", *claims))
    assert no is None
    volumes = world.binder.find_pod_volumes(state.get(STATE).claims, world.slot("n1"))
    assert isinstance(volumes, PodVolumes)
    return volumes


def assumptions(world: World) -> set[str]:
    """Volumes and claims that are not as the server has them."""
    kept = world.cluster.volumes
    caches: Any = (kept.volumes, kept.claims)
    return {key for cache in caches for key in cache.assumed_keys() if cache.is_assumed(key)}


def test_a2_a_volume_is_pre_bound() -> None:
    """A2 In the cache; the server knows nothing of it."""
    world = World(U1, A)
    plan = world.plan(using("p", "u1"))

    assert (1, []) == (len(plan.static), plan.dynamic)
    assert (REF, "yes") == (
        world.volume("a").spec.claim_ref,
        world.volume("a").metadata.annotations[BOUND_BY_CONTROLLER],
    )
    assert world.cluster.volumes.volumes.get_api("a").spec.claim_ref is None  # type: ignore[union-attr]
    assert {"a"} == assumptions(world)


def test_a5_a_volume_is_gone() -> None:
    """A5 Nothing stays assumed."""
    world = World(U1, U2, A, B)
    volumes = found(world, "u1", "u2")
    world.withdraw("PersistentVolume", "b")

    with pytest.raises(VolumeError, match=r'^persistentvolumes "b" not found$'):
        world.binder.assume_pod_volumes(using("p", "u1", "u2"), "n1", volumes)
    assert set() == assumptions(world)
    assert {} == world.binder._assumptions.under_way
    assert ["assume"] == world.metrics.errors


def test_a7_a_claim_was_written_before_reserve() -> None:
    """A7 The volumes are searched again."""
    world = World(U1, A, D2)
    volumes = found(world, "u1", "d2")
    world.show(D2.label("tier", "a"))

    with pytest.raises(VolumeError, match=r'^"default/d2" is out of sync \(stored: \d+, assume: \d+\)$'):
        world.binder.assume_pod_volumes(using("p", "u1", "d2"), "n1", volumes)
    assert set() == assumptions(world)
    assert world.claim("d2").selected_node is None


def test_a7_as_reserve_says_it() -> None:
    """An error: the pod is tried again."""
    world = World(U1, A)
    state, _ = world.pre_filtered(using("p", "u1"))
    world.withdraw("PersistentVolumeClaim", "default/u1")
    world.show(U1, A.label("x", "y"))
    world.cluster.volumes.volumes.assume = _out_of_sync  # type: ignore[method-assign]
    no = world.plugin.reserve(state, using("p", "u1"), "n1")

    assert no is not None
    assert (Code.ERROR, '"a" is out of sync (stored: 2, assume: 1)') == (no.code, no.message)
    assert state.get(STATE).plan is None


def _out_of_sync(obj: Any) -> None:
    raise OutOfSync('"a" is out of sync (stored: 2, assume: 1)')


def test_a8_given_back() -> None:
    """A8 And again: no change."""
    world = World(U1, A, D1)
    state, assumed = world.reserved(using("p", "u1", "d1"))
    for _ in range(2):
        world.plugin.unreserve(state, assumed, "n1")

        assert set() == assumptions(world)
        assert (None, None) == (world.volume("a").spec.claim_ref, world.claim("d1").selected_node)


def test_a11_bound_between_filter_and_reserve() -> None:
    """A11 Another client wrote it: nothing is assumed."""
    world = World(U1, A)
    state, _ = world.pre_filtered(using("p", "u1"))
    world.show(U1.bound_to("a"), A_FOR_U1.phase("Bound"))

    assert world.plugin.reserve(state, using("p", "u1"), "n1") is None
    assert state.get(STATE).all_bound
    assert set() == assumptions(world)


def test_an_older_attempts_undoing_spares_a_newer_one() -> None:
    """§1.2 What the watch has shown since is another version."""
    world = World(U1, A)
    state, assumed = world.reserved(using("first", "u1"))
    world.show(A.label("tier", "a"))
    world.plan(using("second", "u1"))
    world.plugin.unreserve(state, assumed, "n1")

    assert {"a"} == assumptions(world)


# -- pods that share a claim (B-15) -----------------------------------------------------------------------------------------

SHARED_D = (a_class("E", "P"), a_claim("e", "1Gi", "E"))
SHARED = pytest.mark.parametrize(("things", "claim"), [((U1, A), "u1"), (SHARED_D, "e")], ids=["a volume", "a node"])


@SHARED
@pytest.mark.parametrize("first_goes", [True, False], ids=["the first goes", "the second goes"])
def test_what_two_pods_hold_stays_until_both_let_go(things: Any, claim: str, first_goes: bool) -> None:
    """B-15 Upstream drops what the other one still counts on."""
    world = World(*things)
    first, second = (world.reserved(using(name, claim)) for name in ("first", "second"))
    kept = assumptions(world)
    goes, stays = (first, second) if first_goes else (second, first)
    world.plugin.unreserve(*goes, "n1")

    assert 1 == len(kept)
    assert kept == assumptions(world)
    world.plugin.unreserve(*stays, "n1")
    assert set() == assumptions(world)


def test_a_shared_claim_is_charged_once() -> None:
    """B-15 Two pods with one claim reserve its capacity once."""
    world = World(*SHARED_D, a_claim("f", "1Gi", "E"), *tracking(True), a_capacity("o", "E", "2Gi").everywhere())
    for name in ("first", "second"):
        world.reserved(using(name, "e"))

    assert ("f",) == world.decide(using("third", "f")).dynamic


@SHARED
def test_what_one_of_two_pods_has_written_stays(things: Any, claim: str) -> None:
    """B-17 It is held until the watch shows it, also after Unreserve."""
    world = World(*things)
    writes, waits = (world.reserved(using(name, claim)) for name in ("first", "second"))
    plan = writes[0].get(STATE).plan
    assert plan is not None
    steps: list[Any] = [*plan.static, *plan.dynamic]
    for step in steps:
        step.written = object()
    kept = assumptions(world)
    world.plugin.unreserve(*writes, "n1")
    world.plugin.unreserve(*waits, "n1")

    assert (1, kept) == (len(kept), assumptions(world))


def test_a_volume_that_was_freed_is_held_again() -> None:
    """A volume that was written and freed belongs to the plan that took it last, and that plan gives it back."""
    world = World(U1, a_claim("v1", "1G", "W"), A)
    writes = world.reserved(using("first", "u1"))
    plan = writes[0].get(STATE).plan
    assert plan is not None
    plan.static[0].written = plan.static[0].volume
    world.show(A)
    takes = world.reserved(using("second", "v1"))
    world.plugin.unreserve(*writes, "n1")

    assert {"a"} == assumptions(world)
    world.plugin.unreserve(*takes, "n1")
    assert set() == assumptions(world)
