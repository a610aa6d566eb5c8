"""Which attempts with extenders run (docs/adr/0014)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.config.types import Configuration
from scheduler.core.feature_gates import DEFAULT_VERSION, defaults
from scheduler.framework.extender import Extender, ExtenderError, FilterResult, MetaVictims, Victims
from tests.unit.harness import SchedulerHarness


@dataclass(eq=False)
class FakeExtender:
    """Accepts all nodes, once `gate` is open. It is interested in pods with its name in theirs."""

    name: str
    weight: int = 1
    is_ignorable: bool = False
    is_filter: bool = True
    is_prioritizer: bool = False
    is_binder: bool = False
    supports_preemption: bool = False
    gate: asyncio.Event | None = None
    passes: frozenset[str] | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    error: Exception | None = None
    victims: Mapping[str, MetaVictims] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def is_interested(self, pod: PodInfo) -> bool:
        return self.name in pod.pod.metadata.name

    def answers(self) -> None:
        """Open the gate."""
        assert self.gate is not None
        self.gate.set()

    async def _called(self, verb: str, pod: PodInfo, *about: str) -> None:
        self.calls.append(" ".join((verb, pod.pod.metadata.name, *about)))
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error

    async def filter(self, pod: PodInfo, nodes: Sequence[str]) -> FilterResult:
        await self._called("filter", pod, *nodes)
        passed = frozenset(nodes) if self.passes is None else self.passes & frozenset(nodes)
        return FilterResult(passed, self.failed, {})

    async def prioritize(self, pod: PodInfo, nodes: Sequence[str]) -> Iterable[tuple[str, int]]:
        await self._called("prioritize", pod, *nodes)
        return [(name, at) for at, name in enumerate(sorted(nodes))]

    async def process_preemption(self, pod: PodInfo, victims: Mapping[str, Victims]) -> Mapping[str, MetaVictims]:
        named = {name: [victim.pod.metadata.name for victim in of.pods] for name, of in victims.items()}
        await self._called("preempt", pod, *(":".join((name, *named[name])) for name in sorted(named)))
        return self.victims

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        await self._called("bind", pod, node_name)


def harness(*extenders: Extender, version: str = DEFAULT_VERSION) -> SchedulerHarness:
    made = SchedulerHarness(Configuration(feature_gates=defaults(version)), extenders=extenders)
    made.node("n1")
    made.node("n2")
    return made


async def test_pods_of_one_extender_are_tried_one_after_another() -> None:
    slow = FakeExtender("a", gate=asyncio.Event())
    scheduler = harness(slow)
    for name, priority in (("a1", 0), ("a2", 5), ("a3", 9), ("b1", 0)):
        scheduler.pod(name, priority=priority)
    await scheduler.settle()

    assert [name for name, _ in scheduler.writer.binds] == ["default/b1"]
    assert slow.calls == ["filter a3 n1 n2"]
    assert scheduler.parts.pending()["active"] == 2
    assert not scheduler.parts.is_idle()
    slow.answers()
    await scheduler.settle()

    assert slow.calls == ["filter a3 n1 n2", "filter a2 n1 n2", "filter a1 n1 n2"]
    assert scheduler.parts.is_idle()


async def test_a_pod_of_two_extenders_is_not_overtaken() -> None:
    """It waits for one of them; a later pod of the other one waits behind it."""
    slow, quick = FakeExtender("a", gate=asyncio.Event()), FakeExtender("b")
    scheduler = harness(slow, quick)
    for name in ("a1", "ab", "b1"):
        scheduler.pod(name)
        await scheduler.settle()

    assert (slow.calls, quick.calls) == (["filter a1 n1 n2"], [])
    slow.answers()
    await scheduler.settle()

    assert quick.calls == ["filter ab n1 n2", "filter b1 n1 n2"]
    assert len(scheduler.writer.binds) == 3


async def test_extenders_with_different_pods_do_not_wait_for_each_other() -> None:
    slow, quick = FakeExtender("a", gate=asyncio.Event()), FakeExtender("b")
    scheduler = harness(slow, quick)
    scheduler.pod("a1")
    scheduler.pod("b1")
    await scheduler.settle()

    assert [name for name, _ in scheduler.writer.binds] == ["default/b1"]


async def test_no_back_off_is_shortened_while_a_pod_waits_for_an_extender() -> None:
    """Else rejected pods would be tried again and again while nothing else is ready."""
    slow = FakeExtender("a", gate=asyncio.Event())
    scheduler = harness(slow)
    scheduler.pod("big", cpu="5")
    await scheduler.settle()
    scheduler.pod("a1")
    await scheduler.settle()
    scheduler.node("n3", cpu="5", taints=[{"key": "x", "effect": "NoSchedule"}])
    await scheduler.settle()
    assert scheduler.places()["big"] == "backoff"

    await scheduler.parts.consultations.stop()


async def test_a_held_pod_that_is_deleted_is_forgotten() -> None:
    slow = FakeExtender("a", gate=asyncio.Event())
    scheduler = harness(slow)
    scheduler.pod("a1")
    scheduler.pod("a2")
    await scheduler.settle()
    scheduler.gone("a2")
    slow.answers()
    await scheduler.settle()

    assert slow.calls == ["filter a1 n1 n2"]
    assert scheduler.parts.is_idle()


async def test_an_unforeseen_failure_costs_one_attempt() -> None:
    broken = FakeExtender("a", error=KeyError("boom"))
    scheduler = harness(broken)
    scheduler.pod("a1")
    await scheduler.settle()

    assert scheduler.message("a1") == "KeyError('boom')"
    assert "PodPopped" not in scheduler.parts.queue.in_flight_events()


async def test_an_error_fails_the_attempt_and_frees_the_extender() -> None:
    broken = FakeExtender("a", error=ExtenderError("no"))
    scheduler = harness(broken)
    scheduler.pod("a1")
    scheduler.pod("a2")
    await scheduler.settle()

    assert [scheduler.message(name) for name in ("a1", "a2")] == ["no", "no"]


async def test_a_node_that_fills_up_during_the_call_is_not_used() -> None:
    """The extender accepted n1 only; it is full when the answer comes, and the extender is called with n2."""
    slow = FakeExtender("a", gate=asyncio.Event(), passes=frozenset({"n1", "n3"}))
    scheduler = harness(slow)
    scheduler.pod("a1", cpu="3")
    await scheduler.settle()
    scheduler.pod("other", cpu="3", on="n1")
    scheduler.node("n3")
    slow.answers()
    await scheduler.settle()

    assert slow.calls == ["filter a1 n1 n2", "filter a1 n3"]
    assert scheduler.writer.binds == [("default/a1", "n3")]


async def test_reasons_are_those_of_the_newest_state() -> None:
    """n1 was accepted and is full now, n2 is refused: both have a reason."""
    slow = FakeExtender("a", gate=asyncio.Event(), passes=frozenset({"n1"}), failed={"n2": "no licence"})
    scheduler = harness(slow)
    scheduler.pod("a1", cpu="3")
    await scheduler.settle()
    scheduler.pod("other", cpu="3", on="n1")
    slow.answers()
    await scheduler.settle()

    assert scheduler.refusal("a1") == "0/2 nodes are available: 1 Insufficient cpu, 1 no licence."


async def test_a_condition_has_a_limited_number_of_reasons() -> None:
    names = [f"n{at}" for at in range(1, 601)]
    liar = FakeExtender("a", passes=frozenset(), failed={name: f"no licence for {name}" for name in names})
    scheduler = harness(liar)
    for name in names:
        scheduler.node(name)
    scheduler.pod("a1")
    await scheduler.settle()

    message = scheduler.refusal("a1")
    assert message.count("no licence") == 500
    assert "100 rejected by an extender" in message


async def test_scores_of_extenders_are_added() -> None:
    one, two = FakeExtender("a", is_prioritizer=True), FakeExtender("a", is_prioritizer=True, is_filter=False)
    scheduler = harness(one, two)
    scheduler.pod("a1")
    await scheduler.settle()

    assert scheduler.writer.binds == [("default/a1", "n2")]
    assert one.calls == ["filter a1 n1 n2", "prioritize a1 n1 n2"]
    assert two.calls == ["prioritize a1 n1 n2"]
    shown: Any = scheduler.parts.shown("default/a1")
    assert "'a': 20" in str(shown)


# -- preemption ------------------------------------------------------------------------------------------------------


def full(*extenders: Extender) -> SchedulerHarness:
    """Both nodes are full of a pod of low priority; a pod of the extender comes."""
    scheduler = harness(*extenders)
    for name in ("n1", "n2"):
        scheduler.pod(f"low-{name}", cpu="4", on=name)
    return scheduler


async def test_the_extender_chooses_the_victims() -> None:
    only = FakeExtender("a", is_filter=False, supports_preemption=True)
    only.victims = {"n2": MetaVictims(("uid-low-n2",), 0)}
    scheduler = full(only)
    scheduler.pod("a1", cpu="4", priority=9)
    await scheduler.settle()

    assert [call.partition(" ")[0] for call in only.calls] == ["preempt"]
    assert scheduler.writer.deletions == ["default/low-n2"]


async def test_victims_that_left_during_the_call_are_not_evicted() -> None:
    """The pod then fits without a preemption."""
    slow = FakeExtender("a", is_filter=False, supports_preemption=True, gate=asyncio.Event())
    slow.victims = {"n2": MetaVictims(("uid-low-n2",), 0)}
    scheduler = full(slow)
    scheduler.pod("a1", cpu="4", priority=9)
    await scheduler.settle()
    scheduler.gone("low-n2")
    slow.answers()
    await scheduler.settle()

    assert scheduler.writer.deletions == []
    assert scheduler.writer.binds == [("default/a1", "n2")]


NONE_NEEDED = MetaVictims((), 0)


def with_free_cpu(*extenders: Extender) -> SchedulerHarness:
    """Node n1 has a free CPU and is refused by the first extender; node n2 is full."""
    scheduler = harness(*extenders, version="1.38")
    scheduler.pod("low-n1", cpu="1", on="n1")
    scheduler.pod("low-n2", cpu="4", on="n2")
    scheduler.pod("a1", cpu="1", priority=9)
    return scheduler


@pytest.mark.parametrize(("first", "second", "sent", "deleted"), [
    pytest.param({"n1": NONE_NEEDED, "n2": MetaVictims(("uid-low-n2",), 0)}, {"n1": MetaVictims(("uid-low-n1",), 0)},
        "n1 n2:low-n2", ["default/low-n1"], id="a later extender adds the victims"),
    pytest.param({"n2": MetaVictims(("uid-low-n2",), 0)}, {"n2": MetaVictims(("uid-low-n2",), 0)}, "n2:low-n2",
        ["default/low-n2"], id="a node that is left out is rejected"),
    pytest.param({"n1": NONE_NEEDED}, {"n1": NONE_NEEDED}, "n1", [], id="a node without victims is dropped at the end"),
    pytest.param({"n1": MetaVictims(("uid-low-n1",), 0)}, {"n1": NONE_NEEDED}, "n1:low-n1", [],
        id="victims must not be taken away"),
])  # fmt: skip
async def test_nodes_that_need_no_victim_are_sent_to_extenders(
    first: dict[str, MetaVictims], second: dict[str, MetaVictims], sent: str, deleted: list[str]
) -> None:
    """An extender may add the victims (from 1.38 on). It refuses n1, although the pod fits there without any eviction."""
    refusal = {"n1": "no licence"}
    one = FakeExtender("a", supports_preemption=True, victims=first, passes=frozenset(), failed=refusal)
    two = FakeExtender("a", is_filter=False, supports_preemption=True, victims=second)
    scheduler = with_free_cpu(one, two)
    await scheduler.settle()

    assert one.calls[:2] == ["filter a1 n1", "preempt a1 n1 n2:low-n2"]
    assert two.calls[:1] == [f"preempt a1 {sent}"]
    assert scheduler.writer.deletions == deleted


@pytest.mark.parametrize(("victims", "said"), [
    pytest.param({"n9": MetaVictims(("uid-low-n2",), 0)},
        'extender "a" claims a candidate node "n9" which is not found in the input node list', id="an unknown node"),
    pytest.param({"n1": MetaVictims(("uid-low-n2",), 0)},
        "extender: a claims to preempt pod (UID: &{uid-low-n2}) on node: n1, but the pod is not found on that node",
        id="a pod of another node"),
    pytest.param({"n1": MetaVictims(("uid-low-n1", "uid-important"), 0)},
        "an extender claims to preempt pod default/important on node n1, which this pod may not preempt",
        id="a pod of higher priority"),
    pytest.param({"n1": MetaVictims((), 0)}, 'expected at least one victim pod on node "n1"', id="no pod"),
    pytest.param({}, "no candidate node for preemption", id="no node"),
])  # fmt: skip
async def test_victims_that_make_no_sense_evict_no_pod(victims: dict[str, MetaVictims], said: str) -> None:
    liar = FakeExtender("a", is_filter=False, supports_preemption=True, victims=victims)
    scheduler = full(liar)
    scheduler.pod("important", priority=99, on="n1")
    scheduler.pod("a1", cpu="4", priority=9)
    await scheduler.settle()

    assert scheduler.writer.deletions == []
    assert scheduler.message("a1").endswith(f"preemption: {said}")
