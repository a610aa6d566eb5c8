"""The data of the page /ui: pending pods by cause, nodes by use, and the queue (docs/ui.md).

The scheduling loop builds a snapshot in small steps, as it works on other questions, so no trial is running then. A
snapshot serves all readers for a second, or for twenty times what it cost. The browser gets sums and single pages of
rows, whatever the number of pods and nodes. All texts of the API server are shortened, and numbers in them are left
out where pods are grouped.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.cache.nodes.nodes import PODS
from scheduler.cache.storage.attach_limits import NO_LIMIT
from scheduler.core import nodeset
from scheduler.core.clock import Clock
from scheduler.explain.changes import quantity
from scheduler.explain.fixes import Steps
from scheduler.groups.states import GroupStates
from scheduler.queue import QueueEntry, SchedulingQueue
from scheduler.server.ui_answers import (
    CauseAnswer,
    CellAnswer,
    Facts,
    GroupPage,
    MemberRow,
    NodePage,
    NodeRow,
    Overview,
    PodPage,
    PodRow,
    UseRow,
)
from scheduler.server.ui_groups import UiGroups, group_id, group_named

CAUSES_MAX: Final = 40
CELLS_MAX: Final = 200
PAGE_ROWS: Final = 25
MEASURES: Final = ("cpu", "memory", PODS, "volumes", "devices")
FRESH_S: Final = 1.0
SHARE: Final = 0.05
"""The largest share of time in which snapshots are built, however many browsers poll."""
_GROUPS_MAX: Final = 1000
"""Different causes while pods are counted; further ones are summed up."""
_STEP_PODS: Final = 32
_STEP_NODES: Final = 256
_FREED: Final = 1000
_READ_MAX: Final = 1000
_CAUSE_MAX: Final = 200
_NAME_MAX: Final = 80
_MESSAGE_MAX: Final = 500
_RESOURCES_MAX: Final = 16
_EXAMPLES_MAX: Final = 3
_OTHER: Final = "other causes"
_NOWHERE: Final = "nowhere"
_WITHOUT_TEXT: Final = {
    "gated": "held back before the first attempt",
    "in flight": "an attempt is running",
}
_HEAD: Final = re.compile(r"^0/\d+ nodes are available: ?")
_POST_FILTER: Final = re.compile(r" ?(?:no new claims to deallocate, )?preemption: .*$", re.DOTALL)
_REASONS: Final = re.compile(r", (?=\d+ )")
_COUNT: Final = re.compile(r"^\d+ ")
_QUOTED: Final = re.compile(r'"[^"]*"')
_NUMBER: Final = re.compile(r"\d+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\u2028-\u202e\u2066-\u2069]+")

_Row = npt.NDArray[np.float64]


class _Questions(Protocol):
    """The queue of questions to the scheduling loop."""

    def answer_to(self, begin: Callable[[], Steps[Any]]) -> Awaitable[Any]: ...


@dataclass(slots=True, eq=False)
class _Cause:
    """Pods with one cause, and texts of it as they are shown."""

    id: str
    text: str
    plugins: set[str] = field(default_factory=set)
    states: Counter[str] = field(default_factory=Counter)
    pods: list[QueueEntry] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Snapshot:
    """One state of the cluster, cut into pages on request."""

    overview: Overview
    causes: dict[str, _Cause]
    cells: list[list[str]]
    """The names of the nodes of each cell."""
    good_until: float


class UiData:
    """The source of the page. Methods raise what the questions raise: TooManyQuestions, and NotReady of `is_ready`."""

    def __init__(  # noqa: PLR0913 (each by its name)
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        questions: _Questions,
        clock: Clock,
        *,
        newest: Callable[[str], PodInfo | None],
        counts: Callable[[], dict[str, int]],
        facts: Callable[[], Facts],
        states: GroupStates,
    ) -> None:
        """Create the source. `newest` returns a pending pod by namespace and name, `counts` the gauge pending_pods."""
        self._cluster = cluster
        self._queue = queue
        self._questions = questions
        self._clock = clock
        self._newest = newest
        self._counts = counts
        self._facts = facts
        self._groups = UiGroups(cluster, queue, states)
        self._names: tuple[int, list[str]] = (-1, [])
        self._snapshot: _Snapshot | None = None
        self._building: asyncio.Task[_Snapshot] | None = None

    async def overview(self) -> Overview:
        """Return the sums."""
        return (await self._fresh()).overview

    async def pods_of(self, cause: str, page: int) -> PodPage | None:
        """Return some pods of a cause, in the order of the queue; None if no pod has it now."""
        found = (await self._fresh()).causes.get(cause)
        if found is None:
            return None
        page, pages, entries = _page(found.pods, page)
        rows = tuple(self._pod_row(entry) for entry in entries)
        return PodPage(cause=cause, text=found.text, page=page, pages=pages, total=len(found.pods), pods=rows)

    async def nodes_of(self, cell: int, page: int) -> NodePage | None:
        """Return some nodes of a cell, by name; None if there is no such cell now."""
        snapshot = await self._fresh()
        if not 0 <= cell < len(snapshot.cells):
            return None
        names = snapshot.cells[cell]
        page, pages, some = _page(names, page)
        rows = await self._questions.answer_to(lambda: self._node_rows(some))
        return NodePage(cell=cell, page=page, pages=pages, total=len(names), nodes=rows)

    async def members_of(self, group: str, page: int) -> GroupPage | None:
        """Return some pods of a group, by name; None if it has no pods now."""
        named = group_named(group)
        keys = self._groups.members(named)
        if not keys:
            return None
        page, pages, some = _page(keys, page)

        def rows() -> Steps[tuple[MemberRow, ...]]:
            yield True
            found = (self._groups.member(named, key) for key in some)
            return tuple(row for row in found if row is not None)

        pods = await self._questions.answer_to(rows)
        return GroupPage(group=group, page=page, pages=pages, total=len(keys), pods=pods)

    # -- snapshots ---------------------------------------------------------------------------------------------------

    async def _fresh(self) -> _Snapshot:
        """Return a snapshot that is new enough. Concurrent callers share one that is being built."""
        if self._snapshot is not None and self._clock.now() < self._snapshot.good_until:
            return self._snapshot
        if self._building is None:
            self._building = asyncio.ensure_future(self._questions.answer_to(self._steps))
            self._building.add_done_callback(self._built)
        return await asyncio.shield(self._building)

    def _built(self, building: asyncio.Future[_Snapshot]) -> None:
        self._building = None
        if not building.cancelled():
            building.exception()  # each reader has it, also if all of them have left

    def _steps(self) -> Steps[_Snapshot]:
        """Build a snapshot and put it in force. A step takes about a millisecond, except the first one of a process."""
        spent_s, began = 0.0, self._clock.now()
        work = self._build()
        while True:
            try:
                next(work)
            except StopIteration as done:
                found: _Snapshot = done.value
                now = self._clock.now()
                found.good_until = now + max(FRESH_S, (spent_s + now - began) / SHARE)
                break
            spent_s += self._clock.now() - began
            yield True
            began = self._clock.now()
        old, self._snapshot = self._snapshot, found
        for cause in old.causes.values() if old is not None else ():
            while cause.pods:  # to free twenty thousand entries at once takes 5 ms
                del cause.pods[-_FREED:]
                yield True
        return found

    def _build(self) -> Steps[_Snapshot]:
        causes = yield from self._grouped()
        shown, other = _most_frequent(causes)
        yield True
        cells, answers = yield from self._cells()
        group_states, groups = yield from self._groups.rows()
        counts = self._counts()
        overview = Overview(
            time=self._clock.wall(),
            facts=self._facts(),
            queue=counts,
            pending=sum(len(each.pods) for each in shown),
            bound=self._cluster.sizes()["pods"],
            causes=tuple(map(_cause_answer, shown)),
            other_causes=other,
            nodes=len(self._cluster.nodes),
            measures=MEASURES,
            cells=tuple(answers),
            group_states=group_states,
            groups=groups,
        )
        return _Snapshot(overview, {each.id: each for each in shown}, cells, 0.0)

    # -- pods --------------------------------------------------------------------------------------------------------

    def _grouped(self) -> Steps[list[_Cause]]:
        causes: dict[str, _Cause] = {}
        texts: dict[str, str] = {}
        for count, entry in enumerate(self._queue.entries(), 1):
            if entry.place != _NOWHERE:
                self._add(entry, causes, texts)
            if count % _STEP_PODS == 0:
                yield True
        return list(causes.values())

    def _add(self, entry: QueueEntry, causes: dict[str, _Cause], texts: dict[str, str]) -> None:
        message = self._message(entry.key)
        text = texts.get(message)
        if text is None:
            text = texts[message] = cause_of(message)
        if not text:
            text = _without_text(entry)
        cause = causes.get(text)
        if cause is None:
            if len(causes) >= _GROUPS_MAX:
                text = _OTHER
            cause = causes.get(text) or causes.setdefault(text, _Cause(_id(text), text))
        cause.states[entry.place] += 1
        cause.pods.append(entry)
        if len(cause.plugins) < _RESOURCES_MAX:
            cause.plugins.update(entry.plugins)

    def _message(self, key: str) -> str:
        info = self._newest(key)
        condition = info.pod.condition("PodScheduled") if info is not None else None
        return condition.message if condition is not None and condition.status == "False" else ""

    def _pod_row(self, entry: QueueEntry) -> PodRow:
        info = self._newest(entry.key)
        return PodRow(
            pod=entry.key,
            state=entry.place,
            attempts=entry.attempts,
            retry_s=None if entry.deadline is None else round(max(0.0, entry.deadline - self._clock.now()), 1),
            nominated_to=entry.nominated_to,
            message=shortened(self._message(entry.key), _MESSAGE_MAX),
            group=group_id(self._cluster.pod_groups.of(info.pod)) if info is not None else "",
        )

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _cells(self) -> Steps[tuple[list[list[str]], list[CellAnswer]]]:
        """Return the names of the nodes of each cell, and the answers. Nodes of one cell have neighbouring names."""
        nodes = self._cluster.nodes
        if self._names[0] != nodes.object_generation:
            present = (nodes.name(int(slot)) for slot in nodeset.slots(nodes.present, nodes.capacity))
            self._names = (nodes.object_generation, sorted(present))
            yield True
        measured = yield from self._measured()
        names = [name for name in self._names[1] if nodes.present_slot(name) is not None]
        if not names:
            return [], []
        yield True
        slots = np.array([nodes.slot(name) for name in names], dtype=np.intp)
        size = -(-len(names) // CELLS_MAX)
        cells = [names[at : at + size] for at in range(0, len(names), size)]
        uses = []
        for row in measured:
            uses.append(_spread(row[slots], size))
            yield True
        marks = [
            _sums(nodeset.to_mask(each, nodes.capacity)[slots], size) for each in (nodes.unschedulable, self._tainted())
        ]
        yield True
        answers = [
            CellAnswer(
                id=at,
                first=shortened(cell[0], _NAME_MAX),
                last=shortened(cell[-1], _NAME_MAX),
                nodes=len(cell),
                cordoned=int(marks[0][at]),
                tainted=int(marks[1][at]),
                use=tuple(use[at] for use in uses),
            )
            for at, cell in enumerate(cells)
        ]
        return cells, answers

    def _measured(self) -> Steps[list[_Row]]:
        """Return the share in use of each measure, by slot; NaN where a node has none of the resource."""
        nodes = self._cluster.nodes
        rows = nodes.resources()
        cpu, memory = (_share(nodes.requested[rows[name]], nodes.allocatable[rows[name]]) for name in ("cpu", "memory"))
        pods = _share(nodes.pod_count, nodes.allowed_pods)
        yield True
        volumes = yield from self._volumes()
        devices = yield from self._devices()
        for name in [name for name in rows if _is_device(name)]:
            if (row := rows.get(name)) is not None:
                devices = np.fmax(devices, _share(nodes.requested[row], nodes.allocatable[row]))
            yield True
        return [cpu, memory, pods, volumes, devices]

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

    def _node_rows(self, names: Iterable[str]) -> Steps[tuple[NodeRow, ...]]:
        nodes, rows = self._cluster.nodes, []
        self._cluster.volumes.attached.catch_up()
        self._cluster.devices.on_nodes.catch_up()
        for name in names:
            slot = nodes.present_slot(name)
            node = nodes.node(slot) if slot is not None else None
            if slot is None or node is None:
                continue
            taints = [taint.text for taint in node.spec.taints[:_EXAMPLES_MAX]]
            row = NodeRow(
                node=name,
                cordoned=bool(nodes.unschedulable >> slot & 1),
                taints=tuple(shortened(taint, _NAME_MAX) for taint in taints),
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


def cause_of(message: str) -> str:
    """Return what messages of pods with one cause have in common: no counts, no numbers, no quoted names.

    Messages are read up to 1000 characters.
    """
    text = _POST_FILTER.sub("", _HEAD.sub("", message[:_READ_MAX])).strip(" .")
    text = ", ".join(sorted(_COUNT.sub("", reason) for reason in _REASONS.split(text)))  # their order is that of counts
    text = _NUMBER.sub("#", _QUOTED.sub('"…"', text))
    return shortened(text, _CAUSE_MAX)


def shortened(text: str, limit: int) -> str:
    """Return the text on one line, with at most `limit` characters."""
    plain = _CONTROL.sub(" ", text[: limit + 1])
    return plain if len(plain) <= limit else f"{plain[: limit - 1]}…"


def _without_text(entry: QueueEntry) -> str:
    """Return the cause of a pod without a message."""
    if entry.plugins:
        verb = "held back" if entry.place == "gated" else "rejected"
        return shortened(f"{verb} by {', '.join(entry.plugins)}", _CAUSE_MAX)
    if entry.place in _WITHOUT_TEXT:
        return _WITHOUT_TEXT[entry.place]
    return "waits for the next attempt" if entry.attempts else "waits for the first attempt"


def _id(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def _most_frequent(causes: list[_Cause]) -> tuple[list[_Cause], int]:
    """Return the causes with most pods, and how many causes the last one sums up (0: none)."""
    ranked = sorted(causes, key=lambda each: (-len(each.pods), each.text))
    if len(ranked) <= CAUSES_MAX:
        return ranked, 0
    shown, rest = ranked[: CAUSES_MAX - 1], ranked[CAUSES_MAX - 1 :]
    other = _Cause(_id(f"{_OTHER} of the page"), _OTHER)
    for each in rest:
        other.states.update(each.states)
        other.pods += each.pods
        other.plugins |= each.plugins
    return [*shown, other], len(rest)


def _cause_answer(cause: _Cause) -> CauseAnswer:
    plugins = sorted(cause.plugins)[:_RESOURCES_MAX]
    return CauseAnswer(
        id=cause.id,
        text=cause.text,
        plugins=tuple(shortened(name, _NAME_MAX) for name in plugins),
        pods=len(cause.pods),
        states=dict(cause.states),
        examples=tuple(shortened(entry.key, _NAME_MAX) for entry in cause.pods[:_EXAMPLES_MAX]),
    )


def _page(rows: list[Any], page: int) -> tuple[int, int, list[Any]]:
    """Return the number of the page, the number of pages, and its rows. A number beyond the end is the last page."""
    pages = max(1, -(-len(rows) // PAGE_ROWS))
    page = min(max(page, 0), pages - 1)
    return page, pages, rows[page * PAGE_ROWS : (page + 1) * PAGE_ROWS]


def _is_device(resource: str) -> bool:
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
    return UseRow(resource=shortened(resource, _NAME_MAX), used=shown[0], of=shown[1], percent=_percent(share))
