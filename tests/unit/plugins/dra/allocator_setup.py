"""Builds the caches and parsed claims of a random or worst case, so that the search runs on it as in the plugin."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import strategies as st

from scheduler.api.core_v1 import Node
from scheduler.api.meta import AnnotatedMetadata
from scheduler.api.quantity import Quantity
from scheduler.api.resource_v1 import AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult
from scheduler.cache.devices.allocation_state import AllocationState
from scheduler.cache.devices.manager import DeviceClasses
from scheduler.cache.devices.node_kinds import DeviceNodes
from scheduler.cache.devices.pools import DeviceKind
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core.cooperative import Work
from scheduler.core.feature_gates import CONSUMABLE
from scheduler.plugins.dra.structured.allocator import Allocator
from scheduler.plugins.dra.structured.candidate_order import packing
from scheduler.plugins.dra.structured.node_devices import AllocatorFeatures, NodeDevices
from scheduler.plugins.dra.structured.requests import ClaimParser, ClaimsToAllocate, SelectorSets
from tests.unit.plugins.dra.literal_devices import LiteralDevices
from tests.unit.plugins.dra.random_devices import NODES, AllocatorCase, Maker, newer_case, newest_case

cases = st.builds(
    lambda seed, is_rich: Maker(random.Random(seed), is_rich=is_rich).case(), st.integers(0, 2**64), st.booleans()
)
newer_cases = st.builds(lambda seed, is_rich: newer_case(seed, is_rich=is_rich), st.integers(0, 2**64), st.booleans())
newest_cases = st.builds(lambda seed, is_rich: newest_case(seed, is_rich=is_rich), st.integers(0, 2**64), st.booleans())


class AllocatorSetup:
    """Holds the caches and parsed claims of one case."""

    def __init__(self, case: AllocatorCase) -> None:
        self.case = case
        gates = case.world.gates
        self.nodes = Nodes()
        for name, labels in NODES.items():
            self.nodes.set_node(Node(metadata=AnnotatedMetadata(name=name, labels=labels)))
        self.use = AllocationState(shares_count=CONSUMABLE in gates)
        for number, allocation in enumerate(_allocations(case.world)):
            self.use.hold(f"u{number}", allocation)
        self.on_nodes = DeviceNodes(self.nodes, self.use, gates)
        for each in case.world.slices:
            self.on_nodes.set_slice(each)
        self.on_nodes.catch_up()
        classes = DeviceClasses()
        for name, device_class in case.world.classes.items():
            classes.put(name, device_class)
        self.demand: ClaimsToAllocate = ClaimParser(classes, SelectorSets(self._holding), gates).of(case.claims)

    def _holding(self, expression: str, kind: DeviceKind) -> Work[bool | str]:
        yield from ()
        return self.case.world.holds(expression, kind.driver, kind.device)

    def node_devices(self, node: str) -> NodeDevices:
        slot = self.nodes.slot(node)
        assert slot is not None
        return NodeDevices(self.on_nodes, slot, self.use, rules=AllocatorFeatures.of(self.case.world.gates))

    def search(self, node: str, *, packed: bool = False) -> Allocator:
        node_devices = self.node_devices(node)
        order = packing(self.demand, node_devices) if packed else None
        return Allocator(self.demand, node_devices, [claim.key for claim in self.case.claims], order=order)


def _allocations(world: LiteralDevices) -> Sequence[AllocationResult]:
    results = [DeviceRequestAllocationResult("r", *device) for device in world.exclusive]
    for device, shares in world.shares.items():
        for number, share in enumerate(shares):
            amounts = {name: Quantity(amount) for name, amount in share.items()}
            results.append(
                DeviceRequestAllocationResult("r", *device, share_id=f"s{number}", consumed_capacity=amounts or None)
            )
    return [AllocationResult(DeviceAllocationResult((result,))) for result in results]
