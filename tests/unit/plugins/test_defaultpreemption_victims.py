"""The victims of one node: docs/spec/core.md §3.10, dry run (rows 182, 183 and 197 of §9.7 among them)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.framework.interface import CycleState
from scheduler.framework.status import AttemptError, Code, Nominate, Rejection
from scheduler.plugins.defaultpreemption.dry_run import VictimRule
from tests.unit.fake_plugins import Answers
from tests.unit.objects import node
from tests.unit.plugins.preempting import NO_VICTIMS, OTHERS, PreemptionHarness, Refusal, pod

GPU = "example.com/gpu"
HERE: dict[str, Any] = {"labels": {"host": "n1", "zone": "z1"}, "cpu": "3", "pods": "5", GPU: "2"}


def low(name: str, priority: int | None = 0, *, on: str = "n1", cpu: str = "1", **more: Any) -> PodInfo:
    """A pod that holds a third of the node."""
    return pod(name, priority, on=on, cpu=cpu, **more)


def incoming(priority: int = 10, *, cpu: str = "1", **more: Any) -> PodInfo:
    return pod("incoming", priority, cpu=cpu, **more)


def no(*reasons: str) -> Refusal:
    return Code.UNSCHEDULABLE, reasons


@pytest.mark.parametrize(
    ("there", "comes", "victims"),
    [
        pytest.param(
            [low("a"), low("b"), low("c")], incoming(), ["c"], id="183 one of three, equal in all but the name"
        ),
        pytest.param(
            [low("a", 10), low("b", 10), low("c", 11)], incoming(), NO_VICTIMS, id="182 equal and higher priorities"
        ),
        pytest.param([], incoming(cpu="4"), NO_VICTIMS, id="an empty node"),
    ],
)
def test_order(there: list[PodInfo], comes: PodInfo, victims: list[str] | Refusal) -> None:
    """All lower pods leave; pods that still fit come back, the most important first. The rest are the victims."""
    harness = PreemptionHarness(node("n1", **HERE), *there)

    assert victims == harness.victims(comes, "n1")


OWN = frozenset({"kubestow"})


@pytest.mark.parametrize(
    ("rule", "cpu", "victims"),
    [
        pytest.param(VictimRule(OWN, spares_others=True), "2", ["c", "b"], id="only ours: both"),
        pytest.param(VictimRule(OWN, spares_others=True), "3", no("Insufficient cpu"), id="only ours: not enough"),
        pytest.param(VictimRule(OWN, prefers_own=True), "1", ["b"], id="ours first: the least important of them"),
        pytest.param(
            VictimRule(OWN, prefers_own=True), "3", ["a", "c", "b"], id="ours first: pods of other schedulers if needed"
        ),
        pytest.param(VictimRule(frozenset(), spares_others=True), "1", NO_VICTIMS, id="only ours, and there is none"),
    ],
)
def test_whose_pods(rule: VictimRule, cpu: str, victims: list[str] | Refusal) -> None:
    """`victims: own` evicts no pods of other schedulers; `ownFirst` does where ours are not enough."""
    harness = PreemptionHarness(node("n1", **HERE), low("a", 0, scheduler=OTHERS), low("b", 1), low("c", 2))

    assert victims == harness.victims(incoming(cpu=cpu), "n1", rule)


def test_ours_first_counts_pods_of_other_schedulers() -> None:
    """What a node costs begins with how many pods of other schedulers must go."""
    harness = PreemptionHarness(node("n1", **HERE), low("a", 0, scheduler=OTHERS), low("b", 1), low("c", 2))
    costs = []
    for rule in (VictimRule(OWN), VictimRule(OWN, prefers_own=True)):
        found = harness.on(incoming(cpu="3"), "n1", rule)
        assert not isinstance(found, Rejection)
        costs.append(found.cost[0])

    assert costs == [0, 1]


# -- failures ----------------------------------------------------------------------------------------------------------


def test_no_victim_at_all_is_an_error() -> None:
    """The filters refused the node and now they do not: upstream's text."""
    harness = PreemptionHarness(node("n1", **HERE), low("a"))

    assert harness.victims(incoming(), "n1") == (Code.ERROR, ('expected at least one victim pod on node "n1"',))


class Loses(Answers):
    """Follows pods, and fails when one leaves (or comes back to) the node `at`."""

    def __init__(self, *, on_add: bool = False, at: str = "n1") -> None:
        super().__init__("Loses")
        self.on_add, self.at = on_add, at

    def add_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, slot: int) -> None:
        self._fail(slot, fails=self.on_add)

    def remove_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, slot: int) -> None:
        self._fail(slot, fails=not self.on_add)

    def _fail(self, slot: int, *, fails: bool) -> None:
        if fails and self.harness.cluster.nodes.name(slot) == self.at:
            raise AttemptError(f"lost count on {self.at}", plugin=self.name)


@pytest.mark.parametrize("on_add", [pytest.param(False, id="leaving"), pytest.param(True, id="coming back")])
def test_a_plugin_that_fails_fails_the_node(on_add: bool) -> None:
    """Not the attempt: on another node there are victims; and without victims the failure is the answer."""
    harness = PreemptionHarness(node("n1", **HERE), node("n2", cpu="1"), plugins=(Loses(on_add=on_add),))
    harness.put(low("a", cpu="3"))
    alone = harness.post_filtered(incoming(cpu="3"))
    harness.put(low("b", on="n2", cpu="1"))
    elsewhere = harness.post_filtered(incoming(cpu="1"))

    assert alone == Rejection("DefaultPreemption", Code.ERROR, ("preemption: lost count on n1",))
    assert isinstance(elsewhere, Nominate)
    assert elsewhere.node_name == "n2"


class Fussy(Answers):
    """A filter that fails when one pod alone is on the node."""

    def filter(self, state: CycleState, pod: PodInfo, nodes: int) -> dict[Rejection, int]:
        known = self.harness.cluster.nodes
        out = sum(1 << slot for slot in range(known.capacity) if nodes >> slot & 1 and known.pod_count[slot] == 1)
        return {Rejection(self.name, Code.ERROR, ("alone",)): out} if out else {}


def test_a_filter_that_fails_means_that_the_pod_does_not_fit() -> None:
    """As upstream, the pod that has come back leaves again. Without any of the pods it ends the node's dry run."""
    harness = PreemptionHarness(node("n1", **HERE), low("a", 2), low("b", 1), low("c", 0), plugins=(Fussy("Fussy"),))
    back = harness.victims(incoming(cpu="0"), "n1")
    harness.put(low("stays", 10, cpu="0"))

    assert back == ["a", "b", "c"]
    assert harness.victims(incoming(cpu="3"), "n1") == (Code.ERROR, ('running "Fussy" filter plugin: alone',))
