"""Topology domains: nodes with equal values of a label, and counts of pods per domain (docs/spec/core.md §5.8, §5.9).

Topology keys as numbered domains: nodes with equal values of a label (docs/spec/core.md §5.8, §5.9).

Kept only for keys that somebody asked for; a relabelled node moves between domains, nothing is rebuilt.

Counts per topology domain, kept one pod at a time (docs/spec/core.md §5.8, §5.9).

What filters ask is answered with sets: which nodes share a domain with any, and which are in a domain with how many. What
scores ask is answered with a column. Each form is made when first asked for and followed from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.cache.nodes.label_index import LabelIndex
from scheduler.core.caching import BoundedCache
from scheduler.core.changes import ChangeLog
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
        """Slot → number of its domain; -1 without the key, which is the last entry of a column made by `DomainCounts`."""
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


_KEPT: Final = 4
"""Eligible sets kept per count: rollouts of nodes and taints leave old ones behind."""


class SlotCounts(ChangeLog[int]):
    """Sparse: a slot that is not named holds none. Changed by the index that owns it, one pod at a time.

    The log has one entry per pod: the slot it came to, or `~slot` if it left.
    """

    __slots__ = ("counts", "domains")

    log_max = 512

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[int, int] = {}
        """Slot → how many, none of them 0; also slots whose Node object is gone."""
        self.domains: dict[tuple[str, int | None], DomainCounts] = {}
        """Sums that were asked for, kept by `domains.of`."""

    def add(self, slot: int) -> None:
        """One more."""
        self.counts[slot] = self.counts.get(slot, 0) + 1
        self._record(slot)

    def remove(self, slot: int) -> None:
        """One fewer; KeyError if there was none."""
        left = self.counts.pop(slot) - 1
        if left:
            self.counts[slot] = left
        self._record(~slot)

    def put(self, slot: int, count: int) -> None:
        """Count several pods on a slot, before the log has a reader."""
        self.counts[slot] = self.counts.get(slot, 0) + count

    def _record(self, entry: int) -> None:
        if self.domains and self.note(entry):  # without sums there is no reader, and a new one reads the counts
            self._let_go()

    def _let_go(self) -> None:
        """Drop sums that were not read for so long that the log does not reach back to them."""
        self.domains = {key: sums for key, sums in self.domains.items() if self.reaches(sums.position)}
        if not self.domains:
            self.drop_all()


class DomainCounts:
    """One count over the domains of one key. Take it from `of`, which brings it up to date; good until the next change.

    Only pods on `eligible` nodes count, and only domains with an eligible node exist; None: every node with the key.
    """

    __slots__ = (
        "_column",
        "_generation",
        "_levels",
        "counts",
        "eligible",
        "existing",
        "occupied",
        "per_domain",
        "position",
        "topology",
    )

    def __init__(self, counts: SlotCounts, topology: Topology, eligible: NodeSet | None) -> None:
        self.counts = counts
        self.topology = topology
        self.eligible = eligible
        self.per_domain: dict[int, int] = {}
        """Domain number → how many, none of them 0."""
        self.occupied: NodeSet = EMPTY
        """Nodes whose domain holds at least one."""
        self.existing = 0
        """How many domains there are."""
        self._column: npt.NDArray[np.int64] | None = None
        self._levels: dict[int, DomainLevel] | None = None
        self._generation = -1
        self.position = -1
        """Up to where the log of `counts` has been followed."""
        self._rebuild()

    @property
    def size(self) -> int:
        """Entries that are kept."""
        return len(self.per_domain) + (0 if self._column is None else len(self._column))

    def column(self) -> npt.NDArray[np.int64]:
        """How many are in the domain of each slot, 0 for slots without the key. A fresh array; O(nodes)."""
        column = self._column
        if column is None:
            column = self._column = np.zeros(len(self.topology.members) + 1, dtype=np.int64)
            for number, count in self.per_domain.items():
                column[number] = count
        return column[self.topology.domain]

    def levels(self) -> dict[int, DomainLevel]:
        """Count → the domains with that many; those that do not exist are in none."""
        if self._levels is None:
            self._levels = self._made_levels()
        return self._levels

    def refresh(self) -> None:
        """Follow what changed since the last time; O(changes), or O(nodes) if the domains themselves changed."""
        if self._generation != self.topology.generation:
            self._rebuild()
            return
        changes = self.counts.changed_since(self.position)
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

    def _made_levels(self) -> dict[int, DomainLevel]:
        levels: dict[int, DomainLevel] = {}
        for number, members in enumerate(self.topology.members):
            if members if self.eligible is None else members & self.eligible:
                levels.setdefault(self.per_domain.get(number, 0), DomainLevel()).enter(members)
        return levels


class DomainLevel:
    """Domains with equally many."""

    __slots__ = ("domains", "nodes")

    def __init__(self) -> None:
        self.nodes: NodeSet = EMPTY
        """All nodes of these domains, eligible or not."""
        self.domains = 0

    def enter(self, members: NodeSet) -> None:
        """One more domain."""
        self.nodes |= members
        self.domains += 1

    def leave(self, members: NodeSet) -> None:
        """One domain fewer."""
        self.nodes &= ~members
        self.domains -= 1


def of(counts: SlotCounts, topology: Topology, eligible: NodeSet | None = None) -> DomainCounts:
    """The sums of `counts` over these domains, up to date. A look-up plus O(pods that came and went since)."""
    key = (topology.key, eligible)
    known = counts.domains.pop(key, None)
    if known is None or known.topology is not topology:
        known = DomainCounts(counts, topology, eligible)
        if len(counts.domains) >= _KEPT:
            del counts.domains[next(iter(counts.domains))]
    else:
        known.refresh()
    counts.domains[key] = known
    return known
