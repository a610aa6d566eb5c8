"""Until claims are bound, or cannot be any more: docs/spec/volumes.md §6.4, rows W1–W28, B-3, B-4 and B-5."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.config.args import KubestowArgs, VolumeBindingArgs
from scheduler.core.errors import Conflict, VolumeError
from scheduler.plugins.volumebinding.pod_volumes import BindingPlan
from simulator.builders.core import node
from tests.support.volumebuilders import a_claim, a_class, a_csi_node, a_pv
from tests.unit.plugins.volumebinding.world import D1, PARITY, U1, U2, A, B, VolumeWorld, using

BOUND_A = A.claimed_by("u1", uid="u1", by_controller=True).phase("Bound")
BOUND_U1 = U1.bound_to("a")
OTHER = a_pv("other", "5G", "W").claimed_by("u1", uid="u1").phase("Bound")
MADE = a_pv("made", "1Gi", "D").where("k", "n1").claimed_by("d1", uid="d1").phase("Bound")
PROVISIONED = D1.selected("n1").bound_to("made")
ON_N1 = D1.selected("n1")
WAITS, DONE = False, True
BOTH = pytest.mark.parametrize("ours", [KubestowArgs(), PARITY], ids=["ours", "parity"])


def planned(
    *claims: str, things: Any = (), ours: KubestowArgs | None = None, timeout_s: float = 600.0
) -> tuple[VolumeWorld, BindingPlan]:
    world = VolumeWorld(U1, U2, A, B, D1, *things, ours=ours, args=VolumeBindingArgs(timeout_s))
    return world, world.plan(using("p", *claims))


def look(world: VolumeWorld, plan: BindingPlan) -> Any:
    """Whether it is bound, or the error's text."""
    try:
        return world.binder._waiter.is_bound(plan)
    except VolumeError as error:
        return str(error)


def node_away(name: str = "n1") -> Callable[[VolumeWorld], None]:
    return lambda world: world.cluster.remove_node(name)


def gone(kind: str, key: str) -> Callable[[VolumeWorld], None]:
    return lambda world: world.withdraw(kind, key)


def shown(*things: Any) -> Callable[[VolumeWorld], None]:
    return lambda world: world.show(*things)


CLAIM, VOLUME = "PersistentVolumeClaim", "PersistentVolume"
NO_U1 = 'failed to check binding: persistentvolumeclaims "default/u1" not found'
RESET = 'ClaimRef got reset for pv "a"'
FAILED = 'provisioning failed for PVC "d1"'
WRITTEN = A.claimed_by("u1", uid="u1")
AWAY = 'pv "{}" node affinity doesn\'t match node "n1": no matching NodeSelectorTerms'


