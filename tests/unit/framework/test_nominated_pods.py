"""Filters on nodes with nominated pods (docs/spec/core.md §3.5), and the sentence about an attempt that found no node (§3.9)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from scheduler.api.podinfo import PodInfo
from scheduler.core import nodeset
from scheduler.core.cooperative import Work, finish
from scheduler.core.nodeset import NodeSet
from scheduler.framework.interface import CycleState
from scheduler.framework.runtime import FrameworkRunner
from scheduler.framework.status import AttemptError, Code, Diagnosis, Groups, Rejection, one_node
from tests.examples import SLOW_SHARE, examples
from tests.unit.fake_plugins import Refuses
from tests.unit.objects import node
from tests.unit.plugins.preempting import PreemptionHarness, pod

HERE = node("n1", cpu="3", labels={"zone": "z1"})
THERE = pod("there", on="n1", cpu="1")


def nominated(name: str = "other", priority: int = 10, *, cpu: str = "1", **more: Any) -> PodInfo:
    return pod(name, priority, cpu=cpu, **more)


def fits(runner: FrameworkRunner, one: PodInfo) -> bool:
    """On n1; `runner` may remember an earlier answer."""
    state = CycleState()
    runner.pre_filter(state, one)
    here = runner.cluster.nodes.by_name(("n1",))
    passed, refused = finish(runner.filter(state, one, here, exact=False))
    assert bool(passed) is not bool(refused)
    return bool(passed)


def without_memos(harness: PreemptionHarness) -> FrameworkRunner:
    return FrameworkRunner(
        harness.runner.profile, harness.cluster, harness.nominator, clock=harness.handle.clock, metrics=harness.metrics
    )


class FailsFlat(Refuses):
    """Does not look at pods, and fails on the nodes of its table."""

    depends_on_pods = False


@pytest.mark.parametrize(
    "name", ["depends_on_pods", "heeds_pods"], ids=["by its name", "by the name that it had before"]
)
def test_a_filter_says_that_pods_do_not_matter(name: str) -> None:
    flat: Refuses = type("Flat", (Refuses,), {name: False})("Flat")
    found = {
        bound.name: bound.depends_on_pods
        for bound in PreemptionHarness(HERE, plugins=(flat, Refuses("Usual"))).runner.profile.filter
    }

    assert (found["Flat"], found["Usual"]) == (False, True)


def test_a_filter_that_fails_ends_the_attempt() -> None:
    harness = PreemptionHarness(HERE, THERE, plugins=(FailsFlat("Flat", reasons={"n1": "no idea"}, code=Code.ERROR),))
    harness.nominate("n1", nominated())

    with pytest.raises(AttemptError, match='running "Flat" filter plugin: no idea'):
        fits(harness.runner, pod("incoming", 10, cpu="1"))


def test_a_turn_can_be_given_after_each_node_that_is_tried() -> None:
    names = [f"m{at}" for at in range(6)]
    harness = PreemptionHarness(*(node(name) for name in names), plugins=(Refuses("Whole"),))
    for name in names:
        harness.nominate(name, nominated(f"for-{name}"))
    state, one = CycleState(), pod("incoming", 10, cpu="2")
    runner = harness.runner
    runner.pre_filter(state, one)
    harness.calls.clear()

    for _ in runner.filter(state, one, harness.cluster.nodes.present, exact=False):
        harness.calls.append("turn")

    assert harness.calls[:-1] == ["Whole.filter", "turn"] * len(names)
    assert harness.calls[-1] == "Whole.filter"


NODES = tuple(f"n{at}" for at in range(6))
"""More nodes than are filtered one by one."""

names = st.sampled_from(NODES[:2])
"""Where things happen: changes meet on the same nodes."""
amounts = st.sampled_from(["1", "2", "3"])
priorities = st.sampled_from([0, 5])
nominee = st.builds(
    lambda name, priority, cpu, ports: pod(name, priority, cpu=cpu, ports=ports),
    st.sampled_from(["x", "y", "z", "incoming"]),
    priorities,
    amounts,
    st.sampled_from([(), ("TCP/80",)]),
)
changes = st.one_of(
    st.tuples(st.just("nominate"), names, st.lists(nominee, max_size=2, unique_by=lambda info: info.uid)),
    st.tuples(st.just("bind"), names, st.sampled_from(["a", "b", "c"]), amounts),
    st.tuples(st.just("unbind"), st.sampled_from(["a", "b", "c"])),
    st.tuples(st.just("node"), names, amounts, st.booleans()),
    st.tuples(st.just("node gone"), names),
    st.tuples(st.just("many"), st.integers(1, 3)),
)


def apply(harness: PreemptionHarness, change: tuple[Any, ...]) -> None:
    match change:
        case ("nominate", name, pods):
            for other in pods:
                harness.nominator.remove_foreign(other.uid)
            harness.nominate(name, *pods)
        case ("bind", name, who, cpu):
            harness.put(pod(who, 0, cpu=cpu, on=name, ports=("TCP/80",) if cpu == "3" else ()))
        case ("unbind", who):
            harness.cluster.remove_pod(f"default/{who}")
        case ("node", name, cpu, is_labelled):
            harness.put(node(name, cpu=cpu, labels={"zone": "z"} if is_labelled else {}))
        case ("node gone", name):
            harness.cluster.remove_node(name)
        case ("many", times):
            for _ in range(400 * times):
                harness.put(pod("a", 0, cpu="1", on="n1"))
                harness.cluster.remove_pod("default/a")


def refused(runner: FrameworkRunner, one: PodInfo, nodes: NodeSet, groups: Groups) -> NodeSet:
    state = CycleState()
    runner.pre_filter(state, one)

    def one_pass(_trial: CycleState, _nodes: int) -> Work[int]:
        raise AssertionError("no rule here looks beyond a node")

    return finish(runner.ahead.refusing(state, one, nodes, groups, one_pass=one_pass))


@settings(max_examples=examples(150, share=SLOW_SHARE), deadline=None)
@given(
    history=st.lists(st.lists(changes, min_size=1, max_size=4), min_size=1, max_size=8),
    incoming=st.lists(
        st.builds(
            lambda priority, cpu, more: pod("incoming", priority, cpu=cpu, **more),
            priorities,
            amounts,
            st.sampled_from([{}, {"ports": ("TCP/80",)}, {"nodeSelector": {"zone": "z"}}]),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_the_memo_agrees_with_filtering_each_node(
    history: list[list[tuple[Any, ...]]], incoming: list[PodInfo]
) -> None:
    """Filtering all nodes gives the same reasons as filtering each node without memos.

    Nodes that are rejected without any nomination may be left to the filters.
    """
    harness = PreemptionHarness(*(node(name, cpu="3") for name in NODES))
    for step in history:
        for change in step:
            apply(harness, change)
        for one in incoming:
            remembered: Groups = {}
            literal: Groups = {}
            everything = harness.cluster.nodes.present
            at_once = refused(harness.runner, one, everything, remembered)
            one_by_one = sum(
                refused(without_memos(harness), one, 1 << slot, literal) for slot in nodeset.each(everything)
            )
            flat = nodeset.of(
                slot
                for slot in nodeset.each(everything)
                if one.pod.spec.node_selector and not harness.cluster.nodes.labels.equal("zone", "z") >> slot & 1
            )
            assert at_once & ~flat == one_by_one & ~flat
            assert {no: slots & ~flat for no, slots in remembered.items() if slots & ~flat} == {
                no: slots & ~flat for no, slots in literal.items() if slots & ~flat
            }


def no(*reasons: str, plugin: str = "P", code: Code = Code.UNSCHEDULABLE) -> Rejection:
    return Rejection(plugin, code, reasons)


@pytest.mark.parametrize(
    ("diagnosis", "message"),
    [
        pytest.param(
            Diagnosis(
                3,
                {
                    no("Insufficient cpu"): 0b001,
                    no("Insufficient cpu", "Insufficient memory"): 0b010,
                    no("node(s) had untolerated taint(s)", plugin="T"): 0b100,
                },
            ),
            "0/3 nodes are available: 1 Insufficient memory, 1 node(s) had untolerated taint(s), 2 Insufficient cpu.",
            id="114 a node with two reasons counts in both",
        ),
        pytest.param(
            Diagnosis(14, {no("b"): 0b11, no("a"): (1 << 14) - 4}),
            "0/14 nodes are available: 12 a, 2 b.",
            id="115 counts are sorted as text",
        ),
        pytest.param(
            Diagnosis(2, pre_filter_message="pvc not found", absent=no("pvc not found"), absent_count=2),
            "0/2 nodes are available: pvc not found.",
            id="116 PreFilter's message replaces the counts",
        ),
        pytest.param(
            Diagnosis(5, {no("a"): 1}, no("absent"), 4),
            "0/5 nodes are available: 1 a, 4 absent.",
            id="117 nodes that nothing looked at give the absent reason",
        ),
        pytest.param(
            Diagnosis(1, {no("a"): 1}, post_filter_message="preemption: no."),
            "0/1 nodes are available: 1 a. preemption: no.",
            id="PostFilter's message is appended as it is",
        ),
        pytest.param(Diagnosis(0), "0/0 nodes are available:", id="no reasons, no list"),
        pytest.param(one_node(no("full")), "0/1 nodes are available: 1 full.", id="Reserve and Permit name one node"),
    ],
)
def test_message(diagnosis: Diagnosis, message: str) -> None:
    assert diagnosis.message() == message


def test_a_pending_plugin_is_kept_apart() -> None:
    """Pending skips the back-off later, so it must not be mixed with plain rejections."""
    diagnosis = Diagnosis(1)

    diagnosis.refuse(no("x", plugin="A"))
    diagnosis.refuse(no("y", plugin="B", code=Code.PENDING))
    diagnosis.refuse(no("z", plugin=""))

    assert (diagnosis.unschedulable_plugins, diagnosis.pending_plugins) == ({"A"}, {"B"})


@pytest.mark.parametrize("size", [1, 7, 8, 9, 64, 5000])
def test_a_set_survives_the_way_through_a_mask(size: int) -> None:
    some = nodeset.of(range(0, size, 3))

    assert nodeset.from_mask(nodeset.to_mask(some, size)) == some
    assert nodeset.slots(some, size).tolist() == list(nodeset.each(some)) == list(range(0, size, 3))
