"""The data of the page /ui: how pods and nodes are summed up, cut into pages, and kept small."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler.api.decode import Delta, from_manifest
from scheduler.api.resource_v1 import ResourceSlice
from scheduler.api.storage_v1 import CSINode
from scheduler.core.cooperative import finish
from scheduler.explain.fixes import Steps
from scheduler.explain.questions import TooManyQuestions
from scheduler.server.ui import causes
from scheduler.server.ui.answers import CauseAnswer, Overview
from scheduler.server.ui.causes import CAUSES_MAX, cause_of
from scheduler.server.ui.data import UiData
from scheduler.server.ui.nodes import CELLS_MAX
from scheduler.server.ui.shortened import PAGE_ROWS, shortened
from simulator.builders.devices import a_device, a_slice
from tests.page.sites import AtOnce, refused, ui_data as data_of
from tests.unit.harness import SchedulerHarness

PREEMPTION = " no new claims to deallocate, preemption: 0/5 nodes are available: 5 No preemption victims found."


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        pytest.param("", "", id="no message"),
        pytest.param(f"0/5 nodes are available: 3 Insufficient cpu, 2 Insufficient memory.{PREEMPTION}", "Insufficient cpu, Insufficient memory", id="counts and preemption are left out"),
        pytest.param("0/5 nodes are available: 12 b, c, 3 a.", "a, b, c", id="the order of reasons is that of texts, not of counts"),
        pytest.param("0/5 nodes are available: 1 Too many pods. preemption: 0/5 nodes are available: 5 x.", "Too many pods", id="preemption without devices"),
        pytest.param('0/5 nodes are available: persistentvolumeclaim "data-web-7" not found.', 'persistentvolumeclaim "…" not found', id="quoted names are left out"),
        pytest.param("0/5 nodes are available: 5 node(s) had untolerated taint {zone: b7}.", "node(s) had untolerated taint {zone: b#}", id="numbers are left out"),
        pytest.param("timed out after 30 s", "timed out after # s", id="an error"),
        pytest.param("a\nb\x00\x1b[31mc\u2028d\u202ee", "a b [#mc d e", id="line ends, control characters and changes of direction"),
        pytest.param("x" * 50_000, "x" * 199 + "…", id="a long text"),
    ],
)  # fmt: skip
def test_messages_of_one_cause_become_one_text(message: str, cause: str) -> None:
    assert cause_of(message) == cause


def test_a_text_of_the_limit_is_not_shortened() -> None:
    assert [shortened("abcd", limit) for limit in (5, 4, 3)] == ["abcd", "abcd", "ab…"]


async def overview(sched: SchedulerHarness) -> Overview:
    return await data_of(sched).overview()


def plain(cause: CauseAnswer) -> tuple[str, dict[str, int], tuple[str, ...], tuple[str, ...]]:
    return cause.text, cause.states, cause.plugins, cause.examples


async def test_pods_are_grouped_by_cause_with_states_and_plugins() -> None:
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    for name in ("a", "b"):
        sched.pod(name, cpu="2")
    sched.pod("gated", gates=["g"])
    await sched.settle()
    sched.pod("new")
    sched.pod("seen", conditions=refused("0/1 nodes are available: 1 Insufficient cpu."))

    found = await overview(sched)

    assert [plain(each) for each in found.causes] == [
        ("rejected by NodeResourcesFit", {"unschedulable": 2}, ("NodeResourcesFit",), ("default/a", "default/b")),
        ("Insufficient cpu", {"active": 1}, (), ("default/seen",)),
        ("held back by SchedulingGates", {"gated": 1}, ("SchedulingGates",), ("default/gated",)),
        ("waits for the first attempt", {"active": 1}, (), ("default/new",)),
    ]
    assert (found.pending, found.other_causes, found.queue["unschedulable"], found.bound) == (5, 0, 2, 0)


@pytest.mark.parametrize(
    ("causes", "shown", "other"),
    [(0, 0, 0), (1, 1, 0), (40, 40, 0), (41, 40, 2), (100, 40, 61), (1200, 40, 962)],
    ids=["none", "one", "as many as are shown", "one more", "a hundred", "more than are counted one by one"],
)
async def test_rare_causes_are_summed_up(causes: int, shown: int, other: int) -> None:
    sched = SchedulerHarness()
    for at in range(causes):
        letters = "".join(chr(97 + at // 26**place % 26) for place in range(3))
        sched.pod(f"p{at}", conditions=refused(f"cause {letters}"))

    found = await overview(sched)

    assert CAUSES_MAX == 40
    assert (len(found.causes), found.other_causes) == (shown, other)
    assert sum(each.pods for each in found.causes) == found.pending == causes
    assert len({each.id for each in found.causes}) == shown


@pytest.mark.parametrize(
    ("wanted", "page", "rows"),
    [(0, 0, 25), (1, 1, 25), (2, 2, 10), (3, 2, 10), (999_999, 2, 10)],
    ids=["the first", "the second", "the last", "beyond the end", "far beyond the end"],
)
async def test_pods_of_a_cause_come_in_pages(wanted: int, page: int, rows: int) -> None:
    sched = SchedulerHarness()
    for at in range(60):
        sched.pod(f"p{at:02}")
    data = data_of(sched)
    (cause,) = (await data.overview()).causes

    found = await data.pods_of(cause.id, wanted)

    assert found is not None
    assert (found.page, found.pages, found.total, len(found.pods)) == (page, 3, 60, rows)
    assert found.pods[0].pod == f"default/p{page * PAGE_ROWS:02}"
    assert await data.pods_of("0" * 12, 0) is None


@pytest.mark.parametrize(
    ("nodes", "cells", "largest"),
    [(0, 0, 0), (1, 1, 1), (200, 200, 1), (201, 101, 2), (1000, 200, 5), (1001, 167, 6)],
    ids=["none", "one", "a cell each", "one more than cells", "five per cell", "an incomplete last cell"],
)
async def test_nodes_are_grouped_in_cells_by_name(nodes: int, cells: int, largest: int) -> None:
    sched = SchedulerHarness()
    for at in reversed(range(nodes)):
        sched.node(f"n{at:04}", cpu="10")
        sched.pod(f"p{at}", cpu=f"{at % 10}", on=f"n{at:04}")
    data = data_of(sched)

    found = (await data.overview()).cells

    assert CELLS_MAX == 200
    assert (len(found), sum(each.nodes for each in found)) == (cells, nodes)
    assert max((each.nodes for each in found), default=0) == largest
    assert [each.first for each in found] == sorted(each.first for each in found)
    for each in found[:3]:
        shares = sorted(int(name[1:]) % 10 * 10 for name in await names_of(data, each.id))
        assert each.use[0] == (shares[0], shares[(len(shares) - 1) // 2], shares[-1])


async def names_of(data: UiData, cell: int) -> list[str]:
    page = await data.nodes_of(cell, 0)
    assert page is not None
    return [row.node for row in page.nodes]


async def test_all_measures_and_the_marks_of_nodes() -> None:
    sched = SchedulerHarness()
    sched.node("a", cpu="4", memory="8Gi", pods="10", unschedulable=True)
    sched.node(
        "b",
        cpu="4",
        taints=[{"key": "k", "value": "v", "effect": "NoExecute"}, {"key": "s", "effect": "PreferNoSchedule"}],
    )
    sched.pod("p", cpu="3", on="a")
    driver = {"name": "d.csi", "nodeID": "a", "allocatable": {"count": 4}}
    csi_node = from_manifest(CSINode, {"metadata": {"name": "a"}, "spec": {"drivers": [driver]}})
    sched.parts.event_handlers.apply("CSINode", [Delta(None, csi_node)])
    devices = from_manifest(ResourceSlice, a_slice("b", "gpu.example.com", a_device("d0"), a_device("d1")).obj())
    sched.parts.event_handlers.apply("ResourceSlice", [Delta(None, devices)])
    data = data_of(sched)

    found = await data.overview()

    assert found.measures == ("cpu", "memory", "pods", "volumes", "devices")
    assert [(each.first, each.cordoned, each.tainted) for each in found.cells] == [("a", 1, 0), ("b", 0, 1)]
    assert [[use and use[1] for use in each.use] for each in found.cells] == [[75, 0, 10, 0, None], [0, 0, 0, None, 0]]
    (row,) = (await data.nodes_of(1, 0)).nodes  # type: ignore[union-attr]
    assert (row.node, row.cordoned, row.taints) == ("b", False, ("k=v:NoExecute", "s:PreferNoSchedule"))
    assert [(use.resource, use.used, use.of) for use in row.use][-1] == ("devices", "0", "2")
    (row,) = (await data.nodes_of(0, 0)).nodes  # type: ignore[union-attr]
    shown = [(use.resource, use.used, use.of, use.percent) for use in row.use]
    assert ("cpu", "3", "4", 75) in shown
    assert ("volumes of d.csi", "0", "4", 0) in shown


async def test_a_node_that_is_deleted_after_the_snapshot_is_left_out() -> None:
    sched = SchedulerHarness()
    sched.node("a")
    data = data_of(sched)
    await data.overview()
    sched.node_gone("a")

    page = await data.nodes_of(0, 0)

    assert page is not None
    assert page.nodes == ()
    assert await data.nodes_of(1, 0) is None


async def test_answers_stay_small_with_the_longest_texts() -> None:
    """Every character takes as many bytes as JSON can need."""
    sched = SchedulerHarness()
    for at in range(1000):
        sched.node(
            f"{at:04}" + "\N{GRINNING FACE}" * 250,
            taints=[{"key": "\N{GRINNING FACE}" * 300, "effect": "NoSchedule"}] * 9,
        )
    for at in range(200):
        letters = chr(97 + at // 26) + chr(97 + at % 26)
        sched.pod(letters + "\N{GRINNING FACE}" * 250, conditions=refused(letters + '\\"\x01\N{GRINNING FACE}' * 8000))
    data = data_of(sched)

    found = await data.overview()

    assert len(msgspec.json.encode(found)) < 200_000
    assert len(msgspec.json.encode(await data.pods_of(found.causes[-1].id, 0))) < 200_000
    assert len(msgspec.json.encode(await data.nodes_of(0, 0))) < 200_000


async def test_a_snapshot_is_built_in_small_steps() -> None:
    sched = SchedulerHarness()
    for at in range(640):
        sched.pod(f"p{at}")
    begun: list[Callable[[], Steps[Any]]] = []

    class Kept(AtOnce):
        async def answer_to(self, begin: Callable[[], Steps[Any]]) -> Any:
            begun.append(begin)
            return finish(begin())

    data = data_of(sched, questions=Kept())
    await data.overview()

    assert sum(1 for _ in begun[0]()) >= 640 // causes._STEP_PODS


class Held:
    """Questions that wait for `go`, and then fail with `error` if it is set."""

    def __init__(self) -> None:
        self.count = 0
        self.go = asyncio.Event()
        self.error: Exception | None = None

    async def answer_to(self, begin: Callable[[], Steps[Any]]) -> Any:
        self.count += 1
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return finish(begin())


@pytest.mark.parametrize(
    ("waits_s", "built"),
    [(0.9, 1), (1.1, 2)],
    ids=["a snapshot serves for a second", "then it is built again"],
)
async def test_one_snapshot_serves_many_readers(waits_s: float, built: int) -> None:
    sched = SchedulerHarness()
    sched.pod("p")
    questions = Held()
    data = data_of(sched, questions=questions)
    readers = [asyncio.ensure_future(data.overview()) for _ in range(20)]
    await asyncio.sleep(0)
    questions.go.set()
    assert {each.pending for each in await asyncio.gather(*readers)} == {1}
    sched.clock.move(waits_s)
    await data.overview()

    assert questions.count == built


async def test_a_costly_snapshot_serves_for_twenty_times_its_cost() -> None:
    sched = SchedulerHarness()
    data = data_of(sched)
    data._snapshot._build = slow(data._build, sched, 0.5)
    first = await data.overview()
    sched.clock.move(9.9)
    assert await data.overview() is first
    sched.clock.move(0.2)
    assert await data.overview() is not first


def slow(build: Callable[[], Steps[Any]], sched: SchedulerHarness, cost_s: float) -> Callable[[], Steps[Any]]:
    """Let the first step cost this time of the clock."""

    def slower() -> Steps[Any]:
        sched.clock.move(cost_s)
        return (yield from build())

    return slower


async def test_a_question_that_fails_fails_for_its_readers_only() -> None:
    sched = SchedulerHarness()
    questions = Held()
    data = data_of(sched, questions=questions)
    questions.go.set()
    questions.error = TooManyQuestions()
    found = await asyncio.gather(data.overview(), data.overview(), return_exceptions=True)
    assert [type(each) for each in found] == [TooManyQuestions] * 2
    questions.error = None

    assert (await data.overview()).pending == 0
    assert questions.count == 2


async def test_a_reader_that_leaves_does_not_end_the_snapshot_of_the_rest() -> None:
    sched = SchedulerHarness()
    questions = Held()
    data = data_of(sched, questions=questions)
    leaving, staying = (asyncio.ensure_future(data.overview()) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    questions.go.set()

    assert (await staying).pending == 0
