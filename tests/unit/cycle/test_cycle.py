"""One attempt with fake plugins: how their answers are combined (docs/spec/core.md §3.1–§3.6, §9.4, §9.5)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.core.cooperative import Work
from scheduler.core.nodeset import NodeSet, each
from scheduler.cycle import Scheduled, SchedulingFailed, Unschedulable
from scheduler.framework.interface import CycleState
from scheduler.framework.status import SKIP, AttemptError, Code, Groups, Narrow, Nominate, Rejection, Wait
from tests.unit.fake_plugins import (
    AfterFilter,
    Answers,
    CycleHarness,
    FakePlugin,
    Holds,
    Refuses,
    RefusesOne,
    Scaled,
    Scored,
    TakesLong,
    Verifies,
    a_pod,
)

# -- Filter and its messages (§9.4) ------------------------------------------------------------------------------------


def test_103_no_nodes_at_all() -> None:
    """No plugin is named, so the error back-off retries the pod."""
    outcome = CycleHarness("").unschedulable()

    assert (outcome.message, outcome.diagnosis.unschedulable_plugins, outcome.nominate) == (
        "no nodes available to schedule pods",
        set(),
        "",
    )


def test_the_first_plugin_that_refuses_a_node_gives_its_reason() -> None:
    a = Refuses("A", reasons={"n1": "a"})
    b = Refuses("B", reasons={"n1": "b", "n2": "b|c"}, code=Code.UNRESOLVABLE)

    outcome = CycleHarness("n1 n2", a, b).unschedulable()

    assert outcome.message == "0/2 nodes are available: 1 a, 1 b, 1 c."
    assert outcome.diagnosis.unschedulable_plugins == {"A", "B"}


def test_the_one_node_form_is_mapped_over_the_candidates() -> None:
    assert CycleHarness("n1 n2", RefusesOne("A", names=("n1",))).scheduled() == "n2"


def test_113_a_filter_that_fails_ends_the_attempt() -> None:
    harness = CycleHarness("n1 n2", Refuses("A", reasons={"n1": "boom"}, code=Code.ERROR))

    assert harness.failed().message == 'running "A" filter plugin: boom'


def test_122_skip_in_prefilter_skips_filter_and_add_pod() -> None:
    harness = CycleHarness("n1", Answers("A", answer=SKIP))
    harness.nominated.by_node["n1"] = (a_pod("other", priority=9),)

    harness.scheduled()

    assert harness.calls == ["A.pre_filter"]


def only(*names: str) -> Narrow:
    return Narrow(frozenset(names))


def no(plugin: str, reason: str, code: Code = Code.UNSCHEDULABLE) -> Rejection:
    return Rejection(plugin, code, (reason,))


@pytest.mark.parametrize(("answers", "reason", "plugins"), [
    pytest.param({"A": only("gone")}, "2 node(s) didn't satisfy plugin(s) [A]", "A", id="117 only a missing node"),
    pytest.param({"A": only("n1"), "B": only("n2")}, "node(s) didn't satisfy plugin(s) [A B] simultaneously", "AB",
        id="118 two that exclude each other"),
    pytest.param({"A": only()}, "node(s) didn't satisfy plugin A", "A", id="one plugin that allows no node"),
    pytest.param({"A": no("A", "x", Code.UNRESOLVABLE)}, "x", "A", id="116 an unresolvable PreFilter"),
    pytest.param({"A": no("A", "x"), "B": no("B", "y")}, "y", "B", id="of several unschedulable ones the last counts"),
])  # fmt: skip
def test_prefilter_refusals(answers: dict[str, Narrow | Rejection], reason: str, plugins: str) -> None:
    """PreFilter's table of §3.2."""
    outcome = CycleHarness("n1 n2", *(Answers(name, answer=each) for name, each in answers.items())).unschedulable()

    assert outcome.message == f"0/2 nodes are available: {reason}."
    assert outcome.diagnosis.unschedulable_plugins == set(plugins)


def test_an_error_in_prefilter_names_the_plugin() -> None:
    harness = CycleHarness("n1", Answers("A", answer=no("A", "bad", Code.ERROR)))

    assert harness.failed().message == 'running PreFilter plugin "A": bad'


def test_a_plugin_that_raises_attempt_error_costs_the_attempt() -> None:
    @dataclass
    class Raises(FakePlugin):
        def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
            raise AttemptError("lost my state")

    assert CycleHarness("n1", Raises("A")).failed().message == "lost my state"


