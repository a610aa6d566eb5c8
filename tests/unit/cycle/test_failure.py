"""What a failed attempt leaves behind: conditions in the right order, tracebacks once (docs/spec/core.md §3.8, §3.14)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import pytest
from structlog.testing import CapturingLogger

from scheduler import failure
from scheduler.api.core_v1 import Pod, PodCondition
from scheduler.core import errors as unforeseen
from scheduler.core.errors import ApiError, Fenced, NotFound, Unavailable
from scheduler.failure import PodStatusUpdater
from tests.unit.fake_plugins import Holds
from tests.unit.harness import SchedulerHarness, WireWriter, manifest, typed


def condition(message: str) -> PodCondition:
    return PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message)


def a_pod(name: str = "p", *, says: str = "", nominated: str = "") -> Pod:
    """A pod whose status on the server has this condition and nomination already."""
    raw = manifest(name, nominated=nominated)
    if says:
        raw["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": says}
        ]
    return typed(raw)


class Desk:
    """Patches on a writer that can be held."""

    def __init__(self) -> None:
        self.writer = WireWriter()
        self.patches = PodStatusUpdater(self.writer)

    async def hold(self) -> None:
        self.writer.patch_hold = asyncio.Event()

    async def submit(self, pod: Pod, message: str = "", nominate: str | None = None) -> None:
        """An empty message: no condition. Gives the patch the turns to reach the wire."""
        self.patches.submit(pod, condition(message) if message else None, nominate)
        for _ in range(5):
            await asyncio.sleep(0)

    async def answered(self) -> None:
        """The server answers everything."""
        if self.writer.patch_hold is not None:
            self.writer.patch_hold.set()
        await asyncio.wait_for(self.patches.drain(), 30)

    def said(self, name: str = "p") -> list[str]:
        return [said.message for key, said in self.writer.conditions if key == f"default/{name}"]

    async def fill(self) -> None:
        """As many other pods' patches in flight as there may be."""
        await self.hold()
        for i in range(16):
            await self.submit(a_pod(f"other{i}"), "A")
        assert self.writer.patching == 16


# -- the patches of one pod --------------------------------------------------------------------------------------------

Step: TypeAlias = Callable[[Desk], Any]


def submit(message: str = "", nominate: str | None = None, *, shows: str = "", nominated: str = "") -> Step:
    """A patch of a pod whose status has the condition `shows` and the nomination `nominated`."""
    return lambda desk: desk.submit(a_pod(says=shows, nominated=nominated), message, nominate)


def seen(shows: str = "", nominated: str = "") -> Step:
    """The watch shows this status. The pod counts as nominated to that node."""

    def step(desk: Desk) -> None:
        pod = a_pod(says=shows, nominated=nominated)
        desk.patches.seen(pod)
        assert desk.patches.nomination(pod) == nominated

    return step


def fails(*errors: ApiError) -> Step:
    """The next writes fail with these errors."""
    return lambda desk: desk.writer.patch_errors.extend(errors)


