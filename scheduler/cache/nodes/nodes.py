"""Nodes as slots with NumPy columns, and indexes that change with each pod (ADR 0002).

A node keeps its slot while the node, or a pod on it, is known. An added or removed pod changes a few entries, without
a scan. Readers use columns and sets between two events; only `Cluster` changes them. Matrices are indexed `[row,
slot]`. Row numbers come from `resources()`; cpu is in milli-CPU, all other resources are in units.

A resource has a row while some node offers it. A resource that only pods name has none:
users can invent thousands of names, and each row has an entry per node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.api.core_v1 import Node, Taint
from scheduler.api.podinfo import ANY_IP, HostPort, PodInfo, allocatable
from scheduler.api.quantity import INT64_MAX
from scheduler.cache.nodes.images import ImageIndex
from scheduler.cache.nodes.indexes import LabelIndex, NodeMultiset
from scheduler.cache.nodes.topology import Topologies
from scheduler.cache.nodes.volume_users import ClaimUsers, DiskConflicts, DiskUsers
from scheduler.cache.pods import PodTerms, SelectorCounts, has_pod_affinity
from scheduler.core import nodeset
from scheduler.core.changes import ChangeLog
from scheduler.core.nodeset import EMPTY, NodeSet


class Priorities(NodeMultiset[int]):
    """The priorities of the pods on each node. Clusters have a few priorities, whatever their size."""

    def below(self, priority: int) -> NodeSet:
        """Return the nodes with at least one pod of a lower priority. O(distinct priorities)."""
        found = EMPTY
        for held in self:
            if held < priority:
                found |= self.nodes(held)
        return found


@dataclass(slots=True, eq=False)
class PortIndex:
    """The host ports that pods hold on each node. Two pods on one node may hold the same port after an over-commit.

    Upstream: staging/src/k8s.io/kube-scheduler/framework/types.go HostPortInfo
    """

    held: NodeMultiset[tuple[str, int, str]] = field(default_factory=NodeMultiset)
    of_any_ip: NodeMultiset[tuple[str, int]] = field(default_factory=NodeMultiset)
    """The same without the IP."""

    def add(self, slot: int, ports: Iterable[HostPort]) -> None:
        for port in ports:
            self.held.add(slot, (port.protocol, port.port, port.ip))
            self.of_any_ip.add(slot, (port.protocol, port.port))

    def remove(self, slot: int, ports: Iterable[HostPort]) -> None:
        """Undo `add`."""
        for port in ports:
            self.held.remove(slot, (port.protocol, port.port, port.ip))
            self.of_any_ip.remove(slot, (port.protocol, port.port))

    def conflicts(self, wanted: Iterable[HostPort]) -> NodeSet:
        """Return the nodes where a wanted port is taken: 0.0.0.0 conflicts with every IP of the same protocol and port."""
        conflicting = EMPTY
        for port in wanted:
            if port.ip == ANY_IP:
                conflicting |= self.of_any_ip.nodes((port.protocol, port.port))
            else:
                for ip in (port.ip, ANY_IP):
                    conflicting |= self.held.nodes((port.protocol, port.port, ip))
        return conflicting


_ALWAYS: Final = ("cpu", "memory", "ephemeral-storage")


@dataclass(slots=True, eq=False)
class ResourceRows:
    """Row numbers, and requested amounts of resources without a row. Only `Nodes` changes it. O(1), except `offered`."""

    numbers: dict[str, int] = field(default_factory=lambda: {name: row for row, name in enumerate(_ALWAYS)})
    offers: dict[str, int] = field(default_factory=dict)
    _vacant: list[int] = field(default_factory=list)
    without_row: dict[str, dict[int, int]] = field(default_factory=dict)

    def offered(self, resource: str) -> tuple[int, Mapping[int, int]]:
        """Record that one more node offers the resource. Return its row, and the requests by slot if the row is new."""
        self.offers[resource] = self.offers.get(resource, 0) + 1
        row = self.numbers.get(resource)
        if row is not None:
            return row, {}
        row = self.numbers[resource] = self._vacant.pop() if self._vacant else len(self.numbers)
        return row, self.without_row.pop(resource, {})

    def withdrawn(self, resource: str) -> int | None:
        """Record that one node fewer offers the resource. Return the row if the resource has lost it.

        The caller must then store the row's requests by `set_aside`.
        """
        remaining = self.offers.pop(resource) - 1
        if remaining:
            self.offers[resource] = remaining
        elif resource not in _ALWAYS:
            self._vacant.append(row := self.numbers.pop(resource))
            return row
        return None

    def set_aside(self, resource: str, slot: int, amount: int) -> None:
        """Add to the request of a resource without a row, which is exact."""
        amounts = self.without_row.setdefault(resource, {})
        amounts[slot] = amounts.get(slot, 0) + amount
        if not amounts[slot]:
            del amounts[slot]
        if not amounts:
            del self.without_row[resource]

    def aside(self, resource: str, slot: int) -> int:
        """Return the requested amount of a resource without a row."""
        return self.without_row.get(resource, {}).get(slot, 0)


PODS: Final = "pods"
CPU_ROW: Final = 0
MEMORY_ROW: Final = 1

Matrix = npt.NDArray[np.int64]


class Nodes(ChangeLog[int]):
    """The columns. All public attributes are read-only. The log contains the slots whose columns changed.

    Upstream: pkg/scheduler/framework/types.go NodeInfo
    """

    def __init__(self, *, capacity: int = 64) -> None:
        super().__init__()
        self.capacity = capacity
        self.present: NodeSet = EMPTY
        """Slots with a Node object, which are the nodes of upstream's snapshot."""
        self.unschedulable: NodeSet = EMPTY
        self.taints: dict[tuple[Taint, ...], NodeSet] = {}
        """List of taints → nodes with exactly these taints, without untainted nodes."""
        self.labels = LabelIndex()
        self.images = ImageIndex()
        self.features = LabelIndex()
        """Declared features, also unknown ones. Each is a key with the value ""."""
        self.ports = PortIndex()
        self.topologies = Topologies(self.labels, capacity)
        self.population = SelectorCounts()
        self.pod_terms = PodTerms()
        self.priorities = Priorities()
        self.claim_users = ClaimUsers()
        self.disk_users = DiskUsers()
        self.disk_conflicts = DiskConflicts()
        self.allocatable: Matrix = np.zeros((8, capacity), dtype=np.int64)
        self.requested: Matrix = np.zeros((8, capacity), dtype=np.int64)
        """The sums over the pods, saturated at int64. A saturated sum is computed again when a pod leaves."""
        self.non_zero: Matrix = np.zeros((2, capacity), dtype=np.int64)
        """Requests as the scoring strategies count them (cpu, memory; docs/spec/core.md §A.2)."""
        self.pod_count = np.zeros(capacity, dtype=np.int64)
        self.allowed_pods = np.zeros(capacity, dtype=np.int64)
        self.relabelled: ChangeLog[int] = ChangeLog()
        """Slots at which a node was added or removed, or its labels or declared features changed."""
        self.object_generation = 0
        """A number that changes when a node is added or removed, or its labels, taints or cordon change."""
        self.stamps = [0] * capacity
        """A number per slot that grows when its columns change, or its pods in a way that matters to preemption."""
        self.rows = ResourceRows()
        self._objects: list[Node | None] = [None] * capacity
        self._names: list[str] = [""] * capacity
        self._pods: list[dict[str, PodInfo]] = [{} for _ in range(capacity)]
        self._slots: dict[str, int] = {}
        self._free = list(range(capacity - 1, -1, -1))

    # -- reading ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.present.bit_count()

    def slot(self, name: str) -> int | None:
        """Return the slot of a node that exists or still has pods."""
        return self._slots.get(name)

    def present_slot(self, name: str) -> int | None:
        """Return the slot of a node that exists; None for a ghost."""
        slot = self._slots.get(name)
        return slot if slot is not None and self.present >> slot & 1 else None

    def name(self, slot: int) -> str:
        """Return the node's name; "" for a free slot."""
        return self._names[slot]

    def names(self, nodes: NodeSet) -> list[str]:
        return [self._names[slot] for slot in nodeset.members(nodes)]

    def known_names(self) -> tuple[str, ...]:
        """Return the names of all nodes that exist or still have pods."""
        return tuple(self._slots)

    def node(self, slot: int) -> Node | None:
        """Return the Node object; None for a ghost or a free slot."""
        return self._objects[slot]

    def pods(self, slot: int) -> Mapping[str, PodInfo]:
        """Return the pods on the node by uid, assumed ones included. A live view: do not keep it."""
        return self._pods[slot]

    def view(self, slot: int) -> NodeView:
        """Return the node for a plugin's one-node form."""
        return NodeView(self, slot)

    def by_name(self, names: Iterable[str]) -> NodeSet:
        """Return the present nodes with these names."""
        named = EMPTY
        for name in names:
            slot = self._slots.get(name)
            if slot is not None:
                named |= 1 << slot
        return named & self.present

    def resources(self) -> Mapping[str, int]:
        """Return every resource that some node offers, with its row in `allocatable` and `requested`."""
        return self.rows.numbers

    def requested_at(self, slot: int, resource: str) -> int:
        """Return the exact sum over the pods on the node, also for a resource that no node offers."""
        row = self.rows.numbers.get(resource)
        if row is None:
            return self.rows.aside(resource, slot)
        held = self.requested.item(row, slot)
        return held if held < INT64_MAX else self._summed(slot, resource)

    def _summed(self, slot: int, resource: str) -> int:
        return sum(info.requests.get(resource, 0) for info in self._pods[slot].values())

    def columns(self, slot: int) -> dict[str, object]:
        """Return what the columns hold of the Node object at a slot, by field and without zeros."""
        flags = {"present": self.present >> slot & 1, "unschedulable": self.unschedulable >> slot & 1}
        amounts = {f"allocatable {name}": self.allocatable.item(row, slot) for name, row in self.resources().items()}
        fields = {**flags, **amounts, "allowed pods": self.allowed_pods.item(slot), "slot": self.slot(self.name(slot))}
        return {field: value for field, value in fields.items() if value or (field == "slot" and value is not None)}

    def requests(self, slot: int) -> dict[str, int]:
        """Return the sums over the pods at a slot, by field and without zeros."""
        cpu, memory = self.non_zero[:, slot].tolist()
        fields = {"cpu for scores": cpu, "memory for scores": memory, "number of pods": self.pod_count.item(slot)}
        for name in (*self.rows.numbers, *self.rows.without_row):
            fields[f"requested {name}"] = self.requested_at(slot, name)
        return {field: amount for field, amount in fields.items() if amount}

    # -- changing: Cluster only ------------------------------------------------------------------------------------

    def set_node(self, node: Node) -> int:
        """Add or replace a Node object; return its slot. Pods that were added before it are already counted."""
        slot = self._slot_for(node.metadata.name)
        old = self._objects[slot]
        self._objects[slot] = node
        if old is None or old.metadata.labels != node.metadata.labels:
            self._relabel(slot, old, node)
        if old is None or old.spec != node.spec:
            self._respec(slot, old, node)
        if old is None or old.status.allocatable != node.status.allocatable:
            self._reallocate(slot, old, node)
        if old is None or old.status.declared_features != node.status.declared_features:
            self._redeclare(slot, old, node)
        self.images.put(slot, node.status.images)
        self.present |= 1 << slot
        return slot

    def remove_node(self, name: str) -> None:
        """Remove the Node object; the slot stays while pods are on it (a ghost)."""
        slot = self._slots.get(name)
        node = self._objects[slot] if slot is not None else None
        if slot is None or node is None:
            return
        self._objects[slot] = None
        self._relabel(slot, node, None)
        self._respec(slot, node, None)
        self._redeclare(slot, node, None)
        self._reallocate(slot, node, None)
        self.images.put(slot, ())
        self.present &= ~(1 << slot)
        self._release(slot)

    def add_pod(self, name: str, info: PodInfo) -> int:
        """Count a pod on a node, which need not be known yet; return the slot."""
        slot = self._slot_for(name)
        self._pods[slot][info.uid] = info
        self._count(slot, info, 1)
        if info.host_ports:
            self.ports.add(slot, info.host_ports)
        self.population.add(slot, info)
        self.priorities.add(slot, info.priority)
        if info.claims:
            self.claim_users.add(slot, info)
        if info.disks:
            self.disk_users.add(slot, info)
        for disk in info.exclusive_disks:
            self.disk_conflicts.add(slot, disk)
        if has_pod_affinity(info.pod.spec.affinity):
            self.pod_terms.add(slot, info)
        return slot

    def remove_pod(self, name: str, uid: str) -> PodInfo | None:
        """Stop counting a pod; the slot is freed with its last pod if the node is gone."""
        slot = self._slots.get(name)
        info = self._pods[slot].pop(uid, None) if slot is not None else None
        if info is None or slot is None:
            return None
        self._count(slot, info, -1)
        if info.host_ports:
            self.ports.remove(slot, info.host_ports)
        self.population.remove(slot, info)
        self.priorities.remove(slot, info.priority)
        if info.claims:
            self.claim_users.remove(slot, info)
        if info.disks:
            self.disk_users.remove(slot, info)
        for disk in info.exclusive_disks:
            self.disk_conflicts.remove(slot, disk)
        if has_pod_affinity(info.pod.spec.affinity):
            self.pod_terms.remove(slot, info)
        self._release(slot)
        return info

    def replace_pod(self, name: str, info: PodInfo) -> bool:
        """Replace the object of a pod without a change of columns; return False if the columns would change."""
        slot = self._slots.get(name)
        old = self._pods[slot].get(info.uid) if slot is not None else None
        if slot is None or old is None or old.requests != info.requests or old.host_ports != info.host_ports:
            return False
        if (old.non_zero_milli_cpu, old.non_zero_memory_bytes) != (info.non_zero_milli_cpu, info.non_zero_memory_bytes):
            return False
        # the API server forbids this change, and the indexes rely on it
        if old.placement_shape != info.placement_shape:
            return False
        if (old.claims, old.disks, old.exclusive_disks) != (info.claims, info.disks, info.exclusive_disks):  # as above
            return False
        before, after = old.pod.metadata, info.pod.metadata
        if before.labels != after.labels or (before.deletion_timestamp is None) != (after.deletion_timestamp is None):
            return False
        if old.priority != info.priority:
            return False
        if old.pod.status.start_time != info.pod.status.start_time:
            self.stamps[slot] += 1
        self._pods[slot][info.uid] = info
        return True

    def touch(self, slot: int) -> None:
        """Record a change that matters to the node's results, so that they are computed again."""
        self.note(slot)
        self.stamps[slot] += 1

    def apply_again(self, slot: int) -> None:
        """Compute the columns of a slot again from its node and its pods, whatever is wrong with them."""
        node, bit = self._objects[slot], 1 << slot
        for column in (self.allocatable, self.requested, self.non_zero):
            column[:, slot] = 0
        self.pod_count[slot] = self.allowed_pods[slot] = 0
        for resource in tuple(self.rows.without_row):
            self.rows.set_aside(resource, slot, -self.rows.aside(resource, slot))
        self.present &= ~bit
        self.unschedulable &= ~bit
        if self._names[slot]:
            self._slots[self._names[slot]] = slot
        if node is not None:
            self.present |= bit
            self.unschedulable |= bit if node.spec.unschedulable else EMPTY
            self._reallocate(slot, node, node)
        for info in self._pods[slot].values():
            self._count(slot, info, 1)

    def recount_offers(self, resource: str, count: int) -> None:
        """Set the number of nodes that offer a resource; its row appears or disappears. O(nodes)."""
        rows = self.rows
        if count and resource not in rows.numbers:
            self._offered(resource)
        elif not count and resource in rows.numbers and resource not in _ALWAYS:
            rows.offers[resource] = 1
            self._withdrawn(resource)
        rows.offers.pop(resource, None)
        if count:
            rows.offers[resource] = count

    def offering(self, resource: str) -> int:
        """Return the number of Node objects that offer a resource. O(nodes)."""
        return sum(node is not None and resource in node.status.allocatable for node in self._objects)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _slot_for(self, name: str) -> int:
        slot = self._slots.get(name)
        if slot is None:
            if not self._free:
                self._grow()
            slot = self._slots[name] = self._free.pop()
            self._names[slot] = name
        return slot

    def _release(self, slot: int) -> None:
        if self._objects[slot] is None and not self._pods[slot]:
            del self._slots[self._names[slot]]
            self._names[slot] = ""
            self._free.append(slot)

    def _count(self, slot: int, info: PodInfo, sign: int) -> None:
        """Add or subtract a pod. A pod that leaves is in `_pods` no longer.

        Upstream: pkg/scheduler/framework/types.go NodeInfo.update
        """
        requested, rows = self.requested, self.rows.numbers
        for resource, amount in info.requests.items():
            row = rows.get(resource)
            if row is None:
                self.rows.set_aside(resource, slot, sign * amount)
                continue
            held = requested.item(row, slot)
            held = held + sign * amount if held < INT64_MAX else self._summed(slot, resource)
            requested[row, slot] = min(INT64_MAX, held)
        non_zero = self.non_zero
        cpu, memory = non_zero.item(CPU_ROW, slot), non_zero.item(MEMORY_ROW, slot)
        if cpu < INT64_MAX and memory < INT64_MAX:
            cpu, memory = cpu + sign * info.non_zero_milli_cpu, memory + sign * info.non_zero_memory_bytes
        else:
            cpu, memory = self._summed_for_scores(slot)
        non_zero[CPU_ROW, slot] = min(INT64_MAX, cpu)
        non_zero[MEMORY_ROW, slot] = min(INT64_MAX, memory)
        self.pod_count[slot] += sign
        self.touch(slot)

    def _summed_for_scores(self, slot: int) -> tuple[int, int]:
        pods = self._pods[slot].values()
        return sum(info.non_zero_milli_cpu for info in pods), sum(info.non_zero_memory_bytes for info in pods)

    def _relabel(self, slot: int, old: Node | None, new: Node | None) -> None:
        if old is not None:
            self.labels.remove(slot, old.metadata.labels)
        if new is not None:
            self.labels.add(slot, new.metadata.labels)
        self.topologies.relabelled(slot, _labels(old), _labels(new))
        self.relabelled.note(slot)
        self.object_generation += 1

    def _respec(self, slot: int, old: Node | None, new: Node | None) -> None:
        bit = 1 << slot
        if old is not None and old.spec.taints:
            remaining = self.taints[old.spec.taints] & ~bit
            if remaining:
                self.taints[old.spec.taints] = remaining
            else:
                del self.taints[old.spec.taints]
        if new is not None and new.spec.taints:
            self.taints[new.spec.taints] = self.taints.get(new.spec.taints, EMPTY) | bit
        if new is not None and new.spec.unschedulable:
            self.unschedulable |= bit
        else:
            self.unschedulable &= ~bit
        self.object_generation += 1

    def _redeclare(self, slot: int, old: Node | None, new: Node | None) -> None:
        if old is not None:
            self.features.remove(slot, dict.fromkeys(old.status.declared_features, ""))
        if new is not None:
            self.features.add(slot, dict.fromkeys(new.status.declared_features, ""))
        if old is not None and new is not None:  # other changes are noted with the labels
            self.relabelled.note(slot)

    def _reallocate(self, slot: int, old: Node | None, new: Node | None) -> None:
        before = allocatable(old.status.allocatable) if old is not None else {}
        now = allocatable(new.status.allocatable) if new is not None else {}
        before.pop(PODS, None)
        self.allowed_pods[slot] = now.pop(PODS, 0)
        self.allocatable[:, slot] = 0
        for resource in now:
            if resource not in before:
                self._offered(resource)
        for resource in before:
            if resource not in now:
                self._withdrawn(resource)
        rows = self.rows.numbers
        for resource, amount in now.items():
            self.allocatable[rows[resource], slot] = amount
        self.touch(slot)

    def _offered(self, resource: str) -> None:
        row, waiting = self.rows.offered(resource)
        if row == self.allocatable.shape[0]:
            self.allocatable = np.vstack((self.allocatable, np.zeros_like(self.allocatable)))
            self.requested = np.vstack((self.requested, np.zeros_like(self.requested)))
        for slot, amount in waiting.items():
            self.requested[row, slot] = min(amount, INT64_MAX)

    def _withdrawn(self, resource: str) -> None:
        row = self.rows.withdrawn(resource)
        if row is None:
            return
        for slot in np.flatnonzero(self.requested[row]).tolist():
            held = self.requested.item(row, slot)
            self.rows.set_aside(resource, slot, held if held < INT64_MAX else self._summed(slot, resource))
        self.requested[row] = 0

    def _grow(self) -> None:
        old = self.capacity
        self.capacity = old * 2
        wide = np.zeros((self.allocatable.shape[0], old), dtype=np.int64)
        self.allocatable = np.hstack((self.allocatable, wide))
        self.requested = np.hstack((self.requested, wide))
        self.non_zero = np.hstack((self.non_zero, np.zeros((2, old), dtype=np.int64)))
        self.pod_count = np.concatenate((self.pod_count, np.zeros(old, dtype=np.int64)))
        self.allowed_pods = np.concatenate((self.allowed_pods, np.zeros(old, dtype=np.int64)))
        self._objects += [None] * old
        self._names += [""] * old
        self.stamps += [0] * old
        self._pods += [{} for _ in range(old)]
        self._free = list(range(self.capacity - 1, old - 1, -1))
        self.topologies.grow(self.capacity)


