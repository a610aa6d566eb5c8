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

V = pod("v").uid("v").bound_to("n1")
ENDS = V.set({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
UNREADABLE = Broken("Pod", Metadata(name="v", namespace="default", uid="v"), "no number", node_name="n1")


def came_and_went(cluster: Cluster) -> None:
    cluster.add_broken(UNREADABLE)
    cluster.remove_broken("v")


@pytest.mark.parametrize(("becomes", "is_leaving"), [
    pytest.param(lambda _: None, True, id="the cache has never heard of it"),
    pytest.param(lambda cluster: cluster.add_pod(pod_info(V.typed())), False, id="it runs"),
    pytest.param(lambda cluster: cluster.add_pod(pod_info(ENDS.typed())), True, id="it ends"),
    pytest.param(lambda cluster: cluster.add_broken(UNREADABLE), False, id="it cannot be read"),
    pytest.param(came_and_went, True, id="it could not be read, and is gone"),
])  # fmt: skip
def test_whose_user_leaves(becomes: Callable[[Cluster], None], is_leaving: bool) -> None:
    """A pod that cannot be read is there all the same."""
    cluster = Cluster(VirtualClock())
    becomes(cluster)
    claim = a_claim("c").uid("c").allocated(a_result("r", "drv/n1/d0")).reserved_for("v", "v").typed()

    leaving = Holders(cluster, Preempting()).leaving(AsIf(0, [claim]))

    assert leaving == (frozenset({"c"}) if is_leaving else frozenset())
