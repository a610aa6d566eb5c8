"""Plans that are half written, cancelled or shared, volumes that go with their claims (docs/spec/volumes.md §6.3, §12), and plans at once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from scheduler.api.meta import seconds
from scheduler.config.args import KubestowArgs
from scheduler.config.types import OUR_NAME, Configuration, KubeSchedulerProfile
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Forbidden, Unavailable
from scheduler.plugins.volumebinding.binder import UNFINISHED, UnfinishedPods
from scheduler.profiles.reconciler import RequestedProfile
from tests.support.volumebuilders import a_claim, a_class, a_pv
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import node, pod
from tests.unit.hints.hint_rows_limits import claims, stored
from tests.unit.plugins.volumebinding.world import (
    CHANGED,
    CLAIM,
    D1,
    D2,
    PARITY,
    U1,
    U2,
    VOLUME,
    A,
    B,
    Step,
    VolumeWorld,
    case,
    fails,
    using,
    write,
    writes,
    written,
)
from tests.unit.wakeups.test_volumes_given_back import refusing

SHARED = pytest.mark.parametrize(("things", "claim"), [((U1, A), "u1"), ((D1,), "d1")], ids=["a volume", "a node"])

# -- half a plan -----------------------------------------------------------------------------------------------------------


def seen_by_decisions(world: VolumeWorld) -> dict[str, str]:
    """Volumes by the claim that decisions take them to be for, claims by their node."""
    kept = world.cluster.volumes
    volumes = {v.key: kept.volumes.need(v.key).spec.claim_ref for v in kept.volumes}
    claims = {c.key: kept.claims.need(c.key).selected_node for c in kept.claims}
    out = {key: ref.name for key, ref in volumes.items() if ref is not None}
    return out | {key: node for key, node in claims.items() if node is not None}


@pytest.mark.parametrize(("claims", "steps", "left", "sent"), [
    pytest.param(["u1", "u2"], {VOLUME: 1}, {"a": "u1"}, 2, id="U5 the second volume fails"),
    pytest.param(["d1", "d2"], {CLAIM: 1}, {"default/d1": "n1"}, 2, id="U7 the second claim fails"),
    pytest.param(["u1", "d1", "d2"], {CLAIM: 1}, {"a": "u1", "default/d1": "n1"}, 3,
        id="U8 the second claim fails, the volume is written"),
    pytest.param(["u1", "d1"], {VOLUME: 0}, {}, 1, id="U9 the first volume fails: nothing else is sent"),
])  # fmt: skip
async def test_half_a_plan(claims: list[str], steps: dict[str, int], left: dict[str, str], sent: int) -> None:
    """What is written stays, and stays assumed until the watch shows it (B-17); the rest is given back."""
    world = VolumeWorld(U1, U2, A, B, D1, D2)
    made: dict[str, list[Step]] = {
        kind: [*[lambda _: None] * good, fails(Forbidden("no"))] for kind, good in steps.items()
    }
    plan = written(world, *claims, steps=made)
    ended = await world.ends(write(world, plan))
    world.binder.revert_assumed_pod_volumes(plan)

    assert isinstance(ended.error, Forbidden)
    assert (sent, left) == (writes(world), seen_by_decisions(world))
    world.relay()
    assert left == seen_by_decisions(world)


@pytest.mark.parametrize("after", [1, 2, 3])
async def test_cancelling_acts_between_writes(after: int) -> None:
    """Whatever was sent is awaited to its answer, and kept; nothing more is sent."""
    world = VolumeWorld(U1, A, U2, B, D1)
    plan = written(world, "u1", "u2", "d1")
    world.writer.write_hold = asyncio.Event()
    task = asyncio.ensure_future(write(world, plan))
    answered = 0
    while answered < after - 1:
        await world.clock.settle()
        answered += 1
        world.writer.write_hold.set()
        while writes(world) < answered:
            await asyncio.sleep(0)
        world.writer.write_hold.clear()
    await world.clock.settle()
    task.cancel()
    await world.clock.settle()

    assert not task.done()
    world.writer.write_hold.set()
    await world.clock.settle()
    assert task.cancelled()
    assert after == writes(world)
    steps: list[Any] = [*plan.static, *plan.dynamic]
    assert [True] * after + [False] * (3 - after) == [step.written is not None for step in steps]


async def test_cancelling_while_it_waits_for_another_try() -> None:
    """Then nothing is on the wire."""
    world, plan = case(VOLUME, fails(Unavailable("no")))
    task = asyncio.ensure_future(write(world, plan))
    await world.clock.settle()
    task.cancel()
    await world.clock.settle()

    assert task.cancelled()
    assert (1, None) == (writes(world), plan.static[0].written)


@pytest.mark.parametrize(("change", "error"), [
    pytest.param(lambda world: world.withdraw("PersistentVolumeClaim", "default/u2"),
        'persistentvolumeclaims "default/u2" not found', id="it is gone"),
    pytest.param(lambda world: world.show(U2.uid("new")), 'persistentvolumeclaims "default/u2" not found',
        id="it is another one"),
    pytest.param(lambda world: world.show(U2.deleting()), 'persistentvolumeclaim "u2" is being deleted',
        id="it is going"),
    pytest.param(lambda world: world.show(U2.bound_to("theirs")), 'persistentvolumeclaim "u2" has another volume',
        id="bound elsewhere"),
    pytest.param(lambda world: world.show(U2.selected("n2")), 'persistentvolumeclaim "u2" has another node',
        id="to be made elsewhere"),
])  # fmt: skip
@pytest.mark.parametrize("sent", [1, 2], ids=["at the first try", "while the server is busy"])
async def test_a_claim_that_has_no_use_for_a_volume_any_more_gets_none(change: Step, error: str, sent: int) -> None:
    """The PV controller would treat the volume as released, so no claim would get it."""

    def busy(world: VolumeWorld) -> None:
        change(world)
        raise Unavailable("busy")

    world = VolumeWorld(U1, U2, A, B)
    plan = written(world, "u1", "u2", steps={VOLUME: [change] if sent == 1 else [lambda _: None, busy]})
    ended = await world.ends(write(world, plan))

    assert (f"binding volumes: {error}", sent) == (str(ended.error), writes(world))


# -- volumes that are deleted with their claim (B-19) --------------------------------------------------------------------------


def created(claim: Any, world: VolumeWorld, age_s: float) -> Any:
    return claim.set({"metadata": {"creationTimestamp": seconds(world.clock.wall() - age_s)}})


@pytest.mark.parametrize(("policy", "age_s", "ours", "now", "error"), [
    pytest.param("Delete", 0.0, None, U1.uid("u1"), None, id="young, and there"),
    pytest.param("Delete", 0.0, None, None, "is not the one that was decided on any more", id="young, and gone"),
    pytest.param("Delete", 0.0, None, U1.uid("new"), "is not the one that was decided on any more",
        id="young, and another"),
    pytest.param("Delete", 0.0, None, U1.uid("u1").deleting(), "is not the one that was decided on any more",
        id="going"),
    pytest.param("Delete", 5.0, None, None, None, id="not so young: it is not read"),
    pytest.param("Retain", 0.0, None, None, None, id="a volume that stays: it is not read"),
    pytest.param("Delete", 0.0, PARITY, None, None, id="parity"),
    pytest.param("Delete", 0.0, KubestowArgs(pre_bind_live_check="none"), None, None, id="switched off"),
])  # fmt: skip
async def test_claims_of_volumes_that_go_with_them(
    policy: str, age_s: float, ours: KubestowArgs | None, now: Any, error: str | None
) -> None:
    """B-19 A volume that the PV controller deletes is given only to a claim that is surely there."""
    world = VolumeWorld(ours=ours)
    world.show(created(U1, world, age_s), A.reclaim(policy))
    plan = written(world, "u1")
    world.writer.claims = {} if now is None else {"default/u1": now.typed()}
    ended = await world.ends(write(world, plan))

    assert (error is None) is (ended.error is None)
    if error is not None:
        assert f'persistentvolumeclaim "u1" {error}' == str(ended.error)
        assert 0 == writes(world)


async def test_the_read_before_it_is_tried_again() -> None:
    """B-19 A busy server is waited for, as for a write."""
    world = VolumeWorld()
    world.show(created(U1, world, 0.0), A.reclaim("Delete"))
    plan = written(world, "u1")
    errors: list[ApiError] = [Unavailable("no"), Ambiguous("lost")]

    def on_read() -> None:
        if errors:
            raise errors.pop(0)

    world.writer.on_read = on_read
    ended = await world.ends(write(world, plan))

    assert (None, 1, []) == (ended.error, writes(world), errors)


# -- pods that share a claim (B-15) ----------------------------------------------------------------------------------------------


@SHARED
async def test_ten_pods_with_one_claim(things: Any, claim: str) -> None:
    """B-15 All of them get through, whatever the order of their writes; upstream has nine conflicts."""
    world = VolumeWorld(*things)
    plans = [world.plan(using(f"p{at}", claim)) for at in range(10)]

    def stale(obj: Any, _: Any) -> None:
        held: Any = world.writer.volumes if obj.key == "a" else world.writer.claims
        if held[obj.key].metadata.resource_version != obj.metadata.resource_version:
            raise Conflict(CHANGED.format(obj.key))

    world.writer.on_prebind, world.writer.on_select = stale, stale
    both = asyncio.gather(*(write(world, plan) for plan in plans))

    async def all_of_them() -> None:
        await both

    ended = await world.ends(all_of_them())
    assert ended.error is None
    assert 10 >= writes(world)
    version = (world.writer.volumes.get("a") or world.writer.claims["default/d1"]).metadata.resource_version
    assert str(world.writer.newest) == version


# -- pods that share a claim and are bound at the same time: one plan writes, and the other plans wait (§12.2) -------------------


def bound_by_controllers(world: VolumeWorld, claim: str) -> None:
    """What was written shows, and the claim is bound."""
    volume = "a" if claim == "u1" else "pv-d1"
    world.relay()
    if claim == "u1":
        world.show(A.claimed_by("u1", uid="u1").uid("a").phase("Bound"), U1.uid("u1").bound_to("a"))
    else:
        world.show(a_pv(volume, "1Gi", "D").where("k", "n1").claimed_by("d1", uid="d1"))
        world.show(D1.uid("d1").selected("n1").bound_to(volume))


@SHARED
async def test_a_pod_that_is_held_before_its_binding_does_not_keep_another_from_writing(
    things: Any, claim: str
) -> None:
    """B-15 The first pod was reserved first and waits in Permit: the second one writes what both need."""
    world = VolumeWorld(*things)
    first, second = (world.plan(using(name, claim)) for name in ("p", "q"))
    binding = asyncio.ensure_future(world.binder.bind_pod_volumes(second))
    await world.clock.advance(0.1)

    assert 1 == writes(world)

    bound_by_controllers(world, claim)
    await world.clock.advance(0.1)

    assert (True, None) == (binding.done(), binding.exception())
    assert None is (await world.ends(world.binder.bind_pod_volumes(first), within_s=5)).error
    assert 1 == writes(world)


@SHARED
async def test_a_pod_writes_what_another_one_was_to_write_and_did_not(things: Any, claim: str) -> None:
    """B-15 The first pod is deleted while its write waits for its turn."""
    world = VolumeWorld(*things)
    first, second = (world.plan(using(name, claim)) for name in ("p", "q"))
    world.binder._assumptions.begin(first)
    binding = asyncio.ensure_future(world.binder.bind_pod_volumes(second))
    await world.clock.advance(0.5)

    assert (0, False) == (writes(world), binding.done())

    world.binder.revert_assumed_pod_volumes(first)
    await world.clock.advance(0.1)

    assert (1, False) == (writes(world), binding.done())

    bound_by_controllers(world, claim)
    await world.clock.advance(0.1)

    assert (True, None) == (binding.done(), binding.exception())


async def test_a_node_that_was_withdrawn_is_not_selected_again_for_the_pod_that_followed() -> None:
    """B-15 The first pod has written it, and provisioning has failed for both."""
    world = VolumeWorld(D1)
    first, second = (world.plan(using(name, "d1")) for name in ("p", "q"))
    bindings = [asyncio.ensure_future(world.binder.bind_pod_volumes(plan)) for plan in (first, second)]
    await world.clock.advance(0.1)
    world.relay()
    await world.clock.advance(0.1)
    world.show(D1.uid("d1").annotation("x", "y"))
    for plan, binding in zip((first, second), bindings):
        ended = await world.ends(_awaited(binding), within_s=5)
        world.binder.revert_assumed_pod_volumes(plan)
        assert 'binding volumes: provisioning failed for PVC "d1"' == str(ended.error)

    assert 1 == writes(world)


async def _awaited(binding: asyncio.Future[Any]) -> None:
    await binding


async def test_a_volume_that_another_claim_has_by_now_is_not_taken_over() -> None:
    """B-15 The plan that was to write it has ended, and another scheduler came first."""
    world = VolumeWorld(U1, A)
    first, second = (world.plan(using(name, "u1")) for name in ("p", "q"))
    world.binder._assumptions.begin(first)
    binding = asyncio.ensure_future(world.binder.bind_pod_volumes(second))
    await world.clock.advance(0.1)
    world.show(A.uid("a").claimed_by("other", uid="other"))
    world.binder.revert_assumed_pod_volumes(first)
    ended = await world.ends(_awaited(binding), within_s=5)

    assert ('binding volumes: ClaimRef got reset for pv "a"', 0) == (str(ended.error), writes(world))


async def test_a_claim_that_is_bound_before_its_volume_is_seen_ends_the_wait_with_the_volume() -> None:
    """B-3 Watches of two kinds may be behind one another; no look of the safety net is needed."""
    world = VolumeWorld(D1)
    plan = world.plan(using("p", "d1"))
    binding = asyncio.ensure_future(world.binder.bind_pod_volumes(plan))
    await world.clock.advance(20.0)
    world.relay()
    world.show(D1.uid("d1").selected("n1").bound_to("pv-d1"))
    await world.clock.settle()

    assert not binding.done()

    world.show(a_pv("pv-d1", "1Gi", "D").where("k", "n1").claimed_by("d1", uid="d1"))
    await world.clock.settle()

    assert (True, None) == (binding.done(), binding.exception())


class Plans:
    """Plans that wait for their event; `begun` has those that were started."""

    def __init__(self, most: int) -> None:
        self.pace = UnfinishedPods(most)
        self.begun: list[int] = []
        self.over: dict[int, Callable[[], None]] = {}
        self.go: dict[int, asyncio.Event] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self, *numbers: int) -> None:
        for number in numbers:
            self.go[number] = asyncio.Event()
            self.tasks.append(asyncio.ensure_future(self._run(number)))
        await self.turn()

    async def turn(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def _run(self, number: int) -> None:
        async with self.pace.begun() as over:
            self.begun.append(number)
            self.over[number] = over
            await self.go[number].wait()


async def test_a_plan_waits_for_one_before_it_to_end_and_goes_in_its_turn() -> None:
    plans = Plans(2)
    await plans.start(1, 2, 3, 4)
    assert plans.begun == [1, 2]
    plans.go[2].set()
    await plans.turn()
    assert plans.begun == [1, 2, 3]


async def test_a_long_plan_starts_one_more_plan_and_none_when_it_ends() -> None:
    plans = Plans(1)
    await plans.start(1, 2, 3)
    plans.over[1]()
    plans.over[1]()
    await plans.turn()
    assert plans.begun == [1, 2]
    plans.go[1].set()
    await plans.turn()
    assert plans.begun == [1, 2]


async def test_a_cancelled_plan_leaves_its_place_to_the_next() -> None:
    plans = Plans(1)
    await plans.start(1, 2, 3)
    plans.tasks[1].cancel()
    plans.tasks[0].cancel()
    await plans.turn()
    assert plans.begun == [1, 3]


# -- whole schedulers --------------------------------------------------------------------------------------------------


OTHER = "kubestow-too"


async def test_neither_a_second_profile_nor_a_change_begins_more_at_once() -> None:
    """The PV controller does not work faster for it."""
    sched = SchedulerHarness(Configuration(profiles=(KubeSchedulerProfile(OUR_NAME), KubeSchedulerProfile(OTHER))))
    node("n1", cpu="4000", pods="1000")(sched)
    for thing in stored(a_class("made", "P"), *(a_claim(f"c{at}", "1Gi", "made") for at in range(3 * UNFINISHED))):
        thing(sched)
    sched.writer.on_select = refusing(Unavailable("busy"))
    for at in range(2 * UNFINISHED):
        pod(f"p{at}", **claims(f"c{at}"), scheduler=(OUR_NAME, OTHER)[at % 2])(sched)
    await sched.settle()
    assert len(set(sched.writer.selections)) == UNFINISHED

    wish = RequestedProfile("u", 1, {"percentageOfNodesToScore": 50})
    sched.parts.inbox.put(partial(sched.parts.reloading.reconcile, {OUR_NAME: wish}))
    for at in range(2 * UNFINISHED, 3 * UNFINISHED):
        pod(f"p{at}", **claims(f"c{at}"))(sched)
    await sched.settle()

    assert len(sched.parts.binder) == 3 * UNFINISHED
    assert len(set(sched.writer.selections)) == UNFINISHED


async def test_a_server_that_refuses_volumes_for_long_keeps_no_claim_from_its_node() -> None:
    """A webhook for volumes that cannot be reached fails them all, again and again, and nothing else."""
    sched = SchedulerHarness(Configuration(profiles=(KubeSchedulerProfile(OUR_NAME),)))
    node("n1", cpu="4000", pods="1000")(sched)
    volumes = [(a_pv(f"v{at}", "1Gi", "local"), a_claim(f"c{at}", "1Gi", "local")) for at in range(UNFINISHED)]
    made = (a_class("local"), a_class("made", "P"), a_claim("c", "1Gi", "made"))
    for thing in stored(*made, *itertools.chain.from_iterable(volumes)):
        thing(sched)
    sched.writer.on_prebind = refusing(Unavailable("failed calling webhook", status=500))
    for at in range(UNFINISHED):
        pod(f"p{at}", **claims(f"c{at}"))(sched)
    await sched.settle()
    assert len({name for name, *_ in sched.writer.prebinds}) == UNFINISHED

    pod("p", **claims("c"))(sched)
    await sched.settle()
    assert sched.writer.selections == []
    for _ in range(15):
        await sched.later(1)

    assert ("default/c", "n1") in sched.writer.selections
