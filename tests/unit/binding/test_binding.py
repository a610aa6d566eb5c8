"""The background half: what happens between the decision and the bound pod (docs/spec/core.md §3.8, §3.12, §9.8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import CapturingLogger

from scheduler import binding as underway
from scheduler.api.core_v1 import Pod
from scheduler.binding import PodWatch
from scheduler.core.errors import Ambiguous, ApiError, Conflict, Forbidden, NotFound, TooManyRequests, Unavailable
from scheduler.framework.status import AttemptError, Code, Rejection, Wait
from tests.unit.fake_plugins import AfterBind, BeforeBind, FakePlugin, Holds
from tests.unit.harness import SchedulerHarness, manifest, typed


def refuse_once(sched: SchedulerHarness, error: ApiError) -> None:
    """The first bind fails, later ones succeed."""

    def answer(pod: Pod, node_name: str) -> None:
        if len(sched.writer.binds) == 1:
            raise error

    sched.writer.on_bind = answer


async def test_199_a_pod_is_bound_and_said_so() -> None:
    """Binding, event; no condition, because the server sets it."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("p")

    await sched.settle()

    assert sched.writer.binds == [("default/p", "n1")]
    assert [(e.type_, e.reason, e.action, e.note) for e in sched.recorder.events] == [
        ("Normal", "Scheduled", "Binding", "Successfully assigned default/p to n1")
    ]
    assert sched.writer.conditions == []
    assert sched.parts.cluster.is_assumed("uid-p")


async def test_71_the_watch_confirms_the_assumption() -> None:
    """One pod on the node, no longer assumed, nothing left in the queue."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("p")
    await sched.settle()

    sched.pod("p", on="n1")

    assert sched.parts.cluster.sizes() == {"nodes": 1, "pods": 1, "assumed_pods": 0}
    assert sched.places() == {}
    assert int(sched.parts.cluster.nodes.pod_count.sum()) == 1


@pytest.mark.parametrize(
    ("error", "server", "outcome"),
    [
        pytest.param(Unavailable("500"), {}, "error backoff", id="202 a server error: error back-off"),
        pytest.param(Forbidden("no"), {}, "error backoff", id="a missing permission: error back-off"),
        pytest.param(NotFound("gone"), {}, None, id="the pod is gone: dropped"),
        pytest.param(
            NotFound("no such thing"), {"cpu": "1"}, "error backoff", id="something else is gone: error back-off"
        ),
        pytest.param(Conflict("taken"), {"on": "elsewhere"}, None, id="200 bound by somebody else: dropped"),
        pytest.param(Conflict("taken"), {"deleting": True}, None, id="201 being deleted: dropped"),
        pytest.param(Conflict("taken"), {"uid": "another"}, None, id="203 recreated meanwhile: dropped"),
        pytest.param(Conflict("odd"), {"cpu": "1"}, "error backoff", id="a conflict without a cause: error back-off"),
    ],
)
async def test_a_refused_bind_is_undone(error: ApiError, server: dict[str, object], outcome: str | None) -> None:
    """Whatever the refusal, plugins give back what they held, the place is free and the pod is where it belongs."""
    sched = SchedulerHarness()
    sched.plug(reserve=(Holds("R"),))
    sched.node("n1")
    sched.pod("p")
    if server:
        sched.writer.server["default/p"] = typed(manifest("p", **server))
    refuse_once(sched, error)

    await sched.settle()

    assert sched.calls == ["R.reserve", "R.unreserve"]
    assert sched.parts.cluster.sizes()["assumed_pods"] == 0
    assert sched.places().get("p") == outcome
    assert len(sched.writer.binds) == 1


async def test_an_error_is_retried_after_the_error_back_off_with_event_and_condition() -> None:
    """§3.8: reason SchedulerError, and the second attempt succeeds."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("p")
    refuse_once(sched, Unavailable("etcd is away"))

    await sched.settle()
    assert sched.writer.conditions[0][1].reason == "SchedulerError"
    assert sched.message("p") == 'running Bind plugin "DefaultBinder": etcd is away'
    await sched.later(2.5)

    assert [node for _, node in sched.writer.binds] == ["n1", "n1"]


