"""Memos drop outdated answers, and the least recently used shape."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler.cache.cluster import Cluster
from scheduler.core.changes import ChangeLog
from scheduler.framework.memo import ByObjects, BySlots
from tests.unit.objects import cluster, node, pod_requesting


class Slots:
    """Records the slots of each refresh."""

    def __init__(self) -> None:
        self.refreshed: list[set[int]] = []

    def refresh(self, slots: set[int]) -> None:
        self.refreshed.append(slots)


@pytest.mark.parametrize(
    ("change", "forgets"),
    [
        pytest.param(lambda c: c.add_pod(pod_requesting("a", on="n1", cpu="1")), False, id="pods do not matter"),
        pytest.param(lambda c: c.set_node(node("n1", cpu="9")), False, id="allocatable does not matter"),
        pytest.param(lambda c: c.set_node(node("n1", labels={"a": "b"})), True, id="labels matter"),
        pytest.param(lambda c: c.set_node(node("n1", taints=("a:NoSchedule",))), True, id="taints matter"),
        pytest.param(lambda c: c.set_node(node("n2")), True, id="a new node matters"),
        pytest.param(lambda c: c.remove_node("n1"), True, id="a lost node matters"),
    ],
)
def test_by_objects(change: Callable[[Cluster], object], forgets: bool) -> None:
    seen = cluster(node("n1"))
    memo: ByObjects[object] = ByObjects(seen.nodes)
    first = memo.get("shape", object)
    change(seen)

    assert forgets is (memo.get("shape", object) is not first)


def test_columns_that_grew_are_forgotten() -> None:
    seen = cluster(node("n1"))
    memo: ByObjects[object] = ByObjects(seen.nodes)
    first = memo.get("shape", object)
    for at in range(seen.nodes.capacity):
        seen.add_pod(pod_requesting(f"p{at}", on=f"ghost{at}"))

    assert memo.get("shape", object) is not first


def test_the_least_recently_used_goes_first() -> None:
    nodes = cluster(node("n1")).nodes
    memos: list[ByObjects[Slots] | BySlots[Slots]] = [ByObjects(nodes, size=2), BySlots(nodes, size=2)]
    for memo in memos:
        a, b = memo.get("a", Slots), memo.get("b", Slots)
        memo.get("a", Slots)
        memo.get("c", Slots)

        assert memo.get("a", Slots) is a
        assert memo.get("b", Slots) is not b


def test_by_slots_refreshes_what_changed() -> None:
    seen = cluster(node("n1"), node("n2"))
    memo: BySlots[Slots] = BySlots(seen.nodes)
    kept = memo.get("shape", Slots)
    memo.get("shape", Slots)
    seen.add_pod(pod_requesting("a", on="n2", cpu="1"))
    seen.add_pod(pod_requesting("b", on="n2", cpu="1"))

    assert memo.get("shape", Slots) is kept
    assert kept.refreshed == [{seen.nodes.slot("n2")}]


@pytest.mark.parametrize("why", ["too many changes", "grown", "log cut"])
def test_by_slots_starts_afresh(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When refreshing would cost more than making, or cannot be done."""
    monkeypatch.setattr(ChangeLog, "log_max", 4)
    seen = cluster(node("n1"))
    memo: BySlots[Slots] = BySlots(seen.nodes)
    kept = memo.get("shape", Slots)
    changes = {"too many changes": seen.nodes.capacity // 8 + 1, "log cut": 6, "grown": seen.nodes.capacity}[why]
    for at in range(changes):
        seen.add_pod(pod_requesting(f"p{at}", on=f"ghost{at}" if why == "grown" else "n1"))

    assert memo.get("shape", Slots) is not kept
