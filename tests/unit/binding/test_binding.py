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
from tests.unit.brain import Brain, manifest, typed
from tests.unit.toys import AfterBind, BeforeBind, Holds, Toy


def refuse_once(brain: Brain, error: ApiError) -> None:
    """The first bind fails, later ones succeed."""

    def answer(pod: Pod, node_name: str) -> None:
        if len(brain.writer.binds) == 1:
            raise error

    brain.writer.on_bind = answer


async def test_199_a_pod_is_bound_and_said_so() -> None:
    """Binding, event; no condition, because the server sets it."""
    brain = Brain()
    brain.node("n1")
    brain.pod("p")

    await brain.settle()

    assert brain.writer.binds == [("default/p", "n1")]
    assert [(e.type_, e.reason, e.action, e.note) for e in brain.recorder.events] == [
        ("Normal", "Scheduled", "Binding", "Successfully assigned default/p to n1")
    ]
    assert brain.writer.conditions == []
    assert brain.parts.cluster.is_assumed("uid-p")


async def test_71_the_watch_confirms_the_assumption() -> None:
    """One pod on the node, no longer assumed, nothing left in the queue."""
    brain = Brain()
    brain.node("n1")
    brain.pod("p")
    await brain.settle()

    brain.pod("p", on="n1")

    assert brain.parts.cluster.sizes() == {"nodes": 1, "pods": 1, "assumed_pods": 0}
    assert brain.places() == {}
    assert int(brain.parts.cluster.nodes.pod_count.sum()) == 1


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
    brain = Brain()
    brain.plug(reserve=(Holds("R"),))
    brain.node("n1")
    brain.pod("p")
    if server:
        brain.writer.server["default/p"] = typed(manifest("p", **server))
    refuse_once(brain, error)

    await brain.settle()

    assert brain.calls == ["R.reserve", "R.unreserve"]
    assert brain.parts.cluster.sizes()["assumed_pods"] == 0
    assert brain.places().get("p") == outcome
    assert len(brain.writer.binds) == 1


async def test_an_error_is_retried_after_the_error_back_off_with_event_and_condition() -> None:
    """§3.8: reason SchedulerError, and the second attempt succeeds."""
    brain = Brain()
    brain.node("n1")
    brain.pod("p")
    refuse_once(brain, Unavailable("etcd is away"))

    await brain.settle()
    assert brain.writer.conditions[0][1].reason == "SchedulerError"
    assert brain.message("p") == 'running Bind plugin "DefaultBinder": etcd is away'
    await brain.later(2.5)

    assert [node for _, node in brain.writer.binds] == ["n1", "n1"]


@pytest.mark.parametrize("committed", [True, False], ids=["it was carried out", "it was not"])
async def test_a_lost_answer_is_settled_by_reading(committed: bool) -> None:
    """Never guessed: carried out means bound; otherwise the same node is tried again while the place is still held."""
    brain = Brain()
    brain.node("n1")
    brain.node("n2")
    brain.pod("p")
    refuse_once(brain, Ambiguous("reset"))
    brain.writer.on_read = lambda: brain.writer.server.update(
        {"default/p": typed(manifest("p", on=brain.writer.binds[0][1] if committed else ""))}
    )

    await brain.settle()

    assert len({node for _, node in brain.writer.binds}) == 1
    assert len(brain.writer.binds) == (1 if committed else 2)
    assert [e.reason for e in brain.recorder.events] == ["Scheduled"]


async def test_reading_is_repeated_until_the_server_answers() -> None:
    """The assumption stays while the outcome is unknown."""
    brain = Brain()
    brain.node("n1")
    brain.pod("p")
    refuse_once(brain, Ambiguous("reset"))
    reads = 0

    def away_twice() -> None:
        nonlocal reads
        reads += 1
        if reads <= 2:
            raise Unavailable("away")
        brain.writer.server["default/p"] = typed(manifest("p", on="n1"))

    brain.writer.on_read = away_twice

    await brain.settle()
    assert brain.parts.cluster.is_assumed("uid-p")
    await brain.later(0.2)
    await brain.later(1)

    assert reads == 3
    assert [e.reason for e in brain.recorder.events] == ["Scheduled"]


