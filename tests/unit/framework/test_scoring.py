"""Normalisation (docs/spec/core.md §3.6) and a pod's requests of configured resources (§5.5)."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.framework.scoring import default_normalize, demands
from tests.unit.objects import cluster, node, pod_requesting


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
