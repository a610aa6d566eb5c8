"""A group with a topology constraint is placed in one domain (docs/spec/groups.md §4)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from scheduler.api.pod_group import COSCHEDULING_POD_GROUP, KINDS, POD_GROUP, VOLCANO_POD_GROUP
from scheduler.api.podinfo import PodInfo
from scheduler.config.types import Configuration, KubeSchedulerProfile, PluginSet
from tests.examples import examples
from tests.unit.cache.picture import check_sums, picture
from tests.unit.groups.test_groups import ALONE, ANNOTATED, GROUPED, LABELLED, NAMES, bound, conditions, harness
from tests.unit.groups.worlds import GroupWorld, add, drawn, ended, has_started
from tests.unit.harness import SchedulerHarness
from tests.unit.hints.hint_rows import requesting

RACK: dict[str, Any] = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}


def racks(version: str = "1.37", **cpu: str) -> SchedulerHarness:
    """A scheduler with nodes `r1a=4`: node r1a of 4 cpu in rack r1."""
    sched = harness(version=version)
    for name, amount in cpu.items():
        sched.node(name, cpu=amount, labels={"rack": name[:2]})
    return sched


def places(sched: SchedulerHarness) -> dict[str, str]:
    return {key.partition("/")[2]: node for key, node in sched.writer.binds}


def pods(sched: SchedulerHarness, *names: str, cpu: str = "2", **more: Any) -> None:
    for name in names:
        sched.pod(name, cpu=cpu, **GROUPED, **more)


async def test_all_pods_are_in_one_domain() -> None:
    """Only the second rack can take three, and the nodes without a rack could."""
    sched = racks(r1a="4", r2a="4", r2b="2", r3a="4")
    sched.node("alone", cpu="64")
    sched.node("unnamed", cpu="64", labels={"rack": ""})
    sched.group("g", 3, **RACK)
    pods(sched, *NAMES)
    await sched.settle()

    assert sorted(places(sched).values()) == ["r2a", "r2a", "r2b"]


async def test_the_fullest_domain_that_takes_all_pods_is_chosen() -> None:
    sched = racks(r1a="8", r2a="8", r3a="8")
    sched.pod("old", cpu="2", on="r2a")
    sched.pod("older", cpu="7", on="r3a")
    sched.group("g", 1, **RACK)
    pods(sched, *NAMES)
    await sched.settle()

    assert set(places(sched).values()) == {"r2a"}


async def test_without_such_a_domain_the_one_that_takes_the_most() -> None:
    sched = racks(r1a="2", r2a="4", r3a="2")
    sched.pod("old", cpu="100m", on="r1a")
    sched.group("g", 1, **RACK)
    pods(sched, *NAMES)
    await sched.settle()

    assert list(places(sched).values()) == ["r2a", "r2a"]
    (left,) = {*NAMES} - {*places(sched)}
    assert sched.message(left).startswith("0/1 nodes are available: 1 Insufficient cpu.")


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("1.37", f"minCount (3) cannot be satisfied: 2 scheduled, 0 remaining{ALONE}"),
        (
            "1.38",
            "scheduling policy's minimum threshold (3) cannot be satisfied: 2 scheduled, 1 unschedulable, 0 not-evaluated"
            + ALONE,
        ),
    ],
)
async def test_the_texts_count_domains(version: str, text: str) -> None:
    sched = racks(version, r1a="4", r1b="1", r2a="4", r2b="1")
    sched.group("g", 3, **RACK)
    pods(sched, *NAMES)
    await sched.settle()

    whole = f"0/2 placements are available, first placement status: {text}"
    if version == "1.37":
        whole = f"pod group is unschedulable, {whole}"
    messages = [sched.message(name) for name in NAMES]
    assert [message for message in messages if message.startswith("0/2 nodes are available: 2 Insufficient cpu.")]
    own = 'parent pod group "g" is unschedulable' if version == "1.38" else f"pod group is unschedulable, {whole}"
    assert messages.count(own) == 2
    assert sched.writer.group_conditions[-1][1].message.startswith(whole)


@pytest.mark.parametrize("least", [1, None], ids=["gang", "basic"])
async def test_pods_with_a_node_decide_about_the_domain(least: int | None) -> None:
    sched = racks(r1a="4", r2a="64")
    sched.group("g", least, **RACK)
    sched.pod("old", cpu="1", on="r1a", **GROUPED)
    pods(sched, *NAMES)
    await sched.settle()
    assert list(places(sched).values()) == ["r1a"]
    (left, _) = sorted({*NAMES} - {*places(sched)})
    assert sched.refusal(left) == "0/1 nodes are available: 1 Insufficient cpu."

    sched.gone("old")
    await sched.later(15)
    assert list(places(sched).values()) == ["r1a", "r1a"], "the first of them is still there"


async def test_the_end_of_the_pod_that_decided_opens_the_other_domains() -> None:
    """The freed node does not help: the pod may not go there."""
    sched = racks(r1a="4")
    sched.node("r2a", labels={"rack": "r2", "disk": "ssd"})
    sched.group("g", 1, **RACK)
    sched.pod("old", cpu="1", on="r1a", **GROUPED)
    pods(sched, "a", nodeSelector={"disk": "ssd"})
    await sched.settle()
    assert places(sched) == {}

    sched.gone("old")
    await sched.later(15)
    assert places(sched) == {"a": "r2a"}


@pytest.mark.parametrize("least", [None, 2], ids=["basic", "gang"])
async def test_a_group_without_pods_on_nodes_starts_in_one_domain(least: int | None) -> None:
    sched = racks(r1a="2", r2a="2", r3a="4")
    sched.group("g", least, **RACK)
    pods(sched, "a", "b")
    await sched.settle()

    assert places(sched) == {"a": "r3a", "b": "r3a"}


async def test_a_pod_of_a_basic_group_with_a_constraint_preempts() -> None:
    sched = racks(r1a="4")
    sched.pod("low", cpu="4", on="r1a", priority=-5)
    sched.group("g", None, **RACK)
    pods(sched, "a")
    await sched.settle()
    assert sched.writer.deletions == ["default/low"]

    sched.gone("low")
    await sched.later(12)
    assert places(sched) == {"a": "r1a"}


@pytest.mark.parametrize("labels", [{}, {"rack": ""}, {"other": "r1"}])
async def test_no_domain(labels: dict[str, str]) -> None:
    sched = harness()
    sched.node("n1", labels=labels)
    sched.group("g", 2, **RACK)
    pods(sched, "a", "b")
    await sched.settle()
    assert {sched.message(name) for name in "ab"} == {"no feasible placements found"}

    sched.node("n1", labels={**labels, "unlike": "r1"})
    await sched.later(15)
    assert bound(sched) == []
    assert {entry.attempts for entry in sched.parts.queue.entries()} == {1}, "that label is not the one"

    sched.node("n1", labels={"rack": "r1"})
    await sched.later(15)
    assert bound(sched) == ["a", "b"]


@pytest.mark.parametrize(
    ("version", "one", "two", "text"),
    [
        ("1.37", "r1", "r2", "more than 1 domain found for pod group: r1, r2"),
        ("1.38", "r1", "r2", 'more than 1 domain found for pod group: "r1", "r2"'),
        ("1.37", "r1", None, "no topology domain found for pod default/two"),
        ("1.38", "r1", None, "no topology domain found for pod default/two"),
        ("1.37", "r1", "", "no topology domain found for pod default/two"),
        ("1.38", "r1", "", "empty topology domain found for pod default/two"),
    ],
)
async def test_pods_that_are_not_in_one_domain(version: str, one: str, two: str | None, text: str) -> None:
    sched = harness(version=version)
    sched.node("n1", labels={"rack": one})
    sched.node("n2", labels={} if two is None else {"rack": two})
    sched.group("g", 3, **RACK)
    sched.pod("one", cpu="1", on="n1", **GROUPED)
    sched.pod("two", cpu="1", on="n2", **GROUPED)
    pods(sched, "a")
    await sched.settle()
    whole = f"cannot determine domain for already scheduled pods: {text}"
    assert sched.message("a") == (whole if version == "1.37" else 'parent pod group "g" encountered an error')
    assert conditions(sched) == [("False", "SchedulerError", whole)]

    sched.node("n2", labels={"rack": one})
    await sched.later(15)
    assert bound(sched) == ["a"]


@pytest.mark.parametrize("rack", ["r1", "r2"])
async def test_a_change_in_any_domain_brings_the_group_back(rack: str) -> None:
    """A pod finds a node in the one domain, and is rejected in the other. Its verdict is that of the first."""
    sched = racks(r1a="4", r1b="1", r2a="4", r2b="1")
    sched.group("g", 3, **RACK)
    pods(sched, *NAMES)
    await sched.settle()
    assert bound(sched) == []

    sched.node(f"{rack}b", cpu="2", labels={"rack": rack})
    await sched.later(15)
    assert {node[:2] for node in places(sched).values()} == {rack}


async def test_a_pod_that_only_the_second_domain_rejected_waits_for_it() -> None:
    """In r1 the small pod finds a node and the large one none; in r2 it is the other way round."""
    sched = racks(r1a="4", r2a="4", r2b="1")
    sched.node("r1a", cpu="4", labels={"rack": "r1", "disk": "ssd"})
    sched.group("g", 2, **RACK)
    pods(sched, "small", cpu="1", nodeSelector={"disk": "ssd"})
    pods(sched, "large", cpu="4")
    await sched.settle()
    assert bound(sched) == []

    sched.node("r2b", cpu="1", labels={"rack": "r2", "disk": "ssd"})
    await sched.later(15)
    assert places(sched) == {"small": "r2b", "large": "r2a"}


def counted(sched: SchedulerHarness) -> list[str]:
    """Return a list that gets the name of each pod that is tried."""
    tried: list[str] = []
    cycle = sched.parts.loop._parts.group_cycle.cycle
    attempt = cycle.attempt

    def counting(pod: PodInfo, *columns: Any, **more: Any) -> Any:
        tried.append(pod.pod.metadata.name)
        return attempt(pod, *columns, **more)

    cycle.attempt = counting  # type: ignore[method-assign]
    return tried


@pytest.mark.parametrize(
    "amount", [{"cpu": "1"}, {"memory": "1Gi"}, {"pods": "1"}], ids=lambda amount: next(iter(amount))
)
async def test_domains_that_are_too_small_together_cost_no_attempt(amount: dict[str, str]) -> None:
    """One is tried all the same, for the verdicts. A change of any of them brings the group back."""
    sched = harness()
    attempts = counted(sched)
    for at in range(60):
        sched.node(f"n{at}", labels={"rack": f"r{at}"}, **amount)
    sched.group("g", 2, **RACK)
    for name in "ab":
        sched.pod(name, containers=requesting(cpu="1", memory="1Gi"), **GROUPED)
    await sched.settle()
    messages = [sched.message(name) for name in "ab"]
    assert any("0/60 placements are available, " in message for message in messages)
    assert len(attempts) <= 2

    sched.node("n59", labels={"rack": "r59"})
    await sched.later(15)
    assert places(sched) == {"a": "n59", "b": "n59"}


async def test_without_the_plugin_no_domain_is_too_small() -> None:
    profiles = (KubeSchedulerProfile("kubestow", plugins={"filter": PluginSet(disabled=("NodeResourcesFit",))}),)
    sched = SchedulerHarness(Configuration(profiles=profiles))
    sched.served()
    sched.node("n1", cpu="1", labels={"rack": "r1"})
    sched.group("g", 2, **RACK)
    pods(sched, "a", "b")
    await sched.settle()

    assert bound(sched) == ["a", "b"]


async def test_more_domains_than_one_attempt_may_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt searches different ones, so that the one that fits is found in the end."""
    monkeypatch.setattr("scheduler.groups.cycle._DOMAIN_ATTEMPTS", 0)
    sched = harness()
    for at in range(40):
        sched.node(f"n{at}", labels={"rack": f"r{at}", **({"disk": "ssd"} if at == 39 else {})})
    sched.group("g", 2, **RACK)
    pods(sched, "a", "b", cpu="1", nodeSelector={"disk": "ssd"})
    await sched.settle()
    text = "8 of 40 topology domains were tried with 8 attempts, none fits yet"
    assert bound(sched) == ["a", "b"] or sched.message("a") == text

    for _ in range(200):
        await sched.later(15)
    assert places(sched) == {"a": "n39", "b": "n39"}


