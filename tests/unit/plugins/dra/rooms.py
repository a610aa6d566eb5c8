"""A random or worst case, brought before the search as the plugin brings it: through the caches, seats and demands."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.cache.deviceclasses import DeviceClasses
from scheduler.cache.devicekinds import DeviceKind
from scheduler.cache.devicenodes import DeviceNodes
from scheduler.cache.deviceuse import DeviceUse
from scheduler.cache.nodes import Nodes
from scheduler.core.devicegates import CONSUMABLE, PARTITIONABLE
from scheduler.core.meta import AnnotatedMetadata
from scheduler.core.node import Node
from scheduler.core.quantity import from_nano
from scheduler.core.resourceclaims import AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult
from scheduler.core.turns import Work
from scheduler.plugins.dra.demand import Demand, Demands
from scheduler.plugins.dra.packing import packing
from scheduler.plugins.dra.search import Search
from scheduler.plugins.dra.seats import Rules, Seats
from scheduler.plugins.dra.selecting import SelectorSets
from tests.unit.plugins.dra.literal_devices import World
from tests.unit.plugins.dra.random_devices import NODES, Case


class Room:
    """The same case, in front of the search."""

    def __init__(self, case: Case) -> None:
        self.case = case
        gates = case.world.gates
        self.nodes = Nodes()
        for name, labels in NODES.items():
            self.nodes.set_node(Node(metadata=AnnotatedMetadata(name=name, labels=labels)))
        self.use = DeviceUse(shares_count=CONSUMABLE in gates)
        for number, allocation in enumerate(_allocations(case.world)):
            self.use.hold(f"u{number}", allocation)
        self.on_nodes = DeviceNodes(self.nodes, self.use, partitionable=PARTITIONABLE in gates)
        for each in case.world.slices:
            self.on_nodes.set_slice(each)
        self.on_nodes.catch_up()
        classes = DeviceClasses()
        for name, device_class in case.world.classes.items():
            classes.put(name, device_class)
        self.demand: Demand = Demands(classes, SelectorSets(self._holding), gates).of(case.claims)

    def _holding(self, expression: str, kind: DeviceKind) -> Work[bool | str]:
        yield from ()
        return self.case.world.holds(expression, kind.driver, kind.device)

    def seats(self, node: str) -> Seats:
        slot = self.nodes.slot(node)
        assert slot is not None
        return Seats(slot, self.on_nodes.pools(slot), self.use, rules=Rules.of(self.case.world.gates))

    def search(self, node: str, *, packed: bool = False) -> Search:
        seats = self.seats(node)
        order = packing(self.demand, seats) if packed else None
        return Search(self.demand, seats, [claim.key for claim in self.case.claims], order=order)


def _allocations(world: World) -> Sequence[AllocationResult]:
    results = [DeviceRequestAllocationResult("r", *device) for device in world.exclusive]
    for device, shares in world.shares.items():
        for number, share in enumerate(shares):
            amounts = {name: from_nano(amount) for name, amount in share.items()}
            results.append(
                DeviceRequestAllocationResult("r", *device, share_id=f"s{number}", consumed_capacity=amounts or None)
            )
    return [AllocationResult(DeviceAllocationResult((result,))) for result in results]
