"""What is remembered of nodes with nominated pods follows every change of columns and nominations (docs/spec/core.md §3.5)."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings, strategies as st

from scheduler.api.podinfo import PodInfo
from scheduler.core import nodeset
from scheduler.core.cooperative import Work, finish
from scheduler.core.nodeset import NodeSet
from scheduler.framework.interface import CycleState
from scheduler.framework.runtime import Runner
from scheduler.framework.status import Groups
from tests.examples import SLOW_SHARE, examples
from tests.unit.framework.test_ahead import anew
from tests.unit.objects import node
from tests.unit.plugins.preempting import PreemptionHarness, pod

NODES = tuple(f"n{at}" for at in range(6))
"""More than are asked one by one."""

names = st.sampled_from(NODES[:2])
"""Where things happen: changes meet on the same nodes."""
amounts = st.sampled_from(["1", "2", "3"])
priorities = st.sampled_from([0, 5])
nominee = st.builds(
    lambda name, priority, cpu, ports: pod(name, priority, cpu=cpu, ports=ports),
    st.sampled_from(["x", "y", "z", "asked"]),
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


def refused(runner: Runner, one: PodInfo, nodes: NodeSet, groups: Groups) -> NodeSet:
    state = CycleState()
    runner.pre_filter(state, one)

    def one_pass(_trial: CycleState, _nodes: int) -> Work[int]:
        raise AssertionError("no rule here looks beyond a node")

    return finish(runner.ahead.refusing(state, one, nodes, groups, one_pass=one_pass))


@settings(max_examples=examples(150, share=SLOW_SHARE), deadline=None)
@given(
    history=st.lists(st.lists(changes, min_size=1, max_size=4), min_size=1, max_size=8),
    asked=st.lists(
        st.builds(
            lambda priority, cpu, more: pod("asked", priority, cpu=cpu, **more),
            priorities,
            amounts,
            st.sampled_from([{}, {"ports": ("TCP/80",)}, {"nodeSelector": {"zone": "z"}}]),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_as_if_every_node_were_asked(history: list[list[tuple[Any, ...]]], asked: list[PodInfo]) -> None:
    """The same nodes for the same reasons as when they are asked one by one, where nothing is remembered.

    Nodes that are refused without anybody's nomination may be left to the filters themselves.
    """
    harness = PreemptionHarness(*(node(name, cpu="3") for name in NODES))
    for step in history:
        for change in step:
            apply(harness, change)
        for one in asked:
            remembered: Groups = {}
            literal: Groups = {}
            everything = harness.cluster.nodes.present
            at_once = refused(harness.runner, one, everything, remembered)
            one_by_one = sum(refused(anew(harness), one, 1 << slot, literal) for slot in nodeset.each(everything))
            flat = nodeset.of(
                slot
                for slot in nodeset.each(everything)
                if one.pod.spec.node_selector and not harness.cluster.nodes.labels.equal("zone", "z") >> slot & 1
            )
            assert at_once & ~flat == one_by_one & ~flat
            assert {no: slots & ~flat for no, slots in remembered.items() if slots & ~flat} == {
                no: slots & ~flat for no, slots in literal.items() if slots & ~flat
            }
