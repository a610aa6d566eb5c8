"""Replicas that share a lease, killed and deprived of it during a burst (docs/spec/core.md §9, rows 218 and 219)."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.e2e.cluster import EVENTS, PATIENCE_S, PODS, Cluster, Json, node, pod, until
from tests.e2e.controlplane.harness import ControlPlane
from tests.e2e.controlplane.process import Server
from tests.e2e.daemon import SCHEDULER_NAME, daemon
from tests.e2e.history import History

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
NAMES = [f"p-{i}" for i in range(200)]
CONFIG: Json = {
    # Slow enough that a burst has a middle.
    "clientConnection": {"qps": 40, "burst": 10},
    # Short enough for a test, long enough that a replica on a slow machine does not lose it by itself.
    "leaderElection": {"leaderElect": True, "leaseDuration": "10s", "renewDeadline": "7s", "retryPeriod": "500ms"},
}


class Stage:
    """A control plane whose nodes hold every pod, and a watch on the pods."""

    def __init__(self, plane: ControlPlane, http: ClientSession) -> None:
        self.plane = plane
        self.cluster = Cluster(http)
        self.history = History()

    async def lease(self) -> Json | None:
        """None while there is none."""
        items = (await self.cluster.get(LEASES, fieldSelector="metadata.name=kubestow"))["items"]
        return items[0] if items else None

    async def led(self, *, not_by: str = "", server: Server) -> Json:
        """The lease once another identity holds it."""

        async def held() -> Json | None:
            found = await self.lease()
            return found if found and found["spec"].get("holderIdentity") not in {None, "", not_by} else None

        return await until(held, f"a leader other than {not_by or 'none'}", server=server)

    async def bound(self, count: int, *, server: Server) -> None:
        async def enough() -> bool:
            return len(self.history.bound_at) >= count

        await until(enough, f"{count} bound pods", server=server, within_s=2 * PATIENCE_S)

    async def hold(self, holder: str) -> None:
        await self.cluster.merge(f"{LEASES}/kubestow", {"spec": {"holderIdentity": holder}})

    async def says(self, server: Server, words: str) -> None:
        async def said() -> bool:
            return words in server.log.read_text(errors="replace")

        await until(said, f"{words!r} in the log", server=server)

    def bound_twice(self) -> dict[str, list[str]]:
        return {name: nodes for name, nodes in self.history.nodes_of.items() if len(nodes) > 1}


@pytest.fixture
async def stage(control_plane_binaries: Path) -> AsyncIterator[Stage]:
    async with ControlPlane() as plane, plane.client() as http:
        stage = Stage(plane, http)
        await stage.cluster.create(*(node(f"n-{i}", cpu="4", pods="50") for i in range(10)))
        version = (await stage.cluster.get(PODS))["metadata"]["resourceVersion"]
        watching = asyncio.create_task(stage.history.follow(http, version))
        yield stage
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


def replica(plane: ControlPlane, name: str) -> contextlib.AbstractContextManager[Server]:
    return daemon(plane, config=CONFIG, name=name)


async def exit_code(server: Server) -> int:
    return await asyncio.to_thread(server._process.wait, PATIENCE_S)


async def test_218_a_killed_leader_is_replaced_and_nothing_is_bound_twice(stage: Stage) -> None:
    with contextlib.ExitStack() as replicas:
        first = replicas.enter_context(replica(stage.plane, "first"))
        leader = (await stage.led(server=first))["spec"]["holderIdentity"]
        second = replicas.enter_context(replica(stage.plane, "second"))
        await stage.says(second, "attempting to acquire the leader lease")
        await stage.cluster.create(*(pod(name, SCHEDULER_NAME, cpu="100m") for name in NAMES))
        await stage.bound(20, server=first)
        first.kill()
        by_first = len(stage.history.bound_at)
        taken = await stage.led(not_by=leader, server=second)
        await stage.bound(len(NAMES), server=second)

        assert taken["spec"]["leaseTransitions"] == 1
        taken_at = int(taken["metadata"]["resourceVersion"])
        by_second = {name for name, version in stage.history.bound_at.items() if version > taken_at}
        assert 20 <= by_first < len(NAMES)
        assert by_second

        async def counted() -> Counter[str] | None:
            """Scheduled events per pod, once all pods of the second have one. Some events of the first are lost with it."""
            items = (await stage.cluster.get(EVENTS))["items"]
            counts = Counter(item["regarding"]["name"] for item in items if item["reason"] == "Scheduled")
            return counts if by_second <= counts.keys() else None

        assert set((await until(counted, "an event per pod", server=second)).values()) == {1}
    assert stage.bound_twice() == {}


async def test_219_a_stolen_lease_ends_the_process_with_1(stage: Stage) -> None:
    with replica(stage.plane, "robbed") as robbed:
        await stage.led(server=robbed)
        await stage.cluster.create(*(pod(name, SCHEDULER_NAME, cpu="100m") for name in NAMES))
        await stage.bound(20, server=robbed)
        await stage.hold("thief")

        assert await exit_code(robbed) == 1
        assert "is held by thief" in robbed.log.read_text()
    pods = (await stage.cluster.get(PODS))["items"]
    left = [item["metadata"]["name"] for item in pods if not item["spec"].get("nodeName")]
    assert len(pods) == len(NAMES)
    assert left
    assert (await stage.lease() or {})["spec"]["holderIdentity"] == "thief"
    with replica(stage.plane, "next") as follower:
        await stage.says(follower, "attempting to acquire the leader lease")
        await stage.hold("")
        await stage.bound(len(NAMES), server=follower)
    assert stage.bound_twice() == {}
