"""The plugin decides extended resources that devices serve: docs/spec/dra.md §3.12, rows 315–322 and 329 of §9.15."""

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
    """Return a world where class gpu (driver a) serves example.com/gpu and fpga (driver b) only its implicit name."""
    world = World(gates=gates)
    world.show(a_device_class("gpu", 'device.driver == "a"').extended_resource(GPU))
    world.show(a_device_class("fpga", 'device.driver == "b"'))
    for thing in things:
        if isinstance(thing, NodeBuilder):
            world.cluster.set_node(thing.typed())
        else:
            world.show(thing)
    return world


def pod_with(*, claim: str = "", **more: str) -> PodBuilder:
    built = pod("p").uid("uid-p")
    for name, amount in more.items():
        built = built.extended(name, amount)
    return built.claim("e", claim=claim) if claim else built


def gpus(count: int = 1, **more: str) -> PodInfo:
    return pod_info(pod_with(**{GPU: str(count)}, **more).typed())


def requests_on(world: World, info: PodInfo, node_name: str) -> dict[str, tuple[str, int]]:
    """Return class and count by request, of the claim that the pod would get on this node."""
    state, said = world.pre_filter(info)
    assert said is None, said
    slot = world.cluster.nodes.present_slot(node_name)
    special = next(v.special for v in world.known(state).variants if slot is not None and v.nodes >> slot & 1)
    requests = special.spec.devices.requests if special is not None else ()
    return {r.name: (r.exactly.device_class_name, r.exactly.count) for r in requests if r.exactly is not None}


@pytest.mark.parametrize(("things", "requests", "on_n1"), [
    pytest.param([node("n1").resource(GPU, "1")], {GPU: "1"}, {}, id="315 the pod gets no claim where the node has the resource"),
    pytest.param([], {GPU: "2"}, {"container-0-request-0": ("gpu", 2)}, id="321 the pod gets a claim where the node lacks it"),
    pytest.param([node("n1").resource(GPU, "1")], {GPU: "1", FPGA: "1"}, {"container-0-request-0": ("fpga", 1)},
        id="316 the claim is only for the resource that the node lacks"),
    pytest.param([], {GPU: "1", FPGA: "1"}, {"container-0-request-0": ("fpga", 1), "container-0-request-1": ("gpu", 1)},
        id="316 the claim is for both where the node lacks both"),
])  # fmt: skip
def test_the_claim_depends_on_the_node(
    things: list[Any], requests: dict[str, str], on_n1: dict[str, tuple[str, int]]
) -> None:
    assert on_n1 == requests_on(a_world(*things), pod_info(pod_with(**requests).typed()), "n1")


@pytest.mark.parametrize(("requests", "gates"), [
    pytest.param({FOO: "1"}, DEVICE_GATES_ON, id="318 no class serves the resource"),
    pytest.param({GPU: "0"}, DEVICE_GATES_ON, id="the requested amount is zero"),
    pytest.param({"cpu": "1"}, DEVICE_GATES_ON, id="the pod requests no extended resource"),
    pytest.param({GPU: "1"}, DEVICE_GATES_ON - {EXTENDED_RESOURCE}, id="263 the gate is off"),
    pytest.param({GPU: "1"}, DEVICE_GATES_ON - {DYNAMIC_RESOURCE_ALLOCATION}, id="299 the gate of all device allocation is off"),
])  # fmt: skip
def test_pre_filter_skips_other_pods(requests: dict[str, str], gates: frozenset[str]) -> None:
    """PreFilter returns Skip, and NodeResourcesFit then checks the resource."""
    _, said = a_world(GPUS, gates=gates).pre_filter(pod_info(pod_with(**requests).typed()))

    assert said is SKIP


def test_classes_are_read_again_in_each_attempt() -> None:
    """332: the class that serves a resource may change between two attempts."""
    world = a_world(GPUS)
    assert {"n2": CANNOT_ALLOCATE} == world.refusals(gpus())

    world.show(a_device_class("gpu", 'device.driver == "b"').extended_resource(GPU))
    assert {"n1": CANNOT_ALLOCATE, "n2": CANNOT_ALLOCATE} == world.refusals(gpus())

    world.devices.classes.put("gpu", None)
    assert world.pre_filter(gpus())[1] is SKIP


def test_a_node_may_get_the_resource_later() -> None:
    """A resource that no class serves counts too: the cached result of a changed node is discarded."""
    world = a_world(GPUS)
    both = pod_info(pod_with(**{GPU: "1", FOO: "1"}).typed())
    assert {"n1": CANNOT_FIT, "n2": CANNOT_FIT} == world.refusals(both)

    world.cluster.set_node(node("n1").resource(FOO, "1").typed())
    world.cluster.set_node(node("n2").resource(GPU, "1").typed())
    assert {"n2": CANNOT_FIT} == world.refusals(both)
    assert {} == world.refusals(gpus())

    world.cluster.remove_node("n1")
    world.cluster.set_node(node("n1").typed())
    assert {"n1": CANNOT_FIT, "n2": CANNOT_FIT} == world.refusals(both)


def test_the_number_of_groups_does_not_grow_with_the_nodes() -> None:
    """Nodes are grouped only by which of the requested resources they have."""
    world = a_world()
    for at in range(200):
        built = node(f"m{at}").label("host", str(at))
        world.cluster.set_node((built.resource(GPU, str(at)) if at % 3 else built).typed())
    state, _ = world.pre_filter(pod_info(pod_with(**{GPU: "1", FPGA: "1"}).typed()))

    variants = world.known(state).variants
    assert [(2 + 67, ["fpga", "gpu"]), (133, ["fpga"])] == sorted(
        (v.nodes.bit_count(), [r.exactly.device_class_name for r in v.claims[0].spec.devices.requests if r.exactly])
        for v in variants
    )


