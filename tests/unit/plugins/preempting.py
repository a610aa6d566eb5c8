"""Preemption in tests: a cluster, the default plugins on it, and what they make of a pod that fits nowhere."""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import msgspec

from scheduler.api.apps_and_policy import PodDisruptionBudget
from scheduler.api.core_v1 import Node
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.cache.cluster import Cluster
from scheduler.config.args import DefaultPreemptionArgs, KubestowArgs, default_args
from scheduler.config.types import KubeSchedulerProfile as ProfileConfig, PluginRef, PluginSet
from scheduler.core.clock import Clock, SystemClock
from scheduler.core.cooperative import finish
from scheduler.core.nodeset import EMPTY
from scheduler.framework.dry_run import Simulation
from scheduler.framework.handle import Handle
from scheduler.framework.interface import CycleState, PostFiltered
from scheduler.framework.nominator import Nominator
from scheduler.framework.profile import Factory, build
from scheduler.framework.runtime import FrameworkRunner
from scheduler.framework.status import Code, Groups, Nominate, Rejection
from scheduler.metrics.metrics import Metrics
from scheduler.plugins import BUILT_IN
from scheduler.plugins.defaultpreemption import Answer, Candidate, DefaultPreemption, Evaluator, VictimRule
from tests.support.ports import ListRecorder, ScriptedWriter
from tests.unit import objects
from tests.unit.fake_plugins import FakePlugin
from tests.unit.harness import manifest, typed

OTHERS = "default-scheduler"
_HARD = "requiredDuringSchedulingIgnoredDuringExecution"
_LEAVING = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}

Refusal = tuple[Code, tuple[str, ...]]
NO_VICTIMS: Refusal = (Code.UNRESOLVABLE, ("No preemption victims found for incoming pod",))

# -- short ways to say it ----------------------------------------------------------------------------------------------


def pod(
    name: str = "p",
    priority: int | None = 0,
    *,
    ns: str = "default",
    started: str | None = None,
    ports: tuple[str, ...] = (),
    leaving: str = "",
    cpu: str = "",
    requests: Mapping[str, str] | None = None,
    **more: Any,
) -> PodInfo:
    """Return a pod of one container; `more` as the harness's `manifest`.

    `started` is `3` for the third minute. `leaving`: terminating, for a "preemptor" or for some "other" reason.
    """
    one = objects.ports(*ports)[0] if ports else objects.container()
    one["resources"] = {"requests": {**({"cpu": cpu} if cpu else {}), **(requests or {})}}
    conditions = [_LEAVING] if leaving == "preemptor" else []
    given = {"uid": f"{ns}/{name}", "containers": [one], **more}
    raw = manifest(
        name, priority=priority, started=_time(started), deleting=bool(leaving), conditions=conditions, **given
    )
    raw["metadata"]["namespace"] = ns
    return pod_info(typed(raw))


def restarted(info: PodInfo, started: str | None) -> PodInfo:
    """The same pod with another `status.startTime`."""
    status = msgspec.structs.replace(info.pod.status, start_time=_time(started))
    return pod_info(msgspec.structs.replace(info.pod, status=status))


def _time(minute: str | None) -> str | None:
    return f"2026-01-01T00:0{minute}:00Z" if minute else None


def away_from(app: str, key: str = "zone") -> dict[str, Any]:
    """`spec.affinity`: anti-affinity to pods labelled app=<app>."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {_HARD: [term]}}


def near_to(app: str, key: str = "zone") -> dict[str, Any]:
    """`spec.affinity`: affinity to pods labelled app=<app>."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAffinity": {_HARD: [term]}}


def spread(app: str, key: str = "zone", **more: Any) -> list[dict[str, Any]]:
    """`spec.topologySpreadConstraints`: pods labelled app=<app> are to be as many in each domain, give or take one."""
    selector = {"matchLabels": {"app": app}}
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return [{**constraint, **more}]


