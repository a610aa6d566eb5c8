"""The verdict on one node, through the whole scheduler (docs/spec/core.md §9, rows 148-179).

The tables of the plugins are in tests/unit/plugins/. Ids begin with the row's number.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.harness import SchedulerHarness
from tests.unit.scenarios.seen import HOST, near


@pytest.mark.parametrize(
    ("node", "pod", "code", "why"),
    [
        pytest.param(
            {"taints": [{"key": "gpu", "effect": "NoExecute"}]},
            {},
            "UnschedulableAndUnresolvable",
            "node(s) had untolerated taint(s)",
            id="152 a NoExecute taint",
        ),
        pytest.param(
            {},
            near("web", away=True),
            "Unschedulable",
            "node(s) didn't match pod anti-affinity rules",
            id="179 a pod with anti-affinity can be evicted",
        ),
    ],
)
async def test_one_node(node: dict[str, Any], pod: dict[str, Any], code: str, why: str) -> None:
    """The code decides whether preemption considers the node."""
    sched = SchedulerHarness()
    sched.node("n1", labels={HOST: "n1"}, **node)
    sched.pod("there", on="n1", scheduler="default-scheduler", labels={"app": "web"})
    sched.pod("p", **pod)
    await sched.settle()

    assert sched.refusal("p") == f"0/1 nodes are available: 1 {why}."
    record = sched.parts.records.latest("default/p")
    assert record is not None
    assert [group.code for group in record.groups] == [code]
