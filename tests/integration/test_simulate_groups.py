"""`kubestow simulate` with groups of pods: what it prints about each group, of all three kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from scheduler.api.pod_group import COSCHEDULING_LABEL, VOLCANO_ANNOTATION
from simulator.apiserver import GROUPS, LIKE_1_37, ApiServer
from simulator.builders.core import node as a_node
from tests.integration.conftest import Simulation
from tests.integration.test_transport import kubeconfig

Manifest = dict[str, Any]
_MEMBER: Final[dict[str, Callable[[str], tuple[Manifest, Manifest]]]] = {
    "scheduling.k8s.io/v1beta1": lambda group: ({}, {"schedulingGroup": {"podGroupName": group}}),
    "scheduling.x-k8s.io/v1alpha1": lambda group: ({"labels": {COSCHEDULING_LABEL: group}}, {}),
    "scheduling.volcano.sh/v1beta1": lambda group: ({"annotations": {VOLCANO_ANNOTATION: group}}, {}),
}
"""API version → metadata and spec by which a pod names its group."""
KINDS: Final = {
    "scheduling.k8s.io/v1beta1": "PodGroup",
    "scheduling.x-k8s.io/v1alpha1": "PodGroup.scheduling.x-k8s.io",
    "scheduling.volcano.sh/v1beta1": "PodGroup.scheduling.volcano.sh",
}


def group(version: str, name: str, least: int) -> Manifest:
    spec = (
        {"schedulingPolicy": {"gang": {"minCount": least}}}
        if version == "scheduling.k8s.io/v1beta1"
        else {"minMember": least}
    )
    return {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def members(version: str, name: str, count: int, *, cpu: str = "1", node: str = "") -> list[Manifest]:
    metadata, spec = _MEMBER[version](name)
    spec |= {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    spec |= {"nodeName": node} if node else {}
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{name}-{at}", **metadata}, "spec": spec}
        for at in range(count)
    ]


@pytest.mark.parametrize("version", KINDS)
def test_groups_of_each_kind(simulate: Simulation, version: str) -> None:
    """One fits, one does not, one has too few pods, one runs already, and one has no object."""
    code, shown, _ = simulate.of(
        a_node("n").cpu("4"),
        *(group(version, "fits", 2), *members(version, "fits", 2)),
        *(group(version, "large", 2), *members(version, "large", 3, cpu="3")),
        *(group(version, "few", 3), *members(version, "few", 2)),
        *(group(version, "ran", 1), *members(version, "ran", 1, cpu="10m", node="n")),
        *members(version, "lost", 1),
        flags=["--expect-pending=large-*", "--expect-pending=few-*", "--expect-pending=lost-*"],
    )

    assert code == 0
    fields = ("group", "minimum", "pods", "placed", "started")
    assert [tuple(each[field] for field in fields) for each in shown["groups"]] == [
        ("default/fits", 2, 2, 2, True),
        ("default/large", 2, 3, 0, False),
        ("default/few", 3, 2, 0, False),
        ("default/ran", 1, 1, 1, True),
        ("default/lost", None, 1, 0, False),
    ]
    assert {each["kind"] for each in shown["groups"]} == {KINDS[version]}
    refused, *others = (shown["groups"][at]["message"] for at in (1, 0, 2, 3))
    assert "minCount (2) cannot be satisfied" in refused
    assert "Insufficient cpu" in refused
    assert others == ["", "", ""]
    assert shown["groups"][4]["message"] == "its PodGroup is missing"


def test_pods_whose_kind_of_group_is_missing_are_no_group(simulate: Simulation) -> None:
    pods = members("scheduling.x-k8s.io/v1alpha1", "alone", 2)
    code, shown, _ = simulate.of(a_node("n").cpu("4"), *pods)

    assert (code, shown["groups"]) == (0, [])


# -- from a cluster ------------------------------------------------------------------------------------------------------

_CLUSTER: Final = [
    a_node("n").cpu("7").obj(),
    *(obj for at, version in enumerate(KINDS) for obj in (group(version, f"g{at}", 2), *members(version, f"g{at}", 2))),
    *(
        obj
        for version in list(KINDS)[2:]
        for obj in (group(version, "large", 2), *members(version, "large", 2, cpu="3"))
    ),
]
"""A group of each kind that fits, and one that does not."""


@pytest.mark.parametrize(
    ("forbidden", "said", "kinds"),
    [
        pytest.param(set(), "", list(KINDS.values()), id="all kinds"),
        pytest.param(
            {("list", "podgroups")},
            "the user may not list podgroups.scheduling.x-k8s.io at the cluster scope: pods of these groups are placed one by one",
            [],
            id="none may be listed",
        ),
    ],
)
async def test_groups_of_a_cluster_and_its_dump(
    simulate: Simulation, tmp_path: Path, forbidden: set[tuple[str, str]], said: str, kinds: list[str]
) -> None:
    async with ApiServer(served=(*LIKE_1_37, *GROUPS)) as server:
        for each in _CLUSTER:
            server.apply(each)
        server.forbidden.update(forbidden)
        flags = ["--from-cluster", "--kubeconfig", kubeconfig(tmp_path / "config", {}, server.url)]
        code, shown, errors = await asyncio.to_thread(simulate, *flags, "--save", "dump.json")
        again, dumped, _ = await asyncio.to_thread(simulate, "dump.json")

    assert code == again == 1
    assert said in errors
    assert ("may not list" in errors) == bool(said)
    assert dumped["groups"] == shown["groups"]
    assert [each["kind"] for each in shown["groups"] if each["started"]] == kinds
    assert [each["group"] for each in shown["groups"] if not each["started"]] == (["default/large"] if kinds else [])


async def test_a_cluster_without_these_kinds(simulate: Simulation, tmp_path: Path) -> None:
    async with ApiServer() as server:
        for each in (a_node("n").cpu("4").obj(), *members("scheduling.volcano.sh/v1beta1", "g", 2)):
            server.apply(each)
        flags = ["--from-cluster", "--kubeconfig", kubeconfig(tmp_path / "config", {}, server.url)]
        code, shown, errors = await asyncio.to_thread(simulate, *flags)

    assert (code, shown["summary"]["placed"], shown["groups"]) == (0, 2, [])
    assert "PodGroup" not in errors
