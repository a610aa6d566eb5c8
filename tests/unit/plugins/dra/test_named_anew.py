"""A pod is not bound with a claim if its status has changed to name another claim since the decision."""

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


def pod_naming(*names: str | None) -> PodInfo:
    """Return a pod with one templated entry per name; the entry of None needs no claim."""
    built = pod("p").uid("p")
    for at, name in enumerate(names):
        built = built.claim(f"e{at}", template="t").claim_made(f"e{at}", name)
    return pod_info(built.typed())


def again(world: Served, under: Under) -> list[Rejection]:
    """Return the rejections of the second Filter call for the pod's node."""
    slot = world.slot(under.info.node_name)
    return list(finish(answered(world.plugin.filter(under.state, under.info, 1 << slot))))


def seen_again(world: Served, *names: str | None) -> None:
    """Update the cluster as the intake does when the status of an assumed pod changes."""
    world.cluster.name_claims(pod_naming(*names))


async def test_the_status_changes_during_a_write() -> None:
    """The plugin notices it after the write and frees the devices, because no pod will use that claim."""
    world = Served(FIRST, SECOND)
    under = world.reserved(pod_naming("first"))
    world.writer.on_claim_written = lambda what, _: seen_again(world, "second") if what == "allocate" else None

    assert SAID == await world.bound(under)
    world.unreserve(under)
    await world.undo(under)
    assert ["protect first", "allocate first", "deallocate first"] == world.writes
    assert ([], [], []) == (world.users("first"), world.devices_of("first"), world.used)
    assert "" == await world.bound(world.reserved(pod_naming("second")))


async def test_the_status_changes_after_the_writes() -> None:
    """The second Filter call, before the Binding, rejects the node."""
    world = Served(FIRST, SECOND)
    under = world.reserved(pod_naming("first"))
    assert "" == await world.bound(under)
    assert [] == again(world, under)
    before = world.cluster.outlook(under.info)

    seen_again(world, "second")
    assert before != world.cluster.outlook(under.info)
    assert [(Code.UNRESOLVABLE, SAID)] == [(no.code, no.message) for no in again(world, under)]


@pytest.mark.parametrize(("names", "expected"), [
    pytest.param(("first", "second"), "", id="the same claims"),
    pytest.param(("second", "first"), "", id="the claims are in another order"),
    pytest.param(("first",), SAID, id="one entry is missing"),
    pytest.param(("first", None), SAID, id="one entry needs no claim any more"),
    pytest.param(("first", "third"), SAID, id="one entry names another claim"),
])  # fmt: skip
async def test_every_entry_is_compared(names: tuple[str | None, ...], expected: str) -> None:
    """If the status has changed before the first write, the plugin writes nothing."""
    world = Served(FIRST, SECOND)
    under = world.reserved(pod_naming("first", "second"))
    seen_again(world, *names)

    assert expected == await world.bound(under)
    if expected:
        await world.undo(under)
        assert ([], [], []) == (world.writes, world.used, world.in_flight)


async def test_a_claim_that_is_still_named_is_only_released() -> None:
    """The plugin deallocates only the claim that the status does not name any more."""
    world = Served(FIRST, SECOND)
    under = world.reserved(pod_naming("first", "second"))
    assert "" == await world.bound(under)
    seen_again(world, "third", "second")

    await world.undo(under)
    assert {"deallocate first", "unreserve second"} == set(world.writes[-2:])
    assert ([], 1) == (world.devices_of("first"), len(world.devices_of("second")))


async def test_the_claim_for_extended_resources_is_not_compared() -> None:
    """The pod's status does not name that claim before the claim is written."""
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


async def test_a_claim_that_the_pod_spec_names_stays_valid() -> None:
    """No controller names a claim for that entry."""
    world = Served(ASKING)
    under = world.reserved(using("c"))
    world.cluster.name_claims(using("c"))

    assert "" == await world.bound(under)
    assert [] == again(world, under)


def test_the_status_of_a_bound_pod_is_ignored() -> None:
    """The update of the bound pod covers it; the status of an unknown pod is ignored too."""
    world = Served(FIRST)
    under = world.reserved(pod_naming("first"))
    world.cluster.add_pod(under.info)
    before = world.cluster.version("n1")
    seen_again(world, "second")
    world.cluster.name_claims(pod_info(pod("stranger").uid("s").typed()))

    assert before == world.cluster.version("n1")
    assert world.cluster.get("p") is under.info
