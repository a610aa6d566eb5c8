"""`status.nominatedNodeName` shows the node of an assumed pod before a step that may take long (docs/spec/core.md §3.12).

It is written only if PreBind has work or Permit holds the pod. It is cleared when the pod gives up the node, and no
nomination is written after the Binding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from scheduler.api.podinfo import PodInfo
from scheduler.core.errors import Unavailable
from scheduler.failure import UNTOLD_S
from scheduler.framework.interface import CycleState
from scheduler.framework.status import SKIP, Code, Rejection, Skip, Wait
from tests.unit.fake_plugins import BeforeBind, Holds
from tests.unit.harness import SchedulerHarness, with_pods
from tests.unit.scenarios.seen import nominations, with_plugins

NOT_HERE = Rejection("W", Code.UNSCHEDULABLE, ("not here",))
Step: TypeAlias = Callable[[SchedulerHarness, "Works"], None]


class Works(BeforeBind):
    """PreBind that waits for `go`. `flight` is the result of PreBindPreFlight: SKIP means that there is no work."""

    def __init__(self, name: str = "W", *, flight: Rejection | Skip | None = None, is_brief: bool = False) -> None:
        super().__init__(name)
        self.flight = flight
        self.is_brief = is_brief
        self.go = asyncio.Event()

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | Skip | None:
        self.log(f"flight {node_name}")
        return self.flight

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        self.log("pre_bind")
        await self.go.wait()
        assert not isinstance(self.answer, Exception)
        return self.answer


def brief() -> Works:
    """PreBind that usually takes a few seconds."""
    return Works(is_brief=True)


async def in_prebind(plugin: Works | None = None) -> tuple[SchedulerHarness, Works]:
    """Pod p is assumed on n1, and PreBind has begun."""
    plugin = plugin or Works()
    sched = with_pods(pre_bind=(plugin,))
    await sched.settle()
    return sched, plugin


# -- when it is written ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("works", "written"),
    [
        pytest.param([SKIP, SKIP], False, id="no PreBind plugin has work"),
        pytest.param([SKIP, None], True, id="one of two has work"),
        pytest.param([None, None], True, id="both have work"),
        pytest.param([], False, id="there is no PreBind plugin"),
    ],
)
async def test_preflight_of_all_plugins_is_called_once_before_any_wait(works: list[Skip | None], written: bool) -> None:
    sched = with_pods(pre_bind=tuple(Works(f"W{at}", flight=flight) for at, flight in enumerate(works)))
    await sched.settle()

    assert nominations(sched) == (["n1"] if written else [])
    assert [call for call in sched.calls if "flight" in call] == [f"W{at}.flight n1" for at in range(len(works))]
    assert sched.writer.wire == (["patch p"] if written else ["bind p"])


@pytest.mark.parametrize("code", [Code.ERROR, Code.UNSCHEDULABLE], ids=["it fails", "it rejects the pod"])
async def test_a_preflight_that_does_not_succeed_is_an_error_of_the_attempt(code: Code) -> None:
    sched = with_pods(pre_bind=(Works(flight=Rejection("W", code, ("boom",))),), reserve=(Holds("R"),))
    await sched.settle()

    assert nominations(sched) == []
    assert sched.message("p") == 'running PreBindPreFlight "W": boom'
    assert (sched.places(), sched.is_free()) == ({"p": "error backoff"}, True)
    assert sched.calls == ["R.reserve", "W.flight n1", "R.unreserve"]


async def test_a_nomination_that_the_status_has_is_not_written_again() -> None:
    works = Works()
    sched = with_pods("", pre_bind=(works,))
    sched.pod("p", nominated="n1")
    await sched.settle()
    works.go.set()
    await sched.settle()

    assert (nominations(sched), sched.writer.binds) == ([], [("default/p", "n1")])


async def test_an_assumed_pod_that_is_nominated_counts_once() -> None:
    sched = with_pods("", pre_bind=(Works(),))
    sched.pod("p", cpu="2")
    await sched.settle()
    sched.pod("p", cpu="2", nominated="n1")
    sched.pod("q", cpu="2")
    await sched.settle()

    assert sched.cluster.is_assumed("uid-q")
    assert sched.parts.queue.nominator.for_node("n1") == ()


# -- when it is cleared ------------------------------------------------------------------------------------------------


def reject(sched: SchedulerHarness, _works: Works) -> None:
    sched.parts.binder.waiting_pods.reject("uid-p", "A", "no")


def time_out(sched: SchedulerHarness, _works: Works) -> None:
    sched.clock.move(30)


def preempt(sched: SchedulerHarness, _works: Works) -> None:
    assert sched.parts.binder.preempt("uid-p", "DefaultPreemption")


def refuse(_sched: SchedulerHarness, works: Works) -> None:
    works.answer = NOT_HERE
    works.go.set()


def fail(_sched: SchedulerHarness, works: Works) -> None:
    works.answer = Rejection("W", Code.ERROR, ("boom",))
    works.go.set()


def fill_up(sched: SchedulerHarness, works: Works) -> None:
    sched.pod("theirs", cpu="4", on="n1", scheduler="theirs")
    works.go.set()


def lose_the_node(sched: SchedulerHarness, works: Works) -> None:
    sched.node_gone("n1")
    works.go.set()


def refuse_the_binding(sched: SchedulerHarness, works: Works) -> None:
    def refuses(*_: object) -> None:
        raise Unavailable("etcd is away")

    sched.writer.on_bind = refuses
    works.go.set()


ENDS = [
    pytest.param(True, reject, id="a Permit plugin rejects the pod"),
    pytest.param(True, time_out, id="Permit times out"),
    pytest.param(True, preempt, id="the pod is preempted at Permit"),
    pytest.param(False, preempt, id="the pod is preempted in PreBind"),
    pytest.param(False, refuse, id="PreBind rejects the pod"),
    pytest.param(False, fail, id="PreBind fails"),
    pytest.param(False, fill_up, id="the node is full before the Binding"),
    pytest.param(False, lose_the_node, id="the node is gone before the Binding"),
    pytest.param(False, refuse_the_binding, id="207 the Binding is refused"),
]


@pytest.mark.parametrize("shown", [True, False], ids=["and the watch has shown it", "and the watch is behind"])
@pytest.mark.parametrize(("waits", "end"), ENDS)
async def test_the_nomination_is_cleared_when_the_pod_gives_up_the_node(
    monkeypatch: pytest.MonkeyPatch, waits: bool, end: Step, shown: bool
) -> None:
    works = Works(flight=SKIP if waits else None)
    sched = with_plugins(monkeypatch, Holds("A", permits=Wait(30) if waits else None))
    sched.plug(pre_bind=(works,))
    sched.node("n1", cpu="4")
    sched.pod("p", cpu="2")
    await sched.settle()
    assert nominations(sched) == ["n1"]
    if shown:
        sched.pod("p", cpu="2", nominated="n1")
        await sched.settle()

    end(sched, works)
    await sched.settle()

    assert nominations(sched) == ["n1", ""]
    assert sched.parts.queue.nominator.node_of("uid-p") is None
    assert sched.is_free()
    assert sched.places() in [{"p": "unschedulable"}, {"p": "backoff"}, {"p": "error backoff"}]


async def test_pods_that_waited_for_the_place_are_woken_when_the_watch_shows_the_cleared_status() -> None:
    """Pods of lower priority have counted the nomination until then."""
    sched, works = await in_prebind()
    sched.pod("p", nominated="n1")
    fail(sched, works)
    await sched.settle()
    moved: list[object] = []
    move_all = sched.parts.queue.move_all

    def spy(event: Any, old: Any, new: Any, **more: Any) -> None:
        moved.append((event.label, old.key, new))
        move_all(event, old, new, **more)

    sched.parts.queue.move_all = spy  # type: ignore[method-assign]
    sched.pod("p", nominated="")

    assert moved == [("AssignedPodDelete", "default/p", None)]


# -- when the pod gets another node ------------------------------------------------------------------------------------


async def rejected_on_n1() -> tuple[SchedulerHarness, Works]:
    """PreBind has rejected the pod on n1, which is cordoned now. n2 is new."""
    sched, works = await in_prebind()
    sched.pod("p", nominated="n1")
    refuse(sched, works)
    await sched.settle()
    sched.node("n1", unschedulable=True)
    sched.node("n2")
    works.answer = None
    return sched, works


async def test_the_new_node_is_written_before_its_prebind() -> None:
    sched, works = await rejected_on_n1()
    works.go.clear()
    await sched.later(20)

    assert nominations(sched) == ["n1", "", "n2"]
    works.go.set()
    await sched.settle()
    assert sched.writer.binds == [("default/p", "n2")]


async def test_the_new_node_is_not_written_if_the_binding_follows_at_once() -> None:
    """The server clears the old nomination with the Binding."""
    sched, works = await rejected_on_n1()
    works.flight = SKIP
    await sched.later(20)

    assert nominations(sched) == ["n1", ""]
    assert sched.writer.wire[-1] == "bind p"


async def test_changes_while_a_nomination_is_on_the_wire_are_one_write() -> None:
    works = Works()
    sched = with_pods(pre_bind=(works,))
    sched.writer.patch_hold = asyncio.Event()
    await sched.settle()
    refuse(sched, works)
    await sched.settle()
    sched.node("n1", unschedulable=True)
    sched.node("n2")
    works.answer = None
    works.go.clear()
    await sched.later(20)
    assert sched.cluster.is_assumed("uid-p")

    sched.writer.patch_hold.set()
    await sched.settle()

    assert nominations(sched) == ["n1", "n2"]


@pytest.mark.parametrize("is_brief", [False, True], ids=["long work", "brief work"])
async def test_the_nomination_of_a_preemptor_moves_to_its_new_node_at_once(is_brief: bool) -> None:
    """The pod is nominated to n1, and n2 turns out to be free."""
    sched = with_pods("", nodes="n2", pre_bind=(Works(is_brief=is_brief),))
    sched.node("n1", unschedulable=True)
    sched.pod("p", nominated="n1")
    await sched.settle()

    assert nominations(sched) == ["n2"]
    assert sched.parts.queue.nominator.for_node("n1") == ()


# -- the order of nomination and Binding -------------------------------------------------------------------------------


async def test_a_nomination_that_waits_for_its_turn_is_dropped_by_the_binding() -> None:
    works = Works()
    sched = with_pods("", nodes="", pre_bind=(works,))
    sched.writer.patch_hold = asyncio.Event()
    for at in range(16):
        sched.pod(f"big{at}", cpu="64")
    sched.node("n1")
    await sched.settle()
    sched.pod("p")
    await sched.settle()
    assert len(sched.parts.patches) == 17

    works.go.set()
    await sched.settle()
    assert sched.writer.wire == ["bind p"]
    sched.writer.patch_hold.set()
    await sched.settle()

    assert nominations(sched) == []


async def test_the_binding_waits_for_a_nomination_on_the_wire() -> None:
    works = Works()
    sched = with_pods(pre_bind=(works,))
    sched.writer.patch_hold = asyncio.Event()
    works.go.set()
    await sched.settle()
    assert sched.writer.wire == []

    sched.writer.patch_hold.set()
    await sched.settle()

    assert sched.writer.wire == ["patch p", "bind p"]


async def test_a_nomination_that_could_not_be_written_does_not_stop_the_binding() -> None:
    works = Works()
    sched = with_pods(pre_bind=(works,))
    sched.writer.patch_errors = [Unavailable("etcd is away")]
    works.go.set()
    await sched.settle()

    assert (nominations(sched), sched.writer.binds) == ([], [("default/p", "n1")])


async def test_no_nomination_is_cleared_of_a_deleted_pod() -> None:
    sched, works = await in_prebind()
    sched.gone("p")
    fail(sched, works)
    await sched.settle()

    assert nominations(sched) == ["n1"]
    assert (sched.is_free(), sched.places(), len(sched.parts.patches)) == (True, {}, 0)


# -- PreBind that is brief ---------------------------------------------------------------------------------------------


async def test_the_nomination_of_brief_work_is_written_after_half_a_minute() -> None:
    sched, _ = await in_prebind(brief())
    await sched.later(UNTOLD_S - 1)
    assert nominations(sched) == []
    await sched.later(2)

    assert nominations(sched) == ["n1"]


@pytest.mark.parametrize("step", [None, refuse], ids=["it is done in time", "it rejects the pod in time"])
async def test_no_nomination_is_written_if_brief_work_ends_in_time(step: Step | None) -> None:
    sched, works = await in_prebind(brief())
    await sched.later(0.5)
    (step or (lambda *_: works.go.set()))(sched, works)
    await sched.settle()
    sched.node("n1", unschedulable=True)
    await sched.later(30)

    assert nominations(sched) == []
    assert sched.writer.binds == ([("default/p", "n1")] if step is None else [])


async def test_the_nomination_of_a_pod_that_was_unschedulable_is_written_after_a_second() -> None:
    """An autoscaler adds nodes for pods with that condition."""
    sched = with_pods("", nodes="", pre_bind=(brief(),))
    sched.pod("p", cpu="2")
    await sched.settle()
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
    sched.pod("p", cpu="2", conditions=[condition])
    sched.node("n1")
    await sched.later(20)
    assert sched.cluster.is_assumed("uid-p")
    await sched.later(2)

    assert nominations(sched) == ["n1"]


@pytest.mark.parametrize("is_brief", [(False, True), (True, False)], ids=["first", "last"])
async def test_one_plugin_with_long_work_has_the_nomination_written_at_once(is_brief: tuple[bool, bool]) -> None:
    sched = with_pods(pre_bind=tuple(Works(f"W{each}", is_brief=each) for each in is_brief))
    await sched.settle()

    assert nominations(sched) == ["n1"]
