"""The data of the page /ui: pending pods by cause, nodes by use, devices, storage, groups and the queue (docs/ui.md).

The scheduling loop builds answers in small steps, as it works on other questions, so no trial is running then. The
browser gets sums and single pages of rows, whatever the number of pods and nodes. All texts of the API server are
shortened, and numbers in them are left out where pods are grouped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

import msgspec

from scheduler.api.core_v1 import Pod
from scheduler.api.podinfo import PodInfo
from scheduler.cache.cluster import Cluster
from scheduler.core.clock import Clock
from scheduler.explain.fixes import Steps
from scheduler.groups.states import GroupStates
from scheduler.queue import QueueEntry, SchedulingQueue
from scheduler.server.ui.answers import (
    CapacityUse,
    DevicesPage,
    Facts,
    GroupPage,
    HistoryPoint,
    MemberRow,
    NodePage,
    Overview,
    PodPage,
    PodRow,
    PodUses,
    PoolUse,
    StoragePage,
)
from scheduler.server.ui.causes import Cause, causes_of, most_frequent
from scheduler.server.ui.groups import UiGroups, group_id, group_named
from scheduler.server.ui.kept import KeptAnswer, LoopQuestions
from scheduler.server.ui.nodes import MEASURES, NodeSearch, UiNodes
from scheduler.server.ui.placed import placed_devices, placed_volumes
from scheduler.server.ui.pools import DeviceUses, StorageUses, device_uses, storage_uses
from scheduler.server.ui.shortened import one_page, shortened

_FREED: Final = 1000
_STEP_ROWS: Final = 512
_SHARED_MAX: Final = 6
_USES_MAX: Final = 50
_MESSAGE_MAX: Final = 500

_Row = TypeVar("_Row")


@dataclass(slots=True, eq=False)
class _Snapshot:
    """One state of the cluster, cut into pages on request."""

    overview: Overview
    causes: dict[str, Cause]
    cells: list[list[str]]
    """The names of the nodes of each cell."""


class UiData:
    """The source of the page. Methods raise what the questions raise: TooManyQuestions, and NotReady of `is_ready`."""

    def __init__(  # noqa: PLR0913 (each by its name)
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        questions: LoopQuestions,
        clock: Clock,
        *,
        newest: Callable[[str], PodInfo | None],
        counts: Callable[[], dict[str, int]],
        facts: Callable[[], Facts],
        states: GroupStates,
        history: Iterable[HistoryPoint] = (),
        stored: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Create the source. `counts` is the gauge pending_pods.

        `newest` returns a pending pod by namespace and name, `stored` any pod of the API server, or an
        unreadable one.
        """
        self._cluster = cluster
        self._queue = queue
        self._questions = questions
        self._clock = clock
        self._newest = newest
        self._counts = counts
        self._facts = facts
        self._history = history
        self._stored = stored
        self._nodes = UiNodes(cluster)
        self._groups = UiGroups(cluster, queue, states)
        self._snapshot = KeptAnswer(self._build, questions, clock, _released)
        self._devices = KeptAnswer[DeviceUses](lambda: device_uses(cluster), questions, clock)
        self._storage = KeptAnswer[StorageUses](lambda: storage_uses(cluster), questions, clock)

    async def overview(self) -> Overview:
        """Return the sums."""
        return (await self._snapshot.fresh()).overview

    async def pods_of(self, cause: str, page: int) -> PodPage | None:
        """Return some pods of a cause, in the order of the queue; None if no pod has it now."""
        found = (await self._snapshot.fresh()).causes.get(cause)
        if found is None:
            return None
        page, pages, entries = one_page(found.pods, page)
        rows = tuple(self._pod_row(entry) for entry in entries)
        return PodPage(cause=cause, text=found.text, page=page, pages=pages, total=len(found.pods), pods=rows)

    async def nodes_of(self, cell: int, page: int) -> NodePage | None:
        """Return some nodes of a cell, by name; None if there is no such cell now."""
        snapshot = await self._snapshot.fresh()
        if not 0 <= cell < len(snapshot.cells):
            return None
        return await self._node_page(cell, snapshot.cells[cell], page)

    async def nodes_found(self, search: NodeSearch, page: int) -> NodePage:
        """Return some of the nodes that a search finds."""
        return await self._node_page(None, await self._questions.answer_to(lambda: self._nodes.found(search)), page)

    async def _node_page(self, cell: int | None, names: list[str], page: int) -> NodePage:
        page, pages, some = one_page(names, page)
        rows = await self._questions.answer_to(lambda: self._nodes.rows(some))
        return NodePage(cell=cell, page=page, pages=pages, total=len(names), nodes=rows)

    async def members_of(self, group: str, page: int) -> GroupPage | None:
        """Return some pods of a group, by name; None if it has no pods now."""
        named = group_named(group)
        keys = self._groups.members(named)
        if not keys:
            return None
        page, pages, some = one_page(keys, page)

        def rows() -> Steps[tuple[MemberRow, ...]]:
            yield True
            found = (self._groups.member(named, key) for key in some)
            return tuple(row for row in found if row is not None)

        pods = await self._questions.answer_to(rows)
        return GroupPage(group=group, page=page, pages=pages, total=len(keys), pods=pods)

    async def placed(self, key: str) -> PodUses | None:
        """Return what a pod with a node uses, at most 50 volumes and 50 devices; None if it has no node."""

        def found() -> Steps[PodUses | None]:
            yield True
            pod = self._stored(key)
            if not isinstance(pod, Pod) or not pod.spec.node_name:
                return None
            return PodUses(
                pod=key,
                node=pod.spec.node_name,
                volumes=tuple(islice(placed_volumes(self._cluster, pod), _USES_MAX)),
                devices=tuple(islice(placed_devices(self._cluster, pod), _USES_MAX)),
            )

        placed: PodUses | None = await self._questions.answer_to(found)
        return placed

    async def devices(self, terms: Sequence[str], page: int) -> DevicesPage:
        """Return the sums of all devices, and some pools whose driver, name or node has all terms."""
        uses = await self._devices.fresh()
        found = await self._found(uses.pools, terms, lambda each: (each.driver, each.pool, each.node))
        page, pages, some = one_page(found, page)
        return DevicesPage(
            page=page, pages=pages, total=len(found), drivers=uses.drivers, pools=tuple(map(_short_pool, some))
        )

    async def storage(self, terms: Sequence[str], page: int) -> StoragePage:
        """Return the sums of all storage, and some capacity objects whose class, name or node has all terms."""
        uses = await self._storage.fresh()
        found = await self._found(uses.pools, terms, lambda each: (each.storage_class, each.pool, each.node))
        page, pages, some = one_page(found, page)
        return StoragePage(page, pages, len(found), uses.classes, uses.drivers, tuple(map(_short_capacity, some)))

    async def _found(
        self, rows: Sequence[_Row], terms: Sequence[str], texts: Callable[[_Row], tuple[str, ...]]
    ) -> Sequence[_Row]:
        """Return the rows with each term in one of their texts."""

        def search() -> Steps[list[_Row]]:
            found = list[_Row]()
            for at, row in enumerate(rows, 1):
                named = "\n".join(texts(row)).casefold()
                if all(term in named for term in terms):
                    found.append(row)
                if at % _STEP_ROWS == 0:
                    yield True
            return found

        if not terms:
            return rows
        matching: Sequence[_Row] = await self._questions.answer_to(search)
        return matching

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def _build(self) -> Steps[_Snapshot]:
        causes = yield from causes_of(self._queue, self._message)
        shown, other = most_frequent(causes)
        yield True
        cells, answers = yield from self._nodes.cells()
        group_states, groups = yield from self._groups.rows()
        overview = Overview(
            time=self._clock.wall(),
            facts=self._facts(),
            queue=self._counts(),
            pending=sum(len(each.pods) for each in shown),
            bound=self._cluster.sizes()["pods"],
            causes=tuple(each.answer for each in shown),
            other_causes=other,
            nodes=len(self._cluster.nodes),
            measures=MEASURES,
            cells=tuple(answers),
            group_states=group_states,
            groups=groups,
            history=tuple(self._history),
        )
        return _Snapshot(overview, {each.id: each for each in shown}, cells)

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


def _released(snapshot: _Snapshot) -> Steps[None]:
    for cause in snapshot.causes.values():
        while cause.pods:  # to free twenty thousand entries at once takes 5 ms
            del cause.pods[-_FREED:]
            yield True


def _short_pool(pool: PoolUse) -> PoolUse:
    return msgspec.structs.replace(
        pool,
        driver=shortened(pool.driver),
        pool=shortened(pool.pool),
        node=shortened(pool.node),
        shared=tuple(
            msgspec.structs.replace(each, device=shortened(each.device), capacity=shortened(each.capacity))
            for each in pool.shared[:_SHARED_MAX]
        ),
    )


def _short_capacity(pool: CapacityUse) -> CapacityUse:
    return msgspec.structs.replace(
        pool,
        pool=shortened(pool.pool),
        storage_class=shortened(pool.storage_class),
        node=shortened(pool.node),
    )