HOLD, FILL, ANSWERED = Desk.hold, Desk.fill, Desk.answered
SCRIPTS: Final[dict[str, tuple[list[Step], list[str], list[str]]]] = {
    "a verdict that the server has, or that was just written, is not written": (
        [submit("A", "", shows="A"), submit("B"), submit("B")], ["B"], []
    ),
    "the first verdict is true again while the second is in flight: the first lands last": (
        [HOLD, submit("B", shows="A"), submit("A", shows="A")], ["B", "A"], []
    ),
    "the first verdict is true again while the second waits: the second is never written": (
        [FILL, submit("B", shows="A"), submit("A", shows="A")], ["A"], []
    ),
    "a nomination in flight, which the watch does not show, is cleared": (
        [HOLD, submit(nominate="n1"), submit(nominate="")], [], ["n1", ""]
    ),
    "a new verdict keeps the nomination of the patch that waits": (
        [FILL, submit("A", "n1"), submit("B")], ["B"], ["n1"]
    ),
    "a failed write is made again by the next submit": (
        [fails(Unavailable("away"), NotFound("gone")), *[submit("A"), ANSWERED] * 3], ["A"], []
    ),
    "the verdict of a failed write is in the patch that waits, which only adds a nomination": (
        [HOLD, fails(Unavailable("away")), submit("A"), submit(nominate="n1")], ["A"], ["n1"]
    ),
    "a nomination that the watch has shown and another writer removed is written again": (
        [submit("A", "n1"), ANSWERED, seen("A", "n1"), seen("A"), submit("A", "n1", shows="A")], ["A"], ["n1", "n1"]
    ),
    "the watch shows a write before its answer: a later nomination by another writer counts and is cleared": (
        [HOLD, submit("A", ""), lambda desk: desk.patches.seen(a_pod(says="A")), ANSWERED, seen("A", "n1"),
         submit("A", "", shows="A", nominated="n1")], ["A"], [""]
    ),
    "the watch shows a write and a nomination by another writer together": (
        [submit("A", ""), ANSWERED, seen("A", "n1"), submit("A", "", shows="A", nominated="n1")], ["A"], [""]
    ),
    "the watch shows the first patch while the second waits for its answer: the second counts as written": (
        [HOLD, submit("A"), seen("A"), submit("B", shows="A"), ANSWERED, submit("B", shows="A")], ["A", "B"], []
    ),
    "the watch shows the A of before while A is on its way again: when B is true, B lands last": (
        [submit("B", shows="A"), ANSWERED, HOLD, submit("A", shows="A"), seen("A"), submit("B", shows="B")],
        ["B", "A", "B"], []
    ),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "said", "nominations"), SCRIPTS.values(), ids=SCRIPTS)
async def test_what_is_written(steps: list[Step], said: list[str], nominations: list[str]) -> None:
    desk = Desk()
    for step in [*steps, ANSWERED]:
        if (turn := step(desk)) is not None:
            await turn

    assert desk.said() == said
    assert [node for key, node in desk.writer.nominations if key == "default/p"] == nominations


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(Unavailable("away"), 1, id="refused: said"),
        pytest.param(NotFound("gone"), 0, id="the pod is gone: nothing to say"),
        pytest.param(Fenced("not leading"), 0, id="not leading: said once, by others"),
    ],
)
async def test_what_is_said_of_a_patch_that_was_not_written(
    monkeypatch: pytest.MonkeyPatch, error: ApiError, said: int
) -> None:
    lines = CapturingLogger()
    monkeypatch.setattr(failure, "_log", lines)
    desk = Desk()
    desk.writer.patch_errors.append(error)
    await desk.submit(a_pod(), "A")
    await desk.answered()

    assert len(lines.calls) == said


async def test_nothing_is_remembered_of_a_pod_that_is_forgotten() -> None:
    desk = Desk()
    await desk.hold()
    await desk.submit(a_pod(), "A")
    await desk.submit(a_pod(), "B")
    desk.patches.forget("uid-p")
    await desk.answered()

    assert desk.said() == ["A"]
    assert len(desk.patches) == 0
    await desk.submit(a_pod(says="A"), "A")
    assert desk.said() == ["A"]


async def test_a_withdrawn_patch_is_not_sent() -> None:
    """Only one that is on the wire is left, to be waited for; the next verdict starts afresh."""
    desk = Desk()
    await desk.fill()
    await desk.submit(a_pod(), "A")
    waiting, on_the_wire = desk.patches.withdraw("uid-p"), desk.patches.withdraw("uid-other0")
    await desk.answered()

    assert waiting is None
    assert on_the_wire is not None
    assert on_the_wire.done()
    assert (desk.said(), desk.said("other0")) == ([], ["A"])


# -- who waits for a nomination ------------------------------------------------------------------------------------------