def budget(
    name: str, allowed: int, selector: Mapping[str, Any] | None, *, ns: str = "default", gone: tuple[str, ...] = ()
) -> PodDisruptionBudget:
    """`selector` is a label selector, or labels (words without a capital letter); `gone` are disruptedPods."""
    if selector and not {"matchLabels", "matchExpressions"} & selector.keys():
        selector = {"matchLabels": dict(selector)}
    status = {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(gone, "2026-01-01T00:00:00Z")}
    return from_manifest(
        PodDisruptionBudget,
        {"metadata": {"name": name, "namespace": ns}, "spec": {"selector": selector}, "status": status},
    )


class Chance(random.Random):
    """Always the same, so that the search begins where a test wants it."""

    value = 0.0

    def random(self) -> float:
        return self.value


class Ticking:
    """Each look at it finds the time to have moved on."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.step_s = step_s
        self.time = 1000.0

    def now(self) -> float:
        self.time += self.step_s
        return self.time

    def wall(self) -> float:
        return self.time

    async def sleep(self, delay_s: float) -> None:
        raise NotImplementedError


@dataclass
class Looks(FakePlugin):
    """A filter with a tally that records the nodes it is called for."""

    name: str = "Looks"
    at: list[str] = field(default_factory=list)

    def filter(self, state: CycleState, comes: PodInfo, nodes: int) -> Groups:
        return {}

    def tally(self, state: CycleState, comes: PodInfo, slot: int) -> Looks:
        self.at.append(self.harness.cluster.nodes.name(slot))
        return self

    def tally_shape(self, comes: PodInfo) -> None:
        return None

    def add(self, other: PodInfo) -> None: ...

    def remove(self, other: PodInfo) -> None: ...

    def verdict(self) -> None:
        return None


# -- the whole ---------------------------------------------------------------------------------------------------------


class PreemptionHarness:
    """Nodes, pods and budgets, with the default plugins (and `plugins`) of a profile named kubestow."""

    def __init__(
        self,
        *things: Node | PodInfo | PodDisruptionBudget,
        ours: KubestowArgs | None = None,
        args: DefaultPreemptionArgs | None = None,
        clock: Clock | None = None,
        plugins: tuple[Any, ...] = (),
        gates: frozenset[str] = frozenset(),
    ) -> None:
        self.cluster = Cluster()
        self.nominator = Nominator(lambda key: None)
        self.rng = Chance()
        self.calls: list[str] = []
        self.metrics = Metrics(process=False)
        clock = clock or SystemClock()
        self.handle = Handle(
            self.cluster,
            ScriptedWriter(),
            ListRecorder(),
            clock,
            "kubestow",
            scheduler_names=frozenset({"kubestow"}),
            ours=ours or KubestowArgs(),
            rng=self.rng,
            feature_gates=gates,
        )
        for plugin in plugins:
            plugin.harness = self
        registry: dict[str, Factory] = {**BUILT_IN, **{plugin.name: partial(_given, plugin) for plugin in plugins}}
        config = ProfileConfig(
            "kubestow",
            plugins={"multiPoint": PluginSet(enabled=tuple(PluginRef(plugin.name) for plugin in plugins))},
            args={
                **default_args(),
                DefaultPreemptionArgs.plugin: args or DefaultPreemptionArgs(),
                KubestowArgs.plugin: self.handle.ours,
            },
        )
        profile = build(config, registry, self.handle)
        self.runner = FrameworkRunner(profile, self.cluster, self.nominator, clock=clock, metrics=self.metrics)
        self.plugin = next(p for p in profile.post_filter if isinstance(p, DefaultPreemption))
        for thing in things:
            self.put(thing)

    def put(self, thing: Node | PodInfo | PodDisruptionBudget) -> None:
        """It came, or changed."""
        match thing:
            case Node():
                self.cluster.set_node(thing)
            case PodInfo():
                self.cluster.add_pod(thing)
            case _:
                self.cluster.disruptions.put(thing)

    def nominate(self, node_name: str, *pods: PodInfo) -> None:
        for other in self.nominator.for_node(node_name):
            self.nominator.remove_foreign(other.uid)
        for other in pods:
            self.nominator.add_foreign(other, node_name)

    def what_if(self, incoming: PodInfo) -> Simulation:
        """After PreFilter, which lets the pod through."""
        state = CycleState()
        assert self.runner.pre_filter(state, incoming).rejection is None
        return self.runner.what_if(state, incoming)

    # -- the dry run -------------------------------------------------------------------------------------------------

    def on(self, incoming: PodInfo, name: str, rule: VictimRule | None = None) -> Answer:
        """The dry run on one node, nothing remembered."""
        dry_run = Evaluator(self.cluster, rule or VictimRule())
        return finish(dry_run.on(self.what_if(incoming), incoming, self.slot(name), None))

    def remembered(self, dry_run: Evaluator, incoming: PodInfo, name: str = "n1") -> Answer:
        """The dry run on one node with what it remembers, as PostFilter calls it."""
        what_if = self.what_if(incoming)
        return finish(dry_run.on(what_if, incoming, self.slot(name), dry_run.of(what_if, incoming)))

    def victims(self, incoming: PodInfo, name: str, rule: VictimRule | None = None) -> list[str] | Refusal:
        """Return the names of the victims in order, or the refusal."""
        answer = self.on(incoming, name, rule)
        if isinstance(answer, Rejection):
            return answer.code, answer.reasons
        return self.named(answer)

    def named(self, found: Candidate) -> list[str]:
        pods = self.cluster.nodes.pods(found.slot)
        return [pods[uid].pod.metadata.name for uid in found.victims]

    def slot(self, name: str) -> int:
        slot = self.cluster.nodes.slot(name)
        assert slot is not None
        return slot

    # -- PostFilter --------------------------------------------------------------------------------------------------

    def refused(self, incoming: PodInfo) -> tuple[Groups, Simulation]:
        """What PreFilter and Filter say of all nodes, as the cycle hands it on."""
        state = CycleState()
        pre = self.runner.pre_filter(state, incoming)
        assert pre.rejection is None
        feasible, groups = finish(self.runner.filter(state, incoming, pre.nodes, exact=True))
        assert not feasible, "it fits"
        absent = self.cluster.nodes.present & ~pre.nodes
        if pre.absent is not None and absent:
            groups[pre.absent] = absent
        return groups, self.runner.what_if(state, incoming)

    def post_filtered(self, incoming: PodInfo) -> PostFiltered:
        """The plugin's answer for a pod that fits nowhere."""
        return self.driven(incoming)[0]

    def driven(self, incoming: PodInfo, groups: Groups | None = None) -> tuple[PostFiltered, int]:
        """The answer, and how often the plugin gave a turn on the way; `groups` in place of what Filter says."""
        refused, what_if = self.refused(incoming) if groups is None else (groups, self.what_if(incoming))
        return drive(self.plugin.post_filter(CycleState(), incoming, refused, what_if))

    def chosen(self, incoming: PodInfo) -> tuple[str, list[str]]:
        """Return the nominated node and the names of the victims."""
        answer = self.post_filtered(incoming)
        assert isinstance(answer, Nominate), answer
        assert answer.rejection is None, answer.rejection
        return answer.node_name, [victim.pod.metadata.name for victim in answer.victims]

    def all_refused(self, code: Code = Code.UNSCHEDULABLE) -> Groups:
        """Groups in which some plugin has refused every node."""
        return {Rejection("FakePlugin", code, ("no",)): self.cluster.nodes.present or EMPTY}


def drive(running: Generator[None, None, PostFiltered]) -> tuple[PostFiltered, int]:
    """The generator's answer, and how often it gave a turn."""
    turns = 0
    while True:
        try:
            next(running)
        except StopIteration as done:
            return cast("PostFiltered", done.value), turns
        turns += 1


def _given(plugin: object, args: object, handle: Handle) -> Any:
    return plugin
