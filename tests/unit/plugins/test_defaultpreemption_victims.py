"""Who must leave one node: docs/spec/core.md §3.10, dry run (rows 182, 183 and 197 of §9.7 among them)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.apps_and_policy import PodDisruptionBudget
from scheduler.api.podinfo import PodInfo
from scheduler.framework.interface import CycleState
from scheduler.framework.status import AttemptError, Code, Nominate, Rejection
from scheduler.plugins.defaultpreemption.dry_run import VictimRule
from tests.unit.fake_plugins import Answers
from tests.unit.objects import node
from tests.unit.plugins.preempting import NO_VICTIMS, OTHERS, House, Refusal, away_from, budget, near_to, pod, spread

GPU = "example.com/gpu"
HERE: dict[str, Any] = {"labels": {"host": "n1", "zone": "z1"}, "cpu": "3", "pods": "5", GPU: "2"}
LOWEST = -(2**31)


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
            [low("a", LOWEST), low("b", -5), low("c", -5)],
            incoming(-1, cpu="2"),
            ["c", "a"],
            id="below zero, all of them",
        ),
        pytest.param(
            [low("a"), low("b", started="3"), low("c", started="1")],
            incoming(),
            ["a"],
            id="who has not started is youngest",
        ),
        pytest.param(
            [low("a", 2, cpu="2"), low("b", 1, cpu="500m"), low("c", 0, cpu="500m")],
            incoming(cpu="1500m"),
            ["a"],
            id="small ones stay where the large one has to go",
        ),
        pytest.param(
            [low("a", 2), low("b", 1), low("c", 1, leaving="other")],
            incoming(),
            ["c"],
            id="who is leaving already is one like the others",
        ),
        pytest.param(
            [low("a", 10), low("b", 10), low("c", 11)], incoming(), NO_VICTIMS, id="182 equal and higher priorities"
        ),
        pytest.param([], incoming(cpu="4"), NO_VICTIMS, id="an empty node"),
    ],
)
def test_order(there: list[PodInfo], comes: PodInfo, victims: list[str] | Refusal) -> None:
    """All lower ones leave; whoever still fits comes back, the most important first. The others are the victims."""
    house = House(node("n1", **HERE), *there)

    assert victims == house.victims(comes, "n1")


@pytest.mark.parametrize(
    ("there", "comes", "victims"),
    [
        pytest.param(
            [low(f"a{at}", at, cpu="0") for at in range(5)], incoming(cpu="0"), ["a0"], id="too many pods, one of them"
        ),
        pytest.param(
            [low("a", 1), low("b", 1, requests={GPU: "1"}), low("c", 0)],
            incoming(cpu="0", requests={GPU: "2"}),
            ["b"],
            id="an extended resource, its holder",
        ),
        pytest.param(
            [low("a", 1, ports=("TCP/80/10.0.0.1",)), low("b", 1, ports=("TCP/80",)), low("c", ports=("UDP/80",))],
            incoming(cpu="0", ports=("TCP/80/10.0.0.2",)),
            ["b"],
            id="a host port on one address, the holder of all",
        ),
        pytest.param(
            [low("a", 1, affinity=away_from("x")), low("b", 0)],
            incoming(labels={"app": "x"}),
            ["a"],
            id="a pod's anti-affinity against it",
        ),
        pytest.param(
            [low("a", labels={"app": "x"}), low("b", labels={"app": "x"}), low("c", on="n3", labels={"app": "x"})],
            incoming(labels={"app": "x"}, topologySpreadConstraints=spread("x")),
            ["b"],
            id="a spread constraint",
        ),
        pytest.param(
            [low("a", labels={"app": "x"}), low("b"), low("c")],
            incoming(affinity=near_to("x")),
            (Code.UNRESOLVABLE, ("node(s) didn't match pod affinity rules",)),
            id="affinity to a pod that would have to leave",
        ),
        pytest.param(
            [low("a", 10, labels={"app": "x"}), low("b", 1), low("c", 0)],
            incoming(affinity=near_to("x")),
            ["c"],
            id="affinity to a pod that stays",
        ),
    ],
)
def test_each_rule(there: list[PodInfo], comes: PodInfo, victims: list[str] | Refusal) -> None:
    """Only those leave whose leaving makes the pod fit, whatever it is that keeps it out."""
    house = House(
        node("n1", **HERE),
        node("n2", labels={"zone": "z1", "host": "n2"}),
        node("n3", labels={"zone": "z2", "host": "n3"}),
        *there,
    )

    assert victims == house.victims(comes, "n1")


@pytest.mark.parametrize(
    ("ahead", "victims"),
    [
        pytest.param([pod("other", 11, cpu="1", scheduler=OTHERS)], ["b", "c"], id="a higher one of another scheduler"),
        pytest.param([pod("other", 9, cpu="1")], ["c"], id="a lower one"),
        pytest.param([pod("incoming", 10, cpu="1")], ["c"], id="the pod itself"),
        pytest.param([pod(f"other{at}", 10, cpu="1") for at in range(3)], no("Insufficient cpu"), id="as many as fit"),
    ],
)
def test_nominated_pods_get_their_place(ahead: list[PodInfo], victims: list[str] | Refusal) -> None:
    """Room is made for the pods as well that are nominated here and that this one must yield to."""
    house = House(node("n1", **HERE), low("a", 2), low("b", 1), low("c", 0))
    house.nominate("n1", *ahead)

    assert victims == house.victims(incoming(), "n1")


X = {"app": "x"}


@pytest.mark.parametrize(
    ("there", "budgets", "cpu", "victims", "violations"),
    [
        pytest.param(
            [low("a", 1, labels=X), low("b", 2, labels=X), low("c", 5, labels=X)],
            [budget("d", 2, X)],
            "2",
            ["c", "b"],
            0,
            id="used up by the first two, so the third and least important is spared",
        ),
        pytest.param(
            [low("a", 1, labels=X), low("b", 5), low("c", 5)],
            [budget("d", 0, X)],
            "3",
            ["b", "c", "a"],
            1,
            id="most important first, protected or not",
        ),
        pytest.param(
            [low(name, labels=X) for name in "abc"],
            [budget("d", 0, X), budget("e", 0, X)],
            "1",
            ["c"],
            1,
            id="two budgets over one pod are one violation",
        ),
    ],
)
def test_budgets(
    there: list[PodInfo], budgets: list[PodDisruptionBudget], cpu: str, victims: list[str], violations: int
) -> None:
    """Those whose eviction would violate a budget come back first; victims are ordered by importance alone."""
    house = House(node("n1", **HERE), *there, *budgets)
    comes = incoming(cpu=cpu)

    assert (victims, violations) == (house.victims(comes, "n1"), house.violations(comes, "n1"))


OWN = frozenset({"kubestow"})


@pytest.mark.parametrize(
    ("rule", "cpu", "victims"),
    [
        pytest.param(VictimRule(OWN, spares_others=True), "2", ["c", "b"], id="only ours: both"),
        pytest.param(VictimRule(OWN, spares_others=True), "3", no("Insufficient cpu"), id="only ours: not enough"),
        pytest.param(VictimRule(OWN, prefers_own=True), "1", ["b"], id="ours first: the least important of them"),
        pytest.param(VictimRule(OWN, prefers_own=True), "3", ["a", "c", "b"], id="ours first: others if it must be"),
        pytest.param(VictimRule(frozenset(), spares_others=True), "1", NO_VICTIMS, id="only ours, and nobody is"),
    ],
)
def test_whose_pods(rule: VictimRule, cpu: str, victims: list[str] | Refusal) -> None:
    """`victims: own` never touches others' pods; `ownFirst` takes them only where ours are not enough."""
    house = House(node("n1", **HERE), low("a", 0, scheduler=OTHERS), low("b", 1), low("c", 2))

    assert victims == house.victims(incoming(cpu=cpu), "n1", rule)


