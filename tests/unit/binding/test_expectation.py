"""Where a pod is about to go, said in status.nominatedNodeName before what may take long (docs/spec/core.md §3.12).

Written only if PreBind has work or Permit holds the pod; taken back whenever the plan changes; never behind a Binding.
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
from tests.unit.harness import SchedulerHarness
from tests.unit.scenarios.seen import with_plugins

NOT_HERE = Rejection("W", Code.UNSCHEDULABLE, ("not here",))
Step: TypeAlias = Callable[[SchedulerHarness, "Works"], None]


class Works(BeforeBind):
    """PreBind that takes until told to go on, and may be without work."""

    def __init__(self, name: str = "W", *, flight: Rejection | Skip | None = None) -> None:
        super().__init__(name)
        self.flight = flight
        self.go = asyncio.Event()

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | Skip | None:
        self.log(f"flight {node_name}")
        return self.flight

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Rejection | None:
        await self.go.wait()
        assert not isinstance(self.answer, Exception)
        return self.answer


def nominations(sched: SchedulerHarness) -> list[str]:
    """What was written for p, in order."""
    return [node for key, node in sched.writer.nominations if key == "default/p"]


async def on_its_way(sched: SchedulerHarness, **plugins: tuple[Any, ...]) -> None:
    """Pod p is assumed on n1, and whatever the plugins say keeps it from its Binding."""
    sched.plug(**plugins)
    sched.node("n1")
    sched.pod("p")
    await sched.settle()


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
async def test_the_plugins_are_asked_first(works: list[Skip | None], written: bool) -> None:
    """Once for all of them, before anything is waited for."""
    sched = SchedulerHarness()
    plugins = tuple(Works(f"W{at}", flight=flight) for at, flight in enumerate(works))
    await on_its_way(sched, pre_bind=plugins)

    assert nominations(sched) == (["n1"] if written else [])
    assert sched.calls == [f"W{at}.flight n1" for at in range(len(works))]
    assert sched.writer.wire == (["patch p"] if written else ["bind p"])


@pytest.mark.parametrize(
    "flight",
    [
        pytest.param(Rejection("W", Code.ERROR, ("boom",)), id="it fails"),
        pytest.param(Rejection("W", Code.UNSCHEDULABLE, ("no",)), id="it says no, which is not for it to say"),
    ],
)
async def test_a_plugin_that_cannot_tell_costs_the_attempt(flight: Rejection) -> None:
    """Nothing is said of a place that the pod does not get; what it held is given back."""
    sched = SchedulerHarness()
    await on_its_way(sched, pre_bind=(Works(flight=flight),), reserve=(Holds("R"),))

    assert nominations(sched) == []
    assert sched.message("p") == f'running PreBindPreFlight "W": {flight.reasons[0]}'
    assert (sched.places(), sched.is_free()) == ({"p": "error backoff"}, True)
    assert sched.calls == ["R.reserve", "W.flight n1", "R.unreserve"]


async def test_what_the_pod_says_already_is_not_written_again() -> None:
    sched = SchedulerHarness()
    works = Works()
    sched.plug(pre_bind=(works,))
    sched.node("n1")
    sched.pod("p", nominated="n1")
    await sched.settle()
    works.go.set()
    await sched.settle()

    assert (nominations(sched), sched.writer.binds) == ([], [("default/p", "n1")])


async def test_the_place_is_held_once() -> None:
    """The pod is assumed there; that its status says so, too, does not make it two."""
    sched = SchedulerHarness()
    works = Works()
    sched.plug(pre_bind=(works,))
    sched.node("n1", cpu="4")
    sched.pod("p", cpu="2")
    await sched.settle()
    sched.pod("p", cpu="2", nominated="n1")
    sched.pod("q", cpu="2")
    await sched.settle()

    assert sched.cluster.is_assumed("uid-q")
    assert sched.parts.queue.nominator.for_node("n1") == ()


# -- when it is taken back ---------------------------------------------------------------------------------------------


def reject(sched: SchedulerHarness, _works: Works) -> None:
    sched.parts.binder.permits.reject("uid-p", "A", "no")


def time_is_over(sched: SchedulerHarness, _works: Works) -> None:
    sched.clock.move(30)


def take_it(sched: SchedulerHarness, _works: Works) -> None:
    assert sched.parts.binder.preempt("uid-p", "DefaultPreemption")


def say_no(_sched: SchedulerHarness, works: Works) -> None:
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
    pytest.param(True, reject, id="a Permit plugin rejects it"),
    pytest.param(True, time_is_over, id="nobody allows it in time"),
    pytest.param(True, take_it, id="a more important pod takes its place at Permit"),
    pytest.param(False, take_it, id="a more important pod takes its place in PreBind"),
    pytest.param(False, say_no, id="PreBind says no"),
    pytest.param(False, fail, id="PreBind fails"),
    pytest.param(False, fill_up, id="the node is full at the second look"),
    pytest.param(False, lose_the_node, id="the node has gone at the second look"),
    pytest.param(False, refuse_the_binding, id="the Binding is refused"),
]


@pytest.mark.parametrize("shown", [True, False], ids=["and the watch has shown it", "and the watch is behind"])
@pytest.mark.parametrize(("waits", "end"), ENDS)
async def test_a_place_that_the_pod_does_not_get(
    monkeypatch: pytest.MonkeyPatch, waits: bool, end: Step, shown: bool
) -> None:
    """It holds nothing there any more, and whoever reads its status is told."""
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


async def test_whom_the_place_was_held_from_is_told_when_the_watch_shows_it() -> None:
    """Pods of lower priority have counted the nomination since: the status that is cleared is what ends it."""
    sched = SchedulerHarness()
    works = Works()
    await on_its_way(sched, pre_bind=(works,))
    sched.pod("p", nominated="n1")
    fail(sched, works)
    await sched.settle()
    told: list[object] = []
    move_all = sched.parts.queue.move_all

    def spy(event: Any, old: Any, new: Any, **more: Any) -> None:
        told.append((event.label, old.key, new))
        move_all(event, old, new, **more)

    sched.parts.queue.move_all = spy  # type: ignore[method-assign]
    sched.pod("p", nominated="")

    assert told == [("AssignedPodDelete", "default/p", None)]


# -- when the plan changes ---------------------------------------------------------------------------------------------


async def failed_on_n1(sched: SchedulerHarness, works: Works) -> None:
    """It was to go to n1, which PreBind refused; n1 is cordoned by now, and n2 is there."""
    await on_its_way(sched, pre_bind=(works,))
    sched.pod("p", nominated="n1")
    say_no(sched, works)
    await sched.settle()
    sched.node("n1", unschedulable=True)
    sched.node("n2")
    works.answer = None


async def test_another_node_is_said_before_its_own_work() -> None:
    sched = SchedulerHarness()
    works = Works()
    await failed_on_n1(sched, works)
    works.go.clear()
    await sched.later(20)

    assert nominations(sched) == ["n1", "", "n2"]
    works.go.set()
    await sched.settle()
    assert sched.writer.binds == [("default/p", "n2")]


async def test_another_node_needs_no_word_if_the_binding_follows_at_once() -> None:
    """The server clears the old one with the Binding."""
    sched = SchedulerHarness()
    works = Works()
    await failed_on_n1(sched, works)
    works.flight = SKIP
    await sched.later(20)

    assert nominations(sched) == ["n1", ""]
    assert sched.writer.wire[-1] == "bind p"


async def test_a_change_of_plan_that_the_wire_has_not_seen_is_one_write() -> None:
    """While the first word is on the wire the plan fails and another is made: the last one counts."""
    sched = SchedulerHarness()
    works = Works()
    sched.writer.patch_hold = asyncio.Event()
    await on_its_way(sched, pre_bind=(works,))
    say_no(sched, works)
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


async def test_a_preemptors_nomination_gives_way_to_where_it_goes() -> None:
    """Room was made on n1, and n2 turned out to be free: n1 is no longer waited for."""
    sched = SchedulerHarness()
    works = Works()
    sched.plug(pre_bind=(works,))
    sched.node("n1", unschedulable=True)
    sched.node("n2")
    sched.pod("p", nominated="n1")
    await sched.settle()

    assert nominations(sched) == ["n2"]
    assert sched.parts.queue.nominator.for_node("n1") == ()


# -- never behind a Binding --------------------------------------------------------------------------------------------


async def test_a_word_that_still_waits_gives_way_to_the_binding() -> None:
    """Other pods' patches are before it; when PreBind is done the Binding goes, and the word is never sent."""
    sched = SchedulerHarness()
    sched.writer.patch_hold = asyncio.Event()
    works = Works()
    sched.plug(pre_bind=(works,))
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


