"""Many pods on many nodes, checked by the state of the API server."""

import asyncio
import contextlib
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.cluster import PODS, Cluster, History, node, pod, until
from tests.e2e.controlplane.harness import SCHEDULER_NAME, ControlPlane, daemon

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

NODES = 1000
FITTING = 2000
TOO_MANY = 10


async def test_a_full_cluster_is_filled_exactly(control_plane_binaries: Path) -> None:
    async with ControlPlane(high_load=True) as plane, plane.client() as http:
        cluster, history = Cluster(http), History()
        await cluster.create(*(node(f"n-{i}", cpu="1", memory="1Gi") for i in range(NODES)))
        version = (await cluster.get(PODS))["metadata"]["resourceVersion"]
        watching = asyncio.create_task(history.follow(http, version))
        with daemon(plane) as server:
            names = [f"p-{i}" for i in range(FITTING + TOO_MANY)]
            await cluster.create(*(pod(name, SCHEDULER_NAME, cpu="500m", memory="512Mi") for name in names))

            async def all_are_bound() -> bool:
                return len(history.nodes_of) >= FITTING or watching.done()

            await until(all_are_bound, "2000 bound pods", server=server, within_s=150)

            async def the_rest_waits() -> bool:
                items = (await cluster.get(PODS, fieldSelector="spec.nodeName="))["items"]
                reasons = [c["reason"] for p in items for c in p["status"].get("conditions") or []]
                return reasons == ["Unschedulable"] * TOO_MANY

            await until(the_rest_waits, "ten unschedulable pods", server=server)
        items = (await cluster.get(PODS))["items"]
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching

    bound = {item["metadata"]["name"]: item["spec"]["nodeName"] for item in items if item["spec"].get("nodeName")}
    assert len(bound) == FITTING
    assert {name: [bound_to] for name, bound_to in bound.items()} == history.nodes_of
    assert set(Counter(bound.values()).values()) == {2}  # of half a CPU and half a GiB each
    assert set(bound.values()) == {f"n-{i}" for i in range(NODES)}
