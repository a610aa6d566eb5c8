"""Devices that are held for nominated pods, the end of a hold, and evictions (docs/spec/dra.md §10).

Pod `s` is nominated to n1 with claim `s`; an attempt of another pod respects that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.podinfo import PodInfo, placed, pod_info
from scheduler.cache.cluster import Cluster
from scheduler.core.cooperative import finish
from scheduler.cycle import Unschedulable
from scheduler.framework.preemption_state import Preempting
from scheduler.plugins.dra.state import DeviceState
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.core import Builder, node, pod
from simulator.builders.devices import SliceBuilder, a_device, a_slice
from tests.support.clock import VirtualClock
from tests.unit.plugins.dra.trying import Trying
from tests.unit.plugins.dra.world import World

CAPACITY = a_slice("n1", "a", a_device("m").shared().cap("memory", "8"))
TWO = a_slice("n1", "a", a_device("d0"), a_device("d1"))
FIVE = a_claim("s").request("r", "A", capacity={"memory": "5"})
ONE = a_claim("s").request("r", "A")


def nominee(name: str = "s", priority: int = 0) -> PodInfo:
    return pod_info(pod(name).uid(f"uid-{name}").priority(priority).claim("e", claim=name).typed())


class Holding(World):
    """Some pods are nominated to n1; `tried` are the devices that a pod which is tried there does not get."""

    def __init__(self, *nominated: PodInfo) -> None:
        super().__init__()
        self.nominated = list(nominated)
        self.handle.preempting.nominated = lambda: [("n1", each) for each in self.nominated]

    def tried(self, priority: int = 0, on: str = "n1") -> list[str]:
        other = pod_info(pod("w").uid("uid-w").priority(priority).typed())
        nominated: Any = self.plugin._preemption._nominated_devices
        kept = finish(nominated.of(DeviceState(), other, self.slot(on)))
        return sorted(result.device for each in kept for result in each.devices.results)

    def ended(self) -> int:
        """End the stale holds; return how often that wakes the pods that wait for devices."""
        frees = partial(self.handle.preempting.frees, self.cluster)
        self.devices.device_holds.end_stale(self.handle.preempting.nominated, frees)
        woken, self.devices.claims.given_back = self.devices.claims.given_back, []
        return len(woken)

    def held(self) -> list[str]:
        return [hold.pod.pod.metadata.name for hold in self.devices.device_holds]


def share(amount: str, at: str = "s1") -> dict[str, Any]:
    return a_result("r", "a/n1/m", share=at, consumed={"memory": amount})


@pytest.mark.parametrize(("slices", "requests", "gets", "wakes"), [
    pytest.param(CAPACITY, FIVE, (share("5"),), False, id="the part that was held"),
    pytest.param(CAPACITY, FIVE, (share("5", at="s2"),), False, id="the part, with another id"),
    pytest.param(CAPACITY, FIVE, (share("3"),), True, id="less of the device than was held"),
    pytest.param(CAPACITY, FIVE, (a_result("r", "a/n1/m"),), False, id="all of a device of which a part was held"),
    pytest.param(CAPACITY, FIVE, (a_result("r", "a/n1/m", admin=True),), True, id="access of an administrator"),
    pytest.param(TWO, ONE, (a_result("r", "a/n1/d1"), a_result("r", "a/n1/d0")), False, id="one more device"),
])  # fmt: skip
def test_the_pod_gets_devices(
    slices: SliceBuilder, requests: ClaimBuilder, gets: tuple[dict[str, Any], ...], *, wakes: bool
) -> None:
    """The end of the hold wakes other pods once, if a held device is free."""
    world = Holding(nominee())
    world.show(slices, requests)
    assert world.tried()

    world.show(requests.allocated(*gets, on="n1").reserved_for("s", "uid-s"))

    assert (world.ended(), world.held(), world.ended()) == (int(wakes), [], 0)


def test_the_end_of_one_hold_leaves_other_holds() -> None:
    world = Holding(nominee(), nominee("t"))
    world.show(TWO, ONE, a_claim("t").request("r", "A"))
    assert world.tried() == ["d0", "d1"]

    world.nominated = [nominee("t")]

    assert (world.ended(), world.held(), world.tried()) == (1, ["t"], ["d1"])


def test_an_equal_part_of_another_claim_is_not_the_pods() -> None:
    """`z` has had 5 of the device all along; 5 more were held, and the nomination ends."""
    running = a_claim("z").request("r", "A").allocated(a_result("r", "a/n1/m", share="z", consumed={"memory": "5"}))
    world = Holding(nominee())
    world.show(a_slice("n1", "a", a_device("m").shared().cap("memory", "16")), running.reserved_for("z", "uid-z"), FIVE)
    assert world.tried() == ["m"]

    world.nominated = []

    assert world.ended() == 1


def test_two_equal_parts_of_which_the_pod_gets_one() -> None:
    requests = FIVE.request("s", "A", capacity={"memory": "5"})
    world = Holding(nominee())
    world.show(a_slice("n1", "a", a_device("m").shared().cap("memory", "16")), requests)
    assert world.tried() == ["m", "m"]

    world.show(requests.allocated(share("5"), on="n1").reserved_for("s", "uid-s"))

    assert world.ended() == 1


def _taint(world: Holding) -> None:
    world.show(a_slice("n1", "a", a_device("d0").taint("broken"), a_device("d1")))


def _other_claim(world: Holding) -> None:
    world.show(ONE.uid("another"))


def _no_device(world: Holding) -> None:
    world.devices.remove_slice(next(iter(world.devices.slices())).key)


def _new_pod_object(world: Holding) -> None:
    world.nominated = [nominee()]


def _labels(world: Holding) -> None:
    world.cluster.set_node(node("n1").label("region", "r1").label("new", "label").typed())


@pytest.mark.parametrize(("happens", "ends"), [
    pytest.param(_taint, True, id="the device is tainted"),
    pytest.param(_other_claim, True, id="the claim is another one"),
    pytest.param(_no_device, True, id="the slice is gone"),
    pytest.param(_new_pod_object, False, id="the pod changes in another field"),
    pytest.param(_labels, False, id="the node has a new label"),
])  # fmt: skip
def test_a_hold_ends_when_the_pod_cannot_have_the_devices(happens: Callable[[Holding], None], *, ends: bool) -> None:
    """The next attempt that needs the devices searches them again."""
    world = Holding(nominee())
    world.show(TWO, ONE)
    assert world.tried() == ["d0"]

    happens(world)
    world.ended()

    assert world.held() == ([] if ends else ["s"])


def test_a_hold_stays_when_a_better_choice_appears() -> None:
    """Nothing is searched while the held device can be had."""
    world = Holding(nominee())
    taken = a_claim("z").request("r", "A").allocated(a_result("r", "a/n1/d0")).reserved_for("z", "uid-z")
    world.cluster.add_pod(placed(nominee("z"), "n1"))
    world.show(TWO, ONE, taken)
    assert world.tried() == ["d1"]

    world.show(a_claim("z").request("r", "A"))

    assert (world.ended(), world.tried()) == (0, ["d1"])


LEAVING = a_claim("z").request("r", "A").allocated(a_result("r", "a/n1/d1")).reserved_for("y", "uid-y")


@pytest.mark.parametrize(("then", "ends"), [
    pytest.param(a_claim("z").request("r", "A"), False, id="its devices are free"),
    pytest.param(LEAVING.reserved_for("z", "uid-z"), True, id="it has a new user"),
])  # fmt: skip
def test_devices_of_a_claim_whose_users_leave(then: ClaimBuilder, *, ends: bool) -> None:
    """The nominated pod needs both devices, and gets the second when the claim has no users any more."""
    world = Holding(nominee())
    world.cluster.add_pod(placed(nominee("z"), "n1"))
    world.show(TWO, a_claim("s").request("r", "A", count=2), LEAVING)
    assert world.tried() == ["d0", "d1"]

    world.show(then)
    world.ended()

    assert world.held() == ([] if ends else ["s"])


@pytest.mark.parametrize(("priority", "gets"), [(0, ["d0", "d1"]), (1, ["d0"]), (2, [])])
def test_only_pods_of_equal_or_lower_priority_respect_a_hold(priority: int, gets: list[str]) -> None:
    """The pod of higher priority chooses first, also if it is nominated later."""
    world = Holding(nominee(priority=0))
    world.show(TWO, ONE, a_claim("t").request("r", "A"))
    assert world.tried() == ["d0"]

    world.nominated.append(nominee("t", priority=1))

    assert world.tried(priority=1) == ["d0"]
    assert world.tried(priority) == gets


# -- claims whose devices become free (§1) -------------------------------------------------------------------------------

V = pod("v").uid("v").bound_to("n1")
ENDS = V.set({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
UNREADABLE = Broken("Pod", Metadata(name="v", namespace="default", uid="v"), "no number", node_name="n1")


def came_and_went(cluster: Cluster) -> None:
    cluster.add_broken(UNREADABLE)
    cluster.remove_broken("v")


@pytest.mark.parametrize(("becomes", "is_leaving"), [
    pytest.param(lambda _: None, True, id="the cache does not have it"),
    pytest.param(lambda cluster: cluster.add_pod(pod_info(V.typed())), False, id="it runs"),
    pytest.param(lambda cluster: cluster.add_pod(pod_info(ENDS.typed())), True, id="it ends"),
    pytest.param(lambda cluster: cluster.add_broken(UNREADABLE), False, id="it cannot be read"),
    pytest.param(came_and_went, True, id="it could not be read, and is gone"),
])  # fmt: skip
def test_whose_user_leaves(becomes: Callable[[Cluster], None], *, is_leaving: bool) -> None:
    """A pod that cannot be read exists."""
    cluster = Cluster(VirtualClock())
    becomes(cluster)
    used = a_claim("c").uid("c").allocated(a_result("r", "drv/n1/d0")).reserved_for("v", "v").typed()

    assert Preempting().frees(cluster, used) is is_leaving


# -- whether an eviction may help: a field of the refusal says it, whatever its text is (§10) --------------------------

ASKS = a_claim("c").request("r", "A")
HELD = a_claim("h").request("r", "A").allocated(a_result("r", "a/n1/d")).reserved_for("lesser", "lesser")
TWICE = (a_device("nic"), a_device("nic"))


@pytest.mark.parametrize(("things", "says", "helps"), [
    pytest.param([], "cannot allocate all claims", True, id="the device is in use"),
    pytest.param([a_slice("n1", "b", *TWICE)], "invalid resource pools were encountered", True,
        id="another driver names a device twice"),
    pytest.param([a_slice("n9", "b", *TWICE).everywhere()], "invalid resource pools were encountered", True,
        id="another driver, whose pool all nodes see, names a device twice"),
    pytest.param([a_slice("n1", "b", a_device("nic")).of(2)], "cannot allocate all claims", True,
        id="another driver's pool is being updated"),
    pytest.param([a_slice("n1", "b", *TWICE), ASKS.request("s", "B")], "invalid resource pools were encountered", False,
        id="the claim also requests a device of the invalid pool"),
])  # fmt: skip
def test_a_pod_is_evicted_for_its_device(things: Sequence[Builder[Any]], says: str, *, helps: bool) -> None:
    """An eviction helps only if no other device is missing."""
    world = Trying(a_slice("n1", "a", a_device("d")), HELD, ASKS, *things)
    world.cluster.add_pod(placed(pod_info(pod("lesser").uid("lesser").claim("e", claim="h").typed()), "n1"))

    outcome = finish(world.attempt("c"))

    assert isinstance(outcome, Unschedulable)
    assert [no.message for no in outcome.diagnosis.groups] == [says]
    assert ("n1" if helps else "") == (outcome.nominate or "")
    assert [victim.pod.metadata.name for victim in outcome.victims] == (["lesser"] if helps else [])
