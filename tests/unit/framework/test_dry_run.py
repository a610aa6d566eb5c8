"""Dry runs without some pods, counted or tried in the cache, and filters that name preemptible nodes: docs/spec/core.md §3.5, §3.10."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.core import nodeset
from scheduler.core.cooperative import Work, finish
from scheduler.core.nodeset import NodeSet
from scheduler.framework.interface import CycleState
from scheduler.framework.status import SKIP, AttemptError, Code, Groups, Rejection
from tests.unit.fake_plugins import Answers, FakePlugin, Refuses, Verifies
from tests.unit.objects import node
from tests.unit.plugins.preempting import PreemptionHarness, away_from, near_to, pod, spread

BOUND = {"on": "n1"}
ZONED = node(labels={"zone": "z1"}, cpu="2")


@dataclass
class Flat(FakePlugin):
    """Rejects the nodes in `names`, whatever pods are there."""

    name: str = "Flat"
    depends_on_pods: bool = False
    names: tuple[str, ...] = ()
    code: Code = Code.UNRESOLVABLE
    asked: list[NodeSet] = field(default_factory=list)

    def filter(self, state: CycleState, incoming: PodInfo, nodes: NodeSet) -> Groups:
        self.asked.append(nodes)
        out = nodes & self.harness.cluster.nodes.by_name(self.names)
        return {Rejection(self.name, self.code, ("flat no",)): out} if out else {}


@dataclass
class FlatButExact(Flat):
    """Its Filter gives a necessary condition; the exact answer is Verify's."""

    def verify(self, state: CycleState, incoming: PodInfo, slot: int) -> Rejection | None:
        return Rejection(self.name, Code.UNSCHEDULABLE, ("not quite",))


@dataclass
class Counts(FakePlugin):
    """Two pods on a node are too many."""

    name: str = "Counts"
    no = Rejection("Counts", Code.UNSCHEDULABLE, ("crowded",))

    def filter(self, state: CycleState, incoming: PodInfo, nodes: NodeSet) -> Groups:
        known = self.harness.cluster.nodes
        out = sum(1 << slot for slot in range(known.capacity) if nodes >> slot & 1 and known.pod_count[slot] > 1)
        return {self.no: out} if out else {}

    def tally(self, state: CycleState, incoming: PodInfo, slot: int) -> Counted:
        return Counted(int(self.harness.cluster.nodes.pod_count[slot]))

    def tally_shape(self, incoming: PodInfo) -> Hashable:
        return None


@dataclass
class CountsButExact(Counts):
    """The same with a Verify: then counting is not enough."""

    def verify(self, state: CycleState, incoming: PodInfo, slot: int) -> Rejection | None:
        return None


@dataclass
class Counted:
    there: int

    def add(self, other: PodInfo) -> None:
        self.there += 1

    def remove(self, other: PodInfo) -> None:
        self.there -= 1

    def verdict(self) -> Rejection | None:
        return Counts.no if self.there > 1 else None


@dataclass
class ReadsNoise(FakePlugin):
    """Reads the pods of a node if one of them is called `noise`."""

    name: str = "ReadsNoise"

    def filter(self, state: CycleState, incoming: PodInfo, nodes: NodeSet) -> Groups:
        return {}

    def reads_node_pods(self, state: CycleState, incoming: PodInfo, others: Iterable[PodInfo]) -> bool:
        return any(other.pod.metadata.name == "noise" for other in (*self.harness.cluster.pods(), *others))


@dataclass
class Follows(Answers):
    """Counts pods by AddPod and RemovePod, which are called after the columns have changed."""

    name: str = "Follows"
    fails_on: str = ""

    def filter(self, state: CycleState, incoming: PodInfo, nodes: NodeSet) -> Groups:
        return {}

    def add_pod(self, state: CycleState, incoming: PodInfo, other: PodInfo, slot: int) -> None:
        self.record("add", other, slot)

    def remove_pod(self, state: CycleState, incoming: PodInfo, other: PodInfo, slot: int) -> None:
        self.record("remove", other, slot)

    def record(self, what: str, other: PodInfo, slot: int) -> None:
        there = sorted(self.harness.cluster.nodes.pods(slot))
        self.harness.calls.append(f"{what} {other.uid} on {self.harness.cluster.nodes.name(slot)}: {' '.join(there)}")
        if what == self.fails_on:
            raise AttemptError("lost count", plugin=self.name)


# -- counted or tried --------------------------------------------------------------------------------------------------

SOFT = {"whenUnsatisfiable": "ScheduleAnyway"}
WISH = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}
        ]
    }
}