def unreadable(brain: Brain) -> list[ApiError]:
    """Reads fail for as long as the list that is returned is not empty."""
    away: list[ApiError] = [Unavailable("the server is away")]

    def read() -> None:
        if away:
            raise away[0]

    brain.writer.on_read = read
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
    brain = Brain()
    brain.node("n1", cpu="1")
    brain.pod("p", cpu="1")
    refuse_once(brain, Ambiguous("reset"))
    away = unreadable(brain)
    await brain.settle()
    brain.pod("waits", cpu="1")
    for _ in range(180):
        await brain.later(10)
    assert (brain.cluster.is_assumed("uid-p"), len(brain.writer.binds)) == (True, 1)

    who, _, what = told.partition(": ")
    on = {"bound": "n1", "elsewhere": "other"}.get(what, "")
    if who == "read":
        away.clear()
        brain.writer.server["default/p"] = typed(manifest("p", cpu="1", on=on))
    elif what == "deleted":
        brain.gone("p")
    else:
        brain.pod("p", cpu="1", on=on)
    await brain.later(11)
    await brain.later(11)

    binds_of_p = [node for key, node in brain.writer.binds if key == "default/p"]
    about_p = [e.reason for e in brain.recorder.events if e.pod == "default/p"]
    assert (binds_of_p, about_p) == (["n1"] * binds, events)
    assert "p" not in brain.places()
    assert (("default/waits", "n1") in brain.writer.binds) == (what in {"elsewhere", "deleted"})
    assert brain.parts.binder.remark() == ""


