"""The daemon behind a proxy that makes faults, in front of a real kube-apiserver: a burst fills the nodes exactly.

A watch that does not pass through the proxy shows: every pod that fits is bound, once, and no node has too many."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

import pytest

from simulator.apiserver import Fault
from tests.e2e.cluster import PODS, node, pod, until
from tests.e2e.controlplane.harness import ControlPlane
from tests.e2e.controlplane.process import Server
from tests.e2e.daemon import SCHEDULER_NAME
from tests.e2e.stage import BINDING, STATUS, Stage

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

NODES: Final = 20
PER_NODE: Final = 6
FITTING: Final = NODES * PER_NODE
WITHIN_S: Final = 120.0


class Burst(Stage):
    """Empty nodes, and pods that fill them."""

    async def prepare(self) -> None:
        await self.cluster.create(*(node(f"n-{i}", cpu=f"{PER_NODE * 500}m") for i in range(NODES)))

    async def burst(self, *, start: int = 0, end: int = FITTING) -> None:
        """These pods all fit; the last ones come with three that do not fit."""
        pods = [pod(f"p-{i}", SCHEDULER_NAME, cpu="500m") for i in range(start, end)]
        if end == FITTING:
            pods += [pod(f"large-{i}", SCHEDULER_NAME, cpu="100") for i in range(3)]
        await self.cluster.create(*pods)

    async def bound(self, count: int, server: Server) -> None:
        async def enough() -> bool:
            return len(self.history.bound_at) >= count

        await until(enough, f"{count} bound pods", server=server, within_s=WITHIN_S)

    async def exactly_filled(self, server: Server) -> None:
        """Every node is full, no pod was bound twice, and pods that are too large have a condition."""
        await self.bound(FITTING, server)

        async def has_conditions() -> bool:
            conditions = [await self.cluster.condition(f"large-{i}") for i in range(3)]
            return all(condition and condition["reason"] == "Unschedulable" for condition in conditions)

        await until(has_conditions, "conditions of the pods that fit nowhere", server=server, within_s=WITHIN_S)
        items = (await self.cluster.get(PODS))["items"]
        bound = {item["metadata"]["name"]: item["spec"]["nodeName"] for item in items if item["spec"].get("nodeName")}
        assert self.history.nodes_of == {name: [node_name] for name, node_name in bound.items()}
        assert Counter(bound.values()) == {f"n-{i}": PER_NODE for i in range(NODES)}


@pytest.fixture
async def stage(control_plane: ControlPlane) -> AsyncIterator[Burst]:
    async with Burst.opened(control_plane) as stage:
        yield stage


FAULTS: Final[dict[str, list[Fault]]] = {
    "a gateway gives up waiting, 504: carried out or not": [
        Fault(**BINDING, status=504, times=20),
        Fault(**BINDING, status=504, reset="after", times=20),
    ],
    "every third request but those for conditions is cut off, carried out or not": [
        Fault(**STATUS, times=None),  # strikes first and does no harm: a condition that fails four times is given up
        Fault(reset="before", probability=0.17, times=80),
        Fault(reset="after", probability=0.2, times=80),
    ],
    "watches get 410": [
        Fault(verb="watch", resource="pods", status=410, times=3),
        Fault(verb="watch", resource="nodes", status=410, times=3),
    ],
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS.keys())
async def test_requests_that_fail(stage: Burst, faults: list[Fault]) -> None:
    rules = [dataclasses.replace(rule) for rule in faults]
    stage.proxy.add(*rules)
    with stage.daemon() as server:
        await stage.burst()

        await stage.exactly_filled(server)
    assert all(rule.hits for rule in rules), rules


async def test_the_server_restarts_under_a_burst(stage: Burst) -> None:
    stage.proxy.add(Fault(**BINDING, times=10), Fault(**BINDING, delay_s=1, times=30))
    with stage.daemon() as server:
        await stage.burst(end=FITTING // 2)
        await stage.bound(10, server)
        await stage.plane.restart_apiserver(gracefully=False)
        await stage.burst(start=FITTING // 2)

        await stage.exactly_filled(server)
