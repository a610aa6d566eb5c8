"""Extended resources that devices serve, decided: docs/spec/dra.md §3.12, rows 315–322 and 329 of §9.15."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.core import nodeset
from scheduler.core.cooperative import answered, finish
from scheduler.core.feature_gates import DEVICE_GATES_ON, DYNAMIC_RESOURCE_ALLOCATION, EXTENDED_RESOURCE
from scheduler.framework.interface import CycleState
from scheduler.framework.status import SKIP, Code
from scheduler.plugins.dra.extended_resources import is_in_memory
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.core import NodeBuilder, PodBuilder, node, pod
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.unit.plugins.dra.world import World

GPU, FOO, FPGA = "example.com/gpu", "example.com/foo", "deviceclass.resource.kubernetes.io/fpga"
UNRESOLVABLE = Code.UNRESOLVABLE
CANNOT_FIT = (UNRESOLVABLE, "cannot fit resource")
CANNOT_ALLOCATE = (UNRESOLVABLE, "cannot allocate all claims")
GPUS = a_slice("n1", "a", a_device("d0"), a_device("d1"))


def a_world(*things: Any, gates: frozenset[str] = DEVICE_GATES_ON) -> World:
    """Class gpu serves example.com/gpu with devices of driver a; fpga, of driver b, serves its own name alone."""
    world = World(gates=gates)
    world.show(a_device_class("gpu", 'device.driver == "a"').extended_resource(GPU))
    world.show(a_device_class("fpga", 'device.driver == "b"'))
    for thing in things:
        if isinstance(thing, NodeBuilder):
            world.cluster.set_node(thing.typed())
        else:
            world.show(thing)
    return world


def asking(*, claim: str = "", **more: str) -> PodBuilder:
    built = pod("p").uid("uid-p")
    for name, amount in more.items():
        built = built.extended(name, amount)
    return built.claim("e", claim=claim) if claim else built


def gpus(count: int = 1, **more: str) -> PodInfo:
    return pod_info(asking(**{GPU: str(count)}, **more).typed())


def asked_on(world: World, info: PodInfo, node_name: str) -> dict[str, tuple[str, int]]:
    """Request → class and count, of the claim that the pod would get on this node."""
    state, said = world.pre_filter(info)
    assert said is None, said
    slot = world.cluster.nodes.present_slot(node_name)
    special = next(v.special for v in world.known(state).variants if slot is not None and v.nodes >> slot & 1)
    requests = special.spec.devices.requests if special is not None else ()
    return {r.name: (r.exactly.device_class_name, r.exactly.count) for r in requests if r.exactly is not None}


@pytest.mark.parametrize(("things", "requests", "on_n1"), [
    pytest.param([node("n1").resource(GPU, "1")], {GPU: "1"}, {}, id="315 no claim where the node has it"),
    pytest.param([], {GPU: "2"}, {"container-0-request-0": ("gpu", 2)}, id="321 one where it has not"),
    pytest.param([node("n1").resource(GPU, "1")], {GPU: "1", FPGA: "1"}, {"container-0-request-0": ("fpga", 1)},
        id="316 for that alone which it has not"),
    pytest.param([], {GPU: "1", FPGA: "1"}, {"container-0-request-0": ("fpga", 1), "container-0-request-1": ("gpu", 1)},
        id="316 for both where it has neither"),
])  # fmt: skip
def test_each_node_its_own_claim(
    things: list[Any], requests: dict[str, str], on_n1: dict[str, tuple[str, int]]
) -> None:
    assert on_n1 == asked_on(a_world(*things), pod_info(asking(**requests).typed()), "n1")


@pytest.mark.parametrize(("requests", "gates"), [
    pytest.param({FOO: "1"}, DEVICE_GATES_ON, id="318 no class for it"),
    pytest.param({GPU: "0"}, DEVICE_GATES_ON, id="none of it is wanted"),
    pytest.param({"cpu": "1"}, DEVICE_GATES_ON, id="no extended resource"),
    pytest.param({GPU: "1"}, DEVICE_GATES_ON - {EXTENDED_RESOURCE}, id="263 the gate is off"),
    pytest.param({GPU: "1"}, DEVICE_GATES_ON - {DYNAMIC_RESOURCE_ALLOCATION}, id="299 no devices at all"),
])  # fmt: skip
def test_not_ours(requests: dict[str, str], gates: frozenset[str]) -> None:
    """PreFilter skips; a class that goes leaves it to whoever checks room on nodes."""
    _, said = a_world(GPUS, gates=gates).pre_filter(pod_info(asking(**requests).typed()))

    assert said is SKIP


def test_classes_are_looked_at_anew_for_each_pod() -> None:
    """332: what serves a resource may change between two attempts."""
    world = a_world(GPUS)
    assert {"n2": CANNOT_ALLOCATE} == world.refusals(gpus())

    world.show(a_device_class("gpu", 'device.driver == "b"').extended_resource(GPU))
    assert {"n1": CANNOT_ALLOCATE, "n2": CANNOT_ALLOCATE} == world.refusals(gpus())

    world.devices.classes.put("gpu", None)
    assert world.pre_filter(gpus())[1] is SKIP


def test_a_node_may_get_it_itself_later() -> None:
    """Also one that names what no class serves: nothing is kept of a node that has changed."""
    world = a_world(GPUS)
    both = pod_info(asking(**{GPU: "1", FOO: "1"}).typed())
    assert {"n1": CANNOT_FIT, "n2": CANNOT_FIT} == world.refusals(both)

    world.cluster.set_node(node("n1").resource(FOO, "1").typed())
    world.cluster.set_node(node("n2").resource(GPU, "1").typed())
    assert {"n2": CANNOT_FIT} == world.refusals(both)
    assert {} == world.refusals(gpus())

    world.cluster.remove_node("n1")
    world.cluster.set_node(node("n1").typed())
    assert {"n1": CANNOT_FIT, "n2": CANNOT_FIT} == world.refusals(both)


def test_few_groups_however_many_nodes() -> None:
    """Nodes are told apart by what of it they have themselves, and by nothing else."""
    world = a_world()
    for at in range(200):
        built = node(f"m{at}").label("host", str(at))
        world.cluster.set_node((built.resource(GPU, str(at)) if at % 3 else built).typed())
    state, _ = world.pre_filter(pod_info(asking(**{GPU: "1", FPGA: "1"}).typed()))

    variants = world.known(state).variants
    assert [(2 + 67, ["fpga", "gpu"]), (133, ["fpga"])] == sorted(
        (v.nodes.bit_count(), [r.exactly.device_class_name for r in v.claims[0].spec.devices.requests if r.exactly])
        for v in variants
    )


def test_315_no_searching_where_nodes_have_it_themselves() -> None:
    world = a_world(node("n1").resource(GPU, "1"), node("n2").resource(GPU, "1"))
    state, said = world.pre_filter(gpus())

    assert said is None
    assert world.plugin.filter_is_exact(state, gpus())
    assert world.plugin.reserve(state, gpus(), "n1") is None
    assert () == world.known(state).signalled


# -- beside claims of the pod's own ------------------------------------------------------------------------------------


def beside(things: list[Any], *, count: int = 1) -> tuple[World, PodInfo]:
    world = a_world(*things)
    return world, pod_info(asking(claim="c", **{GPU: str(count)}).typed())


def test_both_are_allocated_together() -> None:
    """Two devices: one for the claim, one for the container; not two and two."""
    world, info = beside([GPUS, a_claim("c").request("r", "A")])
    assert {"n2": CANNOT_ALLOCATE} == world.refusals(info)

    state, no = world.reserve(info, "n1")
    assert no is None
    assert 2 == len(world.known(state).allocations)
    picked = [r.device for each in world.known(state).allocations.values() for r in each.devices.results]
    assert ["d0", "d1"] == sorted(picked)

    world, info = beside([GPUS, a_claim("c").request("r", "A")], count=2)
    assert {"n1": CANNOT_ALLOCATE, "n2": CANNOT_ALLOCATE} == world.refusals(info)


def test_only_the_claim_where_the_node_has_the_resource() -> None:
    """Upstream makes a claim that asks for nothing there, and then fails."""
    world, info = beside([GPUS, a_claim("c").request("r", "A"), node("n1").resource(GPU, "1")])
    state, no = world.reserve(info, "n1")

    assert no is None
    assert {"uid-c"} == set(world.known(state).allocations)
    assert world.known(state).special is None


def test_an_allocated_claim_ties_the_pod_down() -> None:
    """It can be used on n2, the resource is to be had on n1: the claim is to blame only where the rest fits."""
    held = a_claim("c").request("r", "B").allocated(a_result("r", "b/n2/d0"), on="n2")
    world, info = beside([GPUS, held])

    assert {"n1": (UNRESOLVABLE, "resourceclaim not available on the node"), "n2": CANNOT_ALLOCATE} == world.refusals(
        info
    )


def test_the_pods_own_claims_are_looked_at_first() -> None:
    world, info = beside([GPUS])
    _, said = world.pre_filter(info)

    assert not isinstance(said, dict)
    assert said is not None
    assert 'could not find ResourceClaim "default/c"' in getattr(said, "message", "")


# -- what an earlier attempt has left ----------------------------------------------------------------------------------


def left(name: str = "left", owner: str = "p") -> ClaimBuilder:
    claim = a_claim(name).for_extended_resources().owned_by(owner, f"uid-{owner}")
    return claim.request("container-0-request-0", "gpu")


def test_329_another_pods_claim_is_not() -> None:
    assert {"n2": CANNOT_ALLOCATE} == a_world(GPUS, left(owner="q")).refusals(gpus())


def test_329_not_where_no_class_serves_the_resource_any_more() -> None:
    """The pod is none of ours then."""
    world = a_world(GPUS, left())
    world.devices.classes.put("gpu", None)

    assert world.pre_filter(gpus())[1] is SKIP


def test_nothing_to_remove_before_it_is_made() -> None:
    """The claim in memory is no claim of an earlier attempt."""
    world = a_world()
    state, _ = world.filter(gpus())
    what_if: Any = SimpleNamespace(nominated_to="")
    no: Any = finish(world.plugin.post_filter(state, gpus(), {}, what_if))

    assert (Code.UNSCHEDULABLE, "still not schedulable") == (no.code, no.message)


# -- the claim in memory -----------------------------------------------------------------------------------------------


def test_the_claim_in_memory() -> None:
    world = a_world(GPUS)
    state, _ = world.pre_filter(gpus())
    (claim,) = world.known(state).claims
    owner = claim.metadata.owner_references[0]

    assert is_in_memory(claim)
    assert ("default/<extended-resources>", {"resource.kubernetes.io/extended-resource-claim": "true"}) == (
        claim.key,
        claim.metadata.annotations,
    )
    assert ("v1", "Pod", "p", "uid-p", True) == (owner.api_version, owner.kind, owner.name, owner.uid, owner.controller)


def test_no_two_attempts_share_a_uid() -> None:
    """What one drops must not be the other's."""
    world = a_world(GPUS)
    uids = {world.known(world.pre_filter(gpus())[0]).claims[0].uid for _ in range(8)}

    assert 8 == len(uids)


def test_more_than_a_claim_may_have() -> None:
    """The attempt fails, with the claim's name as upstream has it."""
    state, said = a_world(GPUS).filter(gpus(33))
    assert isinstance(said, dict)
    (no,) = said

    assert (Code.ERROR, True) == (no.code, no.message.startswith("claim default/<extended-resources>"))
    assert isinstance(state, CycleState)


def test_a_node_that_came_after_pre_filter_is_nobodys() -> None:
    """One attempt sees one state; whoever asks of other nodes hears nothing."""
    world = a_world(GPUS)
    state, _ = world.pre_filter(gpus())
    world.cluster.set_node(node("n9").typed())
    slot = world.cluster.nodes.present_slot("n9")
    assert slot is not None

    assert world.plugin.verify(state, gpus(), slot) is None
    groups = finish(answered(world.plugin.filter(state, gpus(), nodeset.of([slot]))))
    assert not any(out >> slot & 1 for out in groups.values())
