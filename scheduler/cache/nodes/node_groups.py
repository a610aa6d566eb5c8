"""Sets of nodes that are described by label rules and updated as nodes change.

Volumes, capacity objects and storage classes describe their nodes in different formats. Each becomes a `Where`, and
equal ones share one group (docs/spec/volumes.md §3.4, §3.5). Reading a set costs nothing. A changed node costs a
look-up per label, and one evaluation per rule that is not of the form "this key has one of these values".

`matching_*` evaluate node selectors for all nodes at once (docs/spec/core.md §5.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.api.core_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Toleration
from scheduler.api.node_affinity import NODE_NAME_FIELD, is_empty, required_node_affinity, term_problem, untolerated
from scheduler.api.selectors import LabelSelector, requirement_matches
from scheduler.api.storage_v1 import TopologySelectorTerm
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.changes import ChangeLog
from scheduler.core.nodeset import EMPTY, NodeSet

Where: TypeAlias = tuple[tuple[NodeSelectorRequirement, ...], ...]
"""Terms, of which one must hold. A term holds if all its requirements do, so an empty term always holds."""

ANYWHERE: Final[Where] = ((),)
NOWHERE: Final[Where] = ()


def where_affinity(required: NodeSelector | None) -> Where:
    """Return the rule for a volume's node affinity: labels only, without invalid terms (docs/spec/volumes.md §3.5).

    A term with only fields holds everywhere, because a volume's affinity is evaluated without the node's name.
    """
    if required is None:
        return ANYWHERE
    return tuple(
        term.match_expressions
        for term in required.node_selector_terms
        if (term.match_expressions or term.match_fields) and not term_problem(term)
    )


def affinity_problem(required: NodeSelector | None) -> str:
    """Return the first term that cannot be parsed, or ""."""
    for at, term in enumerate(required.node_selector_terms if required is not None else ()):
        problem = term_problem(term)
        if problem:
            return f"spec.nodeAffinity.required.nodeSelectorTerms[{at}].{problem}"
    return ""


def where_selector(selector: LabelSelector | None) -> Where:
    """Return the rule for a capacity object's nodeTopology (§3.4).

    An absent or invalid one matches no node, an empty one all nodes.
    """
    if selector is None:
        return NOWHERE
    wanted = [NodeSelectorRequirement(key, "In", (value,)) for key, value in sorted(selector.match_labels.items())]
    wanted += [NodeSelectorRequirement(r.key, r.operator, r.values) for r in selector.match_expressions]
    return NOWHERE if term_problem(NodeSelectorTerm(match_expressions=tuple(wanted))) else (tuple(wanted),)


def where_topologies(terms: Iterable[TopologySelectorTerm]) -> Where:
    """Return the rule for a class's allowedTopologies. Without terms it matches all nodes.

    A term without expressions, or with an invalid one, matches no node.
    """
    terms = tuple(terms)
    if not terms:
        return ANYWHERE
    requirements = []
    for term in terms:
        wanted = tuple(NodeSelectorRequirement(e.key, "In", e.values) for e in term.match_label_expressions)
        if wanted and not term_problem(NodeSelectorTerm(match_expressions=wanted)):
            requirements.append(wanted)
    return tuple(requirements)


@dataclass(slots=True, eq=False)
class NodeGroup:
    """One rule and its nodes. `slot` is the only node, or -1 if there are none or several."""

    number: int
    where: Where
    nodes: NodeSet = EMPTY
    slot: int = -1
    users: int = 0


class NodeGroups(ChangeLog[tuple[NodeGroup, int]]):
    """All rules in use. The log contains each added or removed group and slot. Call `catch_up` before reading."""

    def __init__(self, nodes: Nodes) -> None:
        super().__init__()
        self._nodes = nodes
        self._position = nodes.relabelled.position
        self._groups: dict[Where, NodeGroup] = {}
        self._next = 0
        self._by_label: dict[tuple[str, str], set[NodeGroup]] = {}
        self._unindexed: set[NodeGroup] = set()
        self._members: dict[int, set[NodeGroup]] = {}

    def acquire(self, where: Where) -> NodeGroup:
        """Return the group of this rule, which is updated until it is released as often as acquired."""
        self.catch_up()
        group = self._groups.get(where)
        if group is None:
            group = self._groups[where] = NodeGroup(self._next, where)
            self._next += 1
            self._index(group)
            self._fill(group)
        group.users += 1
        return group

    def nodes_of(self, where: Where) -> NodeSet:
        """Return the current nodes of a rule, also if it is not in use."""
        group = self.acquire(where)
        self.release(group)
        return group.nodes

    def release(self, group: NodeGroup) -> None:
        """Remove a user; the last one removes the rule."""
        group.users -= 1
        if group.users:
            return
        del self._groups[group.where]
        labels = _labels(group.where)
        if labels is None:
            self._unindexed.discard(group)
        for label in labels or ():
            groups = self._by_label[label]
            groups.discard(group)
            if not groups:
                del self._by_label[label]
        for slot in nodeset.each(group.nodes):
            groups = self._members[slot]
            groups.discard(group)
            if not groups:
                del self._members[slot]

    def of(self, slot: int) -> set[NodeGroup]:
        """Return the groups that contain this node. A live view: do not keep it."""
        return self._members.get(slot, _NONE)

    @property
    def behind(self) -> int:
        """The number of changes of nodes that `catch_up` must process."""
        return self._nodes.relabelled.position - self._position

    def __contains__(self, group: NodeGroup) -> bool:
        """Return whether the group is kept up to date."""
        return self._groups.get(group.where) is group

    def in_use(self) -> tuple[NodeGroup, ...]:
        return tuple(self._groups.values())

    def entries(self, group: NodeGroup) -> dict[str, object]:
        """Return what is known of a group, for comparisons; nothing of a group that is not in use."""
        if group not in self:
            return {}
        reading_slots = [slot for slot in nodeset.members(group.nodes) if group in self.of(slot)]
        return {"nodes": self._nodes.names(group.nodes), "known at nodes": len(reading_slots), "only node": group.slot}

    def expected(self, group: NodeGroup) -> dict[str, object]:
        """Return `entries` as they follow from the labels of the nodes. The cost grows with the values of the rule."""
        if group not in self:
            return {}
        alone = NodeGroup(-1, group.where, self._matching(group.where))
        self._resize(alone)
        return {
            "nodes": self._nodes.names(alone.nodes),
            "known at nodes": alone.nodes.bit_count(),
            "only node": alone.slot,
        }

    def faults(self) -> Iterator[list[str]]:
        """Yield for each node the groups that it is known for and that lack it: none, unless there is a bug."""
        for slot in tuple(self._members):
            self.catch_up()
            yield [
                f"{group.where} at {self._nodes.name(slot)}" for group in self.of(slot) if not group.nodes >> slot & 1
            ]

    def refill(self) -> None:
        """Compute the nodes of all groups again, whatever is wrong with them."""
        self._members.clear()
        for group in self._groups.values():
            before = group.nodes
            self._fill(group)
            for slot in nodeset.each(before ^ group.nodes):
                self.note((group, slot))

    def catch_up(self) -> None:
        """Process nodes that were added, relabelled or removed. The cost is a comparison if there are none."""
        changed = self._nodes.relabelled
        if changed.position == self._position:
            return
        slots = changed.changed_since(self._position)
        self._position = changed.position
        for slot in set(slots) if slots is not None else range(self._nodes.capacity):
            self._replace(slot)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _index(self, group: NodeGroup) -> None:
        labels = _labels(group.where)
        if labels is None:
            self._unindexed.add(group)
        for label in labels or ():
            self._by_label.setdefault(label, set()).add(group)

    def _fill(self, group: NodeGroup) -> None:
        group.nodes = self._matching(group.where)
        self._resize(group)
        for slot in nodeset.each(group.nodes):
            self._members.setdefault(slot, set()).add(group)

    def _matching(self, where: Where) -> NodeSet:
        nodes, found = self._nodes, EMPTY
        for term in where:
            matching = nodes.present
            for requirement in term:
                matching &= nodes.labels.matching(requirement, nodes.present)
            found |= matching
        return found

    def _replace(self, slot: int) -> None:
        """Update the groups that contain this node."""
        node = self._nodes.node(slot)
        now: set[NodeGroup] = set()
        if node is not None:
            labels = node.metadata.labels
            for label in labels.items():
                now |= self._by_label.get(label, _NONE)
            now |= self._unindexed
            now = {group for group in now if _holds(group.where, labels)}
        before = self._members.get(slot, _NONE)
        for group in before ^ now:
            group.nodes ^= 1 << slot
            self._resize(group)
            self.note((group, slot))
        if now:
            self._members[slot] = now
        else:
            self._members.pop(slot, None)

    def _resize(self, group: NodeGroup) -> None:
        nodes = group.nodes
        group.slot = nodes.bit_length() - 1 if nodes and nodes & (nodes - 1) == 0 else -1


_NONE: Final[set[NodeGroup]] = set()


def _labels(where: Where) -> set[tuple[str, str]] | None:
    """Return labels of which a node must have one for the rule to hold; None if there are no such labels."""
    labels: set[tuple[str, str]] = set()
    for term in where:
        membership = next((r for r in term if r.operator == "In"), None)
        if membership is None:
            return None
        labels.update((membership.key, value) for value in membership.values)
    return labels


def _holds(where: Where, labels: dict[str, str]) -> bool:
    return any(all(requirement_matches(r.key, r.operator, r.values, labels) for r in term) for term in where)


def matching_labels(nodes: Nodes, wanted: Mapping[str, str]) -> NodeSet:
    """Return the present nodes with all of these labels (`nodeSelector`)."""
    matching = nodes.present
    for key, value in wanted.items():
        matching &= nodes.labels.equal(key, value)
    return matching


def admitting(nodes: Nodes, spec: PodSpec) -> NodeSet:
    """Return the present nodes that nodeSelector and required node affinity admit."""
    matching = matching_labels(nodes, spec.node_selector)
    required = required_node_affinity(spec.affinity)
    return matching if required is None else matching & matching_selector(nodes, required)


def refusing(nodes: Nodes, tolerations: tuple[Toleration, ...]) -> NodeSet:
    """Return the present nodes with a NoSchedule or NoExecute taint that is not tolerated."""
    refused = EMPTY
    for taints, tainted in nodes.taints.items():
        if untolerated(tolerations, taints) is not None:
            refused |= tainted
    return refused


def matching_selector(nodes: Nodes, selector: NodeSelector) -> NodeSet:
    """Return the present nodes that any of the terms matches.

    The cost grows with expressions and values, not with nodes.
    """
    matching = EMPTY
    for term in selector.node_selector_terms:
        matching |= matching_term(nodes, term)
    return matching


def matching_term(nodes: Nodes, term: NodeSelectorTerm) -> NodeSet:
    """Return the present nodes for which all expressions hold; none for an empty or invalid term."""
    if is_empty(term) or term_problem(term):
        return EMPTY
    matching = nodes.present
    for requirement in term.match_expressions:
        matching &= nodes.labels.matching(requirement, nodes.present)
    for requirement in term.match_fields:
        matching &= _field(nodes, requirement)
    return matching


def _field(nodes: Nodes, requirement: NodeSelectorRequirement) -> NodeSet:
    named = nodes.by_name(requirement.values) if requirement.key == NODE_NAME_FIELD else EMPTY
    return named if requirement.operator == "In" else nodes.present & ~named
