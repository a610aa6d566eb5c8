"""Nominations: who holds a place that is not theirs yet. Ids begin with the row of docs/spec/core.md §9."""

from __future__ import annotations

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.queueing.nominator import Nominator
from tests.unit.queueing.world import pod


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
    them = nominator(info)
    them.add(info, "before")
    them.add(info, given)

    assert nodes == them.nodes()
    assert tuple(info for _ in nodes) == them.for_node(nodes[0] if nodes else "before")


@pytest.mark.parametrize(
    "stored",
    [pytest.param((), id="64 missing from the store"), pytest.param((pod("p", node="n9"),), id="bound meanwhile")],
)
def test_refused(stored: tuple[PodInfo, ...]) -> None:
    them = nominator(*stored)
    them.add(pod("p"), "n1")

    assert them.nodes() == ()


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
    """The pod's object is replaced, and its status counts unless our patch is still under way."""
    old, new = pod("p", nominated=old_status), pod("p", nominated=new_status, version="2")
    them = nominator(new)
    them.add(old, "memory")
    them.update(old, new)

    assert nodes == them.nodes()
    assert [(new,) for _ in nodes] == [them.for_node(node) for node in nodes]


def test_who_changes_keeps_the_place_among_the_nominated() -> None:
    """Ours or not: devices are kept for one after the other, and a label must not give them to the next."""
    a, b, c = pod("a", nominated="n1"), pod("b"), pod("c")
    changed = pod("a", nominated="n1", version="2")
    them = nominator(changed, b, c)
    them.add(a, "n1")
    them.add_foreign(b, "n1")
    them.add(c, "n1")
    them.update(a, changed)
    assert None is them.add_foreign(b, "n1")

    assert (changed, b, c) == them.for_node("n1")
    assert b == them.remove_foreign(b.uid)
    assert None is them.remove_foreign(c.uid)


def test_order_and_deletion() -> None:
    """In the order of nomination; a node without nominated pods is not named."""
    a, b = pod("a"), pod("b")
    them = nominator(a, b)
    them.add(b, "n1")
    them.add(a, "n1")
    assert (b, a) == them.for_node("n1")
    assert them.delete(b) == "n1"
    assert them.delete(b) is None
    assert (a,) == them.for_node("n1")
    them.delete(a)

    assert them.nodes() == ()


def test_foreign_nominations() -> None:
    """§2.6: other schedulers' pods count, are not looked up in our store, and leave only by their own news."""
    ours, theirs = pod("ours"), pod("theirs", scheduler="default-scheduler")
    them = nominator(ours)
    them.add(ours, "n1")
    them.add_foreign(theirs, "n1")
    assert (ours, theirs) == them.for_node("n1")
    them.add_foreign(theirs, "n2")
    them.remove_foreign("ours")
    assert them.nodes() == ("n1", "n2")
    them.remove_foreign("theirs")
    them.remove_foreign("theirs")

    assert them.nodes() == ("n1",)


@pytest.mark.parametrize(
    ("status", "memory", "left", "after"),
    [
        pytest.param("", "", "", ("n1", "derived"), id="no other nomination: it counts"),
        pytest.param("n1", "n1", "", ("n1", "status"), id="status says the same: it stays the status's"),
        pytest.param("", "n1", "", ("n1", "preemption"), id="a preemption says the same: it stays the preemption's"),
        pytest.param("n2", "n2", "n2", ("n1", "derived"), id="status says another node: the claims win"),
    ],
)
def test_a_derived_nomination_beside(status: str, memory: str, left: str, after: tuple[str, str]) -> None:
    info = pod("p", nominated=status)
    them = nominator(info)
    if memory:
        them.add(info, memory)
    assert them.derive(info, "n1") == left
    assert (them.node_of("p"), them.source(info)) == after
    assert them.for_node("n1") == (info,)


@pytest.mark.parametrize(
    ("status", "left", "after"),
    [
        pytest.param("", "n1", None, id="nothing else nominates the pod"),
        pytest.param("n2", "n1", "n2", id="the status counts again"),
    ],
)
def test_a_derived_nomination_ends(status: str, left: str, after: str | None) -> None:
    info = pod("p", nominated=status)
    them = nominator(info)
    them.derive(info, "n1")
    assert them.end_derived(info) == left
    assert them.end_derived(info) == ""
    assert (them.node_of("p"), them.derived_node("p")) == (after, "")


@pytest.mark.parametrize(
    ("status", "source"),
    [
        pytest.param("", "derived", id="and stays derived"),
        pytest.param("n1", "status", id="and is the status's from now on"),
    ],
)
def test_a_pod_with_a_derived_nomination_changes(status: str, source: str) -> None:
    old, new = pod("p"), pod("p", nominated=status, version="2")
    them = nominator(new)
    them.derive(old, "n1")
    them.update(old, new)
    assert (them.for_node("n1"), them.source(new)) == ((new,), source)


@pytest.mark.parametrize("stored", [(), (pod("p", node="n9"),)], ids=["that has gone", "that is bound"])
def test_no_nomination_is_derived_for_a_pod(stored: tuple[PodInfo, ...]) -> None:
    them = nominator(*stored)
    them.derive(pod("p"), "n1")
    assert them.nodes() == ()


def test_a_foreign_nomination_has_no_source() -> None:
    theirs = pod("theirs", scheduler="default-scheduler")
    them = nominator()
    them.add_foreign(theirs, "n1")
    assert them.source(theirs) == ""