def zoned(seed: int) -> GroupWorld:
    """Return a world whose group may be placed in one zone alone: members that must be in the other one are dropped."""
    world = drawn(seed)
    zone = world.nodes[0].zone
    return GroupWorld(world.nodes, [replace(each, zone="") for each in world.members if each.zone in {"", zone}][:6])


def is_placeable_in_one_zone(world: GroupWorld) -> bool:
    return any(GroupWorld([n for n in world.nodes if n.zone == zone], world.members).is_placeable() for zone in "ab")


async def planned(sched: SchedulerHarness) -> None:
    """Try the group once. Its bindings would wait for a volume controller that is not there."""
    await sched.parts.loop.step()
    await sched.turns()


async def test_nearly_all_groups_that_fit_in_one_zone_are_placed() -> None:
    placeable = placed = 0
    for seed in range(examples(150)):
        world = zoned(seed)
        sched = world.built()
        before = picture(sched.cluster)
        sched.group("g", len(world.members), schedulingConstraints={"topology": [{"key": "zone"}]})
        for member in world.members:
            add(sched, member)
        await planned(sched)
        if is_placeable_in_one_zone(world):
            placeable += 1
            placed += has_started(sched)
        else:
            assert not has_started(sched)
        if has_started(sched):
            assert len(zones(sched, world)) == 1
            check_sums(sched.cluster)
        else:
            assert list(sched.cluster.assumed()) == []
            assert picture(sched.cluster).keys() == before.keys()
        await ended(sched)

    assert placeable >= 20
    assert placed >= 0.96 * placeable


