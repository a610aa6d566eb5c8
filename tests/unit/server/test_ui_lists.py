"""Searches and lists of the page /ui: nodes, devices, storage, and the last hour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler.api.resource_v1 import ResourceSlice
from scheduler.api.storage_v1 import CSINode
from scheduler.core.cooperative import finish
from scheduler.explain.fixes import Steps
from scheduler.server.ui.answers import (
    CapacityUse,
    ClassUse,
    DriverAttachUse,
    DriverUse,
    PlacedDevice,
    PlacedVolume,
    PodUses,
    PoolUse,
    SharedUse,
)
from scheduler.server.ui.history import EVERY_S, POINTS_MAX, History
from scheduler.server.ui.nodes import NodeSearch, UiNodes
from scheduler.server.ui.page import MalformedQuery, answer, pages
from scheduler.server.ui.pools import device_pools, device_uses, storage_uses
from simulator.builders.devices import a_device, a_slice
from tests.page.sites import AtOnce, put_class, put_storage, seen, ui_data, with_pools, with_uses
from tests.unit.harness import SchedulerHarness, StepClock


def zones() -> SchedulerHarness:
    """Three nodes that differ in zone, marks and use."""
    sched = SchedulerHarness()
    zone = "topology.kubernetes.io/zone"
    sched.node("gpu-a", cpu="4", labels={zone: "zone-a", "Pool": "GPU"})
    sched.node("gpu-b", cpu="4", labels={zone: "zone-b", "pool": "gpu"}, unschedulable=True)
    sched.node("web-b", cpu="4", labels={zone: "zone-b"}, taints=[{"key": "k", "effect": "NoExecute"}])
    sched.pod("p", cpu="3", on="gpu-b")
    sched.pod("q", cpu="4", on="web-b")
    return sched


@pytest.mark.parametrize(
    ("search", "names"),
    [
        (NodeSearch(), ["gpu-a", "gpu-b", "web-b"]),
        (NodeSearch(("gpu",)), ["gpu-a", "gpu-b"]),
        (NodeSearch(("gpu", "-b")), ["gpu-b"]),
        (NodeSearch(("zone=zone-b",)), ["gpu-b", "web-b"]),
        (NodeSearch(("zone=",)), ["gpu-a", "gpu-b", "web-b"]),
        (NodeSearch(("topology.kubernetes.io/zone=zone-a",)), ["gpu-a"]),
        (NodeSearch(("one=zone-a",)), []),
        (NodeSearch(("pool=g",)), ["gpu-a", "gpu-b"]),
        (NodeSearch(("is:cordoned",)), ["gpu-b"]),
        (NodeSearch(("is:tainted",)), ["web-b"]),
        (NodeSearch(("is:new",)), []),
        (NodeSearch(measure="cpu"), ["web-b", "gpu-b", "gpu-a"]),
        (NodeSearch(measure="cpu", least=75), ["web-b", "gpu-b"]),
        (NodeSearch(measure="cpu", least=100), ["web-b"]),
        (NodeSearch(measure="devices", least=1), []),
        (NodeSearch(("gpu",), measure="volumes"), ["gpu-a", "gpu-b"]),
    ],
    ids=["all", "a part of the name", "two parts", "a label without its prefix", "a label with any value", "a whole key", "a part of a key", "letters of any case", "cordoned", "tainted", "an unknown mark", "the fullest first", "what is short", "full", "none has the resource", "equal ones by name"],
)  # fmt: skip
async def test_nodes_are_searched(search: NodeSearch, names: list[str]) -> None:
    page = await ui_data(zones()).nodes_found(search, 0)

    assert [row.node for row in page.nodes] == names
    assert (page.cell, page.total) == (None, len(names))


async def test_a_node_shows_its_zone_and_labels() -> None:
    page = await ui_data(zones()).nodes_found(NodeSearch(("gpu-b",)), 0)

    assert [(row.zone, row.labels) for row in page.nodes] == [
        ("zone-b", ("pool=gpu", "topology.kubernetes.io/zone=zone-b"))
    ]


@pytest.mark.parametrize(
    ("query", "total"),
    [
        ({"nodes": ""}, 31),
        ({"nodes": "node- zone=zone-1", "measure": "cpu", "least": "0"}, 10),
        ({"devices": ""}, 30),
        ({"devices": "GPU node-07"}, 1),
        ({"devices": "gpu storage"}, 0),
        ({"storage": ""}, 30),
        ({"storage": "fast c-0"}, 10),
    ],
    ids=["all nodes", "some nodes", "all pools", "one pool", "no pool", "all capacities", "some capacities"],
)
async def test_words_find_rows(query: dict[str, str], total: int) -> None:
    found: Any = await answer(ui_data(with_pools()), query)

    assert found.total == total


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"nodes": "x" * 201}, "nodes must have at most 8 words and 200 characters"),
        ({"devices": "a " * 9}, "devices must have at most 8 words"),
        ({"storage": "a", "page": "x"}, "page must be a number"),
        ({"nodes": "", "measure": "gold"}, "measure must be one of cpu, memory, pods, volumes, devices"),
        ({"nodes": "", "least": "-1"}, "least must be a number"),
        ({"pod": "user"}, "pod must be NAMESPACE/NAME"),
    ],
    ids=["a long search", "many words", "a page", "a measure", "a share", "a pod without its namespace"],
)
async def test_a_malformed_search_names_its_parameter(query: dict[str, str], why: str) -> None:
    with pytest.raises(MalformedQuery, match=why):
        await answer(ui_data(SchedulerHarness()), query)


@pytest.mark.parametrize("steps", range(11))
async def test_nodes_that_come_and_go_while_cells_are_built(steps: int) -> None:
    """The table of nodes grows, and a node comes back with another slot."""
    sched = zones()
    work = UiNodes(sched.parts.cluster).cells()
    for _ in range(steps):
        next(work)
    sched.node_gone("gpu-a")
    for at in range(200):
        sched.node(f"new-{at:03}")
    sched.node("gpu-a")

    names = {name for cell in finish(work)[0] for name in cell}

    assert {"gpu-b", "web-b"} <= names


# -- devices and storage ---------------------------------------------------------------------------------------------


def test_devices_by_driver_and_pool() -> None:
    """An older generation of a pool does not count, and a pool of two nodes belongs to none."""
    sched = with_pools()
    shared = a_device("card").shared().cap("memory", "8Gi")
    seen(sched, ResourceSlice, a_slice("node-00", "slice.example.com", shared).named("old").pool("cards").obj())
    for name, node in (("new-0", "node-00"), ("new-1", "node-01")):
        made = a_slice(node, "slice.example.com", shared, a_device(name)).named(name).pool("cards").generation(2).of(2)
        seen(sched, ResourceSlice, made.obj())

    found = finish(device_uses(sched.parts.cluster))

    assert found.drivers == (
        DriverUse("gpu.example.com", False, 30, 0, 60, 0),
        DriverUse("slice.example.com", False, 1, 0, 4, 0),
        DriverUse("vendor.example/fpga", True, 1, 0, 2, 1),
    )
    assert found.pools[0] == PoolUse("gpu.example.com", "node-00", "node-00", 2, 0)
    assert found.pools[-1] == PoolUse(
        "slice.example.com", "cards", "", 4, 0, (SharedUse("card", "memory", "0", "8Gi"),) * 2
    )


def test_storage_by_class_pool_and_driver() -> None:
    sched = with_pools()
    put_class(sched, "static", "kubernetes.io/no-provisioner")
    put_storage(sched, "lost", "node-99")

    found = finish(storage_uses(sched.parts.cluster))

    assert found.classes == (
        ClassUse("fast", "d.csi", "WaitForFirstConsumer", 31, 0, 31 * 20 * 2**30),
        ClassUse("static", "kubernetes.io/no-provisioner", "WaitForFirstConsumer", 0, 0, 0),
    )
    assert found.drivers == (DriverAttachUse("d.csi", 2, 0, 0, 8),)
    assert found.pools[7] == CapacityUse("default/c-07", "fast", 1, "node-07", 0, 20 * 2**30, 20 * 2**30)
    assert found.pools[-1] == CapacityUse("default/lost", "fast", 0, "", 0, 20 * 2**30, 20 * 2**30)


def test_reserved_storage_is_not_free() -> None:
    sched = with_pools()
    capacities = sched.parts.cluster.volumes.capacities
    pool = capacities.pool("default/c-07")
    assert pool is not None
    capacities.book(pool, 15 * 2**30)

    row = finish(storage_uses(sched.parts.cluster)).pools[7]

    assert (row.reserved, row.free) == (15 * 2**30, 5 * 2**30)


def test_a_driver_without_a_free_slot() -> None:
    sched = SchedulerHarness()
    sched.node("n")
    driver = {"name": "d.csi", "nodeID": "n", "allocatable": {"count": 0}}
    seen(sched, CSINode, {"metadata": {"name": "n"}, "spec": {"drivers": [driver]}})

    assert finish(storage_uses(sched.parts.cluster)).drivers == (DriverAttachUse("d.csi", 1, 1, 0, 0),)


def steps_of(work: Steps[Any]) -> int:
    return sum(1 for _ in work)


def test_lists_are_built_in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = with_pools().parts.cluster
    monkeypatch.setattr("scheduler.server.ui.pools._STEP_DEVICES", 9)
    monkeypatch.setattr("scheduler.server.ui.pools._STEP_POOLS", 10)

    assert steps_of(device_pools(cluster)) >= 10
    assert steps_of(storage_uses(cluster)) >= 5


async def test_one_list_serves_many_readers() -> None:
    counted = Counter[str]()

    class Counting(AtOnce):
        async def answer_to(self, begin: Callable[[], Steps[Any]]) -> Any:
            counted["built"] += 1
            return finish(begin())

    sched = with_pools()
    data = ui_data(sched, questions=Counting())
    for _ in range(5):
        await data.devices((), 0)
    assert counted == {"built": 1}
    sched.clock.move(1.1)
    await data.devices((), 0)
    assert counted == {"built": 2}


async def test_a_file_has_all_pools() -> None:
    found = await pages(ui_data(with_pools()))

    assert (len(found.devices.pools), found.devices.total, found.devices.pages) == (30, 30, 1)
    assert (len(found.storage.pools), found.storage.total, found.storage.pages) == (30, 30, 1)


async def test_lists_stay_small_with_the_longest_texts() -> None:
    """Names of drivers and pools come from objects that a user may create."""
    sched, long = SchedulerHarness(), "\N{GRINNING FACE}" * 250
    sched.node("n")
    for at in range(80):
        put_class(sched, f"{at}{long}", long)
        put_storage(sched, f"{at}{long}", "n", f"{at}{long}")
        shared = [a_device(f"{device}{long}").shared().cap("memory", "8Gi") for device in range(40)]
        seen(sched, ResourceSlice, a_slice("n", f"{at}{long}", *shared).named(f"s{at}").pool(f"{at}{long}").obj())
    data = ui_data(sched)

    assert len(msgspec.json.encode(await data.devices((), 0))) < 200_000
    assert len(msgspec.json.encode(await data.storage((), 0))) < 200_000


async def test_what_a_placed_pod_uses() -> None:
    sched = with_uses()
    sched.pod("waits")
    data = ui_data(sched)

    assert await data.placed("default/user") == PodUses(
        pod="default/user",
        node="node-01",
        volumes=(
            PlacedVolume(
                claim="default/data",
                volume="pv-1",
                storage_class="fast",
                driver="d.csi",
                capacity="5Gi",
                segments=({"topology.kubernetes.io/zone": ("zone-1",)},),
                pool="default/c-01",
            ),
        ),
        devices=(PlacedDevice("default/cards", "gpu", "gpu.example.com", "node-01", "d0", {}, False),),
    )
    assert [await data.placed(f"default/{name}") for name in ("waits", "none")] == [None, None]


# -- the last hour ---------------------------------------------------------------------------------------------------


def test_the_last_hour_has_a_point_a_minute() -> None:
    clock, attempts = StepClock(), {"scheduled": 5.0}
    history = History(clock, lambda: {"active": 3}, lambda: attempts)
    history.tick()
    assert list(history.points) == []
    attempts["scheduled"], attempts["error"] = 7.0, 1.0
    clock.move(EVERY_S)
    history.tick()
    history.tick()

    (point,) = history.points
    assert (point.pending, point.attempts, point.time) == ({"active": 3}, {"scheduled": 2, "error": 1}, clock.wall())


def test_the_history_is_bounded_and_catches_up_with_no_burst() -> None:
    """After an hour without a tick there is one point for all of it."""
    clock = StepClock()
    history = History(clock, dict[str, int], dict[str, float])
    for _ in range(2 * POINTS_MAX):
        clock.move(EVERY_S)
        history.tick()
    assert len(history.points) == POINTS_MAX
    clock.move(3600)
    for _ in range(3):
        history.tick()
        clock.move(1)
    assert [round(point.time - history.points[-1].time) for point in history.points][-2:] == [-3600, 0]
