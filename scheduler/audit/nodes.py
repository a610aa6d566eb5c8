"""Check columns, labels, taints, images and topologies of nodes against the Node objects."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, Protocol, TypeVar

import numpy as np

from scheduler.api.core_v1 import Node, Taint
from scheduler.api.podinfo import allocatable
from scheduler.audit.findings import Check, Comparison, Steps, in_parts
from scheduler.cache.nodes.images import ImageState, _sizes
from scheduler.cache.nodes.indexes import LabelIndex
from scheduler.cache.nodes.nodes import _ALWAYS, PODS, Nodes
from scheduler.cache.nodes.topology import Topology
from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet

T = TypeVar("T", bound=Hashable)
_MANY: Final = 50


class NodeChecks:
    """The checks of one cluster's nodes."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def checks(self) -> dict[str, Check]:
        """Return index → check."""
        nodes = self._nodes
        return {
            "node-columns": self._columns,
            "node-labels": self._labels,
            "node-features": lambda: self._sets("feature", _LabelSets(nodes.features), _features),
            "node-taints": lambda: self._sets("taints", _TaintSets(nodes.taints), _taints),
            "images": self._images,
            "topologies": self._topologies,
        }

    # -- columns -----------------------------------------------------------------------------------------------------

    def _columns(self) -> Steps:
        for resource in sorted({*self._nodes._rows._offers, *self._nodes.resources()}):
            yield self._row(resource)
        for slot in range(self._nodes.capacity):
            yield self._columns_at(slot)

    def _row(self, resource: str) -> Comparison:
        """Compare the number of nodes that offer a resource. O(nodes)."""
        nodes, rows, found = self._nodes, self._nodes._rows, Comparison(f"resource {resource}")
        offering = sum(node is not None and resource in node.status.allocatable for node in nodes._objects)
        if found.differs("nodes that offer it", rows._offers.get(resource, 0), offering):
            rows._offers.pop(resource, None)
            if offering:
                rows._offers[resource] = offering
            elif resource in rows.numbers and resource not in _ALWAYS:
                rows._offers[resource] = 1
                nodes._withdrawn(resource)
        return found

    def _columns_at(self, slot: int) -> Comparison:
        nodes = self._nodes
        node, bit, name = nodes.node(slot), 1 << slot, nodes.name(slot)
        found = Comparison(f"node {name or f'at free slot {slot}'}")
        amounts = allocatable(node.status.allocatable) if node is not None else {}
        allowed = amounts.pop(PODS, 0)
        if found.differs("allowed pods", int(nodes.allowed_pods[slot]), allowed):
            nodes.allowed_pods[slot] = allowed
        for resource in amounts:
            if resource not in nodes.resources():
                found.differs(f"row of {resource}", "missing", "present")
                nodes._offered(resource)
        for resource, row in nodes.resources().items():
            amount = amounts.get(resource, 0)
            if found.differs(f"allocatable {resource}", nodes.allocatable.item(row, slot), amount):
                nodes.allocatable[row, slot] = amount
        if found.differs("present", bool(nodes.present & bit), node is not None):
            nodes.present ^= bit
        is_cordoned = node is not None and node.spec.unschedulable
        if found.differs("unschedulable", bool(nodes.unschedulable & bit), is_cordoned):
            nodes.unschedulable ^= bit
        if name and found.differs("slot", nodes.slot(name), slot):
            nodes._slots[name] = slot
        if found:
            _changed(nodes, slot)
        return found

    # -- sets of nodes by label, feature and taints --------------------------------------------------------------------

    def _labels(self) -> Steps:
        yield from self._sets("label", _LabelSets(self._nodes.labels), lambda node: node.metadata.labels.items())
        for key in tuple(self._nodes.labels._having):
            yield self._having(key)

    def _having(self, key: str) -> Comparison:
        """Compare the nodes with a key with those of its values. O(values)."""
        labels, found, nodes = self._nodes.labels, Comparison(f"label {key}"), EMPTY
        for each in labels.values(key).values():
            nodes |= each
        if found.differs("nodes", NamedNodes(self._nodes, labels.having(key)), NamedNodes(self._nodes, nodes)):
            for slot in slots_of(labels.having(key) ^ nodes):
                _changed(self._nodes, slot)
            labels._having[key] = nodes
            if not nodes:
                del labels._having[key]
        return found

    def _sets(self, field: str, sets: _Sets[T], items: Callable[[Node], Iterable[T]]) -> Steps:
        """Compare the nodes of each item, first by node and then by item."""
        nodes = self._nodes
        for slot in range(nodes.capacity):
            node, found = nodes.node(slot), Comparison(f"node {nodes.name(slot)}")
            for item in items(node) if node is not None else ():
                self._compare(found, field, sets, slot, item, is_there=True)
            yield found
        for item in tuple(sets.items()):
            for some in in_parts(slots_of(sets.of(item)), _MANY):
                found = Comparison("")
                for slot in some:
                    node = nodes.node(slot)
                    found.about = f"node {nodes.name(slot)}"
                    is_there = node is not None and item in items(node)
                    self._compare(found, field, sets, slot, item, is_there=is_there)
                yield found

    def _compare(self, found: Comparison, field: str, sets: _Sets[T], slot: int, item: T, *, is_there: bool) -> None:
        known = sets.of(item)
        if bool(known >> slot & 1) != is_there:
            found.differs(f"{field} {item}", not is_there, is_there)
            sets.put(item, known ^ 1 << slot)
            _changed(self._nodes, slot)

    # -- images --------------------------------------------------------------------------------------------------------

    def _images(self) -> Steps:
        nodes, images = self._nodes, self._nodes.images
        for slot in range(nodes.capacity):
            yield self._images_at(slot)
        for name in tuple(images._states):
            state = images.get(name)
            for some in in_parts(slots_of(state.nodes) if state is not None else ()):
                found = Comparison(f"image {name}")
                for slot in some:
                    self._image(found, slot, name, is_there=name in _sizes(images._on.get(slot, ())))
                yield found

    def _images_at(self, slot: int) -> Comparison:
        nodes, images = self._nodes, self._nodes.images
        node, found = nodes.node(slot), Comparison(f"node {nodes.name(slot)}")
        stored = node.status.images if node is not None else ()
        if found.differs("images", images._on.get(slot, ()), stored):
            images._on[slot] = stored
            if not stored:
                del images._on[slot]
        for name, size_bytes in _sizes(stored).items():
            self._image(found, slot, name, is_there=True)
            state = images._states[name]
            if state.few == (slot,) and found.differs(f"size of image {name}", state.size_bytes, size_bytes):
                images._states[name] = ImageState(size_bytes, (slot,))
        if found:
            _changed(nodes, slot)
        return found

    def _image(self, found: Comparison, slot: int, name: str, *, is_there: bool) -> None:
        images = self._nodes.images
        state = images.get(name)
        if not found.differs(
            f"image {name} on {self._nodes.name(slot)}",
            state is not None and bool(state.nodes >> slot & 1),
            is_there,
        ):
            return
        if is_there:
            size_bytes = _sizes(images._on[slot])[name]
            images._states[name] = ImageState(size_bytes, (slot,)) if state is None else state.joined(slot)
        elif state is not None:
            left = state.without(slot)
            images._states[name] = left
            if not left.nodes:
                del images._states[name]
        _changed(self._nodes, slot)

    # -- topologies ----------------------------------------------------------------------------------------------------

    def _topologies(self) -> Steps:
        """Compare the domains of the topology keys in use with the labels. A wrong topology is computed again."""
        known = self._nodes.topologies._known
        for key in tuple(known):
            for values in in_parts(self._nodes.labels.values(key), _MANY):
                if (topology := known._entries.get(key)) is not None:
                    yield self._domains(topology, values)
            if (topology := known._entries.get(key)) is not None:
                yield self._whole(topology)

    def _domains(self, topology: Topology, values: Iterable[str]) -> Comparison:
        found, labels = Comparison(f"topology {topology.key}"), self._nodes.labels.values(topology.key)
        for value in values:
            there, number = labels.get(value, EMPTY), topology.number(value)
            members = topology.members[number] if number is not None else EMPTY
            if not found.differs(f"nodes of {value}", NamedNodes(self._nodes, members), NamedNodes(self._nodes, there)):
                numbers = set(topology.domain[slots_of(there)].tolist())
                found.differs(f"domain of {value}", numbers, {number} if there else set())
        self._drop(found, topology)
        return found

    def _whole(self, topology: Topology) -> Comparison:
        found, labels = Comparison(f"topology {topology.key}"), self._nodes.labels
        having = labels.having(topology.key)
        found.differs("nodes", NamedNodes(self._nodes, topology.having), NamedNodes(self._nodes, having))
        found.differs("domains", topology._numbers.keys(), labels.values(topology.key).keys())
        found.differs("nodes in domains", int(np.count_nonzero(topology.domain >= 0)), having.bit_count())
        found.differs("slots", len(topology.domain), self._nodes.capacity)
        self._drop(found, topology)
        return found

    def _drop(self, found: Comparison, topology: Topology) -> None:
        if found:
            self._nodes.topologies._known.pop(topology.key)


