"""A filter that thinks again, once no node takes the pod, on which of them an eviction would help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.core import nodeset
from scheduler.core.cooperative import Work, finish
from scheduler.core.nodeset import NodeSet
from scheduler.framework.interface import CycleState
from scheduler.framework.status import Code, Groups, Rejection
from tests.unit.fake_plugins import FakePlugin
from tests.unit.objects import node
from tests.unit.plugins.preempting import PreemptionHarness, pod

FOR_GOOD = Rejection("Soft", Code.UNRESOLVABLE, ("too few",))
FOR_NOW = Rejection("Soft", Code.UNSCHEDULABLE, ("too few",))
OTHER = Rejection("Other", Code.UNRESOLVABLE, ("too few",))


@dataclass
class Soft(FakePlugin):
    """Has second thoughts about nodes with odd numbers."""

    name: str = "Soft"
    asked: list[NodeSet] = field(default_factory=list)

    def filter(self, state: CycleState, incoming: PodInfo, nodes: NodeSet) -> Groups:
        return {}

    def preemptible_nodes(self, state: CycleState, incoming: PodInfo, no: Rejection, nodes: NodeSet) -> Work[NodeSet]:
        self.asked.append(nodes)
        helped = nodeset.EMPTY
        for slot in nodeset.each(nodes):
            yield
            helped |= 1 << slot if slot % 2 else nodeset.EMPTY
        return helped


def relenting(soft: Soft, nodes: int = 4) -> Callable[[Groups], Work[Groups]]:
    harness = PreemptionHarness(*(node(f"n{at}") for at in range(nodes)), plugins=(soft,))
    return partial(harness.runner.relented, CycleState(), pod())


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        pytest.param({FOR_GOOD: 0b1111}, {FOR_GOOD: 0b0101, FOR_NOW: 0b1010}, id="some of the nodes"),
        pytest.param({FOR_GOOD: 0b0101}, {FOR_GOOD: 0b0101}, id="none"),
        pytest.param({FOR_GOOD: 0b1010}, {FOR_NOW: 0b1010}, id="all"),
        pytest.param({FOR_GOOD: 0b0011, FOR_NOW: 0b1000}, {FOR_GOOD: 1, FOR_NOW: 0b1010}, id="next to nodes that were preemptible before"),
        pytest.param({OTHER: 0b1111}, {OTHER: 0b1111}, id="another plugin rejected them"),
        pytest.param({}, {}, id="no rejections"),
    ],
)  # fmt: skip
def test_what_preemption_sees(refused: Groups, expected: Groups) -> None:
    before = dict(refused)

    assert (finish(relenting(Soft())(refused)), refused) == (expected, before)


def test_a_turn_can_be_given_after_each_node() -> None:
    soft = Soft()

    turns = list(relenting(soft, nodes=5)({FOR_GOOD: 0b1111, OTHER: 0b10000}))

    assert (len(turns) > 4, soft.asked) == (True, [0b1111])


def test_a_turn_can_be_given_after_each_rejection() -> None:
    others: Groups = {replace(OTHER, reasons=(f"n{at} has too few",)): 1 << at for at in range(5)}

    assert len(list(relenting(Soft(), nodes=5)(others))) == 5


class SoftOnAll(Soft):
    """Returns nodes that it was not called with."""

    def preemptible_nodes(self, state: CycleState, incoming: PodInfo, no: Rejection, nodes: NodeSet) -> Work[NodeSet]:
        yield
        return 0b1111


def test_other_nodes_in_the_answer_do_not_count() -> None:
    assert finish(relenting(SoftOnAll())({FOR_GOOD: 0b0110})) == {FOR_NOW: 0b0110}
