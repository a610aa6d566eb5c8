"""Whether a pod may preempt, where, which node it takes, and whose pods are victims: docs/spec/core.md §3.10, §9.7."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.apps_and_policy import PodDisruptionBudget
from scheduler.api.core_v1 import Node
from scheduler.api.podinfo import PodInfo
from scheduler.config.args import DefaultPreemptionArgs, KubestowArgs
from scheduler.core.feature_gates import CHANGES
from scheduler.framework.interface import CycleState
from scheduler.framework.preemption_state import LOST_BEFORE_BRAKE
from scheduler.framework.status import AttemptError, Code, Nominate, Rejection
from scheduler.plugins.defaultpreemption import VictimRule
from tests.unit.fake_plugins import Answers
from tests.unit.objects import node
from tests.unit.plugins.preempting import NO_VICTIMS, OTHERS, Looks, PreemptionHarness, Refusal, Ticking, budget, pod

PARITY = KubestowArgs(parity=True)
X = {"app": "x"}
LOWEST = -(2**31)


def low(name: str, on: str, priority: int = 0, *, cpu: str = "1", **more: Any) -> PodInfo:
    return pod(name, priority, on=on, cpu=cpu, **more)


def incoming(priority: int = 10, *, cpu: str = "2", **more: Any) -> PodInfo:
    return pod("incoming", priority, cpu=cpu, **more)


def small(*names: str) -> list[Node]:
    """Nodes of 2 CPU."""
    return [node(name, cpu="2") for name in names]


# -- step 1: may it ----------------------------------------------------------------------------------------------------

TERMINATING = "preemption: not eligible due to a terminating pod on the nominated node."


@pytest.mark.parametrize(("comes", "there", "says"), [
    pytest.param(incoming(preemptionPolicy="Never"), [low("a", "n1")],
        "preemption: not eligible due to preemptionPolicy=Never.", id="a policy that forbids it"),
    pytest.param(incoming(nominated="n1"), [low("a", "n1", leaving="preemptor")], TERMINATING,
        id="a victim is leaving there"),
    pytest.param(incoming(nominated="n1"), [low("a", "n1", leaving="other")], None,
        id="a pod is leaving there for its own reasons"),
])  # fmt: skip
def test_eligibility(comes: PodInfo, there: list[PodInfo], says: str | None) -> None:
    """A pod that may not preempt says why, and its nomination stays as it is."""
    harness = PreemptionHarness(*small("n1", "n2"), node("tainted", cpu="2", taints=("t=:NoSchedule",)), *there)
    harness.put(low("full1", "n1"))
    harness.put(low("full2", "n2"))
    answer = harness.post_filtered(comes)

    if says is None:
        assert isinstance(answer, Nominate)
    else:
        assert answer == Rejection("DefaultPreemption", Code.UNSCHEDULABLE, (says,))


def test_a_nomination_that_only_we_remember_counts() -> None:
    """The patch may not have come back yet."""
    harness = PreemptionHarness(*small("n1"), low("a", "n1", leaving="preemptor"))
    harness.nominate("n1", incoming())

    assert harness.post_filtered(incoming()) == Rejection("DefaultPreemption", Code.UNSCHEDULABLE, (TERMINATING,))


def test_only_exposed_pods_make_it_wait() -> None:
    """With `victims: own` a leaving pod of another scheduler is no victim of ours."""
    harness = PreemptionHarness(
        *small("n1"), low("a", "n1", leaving="preemptor", scheduler=OTHERS), ours=KubestowArgs(victims="own")
    )
    harness.put(low("b", "n1"))

    assert harness.chosen(incoming(cpu="1", nominated="n1")) == ("n1", ["b"])


# -- step 2: nodes that come into question, and the text if none does ----------------------------------------------------


def test_only_unschedulable_nodes_come_into_question() -> None:
    """Exactly that code, however many lower pods there are."""
    harness = PreemptionHarness(*small("n1", "n2"), low("a", "n1"), low("b", "n2"))
    answer, _ = harness.driven(incoming(cpu="1500m"), harness.all_refused(Code.PENDING))

    assert isinstance(answer, Nominate)
    assert answer.rejection is not None
    text = "0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    assert answer.rejection.message == f"preemption: {text}"


@pytest.mark.parametrize(("nodes", "text"), [
    pytest.param(("n1",), 'expected at least one victim pod on node "n1"', id="one"),
    pytest.param(("n1", "n2"),
        '[expected at least one victim pod on node "n1", expected at least one victim pod on node "n2"]', id="several"),
])  # fmt: skip
def test_errors_alone(nodes: tuple[str, ...], text: str) -> None:
    """Without a candidate they are the answer; refusals of other nodes are left out, and the nomination stays."""
    harness = PreemptionHarness(*small(*nodes, "n9"), *(low(f"low-{name}", name) for name in nodes), low("b", "n9", 10))
    answer, _ = harness.driven(incoming(cpu="1"), harness.all_refused())

    assert answer == Rejection("DefaultPreemption", Code.ERROR, (f"preemption: {text}",))


# -- step 2: how many are looked at --------------------------------------------------------------------------------------


def looked_at(
    nodes: int, args: DefaultPreemptionArgs, *budgets: PodDisruptionBudget, empty: int = 0, start: float = 0.0
) -> list[str]:
    """Return the nodes of all dry runs; the first `empty` nodes hold an equal pod, the rest a lower one."""
    looks = Looks()
    harness = PreemptionHarness(
        *(node(f"n{at}", cpu="1") for at in range(nodes)), *budgets, args=args, plugins=(looks,)
    )
    harness.rng.value = start
    for at in range(nodes):
        harness.put(low(f"low{at}", f"n{at}", 10 if at < empty else 0, labels={"at": str(at)}))
    harness.driven(incoming(cpu="1"), harness.all_refused())
    return looks.at


def args(percentage: int, absolute: int) -> DefaultPreemptionArgs:
    return DefaultPreemptionArgs(percentage, absolute)


@pytest.mark.parametrize(
    ("nodes", "given", "looked"),
    [
        pytest.param(1000, args(10, 100), 100, id="196 as many by share as by number"),
        pytest.param(1100, args(10, 100), 110, id="the share"),
        pytest.param(20, args(10, 5), 5, id="the number is more than the share"),
        pytest.param(19, args(10, 1), 1, id="the share is rounded down"),
        pytest.param(20, args(0, 3), 3, id="no share"),
        pytest.param(5, args(10, 0), 1, id="neither: still until there is one"),
    ],
)
def test_how_many_are_looked_at(nodes: int, given: DefaultPreemptionArgs, looked: int) -> None:
    """min(max(n * percentage // 100, absolute), n), if each of them would do."""
    assert looked == len(looked_at(nodes, given))


def test_nodes_without_lower_pods_count_and_cost_nothing() -> None:
    """They are part of n, as upstream's, and no filter runs for them."""
    assert looked_at(20, args(50, 1), empty=8) == [f"n{at}" for at in range(8, 18)]


def test_the_search_starts_at_a_random_node_and_wraps_around() -> None:
    assert looked_at(6, args(0, 2), start=0.99) == ["n5", "n0"]


@pytest.mark.parametrize(
    ("protected", "looked"),
    [
        pytest.param(("0", "1", "2"), 4, id="the first three: until the fourth"),
        pytest.param(tuple(map(str, range(10))), 10, id="185 all of them"),
    ],
)
def test_until_one_violates_no_budget(protected: tuple[str, ...], looked: int) -> None:
    """Enough of them are not enough while each would violate a budget."""
    selector = {"matchExpressions": [{"key": "at", "operator": "In", "values": list(protected)}]}

    assert looked == len(looked_at(10, args(0, 2), budget("d", 0, selector)))


# -- step 4: which node ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [
    pytest.param([low("a", "n1", 5), low("b", "n1", 5)], [low("c", "n2", 1, labels=X, cpu="2")],
        id="(a) fewer violated budgets, whatever the priorities"),
    pytest.param([low("a", "n1", 5, cpu="2")], [low("c", "n2", 5), low("d", "n2", LOWEST)],
        id="(d) fewer, where the sum does not show it"),
    pytest.param([low("a", "n1", 5, started="3"), low("b", "n1", 4, started="1")],
        [low("c", "n2", 5, started="2"), low("d", "n2", 4, started="4")],
        id="(e) the later start, of the top priority only"),
])  # fmt: skip
@pytest.mark.parametrize("start", [pytest.param(0.0, id="met first"), pytest.param(0.5, id="met last")])
@pytest.mark.parametrize("ours", [pytest.param(PARITY, id="parity"), pytest.param(KubestowArgs(), id="default")])
def test_186_criteria(first: list[PodInfo], second: list[PodInfo], start: float, ours: KubestowArgs) -> None:
    """n1 wins by the first criterion in which the two differ, in each order."""
    harness = PreemptionHarness(*small("n1", "n2"), *first, *second, budget("d", 0, X), ours=ours)
    harness.rng.value = start
    name, victims = harness.chosen(incoming())

    assert name == "n1"
    assert sorted(victims) == sorted(one.pod.metadata.name for one in first)


