"""A pod that waits is woken by the change that helps it, not by the flush that comes every five minutes."""

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from tests.e2e.cluster import NODES, PODS, Cluster, Json, node, pod, until
from tests.e2e.controlplane.harness import ControlPlane
from tests.e2e.controlplane.process import Server
from tests.e2e.daemon import SCHEDULER_NAME, daemon

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

DEADLINE_S = 30  # woken within about a second; a machine under load may be far slower, but not as slow as the flush


@dataclass(frozen=True)
class Waiting:
    """What is there before, the pod that waits, and the one change that lets it in."""

    nodes: Sequence[Json]
    spec: Json = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    bound: Sequence[Json] = ()
    create: Json | None = None
    patch: tuple[str, Json] | None = None
    delete: str | None = None
    reason: str = "Unschedulable"


TAINT = {"key": "kept", "value": "free", "effect": "NoSchedule"}
TOLERATION = {"key": "kept", "operator": "Exists"}
OCCUPANT = pod("occupant", "nobody", {"nodeName": "n"}, cpu="3")
CASES = {
    "a node is added": Waiting([], create=node("n")),
    "a taint is taken away": Waiting(
        [node("n", spec={"taints": [TAINT]})], patch=(f"{NODES}/n", {"spec": {"taints": None}})
    ),
    "a node's allocatable grows": Waiting(
        [node("n")], requests={"cpu": "6"}, patch=(f"{NODES}/n/status", {"status": {"allocatable": {"cpu": "8"}}})
    ),
    "a pod is deleted": Waiting([node("n")], requests={"cpu": "2"}, bound=[OCCUPANT], delete=f"{PODS}/occupant"),
    "a pod finishes": Waiting(
        [node("n")],
        requests={"cpu": "2"},
        bound=[OCCUPANT],
        patch=(f"{PODS}/occupant/status", {"status": {"phase": "Succeeded"}}),
    ),
    "the pod itself gets the toleration": Waiting(
        [node("n", spec={"taints": [TAINT]})], patch=(f"{PODS}/waiting", {"spec": {"tolerations": [TOLERATION]}})
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
    """One daemon for the table."""
    with daemon(control_plane) as running:
        yield running


@pytest.fixture
async def cluster(control_plane: ControlPlane) -> AsyncIterator[Cluster]:
    """An empty cluster, left empty."""
    async with control_plane.client() as http:
        cluster = Cluster(http)
        await cluster.wipe()
        yield cluster
        await cluster.wipe()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_the_change_that_helps_wakes_the_pod(
    server: Server, cluster: Cluster, case: Waiting, request: pytest.FixtureRequest
) -> None:
    """The pod is refused before the change and bound to node n soon after it."""
    await cluster.create(*case.nodes)
    await cluster.create(*case.bound)
    await cluster.create(pod("waiting", SCHEDULER_NAME, case.spec, **case.requests))

    async def is_refused() -> bool:
        condition = await cluster.condition("waiting")
        assert condition is None or condition["status"] == "False", f"bound too early: {condition}"
        return condition is not None and condition["reason"] == case.reason

    await until(is_refused, "a refusal", server=server)
    await _make(cluster, case)
    changed = time.monotonic()

    assert await until(lambda: cluster.node_of("waiting"), "a node", server=server, within_s=DEADLINE_S) == "n"
    request.node.user_properties.append(("latency_s", round(time.monotonic() - changed, 3)))  # into --junitxml


async def _make(cluster: Cluster, case: Waiting) -> None:
    if case.create is not None:
        await cluster.create(case.create)
    if case.patch is not None:
        await cluster.merge(*case.patch)
    if case.delete is not None:
        await cluster.delete(case.delete)
