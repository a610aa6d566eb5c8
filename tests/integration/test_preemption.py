"""Preemption by the real daemon over real sockets: who dies, for whom, and what trouble in between costs (§3.10, §9.7)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from scheduler.core.disruption import DISRUPTION_TARGET
from scheduler.testing.apiserver import ApiServer, Fault
from scheduler.testing.kubelet import Kubelet
from tests.integration.daemon import Rig, rig, rig_on
from tests.integration.judging import leftovers
from tests.support.invariants import Witness

Object = dict[str, Any]
BUDGETS = "poddisruptionbudgets"


def prepared() -> ApiServer:
    """A server on which `high` is more important than what names no class."""
    server = ApiServer()
    server.create("priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
    return server


@contextlib.asynccontextmanager
async def stage(**victims: int) -> AsyncIterator[tuple[Rig, Kubelet, Witness]]:
    """Nodes that are full of so many victims each, and kubelets that move when they are told to.

    Victims of n1 are n1-0, n1-1 …; a node takes as many CPUs as it has victims.
    """
    server = prepared()
    async with rig(server) as world:
        witness, kubelet = Witness(server), Kubelet(server)
        for name, count in victims.items():
            world.node(name, cpu=str(count))
            for i in range(count):
                world.pod(f"{name}-{i}", cpu="1", nodeName=name)
        kubelet.step()
        yield world, kubelet, witness
        witness.close()


def high(world: Rig, cpu: str) -> None:
    world.pod("p", cpu=cpu, priorityClassName="high")


def victims(witness: Witness) -> list[str]:
    """Whom the daemon has deleted, by name."""
    return sorted(key.partition("/")[2] for key in witness.preempted.values() if key != "default/p")


def leaving(world: Rig) -> list[str]:
    return sorted(p["metadata"]["name"] for p in world.server.list("pods") if p["metadata"].get("deletionTimestamp"))


def nominated(world: Rig) -> str:
    status: Object = world.server.get("pods", "p")["status"]
    return str(status.get("nominatedNodeName", ""))


def is_quiet(world: Rig) -> bool:
    return world.daemon.decisions.is_idle()


def has_seen_no_preemptor(world: Rig) -> bool:
    return world.daemon.decisions.shared.pending.get("default/p") is None


def protect(world: Rig, name: str, allowed: int) -> None:
    """So many pods with the label `team: name` may be disrupted."""
    spec = {"selector": {"matchLabels": {"team": name}}}
    world.server.create(BUDGETS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    allow(world, name, allowed)


def allow(world: Rig, name: str, allowed: int) -> None:
    world.server.patch(BUDGETS, name, {"status": {"disruptionsAllowed": allowed}}, subresource="status")


def team(world: Rig, name: str, *pods: str) -> None:
    for pod in pods:
        world.server.patch("pods", pod, {"metadata": {"labels": {"team": name}}})


# -- without trouble ---------------------------------------------------------------------------------------------------


async def test_180_victims_end_in_peace_and_the_preemptor_takes_their_place() -> None:
    """Told, deleted with their grace, and waited for; then bound, with nothing left to tidy up."""
    async with stage(n1=2) as (world, kubelet, witness):
        high(world, "2")
        await world.until(lambda: len(leaving(world)) == 2, "not evicted")
        await world.until(lambda: is_quiet(world), "still at it")

        assert (nominated(world), world.pods()["p"]) == ("n1", "")
        assert world.condition("p")["message"] == (
            "0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for pod on node n1, "
            "preempting 2 victims."
        )
        for name in ("n1-0", "n1-1"):
            victim = world.server.get("pods", name)
            assert victim["metadata"]["deletionGracePeriodSeconds"] == 30
            told = next(c for c in victim["status"]["conditions"] if c["type"] == DISRUPTION_TARGET)
            assert (told["status"], told["reason"]) == ("True", "PreemptionByScheduler")
            assert told["message"] == "kubestow: preempting to accommodate a higher priority pod"

        kubelet.step()
        await world.bound("p")
        await world.until(lambda: is_quiet(world), "still at it")
        assert (world.pods(), victims(witness)) == ({"p": "n1"}, ["n1-0", "n1-1"])
        notes = {e["regarding"]["name"]: e["note"] for e in world.server.list("events") if e["reason"] == "Preempted"}
        uid = world.server.get("pods", "p")["metadata"]["uid"]
        assert notes == dict.fromkeys(("n1-0", "n1-1"), f"Preempted by pod {uid} on node n1")
        await world.until(lambda: not leftovers(world.server, world.daemon), "something is left")


async def test_kubelets_that_take_their_time_are_waited_for() -> None:
    """Victims end one after the other; no place is taken before there is room, and nobody else dies."""
    async with stage(n1=3) as (world, _, witness):
        high(world, "3")
        await world.until(lambda: len(leaving(world)) == 3, "not evicted")
        for name in ("n1-1", "n1-0", "n1-2"):
            assert world.pods()["p"] == ""
            world.server.delete("pods", name, grace_s=0)
            await world.until(
                lambda name=name: f"default/{name}" not in [i.key for i in cached(world)],  # type: ignore[misc]
                "not seen",
            )
        await world.bound("p")

        assert victims(witness) == ["n1-0", "n1-1", "n1-2"]
        assert world.server.requests()["delete pods 200"] == 3


def cached(world: Rig) -> list[Any]:
    """The pods on n1, as the daemon sees them."""
    nodes = world.daemon.decisions.cluster.nodes
    slot = nodes.slot("n1")
    assert slot is not None
    return list(nodes.pods(slot).values())


async def test_183_a_preemptor_takes_no_more_than_it_needs() -> None:
    """Room for one of three is wanted; the least important goes."""
    async with stage(n1=3) as (world, kubelet, witness):
        high(world, "1")
        await world.until(lambda: bool(leaving(world)), "not evicted")
        kubelet.step()
        await world.bound("p")

        assert len(victims(witness)) == 1


# -- disruption budgets ------------------------------------------------------------------------------------------------


async def test_184_a_node_whose_pods_no_budget_protects_is_preferred() -> None:
    """As the budgets stand when it is decided."""
    async with stage(n1=1, n2=1) as (world, kubelet, witness):
        team(world, "calm", "n1-0")
        protect(world, "calm", 0)
        await seen(world)
        high(world, "1")
        await world.until(lambda: bool(leaving(world)), "not evicted")
        kubelet.step()
        await world.bound("p")

        assert victims(witness) == ["n2-0"]


async def seen(world: Rig) -> None:
    """All that was done to the server so far has been taken in."""
    world.server.create("nodes", {"metadata": {"name": "mark"}, "spec": {"unschedulable": True}, "status": {}})
    nodes, budgets = world.daemon.decisions.cluster.nodes, world.daemon.decisions.cluster.disruptions
    await world.until(lambda: nodes.present_slot("mark") is not None and bool(budgets.generation), "not seen")


async def test_185_a_budget_is_a_wish() -> None:
    """Where nothing else helps it does not protect."""
    async with stage(n1=1) as (world, kubelet, witness):
        team(world, "calm", "n1-0")
        protect(world, "calm", 0)
        await seen(world)
        high(world, "1")
        await world.until(lambda: bool(leaving(world)), "not evicted")
        kubelet.step()
        await world.bound("p")

        assert victims(witness) == ["n1-0"]


async def test_a_budget_that_changes_before_anybody_died_changes_the_choice() -> None:
    """The nomination moves with it; whoever was to die lives."""
    async with stage(n1=1, n2=1) as (world, kubelet, witness):
        team(world, "one", "n1-0")
        team(world, "two", "n2-0")
        protect(world, "one", 0)
        protect(world, "two", 1)
        await seen(world)
        refusing = world.server.faults.add(Fault(verb="patch", resource="pods", name="n2-0", status=500, times=None))
        high(world, "1")
        await world.until(lambda: refusing.hits >= 4 and nominated(world) == "n2", "not tried")

        generation = world.daemon.decisions.cluster.disruptions.generation
        allow(world, "one", 1)
        allow(world, "two", 0)
        await world.until(
            lambda: world.daemon.decisions.cluster.disruptions.generation >= generation + 2, "change not seen"
        )
        world.server.faults.clear()
        await world.until(lambda: bool(leaving(world)), "not evicted")
        kubelet.step()
        await world.bound("p")

        assert (victims(witness), world.pods()["p"]) == (["n1-0"], "n1")


# -- a victim that resists ---------------------------------------------------------------------------------------------


async def test_a_victim_that_does_not_go_holds_nobody_up() -> None:
    """A finalizer keeps it. Others are placed, the preemptor evicts nobody else for it, and goes elsewhere if it can."""
    async with stage(n1=1, n2=1) as (world, kubelet, witness):
        for name in ("n1-0", "n2-0"):
            world.server.patch("pods", name, {"metadata": {"finalizers": ["example.com/clings"]}})
        high(world, "1")
        await world.until(lambda: bool(leaving(world)), "not evicted")
        first = leaving(world)
        kubelet.step()
        world.node("n3", cpu="500m")
        world.node("n4", cpu="1", unschedulable=True)  # gives it a reason to look again
        world.pod("small", cpu="500m")
        await world.bound("small")
        await world.until(lambda: world.condition("p")["message"].endswith("on the nominated node."), "not tried again")
        assert (victims(witness), nominated(world)) == (first, first[0][:2])

        world.server.patch("nodes", "n4", {"spec": {"unschedulable": None}})
        await world.bound("p")
        assert (world.pods()["p"], victims(witness)) == ("n4", first)
        await world.until(lambda: is_quiet(world), "still at it")


# -- trouble between two victims ---------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def half_done() -> AsyncIterator[tuple[Rig, Kubelet, Witness]]:
    """Of three victims on n1 the first is leaving, the second cannot be deleted for now, the third is the last."""
    async with stage(n1=3) as (world, kubelet, witness):
        busy = Fault(verb="delete", resource="pods", name="n1-1", status=429, retry_after_s=1, times=None)
        world.server.faults.add(busy)
        high(world, "3")
        await world.until(lambda: bool(busy.hits) and leaving(world) == ["n1-0"], "not begun")
        yield world, kubelet, witness


def delete_preemptor(world: Rig) -> None:
    world.server.delete("pods", "p", grace_s=0)


def bind_preemptor(world: Rig) -> None:
    world.server.bind("p", "elsewhere")


def replace_preemptor(world: Rig) -> None:
    delete_preemptor(world)
    world.pod("p", cpu="1", schedulingGates=[{"name": "example.com/wait"}])


def delete_node(world: Rig) -> None:
    """Another one stays: without any, pods are retried for ever (§3.8)."""
    world.node("small", cpu="1m")
    world.server.delete("nodes", "n1")


@pytest.mark.parametrize(
    ("meanwhile", "is_seen"),
    [
        pytest.param(delete_preemptor, has_seen_no_preemptor, id="the preemptor is deleted"),
        pytest.param(bind_preemptor, has_seen_no_preemptor, id="somebody else binds the preemptor"),
        pytest.param(
            replace_preemptor,
            lambda world: (
                world.daemon.decisions.queue.counts()["gated"] == 1
                and not has_seen_no_preemptor(world)
                and world.daemon.decisions.shared.pending.get("default/p").pod.spec.scheduling_gates
            ),
            id="another pod has its name",
        ),
        pytest.param(
            delete_node,
            lambda world: world.daemon.decisions.cluster.nodes.present_slot("n1") is None,
            id="the node is gone",
        ),
    ],
)
async def test_nobody_else_dies_for_a_plan_that_is_over(
    meanwhile: Callable[[Rig], None], is_seen: Callable[[Rig], bool]
) -> None:
    """The first victim is lost; the others live."""
    async with half_done() as (world, _, witness):
        meanwhile(world)
        await world.until(lambda: is_seen(world), "not seen")
        world.server.faults.clear()
        await world.until(lambda: not world.daemon.decisions.evictions, "still at it")
        await world.until(lambda: is_quiet(world), "still at it")

        assert victims(witness) == ["n1-0"]
        assert not world.daemon.decisions.evictions._preempting._last_victim


async def test_a_preemptor_that_lost_its_node_is_placed_elsewhere() -> None:
    """By itself, and at nobody's cost."""
    async with half_done() as (world, _, witness):
        delete_node(world)
        world.node("n2", cpu="3")
        world.server.faults.clear()
        await world.bound("p")

        assert (world.pods()["p"], victims(witness)) == ("n2", ["n1-0"])


