"""Counts of pods by selection are bounded in memory, whatever tenants select."""

from __future__ import annotations

import pytest

from scheduler.api.selectors import LabelSelector, LabelSelectorRequirement
from scheduler.cache.nodes import topology as domains
from scheduler.cache.pods import selector_counts as population
from scheduler.cache.pods.selector_counts import Selection, selection
from tests.unit.objects import cluster, info, node

NODES = 20


def everything_but(name: str) -> Selection:
    """Another key for each name; each finds all pods."""
    requirement = LabelSelectorRequirement("x", "NotIn", (name,))
    return selection([(None, LabelSelector(match_expressions=(requirement,)))], counts_terminating=True)


def test_selections_that_find_pods_on_all_nodes_are_let_go_beyond_a_number_of_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(population, "_ENTRIES_MAX", 1_000)
    monkeypatch.setattr(population, "_TALLIES_MIN", 5)
    seen = cluster(*(node(f"n{at}", labels={"host": f"n{at}"}) for at in range(NODES)))
    for at in range(NODES):
        seen.add_pod(info(f"p{at}", on=f"n{at}"))
    pods, host = seen.nodes.population, seen.nodes.topologies.of("host")

    for at in range(200):
        for _ in range(2):
            domains.of(pods.tally(everything_but(str(at))), host).column()

    kept = list(pods._tallies)
    assert kept[-1] == everything_but("199").key
    assert 5 <= len(kept) <= 1_000 // (2 * NODES)
    assert pods._entries == sum(tally.entries for tally in pods._tallies.values()) <= 1_000
    seen.add_pod(info("more", on="n0"))
    assert sum(pods.tally(everything_but("0")).counts.values()) == NODES + 1
    assert sum(pods.tally(everything_but("199")).counts.values()) == NODES + 1


def test_a_few_selections_are_kept_whatever_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "_ENTRIES_MAX", 1)
    monkeypatch.setattr(population, "_TALLIES_MIN", 3)
    seen = cluster(node("n1"), info("p", on="n1"))

    for at in range(10):
        seen.nodes.population.tally(everything_but(str(at)))

    assert list(seen.nodes.population._tallies) == [everything_but(str(at)).key for at in (7, 8, 9)]
