"""A pod that waits is tried after the change that helps it, not only after the flush of five minutes."""

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from tests.e2e.cluster import PODS, Cluster, Json, node, pod, until
from tests.e2e.controlplane.harness import ControlPlane
from tests.e2e.controlplane.process import Server
from tests.e2e.daemon import SCHEDULER_NAME, daemon

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

DEADLINE_S = 30  # woken within about a second; a machine under load may be far slower, but not as slow as the flush


@dataclass(frozen=True)
class Waiting:
    """The objects before, the pod that waits, and the change after which it fits."""

    nodes: Sequence[Json]
    spec: Json = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    bound: Sequence[Json] = ()
    create: Json | None = None
    patch: tuple[str, Json] | None = None
    reason: str = "Unschedulable"


OCCUPANT = pod("occupant", "none", {"nodeName": "n"}, cpu="3")
CASES = {
    "a node is added": Waiting([], create=node("n")),
    "a pod finishes": Waiting(
        [node("n")],
        requests={"cpu": "2"},
        bound=[OCCUPANT],
        patch=(f"{PODS}/occupant/status", {"status": {"phase": "Succeeded"}}),
    ),
    "the pod's last gate is removed": Waiting(
        [node("n")],
        {"schedulingGates": [{"name": "example.com/ready"}]},
        patch=(f"{PODS}/waiting", {"spec": {"schedulingGates": None}}),
        reason="SchedulingGated",
    ),
}


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> Iterator[Server]:
    with daemon(control_plane) as running:
        yield running


@pytest.fixture
async def cluster(control_plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with control_plane.client() as http:
        cluster = Cluster(http)
        await cluster.wipe()
        yield cluster
        await cluster.wipe()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_the_change_that_helps_wakes_the_pod(
    server: Server, cluster: Cluster, case: Waiting, request: pytest.FixtureRequest
) -> None:
    await cluster.create(*case.nodes)
    await cluster.create(*case.bound)
    await cluster.create(pod("waiting", SCHEDULER_NAME, case.spec, **case.requests))

    async def is_refused() -> bool:
        condition = await cluster.condition("waiting")
        assert condition is None or condition["status"] == "False", f"bound too early: {condition}"
        return condition is not None and condition["reason"] == case.reason

    await until(is_refused, "a refusal", server=server)
    if case.create is not None:
        await cluster.create(case.create)
    if case.patch is not None:
        await cluster.merge(*case.patch)
    changed = time.monotonic()

    assert await until(lambda: cluster.node_of("waiting"), "a node", server=server, within_s=DEADLINE_S) == "n"
    request.node.user_properties.append(("latency_s", round(time.monotonic() - changed, 3)))  # into --junitxml
