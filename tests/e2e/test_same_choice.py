"""Where one node is clearly better, a real kube-scheduler takes it, and so do we."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest

from tests.e2e.cluster import Cluster, Json, node, pod, until
from tests.e2e.controlplane.harness import ControlPlane, scheduler_config
from tests.e2e.daemon import SCHEDULER_NAME, daemon

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

THEIRS = "default-scheduler"
GIB = 2**30


@dataclass(frozen=True)
class Choice:
    """What two nodes report, and a pod that may go to either of them."""

    better: Json
    worse: Json
    spec: Json


def images(*reported: tuple[str, int]) -> Json:
    return {"images": [{"names": [name], "sizeBytes": size_bytes} for name, size_bytes in reported]}


def containers(*wanted: str, called: str = "c") -> Sequence[Json]:
    return [{"name": f"{called}{at}", "image": image} for at, image in enumerate(wanted)]


RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
NEEDY = [{"name": "c", "image": "f:1", "restartPolicy": "Never", "restartPolicyRules": [RULE]}]
CHOICES = {
    "untagged": Choice(images(("a:latest", 8 * GIB)), images(("a:v1", 9 * GIB)), {"containers": containers("a")}),
    "port": Choice(images(("r:5/b:latest", 8 * GIB)), images(("r:5/b", 9 * GIB)), {"containers": containers("r:5/b")}),
    "larger": Choice(
        images(("c1:1", 9 * GIB)), images(("c2:1", 4 * GIB)), {"containers": containers("c1:1", "c2:1", "c3:1")}
    ),
    "init": Choice(
        images(("d1:1", 9 * GIB)),
        images(("d2:1", GIB)),
        {"containers": containers("d2:1"), "initContainers": containers("d1:1", called="init")},
    ),
    "mounted": Choice(
        images(("e1:1", 9 * GIB)),
        images(("e2:1", GIB)),
        {"containers": containers("e2:1"), "volumes": [{"name": "v", "image": {"reference": "e1:1"}}]},
    ),
    "declared": Choice(
        {"declaredFeatures": ["RestartAllContainersOnContainerExits"]}, images(("f:1", 9 * GIB)), {"containers": NEEDY}
    ),
}


@pytest.fixture
async def cluster(control_plane: ControlPlane) -> AsyncIterator[Cluster]:
    """The nodes of all rows, there before either scheduler starts: both count the same; left empty."""
    async with control_plane.client() as http:
        cluster = Cluster(http)
        await cluster.wipe()
        for row, choice in CHOICES.items():
            for which, status in (("better", choice.better), ("worse", choice.worse)):
                made = node(f"{row}-{which}", labels={"row": row})
                await cluster.create(made | {"status": made["status"] | status})
        yield cluster
        await cluster.wipe()


async def test_the_better_node_is_taken(control_plane: ControlPlane, cluster: Cluster) -> None:
    """Two pods for each row, one for each scheduler; what the first holds by now weighs less than what they judge."""
    pods = {
        f"{row}-{who}": pod(f"{row}-{who}", name, {"nodeSelector": {"row": row}, **choice.spec})
        for who, name in {"theirs": THEIRS, "ours": SCHEDULER_NAME}.items()
        for row, choice in CHOICES.items()
    }
    await cluster.create(*pods.values())
    try:
        await control_plane.start_scheduler(scheduler_config(THEIRS))
        with daemon(control_plane) as server:
            taken = await asyncio.gather(
                *(until(lambda name=name: cluster.node_of(name), f"a node for {name}", server=server) for name in pods)  # type: ignore[misc]
            )
    finally:
        await control_plane.stop_server("kube-scheduler")

    assert {name: f"{name.rsplit('-', 1)[0]}-better" for name in pods} == dict(zip(pods, taken))
