"""What a failed attempt writes: conditions in the right order, tracebacks once (docs/spec/core.md §3.8, §3.14)."""

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
    """Return a pod whose status on the server has this condition and nomination."""
    raw = manifest(name, nominated=nominated)
    if says:
        raw["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": says}
        ]
    return typed(raw)


class Patches:
    """Status patches on a writer that can be held."""

    def __init__(self) -> None:
        self.writer = WireWriter()
        self.patches = PodStatusUpdater(self.writer)

    async def hold(self) -> None:
        self.writer.patch_hold = asyncio.Event()

    async def submit(self, pod: Pod, message: str = "", nominate: str | None = None) -> None:
        """Submit a patch and let it reach the wire. An empty message means no condition."""
        self.patches.submit(pod, condition(message) if message else None, nominate)
        for _ in range(5):
            await asyncio.sleep(0)

    async def answered(self) -> None:
        """Let the server answer all patches."""
        if self.writer.patch_hold is not None:
            self.writer.patch_hold.set()
        await asyncio.wait_for(self.patches.drain(), 30)

    def written(self, name: str = "p") -> list[str]:
        return [condition.message for key, condition in self.writer.conditions if key == f"default/{name}"]

    async def fill(self) -> None:
        """Put the largest number of other pods' patches in flight."""
        await self.hold()
        for i in range(16):
            await self.submit(a_pod(f"other{i}"), "A")
        assert self.writer.patching == 16


# -- the patches of one pod --------------------------------------------------------------------------------------------

Step: TypeAlias = Callable[[Patches], Any]


def submit(message: str = "", nominate: str | None = None, *, shows: str = "", nominated: str = "") -> Step:
    """Submit a patch of a pod whose status has the condition `shows` and the nomination `nominated`."""
    return lambda status: status.submit(a_pod(says=shows, nominated=nominated), message, nominate)


def seen(shows: str = "", nominated: str = "") -> Step:
    """The watch shows this status. The pod counts as nominated to that node."""

    def step(status: Patches) -> None:
        pod = a_pod(says=shows, nominated=nominated)
        status.patches.seen(pod)
        assert status.patches.nomination(pod) == nominated

    return step


def fails(*errors: ApiError) -> Step:
    """The next writes fail with these errors."""
    return lambda status: status.writer.patch_errors.extend(errors)