def _labels(node: Node | None) -> Mapping[str, str]:
    return {} if node is None else node.metadata.labels


class NodeView:
    """One node, for plugins with the one-node form and for explanations. It reads the columns at each call."""

    __slots__ = ("_nodes", "slot")

    def __init__(self, nodes: Nodes, slot: int) -> None:
        self._nodes = nodes
        self.slot = slot

    @property
    def name(self) -> str:
        return self._nodes.name(self.slot)

    @property
    def node(self) -> Node:
        """Return the Node object; raise LookupError for a node that is gone."""
        node = self._nodes.node(self.slot)
        if node is None:
            raise LookupError(self.name)
        return node

    @property
    def pods(self) -> Mapping[str, PodInfo]:
        """The pods on the node by uid."""
        return self._nodes.pods(self.slot)

    @property
    def pod_count(self) -> int:
        """The number of pods that count against `allowed_pods`."""
        return int(self._nodes.pod_count[self.slot])

    @property
    def allowed_pods(self) -> int:
        return int(self._nodes.allowed_pods[self.slot])

    def allocatable(self, resource: str) -> int:
        """Return milli-CPU for cpu, units otherwise."""
        row = self._nodes.resources().get(resource)
        return 0 if row is None else int(self._nodes.allocatable[row, self.slot])

    def requested(self, resource: str) -> int:
        """Return the sum over the pods on the node, assumed ones included."""
        return self._nodes.requested_at(self.slot, resource)

    def free(self, resource: str) -> int:
        """Return what the pods on the node leave, also of "pods"; it may be negative."""
        if resource == "pods":
            return self.allowed_pods - self.pod_count
        return self.allocatable(resource) - self.requested(resource)