@pytest.mark.parametrize("committed", [True, False], ids=["it was carried out", "it was not"])
async def test_a_lost_answer_is_settled_by_reading(committed: bool) -> None:
    """Never guessed: carried out means bound; otherwise the same node is tried again while the place is still held."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.node("n2")
    sched.pod("p")
    refuse_once(sched, Ambiguous("reset"))
    sched.writer.on_read = lambda: sched.writer.server.update(
        {"default/p": typed(manifest("p", on=sched.writer.binds[0][1] if committed else ""))}
    )

    await sched.settle()

    assert len({node for _, node in sched.writer.binds}) == 1
    assert len(sched.writer.binds) == (1 if committed else 2)
    assert [e.reason for e in sched.recorder.events] == ["Scheduled"]


async def test_reading_is_repeated_until_the_server_answers() -> None:
    """The assumption stays while the outcome is unknown."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("p")
    refuse_once(sched, Ambiguous("reset"))
    reads = 0

    def away_twice() -> None:
        nonlocal reads
        reads += 1
        if reads <= 2:
            raise Unavailable("away")
        sched.writer.server["default/p"] = typed(manifest("p", on="n1"))

    sched.writer.on_read = away_twice

    await sched.settle()
    assert sched.parts.cluster.is_assumed("uid-p")
    await sched.later(0.2)
    await sched.later(1)

    assert reads == 3
    assert [e.reason for e in sched.recorder.events] == ["Scheduled"]


def unreadable(sched: SchedulerHarness) -> list[ApiError]:
    """Reads fail for as long as the list that is returned is not empty."""
    away: list[ApiError] = [Unavailable("the server is away")]

    def read() -> None:
        if away:
            raise away[0]

    sched.writer.on_read = read
    return away


@pytest.mark.parametrize(
    ("told", "binds", "places", "events"),
    [
        pytest.param("read: bound", 1, {}, ["Scheduled"], id="a read tells that it was carried out"),
        pytest.param("read: not bound", 2, {}, ["Scheduled"], id="a read tells that it was not: sent again"),
        pytest.param("read: elsewhere", 1, {}, [], id="a read shows the pod on another node"),
        pytest.param("watch: bound", 1, {}, ["Scheduled"], id="the watch shows it on the node"),
        pytest.param("watch: elsewhere", 1, {}, [], id="the watch shows it on another node"),
        pytest.param("watch: deleted", 1, {}, [], id="the watch shows that the pod is gone"),
    ],
)
async def test_an_unknown_outcome_keeps_the_place_until_a_read_or_the_watch_tells(
    told: str, binds: int, places: dict[str, str], events: list[str]
) -> None:
    """Half an hour without an answer: the pod that waits for the room does not get it."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.pod("p", cpu="1")
    refuse_once(sched, Ambiguous("reset"))
    away = unreadable(sched)
    await sched.settle()
    sched.pod("waits", cpu="1")
    for _ in range(180):
        await sched.later(10)
    assert (sched.cluster.is_assumed("uid-p"), len(sched.writer.binds)) == (True, 1)

    who, _, what = told.partition(": ")
    on = {"bound": "n1", "elsewhere": "other"}.get(what, "")
    if who == "read":
        away.clear()
        sched.writer.server["default/p"] = typed(manifest("p", cpu="1", on=on))
    elif what == "deleted":
        sched.gone("p")
    else:
        sched.pod("p", cpu="1", on=on)
    await sched.later(11)
    await sched.later(11)

    binds_of_p = [node for key, node in sched.writer.binds if key == "default/p"]
    about_p = [e.reason for e in sched.recorder.events if e.pod == "default/p"]
    assert (binds_of_p, about_p) == (["n1"] * binds, events)
    assert "p" not in sched.places()
    assert (("default/waits", "n1") in sched.writer.binds) == (what in {"elsewhere", "deleted"})
    assert sched.parts.binder.remark() == ""


async def test_an_unknown_outcome_is_logged_each_minute_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line a minute for all of them, with the oldest; an error is cut at 1 KiB."""
    logger = CapturingLogger()
    monkeypatch.setattr(underway, "_log", logger)
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("p")
    sched.pod("q")
    unreadable(sched)[0].message = "x" * 5000

    def lost(pod: Pod, node_name: str) -> None:
        raise Ambiguous("reset")

    sched.writer.on_bind = lost
    await sched.settle()
    for _ in range(140):
        await sched.later(1)

    assert [(call.kwargs["count"], call.kwargs["pod"], call.kwargs["node"]) for call in logger.calls] == [
        (2, "default/p", "n1"),
        (2, "default/p", "n1"),
    ]
    assert [len(call.kwargs["error"]) for call in logger.calls] == [1024, 1024]
    shown = sched.parts.binder.remark()
    assert shown.startswith("the outcome of 2 bindings is unknown, the oldest is default/p to n1, for 140 s: xxx")