async def test_a_nomination_does_not_wait_behind_verdicts() -> None:
    """Victims wait for it, and thousands of pods may have been refused before."""
    desk = Desk()
    await desk.fill()
    for i in range(100):
        await desk.submit(a_pod(f"late{i}"), "A")
    await desk.submit(a_pod(), "A", "n1")
    await desk.submit(a_pod("q"), nominate="n2")
    await desk.answered()

    landed = [key for key, _ in desk.writer.nominations]
    assert landed == ["default/p", "default/q"]
    assert desk.writer.wire[16:18] == ["patch p", "patch q"]


async def test_a_nomination_that_was_taken_back_does_not_overtake() -> None:
    desk = Desk()
    await desk.fill()
    await desk.submit(a_pod("late"), "A")
    await desk.submit(a_pod(nominated="n1"), "A", "n2")
    await desk.submit(a_pod(nominated="n1"), nominate="")
    await desk.answered()

    assert desk.writer.wire[16:] == ["patch late", "patch p"]
    assert desk.writer.nominations == [("default/p", "")]


@pytest.mark.parametrize(
    ("shown", "errors", "later", "where"),
    [
        pytest.param("", [], None, "n1", id="written, and not shown yet"),
        pytest.param("n1", [], None, "n1", id="it was there already"),
        pytest.param("", [Unavailable("away")], None, "", id="refused"),
        pytest.param("n0", [Unavailable("away")], None, "n0", id="refused: what was there before stays"),
        pytest.param("", [], "", "", id="taken back meanwhile"),
        pytest.param("", [], "n2", "n2", id="another one meanwhile"),
        pytest.param("", [Unavailable("away")], "", "", id="refused, and taken back"),
    ],
)
async def test_where_a_pod_is_nominated(shown: str, errors: list[ApiError], later: str | None, where: str) -> None:
    """Once all is answered: what was written last, until the watch shows it."""
    desk = Desk()
    await desk.hold()
    desk.writer.patch_errors = [*errors]
    await desk.submit(a_pod(nominated=shown), "A", "n1")
    if later is not None:
        await desk.submit(a_pod(nominated=shown), nominate=later)
    waits = asyncio.ensure_future(desk.patches.answered("uid-p"))
    await asyncio.sleep(0)
    assert not waits.done()
    await desk.answered()
    await waits

    assert desk.patches.nomination(a_pod(nominated=shown)) == where


@pytest.mark.parametrize(
    "drop",
    [
        pytest.param(lambda patches: patches.forget("uid-p"), id="the pod is gone"),
        pytest.param(lambda patches: patches.withdraw("uid-p"), id="the pod is about to be bound"),
        pytest.param(PodStatusUpdater.give_up, id="the daemon stops"),
    ],
)
async def test_nobody_waits_for_a_patch_that_was_dropped(drop: Callable[[PodStatusUpdater], object]) -> None:
    desk = Desk()
    await desk.fill()
    await desk.submit(a_pod(), "A", "n1")
    waits = [asyncio.ensure_future(desk.patches.answered("uid-p")) for _ in range(2)]
    await asyncio.sleep(0)
    drop(desk.patches)
    await asyncio.wait_for(asyncio.gather(*waits), 30)

    assert desk.patches.nomination(a_pod()) == ""
    await desk.answered()
    assert desk.writer.nominations == []


async def test_nothing_is_kept_of_a_pod_that_was_forgotten_while_its_patch_was_refused() -> None:
    """A 404 is how one learns that a pod has gone; there may be thousands."""
    desk = Desk()
    await desk.hold()
    desk.writer.patch_errors = [NotFound("gone")]
    await desk.submit(a_pod(), "A", "n1")
    desk.patches.forget("uid-p")
    await desk.answered()

    patches = desk.patches
    assert not any((patches._wanted, patches._pending, patches._running, patches._awaited, patches._urgent))


# -- cost --------------------------------------------------------------------------------------------------------------


class CountedDict(dict[str, object]):
    """Counts how many keys were walked over."""

    walked = 0

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            self.walked += 1
            yield key