def zones(sched: SchedulerHarness, world: GroupWorld) -> set[str]:
    held = [sched.cluster.get(f"uid-{member.name}") for member in world.members]
    on = {info.node_name for info in held if info is not None}
    return {node.zone for node in world.nodes if node.name in on}


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_a_part_of_a_group_is_in_one_zone(seed: int, least: int) -> None:
    async def run() -> None:
        world = zoned(seed)
        sched = world.built()
        sched.group("g", least, schedulingConstraints={"topology": [{"key": "zone"}]})
        for member in world.members:
            add(sched, member)
        await planned(sched)
        held = sum(sched.cluster.get(f"uid-{member.name}") is not None for member in world.members)
        assert held == 0 or held >= min(least, len(world.members))
        assert len(zones(sched, world)) <= 1
        await ended(sched)

    asyncio.run(run())


# -- preferred domains ---------------------------------------------------------------------------------------------------


def preferring(keys: str) -> dict[str, Any]:
    return {"annotations": {"kubestow.dev/preferred-topology": keys}}


def hall(**cpu: str) -> SchedulerHarness:
    """A scheduler with nodes `b1r2x=4`: node b1r2x of 4 cpu in block b1 and rack b1r2."""
    sched = harness()
    for name, amount in cpu.items():
        sched.node(name, cpu=amount, labels={"block": name[:2], "rack": name[:4]})
    return sched


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("count", "nodes"),
    [
        pytest.param(2, {"b2r1x", "b2r1y"}, id="one rack"),
        pytest.param(3, {"b2r1x", "b2r1y", "b2r2x"}, id="one block"),
        pytest.param(4, {"b1r1x", "b2r1x", "b2r1y", "b2r2x"}, id="all nodes"),
    ],
)
async def test_the_closest_domain_that_takes_all_pods(kind: str, count: int, nodes: set[str]) -> None:
    sched = hall(b1r1x="4", b2r1x="4", b2r1y="4", b2r2x="4")
    sched.group("g", 2, kind, **preferring("rack, block, rack"))
    named = {POD_GROUP: GROUPED, COSCHEDULING_POD_GROUP: LABELLED, VOLCANO_POD_GROUP: ANNOTATED}[kind]
    for at in range(count):
        sched.pod(f"p{at}", cpu="4", **named)
    await sched.settle()

    assert set(places(sched).values()) == nodes