@pytest.mark.parametrize(("incoming", "there", "plugins", "counted"), [
    pytest.param({}, {}, (), True, id="a plain pod"),
    pytest.param({"ports": ("TCP/80",)}, {"ports": ("TCP/80",)}, (), True, id="host ports"),
    pytest.param({"topologySpreadConstraints": spread("x")}, {}, (), False, id="a hard spread constraint"),
    pytest.param({"topologySpreadConstraints": spread("x", **SOFT)}, {}, (), True, id="a soft spread constraint"),
    pytest.param({"affinity": away_from("x")}, {}, (), False, id="anti-affinity of the pod"),
    pytest.param({"affinity": near_to("x")}, {}, (), False, id="affinity of the pod"),
    pytest.param({"affinity": WISH}, {}, (), True, id="a wish about other pods"),
    pytest.param({"labels": {"app": "x"}}, {"affinity": away_from("x")}, (), False,
        id="a pod there has anti-affinity to it"),
    pytest.param({"labels": {"app": "y"}}, {"affinity": away_from("x")}, (), True,
        id="a pod there has anti-affinity to other pods"),
    pytest.param({}, {}, (Refuses("Other"),), False, id="a filter that says nothing of pods"),
    pytest.param({}, {}, (Flat(),), True, id="a filter that does not look at pods"),
    pytest.param({}, {}, (FlatButExact(),), False, id="a filter that has to verify"),
    pytest.param({}, {}, (Verifies("Exact"),), False, id="a filter that says nothing and has to verify"),
    pytest.param({}, {}, (Counts(),), True, id="a filter that counts aside"),
    pytest.param({}, {}, (CountsButExact(),), False, id="a filter that counts aside and has to verify"),
    pytest.param({}, {}, (ReadsNoise(),), True, id="a filter that the pods there do not concern"),
    pytest.param({}, {"name": "noise"}, (ReadsNoise(),), False, id="a filter that depends on the pods there"),
    pytest.param({}, {}, (Flat(), Refuses("Other")), False, id="one of two says nothing"),
])  # fmt: skip
def test_counted_or_tried(
    incoming: dict[str, Any], there: dict[str, Any], plugins: tuple[Any, ...], counted: bool
) -> None:
    harness = PreemptionHarness(ZONED, pod(**{"name": "a", **there, **BOUND}), plugins=plugins)
    what_if = harness.what_if(pod("incoming", 10, **incoming))
    slot = harness.slot("n1")
    stamp = harness.cluster.nodes.stamps[slot]
    with what_if.on(slot) as scene:
        scene.remove(next(iter(harness.cluster.pods())))

    assert counted is what_if.is_counted
    assert counted is (harness.cluster.nodes.stamps[slot] == stamp)


@pytest.mark.parametrize(
    ("newcomer", "plugins", "counted"),
    [
        pytest.param({}, (), True, id="a plain newcomer"),
        pytest.param({"affinity": near_to("x")}, (), True, id="a newcomer with affinity"),
        pytest.param({"affinity": away_from("x")}, (), False, id="a newcomer with anti-affinity"),
        pytest.param({"name": "noise"}, (ReadsNoise(),), False, id="one that a filter depends on"),
        pytest.param({"name": "noise"}, (), True, id="one that no filter depends on"),
    ],
)
def test_newcomers_may_have_to_be_tried(newcomer: dict[str, Any], plugins: tuple[Any, ...], counted: bool) -> None:
    harness = PreemptionHarness(ZONED, plugins=plugins)
    what_if = harness.what_if(pod("incoming", 10))
    newcomers = [pod(**{"name": "newcomer", "priority": 10, **newcomer})]

    assert what_if.is_counted
    assert counted is (what_if.counted(harness.slot("n1"), newcomers) is not None)


# -- those ahead -------------------------------------------------------------------------------------------------------

NO_CPU = Rejection("NodeResourcesFit", Code.UNSCHEDULABLE, ("Insufficient cpu",))


@pytest.mark.parametrize("plugins", [pytest.param((), id="counted"), pytest.param((Refuses("Other"),), id="tried")])
@pytest.mark.parametrize(
    ("nominated", "no"),
    [
        pytest.param(pod("other", 11, cpu="1"), NO_CPU, id="of higher priority"),
        pytest.param(pod("other", 10, cpu="1"), NO_CPU, id="of equal priority"),
        pytest.param(pod("other", 9, cpu="1"), None, id="of lower priority"),
        pytest.param(pod("other", 10, cpu="1", scheduler="default-scheduler"), NO_CPU, id="another scheduler's"),
        pytest.param(pod("incoming", 10, cpu="1"), None, id="the pod itself"),
        pytest.param(pod("there", 10, cpu="1"), None, id="one that is bound by now"),
        pytest.param(pod("other", 10, cpu="500m"), None, id="a small one"),
    ],
)
def test_nominated_pods_count(nominated: PodInfo, no: Rejection | None, plugins: tuple[Any, ...]) -> None:
    low = pod("low", on="n1", cpu="1")
    harness = PreemptionHarness(ZONED, node("n2"), low, pod("there", 10, on="n2"), plugins=plugins)
    harness.nominate("n1", nominated)
    incoming = pod("incoming", 10, cpu="1500m")
    with harness.what_if(incoming).on(harness.slot("n1")) as scene:
        scene.remove(low)

        assert no == scene.verdict()


# -- external plugins --------------------------------------------------------------------------------------------------