def test_postfilter_gets_every_node_and_its_message_is_appended() -> None:
    """§3.9: the message is appended without a dot. A node that PreFilter excluded has the absent status."""
    after = AfterFilter()
    narrow = Answers("N", answer=Narrow(frozenset({"n1"})))

    outcome = CycleHarness("n1 n2", narrow, Refuses("A", reasons={"n1": "a"}), after).unschedulable()

    assert outcome.message.endswith(". no way out")
    assert sorted(nodes.bit_count() for nodes in after.seen.values()) == [1, 1]
    assert outcome.nominate is None


def test_a_postfilter_that_fails_is_not_the_pods_error() -> None:
    """§3.9: its message is appended, the pod stays unschedulable, and its nomination stays."""
    failed = AfterFilter("P", answer=no("P", "lister is away", Code.ERROR))

    outcome = CycleHarness("n1", Refuses("A", reasons={"n1": "a"}), failed).unschedulable()

    assert outcome.message == "0/1 nodes are available: 1 a. lister is away"
    assert (outcome.nominate, outcome.diagnosis.unschedulable_plugins) == (None, {"A"})


@pytest.mark.parametrize("code", [Code.UNRESOLVABLE, Code.ERROR], ids=["nothing can help", "a failure"])
def test_the_message_of_a_postfilter_that_ends_the_round_counts_alone(code: Code) -> None:
    """§3.2, §3.9: earlier messages are dropped, the nomination stays, and later plugins are not called."""
    first = AfterFilter("P", answer=Nominate("", rejection=no("P", "first")))
    stops = AfterFilter("Q", answer=no("Q", "stop", code))
    harness = CycleHarness("n1", Refuses("A", reasons={"n1": "a"}), first, stops, AfterFilter("R"))

    outcome = harness.unschedulable()

    assert (outcome.message, outcome.nominate) == ("0/1 nodes are available: 1 a. stop", None)
    assert harness.calls == ["A.filter", "P.post_filter", "Q.post_filter"]


# -- nominated pods (§3.5) ---------------------------------------------------------------------------------------------


@dataclass
class OnePodPerNode(FakePlugin):
    """Refuses nodes that hold a pod already."""

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        full = 0
        for slot in each(nodes):
            full |= bool(self.harness.cluster.nodes.pod_count[slot]) << slot
        return {Rejection(self.name, Code.UNSCHEDULABLE, ("full",)): full} if full else {}


@pytest.mark.parametrize(
    ("ours", "theirs", "fits"),
    [
        pytest.param(0, 5, False, id="123 a nominated pod of higher priority takes the capacity"),
        pytest.param(5, 5, False, id="a nominated pod of equal priority takes it, too"),
        pytest.param(5, 0, True, id="124 a nominated pod of lower priority is ignored"),
    ],
)
def test_nominated_pods_count(ours: int, theirs: int, fits: bool) -> None:
    harness = CycleHarness("n1", OnePodPerNode())
    harness.nominated.by_node["n1"] = (a_pod("other", priority=theirs),)

    outcome = harness.attempt(a_pod(priority=ours))

    assert isinstance(outcome, Scheduled if fits else Unschedulable)
    assert int(harness.cluster.nodes.pod_count.sum()) == int(fits)


def test_126_a_pod_is_not_counted_against_itself() -> None:
    harness = CycleHarness("n1", OnePodPerNode())
    harness.nominated.by_node["n1"] = (a_pod(),)

    assert harness.scheduled(a_pod()) == "n1"


def test_127_128_129_the_nominated_node_is_taken_without_scoring() -> None:
    score = Scored("S", table={"n2": 100})
    harness = CycleHarness("n1 n2 n3", Refuses("A", reasons={"n3": "a"}), score)

    assert harness.scheduled(a_pod("a", nominated="n1")) == "n1"
    assert not any("score" in call for call in harness.calls)
    assert harness.scheduled(a_pod("b", nominated="n3")) == "n2"
    assert harness.scheduled(a_pod("c", nominated="gone")) == "n2"


