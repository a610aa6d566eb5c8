"""Which row of a matrix a resource has: one as long as some node offers it.

What pods name and no node offers gets none. Anybody who may make pods can make up thousands of names, also on a node that
he names himself, and each row is as long as there are nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ALWAYS: Final = ("cpu", "memory", "ephemeral-storage")
_TOO_MUCH: Final = 2**63


class ResourceRows:
    """Numbers, and what is requested of resources that have none. Changed by `Nodes` only; constant cost but for `offered`."""

    __slots__ = ("_aside", "_offers", "_vacant", "numbers")

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {name: row for row, name in enumerate(_ALWAYS)}
        self._offers: dict[str, int] = {}
        self._vacant: list[int] = []
        self._aside: dict[str, dict[int, int]] = {}

    def offered(self, resource: str) -> tuple[int, Mapping[int, int]]:
        """By one more node. The row, and what is requested by slot if it is a new one."""
        self._offers[resource] = self._offers.get(resource, 0) + 1
        row = self.numbers.get(resource)
        if row is not None:
            return row, {}
        row = self.numbers[resource] = self._vacant.pop() if self._vacant else len(self.numbers)
        return row, self._aside.pop(resource, {})

    def withdrawn(self, resource: str) -> int | None:
        """By one of the nodes. The row that the resource has lost by that, if it has: what is in there is to be set aside."""
        left = self._offers.pop(resource) - 1
        if left:
            self._offers[resource] = left
        elif resource not in _ALWAYS:
            self._vacant.append(row := self.numbers.pop(resource))
            return row
        return None

    def set_aside(self, resource: str, slot: int, amount: int) -> None:
        """So much more is requested of what nobody offers. What no int64 can hold goes round, as in a row, and comes back."""
        here = self._aside.setdefault(resource, {})
        here[slot] = (here.get(slot, 0) + amount + _TOO_MUCH) % (2 * _TOO_MUCH) - _TOO_MUCH
        if not here[slot]:
            del here[slot]
        if not here:
            del self._aside[resource]

    def aside(self, resource: str, slot: int) -> int:
        """How much is requested of it, while nobody offers it."""
        return self._aside.get(resource, {}).get(slot, 0)