@pytest.mark.parametrize(
    ("lost_s", "binds"),
    [
        pytest.param(10.0, 1, id="an ordinary reconnect delays nothing"),
        pytest.param(10.5, 0, id="disconnected for longer: nothing is sent"),
    ],
)
async def test_no_binding_is_sent_while_the_watch_of_pods_is_disconnected(lost_s: float, binds: int) -> None:
    """Once it is connected the node is looked at again: others may have bound pods to it."""
    sched = SchedulerHarness(pod_watch=PodWatch(disconnected_s=lambda: lost_s))
    sched.node("n1", cpu="1")
    sched.pod("p", cpu="1")
    await sched.settle()
    await sched.later(1)
    assert len(sched.writer.binds) == binds
    if binds:
        assert sched.parts.binder.remark() == ""
        return
    assert sched.parts.binder.remark() == ("no Binding is sent: the watch of pods has been disconnected for 10 s")

    lost_s = 0.0
    sched.pod("theirs", cpu="1", on="n1", scheduler="default-scheduler")
    await sched.later(1)

    assert (sched.writer.binds, sched.places()) == ([], {"p": "unschedulable"})


async def test_an_unforeseen_exception_costs_one_attempt() -> None:
    """A bug in a binding is logged with the pod and retried; nothing else suffers."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.pod("p")
    sched.pod("q")

    def answer(pod: Pod, node_name: str) -> None:
        if pod.metadata.name == "p" and len(sched.writer.binds) < 3:
            raise ZeroDivisionError

    sched.writer.on_bind = answer

    await sched.settle()
    await sched.later(2.5)

    assert sched.writer.binds[-1] == ("default/p", "n1")
    assert ("default/q", "n1") in sched.writer.binds


async def test_205_an_assumed_pod_that_is_deleted_gives_its_place_back_at_once() -> None:
    """Others are woken before the binding has even failed."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.writer.hold = asyncio.Event()
    sched.pod("p", cpu="1")
    await sched.settle()
    sched.pod("q", cpu="1")
    await sched.settle()
    assert sched.places()["q"] == "unschedulable"

    sched.gone("p")
    await sched.later(2.5)

    assert sched.parts.cluster.is_assumed("uid-q")
    sched.writer.hold.set()
    await sched.settle()
    assert ("default/q", "n1") in sched.writer.binds


@pytest.mark.parametrize(
    ("lost_s", "error", "binds"),
    [
        pytest.param(0.0, Ambiguous("reset"), 1, id="an unknown outcome, which the next process reads"),
        pytest.param(60.0, None, 0, id="the watch of pods, without which no Binding is sent"),
        pytest.param(0.0, TooManyRequests("busy", retry_after_s=600.0), 1, id="a busy server"),
    ],
)
async def test_draining_does_not_wait_for(lost_s: float, error: ApiError | None, binds: int) -> None:
    """A pod whose Binding was not sent gives its place back at the limit."""
    sched = SchedulerHarness(pod_watch=PodWatch(disconnected_s=lambda: lost_s))
    sched.node("n1")
    sched.pod("p")
    if error is not None:
        refuse_once(sched, error)
        unreadable(sched)
    await sched.settle()
    draining = asyncio.ensure_future(sched.parts.binder.drain(5))
    await sched.turns()
    sched.clock.move(6)
    await sched.settle()

    assert draining.done()
    assert (len(sched.writer.binds), sched.is_free()) == (binds, True)
    assert bool(sched.parts.binder.remark()) is (error is None)