# -- plugins that yield -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exact", "nominated", "calls"),
    [
        pytest.param(False, "", ["filter n1 n2", "verify n1", "verify n2", "prepare n2"], id="Verify from the best"),
        pytest.param(True, "", ["filter n1 n2", "verify n1", "verify n2", "prepare n2"], id="every node before Score"),
        pytest.param(False, "n2", ["filter n2", "verify n2", "prepare n2"], id="the nominated node alone"),
    ],
)
@pytest.mark.parametrize("yields", [0, 3], ids=["at once", "with work"])
def test_a_plugin_may_yield_before_its_answer(exact: bool, nominated: str, calls: list[str], yields: int) -> None:
    harness = CycleHarness(
        "n1 n2 n3",
        Refuses("A", reasons={"n3": "a"}),
        TakesLong("P", names=("n1",), yields=yields),
        Scored("S", table={"n1": 9}),
        exact=exact,
    )

    harness.scheduled(a_pod(nominated=nominated))

    assert [call.removeprefix("P.") for call in harness.calls if call.startswith("P.")] == calls


@dataclass
class Watches(TakesLong):
    """Counts the pods on nodes before and after each yield."""

    seen: list[int] = field(default_factory=list)

    def _yielding(self) -> Work[None]:
        for _ in super()._yielding():
            self._look()
            yield
            self._look()

    def _look(self) -> None:
        self.seen.append(int(self.harness.cluster.nodes.pod_count.sum()))


def test_a_pod_that_a_trial_adds_to_the_cache_is_not_visible_outside() -> None:
    """The pod is taken out of the cache wherever a plugin yields."""
    harness = CycleHarness("n1", watches := Watches("P", yields=3), OnePodPerNode(), exact=True)
    harness.nominated.by_node["n1"] = (a_pod("other", priority=9),)

    seen_outside = [int(harness.cluster.nodes.pod_count.sum()) for _ in harness.cycle.attempt(a_pod(), 1)]

    assert seen_outside == [0] * 6
    assert watches.seen == [1] * 12
    assert harness.calls == ["P.filter n1", "P.verify n1"]


def test_an_attempt_that_is_closed_in_a_trial_restores_the_cache() -> None:
    harness = CycleHarness("n1", TakesLong("P", yields=3), OnePodPerNode(), exact=True)
    harness.nominated.by_node["n1"] = (a_pod("other", priority=9),)
    attempt = harness.cycle.attempt(a_pod(), 1)
    next(attempt)

    attempt.close()

    assert harness.cluster.nodes.pod_count.sum() == 0
    harness.nominated.by_node.clear()
    assert harness.scheduled() == "n1"


# -- scoring and Verify (§9.5) -----------------------------------------------------------------------------------------


def test_the_highest_total_wins() -> None:
    harness = CycleHarness("n1 n2 n3", Scored("S", table={"n1": 10, "n2": 60}), Scored("T", table={"n3": 50, "n2": 1}))

    assert harness.scheduled() == "n2"


def test_111_one_feasible_node_is_not_scored() -> None:
    harness = CycleHarness("n1 n2", Refuses("A", reasons={"n1": "a"}), Scored("S"))

    assert harness.scheduled() == "n2"
    assert not any("score" in call for call in harness.calls)


def test_131_a_score_out_of_range_is_an_error_of_the_attempt() -> None:
    message = (
        "applying score defaultWeights on Score plugins: "
        'plugin "S" returns an invalid score 101, it should in the range of [0, 100] after normalizing'
    )

    assert CycleHarness("n1 n2", Scored("S", table={"n1": 101})).failed().message == message


def test_132_ties_are_broken_evenly() -> None:
    harness = CycleHarness("n1 n2 n3")

    chosen = Counter(harness.scheduled(a_pod(f"p{i}")) for i in range(900))

    assert set(chosen) == {"n1", "n2", "n3"}
    assert min(chosen.values()) > 200


def test_verify_goes_down_the_scores_until_a_node_holds() -> None:
    """Verify is called for the best nodes only (ADR 0003)."""
    hard = Verifies("V", names=("n3",))
    harness = CycleHarness("n1 n2 n3", hard, Scored("S", table={"n1": 1, "n2": 2, "n3": 3}))

    assert harness.scheduled() == "n2"
    assert [call for call in harness.calls if "verify" in call] == ["V.verify n3", "V.verify n2"]


def test_scores_are_normalised_again_when_an_extreme_falls_out() -> None:
    hard = Verifies("V", names=("n3",))
    scaled = Scaled("S", table={"n1": 5, "n2": 1, "n3": 10})
    harness = CycleHarness("n1 n2 n3", hard, scaled, Scored("T", table={"n2": 60, "n3": 90}))

    assert harness.scheduled() == "n1"


