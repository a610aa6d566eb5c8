"""The plugin decides extended resources that devices serve: docs/spec/dra.md §3.12, rows 315–327 and 329 of §9.15."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.core import nodeset
from scheduler.core.cooperative import answered, finish
from scheduler.core.feature_gates import DEVICE_GATES_ON, EXTENDED_RESOURCE
from scheduler.framework.status import SKIP, Code
from scheduler.plugins.dra.extended_resources import mapped_requests
from simulator.builders.claims import ClaimBuilder, a_claim, a_result
from simulator.builders.core import NodeBuilder, PodBuilder, node, pod
from simulator.builders.devices import a_device, a_device_class, a_slice
from tests.unit.objects import container, pod as pod_of
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


def test_263_the_gate_is_off() -> None:
    """PreFilter returns Skip, and NodeResourcesFit then checks the resource."""
    assert a_world(GPUS, gates=DEVICE_GATES_ON - {EXTENDED_RESOURCE}).pre_filter(gpus())[1] is SKIP


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


def test_no_two_attempts_share_a_uid() -> None:
    """A claim that one attempt drops must not be the claim of another attempt."""
    world = a_world(GPUS)
    uids = {world.known(world.pre_filter(gpus())[0]).claims[0].uid for _ in range(8)}

    assert 8 == len(uids)


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


# -- the requests of the claim, rows 323–327 ---------------------------------------------------------------------------

TPU = "example.com/tpu"
CLASSES = {GPU: "gpu"}


def a(name: str, count: int | str, **more: str) -> dict[str, Any]:
    """Return a container that requests `count` GPUs."""
    return container(name, **{GPU: str(count), **more})


def wanted(*containers: dict[str, Any], first: tuple[dict[str, Any], ...] = ()) -> tuple[dict[str, int], str]:
    """Return the count of each request, and `container.request` in order. `1.0` stands for `container-1-request-0`."""
    found = mapped_requests(pod_of(containers=list(containers), initContainers=list(first)), CLASSES)
    requests = {short(request.name): request.exactly.count for request in found.requests if request.exactly is not None}
    return requests, " ".join(f"{mapped.container_name}{short(mapped.request_name)}" for mapped in found.mappings)


def short(request: str) -> str:
    return request.removeprefix("container-").replace("-request-", ".")


@pytest.mark.parametrize(("first", "containers", "requests", "mappings"), [
    pytest.param((), [a("x", 0), a("y", 1, cpu="0")], {"1.1": 1}, "y1.1",
        id="324 a zero is no request but takes a number"),
    pytest.param((a("i", 2),), [a("m", 1), a("n", 1), a("o", 1)], {"1.0": 1, "2.0": 1, "3.0": 1},
        "m1.0 n2.0 o3.0 i1.0 i2.0", id="325 init uses as many main requests as it needs, in order"),
    pytest.param((a("i", 2), a("j", 3)), [a("m", 1)], {"1.0": 2, "2.0": 1}, "m2.0 i2.0 i1.0 j2.0 j1.0",
        id="326 the largest init container comes second"),
    pytest.param((a("i", 2), a("j", 2)), [container("m")], {"0.0": 2}, "i0.0 j0.0",
        id="326 the first of equal init containers gets the request"),
    pytest.param((), [container("x", cpu="1")], {}, "", id="no container requests the resource"),
    pytest.param((), [a("x", "1500m")], {}, "", id="an amount that is no whole number counts as none"),
    pytest.param((), [a("x", "2k")], {"0.0": 2000}, "x0.0", id="an amount with a suffix is a whole number"),
])  # fmt: skip
def test_one_resource(first: tuple[Any, ...], containers: list[Any], requests: dict[str, int], mappings: str) -> None:
    assert (requests, mappings) == wanted(*containers, first=first)


def test_324_several_resources() -> None:
    """Resources and requests are sorted by name. For each resource, main containers come before init containers."""
    both = container("m", **{TPU: "1", GPU: "2", "cpu": "1"})
    found = mapped_requests(
        pod_of(containers=[both], initContainers=[container("i", **{TPU: "3"})]), {TPU: "t", GPU: "g"}
    )

    exactly = [(r.name, r.exactly and (r.exactly.device_class_name, r.exactly.count)) for r in found.requests]
    assert exactly == [
        ("container-0-request-0", ("t", 2)),
        ("container-1-request-1", ("g", 2)),
        ("container-1-request-2", ("t", 1)),
    ]
    assert {"ExactCount"} == {request.exactly.allocation_mode for request in found.requests if request.exactly}
    assert [(m.container_name, m.resource_name, m.request_name) for m in found.mappings] == [
        ("m", GPU, "container-1-request-1"),
        ("m", TPU, "container-1-request-2"),
        ("i", TPU, "container-1-request-2"),
        ("i", TPU, "container-0-request-0"),
    ]


def test_requests_are_ordered_by_name_as_text() -> None:
    """The eleventh container comes before the third."""
    requests, mappings = wanted(*(a(f"c{at}", 1) for at in range(11)))

    assert sorted(requests) == list(requests)
    assert list(requests).index("10.0") == 2
    assert mappings == " ".join(f"c{at}{at}.0" for at in range(11))
