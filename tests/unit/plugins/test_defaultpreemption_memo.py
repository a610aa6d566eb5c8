"""The memo of the dry run equals a new dry run, after any changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from scheduler.api.podinfo import PodInfo
from scheduler.core.cooperative import finish
from scheduler.framework.interface import CycleState, DryRun
from scheduler.framework.runtime import Runner
from scheduler.plugins.defaultpreemption import Evaluator, VictimRule
from tests.examples import SLOW_SHARE, examples
from tests.unit.objects import node
from tests.unit.plugins.preempting import Looks, PreemptionHarness, near_to, pod, restarted, spread
from tests.unit.plugins.preemption_worlds import NAMES, World, bound, budgets, newcomers, nodes, starts, unbound, worlds

# -- one change after another ------------------------------------------------------------------------------------------

FULL = node("n1", cpu="3")
ONLY_C = {"only": "c"}


def low(name: str, priority: int, **more: Any) -> PodInfo:
    return pod(name, priority, **{"on": "n1", "cpu": "1", **more})


A, B = low("a", 2, started="1"), low("b", 1, started="2")
C = low("c", 1, started="3", labels=ONLY_C)


def incoming(name: str = "incoming", priority: int = 10, *, cpu: str = "1", **more: Any) -> PodInfo:
    return pod(name, priority, cpu=cpu, **more)


FAR = [
    pytest.param({"topologySpreadConstraints": spread("x")}, id="hard spread"),
    pytest.param({"affinity": near_to("x")}, id="pod affinity"),
]


@pytest.mark.parametrize("rules", FAR)
def test_a_refusal_of_the_node_itself_needs_no_trial(rules: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without all its victims the node is too small: what other nodes hold makes no difference."""
    harness = PreemptionHarness(node("n1", cpu="3", labels={"zone": "z"}), A, B, C)
    one = incoming(cpu="4", labels={"app": "x"}, **rules)
    wanted = harness.on(one, "n1")
    monkeypatch.setattr(harness.cluster, "trial", None)
    dry_run = Evaluator(harness.cluster, VictimRule())

    first = harness.remembered(dry_run, one)
    monkeypatch.setattr(DryRun, "leading", None)

    assert first == wanted
    assert harness.remembered(dry_run, one) is first


def test_pods_of_one_shape_share_an_answer() -> None:
    """Names, labels and namespaces make no difference where no rule looks at them."""
    looks = Looks()
    harness = PreemptionHarness(FULL, A, B, C, plugins=(looks,))
    dry_run = Evaluator(harness.cluster, VictimRule())
    alike = (incoming(), incoming("another"), incoming(labels={"app": "x"}), incoming(ns="other"))
    answers = {id(harness.remembered(dry_run, one)) for one in alike}

    assert len(answers) == 1
    assert looks.at == ["n1"]


def test_the_least_recently_used_shape_is_evicted() -> None:
    """Some shapes are remembered, not all there ever were."""
    looks = Looks()
    harness = PreemptionHarness(FULL, A, B, C, plugins=(looks,))
    dry_run = Evaluator(harness.cluster, VictimRule())
    for milli in (*range(1, 65), 1, 65, 1, 2):
        harness.remembered(dry_run, incoming(cpu=f"{milli}m"))

    assert len(looks.at) == 66  # 1..64, 65, and 2 again


# -- any history -------------------------------------------------------------------------------------------------------

steps = st.one_of(
    st.tuples(st.just("pod"), st.integers(0, 5).flatmap(lambda at: bound(f"b{at}"))),
    st.tuples(st.just("left"), st.integers(0, 5)),
    st.tuples(st.just("started"), st.integers(0, 5), starts),
    st.tuples(st.just("node"), nodes),
    st.tuples(st.just("node gone"), st.sampled_from(NAMES)),
    st.tuples(st.just("budget"), st.integers(0, 2).flatmap(lambda at: budgets(f"d{at}"))),
    st.tuples(st.just("budget gone"), st.integers(0, 2)),
    st.tuples(
        st.just("nominated"),
        st.sampled_from(NAMES),
        st.lists(st.integers(0, 2).flatmap(lambda at: newcomers(f"n{at}")), max_size=2),
    ),
)


@st.composite
def preemptors(draw: st.DrawFn) -> list[PodInfo]:
    """Some differ only in labels, which the anti-affinity of other pods reads."""
    return [draw(unbound(f"incoming{at}", plain=draw(st.booleans()))) for at in range(draw(st.integers(1, 3)))]


@settings(
    max_examples=examples(80, share=SLOW_SHARE),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(world=worlds(), incoming=preemptors(), history=st.lists(steps, max_size=6))
def test_what_is_remembered_is_true(world: World, incoming: list[PodInfo], history: list[tuple[Any, ...]]) -> None:
    """After every step, for every preemptor and node; so is what the filters remember of nodes with nominated pods."""
    harness = world.harness()
    old = Evaluator(harness.cluster, VictimRule())
    for step in (("checked",), *history):
        apply(harness, step)
        for one in incoming:
            check(harness, old, one)
            check(harness, old, one)


def check(harness: PreemptionHarness, old: Evaluator, one: PodInfo) -> None:
    nodes = harness.cluster.nodes
    fresh = Runner(
        harness.runner.profile, harness.cluster, harness.nominator, clock=harness.handle.clock, metrics=harness.metrics
    )
    answers = []
    whole = Evaluator(harness.cluster, VictimRule())
    """It has no memo, so all filters run."""
    for runner, dry_run in (
        (harness.runner, old),
        (fresh, Evaluator(harness.cluster, VictimRule())),
        (fresh, whole),
    ):
        state = CycleState()
        runner.pre_filter(state, one)
        passed, refused = finish(runner.filter(state, one, nodes.present, exact=True))
        what_if = runner.what_if(state, one)
        known = dry_run.of(what_if, one) if dry_run is not whole else None
        slots = [slot for name in NAMES if (slot := nodes.present_slot(name)) is not None]
        answers.append((passed, refused, [finish(dry_run.on(what_if, one, slot, known)) for slot in slots]))

    assert answers[0] == answers[1] == answers[2]


def apply(harness: PreemptionHarness, step: tuple[Any, ...]) -> None:
    cluster = harness.cluster
    match step:
        case ("pod", one):
            cluster.add_pod(one)
        case ("left", at):
            for ns in ("default", "other"):
                cluster.remove_pod(f"{ns}/b{at}")
        case ("started", at, started):
            known = cluster.get(f"default/b{at}")
            if known is not None:
                cluster.update_pod(restarted(known, started))
        case ("node", one):
            cluster.set_node(one)
        case ("node gone", name):
            cluster.remove_node(name)
        case ("budget", one):
            cluster.disruptions.put(one)
        case ("budget gone", at):
            for ns in ("default", "other"):
                cluster.disruptions.remove(f"{ns}/d{at}")
        case ("nominated", name, pods):
            harness.nominate(name, *{one.uid: one for one in pods}.values())
