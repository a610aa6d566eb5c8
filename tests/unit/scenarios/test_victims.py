"""Rows 183-186, 196 and 197 of docs/spec/core.md §9: who is evicted, of the pods on a node and of the nodes.

The choice is compared with a literal one in tests/unit/plugins/. Ids begin with the row's number.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import pytest

from scheduler.core.nodeset import NodeSet
from scheduler.core.podinfo import PodInfo
from scheduler.core.verdicts import Groups, Rejection
from scheduler.framework.profile import BoundFilter
from scheduler.framework.state import CycleState
from tests.unit.brain import Brain
from tests.unit.scenarios.evicting import NO_VICTIMS, OTHERS, evicted, found, full_nodes, nominations, ours
from tests.unit.scenarios.seen import metric
from tests.unit.toys import Toy

HIGH: dict[str, Any] = {"cpu": "2", "priority": 10}
LOWEST = -(2**31)


# -- who on a node -----------------------------------------------------------------------------------------------------

MORNING, NOON, EVENING = (f"2026-01-01T{hour}:00:00Z" for hour in ("09", "12", "18"))


@pytest.mark.parametrize(
    ("there", "gone"),
    [
        pytest.param([{"priority": 3}, {"priority": 1}, {"priority": 2}], ["b"], id="183 the least important"),
        pytest.param(
            [{"started": MORNING}, {"started": NOON}, {"started": EVENING}], ["c"], id="183 of equals the youngest"
        ),
        pytest.param([{"started": EVENING}, {}, {"started": MORNING}], ["b"], id="183 who has not started is youngest"),
        pytest.param(
            [{"priority": -10, "started": MORNING}, {"priority": -20}, {}],
            ["b"],
            id="183 a priority below zero is less than none",
        ),
        pytest.param(
            [{"priority": 1, "cpu": "500m"}, {"priority": 2}, {"priority": 3, "cpu": "1500m"}],
            ["b"],
            id="183 a lesser pod stays whose room does not help",
        ),
        pytest.param([{"priority": 10}, {"priority": 20}, {"priority": 9}], ["c"], id="183 only who is below it"),
    ],
)
async def test_of_three_one_is_enough(there: list[dict[str, Any]], gone: list[str]) -> None:
    """Whoever can stay, stays: the most important are asked first."""
    brain = Brain()
    brain.node("n1", cpu="3")
    for name, spec in zip("abc", there, strict=True):
        brain.pod(name, on="n1", **{"cpu": "1", **OTHERS, **spec})
    brain.pod("p", cpu="1", priority=10)
    await brain.settle()

    assert evicted(brain) == gone


@pytest.mark.parametrize("protected", ["", "a", "b", "c"])
async def test_of_several_victims_the_most_important_goes_first(protected: str) -> None:
    """All but the last at once, the least important last: its end is what wakes the preemptor. Budgets change nothing."""
    brain = Brain()
    brain.budget("guard", allowed=0, app=protected)
    brain.node("n1", cpu="3")
    for name, priority in (("a", 2), ("b", 1), ("c", 3)):
        brain.pod(name, on="n1", cpu="1", priority=priority, labels={"app": name}, **OTHERS)
    brain.pod("p", cpu="3", priority=10)
    await brain.settle()

    assert evicted(brain) == ["c", "a", "b"]
    assert brain.message("p") == found("n1", 3)


async def test_who_is_protected_is_spared_first() -> None:
    """The budget's pod stays, though it is the least important of three; its budget was asked in order of importance."""
    brain = Brain()
    brain.budget("guard", allowed=1, app="db")
    brain.node("n1", cpu="3")
    for name, priority in (("a", 3), ("b", 2), ("c", 1)):
        brain.pod(name, on="n1", cpu="1", priority=priority, labels={"app": "db"} if name != "b" else {}, **OTHERS)
    brain.pod("p", cpu="2", priority=10)
    await brain.settle()

    assert evicted(brain) == ["a", "b"]


# -- which node --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "disrupted", "gone"),
    [
        pytest.param(0, (), "low-n2", id="184 a budget that allows nobody: the other node, though it is dearer"),
        pytest.param(1, (), "low-n1", id="184 a budget that allows one"),
        pytest.param(0, ("low-n1",), "low-n1", id="184 the pod may go already"),
    ],
)
async def test_a_budget_on_one_of_two_nodes(allowed: int, disrupted: tuple[str, ...], gone: str) -> None:
    """No violation is cheaper than any."""
    brain = Brain()
    brain.budget("guard", allowed=allowed, disrupted=disrupted, app="db")
    full_nodes(brain, "n1", priority=1, labels={"app": "db"})
    full_nodes(brain, "n2", priority=5)
    brain.pod("p", **HIGH)
    await brain.settle()

    assert evicted(brain) == [gone]


