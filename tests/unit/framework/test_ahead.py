"""What filters remember of nodes that others are nominated to is what they would find out anew: docs/spec/core.md §3.5."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.core.cooperative import finish
from scheduler.framework.interface import CycleState
from scheduler.framework.runtime import Runner
from scheduler.framework.status import AttemptError, Code
from tests.unit.fake_plugins import Refuses
from tests.unit.objects import node
from tests.unit.plugins.preempting import PreemptionHarness, away_from, pod

HERE = node("n1", cpu="3", labels={"zone": "z1"})
THERE = pod("there", on="n1", cpu="1")


def nominated(name: str = "other", priority: int = 10, *, cpu: str = "1", **more: Any) -> PodInfo:
    return pod(name, priority, cpu=cpu, **more)


def incoming(name: str = "incoming", priority: int = 10, *, cpu: str = "2", **more: Any) -> PodInfo:
    return pod(name, priority, cpu=cpu, **more)


def fits(runner: Runner, one: PodInfo) -> bool:
    """On n1; `runner` may remember an earlier answer."""
    state = CycleState()
    runner.pre_filter(state, one)
    here = runner.cluster.nodes.by_name(("n1",))
    passed, refused = finish(runner.filter(state, one, here, exact=False))
    assert bool(passed) is not bool(refused)
    return bool(passed)


def anew(harness: PreemptionHarness) -> Runner:
    return Runner(
        harness.runner.profile, harness.cluster, harness.nominator, clock=harness.handle.clock, metrics=harness.metrics
    )


def test_a_taint_on_a_node_with_a_nominated_pod_is_noticed() -> None:
    """The same pod gets the new answer, which is that of filters with empty memos."""
    harness = PreemptionHarness(HERE, THERE)
    harness.nominate("n1", nominated(cpu="0"))
    assert fits(harness.runner, incoming())
    harness.put(node("n1", cpu="3", taints=("t=:NoSchedule",)))

    assert not fits(harness.runner, incoming())
    assert not fits(anew(harness), incoming())


@pytest.mark.parametrize("turn", [1, -1], ids=["the kept pod last", "the kept pod first"])
def test_a_pod_that_a_nominated_pod_keeps_away_gets_its_own_answer(turn: int) -> None:
    """Another pod of the same requests has its answer in the memo."""
    harness = PreemptionHarness(HERE, THERE)
    harness.nominate("n1", nominated(cpu="0", affinity=away_from("x")))
    pods = (incoming(), incoming("other2", labels={"app": "x"}))[::turn]

    assert [fits(harness.runner, one) for one in pods] == [True, False][::turn]


class FailsFlat(Refuses):
    """Does not look at pods, and fails on the nodes of its table."""

    depends_on_pods = False


@pytest.mark.parametrize(
    "name", ["depends_on_pods", "heeds_pods"], ids=["by its name", "by the name that it had before"]
)
def test_a_filter_says_that_pods_do_not_matter(name: str) -> None:
    flat: Refuses = type("Flat", (Refuses,), {name: False})("Flat")
    found = {
        bound.name: bound.depends_on_pods
        for bound in PreemptionHarness(HERE, plugins=(flat, Refuses("Usual"))).runner.profile.filter
    }

    assert (found["Flat"], found["Usual"]) == (False, True)


def test_a_filter_that_fails_ends_the_attempt() -> None:
    """Also where somebody is nominated and the answer could have been counted: a failure is no refusal."""
    harness = PreemptionHarness(HERE, THERE, plugins=(FailsFlat("Flat", reasons={"n1": "no idea"}, code=Code.ERROR),))
    harness.nominate("n1", nominated())

    with pytest.raises(AttemptError, match='running "Flat" filter plugin: no idea'):
        fits(harness.runner, incoming(cpu="1"))


def test_a_turn_can_be_given_after_each_node_that_is_tried() -> None:
    """A burst of preemptors leaves hundreds of them, and a plugin may take seconds for one."""
    names = [f"m{at}" for at in range(6)]
    harness = PreemptionHarness(*(node(name) for name in names), plugins=(Refuses("Whole"),))
    for name in names:
        harness.nominate(name, nominated(f"for-{name}"))
    state, one = CycleState(), incoming()
    runner = harness.runner
    runner.pre_filter(state, one)
    harness.calls.clear()

    for _ in runner.filter(state, one, harness.cluster.nodes.present, exact=False):
        harness.calls.append("turn")

    assert harness.calls[:-1] == ["Whole.filter", "turn"] * len(names)
    assert harness.calls[-1] == "Whole.filter"
