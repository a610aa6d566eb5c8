"""A warning per label names pods of groups that another scheduler places as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.simulate.input.manifests import Found
from simulator.simulate.pod_groups import warnings


def pod(name: str, *, kind: str = "Pod", node: str = "", **metadata: Any) -> Found:
    """An object with a spec."""
    value = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "ns", **metadata}}
    return Found({**value, "spec": {"nodeName": node} if node else {}}, "in.yaml")


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        pytest.param(
            [pod("a", labels={"scheduling.x-k8s.io/pod-group": "g"})],
            ["warning: pod ns/a has scheduling.x-k8s.io/pod-group (coscheduling)"],
            id="one pod",
        ),
        pytest.param(
            [pod(name, annotations={"scheduling.k8s.io/group-name": name}) for name in ("a", "b", "c")],
            ["warning: 3 pods have scheduling.k8s.io/group-name (Volcano), the first is ns/a;"],
            id="several groups of one scheduler, in annotations",
        ),
        pytest.param(
            [
                pod("a", labels={"kueue.x-k8s.io/pod-group-name": "g"}),
                pod("b", labels={"scheduling.x-k8s.io/pod-group": "g"}),
            ],
            ["kueue.x-k8s.io/pod-group-name (Kueue)", "scheduling.x-k8s.io/pod-group (coscheduling)"],
            id="two schedulers",
        ),
        pytest.param(
            [pod("a", node="n", labels={"scheduling.x-k8s.io/pod-group": "g"})], [], id="a pod that has its node"
        ),
        pytest.param(
            [pod("a", kind="Job", labels={"scheduling.x-k8s.io/pod-group": "g"})], [], id="a workload of that label"
        ),
        pytest.param([pod("a", labels={"app": "g"}), pod("b", labels=None)], [], id="other labels, and none"),
    ],
)
def test_warnings(objects: list[Found], said: list[str]) -> None:
    found = list(warnings(objects))

    assert len(found) == len(said)
    assert all(part in line for part, line in zip(said, found))
