"""Which claims are about to be given back: those that nobody uses any more, or nobody who stays (docs/spec/dra.md §1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.api.podinfo import pod_info
from scheduler.cache.cluster import Cluster
from scheduler.framework.preemption_state import Preempting
from scheduler.plugins.dra.nominated_devices import AsIf, Holders
from scheduler.testing.builders.claims import a_claim, a_result
from scheduler.testing.builders.core import pod
from tests.support.clock import VirtualClock


def nothing(_: Cluster) -> None:
    """The cache has never heard of it."""


def runs(cluster: Cluster) -> None:
    cluster.add_pod(pod_info(pod("v").uid("v").bound_to("n1").typed()))


def ends(cluster: Cluster) -> None:
    leaving = pod("v").uid("v").bound_to("n1").set({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    cluster.add_pod(pod_info(leaving.typed()))


def cannot_be_read(cluster: Cluster) -> None:
    metadata = Metadata(name="v", namespace="default", uid="v")
    cluster.add_broken(Broken(kind="Pod", metadata=metadata, why="no number", node_name="n1"))


def could_not_be_read(cluster: Cluster) -> None:
    cannot_be_read(cluster)
    cluster.remove_broken("v")


@pytest.mark.parametrize(
    ("becomes", "is_leaving"),
    [(nothing, True), (runs, False), (ends, True), (cannot_be_read, False), (could_not_be_read, True)],
)
def test_whose_user_leaves(becomes: Callable[[Cluster], None], is_leaving: bool) -> None:
    """A pod that cannot be read is there all the same."""
    cluster = Cluster(VirtualClock())
    becomes(cluster)
    claim = a_claim("c").uid("c").allocated(a_result("r", "drv/n1/d0")).reserved_for("v", "v").typed()

    leaving = Holders(cluster, Preempting()).leaving(AsIf(0, [claim]))

    assert leaving == (frozenset({"c"}) if is_leaving else frozenset())
