"""VolumeBinding at its extension points, with a binder that answers as told: docs/spec/volumes.md §2–§6, rows V1, A12."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.cache.cluster import Cluster
from scheduler.config.args import KubestowArgs
from scheduler.core.decode import Broken
from scheduler.core.errors import Conflict
from scheduler.core.meta import Metadata
from scheduler.core.podinfo import pod_info
from scheduler.core.timestamps import seconds
from scheduler.core.verdicts import SKIP, Code, Rejection
from scheduler.framework.state import CycleState
from scheduler.plugins.volumebinding import VolumeBinding
from scheduler.plugins.volumebinding.binder import PodVolumeClaims
from scheduler.plugins.volumebinding.plugin import STATE, VolumeState
from tests.support.volumebinder import FakeVolumeBinder, refusing
from tests.support.volumebuilders import a_claim
from tests.unit.objects import cluster, handle, node
from tests.unit.plugins.volumebinding.world import (
    BIND_CONFLICT,
    NODE_CONFLICT,
    PB,
    U1,
    UNBOUND_IMMEDIATE,
    A,
    World,
    using,
)

CLAIM = a_claim("c").uid("c").typed()
DELAYED = PodVolumeClaims(delayed=(CLAIM,))
ENTANGLED = PodVolumeClaims(delayed=(CLAIM,), is_entangled=True)
POD = using("p", "c")
FAILED = ("VolumeBinding", Code.ERROR, ("it broke",))
UNRESOLVABLE = Code.UNRESOLVABLE


def plugin_of(binder: FakeVolumeBinder, seen: Cluster | None = None) -> tuple[VolumeBinding, Cluster]:
    seen = seen or cluster(node("n1"), node("n2"))
    given = dataclasses.replace(handle(seen), ours=KubestowArgs(pre_bind_live_check="none"))
    return VolumeBinding(None, given, binder=binder), seen


def begun(binder: FakeVolumeBinder) -> tuple[VolumeBinding, CycleState, Cluster]:
    """PreFilter has let the pod pass."""
    plugin, seen = plugin_of(binder)
    state = CycleState()
    assert plugin.pre_filter(state, POD, seen.nodes.present) is None
    return plugin, state, seen


def told(no: object) -> tuple[str, Code, tuple[str, ...]] | None:
    return (no.plugin, no.code, no.reasons) if isinstance(no, Rejection) else None


# -- PreFilter and Filter ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("binder", "exact"),
    [
        pytest.param(FakeVolumeBinder(DELAYED), True, id="claims of one wish"),
        pytest.param(FakeVolumeBinder(ENTANGLED), False, id="claims of several wishes"),
        pytest.param(FakeVolumeBinder(PodVolumeClaims(immediate=(CLAIM,))), True, id="PreFilter has refused the pod"),
    ],
)
def test_whether_filter_alone_tells(binder, exact):
    """Preemption asks that of every pod, also of those that never came to Filter."""
    plugin, seen = plugin_of(binder)
    state = CycleState()
    plugin.pre_filter(state, POD, seen.nodes.present)
    assert exact == plugin.vouches(state, POD)


@pytest.mark.parametrize(
    ("binder", "answer"),
    [
        pytest.param(
            FakeVolumeBinder(PodVolumeClaims(unusable="no such claim")),
            ("VolumeBinding", UNRESOLVABLE, ("no such claim",)),
            id="a claim cannot be used",
        ),
        pytest.param(
            FakeVolumeBinder(PodVolumeClaims(immediate=(CLAIM, CLAIM))),
            ("VolumeBinding", UNRESOLVABLE, (UNBOUND_IMMEDIATE,)),
            id="claims wait for nobody",
        ),
        pytest.param(refusing("pod_volume_claims", "it broke"), FAILED, id="it breaks"),
    ],
)
def test_pre_filter(binder: FakeVolumeBinder, answer: Any) -> None:
    """One reason, whatever the number of claims."""
    plugin, seen = plugin_of(binder)

    assert answer == told(plugin.pre_filter(CycleState(), POD, seen.nodes.present))


def test_filter_answers_by_reasons() -> None:
    """All reasons of a node are one refusal, and no eviction helps."""
    reasons = {(NODE_CONFLICT, BIND_CONFLICT): 0b01, (BIND_CONFLICT,): 0b10}
    plugin, state, _ = begun(FakeVolumeBinder(DELAYED, conflicts=reasons))

    assert {
        Rejection("VolumeBinding", UNRESOLVABLE, (NODE_CONFLICT, BIND_CONFLICT)): 0b01,
        Rejection("VolumeBinding", UNRESOLVABLE, (BIND_CONFLICT,)): 0b10,
    } == plugin.filter(state, POD, 0b11)
    assert {Rejection("VolumeBinding", UNRESOLVABLE, (BIND_CONFLICT,)): 0b10} == plugin.filter(state, POD, 0b10)


def test_filter_that_breaks_ends_the_attempt() -> None:
    """The error is of all nodes that were asked about."""
    plugin, state, _ = begun(refusing("eligible_nodes", "it broke"))
    ((no, nodes),) = plugin.filter(state, POD, 0b11).items()

    assert (FAILED, 0b11) == (told(no), nodes)


@pytest.mark.parametrize(
    ("binder", "answer", "calls"),
    [
        pytest.param(FakeVolumeBinder(DELAYED, found=(BIND_CONFLICT,)), None, [], id="Filter was exact"),
        pytest.param(
            FakeVolumeBinder(ENTANGLED, found=(BIND_CONFLICT,)),
            ("VolumeBinding", UNRESOLVABLE, (BIND_CONFLICT,)),
            ["find"],
            id="entangled, and there is none",
        ),
        pytest.param(refusing("find", "it broke"), FAILED, ["find"], id="it breaks"),
    ],
)
def test_verify(binder: FakeVolumeBinder, answer: Any, calls: list[str]) -> None:
    """Only what was not judged exactly is tried."""
    if binder.errors:
        binder.claims = ENTANGLED
    plugin, state, _ = begun(binder)
    del binder.calls[:]

    assert answer == told(plugin.verify(state, POD, 0))
    assert calls == binder.calls


# -- Reserve -------------------------------------------------------------------------------------------------------------


def reserved(binder: FakeVolumeBinder) -> tuple[VolumeBinding, CycleState, Cluster]:
    plugin, state, seen = begun(binder)
    assert plugin.reserve(state, POD, "n1") is None
    return plugin, state, seen


@pytest.mark.parametrize(
    ("binder", "answer"),
    [
        pytest.param(FakeVolumeBinder(DELAYED, all_bound=True), None, id="everything is bound"),
        pytest.param(
            FakeVolumeBinder(DELAYED, found=(BIND_CONFLICT,)),
            ("VolumeBinding", UNRESOLVABLE, (BIND_CONFLICT,)),
            id="the node cannot after all",
        ),
        pytest.param(refusing("assume", "it broke"), FAILED, id="assuming breaks"),
    ],
)
def test_reserve(binder: FakeVolumeBinder, answer: Any) -> None:
    """Whatever it says, Unreserve may follow, and again."""
    plugin, state, _ = begun(binder)

    assert answer == told(plugin.reserve(state, POD, "n1"))
    plugin.unreserve(state, POD, "n1")
    plugin.unreserve(state, POD, "n1")
    assert binder.plans == binder.reverted[:1]


def test_reserve_on_a_node_that_is_gone() -> None:
    """An error, and nothing is held."""
    binder = FakeVolumeBinder(DELAYED)
    plugin, state, _ = begun(binder)

    assert ("VolumeBinding", Code.ERROR, ('node "n9" not found',)) == told(plugin.reserve(state, POD, "n9"))
    assert [] == binder.plans


def test_a12_unreserve_has_nothing_to_do() -> None:
    """A12 Without state, and on another node than the one that was reserved."""
    binder = FakeVolumeBinder(DELAYED)
    plugin, state, _ = reserved(binder)
    plugin.unreserve(CycleState(), POD, "n1")
    plugin.unreserve(state, POD, "n2")

    assert [] == binder.reverted


def test_the_second_look_spares_what_is_assumed() -> None:
    """Between PreBind and Bind the node is looked at again: by what is bound, for the rest is ours and on its way."""
    bound, followed = a_claim("b").bound_to("v").typed(), a_claim("f").wants("w").typed()
    binder = FakeVolumeBinder(PodVolumeClaims(bound=(bound,), delayed=(CLAIM,), followed=(followed,)))
    plugin, state, seen = reserved(binder)
    del binder.asked[:]
    plugin.filter(state, POD, seen.nodes.present)

    assert [PodVolumeClaims(bound=(bound,), followed=(followed,))] == binder.asked
    assert plugin.verify(state, POD, 0) is None


def test_the_second_look_after_a_failed_reserve_is_a_first_one() -> None:
    """Nothing is ours then."""
    binder = FakeVolumeBinder(DELAYED, found=(BIND_CONFLICT,))
    plugin, state, seen = begun(binder)
    assert plugin.reserve(state, POD, "n1") is not None
    plugin.filter(state, POD, seen.nodes.present)

    assert DELAYED == binder.asked[-1]


# -- PreBind -------------------------------------------------------------------------------------------------------------


def stateful(known: VolumeState | None) -> CycleState:
    state = CycleState()
    if known is not None:
        state.set(STATE, known)
    return state


def test_v1_pre_flight() -> None:
    """V1 Skip, go on, not found, nothing for this node."""
    binder = FakeVolumeBinder(DELAYED)
    plugin, state, _ = reserved(binder)
    nothing = ("VolumeBinding", Code.ERROR, ('no pod volume found for node "n2"',))

    assert plugin.pre_bind_parallel
    assert SKIP is plugin.pre_bind_pre_flight(stateful(VolumeState(DELAYED, all_bound=True)), POD, "n1")
    assert plugin.pre_bind_pre_flight(state, POD, "n1") is None
    assert ("VolumeBinding", Code.ERROR, ("not found",)) == told(plugin.pre_bind_pre_flight(stateful(None), POD, "n1"))
    assert nothing == told(plugin.pre_bind_pre_flight(state, POD, "n2"))
    assert nothing == told(plugin.pre_bind_pre_flight(stateful(VolumeState(DELAYED)), POD, "n2"))


@pytest.mark.parametrize(
    ("known", "node_name", "answer"),
    [
        pytest.param(VolumeState(DELAYED, all_bound=True), "n1", None, id="everything is bound"),
        pytest.param(
            VolumeState(DELAYED),
            "n1",
            ("VolumeBinding", Code.ERROR, ('no pod volume found for node "n1"',)),
            id="nothing was reserved",
        ),
    ],
)
async def test_pre_bind_without_a_plan(known: VolumeState, node_name: str, answer: Any) -> None:
    """§6.2, and nobody is asked."""
    binder = FakeVolumeBinder(DELAYED)
    plugin, _ = plugin_of(binder)

    assert answer == told(await plugin.pre_bind(stateful(known), POD, node_name))
    assert [] == binder.calls


@pytest.mark.parametrize(
    "binder",
    [
        pytest.param(refusing("bind", "it broke"), id="the wait is over"),
        pytest.param(FakeVolumeBinder(errors={"bind": Conflict("it broke")}), id="a write failed: its text, unchanged"),
    ],
)
async def test_pre_bind_fails(binder: FakeVolumeBinder) -> None:
    """§6.2 An error, and not a refusal: the pod backs off."""
    plugin, state, _ = reserved(binder)

    assert FAILED == told(await plugin.pre_bind(state, POD, "n1"))


# -- what a young pod's claims may have become (B-18) ---------------------------------------------------------------------

BOUND = a_claim("c", "1G", "W").bound_to("pb").uid("c")


def young(world: World, *claims: str, age_s: float) -> Any:
    info = using("p", *claims)
    stamp = seconds(world.clock.wall() - age_s)
    return pod_info(replace(info.pod, metadata=replace(info.pod.metadata, creation_timestamp=stamp)))


def is_bound_and_young(*, age_s: float = 1.0, ours: KubestowArgs | None = None) -> tuple[World, CycleState, Any]:
    world = World(BOUND, PB, ours=ours)
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


async def test_bound_claims_beside_others_are_read_too() -> None:
    """B-18 Before anything is written for those that are not bound yet."""
    world = World(BOUND, PB, U1, A)
    state, assumed = world.reserved(young(world, "c", "u1", age_s=1.0))
    world.writer.claims["default/c"] = BOUND.uid("new").typed()
    task = asyncio.ensure_future(world.plugin.pre_bind(state, assumed, "n1"))
    await world.clock.settle()

    assert task.done(), "it waits for volumes"
    no = task.result()
    assert no is not None
    assert (NOT_THE_ONE, []) == (no.message, world.writer.prebinds)
