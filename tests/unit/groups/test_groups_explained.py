"""`kubestow explain group`: its state, what an attempt would do now, and the pod that keeps it from its start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from scheduler.api.decode import Delta
from scheduler.api.pod_group import COSCHEDULING_POD_GROUP, VOLCANO_POD_GROUP
from scheduler.audit.checks import cache_checks
from scheduler.core.cooperative import finish
from scheduler.explain.explainer import Explainer
from scheduler.explain.groups.answer import GroupExplanation, NodesToAdd, group_as_text
from tests.examples import examples
from tests.unit.cache.picture import picture
from tests.unit.explain.test_stretches import news
from tests.unit.explain.test_what_if import TickingClock, state
from tests.unit.groups.test_groups import ALONE, ANNOTATED, GROUPED, LABELLED, NAMES, bound, harness
from tests.unit.groups.test_groups_laws import too_large
from tests.unit.groups.test_groups_preemption import LEAVING
from tests.unit.groups.worlds import drawn, ended
from tests.unit.harness import SchedulerHarness, manifest, read_pod
from tests.unit.scenarios.device_harness import DeviceHarness
from tools.answer_schemas import page

RACK: dict[str, Any] = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}


def group(sched: SchedulerHarness, name: str = "g", api_group: str = "") -> GroupExplanation:
    found = finish(sched.parts.group_explainer.group(f"default/{name}", api_group))
    assert found is not None
    return found


def pods(sched: SchedulerHarness, *names: str, **spec: Any) -> None:
    for name in names:
        sched.pod(name, **GROUPED | spec)


def lacks_the_object(sched: SchedulerHarness) -> None:
    sched.group_gone("g")
    pods(sched, "a")


def lacks_pods(sched: SchedulerHarness) -> None:
    pods(sched, "a", "b")


def fits(sched: SchedulerHarness) -> None:
    pods(sched, *NAMES, cpu="1")


def is_too_large(sched: SchedulerHarness) -> None:
    pods(sched, *NAMES, cpu="2")


def has_a_pod_that_fits_nowhere(sched: SchedulerHarness) -> None:
    pods(sched, "a", "b", cpu="1")
    pods(sched, "c", cpu="1", nodeSelector={"disk": "none"})


def has_a_gated_pod(sched: SchedulerHarness) -> None:
    pods(sched, "a", "b", cpu="1")
    pods(sched, "c", cpu="1", gates=["quota.example.com/hold"])


def has_an_unsupported_field(sched: SchedulerHarness) -> None:
    sched.group("g", 3, resourceClaims=[{"name": "c"}])
    pods(sched, *NAMES, cpu="1")


def has_pods_that_differ(sched: SchedulerHarness) -> None:
    pods(sched, "a", "b", cpu="1")
    pods(sched, "c", cpu="1", priority=5)


def has_no_domain(sched: SchedulerHarness) -> None:
    sched.group("g", 3, **RACK)
    pods(sched, *NAMES, cpu="1")


def starts_one_by_one(sched: SchedulerHarness) -> None:
    sched.group("g", None)
    pods(sched, "a", cpu="5")


CASES = [
    pytest.param(lacks_the_object, ("fitsAfter", "GroupIncomplete", "user"),
        "the object does not exist, or cannot be read", id="no object"),
    pytest.param(lacks_pods, ("fitsAfter", "GroupIncomplete", "user"), "2 of 3 pods exist", id="too few pods"),
    pytest.param(fits, ("fits", "Fits", "wait"), "it fits: an attempt now places 3 of 3 pods", id="fits"),
    pytest.param(is_too_large, ("doesNotFit", "GroupUnschedulable", "administrator"),
        "2 of 3 pods fit together, and 3 have to", id="too large"),
    pytest.param(has_a_pod_that_fits_nowhere, ("doesNotFit", "GroupUnschedulable", "user"),
        "2 of 3 pods fit together, and 3 have to", id="one pod fits nowhere"),
    pytest.param(has_a_gated_pod, ("fitsAfter", "Gated", "wait"),
        "1 pod held back, and 3 have to be placed together", id="a gate"),
    pytest.param(has_an_unsupported_field, ("doesNotFit", "GroupRefused", "user"),
        'pod group "g" uses spec.resourceClaims, which Kubestow does not support: remove it, or give these pods to another scheduler', id="a field"),
    pytest.param(has_pods_that_differ, ("doesNotFit", "GroupRefused", "user"),
        "all pods in a single pod group should have the same priority as the pod group's priority, got 5 and 0", id="priorities"),
    pytest.param(has_no_domain, ("doesNotFit", "GroupUnschedulable", "administrator"), "no feasible placements found", id="no domain"),
    pytest.param(starts_one_by_one, ("doesNotFit", "InsufficientResources", "user"),
        "its pods start one by one; 1 pod without a node", id="basic"),
]  # fmt: skip


@pytest.mark.parametrize("tried", [False, True], ids=["before an attempt", "after it"])
@pytest.mark.parametrize(("arranged", "verdict", "cause"), CASES)
async def test_what_a_group_waits_for(
    arranged: Callable[[SchedulerHarness], None], verdict: tuple[str, str, str], cause: str, *, tried: bool
) -> None:
    sched = harness("n1")
    sched.group("g", 3)
    arranged(sched)
    sched.parts.inbox.apply()
    if tried and arranged is not fits:
        await sched.settle()
    before = state(sched), news(sched)

    found = group(sched)

    assert (found.verdict, found.code, found.move, found.cause) == (*verdict, cause)
    assert (state(sched), news(sched)) == before
    assert f"default/g (PodGroup of scheduling.k8s.io): {cause}\n" in group_as_text(found)


async def test_the_numbers_of_a_group_that_does_not_fit() -> None:
    sched = harness("n1", "n2")
    sched.group("g", 4)
    pods(sched, "small", cpu="1")
    pods(sched, *NAMES, cpu="3")
    for _ in range(3):  # the search is repeated twice
        await sched.later(5)
    found = group(sched)

    assert (found.minimum, found.needed, found.tried, found.fitting) == (4, 4, 4, 3)
    assert not found.has_started
    assert found.members == {"waiting": 4}
    assert sorted((kind.pods, kind.nodes) for kind in found.kinds) == [(1, 2), (3, 2)]
    assert found.preemption == ALONE.partition(": ")[2]
    (blocking,) = found.blocking
    assert found.explanation is not None
    assert found.explanation.pod == blocking
    assert found.explanation.code == "InsufficientResources"
    assert found.nodes_to_add == NodesToAdd(like="n1", nodes=1)
    assert "\nfix (verified: an attempt then places the group):\n  add 1 node like n1\n" in group_as_text(found)
    (short,) = found.explanation.groups[0].shortages
    assert (short.need, short.have) == ("3", "1"), "what the other pods leave"


async def test_the_pod_that_fits_nowhere_is_explained_with_fixes() -> None:
    sched = harness("n1")
    sched.group("g", 3)
    has_a_pod_that_fits_nowhere(sched)
    await sched.settle()
    found = group(sched)

    assert found.blocking == ("default/c",)
    assert found.explanation is not None
    assert [fix.changes[0].code for fix in found.explanation.fixes] == ["RemoveNodeSelector", "LabelNode"]
    assert [fix.starts_group for fix in found.explanation.fixes] == [True, True]
    text = group_as_text(found)
    assert "without a node: default/c\n\ndefault/c: none of 1 node fits: " in text
    assert "\nfix 1 (verified: an attempt then places the group):\n" in text


def proofs(sched: SchedulerHarness) -> dict[str, bool | None]:
    """Return by its code whether the group starts after each fix of one change."""
    sched.parts.inbox.apply()
    before = state(sched), news(sched)
    found = group(sched)
    assert (state(sched), news(sched)) == before
    assert found.explanation is not None
    return {fix.changes[0].code: fix.starts_group for fix in found.explanation.fixes if len(fix.changes) == 1}


async def test_a_fix_that_helps_one_pod_alone_says_so() -> None:
    """The node has no place for the third pod."""
    sched = harness()
    sched.node("n1", cpu="2")
    sched.group("g", 3)
    has_a_pod_that_fits_nowhere(sched)

    assert proofs(sched) == {"RemoveNodeSelector": False, "LabelNode": False}
    text = "\nfix 1 (for this pod alone: an attempt then chooses n1, and its group is not placed yet):\n"
    assert text in group_as_text(group(sched))


@pytest.mark.parametrize(("cpu", "starts"), [("2", False), ("4", True)])
@pytest.mark.parametrize("name", ["c", "d"])
async def test_the_fixes_of_a_pod_are_tried_with_its_group(name: str, cpu: str, *, starts: bool) -> None:
    """Also of the second pod that fits nowhere: its fix leaves the first one without a node."""
    sched = harness()
    sched.node("n1", cpu=cpu)
    sched.group("g", 3)
    has_a_pod_that_fits_nowhere(sched)
    if name == "d":
        pods(sched, "d", cpu="1", nodeSelector={"disk": "none"})
    await sched.settle()
    found = finish(sched.parts.group_explainer.pod(f"default/{name}"))

    assert found is not None
    assert {fix.starts_group for fix in found.fixes} == {starts}


async def test_a_change_of_a_pod_is_tried_for_all_pods_like_it() -> None:
    """They have one template. So the group starts although none of the pods fits without the change."""
    sched = harness("n1", "n2", "n3")
    sched.group("g", 3)
    pods(sched, *NAMES, cpu="5")

    assert proofs(sched)["LowerRequest"] is True


def made_by(sched: SchedulerHarness, owner: str, name: str, claim: str = "", **spec: Any) -> None:
    """Show a pod of a controller; `claim` was made for it from the template t."""
    raw = manifest(name, **spec)
    raw["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
    ]
    if claim:
        raw["spec"]["resourceClaims"] = [{"name": "r", "resourceClaimTemplateName": "t"}]
        raw["status"]["resourceClaimStatuses"] = [{"name": "r", "resourceClaimName": claim}]
    sched.parts.event_handlers.apply("Pod", [Delta(sched.seen.get(name), shown := read_pod(raw))])
    sched.seen[name] = shown


@pytest.mark.parametrize(("owner", "starts"), [("w", True), ("other", False)])
async def test_a_change_of_a_pod_is_tried_for_the_pods_of_its_controller(owner: str, *, starts: bool) -> None:
    sched = harness("n1", "n2")
    sched.group("g", 2)
    made_by(sched, "w", "a", cpu="5", **GROUPED)
    made_by(sched, owner, "b", cpu="6", **GROUPED)

    assert proofs(sched)["LowerRequest"] is starts


async def test_a_change_of_a_claim_template_is_tried_for_all_claims_that_are_made_from_it() -> None:
    sched = DeviceHarness(1, nodes=("n1", "n2"))
    sched.served()
    sched.group("g", 2)
    for name in ("a", "b"):
        sched.show(sched.claim(f"c-{name}", count=2).owned_by(name, f"uid-{name}"))
        made_by(sched, "w", name, claim=f"c-{name}", **GROUPED)

    assert proofs(sched) == {"FewerDevices": True}


async def test_a_deletion_is_tried_with_the_pod_that_comes_back() -> None:
    """It takes the place of the other pod of the group, so the fix helps one pod alone."""
    sched = harness()
    sched.node("n1", cpu="4", taints=[{"key": "large", "effect": "NoSchedule"}])
    sched.node("n2", cpu="1")
    sched.group("g", 2)
    made_by(sched, "other", "x", cpu="1", on="n1")
    pods(sched, "a", cpu="4", tolerations=[{"key": "large", "operator": "Exists"}])
    pods(sched, "b", cpu="1")

    assert proofs(sched)["DeletePod"] is False


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.sampled_from("3468"), min_size=1, max_size=3), st.lists(st.sampled_from("123"), min_size=2, max_size=9)
)
def test_the_group_starts_with_the_nodes_to_add(nodes: list[str], members: list[str]) -> None:
    """And not with one node less, if all pods are alike: then the search has one order."""

    async def run() -> None:
        sched = harness()
        for at, cpu in enumerate(nodes):
            sched.node(f"n{at}", cpu=cpu)
        sched.group("g", len(members))
        for at, cpu in enumerate(members):
            pods(sched, f"p{at}", cpu=cpu)
        await sched.settle()
        if bound(sched) or (wanted := group(sched).nodes_to_add) is None:
            return
        size = nodes[int(wanted.like[1:])]
        for at in range(wanted.nodes - 1):
            sched.node(f"new{at}", cpu=size)
        await sched.later(15)
        assert bound(sched) == [] or len(set(members)) > 1
        sched.node("last", cpu=size)
        await sched.later(15)
        assert len(bound(sched)) == len(members)

    asyncio.run(run())


async def test_what_fits_is_what_happens() -> None:
    sched = harness("n1", "n2")
    sched.group("g", 2)
    pods(sched, *NAMES, cpu="3")
    sched.parts.inbox.apply()
    found = group(sched)
    assert (found.verdict, found.cause) == ("fits", "it fits: an attempt now places 2 of 3 pods")
    assert len(found.blocking) == 1

    await sched.settle()
    assert [f"default/{name}" for name in bound(sched)] == sorted(each.pod for each in found.placements)
    assert group(sched).cause == "enough pods are placed; 1 pod without a node"
    for each in found.placements:
        sched.pod(each.pod.partition("/")[2], cpu="3", on=each.node, **GROUPED)
    sched.parts.inbox.apply()
    after = group(sched)
    assert (after.has_started, after.verdict, after.code) == (True, "doesNotFit", "InsufficientResources")
    assert after.cause == "it has started; 1 pod without a node"
    assert after.members["running"] == 2


async def test_the_best_domain() -> None:
    sched = harness()
    for name, rack in {"a1": "r1", "b1": "r2", "b2": "r2", "none": ""}.items():
        sched.node(name, labels={"rack": rack} if rack else {})
    sched.group("g", 3, **RACK)
    pods(sched, *NAMES, cpu="3")
    await sched.settle()
    found = group(sched)

    assert found.cause == "2 of 3 pods fit together in rack r2, the best of 2 domains, and 3 have to"
    assert (found.topology_key, found.domain, found.domains) == ("rack", "r2", 2)
    assert found.explanation is not None
    assert found.explanation.cause == "next to the other pods none of 2 nodes fits: 2 Insufficient cpu", "of the domain"

    assert found.nodes_to_add is not None
    assert (found.nodes_to_add.like[0], found.nodes_to_add.nodes) == ("b", 1)
    sched.node("b3", labels={"rack": "r2"})
    sched.parts.inbox.apply()
    assert group(sched).cause == "it fits: an attempt now places 3 of 3 pods in rack r2"


async def test_victims() -> None:
    sched = harness("n1")
    sched.pod("low", cpu="3", on="n1")
    sched.group("g", 2, priority=5)
    pods(sched, "a", "b", cpu="2", priority=5)
    sched.parts.inbox.apply()
    before = state(sched), news(sched)
    found = group(sched)

    assert (found.verdict, found.code) == ("fitsAfter", "Preempting")
    assert found.cause == "0 of 2 pods fit together, and 2 have to; other pods have to leave first"
    assert found.preemption == "found a placement for podgroup, preempting 1 victims"
    assert len(found.victims) == 1
    assert (state(sched), news(sched)) == before

    await sched.settle()
    evicted = [write.partition(" ")[2] for write in sched.writer.wire if write.startswith("delete")]
    assert [f"default/{name}" for name in evicted] == list(found.victims)
    assert (group(sched).verdict, group(sched).code) == ("fitsAfter", "Preempting")


async def test_a_profile_that_places_pods_one_by_one() -> None:
    sched = harness("n1", groups="none")
    sched.group("g", 3)
    pods(sched, "a", cpu="9")
    await sched.settle()
    found = group(sched)

    assert (found.verdict, found.code) == ("doesNotFit", "InsufficientResources")
    assert found.cause == "the profile kubestow places pods one by one"


async def test_groups_of_one_name() -> None:
    sched = harness("n1")
    sched.group("g", 2)
    sched.group("g", 3, COSCHEDULING_POD_GROUP)
    sched.pod("a", cpu="1", **LABELLED)
    sched.pod("b", cpu="1", **ANNOTATED)
    sched.parts.inbox.apply()

    assert group(sched).also == ("scheduling.x-k8s.io", "scheduling.volcano.sh")
    assert "there is also a group of this name of scheduling.x-k8s.io: --api-group" in group_as_text(group(sched))
    assert group(sched, api_group="scheduling.x-k8s.io").cause == "1 of 3 pods exist"
    assert group(sched, api_group="scheduling.volcano.sh").cause == "the object does not exist, or cannot be read"
    assert finish(sched.parts.group_explainer.group("default/none")) is None
    sched.served(VOLCANO_POD_GROUP, is_served=False)
    assert group(sched, api_group="scheduling.volcano.sh").verdict == "fits"


async def test_a_pod_that_only_its_group_keeps_pending_names_the_other_pod() -> None:
    sched = harness("n1")
    sched.group("g", 3)
    has_a_pod_that_fits_nowhere(sched)
    await sched.settle()
    found = finish(sched.parts.group_explainer.pod("default/a"))
    other = finish(sched.parts.group_explainer.pod("default/c"))

    assert found is not None
    assert other is not None
    assert found.code == "GroupUnschedulable"
    assert found.cause.endswith(
        "2 of 3 pods fit together, and 3 have to; default/c: none of 1 node fits: 1 node(s) didn't match Pod's node affinity/selector"
    )
    assert other.code == "NodeAffinityMismatch"


def test_the_published_schema() -> None:
    """Else: python -m tools.answer_schemas"""
    file = Path(__file__).parents[3] / "docs" / "explain-group.schema.json"

    assert file.read_text() == page(file.name)


# -- nothing is left behind ----------------------------------------------------------------------------------------------


def seen(sched: SchedulerHarness) -> Any:
    """Return what bindings, pages and waiting pods read."""
    nominator, devices = sched.parts.queue.nominator, sched.cluster.devices
    held = {claim.key: devices.use.held(claim.uid) for claim in devices.claims}
    return held, picture(sched.cluster), news(sched), sorted(nominator.uids()), sched.cluster.is_planning


def watched(sched: SchedulerHarness) -> tuple[GroupExplanation, int]:
    """Explain the group with as many pauses as there can be; the cluster looks the same in each. Return also their number."""
    explainer: Explainer = sched.parts.explainer
    explainer.clock, explainer.budget_s, explainer.trial_s = TickingClock(), 1e6, 1e6
    before, found = seen(sched), list[GroupExplanation | None]()

    def work() -> Iterator[bool]:
        found.append((yield from sched.parts.group_explainer.group("default/g")))

    pauses = 0
    for _ in work():
        assert seen(sched) == before
        pauses += 1
    assert seen(sched) == before
    assert found[0] is not None
    return found[0], pauses


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_no_pause_shows_the_trial(seed: int, is_too_large: bool) -> None:
    async def run() -> None:
        world = drawn(seed)
        sched = world.built()
        (too_large(world) if is_too_large else world).add_group(sched)
        sched.parts.inbox.apply()
        if is_too_large:
            await sched.settle()
        found, pauses = watched(sched)

        assert pauses > 2
        assert sched.writer.claim_writes == []
        checks = cache_checks(sched.cluster, lambda _: False)
        assert [each for check in checks.values() for step in check() for each in step] == []
        assert found.is_search_complete
        if is_too_large:
            assert found.verdict == "doesNotFit"
            assert found.fitting is not None
            assert found.fitting < found.needed
            assert len(found.blocking) == found.tried - found.fitting
        elif found.verdict == "fits":
            assert len(found.placements) == found.needed
            await sched.settle()
            assert sched.writer.group_conditions or not sched.is_free()
        await ended(sched)

    asyncio.run(run())


async def test_a_trial_with_nominated_pods_and_victims() -> None:
    sched = harness("n1", "n2")
    for node in ("n1", "n2"):
        sched.pod(f"low-{node}", cpu="3", on=node)
    sched.group("g", 2, priority=5)
    pods(sched, "a", cpu="2", priority=5, nominated="n1")
    pods(sched, "b", cpu="3", priority=5)
    sched.parts.inbox.apply()
    found, _ = watched(sched)

    assert len(found.victims) == 2


async def test_a_pod_that_leaves_for_the_group_already() -> None:
    sched = harness("n1")
    sched.pod("low", cpu="3", on="n1", **LEAVING)
    sched.group("g", 2, priority=5)
    pods(sched, "a", "b", cpu="2", priority=5, nominated="n1")
    sched.parts.inbox.apply()
    found, _ = watched(sched)

    assert (found.verdict, found.code, found.preemption) == (
        "fitsAfter",
        "Preempting",
        "ongoing preemption on nominated nodes",
    )
    assert found.cause == "0 of 2 pods fit together, and 2 have to; pods are leaving for it"


async def test_a_search_that_takes_too_long() -> None:
    sched = harness("n1")
    sched.group("g", 3)
    is_too_large(sched)
    sched.parts.inbox.apply()
    sched.parts.explainer.clock, sched.parts.explainer.budget_s = TickingClock(), 0.02
    before = seen(sched)
    found = group(sched)

    assert (found.verdict, found.is_search_complete) == ("doesNotFit", False)
    assert found.cause == "its search takes too long for an explanation"
    assert seen(sched) == before


async def test_a_question_that_is_cancelled_leaves_nothing() -> None:
    sched = harness("n1", "n2")
    sched.group("g", 3)
    fits(sched)
    sched.parts.inbox.apply()
    sched.parts.explainer.clock = TickingClock()
    before = seen(sched)
    for steps in range(20):
        work = sched.parts.group_explainer.group("default/g")
        for _ in zip(range(steps), work):
            pass
        work.close()
        assert seen(sched) == before


async def test_claims_that_tie_a_pod_to_a_node() -> None:
    sched = DeviceHarness(devices=1, nodes=("n1", "n2"))
    sched.served()
    sched.holds("taken", "d0", on="n1")
    sched.group("g", 2)
    pods(sched, "a", cpu="1", resourceClaims=[{"name": "c", "resourceClaimName": "taken"}])
    pods(sched, "b", cpu="1", nodeSelector={"disk": "none"})
    sched.parts.inbox.apply()
    (pin,) = group(sched).pins

    assert (pin.pod, pin.claim, pin.examples) == ("default/a", "ResourceClaim default/taken", ("n1",))
    assert "default/a is tied to 1 node (n1) by ResourceClaim default/taken\n" in group_as_text(group(sched))
