"""StorageCapacityScoring for all nodes at once is what it is for each (docs/spec/volumes.md §4)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from scheduler.config.args import KubestowArgs, ShapePoint, VolumeBindingArgs
from scheduler.core import nodeset
from scheduler.core.cooperative import finish
from scheduler.core.errors import VolumeError
from scheduler.core.nodeset import NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState
from scheduler.plugins.volumebinding.plugin import STATE, VolumeBinding, VolumeState
from scheduler.plugins.volumebinding.pod_volumes import PodVolumes
from scheduler.plugins.volumebinding.scorer import CapacityScore, _utilization, _utilizations
from simulator.builders.core import node
from tests.examples import SLOW_SHARE, examples
from tests.support.clock import VirtualClock
from tests.support.ports import ListRecorder
from tests.support.volumebuilders import a_capacity, a_claim, a_class, a_pv
from tests.unit.plugins.volumebinding.drawn_worlds import CLASS_GONE, Case, Drawn, drawn
from tests.unit.plugins.volumebinding.world import PARITY, VolumeCounts, VolumeServer, VolumeWorld, tracking, using

PERCENT = (ShapePoint(0, 0), ShapePoint(100, 10))
"""The score is the percentage that is used."""
BYTES = st.one_of(st.integers(0, 2**63 - 1), st.integers(0, 1000), st.integers(2**53 - 200, 2**53 + 200))


@st.composite
def near(draw: st.DrawFn) -> tuple[int, int]:
    """A request, and a capacity of which it uses a percentage nearly exactly."""
    requested, percent = draw(BYTES | st.integers(2**63, 2**70)), draw(st.integers(1, 100))
    capacity = requested * 100 // percent + draw(st.integers(-2, 2))
    return requested, min(max(capacity, 0), 2**63 - 1)


@given(near() | st.tuples(BYTES, BYTES))
def test_percentages_of_a_column_are_exact(amounts: tuple[int, int]) -> None:
    requested, capacity = amounts

    assert [_utilization(requested, capacity)] == _utilizations(requested, np.array([capacity])).tolist()


def plugin_of(case: Case, ours: KubestowArgs) -> VolumeBinding:
    handle = Handle(
        case.cluster,
        VolumeServer(),
        ListRecorder(),
        VirtualClock(),
        "kubestow",
        ours=ours,
        rng=random.Random(1),
        volume_metrics=VolumeCounts(),
    )
    return VolumeBinding(VolumeBindingArgs(shape=PERCENT), handle)


def one_by_one(case: Case, plugin: VolumeBinding, nodes: NodeSet) -> dict[int, int]:
    """The score of each node by the volumes that it would use."""
    scores = dict.fromkeys(nodeset.each(nodes), 0)
    for slot in scores:
        found = plugin._binder.find_pod_volumes(case.claims, slot)
        if isinstance(found, PodVolumes):
            scores[slot] = CapacityScore(PERCENT).of(found)
    return scores


def provisioned(world: Drawn, *, volumes: int) -> Drawn:
    """Two classes whose driver tracks capacity, and only some of the volumes; all unbound claims."""
    classes = [a_class(name, "P").typed() for name in ("x", "y")]
    return replace(world, classes=classes, tracks={"P": True}, volumes=world.volumes[:volumes], bound=[])


@example(world=CLASS_GONE, claims=2, ours=PARITY)
@settings(max_examples=examples(400, share=SLOW_SHARE))
@given(
    world=drawn() | st.builds(provisioned, drawn(), volumes=st.sampled_from([0, 2, 8])),
    claims=st.sampled_from([1, 1, 2, 3]),
    ours=st.sampled_from([KubestowArgs(), PARITY]),
)
def test_scores_of_all_nodes_are_those_of_each(world: Drawn, *, claims: int, ours: KubestowArgs) -> None:
    """Of nodes that pass Filter, and of those that do not."""
    case = Case(replace(world, delayed=world.delayed[:claims]))
    plugin, state, nodes = plugin_of(case, ours), CycleState(), case.cluster.nodes.present
    state.set(STATE, VolumeState(case.claims))
    try:
        wanted = one_by_one(case, plugin, nodes)
    except VolumeError:
        with pytest.raises(VolumeError):
            finish(plugin.score(state, using(), nodes))
        return
    column = finish(plugin.score(state, using(), nodes))

    assert wanted == {slot: int(column[slot]) for slot in wanted}


# -- which nodes are tried ----------------------------------------------------------------------------------------------

DATA, LOG = a_claim("data", "10Gi", "E"), a_claim("log", "20Gi", "E")
X, Y = a_claim("x", "50Gi", "W"), a_claim("y", "100Gi", "W")


def pools(*nodes: str, name: str = "o") -> list[Any]:
    return [a_capacity(f"{name}-{at}", "E", "100Gi").where("k", at) for at in nodes]


def local(*nodes: str, name: str = "v") -> list[Any]:
    return [a_pv(f"{name}-{at}", "200Gi", "W").where("k", at) for at in nodes]


@pytest.mark.parametrize(("claims", "things", "tried"), [
    pytest.param(["x"], local("n1", "n2", "n3"), [], id="an existing volume"),
    pytest.param(["data"], pools("n1", "n2", "n3"), [], id="a volume to provision"),
    pytest.param(["data", "log"], pools("n1", "n2", "n3"), [], id="two volumes to provision"),
    pytest.param(["data", "x"], [*pools("n1", "n2"), *local("n1", "n3")], [], id="one that exists, and one to provision"),
    pytest.param(["data"], [*pools("n1", "n2"), *pools("n2", name="p")], ["n2"], id="several pools"),
    pytest.param(["x", "y"], [*local("n1"), *local("n1", "n2", name="w")], ["n1"], id="several existing volumes"),
    pytest.param(["x"], [*local("n1", "n2"), a_pv("m", "60Gi", "W").where("k", "n2").claimed_by("x")], [],
        id="a volume that is meant for the claim"),
    pytest.param(["data"], [*pools("n1", "n2"), a_claim("data", "10Gi", "E").selected("n1")], [],
        id="a selected node"),
])  # fmt: skip
def test_only_nodes_with_a_choice_are_tried(claims: list[str], things: list[Any], tried: list[str]) -> None:
    world = VolumeWorld(node("n3").label("k", "n3"), a_class("E", "P"), *tracking(True), DATA, LOG, X, Y, *things)
    state, no = world.pre_filtered(using("p", *claims))
    assert no is None
    refused = world.judged(using("p", *claims), state=state)
    passing = nodeset.of(world.slot(name) for name in ("n1", "n2", "n3") if name not in refused)
    _, to_try = world.binder.storage_resources(state.get(STATE).claims, passing)

    assert tried == [world.cluster.nodes.name(slot) for slot in nodeset.each(to_try)]