HOLD, FILL, ANSWERED = Patches.hold, Patches.fill, Patches.answered
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
        [HOLD, submit("A", ""), lambda status: status.patches.seen(a_pod(says="A")), ANSWERED, seen("A", "n1"),
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


@pytest.mark.parametrize(("steps", "conditions", "nominations"), SCRIPTS.values(), ids=SCRIPTS)
async def test_what_is_written(steps: list[Step], conditions: list[str], nominations: list[str]) -> None:
    status = Patches()
    for step in [*steps, ANSWERED]:
        if (turn := step(status)) is not None:
            await turn

    assert status.written() == conditions
    assert [node for key, node in status.writer.nominations if key == "default/p"] == nominations


@pytest.mark.parametrize(
    ("error", "lines_logged"),
    [
        pytest.param(Unavailable("away"), 1, id="refused: logged"),
        pytest.param(NotFound("gone"), 0, id="the pod is gone: not logged"),
        pytest.param(Fenced("not leading"), 0, id="not leading: not logged here"),
    ],
)
async def test_log_of_a_patch_that_was_not_written(
    monkeypatch: pytest.MonkeyPatch, error: ApiError, lines_logged: int
) -> None:
    lines = CapturingLogger()
    monkeypatch.setattr(failure, "_log", lines)
    status = Patches()
    status.writer.patch_errors.append(error)
    await status.submit(a_pod(), "A")
    await status.answered()

    assert len(lines.calls) == lines_logged


async def test_nothing_is_remembered_of_a_pod_that_is_forgotten() -> None:
    status = Patches()
    await status.hold()
    await status.submit(a_pod(), "A")
    await status.submit(a_pod(), "B")
    status.patches.forget("uid-p")
    await status.answered()

    assert status.written() == ["A"]
    assert len(status.patches) == 0
    await status.submit(a_pod(says="A"), "A")
    assert status.written() == ["A"]


async def test_a_withdrawn_patch_is_not_sent() -> None:
    status = Patches()
    await status.fill()
    await status.submit(a_pod(), "A")
    waiting, on_the_wire = status.patches.withdraw("uid-p"), status.patches.withdraw("uid-other0")
    await status.answered()

    assert waiting is None
    assert on_the_wire is not None
    assert on_the_wire.done()
    assert (status.written(), status.written("other0")) == ([], ["A"])


# -- nominations ----------------------------------------------------------------------------------------------------------


async def test_a_nomination_does_not_wait_behind_verdicts() -> None:
    """Victims wait for the nomination, and thousands of pods may have been refused before."""
    status = Patches()
    await status.fill()
    for i in range(100):
        await status.submit(a_pod(f"late{i}"), "A")
    await status.submit(a_pod(), "A", "n1")
    await status.submit(a_pod("q"), nominate="n2")
    await status.answered()

    landed = [key for key, _ in status.writer.nominations]
    assert landed == ["default/p", "default/q"]
    assert status.writer.wire[16:18] == ["patch p", "patch q"]


async def test_a_nomination_that_was_taken_back_does_not_overtake() -> None:
    status = Patches()
    await status.fill()
    await status.submit(a_pod("late"), "A")
    await status.submit(a_pod(nominated="n1"), "A", "n2")
    await status.submit(a_pod(nominated="n1"), nominate="")
    await status.answered()

    assert status.writer.wire[16:] == ["patch late", "patch p"]
    assert status.writer.nominations == [("default/p", "")]


@pytest.mark.parametrize(
    ("shown", "errors", "later", "where"),
    [
        pytest.param("", [], None, "n1", id="written, and not shown yet"),
        pytest.param("n1", [], None, "n1", id="the status had it"),
        pytest.param("", [Unavailable("away")], None, "", id="refused"),
        pytest.param("n0", [Unavailable("away")], None, "n0", id="refused: the former nomination stays"),
        pytest.param("", [], "", "", id="cleared while the write is under way"),
        pytest.param("", [], "n2", "n2", id="replaced while the write is under way"),
        pytest.param("", [Unavailable("away")], "", "", id="refused, and cleared"),
    ],
)
async def test_where_a_pod_is_nominated(shown: str, errors: list[ApiError], later: str | None, where: str) -> None:
    status = Patches()
    await status.hold()
    status.writer.patch_errors = [*errors]
    await status.submit(a_pod(nominated=shown), "A", "n1")
    if later is not None:
        await status.submit(a_pod(nominated=shown), nominate=later)
    waits = asyncio.ensure_future(status.patches.answered("uid-p"))
    await asyncio.sleep(0)
    assert not waits.done()
    await status.answered()
    await waits

    assert status.patches.nomination(a_pod(nominated=shown)) == where


@pytest.mark.parametrize(
    "drop",
    [
        pytest.param(lambda patches: patches.forget("uid-p"), id="the pod is gone"),
        pytest.param(lambda patches: patches.withdraw("uid-p"), id="the pod is bound next"),
        pytest.param(PodStatusUpdater.give_up, id="the daemon stops"),
    ],
)
async def test_waits_for_a_patch_end_when_it_is_dropped(drop: Callable[[PodStatusUpdater], object]) -> None:
    status = Patches()
    await status.fill()
    await status.submit(a_pod(), "A", "n1")
    waits = [asyncio.ensure_future(status.patches.answered("uid-p")) for _ in range(2)]
    await asyncio.sleep(0)
    drop(status.patches)
    await asyncio.wait_for(asyncio.gather(*waits), 30)

    assert status.patches.nomination(a_pod()) == ""
    await status.answered()
    assert status.writer.nominations == []


async def test_no_state_is_left_of_a_pod_that_was_forgotten_while_its_patch_was_refused() -> None:
    status = Patches()
    await status.hold()
    status.writer.patch_errors = [NotFound("gone")]
    await status.submit(a_pod(), "A", "n1")
    status.patches.forget("uid-p")
    await status.answered()

    assert status.patches.snapshot() == set()


# -- cost --------------------------------------------------------------------------------------------------------------


class CountedDict(dict[str, object]):
    """Counts the keys that are iterated."""

    walked = 0

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            self.walked += 1
            yield key


async def test_many_submits_cost_as_much_as_one_each() -> None:
    """A submit or an answer never iterates over all waiting patches."""
    status = Patches()
    status.patches._pending = waiting = CountedDict()  # type: ignore[assignment]
    tasks = len(asyncio.all_tasks())
    await status.hold()
    for i in range(400):
        status.patches.submit(a_pod(f"p{i}"), condition("A"), None)
    await status.submit(a_pod("last"), "A")

    assert len(asyncio.all_tasks()) - tasks <= 2 * 16  # the patch, and its write, which is shielded
    await status.answered()
    assert (len(status.writer.conditions), status.writer.most_patching, len(status.patches)) == (401, 16, 0)
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


async def crowded(*names: str) -> SchedulerHarness:
    """As many patches of other pods are in flight as may be. Those of these pods wait."""
    sched = SchedulerHarness()
    sched.writer.patch_hold = asyncio.Event()
    sched.node("n1", cpu="1")
    for i in range(16):
        sched.pod(f"big{i}", cpu="64")
    await sched.settle()
    for name in names:
        sched.pod(name, cpu="2")
    await sched.settle()
    assert len(sched.parts.patches) == 16 + len(names)
    return sched


async def test_a_patch_that_waits_is_withdrawn_by_the_binding() -> None:
    sched = await crowded("p")
    assert sched.writer.patch_hold is not None

    sched.node("n2", cpu="4")
    await sched.later(5)
    assert sched.writer.wire == ["bind p"]
    sched.writer.patch_hold.set()
    await sched.settle()

    assert "patch p" not in sched.writer.wire


async def test_a_patch_that_waits_is_withdrawn_when_another_scheduler_binds_the_pod() -> None:
    sched = await crowded("p", "q")
    assert sched.writer.patch_hold is not None
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
