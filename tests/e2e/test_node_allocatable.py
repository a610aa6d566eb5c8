"""Devices that take cpu, memory and huge pages of their nodes (docs/spec/changes-1.37-devices.md §4.5).

Each test runs with kube-scheduler too: its answer is the expected one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import pytest

from simulator.builders.claims import a_claim
from simulator.builders.core import Builder
from simulator.builders.devices import DeviceBuilder, a_device
from tests.e2e.cluster import Json, collection
from tests.e2e.controlplane.build import MINOR
from tests.e2e.devices import DeviceSandbox, a_priority, gpus, on
from tests.e2e.sandbox import THEIRS

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(280),
    pytest.mark.skipif(MINOR == "1.36", reason="the fields of 1.36 were replaced in 1.37"),
]

ONE: Final = a_claim("c").request("r", "gpu")
CORES: Final = a_device("d").shared().cap("cores", "8").stands_for("cpu", capacity="cores", times="500m")


@dataclass(frozen=True)
class Row:
    """Nodes n1 (4 CPU, 8 GiB) and n2 (2 CPU, 4 GiB) with a device each, and the answer to the pod."""

    device: DeviceBuilder
    claim: Builder[Any] = ONE
    requests: str = "1"
    uses: Sequence[str] = ("main",)
    """The containers that use the claim."""
    spec: Json = field(default_factory=dict)
    node: str = ""
    status: Json = field(default_factory=dict)
    """Fields of the claim's status in the pod, if it is bound."""
    says: Sequence[str] = ()


def mapping(name: str, quantity: str) -> Json:
    return {"mapping": [{"name": name, "quantity": quantity}]}


ROWS: Final = {
    "the node with what the device stands for": Row(
        a_device("d").stands_for("cpu", "2"), node="n1", status=mapping("cpu", "2")
    ),
    "a multiple of a consumed capacity": Row(
        CORES, a_claim("c").request("r", "gpu", capacity={"cores": "4"}), node="n1", status=mapping("cpu", "2")
    ),
    "overhead for the pod and for each container that uses the claim": Row(
        a_device("d").costs("memory", per_pod="2Gi", per_container="2Gi"),
        uses=("main", "side"),
        node="n1",
        status={"overhead": [{"name": "memory", "perPod": "2Gi", "perContainer": "2Gi"}]},
    ),
    "no node has as much": Row(
        a_device("d").stands_for("cpu", "4"), says=["0/2 nodes are available: 2 Insufficient cpu."]
    ),
    "several resources": Row(
        a_device("d").stands_for("cpu", "4").costs("memory", per_pod="9Gi"),
        says=["2 Insufficient cpu", "2 Insufficient memory"],
    ),
    "the amount for the whole pod is too small": Row(
        a_device("d").stands_for("cpu", "2"),
        spec={"resources": {"requests": {"cpu": "2"}}},
        says=[
            "pod level request for cpu is insufficient to cover the aggregated container and node-allocatable DRA requests"
        ],
    ),
    "a capacity of a device that is not shared": Row(
        a_device("d").cap("cores", "8").stands_for("cpu", capacity="cores"),
        says=["ConsumedCapacity is nil, but Capacity key 'cores' is set in NodeAllocatableResources for resource cpu"],
    ),
}


def a_pod(sandbox: DeviceSandbox, name: str, row: Row) -> Json:
    claims = [{"name": "c"}]
    containers = [
        {
            "name": each,
            "image": "registry.k8s.io/pause:3.10",
            "resources": {"requests": {"cpu": amount}} | ({"claims": claims} if each in row.uses else {}),
        }
        for each, amount in (("main", row.requests), ("side", "0"))
    ]
    built = sandbox.pod(name, "c")
    built["spec"] |= {"containers": containers} | row.spec
    return built


async def made(sandbox: DeviceSandbox, row: Row) -> None:
    """The API server admits such devices only for nodes that declare the feature."""
    nodes = [sandbox.node("n1", cpu="4", memory="8Gi"), sandbox.node("n2", cpu="2", memory="4Gi")]
    for node in nodes:
        node["status"]["declaredFeatures"] = ["DRANodeAllocatableResources"]
    await sandbox.make(*nodes, gpus())
    for name in ("n1", "n2"):
        await sandbox.until(partial(is_admitted, sandbox, on(name, row.device)), f"devices of {name} that are admitted")
    await sandbox.make(row.claim)


async def is_admitted(sandbox: DeviceSandbox, devices: Builder[Any]) -> bool:
    """Create the slice; return False while the API server has not seen its node."""
    path = collection("ResourceSlice")
    async with sandbox.http.post(path, json=sandbox.own_manifest(devices.obj())) as answer:
        assert answer.status in {201, 403}, await answer.text()
        return answer.status == 201


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_where_the_pod_goes(mapped: DeviceSandbox, row: Row) -> None:
    await made(mapped, row)
    await mapped.make(a_pod(mapped, "p", row))
    if not row.node:
        reason = "SchedulerError" if "ConsumedCapacity" in row.says[0] else "Unschedulable"
        await mapped.refused("p", *row.says, reason=reason)
        return
    assert await mapped.bound("p") == [row.node]
    found = await mapped.get("Pod", "p")
    assert found is not None
    (status,) = found["status"]["nodeAllocatableResourceClaimStatuses"]
    assert status == {"resourceClaimName": "c", "containers": list(row.uses)} | row.status


async def test_a_bound_pod_counts_with_its_devices(mapped: DeviceSandbox) -> None:
    """The second pod requests what would be free without them, and fits once the first has gone."""
    row = Row(a_device("d").stands_for("cpu", "2"))
    await made(mapped, row)
    await mapped.make(a_pod(mapped, "p", row))
    assert await mapped.bound("p") == ["n1"]
    await mapped.make(mapped.bare_pod("q", {}, on="n1", cpu="2"))
    await mapped.refused("q", "1 Insufficient cpu")
    await mapped.gone("p")

    assert await mapped.bound("q") == ["n1"]


async def test_a_pod_leaves_for_what_a_device_takes(mapped: DeviceSandbox) -> None:
    """kube-scheduler does not notice that the pod has left; a new label of the node retries its preemptor."""
    row = Row(a_device("d").stands_for("cpu", "2"))
    await made(mapped, row)
    await mapped.make(a_priority("high", 1000), mapped.bare_pod("low", {}, on="n1", cpu="3"))
    assert await mapped.bound("low") == ["n1"]
    await mapped.make(a_pod(mapped, "p", replace(row, spec={"priorityClassName": "high"})))

    async def low_is_gone() -> bool:
        return await mapped.get("Pod", "low") is None

    await mapped.until(low_is_gone, "a pod that has left")
    if mapped.scheduler == THEIRS:
        await mapped.refused("p", "preempting 1 victims")
        await mapped.cluster.merge(mapped.path("Node", "n1"), {"metadata": {"labels": {"new": "yes"}}})
    assert await mapped.bound("p") == ["n1"]


async def test_a_claim_that_stands_for_resources_is_for_one_pod(mapped: DeviceSandbox) -> None:
    row = Row(a_device("d").stands_for("cpu", "1"), requests="100m")
    await made(mapped, row)
    await mapped.make(a_pod(mapped, "p", row))
    await mapped.bound("p")
    await mapped.make(a_pod(mapped, "q", row))

    await mapped.refused("q", "node allocatable resource claim c has a mapped device and cannot be shared across pods")