async def test_a_preferred_domain_within_a_required_one() -> None:
    """Only block b1 may be used, because a pod of the group runs there; rack b1r2 takes both of the new ones."""
    sched = hall(b1r1x="8", b1r2x="4", b1r2y="4", b2r1x="8", b2r1y="8")
    sched.group("g", 3, schedulingConstraints={"topology": [{"key": "block"}]}, **preferring("rack"))
    sched.pod("first", cpu="6", on="b1r1x", **GROUPED)
    pods(sched, "a", "b", cpu="4")
    await sched.settle()

    assert places(sched) in ({"a": "b1r2x", "b": "b1r2y"}, {"a": "b1r2y", "b": "b1r2x"})


async def test_the_domain_of_pods_that_run_comes_first() -> None:
    sched = hall(b1r1x="8", b1r2x="8")
    sched.pod("other", cpu="4", on="b1r2x")
    sched.group("g", 3, **preferring("rack"))
    sched.pod("first", cpu="2", on="b1r1x", **GROUPED)
    pods(sched, "a", "b")
    await sched.settle()

    assert set(places(sched).values()) == {"b1r1x"}


@pytest.mark.parametrize(
    "keys", ["", " , ", "unknown", "not a key/at/all,unknown", "x" * 5000, ",".join(map(str, range(999)))]
)
async def test_keys_that_no_node_has(keys: str) -> None:
    sched = hall(b1r1x="4", b2r1x="4")
    sched.group("g", 2, **preferring(keys))
    pods(sched, "a", "b", cpu="4")
    await sched.settle()

    assert len(places(sched)) == 2