async def test_185_where_all_violate_the_fewest_do() -> None:
    """Budgets are heeded as far as that goes."""
    brain = Brain()
    brain.budget("guard", allowed=0, app="db")
    for name, protected in (("n1", 2), ("n2", 1), ("n3", 2)):
        brain.node(name, cpu="2")
        for i in range(2):
            labels = {"app": "db"} if i < protected else {}
            brain.pod(f"{name}-{i}", on=name, cpu="1", labels=labels, priority=int(name == "n2"), **OTHERS)
    brain.pod("p", **HIGH)
    await brain.settle()

    assert sorted(evicted(brain)) == ["n2-0", "n2-1"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param([(9, MORNING)] * 3, [(1, EVENING, "db")], id="186 fewest violations, before all else"),
        pytest.param([(3, MORNING)] * 4, [(5, EVENING)], id="186 then the lesser of the most important victims"),
        pytest.param(
            [(5, MORNING), (3, MORNING)], [(5, EVENING), (4, EVENING)], id="186 then the smaller sum of priorities"
        ),
        pytest.param([(5, MORNING)], [(5, EVENING)] * 2, id="186 which is smaller for fewer victims"),
        pytest.param([(-5, MORNING)], [(-5, EVENING)] * 2, id="186 also where priorities are below zero"),
        pytest.param(
            [(5, MORNING), (LOWEST, MORNING), (LOWEST, MORNING)],
            [(5, EVENING), (-1000, EVENING)],
            id="186 or, where they are worth nothing, for more",
        ),
        pytest.param([(5, MORNING)], [(5, EVENING), (LOWEST, EVENING)], id="186 then fewer victims, of an equal sum"),
        pytest.param(
            [(5, NOON), (1, MORNING)],
            [(5, MORNING), (1, EVENING)],
            id="186 then the later start of the most important victim",
        ),
        pytest.param(
            [(5, NOON), (5, NOON)], [(5, MORNING), (5, EVENING)], id="186 of several such the earliest start counts"
        ),
    ],
)
@pytest.mark.parametrize("turned", [False, True], ids=["the first node", "the second node"])
async def test_the_cheaper_node(one: list[Any], other: list[Any], turned: bool) -> None:
    """Both would do, `one` is cheaper by the one criterion and no dearer by those before it."""
    brain = Brain()
    brain.budget("guard", allowed=0, app="db")
    for node, victims in (("n1", other), ("n2", one)) if turned else (("n1", one), ("n2", other)):
        brain.node(node)
        for i, (priority, started, *app) in enumerate(victims):
            labels = {"app": app[0]} if app else {}
            spec = {"cpu": "100m", "priority": priority, "started": started, "labels": labels}
            brain.pod(f"{node}-{i}", on=node, **spec, **OTHERS)
    brain.pod("p", cpu="4", priority=10)
    await brain.settle()

    chosen = "n2" if turned else "n1"
    assert nominations(brain) == [chosen]
    assert sorted(evicted(brain)) == [f"{chosen}-{i}" for i in range(len(one))]


async def test_186_between_equals_the_lot_decides() -> None:
    """Where the search begins is drawn."""
    chosen = set()
    for seed in range(10):
        brain = Brain()
        brain.parts.chance.seed(seed)
        full_nodes(brain, "n1", "n2", started=NOON)
        brain.pod("p", **HIGH)
        await brain.settle()
        chosen.update(nominations(brain))

    assert chosen == {"n1", "n2"}


@pytest.mark.parametrize(
    ("parity", "stays"),
    [pytest.param(False, True, id="it is kept"), pytest.param(True, False, id="parity: the later start decides")],
)
async def test_among_equals_the_node_where_room_was_made_already(parity: bool, stays: bool) -> None:
    """The pod is nominated there: going elsewhere would have cost its first victims for nothing."""
    brain = Brain(ours(parity=parity))
    for name in ("n1", "n2", "n3"):
        brain.node(name, cpu="2")
        for i in range(1 if name == "n2" else 2):
            brain.pod(f"{name}-{i}", on=name, cpu="1", **OTHERS)
    brain.pod("early", on="n2", cpu="1", started=MORNING, **OTHERS)
    brain.pod("p", nominated="n2", **HIGH)
    await brain.settle()

    assert (sorted(evicted(brain)) == ["early", "n2-0"]) == stays
    assert len(evicted(brain)) == 2


@dataclass
class Counts(Toy):
    """A filter that refuses nobody, and notes on which nodes it is asked to count pods aside."""

    seen: list[str] = field(default_factory=list)

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        return {}

    def tally(self, state: CycleState, pod: PodInfo, slot: int) -> Counts:
        self.seen.append(self.world.cluster.nodes.name(slot))
        return self

    def tally_shape(self, pod: PodInfo) -> Hashable:
        return None

    def add(self, other: PodInfo) -> None:
        pass

    def remove(self, other: PodInfo) -> None:
        pass

    def verdict(self) -> Rejection | None:
        return None


