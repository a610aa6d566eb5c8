"""PodTopologySpread, PreScore to NormalizeScore: docs/spec/core.md §5.8, rows 143-145 and 147."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.cache.cluster import Cluster
from scheduler.config.args import DefaultConstraint, PodTopologySpreadArgs
from scheduler.core import nodeset
from scheduler.core.decode import from_manifest
from scheduler.core.podinfo import PodInfo, placed
from scheduler.core.workloads import ReplicaSet, Service
from scheduler.framework.state import CycleState
from scheduler.plugins.podtopologyspread import PodTopologySpread
from tests.unit.objects import cluster, handle
from tests.unit.plugins.spreading import (
    BAR,
    HOST,
    LIST,
    ZONE,
    expected_scores,
    hard,
    node,
    on,
    pod,
    scored_among,
    soft,
)

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
        pytest.param(pod("p"), on(a1=1), None, id="no constraint and no Service: skipped"),
        pytest.param(pod("p", hard()), on(a1=1), None, id="only hard ones: skipped"),
        pytest.param(pod("p", soft(HOST)), on(), (100, 100, 100, 100), id="147 nobody is there"),
        pytest.param(pod("p", soft(HOST)), on(a1=1, a2=1, b1=1, b2=1), (100, 100, 100, 100), id="147 equally many"),
        pytest.param(pod("p", soft(HOST)), on(a1=2, a2=1, b2=3), (20, 60, 100, 0), id="by node: 2, 1, 0, 3"),
        pytest.param(pod("p", soft(HOST, 2)), on(a1=2, a2=1, b2=3), (33, 66, 100, 16), id="maxSkew 2 waters it down"),
        pytest.param(pod("p", soft(HOST, 3)), on(a1=4, a2=3, b1=2, b2=1), (44, 66, 77, 100), id="maxSkew 3, all taken"),
        pytest.param(pod("p", soft(HOST, selector=None)), on(a1=2, b2=3), (100,) * 4, id="a nil selector"),
        pytest.param(pod("p", soft(HOST, selector={})), on(a1=2, b2=3), (100,) * 4, id="an empty selector"),
        pytest.param(pod("p", soft()), on(a1=1, a2=1, b1=4), (100, 100, 50, 50), id="by zone"),
        pytest.param(pod("p", soft(minDomains=9)), on(a1=1, a2=1, b1=4), (100, 100, 50, 50), id="minDomains is hard's"),
        pytest.param(
            pod("p", soft(), soft(HOST, selector=BAR), labels="foo bar"),
            on(a1="foo", a2="foo bar", b2="foo, bar"),
            (60, 20, 100, 60),
            id="zone and node with selectors of their own",
        ),
        pytest.param(
            pod("p", soft(), soft(HOST, selector=BAR), labels="foo bar"),
            on(a2="bar", b1="foo", b2="foo bar"),
            (100, 60, 40, 0),
            id="zone and node, some nodes empty",
        ),
        pytest.param(
            pod("p", soft(selector={}, matchLabelKeys=["foo"]), soft(HOST, selector={}, matchLabelKeys=["bar"])),
            on(a1="foo", a2="foo bar", b1="foo, bar"),
            (33, 33, 100, 100),
            id="matchLabelKeys that the pod lacks leave an empty selector empty",
        ),
        pytest.param(
            pod(
                "p",
                soft(selector={}, matchLabelKeys=["foo"]),
                soft(HOST, selector={}, matchLabelKeys=["bar"]),
                labels="foo bar",
            ),
            on(a1="foo", a2="foo bar", b1="foo, bar"),
            (60, 20, 60, 100),
            id="matchLabelKeys make empty selectors select",
        ),
        pytest.param(
            pod("p", soft(HOST)),
            [pod("q", on="a1", is_deleting=True), pod("r", on="b1"), pod("s", on="a2", ns="other")],
            (100, 100, 0, 100),
            id="neither terminating pods nor those of other namespaces",
        ),
    ],
)
def test_scores(incoming: PodInfo, there: list[PodInfo], scores: tuple[int, ...] | None) -> None:
    """The fewer matching pods beside it, the better."""
    wanted = None if scores is None else dict(zip(("a1", "a2", "b1", "b2"), scores))

    assert wanted == scored(incoming, cluster(*FOUR, *there))


@pytest.mark.parametrize(
    ("constraints", "there", "among", "scores"),
    [
        pytest.param([soft(HOST)], on(a1=4, a2=2, b1=1, b2=3), "a1 a2 b1", {"a1": 33, "a2": 83, "b1": 100}, id="nodes"),
        pytest.param([soft(HOST)], on(a1=2, a2=1), "a1", {"a1": 100}, id="the only candidate is the best"),
        pytest.param(
            [soft()], on(a1=4, a2=2, b1=1, b2=3), "a1 a2 b1", {"a1": 75, "a2": 75, "b1": 100}, id="zones, in full"
        ),
        pytest.param([soft(), soft(HOST)], on(a1=2, a2=1, b1=2, b2=4), "a1 b1", {"a1": 100, "b1": 63}, id="both"),
    ],
)
def test_only_candidates_are_compared(
    constraints: list[dict[str, Any]], there: list[PodInfo], among: str, scores: Scored
) -> None:
    """Pods on other nodes count for the zone, but those nodes are not among the best and worst."""
    assert scores == scored(pod("p", *constraints), cluster(*FOUR, *there), among=among)


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
    """Only with the system's defaults such a node is compared with the others."""
    nodes = (node("a1", zone=""), node("a2", zone="", host=""), node("b1", zone=""))

    assert scores == scored(incoming, served(*nodes, *on(a1=4, a2=2, b1=1)))


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([node("a1"), node("a2", zone=""), node("b1")], id="144 one node without zone"),
        pytest.param([node("a1"), node("a2"), node("b1", zone="")], id="another"),
        pytest.param([node(name, zone="") for name in ("a1", "a2", "b1")], id="no node has a zone"),
        pytest.param([node("a1"), node("a2", host=""), node("b1", zone="", host="")], id="neither"),
        pytest.param([node("a1"), node("a2", **{"zone": "", ZONE: ""}), node("b1", zone="")], id="a zone without name"),
    ],
)
def test_system_defaults(nodes: list[Any]) -> None:
    """As the rules say, whatever nodes lack."""
    seen = served(*nodes, *on(a1=4, a2=3, b1=1))

    assert expected_scores(seen, pod("p"), PodTopologySpreadArgs(), ("a1", "a2", "b1")) == scored(pod("p"), seen)


