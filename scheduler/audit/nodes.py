"""Check columns, labels, taints, images and topologies of nodes against the Node objects."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, TypeVar

import numpy as np

from scheduler.api.core_v1 import Node
from scheduler.api.podinfo import allocatable
from scheduler.audit.findings import Check, Comparison, Steps, TwoWay, by_key, in_parts
from scheduler.cache.nodes.images import sizes_of
from scheduler.cache.nodes.indexes import LabelIndex
from scheduler.cache.nodes.nodes import PODS, Nodes
from scheduler.cache.nodes.topology import Topology
from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet

T = TypeVar("T", bound=Hashable)
_MANY: Final = 50


class NodeChecks:
    """The checks of one cluster's nodes. An index with a wrong entry is filled again from the Node objects."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def checks(self) -> dict[str, Check]:
        nodes = self._nodes
        return {
            "node-columns": self._columns,
            "node-labels": self._labels("label", nodes.labels, lambda node: node.metadata.labels),
            "node-features": self._labels(
                "feature", nodes.features, lambda node: dict.fromkeys(node.status.declared_features, "")
            ),
            "node-taints": self._taints,
            "images": self._images,
            "topologies": self._topologies,
        }

    def _about(self, slot: int) -> str:
        return f"node {self._nodes.name(slot) or f'at free slot {slot}'}"

    def _changed(self, slots: Iterable[int]) -> None:
        """Make all readers compute again what they derived from these nodes."""
        for slot in slots:
            self._nodes.touch(slot)
            self._nodes.relabelled.note(slot)
        self._nodes.object_generation += 1

    def _columns(self) -> Steps:
        nodes = self._nodes
        for resource in sorted({*nodes.rows.offers, *nodes.resources()}):
            found, count = Comparison(f"resource {resource}"), nodes.offering(resource)
            if found.differs("nodes that offer it", nodes.rows.offers.get(resource, 0), count):
                nodes.recount_offers(resource, count)
            yield found
        yield from by_key(range(nodes.capacity), self._about, nodes.columns, self._stored, self._apply)

    def _stored(self, slot: int) -> dict[str, object]:
        node, name = self._nodes.node(slot), self._nodes.name(slot)
        fields: dict[str, object] = {"slot": slot} if name else {}
        if node is None:
            return fields
        amounts = allocatable(node.status.allocatable)
        flags = {"present": 1, "unschedulable": int(node.spec.unschedulable), "allowed pods": amounts.pop(PODS, 0)}
        flags |= {f"allocatable {resource}": amount for resource, amount in amounts.items()}
        return fields | {field: value for field, value in flags.items() if value}

    def _apply(self, slot: int) -> None:
        self._nodes.apply_again(slot)
        self._changed((slot,))

    # -- sets of nodes by item -----------------------------------------------------------------------------------------

    def _labels(self, name: str, index: LabelIndex, of: Callable[[Node], Mapping[str, str]]) -> Check:
        """Compare the nodes of each label, and those of each key, which is an item without a value."""

        def stored(node: Node) -> Iterable[tuple[str, str | None]]:
            labels = of(node)
            return (*labels.items(), *((key, None) for key in labels))

        heal = self._filled(index.clear, lambda slot, node: index.add(slot, of(node)))
        return lambda: self._sets(name, index.items(), index.nodes, stored, heal)

    def _taints(self) -> Steps:
        taints = self._nodes.taints

        def fill(slot: int, node: Node) -> None:
            if node.spec.taints:
                taints[node.spec.taints] = taints.get(node.spec.taints, EMPTY) | 1 << slot

        heal = self._filled(taints.clear, fill)
        yield from self._sets(
            "taints",
            taints,
            lambda item: taints.get(item, EMPTY),
            lambda node: (node.spec.taints,) if node.spec.taints else (),
            heal,
        )

    def _images(self) -> Steps:
        """Compare the images of each node with its last heartbeat, and the nodes of each image with both."""
        images = self._nodes.images

        def clear() -> None:
            images.states.clear()
            images.on.clear()

        heal = self._filled(clear, lambda slot, node: images.put(slot, node.status.images))
        for slot in range(self._nodes.capacity):
            node, found = self._nodes.node(slot), Comparison(self._about(slot))
            stored = node.status.images if node is not None else ()
            found.differs("images", images.on.get(slot, ()), stored)
            for name, size_bytes in sizes_of(stored).items():
                if (state := images.states.get(name)) is not None and state.few == (slot,):
                    found.differs(f"size of image {name}", state.size_bytes, size_bytes)
            if found:
                heal()
            yield found
        yield from self._sets(
            "image",
            images.states,
            lambda name: images.states[name].nodes if name in images.states else EMPTY,
            lambda node: sizes_of(node.status.images),
            heal,
        )

    def _filled(self, clear: Callable[[], None], fill: Callable[[int, Node], None]) -> Callable[[], None]:
        """Return the function that fills an index again."""

        def heal() -> None:
            clear()
            for slot in range(self._nodes.capacity):
                if (node := self._nodes.node(slot)) is not None:
                    fill(slot, node)
            self._changed(range(self._nodes.capacity))

        return heal

    def _sets(
        self,
        name: str,
        index: Iterable[T],
        nodes: Callable[[T], NodeSet],
        items: Callable[[Node], Iterable[T]],
        heal: Callable[[], None],
    ) -> Steps:
        """Compare the nodes of each item of an index with the items of each Node object."""

        def stored(slot: int) -> dict[T, object]:
            node = self._nodes.node(slot)
            return dict.fromkeys(items(node), name) if node is not None else {}

        return TwoWay(
            self._about,
            range(self._nodes.capacity),
            stored,
            index,
            lambda item: nodeset.members(nodes(item)),
            lambda item, slot: name if nodes(item) >> slot & 1 else None,
            lambda *_: heal(),
        ).steps()

    # -- topologies ----------------------------------------------------------------------------------------------------

    def _topologies(self) -> Steps:
        """Compare the domains of the topology keys in use with the labels. A wrong topology is computed again."""
        topologies = self._nodes.topologies
        for topology in tuple(topologies.in_use.values()):
            for values in (*in_parts(self._nodes.labels.values(topology.key), _MANY), None):
                if topology not in topologies.in_use.values():
                    break
                found = Comparison(f"topology {topology.key}")
                self._domains(found, topology, values)
                if found:
                    topologies.in_use.pop(topology.key)
                yield found

    def _domains(self, found: Comparison, topology: Topology, values: Iterable[str] | None) -> None:
        """Compare the nodes of some domains, or with None what the domains have together."""
        labels, named = self._nodes.labels, self._nodes.names
        having = labels.having(topology.key)
        for value in values or ():
            there, number = labels.equal(topology.key, value), topology.numbers.get(value)
            members = topology.members[number] if number is not None else EMPTY
            if members != there:
                found.differs(f"nodes of {value}", named(members), named(there))
            else:
                numbers = set(topology.domain[nodeset.members(there)].tolist())
                found.differs(f"domain of {value}", numbers, {number} if there else set())
        if values is None:
            found.differs("nodes", named(topology.having), named(having))
            found.differs("domains", topology.numbers.keys(), labels.values(topology.key).keys())
            found.differs("nodes in domains", int(np.count_nonzero(topology.domain >= 0)), having.bit_count())
            found.differs("slots", len(topology.domain), self._nodes.capacity)
