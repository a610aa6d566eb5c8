"""What devices take of their node's cpu, memory and huge pages (docs/spec/changes-1.37-devices.md §4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pytest

from scheduler.api.core_v1 import Pod
from scheduler.api.podinfo import PodInfo, pod_info, requests_of, with_claim_amounts
from scheduler.core.cluster_events import Resource
from scheduler.core.cooperative import Work
from scheduler.core.errors import ApiError, Conflict, Invalid, NotFound
from scheduler.core.feature_gates import DEVICE_GATES_ON, NODE_ALLOCATABLE
from scheduler.framework.interface import CLAIM_AMOUNTS, Hint
from scheduler.framework.status import Code
from scheduler.plugins.dra.structured.error_nodes import TimedOut
from simulator.builders.claims import a_claim
from simulator.builders.core import Builder, node, pod
from simulator.builders.devices import DeviceBuilder, a_device, a_slice
from tests.unit.plugins.dra.served import LOST, Served, Under, fails_first
from tests.unit.plugins.dra.world import World

GATES: Final = DEVICE_GATES_ON | {NODE_ALLOCATABLE}
UNRESOLVABLE: Final = Code.UNRESOLVABLE
GI: Final = 2**30
ONE: Final = a_claim("c").request("r", "A")
TWO: Final = a_claim("c").request("r", "A", count=2)
SHARE: Final = a_claim("c").request("r", "A", capacity={"cores": "3"})
CORES: Final = a_device("d").shared().cap("cores", "8").stands_for("cpu", capacity="cores", times="500m")
NO_SHARING: Final = "node allocatable resource claim c has a mapped device and cannot be shared across pods"


def on(name: str, *devices: DeviceBuilder) -> Builder[Any]:
    return a_slice(name, "a", *devices)


def a_pod(*, cpu: str = "1", uses: Sequence[str] = ("main",), claims: Sequence[str] = ("c",), **more: Any) -> PodInfo:
    """A pod with the containers `main` and `side`. `uses` names those that use the claims."""
    built = pod("p").uid("uid-p")
    entries = [{"name": name} for name in claims]
    containers = [
        {"name": name, "resources": {"requests": {"cpu": amount}, "claims": entries if name in uses else []}}
        for name, amount in (("main", cpu), ("side", "0"))
    ]
    for name in claims:
        built = built.claim(name, name)
    return pod_info(built.set({"spec": {"containers": containers, **more}}).typed())


def a_world(*things: Builder[Any], gates: frozenset[str] = GATES, **amounts: str) -> World:
    """Node n1 has 4 CPU, 8 GiB and no huge pages, unless `amounts` says otherwise; n2 has ten times as much."""
    world = World(gates=gates)
    amounts = {"cpu": "4", "memory": "8Gi"} | amounts
    for name, given in (("n1", amounts), ("n2", amounts | {"cpu": "40", "memory": "80Gi"})):
        built = node(name).pods(110).label("region", f"r{name[1:]}")
        for resource, amount in given.items():
            built = built.resource(resource.replace("_", "-"), amount)
        world.cluster.set_node(built.typed())
    world.show(*things)
    return world


@dataclass(frozen=True)
class Row:
    """`device` is in the pools of both nodes, twice. `refused` is the answer of n1."""

    device: DeviceBuilder
    claim: Builder[Any] = ONE
    pod: PodInfo = field(default_factory=a_pod)
    refused: tuple[Code, str] | None = None
    gates: frozenset[str] = GATES


ROWS: Final = {
    "a device that takes nothing": Row(a_device("d")),
    "what the device stands for and what the pod requests fit": Row(a_device("d").stands_for("cpu", "3")),
    "a milli more does not fit": Row(
        a_device("d").stands_for("cpu", "3001m"), refused=(UNRESOLVABLE, "Insufficient cpu")
    ),
    "while the gate is off it fits": Row(a_device("d").stands_for("cpu", "3001m"), gates=DEVICE_GATES_ON),
    "each device of the claim counts": Row(
        a_device("d").stands_for("cpu", "2"), TWO, refused=(UNRESOLVABLE, "Insufficient cpu")
    ),
    "a multiple of what is consumed fits": Row(CORES, SHARE, a_pod(cpu="2500m")),
    "a multiple of what is consumed does not fit": Row(
        CORES, SHARE, a_pod(cpu="2501m"), refused=(UNRESOLVABLE, "Insufficient cpu")
    ),
    "a capacity that the device does not have takes nothing": Row(
        a_device("d").shared().cap("cores", "8").stands_for("cpu", capacity="other", times="100"), SHARE
    ),
    "a capacity of a device that is not shared": Row(
        a_device("d").cap("cores", "8").stands_for("cpu", capacity="cores"),
        refused=(
            Code.ERROR,
            (
                "claim default/c, device d0: ConsumedCapacity is nil, but Capacity key 'cores' is set in "
                "NodeAllocatableResources for resource cpu"
            ),
        ),
    ),
    "overhead counts once for the pod": Row(
        a_device("d").costs("memory", per_pod="8Gi"), pod=a_pod(uses=("main", "side")), refused=None
    ),
    "overhead counts for each container that uses the claim": Row(
        a_device("d").costs("memory", per_pod="4Gi", per_container="2050Mi"),
        pod=a_pod(uses=("main", "side")),
        refused=(UNRESOLVABLE, "Insufficient memory"),
    ),
    "overhead of containers needs containers that use the claim": Row(
        a_device("d").costs("memory", per_container="9Gi"), pod=a_pod(uses=())
    ),
    "several resources are named in order": Row(
        a_device("d").stands_for("hugepages-2Mi", "2Mi").costs("memory", per_pod="9Gi").stands_for("cpu", "9"),
        refused=(UNRESOLVABLE, "Insufficient cpu, Insufficient memory, Insufficient hugepages-2Mi"),
    ),
    "a resource that is not the node's own is not compared": Row(a_device("d").stands_for("example.com/x", "9")),
    "an amount for the whole pod must cover the devices": Row(
        a_device("d").stands_for("cpu", "2"),
        pod=a_pod(resources={"requests": {"cpu": "2"}}),
        refused=(
            UNRESOLVABLE,
            "pod level request for cpu is insufficient to cover the aggregated container and node-allocatable DRA requests",
        ),
    ),
    "an amount for the whole pod that covers the devices is what counts": Row(
        a_device("d").stands_for("cpu", "3"), pod=a_pod(resources={"requests": {"cpu": "4"}})
    ),
    "a limit for the whole pod must cover each container with its devices": Row(
        a_device("d").stands_for("cpu", "1"),
        pod=a_pod(
            resources={"limits": {"cpu": "2"}},
            containers=[{"name": "main", "resources": {"limits": {"cpu": "1500m"}, "claims": [{"name": "c"}]}}],
        ),
        refused=(
            UNRESOLVABLE,
            "pod level limit for cpu is insufficient to cover the limit and DRA overhead for container main",
        ),
    ),
    "a limit of huge pages for the whole pod must cover all containers and devices": Row(
        a_device("d").stands_for("hugepages-2Mi", "2Mi"),
        pod=a_pod(
            resources={"limits": {"hugepages-2Mi": "4Mi"}},
            containers=[{"name": each, "resources": {"limits": {"hugepages-2Mi": "2Mi"}}} for each in ("main", "side")],
        ),
        refused=(
            UNRESOLVABLE,
            "pod level limit for hugepages-2Mi is insufficient to cover the aggregated container and node-allocatable DRA limits",
        ),
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_node_must_have_what_the_devices_take(row: Row) -> None:
    devices = [row.device.obj() | {"name": f"d{at}"} for at in range(2)]
    slices = [on(name).set({"spec": {"devices": devices}}) for name in ("n1", "n2")]
    world = a_world(*slices, row.claim, gates=row.gates)

    assert world.refusals(row.pod).get("n1") == row.refused


def test_a_node_that_is_only_full_may_suffice_after_an_eviction() -> None:
    world = a_world(on("n1", a_device("d").stands_for("cpu", "2")), ONE)
    world.cluster.add_pod(pod_info(pod("q").uid("q").cpu("2").bound_to("n1").typed()))

    assert world.refusals(a_pod())["n1"] == (Code.UNSCHEDULABLE, "Insufficient cpu")


def test_the_devices_of_an_allocated_claim_count_where_the_node_has_them() -> None:
    """n2 has a device of the same pool and name, but the slice of another node publishes it."""
    result = {"request": "r", "driver": "a", "pool": "n1", "device": "d"}
    world = a_world(on("n1", a_device("d").stands_for("cpu", "4")), a_claim("c").request("r", "A").allocated(result))

    assert world.refusals(a_pod()) == {"n1": (UNRESOLVABLE, "Insufficient cpu")}


def test_a_search_that_takes_too_long_is_left_to_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    """One claim is allocated, so that Filter checks the resources, and one is not."""
    result = {"request": "r", "driver": "a", "pool": "n1", "device": "d"}
    held = a_claim("h").request("r", "A").allocated(result)
    world = a_world(on("n1", a_device("d").stands_for("cpu", "1"), a_device("e")), held, ONE)

    def too_long(*_: Any) -> Work[None]:
        yield
        raise TimedOut

    monkeypatch.setattr(world.plugin._verdicts, "picked", too_long)
    assert world.refusals(a_pod(claims=("h", "c")))["n1"] == (
        Code.ERROR,
        "node n1: timed out trying to allocate devices",
    )


@pytest.mark.parametrize(
    ("device", "user", "refused"),
    [
        pytest.param(a_device("d").stands_for("cpu", "1"), "other", {"n1": NO_SHARING, "n2": NO_SHARING}, id="mapped"),
        pytest.param(a_device("d").costs("cpu", per_pod="1"), "other", {}, id="overhead may be shared"),
        pytest.param(a_device("d").stands_for("cpu", "1"), "uid-p", {}, id="the pod itself has it"),
    ],
)
def test_a_claim_that_stands_for_resources_is_for_one_pod(
    device: DeviceBuilder, user: str, refused: dict[str, str]
) -> None:
    result = {"request": "r", "driver": "a", "pool": "n1", "device": "d"}
    claim = a_claim("c").request("r", "A").allocated(result).reserved_for("x", user)
    found = a_world(on("n1", device), claim).refusals(a_pod())

    assert {name: text for name, (_, text) in found.items()} == refused


def test_reserve_says_what_the_claims_take() -> None:
    """§4.5: sorted by name; the assumed pod counts it, and a pending pod does not."""
    device = a_device("d").stands_for("cpu", "1500m").costs("memory", per_pod="1Gi", per_container="1Gi")
    world = a_world(on("n1", device), ONE)
    info = a_pod(uses=("main", "side"))
    state, no = world.reserve(info, "n1")

    assert no is None
    (status,) = state.get(CLAIM_AMOUNTS)
    shown = msgspec.to_builtins(status, enc_hook=lambda quantity: quantity.nano)
    assert shown == {
        "resourceClaimName": "c",
        "containers": ("main", "side"),
        "mapping": ({"name": "cpu", "quantity": 15 * 10**8},),
        "overhead": ({"name": "memory", "perPod": GI * 10**9, "perContainer": GI * 10**9},),
    }
    bound = with_claim_amounts(pod_info(_bound(info.pod)), (status,))
    assert bound.requests == {"cpu": 2500, "memory": 3 * GI}
    assert requests_of(bound.pod, counts_claims=True) == bound.requests
    assert requests_of(bound.pod) == {"cpu": 1000}
    assert requests_of(_at(bound.pod, ""), counts_claims=True) == {"cpu": 1000}


def test_reserve_checks_the_node_again() -> None:
    """Another pod may have come since Filter. The assumed pod itself is counted already."""
    world = a_world(on("n1", a_device("d").stands_for("cpu", "2")), ONE)
    info = a_pod()
    (first, _), (second, _) = world.filter(info), world.filter(info)
    assumed = pod_info(_bound(info.pod))
    world.cluster.assume(assumed)
    assert world.plugin.reserve(first, assumed, "n1") is None
    world.plugin.unreserve(first, assumed, "n1")
    world.cluster.add_pod(pod_info(pod("q").uid("q").cpu("1500m").bound_to("n1").typed()))
    no = world.plugin.reserve(second, assumed, "n1")

    assert no is not None
    assert (no.code, no.message) == (Code.UNSCHEDULABLE, "Insufficient cpu")


def _bound(of: Pod) -> Pod:
    return _at(of, "n1")


def _at(of: Pod, name: str) -> Pod:
    return msgspec.structs.replace(of, spec=msgspec.structs.replace(of.spec, node_name=name))


def test_while_a_resize_runs_the_kubelet_has_counted_the_claims_in_actual_amounts() -> None:
    """§4.5: they are added to what is requested and allocated, not to what is actual."""
    statuses = [{"resourceClaimName": "c", "mapping": [{"name": "cpu", "quantity": "2"}]}]
    actual = [{"name": "main", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "3500m"}}}]
    status = {"nodeAllocatableResourceClaimStatuses": statuses, "containerStatuses": actual}
    spec = {"nodeName": "n1", "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    seen = pod("p").set({"spec": spec, "status": status}).typed()

    assert requests_of(seen, resize_by_totals=True, counts_claims=True) == {"cpu": 3500}
    assert requests_of(seen, resize_by_totals=True) == {"cpu": 3500}
    assert requests_of(_without_actual(seen), resize_by_totals=True, counts_claims=True) == {"cpu": 3000}


def _without_actual(of: Pod) -> Pod:
    return msgspec.structs.replace(of, status=msgspec.structs.replace(of.status, container_statuses=()))


# -- the pod's status ----------------------------------------------------------------------------------------------------


def a_served(device: DeviceBuilder) -> tuple[Served, Under]:
    """The pod with its devices reserved on n1."""
    world = Served(on("n1", device), ONE, gates=GATES, bare=True)
    for name in ("n1", "n2"):
        world.cluster.set_node(node(name).cpu("4").memory("8Gi").pods(110).typed())
    return world, world.reserved(a_pod())


def written(world: Served) -> list[list[str]]:
    """The claims of each status that was written."""
    return [[each.resource_claim_name for each in statuses] for _, statuses in world.writer.claim_amounts]


async def test_the_status_is_written_before_the_binding_and_removed_if_there_is_none() -> None:
    world, under = a_served(a_device("d").stands_for("cpu", "1"))

    assert await world.bound(under) == ""
    assert written(world) == [["c"]]
    await world.undo(under)
    await world.undo(under)
    assert written(world) == [["c"], []]


async def test_the_status_of_a_pod_that_another_scheduler_has_bound_stays() -> None:
    world, under = a_served(a_device("d").stands_for("cpu", "1"))
    assert await world.bound(under) == ""
    world.cluster.add_pod(under.info)
    await world.undo(under)

    assert written(world) == [["c"]]


async def test_nothing_is_written_for_devices_that_take_nothing() -> None:
    world, under = a_served(a_device("d"))
    assert await world.bound(under) == ""
    await world.undo(under)

    assert written(world) == []


async def test_the_status_is_written_again_after_a_lost_answer() -> None:
    world, under = a_served(a_device("d").stands_for("cpu", "1"))
    fails_first(world, "set_claim_amounts", LOST, LOST)

    assert await world.bound(under) == ""
    assert written(world) == [["c"]]


async def test_a_status_that_is_refused_ends_the_attempt() -> None:
    world, under = a_served(a_device("d").stands_for("cpu", "1"))
    fails_first(world, "set_claim_amounts", Invalid("bad"))

    assert await world.bound(under) == "updating pod default/p NodeAllocatableResourceClaimStatuses: bad"
    await world.undo(under)
    assert written(world) == [[]]


@pytest.mark.parametrize("error", [Conflict("another uid"), NotFound("gone")], ids=["another pod", "gone"])
async def test_there_is_nothing_to_remove_from_another_pod(error: ApiError) -> None:
    world, under = a_served(a_device("d").stands_for("cpu", "1"))
    assert await world.bound(under) == ""
    fails_first(world, "set_claim_amounts", error)
    await world.undo(under)

    assert written(world) == [["c"]]


# -- waking --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gates", "wakes"), [(GATES, True), (DEVICE_GATES_ON, False)], ids=["on", "off"])
def test_a_pod_that_leaves_its_node_retries_pods_with_claims_while_the_gate_is_on(
    gates: frozenset[str], wakes: bool
) -> None:
    world = a_world(on("n1", a_device("d").stands_for("cpu", "9")), ONE, gates=gates)
    leaving = pod_info(pod("q").uid("q").cpu("2").bound_to("n1").typed())
    hints = [
        each.hint(a_pod(), leaving, None)
        for each in world.plugin.events_to_register()
        if each.event.resource is Resource.ASSIGNED_POD and each.hint is not None
    ]

    assert hints == ([Hint.QUEUE] if wakes else [])
