"""Plugins that answer from tables, and a cluster of named nodes for scheduling attempts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from scheduler.api.core_v1 import Node
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes.nodes import NodeView
from scheduler.config.args import KubestowArgs
from scheduler.config.types import KubeSchedulerProfile as ProfileConfig, PluginRef, PluginSet
from scheduler.core.cooperative import T, Work, finish
from scheduler.core.nodeset import NodeSet, each
from scheduler.cycle import Cycle, Outcome, Scheduled, SchedulingFailed, Unschedulable
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, DryRun, PostFiltered, Scores
from scheduler.framework.nominator import Nominator
from scheduler.framework.profile import Factory, build
from scheduler.framework.runtime import FrameworkRunner
from scheduler.framework.status import Code, Groups, Narrow, Rejection, Skip, Wait
from scheduler.metrics.metrics import Metrics
from tests.support.ports import ListRecorder, ScriptedWriter
from tests.unit.harness import StepClock, manifest, typed


class Sort:
    name = "Sort"

    def __init__(self, args: Any, handle: Handle) -> None: ...
    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[float, ...]:
        return (queued_at,)


class Bind:
    name = "Bind"

    def __init__(self, args: Any, handle: Handle) -> None: ...
    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | Skip | None:
        return None


@dataclass
class Nominated(Nominator):
    """Nominations that never change: pods by node name."""

    by_node: dict[str, tuple[PodInfo, ...]] = field(default_factory=dict)

    def nodes(self) -> tuple[str, ...]:
        return tuple(self.by_node)

    def for_node(self, name: str) -> tuple[PodInfo, ...]:
        return self.by_node.get(name, ())

    def version(self, name: str) -> int:
        return len(self.by_node.get(name, ()))

    @property
    def position(self) -> int:
        return sum(map(len, self.by_node.values()))

    def changed_since(self, position: int) -> list[str] | None:
        return None

    def node_of(self, uid: str) -> str | None:
        return next((name for name, pods in self.by_node.items() for pod in pods if pod.uid == uid), None)


class CycleHarness:
    """A cluster of named nodes, fake plugins in order, and a log of their calls."""

    def __init__(self, names: str, *plugins: Any, percentage: int | None = None, exact: bool = False) -> None:
        self.cluster = Cluster()
        for name in names.split():
            self.cluster.set_node(from_manifest(Node, {"metadata": {"name": name}}))
        self.nominated = Nominated()
        self.calls: list[str] = []
        for plugin in plugins:
            plugin.harness = self
        registry: dict[str, Factory] = {"Sort": Sort, "Bind": Bind}
        registry.update({plugin.name: partial(_given, plugin) for plugin in plugins})
        enabled = tuple(PluginRef(name) for name in registry)
        config = ProfileConfig(
            "kubestow",
            percentage_of_nodes_to_score=percentage,
            plugins={"multiPoint": PluginSet(enabled=enabled, disabled=("*",))},
            args={KubestowArgs.plugin: KubestowArgs(parity=exact)},
        )
        self.clock = clock = StepClock()
        metrics = Metrics(process=False)
        handle = Handle(self.cluster, ScriptedWriter(), ListRecorder(), clock, "kubestow", rng=random.Random(1))
        runner = FrameworkRunner(
            build(config, registry, handle), self.cluster, self.nominated, clock=clock, metrics=metrics
        )
        self.cycle = Cycle({"kubestow": runner}, self.cluster, clock=clock, rng=random.Random(7), metrics=metrics)

    def attempt(self, pod: PodInfo | None = None) -> Outcome:
        return finish(self.cycle.attempt(pod or a_pod(), 1))

    def scheduled(self, pod: PodInfo | None = None) -> str:
        outcome = self.attempt(pod)
        assert isinstance(outcome, Scheduled), outcome
        return outcome.assumed.node_name

    def unschedulable(self, pod: PodInfo | None = None) -> Unschedulable:
        before = self.cluster.sizes()
        outcome = self.attempt(pod)
        assert isinstance(outcome, Unschedulable), outcome
        assert self.cluster.sizes() == before
        return outcome

    def failed(self) -> SchedulingFailed:
        outcome = self.attempt()
        assert isinstance(outcome, SchedulingFailed), outcome
        assert self.cluster.sizes()["assumed_pods"] == 0
        return outcome


def _given(plugin: object, args: object, handle: Handle) -> Any:
    return plugin


@dataclass
class FakePlugin:
    """A plugin with a name; it logs its calls to the harness."""

    name: str = "FakePlugin"
    harness: Any = None

    def log(self, what: str) -> None:
        self.harness.calls.append(f"{self.name}.{what}")


@dataclass
class Refuses(FakePlugin):
    """Filter by table: node name → reasons (separated by |), all with one code."""

    reasons: dict[str, str] = field(default_factory=dict)
    code: Code = Code.UNSCHEDULABLE

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        self.log("filter")
        groups: Groups = {}
        for slot in each(nodes):
            text = self.reasons.get(self.harness.cluster.nodes.name(slot))
            if text:
                no = Rejection(self.name, self.code, tuple(text.split("|")))
                groups[no] = groups.get(no, 0) | 1 << slot
        return groups


@dataclass
class RefusesOne(FakePlugin):
    """Refuse nodes in the form for one node."""

    names: tuple[str, ...] = ()

    def filter_one(self, state: CycleState, pod: PodInfo, node: NodeView) -> Rejection | None:
        return Rejection(self.name, Code.UNSCHEDULABLE, ("not here",)) if node.name in self.names else None


@dataclass
class Answers(FakePlugin):
    """PreFilter with a fixed answer; the log shows whether Filter and AddPod are skipped."""

    answer: Narrow | Rejection | Skip | None = None

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Narrow | Rejection | Skip | None:
        self.log("pre_filter")
        return self.answer

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups:
        self.log("filter")
        return {}

    def add_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, slot: int) -> None:
        self.log("add_pod")

    def remove_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, slot: int) -> None:
        self.log("remove_pod")


@dataclass
class Verifies(FakePlugin):
    """Pass every node in Filter, and refuse some in Verify."""

    names: tuple[str, ...] = ()

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups | Work[Groups]:
        return {}

    def verify(self, state: CycleState, pod: PodInfo, slot: int) -> Rejection | Work[Rejection | None] | None:
        return self._verdict(slot)

    def _verdict(self, slot: int) -> Rejection | None:
        name = self.harness.cluster.nodes.name(slot)
        self.log(f"verify {name}")
        return Rejection(self.name, Code.UNSCHEDULABLE, ("too hard",)) if name in self.names else None


@dataclass
class TakesLong(Verifies):
    """Yield `yields` times before each answer of `Verifies`."""

    yields: int = 0

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Groups | Work[Groups]:
        self.log(f"filter {' '.join(self.harness.cluster.nodes.name(slot) for slot in each(nodes))}")
        return self._after({}) if self.yields else {}

    def verify(self, state: CycleState, pod: PodInfo, slot: int) -> Rejection | Work[Rejection | None] | None:
        no = self._verdict(slot)
        return self._after(no) if self.yields else no

    def prepare_reserve(self, state: CycleState, pod: PodInfo, slot: int) -> Work[None]:
        self.log(f"prepare {self.harness.cluster.nodes.name(slot)}")
        yield from self._yielding()

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass

    def _after(self, answer: T) -> Work[T]:
        yield from self._yielding()
        return answer

    def _yielding(self) -> Work[None]:
        for _ in range(self.yields):
            self.harness.clock.move(0.01)
            yield


@dataclass
class Scored(FakePlugin):
    """Score by table."""

    table: dict[str, int] = field(default_factory=dict)
    scales: bool = False

    def score_one(self, state: CycleState, pod: PodInfo, node: NodeView) -> int:
        self.log("score")
        return self.table.get(node.name, 0)


@dataclass
class Scaled(Scored):
    """Score by table, normalised so that the best candidate has 100."""

    def normalize_score(self, state: CycleState, pod: PodInfo, scores: Scores, slots: Any) -> Scores:
        top = max(int(scores[slots].max()), 1)
        return np.asarray(scores * 100 // top)


@dataclass
class Holds(FakePlugin):
    """Reserve, unreserve and Permit."""

    reserves: Rejection | None = None
    permits: Wait | Rejection | None = None

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        self.log("reserve")
        return self.reserves

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.log("unreserve")

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Wait | Rejection | None:
        self.log("permit")
        return self.permits


@dataclass
class AfterFilter(FakePlugin):
    """PostFilter with a fixed answer."""

    answer: PostFiltered = field(default_factory=lambda: Rejection("AfterFilter", Code.UNSCHEDULABLE, ("no way out",)))
    seen: Groups = field(default_factory=dict)

    def post_filter(self, state: CycleState, pod: PodInfo, refused: Groups, what_if: DryRun) -> PostFiltered:
        self.log("post_filter")
        self.seen = refused
        return self.answer


@dataclass
class BeforeBind(FakePlugin):
    """PreBind with a fixed answer, or an exception to raise."""

    answer: Rejection | Exception | None = None
    pre_bind_parallel: bool = False

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | Skip | None:
        return None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        self.log("pre_bind")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass
class AfterBind(FakePlugin):
    """PostBind, which may raise."""

    error: Exception | None = None

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.log("post_bind")
        if self.error is not None:
            raise self.error


def a_pod(name: str = "p", *, priority: int = 0, nominated: str = "") -> PodInfo:
    return pod_info(typed(manifest(name, priority=priority, nominated=nominated)))
