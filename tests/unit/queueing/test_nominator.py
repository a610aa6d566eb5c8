"""Nominated pods by node. Ids begin with the row of docs/spec/core.md §9."""

from __future__ import annotations

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.framework.nominator import Nominator
from tests.unit.queueing.harness import pod


def nominator(*stored: PodInfo) -> Nominator:
    return Nominator({info.key: info for info in stored}.get)


@pytest.mark.parametrize(
    ("status", "given", "nodes"),
    [
        pytest.param("n1", None, ("n1",), id="none given takes the status"),
        pytest.param("n1", "n2", ("n2",), id="given wins over the status"),
        pytest.param("n1", "", (), id="empty clears"),
        pytest.param("", None, (), id="no nomination at all"),
    ],
)
def test_add(status: str, given: str | None, nodes: tuple[str, ...]) -> None:
    """§1.15: Override, or what the status says."""
    info = pod("p", nominated=status)
    nominator_ = nominator(info)
    nominator_.add(info, "before")
    nominator_.add(info, given)

    assert nodes == nominator_.nodes()
    assert tuple(info for _ in nodes) == nominator_.for_node(nodes[0] if nodes else "before")


@pytest.mark.parametrize(
    "stored",
    [pytest.param((), id="64 missing from the store"), pytest.param((pod("p", node="n9"),), id="bound in the store")],
)
def test_refused(stored: tuple[PodInfo, ...]) -> None:
    nominator_ = nominator(*stored)
    nominator_.add(pod("p"), "n1")

    assert nominator_.nodes() == ()


@pytest.mark.parametrize(
    ("old_status", "new_status", "nodes"),
    [
        pytest.param("", "", ("memory",), id="62 neither object names a node: ours in memory stays"),
        pytest.param("n1", "", (), id="63 the update removes it"),
        pytest.param("n1", "n2", ("n2",), id="the update changes it"),
        pytest.param("", "n1", ("n1",), id="the update brings it"),
    ],
)
def test_update(old_status: str, new_status: str, nodes: tuple[str, ...]) -> None:
    old, new = pod("p", nominated=old_status), pod("p", nominated=new_status, version="2")
    nominator_ = nominator(new)
    nominator_.add(old, "memory")
    nominator_.update(old, new)

    assert nodes == nominator_.nodes()
    assert [(new,) for _ in nodes] == [nominator_.for_node(node) for node in nodes]


def test_a_nominated_pod_that_changes_keeps_its_position() -> None:
    """Devices are kept for the nominated pods in order."""
    a, b, c = pod("a", nominated="n1"), pod("b"), pod("c")
    changed = pod("a", nominated="n1", version="2")
    nominator_ = nominator(changed, b, c)
    nominator_.add(a, "n1")
    nominator_.add_foreign(b, "n1")
    nominator_.add(c, "n1")
    nominator_.update(a, changed)
    assert None is nominator_.add_foreign(b, "n1")

    assert (changed, b, c) == nominator_.for_node("n1")
    assert b == nominator_.remove_foreign(b.uid)
    assert None is nominator_.remove_foreign(c.uid)


def test_foreign_nominations() -> None:
    """§2.6: pods of other schedulers count, are not looked up in our store, and leave only by `remove_foreign`."""
    ours, theirs = pod("ours"), pod("theirs", scheduler="default-scheduler")
    nominator_ = nominator(ours)
    nominator_.add(ours, "n1")
    nominator_.add_foreign(theirs, "n1")
    assert (ours, theirs) == nominator_.for_node("n1")
    nominator_.add_foreign(theirs, "n2")
    nominator_.remove_foreign("ours")
    assert nominator_.nodes() == ("n1", "n2")
    nominator_.remove_foreign("theirs")
    nominator_.remove_foreign("theirs")

    assert nominator_.nodes() == ("n1",)


@pytest.mark.parametrize(
    ("status", "memory", "left", "after"),
    [
        pytest.param("", "", "", ("n1", "derived"), id="no other nomination: derived"),
        pytest.param("n1", "n1", "", ("n1", "status"), id="the status has the same node: status"),
        pytest.param("", "n1", "", ("n1", "preemption"), id="a preemption has the same node: preemption"),
        pytest.param("n2", "n2", "n2", ("n1", "derived"), id="the status has another node: derived"),
    ],
)
def test_a_derived_nomination_and_another_one(status: str, memory: str, left: str, after: tuple[str, str]) -> None:
    info = pod("p", nominated=status)
    nominator_ = nominator(info)
    if memory:
        nominator_.add(info, memory)
    assert nominator_.derive(info, "n1") == left
    assert (nominator_.node_of("p"), nominator_.source(info)) == after
    assert nominator_.for_node("n1") == (info,)


@pytest.mark.parametrize(
    ("status", "left", "after"),
    [
        pytest.param("", "n1", None, id="nothing else nominates the pod"),
        pytest.param("n2", "n1", "n2", id="the status counts again"),
    ],
)
def test_a_derived_nomination_ends(status: str, left: str, after: str | None) -> None:
    info = pod("p", nominated=status)
    nominator_ = nominator(info)
    nominator_.derive(info, "n1")
    assert nominator_.end_derived(info) == left
    assert nominator_.end_derived(info) == ""
    assert (nominator_.node_of("p"), nominator_.derived_node("p")) == (after, "")


@pytest.mark.parametrize(
    ("status", "source"),
    [
        pytest.param("", "derived", id="and stays derived"),
        pytest.param("n1", "status", id="and is the status's after it"),
    ],
)
def test_a_pod_with_a_derived_nomination_changes(status: str, source: str) -> None:
    old, new = pod("p"), pod("p", nominated=status, version="2")
    nominator_ = nominator(new)
    nominator_.derive(old, "n1")
    nominator_.update(old, new)
    assert (nominator_.for_node("n1"), nominator_.source(new)) == ((new,), source)


@pytest.mark.parametrize("stored", [(), (pod("p", node="n9"),)], ids=["that has gone", "that is bound"])
def test_no_nomination_is_derived_for_a_pod(stored: tuple[PodInfo, ...]) -> None:
    nominator_ = nominator(*stored)
    nominator_.derive(pod("p"), "n1")
    assert nominator_.nodes() == ()


def test_a_foreign_nomination_has_no_source() -> None:
    theirs = pod("theirs", scheduler="default-scheduler")
    nominator_ = nominator()
    nominator_.add_foreign(theirs, "n1")
    assert nominator_.source(theirs) == ""