async def test_an_unknown_outcome_is_logged_each_minute_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line a minute for all of them, with the oldest; an error is cut at 1 KiB."""
    logger = CapturingLogger()
    monkeypatch.setattr(underway, "_log", logger)
    brain = Brain()
    brain.node("n1")
    brain.pod("p")
    brain.pod("q")
    unreadable(brain)[0].message = "x" * 5000

    def lost(pod: Pod, node_name: str) -> None:
        raise Ambiguous("reset")

    brain.writer.on_bind = lost
    await brain.settle()
    for _ in range(140):
        await brain.later(1)

    assert [(call.kwargs["count"], call.kwargs["pod"], call.kwargs["node"]) for call in logger.calls] == [
        (2, "default/p", "n1"),
        (2, "default/p", "n1"),
    ]
    assert [len(call.kwargs["error"]) for call in logger.calls] == [1024, 1024]
    shown = brain.parts.binder.remark()
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
    brain = Brain(pod_watch=PodWatch(disconnected_s=lambda: lost_s))
    brain.node("n1", cpu="1")
    brain.pod("p", cpu="1")
    await brain.settle()
    await brain.later(1)
    assert len(brain.writer.binds) == binds
    if binds:
        assert brain.parts.binder.remark() == ""
        return
    assert brain.parts.binder.remark() == ("no Binding is sent: the watch of pods has been disconnected for 10 s")

    lost_s = 0.0
    brain.pod("theirs", cpu="1", on="n1", scheduler="default-scheduler")
    await brain.later(1)

    assert (brain.writer.binds, brain.places()) == ([], {"p": "unschedulable"})


async def test_an_unforeseen_exception_costs_one_attempt() -> None:
    """A bug in a binding is logged with the pod and retried; nothing else suffers."""
    brain = Brain()
    brain.node("n1")
    brain.pod("p")
    brain.pod("q")

    def answer(pod: Pod, node_name: str) -> None:
        if pod.metadata.name == "p" and len(brain.writer.binds) < 3:
            raise ZeroDivisionError

    brain.writer.on_bind = answer

    await brain.settle()
    await brain.later(2.5)

    assert brain.writer.binds[-1] == ("default/p", "n1")
    assert ("default/q", "n1") in brain.writer.binds


async def test_205_an_assumed_pod_that_is_deleted_gives_its_place_back_at_once() -> None:
    """Others are woken before the binding has even failed."""
    brain = Brain()
    brain.node("n1", cpu="1")
    brain.writer.hold = asyncio.Event()
    brain.pod("p", cpu="1")
    await brain.settle()
    brain.pod("q", cpu="1")
    await brain.settle()
    assert brain.places()["q"] == "unschedulable"

    brain.gone("p")
    await brain.later(2.5)

    assert brain.parts.cluster.is_assumed("uid-q")
    brain.writer.hold.set()
    await brain.settle()
    assert ("default/q", "n1") in brain.writer.binds


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
    brain = Brain(pod_watch=PodWatch(disconnected_s=lambda: lost_s))
    brain.node("n1")
    brain.pod("p")
    if error is not None:
        refuse_once(brain, error)
        unreadable(brain)
    await brain.settle()
    draining = asyncio.ensure_future(brain.parts.binder.drain(5))
    await brain.turns()
    brain.clock.move(6)
    await brain.settle()

    assert draining.done()
    assert (len(brain.writer.binds), brain.is_free()) == (binds, True)
    assert bool(brain.parts.binder.remark()) is (error is None)


async def test_draining_waits_for_what_was_sent() -> None:
    """A Binding on the wire is awaited to its answer even when its task is cancelled."""
    brain = Brain()
    brain.node("n1")
    brain.writer.hold = asyncio.Event()
    brain.pod("p")
    await brain.settle()
    draining = asyncio.ensure_future(brain.parts.binder.drain(5))
    await brain.turns()

    brain.clock.move(6)
    await brain.turns()
    assert not draining.done()
    brain.writer.hold.set()

    await asyncio.wait_for(draining, 30)
    assert brain.writer.binds == [("default/p", "n1")]


@pytest.mark.parametrize("before", ["the turn", "the answer"])
async def test_draining_ends_though_the_server_never_answers(before: str) -> None:
    """Pods that wait for their turn are given up at the limit; what is on the wire some seconds later."""
    brain = Brain()
    brain.node("n1")
    never = asyncio.Event()
    if before == "the turn":
        brain.writer.turn_hold = never
    else:
        brain.writer.hold = never
    brain.pod("p")
    await brain.settle()
    draining = asyncio.ensure_future(brain.parts.binder.drain(5))
    await brain.turns()

    brain.clock.move(6)
    await brain.turns()
    assert draining.done() == (before == "the turn")
    brain.clock.move(10)
    await brain.turns()

    assert draining.done()
    assert await draining == 1
    assert brain.writer.binds == []


async def test_a_pod_whose_turn_never_came_gives_its_place_back() -> None:
    """Cancelled between writes: as if the attempt had failed."""
    brain = Brain()
    brain.node("n1")
    brain.writer.turn_hold = asyncio.Event()
    brain.pod("p")
    await brain.settle()

    draining = asyncio.ensure_future(brain.parts.binder.drain(0))
    await brain.turns()
    brain.clock.move(1)
    await brain.settle()
    await draining

    assert brain.is_free()
    assert brain.places() == {"p": "error backoff"}


# -- the wait for a token and a busy server ----------------------------------------------------------------------------


@pytest.mark.parametrize("filled", [False, True], ids=["the node still has room", "the node filled up meanwhile"])
async def test_a_busy_server_is_waited_for_and_then_all_is_looked_at_again(filled: bool) -> None:
    """429 with Retry-After: the wait, a turn of its own, a second look, and only then the next POST."""
    brain = Brain()
    brain.node("n1", cpu="2")
    refuse_once(brain, TooManyRequests("busy", retry_after_s=2.0))
    brain.pod("p", cpu="2")
    await brain.settle()
    await brain.later(1.5)
    assert (len(brain.writer.binds), brain.writer.turns) == (1, 1)
    assert brain.cluster.is_assumed("uid-p")
    if filled:
        brain.pod("other", cpu="2", on="n1", scheduler="default-scheduler")

    await brain.later(1)

    assert brain.writer.turns == 2
    assert len(brain.writer.binds) == (1 if filled else 2)
    assert brain.places() == ({"p": "unschedulable"} if filled else {})


@pytest.mark.parametrize(
    ("retry_after_s", "posts"),
    [
        pytest.param(None, 1, id="a server that does not say for how long: error back-off at once"),
        pytest.param(1.0, 10, id="ten tries, as client-go"),
    ],
)
async def test_patience_with_a_busy_server_ends(retry_after_s: float | None, posts: int) -> None:
    brain = Brain()
    brain.node("n1")

    def busy(pod: Pod, node_name: str) -> None:
        raise TooManyRequests("busy", retry_after_s=retry_after_s)

    brain.writer.on_bind = busy
    brain.pod("p")
    await brain.settle()
    for _ in range(posts - 1):
        assert brain.cluster.is_assumed("uid-p")
        await brain.later(1)

    assert len(brain.writer.binds) == posts
    assert brain.is_free()
    assert brain.places() == {"p": "error backoff"}
    assert brain.message("p") == 'running Bind plugin "DefaultBinder": busy'


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        pytest.param(Code.UNSCHEDULABLE, "Unschedulable", "not today", id="a rejection: in its own words"),
        pytest.param(Code.ERROR, "SchedulerError", 'running Bind plugin "Mine": not today', id="a failure"),
    ],
)
async def test_a_bind_plugin_that_says_no(code: Code, reason: str, message: str) -> None:
    """§3.8: error back-off, whatever it says."""

    class Mine(Toy):
        async def bind(self, *_: object) -> Rejection:
            return Rejection(self.name, code, ("not today",))

    brain = Brain()
    brain.plug(bind=(Mine("Mine"),))
    brain.node("n1")
    brain.pod("p")
    await brain.settle()

    assert [(told.reason, told.message) for _, told in brain.writer.conditions] == [(reason, message)]
    assert (brain.is_free(), brain.places()) == (True, {"p": "error backoff"})


# -- Permit ------------------------------------------------------------------------------------------------------------


async def test_a_pod_deleted_right_after_its_decision_leaves_permit() -> None:
    """The deletion comes before the binding task has run for the first time."""
    brain = Brain()
    brain.plug(permit=(Holds("A", permits=Wait(600)),))
    brain.node("n1")
    brain.pod("p")
    await brain.parts.loop.step()
    brain.gone("p")

    await brain.settle()

    assert brain.is_free()
    assert (brain.writer.binds, brain.places()) == ([], {})


# -- PreBind -----------------------------------------------------------------------------------------------------------


NO_WAY = Rejection("B", Code.UNSCHEDULABLE, ("no way",))


@pytest.mark.parametrize("error", [KeyError("bug"), AttemptError("disk is away")], ids=["a bug", "a failure"])
@pytest.mark.parametrize("is_first", [True, False], ids=["the rejection first", "the rejection last"])
async def test_a_rejection_beside_a_failing_sibling_stays_a_rejection(error: Exception, is_first: bool) -> None:
    """PreBind plugins that run beside each other: an answer about the pod outweighs a failure."""
    brain = Brain()
    toys = [BeforeBind("A", answer=NO_WAY), BeforeBind("B", answer=error)]
    for toy in toys:
        toy.pre_bind_parallel = True
    brain.plug(pre_bind=tuple(toys if is_first else reversed(toys)))
    brain.node("n1")
    brain.pod("p")

    await brain.settle()

    assert sorted(brain.calls) == ["A.pre_bind", "B.pre_bind"]
    assert [(said.reason, said.message) for _, said in brain.writer.conditions] == [("Unschedulable", "no way")]


# -- whatever happens, the pod keeps its place or its node -------------------------------------------------------------


async def test_an_unreserve_that_raises_loses_nothing() -> None:
    """The pod is retried, the node's room is free, and the other plugins are unreserved."""

    class Breaks(Holds):
        def unreserve(self, *_: object) -> None:
            raise RuntimeError("boom")

    brain = Brain()
    brain.plug(reserve=(Holds("A"), Breaks("B")))
    brain.node("n1")
    refuse_once(brain, Unavailable("500"))
    brain.pod("p", cpu="4")

    await brain.settle()
    assert brain.is_free()
    assert brain.places() == {"p": "error backoff"}
    assert brain.calls == ["A.reserve", "B.reserve", "A.unreserve"]
    await brain.later(2.5)

    assert len(brain.writer.binds) == 2
    assert brain.places() == {}


