"""Devices of example.com/gpu, pods that request them, and scheduling cycles on clusters with devices."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.resource_v1 import AllocationResult, ResourceClaim
from scheduler.config.args import KubestowArgs
from scheduler.config.types import KubeSchedulerProfile as ProfileConfig, PluginRef, PluginSet
from scheduler.core.cooperative import Work
from scheduler.cycle import Cycle, Outcome, Scheduled
from scheduler.framework.profile import Factory, build
from scheduler.framework.runtime import FrameworkRunner
from scheduler.metrics.metrics import Metrics
from scheduler.plugins.defaultpreemption import DefaultPreemption
from scheduler.plugins.dra.state import STATE
from simulator.builders.core import Builder, pod
from simulator.builders.devices import a_device_class
from tests.unit.fake_plugins import Bind, Nominated, Sort
from tests.unit.plugins.dra.served import Served, Under
from tests.unit.plugins.dra.world import World


class Trying(World):
    """A world with a scheduling cycle. `slow` is the duration of a piece of work in seconds."""

    def __init__(
        self,
        *things: Builder[Any],
        nodes: Sequence[str] = ("n1",),
        before: Factory | None = None,
        seed: int = 3,
        **more: Any,
    ) -> None:
        """`before` makes a plugin that runs before DynamicResources."""
        super().__init__(nodes=nodes, **more)
        self.show(*things)
        self.slow = 0.0
        self.nominated = Nominated()
        registry: dict[str, Factory] = {
            "Sort": Sort,
            "Bind": Bind,
            **({"Before": before} if before is not None else {}),
            "DynamicResources": lambda _args, _handle: self.plugin,
            "DefaultPreemption": DefaultPreemption,
        }
        enabled = tuple(PluginRef(name) for name in registry)
        plugins = {"multiPoint": PluginSet(enabled=enabled, disabled=("*",))}
        config = ProfileConfig("kubestow", plugins=plugins, args={KubestowArgs.plugin: self.ours})
        metrics = Metrics(process=False)
        runner = FrameworkRunner(
            build(config, registry, self.handle), self.cluster, self.nominated, clock=self.clock, metrics=metrics
        )
        self.cycle = Cycle(
            {"kubestow": runner}, self.cluster, clock=self.clock, rng=random.Random(seed), metrics=metrics
        )

    def attempt(self, *claims: str, nominated: str = "", name: str = "p") -> Work[Outcome]:
        builder = pod(name).uid(f"uid-{name}").set({"spec": {"schedulerName": "kubestow", "priority": 10}})
        for at, claim in enumerate(claims):
            builder = builder.claim(f"e{at}", claim=claim)
        if nominated:
            builder = builder.set({"status": {"nominatedNodeName": nominated}})
        return self.cycle.attempt(pod_info(builder.typed()), 1)

    def worked(self, seconds: float) -> None:
        """Advance the clock."""
        self.clock._now += seconds

    def held(self) -> tuple[object, ...]:
        """Return the state that an attempt changes until it is undone."""
        return self.cluster.sizes(), list(self.devices.claims.in_flight()), self.devices.use.counts()


def result_of(outcome: Outcome) -> object:
    """Return the node and the allocated devices, or the message of the failure."""
    if isinstance(outcome, Scheduled):
        allocations: dict[str, AllocationResult] = outcome.state.get(STATE).allocations
        devices = {uid: [r.id for r in each.devices.results] for uid, each in allocations.items()}
        return outcome.assumed.node_name, devices
    return outcome.message


GPU = "example.com/gpu"
SERVES = a_device_class("gpu", 'device.driver == "a"').extended_resource(GPU)
PREFIX = "p-extended-resources-"


def gpus(count: int = 1, *, claim: str = "", name: str = "p") -> PodInfo:
    built = pod(name).uid(name).extended(GPU, str(count))
    return pod_info((built.claim("e", claim=claim) if claim else built).typed())


def a_world(*things: Any, **more: Any) -> Served:
    """Return a world with two devices on each node, which serve example.com/gpu."""
    return Served(SERVES, *things, **more)


def made(world: Served) -> list[ResourceClaim]:
    claims = world.writer.resource_claims.values()
    return [each for each in claims if each.metadata.name.startswith(PREFIX)]


def the_one(world: Served) -> str:
    """Return the name of the only claim for extended resources."""
    (claim,) = made(world)
    return claim.metadata.name


def creates(world: Served) -> int:
    return world.writes.count("create <extended-resources>")


async def undone(world: Served, under: Under) -> tuple[list[ResourceClaim], list[str], list[str]]:
    """Undo the binding; return the claims that remain, the devices in use and the claims in flight."""
    await world.undo(under)
    return made(world), world.used, world.in_flight