async def test_many_submits_cost_as_much_as_one_each() -> None:
    """With a slow server and 401 verdicts: sixteen tasks, and no walk over all that waits per submit or per answer."""
    desk = Desk()
    desk.patches._pending = waiting = CountedDict()  # type: ignore[assignment]
    tasks = len(asyncio.all_tasks())
    await desk.hold()
    for i in range(400):
        desk.patches.submit(a_pod(f"p{i}"), condition("A"), None)
    await desk.submit(a_pod("last"), "A")

    assert len(asyncio.all_tasks()) - tasks <= 2 * 16  # the patch, and its write, which is shielded
    await desk.answered()
    assert (len(desk.writer.conditions), desk.writer.most_patching, len(desk.patches)) == (401, 16, 0)
    assert waiting.walked <= 20 * 401


# -- on the way to a binding (§3.14) -----------------------------------------------------------------------------------


async def test_a_patch_in_flight_is_waited_for_before_the_binding() -> None:
    """A verdict that lands after the Binding would call a bound pod unschedulable."""
    sched = SchedulerHarness()
    sched.writer.patch_hold = asyncio.Event()
    sched.node("n1", cpu="1")
    sched.pod("p", cpu="2")
    await sched.settle()

    sched.node("n2", cpu="4")
    await sched.later(5)
    assert sched.writer.wire == []
    sched.writer.patch_hold.set()
    await sched.settle()

    assert sched.writer.wire == ["patch p", "bind p"]


async def test_a_patch_that_waits_is_withdrawn_by_the_binding() -> None:
    """The pod is bound without waiting for other pods' patches, and its old verdict is never written."""
    sched = SchedulerHarness()
    sched.writer.patch_hold = asyncio.Event()
    sched.node("n1", cpu="1")
    for i in range(16):
        sched.pod(f"big{i}", cpu="64")
    await sched.settle()
    sched.pod("p", cpu="2")
    await sched.settle()
    assert len(sched.parts.patches) == 17

    sched.node("n2", cpu="4")
    await sched.later(5)
    assert sched.writer.wire == ["bind p"]
    sched.writer.patch_hold.set()
    await sched.settle()

    assert "patch p" not in sched.writer.wire


async def test_a_patch_that_waits_is_withdrawn_when_somebody_else_binds_the_pod() -> None:
    sched = SchedulerHarness()
    sched.writer.patch_hold = asyncio.Event()
    sched.node("n1", cpu="1")
    for i in range(16):
        sched.pod(f"big{i}", cpu="64")
    await sched.settle()
    sched.pod("p", cpu="2")
    sched.pod("q", cpu="2")
    await sched.settle()

    sched.pod("p", cpu="2", on="n1")
    sched.gone("q")
    sched.writer.patch_hold.set()
    await sched.settle()

    assert sorted(sched.writer.wire) == sorted(f"patch big{i}" for i in range(16))


# -- the log -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> CapturingLogger:
    logger = CapturingLogger()
    monkeypatch.setattr(unforeseen, "_log", logger)
    return logger


async def test_a_traceback_is_logged_once_per_place(lines: CapturingLogger) -> None:
    """A plugin that breaks for every pod fills no disk; a second mistake elsewhere is seen all the same."""

    class Breaks(Holds):
        def reserve(self, *_: object) -> None:
            if self.name == "first":
                raise KeyError("x")
            raise KeyError("y")

    sched = SchedulerHarness()
    plugin = Breaks("first")
    sched.plug(reserve=(plugin,))
    sched.node("n1")
    sched.pod("p")
    sched.pod("q")
    await sched.settle()
    plugin.name = "second"
    await sched.later(2.5)

    errors = [call.kwargs for call in lines.calls if call.method_name == "error"]
    assert [(line["pod"], line["exc_info"] is not None) for line in errors] == [
        ("default/p", True),
        ("default/q", False),
        ("default/p", True),
        ("default/q", False),
    ]
    assert all(line["error"] for line in errors)