async def test_a_busy_server_delays_a_preemption_and_changes_nothing_else() -> None:
    """429 with Retry-After, then the rest of the victims."""
    async with half_done() as (world, kubelet, witness):
        world.server.faults.clear()
        await world.until(lambda: len(leaving(world)) == 3, "not evicted")
        kubelet.step()
        await world.bound("p")

        assert victims(witness) == ["n1-0", "n1-1", "n1-2"]


# -- a daemon that is restarted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "begun"),
    [
        pytest.param(
            Fault(verb="patch", resource="pods", subresource="status", status=500, times=None),
            0,
            id="between the nomination and the first victim",
        ),
        pytest.param(
            Fault(verb="delete", resource="pods", status=429, retry_after_s=1, times=None), 1, id="between two victims"
        ),
    ],
)
async def test_a_daemon_that_comes_back_finishes_what_the_first_has_begun(fault: Fault, begun: int) -> None:
    """Two nodes would do equally well. Who was nominated where is on the server, so nobody dies on the other."""
    async with prepared() as server:
        witness = Witness(server)
        kubelet = Kubelet(server)
        async with rig_on(server) as first:
            for name in ("n1", "n2"):
                first.node(name, cpu="2")
                for i in range(2):
                    first.pod(f"{name}-{i}", cpu="1", nodeName=name)
            kubelet.step()
            faults = [
                server.faults.add(Fault(**{**vars_of(fault), "name": f"{name}-{i}"}))
                for name in ("n1", "n2")
                for i in range(begun, 2)
            ]
            high(first, "2")
            await first.until(lambda: any(f.hits for f in faults) and len(leaving(first)) == begun, "not begun")
            where = nominated(first)
            await first.daemon.stop(0)
        assert (len(victims(witness)), where in {"n1", "n2"}) == (begun, True)

        server.faults.clear()
        async with Kubelet(server), rig_on(server) as second:
            await second.bound("p")
            await second.until(lambda: is_quiet(second), "still at it")

        assert second.pods()["p"] in ({where} if begun else {"n1", "n2"})
        assert victims(witness) == [f"{second.pods()['p']}-0", f"{second.pods()['p']}-1"]
        witness.close()


def vars_of(fault: Fault) -> dict[str, Any]:
    return {name: getattr(fault, name) for name in Fault.__dataclass_fields__}


async def test_a_daemon_that_is_stopped_again_and_again_evicts_each_victim_once() -> None:
    """Four victims, and a daemon for each: at the end the pod has the node, and the other node has all of its pods."""
    async with prepared() as server:
        witness = Witness(server)
        async with Kubelet(server, grace_used_s=0.01):
            for stopped in range(12):
                async with rig_on(server) as world:
                    if not stopped:
                        for name in ("n1", "n2"):
                            world.node(name, cpu="4")
                            for i in range(4):
                                world.pod(f"{name}-{i}", cpu="1", nodeName=name)
                        high(world, "4")
                    before = len(victims(witness))
                    await world.until(lambda: len(victims(witness)) > before or bool(world.pods()["p"]), "no progress")  # noqa: B023
                    await world.daemon.stop(0)
                    if world.pods()["p"]:
                        break
        where = world.pods()["p"]

        assert where in {"n1", "n2"}
        assert victims(witness) == [f"{where}-{i}" for i in range(4)]
        witness.close()
