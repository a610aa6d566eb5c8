"""Required anti-affinity of pods on nodes: docs/spec/core.md §5.9, §A.3, row 82. That the index never drifts: test_recount."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.cache.antiaffinity import Group, anti_affinity_terms
from scheduler.cache.cluster import Cluster
from scheduler.core import nodeset
from scheduler.core.podinfo import PodInfo, placed
from tests.unit.objects import cluster, info, node

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
APP_A: dict[str, Any] = {"labelSelector": {"matchLabels": {"app": "a"}}}
BY_ZONE = {"topologyKey": "zone", **APP_A}
BY_HOST = {"topologyKey": "host", **APP_A}


def guard(name: str, *terms: dict[str, Any], on: str = "") -> PodInfo:
    return info(name, on=on, affinity={"podAntiAffinity": {HARD: list(terms)}})


def groups(seen: Cluster) -> list[tuple[str, set[str]]]:
    """Topology key and node names of every group."""
    return [
        (group.term.topology_key, {seen.nodes.name(slot) for slot in nodeset.each(group.slots)})
        for group in seen.nodes.anti_affinity.groups()
    ]


def test_equal_terms_are_one_group() -> None:
    """Whoever carries them: counted per slot, so the first pod to go does not end it."""
    seen = cluster(guard("a", BY_ZONE, on="n1"), guard("b", BY_ZONE, on="n1"), guard("c", BY_HOST, BY_ZONE, on="n2"))
    index = seen.nodes.anti_affinity

    assert groups(seen) == [("zone", {"n1", "n2"}), ("host", {"n2"})]

    before = index.generation
    seen.remove_pod("a")
    assert (groups(seen), index.generation) == ([("zone", {"n1", "n2"}), ("host", {"n2"})], before)

    seen.remove_pod("b")
    assert groups(seen) == [("zone", {"n2"}), ("host", {"n2"})]
    assert index.generation > before

    seen.remove_pod("c")
    assert not index


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"topologyKey": "zone", "labelSelector": {}}, id="another selector"),
        pytest.param({"topologyKey": "zone"}, id="no selector"),
        pytest.param({**BY_ZONE, "namespaces": ["default"]}, id="namespaces written out"),
        pytest.param({**BY_ZONE, "namespaceSelector": {}}, id="all namespaces"),
        pytest.param({**BY_ZONE, "namespaceSelector": {"matchLabels": {"a": "b"}}}, id="some namespaces"),
    ],
)
def test_different_terms_are_different_groups(other: dict[str, Any]) -> None:
    """Every part of a term counts."""
    seen = cluster(guard("a", BY_ZONE, on="n1"), guard("b", other, on="n2"))

    assert groups(seen) == [("zone", {"n1"}), ("zone", {"n2"})]


@pytest.mark.parametrize(
    "affinity",
    [
        pytest.param({"podAntiAffinity": {SOFT: [{"weight": 1, "podAffinityTerm": BY_ZONE}]}}, id="a wish"),
        pytest.param({"podAffinity": {HARD: [BY_ZONE]}}, id="affinity"),
        pytest.param({"nodeAffinity": {}}, id="node affinity"),
    ],
)
def test_only_required_anti_affinity_counts(affinity: dict[str, Any]) -> None:
    """Nothing else keeps pods away."""
    seen = cluster(info("a", on="n1", affinity=affinity))

    assert not seen.nodes.anti_affinity
    seen.remove_pod("a")


def test_assumed_pods_and_trials_count() -> None:
    """What is only assumed keeps away at once; a trial does while it lasts, in both directions."""
    pod = guard("a", BY_ZONE)
    seen = cluster(node("n1"), node("n2"))
    seen.assume(placed(pod, "n1"))
    with seen.trial(remove=[placed(pod, "n1")], add=[(guard("b", BY_HOST), "n2")]):
        within = groups(seen)

    assert within == [("host", {"n2"})]
    assert groups(seen) == [("zone", {"n1"})]

    seen.add_pod(guard("a", BY_ZONE, on="n1"))
    seen.add_pod(guard("a", BY_HOST, on="n1"))

    assert groups(seen) == [("host", {"n1"})]


@pytest.mark.parametrize(
    ("holders", "near"),
    [
        pytest.param(["a1"], {"a1", "a2"}, id="the whole zone"),
        pytest.param(["a1", "b1"], {"a1", "a2", "b1"}, id="both zones"),
        pytest.param(["bare"], set(), id="a node without the key is in no zone"),
        pytest.param(["ghost"], set(), id="a node that is gone is in no zone"),
    ],
)
@pytest.mark.parametrize("key", ["zone", "host"])
def test_near(key: str, holders: list[str], near: set[str]) -> None:
    """A topology with a value per node keeps away from the holders only, a wider one from their neighbours, too."""
    seen = cluster(
        node("a1", labels={"zone": "a", "host": "a1"}),
        node("a2", labels={"zone": "a", "host": "a2"}),
        node("b1", labels={"zone": "b", "host": "b1"}),
        node("bare"),
        *(guard(name, {"topologyKey": key, **APP_A}, on=name) for name in holders),
    )
    (group,) = seen.nodes.anti_affinity.groups()
    expected = near if key == "zone" else near & set(holders)

    assert seen.nodes.by_name(expected) == group.near(seen.nodes.labels)


def test_a_pod_that_was_never_added_is_an_error() -> None:
    """A drifting count must not go unseen."""
    group = Group(anti_affinity_terms(guard("a", BY_ZONE))[0])
    with pytest.raises(KeyError):
        group.remove(0)