def test_315_no_devices_are_searched_where_nodes_have_the_resource() -> None:
    world = a_world(node("n1").resource(GPU, "1"), node("n2").resource(GPU, "1"))
    state, said = world.pre_filter(gpus())

    assert said is None
    assert world.plugin.filter_is_exact(state, gpus())
    assert world.plugin.reserve(state, gpus(), "n1") is None
    assert () == world.known(state).signalled


# -- together with the pod's claims ------------------------------------------------------------------------------------


def world_with_claim(things: list[Any], *, count: int = 1) -> tuple[World, PodInfo]:
    world = a_world(*things)
    return world, pod_info(pod_with(claim="c", **{GPU: str(count)}).typed())


def test_both_are_allocated_together() -> None:
    """Of two devices, the claim gets one and the container the other one."""
    world, info = world_with_claim([GPUS, a_claim("c").request("r", "A")])
    assert {"n2": CANNOT_ALLOCATE} == world.refusals(info)

    state, no = world.reserve(info, "n1")
    assert no is None
    assert 2 == len(world.known(state).allocations)
    picked = [r.device for each in world.known(state).allocations.values() for r in each.devices.results]
    assert ["d0", "d1"] == sorted(picked)

    world, info = world_with_claim([GPUS, a_claim("c").request("r", "A")], count=2)
    assert {"n1": CANNOT_ALLOCATE, "n2": CANNOT_ALLOCATE} == world.refusals(info)


def test_only_the_claim_is_allocated_where_the_node_has_the_resource() -> None:
    """Upstream creates a claim without requests there, and then fails."""
    world, info = world_with_claim([GPUS, a_claim("c").request("r", "A"), node("n1").resource(GPU, "1")])
    state, no = world.reserve(info, "n1")

    assert no is None
    assert {"uid-c"} == set(world.known(state).allocations)
    assert world.known(state).special is None


def test_an_allocated_claim_restricts_the_nodes() -> None:
    """The claim is usable on n2 and the resource is on n1. The claim is the reason only where the rest fits."""
    held = a_claim("c").request("r", "B").allocated(a_result("r", "b/n2/d0"), on="n2")
    world, info = world_with_claim([GPUS, held])

    assert {"n1": (UNRESOLVABLE, "resourceclaim not available on the node"), "n2": CANNOT_ALLOCATE} == world.refusals(
        info
    )


def test_the_claims_of_the_pod_are_checked_first() -> None:
    world, info = world_with_claim([GPUS])
    _, said = world.pre_filter(info)

    assert not isinstance(said, dict)
    assert said is not None
    assert 'could not find ResourceClaim "default/c"' in getattr(said, "message", "")


# -- claims of an earlier attempt --------------------------------------------------------------------------------------


def left(name: str = "left", owner: str = "p") -> ClaimBuilder:
    claim = a_claim(name).for_extended_resources().owned_by(owner, f"uid-{owner}")
    return claim.request("container-0-request-0", "gpu")


def test_329_the_claim_of_another_pod_is_ignored() -> None:
    assert {"n2": CANNOT_ALLOCATE} == a_world(GPUS, left(owner="q")).refusals(gpus())


def test_329_the_pod_is_skipped_when_no_class_serves_the_resource() -> None:
    """PreFilter returns Skip when the class is removed."""
    world = a_world(GPUS, left())
    world.devices.classes.put("gpu", None)

    assert world.pre_filter(gpus())[1] is SKIP


def test_post_filter_does_not_remove_a_claim_in_memory() -> None:
    """The claim in memory is not a claim of an earlier attempt."""
    world = a_world()
    state, _ = world.filter(gpus())
    what_if: Any = SimpleNamespace(nominated_to="")
    no: Any = finish(world.plugin.post_filter(state, gpus(), {}, what_if))

    assert (Code.UNSCHEDULABLE, "still not schedulable") == (no.code, no.message)


# -- the claim in memory -----------------------------------------------------------------------------------------------


def test_the_claim_in_memory_has_the_metadata_of_upstream() -> None:
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
    """A claim that one attempt drops must not be the claim of another attempt."""
    world = a_world(GPUS)
    uids = {world.known(world.pre_filter(gpus())[0]).claims[0].uid for _ in range(8)}

    assert 8 == len(uids)


def test_more_devices_than_a_claim_may_have_are_an_error() -> None:
    """The attempt fails, and the message names the claim as upstream does."""
    state, said = a_world(GPUS).filter(gpus(33))
    assert isinstance(said, dict)
    (no,) = said

    assert (Code.ERROR, True) == (no.code, no.message.startswith("claim default/<extended-resources>"))
    assert isinstance(state, CycleState)


def test_a_node_that_is_added_after_pre_filter_is_not_rejected() -> None:
    """An attempt sees one state of the cluster, so the plugin returns no result for a later node."""
    world = a_world(GPUS)
    state, _ = world.pre_filter(gpus())
    world.cluster.set_node(node("n9").typed())
    slot = world.cluster.nodes.present_slot("n9")
    assert slot is not None

    assert world.plugin.verify(state, gpus(), slot) is None
    groups = finish(answered(world.plugin.filter(state, gpus(), nodeset.of([slot]))))
    assert not any(out >> slot & 1 for out in groups.values())