async def test_draining_waits_for_what_was_sent() -> None:
    """A Binding on the wire is awaited to its answer even when its task is cancelled."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.writer.hold = asyncio.Event()
    sched.pod("p")
    await sched.settle()
    draining = asyncio.ensure_future(sched.parts.binder.drain(5))
    await sched.turns()

    sched.clock.move(6)
    await sched.turns()
    assert not draining.done()
    sched.writer.hold.set()

    await asyncio.wait_for(draining, 30)
    assert sched.writer.binds == [("default/p", "n1")]


@pytest.mark.parametrize("before", ["the turn", "the answer"])
async def test_draining_ends_though_the_server_never_answers(before: str) -> None:
    """Pods that wait for their turn are given up at the limit; what is on the wire some seconds later."""
    sched = SchedulerHarness()
    sched.node("n1")
    never = asyncio.Event()
    if before == "the turn":
        sched.writer.turn_hold = never
    else:
        sched.writer.hold = never
    sched.pod("p")
    await sched.settle()
    draining = asyncio.ensure_future(sched.parts.binder.drain(5))
    await sched.turns()

    sched.clock.move(6)
    await sched.turns()
    assert draining.done() == (before == "the turn")
    sched.clock.move(10)
    await sched.turns()

    assert draining.done()
    assert await draining == 1
    assert sched.writer.binds == []


async def test_a_pod_whose_turn_never_came_gives_its_place_back() -> None:
    """Cancelled between writes: as if the attempt had failed."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.writer.turn_hold = asyncio.Event()
    sched.pod("p")
    await sched.settle()

    draining = asyncio.ensure_future(sched.parts.binder.drain(0))
    await sched.turns()
    sched.clock.move(1)
    await sched.settle()
    await draining

    assert sched.is_free()
    assert sched.places() == {"p": "error backoff"}


# -- the wait for a token and a busy server ----------------------------------------------------------------------------


