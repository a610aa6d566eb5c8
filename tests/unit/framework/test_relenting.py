"""A filter that thinks again, once no node takes the pod, on which of them an eviction would help."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, strategies as st

from scheduler.core import nodeset
from scheduler.core.nodeset import NodeSet
from scheduler.core.podinfo import PodInfo
from scheduler.core.turns import Work
from scheduler.core.verdicts import Code, Groups, Rejection
from scheduler.framework.state import CycleState
from tests.unit.objects import node
from tests.unit.plugins.preempting import House, pod
from tests.unit.toys import Toy

FOR_GOOD = Rejection("Soft", Code.UNRESOLVABLE, ("too few",))
FOR_NOW = Rejection("Soft", Code.UNSCHEDULABLE, ("too few",))
OTHER = Rejection("Other", Code.UNRESOLVABLE, ("too few",))


@dataclass
class Soft(Toy):
    """Has second thoughts about nodes with odd numbers."""

    name: str = "Soft"
    asked: list[NodeSet] = field(default_factory=list)

    def filter(self, state: CycleState, incoming: PodInfo, nodes: NodeSet) -> Groups:
        return {}

    def relents(self, state: CycleState, incoming: PodInfo, no: Rejection, nodes: NodeSet) -> NodeSet:
        self.asked.append(nodes)
        return nodeset.of(slot for slot in nodeset.each(nodes) if slot % 2)


def relented(soft: Soft, refused: Groups, nodes: int = 4) -> tuple[list[Groups], House]:
    house = House(*(node(f"n{at}") for at in range(nodes)), plugins=(soft,))
    return [dict(groups) for groups in house.runner.relented(CycleState(), pod(), refused)], house


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        pytest.param({FOR_GOOD: 0b1111}, {FOR_GOOD: 0b0101, FOR_NOW: 0b1010}, id="some of the nodes"),
        pytest.param({FOR_GOOD: 0b0101}, {FOR_GOOD: 0b0101}, id="none"),
        pytest.param({FOR_GOOD: 0b1010}, {FOR_NOW: 0b1010}, id="all"),
        pytest.param({FOR_GOOD: 0b0011, FOR_NOW: 0b1000}, {FOR_GOOD: 1, FOR_NOW: 0b1010}, id="as others that it said of"),
        pytest.param({OTHER: 0b1111}, {OTHER: 0b1111}, id="somebody else had refused them"),
        pytest.param({}, {}, id="nobody had"),
    ],
)  # fmt: skip
def test_what_preemption_sees(refused: Groups, expected: Groups) -> None:
    """The words stay, the code does not. What was told of the attempt is left alone."""
    before = dict(refused)

    *_, last = relented(Soft(), refused)[0]

    assert (last, refused) == (expected, before)


def test_turns_can_be_given() -> None:
    """Some nodes at a time, each once."""
    soft = Soft()
    everything = (1 << 150) - 1

    steps, _ = relented(soft, {FOR_GOOD: everything}, nodes=150)

    assert len(steps) > 3
    assert sum(soft.asked) == everything
    assert sum(steps[-1].values()) == everything


class SoftBitByBit(Soft):
    """Rests after each node."""

    def relents(  # type: ignore[override]  # either is allowed
        self, state: CycleState, incoming: PodInfo, no: Rejection, nodes: NodeSet
    ) -> Work[NodeSet]:
        helped = nodeset.EMPTY
        for slot in nodeset.each(nodes):
            helped |= super().relents(state, incoming, no, 1 << slot)
            yield
        return helped


def test_a_turn_can_be_given_after_each_node() -> None:
    """By a filter for which one node may take seconds."""
    refused: Groups = {FOR_GOOD: 0b1111, OTHER: 0b10000}

    steps, _ = relented(SoftBitByBit(), refused, nodes=5)

    assert len(steps) > 4
    assert steps[-1] == {FOR_GOOD: 0b0101, FOR_NOW: 0b1010, OTHER: 0b10000}


@given(slots=st.sets(st.integers(0, 400)), width=st.integers(1, 130))
def test_parts_of_a_set(slots: set[int], width: int) -> None:
    """None is empty or too wide, and together they are the set, in order."""
    parts = list(nodeset.parts(nodeset.of(slots), width))

    assert [slot for part in parts for slot in nodeset.each(part)] == sorted(slots)
    assert all(part and (part // (part & -part)).bit_length() <= width for part in parts)
