"""Nodes on the page /ui: the heat map, the rows of nodes, and the search for nodes by name, label and use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes.nodes import PODS
from scheduler.cache.storage.attach_limits import NO_LIMIT
from scheduler.core import nodeset
from scheduler.explain.changes import quantity
from scheduler.explain.fixes import Steps
from scheduler.server.ui.answers import CellAnswer, NodeRow, UseRow
from scheduler.server.ui.shortened import shortened

CELLS_MAX: Final = 200
MEASURES: Final = ("cpu", "memory", PODS, "volumes", "devices")
_STEP_NODES: Final = 256
_TAINTS_MAX: Final = 3
_LABELS_MAX: Final = 12
_RESOURCES_MAX: Final = 16
_ZONE: Final = "topology.kubernetes.io/zone"

_Row = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NodeSearch:
    """The wanted nodes: all `terms` hold, and at least `least` percent of the measure are in use.

    A term with `=` is a label, whose key may be given without its prefix, and the begin of its value. `is:cordoned` and
    `is:tainted` are marks. Any other term is a part of the name.
    """

    terms: tuple[str, ...] = ()
    measure: str = ""
    """With a measure the fullest nodes come first; "" sorts by name."""
    least: int = 0

    def matches(self, name: str, labels: Mapping[str, str], marks: frozenset[str]) -> bool:
        """Return whether all terms hold. `marks` are `is:` words."""
        return all(
            term in marks
            if term.startswith("is:")
            else any(_is_label(term, key, value) for key, value in labels.items())
            if "=" in term
            else term in name.casefold()
            for term in self.terms
        )


def _is_label(term: str, key: str, value: str) -> bool:
    wanted, _, begin = term.partition("=")
    key = key.casefold()
    return (key == wanted or key.endswith(f"/{wanted}")) and value.casefold().startswith(begin)


class UiNodes:
    """Read the nodes. The scheduling loop calls it between two attempts."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._names: tuple[int, list[str]] = (-1, [])

    # -- the heat map ------------------------------------------------------------------------------------------------

    def cells(self) -> Steps[tuple[list[list[str]], list[CellAnswer]]]:
        """Return the names of the nodes of each cell, and the answers. Nodes of one cell have neighbouring names."""
        nodes = self._cluster.nodes
        names = yield from self._present()
        measured = yield from self._measured()
        # A node that came back within these steps may have a slot beyond the columns.
        present = ((name, nodes.present_slot(name)) for name in names)
        at = {name: slot for name, slot in present if slot is not None and slot < min(map(len, measured.values()))}
        names = list(at)
        if not names:
            return [], []
        slots = np.array(list(at.values()), dtype=np.intp)
        size = -(-len(names) // CELLS_MAX)
        cells = [names[at : at + size] for at in range(0, len(names), size)]
        uses = []
        for row in measured.values():
            uses.append(_spread(row[slots], size))
            yield True
        marks = [
            _sums(nodeset.to_mask(each, nodes.capacity)[slots], size) for each in (nodes.unschedulable, self._tainted())
        ]
        yield True
        answers = [
            CellAnswer(
                id=at,
                first=shortened(cell[0]),
                last=shortened(cell[-1]),
                nodes=len(cell),
                cordoned=int(marks[0][at]),
                tainted=int(marks[1][at]),
                use=tuple(use[at] for use in uses),
            )
            for at, cell in enumerate(cells)
        ]
        return cells, answers

    def _present(self) -> Steps[list[str]]:
        """Return the names of all nodes, sorted."""
        nodes = self._cluster.nodes
        if self._names[0] != nodes.object_generation:
            present = (nodes.name(int(slot)) for slot in nodeset.slots(nodes.present, nodes.capacity))
            self._names = (nodes.object_generation, sorted(present))
            yield True
        names = [name for name in self._names[1] if nodes.present_slot(name) is not None]
        yield True
        return names

    def _measured(self) -> Steps[dict[str, _Row]]:
        """Return the share in use of each measure, by slot; NaN where a node has none of the resource."""
        nodes = self._cluster.nodes
        rows = nodes.resources()
        cpu, memory = (_share(nodes.requested[rows[name]], nodes.allocatable[rows[name]]) for name in ("cpu", "memory"))
        pods = _share(nodes.pod_count, nodes.allowed_pods)
        yield True
        volumes = yield from self._volumes()
        devices = yield from self._devices()
        for name in [name for name in rows if is_device(name)]:
            if (row := rows.get(name)) is not None:
                devices = np.fmax(devices, _share(nodes.requested[row], nodes.allocatable[row]))
            yield True
        return dict(zip(MEASURES, (cpu, memory, pods, volumes, devices), strict=True))

    def _volumes(self) -> Steps[_Row]:
        """Return the share of attach limits in use: of the driver that is nearest to its limit."""
        attached = self._cluster.volumes.attached
        attached.catch_up()
        yield True
        share = np.full(self._cluster.nodes.capacity, np.nan)
        for driver in attached.drivers():
            used, limits = attached.columns(driver)
            share = np.fmax(share, _share(used, np.where(limits == NO_LIMIT, 0, limits)))
            yield True
        return share

    def _devices(self) -> Steps[_Row]:
        """Return the share of the nodes' own devices that are allocated."""
        on_nodes, capacity = self._cluster.devices.on_nodes, self._cluster.nodes.capacity
        if not any(True for _ in self._cluster.devices.slices()):
            return np.full(capacity, np.nan)
        on_nodes.catch_up()
        yield True
        used, whole = np.zeros((2, capacity), dtype=np.int64)
        for count, kind in enumerate(list(on_nodes.kinds()), 1):
            first = kind.nodes.bit_length() - 1
            total = sum(len(view.devices) for view in on_nodes.own_pools(first)) if first >= 0 else 0
            if total:
                slots = nodeset.slots(kind.nodes, capacity)
                whole[slots], used[slots] = total, total - kind.free
            if count % _STEP_NODES == 0:
                yield True
        return _share(used, whole)

    def _tainted(self) -> int:
        """Return the nodes with a taint that keeps pods away."""
        tainted = nodeset.EMPTY
        for taints, on in self._cluster.nodes.taints.items():
            if any(taint.effect in {"NoSchedule", "NoExecute"} for taint in taints):
                tainted |= on
        return tainted

    # -- search and rows ---------------------------------------------------------------------------------------------

    def found(self, search: NodeSearch) -> Steps[list[str]]:
        """Return the names of the wanted nodes, in their order. O(nodes · labels), in steps."""
        nodes = self._cluster.nodes
        shares = yield from self._measured()
        names = yield from self._present()
        tainted, found = self._tainted(), list[tuple[float, str]]()
        share = shares.get(search.measure)
        for count, name in enumerate(names, 1):
            slot = nodes.present_slot(name)
            node = nodes.node(slot) if slot is not None else None
            if slot is None or node is None:
                continue
            value = 0.0 if share is None or slot >= len(share) or np.isnan(share[slot]) else float(share[slot])
            marks = [("is:cordoned", nodes.unschedulable), ("is:tainted", tainted)]
            shown = frozenset(word for word, on in marks if on >> slot & 1)
            if _percent(value) >= search.least and search.matches(name, node.metadata.labels, shown):
                found.append((-value, name))
            if count % _STEP_NODES == 0:
                yield True
        found.sort(key=lambda each: each if search.measure else (0.0, each[1]))
        return [name for _, name in found]

    def rows(self, names: Iterable[str]) -> Steps[tuple[NodeRow, ...]]:
        """Return the rows of these nodes. Nodes that are gone are left out."""
        nodes, rows = self._cluster.nodes, []
        self._cluster.volumes.attached.catch_up()
        self._cluster.devices.on_nodes.catch_up()
        for name in names:
            slot = nodes.present_slot(name)
            node = nodes.node(slot) if slot is not None else None
            if slot is None or node is None:
                continue
            taints = [taint.text for taint in node.spec.taints[:_TAINTS_MAX]]
            labels = node.metadata.labels
            row = NodeRow(
                node=name,
                cordoned=bool(nodes.unschedulable >> slot & 1),
                taints=tuple(map(shortened, taints)),
                zone=shortened(labels.get(_ZONE, "")),
                labels=tuple(shortened(f"{key}={value}") for key, value in sorted(labels.items())[:_LABELS_MAX]),
                pods=len(nodes.pods(slot)),
                use=tuple(self._uses(slot))[:_RESOURCES_MAX],
            )
            rows.append(row)
            yield True
        return tuple(rows)

    def _uses(self, slot: int) -> Iterator[UseRow]:
        nodes = self._cluster.nodes
        for name, row in nodes.resources().items():
            of, used = int(nodes.allocatable[row, slot]), int(nodes.requested[row, slot])
            if of or used:
                yield _use(name, used, of, [quantity(name, amount) for amount in (used, of)])
        yield _use(PODS, int(nodes.pod_count[slot]), int(nodes.allowed_pods[slot]))
        attached = self._cluster.volumes.attached
        for driver in attached.drivers():
            used, free = attached.used(driver, slot), attached.free(driver, slot)
            if free is not None:
                yield _use(f"volumes of {driver}", used, used + free)
        on_nodes = self._cluster.devices.on_nodes
        kind = on_nodes.kind(slot)
        whole = sum(len(view.devices) for view in on_nodes.own_pools(slot))
        if whole and kind is not None:
            yield _use("devices", whole - kind.free, whole)


def is_device(resource: str) -> bool:
    """Return whether it is an extended resource, which device plugins offer."""
    return "/" in resource and not resource.startswith("kubernetes.io/")


def _share(used: npt.NDArray[np.int64], of: npt.NDArray[np.int64]) -> _Row:
    """Return used / of; NaN where there is nothing to use, and nothing is used."""
    share = np.full(len(used), np.nan)
    np.divide(used, of, out=share, where=of > 0)
    share[(of <= 0) & (used > 0)] = np.inf
    return share


def _spread(shares: _Row, size: int) -> list[tuple[int, int, int] | None]:
    """Return minimum, median and maximum in percent of each run of `size` shares; None where all are NaN."""
    cells = -(-len(shares) // size)
    padded = np.full(cells * size, np.nan)
    padded[: len(shares)] = shares
    ranked = np.sort(padded.reshape(cells, size), axis=1)  # NaN is last
    counts = size - np.isnan(ranked).sum(axis=1)
    found: list[tuple[int, int, int] | None] = []
    for cell, count in zip(ranked, counts.tolist()):
        found.append(
            (_percent(cell[0]), _percent(cell[(count - 1) // 2]), _percent(cell[count - 1])) if count else None
        )
    return found


def _sums(marks: npt.NDArray[np.bool_], size: int) -> npt.NDArray[np.int64]:
    return np.add.reduceat(marks.astype(np.int64), np.arange(0, len(marks), size))


def _percent(share: float) -> int:
    return int(min(share, 9.99) * 100)


def _use(resource: str, used: int, of: int, texts: list[str] | None = None) -> UseRow:
    shown = texts or [str(used), str(of)]
    share = used / of if of > 0 else 9.99 if used else 0.0
    return UseRow(resource=shortened(resource), used=shown[0], of=shown[1], percent=_percent(share))