def test_ours_first_counts_others() -> None:
    """What a node costs begins with how many pods of other schedulers must go."""
    house = House(node("n1", **HERE), low("a", 0, scheduler=OTHERS), low("b", 1), low("c", 2))
    costs = []
    for rule in (VictimRule(OWN), VictimRule(OWN, prefers_own=True)):
        found = house.on(incoming(cpu="3"), "n1", rule)
        assert not isinstance(found, Rejection)
        costs.append(found.cost[0])

    assert costs == [0, 1]


# -- failures ----------------------------------------------------------------------------------------------------------


def test_no_victim_at_all_is_an_error() -> None:
    """The filters refused the node and now they do not: upstream's text."""
    house = House(node("n1", **HERE), low("a"))

    assert house.victims(incoming(), "n1") == (Code.ERROR, ('expected at least one victim pod on node "n1"',))


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
    """Not the attempt: on another node there are victims; and the failure is told where there are none."""
    house = House(node("n1", **HERE), node("n2", cpu="1"), plugins=(Loses(on_add=on_add),))
    house.put(low("a", cpu="3"))
    alone = house.asked(incoming(cpu="3"))
    house.put(low("b", on="n2", cpu="1"))
    elsewhere = house.asked(incoming(cpu="1"))

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
    """On the way back, as upstream: whoever has just come leaves again. Without any of them it ends the node's dry run."""
    house = House(node("n1", **HERE), low("a", 2), low("b", 1), low("c", 0), plugins=(Fussy("Fussy"),))
    back = house.victims(incoming(cpu="0"), "n1")
    house.put(low("stays", 10, cpu="0"))

    assert back == ["a", "b", "c"]
    assert house.victims(incoming(cpu="3"), "n1") == (Code.ERROR, ('running "Fussy" filter plugin: alone',))
