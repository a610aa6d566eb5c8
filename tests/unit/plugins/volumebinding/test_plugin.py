"""VolumeBinding at its extension points (docs/spec/volumes.md §2–§6, rows V1, A1–A13), and what Reserve takes and Unreserve gives back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata, seconds
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.storage_v1 import BOUND_BY_CONTROLLER, ObjectRef
from scheduler.cache.assume_cache import OutOfSync
from scheduler.config.args import KubestowArgs
from scheduler.core.errors import Conflict, VolumeError
from scheduler.framework.interface import CycleState
from scheduler.framework.status import SKIP, Code, Rejection
from scheduler.plugins.volumebinding.plugin import STATE
from scheduler.plugins.volumebinding.pod_volumes import PodVolumes
from tests.support.volumebuilders import a_capacity, a_claim, a_class
from tests.unit.plugins.volumebinding.world import (
    BIND_CONFLICT,
    BND,
    D1,
    D2,
    IMM,
    NODE_CONFLICT,
    PB,
    U1,
    U2,
    A,
    B,
    VolumeWorld,
    tracking,
    using,
)

FAILED = Rejection("VolumeBinding", Code.ERROR, ("it broke",))
NOT_FOUND = Rejection("VolumeBinding", Code.ERROR, ("not found",))
MANY = a_claim("many", "1G", "W").modes("ReadWriteOnce", "ReadOnlyMany")
POD = using("p", "u1")


def refused(*reasons: str) -> Rejection:
    return Rejection("VolumeBinding", Code.UNRESOLVABLE, reasons)


def no_volume_for(name: str) -> Rejection:
    return Rejection("VolumeBinding", Code.ERROR, (f'no pod volume found for node "{name}"',))


def breaks(world: VolumeWorld, operation: str, error: Exception) -> None:
    """Each call of this operation of the binder fails."""

    def fails(*_: object) -> None:
        raise error

    setattr(world.binder, operation, fails)


# -- PreFilter and Filter ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("info", "exact"),
    [
        pytest.param(POD, True, id="claims of one wish"),
        pytest.param(using("p", "u1", "many"), False, id="claims of several wishes"),
        pytest.param(using("p", "i"), True, id="PreFilter has refused the pod"),
    ],
)
def test_filter_is_exact(info: PodInfo, exact: bool) -> None:
    """Preemption calls it for each pod, also for pods that PreFilter refused."""
    world = VolumeWorld(U1, MANY, IMM, A)
    state, _ = world.pre_filtered(info)

    assert exact == world.plugin.filter_is_exact(state, info)


def test_verify_that_breaks_ends_the_attempt() -> None:
    """Only claims that were not judged exactly are tried."""
    world, entangled = VolumeWorld(U1, MANY, A), using("p", "u1", "many")
    states = [world.pre_filtered(info)[0] for info in (POD, entangled)]
    breaks(world, "find_pod_volumes", VolumeError("it broke"))

    assert world.plugin.verify(states[0], POD, world.slot("n1")) is None
    assert FAILED == world.plugin.verify(states[1], entangled, world.slot("n1"))


# -- Reserve -------------------------------------------------------------------------------------------------------------


def test_reserve_on_a_node_that_cannot_after_all() -> None:
    """Nothing is held then, and Filter looks at all claims again."""
    world = VolumeWorld(U1, A)
    state, _ = world.pre_filtered(POD)
    world.withdraw("PersistentVolume", "a")

    assert refused(BIND_CONFLICT) == world.plugin.reserve(state, POD, "n1")
    world.plugin.unreserve(state, POD, "n1")
    assert {"n1": (BIND_CONFLICT,)} == world.judged(POD, "n1", state=state)


def test_reserve_on_a_node_that_is_gone() -> None:
    """An error, and nothing is held."""
    world = VolumeWorld(U1, A)
    state, _ = world.pre_filtered(POD)

    assert Rejection("VolumeBinding", Code.ERROR, ('node "n9" not found',)) == world.plugin.reserve(state, POD, "n9")
    assert world.volume("a").spec.claim_ref is None


def test_a12_unreserve_has_nothing_to_do() -> None:
    """A12 Without state, and on another node than the one that was reserved."""
    world = VolumeWorld(U1, A)
    state, _ = world.reserved(POD)
    world.plugin.unreserve(CycleState(), POD, "n1")
    world.plugin.unreserve(state, POD, "n2")

    assert "u1" == world.volume("a").spec.claim_ref.name


def test_the_second_look_spares_what_is_assumed() -> None:
    """Between PreBind and Bind the node is looked at again: by what is bound, for the rest is ours and on its way."""
    world, info = VolumeWorld(U1, A, BND, PB, MANY), using("p", "u1", "bnd")
    state, assumed = world.reserved(info)
    world.withdraw("PersistentVolume", "a")

    assert {} == world.judged(assumed, "n1", state=state)
    assert world.plugin.verify(state, assumed, world.slot("n1")) is None
    world.show(PB.set({"spec": {"nodeAffinity": None}}).where("k", "n2"))
    assert {"n1": (NODE_CONFLICT,)} == world.judged(assumed, "n1", state=state)


# -- PreBind -------------------------------------------------------------------------------------------------------------


async def test_v1_pre_flight_and_pre_bind_without_a_plan() -> None:
    """V1 Skip, go on, not found, nothing for this node; PreBind says the same (§6.2)."""
    world, bound = VolumeWorld(U1, A, BND, PB, ours=KubestowArgs(pre_bind_live_check="none")), using("q", "bnd")
    state, _ = world.reserved(POD)
    all_bound, _ = world.reserved(bound)
    fresh, _ = world.pre_filtered(using("r", "u1"))
    plugin = world.plugin

    assert plugin.pre_bind_parallel
    assert SKIP is plugin.pre_bind_pre_flight(all_bound, bound, "n1")
    assert plugin.pre_bind_pre_flight(state, POD, "n1") is None
    assert NOT_FOUND == plugin.pre_bind_pre_flight(CycleState(), POD, "n1")
    assert await plugin.pre_bind(all_bound, bound, "n1") is None
    for known, name in ((state, "n2"), (fresh, "n1")):
        assert no_volume_for(name) == plugin.pre_bind_pre_flight(known, POD, name)
        assert no_volume_for(name) == await plugin.pre_bind(known, POD, name)
    assert [] == world.writer.prebinds


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(VolumeError("it broke"), id="the wait is over"),
        pytest.param(Conflict("it broke"), id="a write failed: its text, unchanged"),
    ],
)
async def test_pre_bind_fails(error: Exception) -> None:
    """§6.2 An error, and not a refusal: the pod backs off."""
    world = VolumeWorld(U1, A, ours=KubestowArgs(pre_bind_live_check="none"))
    state, assumed = world.reserved(POD)
    breaks(world, "bind_pod_volumes", error)

    assert FAILED == await world.plugin.pre_bind(state, assumed, "n1")


# -- what a young pod's claims may have become (B-18) ---------------------------------------------------------------------

BOUND = a_claim("c", "1G", "W").bound_to("pb").uid("c")


def young(world: VolumeWorld, *claims: str, age_s: float) -> Any:
    info = using("p", *claims)
    stamp = seconds(world.clock.wall() - age_s)
    return pod_info(replace(info.pod, metadata=replace(info.pod.metadata, creation_timestamp=stamp)))


def is_bound_and_young(*, age_s: float = 1.0, ours: KubestowArgs | None = None) -> tuple[VolumeWorld, CycleState, Any]:
    world = VolumeWorld(BOUND, PB, ours=ours)
    info = young(world, "c", age_s=age_s)
    state, assumed = world.reserved(info)
    return world, state, assumed


@pytest.mark.parametrize(
    ("age_s", "ours", "looks"),
    [
        pytest.param(1.0, None, True, id="a young pod"),
        pytest.param(3.0, None, False, id="an older one"),
        pytest.param(1.0, KubestowArgs(parity=True), False, id="parity"),
        pytest.param(1.0, KubestowArgs(pre_bind_live_check="none"), False, id="switched off"),
    ],
)
def test_claims_of_young_pods_are_looked_at_again(age_s: float, ours: KubestowArgs | None, looks: bool) -> None:
    """B-18 The watch of pods may be ahead of the watch of claims."""
    world, state, assumed = is_bound_and_young(age_s=age_s, ours=ours)

    assert (None if looks else SKIP) is world.plugin.pre_bind_pre_flight(state, assumed, "n1")


NOT_THE_ONE = 'persistentvolumeclaim "c" is not the one that was decided on any more'


@pytest.mark.parametrize(
    ("now", "answer"),
    [
        pytest.param(BOUND, None, id="the same"),
        pytest.param(BOUND.uid("new"), NOT_THE_ONE, id="another of that name"),
        pytest.param(BOUND.deleting(), NOT_THE_ONE, id="on its way out"),
        pytest.param(None, NOT_THE_ONE, id="gone"),
        pytest.param("broken", "PersistentVolumeClaim default/c cannot be read: $.spec is odd", id="unreadable"),
    ],
)
async def test_what_the_server_has_of_a_bound_claim(now: Any, answer: str | None) -> None:
    """B-18 Read once more before the pod is bound to it."""
    world, state, assumed = is_bound_and_young()
    if now is None:
        del world.writer.claims["default/c"]
    elif now == "broken":
        world.writer.claims["default/c"] = Broken(
            kind="PersistentVolumeClaim", metadata=Metadata(name="c", namespace="default"), why="$.spec is odd"
        )
    else:
        world.writer.claims["default/c"] = now.typed()
    no = await world.plugin.pre_bind(state, assumed, "n1")

    assert answer == (no.message if no is not None else None)
    assert no is None or no.code is Code.ERROR


async def test_bound_claims_are_read_also_next_to_unbound_ones() -> None:
    """B-18 Before anything is written for those that are not bound yet."""
    world = VolumeWorld(BOUND, PB, U1, A)
    state, assumed = world.reserved(young(world, "c", "u1", age_s=1.0))
    world.writer.claims["default/c"] = BOUND.uid("new").typed()
    task = asyncio.ensure_future(world.plugin.pre_bind(state, assumed, "n1"))
    await world.clock.settle()

    assert task.done(), "it waits for volumes"
    no = task.result()
    assert no is not None
    assert (NOT_THE_ONE, []) == (no.message, world.writer.prebinds)


REF = ObjectRef("default", "u1", "u1")
A_FOR_U1 = A.claimed_by("u1", uid="u1", by_controller=True)


def found(world: VolumeWorld, *claims: str) -> PodVolumes:
    """What n1 would do."""
    state, no = world.pre_filtered(using("p", *claims))
    assert no is None
    volumes = world.binder.find_pod_volumes(state.get(STATE).claims, world.slot("n1"))
    assert isinstance(volumes, PodVolumes)
    return volumes


def assumptions(world: VolumeWorld) -> set[str]:
    """Volumes and claims that are not as the server has them."""
    kept = world.cluster.volumes
    caches: Any = (kept.volumes, kept.claims)
    return {key for cache in caches for key in cache.assumed_keys() if cache.is_assumed(key)}


def test_a2_a_volume_is_pre_bound() -> None:
    """A2 In the cache; the server knows nothing of it."""
    world = VolumeWorld(U1, A)
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
    world = VolumeWorld(U1, U2, A, B)
    volumes = found(world, "u1", "u2")
    world.withdraw("PersistentVolume", "b")

    with pytest.raises(VolumeError, match=r'^persistentvolumes "b" not found$'):
        world.binder.assume_pod_volumes(using("p", "u1", "u2"), "n1", volumes)
    assert set() == assumptions(world)
    assert {} == world.binder._assumptions.under_way
    assert ["assume"] == world.metrics.errors


def test_a7_a_claim_was_written_before_reserve() -> None:
    """A7 The volumes are searched again."""
    world = VolumeWorld(U1, A, D2)
    volumes = found(world, "u1", "d2")
    world.show(D2.label("tier", "a"))

    with pytest.raises(VolumeError, match=r'^"default/d2" is out of sync \(stored: \d+, assume: \d+\)$'):
        world.binder.assume_pod_volumes(using("p", "u1", "d2"), "n1", volumes)
    assert set() == assumptions(world)
    assert world.claim("d2").selected_node is None


def test_a7_as_reserve_says_it() -> None:
    """An error: the pod is tried again."""
    world = VolumeWorld(U1, A)
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
    world = VolumeWorld(U1, A, D1)
    state, assumed = world.reserved(using("p", "u1", "d1"))
    for _ in range(2):
        world.plugin.unreserve(state, assumed, "n1")

        assert set() == assumptions(world)
        assert (None, None) == (world.volume("a").spec.claim_ref, world.claim("d1").selected_node)


def test_a11_bound_between_filter_and_reserve() -> None:
    """A11 Another client wrote it: nothing is assumed."""
    world = VolumeWorld(U1, A)
    state, _ = world.pre_filtered(using("p", "u1"))
    world.show(U1.bound_to("a"), A_FOR_U1.phase("Bound"))

    assert world.plugin.reserve(state, using("p", "u1"), "n1") is None
    assert state.get(STATE).all_bound
    assert set() == assumptions(world)


def test_an_older_attempts_undoing_spares_a_newer_one() -> None:
    """§1.2 What the watch has shown since is another version."""
    world = VolumeWorld(U1, A)
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
    world = VolumeWorld(*things)
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
    world = VolumeWorld(*SHARED_D, a_claim("f", "1Gi", "E"), *tracking(True), a_capacity("o", "E", "2Gi").everywhere())
    for name in ("first", "second"):
        world.reserved(using(name, "e"))

    assert ("f",) == world.decide(using("third", "f")).dynamic


@SHARED
def test_what_one_of_two_pods_has_written_stays(things: Any, claim: str) -> None:
    """B-17 It is held until the watch shows it, also after Unreserve."""
    world = VolumeWorld(*things)
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
    world = VolumeWorld(U1, a_claim("v1", "1G", "W"), A)
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
