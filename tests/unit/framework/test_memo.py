"""Helpers of plugins: memos, normalisation (docs/spec/core.md §3.6), requests of configured resources (§5.5), and null ports."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from scheduler.cache.cluster import Cluster
from scheduler.core.changes import ChangeLog
from scheduler.core.errors import Unavailable
from scheduler.framework.handle import ClaimWrites, DeviceMetrics, Recorder, Uncounted, Unplugged, VolumeMetrics, Writer
from scheduler.framework.memo import ByObjects, BySlots
from scheduler.framework.scoring import default_normalize, demands
from tests.unit.objects import cluster, node, pod_requesting


class Slots:
    """Records the slots of each refresh."""

    def __init__(self) -> None:
        self.refreshed: list[Sequence[int]] = []

    def refresh(self, slots: Sequence[int]) -> None:
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
    assert kept.refreshed == [[seen.nodes.slot("n2")] * 2]


@pytest.mark.parametrize("why", ["too many changes", "grown", "log cut"])
def test_by_slots_starts_afresh(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all slots, when that costs less than the changed ones or these are not known; with a new value after growth."""
    monkeypatch.setattr(ChangeLog, "log_max", 4 if why == "log cut" else ChangeLog.log_max)
    seen = cluster(node("n1"), node("n2"))
    memo: BySlots[Slots] = BySlots(seen.nodes)
    kept = memo.get("shape", Slots)
    changes = {"too many changes": seen.nodes.capacity // 8 + 1, "log cut": 6, "grown": seen.nodes.capacity}[why]
    for at in range(changes):
        seen.add_pod(pod_requesting(f"p{at}", on=f"ghost{at}" if why == "grown" else "n1"))
    now = memo.get("shape", Slots)

    assert (now is kept) is (why != "grown")
    assert now.refreshed == ([] if why == "grown" else [range(2)])
    assert memo.get("shape", Slots).refreshed == now.refreshed


@pytest.mark.parametrize(
    ("raw", "reverse", "normal"),
    [
        pytest.param([30, 60], False, [50, 100], id="141 the best gets 100"),
        pytest.param([2, 0], True, [0, 100], id="140 reversed, the least gets 100"),
        pytest.param([0, 0], False, [0, 0], id="all scores are zero"),
        pytest.param([0, 0], True, [100, 100], id="reversed, all scores are zero"),
        pytest.param([1, 3], False, [33, 100], id="rounded down"),
        pytest.param([1, 3], True, [67, 0], id="reversed after rounding"),
    ],
)
def test_default_normalize(raw: list[int], reverse: bool, normal: list[int]) -> None:
    column = np.array([*raw, 1000], dtype=np.int64)
    before = column.copy()
    out = default_normalize(column, np.array([0, 1]), reverse=reverse)

    assert normal == out[:2].tolist()
    assert before.tolist() == column.tolist()


def test_no_candidates() -> None:
    assert default_normalize(np.zeros(3, dtype=np.int64), np.array([], dtype=np.intp)).tolist() == [0, 0, 0]


def test_demands() -> None:
    wanted = [
        ("cpu", 1),
        ("memory", 2),
        ("ephemeral-storage", 3),
        ("example.com/x", 4),
        ("example.com/y", 5),
        ("odd", 6),
    ]
    pod = pod_requesting(cpu="1", **{"example.com/x": "2"})
    scored = [(d.resource, d.amount, d.weight) for d in demands(pod, wanted, non_zero=True)]
    balanced = [(d.resource, d.amount, d.weight) for d in demands(pod, wanted, non_zero=False)]

    assert [("ephemeral-storage", 0, 3), ("example.com/x", 2, 4)] == scored[2:] == balanced[2:]
    assert scored[:2] == [("cpu", 1000, 1), ("memory", 200 * 2**20, 2)]
    assert balanced[:2] == [("cpu", 1000, 1), ("memory", 0, 2)]


def test_a_resource_that_no_node_has() -> None:
    nodes = cluster(node("n1")).nodes
    (x,) = demands(pod_requesting(**{"example.com/x": "1"}), [("example.com/x", 1)], non_zero=True)

    assert x.columns(nodes, slice(1)) is None
    assert x.of(nodes, 0) == (0, 0)


def methods(*ports: type) -> list[str]:
    return [name for port in ports for name in vars(port) if not name.startswith("_")]


async def test_a_writer_without_a_cluster_fails() -> None:
    unplugged = Unplugged()
    await unplugged.turn()
    for name in methods(Writer, ClaimWrites):
        if name not in {"turn", "device_claims"}:
            with pytest.raises(Unavailable, match=name):
                await getattr(unplugged, name)(object(), anything=1)


def test_events_and_metrics_are_dropped() -> None:
    for port, names in ((Unplugged(), methods(Recorder)), (Uncounted(), methods(VolumeMetrics, DeviceMetrics))):
        for name in names:
            assert getattr(port, name)(1, anything=2) is None


@pytest.mark.parametrize("port", [Unplugged(), Uncounted()])
def test_a_name_that_is_not_in_the_port_is_an_error(port: object) -> None:
    with pytest.raises(AttributeError):
        _ = port.write_everything  # type: ignore[attr-defined]
