"""Set-ups and waits of tests of pods with volumes."""

from __future__ import annotations

from typing import Any, Final

from simulator.apiserver import Fault
from tests.integration.daemon import until
from tests.integration.daemon_laws import Object
from tests.integration.harness import Harness
from tests.integration.volume_laws import selected_node
from tests.integration.volume_steps import Want

VOLUMES: Final = "persistentvolumes"
CLAIMS: Final = "persistentvolumeclaims"
THREE: Final = (Want("local", 1), Want("local", 2), Want("local", 3))
FAST: Final = Want("fast", 2)


def with_local_volumes(cluster: Harness) -> None:
    """Create v001 to v003 on `n1` and v004 to v006 on `n2`, by size: the pod fits both nodes."""
    for name in ("n1", "n2"):
        cluster.add_node(name, 4000, "a")
        for size in (1, 2, 3):
            cluster.add_volume("local", size, name)


def node_of(cluster: Harness, name: str) -> str:
    return str(cluster.server.get("pods", name)["spec"].get("nodeName", ""))


def claim(cluster: Harness, name: str) -> Object:
    return cluster.server.get(CLAIMS, name)


def selected(cluster: Harness, name: str) -> str:
    return selected_node(claim(cluster, name))


def answers(cluster: Harness, what: str) -> dict[str, int]:
    """Return status → number of requests that begin with these words."""
    found = {key: count for key, count in cluster.server.requests().items() if key.startswith(f"{what} ")}
    return {key.rpartition(" ")[2]: count for key, count in found.items()}


async def bound(cluster: Harness, *names: str) -> None:
    await until(lambda: all(node_of(cluster, name) for name in names), lambda: f"never bound: {cluster.refusals}")


async def refused(cluster: Harness, name: str, words: str) -> None:
    await until(
        lambda: any(refused == name and words in why for refused, why in cluster.refusals),
        lambda: f"never refused: {cluster.refusals}",
    )


async def is_selected(cluster: Harness, name: str, node_name: str = "") -> None:
    await until(
        lambda: bool(selected(cluster, name)) and selected(cluster, name) == (node_name or selected(cluster, name)),
        lambda: f"never selected: {cluster.refusals}",
    )


async def published(cluster: Harness) -> None:
    """Wait until the daemon has the published capacity."""
    capacities = cluster.running().decisions.cluster.volumes.capacities
    await until(lambda: len(capacities) == 2, lambda: "nothing published")


async def well(cluster: Harness) -> None:
    """Wait until the cluster is quiet, and check the laws."""
    await cluster.settle()
    assert cluster.broken_laws() == []


def second_volume(cluster: Harness, **harm: Any) -> list[Fault]:
    """Add a fault to the write of the second volume, on either node."""
    faults = [Fault(verb="patch", resource=VOLUMES, name=name, **harm) for name in ("v002", "v005")]
    return [cluster.server.faults.add(each) for each in faults]


async def waiting_for_its_volume(cluster: Harness, *more: str) -> str:
    """Create a pod whose volume is not provisioned; return the node that was selected."""
    for name in ("n1", *more):
        cluster.add_node(name, 4000, "a")
    await published(cluster)
    cluster.kill_provisioner(in_a_call=False)
    cluster.add_pod_with("p", 100, (FAST,))
    await is_selected(cluster, "p-0")
    return selected(cluster, "p-0")
