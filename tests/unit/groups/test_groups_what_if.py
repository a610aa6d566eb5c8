"""`kubestow what-if` with groups: all pods of a group get a node, or none does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from scheduler.api.pod_group import COSCHEDULING_LABEL, VOLCANO_ANNOTATION
from scheduler.core.cooperative import finish
from scheduler.explain.answer import WhatIfAnswer, what_if_as_text
from scheduler.explain.manifests import WrongRequest
from scheduler.explain.what_if import WhatIfRequest
from tests.examples import examples
from tests.unit.explain.test_what_if import TickingClock, answered, workload
from tests.unit.groups.test_groups import GROUPED, bound, harness
from tests.unit.groups.test_groups_explained import RACK, pods, seen
from tests.unit.groups.worlds import drawn, ended
from tests.unit.harness import SchedulerHarness
from tests.unit.scenarios.device_harness import DeviceHarness

NAMED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "scheduling.k8s.io/v1beta1": ({}, GROUPED),
    "scheduling.x-k8s.io/v1alpha1": ({"labels": {COSCHEDULING_LABEL: "g"}}, {}),
    "scheduling.volcano.sh/v1beta1": ({"annotations": {VOLCANO_ANNOTATION: "g"}}, {}),
}
"""API version of the object → metadata and spec of a pod that names it."""
NATIVE = "scheduling.k8s.io/v1beta1"


def pod_group(least: int, version: str = NATIVE, **spec: Any) -> dict[str, Any]:
    size = {"schedulingPolicy": {"gang": {"minCount": least}}} if version == NATIVE else {"minMember": least}
    return {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {**size, **spec}}


def job(count: int, cpu: str, name: str = "w", version: str = NATIVE, **spec: Any) -> dict[str, Any]:
    """Return a Job whose pods name the group."""
    made = workload("Job", name, cpu=cpu, **spec)
    metadata, of_pods = NAMED[version]
    template = made["spec"]["template"]
    template["metadata"] = metadata
    template["spec"] |= of_pods
    return {**made, "spec": {"parallelism": count, "template": template}}


def answer_to(sched: SchedulerHarness, **request: Any) -> WhatIfAnswer:
    """Return the answer; the question leaves nothing."""
    sched.parts.inbox.apply()
    before = seen(sched)
    found = answered(sched, **request)
    assert seen(sched) == before
    return found


@pytest.mark.parametrize("version", NAMED)
@pytest.mark.parametrize(
    ("least", "count", "verdict", "placed", "cause"),
    [
        pytest.param(3, 3, "fits", 3, "an attempt now places 3 of 3 pods", id="all"),
        pytest.param(5, 5, "doesNotFit", 0, "4 of 5 pods fit together, and 5 have to", id="none"),
        pytest.param(3, 5, "fits", 4, "an attempt now places 4 of 5 pods", id="more than the minimum"),
        pytest.param(9, 3, "doesNotFit", 0, "PodGroup default/g of {}: 3 of 9 pods exist", id="too few pods"),
    ],
)
def test_all_or_nothing(version: str, least: int, count: int, verdict: str, placed: int, cause: str) -> None:
    sched = harness("n1", "n2")
    found = answer_to(sched, manifests=(job(count, "2", version=version), pod_group(least, version)))

    assert (found.verdict, found.placed, found.replicas) == (verdict, placed, count)
    (group,) = found.groups
    api_group = version.partition("/")[0]
    assert (group.verdict, group.cause, group.minimum, group.pods) == (verdict, cause.format(api_group), least, count)
    assert f"default/g (PodGroup of {api_group}): {group.cause}\n" in what_if_as_text(found)


def test_without_its_object_no_pod_is_placed() -> None:
    sched = harness("n1")
    found = answer_to(sched, manifests=(job(2, "1"),))

    assert (found.verdict, found.placed) == ("doesNotFit", 0)
    assert found.cause == "0 of 2 pods fit; the PodGroup default/g of scheduling.k8s.io does not exist"
    assert answer_to(SchedulerHarness(), manifests=(job(2, "1"),)).groups == (), "the server has no such objects"


def test_unlike_pods_of_two_manifests() -> None:
    """By scores the small pods take a node each, and one large pod is left over."""
    sched = harness()
    for name in ("n1", "n2"):
        sched.node(name, labels={"small": "yes"})
    sched.node("n3")
    small, large = job(2, "1", "s", nodeSelector={"small": "yes"}), job(2, "4", "l")
    found = answer_to(sched, manifests=(small, large, pod_group(4)))

    assert (found.verdict, found.placed) == ("fits", 4)
    assert answer_to(sched, manifests=(small, large, pod_group(4)), cordon=("n3",)).verdict == "doesNotFit"
    assert (
        answer_to(sched, manifests=(small, large, pod_group(4)), cordon=("n3",), add_nodes_like={"n3": 1}).verdict
        == "fits"
    )


def test_the_pod_that_finds_no_node_is_explained() -> None:
    sched = harness("n1")
    found = answer_to(sched, manifests=(job(3, "2"), pod_group(3)))

    assert found.explanation is not None
    assert found.explanation.cause == "next to the other pods none of 1 node fits: 1 Insufficient cpu"
    assert found.explanation.groups[0].shortages[0].have == "0"


def test_a_group_next_to_other_pods() -> None:
    """A group that does not fit takes nothing from the pods after it."""
    sched = harness("n1")
    alone = workload("Deployment", "alone", cpu="1")
    found = answer_to(sched, manifests=(job(3, "2"), pod_group(3), alone))

    assert (found.verdict, found.placed, found.replicas) == ("doesNotFit", 2, 5)
    assert {each.pod for each in found.placements} == {"default/alone-0", "default/alone-1"}


def test_a_domain() -> None:
    sched = harness()
    for name, rack in {"a1": "r1", "b1": "r2", "b2": "r2"}.items():
        sched.node(name, labels={"rack": rack})
    found = answer_to(sched, manifests=(job(2, "3"), pod_group(2, **RACK)))
    refused = answer_to(sched, manifests=(job(3, "3"), pod_group(3, **RACK)))

    assert {each.node for each in found.placements} == {"b1", "b2"}
    assert refused.groups[0].cause == "2 of 3 pods fit together in rack r2, the best of 2 domains, and 3 have to"


def test_victims() -> None:
    sched = harness("n1", "n2")
    for node in ("n1", "n2"):
        sched.pod(f"low-{node}", cpu="3", on=node)
    high = job(3, "2", priority=5)
    found = answer_to(sched, manifests=(high, pod_group(3, priority=5)))

    assert (found.verdict, found.placed) == ("fitsAfter", 3)
    assert {(each.pod, each.preempted_by) for each in found.displaced} == {
        ("default/low-n1", "default/g"),
        ("default/low-n2", "default/g"),
    }
    assert answer_to(sched, manifests=(job(5, "2", priority=5), pod_group(5, priority=5))).displaced == ()


async def test_pods_of_the_group_that_wait_already() -> None:
    sched = harness("n1", "n2")
    sched.group("g", 3)
    pods(sched, "a", "b", cpu="3")
    await sched.settle()
    found = answer_to(sched, manifests=(job(1, "1"),))
    assert (found.verdict, found.placed, found.groups[0].pods, found.groups[0].placed) == ("fits", 1, 3, 3)
    assert answer_to(sched, manifests=(job(1, "4"),)).verdict == "doesNotFit"


async def test_more_pods_of_a_group_that_runs() -> None:
    sched = harness("n1", "n2")
    sched.group("g", 2)
    pods(sched, "a", cpu="3", on="n1")
    pods(sched, "b", cpu="3", on="n2")
    found = answer_to(sched, manifests=(job(3, "1"),))

    assert (found.verdict, found.placed, found.groups) == ("doesNotFit", 2, ()), "one by one"


async def test_pods_of_a_group_on_a_drained_node_are_placed_one_by_one() -> None:
    sched = harness("n1", "n2")
    sched.group("g", 2)
    for name in "ab":
        pods(sched, name, cpu="1", on="n1", ownerReferences=[])
    found = answer_to(sched, drain=("n1",))

    assert found.groups == ()
    assert len(found.displaced) == 2


def test_a_claim_that_all_pods_share() -> None:
    sched = DeviceHarness(devices=1, nodes=("n1", "n2"))
    sched.served()
    shared: Any = {"resourceClaims": [{"name": "c", "resourceClaimName": "free"}]}
    sched.show(sched.claim("free"))
    sched.parts.inbox.apply()
    sched.parts.event_handlers.devices.tick()
    found = answer_to(sched, manifests=(job(3, "1", **shared), pod_group(3)))

    assert (found.verdict, found.placed) == ("fits", 3)
    assert len({each.node for each in found.placements}) == 1
    assert sched.writer.claim_writes == []


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({**pod_group(3), "apiVersion": "apps/v1"}, "manifests[0].apiVersion: no kind of PodGroups"),
        ({**pod_group(3), "apiVersion": None}, "manifests[0].apiVersion: no kind of PodGroups"),
        (pod_group(3, "scheduling.x-k8s.io/v1alpha1") | {"spec": {"minMember": "many"}}, "Expected `int`"),
        ({**pod_group(3), "metadata": {}}, "manifests[0]: metadata.name: a name is required"),
        (pod_group(3) | {"spec": []}, "manifests[0]: Expected `object`"),
    ],
)  # fmt: skip
def test_wrong_groups(manifest: dict[str, Any], said: str) -> None:
    sched = harness("n1")
    before = seen(sched)
    with pytest.raises(WrongRequest) as refused:
        answered(sched, manifests=(manifest, job(1, "1")))

    assert said in str(refused.value)
    assert seen(sched) == before


@settings(max_examples=examples(20), deadline=None)
@example(191, 1, 1)  # a search for devices pauses, with devices in the plan
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(0, 3))
def test_no_pause_shows_the_question(seed: int, count: int, beyond: int) -> None:
    async def run() -> None:
        world = drawn(seed)
        sched = world.built()
        world.add_group(sched, len(world.members) + count)
        await sched.settle()
        sched.parts.explainer.clock = TickingClock()
        sched.parts.explainer.budget_s = sched.parts.explainer.trial_s = 1e6
        before = seen(sched)
        manifests = (job(count + beyond, "1"), workload("Deployment", "alone", cpu="1"))
        for _ in sched.parts.what_if.answer(WhatIfRequest(manifests=manifests, cordon=("n0",))):
            assert seen(sched) == before
        assert seen(sched) == before
        await ended(sched)

    asyncio.run(run())


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 6), st.integers(0, 2), st.lists(st.sampled_from("1234"), min_size=1, max_size=3))
def test_what_is_said_is_what_happens(least: int, beyond: int, cpus: list[str]) -> None:
    """A group of equal pods has one order, so that the search always finds what fits."""

    async def run() -> None:
        sched = harness()
        for at, cpu in enumerate(cpus):
            sched.node(f"n{at}", cpu=cpu)
        found = answer_to(sched, manifests=(job(least + beyond, "1"), pod_group(least)))
        sched.group("g", least)
        pods(sched, *(f"p{at}" for at in range(least + beyond)), cpu="1")
        await sched.settle()

        assert found.placed == len(bound(sched))
        assert (found.verdict == "fits") == bool(bound(sched))
        assert finish(sched.parts.group_explainer.group("default/g")) is not None

    asyncio.run(run())
