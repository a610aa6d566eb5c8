"""Pods of a group are bound together: the barrier between PreBind and Bind, and what a group gives back (docs/spec/groups.md §7)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.framework.interface import CycleState
from scheduler.framework.status import Code, Rejection
from tests.unit.groups.test_groups import GROUPED, NAMES, bound, harness
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import requesting
from tests.unit.scenarios.device_harness import DeviceHarness


class Preparing:
    """PreBind that takes until the test says so, and fails for the pods that it names."""

    name = "Preparing"
    is_reversible = False

    def __init__(self) -> None:
        self.ready: dict[str, asyncio.Event] = {}
        self.failing: dict[str, str] = {}
        self.begun: list[str] = []
        self.harness: SchedulerHarness

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        return None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        name = pod.pod.metadata.name
        self.begun.append(name)
        await self.ready.setdefault(name, asyncio.Event()).wait()
        if name in self.failing:
            return Rejection(self.name, Code.ERROR, (self.failing.pop(name),))
        return None

    def release(self, *names: str) -> None:
        for name in names:
            self.ready.setdefault(name, asyncio.Event()).set()


def prepared(
    *nodes: str, least: int = 3, names: tuple[str, ...] = NAMES, **cpu: str
) -> tuple[SchedulerHarness, Preparing]:
    """A group whose pods are in PreBind."""
    sched, preparing = harness(*nodes), Preparing()
    sched.plug(pre_bind=(preparing,))
    sched.group("g", least)
    for name in names:
        sched.pod(name, cpu=cpu.get(name, "1"), **GROUPED)
    return sched, preparing


async def test_no_pod_is_bound_before_enough_are_prepared() -> None:
    sched, preparing = prepared("n1")
    await sched.settle()
    assert sorted(preparing.begun) == ["a", "b", "c"]
    preparing.release("a", "b")
    await sched.settle()
    assert bound(sched) == []

    preparing.release("c")
    await sched.settle()
    assert bound(sched) == ["a", "b", "c"]


async def test_pods_beyond_the_minimum_are_not_waited_for() -> None:
    sched, preparing = prepared("n1", least=2)
    await sched.settle()
    preparing.release("a", "b")
    await sched.settle()
    assert bound(sched) == ["a", "b"]

    preparing.release("c")
    await sched.settle()
    assert bound(sched) == ["a", "b", "c"]


async def test_a_failure_gives_up_the_group() -> None:
    sched, preparing = prepared("n1")
    await sched.settle()
    preparing.release("a")
    await sched.settle()
    preparing.failing["b"] = "no volume"
    preparing.release("b")
    await sched.settle()

    assert bound(sched) == []
    assert sched.is_free()
    why = 'running PreBind plugin "Preparing": no volume'
    assert (sched.message("b"), sched.message("a"), sched.message("c")) == (why, *[f"pod group: default/b: {why}"] * 2)
    assert set(sched.places().values()) == {"error backoff"}

    preparing.release(*NAMES)
    await sched.later(2.5)
    assert bound(sched) == ["a", "b", "c"]


async def test_a_pod_that_is_left_over_does_not_shorten_the_back_off_of_its_group() -> None:
    """What the other two give back would help it, so that it is woken at once."""
    sched, preparing = prepared("n1", least=2, c="3")
    await sched.settle()
    begun, (left,) = list(preparing.begun), sched.places()
    assert sorted([*begun, left]) == ["a", "b", "c"]
    preparing.release(*NAMES)
    preparing.failing[begun[0]] = "no volume"
    await sched.settle()
    assert preparing.begun == begun
    assert {entry.attempts for entry in sched.parts.queue.entries()} == {1}
    assert set(sched.places().values()) == {"error backoff"}

    await sched.later(2.5)
    assert len(bound(sched)) == 2


async def test_devices_come_before_volumes() -> None:
    """What leaves a trace begins when enough pods have prepared what does not."""
    sched, volumes = prepared("n1", least=2)
    devices = Preparing()
    devices.name, devices.is_reversible = "Devices", True
    sched.plug(pre_bind=(volumes, devices))
    await sched.settle()
    assert (sorted(devices.begun), volumes.begun) == (["a", "b", "c"], [])

    devices.release("a")
    await sched.settle()
    assert volumes.begun == []

    devices.release("b")
    await sched.settle()
    assert sorted(volumes.begun) == ["a", "b"]

    devices.release("c")
    volumes.release("a", "b")
    await sched.settle()
    assert (bound(sched), sorted(volumes.begun)) == (["a", "b"], ["a", "b", "c"])


async def test_a_device_that_fails_leaves_no_volume() -> None:
    sched, volumes = prepared("n1", least=3)
    devices = Preparing()
    devices.name, devices.is_reversible = "Devices", True
    sched.plug(pre_bind=(volumes, devices))
    devices.failing["b"] = "no device"
    devices.release(*NAMES)
    await sched.settle()
    assert (volumes.begun, sched.is_free()) == ([], True)

    volumes.release(*NAMES)
    await sched.later(2.5)
    assert bound(sched) == ["a", "b", "c"]


async def test_a_failure_that_the_group_can_afford() -> None:
    sched, preparing = prepared("n1", least=2)
    await sched.settle()
    preparing.failing["b"] = "no volume"
    preparing.release("a", "b")
    await sched.settle()
    assert bound(sched) == []

    preparing.release("c")
    await sched.settle()
    assert bound(sched) == ["a", "c"]


async def test_a_late_pod_takes_part_while_the_barrier_is_closed() -> None:
    sched, preparing = prepared("n1", least=2)
    await sched.settle()
    sched.pod("late", cpu="1", **GROUPED)
    preparing.release("late")
    await sched.settle()
    assert bound(sched) == [], "alone it would run without the rest of its group"

    preparing.release("a")
    await sched.settle()
    assert bound(sched) == ["a", "late"]


async def test_a_deleted_pod_gives_up_the_group() -> None:
    sched, preparing = prepared("n1")
    await sched.settle()
    preparing.release("a", "c")
    sched.gone("b")
    preparing.release("b")
    await sched.settle()

    assert bound(sched) == []
    assert sched.is_free()
    assert sched.message("a") == "pod group: default/b: the pod is gone or was bound by another component"


async def test_all_nodes_are_checked_at_one_moment_before_the_first_binding() -> None:
    sched, preparing = prepared("n1", "n2", "n3")
    await sched.settle()
    preparing.release("a", "b")
    await sched.settle()
    (node,) = {
        binding.assumed.node_name
        for binding in sched.parts.binder._tasks.values()
        if binding.assumed.key == "default/a"
    }
    sched.node_gone(node)
    preparing.release("c")
    await sched.settle()

    assert bound(sched) == []
    assert sched.is_free()
    assert "node(s) had gone before the pod was bound" in sched.message("c")


async def test_a_pod_whose_binding_is_being_cancelled_is_not_on_its_way() -> None:
    sched, _ = prepared("n1")
    await sched.settle()
    (group,) = sched.cluster.pod_groups.by_group
    next_attempt = sched.parts.group_verdicts.next_attempt
    assert next_attempt(group) == (0, False)
    sched.parts.binder.preempt("uid-a", "DefaultPreemption")

    assert next_attempt(group) == (1, True)


async def test_a_preemptor_takes_a_pod_at_the_barrier() -> None:
    sched, preparing = prepared("n1")
    await sched.settle()
    preparing.release("a")
    await sched.settle()
    assert sched.parts.binder.preempt("uid-a", "DefaultPreemption")
    await sched.settle()

    assert bound(sched) == []
    assert sched.is_free()


async def test_a_stop_leaves_no_pod_bound() -> None:
    sched, preparing = prepared("n1")
    await sched.settle()
    preparing.release("a", "b")
    await sched.settle()
    await asyncio.gather(sched.parts.binder.drain(0.0), _moving(sched))
    await sched.turns()
    sched.parts.inbox.apply()

    assert (bound(sched), sched.is_free()) == ([], True)


async def _moving(sched: SchedulerHarness) -> None:
    for _ in range(5):
        await asyncio.sleep(0)
        sched.clock.move(5.0)


# -- devices of a refused group ------------------------------------------------------------------------------------------


def with_devices(*claims: str) -> DeviceHarness:
    """A scheduler with the nodes n1 and n2 of one device each, and a group of a and b, whose claims have these devices: `a=n1`."""
    sched = DeviceHarness(1, nodes=("n1", "n2"))
    sched.served()
    sched.group("g", 2)
    for claim in claims:
        name, _, node = claim.partition("=")
        sched.holds(f"c-{name}", "d0", on=node, users=(name,))
    return sched


async def test_devices_that_were_allocated_for_another_plan_do_not_choose_the_nodes() -> None:
    """The claim of a is left from an attempt that was given up. On its node there is no cpu left for a, which fits elsewhere."""
    sched = with_devices("a=n1")
    sched.pod("other", cpu="4", on="n1")
    sched.node("n3", cpu="1")
    sched.uses("a", "c-a", **GROUPED, containers=requesting(cpu="2"))
    sched.pod("b", cpu="1", **GROUPED)
    await sched.later(30)
    assert ("deallocate", "default/c-a") in sched.writer.claim_writes
    assert bound(sched) == ["a", "b"]


@pytest.mark.parametrize(
    "users", [("a", "stranger"), ("stranger",), ()], ids=["and by a stranger", "by a stranger", "by none"]
)
async def test_a_claim_that_is_not_of_the_group_alone_keeps_its_devices(users: tuple[str, ...]) -> None:
    """A claim without users and owner may be meant for a pod that is still to come."""
    sched = with_devices()
    sched.holds("c-a", "d0", on="n1", users=users)
    sched.uses("a", "c-a", **GROUPED, containers=requesting(cpu="9"))
    sched.pod("b", cpu="1", **GROUPED)
    await sched.later(30)

    assert not [what for what, _ in sched.writer.claim_writes if what == "deallocate"]


# -- one claim for several pods of the group -----------------------------------------------------------------------------


def sharing(count: int, *, nodes: tuple[str, ...] = ("n1", "n2"), cpu: str = "100m") -> DeviceHarness:
    """A group of this number of pods with one claim. Each node has one device."""
    sched = DeviceHarness(1, nodes=nodes)
    sched.served()
    sched.group("g", count)
    sched.show(sched.claim("shared"))
    for at in range(count):
        sched.uses(f"p{at}", "shared", **GROUPED, containers=requesting(cpu=cpu))
    return sched


async def test_pods_of_a_group_share_a_claim() -> None:
    sched = sharing(3)
    await sched.settle()

    assert bound(sched) == ["p0", "p1", "p2"]
    assert len({node for _, node in sched.writer.binds}) == 1, "the device is on one node"
    assert [what for what, _ in sched.writer.claim_writes].count("allocate") == 1
    claim: Any = sched.writer.resource_claims["default/shared"]
    assert len(claim.status.reserved_for) == 3
    assert list(sched.cluster.devices.claims.in_flight()) == []


async def test_the_node_of_a_shared_device_must_hold_all_of_them() -> None:
    """By scores the first pod goes to the node with most free cpu in proportion, where the last one does not fit."""
    sched = sharing(3, cpu="2")
    sched.node("n2", cpu="64")
    sched.pod("other", cpu="58", on="n2")
    await sched.settle()

    assert {node for _, node in sched.writer.binds} == {"n2"}
    assert bound(sched) == ["p0", "p1", "p2"]


async def test_a_shared_claim_of_a_group_that_is_given_up() -> None:
    """The allocation is taken back once, and the next attempt makes another one."""
    sched = sharing(2)
    failing = Preparing()
    failing.failing["p0"] = "it is broken"
    failing.release("p0", "p1")
    sched.plug(pre_bind=(failing, *sched.parts.profiles["kubestow"].pre_bind))
    for _ in range(3):
        await sched.later(10)

    assert bound(sched) == ["p0", "p1"]
    assert list(sched.cluster.devices.claims.in_flight()) == []


async def test_a_claim_has_at_most_256_users() -> None:
    sched = sharing(257, cpu="1m")
    for name in ("n1", "n2"):
        sched.node(name, pods="300")
    await sched.settle()
    await sched.later(1.0)  # 257 conditions are written

    assert bound(sched) == []
    text = "0/2 nodes are available: resource claim default/shared has 256 users, the most it can have."
    assert text in {condition.message for _, condition in sched.writer.conditions}


async def test_a_pod_outside_of_the_group_does_not_share_what_is_not_written() -> None:
    sched = sharing(2)
    sched.writer.claim_hold = asyncio.Event()
    await sched.settle()
    sched.uses("alone", "shared", containers=requesting(cpu="100m"))
    await sched.settle()
    assert sched.message("alone").startswith(
        "0/2 nodes are available: resource claim default/shared is in the process of being allocated."
    )

    sched.writer.claim_hold.set()
    await sched.later(30)
    assert bound(sched) == ["alone", "p0", "p1"]
