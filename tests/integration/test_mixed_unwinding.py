"""A pod with volumes and devices, of which one fails while the other is held: all reservations are undone, or the pod is bound in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from simulator.apiserver import Fault
from tests.integration.daemon import until
from tests.integration.devicejudging import results_of
from tests.integration.histories import BINDINGS
from tests.integration.mixedhistories import ALLOCATE
from tests.integration.mixedworld import MixedWorld, Rules, with_all
from tests.integration.volumeworld import Want
from tests.integration.world import SHARED

POD: Final = "m01"
FAST: Final = (Want("fast", 2),)
SLOW: Final = ("slow-1", "memory-5")
Harm = Callable[[MixedWorld], None]


def prepare(world: MixedWorld) -> None:
    """Create two nodes with capacity for one such pod each."""
    world.add_node("n1", 4000, "a")
    world.add_node(SHARED, 4000, "b")


def node_of(world: MixedWorld) -> str:
    found = [obj["spec"].get("nodeName", "") for obj in world.server.objects("pods") if obj["metadata"]["name"] == POD]
    return found[0] if found else ""


def places(world: MixedWorld) -> dict[str, str]:
    """Return pods that the leader has assumed and that are not bound → their nodes."""
    return dict(pair for n in range(2) for pair in world._assumed(n))


async def assumed(world: MixedWorld) -> None:
    """Wait until the leader has reserved volumes and devices for the pod, which is not bound."""
    await until(lambda: bool(world._assumed(0)), lambda: f"never assumed: {world.refusals}")
    assert world.reservations.calls >= 2


def allocated(world: MixedWorld) -> list[str]:
    """Return the claims that have devices."""
    return [obj["metadata"]["name"] for obj in world.server.objects("resourceclaims") if results_of(obj)]


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda world: world.answer("it is broken", 1), id="the first device that is prepared fails"),
        pytest.param(lambda world: world.fail_provisioning(1, False), id="the first volume cannot be made"),
        pytest.param(lambda world: world.fault(ALLOCATE, {"status": 403}, 1), id="the first allocation is refused"),
        pytest.param(lambda world: world.fault(BINDINGS, {"status": 500}, 1), id="the first Binding fails"),
    ],
)
async def test_what_is_undone_once_is_done_in_the_end(harm: Harm) -> None:
    async with with_all() as world:
        prepare(world)
        harm(world)
        world.add_mixed(1, 100, FAST, SLOW, Rules())
        await until(lambda: bool(node_of(world)), lambda: f"never bound: {world.refusals}")
        await world.settle()

        assert world.reservations.undone >= 2
        assert world.broken_laws() == []


@pytest.mark.parametrize("is_sent", [False, True], ids=["in PreBind", "when its Binding is on the way"])
@pytest.mark.parametrize("is_there", [True, False], ids=["bound elsewhere by another scheduler", "deleted"])
async def test_what_is_held_for_a_pod_that_is_taken_away(is_there: bool, is_sent: bool) -> None:
    async with with_all() as world:
        world.add_node("n1", 4000, "a")
        sent = world.server.faults.add(Fault(**BINDINGS, delay_s=6, times=1))
        world.add_mixed(1, 100, FAST, SLOW, Rules())
        await assumed(world)
        world.add_node(SHARED, 4000, "b")
        if is_sent:
            await until(lambda: sent.hits > 0, lambda: f"no Binding was sent: {world.refusals}")
        if is_there:
            world.bind_assumed(0, elsewhere=True)
        else:
            world.delete_assumed(0, is_replaced=False)
        await world.settle()

        assert node_of(world) == (SHARED if is_there else "")
        assert world.reservations.undone >= 2
        assert world.broken_laws() == []
        assert is_there or allocated(world) == []


async def test_a_fail_over_while_all_is_held() -> None:
    async with with_all() as world:
        prepare(world)
        world.kill_provisioner(in_a_call=False)
        world.add_mixed(1, 100, FAST, SLOW, Rules())
        await assumed(world)
        first = world.daemon
        await world.kill_leader()
        world.revive_provisioner()
        await world.settle()

        assert node_of(world)
        assert world.daemon is not first
        assert world.broken_laws() == []
        assert await world.start_over() == []


async def test_a_pod_that_is_moved_onto_the_node_of_another() -> None:
    async with with_all() as world:
        prepare(world)
        world.add_mixed(2, 2500, FAST, (), Rules())
        await until(lambda: len(places(world)) == 2, lambda: f"never assumed: {world.refusals}")
        assert sorted(places(world).values()) == ["n1", SHARED]
        (moved,) = (at for at, name in enumerate(sorted(places(world))) if places(world)[name] == "n1")
        world.bind_assumed(moved, elsewhere=True)
        await world.settle()

        assert {obj["metadata"]["name"]: obj["status"]["phase"] for obj in world.server.objects("pods")} == {
            "m01": "Running",
            "m02": "Running",
        }
        assert world.broken_laws() == []
