"""Pods on nodes: docs/spec/core.md §2.1, §2.2, table §9.2."""

from __future__ import annotations

import pytest

from scheduler.api.decode import Broken
from scheduler.api.meta import Metadata
from scheduler.cache.cluster import AssumptionError, Cluster
from tests.unit.objects import cluster, node, pod_requesting


def cpu(seen: Cluster, name: str) -> int:
    slot = seen.nodes.slot(name)
    return 0 if slot is None else seen.nodes.view(slot).requested("cpu")


def test_71_assume_then_add() -> None:
    seen = cluster(node("n1"))
    seen.assume(pod_requesting("a", on="n1", cpu="1"))
    assumed = seen.is_assumed("a")
    seen.add_pod(pod_requesting("a", on="n1", cpu="1"))

    assert (assumed, seen.is_assumed("a")) == (True, False)
    assert cpu(seen, "n1") == 1000
    assert seen.sizes() == {"nodes": 1, "pods": 1, "assumed_pods": 0}
    assert seen.healed == 0


def test_72_assume_twice() -> None:
    seen = cluster(node("n1"), node("n2"))
    seen.assume(pod_requesting("a", on="n1", cpu="1"))
    with pytest.raises(AssumptionError):
        seen.assume(pod_requesting("a", on="n2", cpu="1"))

    assert (cpu(seen, "n1"), cpu(seen, "n2")) == (1000, 0)


def test_73_assumed_here_bound_there() -> None:
    seen = cluster(node("n1"), node("n2"))
    seen.assume(pod_requesting("a", on="n1", cpu="1"))
    before = seen.version("n2")
    seen.add_pod(pod_requesting("a", on="n2", cpu="1"))

    assert (cpu(seen, "n1"), cpu(seen, "n2")) == (0, 1000)
    assert before != seen.version("n2")
    assert not seen.is_assumed("a")


@pytest.mark.parametrize("known", ["bound", "elsewhere", "unknown"])
def test_74_forget_what_was_not_assumed(known: str) -> None:
    seen = cluster(node("n1"), node("n2"))
    if known == "bound":
        seen.add_pod(pod_requesting("a", on="n1", cpu="1"))
    if known == "elsewhere":
        seen.assume(pod_requesting("a", on="n2", cpu="1"))
    before = (cpu(seen, "n1"), cpu(seen, "n2"), seen.sizes())
    with pytest.raises(AssumptionError):
        seen.forget(pod_requesting("a", on="n1", cpu="1"))

    assert before == (cpu(seen, "n1"), cpu(seen, "n2"), seen.sizes())


@pytest.mark.parametrize(
    ("first", "healed"),
    [
        pytest.param(None, 1, id="update of an unknown pod"),
        pytest.param("bound to n1", 1, id="bound pod that moved"),
        pytest.param("assumed on n1", 1, id="assumed pod updated elsewhere"),
    ],
)
def test_contradictions_are_healed_and_counted_once(first: str | None, healed: int) -> None:
    """Where upstream exits, the newest object wins."""
    seen = cluster(node("n1"), node("n2"))
    if first == "bound to n1":
        seen.add_pod(pod_requesting("a", on="n1", cpu="1"))
    if first == "assumed on n1":
        seen.assume(pod_requesting("a", on="n1", cpu="1"))
    seen.update_pod(pod_requesting("a", on="n2", cpu="1"))

    assert (0, 1000, healed) == (cpu(seen, "n1"), cpu(seen, "n2"), seen.healed)


def test_a_pod_of_which_nothing_can_be_read_is_there_and_counts_nothing() -> None:
    seen = cluster(node("n1"))
    seen.add_broken(Broken("Pod", Metadata(name="a", uid="a"), "no", node_name="n1"))
    seen.add_broken(Broken("Pod", Metadata(name="b", uid="b"), "no", node_name="nowhere"))
    there = [broken.key for broken in seen.broken()], seen.is_broken("a"), cpu(seen, "n1")
    seen.remove_broken("a")
    seen.remove_broken("a")

    assert (["a", "b"], True, 0) == there
    assert not seen.is_broken("a")
    assert seen.nodes.slot("nowhere") is None
