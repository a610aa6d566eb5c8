"""Laws of NodeVolumeLimits: the same as §9.1 done the long way, in the cache and in a tally (docs/spec/volumes.md §9.1)."""

from __future__ import annotations

import dataclasses

from hypothesis import HealthCheck, event as noted, given, settings, strategies as st

from scheduler.api.podinfo import PodInfo, placed
from scheduler.config.args import KubestowArgs
from scheduler.core import nodeset
from scheduler.framework.interface import CycleState, Tally
from scheduler.framework.status import AttemptError, Code
from scheduler.plugins.nodevolumelimits import NodeVolumeLimits, wanted_by
from tests.examples import SLOW_SHARE, examples
from tests.unit.objects import handle
from tests.unit.plugins.ask import named
from tests.unit.wakeups.attaching import (
    EBS,
    FULL,
    NAMES,
    OTHER,
    AttachWorld,
    LongWay,
    Refusal,
    Step,
    begun,
    pods,
    steps,
)

Rules = tuple[bool, bool, tuple[str, ...]]

rules = st.tuples(st.booleans(), st.booleans(), st.sampled_from([(), (), (EBS,), (OTHER, EBS)]))
comers = pods().map(lambda pod: placed(pod, ""))
LAW = settings(
    max_examples=examples(250, share=SLOW_SHARE), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def plugin_on(world: AttachWorld, rule: Rules) -> NodeVolumeLimits:
    twice, scaling, required = rule
    ours = KubestowArgs(count_attached_twice=twice, require_csi_node_drivers=required)
    gates = frozenset({"VolumeLimitScaling"} if scaling else ())
    return NodeVolumeLimits(None, dataclasses.replace(handle(world.cluster), ours=ours, feature_gates=gates))


def long_way(world: AttachWorld, rule: Rules) -> LongWay:
    twice, scaling, required = rule
    return LongWay(world, twice=twice, scaling=scaling, required=required)


def compare(world: AttachWorld, plugin: NodeVolumeLimits, way: LongWay, *, pod: PodInfo, state: CycleState) -> None:
    """Filter of all nodes, with the state of whatever was before."""
    nodes = world.cluster.nodes
    expected = {}
    for slot in nodeset.each(nodes.present):
        name = nodes.name(slot)
        no = way.refusal(pod, name, list(nodes.pods(slot).values()))
        if no is not None:
            expected[name] = no
            noted(f"{no[0].name} {len(no[1][0]) > 30}")

    assert expected == named(world.cluster, plugin.filter(state, pod, nodes.present))


@LAW
@given(
    rules,
    comers,
    st.lists(st.tuples(steps, st.sampled_from([False, False, True]), st.sampled_from(NAMES), pods()), max_size=25),
)
def test_filter(rule: Rules, pod: PodInfo, history: list[tuple[Step, bool, str, PodInfo]]) -> None:
    """After every step that is looked at, in a trial and after it; one state all the time, as if the pod were bound late."""
    world = begun()
    plugin, way, state = plugin_on(world, rule), long_way(world, rule), CycleState()
    for step, is_looked_at, emptied, comer in history:
        step(world)
        if not is_looked_at:
            continue
        compare(world, plugin, way, pod=pod, state=state)
        leave = [other for other in world.cluster.pods() if other.node_name == emptied]
        come = [(comer, comer.node_name)] if world.cluster.get(comer.uid) is None else []
        with world.cluster.trial(add=come, remove=leave):
            compare(world, plugin, way, pod=pod, state=state)
    compare(world, plugin, way, pod=pod, state=state)


def said(tally: Tally) -> Refusal | None:
    try:
        no = tally.verdict()
    except AttemptError as error:
        return Code.ERROR, (error.message.removeprefix('running "NodeVolumeLimits" filter plugin: '),)
    return None if no is None else (no.code, no.reasons)


moves = st.lists(st.integers(0, 20), max_size=8)


@LAW
@given(rules, comers, st.lists(steps, max_size=25), st.lists(comers, max_size=2), moves)
def test_tally(rule: Rules, pod: PodInfo, history: list[Step], ahead: list[PodInfo], turns: list[int]) -> None:
    """Pods leave and come back, with nominated pods: the worse of with and without them, as in the cache.

    A volume for one node at a time that is not attached yet is not shared with those to come.
    """
    world = begun()
    for step in history:
        step(world)
    plugin, way, nodes = plugin_on(world, rule), long_way(world, rule), world.cluster.nodes
    newcomers = list({other.uid: other for other in ahead if world.cluster.get(other.uid) is None}.values())
    pending = world.cluster.volumes.attached._prefix + "-"
    wanted = wanted_by(pod, world.cluster.volumes)
    own = {(name.driver, name.volume_handle.replace(pending, "pending ")) for name in wanted.own}
    is_shared = any(own & way.names(other) for other in newcomers)
    for slot in nodeset.each(nodes.present):
        here = list(nodes.pods(slot).values())
        tally = plugin.tally(CycleState(), pod, slot)
        for other in newcomers:
            tally.add(other)
        left = list(here)
        for turn in [*turns, -1]:
            alone = way.refusal(pod, nodes.name(slot), left)
            beside = way.refusal(pod, nodes.name(slot), [*left, *newcomers])
            got, expected = said(tally), alone or beside
            assert got == expected or (is_shared and got == FULL)
            noted(f"tally {None if got is None else got[0].name}, moved {len(here) - len(left)}")
            if not here or turn < 0:
                continue
            other = here[turn % len(here)]
            if other in left:
                left.remove(other)
                tally.remove(other)
            else:
                left.append(other)
                tally.add(other)


@LAW
@given(rules, st.lists(comers, min_size=2, max_size=5), st.lists(steps, max_size=25), st.lists(comers, max_size=2))
def test_equal_shapes(rule: Rules, them: list[PodInfo], history: list[Step], ahead: list[PodInfo]) -> None:
    """Pods of equal shape have equal answers, also when other pods come or leave."""
    world = begun()
    for step in history:
        step(world)
    plugin, nodes = plugin_on(world, rule), world.cluster.nodes
    first, *others = them
    alike = [pod for pod in others if plugin.tally_shape(pod) == plugin.tally_shape(first)]
    noted(f"alike but not the same: {any(pod.claims != first.claims for pod in alike)}")
    newcomers = [other for other in ahead if world.cluster.get(other.uid) is None]
    for slot in nodeset.each(nodes.present):
        answers = []
        for pod in (first, *alike):
            tally = plugin.tally(CycleState(), pod, slot)
            answer = [said(tally)]
            for other in newcomers:
                tally.add(other)
                answer.append(said(tally))
            for other in nodes.pods(slot).values():
                tally.remove(other)
                answer.append(said(tally))
            answers.append(answer)
        assert [answers[0]] * len(answers) == answers