async def test_a_word_on_the_wire_is_waited_for() -> None:
    sched = SchedulerHarness()
    sched.writer.patch_hold = asyncio.Event()
    works = Works()
    await on_its_way(sched, pre_bind=(works,))
    works.go.set()
    await sched.settle()
    assert sched.writer.wire == []

    sched.writer.patch_hold.set()
    await sched.settle()

    assert sched.writer.wire == ["patch p", "bind p"]


async def test_a_word_that_could_not_be_written_stops_nothing() -> None:
    sched = SchedulerHarness()
    sched.writer.patch_errors = [Unavailable("etcd is away")]
    works = Works()
    await on_its_way(sched, pre_bind=(works,))
    works.go.set()
    await sched.settle()

    assert (nominations(sched), sched.writer.binds) == ([], [("default/p", "n1")])


async def test_a_pod_deleted_on_its_way_is_told_nothing_more() -> None:
    sched = SchedulerHarness()
    works = Works()
    await on_its_way(sched, pre_bind=(works,))
    sched.gone("p")
    fail(sched, works)
    await sched.settle()

    assert nominations(sched) == ["n1"]
    assert (sched.is_free(), sched.places(), len(sched.parts.patches)) == (True, {}, 0)


# -- what is brief as a rule ---------------------------------------------------------------------------------------------


