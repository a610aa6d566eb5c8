"""The free resources of nodes, compared with what a pod requests (docs/spec/core.md §5.5).

A small number per node says what is short: bit 0 is "too many pods", bit i+1 "the i-th resource is insufficient", and the
highest bit "preemption cannot help". Operations on columns compute all numbers at once; nodes with equal numbers
share one `Rejection`. A resource that a device class serves (`served`) is not compared on nodes that have none of it
themselves: DynamicResources checks the devices (docs/spec/dra.md §3.12).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.api.podinfo import PodInfo, Requests
from scheduler.api.quantity import NATIVE, domain, is_extended, is_scalar
from scheduler.cache.devices.manager import NONE_SERVED
from scheduler.cache.nodes.nodes import Nodes
from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, Mask, NodeSet
from scheduler.framework.memo import FEW, Index
from scheduler.framework.status import Code, Groups, Rejection

PLUGIN: Final = "NodeResourcesFit"
TOO_MANY_PODS: Final = "Too many pods"


@dataclass(frozen=True, slots=True)
class Ignored:
    """Extended resources that another component checks: by name, or by the domain before the slash."""

    names: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def covers(self, resource: str) -> bool:
        """Return whether this resource is not checked."""
        return is_extended(resource) and (resource in self.names or domain(resource) in self.groups)


def checked(requests: Requests, ignored: Ignored) -> tuple[tuple[str, int], ...]:
    """Return the amounts to compare, in the order of the reasons: cpu, memory, ephemeral-storage, scalars by name."""
    native = [(name, requests[name]) for name in NATIVE if requests.get(name, 0) > 0]
    scalars = [
        (name, amount)
        for name, amount in requests.items()
        if amount > 0 and name not in NATIVE and is_scalar(name) and not ignored.covers(name)
    ]
    return (*native, *sorted(scalars))


class Shortage:
    """The rejections of all slots for one request; updated per changed slot.

    Upstream: pkg/scheduler/framework/plugins/noderesources/fit.go fitsRequest
    """

    __slots__ = ("_final", "_nodes", "_rejections", "_served", "_wanted", "groups", "rejected")

    def __init__(self, nodes: Nodes, wanted: tuple[tuple[str, int], ...], served: frozenset[str] = NONE_SERVED) -> None:
        self._nodes = nodes
        self._wanted = wanted
        self._served = served
        self._final = 1 << (len(wanted) + 1)
        self._rejections: dict[int, Rejection] = {}
        self.groups: Groups = {}
        self.rejected: NodeSet = EMPTY
        """Every rejected slot. Slots without a node may be in it or not."""
        self.refresh(range(nodes.present.bit_length()))

    def among(self, candidates: NodeSet) -> Groups:
        """Return the rejections of these nodes."""
        if not self.rejected & candidates:
            return {}
        return {rejection: found for rejection, slots in self.groups.items() if (found := slots & candidates)}

    def refresh(self, slots: Sequence[int]) -> None:
        """Update the slots whose columns changed."""
        if isinstance(slots, range):
            self.groups, self.rejected = {}, EMPTY
            self._refuse(slice(slots.stop), (1 << slots.stop) - 1)
        elif len(slots) <= FEW:
            self._forget(nodeset.of(slots))
            for slot in slots:
                self._add(number(self._nodes, self._wanted, slot, self._served), 1 << slot)
        else:
            index = np.array(slots, dtype=np.intp)
            changed = self._set(index, chosen=True)
            self._forget(changed)
            self._refuse(index, changed)

    def _forget(self, slots: NodeSet) -> None:
        if self.rejected & slots:
            self.rejected &= ~slots
            self.groups = {
                rejection: remaining for rejection, held in self.groups.items() if (remaining := held & ~slots)
            }

    def _refuse(self, index: Index, slots: NodeSet) -> None:
        for value, refused in self._numbers(index, slots).items():
            self._add(value, refused)

    def _set(self, index: Index, chosen: Mask | bool) -> NodeSet:
        mask = np.zeros(self._nodes.capacity, dtype=np.bool_)
        mask[index] = chosen
        return nodeset.from_mask(mask)

    def _add(self, value: int, slots: NodeSet) -> None:
        if value:
            rejection = self._rejection(value)
            self.groups[rejection] = self.groups.get(rejection, EMPTY) | slots
            self.rejected |= slots

    def _short(self, index: Index) -> Iterator[tuple[int, tuple[Mask, Mask] | None]]:
        """Yield the bit of each resource that some slot lacks; None for a resource that no node has.

        With it come the slots that have too little free, and those of them that never have enough.
        """
        nodes = self._nodes
        for at, (resource, amount) in enumerate(self._wanted):
            row = nodes.resources().get(resource)
            may_be_devices = resource in self._served
            if row is None:
                if not may_be_devices:
                    yield 1 << (at + 1), None
                continue
            whole = nodes.allocatable[row][index]
            short = whole - nodes.requested[row][index] < amount
            if may_be_devices:
                short &= whole > 0
            if short.any():
                yield 1 << (at + 1), (short, short & (whole < amount))

    def _numbers(self, index: Index, slots: NodeSet) -> dict[int, NodeSet]:
        """Return number → slots.

        A resource that no node has costs a look-up; each resource that some node lacks splits the groups.
        """
        nodes, always = self._nodes, 0
        groups = {0: slots}
        full = nodes.pod_count[index] >= nodes.allowed_pods[index]
        if full.any():
            groups = _split(groups, self._set(index, full), 1)
        unresolvable = EMPTY
        for bit, found in self._short(index):
            if found is None:
                always |= self._final | bit
            else:
                groups = _split(groups, self._set(index, found[0]), bit)
                unresolvable |= self._set(index, found[1])
        if not always & self._final:
            groups = _split(groups, unresolvable, self._final)
        return {value | always: some for value, some in groups.items()}

    def _rejection(self, value: int) -> Rejection:
        cached = self._rejections.get(value)
        if cached is None:
            cached = self._rejections[value] = rejection_of(value, self._wanted)
        return cached


def _split(groups: dict[int, NodeSet], chosen: NodeSet, bit: int) -> dict[int, NodeSet]:
    """Set the bit in the numbers of the chosen slots."""
    parts = [
        each for value, slots in groups.items() for each in ((value | bit, slots & chosen), (value, slots & ~chosen))
    ]
    return {value: slots for value, slots in parts if slots}


class RemainingResources:
    """The requested resources that are free on one node, as pods leave it and come back."""

    __slots__ = ("_free", "_places", "_rejection", "_value", "_wanted", "_whole")

    def __init__(
        self, nodes: Nodes, wanted: tuple[tuple[str, int], ...], slot: int, served: frozenset[str] = NONE_SERVED
    ) -> None:
        if served:
            wanted = tuple(each for each in wanted if each[0] not in served or _whole(nodes, each[0], slot))
        self._wanted = wanted
        self._places = nodes.allowed_pods.item(slot) - nodes.pod_count.item(slot)
        self._whole = [_whole(nodes, name, slot) for name, _ in wanted]
        taken = [nodes.requested_at(slot, name) for name, _ in wanted]  # also of resources that no node offers
        self._free = [whole - held for whole, held in zip(self._whole, taken, strict=True)]
        self._value = 0
        self._rejection: Rejection | None = None

    def add(self, other: PodInfo) -> None:
        self._places -= 1
        requests = other.requests
        for at, (name, _) in enumerate(self._wanted):
            self._free[at] -= requests.get(name, 0)

    def remove(self, other: PodInfo) -> None:
        self._places += 1
        requests = other.requests
        for at, (name, _) in enumerate(self._wanted):
            self._free[at] += requests.get(name, 0)

    def verdict(self) -> Rejection | None:
        """Return the filter's verdict on this node."""
        value = int(self._places <= 0)
        for at, (_, amount) in enumerate(self._wanted):
            if amount > self._free[at]:
                value |= 1 << (at + 1)
                if amount > self._whole[at]:
                    value |= 1 << (len(self._wanted) + 1)
        if value != self._value:  # mostly unchanged, so the object is reused
            self._value, self._rejection = value, rejection_of(value, self._wanted) if value else None
        return self._rejection