def test_when_verify_refuses_all_reasons_come_in_plugin_order() -> None:
    """The reason of a node is that of the earliest plugin, as upstream."""
    outcome = CycleHarness(
        "n1 n2", Verifies("V", names=("n1", "n2")), Refuses("A", reasons={"n1": "a"})
    ).unschedulable()

    assert outcome.message == "0/2 nodes are available: 2 too hard."


def test_exact_verifies_every_node_before_scoring() -> None:
    harness = CycleHarness("n1 n2", Verifies("V", names=("n1",)), exact=True)

    assert harness.scheduled() == "n2"
    assert [call for call in harness.calls if "verify" in call] == ["V.verify n1", "V.verify n2"]


def test_106_110_an_explicit_percentage_limits_the_scored_nodes_and_moves_on() -> None:
    """10 % of 1000 is 100 nodes. The next pod starts where the first stopped."""
    score = Scored("S")
    harness = CycleHarness(" ".join(f"n{i}" for i in range(1000)), score, percentage=10)

    first = harness.cluster.nodes.slot(harness.scheduled(a_pod("a")))
    second = harness.cluster.nodes.slot(harness.scheduled(a_pod("b")))

    assert first is not None
    assert second is not None
    assert first < 100 <= second < 200


def test_when_verify_refuses_the_whole_sample_the_other_nodes_are_tried() -> None:
    """A percentage limits the work. It must not make a pod unschedulable that has a node."""
    bad = [f"n{i}" for i in range(250)]
    harness = CycleHarness(" ".join([*bad, "good"]), Verifies("V", names=tuple(bad)), percentage=5)

    assert harness.scheduled() == "good"


# -- Reserve and Permit -----------------------------------------------------------------------------------------------


def test_209_a_failed_reserve_unreserves_all_in_reverse_order() -> None:
    harness = CycleHarness("n1 n2", Holds("A"), Holds("B", reserves=no("B", "taken")), Holds("C"))

    outcome = harness.unschedulable()

    assert outcome.message == "0/1 nodes are available: 1 taken."
    assert (outcome.diagnosis.unschedulable_plugins, outcome.nominate) == ({"B"}, "")
    assert harness.calls == ["A.reserve", "B.reserve", "C.unreserve", "B.unreserve", "A.unreserve"]


def test_permit_may_refuse_or_hold() -> None:
    held = CycleHarness("n1", Holds("A", permits=Wait(5))).attempt()
    refused = CycleHarness("n1", Holds("A", permits=no("A", "later"))).unschedulable()

    assert isinstance(held, Scheduled)
    assert held.waits == {"A": Wait(5)}
    assert refused.message == "0/1 nodes are available: 1 later."


DISK = no("A", "disk", Code.ERROR)


@pytest.mark.parametrize(
    ("plugin", "point"),
    [
        pytest.param(Holds("A", reserves=DISK), "Reserve", id="Reserve"),
        pytest.param(Holds("A", permits=DISK), "Permit", id="Permit"),
    ],
)
def test_an_error_in_reserve_or_permit_is_an_error_of_the_attempt(plugin: Holds, point: str) -> None:
    harness = CycleHarness("n1", plugin)

    assert harness.failed().message == f'running {point} plugin "A": disk'
    assert harness.calls[-1] == "A.unreserve"


def test_an_exception_in_reserve_unreserves_all_plugins() -> None:
    @dataclass
    class Breaks(Holds):
        def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
            raise ZeroDivisionError

    harness = CycleHarness("n1", Holds("A"), Breaks("B"))

    with pytest.raises(ZeroDivisionError):
        harness.attempt()

    assert harness.cluster.sizes()["assumed_pods"] == 0
    assert harness.calls[-2:] == ["B.unreserve", "A.unreserve"]


def test_72_a_pod_that_is_in_the_cache_cannot_be_assumed() -> None:
    harness = CycleHarness("n1")
    harness.scheduled()

    assert isinstance(outcome := harness.attempt(), SchedulingFailed)
    assert "can't be assumed" in outcome.message


def test_the_record_has_refusals_and_scores() -> None:
    harness = CycleHarness("n1 n2 n3", Refuses("A", reasons={"n1": "a"}), Scored("S", table={"n2": 7}))
    outcome = harness.attempt()
    unschedulable = CycleHarness("n1", Refuses("A", reasons={"n1": "a"})).unschedulable()

    assert (outcome.record.node, outcome.record.feasible_count) == ("n2", 2)
    assert outcome.record.scores[0].parts == {"S": 7}
    assert [(g.plugin, g.nodes, g.examples) for g in unschedulable.record.groups] == [("A", 1, ("n1",))]
