"""Pods created with `spec.nodeName` whose claims wait for their first consumer: served where the namespace opts in."""

from __future__ import annotations

import pytest

from scheduler.controllers.node_name_pods import OPT_IN_LABEL
from simulator.builders.core import pod
from tests.integration.daemon import until
from tests.integration.harness import Harness, running_cluster
from tests.integration.pod_steps import THEIRS
from tests.integration.volume_helpers import CLAIMS, claim, is_selected, published, selected, well


def opt_in(cluster: Harness) -> None:
    cluster.server.ensure_namespace("default")
    cluster.server.patch("namespaces", "default", {"metadata": {"labels": {OPT_IN_LABEL: "true"}}})


def add_bound_pod(cluster: Harness, *, is_ephemeral: bool = False) -> str:
    """Create a pod of another scheduler on `n1`; return the name of its claim."""
    built = pod("p").cpu("100m").scheduler(THEIRS).bound_to("n1")
    if is_ephemeral:
        cluster.server.create("pods", built.ephemeral("e", "2Gi", "fast").obj())
        return "p-e"
    cluster.add_claim("c", "fast", 2)
    cluster.server.create("pods", built.pvc("c").obj())
    return "c"


async def has_volume(cluster: Harness, name: str) -> None:
    def is_there() -> bool:
        names = {found["metadata"]["name"] for found in cluster.server.objects(CLAIMS)}
        return name in names and bool(claim(cluster, name)["spec"].get("volumeName"))

    await until(is_there, lambda: f"no volume: {cluster.server.objects(CLAIMS)}")


@pytest.mark.parametrize("is_ephemeral", [False, True], ids=["a claim", "an ephemeral volume"])
async def test_a_pod_with_a_node_name_gets_its_volume_once_its_namespace_opts_in(is_ephemeral: bool) -> None:
    async with running_cluster(volumes=True) as cluster:
        cluster.add_node("n1", 4000, "a")
        await published(cluster)
        name = add_bound_pod(cluster, is_ephemeral=is_ephemeral)
        await cluster.seconds(5)
        assert selected(cluster, name) == ""

        opt_in(cluster)
        await is_selected(cluster, name, "n1")
        await has_volume(cluster, name)
        await well(cluster)
