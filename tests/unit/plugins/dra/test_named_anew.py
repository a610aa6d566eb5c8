"""A pod whose status comes to name another claim than the one that was decided on is not bound with that one."""

from __future__ import annotations

import pytest

from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.core.cooperative import answered, finish
from scheduler.framework.status import Code, Rejection
from simulator.builders.claims import a_claim
from simulator.builders.core import pod
from tests.unit.plugins.dra.served import ASKING, Served, Under, using
from tests.unit.plugins.dra.standins import GPU, SERVES

SAID = "the pod's status names other resource claims by now"
FIRST = a_claim("first").owned_by("p", "p").request("r", "A")
SECOND = a_claim("second").owned_by("p", "p").request("r", "A")


def told(*names: str | None) -> PodInfo:
    """A pod with an entry for each of these, of one template; None is an entry that needs no claim."""
    built = pod("p").uid("p")
    for at, name in enumerate(names):
        built = built.claim(f"e{at}", template="t").claim_made(f"e{at}", name)
    return pod_info(built.typed())


def again(world: Served, under: Under) -> list[Rejection]:
    """What the second look says of its node."""
    slot = world.slot(under.info.node_name)
    return list(finish(answered(world.plugin.filter(under.state, under.info, 1 << slot))))


def seen_again(world: Served, *names: str | None) -> None:
    """As the intake does it when an assumed pod's status changed."""
    world.cluster.name_claims(told(*names))


async def test_before_anything_is_written() -> None:
    """Nothing is."""
    world = Served(FIRST, SECOND)
    under = world.reserved(told("first"))
    seen_again(world, "second")

    assert SAID == await world.bound(under)
    await world.undo(under)
    assert ([], [], []) == (world.writes, world.used, world.in_flight)


async def test_while_it_is_written() -> None:
    """Noticed at the end; the devices go back, for nobody will ever use that claim."""
    world = Served(FIRST, SECOND)
    under = world.reserved(told("first"))
    world.writer.on_claim_written = lambda what, _: seen_again(world, "second") if what == "allocate" else None

    assert SAID == await world.bound(under)
    world.unreserve(under)
    await world.undo(under)
    assert ["protect first", "allocate first", "deallocate first"] == world.writes
    assert ([], [], []) == (world.users("first"), world.devices_of("first"), world.used)
    assert "" == await world.bound(world.reserved(told("second")))


async def test_after_it_was_written() -> None:
    """The second look before the Binding refuses the node, whichever it is."""
    world = Served(FIRST, SECOND)
    under = world.reserved(told("first"))
    assert "" == await world.bound(under)
    assert [] == again(world, under)
    before = world.cluster.outlook(under.info)

    seen_again(world, "second")
    assert before != world.cluster.outlook(under.info)
    assert [(Code.UNRESOLVABLE, SAID)] == [(no.code, no.message) for no in again(world, under)]


@pytest.mark.parametrize(("names", "expected"), [
    pytest.param(("first", "second"), "", id="the same"),
    pytest.param(("second", "first"), "", id="in another order"),
    pytest.param(("first",), SAID, id="one less"),
    pytest.param(("first", None), SAID, id="one of them is not needed any more"),
    pytest.param(("first", "third"), SAID, id="another"),
])  # fmt: skip
async def test_of_several_claims(names: tuple[str | None, ...], expected: str) -> None:
    world = Served(FIRST, SECOND)
    under = world.reserved(told("first", "second"))
    seen_again(world, *names)

    assert expected == await world.bound(under)


async def test_what_is_still_named_is_only_released() -> None:
    """And what others use, and what nobody made for the pod."""
    world = Served(FIRST, SECOND)
    under = world.reserved(told("first", "second"))
    assert "" == await world.bound(under)
    seen_again(world, "third", "second")

    await world.undo(under)
    assert {"deallocate first", "unreserve second"} == set(world.writes[-2:])
    assert ([], 1) == (world.devices_of("first"), len(world.devices_of("second")))


async def test_the_claim_for_extended_resources_is_no_entry_of_the_pods() -> None:
    """It is in nobody's status before it is written."""
    world = Served(SERVES, FIRST, SECOND)

    def both(claim: str) -> PodInfo:
        built = pod("p").uid("p").extended(GPU, "1").claim("e0", template="t").claim_made("e0", claim)
        return pod_info(built.typed())

    under = world.reserved(both("first"))
    assert [] == again(world, under)
    assert "" == await world.bound(under)
    assert [] == again(world, under)

    world.cluster.name_claims(both("second"))
    assert [SAID] == [no.message for no in again(world, under)]
    await world.undo(under)
    assert [] == world.used


async def test_a_claim_that_the_pod_names_itself_stays_as_it_is() -> None:
    """There is nothing that a controller could name."""
    world = Served(ASKING)
    under = world.reserved(using("c"))
    world.cluster.name_claims(using("c"))

    assert "" == await world.bound(under)
    assert [] == again(world, under)


def test_a_pod_that_is_bound_is_not_looked_at() -> None:
    """Its own update tells of it; and one that nobody knows is none."""
    world = Served(FIRST)
    under = world.reserved(told("first"))
    world.cluster.add_pod(under.info)
    before = world.cluster.version("n1")
    seen_again(world, "second")
    world.cluster.name_claims(pod_info(pod("stranger").uid("s").typed()))

    assert before == world.cluster.version("n1")
    assert world.cluster.get("p") is under.info