def test_nodes_without_zone_are_as_if_there_were_one_constraint() -> None:
    """The zone adds nothing to anybody: 4, 3, 2, 1 by node."""
    seen = served(*(node(name, zone="") for name in ("a1", "a2", "b1", "b2")), *on(a1=4, a2=3, b1=2, b2=1))

    assert {"a1": 44, "a2": 66, "b1": 77, "b2": 100} == scored(pod("p"), seen)


def test_defaults_of_a_list_require_all_keys() -> None:
    """A list that says what the system's defaults say is harder on nodes without zone."""
    args = PodTopologySpreadArgs(
        (DefaultConstraint(3, HOST, "ScheduleAnyway"), DefaultConstraint(5, ZONE, "ScheduleAnyway")), "List"
    )
    seen = served(*FOUR, node("bare", zone=""), *on(a1=1))

    assert scored(pod("p"), seen, args) == {"a1": 66, "a2": 88, "b1": 100, "b2": 100, "bare": 0}
    assert scored(pod("p"), seen) == {"a1": 20, "a2": 40, "b1": 60, "b2": 60, "bare": 100}


def test_defaults_and_a_replica_set() -> None:
    """The pods of its own ReplicaSet count, others that the Service selects do not."""
    seen = served(*FOUR, *on(a1="foo bar", b1="foo, foo"))
    seen.workloads.set_controller(
        from_manifest(ReplicaSet, {"metadata": {"name": "o", "namespace": "default"}, "spec": {"selector": BAR}})
    )
    owned = scored(pod("p", labels="foo bar", owner="ReplicaSet/o"), seen)
    other = scored(pod("p", labels="foo"), seen)
    assert owned is not None
    assert other is not None

    assert owned["a1"] < owned["b1"]
    assert other["b1"] < other["a1"]


