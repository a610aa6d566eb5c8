"""NodeResourcesBalancedAllocation: docs/spec/core.md §5.6, rows 138, 139."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.config.args import NodeResourcesBalancedAllocationArgs, ResourceWeight
from scheduler.plugins.noderesourcesbalancedallocation import NodeResourcesBalancedAllocation
from tests.unit.objects import asking, cluster, handle, info, node
from tests.unit.plugins.ask import scored

X = "example.com/x"
THREE = NodeResourcesBalancedAllocationArgs((ResourceWeight("cpu"), ResourceWeight("memory"), ResourceWeight(X)))
TEN = {"cpu": "10", "memory": "10Gi"}


@pytest.mark.parametrize("others", [0, 20], ids=["alone", "among others"])
@pytest.mark.parametrize(
    ("args", "things", "pod", "score"),
    [
        pytest.param(None, [node(**TEN)], asking(cpu="5", memory="5Gi"), 75, id="138 50 % and 50 % on an empty node"),
        pytest.param(
            None,
            [node(**TEN), asking("a", on="n1", cpu="8", memory="2Gi")],
            asking(memory="6Gi"),
            90,
            id="what mends the balance is rewarded",
        ),
        pytest.param(None, [node(**TEN)], asking(cpu="20", memory="20Gi"), 75, id="more than there is counts as all"),
        pytest.param(
            None, [node(cpu="0", memory="8Gi")], asking(memory="6Gi"), 75, id="one resource is always balanced"
        ),
        pytest.param(
            THREE, [node(**TEN)], asking(cpu="1", **{X: "1"}), 72, id="a scalar that the node lacks is left out"
        ),
        pytest.param(
            THREE,
            [node(**TEN, **{X: "10"})],
            asking(cpu="3", memory="6Gi", **{X: "9"}),
            62,
            id="three: standard deviation",
        ),
        pytest.param(None, [node(**TEN)], info(), None, id="139 a pod without requests is skipped"),
    ],
)
def test_score(args: Any, things: list[Any], pod: PodInfo, score: int | None, others: int) -> None:
    """The balance with the pod against the balance without it."""
    more = [node(f"m{at}", **{X: "9"}) for at in range(others)]
    seen = cluster(*things, *more)
    scores = scored(NodeResourcesBalancedAllocation(args, handle(seen)), seen, pod)

    assert (None if scores is None else scores["n1"]) == score
