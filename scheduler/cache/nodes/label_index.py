"""An index of nodes by label; `Nodes` has one more for declared features, which are keys without a value."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.api.core_v1 import NodeSelectorRequirement
from scheduler.api.selectors import integer
from scheduler.core.nodeset import EMPTY, NodeSet


class LabelIndex:
    """A map of `(key, value)` → nodes. The cost of a requirement grows with its values, not with the number of nodes."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, NodeSet]] = {}
        self._having: dict[str, NodeSet] = {}

    def add(self, slot: int, labels: Mapping[str, str]) -> None:
        """Add the labels of the node at `slot`."""
        bit = 1 << slot
        for key, value in labels.items():
            values = self._values.setdefault(key, {})
            values[value] = values.get(value, EMPTY) | bit
            self._having[key] = self._having.get(key, EMPTY) | bit

    def remove(self, slot: int, labels: Mapping[str, str]) -> None:
        """Remove the labels of the node at `slot`."""
        keep = ~(1 << slot)
        for key, value in labels.items():
            values = self._values[key]
            left = values[value] & keep
            if left:
                values[value] = left
            else:
                del values[value]
            self._having[key] &= keep
            if not values:
                del self._values[key], self._having[key]

    def equal(self, key: str, value: str) -> NodeSet:
        """Return the nodes with this label."""
        values = self._values.get(key)
        return values.get(value, EMPTY) if values else EMPTY

    def having(self, key: str) -> NodeSet:
        """Return the nodes with this key, with any value."""
        return self._having.get(key, EMPTY)

    def values(self, key: str) -> Mapping[str, NodeSet]:
        """Return value → nodes. A live view: do not keep it."""
        return self._values.get(key, {})

    def matching(self, requirement: NodeSelectorRequirement, universe: NodeSet) -> NodeSet:
        """Return the nodes of `universe` that satisfy a requirement (docs/spec/core.md §5.4).

        An invalid requirement matches no node.
        """
        key, wanted = requirement.key, requirement.values
        match requirement.operator:
            case "In":
                return self._any(key, wanted) & universe if wanted else EMPTY
            case "NotIn":
                return universe & ~self._any(key, wanted) if wanted else EMPTY
            case "Exists":
                return self.having(key) & universe if not wanted else EMPTY
            case "DoesNotExist":
                return universe & ~self.having(key) if not wanted else EMPTY
            case "Gt" | "Lt":
                return self._compared(requirement) & universe
            case _:
                return EMPTY

    def _any(self, key: str, wanted: tuple[str, ...]) -> NodeSet:
        values = self._values.get(key, {})
        out = EMPTY
        for value in wanted:
            out |= values.get(value, EMPTY)
        return out

    def _compared(self, requirement: NodeSelectorRequirement) -> NodeSet:
        bound = integer(requirement.values[0]) if len(requirement.values) == 1 else None
        if bound is None:
            return EMPTY
        out = EMPTY
        for value, nodes in self._values.get(requirement.key, {}).items():
            number = integer(value)
            if number is not None and (number > bound if requirement.operator == "Gt" else number < bound):
                out |= nodes
        return out