@pytest.mark.parametrize("filled", [False, True], ids=["the node still has room", "the node filled up meanwhile"])
async def test_a_busy_server_is_waited_for_and_then_all_is_looked_at_again(filled: bool) -> None:
    """429 with Retry-After: the wait, a turn of its own, a second look, and only then the next POST."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="2")
    refuse_once(sched, TooManyRequests("busy", retry_after_s=2.0))
    sched.pod("p", cpu="2")
    await sched.settle()
    await sched.later(1.5)
    assert (len(sched.writer.binds), sched.writer.turns) == (1, 1)
    assert sched.cluster.is_assumed("uid-p")
    if filled:
        sched.pod("other", cpu="2", on="n1", scheduler="default-scheduler")

    await sched.later(1)

    assert sched.writer.turns == 2
    assert len(sched.writer.binds) == (1 if filled else 2)
    assert sched.places() == ({"p": "unschedulable"} if filled else {})


@pytest.mark.parametrize(
    ("retry_after_s", "posts"),
    [
        pytest.param(None, 1, id="a server that does not say for how long: error back-off at once"),
        pytest.param(1.0, 10, id="ten tries, as client-go"),
    ],
)
async def test_patience_with_a_busy_server_ends(retry_after_s: float | None, posts: int) -> None:
    sched = SchedulerHarness()
    sched.node("n1")

    def busy(pod: Pod, node_name: str) -> None:
        raise TooManyRequests("busy", retry_after_s=retry_after_s)

    sched.writer.on_bind = busy
    sched.pod("p")
    await sched.settle()
    for _ in range(posts - 1):
        assert sched.cluster.is_assumed("uid-p")
        await sched.later(1)

    assert len(sched.writer.binds) == posts
    assert sched.is_free()
    assert sched.places() == {"p": "error backoff"}
    assert sched.message("p") == 'running Bind plugin "DefaultBinder": busy'


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        pytest.param(Code.UNSCHEDULABLE, "Unschedulable", "not today", id="a rejection: in its own words"),
        pytest.param(Code.ERROR, "SchedulerError", 'running Bind plugin "Mine": not today', id="a failure"),
    ],
)
async def test_a_bind_plugin_that_says_no(code: Code, reason: str, message: str) -> None:
    """§3.8: error back-off, whatever it says."""

    class Mine(FakePlugin):
        async def bind(self, *_: object) -> Rejection:
            return Rejection(self.name, code, ("not today",))

    sched = SchedulerHarness()
    sched.plug(bind=(Mine("Mine"),))
    sched.node("n1")
    sched.pod("p")
    await sched.settle()

    assert [(told.reason, told.message) for _, told in sched.writer.conditions] == [(reason, message)]
    assert (sched.is_free(), sched.places()) == (True, {"p": "error backoff"})


# -- Permit ------------------------------------------------------------------------------------------------------------


async def test_a_pod_deleted_right_after_its_decision_leaves_permit() -> None:
    """The deletion comes before the binding task has run for the first time."""
    sched = SchedulerHarness()
    sched.plug(permit=(Holds("A", permits=Wait(600)),))
    sched.node("n1")
    sched.pod("p")
    await sched.parts.loop.step()
    sched.gone("p")

    await sched.settle()

    assert sched.is_free()
    assert (sched.writer.binds, sched.places()) == ([], {})


# -- PreBind -----------------------------------------------------------------------------------------------------------


NO_WAY = Rejection("B", Code.UNSCHEDULABLE, ("no way",))


@pytest.mark.parametrize("error", [KeyError("bug"), AttemptError("disk is away")], ids=["a bug", "a failure"])
@pytest.mark.parametrize("is_first", [True, False], ids=["the rejection first", "the rejection last"])
async def test_a_rejection_beside_a_failing_sibling_stays_a_rejection(error: Exception, is_first: bool) -> None:
    """PreBind plugins that run beside each other: an answer about the pod outweighs a failure."""
    sched = SchedulerHarness()
    plugins = [BeforeBind("A", answer=NO_WAY), BeforeBind("B", answer=error)]
    for plugin in plugins:
        plugin.pre_bind_parallel = True
    sched.plug(pre_bind=tuple(plugins if is_first else reversed(plugins)))
    sched.node("n1")
    sched.pod("p")

    await sched.settle()

    assert sorted(sched.calls) == ["A.pre_bind", "B.pre_bind"]
    assert [(said.reason, said.message) for _, said in sched.writer.conditions] == [("Unschedulable", "no way")]


# -- whatever happens, the pod keeps its place or its node -------------------------------------------------------------


async def test_an_unreserve_that_raises_loses_nothing() -> None:
    """The pod is retried, the node's room is free, and the other plugins are unreserved."""

    class Breaks(Holds):
        def unreserve(self, *_: object) -> None:
            raise RuntimeError("boom")

    sched = SchedulerHarness()
    sched.plug(reserve=(Holds("A"), Breaks("B")))
    sched.node("n1")
    refuse_once(sched, Unavailable("500"))
    sched.pod("p", cpu="4")

    await sched.settle()
    assert sched.is_free()
    assert sched.places() == {"p": "error backoff"}
    assert sched.calls == ["A.reserve", "B.reserve", "A.unreserve"]
    await sched.later(2.5)

    assert len(sched.writer.binds) == 2
    assert sched.places() == {}


@pytest.mark.parametrize(
    "error", [Unavailable("500"), Forbidden("no"), KeyError("bug")], ids=lambda e: type(e).__name__
)
async def test_an_error_after_the_watch_has_shown_the_pod_bound_is_none(error: Exception) -> None:
    """The server committed and then failed to say so: nothing of a bound pod is unreserved."""
    sched = SchedulerHarness()
    sched.plug(reserve=(Holds("A"),))
    sched.node("n1")

    def commits(pod: Pod, node_name: str) -> None:
        sched.pod("p", on=node_name)
        raise error

    sched.writer.on_bind = commits
    sched.pod("p")

    await sched.settle()

    assert sched.calls == ["A.reserve"]
    assert [event.reason for event in sched.recorder.events] == ["Scheduled"]
    assert (sched.cluster.sizes()["pods"], sched.places(), sched.writer.conditions) == (1, {}, [])
    assert sched.is_free()


