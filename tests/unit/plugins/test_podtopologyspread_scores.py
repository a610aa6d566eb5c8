"""PodTopologySpread, PreScore to NormalizeScore: docs/spec/core.md §5.8, rows 143-145 and 147."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.apps_and_policy import Service
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.config.args import PodTopologySpreadArgs
from scheduler.core import nodeset
from scheduler.framework.interface import CycleState
from scheduler.plugins.podtopologyspread import PodTopologySpread
from tests.unit.objects import cluster, handle
from tests.unit.plugins.spreading import HOST, node, on, pod, scored_among, soft

Scored = dict[str, int] | None
FOUR = (node("a1"), node("a2"), node("b1"), node("b2"))
FOO_SERVICE = from_manifest(
    Service, {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"foo": ""}}}
)


def scored(
    incoming: PodInfo, seen: Cluster, args: PodTopologySpreadArgs | None = None, among: str | None = None
) -> Scored:
    return scored_among(PodTopologySpread(args, handle(seen)), seen, incoming, among.split() if among else None)


def served(*things: Any) -> Cluster:
    """With a Service for pods labelled `foo`."""
    seen = cluster(*things)
    seen.workloads.set_service(FOO_SERVICE)
    return seen


@pytest.mark.parametrize(
    ("incoming", "there", "scores"),
    [
        pytest.param(pod("p", soft(HOST)), on(), (100, 100, 100, 100), id="147 no pod is there"),
        pytest.param(
            pod("p", soft(selector={}, matchLabelKeys=["foo"]), soft(HOST, selector={}, matchLabelKeys=["bar"])),
            on(a1="foo", a2="foo bar", b1="foo, bar"),
            (33, 33, 100, 100),
            id="matchLabelKeys that the pod lacks leave an empty selector empty",
        ),
    ],
)
def test_scores(incoming: PodInfo, there: list[PodInfo], scores: tuple[int, ...] | None) -> None:
    """A domain with fewer matching pods is better."""
    wanted = None if scores is None else dict(zip(("a1", "a2", "b1", "b2"), scores))

    assert wanted == scored(incoming, cluster(*FOUR, *there))


def test_143_three_zones() -> None:
    """3, 1, 0 pods; the weight of three zones is ln 5, so the raw scores are 5, 2, 0."""
    seen = cluster(node("a1"), node("b1"), node("c1"), *on(a1=3, b1=1))
    plugin, state, incoming = PodTopologySpread(None, handle(seen)), CycleState(), pod("p", soft())
    assert plugin.pre_score(state, incoming, seen.nodes.present) is None
    raw = plugin.score(state, incoming, seen.nodes.present)

    assert [5, 2, 0] == [int(raw[slot]) for slot in nodeset.each(seen.nodes.present)]
    assert {"a1": 0, "b1": 60, "c1": 100} == scored(incoming, seen)


@pytest.mark.parametrize(
    ("incoming", "scores"),
    [
        pytest.param(
            pod("p", soft(HOST)), {"a1": 16, "a2": 0, "b1": 100}, id="145 its own constraint: the node gets 0"
        ),
        pytest.param(pod("p"), {"a1": 0, "a2": 100, "b1": 50}, id="144 system defaults: other labels still count"),
    ],
)
def test_a_node_without_hostname(incoming: PodInfo, scores: Scored) -> None:
    """Only with the system's defaults such a node is scored like other nodes."""
    nodes = (node("a1", zone=""), node("a2", zone="", host=""), node("b1", zone=""))

    assert scores == scored(incoming, served(*nodes, *on(a1=4, a2=2, b1=1)))