@pytest.mark.parametrize(
    ("nodes", "incoming", "scores"),
    [
        pytest.param(
            [node("a", "gpu"), node("b", "gpu"), node("c")],
            pod("p", soft(), nodeSelector={"gpu": ""}),
            {"a": 0, "b": 33, "c": 100},
            id="affinity honoured: c's pods do not count",
        ),
        pytest.param(
            [node("a", "gpu"), node("b", "gpu"), node("c")],
            pod("p", soft(nodeAffinityPolicy="Ignore"), nodeSelector={"gpu": ""}),
            {"a": 66, "b": 100, "c": 100},
            id="affinity ignored",
        ),
        pytest.param(
            [node("a"), node("b"), node("c", taints=["t=:NoSchedule"])],
            pod("p", soft(nodeTaintsPolicy="Honor")),
            {"a": 0, "b": 33, "c": 100},
            id="taints honoured",
        ),
        pytest.param(
            [node("a"), node("b"), node("c", taints=["t=:NoSchedule"])],
            pod("p", soft()),
            {"a": 66, "b": 100, "c": 100},
            id="taints ignored",
        ),
        pytest.param(
            [node("a"), node("b"), node("c", taints=["t=:NoSchedule"])],
            pod("p", soft(HOST, nodeTaintsPolicy="Honor")),
            {"a": 66, "b": 100, "c": 100},
            id="by node no policy is asked",
        ),
    ],
)
def test_inclusion_policies(nodes: list[Any], incoming: PodInfo, scores: Scored) -> None:
    """Pods on nodes that the pod could not go to count, or do not."""
    assert scores == scored(incoming, cluster(*nodes, *on(a=2, b=1, c=1)))


@pytest.mark.parametrize("key", [pytest.param(HOST, id="by node"), pytest.param("serial", id="by another label")])
def test_more_domains_than_a_table_holds(key: str) -> None:
    """A key with a value per node, and nodes without it."""
    nodes = [node(f"n{at}", serial=f"{at}") for at in range(200)] + [node("bare", host="")]
    seen = cluster(*nodes, *on(n3=2, n7=1, n150=4, bare=9))
    names = [one.metadata.name for one in nodes]
    incoming = pod("p", soft(key, 2), soft())

    assert expected_scores(seen, incoming, LIST, names) == scored(incoming, seen)


def test_two_nodes_with_the_hostname_of_one() -> None:
    """A mistake of somebody's: each still counts what is on itself."""
    seen = cluster(node("a1", host="x"), node("a2", host="x"), *on(a1=2, a2=1))

    assert {"a1": 33, "a2": 100} == scored(pod("p", soft(HOST)), seen)


def test_one_plugin_through_many_placements() -> None:
    """Counts are followed pod by pod: after each placement the scores are those of a count from scratch."""
    nodes = [node(f"{zone}{at}") for zone in "abc" for at in range(4)]
    seen = served(*nodes)
    plugin = PodTopologySpread(None, handle(seen))
    names = [one.metadata.name for one in nodes]
    for at in range(30):
        incoming = pod(f"p{at}")
        scores = scored_among(plugin, seen, incoming)
        assert expected_scores(seen, incoming, PodTopologySpreadArgs(), names) == scores
        assert scores is not None
        seen.assume(placed(incoming, max(scores, key=lambda name: scores[name])))

    assert {2, 3} == {len(seen.nodes.pods(slot)) for slot in nodeset.each(seen.nodes.present)}


def test_many_changes_at_once() -> None:
    """Ten pods leave ten nodes and two come to others before anybody asks again."""
    seen = cluster(*(node(f"n{at}") for at in range(200)), *on(**{f"n{at}": 1 for at in range(10)}))
    plugin, incoming, names = (
        PodTopologySpread(None, handle(seen)),
        pod("p", soft(HOST)),
        [f"n{at}" for at in range(30)],
    )
    scored_among(plugin, seen, incoming, names)
    for at in range(10):
        seen.remove_pod(f"on-n{at}-0")
    seen.add_pod(pod("q", on="n3"))
    seen.add_pod(pod("r", on="n29"))

    assert expected_scores(seen, incoming, LIST, names) == scored_among(plugin, seen, incoming, names)


def test_a_trial_is_scored_and_undone() -> None:
    """What a trial adds counts as long as it lasts."""
    seen = cluster(*FOUR, *on(a1=1))
    plugin, incoming = PodTopologySpread(None, handle(seen)), pod("p", soft(), soft(HOST))
    before = scored_among(plugin, seen, incoming)
    with seen.trial(add=[(pod("q"), "b1"), (pod("r"), "b1")]):
        within = scored_among(plugin, seen, incoming)
        assert expected_scores(seen, incoming, LIST, ("a1", "a2", "b1", "b2")) == within

    assert before != within
    assert before == scored_among(plugin, seen, incoming)
