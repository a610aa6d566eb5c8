"""NodeResourcesBalancedAllocation: docs/spec/core.md §5.6, rows 138, 139."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.plugins.noderesourcesbalancedallocation import NodeResourcesBalancedAllocation
from tests.unit.objects import cluster, handle, info, node, pod_requesting
from tests.unit.plugins.ask import scored

X = "example.com/x"
TEN = {"cpu": "10", "memory": "10Gi"}


@pytest.mark.parametrize("more_nodes", [0, 20], ids=["alone", "among more nodes"])
@pytest.mark.parametrize(
    ("args", "things", "pod", "score"),
    [
        pytest.param(
            None, [node(**TEN)], pod_requesting(cpu="5", memory="5Gi"), 75, id="138 50 % and 50 % on an empty node"
        ),
        pytest.param(None, [node(**TEN)], info(), None, id="139 a pod without requests is skipped"),
    ],
)
def test_score(args: Any, things: list[Any], pod: PodInfo, score: int | None, more_nodes: int) -> None:
    """The balance with the pod against the balance without it."""
    more = [node(f"m{at}", **{X: "9"}) for at in range(more_nodes)]
    seen = cluster(*things, *more)
    scores = scored(NodeResourcesBalancedAllocation(args, handle(seen)), seen, pod)

    assert (None if scores is None else scores["n1"]) == score
