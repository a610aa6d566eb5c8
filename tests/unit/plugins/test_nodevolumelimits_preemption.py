"""Preemption for attach limits: counted aside and tried in the cache, with one answer (docs/spec/volumes.md §9.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.api.storage_v1 import VolumeAttachment
from scheduler.config.args import KubestowArgs
from scheduler.core.cooperative import finish
from scheduler.framework.interface import CycleState
from scheduler.plugins.defaultpreemption import Evaluator, VictimRule
from tests.support.volumebuilders import a_claim, a_csi_node, a_pv, an_attachment
from tests.unit.fake_plugins import Refuses
from tests.unit.objects import node
from tests.unit.plugins.ask import named
from tests.unit.plugins.preempting import Looks, PreemptionHarness, Refusal, pod
from tests.unit.wakeups.attaching import EBS, FULL, AttachWorld

CLAIMS = ("c0", "c1", "c2", "c3")


def a_harness(*, is_tried: bool = False, ours: KubestowArgs | None = None) -> PreemptionHarness:
    """Which volume goes where is not the question here; a filter that cannot count makes everything be tried."""
    return PreemptionHarness(
        plugins=(Refuses(name="VolumeBinding") if is_tried else Looks(name="VolumeBinding"),), ours=ours
    )


def using(name: str, priority: int, *claims: str, on: str = "n1", **more: Any) -> PodInfo:
    volumes = [{"name": f"v{at}", "persistentVolumeClaim": {"claimName": claim}} for at, claim in enumerate(claims)]
    return pod(name, priority, on=on, volumes=[*volumes, *more.pop("volumes", ())], **more)


def incoming(*claims: str, name: str = "incoming", **more: Any) -> PodInfo:
    return using(name, 10, *claims, on="", **more)


def world_of(harness: PreemptionHarness, *things: Any, limit: int = 2) -> AttachWorld:
    """Claims c0…c3 bound to volumes of the driver, with this limit on n1."""
    bound = [thing for name in CLAIMS for thing in (a_pv(name).csi(EBS), a_claim(name).bound_to(name))]
    return AttachWorld(node("n1"), *bound, a_csi_node("n1").driver(EBS, limit), *things, cluster=harness.cluster)


DISK = {"name": "d", "awsElasticBlockStore": {"volumeID": "c1"}}


@pytest.mark.parametrize("is_tried", [False, True], ids=["counted aside", "tried in the cache"])
@pytest.mark.parametrize(("limit", "there", "comes", "answer"), [
    pytest.param(2, [using("a", 1, "c1"), using("b", 2, "c1"), using("c", 3, "c2")], incoming("c0"), ["b", "a"],
        id="a volume of two goes before that of a more important one"),
    pytest.param(1, [using("a", 1, "c1"), using("b", 2, volumes=[DISK])], incoming("c0"), ["b", "a"],
        id="claim and in-tree"),
    pytest.param(2, [using("a", 1, "c1"), using("b", 2, "c2"), an_attachment("c1", "n1", EBS)], incoming("c0"), ["b"],
        id="a volume that stays attached frees no slot"),
])  # fmt: skip
def test_victims(limit: int, there: list[Any], comes: PodInfo, answer: list[str] | Refusal, is_tried: bool) -> None:
    """A place is free when the last user of a volume has left."""
    harness = a_harness(is_tried=is_tried)
    world_of(harness, *there, limit=limit)

    assert harness.what_if(comes).is_counted != is_tried
    assert answer == harness.victims(comes, "n1")


@pytest.mark.parametrize("is_tried", [False, True], ids=["counted aside", "tried in the cache"])
def test_victims_where_what_is_attached_is_charged_twice(is_tried: bool) -> None:
    """As upstream: once the pod that shares it has left, the incoming pod's own volume counts as attached and as wanted."""
    ours, theirs = a_harness(is_tried=is_tried), a_harness(is_tried=is_tried, ours=KubestowArgs(parity=True))
    for harness in (ours, theirs):
        world_of(harness, using("a", 1, "c0"), using("b", 2, "c1"), an_attachment("c0", "n1", EBS))

    assert ours.victims(incoming("c0", "c2"), "n1") == ["b"]
    assert FULL == theirs.victims(incoming("c0", "c2"), "n1")
    assert theirs.victims(incoming("c2"), "n1") == ["b"]


@pytest.mark.parametrize("is_tried", [False, True], ids=["counted aside", "tried in the cache"])
@pytest.mark.parametrize(
    ("claim", "refused"), [pytest.param("c0", {}, id="attached"), pytest.param("c2", {"n1": FULL}, id="not attached")]
)
def test_a_node_with_more_volumes_than_its_limit_takes_pods_whose_volume_is_attached(
    claim: str, refused: Any, is_tried: bool
) -> None:
    """The limit was lowered. With a nominated pod the node is judged by counting; a pod that attaches nothing fits."""
    harness = a_harness(is_tried=is_tried)
    world_of(harness, using("a", 10, "c0"), using("b", 10, "c1"), limit=1)
    harness.nominate("n1", incoming(name="n"))
    comes, state = incoming(claim), CycleState()
    assert harness.runner.pre_filter(state, comes).rejection is None
    _, groups = finish(harness.runner.filter(state, comes, harness.cluster.nodes.present, exact=True))

    assert refused == named(harness.cluster, groups)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world: world.put(a_csi_node("n1").driver(EBS, 1)), id="a limit"),
        pytest.param(lambda world: world.drop(VolumeAttachment, "c2-n1"), id="an attachment went"),
        pytest.param(lambda world: world.put(a_claim("c1")), id="a claim is not bound to it any more"),
    ],
)
def test_what_is_remembered_follows(change: Callable[[AttachWorld], object]) -> None:
    """The dry run's memory of a node ends with whatever changes what is attached there."""
    harness = a_harness()
    world = world_of(harness, using("a", 1, "c1"), an_attachment("c2", "n1", EBS), limit=2)
    dry_run, comes = Evaluator(harness.cluster, VictimRule()), incoming("c0")
    first = harness.remembered(dry_run, comes)
    assert first is harness.remembered(dry_run, comes)
    change(world)

    assert first != harness.remembered(dry_run, comes)
    assert harness.remembered(Evaluator(harness.cluster, VictimRule()), comes) == harness.remembered(dry_run, comes)


def test_pods_with_different_claims_share_an_answer() -> None:
    """As those of a StatefulSet: no dry run for each of them."""
    harness = a_harness()
    world_of(harness, using("a", 1, "c1"), limit=1)
    dry_run = Evaluator(harness.cluster, VictimRule())

    assert harness.remembered(dry_run, incoming("c0")) is harness.remembered(dry_run, incoming("c3", name="other"))
    assert harness.remembered(dry_run, incoming("c0")) is not harness.remembered(dry_run, incoming("c1"))
