"""What filters remember of nodes that others are nominated to is what they would find out anew: docs/spec/core.md §3.5."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from scheduler.core.podinfo import PodInfo
from scheduler.core.turns import finish
from scheduler.core.verdicts import AttemptError, Code
from scheduler.framework.runner import Runner
from scheduler.framework.state import CycleState
from tests.unit.objects import node
from tests.unit.plugins.preempting import House, away_from, pod
from tests.unit.toys import Refuses

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


def anew(house: House) -> Runner:
    return Runner(house.runner.profile, house.cluster, house.nominator, clock=house.handle.clock, metrics=house.metrics)


@pytest.mark.parametrize(
    ("before", "change"),
    [
        pytest.param([nominated()], lambda house: house.cluster.remove_pod(THERE.uid), id="a pod went"),
        pytest.param(
            [nominated(cpu="500m")], lambda house: house.put(pod("there", on="n1", cpu="500m")), id="a pod shrank"
        ),
        pytest.param([nominated()], lambda house: house.put(node("n1", cpu="4")), id="the node grew"),
        pytest.param([], lambda house: house.nominate("n1", nominated()), id="somebody was nominated"),
        pytest.param([nominated()], lambda house: house.nominate("n1"), id="somebody no longer is"),
        pytest.param(
            [nominated()], lambda house: house.nominate("n1", nominated(cpu="0")), id="a nominated pod changed"
        ),
        pytest.param(
            [nominated()], lambda house: house.nominate("n1", nominated(priority=9)), id="a lower one instead"
        ),
        pytest.param(
            [nominated(cpu="0")],
            lambda house: house.nominate("n1", nominated(cpu="0"), nominated("second")),
            id="one more came",
        ),
        pytest.param(
            [nominated(cpu="0")],
            lambda house: house.put(node("n1", cpu="3", taints=("t=:NoSchedule",))),
            id="something that has nothing to do with pods",
        ),
    ],
)
def test_whatever_changes_the_answer_is_noticed(before: Sequence[PodInfo], change: Callable[[House], object]) -> None:
    """Asked before and after, the same pod gets the other answer, and that of filters that remember nothing."""
    house = House(HERE, THERE)
    house.nominate("n1", *before)
    first = fits(house.runner, incoming())
    assert first is fits(house.runner, incoming())
    change(house)

    assert first is not fits(house.runner, incoming())
    assert fits(anew(house), incoming()) is fits(house.runner, incoming())


@pytest.mark.parametrize(
    ("ahead", "other", "their"),
    [
        pytest.param([nominated()], incoming("other2", 11), (False, True), id="a higher priority"),
        pytest.param([nominated()], incoming("other2", cpu="1"), (False, True), id="a smaller one"),
        pytest.param([nominated(cpu="2")], incoming("other", cpu="2"), (False, True), id="the nominated one itself"),
        pytest.param(
            [nominated(cpu="0", affinity=away_from("x"))],
            incoming("other2", labels={"app": "x"}),
            (True, False),
            id="one that a nominated pod keeps away",
        ),
        pytest.param(
            [nominated(cpu="0", ports=("TCP/80",))],
            incoming("other2", ports=("TCP/80",)),
            (True, False),
            id="a taken port",
        ),
        pytest.param([nominated(cpu="0")], incoming("other2", nodeSelector={"a": "b"}), (True, False), id="a selector"),
    ],
)
def test_pods_that_differ_get_their_own_answers(
    ahead: Sequence[PodInfo], other: PodInfo, their: tuple[bool, bool]
) -> None:
    """Whichever of the two was there first."""
    answers = []
    for turn in (0, 1):
        house = House(HERE, THERE)
        house.nominate("n1", *ahead)
        pods = (incoming(), other)
        first = fits(house.runner, pods[turn])
        second = fits(house.runner, pods[1 - turn])
        answers.append((second, first) if turn else (first, second))

    assert answers == [their, their]


class FailsFlat(Refuses):
    """Does not look at pods, and fails on the nodes of its table."""

    heeds_pods = False


def test_a_filter_that_fails_ends_the_attempt() -> None:
    """Also where somebody is nominated and the answer could have been counted: a failure is no refusal."""
    house = House(HERE, THERE, plugins=(FailsFlat("Flat", reasons={"n1": "no idea"}, code=Code.ERROR),))
    house.nominate("n1", nominated())

    with pytest.raises(AttemptError, match='running "Flat" filter plugin: no idea'):
        fits(house.runner, incoming(cpu="1"))


def test_a_turn_can_be_given_after_each_node_that_is_tried() -> None:
    """A burst of preemptors leaves hundreds of them, and a plugin may take seconds for one."""
    names = [f"m{at}" for at in range(6)]
    house = House(*(node(name) for name in names), plugins=(Refuses("Whole"),))
    for name in names:
        house.nominate(name, nominated(f"for-{name}"))
    state, one = CycleState(), incoming()
    runner = house.runner
    runner.pre_filter(state, one)
    house.calls.clear()

    for _ in runner.filter(state, one, house.cluster.nodes.present, exact=False):
        house.calls.append("turn")

    assert house.calls[:-1] == ["Whole.filter", "turn"] * len(names)
    assert house.calls[-1] == "Whole.filter"
