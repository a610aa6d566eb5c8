"""The law of preemption: the dry run decides as upstream's algorithm does when it is taken literally."""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import HealthCheck, event, given, settings, strategies as st

from scheduler.api.podinfo import PodInfo
from scheduler.config.args import KubestowArgs
from scheduler.core.cooperative import finish
from scheduler.framework import dry_run
from scheduler.framework.dry_run import NominatedPods, Simulation
from scheduler.framework.interface import CycleState
from scheduler.framework.status import Code, Nominate, Rejection
from scheduler.plugins.defaultpreemption import Answer, Candidate, Evaluator, VictimRule
from tests.examples import SLOW_SHARE, examples
from tests.unit.cache.picture import check_sums, picture
from tests.unit.plugins.preempting import NO_VICTIMS, PreemptionHarness, Refusal
from tests.unit.plugins.preemption_worlds import World, unbound, worlds
from tests.unit.plugins.reference_preemption import FILTERS, Literal, Victims

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


class Tried(Simulation):
    """Never counts aside: pods leave the cache and come back."""

    def __init__(self, ahead: NominatedPods, state: CycleState, pod: PodInfo) -> None:
        super().__init__(ahead, state, pod)
        self.is_counted = False


def stated(answer: Answer | Victims | Refusal, harness: PreemptionHarness) -> Any:
    """What both the plugin and the reference say of a node."""
    match answer:
        case Candidate():
            return harness.named(answer), answer.violations
        case Victims():
            return [pod.pod.metadata.name for pod in answer.pods], answer.violations
        case Rejection():
            return answer.code, answer.reasons
        case _:
            return answer


def test_the_reference_has_the_default_filters() -> None:
    assert tuple(bound.name for bound in PreemptionHarness().runner.profile.filter) == FILTERS


@settings(max_examples=examples(250, share=SLOW_SHARE), suppress_health_check=SLOW)
@given(world=worlds(), incoming=unbound("incoming"), parity=st.booleans())
def test_each_node_and_the_choice(world: World, incoming: PodInfo, parity: bool) -> None:
    """182, 183: equal victims in equal order, violations or refusals on each node, and one of the best nodes is chosen."""
    ours = KubestowArgs(parity=parity)
    harness, literal = world.harness(ours=ours), world.literal(ours)
    refusing = {name: no for name in world.nodes if (no := literal.fits(incoming, name, literal.pods)) is not None}
    what_if = harness.what_if(incoming)
    expected = {name: literal.on(incoming, name) for name in refusing}
    for name, victims in expected.items():
        answer = finish(Evaluator(harness.cluster, VictimRule()).on(what_if, incoming, harness.slot(name), None))

        assert stated(victims, harness) == stated(answer, harness)
        event(f"{'counted' if what_if.is_counted else 'tried'}: {kind(victims)}")
    if refusing.keys() == world.nodes.keys():
        could = {name: expected[name] for name, no in refusing.items() if no.code is Code.UNSCHEDULABLE}
        check_choice(harness, incoming, could, literal)


def kind(expected: Victims | Refusal) -> str:
    if isinstance(expected, Victims):
        return f"{min(len(expected.pods), 3)} victims"
    return "no victims" if expected == NO_VICTIMS else expected[1][0]


def check_choice(
    harness: PreemptionHarness, incoming: PodInfo, could: dict[str, Victims | Refusal], literal: Literal
) -> None:
    """`could` are the nodes where an eviction might help."""
    answer = harness.post_filtered(incoming)
    assert isinstance(answer, Nominate)
    found = {name: victims for name, victims in could.items() if isinstance(victims, Victims)}
    if found:
        assert answer.node_name in literal.best(found)
        assert answer.victims == found[answer.node_name].pods
        event(f"{len(found)} candidates")
        return
    reasons = [reason for no in could.values() if not isinstance(no, Victims) for reason in no[1]]
    nodes = len(literal.nodes)
    reasons += ["Preemption is not helpful for scheduling"] * (nodes - len(could))
    told = ", ".join(sorted(f"{reasons.count(reason)} {reason}" for reason in set(reasons)))

    assert answer.rejection is not None
    assert answer.rejection.message == f"preemption: 0/{nodes} nodes are available: {told}."


@settings(max_examples=examples(150, share=SLOW_SHARE), suppress_health_check=SLOW)
@given(world=worlds(), incoming=st.one_of(unbound("incoming"), unbound("incoming", plain=True)))
def test_counting_and_trying_agree(world: World, incoming: PodInfo) -> None:
    """Wherever questions can be answered aside, the cache itself gives the same answers."""
    harness = world.harness()
    what_if = harness.what_if(incoming)
    event("counted" if what_if.is_counted else "tried")
    state = CycleState()
    harness.runner.pre_filter(state, incoming)
    counted, tried = Evaluator(harness.cluster, VictimRule()), Evaluator(harness.cluster, VictimRule())
    for name in world.nodes:
        slot = harness.slot(name)
        aside = finish(counted.on(what_if, incoming, slot, counted.of(what_if, incoming)))
        with mock.patch.object(dry_run, "Simulation", Tried):
            truly = finish(tried.on(Tried(harness.runner.ahead, state, incoming), incoming, slot, None))

        assert stated(aside, harness) == stated(truly, harness)


@settings(max_examples=examples(150, share=SLOW_SHARE), suppress_health_check=SLOW)
@given(world=worlds(), incoming=unbound("incoming"), forced=st.booleans())
def test_the_cache_is_as_before(world: World, incoming: PodInfo, forced: bool) -> None:
    """Columns, indexes and counts are those of a cluster without a dry run."""
    harness, untouched = world.harness(), world.harness()
    for kind_of_what_if in (Simulation, Tried if forced else Simulation):
        state = CycleState()
        harness.runner.pre_filter(state, incoming)
        what_if = kind_of_what_if(harness.runner.ahead, state, incoming)
        with mock.patch.object(dry_run, "Simulation", kind_of_what_if):
            for name in world.nodes:
                Evaluator(harness.cluster, VictimRule()).on(what_if, incoming, harness.slot(name), None)

    assert picture(harness.cluster) == picture(untouched.cluster)
    check_sums(harness.cluster)