@pytest.mark.parametrize(
    ("nodes", "tried"),
    [
        pytest.param(1000, 100, id="196 a tenth of a thousand nodes"),
        pytest.param(300, 100, id="196 never fewer than a hundred"),
        pytest.param(60, 60, id="196 or all"),
    ],
)
async def test_enough_nodes_are_tried(nodes: int, tried: int) -> None:
    """From a drawn one on, in order, around the end."""
    names = [f"n{i}" for i in range(nodes)]
    firsts = set()
    for seed in range(3):
        brain = Brain()
        brain.parts.chance.seed(seed)
        counts = Counts("C")
        counts.world = brain
        profile = brain.parts.profiles["kubestow"]
        object.__setattr__(
            profile, "filter", (*profile.filter, BoundFilter("C", counts.filter, None, heeds_pods=True, tally=counts))
        )
        full_nodes(brain, *names)
        brain.pod("p", **HIGH)
        await brain.settle()

        first = names.index(counts.seen[0])
        firsts.add(first)
        assert counts.seen == (names[first:] + names[:first])[:tried]
        assert len(evicted(brain)) == 1

    assert len(firsts) > 1


async def test_196_while_none_is_without_violation_the_search_goes_on() -> None:
    """Of 301 nodes one has a victim that no budget protects, far from where the search begins."""
    for seed in range(3):  # which begin among the last hundred
        brain = Brain()
        brain.parts.chance.seed(seed)
        brain.budget("guard", allowed=0, app="db")
        full_nodes(brain, *(f"n{i}" for i in range(150)), labels={"app": "db"})
        full_nodes(brain, "open")
        full_nodes(brain, *(f"n{i}" for i in range(150, 300)), labels={"app": "db"})
        brain.pod("p", **HIGH)
        await brain.settle()

        assert evicted(brain) == ["low-open"]


# -- several schedulers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "gone"),
    [
        pytest.param({}, ["low-n1"], id="197 by default everybody's pods may be victims"),
        pytest.param({"victims": "all"}, ["low-n1"], id="197 all"),
        pytest.param({"victims": "own"}, ["mine"], id="197 own: the dearer pod, because it is ours"),
        pytest.param({"victims": "ownFirst"}, ["mine"], id="197 own first: the same, where there is one of ours"),
        pytest.param({"victims": "own", "parity": True}, ["low-n1"], id="197 parity: as upstream"),
        pytest.param({"victims": "ownFirst", "parity": True}, ["low-n1"], id="197 parity, own first: as upstream"),
    ],
)
async def test_whose_pods_are_victims(args: dict[str, Any], gone: list[str]) -> None:
    """A cheap pod of another scheduler on one node, a dear one of ours on the other."""
    brain = Brain(ours(**args))
    full_nodes(brain, "n1", priority=1)
    brain.node("n2", cpu="2")
    brain.pod("mine", on="n2", cpu="2", priority=5)
    brain.pod("p", **HIGH)
    await brain.settle()

    assert evicted(brain) == gone
    others = sum(name != "mine" for name in gone)
    assert metric(brain, "kubestow_preemption_other_victims_total") == others


@pytest.mark.parametrize(
    ("victims", "gone"),
    [
        pytest.param("all", ["theirs"], id="197 all: the lesser"),
        pytest.param("own", ["mine"], id="197 own: ours, though it is worth more"),
        pytest.param("ownFirst", ["mine"], id="197 own first: ours, though it is worth more"),
    ],
)
async def test_whose_pod_on_one_node(victims: str, gone: list[str]) -> None:
    """Each alone would be enough."""
    brain = Brain(ours(victims=victims))
    brain.node("n1", cpu="2")
    brain.pod("mine", on="n1", cpu="1", priority=5)
    brain.pod("theirs", on="n1", cpu="1", priority=1, **OTHERS)
    brain.pod("p", cpu="1", priority=10)
    await brain.settle()

    assert evicted(brain) == gone


@pytest.mark.parametrize(
    ("victims", "gone"),
    [pytest.param("own", [], id="197 own: nobody"), pytest.param("ownFirst", ["low-n1"], id="197 own first: theirs")],
)
async def test_only_others_could_be_victims(victims: str, gone: list[str]) -> None:
    """Ours first is a wish, ours only a rule."""
    brain = Brain(ours(victims=victims))
    full_nodes(brain, "n1")
    brain.pod("p", **HIGH)
    await brain.settle()

    assert evicted(brain) == gone
    assert brain.message("p") == (found("n1", 1) if gone else NO_VICTIMS)