@pytest.mark.parametrize(
    "error", [Unavailable("500"), Forbidden("no"), KeyError("bug")], ids=lambda e: type(e).__name__
)
async def test_an_error_after_the_watch_has_shown_the_pod_bound_is_none(error: Exception) -> None:
    """The server committed and then failed to say so: nothing of a bound pod is unreserved."""
    brain = Brain()
    brain.plug(reserve=(Holds("A"),))
    brain.node("n1")

    def commits(pod: Pod, node_name: str) -> None:
        brain.pod("p", on=node_name)
        raise error

    brain.writer.on_bind = commits
    brain.pod("p")

    await brain.settle()

    assert brain.calls == ["A.reserve"]
    assert [event.reason for event in brain.recorder.events] == ["Scheduled"]
    assert (brain.cluster.sizes()["pods"], brain.places(), brain.writer.conditions) == (1, {}, [])
    assert brain.is_free()


async def test_a_late_commit_of_a_lost_binding_counts_though_the_second_look_says_no() -> None:
    """Lost, read as unbound, then carried out after all and confirmed, while the node fills up: the pod is bound."""
    brain = Brain()
    brain.plug(reserve=(Holds("A"),))
    brain.node("n1", cpu="2")
    brain.pod("p", cpu="1")

    def lost(pod: Pod, node_name: str) -> None:
        raise Ambiguous("reset")

    def read() -> None:
        brain.writer.server["default/p"] = typed(manifest("p"))
        brain.pod("p", cpu="1", on="n1")
        brain.pod("theirs", cpu="2", on="n1", scheduler="default-scheduler")

    brain.writer.on_bind, brain.writer.on_read = lost, read

    await brain.settle()

    assert brain.calls == ["A.reserve"]
    assert [event.reason for event in brain.recorder.events] == ["Scheduled"]
    assert brain.places() == {}