@pytest.mark.parametrize(("claims", "changes", "verdict"), [
    pytest.param([], [], DONE, id="W2 nothing to wait for"),
    pytest.param(["u1"], [shown(BOUND_A, U1.wants("a"))], WAITS, id="W4 not completed"),
    pytest.param(["u1"], [shown(BOUND_A, BOUND_U1), shown(BOUND_U1.uid("new"))], NO_U1,
        id="W5 another claim of its name"),
    pytest.param(["u1"], [gone(VOLUME, "a")], 'failed to check binding: persistentvolumes "a" not found',
        id="W5 the volume is gone"),
    pytest.param(["u1"], [shown(A)], RESET, id="W6 without a claim"),
    pytest.param(["u1"], [shown(A.claimed_by("u1"))], RESET, id="W6 without uid"),
    pytest.param(["u1"], [shown(A.claimed_by("other", uid="other"))], RESET, id="W6 another claim's by now"),
    pytest.param(["u1"], [shown(BOUND_A, OTHER.where("k", "n2"), U1.bound_to("other"))], AWAY.format("other"),
        id="bound to another volume, elsewhere"),
    pytest.param(["u1"], [shown(BOUND_A, U1.bound_to("other"))], WAITS,
        id="bound to another one that has not been seen"),
    pytest.param(["u1", "u2"], [shown(BOUND_A, BOUND_U1, B.claimed_by("u2", uid="u2"))], WAITS, id="W7 one of two"),
    pytest.param(["d1"], [shown(MADE, PROVISIONED)], DONE, id="W8 provisioned"),
    pytest.param(["d1"], [gone(CLAIM, "default/d1")],
        'failed to check provisioning pvc: persistentvolumeclaims "default/d1" not found', id="W10 the claim is gone"),
    pytest.param(["d1"], [shown(D1)], 'selectedNode annotation reset for PVC "d1"', id="W11 no annotations at all"),
    pytest.param(["d1"], [shown(D1.annotation("x", "y"))], FAILED, id="W12 the node is withdrawn"),
    pytest.param(["d1"], [shown(D1.selected("n2"))], FAILED, id="W12 another node"),
    pytest.param(["u1", "d1"], [shown(BOUND_A, BOUND_U1, ON_N1)], WAITS, id="W13 the volume is bound, not the claim"),
    pytest.param(["d1"], [shown(PROVISIONED)], WAITS, id="W14 its volume has not been seen"),
    pytest.param(["u1"], [node_away()], 'failed to get node "n1": node "n1" not found', id="W16 the node is gone"),
    pytest.param(["u1"], [shown(BOUND_A, BOUND_U1), shown(node("n1").label("k", "moved").typed())], AWAY.format("a"),
        id="W19 the node's label changed"),
    pytest.param(["d1"], [shown(a_pv("made", "1Gi", "D").where("k", "n2"), PROVISIONED)], AWAY.format("made"),
        id="W20 provisioned elsewhere"),
    pytest.param(["u1", "u2"], [shown(WRITTEN), shown(B)], 'ClaimRef got reset for pv "b"',
        id="W26 (B-4) what is fatal is found behind what waits"),
    pytest.param(["d1", "u1"], [shown(WRITTEN), shown(D1.annotation("x", "y"))], FAILED,
        id="W26 (B-4) a claim behind a volume that waits"),
])  # fmt: skip
def test_one_look(claims: list[str], changes: list[Callable[[VolumeWorld], None]], verdict: Any) -> None:
    """Bound, not yet, or never; judged by what the server has, not by what is assumed."""
    world, plan = planned(*claims) if claims else (VolumeWorld(), BindingPlan(using("p"), "n1"))
    if not claims:
        world.show(replace(plan.pod.pod, spec=replace(plan.pod.pod.spec, node_name="n1")))
    for change in changes:
        change(world)

    assert verdict == look(world, plan)


@pytest.mark.parametrize(("claim", "change"), [("u1", shown(A)), ("d1", shown(D1))], ids=["a volume", "a claim"])
def test_w15_the_watch_is_behind(claim: str, change: Callable[[VolumeWorld], None]) -> None:
    """W15 What looks as if it had been undone is what was there before we wrote."""
    world, plan = planned(claim)
    change(world)
    steps: list[Any] = [*plan.static, *plan.dynamic]
    (step,) = steps
    obj = step.volume if claim == "u1" else step.claim
    step.written = replace(obj, metadata=replace(obj.metadata, resource_version="1000"))

    assert WAITS is look(world, plan)
    step.written = replace(obj, metadata=replace(obj.metadata, resource_version="3"))
    assert isinstance(look(world, plan), str)


@pytest.mark.parametrize("theirs", ["not-a-number", ""])
def test_w15_versions_that_are_no_numbers(theirs: str) -> None:
    """W15 Then nothing can be said of which is newer, and what is seen counts."""
    world, plan = planned("u1")
    step = plan.static[0]
    world.show(A.resource_version(theirs or "x1"))
    step.written = replace(step.volume, metadata=replace(step.volume.metadata, resource_version="1000"))

    assert RESET == look(world, plan)


# -- volumes of in-tree plugins -------------------------------------------------------------------------------------------

ZONE = "topology.gke.io/zone"


def in_zone(source: dict[str, Any]) -> Any:
    volume = a_pv("made", "1Gi", "D").source(**source).claimed_by("d1", uid="d1").phase("Bound")
    return volume.label("failure-domain.beta.kubernetes.io/zone", "east")


GCE = in_zone({"gcePersistentDisk": {"pdName": "disk"}})
RBD = in_zone({"rbd": {"image": "i", "monitors": ["m"]}})
BAD_EBS = in_zone({"awsElasticBlockStore": {"volumeID": "aws://z/bad"}})
MIGRATES = a_csi_node("n1").migrated("kubernetes.io/gce-pd", "kubernetes.io/aws-ebs")


@pytest.mark.parametrize(
    ("volume", "zone", "csi_node", "verdict"),
    [
        pytest.param(GCE, "east", (MIGRATES,), DONE, id="W21 its zone"),
        pytest.param(GCE, "west", (a_csi_node("n1").migrated(""),), DONE, id="W21 nothing is migrated"),
        pytest.param(GCE, "west", (MIGRATES,), AWAY.format("made"), id="W22 another zone"),
        pytest.param(RBD, "west", (MIGRATES,), DONE, id="W22 of a kind that is not migrated"),
    ],
)
def test_migrated_volumes(volume: Any, zone: str, csi_node: Any, verdict: Any) -> None:
    """As Filter judges them."""
    world, plan = planned("d1", things=(node("n1").label("k", "n1").label(ZONE, zone), *csi_node))
    world.show(volume, PROVISIONED)

    assert verdict == look(world, plan)