@pytest.mark.parametrize(
    ("at_home", "elsewhere", "ours", "name"),
    [
        pytest.param([2], [1], KubestowArgs(), "n2", id="a lower top priority elsewhere is better than home"),
        pytest.param([2, 1], [2, 0], KubestowArgs(), "n1", id="home is better than a lower sum"),
        pytest.param([2, 1], [2, 0], PARITY, "n2", id="with parity home is nothing"),
        pytest.param([2, 1], [2], KubestowArgs(), "n1", id="home is better than fewer victims"),
    ],
)
def test_the_nominated_node_comes_first_among_the_equally_dear(
    at_home: list[int], elsewhere: list[int], ours: KubestowArgs, name: str
) -> None:
    """Victims for this pod may have left that node already."""
    harness = PreemptionHarness(*small("n1", "n2"), ours=ours)
    harness.rng.value = 0.5  # n2 is met first
    for where, priorities in (("n1", at_home), ("n2", elsewhere)):
        for at, priority in enumerate(priorities):
            harness.put(low(f"{where}-{at}", where, priority, cpu=str(2 // len(priorities))))

    assert name == harness.chosen(incoming(nominated="n1"))[0]


def test_violations_come_before_home() -> None:
    """A budget is not violated to stay where the pod was nominated to."""
    harness = PreemptionHarness(
        *small("n1", "n2"), low("a", "n1", labels=X, cpu="2"), low("b", "n2", 5, cpu="2"), budget("d", 0, X)
    )

    assert harness.chosen(incoming(nominated="n1")) == ("n2", ["b"])


@pytest.mark.parametrize(
    ("ours", "name"),
    [
        pytest.param(KubestowArgs(victims="all"), "n1", id="all: the lower priority"),
        pytest.param(KubestowArgs(victims="own"), "n2", id="own: where ours are"),
        pytest.param(KubestowArgs(victims="ownFirst"), "n2", id="ownFirst: fewer pods of other schedulers"),
        pytest.param(KubestowArgs(victims="own", parity=True), "n1", id="own with parity: all pods are exposed"),
        pytest.param(KubestowArgs(victims="ownFirst", parity=True), "n1", id="ownFirst with parity: as all"),
    ],
)
def test_197_whose_pods(ours: KubestowArgs, name: str) -> None:
    """The option selects the possible victims and the cost of pods of other schedulers."""
    there = low("a", "n1", 1, cpu="2", scheduler=OTHERS), low("b", "n2", 5, cpu="2")

    assert name == PreemptionHarness(*small("n1", "n2"), *there, ours=ours).chosen(incoming())[0]


@pytest.mark.parametrize(("ours", "says"), [
    pytest.param(KubestowArgs(), "preemption: found a potential placement for pod on node n1, preempting 2 victims.",
        id="said by default"),
    pytest.param(PARITY, "", id="not with parity"),
])  # fmt: skip
def test_what_success_says(ours: KubestowArgs, says: str) -> None:
    """The pod is nominated, and the victims are the very objects of the cache, the most important first."""
    two = [low("a", "n1", 1), low("b", "n1", 2)]
    harness = PreemptionHarness(*small("n1"), *two, ours=ours)

    assert harness.post_filtered(incoming()) == Nominate("n1", says, (two[1], two[0]))


# -- the brake (§10.1) -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "after_s", "name"),
    [
        pytest.param(KubestowArgs(), 1.0, "n2", id="left out"),
        pytest.param(KubestowArgs(), 3600.0, "n1", id="again after a while"),
        pytest.param(PARITY, 1.0, "n1", id="never with parity"),
    ],
)
def test_a_node_where_preemption_failed_before(ours: KubestowArgs, after_s: float, name: str) -> None:
    """A node where the place was lost again and again is left out for a while, for this pod."""
    clock = Ticking()
    harness = PreemptionHarness(
        *small("n1", "n2"), low("a", "n1", 1, cpu="2"), low("b", "n2", 5, cpu="2"), ours=ours, clock=clock
    )
    for _ in range(LOST_BEFORE_BRAKE + 1):
        harness.handle.preempting.victims_evicted(incoming().uid, "n1", clock.now())
    clock.time += after_s

    assert name == harness.chosen(incoming())[0]
    assert harness.chosen(pod("another", 10, cpu="2"))[0] == "n1"


# -- turns -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step_s", "turns"),
    [
        pytest.param(0.0, 0, id="in no time"),
        pytest.param(0.002, 3, id="some milliseconds a node"),
        pytest.param(0.006, 11, id="a long time for each"),
    ],
)
def test_the_event_loop_gets_its_turns(step_s: float, turns: int) -> None:
    """After 5 ms, between two nodes, and not behind the last; the answer is the same."""
    names = [f"n{at}" for at in range(12)]
    harness = PreemptionHarness(*small(*names), *(low(f"low-{name}", name) for name in names), clock=Ticking(step_s))
    answer, given = harness.driven(incoming(), harness.all_refused())

    assert isinstance(answer, Nominate)
    assert (answer.node_name, given) == ("n0", turns)


# -- the victims of one node -------------------------------------------------------------------------------------------

HERE: dict[str, Any] = {"labels": {"host": "n1", "zone": "z1"}, "cpu": "3", "pods": "5", "example.com/gpu": "2"}
NO_CPU: Refusal = (Code.UNSCHEDULABLE, ("Insufficient cpu",))
OWN = frozenset({"kubestow"})


@pytest.mark.parametrize(("rule", "cpu", "victims"), [
    pytest.param(VictimRule(OWN, spares_others=True), "2", ["c", "b"], id="only ours: both"),
    pytest.param(VictimRule(OWN, spares_others=True), "3", NO_CPU, id="only ours: not enough"),
    pytest.param(VictimRule(OWN, prefers_own=True), "1", ["b"], id="ours first: the least important of them"),
    pytest.param(VictimRule(OWN, prefers_own=True), "3", ["a", "c", "b"],
        id="ours first: pods of other schedulers if needed"),
    pytest.param(VictimRule(frozenset(), spares_others=True), "1", NO_VICTIMS, id="only ours, and there is none"),
])  # fmt: skip
def test_whose_pods(rule: VictimRule, cpu: str, victims: list[str] | Refusal) -> None:
    """`victims: own` evicts no pods of other schedulers; `ownFirst` does where ours are not enough."""
    harness = PreemptionHarness(
        node("n1", **HERE), low("a", "n1", 0, scheduler=OTHERS), low("b", "n1", 1), low("c", "n1", 2)
    )

    assert victims == harness.victims(incoming(cpu=cpu), "n1", rule)


def test_ours_first_counts_pods_of_other_schedulers() -> None:
    """What a node costs begins with how many pods of other schedulers must go."""
    harness = PreemptionHarness(
        node("n1", **HERE), low("a", "n1", 0, scheduler=OTHERS), low("b", "n1", 1), low("c", "n1", 2)
    )
    costs = []
    for rule in (VictimRule(OWN), VictimRule(OWN, prefers_own=True)):
        found = harness.on(incoming(cpu="3"), "n1", rule)
        assert not isinstance(found, Rejection)
        costs.append(found.cost[0])

    assert costs == [0, 1]


# -- failures ----------------------------------------------------------------------------------------------------------


def test_no_victim_at_all_is_an_error() -> None:
    """The filters refused the node and now they do not: upstream's text up to 1.37."""
    harness = PreemptionHarness(node("n1", **HERE), low("a", "n1"))

    assert harness.victims(incoming(cpu="1"), "n1") == (Code.ERROR, ('expected at least one victim pod on node "n1"',))


def test_a_node_that_needs_no_victim_is_rejected() -> None:
    """From 1.38 on the other nodes count, and without a candidate the text has the reasons of all nodes."""
    harness = PreemptionHarness(*small("n1", "n2"), low("a", "n1"), low("b", "n2", 10), gates=CHANGES["1.38"])
    alone, _ = harness.driven(incoming(cpu="1"), harness.all_refused())
    harness.put(node("n3", cpu="1"))
    harness.put(low("c", "n3", cpu="1"))
    harness.put(low("d", "n3", 10, cpu="0"))
    elsewhere, _ = harness.driven(incoming(cpu="1"), harness.all_refused())

    assert isinstance(alone, Nominate)
    assert alone.rejection is not None
    text = "0/2 nodes are available: 2 No preemption victims found for incoming pod."
    assert (alone.node_name, alone.rejection.message) == ("", f"preemption: {text}")
    assert isinstance(elsewhere, Nominate)
    assert (elsewhere.node_name, [victim.uid for victim in elsewhere.victims]) == ("n3", ["default/c"])


@pytest.mark.parametrize(("version", "started", "victim"), [
    pytest.param("1.37", "1", "b", id="1.37: upstream leaves it open, the name decides"),
    pytest.param("1.38", "1", "a", id="1.38: the lower uid is more important"),
    pytest.param("1.38", None, "a", id="1.38: pods that have not started are equal, too"),
])  # fmt: skip
def test_victims_of_equal_priority_and_start(version: str, started: str | None, victim: str) -> None:
    one = pod("a", uid="2", on="n1", cpu="1", started=started)
    other = pod("b", uid="1", on="n1", cpu="1", started=started)
    harness = PreemptionHarness(node("n1", cpu="2"), one, other, gates=CHANGES[version])

    assert harness.chosen(incoming(cpu="1")) == ("n1", [victim])


def test_a_pod_that_has_not_started_is_the_least_important() -> None:
    harness = PreemptionHarness(node("n1", cpu="2"), low("a", "n1", cpu="1"), low("b", "n1", cpu="1", started="9"))

    assert harness.chosen(incoming(cpu="1")) == ("n1", ["a"])


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
    harness.put(low("a", "n1", cpu="3"))
    alone = harness.post_filtered(incoming(cpu="3"))
    harness.put(low("b", "n2"))
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
    harness = PreemptionHarness(
        node("n1", **HERE), low("a", "n1", 2), low("b", "n1", 1), low("c", "n1", 0), plugins=(Fussy("Fussy"),)
    )
    back = harness.victims(incoming(cpu="0"), "n1")
    harness.put(low("stays", "n1", 10, cpu="0"))

    assert back == ["a", "b", "c"]
    assert harness.victims(incoming(cpu="3"), "n1") == (Code.ERROR, ('running "Fussy" filter plugin: alone',))
