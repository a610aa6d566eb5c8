"""The devices of a class on each node, and those of them in use, for scores (docs/spec/dra.md §3.12).

Nodes of one kind are counted once. Counts are cached for the last used classes, and results of selectors with the kind
of device. Unusable devices count as 0: devices of an incomplete pool, and all devices of a node if a
selector of the class fails on one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.api.resource_v1 import DeviceClass
from scheduler.cache.devices.manager import SharedDRAManager
from scheduler.cache.devices.node_kinds import NodeKind, usable
from scheduler.cache.devices.pools import DeviceKind
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.caching import BoundedCache
from scheduler.core.nodeset import NodeSet

_CLASSES_MAX: Final = 64
_FEW: Final = 16

Column: TypeAlias = npt.NDArray[np.int64]
_Expressions: TypeAlias = tuple[str, ...]


@dataclass(slots=True, eq=False)
class _Counted:
    """The counts of all slots for one list of selectors."""

    whole: Column
    used: Column
    position: int
    seen: tuple[int, int]


class DeviceCounts:
    """The counts by class. Only the scheduling loop uses it. A call costs two comparisons, or a count per changed kind."""

    def __init__(self, nodes: Nodes, devices: SharedDRAManager) -> None:
        self._nodes = nodes
        self._devices = devices
        self._counted: BoundedCache[_Expressions, _Counted] = BoundedCache(_CLASSES_MAX)

    def columns(self, device_class: DeviceClass) -> tuple[Column, Column]:
        """Return the devices of the class on each node, and those of them in use.

        The columns are valid until the next call.
        """
        expressions = tuple(each.cel.expression for each in device_class.spec.selectors if each.cel is not None)
        on_nodes = self._devices.on_nodes
        on_nodes.catch_up()
        counted = self._counted.get(expressions)
        seen = (self._nodes.capacity, on_nodes.shared.stamp)
        if counted is not None and counted.seen == seen:
            changed = on_nodes.changed_since(counted.position)
            if changed is not None and len(changed) <= _FEW:
                for slot in set(changed):
                    self._count(counted, expressions, kind=on_nodes.kind(slot), nodes=1 << slot)
                counted.position = on_nodes.position
                return counted.whole, counted.used
        whole, used = np.zeros((2, self._nodes.capacity), dtype=np.int64)
        counted = self._counted.put(expressions, _Counted(whole, used, on_nodes.position, seen))
        for kind in on_nodes.kinds():
            self._count(counted, expressions, kind=kind, nodes=kind.nodes)
        return counted.whole, counted.used

    def _count(self, into: _Counted, expressions: _Expressions, *, kind: NodeKind | None, nodes: NodeSet) -> None:
        whole, used = self._of_node(expressions, nodes.bit_length() - 1) if kind is not None else (0, 0)
        if nodes & (nodes - 1):
            slots = nodeset.slots(nodes, self._nodes.capacity)
            into.whole[slots], into.used[slots] = whole, used
        else:
            slot = nodes.bit_length() - 1
            into.whole[slot], into.used[slot] = whole, used

    def _of_node(self, expressions: _Expressions, slot: int) -> tuple[int, int]:
        whole = used = 0
        for view in self._devices.on_nodes.pools(slot):
            for each in view.devices:
                if not usable(each, slot):
                    continue
                of_class = self._is_of(expressions, each.kind)
                if isinstance(of_class, str):
                    return 0, 0
                if of_class:
                    whole += 1
                    used += self._devices.use.is_used(each.id)
        return whole, used

    def _is_of(self, expressions: _Expressions, kind: DeviceKind) -> bool | str:
        """Return whether all selectors hold, in order; the error if one fails before another one returns False."""
        cached: bool | str | None = kind.memo.get((self, expressions))
        if cached is None:
            results = (self._devices.holds(expression, kind) for expression in expressions)
            cached = kind.memo[self, expressions] = next((holds for holds in results if holds is not True), True)
        return cached
