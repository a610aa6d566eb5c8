"""Topology keys as numbered domains: nodes with equal values of a label (docs/spec/core.md §5.8, §5.9).

Kept only for keys that somebody asked for; a relabelled node moves between domains, nothing is rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.cache.labels import LabelIndex
from scheduler.core.bounded_cache import BoundedCache
from scheduler.core.nodeset import EMPTY, NodeSet

DomainNumbers: TypeAlias = npt.NDArray[np.int32]
_KEYS_MAX: Final = 128
_FEW: Final = 64


class Topology:
    """The domains of one key. Everything public is for reading."""

    __slots__ = ("_free", "_numbers", "domain", "generation", "having", "key", "members")

    def __init__(self, key: str, values: Mapping[str, NodeSet], capacity: int) -> None:
        self.key = key
        self.generation = 0
        """Changes when any node enters, leaves or changes a domain, or columns grow."""
        self.having: NodeSet = EMPTY
        self.domain: DomainNumbers = np.full(capacity, -1, dtype=np.int32)
        """Slot → number of its domain; -1 without the key, which is the last entry of a column made by `Domains`."""
        self.members: list[NodeSet] = []
        """Number → nodes; empty for a number that is free."""
        self._numbers: dict[str, int] = {}
        self._free: list[int] = []
        for number, (value, nodes) in enumerate(values.items()):
            self._numbers[value] = number
            self.members.append(nodes)
            self.having |= nodes
            rest = nodes
            while rest:
                low = rest & -rest
                self.domain[low.bit_length() - 1] = number
                rest ^= low

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, value: str) -> int | None:
        """The domain of a value; None if no node has it."""
        return self._numbers.get(value)

    def distinct(self, nodes: NodeSet) -> int:
        """In how many domains these nodes are. O(1) for all of them, else O(domains) while those are few."""
        among = nodes & self.having
        if among == self.having:
            return len(self)
        if len(self.members) <= _FEW:
            return sum(1 for members in self.members if members & among)
        inside = np.frombuffer(among.to_bytes((len(self.domain) + 7) // 8, "little"), dtype=np.uint8)
        mask = np.unpackbits(inside, count=len(self.domain), bitorder="little").view(np.bool_)
        return int(np.count_nonzero(np.bincount(self.domain[mask], minlength=1)))

    def move(self, slot: int, old: str | None, new: str | None) -> None:
        """The node's value changed; None stands for no such label."""
        bit = 1 << slot
        if old is not None:
            number = self._numbers[old]
            self.members[number] &= ~bit
            self.having &= ~bit
            self.domain[slot] = -1
            if not self.members[number]:
                del self._numbers[old]
                self._free.append(number)
        if new is not None:
            number = self._number_for(new)
            self.members[number] |= bit
            self.having |= bit
            self.domain[slot] = number
        self.generation += 1

    def grow(self, capacity: int) -> None:
        """Room for more slots."""
        more = np.full(capacity - len(self.domain), -1, dtype=np.int32)
        self.domain = np.concatenate((self.domain, more))
        self.generation += 1

    def _number_for(self, value: str) -> int:
        number = self._numbers.get(value)
        if number is None:
            if self._free:
                number = self._free.pop()
            else:
                number = len(self.members)
                self.members.append(EMPTY)
            self._numbers[value] = number
        return number


class Topologies:
    """The keys in use. A key that nobody asked for in a long time is dropped: take it from `of` each time."""

    def __init__(self, labels: LabelIndex, capacity: int) -> None:
        self._labels = labels
        self._capacity = capacity
        self._known: BoundedCache[str, Topology] = BoundedCache(_KEYS_MAX)

    def of(self, key: str) -> Topology:
        """The key's domains as they are now. O(nodes) the first time, a look-up then."""
        topology = self._known.get(key)
        if topology is None:
            topology = self._known.put(key, Topology(key, self._labels.values(key), self._capacity))
        return topology

    def relabelled(self, slot: int, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        """A node came (old is empty), went (new is empty), or has other labels. O(keys in use)."""
        for topology in self._known.values():
            before, after = old.get(topology.key), new.get(topology.key)
            if before != after:
                topology.move(slot, before, after)

    def grow(self, capacity: int) -> None:
        """Columns have become longer."""
        self._capacity = capacity
        for topology in self._known.values():
            topology.grow(capacity)
