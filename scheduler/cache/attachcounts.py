"""Volumes attached to nodes, counted by driver in columns; whoever counts them says what comes and goes.

A volume counts once per node, whether pods use it, attachments say so, or both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from scheduler.cache.node_multiset import NodeMultiset
from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet
from scheduler.core.volumes import CSISource

if TYPE_CHECKING:
    from scheduler.cache.nodes import Nodes

NO_LIMIT: Final = 2**62

Column = npt.NDArray[np.int64]


class _Driver:
    """Its columns. `used` also counts where there is no limit."""

    __slots__ = ("installed", "limits", "used")

    def __init__(self, capacity: int) -> None:
        self.used: Column = np.zeros(capacity, dtype=np.int64)
        self.limits: Column = np.full(capacity, NO_LIMIT, dtype=np.int64)
        self.installed: NodeSet = EMPTY

    @property
    def is_idle(self) -> bool:
        """Whether it runs nowhere and nothing is attached."""
        return not self.installed and not self.used.any()

    def grow(self, capacity: int) -> None:
        more = capacity - len(self.used)
        self.used = np.concatenate((self.used, np.zeros(more, dtype=np.int64)))
        self.limits = np.concatenate((self.limits, np.full(more, NO_LIMIT, dtype=np.int64)))


class AttachCounts:
    """Driver → columns, volume → nodes."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._capacity = nodes.capacity
        self._drivers: dict[str, _Driver] = {}
        self._by_pods: NodeMultiset[CSISource] = NodeMultiset()
        self._by_attachments: NodeMultiset[CSISource] = NodeMultiset()
        self._moved: set[int] = set()
        """Slots at which something has changed, for those who follow."""

    # -- reading -------------------------------------------------------------------------------------------------------

    def over(self, driver: str, more: int) -> NodeSet:
        """Nodes that cannot take so many more volumes of this driver."""
        known = self._drivers.get(driver)
        return EMPTY if known is None else nodeset.from_mask(known.used + more > known.limits)

    def installed(self, driver: str) -> NodeSet:
        """Nodes that the driver has registered on."""
        known = self._drivers.get(driver)
        return EMPTY if known is None else known.installed

    def room(self, driver: str, slot: int) -> int | None:
        """How many more fit on a node, below 0 if there are too many already; None for any number."""
        known = self._drivers.get(driver)
        if known is None or (limit := known.limits.item(slot)) == NO_LIMIT:
            return None
        return limit - known.used.item(slot)

    def used(self, driver: str, slot: int) -> int:
        """How many are attached to a node."""
        known = self._drivers.get(driver)
        return 0 if known is None else known.used.item(slot)

    def users(self, name: CSISource) -> NodeSet:
        """Nodes with pods that use the volume."""
        return self._by_pods.nodes(name)

    def holders(self, name: CSISource) -> NodeSet:
        """Nodes that the volume is attached to, by an attachment."""
        return self._by_attachments.nodes(name)

    def uses(self, name: CSISource, slot: int) -> int:
        """By how many claims, and written out or not, pods on the node use it."""
        return self._by_pods.count(slot, name)

    def is_attached(self, name: CSISource, slot: int) -> bool:
        """Whether an attachment says so of this node."""
        return self._by_attachments.count(slot, name) > 0

    # -- changing ------------------------------------------------------------------------------------------------------

    def _take(
        self, name: CSISource | None, slot: int, mine: NodeMultiset[CSISource], others: NodeMultiset[CSISource]
    ) -> None:
        if name is None:
            return
        if mine.add(slot, name) and not others.count(slot, name):
            self._driver(name.driver).used[slot] += 1
        self._moved.add(slot)

    def _leave(
        self, name: CSISource | None, slot: int, mine: NodeMultiset[CSISource], others: NodeMultiset[CSISource]
    ) -> None:
        if name is None:
            return
        if mine.remove(slot, name) and not others.count(slot, name):
            self._driver(name.driver).used[slot] -= 1
            self._forget_idle(name.driver)
        self._moved.add(slot)

    def _driver(self, name: str) -> _Driver:
        known = self._drivers.get(name)
        if known is None:
            known = self._drivers[name] = _Driver(self._capacity)
        return known

    def _forget_idle(self, name: str) -> None:
        if self._drivers[name].is_idle:
            del self._drivers[name]

    def _fit(self) -> None:
        if self._nodes.capacity != self._capacity:
            self._capacity = self._nodes.capacity
            for known in self._drivers.values():
                known.grow(self._capacity)