class Brief(Works):
    """Mostly done within seconds."""

    is_brief = True


async def test_what_is_brief_and_done_in_time_is_not_said() -> None:
    sched = SchedulerHarness()
    works = Brief()
    await on_its_way(sched, pre_bind=(works,))
    await sched.later(0.5)
    works.go.set()
    await sched.settle()
    await sched.later(5)

    assert (nominations(sched), sched.writer.binds) == ([], [("default/p", "n1")])


async def test_what_was_to_be_brief_and_is_not_is_said_after_half_a_minute() -> None:
    sched = SchedulerHarness()
    await on_its_way(sched, pre_bind=(Brief(),))
    await sched.later(UNTOLD_S - 1)
    assert nominations(sched) == []
    await sched.later(2)

    assert nominations(sched) == ["n1"]


async def test_of_a_pod_that_was_told_to_fit_nowhere_it_is_said_after_a_second() -> None:
    """Its condition asks autoscalers for a node that it does not need any more."""
    sched = SchedulerHarness()
    sched.plug(pre_bind=(Brief(),))
    sched.pod("p", cpu="2")
    await sched.settle()
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
    sched.pod("p", cpu="2", conditions=[condition])
    sched.node("n1")
    await sched.later(20)
    assert sched.cluster.is_assumed("uid-p")
    await sched.later(2)

    assert nominations(sched) == ["n1"]


@pytest.mark.parametrize("plugins", [(Works("W"), Brief("B")), (Brief("B"), Works("W"))], ids=["first", "last"])
async def test_one_that_is_not_brief_has_it_said_at_once_also_if_it_comes(plugins: tuple[Works, ...]) -> None:
    sched = SchedulerHarness()
    await on_its_way(sched, pre_bind=plugins)

    assert nominations(sched) == ["n1"]


async def test_a_pod_that_says_another_node_is_put_right_at_once() -> None:
    sched = SchedulerHarness()
    sched.plug(pre_bind=(Brief(),))
    sched.node("n1", unschedulable=True)
    sched.node("n2")
    sched.pod("p", nominated="n1")
    await sched.settle()

    assert nominations(sched) == ["n2"]


async def test_a_failure_before_the_second_is_over_leaves_nothing_to_be_said() -> None:
    sched = SchedulerHarness()
    works = Brief()
    await on_its_way(sched, pre_bind=(works,))
    works.answer = NOT_HERE
    works.go.set()
    await sched.settle()
    sched.node("n1", unschedulable=True)
    await sched.later(30)

    assert "n1" not in nominations(sched)