async def test_a_late_commit_of_a_lost_binding_counts_though_the_second_look_says_no() -> None:
    """Lost, read as unbound, then carried out after all and confirmed, while the node fills up: the pod is bound."""
    sched = SchedulerHarness()
    sched.plug(reserve=(Holds("A"),))
    sched.node("n1", cpu="2")
    sched.pod("p", cpu="1")

    def lost(pod: Pod, node_name: str) -> None:
        raise Ambiguous("reset")

    def read() -> None:
        sched.writer.server["default/p"] = typed(manifest("p"))
        sched.pod("p", cpu="1", on="n1")
        sched.pod("theirs", cpu="2", on="n1", scheduler="default-scheduler")

    sched.writer.on_bind, sched.writer.on_read = lost, read

    await sched.settle()

    assert sched.calls == ["A.reserve"]
    assert [event.reason for event in sched.recorder.events] == ["Scheduled"]
    assert sched.places() == {}


async def test_a_pod_that_turns_unreadable_on_its_way_gets_no_condition_behind_its_binding() -> None:
    """The server would keep PodScheduled=False on a bound pod."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.writer.hold = asyncio.Event()
    sched.pod("p")
    await sched.settle()
    sched.pod("p", cpu="bad!")
    sched.writer.hold.set()
    await sched.settle()

    assert sched.writer.wire == ["bind p"]


@pytest.mark.parametrize(
    ("ends", "free"),
    [
        pytest.param({"on": "n1"}, False, id="bound"),
        pytest.param({"deleting": True}, True, id="about to go"),
        pytest.param(None, True, id="gone"),
    ],
)
async def test_a_pod_that_turns_unreadable_on_its_way_keeps_its_place(ends: dict[str, Any] | None, free: bool) -> None:
    """Its Binding is out: nobody else gets the room before it has come to an end."""
    sched = SchedulerHarness()
    sched.node("n1", cpu="1")
    sched.writer.hold = asyncio.Event()
    sched.pod("p", cpu="1")
    await sched.settle()
    for cpu in ("bad!", "worse!"):
        sched.pod("p", cpu=cpu)
    sched.pod("q", cpu="1")
    await sched.settle()
    assert sched.places() == {"q": "unschedulable"}

    if ends is None:
        sched.gone("p")
    else:
        sched.pod("p", cpu="bad!", **ends)
    sched.writer.hold.set()
    await sched.later(20)

    assert (("default/q", "n1") in sched.writer.binds) is free
    assert not sched.cluster.is_assumed("uid-p")


async def test_a_postbind_that_raises_changes_nothing() -> None:
    sched = SchedulerHarness()
    sched.plug(post_bind=(AfterBind("A", error=KeyError("bug")), AfterBind("B")), reserve=(Holds("R"),))
    sched.node("n1")
    sched.pod("p")

    await sched.settle()

    assert sched.calls == ["R.reserve", "A.post_bind", "B.post_bind"]
    assert sched.cluster.is_assumed("uid-p")
    assert [event.reason for event in sched.recorder.events] == ["Scheduled"]
    assert (len(sched.writer.binds), sched.places(), sched.writer.conditions) == (1, {}, [])


async def test_a_pod_that_is_unreadable_for_a_moment_is_not_tried_twice() -> None:
    """Readable → not → readable while its Binding is on the wire: one attempt, one Binding."""
    sched = SchedulerHarness()
    sched.node("n1")
    sched.writer.hold = asyncio.Event()
    sched.pod("p")
    await sched.settle()

    sched.pod("p", cpu="bad!")
    await sched.settle()
    sched.pod("p")
    await sched.settle()
    assert len(sched.parts.binder) == 1
    sched.writer.hold.set()
    await sched.settle()

    assert sched.writer.binds == [("default/p", "n1")]