def test_a_volume_that_cannot_be_translated() -> None:
    """Row 15 of §6.4; on other nodes it need not be."""
    world, plan = planned("d1", things=(MIGRATES,))
    world.show(BAD_EBS, PROVISIONED)

    assert look(world, plan).startswith("could not translate pv: ")
    world, plan = planned("d1")
    world.show(BAD_EBS, PROVISIONED)
    assert DONE is look(world, plan)


def test_a_chosen_volume_that_cannot_be_translated() -> None:
    """Row 7 of §6.4."""
    world, plan = planned("u1", things=(MIGRATES,))
    (step,) = plan.static
    world.show(a_pv(step.volume.key, "5G", "W").source(awsElasticBlockStore={"volumeID": "aws://z/bad"}))

    assert look(world, plan).startswith("failed to translate pv to csi: could not translate pv: ")


# -- pods that wait for the writes of other pods -------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", ["u1", "d1"])
def test_a_follower_waits_for_the_first_pod(claim: str) -> None:
    """B-15 What another pod of ours is about to write is not taken for undone; when that one gives up, it is."""
    world, first = planned(claim)
    second = world.plan(using("q", claim))
    for plan in (first, second):
        world.binder._assumptions.begin(plan)

    assert isinstance(look(world, first), str)
    assert WAITS is look(world, second)
    world.binder.revert_assumed_pod_volumes(first)
    assert isinstance(look(world, second), str)


def test_claims_that_are_followed() -> None:
    """B-26 Bound, when they are; and where their volume is."""
    world, _ = planned("u1")
    world.show(U1.wants("a"))
    plan = world.plan(using("q", "u1"))

    assert ([], [], 1) == (plan.static, plan.dynamic, len(plan.followed))
    assert WAITS is look(world, plan)
    world.show(BOUND_A, BOUND_U1)
    assert DONE is look(world, plan)
    world.show(node("n1").label("k", "moved").typed())
    assert AWAY.format("a") == look(world, plan)
    world.withdraw(CLAIM, "default/u1")
    assert NO_U1 == look(world, plan)


# -- waiting --------------------------------------------------------------------------------------------------------------


def change_later(world: VolumeWorld, at_s: float, *changes: Callable[[VolumeWorld], None]) -> asyncio.Task[None]:
    async def run() -> None:
        await world.clock.sleep(at_s)
        for change in changes:
            change(world)

    return asyncio.ensure_future(run())


def relayed(world: VolumeWorld) -> None:
    world.relay()


def pod_gone(world: VolumeWorld) -> None:
    (assumed,) = world.cluster.assumed()
    world.cluster.forget(assumed)
    world.cluster.volumes.notify("Pod", assumed.uid)


def namesake(world: VolumeWorld) -> None:
    pod_gone(world)
    info = using("p", "u1")
    metadata = replace(info.pod.metadata, uid="another")
    world.show(replace(info.pod, metadata=metadata, spec=replace(info.pod.spec, node_name="n1")))


@pytest.mark.parametrize(("claims", "changes", "error", "ours_s", "parity_s"), [
    pytest.param(["u1", "d1"], [relayed, shown(BOUND_A, BOUND_U1, MADE, PROVISIONED)], None, 5.4, 6.0,
        id="W28 it is bound after a while"),
    pytest.param(["u1"], [namesake], 'pod does not exist any more: pod "p" not found', 5.4, 6.0,
        id="W18 (B-5) another pod of its name is there"),
    pytest.param(["d1"],
        [lambda world: world.cluster.remove_node("n1"), lambda w: w.cluster.volumes.notify("Node", "n1")],
        'failed to get node "n1": node "n1" not found', 5.4, 6.0, id="W16 the node goes"),
    pytest.param(["u1"], [], "context deadline exceeded", 30.0, 30.0, id="W23 nothing happens"),
])  # fmt: skip
@BOTH
async def test_the_end_of_the_wait(
    claims: list[str],
    changes: list[Callable[[VolumeWorld], None]],
    error: str | None,
    ours_s: float,
    parity_s: float,
    ours: KubestowArgs,
) -> None:
    """B-3 We look when something changes, upstream once a second. What was undone reads as upstream says it."""
    world, plan = planned(*claims, ours=ours, timeout_s=30.0)
    later = change_later(world, 5.4, *changes)
    ended = await world.ends(world.binder.bind_pod_volumes(plan))
    await later

    wanted = None if error is None else f"binding volumes: {error}"
    assert wanted == (None if ended.error is None else str(ended.error))
    assert ended.seconds == pytest.approx(parity_s if ours.parity else ours_s, abs=0.11)
    assert (["bind"] if error else []) == world.metrics.errors
    ((kind, seconds),) = world.metrics.waits
    assert kind == {"u1": "static", "d1": "dynamic", "u1 d1": "mixed"}[" ".join(claims)]
    assert seconds == pytest.approx(ended.seconds, abs=0.11)


