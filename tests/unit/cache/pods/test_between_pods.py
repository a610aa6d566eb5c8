"""Populations, terms and domains after any history are what a count from scratch finds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from scheduler.api.core_v1 import Node, Pod
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.selectors import LabelSelector, LabelSelectorRequirement
from scheduler.cache import pods as population
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes import topology as domains
from scheduler.cache.pods import (
    Selection,
    SelectorCounts,
    TermKind,
    pod_terms,
    selection,
)
from tests.examples import examples

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
NODES = ("n0", "n1", "n2", "n3", "n4")

SELECTIONS = [
    selection(((frozenset({"a"}), LabelSelector({"app": "x"})),), counts_terminating=True),
    selection(((frozenset({"a"}), LabelSelector({"app": "x"})),), counts_terminating=False),
    selection(((None, LabelSelector()),), counts_terminating=True),
    selection(((frozenset({"a", "b"}), None),), counts_terminating=True),
    selection((), counts_terminating=True),
    selection(
        (
            (None, LabelSelector({"app": "x"})),
            (frozenset({"b"}), LabelSelector(match_expressions=(LabelSelectorRequirement("track", "Exists"),))),
        ),
        counts_terminating=True,
    ),
    selection(
        ((frozenset({"a"}), LabelSelector(match_expressions=(LabelSelectorRequirement("app", "In", ("x", "y")),))),),
        counts_terminating=False,
    ),
]


def pod(
    name: str, node: str, namespace: str, labels: dict[str, str], *, deleting: bool = False, anti: str = ""
) -> PodInfo:
    metadata = {"name": name, "namespace": namespace, "uid": name, "labels": labels}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec: dict[str, object] = {"nodeName": node, "containers": [{"name": "c"}]}
    if anti:
        term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": anti}}}
        if anti == "y":
            term["namespaceSelector"] = {"matchLabels": {"team": "t"}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod_info(from_manifest(Pod, {"metadata": metadata, "spec": spec}))


def node(name: str, zone: str) -> Node:
    labels = {HOST: name, **({ZONE: zone} if zone else {})}
    return from_manifest(Node, {"metadata": {"name": name, "labels": labels}})


LABELS = st.dictionaries(st.sampled_from(["app", "track"]), st.sampled_from(["x", "y"]), max_size=2)
STEPS = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(["", "z0", "z1"])),
    st.tuples(st.just("gone"), st.sampled_from(NODES)),
    st.tuples(
        st.just("pod"),
        st.integers(0, 7),
        st.sampled_from(NODES),
        st.sampled_from(["a", "b"]),
        LABELS,
        st.booleans(),
        st.sampled_from(["", "x", "y"]),
    ),
    st.tuples(st.just("left"), st.integers(0, 7)),
    st.tuples(st.just("check")),
)


def apply(cluster: Cluster, step: tuple[Any, ...]) -> None:
    match step:
        case ("node", name, zone):
            cluster.set_node(node(name, zone))
        case ("gone", name):
            cluster.remove_node(name)
        case ("pod", number, name, namespace, labels, deleting, anti):
            known = cluster.get(f"p{number}")
            at = known.node_name if known else name
            space = known.pod.metadata.namespace if known else namespace
            cluster.add_pod(pod(f"p{number}", at, space, labels, deleting=deleting, anti=anti))
        case ("left", number):
            cluster.remove_pod(f"p{number}")


def label(cluster: Cluster, slot: int | None, key: str) -> str | None:
    found = None if slot is None else cluster.nodes.node(slot)
    return None if found is None else found.metadata.labels.get(key)


def expected(cluster: Cluster, wanted: Selection, key: str, eligible: int | None) -> tuple[Counter[str], set[str]]:
    """Value → pods, and the values that exist, by a count of all pods."""
    nodes = cluster.nodes
    found: Counter[str] = Counter()
    exist: set[str] = set()
    for name in NODES:
        slot = nodes.present_slot(name)
        value = label(cluster, slot, key)
        if value is None or slot is None or (eligible is not None and not eligible >> slot & 1):
            continue
        exist.add(value)
        for info in nodes.pods(slot).values():
            metadata = info.pod.metadata
            if (wanted.counts_terminating or metadata.deletion_timestamp is None) and wanted.finds(
                metadata.namespace, metadata.labels
            ):
                found[value] += 1
    return found, exist


def check(cluster: Cluster, eligible: int | None) -> None:
    nodes = cluster.nodes
    for wanted in SELECTIONS:
        for key in (ZONE, HOST):
            topology = nodes.topologies.of(key)
            summed = domains.of(nodes.population.tally(wanted), topology, eligible)
            found, exist = expected(cluster, wanted, key, eligible)
            column, levels = summed.column(), summed.levels()

            assert summed.existing == len(exist) == sum(level.domains for level in levels.values())
            for name in NODES:
                slot = nodes.present_slot(name)
                if slot is None:
                    continue
                value = label(cluster, slot, key)
                count = found.get(value, 0) if value is not None else 0
                assert column[slot] == count
                assert bool(summed.occupied >> slot & 1) == (count > 0)
                at = [level_count for level_count, level in levels.items() if level.nodes >> slot & 1]
                assert at == ([count] if value in exist else [])


def check_terms(cluster: Cluster) -> None:
    nodes = cluster.nodes
    carried: dict[bytes, Counter[int]] = {}
    for name in nodes.known_names():
        slot = nodes.slot(name)
        assert slot is not None
        for info in nodes.pods(slot).values():
            for term in pod_terms(info):
                carried.setdefault(term.key, Counter())[slot] += 1
    for namespace in ("a", "b"):
        for labels in ({"app": "x"}, {"app": "y"}, {}):
            for team in ({"team": "t"}, {}):
                found = nodes.pod_terms.concerning(TermKind.REQUIRED_ANTI, namespace, labels, team)
                assert {group.term.key: Counter(group.counts) for group in found} == {
                    key: count
                    for key, count in carried.items()
                    if any(
                        term.key == key and term.matches(namespace, labels, team)
                        for info in cluster.pods()
                        for term in pod_terms(info)
                    )
                }
                assert len(found) == len({group.term.key for group in found})


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(STEPS, max_size=30), st.sampled_from([None, 0b0, 0b101, 0b11110]))
def test_any_history_leaves_what_a_count_from_scratch_finds(history, eligible):
    cluster = Cluster()
    check(cluster, eligible)
    for step in history:
        apply(cluster, step)
        if step[0] == "check":
            check(cluster, eligible)
            check_terms(cluster)
    check(cluster, eligible)
    check_terms(cluster)


def test_unused_sums_are_dropped():
    cluster = Cluster()
    cluster.set_node(node("n0", "z0"))
    tally = cluster.nodes.population.tally(SELECTIONS[0])
    domains.of(tally, cluster.nodes.topologies.of(ZONE))
    for number in range(600):
        cluster.add_pod(pod(f"q{number}", "n0", "a", {"app": "x"}))

    assert not tally.domains
    assert tally.changed_since(0) is None
    assert tally.changed_since(tally.position) == []
    check(cluster, None)


def test_unused_selections_are_dropped():
    cluster = Cluster()
    cluster.set_node(node("n0", "z0"))
    for number in range(5000):
        cluster.nodes.population.tally(
            selection(((frozenset({"a"}), LabelSelector({"app": str(number)})),), counts_terminating=True)
        )
    cluster.add_pod(pod("p0", "n0", "a", {"app": "x"}))

    assert len(cluster.nodes.population.tallies) == 4096
    check(cluster, None)


TWICE = LabelSelector(match_expressions=(LabelSelectorRequirement("app", "In", ("x", "x")),))


def test_a_term_that_names_a_value_twice_leaves_with_its_pod():
    """The API server takes such lists as they are."""
    cluster = Cluster()
    term = {"topologyKey": ZONE, "labelSelector": msgspec.to_builtins(TWICE)}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    manifest = {"metadata": {"name": "g", "uid": "g"}, "spec": {"nodeName": "n0", "affinity": affinity}}
    cluster.add_pod(pod_info(from_manifest(Pod, manifest)))

    cluster.remove_pod("g")

    assert not cluster.nodes.pod_terms.any(TermKind.REQUIRED_ANTI)
    assert cluster.nodes.slot("n0") is None


def test_a_selection_that_names_a_value_twice_is_counted_once_and_forgotten():
    population, labelled = SelectorCounts(), pod("p0", "n0", "a", {"app": "x"})
    population.add(0, labelled)
    wanted = selection(((frozenset({"a"}), TWICE),), counts_terminating=True)

    assert population.tally(wanted).counts == {0: 1}
    for number in range(4096):
        population.tally(selection(((frozenset({"a"}), LabelSelector({"app": str(number)})),), counts_terminating=True))
    population.add(0, pod("p1", "n0", "a", {"app": "x"}))
    assert population.tally(wanted).counts == {0: 2}


# -- bounded in memory, whatever tenants select -------------------------------------------------------------------------


def everything_but(name: str) -> Selection:
    """Another key for each name; each finds all pods."""
    requirement = LabelSelectorRequirement("x", "NotIn", (name,))
    return selection([(None, LabelSelector(match_expressions=(requirement,)))], counts_terminating=True)


def test_selections_that_find_pods_on_all_nodes_are_let_go_beyond_a_number_of_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(population, "_ENTRIES_MAX", 1_000)
    monkeypatch.setattr(population, "_WITHOUT_ANCHOR", 0)
    monkeypatch.setattr(population, "_TALLIES_MIN", 5)
    seen = Cluster()
    for at in range(20):
        seen.set_node(node(f"n{at}", ""))
        seen.add_pod(pod(f"p{at}", f"n{at}", "a", {}))
    pods, host = seen.nodes.population, seen.nodes.topologies.of(HOST)

    for at in range(200):
        for _ in range(2):
            domains.of(pods.tally(everything_but(str(at))), host).column()

    kept = list(pods.tallies)
    assert kept[-1] == everything_but("199").key
    assert 5 <= len(kept) <= 1_000 // 40
    assert pods._entries == sum(tally.entries for tally in pods.tallies.values()) <= 1_000
    seen.add_pod(pod("more", "n0", "a", {}))
    assert sum(pods.tally(everything_but("0")).counts.values()) == 21
    assert sum(pods.tally(everything_but("199")).counts.values()) == 21


def test_a_new_label_set_is_compared_with_a_bounded_number_of_selections_without_a_required_label() -> None:
    """Any tenant's pod may select all pods but some, with new values in each term."""
    seen = SelectorCounts()
    seen.add(0, pod("p0", "n0", "a", {"app": "x"}))
    for at in range(600):
        seen.tally(everything_but(str(at)))
        seen.tally(selection(((frozenset({"a"}), LabelSelector({"app": str(at)})),), counts_terminating=True))

    without = [tally for tally in seen.tallies.values() if any(pair is None for _, pair in tally.anchors)]
    assert 64 <= len(without) <= 256
    seen.add(0, pod("p1", "n0", "a", {"app": "y"}))
    assert seen.tally(everything_but("599")).counts == {0: 2}


def test_the_label_sets_of_a_selection_count_as_entries() -> None:
    seen = SelectorCounts()
    for at in range(300):
        seen.add(0, pod(f"p{at}", "n0", "a", {"app": "x", "pod": str(at)}))
    seen.tally(selection(((frozenset({"a"}), LabelSelector({"app": "x"})),), counts_terminating=True))

    assert seen._entries == 302


def test_a_few_selections_are_kept_whatever_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "_ENTRIES_MAX", 1)
    monkeypatch.setattr(population, "_TALLIES_MIN", 3)
    seen = Cluster()
    seen.add_pod(pod("p", "n1", "a", {}))

    for at in range(10):
        seen.nodes.population.tally(everything_but(str(at)))

    assert list(seen.nodes.population.tallies) == [everything_but(str(at)).key for at in (7, 8, 9)]
