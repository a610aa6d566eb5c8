"""The verdict on one node, through the whole scheduler (docs/spec/core.md §9, rows 148-179).

The tables of the plugins are in tests/unit/plugins/. Ids begin with the row's number.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.harness import SchedulerHarness
from tests.unit.scenarios.seen import HOST, near, pinned

NO, FINAL = "Unschedulable", "UnschedulableAndUnresolvable"
OTHERS: dict[str, Any] = {"scheduler": "default-scheduler"}


# -- the verdict -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "there", "pod", "refusal"),
    [
        pytest.param(
            {"unschedulable": True},
            [],
            {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
            None,
            id="148 a cordon that the pod tolerates",
        ),
        pytest.param(
            {"taints": [{"key": "gpu", "effect": "NoExecute"}]},
            [],
            {},
            (FINAL, "node(s) had untolerated taint(s)"),
            id="152 a NoExecute taint",
        ),
        pytest.param({}, [], pinned("n1"), None, id="157 a DaemonSet's pod on its node"),
        pytest.param({}, [{"cpu": "9"}], {}, None, id="165 an over-committed node takes a pod without requests"),
        pytest.param(
            {},
            [{"labels": {"app": "web"}}],
            near("web", away=True),
            (NO, "node(s) didn't match pod anti-affinity rules"),
            id="179 a pod with anti-affinity can be evicted",
        ),
    ],
)
async def test_one_node(
    node: dict[str, Any], there: list[dict[str, Any]], pod: dict[str, Any], refusal: tuple[str, str] | None
) -> None:
    """The code decides whether preemption considers the node. None: the pod is bound."""
    sched = SchedulerHarness()
    sched.node("n1", labels={HOST: "n1"}, **node)
    for i, spec in enumerate(there):
        sched.pod(f"there-{i}", on="n1", **OTHERS, **spec)
    sched.pod("p", **pod)
    await sched.settle()

    if refusal is None:
        assert sched.writer.binds == [("default/p", "n1")]
        return
    assert sched.refusal("p") == f"0/1 nodes are available: 1 {refusal[1]}."
    record = sched.parts.records.latest("default/p")
    assert record is not None
    assert [group.code for group in record.groups] == [refusal[0]]