@BOTH
async def test_the_first_look(ours: KubestowArgs) -> None:
    """B-3 Right after the writes; upstream's is a second later."""
    world, plan = planned("u1", ours=ours)
    world.writer.on_prebind = lambda volume, claim: world.show(BOUND_A.resource_version("1000"), BOUND_U1)
    ended = await world.ends(world.binder.bind_pod_volumes(plan))

    assert ended.error is None
    assert ended.seconds == pytest.approx(1.0 if ours.parity else 0.0, abs=0.11)


@BOTH
async def test_w24_no_time_at_all(ours: KubestowArgs) -> None:
    """W24 It is written, and never looked at."""
    world, plan = planned("u1", ours=ours, timeout_s=0.0)
    world.writer.on_prebind = lambda volume, claim: world.show(BOUND_A, BOUND_U1)
    ended = await world.ends(world.binder.bind_pod_volumes(plan))

    assert ("binding volumes: context deadline exceeded", 0.0) == (str(ended.error), ended.seconds)
    assert 1 == len(world.writer.prebinds)


async def test_a_callback_that_raises_ends_the_wait() -> None:
    """The binding fails with that error: it does not hang without a time limit."""
    world, plan = planned("d1", timeout_s=100.0)
    world.show(ON_N1)

    def mistaken() -> None:
        raise ValueError("a mistake")

    waited = await world.ends(world.binder._waiter.wait(plan, world.clock.now() + 100.0, takes_long=mistaken))

    assert "a mistake" == str(waited.error)


async def test_w25_cancelled() -> None:
    """W25 At once; what waits for news is gone with it."""
    world, plan = planned("u1")
    task = asyncio.ensure_future(world.binder.bind_pod_volumes(plan))
    await world.clock.advance(3.3)
    task.cancel()
    await world.clock.settle()

    assert task.cancelled()
    assert {} == world.cluster.volumes._watchers
    assert 0 == world.clock.sleepers


async def test_w27_the_pv_controller_was_faster() -> None:
    """W27 A conflict, and parity fails with it."""
    world, plan = planned("u1", ours=PARITY)

    def conflict(volume: Any, claim: Any) -> None:
        raise Conflict("the object has been modified")

    world.writer.on_prebind = conflict
    ended = await world.ends(world.binder.bind_pod_volumes(plan))

    assert "the object has been modified" == str(ended.error)
    assert ["bind"] == world.metrics.errors


async def test_everything_is_let_go_at_the_end() -> None:
    """The assumed objects are written now; no pod follows this one."""
    world, plan = planned("u1", "d1")
    later = change_later(world, 1.0, relayed, shown(BOUND_A, BOUND_U1, MADE, PROVISIONED))
    ended = await world.ends(world.binder.bind_pod_volumes(plan))
    await later

    assert ended.error is None
    assumed = world.binder._assumptions
    assert ({}, {}) == (assumed.under_way, assumed._holders)
    world.binder.revert_assumed_pod_volumes(plan)
    assert "a" == world.claim("u1").spec.volume_name
    assert {} == world.cluster.volumes._watchers


async def test_slow_plans_let_other_plans_begin() -> None:
    """More plans than are begun at once, and none of the first ever ends."""
    claims = [f"c{at}" for at in range(100)]
    made = [a_claim(name, "1Gi", "E") for name in claims]
    world = VolumeWorld(a_class("E", "P"), *made)
    plans = [world.plan(using(f"p-{name}", name)) for name in claims]
    tasks = [asyncio.ensure_future(world.binder.bind_pod_volumes(plan)) for plan in plans]
    await world.clock.settle()
    at_once = len(world.writer.selections)
    await world.clock.advance(1.5)

    assert 64 == at_once
    assert 100 == len(world.writer.selections)
    for task in tasks:
        task.cancel()
    await world.clock.settle()
    assert all(task.cancelled() for task in tasks)