def _whole(nodes: Nodes, resource: str, slot: int) -> int:
    row = nodes.resources().get(resource)
    return 0 if row is None else nodes.allocatable.item(row, slot)


def number(nodes: Nodes, wanted: tuple[tuple[str, int], ...], slot: int, served: frozenset[str] = NONE_SERVED) -> int:
    """Return one node's verdict as a number; 0 means that the pod fits."""
    value = int(nodes.pod_count.item(slot) >= nodes.allowed_pods.item(slot))
    rows = nodes.resources()
    for at, (resource, amount) in enumerate(wanted):
        row = rows.get(resource)
        whole = nodes.allocatable.item(row, slot) if row is not None else 0
        if not whole and resource in served:
            continue
        if row is None or amount > whole - nodes.requested.item(row, slot):
            value |= 1 << (at + 1)
            if amount > whole:
                value |= 1 << (len(wanted) + 1)
    return value


def rejection_of(value: int, wanted: tuple[tuple[str, int], ...]) -> Rejection:
    """Return the rejection of a number other than 0."""
    reasons = [TOO_MANY_PODS] if value & 1 else []
    reasons += [f"Insufficient {resource}" for at, (resource, _) in enumerate(wanted) if value >> (at + 1) & 1]
    final = value >> (len(wanted) + 1) & 1
    return Rejection(PLUGIN, Code.UNRESOLVABLE if final else Code.UNSCHEDULABLE, tuple(reasons))
