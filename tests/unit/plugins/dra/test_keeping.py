"""What is kept for nominated pods, and when that frees something for others (docs/spec/dra.md §10).

Pod `s` is nominated to n1 with claim `s`; somebody was refused because of what it will have there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.podinfo import PodInfo, placed, pod_info
from scheduler.api.resource_v1 import ResourceClaim
from scheduler.cache.cluster import Cluster
from scheduler.framework.preemption_state import Preempting
from scheduler.plugins.dra.nominated_devices import DeviceHolders, HypotheticalNode, NominatedDevices
from scheduler.plugins.dra.state import DeviceState
from scheduler.plugins.dra.structured.node_verdicts import LONGEST_HOLD_S
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.core import pod
from simulator.builders.devices import SliceBuilder, a_device, a_slice
from tests.support.clock import VirtualClock
from tests.unit.plugins.dra.world import World

ROOM = a_slice("n1", "a", a_device("m").shared().cap("room", "8"))
TWO = a_slice("n1", "a", a_device("d0"), a_device("d1"))
FIVE = a_claim("s").request("r", "A", capacity={"room": "5"})
ONE = a_claim("s").request("r", "A")


def nominee(name: str = "s") -> PodInfo:
    return pod_info(pod(name).uid(f"uid-{name}").claim("e", claim=name).typed())


def stage(slices: SliceBuilder, *claims: ClaimBuilder) -> tuple[World, NominatedDevices]:
    """One for each claim is nominated, by its name."""
    world = World()
    world.show(slices, *claims)
    everybody = [("n1", nominee(claim.obj()["metadata"]["name"])) for claim in claims]
    world.handle.preempting.nominated = lambda: everybody
    keeping = world.plugin._preemption._nominated_devices
    for _, other in everybody:
        avoids(world, keeping, other)
    return world, keeping


def avoids(world: World, keeping: NominatedDevices, other: PodInfo) -> None:
    """Somebody is tried on n1, after this pod."""
    slot = world.slot()
    keeping.on(DeviceState(), HypotheticalNode(slot, ()), other)


def claim(world: World, name: str) -> ResourceClaim:
    found = world.devices.claims.get(f"default/{name}")
    assert isinstance(found, ResourceClaim)
    return found


def becomes(world: World, keeping: NominatedDevices, now: ClaimBuilder) -> bool:
    """Whether that frees anything."""
    name = now.obj()["metadata"]["name"]
    before = world.devices.claims.get(f"default/{name}")
    world.show(now)
    return any(keeping._claim_changed(before, claim(world, name)))


def share(amount: str, at: str = "s1") -> dict[str, Any]:
    return a_result("r", "a/n1/m", share=at, consumed={"room": amount})


@pytest.mark.parametrize(("slices", "asks", "gets", "is_freed"), [
    pytest.param(ROOM, FIVE, (share("5"),), False, id="the share that was kept"),
    pytest.param(ROOM, FIVE, (share("5", at="s2"),), False, id="the share, whatever it is called"),
    pytest.param(ROOM, FIVE, (share("3"),), True, id="less of the device than was kept"),
    pytest.param(ROOM, FIVE, (a_result("r", "a/n1/m"),), False, id="all of a device of which a part was kept"),
    pytest.param(ROOM, FIVE, (a_result("r", "a/n1/m", admin=True),), True, id="an administrator's access to it"),
    pytest.param(TWO, ONE, (a_result("r", "a/n1/d0"),), False, id="the device that was kept"),
    pytest.param(TWO, ONE, (a_result("r", "a/n1/d1"),), True, id="another device"),
    pytest.param(TWO, ONE, (a_result("r", "a/n1/d1"), a_result("r", "a/n1/d0")), False, id="one more device"),
])  # fmt: skip
def test_what_the_pod_gets(
    slices: SliceBuilder, asks: ClaimBuilder, gets: tuple[dict[str, Any], ...], is_freed: bool
) -> None:
    """Compared with what was kept for it. What is told is told once."""
    world, keeping = stage(slices, asks)
    given = asks.allocated(*gets, on="n1").reserved_for("s", "uid-s")

    assert is_freed == becomes(world, keeping, given)
    assert not becomes(world, keeping, given.label("a", "b"))


def test_what_one_leaves_wakes_also_if_another_may_take_it() -> None:
    """The other may be the very pod that waits."""
    world, keeping = stage(TWO, ONE, a_claim("t").request("r", "A"))

    assert becomes(world, keeping, ONE.allocated(a_result("r", "a/n1/d1"), on="n1").reserved_for("s", "uid-s"))


def test_an_equal_share_of_somebody_else_is_not_the_pods() -> None:
    """`z` has had 5 of it all along; 5 more were kept, and the nomination ends."""
    running = a_claim("z").request("r", "A").allocated(a_result("r", "a/n1/m", share="z", consumed={"room": "5"}))
    world = World()
    world.show(a_slice("n1", "a", a_device("m").shared().cap("room", "16")), running.reserved_for("z", "uid-z"), FIVE)
    world.handle.preempting.nominated = lambda: [("n1", nominee())]
    keeping = world.plugin._preemption._nominated_devices
    avoids(world, keeping, nominee())
    world.handle.preempting.nominated = list

    assert any(keeping._pod_changed(placed(nominee(), "n1"), None))


def test_two_equal_shares_of_which_the_pod_gets_one() -> None:
    """The other one is free."""
    asks = FIVE.request("s", "A", capacity={"room": "5"})
    world, keeping = stage(a_slice("n1", "a", a_device("m").shared().cap("room", "16")), asks)

    assert becomes(world, keeping, asks.allocated(share("5"), on="n1").reserved_for("s", "uid-s"))


THREE = a_slice("n1", "a", a_device("d0"), a_device("d1"), a_device("d2"))
FIRST, BOTH = a_claim("u").request("r", "A"), a_claim("s").request("r", "A", count=2)


def in_turn(world: World, keeping: NominatedDevices) -> None:
    """Somebody is tried on n1, after all that are nominated there."""
    slot = world.slot()
    world.devices.on_nodes.catch_up()
    as_if = HypotheticalNode(slot, keeping._holders.at(slot, {}))
    for _, other in world.handle.preempting.nominated():
        as_if.kept += keeping.on(DeviceState(), as_if, other)


@pytest.mark.parametrize(("claims", "then"), [
    pytest.param((FIRST, BOTH, a_claim("z").request("r", "A")),
        a_claim("z").request("r", "A").allocated(a_result("r", "a/n1/d0")).reserved_for("z", "uid-z"),
        id="what was for the first is taken, so it is to have what was for the second, which needs two"),
    pytest.param((BOTH, a_claim("z").request("r", "A").allocated(a_result("r", "a/n1/d2"))), FIRST,
        id="the claim of the first comes"),
    pytest.param((BOTH, a_claim("z").request("r", "A", count=2).allocated(a_result("r", "a/n1/d1"), a_result("r",
        "a/n1/d2"))), a_claim("z").request("r", "A", count=2).allocated(a_result("r", "a/n1/d1"), a_result("r",
        "a/n1/d2")).reserved_for("z", "uid-z"), id="a claim that was about to give its devices back gets another user"),
])  # fmt: skip
def test_what_shifts_from_one_to_the_next(claims: tuple[ClaimBuilder, ...], then: ClaimBuilder) -> None:
    """`u` and then `s`, which needs two, are nominated to n1; `z` runs."""
    world = World()
    world.show(THREE, *claims)
    world.cluster.add_pod(placed(nominee("z"), "n1"))
    world.handle.preempting.nominated = lambda: [("n1", nominee("u")), ("n1", nominee("s"))]
    keeping = world.plugin._preemption._nominated_devices
    in_turn(world, keeping)
    assert "uid-s" in keeping._avoided

    assert becomes(world, keeping, then)


def test_pods_that_are_nominated_no_more_are_forgotten_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waited when they were bound, so nobody asked."""
    monkeypatch.setattr("scheduler.plugins.dra.nominated_devices._REMEMBERED", 4)
    world, keeping = stage(TWO, ONE)
    keeping._limit = 4
    world.handle.preempting.nominated = lambda: [("n1", nominee("s"))]
    for i in range(40):
        world.show(a_claim(f"x{i}").request("r", "A"))
        avoids(world, keeping, nominee(f"x{i}"))

    assert "uid-s" in keeping._avoided
    assert len(keeping._avoided) <= 5


