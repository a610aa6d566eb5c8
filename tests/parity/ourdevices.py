"""What our DynamicResources plugin gives on each node of a case: from Filter to Reserve, behind the checks of PreFilter."""

import random
from typing import Final

import msgspec

from scheduler.api.core_v1 import Node
from scheduler.api.decode import from_manifest
from scheduler.api.podinfo import PodInfo, pod_info
from scheduler.api.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from scheduler.cache.cluster import Cluster
from scheduler.config.args import DynamicResourcesArgs, KubestowArgs
from scheduler.core.cooperative import answered, finish
from scheduler.framework.handle import Handle, Uncounted, Unplugged
from scheduler.framework.interface import CycleState
from scheduler.framework.status import Code, Rejection
from scheduler.plugins.dra import DynamicResources
from scheduler.plugins.dra.state import STATE, DeviceState, Variant
from scheduler.plugins.dra.structured.node_verdicts import CANNOT_ALLOCATE
from simulator.builders.core import pod
from tests.parity.devicecases import DeviceCase
from tests.parity.deviceoracle.process import AllocatorAnswer
from tests.parity.deviceplans import _plain
from tests.support.clock import VirtualClock
from tests.support.ports import ListRecorder

_SEED: Final = 7


class _Steps(Uncounted):
    """Remembers how many devices were tried."""

    def __init__(self) -> None:
        self.most = 0

    def searched(self, steps: int) -> None:
        self.most = max(self.most, steps)


class OurDevices:
    """A cluster of one case, with the plugin. `parity`: in the order of upstream, else in the default order."""

    def __init__(self, case: DeviceCase, *, parity: bool) -> None:
        clock, self._steps = VirtualClock(), _Steps()
        self._cluster = cluster = Cluster(clock, case.gates)
        for node in case.nodes:
            cluster.set_node(from_manifest(Node, node))
        for each in case.slices:
            cluster.devices.set_slice(from_manifest(ResourceSlice, each))
        for each in case.classes:
            device_class = from_manifest(DeviceClass, each)
            cluster.devices.classes.put(device_class.key, device_class)
        for version, each in enumerate((*case.held, *case.claims), 1):
            cluster.devices.claims.set(_versioned(from_manifest(ResourceClaim, each), version))
        self._claims = tuple(cluster.devices.claims.need(_key(each)) for each in case.claims)
        self._nodes = [node["metadata"]["name"] for node in case.nodes]
        handle = Handle(
            cluster,
            Unplugged(),
            ListRecorder(),
            clock,
            scheduler_name="kubestow",
            ours=KubestowArgs(parity=parity),
            feature_gates=case.gates,
            rng=random.Random(_SEED),
            device_metrics=self._steps,
        )
        self._plugin = DynamicResources(DynamicResourcesArgs(), handle)

    def answers(self) -> dict[str, AllocatorAnswer]:
        """By node."""
        return {name: self._on_node(name) for name in self._nodes}

    def _on_node(self, name: str) -> AllocatorAnswer:
        slot = self._cluster.nodes.present_slot(name)
        assert slot is not None
        self._steps.most = 0
        info = pod_info(pod("p").uid("uid-p").typed())
        state, known = CycleState(), DeviceState(claims=self._claims)
        state.set(STATE, known)
        known.variants = (Variant(1 << slot, self._claims, self._plugin._parser.of(self._claims)),)
        no = self._refusal(state, info, slot) or self._plugin.reserve(state, info, name)
        allocations = [_plain(known.allocations[claim.uid]) for claim in self._claims] if no is None else None
        self._plugin._binder.land(known)
        if no is None or no.message == CANNOT_ALLOCATE:
            return AllocatorAnswer(allocations, steps=self._steps.most)
        return AllocatorAnswer(error=no.message, on_node=no.code is not Code.ERROR, steps=self._steps.most)

    def _refusal(self, state: CycleState, info: PodInfo, slot: int) -> Rejection | None:
        """Of Filter, else of Verify."""
        groups = finish(answered(self._plugin.filter(state, info, 1 << slot)))
        return next(iter(groups), None) or finish(answered(self._plugin.verify(state, info, slot)))


def _key(claim: dict[str, dict[str, str]]) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"


def _versioned(claim: ResourceClaim, version: int) -> ResourceClaim:
    metadata = msgspec.structs.replace(claim.metadata, resource_version=str(version))
    return msgspec.structs.replace(claim, metadata=metadata)
