"""A cluster with devices and the plugin DynamicResources. The tests of this folder call each extension point."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.resource_v1 import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from scheduler.cache.cluster import Cluster
from scheduler.config.args import DynamicResourcesArgs, KubestowArgs
from scheduler.core import nodeset
from scheduler.core.cooperative import answered, finish
from scheduler.core.feature_gates import DEVICE_GATES_ON
from scheduler.framework.handle import Handle, Uncounted, Unplugged
from scheduler.framework.interface import CycleState
from scheduler.framework.status import Code, Groups, Rejection, Skip
from scheduler.plugins.dra import DynamicResources
from scheduler.plugins.dra.state import STATE, DeviceState
from simulator.builders.core import Builder, node, pod
from simulator.builders.devices import a_device_class
from tests.support.clock import VirtualClock
from tests.support.ports import ListRecorder

FIRST_FIT = KubestowArgs(device_scoring="firstFit")
_VERSION = "resourceVersion"


@dataclass
class Allocated:
    """The allocation on one node.

    `devices` lists request and `pool/device` in order. `results` has the complete results.
    """

    devices: list[tuple[str, str]]
    results: tuple[AllocationResult, ...]


@dataclass
class World:
    """Nodes n1 (region r1) and n2 (region r2), classes A and B of drivers a and b, and the shown objects (§9.0)."""

    gates: frozenset[str] = DEVICE_GATES_ON
    ours: KubestowArgs = FIRST_FIT
    args: DynamicResourcesArgs = field(default_factory=DynamicResourcesArgs)
    nodes: Iterable[str] = ("n1", "n2")
    writer: Any = field(default_factory=Unplugged)
    metrics: Any = field(default_factory=Uncounted)

    def __post_init__(self) -> None:
        self.clock = VirtualClock()
        self.recorder = ListRecorder()
        self.cluster = Cluster(self.clock, self.gates)
        for name in self.nodes:
            self.cluster.set_node(node(name).label("region", f"r{name[1:]}").typed())
        for name in ("A", "B"):
            self.show(a_device_class(name, f'device.driver == "{name.lower()}"'))
        self.handle = Handle(
            self.cluster,
            self.writer,
            self.recorder,
            self.clock,
            scheduler_name="kubestow",
            ours=self.ours,
            feature_gates=self.gates,
            rng=random.Random(7),
            device_metrics=self.metrics,
        )
        self.plugin = DynamicResources(self.args, self.handle)
        self._version = 100

    @property
    def devices(self) -> Any:
        return self.cluster.devices

    def show(self, *builders: Builder[Any]) -> None:
        """Put the objects into the caches, as the watch does."""
        for builder in builders:
            obj = builder.typed()
            match obj:
                case ResourceSlice():
                    self.devices.set_slice(obj)
                case DeviceClass():
                    self.devices.classes.put(obj.key, obj)
                case ResourceClaim():
                    self._version = getattr(self, "_version", 100) + 1
                    uid = obj.metadata.uid or f"uid-{obj.metadata.name}"
                    metadata = msgspec.structs.replace(obj.metadata, resource_version=str(self._version), uid=uid)
                    self.devices.claims.set(msgspec.structs.replace(obj, metadata=metadata))
                case _:
                    raise TypeError(type(obj).__name__)

    def slot(self, node_name: str = "n1") -> int:
        slot = self.cluster.nodes.present_slot(node_name)
        assert slot is not None
        return slot

    def pod(self, *claims: str) -> PodInfo:
        """Return a pod that uses the claims with these names."""
        builder = pod("p").uid("uid-p")
        for at, name in enumerate(claims):
            builder = builder.claim(f"e{at}", claim=name)
        return pod_info(builder.typed())

    def pre_filter(self, info: PodInfo) -> tuple[CycleState, Rejection | Skip | None]:
        state = CycleState()
        return state, self.plugin.pre_filter(state, info, self.cluster.nodes.present)

    def filter(self, info: PodInfo) -> tuple[CycleState, Rejection | Skip | Groups]:
        """Run Filter and Verify for every node; return the result of PreFilter if it ends the attempt."""
        state, said = self.pre_filter(info)
        if said is not None:
            return state, said
        present = self.cluster.nodes.present
        groups = dict(finish(answered(self.plugin.filter(state, info, present))))
        left = present
        for out in groups.values():
            left &= ~out
        for slot in nodeset.each(left):
            no = finish(answered(self.plugin.verify(state, info, slot)))
            if no is not None:
                groups[no] = groups.get(no, 0) | 1 << slot
        return state, groups

    def refusals(self, info: PodInfo) -> dict[str, tuple[Code, str]]:
        """Return code and text for each refused node."""
        _, said = self.filter(info)
        assert isinstance(said, dict), said
        return {
            self.cluster.nodes.name(slot): (no.code, no.message)
            for no, out in said.items()
            for slot in nodeset.each(out)
        }

    def reserve(self, info: PodInfo, node_name: str) -> tuple[CycleState, Rejection | None]:
        """Run the extension points from PreFilter to Reserve on this node."""
        state, said = self.filter(info)
        assert isinstance(said, dict), said
        return state, self.plugin.reserve(state, info, node_name)

    def allocate(self, *claims: str, node_name: str = "n1") -> Allocated | Rejection:
        """Return the devices that the claims get on this node, or the rejection."""
        info = self.pod(*claims)
        state, no = self.reserve(info, node_name)
        if no is not None:
            return no
        known = self.known(state)
        results = tuple(known.allocations[claim.uid] for claim in known.claims if claim.uid in known.allocations)
        devices = [(r.request, f"{r.pool}/{r.device}") for each in results for r in each.devices.results]
        return Allocated(devices, results)

    def known(self, state: CycleState) -> DeviceState:
        return state.get(STATE)
