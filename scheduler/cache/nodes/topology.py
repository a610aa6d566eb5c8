"""Topology domains: nodes with equal values of a label, and counts of pods per domain (docs/spec/core.md §5.8, §5.9).

Domains are maintained only for the topology keys in use. A relabelled node moves between domains; nothing is rebuilt.

Counts change one pod at a time. Filters read them as node sets (which nodes share a domain with any pod, or with how
many), and scores as a column. Each form is computed at its first use and updated from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.cache.nodes.indexes import LabelIndex
from scheduler.core import nodeset
from scheduler.core.caching import BoundedCache
from scheduler.core.changes import ChangeLog
from scheduler.core.nodeset import EMPTY, NodeSet

_KEYS_MAX: Final = 128
_FEW: Final = 64


class Topology:
    """The domains of one key. All public attributes are read-only."""

    def __init__(self, key: str, values: Mapping[str, NodeSet], capacity: int) -> None:
        self.key = key
        self.generation = 0
        """A number that changes when a node enters, leaves or changes a domain, or the columns grow."""
        self.having: NodeSet = EMPTY
        self.domain: npt.NDArray[np.int32] = np.full(capacity, -1, dtype=np.int32)
        """Slot → number of its domain, or -1 without the key. In a column of `DomainCounts`, -1 is the last entry."""
        self.members: list[NodeSet] = []
        """Number → nodes; empty for a free number."""
        self.numbers: dict[str, int] = {}
        """Value → number of the domain of the nodes with it."""
        self._free: list[int] = []
        for number, (value, nodes) in enumerate(values.items()):
            self.numbers[value] = number
            self.members.append(nodes)
            self.having |= nodes
            for slot in nodeset.each(nodes):
                self.domain[slot] = number

    def __len__(self) -> int:
        return len(self.numbers)

    def distinct(self, nodes: NodeSet) -> int:
        """Return the number of domains of these nodes. O(1) for all nodes, else O(domains) for few domains."""
        among = nodes & self.having
        if among == self.having:
            return len(self)
        if len(self.members) <= _FEW:
            return sum(1 for members in self.members if members & among)
        inside = np.frombuffer(among.to_bytes((len(self.domain) + 7) // 8, "little"), dtype=np.uint8)
        mask = np.unpackbits(inside, count=len(self.domain), bitorder="little").view(np.bool_)
        return int(np.count_nonzero(np.bincount(self.domain[mask], minlength=1)))

    def move(self, slot: int, old: str | None, new: str | None) -> None:
        """Move a node between domains; None stands for a missing label."""
        bit = 1 << slot
        if old is not None:
            number = self.numbers[old]
            self.members[number] &= ~bit
            self.having &= ~bit
            self.domain[slot] = -1
            if not self.members[number]:
                del self.numbers[old]
                self._free.append(number)
        if new is not None:
            number = self._number_for(new)
            self.members[number] |= bit
            self.having |= bit
            self.domain[slot] = number
        self.generation += 1

    def grow(self, capacity: int) -> None:
        """Extend the column for more slots."""
        more = np.full(capacity - len(self.domain), -1, dtype=np.int32)
        self.domain = np.concatenate((self.domain, more))
        self.generation += 1

    def _number_for(self, value: str) -> int:
        number = self.numbers.get(value)
        if number is None:
            if self._free:
                number = self._free.pop()
            else:
                number = len(self.members)
                self.members.append(EMPTY)
            self.numbers[value] = number
        return number


class Topologies:
    """The topologies in use. The least recently used ones are dropped, so call `of` for each use."""

    def __init__(self, labels: LabelIndex, capacity: int) -> None:
        self._labels = labels
        self._capacity = capacity
        self.in_use: BoundedCache[str, Topology] = BoundedCache(_KEYS_MAX)

    def of(self, key: str) -> Topology:
        """Return the key's current domains. O(nodes) the first time, then a look-up."""
        topology = self.in_use.get(key)
        if topology is None:
            topology = self.in_use.put(key, Topology(key, self._labels.values(key), self._capacity))
        return topology

    def relabelled(self, slot: int, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        """Update the domains of a node that was added (`old` is empty), removed (`new` is empty), or relabelled.

        O(keys in use).
        """
        for topology in self.in_use.values():
            before, after = old.get(topology.key), new.get(topology.key)
            if before != after:
                topology.move(slot, before, after)

    def grow(self, capacity: int) -> None:
        """Extend the columns of all topologies."""
        self._capacity = capacity
        for topology in self.in_use.values():
            topology.grow(capacity)


_KEPT: Final = 4
"""The number of eligible sets per count; changes of nodes and taints leave unused ones behind."""


class SlotCounts(ChangeLog[int]):
    """Sparse counts of pods per slot. The index that owns it changes it one pod at a time.

    The log has one entry per pod: the slot to which the pod was added, or `~slot` if it was removed.
    """

    __slots__ = ("counts", "domains")

    log_max = 512

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[int, int] = {}
        """Slot → count, none of them 0; also slots whose Node object is gone."""
        self.domains: dict[tuple[str, int | None], DomainCounts] = {}
        """The sums in use, maintained by `domains.of`."""

    def add(self, slot: int) -> None:
        self.counts[slot] = self.counts.get(slot, 0) + 1
        self._record(slot)

    def remove(self, slot: int) -> None:
        """Remove a pod; KeyError if there was none."""
        remaining = self.counts.pop(slot) - 1
        if remaining:
            self.counts[slot] = remaining
        self._record(~slot)

    def put(self, slot: int, count: int) -> None:
        """Add several pods to a slot, before the log has a reader."""
        self.counts[slot] = self.counts.get(slot, 0) + count

    def _record(self, entry: int) -> None:
        # without sums the log has no reader, and a new reader starts with the counts
        if self.domains and self.note(entry):
            # sums whose position the log no longer contains are not read any more
            self.domains = {key: sums for key, sums in self.domains.items() if self.reaches(sums.position)}
            if not self.domains:
                self.drop_all()


@dataclass(slots=True, eq=False)
class DomainCounts:
    """One count over the domains of one key, valid until the next change.

    Call `of` for each use, because it updates it. Only pods on `eligible` nodes count, and only domains with an
    eligible node exist; None means every node with the key.
    """

    counts: SlotCounts
    topology: Topology
    eligible: NodeSet | None
    per_domain: dict[int, int] = field(default_factory=dict)
    """Domain number → count, none of them 0."""
    occupied: NodeSet = EMPTY
    """Nodes whose domain has at least one pod."""
    existing: int = 0
    """The number of domains."""
    position: int = -1
    """The position in the log of `counts`."""
    _column: npt.NDArray[np.int64] | None = None
    _levels: dict[int, DomainLevel] | None = None
    _generation: int = -1

    def __post_init__(self) -> None:
        self._rebuild()

    @property
    def size(self) -> int:
        """The number of stored entries."""
        return len(self.per_domain) + (0 if self._column is None else len(self._column))

    def column(self) -> npt.NDArray[np.int64]:
        """Return the count in the domain of each slot, 0 without the key. The array is new; O(nodes)."""
        column = self._column
        if column is None:
            column = self._column = np.zeros(len(self.topology.members) + 1, dtype=np.int64)
            for number, count in self.per_domain.items():
                column[number] = count
        return column[self.topology.domain]

    def levels(self) -> dict[int, DomainLevel]:
        """Return count → the domains with that count. Domains that do not exist are left out."""
        if self._levels is None:
            self._levels = {}
            for number, members in enumerate(self.topology.members):
                if members if self.eligible is None else members & self.eligible:
                    self._levels.setdefault(self.per_domain.get(number, 0), DomainLevel()).enter(members)
        return self._levels

    def entries(self, like: DomainCounts) -> dict[str, object]:
        """Return the sums for a comparison, with the column and the levels if `like` has them."""
        entries = {"pods by domain": self.per_domain, "domains": self.existing, "occupied": self.occupied}
        column = self.column().tolist() if like._column is not None else None
        levels = self.levels() if like._levels is not None else {}
        by_count = {count: (level.nodes, level.domains) for count, level in levels.items()}
        return {**entries, "column": column, "domains by count": by_count}

    def refresh(self) -> None:
        """Apply the changes since the last call. O(changes), or O(nodes) if the domains themselves changed."""
        is_same = self._generation == self.topology.generation
        changes = self.counts.changed_since(self.position) if is_same else None
        if changes is None:
            self._rebuild()
            return
        for entry in changes:
            self._count(entry if entry >= 0 else ~entry, 1 if entry >= 0 else -1)
        self.position = self.counts.position

    def _count(self, slot: int, by: int) -> None:
        number = int(self.topology.domain[slot])
        if number < 0 or (self.eligible is not None and not self.eligible >> slot & 1):
            return
        before = self.per_domain.get(number, 0)
        after = before + by
        members = self.topology.members[number]
        if after:
            self.per_domain[number] = after
        else:
            del self.per_domain[number]
            self.occupied &= ~members
        if not before:
            self.occupied |= members
        if self._column is not None:
            self._column[number] = after
        if self._levels is not None:
            self._levels[before].leave(members)
            if not self._levels[before].domains:
                del self._levels[before]
            self._levels.setdefault(after, DomainLevel()).enter(members)

    def _rebuild(self) -> None:
        self._generation = self.topology.generation
        self.position = self.counts.position
        self._column = self._levels = None
        domain, eligible = self.topology.domain, self.eligible
        per_domain: dict[int, int] = {}
        for slot, count in self.counts.counts.items():
            number = int(domain[slot]) if slot < len(domain) else -1
            if number >= 0 and (eligible is None or eligible >> slot & 1):
                per_domain[number] = per_domain.get(number, 0) + count
        self.per_domain = per_domain
        self.occupied = EMPTY
        for number in per_domain:
            self.occupied |= self.topology.members[number]
        self.existing = len(self.topology) if eligible is None else self.topology.distinct(eligible)


@dataclass(slots=True, eq=False)
class DomainLevel:
    """The domains with equal counts."""

    nodes: NodeSet = EMPTY
    """All nodes of these domains, eligible or not."""
    domains: int = 0

    def enter(self, members: NodeSet) -> None:
        """Add a domain."""
        self.nodes |= members
        self.domains += 1

    def leave(self, members: NodeSet) -> None:
        """Remove a domain."""
        self.nodes &= ~members
        self.domains -= 1


def of(counts: SlotCounts, topology: Topology, eligible: NodeSet | None = None) -> DomainCounts:
    """Return the up-to-date sums of `counts` over these domains. A look-up plus O(pods added and removed since)."""
    key = (topology.key, eligible)
    cached = counts.domains.pop(key, None)
    if cached is None or cached.topology is not topology:
        cached = DomainCounts(counts, topology, eligible)
        if len(counts.domains) >= _KEPT:
            del counts.domains[next(iter(counts.domains))]
    else:
        cached.refresh()
    counts.domains[key] = cached
    return cached