async def test_a_pod_that_turns_unreadable_on_its_way_gets_no_condition_behind_its_binding() -> None:
    """The server would keep PodScheduled=False on a bound pod."""
    brain = Brain()
    brain.node("n1")
    brain.writer.hold = asyncio.Event()
    brain.pod("p")
    await brain.settle()
    brain.pod("p", cpu="bad!")
    brain.writer.hold.set()
    await brain.settle()

    assert brain.writer.wire == ["bind p"]


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
    brain = Brain()
    brain.node("n1", cpu="1")
    brain.writer.hold = asyncio.Event()
    brain.pod("p", cpu="1")
    await brain.settle()
    for cpu in ("bad!", "worse!"):
        brain.pod("p", cpu=cpu)
    brain.pod("q", cpu="1")
    await brain.settle()
    assert brain.places() == {"q": "unschedulable"}

    if ends is None:
        brain.gone("p")
    else:
        brain.pod("p", cpu="bad!", **ends)
    brain.writer.hold.set()
    await brain.later(20)

    assert (("default/q", "n1") in brain.writer.binds) is free
    assert not brain.cluster.is_assumed("uid-p")


async def test_a_postbind_that_raises_changes_nothing() -> None:
    brain = Brain()
    brain.plug(post_bind=(AfterBind("A", error=KeyError("bug")), AfterBind("B")), reserve=(Holds("R"),))
    brain.node("n1")
    brain.pod("p")

    await brain.settle()

    assert brain.calls == ["R.reserve", "A.post_bind", "B.post_bind"]
    assert brain.cluster.is_assumed("uid-p")
    assert [event.reason for event in brain.recorder.events] == ["Scheduled"]
    assert (len(brain.writer.binds), brain.places(), brain.writer.conditions) == (1, {}, [])


async def test_a_pod_that_is_unreadable_for_a_moment_is_not_tried_twice() -> None:
    """Readable → not → readable while its Binding is on the wire: one attempt, one Binding."""
    brain = Brain()
    brain.node("n1")
    brain.writer.hold = asyncio.Event()
    brain.pod("p")
    await brain.settle()

    brain.pod("p", cpu="bad!")
    await brain.settle()
    brain.pod("p")
    await brain.settle()
    assert len(brain.parts.binder) == 1
    brain.writer.hold.set()
    await brain.settle()

    assert brain.writer.binds == [("default/p", "n1")]