def slots_of(nodes: NodeSet) -> list[int]:
    """Return the slots of a set in ascending order; faster than `nodeset.each` for large sets."""
    return nodeset.slots(nodes, nodes.bit_length()).tolist() if nodes else []


def _changed(nodes: Nodes, slot: int) -> None:
    """Make all readers compute again what they derived from the node."""
    nodes.touch(slot)
    nodes.relabelled.note(slot)
    nodes.object_generation += 1


def _features(node: Node) -> Iterable[tuple[str, str]]:
    return dict.fromkeys(node.status.declared_features, "").items()


def _taints(node: Node) -> Iterable[tuple[Taint, ...]]:
    return (node.spec.taints,) if node.spec.taints else ()


_SHOWN: Final = 8


class NamedNodes:
    """A set of nodes that is compared as a set and shown by names."""

    __slots__ = ("_nodes", "_slots")

    def __init__(self, nodes: Nodes, slots: NodeSet) -> None:
        self._nodes = nodes
        self._slots = slots

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedNodes) and self._slots == other._slots

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        names = [self._nodes.name(slot) for slot, _ in zip(nodeset.each(self._slots), range(_SHOWN), strict=False)]
        return f"{self._slots.bit_count()} nodes: {', '.join(names)}"


class _Sets(Protocol[T]):
    """Item → set of nodes. No item has an empty set."""

    def items(self) -> Iterable[T]: ...
    def of(self, item: T) -> NodeSet: ...
    def put(self, item: T, nodes: NodeSet) -> None: ...


class _TaintSets(Generic[T]):
    def __init__(self, sets: dict[T, NodeSet]) -> None:
        self._sets = sets

    def items(self) -> Iterable[T]:
        return self._sets

    def of(self, item: T) -> NodeSet:
        return self._sets.get(item, EMPTY)

    def put(self, item: T, nodes: NodeSet) -> None:
        self._sets[item] = nodes
        if not nodes:
            del self._sets[item]


class _LabelSets:
    def __init__(self, index: LabelIndex) -> None:
        self._index = index

    def items(self) -> Iterable[tuple[str, str]]:
        return [(key, value) for key, values in self._index._values.items() for value in values]

    def of(self, item: tuple[str, str]) -> NodeSet:
        return self._index.equal(*item)

    def put(self, item: tuple[str, str], nodes: NodeSet) -> None:
        key, value = item
        values: dict[str, NodeSet] = self._index._values.setdefault(key, {})
        values[value] = nodes
        if not nodes:
            del values[value]
        having = EMPTY
        for each in values.values():
            having |= each
        self._index._having[key] = having
        if not values:
            del self._index._values[key], self._index._having[key]