def test_add_pod_and_remove_pod_are_called_after_the_columns_change() -> None:
    low = pod("low", on="n1")
    harness = PreemptionHarness(ZONED, low, plugins=(Follows(),))
    harness.nominate("n1", pod("other", 10))
    what_if = harness.what_if(pod("incoming", 10))
    harness.calls.clear()
    with what_if.on(harness.slot("n1")) as scene:
        scene.remove(low)
        scene.verdict()
        scene.add(low)

    assert harness.calls == [
        "remove default/low on n1: ",
        "add default/other on n1: default/other",
        "add default/low on n1: default/low",
    ]


def test_a_plugin_whose_pre_filter_skipped_gets_no_calls() -> None:
    low = pod("low", on="n1")
    harness = PreemptionHarness(ZONED, low, plugins=(Follows(answer=SKIP),))
    what_if = harness.what_if(pod("incoming", 10))
    harness.calls.clear()
    with what_if.on(harness.slot("n1")) as scene:
        scene.remove(low)
        scene.verdict()

    assert what_if.is_counted
    assert harness.calls == []


# -- filters that do not look at pods ----------------------------------------------------------------------------------


def test_filters_that_ignore_pods_are_called_once_for_all_nodes() -> None:
    flat = Flat(names=("n2",))
    harness = PreemptionHarness(*(node(f"n{at}") for at in range(1, 5)), plugins=(flat,))
    what_if = harness.what_if(pod("incoming", 10))
    three = harness.cluster.nodes.by_name(("n1", "n2", "n3"))
    what_if.about(three)
    hopeless = what_if.hopeless_nodes
    with what_if.on(harness.slot("n2")) as scene:
        no = scene.verdict()
    asked = list(flat.asked)
    with what_if.on(harness.slot("n4")) as scene:
        last = scene.verdict()

    assert hopeless == what_if.hopeless_nodes == harness.cluster.nodes.by_name(("n2",))
    assert last is None
    assert no == Rejection("Flat", Code.UNRESOLVABLE, ("flat no",))
    assert asked == [three]
    assert flat.asked == [three, harness.cluster.nodes.present]


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_failing_filter_fails_this_node() -> None:
    """The failure is a rejection with upstream's text; other nodes are not affected."""
    harness = PreemptionHarness(ZONED, node("n2"), plugins=(Flat(names=("n1",), code=Code.ERROR),))
    what_if = harness.what_if(pod("incoming", 10))
    verdicts = []
    for name in ("n1", "n2"):
        with what_if.on(harness.slot(name)) as scene:
            verdicts.append(scene.verdict())

    assert verdicts == [Rejection("Flat", Code.ERROR, ('running "Flat" filter plugin: flat no',)), None]


# -- shapes ------------------------------------------------------------------------------------------------------------

BASE: dict[str, Any] = {"cpu": "1", "ports": ("TCP/80",)}


@pytest.mark.parametrize(
    ("more", "equal"),
    [
        pytest.param({"labels": {"app": "x"}}, True, id="labels"),
        pytest.param({"ns": "other"}, True, id="a namespace"),
        pytest.param({"nodeSelector": {"zone": "z1"}}, True, id="a node selector"),
        pytest.param({"cpu": "2"}, False, id="more cpu"),
        pytest.param({"requests": {"example.com/gpu": "1"}}, False, id="another resource"),
        pytest.param({"ports": ("UDP/80",)}, False, id="another port"),
        pytest.param({"ports": ()}, False, id="no port"),
    ],
)
def test_shape(more: dict[str, Any], equal: bool) -> None:
    harness = PreemptionHarness(ZONED)
    shapes: list[Hashable] = [harness.what_if(pod("incoming", 10, **spec)).shape for spec in (BASE, {**BASE, **more})]

    assert equal is (shapes[0] == shapes[1])


def test_where_the_pod_itself_is_nominated_to() -> None:
    """As its status says, else as we remember."""
    harness = PreemptionHarness(ZONED)
    harness.nominate("n1", pod("ours", 10))
    incoming = (pod("ours", 10), pod("ours", 10, nominated="n2"), pod("another", 10))

    assert [harness.what_if(one).nominated_to for one in incoming] == ["n1", "n2", ""]


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
    return partial(harness.runner.with_evictable_nodes, CycleState(), pod())


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


def test_the_worked_example() -> None:
    """The steps of the docstring of dry_run."""
    low = [pod(name, cpu="2", on="n1") for name in ("low-1", "low-2")]
    scene = PreemptionHarness(node(cpu="4"), *low)
    slot = scene.cluster.nodes.slot("n1")
    assert slot is not None
    before = scene.cluster.sizes()

    with scene.what_if(pod("p", 10, cpu="2")).on(slot) as simulated:
        verdicts = [simulated.verdict()]
        for victim in low:
            simulated.remove(victim)
        verdicts.append(simulated.verdict())
        for reprieved in reversed(low):
            simulated.add(reprieved)
            verdicts.append(simulated.verdict())

    full = ("Insufficient cpu",)
    assert [each.reasons if each is not None else None for each in verdicts] == [full, None, None, full]
    assert scene.cluster.sizes() == before