def test_the_searches_of_one_attempt_share_two_seconds() -> None:
    """A pod whose devices would be searched for after that keeps nothing, and the event loop goes on."""
    world, keeping = stage(TWO, ONE)
    slot = world.slot()

    assert keeping.on(DeviceState(blocked_s=LONGEST_HOLD_S - 0.1), HypotheticalNode(slot, ()), nominee())
    assert not keeping.on(DeviceState(blocked_s=LONGEST_HOLD_S), HypotheticalNode(slot, ()), nominee())


# -- claims that are about to be given back (§1) ------------------------------------------------------------------------

V = pod("v").uid("v").bound_to("n1")
ENDS = V.set({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
UNREADABLE = Broken("Pod", Metadata(name="v", namespace="default", uid="v"), "no number", node_name="n1")


def came_and_went(cluster: Cluster) -> None:
    cluster.add_broken(UNREADABLE)
    cluster.remove_broken("v")


@pytest.mark.parametrize(("becomes", "is_leaving"), [
    pytest.param(lambda _: None, True, id="the cache has never heard of it"),
    pytest.param(lambda cluster: cluster.add_pod(pod_info(V.typed())), False, id="it runs"),
    pytest.param(lambda cluster: cluster.add_pod(pod_info(ENDS.typed())), True, id="it ends"),
    pytest.param(lambda cluster: cluster.add_broken(UNREADABLE), False, id="it cannot be read"),
    pytest.param(came_and_went, True, id="it could not be read, and is gone"),
])  # fmt: skip
def test_whose_user_leaves(becomes: Callable[[Cluster], None], is_leaving: bool) -> None:
    """A pod that cannot be read is there all the same."""
    cluster = Cluster(VirtualClock())
    becomes(cluster)
    used = a_claim("c").uid("c").allocated(a_result("r", "drv/n1/d0")).reserved_for("v", "v").typed()

    leaving = DeviceHolders(cluster, Preempting()).leaving(HypotheticalNode(0, [used]))

    assert leaving == (frozenset({"c"}) if is_leaving else frozenset())
